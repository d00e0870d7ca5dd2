"""Files of ``torch.save`` (``.pt``, ``.pth``, ``.ckpt``): read by torch's weights-only loader.

Such a file is a pickle, and a pickle may run any code. The weights-only loader makes tensors and
plain values, and calls only functions that are registered. NumPy's own are not, because they make
arrays of objects and of any size. Those of `VALUE_GLOBALS` are: they take bool, integer, floating
point and complex types, and no more bytes than the file has. Of the values that a chain stores
(:mod:`lccodec.adapters.tree`) those are registered whose constructors take plain values of
the file's size. An enum of the program looks a member up. The loader fills no deque and no
defaultdict, and named tuples are classes of the program. An error names what was refused.

Before anything is made of the file, its members are checked to be what they say and to lie apart;
afterwards tensors that repeat their values must stay within a bound of the file's size.
"""

from __future__ import annotations

import argparse
import datetime
import decimal
import enum
import errno
import fractions
import functools
import io
import os
import pathlib
import pickle
import re
import types
from collections.abc import Iterable, Mapping
from typing import Any, BinaryIO, Final

import numpy as np
import torch
from torch.serialization import get_unsafe_globals_in_checkpoint, safe_globals

from ...constants import MAX_NAME_CHARACTERS
from ...container.folder import replacing
from ...element_types import Array
from ...errors import ArgumentError, FormatError, LccodecError, LimitError
from ..files.zip_archive import MAX_FILE_EXPANSION, read_members
from ..seals import sealed_file
from ..tree import enums
from .states import from_numpy
from .wrappers import class_name

_RULE: Final = "torch.save"
_ZIP_START: Final = b"PK\x03\x04"
_REFUSED: Final = re.compile(r"GLOBAL (\S+)|call reduce for unrecognized function (.+)")
_REASON: Final = re.compile(r"WeightsUnpickler error: *(.+)")
_MAX_LISTED: Final = 8  # names of refused types in one error
_LARGE_READ: Final = 1 << 16
_ENTRIES_PER_BYTE: Final = 4  # of a file: looking at each takes time
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
    *(frozenset, range, slice, decimal.Decimal),
    *(types.SimpleNamespace, argparse.Namespace),
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


def load_archive(path: str | os.PathLike[str]) -> Any:
    """Return the state in a file of ``torch.save``, with tensors on the CPU.

    An ``ArgumentError`` names refused objects. A ``DataError`` says that it is no such file,
    damaged, not as sealed, or asks for more memory than a file of its size may.
    """
    with sealed_file(path) as opened:
        size = os.fstat(opened.fileno()).st_size
        file, known = _Reader(opened, size), VALUE_GLOBALS
        try:
            if file.read(len(_ZIP_START)) == _ZIP_START:
                _check_members(file, str(path))
            known = [*VALUE_GLOBALS, *_enums_in(file)]
            file.seek(0)
            with safe_globals(known):
                state = torch.load(file, map_location="cpu", weights_only=True)
        except LccodecError:
            raise
        # For damaged bytes, torch and the unpickler raise a dozen kinds of exceptions.
        except Exception as error:
            if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
                raise
            with safe_globals(known):
                raise _refusal(file, str(path), error) from error
    _check_sizes(state, size, str(path))
    return state


def save_archive(state: Any, path: str | os.PathLike[str], metadata: Mapping[str, str]) -> None:
    """Write NumPy arrays as a file of ``torch.save``; `metadata` says which were no tensors."""
    tensors = from_numpy(state, metadata)
    with replacing(path) as temporary, temporary.open("wb") as stream:  # not to a path: torch stores its name
        torch.save(tensors, stream)


def _check_members(file: BinaryIO, where: str) -> None:
    """Refuse an archive that another reader may see as another one, or that may be a bomb."""
    members = read_members(file, _RULE, where)
    if any(member.name.rpartition("/")[2] == "constants.pkl" for member in members):
        raise ArgumentError(f"{where}: a TorchScript program, not a state; save its state_dict()")
    if any(member.packed for member in members):
        raise FormatError(_RULE, where, "a packed archive, which torch.save never writes")


