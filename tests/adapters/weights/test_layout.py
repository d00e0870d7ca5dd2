"""Headers of .safetensors files are read without the library; damaged ones are refused."""

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lccodec import FormatError
from lccodec.adapters.weights.layout import read_layout

from ...support.models import small_model, write_model


def write(path: Path, header: Any, data: bytes = bytes(8)) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


@pytest.mark.parametrize("shards", [1, 3])
def test_every_tensor_is_found(tmp_path: Path, shards: int) -> None:
    model = small_model()
    write_model(tmp_path, model, shards)
    found = read_layout(tmp_path).arrays()
    assert found.keys() == model.keys()
    for name, array in model.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        assert found[name].tobytes() == array.tobytes()


def test_a_type_that_is_not_known_has_no_array(tmp_path: Path) -> None:
    write(tmp_path / "model.safetensors", {"x": entry(dtype="F4", shape=[16])})
    layout = read_layout(tmp_path)
    assert layout.tensors["x"].kind is None
    assert layout.arrays() == {}


def entry(**change: Any) -> dict[str, Any]:
    return {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **change}


def test_an_index_that_does_not_fit(tmp_path: Path) -> None:
    write_model(tmp_path, {"a": np.ones(2, "f4"), "b": np.ones(2, "f4")}, 2)
    index = tmp_path / "model.safetensors.index.json"
    document = json.loads(index.read_text())
    document["weight_map"]["c"] = document["weight_map"]["a"]
    index.write_text(json.dumps(document))
    with pytest.raises(FormatError, match="only one of index and shard has c"):
        read_layout(tmp_path)
    for text in ("no JSON", "[]"):
        index.write_text(text)
        with pytest.raises(FormatError, match="not an index"):
            read_layout(tmp_path)
