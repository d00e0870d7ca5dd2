"""What of NumPy a file of torch.save may hold: numbers and arrays of them, and nothing larger."""

import datetime
import fractions
import io
import pathlib
import types

import numpy as np
import pytest
import torch
from torch.serialization import safe_globals

from lccodec.adapters.torch.archive import load_archive
from lccodec.adapters.torch.pickled import VALUE_GLOBALS
from lccodec.errors import ArgumentError, LccodecError


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
    ],
    ids=range(16),
)
def test_hostile_pickles_end_in_an_error_or_in_nothing(tmp_path, hostile):
    torch.save({"x": hostile}, tmp_path / "a.pt")
    try:
        found = load_archive(tmp_path / "a.pt")["x"]
    except LccodecError:
        return
    assert isinstance(found, types.SimpleNamespace) or found.size == 0


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
