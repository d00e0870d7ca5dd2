"""Headers of .safetensors files are read without the library; damaged ones are refused.

Index files of sharded states: the shards are one state, and hostile indices are refused.
"""

import errno
import json
import os
import struct
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lccodec.adapters import safetensors as adapter
from lccodec.adapters.files import shards
from lccodec.adapters.files.header import Tensor, header_of, read_header
from lccodec.adapters.files.shards import parsed, save_shards
from lccodec.container.folder import read_bounded
from lccodec.errors import ArgumentError, FormatError, LimitError, StorageError

from ...support.crashes import tried
from ...support.profiles import LONG


def test_what_is_too_long_or_is_not_json_is_told(tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(b"[1, 2]")
    assert parsed(read_bounded(path, 6, "rule"), "rule", "a.json") == [1, 2]
    with pytest.raises(LimitError, match=r"a\.json: more than 5 bytes \[rule\]"):
        read_bounded(path, 5, "rule")
    for text in (b"", b"\xff", b"[" * 100_000, b'{"a":' * 100_000):
        with pytest.raises(FormatError, match="not JSON, or nested too deeply"):
            parsed(text, "rule", "a.json")


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


def test_a_state_in_shards_comes_back_as_it_was(tmp_path):
    state = {"m": {"w": np.arange(6.0), "f8": np.arange(4, dtype=np.uint8)}, "l": [1, ("x", None)], "n": 3}
    metadata = {"run": "7", "lccodec.types": '{"float8_e5m2":["m/f8"]}'}
    path = tmp_path / "model.safetensors.index.json"
    adapter.save_file(state, path, metadata, max_shard_bytes=50)
    index = json.loads(path.read_text())
    assert index["metadata"]["total_size"] == 48 + 4 + 8 + 8
    names = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
    assert index["weight_map"] == {"m/w": names[0], "m/f8": names[1], "n": names[1], "l/0": names[1]}
    found, kept = adapter.load_state(path)
    assert (found["l"], found["n"], found["m"]["w"].tolist()) == (state["l"], 3, [0, 1, 2, 3, 4, 5])
    assert kept == {**metadata, "format": "pt", "total_size": "68"}
    assert adapter.load_metadata(tmp_path / names[1])["lccodec.types"] == '{"float8_e5m2":["m~1f8"]}'


def test_the_library_of_hugging_face_reads_what_is_written(tmp_path):
    from huggingface_hub import load_state_dict_from_file

    tensors = {f"layer.{number}": np.full(100, number, np.float32) for number in range(3)}
    path = tmp_path / "model.safetensors.index.json"
    adapter.save_file(tensors, path, max_shard_bytes=400)
    for number, name in enumerate(tensors):
        file = tmp_path / json.loads(path.read_text())["weight_map"][name]
        assert load_state_dict_from_file(file)[name].tolist() == [number] * 100


@pytest.mark.parametrize("size", [0, -1, 1.5, True, None])
def test_a_shard_has_a_size(tmp_path, size):
    with pytest.raises(ArgumentError, match="positive number of bytes"):
        adapter.save_file({"a": np.ones(1)}, tmp_path / "m.safetensors.index.json", {}, size)
    assert not list(tmp_path.iterdir())


def test_a_write_that_fails_leaves_the_index_before_it(tmp_path):
    path = tmp_path / "model.safetensors.index.json"
    adapter.save_file({"a": np.ones(4)}, path)
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    with pytest.raises(ArgumentError, match="complex128"):
        adapter.save_file({"a": np.zeros(4), "b": np.zeros(4, complex)}, path, max_shard_bytes=1)
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_a_state_without_tensors_has_one_shard(tmp_path):
    path = tmp_path / "model.safetensors.index.json"
    adapter.save_file({"text": "x"}, path)
    assert adapter.load_state(path)[0] == {"text": "x"}


def test_shards_of_an_older_index_go(tmp_path):
    path = tmp_path / "model.safetensors.index.json"
    arrays = {name: np.arange(4.0) for name in "abcd"}
    adapter.save_file(arrays, path, max_shard_bytes=32)
    (tmp_path / "model-00009-of-00009.safetensors").write_bytes(b"of nobody")
    weights = json.loads(path.read_text())
    weights["weight_map"]["e"] = "mine.safetensors"  # a name that is not ours
    path.write_text(json.dumps(weights))
    (tmp_path / "mine.safetensors").write_bytes(b"mine")
    adapter.save_file(arrays, path, max_shard_bytes=64)
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "mine.safetensors",
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
        "model-00009-of-00009.safetensors",
        "model.safetensors.index.json",
    ]
    assert adapter.load_file(path).keys() == arrays.keys()
    path.write_text("damaged")
    adapter.save_file(arrays, path, max_shard_bytes=1000)
    assert adapter.load_file(path).keys() == arrays.keys()


