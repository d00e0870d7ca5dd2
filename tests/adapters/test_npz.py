"""An .npz file comes back as it was written; what it cannot hold is refused by name."""

import io
import os
import pickle
import zipfile
import zlib

import ml_dtypes
import numpy as np
import pytest

import lccodec
from lccodec.adapters import npz
from lccodec.errors import ArgumentError, DataError, FormatError, StorageError

from ..support.programs import run_program
from ..support.strategies import ALL_DTYPES, bits_of, random_array
from ..support.zips import Part, archive, deflated


@pytest.mark.parametrize("name", [name for name in ALL_DTYPES if name != "bfloat16"])
@pytest.mark.parametrize("shape", [(), (0, 3), (4, 5)])
def test_every_dtype_round_trips(tmp_path, name, shape):
    array = random_array(name, shape, seed=1)
    npz.save_file({"x": array}, tmp_path / "a.npz")
    back = npz.load_file(tmp_path / "a.npz")["x"]
    assert (back.dtype, back.shape) == (array.dtype, array.shape)
    assert np.array_equal(bits_of(back), bits_of(array))


def test_numpy_reads_what_is_written_and_the_other_way_round(tmp_path):
    arrays = {"b": np.arange(3), "a": np.asfortranarray(np.arange(6.0).reshape(2, 3))}
    npz.save_file(arrays, tmp_path / "ours.npz")
    np.savez_compressed(tmp_path / "theirs.npz", **arrays)
    with np.load(tmp_path / "ours.npz", allow_pickle=False) as theirs:
        assert all(np.array_equal(theirs[name], arrays[name]) for name in arrays)
    ours = npz.load_file(tmp_path / "theirs.npz")
    assert list(ours) == ["b", "a"]
    assert all(np.array_equal(ours[name], arrays[name]) for name in arrays)


def test_a_nested_state_is_flattened_and_numbers_become_arrays(tmp_path):
    weight = np.ones(3, np.float32)
    state = {"m": {"w": weight, "tied": weight}, "sizes": (1, 2.5), "on": True, "big": 2**63, "file": weight}
    npz.save_file(state, tmp_path / "a.npz")
    back = npz.load_file(tmp_path / "a.npz")
    assert list(back) == ["m/w", "m/tied", "file", "sizes/0", "sizes/1", "on", "big"]
    assert {name: (array.dtype.name, array.tolist()) for name, array in back.items() if not array.ndim} == {
        "sizes/0": ("int64", 1),
        "sizes/1": ("float64", 2.5),
        "on": ("bool", True),
        "big": ("uint64", 2**63),
    }


@pytest.mark.parametrize("name", ["a/b", "a~1b", "~", "w.npy", "", "file", "allow_pickle", "ünïcode", "a\\b"])
def test_names_stay_as_they_are_through_a_chain(tmp_path, name):
    npz.save_file({name: np.arange(3)}, tmp_path / "a.npz")
    with lccodec.Chain(tmp_path / "chain") as chain:
        chain.save(0, npz.load_file(tmp_path / "a.npz"))
        npz.save_file(chain.restore(), tmp_path / "b.npz")
    assert list(npz.load_file(tmp_path / "b.npz")) == [name]


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"m": {"note": "text"}}, "'m/note' is a str"),
        ({"m": [None]}, "'m/0' is a NoneType"),
        ({"m": b"x"}, "'m' is a bytes"),
        ({"m": 2**64}, "'m' is a int of more than 64 bits"),
        ({"a": {"b": np.ones(1)}, "a/b": np.ones(1)}, "both be named 'a/b'"),
        ({"x": np.ones(2, ml_dtypes.bfloat16)}, "'x' is bfloat16.*safetensors.*float32"),
        ({"x": np.ones(2, "u2").view(lccodec.BFLOAT16_BITS)}, "'x' is bfloat16"),
        ({"x": np.array(["a"])}, "array 'x': dtype [<>]U1"),
        ({"x": np.array([None])}, "'x' has dtype object"),
        ({"a\0b": np.ones(1)}, "null character"),
    ],
)
def test_what_it_cannot_hold_is_refused_by_name(tmp_path, state, message):
    with pytest.raises(ArgumentError, match=message):
        npz.save_file(state, tmp_path / "a.npz")
    assert not list(tmp_path.iterdir())


def test_metadata_has_no_place(tmp_path):
    npz.save_file({}, tmp_path / "a.npz", metadata={})
    with pytest.raises(ArgumentError, match="safetensors"):
        npz.save_file({}, tmp_path / "a.npz", metadata={"k": "v"})


