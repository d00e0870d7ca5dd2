"""Index files of sharded states: the shards are one state, and hostile indices are refused."""

import json
from pathlib import Path

import numpy as np
import pytest

from lccodec.adapters import safetensors as adapter
from lccodec.errors import FormatError, StorageError


def _shards(directory: Path, **index: object) -> Path:
    """A state in two shards, and an index that may be wrong."""
    adapter.save_file({"a": np.arange(3), "b": np.ones(2)}, directory / "m-1.safetensors", {"format": "pt"})
    adapter.save_file(
        {"c": np.zeros(4, np.uint8)},
        directory / "m-2.safetensors",
        {"format": "pt", "lccodec.types": '{"float8_e5m2":["c"]}'},
    )
    weights = {"c": "m-2.safetensors", "a": "m-1.safetensors", "b": "m-1.safetensors"}
    path = directory / "model.safetensors.index.json"
    path.write_text(json.dumps({"metadata": {"total_size": 44}, "weight_map": weights, **index}))
    return path


def test_the_shards_of_an_index_are_one_state(tmp_path):
    path = _shards(tmp_path)
    back = adapter.load_file(path)
    assert {name: array.tolist() for name, array in back.items()} == {
        "a": [0, 1, 2],
        "b": [1, 1],
        "c": [0] * 4,
    }
    assert adapter.load_metadata(path) == {
        "format": "pt",
        "total_size": "44",
        "lccodec.types": '{"float8_e5m2":["c"]}',
    }


def test_a_shard_that_is_missing_is_named(tmp_path):
    path = _shards(tmp_path)
    (tmp_path / "m-2.safetensors").unlink()
    with pytest.raises(StorageError, match=r"1 of 2 shards are missing: m-2\.safetensors"):
        adapter.load_file(path)
    with pytest.raises(StorageError, match=r"m-2\.safetensors"):
        adapter.load_metadata(path)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (None, "not an index"),
        ([], "not an index"),
        ({"a": ["m-1.safetensors"]}, "not an index"),
        ({"a": 3}, "not the name of a .safetensors file"),
        ({"a": "../m-1.safetensors"}, "not the name of a .safetensors file"),
        ({"a": "/etc/passwd"}, "not the name of a .safetensors file"),
        ({"a": ".."}, "not the name of a .safetensors file"),
        ({"a": "..\\m"}, "not the name of a .safetensors file"),
        ({"a": "m\0"}, "not the name of a .safetensors file"),
        ({"a": "m-1.safetensors", "x": "m-1.safetensors"}, "only one of index and shard has b, x"),
        ({"a": "model.safetensors.index.json"}, "not the name of a .safetensors file"),
    ],
)
def test_an_index_that_does_not_fit(tmp_path, weights, message):
    with pytest.raises(FormatError, match=message):
        adapter.load_file(_shards(tmp_path, weight_map=weights))


def test_an_index_that_is_none(tmp_path):
    path = tmp_path / "model.safetensors.index.json"
    for text in ("", "[]", "[" * 100000, "\xff"):
        path.write_text(text, encoding="latin-1")
        for load in (adapter.load_file, adapter.load_metadata):
            with pytest.raises(FormatError, match="not an index"):
                load(path)
    path.unlink()
    with pytest.raises(StorageError, match="cannot read"):
        adapter.load_file(path)