# --- a state over an older one --------------------------------------------------------------------


def _state(k):
    return {f"layer{i}": np.full(100, k, np.float32) for i in range(6)}


def _value(path):
    """The one number that all arrays of a state are made of."""
    [value] = {float(a) for array in adapter.load_file(path).values() for a in array}
    return value


@pytest.mark.parametrize("bytes_of_shard", [800, 1200])  # as many shards as before, and others
def test_no_crash_mixes_the_shards_of_two_states(tmp_path, bytes_of_shard):
    root = tmp_path / "root"
    root.mkdir()
    adapter.save_file(_state(1), root / "m.safetensors.index.json", max_shard_bytes=800)

    def work(replay):
        for k in (2, 3):
            path = root / "m.safetensors.index.json"
            adapter.save_file(_state(k), path, max_shard_bytes=bytes_of_shard)
            replay.done(k)

    def check(reported, place):
        found = _value(place / "m.safetensors.index.json")
        assert found in {2: [2, 3], 3: [3]}.get(reported[-1] if reported else 1, [1, 2])
        adapter.save_file(_state(4), place / "m.safetensors.index.json", max_shard_bytes=800)
        assert _value(place / "m.safetensors.index.json") == 4

    assert tried(root, work, check, most=None if LONG else 60) == []
    assert len([path for path in root.iterdir() if path.suffix == ".safetensors"]) == 2400 // bytes_of_shard


def test_names_that_the_older_index_has_are_not_used(tmp_path):
    path = tmp_path / "model.safetensors.index.json"
    found = []
    for k in range(3):
        adapter.save_file(_state(k), path, max_shard_bytes=1200)
        found.append(sorted(set(json.loads(path.read_text())["weight_map"].values())))
        assert sorted(file.name for file in tmp_path.iterdir()) == [*found[-1], path.name]
    names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    assert found == [names, [name.replace("model-", "model-2-") for name in names], names]


def test_a_file_that_another_index_may_have_stays(tmp_path):
    """`model-2-00001-of-00001.safetensors` is a shard of an index of its own, or of nobody."""
    path, other = (tmp_path / f"{stem}.safetensors.index.json" for stem in ("model", "model-2"))
    adapter.save_file(_state(1), other)
    for k in (2, 3, 4):
        adapter.save_file(_state(k), path)
        assert (_value(other), _value(path)) == (1, k)


@pytest.mark.parametrize("seal", [False, True])
def test_an_index_that_only_others_read_keeps_its_shards_until_it_is_replaced(tmp_path, seal):
    path = tmp_path / "model.safetensors.index.json"
    adapter.save_file(_state(1), path)
    if seal:
        (tmp_path / "model.safetensors.index.json.sha256").write_text("0" * 64 + "  " + path.name + "\n")
    else:
        path.chmod(0o000)
    before = (tmp_path / "model-00001-of-00001.safetensors").stat().st_ino

    def fail(*_):
        assert (tmp_path / "model-00001-of-00001.safetensors").stat().st_ino == before
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        save_shards(path, _state(2), {}, 5000, fail)
    assert (tmp_path / "model-00001-of-00001.safetensors").stat().st_ino == before
    adapter.save_file(_state(2), path)
    assert json.loads(path.read_text())["weight_map"]["layer0"] == "model-2-00001-of-00001.safetensors"


def test_a_write_that_fails_late_leaves_no_shards(tmp_path, monkeypatch):
    path = tmp_path / "model.safetensors.index.json"
    adapter.save_file(_state(1), path, max_shard_bytes=800)
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    calls = []

    def fail(fd):
        calls.append(fd)
        if len(calls) == 3:
            raise OSError(errno.ENOSPC, "full")
        fsync(fd)

    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(StorageError, match="full"):
        adapter.save_file(_state(2), path, max_shard_bytes=800)
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_several_that_write_at_once_wait_for_each_other(tmp_path):
    path = tmp_path / "model.safetensors.index.json"
    threads = [threading.Thread(target=adapter.save_file, args=(_state(k), path, {}, 800)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert _value(path) in range(4)
    assert len(list(tmp_path.iterdir())) == 4


def test_an_index_that_is_too_long(tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "MAX_INDEX_BYTES", 100)
    with pytest.raises(LimitError, match="more than 100 bytes"):
        adapter.load_file(_shards(tmp_path))
