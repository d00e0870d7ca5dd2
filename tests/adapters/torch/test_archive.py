"""Files of torch.save are read by the weights-only loader; what it refuses is named."""

import argparse
import datetime
import enum
import fractions
import io
import pathlib
import random
import struct
import tracemalloc
import types
import uuid
import zipfile
from collections import Counter, OrderedDict

import numpy as np
import pytest
import torch
from torch.serialization import safe_globals

import lccodec
from lccodec.adapters import seals
from lccodec.adapters import torch as adapter
from lccodec.adapters.torch import archive
from lccodec.adapters.torch.archive import VALUE_GLOBALS, load_archive, save_archive
from lccodec.errors import ArgumentError, ChecksumError, FormatError, LccodecError, LimitError, StorageError

from ...support.tuning import tune


class Own:
    """A class that no loader of weights knows."""


def saved(state, path, **options):
    torch.save(state, path, **options)
    return path


def test_a_sealed_file_is_verified(tmp_path):
    path = saved({"w": torch.arange(6.0)}, tmp_path / "a.pt")
    seals.seal(path)
    assert torch.equal(load_archive(path)["w"], torch.arange(6.0))
    data = bytearray(path.read_bytes())
    place = data.index(np.float32(5).tobytes())
    data[place] ^= 1
    path.write_bytes(data)
    with pytest.raises(ChecksumError, match=r"a\.pt: changed since it was sealed in a\.pt\.sha256"):
        load_archive(path)


def test_a_state_comes_back(tmp_path):
    weight = torch.arange(6.0).reshape(2, 3)
    state = {
        "model": OrderedDict(w=weight, tied=weight, b=torch.ones(2, dtype=torch.bfloat16)),
        "optimizer": {"state": {0: {"step": torch.tensor(3.0)}}, "param_groups": [{"betas": (0.9, 0.99)}]},
        "count": Counter(a=2),
        "sizes": torch.Size([2, 3]),
    }
    for old in (True, False):
        path = saved(state, tmp_path / "a.pt", _use_new_zipfile_serialization=not old)
        found = load_archive(path)
        assert found["model"]["w"] is found["model"]["tied"] or (
            found["model"]["w"].data_ptr() == found["model"]["tied"].data_ptr()
        )
        assert (found["count"], found["sizes"]) == (state["count"], state["sizes"])
        assert found["optimizer"]["param_groups"] == [{"betas": (0.9, 0.99)}]
        with lccodec.Chain(tmp_path / f"run-{old}", adapter=adapter) as chain:
            chain.save(0, found)
            assert torch.equal(chain.restore()["model"]["b"], state["model"]["b"])


@pytest.mark.parametrize("old", [False, True])
def test_what_the_loader_refuses_is_named(tmp_path, old):
    state = {"w": torch.ones(2), "own": Own(), "id": uuid.UUID(int=3), "x": np.float64(1)}
    path = saved(state, tmp_path / "a.pt", _use_new_zipfile_serialization=not old)
    with pytest.raises(
        ArgumentError, match=r"a\.pt: holds objects .*test_archive\.Own.*weights_only=False"
    ) as caught:
        load_archive(path)
    if not old:
        assert "uuid.UUID" in str(caught.value)
        assert "numpy" not in str(caught.value)


def test_only_so_many_names_are_listed(tmp_path):
    kinds = [type(f"Kind{number:02d}", (), {"__module__": __name__}) for number in range(20)]
    for kind in kinds:
        globals()[kind.__name__] = kind
    with pytest.raises(ArgumentError, match=r"Kind00, .*Kind07 and others\. To load"):
        load_archive(saved([kind() for kind in kinds], tmp_path / "a.pt"))


def test_a_program_of_torchscript_is_told(tmp_path):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as file:
        file.writestr("m/data.pkl", b"x")
        file.writestr("m/constants.pkl", b"x")
    (tmp_path / "a.pt").write_bytes(data.getvalue())
    with pytest.raises(ArgumentError, match="a TorchScript program"):
        load_archive(tmp_path / "a.pt")


def test_damaged_files(tmp_path):
    path = saved({"w": torch.ones(50)}, tmp_path / "a.pt")
    whole = path.read_bytes()
    path = saved({"w": torch.ones(50)}, tmp_path / "b.pt", _use_new_zipfile_serialization=False)
    old = path.read_bytes()
    for data in [b"", b"hello", b"PK\x03\x04", *(whole[:n] for n in range(0, len(whole), 101))]:
        path.write_bytes(data)
        with pytest.raises(FormatError, match=r"b\.pt"):
            load_archive(path)
    for size in range(0, len(old), 37):
        path.write_bytes(old[:size])
        with pytest.raises(LccodecError, match=r"b\.pt"):  # a name that is cut off may be refused
            load_archive(path)
    rng = np.random.default_rng(0)
    for data in (whole, old):
        for _ in range(150):
            changed = bytearray(data)
            for place in rng.integers(0, len(data), 3):
                changed[place] = rng.integers(256)
            path.write_bytes(changed)
            try:
                load_archive(path)
            except LccodecError as error:
                assert str(error)
    with pytest.raises(StorageError):
        load_archive(tmp_path / "missing.pt")


