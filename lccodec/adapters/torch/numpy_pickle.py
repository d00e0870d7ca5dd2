"""Arrays and numbers of NumPy in files of ``torch.save``, such as states of random generators.

The weights-only loader calls only functions that are registered. NumPy's own are not, because they
make arrays of objects and of any size. Those below are: they take bool, integer, floating point and
complex types, and no more bytes than the file has.
"""

from __future__ import annotations

import re
from typing import Any, Final

import numpy as np

from ...element_types import Array
from ...errors import ArgumentError

__all__ = ["NUMPY_GLOBALS"]

_CODE: Final = re.compile(r"[<>=|]?[biufc][0-9]{1,2}")
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


#: What to call for the names in a pickle, as `torch.serialization.safe_globals` takes it. NumPy 2
#: has other names than NumPy 1.
NUMPY_GLOBALS: Final[list[Any]] = [
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
