"""The error classes: who is at fault, which rule was broken, and where; and checks of arguments.

Decoding any bytes returns or raises one of these; any other exception is a bug in lccodec.
``ArgumentError`` blames the caller, ``DataError`` blames the bytes, ``ChainError`` says what a
chain lacks. ``StorageError`` says that the operating system refused (a full disk, a missing
directory). ``WorkerError`` says that a worker process is gone. ``LccodecWarning`` says that a save
was done in another way than was asked for. Their texts are escaped by `printable`, since they quote
names from files.

What blames the caller most is the checks of arguments: numbers, choices, and what is True or False.
NumPy's and other numbers are accepted as numbers, ``True`` and ``False`` are not. They become
Python's own numbers, so that quantizers are equal if their numbers are, and JSON can hold them.
"""

from __future__ import annotations

import errno
import math
import operator
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any, Final

from .table import printable

_PACKAGE: Final = __name__.rpartition(".")[0]


class LccodecError(Exception):
    """Base of every error that lccodec raises on purpose."""

    def __str__(self) -> str:
        return printable(super().__str__(), indented=True)


class ArgumentError(LccodecError, ValueError):
    """The caller passed something that cannot be encoded, decoded or stored."""


class DependencyError(ArgumentError):
    """A package that is needed is not installed; the message names the extra."""


class DataError(LccodecError, ValueError):
    """Stored bytes break a rule of the specification.

    Parameters
    ----------
    rule
        Identifier of the rule in ``spec/SPEC.md``, for example ``"LCC-FRM-02"``.
    where
        The place: a file name, a field, an array name, an offset.
    message
        What was found there.
    """

    def __init__(self, rule: str, where: str, message: str) -> None:
        super().__init__(rule, where, message)
        self.rule = rule
        self.where = where
        self.message = message

    def __str__(self) -> str:
        return printable(f"{self.where}: {self.message} [{self.rule}]", indented=True)

    def inside(self, place: str) -> DataError:
        """Return the same error with `place` put before its `where`."""
        return type(self)(self.rule, f"{place}: {self.where}", self.message)


class FormatError(DataError):
    """The bytes do not have the form that the specification requires."""


class TruncatedError(DataError):
    """The bytes end earlier than they declare."""


class ChecksumError(DataError):
    """A digest or checksum does not match the bytes it covers."""


class UnsupportedError(DataError):
    """The bytes have a newer format version, or a value that the specification reserves."""


class LimitError(DataError):
    """A declared size is above a normative limit, or more than the stored bytes can hold."""


class ChainError(LccodecError, LookupError):
    """A step is unknown, a parent is missing, or a link of the chain does not match."""


class StorageError(LccodecError, OSError):
    """The operating system refused to read or write; the original error is the cause."""


class WorkerError(LccodecError, RuntimeError):
    """A worker process was killed, did not answer in time, or failed in a way it should not."""


class LccodecWarning(UserWarning):
    """What was asked for could not be done in that way; the message says what was done instead."""


def is_loss(error: LccodecError) -> bool:
    """Return whether an error says that stored bytes are lost.

    A disk that refuses for the moment, a newer format version and a limit do not say that. But no
    version writes a manifest beyond LCC-LIM-04: its length in the trailer is damaged.
    """
    if isinstance(error, StorageError):
        return error.errno in (errno.ENOENT, errno.ENOTDIR)
    if isinstance(error, LimitError):
        return error.rule == "LCC-LIM-04"
    return isinstance(error, FormatError | TruncatedError | ChecksumError | ChainError)


def reason_of(error: BaseException) -> str:
    """Return the text of an error; a MemoryError has none."""
    return str(error) or "no memory"


#: Of each thread the `warnings` that are not given yet, if somebody else gives them.
_kept: Final = threading.local()


@contextmanager
def keeping_warnings(kept: deque[str]) -> Iterator[None]:
    """Let what this thread warns of be added to `kept`, for the caller that waits for it.

    Who gives a warning may need a lock that the caller has: a signal handler can have interrupted
    it where it writes to its log.
    """
    before, _kept.warnings = getattr(_kept, "warnings", None), kept
    try:
        yield
    finally:
        _kept.warnings = before


def is_waited_for() -> bool:
    """Return whether a caller waits for this thread, and gives its warnings."""
    return getattr(_kept, "warnings", None) is not None


def warn(message: str) -> None:
    """Warn with an `LccodecWarning` at the line outside this package that made the call."""
    if is_waited_for():
        _kept.warnings.append(message)
        return
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and f"{frame.f_globals.get('__name__')}.".startswith(f"{_PACKAGE}."):
        frame, level = frame.f_back, level + 1
    warnings.warn(printable(message, indented=True), LccodecWarning, stacklevel=level)


# --- checks of arguments --------------------------------------------------------------------------


def as_integer(value: Any) -> int | None:
    """Return a value that has ``__index__`` as an int; ``None`` for other values and for a bool."""
    if isinstance(value, bool):
        return None
    try:  # a bool of NumPy has no index
        return operator.index(value)
    except TypeError:
        return None


def as_number(value: Any) -> int | float | None:
    """Return a value that has ``__float__`` as a float; ``None`` for other values and for a bool.

    An int is returned as it is, or as ``None`` if it is too large for a float.
    """
    import numpy as np  # here, as it takes long to load

    if isinstance(value, bool | np.bool_ | str | bytes | complex | np.complexfloating):
        return None
    if np.ndim(value) or not (hasattr(type(value), "__float__") or hasattr(type(value), "__index__")):
        return None
    try:
        converted = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return value if type(value) is int else converted


def integer(what: str, value: object, least: int = 0, most: int | None = None) -> int:
    """Return an integer that is in range; raise ``ArgumentError``, which calls it `what`."""
    found = as_integer(value)
    if found is None or found < least or (most is not None and found > most):
        kind = "a positive integer" if least else "a non-negative integer"
        wanted = kind if most is None else f"an integer from {least} to {most}"
        raise ArgumentError(f"{what} must be {wanted}; got {value!r}")
    return found


def number(what: str, value: object, wanted: str, fits: Callable[[float], bool]) -> float:
    """Return a number that fits; raise ``ArgumentError``, which says what is `wanted`."""
    found = as_number(value)
    if found is None or not fits(found):
        raise ArgumentError(f"{what} must be {wanted}; got {value!r}")
    return found


def positive(what: str, value: object) -> float:
    """Return a positive finite number; raise ``ArgumentError`` for anything else."""
    return number(what, value, "a positive finite number", lambda found: 0 < found < math.inf)


def check_choice(what: str, value: object, choices: Collection[str]) -> None:
    """Raise ``ArgumentError`` unless a value is one of some names."""
    if not isinstance(value, str) or value not in choices:
        raise ArgumentError(f"{what} must be one of {', '.join(choices)}; got {value!r}")


def check_bool(what: str, value: object) -> None:
    """Raise ``ArgumentError`` unless a value is ``True`` or ``False``."""
    if not isinstance(value, bool):
        raise ArgumentError(f"{what} must be True or False; got {value!r}")
