"""Headers of .safetensors files are read without the library; damaged ones are refused."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from lccodec import FormatError
from lccodec.adapters.files.header import Tensor, header_of, read_header


def write(path: Path, header: Any, data: bytes = bytes(8)) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def entry(**change: Any) -> dict[str, Any]:
    return {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **change}


def test_tensors_are_in_the_order_of_their_bytes(tmp_path: Path) -> None:
    header = {"__metadata__": {"k": "v"}, "b": entry(data_offsets=[8, 16]), "a": entry()}
    path = write(tmp_path / "model.safetensors", header, bytes(16))
    start = path.stat().st_size - 16
    tensors, metadata = read_header(path)
    assert metadata == {"k": "v"}
    assert list(tensors) == ["a", "b"]
    assert tensors["b"] == Tensor("model.safetensors", start + 8, 8, "F32", (2,))
    with path.open("rb") as stream:
        assert header_of(stream, path) == (tensors, metadata)


def repr_short(header: Any) -> str:
    return repr(header)[:40]


@pytest.mark.parametrize(
    "header",
    [
        b"no JSON",
        [],
        {"x": 1},
        {"x": {"dtype": "F32", "shape": [2]}},
        {"x": entry(data_offsets=[0, 9])},
        {"x": entry(data_offsets=[1, 9])},
        {"x": entry(data_offsets=[-8, 0])},
        {"x": entry(data_offsets=[8, 0])},
        {"x": entry(data_offsets=[0])},
        {"x": entry(data_offsets=[0.0, 8.0])},
        {"x": entry(shape=[3])},
        {"x": entry(shape=[-2])},
        {"x": entry(dtype=5)},
        {"__metadata__": 3, "x": entry()},
        {"__metadata__": {"a": 3}, "x": entry()},
        {"__metadata__": [["a", "b"]] * 2, "x": entry()},
        {"x": entry(shape=[2] + [1] * 64)},
        {"x": entry(shape=[0, 1 << 50], data_offsets=[0, 0])},
        {"x": entry(dtype="?", shape=[3] * 200_000)},
        {"x": entry(shape=[9] * 1_000_000)},
        {"x": entry(shape=[1 << 200] * 20_000 + [0], data_offsets=[0, 0])},
        {"x": entry(), "y": entry(data_offsets=[7, 8], dtype="U8", shape=[1])},
    ],
    ids=repr_short,
)
def test_damaged_headers(tmp_path: Path, header: Any) -> None:
    with pytest.raises(FormatError, match="the header is damaged, or a tensor"):
        read_header(write(tmp_path / "model.safetensors", header))


@pytest.mark.parametrize("data", [b"", b"1234567", struct.pack("<Q", 99), struct.pack("<Q", 1 << 62) + b"{}"])
def test_a_header_that_is_longer_than_the_file(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "model.safetensors").write_bytes(data)
    with pytest.raises(FormatError, match="a header of"):
        read_header(tmp_path / "model.safetensors")
