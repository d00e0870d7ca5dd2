"""What files of ``torch.save`` may hold besides tensors: arrays of NumPy, dates, paths and others.

The weights-only loader calls only functions that are registered. NumPy's own are not, because they
make arrays of objects and of any size. Those below are: they take bool, integer, floating point and
complex types, and no more bytes than the file has. Of the values that a chain stores
(:mod:`lccodec.adapters.tree.values`) those are registered whose constructors take plain values of
the file's size. The loader fills no deque and no defaultdict, and enums and named tuples are
classes of the program.
"""

from __future__ import annotations

import datetime
import decimal
import fractions
import functools
import pathlib
import re
import types
from typing import Any, Final

import numpy as np

from ...element_types import Array
from ...errors import ArgumentError

__all__ = ["VALUE_GLOBALS"]

_CODE: Final = re.compile(r"[<>=|]?[biufc][0-9]{1,2}")
_FRACTION: Final = re.compile(r"-?[0-9]{1,4000}(/[0-9]{1,4000})?")  # as Python reads integers
_ORDERS: Final = ("<", ">", "=", "|")


class _Kind:
    """Stands for a dtype: its code, and the byte order that the pickle gives afterwards."""

    def __init__(self, code: object, *_: object) -> None:
        if not isinstance(code, str) or not _CODE.fullmatch(code):
            raise ArgumentError(f"holds an array of the NumPy type {code!r:.100}; save numbers")
        self.dtype = np.dtype(code)

    def __setstate__(self, state: Any) -> None:
        order = state[1]
        if order not in _ORDERS:
            raise ValueError("not the byte order of a NumPy type")
        self.dtype = self.dtype.newbyteorder(order)


class _Pickled(np.ndarray):
    """An array whose values a pickle gives afterwards."""

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, fortran, data = state
        if not isinstance(kind, _Kind) or not isinstance(data, bytes):
            raise ValueError("not the values of a NumPy array")
        values: Any = (1, shape, kind.dtype, bool(fortran), data)
        super().__setstate__(values)


class _ArrayName:
    """Stands for ``numpy.ndarray``, which a pickle names and does not call."""


def _reconstruct(*_: object) -> Array:
    return np.ndarray.__new__(_Pickled, (0,), np.int8)


def _no_bytes(*arguments: object) -> bytes:
    """Return no bytes: that is how an old pickle writes the values of an empty array."""
    if arguments:
        raise ValueError("not the values of an empty array")
    return b""


def _scalar(kind: Any, data: Any) -> Any:
    if not isinstance(kind, _Kind) or not isinstance(data, bytes):
        raise ValueError("not a NumPy number")
    (value,) = np.frombuffer(data, kind.dtype)
    return value


def _fraction(*stored: Any) -> fractions.Fraction:
    """Return a fraction of integers or digits: that of an exponent may take any memory."""
    if not all(type(part) is int or (type(part) is str and _FRACTION.fullmatch(part)) for part in stored):
        raise ValueError("not a fraction")
    return fractions.Fraction(*stored)


def _path(kind: type[pathlib.PurePath], *parts: Any) -> pathlib.PurePath:
    if not all(type(part) is str for part in parts):
        raise ValueError("not a path")
    return kind(*parts)


#: What to call for the names in a pickle, as `torch.serialization.safe_globals` takes it. NumPy 2
#: has other names than NumPy 1; a path of another system becomes one of this.
VALUE_GLOBALS: Final[list[Any]] = [
    *(frozenset, range, slice, decimal.Decimal, types.SimpleNamespace),
    *(datetime.datetime, datetime.date, datetime.time, datetime.timedelta, datetime.timezone),
    (_fraction, "fractions.Fraction"),
    *(
        (functools.partial(_path, kind), f"{module}.{name}")
        for module in ("pathlib", "pathlib._local")
        for name, kind in (
            ("PosixPath", pathlib.Path),
            ("WindowsPath", pathlib.Path),
            ("PurePosixPath", pathlib.PurePosixPath),
            ("PureWindowsPath", pathlib.PureWindowsPath),
        )
    ),
    (_Kind, "numpy.dtype"),
    (_ArrayName, "numpy.ndarray"),
    _Pickled,
    *((_no_bytes, name) for name in ("bytes", "builtins.bytes", "__builtin__.bytes")),
    *(
        (function, f"numpy.{core}.multiarray.{name}")
        for core in ("core", "_core")
        for function, name in ((_reconstruct, "_reconstruct"), (_scalar, "scalar"))
    ),
]
