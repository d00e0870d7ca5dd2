"""HDF5 files: what h5py sees, what comes back, attributes and scales too, and what is refused."""

import errno
import warnings
from pathlib import Path

import h5py
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lccodec
from lccodec import Chain, fields
from lccodec.adapters import hdf5
from lccodec.errors import ArgumentError, FormatError, LccodecError, StorageError

from ..support.commands import run
from ..support.hdf5_contents import contents
from ..support.programs import run_program
from ..support.strategies import ALL_DTYPES, bits_of, random_array

WEIGHT = np.arange(6, dtype=np.float32).reshape(2, 3)
STATE = {
    "model": {"w": WEIGHT, "tied": WEIGHT, "layer.0.bias": np.ones(2)},
    "list": [1, ("text", None, b"a\0b", b"")],
    "big": 2**70,
    "odd": "a\0b",
    "on": True,
    "rate": 0.5,
    "none": {},
}


@pytest.mark.parametrize("name", ALL_DTYPES)
@pytest.mark.parametrize("shape", [(), (0, 3), (4, 5)])
def test_every_dtype_round_trips(tmp_path, name, shape):
    array = random_array(name, shape, seed=1)
    hdf5.save_file({"x": array}, tmp_path / "a.h5")
    back = hdf5.load_state(tmp_path / "a.h5")[0]["x"]
    assert back.shape == array.shape
    assert np.array_equal(bits_of(back), bits_of(array))
    assert (back.dtype == array.dtype) == (name != "bfloat16")


def test_a_state_comes_back_with_its_structure_and_metadata(tmp_path):
    metadata = {"author": "me", "model/w@units": "m", "a@b": "c"}
    hdf5.save_file(STATE, tmp_path / "a.h5", metadata)
    back, kept = hdf5.load_state(tmp_path / "a.h5")
    assert {**back, "model": 0} == {**STATE, "model": 0}
    assert list(back) == list(STATE)
    assert back["model"]["w"] is back["model"]["tied"]
    assert back["model"]["w"].tolist() == WEIGHT.tolist()
    assert kept == {"author": "me", "a@b": "c", "model/tied@units": "m"}  # the first name of the dataset
    assert hdf5.load_metadata(tmp_path / "a.h5") == {"author": "me", "a@b": "c"}
    data = (tmp_path / "a.h5").read_bytes()
    hdf5.save_file(STATE, tmp_path / "b.h5", metadata)
    assert (tmp_path / "b.h5").read_bytes() == data


def test_h5py_sees_values_under_their_names(tmp_path):
    halves = np.array([1, -2.5, np.inf], ml_dtypes.bfloat16)
    hdf5.save_file({**STATE, "half": halves, "flags": np.array([True, False])}, tmp_path / "a.h5")
    with h5py.File(tmp_path / "a.h5") as file:
        assert file["model/w"][()].tolist() == WEIGHT.tolist()
        assert file["model/layer.0.bias"].dtype == np.float64
        assert (file["half"].dtype, file["half"][()].tolist()) == (np.float32, [1, -2.5, np.inf])
        assert h5py.h5g.get_objinfo(file["half"].id).mtime == 0  # the same bytes at any time
        assert (file["flags"].dtype, file["flags"][()].tolist()) == (bool, [True, False])
        assert (file["rate"][()], file["on"][()], file["list/0"][()]) == (0.5, True, 1)
        assert (file["list/1/0"].asstr()[()], file["big"].asstr()[()]) == ("text", str(2**70))
        assert file["list/1/2"][()].tobytes() == b"a\0b"
        assert file["list/1/1"].shape is None


def test_a_flat_state_keeps_its_names(tmp_path):
    hdf5.save_file({"a/b": np.arange(3), "c": np.ones(1)}, tmp_path / "a.h5")
    assert list(hdf5.load_state(tmp_path / "a.h5")[0]) == ["a/b", "c"]


def _of_another_program(file):
    file["layers/dense/vars/0"] = WEIGHT
    file["layers/dense/vars/1"] = np.arange(3, dtype=">i4")
    file.create_dataset("packed", data=np.zeros(1000), compression="gzip", chunks=(100,))
    file.create_dataset("fill", shape=(5,), dtype="f4", fillvalue=7.0)
    file["fixed"] = np.bytes_("abc")
    half = file.create_dataset("half", data=np.array([1, 2], ml_dtypes.bfloat16).view("V2"))
    half.attrs["dtype"] = "bfloat16"  # as Keras does
    file["kind"] = np.dtype("f4")
    file["empty/inner"] = h5py.Empty("f4")
    file.attrs.update(
        {"version": 3, "names": ["a", "b"], "raw": np.bytes_("30 \xb0C".encode("latin1")), "ref": file.ref}
    )
    file["layers"].attrs["trainable"] = True