def test_a_pickle_is_never_loaded(tmp_path):
    np.savez(tmp_path / "a.npz", good=np.ones(2), bad=np.array([{}], dtype=object))
    with pytest.raises(FormatError, match=r"a\.npz: array 'bad': holds Python objects"):
        npz.load_file(tmp_path / "a.npz")
    (tmp_path / "b.npz").write_bytes(pickle.dumps({"x": 1}))
    with pytest.raises(FormatError, match=r"b\.npz"):
        npz.load_file(tmp_path / "b.npz")


def _archive(**members: bytes) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, content in members.items():
            archive.writestr(name.replace("_", "."), content)
    return data.getvalue()


def _header(shape: str) -> bytes:
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"PK\x03\x04",
        b"\x93NUMPY\x01\x00",
        bytes(200),
        _archive(readme_txt=b"hello"),
        _archive(x_npy=b""),
        _archive(x_npy=_header("(3,)")),
        _archive(x_npy=_header("(1000000000000000,)")),
        _archive(x_npy=_header("(-1,)")),
        _archive(x_npy=_header("(((")),
    ],
)
def test_a_broken_file_is_named(tmp_path, data):
    path = tmp_path / "broken.npz"
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"broken\.npz"):
        npz.load_file(path)


def test_changed_bytes_are_a_format_error_or_other_arrays(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", x=np.arange(20), y=np.ones(3))
    data = (tmp_path / "a.npz").read_bytes()
    for at in range(len(data)):
        (tmp_path / "b.npz").write_bytes(data[:at] + bytes([data[at] ^ 0x41]) + data[at + 1 :])
        try:
            npz.load_file(tmp_path / "b.npz")
        except DataError as error:
            assert error.rule == "npz"


def test_what_the_system_refuses_is_a_storage_error(tmp_path):
    with pytest.raises(StorageError, match=r"none\.npz"):
        npz.load_file(tmp_path / "none.npz")
    with pytest.raises(StorageError, match="cannot read"):
        npz.load_file(tmp_path)
    with pytest.raises(StorageError, match="cannot write"):
        npz.save_file({}, tmp_path / "no" / "a.npz")


def test_a_failed_write_keeps_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "a.npz"
    npz.save_file({"x": np.ones(3)}, path)
    monkeypatch.setattr(np.lib.format, "write_array", _disk_full)
    with pytest.raises(StorageError, match="No space left"):
        npz.save_file({"x": np.zeros(3)}, path)
    assert list(tmp_path.iterdir()) == [path]
    assert npz.load_file(path)["x"][0] == 1


def _disk_full(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_name_of_more_bytes_than_an_archive_can_hold(tmp_path):
    path = tmp_path / "a.npz"
    for name in ("x" * 65_532, "é" * 32_766):
        with pytest.raises(ArgumentError, match=r"a name in an \.npz file has at most 65,531 bytes"):
            npz.save_file({name: np.ones(1)}, path)
    assert not list(tmp_path.iterdir())
    npz.save_file({"x" * 65_531: np.ones(1)}, path)
    assert list(npz.load_file(path)) == ["x" * 65_531]


def test_names_that_are_not_unicode(tmp_path):
    with pytest.raises(ArgumentError, match="lone surrogates"):
        npz.save_file({"a\ud800": np.ones(1)}, tmp_path / "a.npz")
    path = tmp_path / os.fsdecode(b"\xff.npz")
    npz.save_file({"x": np.ones(1)}, path)
    assert list(npz.load_file(path)) == ["x"]


def _npy(text: str, data: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    head = text.encode() + b"\n"
    return b"\x93NUMPY" + version + len(head).to_bytes(2 if version[0] == 1 else 4, "little") + head + data


@pytest.mark.parametrize(
    ("member", "message"),
    [
        (_npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,), }"), "declares 4,000"),
        (_npy("{'descr': '<f4', 'fortran_order': False, 'shape': (0, 999999999999999999), }"), "elements"),
        (_npy("{'descr': '|S0', 'fortran_order': False, 'shape': (999999999999,), }"), "not one of an array"),
        (
            _npy("{'descr': '|V100000000', 'fortran_order': False, 'shape': (90,), }"),
            "declares 9,000,000,000",
        ),
        (_npy("{'descr': '<f4', 'fortran_order': False, 'shape': " + "(" * 9000), "not one of an array"),
        (_npy("{'descr': '<f4', 'fortran_order': False, 'shape': (10**9**9,), }"), "not one of an array"),
        (
            _npy("{'descr': '<f4', 'fortran_order': False, 'shape': (" + "1," * 40 + "), }"),
            "not one of an arr",
        ),
        (_npy("{'descr': '<f4', 'descr': '<f4', 'shape': (), }", bytes(4)), "not one of an array"),
        (_npy("{'descr': '(9,)f4', 'fortran_order': False, 'shape': (), }"), "not one of an array"),
        (_npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (), }"), "not one of an array"),
        (_npy("{'descr': '<f3', 'fortran_order': False, 'shape': (), }"), "not one of an array"),
        (_npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", b"x"), "Python objects"),
        (_npy("{'descr': '<f4', 'fortran_order': False, 'shape': (), }", bytes(5)), "and has 5"),
        (
            _npy("{'descr': '<f4', 'fortran_order': False, 'shape': (), }", bytes(4), b"\x09\x00"),
            "unknown version",
        ),
        (
            _npy("{'descr': '<f4', 'fortran_order': False, 'shape': (), }".ljust(20_000), bytes(4)),
            "a header of 20,0",
        ),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\xff", "a header of 4,294,967,307 bytes"),
    ],
)
def test_a_header_is_matched_and_not_believed(tmp_path, member, message):
    (tmp_path / "a.npz").write_bytes(_archive(x_npy=member))
    with pytest.raises(DataError, match=rf"a\.npz: array 'x': .*{message}"):
        npz.load_file(tmp_path / "a.npz")


@pytest.mark.parametrize(
    "member",
    [
        _npy("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 1), }", bytes(8)),
        _npy('{"shape":(2,1),"descr":"<f4","fortran_order":True}', bytes(8), b"\x02\x00"),
        _npy("{ 'fortran_order' : True , 'descr' : '<f4' , 'shape' : ( 2 , 1 , ) }", bytes(8), b"\x03\x00"),
    ],
)
def test_headers_of_other_writers(tmp_path, member):
    (tmp_path / "a.npz").write_bytes(_archive(x_npy=member))
    assert npz.load_file(tmp_path / "a.npz")["x"].shape == (2, 1)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("shape", [(70_000,), (300, 0), (30, 40, 50)])
def test_values_of_many_pieces(tmp_path, order, shape):
    array = np.arange(np.prod(shape), dtype="<i4").reshape(shape, order=order)
    np.savez_compressed(tmp_path / "a.npz", x=array)
    found = npz.load_file(tmp_path / "a.npz")["x"]
    assert np.array_equal(found, array)
    assert found.flags.writeable


def _overlapping() -> bytes:
    """Return 8 MB of zeros that 1,000 members share: an extra field hides the headers between."""
    member = _npy("{'descr': '|u1', 'fortran_order': False, 'shape': (8388608,), }", bytes(1 << 23))
    packed, said = deflated(member), {"method": 8, "crc": zlib.crc32(member), "size": len(member)}
    parts = []
    for left in reversed(range(1000)):
        hidden = left * (30 + len("000.npy"))  # bytes of the headers that follow
        extra = {"stored": len(packed), "extra_size": hidden}
        parts.append(
            Part(
                f"{left:03}.npy",
                b"",
                packed=packed if not left else b"",
                local=said | extra,
                central=said | {"stored": len(packed)},
            )
        )
    return archive(*parts)


def _declaring(size: int) -> bytes:
    """Return an array of few bytes; its header and the archive declare many."""
    member = _npy(f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({size},), }}", bytes(1 << 20))
    said = {"method": 8, "crc": zlib.crc32(member), "size": len(member) + size - (1 << 20)}
    return archive(Part("x.npy", b"", packed=deflated(member), local=said, central=said))


@pytest.mark.slow
@pytest.mark.parametrize(
    "bomb", [_overlapping(), _declaring(4_000_000_000)], ids=["overlapping", "declaring"]
)
def test_a_bomb_takes_no_memory(tmp_path, bomb):
    assert len(bomb) < 1 << 17
    (tmp_path / "a.npz").write_bytes(bomb)
    script = """
import resource, sys
from lccodec.adapters import npz
from lccodec.errors import DataError
resource.setrlimit(resource.RLIMIT_AS, (1 << 31, 1 << 31))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    npz.load_file(sys.argv[1])
except DataError as error:
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(type(error).__name__, grown < 1 << 14)
"""
    found = run_program(script, tmp_path / "a.npz")
    assert found.stdout.split() in (["FormatError", "True"], ["LimitError", "True"])
