"""What a chain needs of an object store: six calls, and what their errors mean.

A backend does one request, or what belongs to it. It raises `UnreachableError` for what may go away
by itself, and `PatientBackend` tries again; `MissingError` and `ExistsError` for what the caller
asks about; and ``StorageError`` for all else.

A store that does not answer is asked again, later and later, until a time is over. The waits grow
twofold up to a limit, and each is drawn at random below that, so that many readers do not come back
at the same moment (full jitter). A warning says when an outage lasts.
"""

from __future__ import annotations

import errno
import itertools
import random
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import TimeoutError as StillRunning
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, TypeVar

from ....errors import StorageError, warn
from ....parallel import SideThread, ordered
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


#: Requests of one round that run side by side.
_MAX_REQUESTS: Final = 16
#: An object is read in parts of as many bytes, side by side.
_PART_BYTES: Final = 8 << 20
_MAX_PARTS: Final = 1 << 12  # that are planned at once
_SECONDS_BETWEEN_LOOKS: Final = 0.2
_SECONDS_UNTIL_TOLD: Final = 30.0

Result = TypeVar("Result")
Item = TypeVar("Item")


@dataclass(frozen=True)
class Patience:
    """How long an unreachable store is asked again.

    Parameters
    ----------
    reading, writing
        Seconds for a read and for a write. A save goes on in the background meanwhile.
    first, longest
        The first wait in seconds at most, and the longest.
    """

    reading: float = 60.0
    writing: float = 3600.0
    first: float = 0.1
    longest: float = 15.0


class PatientBackend:
    """A backend whose calls are tried again, and several at a time.

    What a function raises that is called between attempts (`call_between`) ends them.
    """

    def __init__(self, backend: Backend, place: str, patience: Patience) -> None:
        self._backend = backend
        self._place = place
        self._patience = patience
        self._owner: int | None = None
        self._between: Callable[[], object] = lambda: None
        self.shared = backend.shared

    def call_between(self, between: Callable[[], object]) -> None:
        """Let a function be called by this thread while something takes long.

        It is the thread of saves in the background: its reads are as patient as writes.
        """
        self._owner, self._between = threading.get_ident(), between

    @property
    def _reading(self) -> float:
        """The seconds for a read: of a save in the background as many as for its writes."""
        patience = self._patience
        return patience.writing if threading.get_ident() == self._owner else patience.reading

    def _look(self) -> None:
        if threading.get_ident() == self._owner:
            self._between()

    def objects(self, folder: str = "") -> list[Object]:
        """Return all objects of the chain, or of one of its folders."""
        return self._tried(lambda: self._backend.objects(folder), self._reading)

    def read(self, key: str, start: int, size: int) -> bytes:
        """Return as many bytes of an object as asked for."""
        (found,) = self.read_many([(key, start, size)])
        return found

    def read_many(self, wanted: Sequence[tuple[str, int, int]]) -> list[bytes]:
        """Return ranges, given by key, start and size, all in one round of requests.

        Raises
        ------
        MissingError, StorageError
            If an object is not there, is shorter than the listing said, or cannot be read.
        """
        parts = (
            (number, key, at, min(_PART_BYTES, start + size - at))
            for number, (key, start, size) in enumerate(wanted)
            for at in range(start, start + size, _PART_BYTES)
        )
        found: list[list[bytes]] = [[] for _ in wanted]
        # A listing may claim any size. So no more is planned than a store has shown it can send.
        while some := list(itertools.islice(parts, _MAX_PARTS)):
            for (number, *_), data in zip(some, self.each(self._read_part, some), strict=True):
                found[number].append(data)
        return [pieces[0] if len(pieces) == 1 else b"".join(pieces) for pieces in found]

    def _read_part(self, part: tuple[int, str, int, int]) -> bytes:
        _, key, start, size = part

        def attempt() -> bytes:
            data = self._read(key, start, size)
            if len(data) != size:
                message = f"the store sent {len(data)} of {size} bytes from byte {start} on"
                raise UnreachableError(None, message, f"{self._place}/{key}")
            return data

        return self._tried(attempt, self._reading)

    def _read(self, key: str, start: int, size: int) -> bytes:
        """Return bytes of an object in one attempt: no more than were asked for."""
        data = self._backend.read(key, start, size)
        if len(data) > size:
            raise too_much(f"{self._place}/{key}", size)
        return data

    def read_small(self, keys: Sequence[str], limit: int) -> list[bytes]:
        """Return small objects, or their first bytes, in one round."""

        def read(key: str) -> bytes:
            return self._tried(lambda: self._read(key, 0, limit), self._reading)

        return self.each(read, keys)

    def put_if_absent(self, key: str, data: bytes) -> None:
        """Put a small object; raise `ExistsError` if there is one, which may be this one."""
        self._tried(lambda: self._backend.put_if_absent(key, data), self._patience.writing)

    def upload(self, key: str, path: Path) -> None:
        """Put a file under a name of its own."""

        def attempt() -> None:
            running = SideThread().call(self._backend.upload, key, path)
            while True:
                try:
                    return running.result(_SECONDS_BETWEEN_LOOKS)
                except StillRunning:
                    self._look()

        self._tried(attempt, self._patience.writing)

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects."""
        gone = list(keys)
        if gone:
            self._tried(lambda: self._backend.delete(gone), self._reading)

    def head(self, key: str) -> Object | None:
        """Return what is known of an object; ``None`` if there is none."""
        return self._tried(lambda: self._backend.head(key), self._reading)

    def each(self, call: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """Return the results of calls that run side by side."""
        if len(items) < 2:
            return [call(item) for item in items]
        return list(ordered(call, items, min(_MAX_REQUESTS, len(items)), waits=False))

    def _tried(self, attempt: Callable[[], Result], seconds: float) -> Result:
        """Return what a call returns, tried again while the store cannot be reached."""
        start, wait, told = time.monotonic(), self._patience.first, False
        while True:
            try:
                return attempt()
            except UnreachableError as error:
                passed = time.monotonic() - start
                if passed >= seconds:
                    message = f"{error.strerror} (after {passed:.0f} s)"
                    raise StorageError(error.errno, message, error.filename) from error
                if passed > _SECONDS_UNTIL_TOLD and not told:
                    told = True
                    warn(f"{self._place} cannot be reached, and is asked again: {error.strerror}")
            self._sleep(random.uniform(wait / 2, wait))  # noqa: S311 - no secret
            wait = min(2 * wait, self._patience.longest)

    def _sleep(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self._look()
            time.sleep(min(left, _SECONDS_BETWEEN_LOOKS))