def test_a_file_of_another_program(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        _of_another_program(file)
    state, metadata = hdf5.load_state(tmp_path / "a.h5")
    assert state["layers"]["dense"]["vars"]["0"].tolist() == WEIGHT.tolist()
    assert state["layers"]["dense"]["vars"]["1"].dtype == np.int32
    assert state["fill"].tolist() == [7.0] * 5
    assert state["half"].dtype == lccodec.BFLOAT16_BITS
    assert list(state) == ["fill", "half", "layers", "packed", "lccodec.hdf5"]
    assert metadata == {
        "version": "3",
        "names": '["a", "b"]',
        "raw": "30 °C",
        "half@dtype": "bfloat16",
        "layers@trainable": "true",
        "lccodec.attributes": '{"version": "<i8", "layers@trainable": "|b1"}',
    }
    lccodec.save_file(state, tmp_path / "b.lcc.h5", metadata)
    hdf5.save_file(lccodec.load_file(tmp_path / "b.lcc.h5"), tmp_path / "b.h5", {**metadata, "more": "1"})
    with h5py.File(tmp_path / "b.h5", "r+") as file:
        assert file.attrs["more"] == "1"
        del file.attrs["more"]
    assert contents(tmp_path / "b.h5") == contents(tmp_path / "a.h5")


def test_a_file_that_was_edited_is_read_by_names(tmp_path):
    hdf5.save_file({"a": [np.ones(2)]}, tmp_path / "a.h5")
    with h5py.File(tmp_path / "a.h5", "r+") as file:
        file["b"] = np.zeros(1)
    assert set(hdf5.load_state(tmp_path / "a.h5")[0]) == {"a/0", "b"}


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"a": {"b": WEIGHT}, "a/b": WEIGHT}, "both be named 'a/b'"),
        ({"a": WEIGHT, "a/b": WEIGHT}, "'a' would be a dataset and a group"),
        ({"": WEIGHT}, "'' cannot have this name"),
        ({"a//b": WEIGHT}, "'a//b' cannot have this name"),
        ({"a/.": WEIGHT}, "cannot have this name"),
        ({"a\0b": WEIGHT}, "cannot have this name"),
        (WEIGHT, "'' cannot have this name"),
        ({"x": np.array(["a"])}, "array 'x': dtype"),
    ],
)
def test_what_it_cannot_hold_is_refused_by_name(tmp_path, state, message):
    with pytest.raises(ArgumentError, match=message):
        hdf5.save_file(state, tmp_path / "a.h5")
    assert not list(tmp_path.iterdir())


def test_metadata_that_no_attribute_can_hold(tmp_path):
    with pytest.raises(ArgumentError, match=r"a\.h5"):
        hdf5.save_file({}, tmp_path / "a.h5", {"a": "b\0c"})
    hdf5.save_file({}, tmp_path / "a.h5", {"a": "x" * 200_000})  # more than the header of an object
    assert hdf5.load_metadata(tmp_path / "a.h5") == {"a": "x" * 200_000}


@pytest.mark.slow
def test_a_full_disk_is_an_error_of_the_taxonomy_and_leaves_nothing(tmp_path):
    program = """
import resource, signal, sys
import numpy as np
from lccodec.adapters import hdf5
from lccodec.errors import StorageError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
for size in (24_000, 200_000):
    try:
        hdf5.save_file({"a": np.zeros(size, np.float32), "b": np.ones(9)}, sys.argv[1])
    except StorageError as error:
        print(error.errno)
"""
    done = run_program(program, tmp_path / "a.h5")
    assert done.stdout == f"{errno.EFBIG}\n" * 2
    assert not list(tmp_path.iterdir())


def _soft(file):
    file["link"] = h5py.SoftLink("/w")


def _external(file):
    file["link"] = h5py.ExternalLink("/etc/passwd", "/")


def _storage(file):
    file.create_dataset("link", shape=(4,), dtype="u1", external=[("/etc/passwd", 0, 4)])


