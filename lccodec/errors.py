"""The error taxonomy: whose fault it was, which rule was broken, and where.

Decoding any bytes returns or raises one of these; any other exception is a bug in lccodec.
``ArgumentError`` blames the caller, ``DataError`` the bytes, ``ChainError`` what a chain lacks.
``StorageError`` is the operating system's refusal (a full disk, a missing directory). ``LccodecWarning``
tells of a save that was kept in another way than was asked for.
"""

from __future__ import annotations

__all__ = [
    "ArgumentError",
    "ChainError",
    "ChecksumError",
    "DataError",
    "DependencyError",
    "FormatError",
    "LccodecError",
    "LccodecWarning",
    "LimitError",
    "StorageError",
    "TruncatedError",
    "UnsupportedError",
]


class LccodecError(Exception):
    """Base of every error that lccodec raises on purpose."""


class ArgumentError(LccodecError, ValueError):
    """The caller passed something that cannot be encoded, decoded or stored."""


class DependencyError(ArgumentError):
    """What was asked for needs a package that is not installed; the message names the extra."""


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
        return f"{self.where}: {self.message} [{self.rule}]"

    def inside(self, place: str) -> DataError:
        """The same error with `place` put before where it happened."""
        return type(self)(self.rule, f"{place}: {self.where}", self.message)


class FormatError(DataError):
    """The bytes do not have the form the specification gives them."""


class TruncatedError(DataError):
    """The bytes end before what they declare."""


class ChecksumError(DataError):
    """A digest or checksum does not match the bytes it covers."""


class UnsupportedError(DataError):
    """A newer format version, or a value the specification reserves."""


class LimitError(DataError):
    """A declared size is beyond a normative limit, or beyond what the stored bytes can hold."""


class ChainError(LccodecError, LookupError):
    """An unknown step, a missing parent, or a link of the chain that does not match."""


class StorageError(LccodecError, OSError):
    """The operating system refused to read or write; the original error is the cause."""


class LccodecWarning(UserWarning):
    """What was asked for could not be done as it was asked; the message says what was done instead."""
