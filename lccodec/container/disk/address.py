"""Places: a path of the disk, or the address of a store that is reached over a network."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from ...errors import ArgumentError
from .system import StrPath, checked_path

#: Of an address such as ``s3://bucket/run``: the scheme, and what it is followed by.
_ADDRESS: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://(.+)", re.DOTALL)
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


@dataclass(frozen=True, order=True)
class Address(os.PathLike[str]):
    """The address of a chain or a file in a store, such as ``s3://bucket/run``.

    It is what a `pathlib.Path` is for a directory: messages show it, and ``address / name`` is the
    address of a file in it.

    Parameters
    ----------
    scheme
        What is before ``://``, in lower case.
    rest
        What is behind it, without slashes at its end.

    Examples
    --------
    >>> str(Address.of("s3://bucket/run/") / "000000000010.lcc.h5")
    's3://bucket/run/000000000010.lcc.h5'
    """

    scheme: str
    rest: str

    @classmethod
    def of(cls, text: str) -> Address:
        """Return the address that a text is; raise ``ArgumentError`` if it is none."""
        match = _ADDRESS.fullmatch(text)
        rest = match[2].rstrip("/") if match else ""
        if match is None or not rest or not text.isprintable():
            raise ArgumentError(f"an address must look like s3://bucket/run; got {text!r}")
        return cls(match[1].lower(), rest)

    def __str__(self) -> str:
        return f"{self.scheme}://{self.rest}"

    __fspath__ = __str__

    def __truediv__(self, name: str) -> Address:
        return Address(self.scheme, f"{self.rest}/{name}")

    @property
    def name(self) -> str:
        """What is behind the last slash."""
        return self.rest.rpartition("/")[2]


#: Where a chain or a file may be.
Place: TypeAlias = Path | Address


def is_address(place: object) -> bool:
    """Return whether a place that was given is an address, and not a path."""
    return isinstance(place, Address) or (isinstance(place, str) and _SCHEME.match(place) is not None)


def checked_place(place: StrPath) -> Place:
    """Return the address that was given, or a path as `checked_path` does.

    Raises
    ------
    ArgumentError, StorageError
        If it is neither. Errors are those of `checked_path`.

    Examples
    --------
    >>> checked_place("s3://bucket/run/")
    Address(scheme='s3', rest='bucket/run')
    """
    if isinstance(place, Address):
        return place
    if isinstance(place, str) and is_address(place):
        return Address.of(place)
    return checked_path(place)