def _virtual(file):
    layout = h5py.VirtualLayout(shape=(4,), dtype="u1")
    layout[:] = h5py.VirtualSource("/etc/passwd", "x", shape=(4,))
    file.create_virtual_dataset("link", layout)


def _circle(file):
    file.create_group("a")["link"] = file["/"]


def _twice(file):
    file["a/b"] = WEIGHT
    file["link"] = file["a"]


def _deep(file):
    file["/".join("a" * 70)] = WEIGHT


def _huge(file):
    file.create_dataset("link", shape=(1 << 50,), dtype="f4", chunks=(1024,))


def _many_references(file):
    for group in range(9):
        file.create_dataset(f"g{group}", shape=(1 << 20,), dtype="u1", chunks=(1 << 18,), fillvalue=1)
    file.create_dataset("link", shape=(1 << 40,), dtype="u1", chunks=(1024,))


def _strings(file):
    file["link"] = np.array(["a", "b"], dtype="S1")
    file.create_dataset("varying", data=["a", "\u00b0"] * 9, dtype=h5py.string_dtype(), chunks=(4,))


def _compound(file):
    file["link"] = np.zeros(2, [("a", "f4"), ("b", "i4")])
    file.attrs["struct"] = np.array((1, 2.5), [("a", "i4"), ("b", "f8")])


def _opaque(file):
    file["link"] = np.zeros((2, 3), "V7")
    file.attrs["opaque"] = np.void(b"\0\1\2")


def _enum(file):
    kind = h5py.enum_dtype({"A": 0, "B": 1}, "i4")
    file["link"] = np.zeros(2, kind)
    file.attrs["enum"] = np.array(1, kind)


def _long(file):
    file["link"] = np.ones(2, np.longdouble) / 3
    file.attrs.update(
        {"long": np.longdouble(1) / 3, "complex": 1 + 2j, "matrix": np.eye(2), "empty": h5py.Empty("f4")}
    )


def _null(file):
    file["link"] = h5py.Empty("f4")
    file.create_dataset("none", shape=(0, 3), dtype="f4", maxshape=(None, 3))
    file.create_group("nothing").attrs["value"] = 0.5


def _latin(file):
    file["link"] = np.bytes_("unabh\xe4ngig".encode("latin1"))
    file.attrs["project"] = np.bytes_("unabh\xe4ngig".encode("latin1"))


def _nameless(file):
    h5py.h5g.create(file.id, b"\xff")
    h5py.h5d.create(file.id, b"\xfe", h5py.h5t.IEEE_F32LE, h5py.h5s.create_simple((3,)))


def _sparse(file):
    made = file.create_dataset("link", (40, 3), "f4", chunks=(4, 2), fillvalue=-1, compression="lzf")
    made[5, 2] = 1
    file.create_dataset("whole", (7, 3), "i8", chunks=(4, 2))[1] = 5


def _compact(file):
    how = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    how.set_layout(h5py.h5d.COMPACT)
    space = h5py.h5s.create_simple((3,))
    made = h5py.h5d.create(file.id, b"link", h5py.h5t.IEEE_F32BE, space, how)
    made.write(h5py.h5s.ALL, h5py.h5s.ALL, np.arange(3, dtype="f4"))


def _user_filter(file):
    file.create_dataset("link", data=np.arange(30, dtype="f4"), scaleoffset=3, chunks=(7,))


def _many_chunks(file):
    file.create_dataset("link", shape=(20_000,), dtype="u1", chunks=(1,))


def _many_scales(file):
    file["s"] = np.zeros(1)
    file["s"].make_scale("s")
    file["link"] = np.zeros(1)
    scales = np.empty(1, object)
    scales[0] = np.array([file["s"].ref] * 10_000, h5py.ref_dtype)
    file["link"].attrs.create("DIMENSION_LIST", scales, (1,), h5py.vlen_dtype(h5py.ref_dtype))


_FAR = "'link' is far larger than its file"
_ELSEWHERE = "'link' has its values in another file"
_LEFT = {
    _storage: _ELSEWHERE,
    _virtual: _ELSEWHERE,
    _huge: _FAR,
    _many_references: _FAR,
    _many_chunks: _FAR,
    _user_filter: "'link' has the filter scaleoffset",
}


