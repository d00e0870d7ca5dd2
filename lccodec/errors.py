"""The error classes: who is at fault, which rule was broken, and where.

Decoding any bytes returns or raises one of these; any other exception is a bug in lccodec.
``ArgumentError`` blames the caller, ``DataError`` blames the bytes, ``ChainError`` says what a
chain lacks. ``StorageError`` says that the operating system refused (a full disk, a missing
directory). ``WorkerError`` says that a worker process is gone. ``LccodecWarning`` says that a save
was done in another way than was asked for. Their texts are escaped by `printable`, since they quote
names from files.
"""

from __future__ import annotations

import errno
import sys
import warnings
from typing import Final

from .table import printable

_PACKAGE: Final = __name__.rpartition(".")[0]


class LccodecError(Exception):
    """Base of every error that lccodec raises on purpose."""

    def __str__(self) -> str:
        return printable(super().__str__(), lines=True)


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
        return printable(f"{self.where}: {self.message} [{self.rule}]", lines=True)

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


def warn(message: str) -> None:
    """Warn with an `LccodecWarning` at the line outside this package that made the call."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and f"{frame.f_globals.get('__name__')}.".startswith(f"{_PACKAGE}."):
        frame, level = frame.f_back, level + 1
    warnings.warn(printable(message, lines=True), LccodecWarning, stacklevel=level)