class _Reader(io.BufferedReader):
    """A file of which no more is asked for than it has: a read takes memory for all it asks."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        super().__init__(io.FileIO(file.fileno(), closefd=False))
        self._size = size

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > _LARGE_READ:
            size = min(size, max(self._size - self.tell(), 0))
        return super().read(size)


def _refusal(file: BinaryIO, where: str, error: Exception) -> LccodecError:
    """Return the error for a file that torch did not load."""
    if isinstance(error, MemoryError):
        return LimitError(_RULE, where, "asks for more memory than there is")
    text = str(error)
    if names := _unsafe_names(file, text):
        listed = ", ".join(names[:_MAX_LISTED]) + (" and others" if names[_MAX_LISTED:] else "")
        return ArgumentError(
            f"{where}: holds objects that are neither tensors nor plain values: {listed}. To load them can"
            " run any code. If you trust the file, load it with torch.load(weights_only=False), and save"
            " the tensors in it"
        )
    if reason := _REASON.search(text):
        text = reason[1]
    message = text.strip().partition("\n")[0] or type(error).__name__
    return FormatError(_RULE, where, f"not a file of torch.save, or a damaged one: {message}")


def _unsafe_names(file: BinaryIO, text: str) -> list[str]:
    """Return the names of what the weights-only loader refuses: all of them if possible."""
    try:
        file.seek(0)
        unsafe = sorted(get_unsafe_globals_in_checkpoint(file))
    except Exception:  # a damaged file, or one of a form that torch does not search
        unsafe = []
    match = _REFUSED.search(text)
    return unsafe or ([match[1] or match[2]] if match else [])


def _enums_in(file: BinaryIO) -> list[tuple[Any, str]]:
    """Return what to call for the enums that a file names, of those that the program has."""
    kinds = {class_name(kind): kind for kind in [*enums(enum.Enum)][::-1] if kind.__members__}
    names = [name for name in _unsafe_names(file, "") if name in kinds]
    calls: list[tuple[Any, str]] = [(functools.partial(kinds[name]), name) for name in names]
    return [*calls, (_member, "builtins.getattr")] if calls else calls


def _member(kind: object, name: object) -> Any:
    """Return the member of an enum, as Python before 3.11.4 stores it: by its name."""
    if not isinstance(kind, functools.partial) or not isinstance(name, str):
        raise pickle.UnpicklingError("an attribute of what is no enum")
    members: Mapping[str, Any] = kind.func.__members__  # type: ignore[attr-defined]
    return members[name]


def _check_sizes(state: Any, size: int, where: str) -> None:
    """Refuse a state of too many values: shared containers, and tensors that repeat their values.

    It has at most as many nodes as characters in names (LCC-LIM-08), and an entry takes a byte or
    more of the file, unless a container is there several times.
    """
    most = min(MAX_NAME_CHARACTERS, _ENTRIES_PER_BYTE * size)
    nodes, nbytes = 0, 0
    seen: set[object] = set()
    stack: list[Any] = [state]
    while stack:
        value = stack.pop()
        nbytes += _own_bytes(value, seen)
        if nbytes > MAX_FILE_EXPANSION * size:
            raise LimitError(_RULE, where, f"has more than {MAX_FILE_EXPANSION} times the bytes of the file")
        children: Iterable[Any] = ()
        if isinstance(value, dict):
            children = value.values()
        elif isinstance(value, list | tuple | set | frozenset) and not isinstance(value, torch.Size):
            children = value
        elif isinstance(value, types.SimpleNamespace | argparse.Namespace):
            children = vars(value).values()
        for child in children:
            nodes += 1
            if nodes > most:
                raise LimitError(_RULE, where, f"has more than {most} entries, or contains itself")
            stack.append(child)


def _own_bytes(value: Any, seen: set[object]) -> int:
    """Return the bytes that a leaf takes if it is copied; tied tensors count once."""
    if isinstance(value, bytes | bytearray):
        return len(value)
    if isinstance(value, np.ndarray):
        return value.nbytes
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided or value.is_nested:
        return 0  # these are refused when they are stored
    key = (value.data_ptr(), value.dtype, value.shape, value.stride())
    if key in seen:
        return 0
    seen.add(key)
    return value.numel() * value.element_size()