@pytest.mark.parametrize("filtered", [False, True])
@pytest.mark.parametrize(
    "make",
    [
        *(_soft, _external, _storage, _virtual, _circle, _twice, _deep, _huge, _many_references),
        *(_many_chunks, _many_scales, _strings, _compound, _opaque, _enum, _long, _null, _latin, _nameless),
        *(_sparse, _compact, _user_filter),
    ],
)
def test_what_is_no_array_comes_back_as_it_was(tmp_path, make, filtered):
    with h5py.File(tmp_path / "a.h5", "w", userblock_size=512 if filtered else 0) as file:
        how = {"compression": "gzip", "shuffle": True, "chunks": (2, 2)} if filtered else {}
        file.create_dataset("w", data=WEIGHT, **how)  # chunks that lie over the edge
        make(file)
    left = _LEFT.get(make)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        state, metadata = hdf5.load_state(tmp_path / "a.h5")
    assert [str(each.message).partition("no arrays: ")[2] for each in caught] == ([left] if left else [])
    assert state["w"].tolist() == WEIGHT.tolist()
    hdf5.save_file(lccodec.load(lccodec.save(state)), tmp_path / "b.h5", metadata)
    assert contents(tmp_path / "b.h5") == contents(tmp_path / "a.h5")
    assert (tmp_path / "b.h5").stat().st_size <= 2 * (tmp_path / "a.h5").stat().st_size


def test_damaged_files(tmp_path):
    hdf5.save_file(STATE, tmp_path / "a.h5", {"a": "b"})
    data = (tmp_path / "a.h5").read_bytes()
    path = tmp_path / "b.h5"
    for size in [0, 1, 8, 100, *range(200, len(data), 701)]:
        path.write_bytes(data[:size])
        with pytest.raises(LccodecError):
            hdf5.load_state(path)
    path.write_bytes(b"hello")
    with pytest.raises(FormatError, match=r"b\.h5: not an HDF5 file"):
        hdf5.load_metadata(path)
    with pytest.raises(StorageError):
        hdf5.load_state(tmp_path / "missing.h5")


def test_a_note_that_is_malformed(tmp_path):
    for note in ("[]", "{", '{"tree":{"a":0},"scalars":{"a":[]},"types":{}}'):
        hdf5.save_file({"a": WEIGHT}, tmp_path / "a.h5")
        with h5py.File(tmp_path / "a.h5", "r+") as file:
            file.attrs["lccodec.state"] = note
        with pytest.raises(FormatError):
            hdf5.load_state(tmp_path / "a.h5")


#: What the documentation says that a file keeps, and where `contents` has it.
KEPT = {
    "name": "names",
    "link": "same as",
    "attribute": "attributes",
    "type": "type",
    "shape": "shapes",
    "maximum shape": "shapes",
    "chunk shape": "shapes",
    "filter": "filters",
    "value": "values",
}


