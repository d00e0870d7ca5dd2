"""A .safetensors file comes back as it was written, bfloat16 and metadata included."""

import json
import os
import sys

import ml_dtypes
import numpy as np
import pytest
import safetensors
import safetensors.numpy

import lccodec
from lccodec.adapters import safetensors as adapter
from lccodec.errors import ArgumentError, FormatError, StorageError

from ..support.strategies import ALL_DTYPES, bits_of, random_array


@pytest.mark.parametrize("name", [name for name in ALL_DTYPES if name != "complex128"])
@pytest.mark.parametrize("shape", [(), (0, 3), (4, 5)])
def test_every_dtype_round_trips(tmp_path, name, shape):
    array = random_array(name, shape, seed=1)
    try:
        adapter.save_file({"x": array}, tmp_path / "a.safetensors")
    except ArgumentError:
        if name == "complex64" and not hasattr(safetensors, "TensorSpec"):
            pytest.skip("an old library")
        raise
    back = adapter.load_file(tmp_path / "a.safetensors")["x"]
    assert (back.dtype, back.shape) == (array.dtype, array.shape)
    assert np.array_equal(bits_of(back), bits_of(array))


def test_the_library_reads_what_is_written_and_the_other_way_round(tmp_path):
    arrays = {"b": np.arange(3), "a": np.ones((2, 3), np.float32)}
    adapter.save_file(arrays, tmp_path / "ours.safetensors")
    safetensors.numpy.save_file(arrays, tmp_path / "theirs.safetensors")
    assert (tmp_path / "ours.safetensors").read_bytes() == (tmp_path / "theirs.safetensors").read_bytes()
    back = adapter.load_file(tmp_path / "theirs.safetensors")
    assert all(np.array_equal(back[name], arrays[name]) for name in arrays)


def test_any_memory_layout_and_byte_order(tmp_path):
    base = np.arange(24, dtype=np.float32).reshape(4, 6)
    state = {"f": np.asfortranarray(base), "s": base[::2, ::3], "big": base.astype(">f4")}
    adapter.save_file(state, tmp_path / "a.safetensors")
    back = adapter.load_file(tmp_path / "a.safetensors")
    assert all(np.array_equal(back[name], state[name]) for name in state)


def test_a_nested_state_is_flattened_and_numbers_become_tensors(tmp_path):
    adapter.save_file({"m": {"w": np.ones(2)}, "sizes": [1, 2.5]}, tmp_path / "a.safetensors")
    back = adapter.load_file(tmp_path / "a.safetensors")
    assert sorted(back) == ["m/w", "sizes/0", "sizes/1"]
    assert back["sizes/0"].dtype == np.int64
    assert back["sizes/1"][()] == 2.5


@pytest.mark.parametrize("metadata", [None, {}, {"format": "pt", "ü": "\n"}])
def test_metadata(tmp_path, metadata):
    path = tmp_path / "a.safetensors"
    adapter.save_file({"x": np.ones(2)}, path, metadata)
    assert adapter.load_metadata(path) == (metadata or {})
    assert list(adapter.load_file(path)) == ["x"]


@pytest.mark.parametrize("name", ["a/b", "a~1b", "~", "", "a\0b"])
def test_names_stay_as_they_are_through_a_chain(tmp_path, name):
    adapter.save_file({name: np.arange(3)}, tmp_path / "a.safetensors")
    with lccodec.Chain(tmp_path / "chain") as chain:
        chain.save(0, adapter.load_file(tmp_path / "a.safetensors"))
        adapter.save_file(chain.restore(), tmp_path / "b.safetensors")
    assert list(adapter.load_file(tmp_path / "b.safetensors")) == [name]


def test_bfloat16_without_ml_dtypes(tmp_path, monkeypatch):
    array = np.linspace(-2, 2, 7, dtype=np.float32).astype(ml_dtypes.bfloat16)
    adapter.save_file({"x": array}, tmp_path / "a.safetensors")
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    back = adapter.load_file(tmp_path / "a.safetensors")
    assert back["x"].dtype == lccodec.BFLOAT16_BITS
    adapter.save_file(back, tmp_path / "b.safetensors")
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()