def test_a_length_that_the_file_does_not_have_takes_no_memory(tmp_path):
    text = b"\x80\x02X" + struct.pack("<I", (1 << 32) - 1) + b"abc"  # a string of 4 GiB
    (tmp_path / "long.pt").write_bytes(text)
    tracemalloc.start()
    try:
        with pytest.raises(FormatError):
            load_archive(tmp_path / "long.pt")
        assert tracemalloc.get_traced_memory()[1] < 1 << 26
    finally:
        tracemalloc.stop()


def test_a_packed_archive_is_refused(tmp_path):
    path = saved({"w": torch.zeros(100_000)}, tmp_path / "a.pt")
    packed = tmp_path / "packed.pt"
    with zipfile.ZipFile(path) as plain, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        for name in plain.namelist():
            file.writestr(name, plain.read(name))
    assert packed.stat().st_size < 10_000
    with pytest.raises(FormatError, match="a packed archive"):
        load_archive(packed)


def test_tensors_that_repeat_their_values_are_bounded(tmp_path):
    few = saved({"x": torch.ones(1).expand(1000)}, tmp_path / "few.pt")
    assert load_archive(few)["x"].shape == (1000,)
    many = saved({"x": torch.ones(1).expand(2**40)}, tmp_path / "many.pt")
    with pytest.raises(LimitError, match="4096 times the bytes"):
        load_archive(many)


def test_containers_that_repeat_themselves_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "MAX_NAME_CHARACTERS", 3000)
    state = [torch.ones(1)]
    for _ in range(40):
        state = [state, state]
    endless: list[object] = []
    endless.append(endless)
    for hostile in (state, endless):
        path = saved(hostile, tmp_path / "a.pt")
        with pytest.raises(LimitError, match="more than 3000 entries"):
            load_archive(path)
        with monkeypatch.context() as patch:  # of a small file, fewer
            tune(patch, archive_entries_per_byte=1)
            with pytest.raises(LimitError, match=f"more than {path.stat().st_size} entries"):
                load_archive(path)


def test_numbers_and_random_states_of_numpy(tmp_path):
    state = {
        "best": np.float64(0.3),
        "seen": np.int64(3),
        "done": np.bool_(True),
        "rng": np.random.get_state(),
    }
    state |= {
        "python": random.getstate(),
        "table": np.arange(6.0).reshape(2, 3).T,
        "big": np.arange(3, dtype=">i2"),
    }
    found = load_archive(saved({**state, "w": torch.ones(2)}, tmp_path / "a.pt"))
    with lccodec.Chain(tmp_path / "run", adapter=adapter) as chain:
        chain.save(0, found)
        back = chain.restore()
    for each in (found, back):
        for name in ("best", "seen", "done"):
            assert (type(each[name]), each[name]) == (type(state[name]), state[name])
        for name in ("table", "big"):
            np.testing.assert_array_equal(each[name], state[name])
        assert each["python"] == state["python"]
        generator = np.random.RandomState()
        generator.set_state(each["rng"])
        np.testing.assert_array_equal(generator.get_state()[1], state["rng"][1])


def test_a_state_is_written(tmp_path):
    state = {
        "w": torch.ones(2, dtype=torch.bfloat16),
        "n": np.float64(0.5),
        "layers": [torch.zeros(3)],
        "epoch": 3,
    }
    path = tmp_path / "a.pt"
    path.write_bytes(b"old")
    plain, metadata = adapter.to_numpy(state)
    save_archive(plain, path, metadata)
    found = torch.load(path, weights_only=False)
    assert torch.equal(found["w"], state["w"]) and found["w"].dtype is torch.bfloat16
    assert (type(found["n"]), found["n"], found["epoch"]) == (np.float64, 0.5, 3)
    assert torch.equal(found["layers"][0], torch.zeros(3))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.pt"]
    assert torch.equal(load_archive(path)["w"], state["w"])


def test_members_that_torch_may_see_in_another_way_are_refused(tmp_path):
    whole = saved({"w": torch.ones(50)}, tmp_path / "a.pt").read_bytes()
    for data in (whole + b"x", whole.replace(b"a/version", b"a/versiom", 1)):
        (tmp_path / "b.pt").write_bytes(data)
        assert torch.load(io.BytesIO(data), weights_only=True)
        with pytest.raises(FormatError, match=r"b\.pt"):
            load_archive(tmp_path / "b.pt")


# --- what files hold besides tensors ------------------------------------------------------------


def loaded(state):
    data = io.BytesIO()
    torch.save(state, data)
    with safe_globals(VALUE_GLOBALS):
        return torch.load(io.BytesIO(data.getvalue()), weights_only=True)