def test_the_documentation_says_what_is_kept(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        _of_another_program(file)
        file["again"] = file["packed"]
    compared = {key for each in contents(tmp_path / "a.h5").values() for key in each}
    assert compared >= set(KEPT.values())
    text = " ".join((Path(__file__).parents[2] / "docs/files.md").read_text().split())
    *first, last = KEPT
    assert f"A file comes back with every {', '.join(first)} and {last} that it had" in text
    assert "[as it was](files.md#formats)" in (Path(__file__).parents[2] / "docs/netcdf.md").read_text()


def _outside_storage(file, outside):
    file.create_dataset("w", shape=(2, 3), dtype="f4", external=[(str(outside), 0, 24)])


def _outside_virtual(file, outside):
    layout = h5py.VirtualLayout(shape=(2, 3), dtype="f4")
    layout[:] = h5py.VirtualSource(str(outside), "w", shape=(2, 3))
    file.create_virtual_dataset("w", layout)


def _outside_link(file, outside):
    file["w"] = h5py.ExternalLink(str(outside), "/w")


def _outside_group(file, outside):
    file["g"] = h5py.ExternalLink(str(outside), "/")
    file["w"] = h5py.SoftLink("/g/w")


@pytest.mark.parametrize("make", [_outside_storage, _outside_virtual, _outside_link, _outside_group])
def test_a_skeleton_of_a_stranger_writes_to_no_other_file(tmp_path, make):
    with h5py.File(tmp_path / "outside.h5", "w") as file:
        file["w"] = WEIGHT + 1
    with h5py.File(tmp_path / "a.h5", "w") as file:
        make(file, tmp_path / "outside.h5")
    before = (tmp_path / "outside.h5").read_bytes()
    skeleton = np.fromfile(tmp_path / "a.h5", np.uint8)
    entry = {"arrays": 1, "skeleton": skeleton, "runs": np.array([skeleton.size])}
    with pytest.warns(lccodec.LccodecWarning, match=r"written as plain HDF5.*'w' "):
        hdf5.save_file({"w": WEIGHT, "lccodec.hdf5": entry}, tmp_path / "b.h5", {"g@units": "m", "w@x": "y"})
    assert (tmp_path / "outside.h5").read_bytes() == before
    assert hdf5.load_state(tmp_path / "b.h5")[0]["w"].tolist() == WEIGHT.tolist()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"w": WEIGHT[:1]}, r"'w' is float32 \(2, 3\) in it, and float32 \(1, 3\) in the state"),
        ({"w": WEIGHT.astype("f8")}, r"'w' is float32 .* float64"),
        ({"w": None}, "'w', which is no array"),
        ({"more": WEIGHT}, "'more' is no dataset of it"),
        ({"arrays": 5}, "it has 5 arrays, the state 2"),
        ({"arrays": 1}, "it has 1 arrays, the state 2"),
        ({"runs": np.array([1, 1 << 40, 2000])}, "damaged"),
        ({"lccodec.hdf5": 3}, "the skeleton is damaged"),
        ({"runs": np.array([1 << 62, 1 << 62, 0])}, "the skeleton is damaged"),
        ({"runs": np.array([-1])}, "the skeleton is damaged"),
        ({"runs": np.array([2.5])}, "the skeleton is damaged"),
        ({"skeleton": np.zeros(100, np.uint8), "runs": np.array([100])}, "the skeleton is damaged"),
    ],
)
def test_a_state_that_does_not_fit_is_written_as_plain_hdf5(tmp_path, change, reason):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.update({"w": WEIGHT, "v": np.ones(2), "names": np.array([b"a"])})
    state, _ = hdf5.load_state(tmp_path / "a.h5")
    entry = state["lccodec.hdf5"]
    for key, value in change.items():
        (entry if key in entry else state)[key] = value
    state = {key: value for key, value in state.items() if value is not ...}
    with pytest.warns(lccodec.LccodecWarning, match=f"written as plain HDF5, .*{reason}"):
        hdf5.save_file(state, tmp_path / "b.h5")
    state.pop("lccodec.hdf5")
    back = hdf5.load_state(tmp_path / "b.h5")[0]
    assert {key: None if value is None else value.tolist() for key, value in back.items()} == {
        key: None if value is None else value.tolist() for key, value in state.items()
    }


def test_a_file_without_some_of_its_arrays(tmp_path):
    """They go, with all their names, and the scales of what stays are as they were."""
    rng = np.random.default_rng(0)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for name in ("u", "g/v", "w"):
            file.create_dataset(name, data=rng.random((9, 8)), chunks=(4, 8), compression="gzip")
            file[name].attrs["units"] = name
        file["x"], file["t"], file["names"] = np.arange(8.0), np.arange(9.0), np.array([b"a"])
        file["g/other"], file["alias"] = file["w"], h5py.SoftLink("/u")
        file.create_dataset("unwritten", (3,), "f4")
        for name in ("x", "t"):
            file[name].make_scale(name)
        for name in ("u", "g/v", "w"):
            file[name].dims[0].attach_scale(file["t"])
            file[name].dims[1].attach_scale(file["x"])
    state, metadata = hdf5.load_state(tmp_path / "a.h5")
    with lccodec.Chain(tmp_path / "run") as chain:
        chain.save(1, state, metadata)
        named = chain.restore(keys=["u", "t", "lccodec.hdf5"])
    for kept in (named, {key: state[key] for key in ("u", "t", "lccodec.hdf5")}):
        hdf5.save_file(kept, tmp_path / "b.h5", metadata)
        with h5py.File(tmp_path / "b.h5") as file:
            assert sorted(file) == ["alias", "g", "names", "t", "u", "unwritten"]
            assert not len(file["g"])
            assert (file["u"][:] == state["u"]).all()
            assert (file["u"].compression, dict(file.attrs)) == ("gzip", {})
            assert [list(axis) for axis in file["u"].dims] == [["t"], []]
            assert [file[reference].name for reference, _ in file["t"].attrs["REFERENCE_LIST"]] == ["/u"]