def _file(header: object, data: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


FLOAT8 = {
    "F8_E4M3": "float8_e4m3fn",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2": "float8_e5m2",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "F8_E8M0": "float8_e8m0fnu",
}


@pytest.mark.parametrize("dtype", FLOAT8)
def test_float8_is_bits_and_a_note_and_float8_again(tmp_path, dtype):
    path = tmp_path / "a.safetensors"
    header = {
        "__metadata__": {"format": "pt"},
        "a/b": {"dtype": dtype, "shape": [2, 2], "data_offsets": [0, 4]},
        "c": {"dtype": "U8", "shape": [1], "data_offsets": [4, 5]},
    }
    path.write_bytes(_file(header, b"abcde"))
    arrays, metadata = adapter.load_file(path), adapter.load_metadata(path)
    assert arrays["a/b"].tolist() == [[97, 98], [99, 100]]
    assert metadata == {"format": "pt", "lccodec.types": f'{{"{FLOAT8[dtype]}":["a~1b"]}}'}
    adapter.save_file(arrays, tmp_path / "b.safetensors", metadata)
    again = (tmp_path / "b.safetensors").read_bytes()
    assert f'"a/b":{{"dtype":"{dtype}"'.encode() in again
    assert b"lccodec" not in again
    assert adapter.load_metadata(tmp_path / "b.safetensors") == metadata


def test_a_type_that_the_format_does_not_have_stays_a_note(tmp_path):
    note = {"complex32": ["m/z"], "int": ["m"], "float8_e5m2": ["m/f", "m/wrong"]}
    m = {"z": np.ones((3, 2), np.float16), "f": np.ones(3, np.uint8), "wrong": np.ones(3, np.int32)}
    metadata = {"lccodec.types": json.dumps(note)}
    adapter.save_file({"m": m}, tmp_path / "a.safetensors", metadata)
    back = json.loads(adapter.load_metadata(tmp_path / "a.safetensors")["lccodec.types"])
    assert back == {"complex32": ["m~1z"], "float8_e5m2": ["m~1wrong", "m~1f"]}


def test_other_dtypes_are_refused_by_name(tmp_path):
    path = tmp_path / "a.safetensors"
    path.write_bytes(_file({"w": {"dtype": "F4", "shape": [2], "data_offsets": [0, 1]}}, b"a"))
    with pytest.raises(ArgumentError, match=r"a\.safetensors: array 'w': dtype F4"):
        adapter.load_file(path)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"x": np.ones(2, np.complex128)}, "array 'x': dtype complex128"),
        ({"x": np.ones(2, ml_dtypes.float8_e4m3fn)}, "array 'x': dtype float8_e4m3fn"),
        ({"__metadata__": np.ones(2)}, "reserved"),
    ],
)
def test_what_it_cannot_hold_is_refused_by_name(tmp_path, state, message):
    with pytest.raises(ArgumentError, match=message):
        adapter.save_file(state, tmp_path / "a.safetensors")
    assert not list(tmp_path.iterdir())


GOOD = _file({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}, bytes(8))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        GOOD[:5],
        GOOD[:20],
        GOOD[:-1],
        GOOD + b"x",
        b"\xff" * 64,
        _file([]),
        _file({"w": {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}}, bytes(8)),
        _file({"w": {"dtype": "F99", "shape": [2], "data_offsets": [0, 8]}}, bytes(8)),
        _file({"w": {"dtype": "F32", "shape": [2**62, 4], "data_offsets": [0, 8]}}, bytes(8)),
    ],
)
def test_a_broken_file_is_named(tmp_path, data):
    path = tmp_path / "broken.safetensors"
    path.write_bytes(data)
    for load in (adapter.load_file, adapter.load_metadata):
        with pytest.raises(FormatError, match=r"broken\.safetensors") as caught:
            load(path)
        assert caught.value.rule == "safetensors"


def test_what_the_system_refuses_is_a_storage_error(tmp_path):
    for load in (adapter.load_file, adapter.load_metadata):
        with pytest.raises(StorageError, match=r"none\.safetensors"):
            load(tmp_path / "none.safetensors")
        with pytest.raises(StorageError, match="cannot read"):
            load(tmp_path)
    with pytest.raises(StorageError, match="cannot write"):
        adapter.save_file({}, tmp_path / "no" / "a.safetensors")


def test_a_failed_write_keeps_what_was_there(tmp_path, monkeypatch):
    def fail(*_: object, **__: object) -> None:
        raise safetensors.SafetensorError("Error while serializing: I/O error: No space left on device")

    path = tmp_path / "a.safetensors"
    adapter.save_file({"x": np.ones(3)}, path)
    monkeypatch.setattr(safetensors, "serialize_file", fail)
    with pytest.raises(StorageError, match="No space left"):
        adapter.save_file({"x": np.zeros(3)}, path)
    assert list(tmp_path.iterdir()) == [path]
    assert adapter.load_file(path)["x"][0] == 1


def test_a_file_is_replaced_and_has_ordinary_permissions(tmp_path):
    path = tmp_path / "a.safetensors"
    path.touch()
    usual = path.stat().st_mode
    adapter.save_file({"x": np.ones(2)}, path)
    if os.name == "posix":
        assert path.stat().st_mode == usual
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o400, 0o666])
def test_a_file_that_is_replaced_keeps_its_mode(tmp_path, mode):
    path = tmp_path / "a.safetensors"
    path.write_bytes(b"")
    path.chmod(mode)
    adapter.save_file({"w": np.ones(3)}, path)
    assert path.stat().st_mode & 0o7777 == mode
    assert adapter.load_file(path)["w"].tolist() == [1, 1, 1]


@pytest.mark.parametrize("shape", [[1] * 65, [0, 2**63 - 1], [0, 2**63], [0, 2**64 - 1]])
def test_a_shape_that_numpy_does_not_have_is_named(tmp_path, shape):
    path = tmp_path / "a.safetensors"
    size = 4 if all(shape) else 0
    path.write_bytes(_file({"w": {"dtype": "F32", "shape": shape, "data_offsets": [0, size]}}, b"\0" * size))
    with pytest.raises(FormatError, match="'w'"):
        adapter.load_file(path)


def test_a_path_whose_name_is_not_unicode(tmp_path):
    path = tmp_path / os.fsdecode(b"\xff.safetensors")
    state = {"w": np.ones(3)}
    adapter.save_file(state, path, {"k": "v"})
    assert adapter.load_file(path)["w"].tolist() == [1, 1, 1]
    assert adapter.load_metadata(path) == {"k": "v"}