@pytest.mark.parametrize("code", ["?", "i1", "<u2", ">i4", "f2", "<f4", ">f8", "c8", "c16"])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3)])
def test_arrays_and_numbers(code, shape):
    array = np.arange(np.prod(shape), dtype=np.int64).reshape(shape).astype(code)
    found = loaded([array, array.T])
    for each, expected in zip(found, (array, array.T), strict=True):
        assert isinstance(each, np.ndarray) and each.dtype.newbyteorder("=") == expected.dtype.newbyteorder(
            "="
        )
        np.testing.assert_array_equal(each, expected)
    number = array.dtype.type(1)
    assert (type(loaded([number])[0]), loaded([number])[0]) == (type(number), number)


@pytest.mark.parametrize(
    "state",
    [np.array([object()]), np.array(["text"]), np.array([b"x"]), np.zeros(2, "i4,f8"), np.zeros(1, "M8[s]")],
    ids=["objects", "text", "bytes", "fields", "times"],
)
def test_other_types_are_refused(tmp_path, state):
    torch.save({"x": state, "w": torch.ones(2)}, tmp_path / "a.pt")
    with pytest.raises(LccodecError):
        load_archive(tmp_path / "a.pt")


class Call:
    """Pickles as a call of a function."""

    def __init__(self, function, *arguments, state=None):
        self.what = (function, arguments) if state is None else (function, arguments, state)

    def __reduce__(self):
        return self.what


RECONSTRUCT = np.arange(3).__reduce__()[0]
SCALAR = np.float64(1).__reduce__()[0]


@pytest.mark.parametrize(
    "hostile",
    [
        Call(RECONSTRUCT, np.ndarray, (1 << 50,), b"b"),
        Call(RECONSTRUCT, np.ndarray, (0,), b"b", state=(1, (1 << 50,), np.dtype("f8"), False, b"few")),
        Call(RECONSTRUCT, np.ndarray, (0,), b"b", state=(1, (-1,), np.dtype("f8"), False, b"")),
        Call(RECONSTRUCT, np.ndarray, (0,), b"b", state=(1, (1,), "f8", False, b"12345678")),
        Call(SCALAR, np.dtype("f8"), b"short"),
        Call(SCALAR, "f8", b"12345678"),
        Call(SCALAR),
        Call(np.dtype, "O8"),
        Call(np.dtype, "f8", False, True, state=(3, "?", None, None, None, -1, -1, 0)),
        Call(np.ndarray, (1 << 40,)),
        Call(fractions.Fraction, "1e999999999"),
        Call(pathlib.Path, b"x"),
        Call(pathlib.Path, 3),
        Call(range, "x"),
        Call(datetime.datetime, b"short"),
        Call(types.SimpleNamespace, state={3: 4}),
        Call(argparse.Namespace, state={3: 4}),
    ],
    ids=range(17),
)
def test_hostile_pickles_end_in_an_error_or_in_nothing(tmp_path, hostile):
    torch.save({"x": hostile}, tmp_path / "a.pt")
    try:
        found = load_archive(tmp_path / "a.pt")["x"]
    except LccodecError:
        return
    assert isinstance(found, types.SimpleNamespace | argparse.Namespace) or found.size == 0


class Color(enum.Enum):
    RED = 1


def test_an_enum_of_the_program_looks_its_member_up(tmp_path):
    torch.save({"x": Color.RED}, tmp_path / "a.pt")
    assert load_archive(tmp_path / "a.pt")["x"] is Color.RED
    for hostile in (Call(Color, 2), Call(Color, "New", "A B"), Call(enum.Enum, "New", "A B")):
        torch.save({"x": hostile}, tmp_path / "a.pt")
        with pytest.raises(LccodecError):
            load_archive(tmp_path / "a.pt")
    torch.save({"x": Call(getattr, Color, "RED")}, tmp_path / "a.pt")  # as Python before 3.11.4 does
    assert load_archive(tmp_path / "a.pt")["x"] is Color.RED
    for hostile in (Call(getattr, Color, "mro"), Call(getattr, Color, 3), Call(getattr, Color.RED, "value")):
        torch.save({"x": [Call(Color, 1), hostile]}, tmp_path / "a.pt")
        with pytest.raises(LccodecError):
            load_archive(tmp_path / "a.pt")
    torch.save({"x": Call(Color, 1, state={"_value_": 3})}, tmp_path / "a.pt")
    with pytest.raises(LccodecError):
        load_archive(tmp_path / "a.pt")
    assert Color.RED.value == 1


def test_the_error_names_the_type(tmp_path):
    torch.save({"x": np.array([{}])}, tmp_path / "a.pt")
    with pytest.raises(ArgumentError, match="holds an array of the NumPy type 'O8'"):
        load_archive(tmp_path / "a.pt")


def test_names_of_numpy_1(tmp_path):
    path = tmp_path / "a.pt"
    torch.save({"x": np.float64(0.5), "y": np.arange(3)}, path, _use_new_zipfile_serialization=False)
    path.write_bytes(path.read_bytes().replace(b"cnumpy._core.", b"cnumpy.core."))
    found = load_archive(path)
    assert (found["x"], found["y"].tolist()) == (0.5, [0, 1, 2])