def test_no_plugin_is_loaded_for_a_file(tmp_path):
    """HDF5 looks for a filter that it lacks in folders of the machine, once values are read."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        how = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        how.set_chunk((4,))
        how.set_filter(32015, h5py.h5z.FLAG_OPTIONAL, (1,))
        space = h5py.h5s.create_simple((8,))
        made = h5py.h5d.create(file.id, b"x", h5py.h5t.IEEE_F32LE, space, how)
        made.write_direct_chunk((0,), b"whatever", 0)
        file["y"] = WEIGHT
    with pytest.warns(lccodec.LccodecWarning, match="no arrays: 'x' has the filter"):
        state, metadata = hdf5.load_state(tmp_path / "a.h5")
    assert list(state) == ["y", "lccodec.hdf5"]
    hdf5.save_file(state, tmp_path / "b.h5", metadata)
    assert contents(tmp_path / "b.h5") == contents(tmp_path / "a.h5")
    with h5py.File(tmp_path / "b.h5") as file:
        assert file["x"].id.read_direct_chunk((0,)) == (0, b"whatever")


def test_what_nobody_wrote_is_exact_and_takes_no_room(tmp_path):
    wave = np.sin(np.linspace(0, 6, 200))[:, None] * np.cos(np.linspace(0, 6, 90))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for name, fill in (("x", -0.5), ("y", None)):
            made = file.create_dataset(name, (9000, 90), "f4", chunks=(50, 90), fillvalue=fill)
            made[100:300] = wave
    state, metadata = hdf5.load_state(tmp_path / "a.h5")
    with lccodec.Chain(tmp_path / "run", lccodec.fields(max_error=1e-3), newest="history") as chain:
        chain.save(1, state, metadata)
        assert {each.name: each.why for each in chain.plan(state) if each.lossy} == dict.fromkeys(
            ("x", "y"), "declares fill_value; smooth"
        )
        hdf5.save_file(chain.restore(1), tmp_path / "b.h5", metadata)
    with h5py.File(tmp_path / "a.h5") as before, h5py.File(tmp_path / "b.h5") as after:
        for name in ("x", "y"):
            filled = before[name][:] == before[name].fillvalue
            assert (after[name][:][filled] == before[name].fillvalue).all()
            assert 0 < np.abs(after[name][:] - before[name][:]).max() <= 1e-3
            assert after[name].id.get_num_chunks() == before[name].id.get_num_chunks() == 4


def test_datasets_that_share_bytes_stay_in_the_skeleton(tmp_path):
    """A long one lies over two others, which do not lie over each other."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        for name, count in (("a", 4096), ("b", 16), ("c", 17), ("d", 18)):
            file[name] = np.arange(count, dtype="f8") + 1
        start, *others = (file[name].id.get_offset() for name in "abcd")
    data = path.read_bytes()
    for number, other in enumerate(others[:2]):  # an address is followed by a size
        place = other.to_bytes(8, "little") + (8 * (16 + number)).to_bytes(8, "little")
        assert data.count(place) == 1
        data = data.replace(place, (start + 8192 * number + 64).to_bytes(8, "little") + place[8:])
    path.write_bytes(data)
    with pytest.warns(lccodec.LccodecWarning, match=r"'a' lies where.*'b' lies where.*'c' lies where"):
        state, metadata = hdf5.load_state(path)
    assert list(state) == ["d", "lccodec.hdf5"]
    hdf5.save_file(state, tmp_path / "b.h5", metadata)
    assert contents(tmp_path / "b.h5") == contents(path)


TYPES = "lccodec.attributes"  # the entry of the metadata with types
X = np.linspace(0, 3, 50)
FIELD = np.float32(280) + np.sin(X)[:, None].astype(np.float32) * np.cos(X).astype(np.float32)


