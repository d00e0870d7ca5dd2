"""What a chain needs of an object store: six calls, and what their errors mean.

A backend does one request, or what belongs to it. It raises `UnreachableError` for what may go away
by itself, and :mod:`.patience` tries again; `MissingError` and `ExistsError` for what the caller
asks about; and ``StorageError`` for all else.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Protocol

from ....errors import StorageError
from .keys import Object

#: Objects of one chain, and bytes of their names: a hostile listing must come to an end.
MAX_OBJECTS: Final = 1 << 21
MAX_LISTING_BYTES: Final = 1 << 28


class Backend(Protocol):
    """The objects below one prefix of a store. Several threads may use it.

    Keys are relative to the prefix. Errors are those of the module.
    """

    #: Whether other processes see the same objects.
    shared: bool

    def objects(self, folder: str = "") -> list[Object]:
        """Return all objects, or those of a folder, in as many requests as that takes."""

    def read(self, key: str, start: int, size: int) -> bytes:
        """Return bytes of an object: fewer if it ends earlier.

        An answer with more is an error, and not read to its end where the store can be read in
        pieces.
        """

    def put_if_absent(self, key: str, data: bytes) -> None:
        """Put a small object in one request; raise `ExistsError` if there is one."""

    def upload(self, key: str, path: Path) -> None:
        """Put a file under a name of its own, in parts if it is large."""

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects. One may be gone already."""

    def head(self, key: str) -> Object | None:
        """Return what is known of an object; ``None`` if there is none."""


class UnreachableError(StorageError):
    """The store did not answer, or not as it should; another attempt may succeed."""


class MissingError(StorageError):
    """There is no such object."""

    def __init__(self, key: str) -> None:
        super().__init__(errno.ENOENT, "there is no such object", key)


class ExistsError(StorageError):
    """There is an object of that name already."""

    def __init__(self, key: str) -> None:
        super().__init__(errno.EEXIST, "there is an object of that name", key)


def refused(place: str, detail: str) -> StorageError:
    """Return the error for credentials that are missing, wrong, or not enough."""
    message = f"the store refuses access; check the credentials and their permissions ({detail})"
    return StorageError(errno.EACCES, message, place)


def too_much(place: str, size: int) -> StorageError:
    """Return the error for an answer that is longer than what was asked for."""
    return StorageError(errno.EPROTO, f"the store sent more than the {size} bytes that were asked for", place)


def bounded(objects: Iterable[Object], place: str) -> list[Object]:
    """Return the objects of a listing, which are read one by one.

    Raises
    ------
    StorageError
        If it has more of them, or longer names, than a listing of a chain may have.
    """
    found, size = list[Object](), 0
    for each in objects:
        found.append(each)
        size += len(each.key)
        if len(found) > MAX_OBJECTS or size > MAX_LISTING_BYTES:
            raise endless(place)
    return found


def endless(place: str) -> StorageError:
    """Return the error for a listing that is too long to be one of a chain."""
    return StorageError(errno.EFBIG, "the listing is too long, or has no end", place)


def no_bucket(place: str, detail: str) -> StorageError:
    """Return the error for a bucket that does not exist."""
    message = f"there is no such bucket; make it first, or check the address ({detail})"
    return StorageError(errno.ENXIO, message, place)