@pytest.fixture(name="path")
def _path(tmp_path: Path) -> Path:
    """A variable, a coordinate and a dimension without a variable, as netCDF-4 has them."""
    path = tmp_path / "step7.h5"
    with h5py.File(path, "w") as file:
        file.attrs["title"] = "2020"  # a string that looks like a number
        file.attrs["version"] = np.int16(3)
        field = file.create_dataset("run/temperature", data=FIELD[:, :-1])
        field.attrs.update({"units": "K", "_FillValue": np.array([1e20], "f4"), "scale_factor": 1.0})
        field.attrs["valid_range"] = np.array([200, 350], "f4")
        field.attrs["flags"] = np.array([True, False])
        file["latitude"] = X
        file["latitude"].attrs["units"] = "degrees_north"
        file["columns"] = np.zeros(49, "f4")
        file["more"] = FIELD
        for name, label in {"latitude": "latitude", "columns": "no variable"}.items():
            file[name].make_scale(label)
        for axis, name in enumerate(("latitude", "columns")):
            field.dims[axis].attach_scale(file[name])
    return path


def check(path: Path, bound: float) -> None:
    with h5py.File(path) as file:
        field = file["run/temperature"]
        assert np.abs(field[...] - FIELD[:, :-1]).max() <= bound
        assert [[scale.name for scale in axis.values()] for axis in field.dims] == [
            ["/latitude"],
            ["/columns"],
        ]
        assert [file[name].is_scale for name in ("latitude", "columns")] == [True, True]
        assert [bytes(file[name].attrs["NAME"]) for name in ("latitude", "columns")] == [
            b"latitude",
            b"no variable",
        ]
        assert (field.attrs["units"], file["latitude"].attrs["units"]) == ("K", "degrees_north")
        fill = field.attrs["_FillValue"]
        assert (fill.dtype, fill.tolist()) == (np.float32, [float(np.float32(1e20))])
        assert (field.attrs["scale_factor"].dtype, field.attrs["scale_factor"]) == (np.float64, 1.0)
        assert field.attrs["valid_range"].tolist() == [200, 350]
        assert field.attrs["flags"].tolist() == [True, False]
        assert file.attrs["title"] == "2020"
        assert (file.attrs["version"].dtype, file.attrs["version"]) == (np.int16, 3)


def test_a_file_comes_back_with_its_attributes_and_scales(path: Path) -> None:
    state, metadata = hdf5.load_state(path)
    hdf5.save_file(state, path, metadata)
    check(path, 0)
    assert hdf5.load_state(path)[1] == metadata


def test_they_survive_a_chain(path: Path, tmp_path: Path) -> None:
    run("save", tmp_path / "run", path, "--relative-error", 1e-3, "--newest", "history")
    run("restore", tmp_path / "run", "-o", tmp_path / "back.h5")
    check(tmp_path / "back.h5", 1e-3 * float(np.ptp(FIELD)))
    run("restore", tmp_path / "run", "-o", tmp_path / "part.h5", "--key", "run/temperature")
    check(tmp_path / "part.h5", 1e-3 * float(np.ptp(FIELD)))  # its scales come along
    with h5py.File(tmp_path / "part.h5") as file:
        assert "more" not in file
    state, metadata = hdf5.load_state(path)
    with Chain(tmp_path / "other", fields(relative_error=1e-3)) as chain:
        chain.save(0, state, metadata)
        hdf5.save_file(chain.restore(0), tmp_path / "newest.h5", chain.info(0).metadata)
    check(tmp_path / "newest.h5", 0)  # the newest state is exact


@given(st.text(max_size=20) | st.sampled_from(['[["a"]]', "DIMENSION_SCALE", "[[]]", "1", "{"]))
def test_metadata_that_do_not_fit_write_a_file(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.mktemp("odd") / "a.h5"
    text = text.replace("\0", "")
    metadata = {
        "a@DIMENSION_LIST": text,
        "a@CLASS": text,
        "a@REFERENCE_LIST": text,
        "a@units": text,
        "nowhere@units": text,
        TYPES: text,
    }
    hdf5.save_file({"a": np.ones((2, 3))}, path, metadata)
    with h5py.File(path) as file:
        assert dict(file["a"].attrs) == {"units": text}
        assert file.attrs["nowhere@units"] == text


@pytest.mark.parametrize("types", ['{"a@x": "<f4"}', '{"a@x": "O"}', '{"a@x": 3}', "[1]", "{"])
def test_a_type_that_does_not_fit_leaves_a_string(tmp_path: Path, types: str) -> None:
    hdf5.save_file({"a": np.ones(2)}, tmp_path / "a.h5", {"a@x": "text", TYPES: types})
    with h5py.File(tmp_path / "a.h5") as file:
        assert file["a"].attrs["x"] == "text"
