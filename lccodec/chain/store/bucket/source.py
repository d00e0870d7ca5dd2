"""Files in a bucket as they are read: by ranges, of which those of one round are fetched together.

A reader says what it is about to read (`Reading.ahead`). What is near is joined into one range, and
all ranges of a round are requested side by side, each as large as a request should be. What is to
be read later than that is fetched when its turn comes.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final

from ....constants import PAYLOAD_OFFSET
from ....container.disk.source import Source
from ....errors import ChainError, StorageError
from .backend import MissingError
from .cache import Disk, Memory
from .keys import Entry
from .patience import PatientBackend

#: Ranges of one object with fewer bytes between them are one request.
_GAP_BYTES: Final = 256
#: Bytes of one round. What is planned beyond that comes in rounds of its own.
_ROUND_BYTES: Final = 48 << 20

#: Rounds that are planned at most.
_MAX_ROUNDS: Final = 1 << 14

#: Data of so few bytes is read whole where more than its ends may be needed.
_SMALL_BYTES: Final = 1 << 13

#: An entry of a listing, and start and size of a range of its data.
Range = tuple[Entry, int, int]


class Reading:
    """What is read of the objects of a chain, and what is kept of that."""

    def __init__(self, backend: PatientBackend, disk: Disk) -> None:
        self._backend = backend
        self._memory = Memory()
        self._disk = disk
        self._rounds: dict[int, list[Range]] = {}  # that are to come, in the order of their use
        self._count = 0
        self._changing = threading.Lock()

    def read(self, entry: Entry, start: int, size: int) -> bytes:
        """Return a range of the data of a file."""
        key = entry.object.key
        found = self._memory.get(key, start, size)
        if found is None and (planned := self._round_of(key, start, size)):
            self._fetch(planned)
            found = self._memory.get(key, start, size)
        return self._fetch([(entry, start, size)])[0] if found is None else found

    def _round_of(self, key: str, start: int, size: int) -> list[Range]:
        """Return the planned round that has a range, which is planned no more."""
        with self._changing:
            for number, planned in self._rounds.items():
                for entry, begin, length in planned:
                    if entry.object.key == key and begin <= start and start + size <= begin + length:
                        return self._rounds.pop(number)
        return []

    def ahead(self, wanted: Iterable[Range]) -> None:
        """Fetch ranges that will be read, in one round; what is too much for it, later."""
        kept, total, first = self._memory, 0, list[Range]()
        rounds = [first]
        for each in _joined(wanted):
            if kept.get(each[0].object.key, *each[1:]) is None:
                if rounds[-1] and total + each[2] > _ROUND_BYTES:
                    rounds.append([])
                    total = 0
                rounds[-1].append(each)
                total += each[2]
        with self._changing:
            for later in rounds[1:]:
                self._count += 1
                self._rounds[self._count] = later
            while len(self._rounds) > _MAX_ROUNDS:  # that nobody has read
                del self._rounds[next(iter(self._rounds))]
        with suppress(MissingError):  # the read will say so
            self._fetch(first)

    def _fetch(self, wanted: Sequence[Range]) -> list[bytes]:
        """Return ranges from the disk, or else from the store, all in one round."""
        found: list[bytes | None] = [self._disk.get(e.data.root, start, size) for e, start, size in wanted]
        left = [number for number, data in enumerate(found) if data is None]
        asked = [(wanted[n][0].object.key, wanted[n][1], wanted[n][2]) for n in left]
        for number, data in zip(left, self._backend.read_many(asked) if asked else (), strict=True):
            entry, start, _ = wanted[number]
            found[number] = data
            self._disk.put(entry.data.root, start, data)
        whole = [data for data in found if data is not None]
        for (entry, start, _), data in zip(wanted, whole, strict=True):
            self._memory.put(entry.object.key, start, data)
        return whole


def _joined(wanted: Iterable[Range]) -> list[Range]:
    """Return ranges in the order of their use, those joined that are near to each other."""
    parts: dict[str, list[tuple[int, Range]]] = {}
    for number, each in enumerate(wanted):
        parts.setdefault(each[0].object.key, []).append((number, each))
    found: list[tuple[int, Range]] = []
    for ranges in parts.values():
        ranges.sort(key=lambda each: each[1][1])
        place, (entry, start, size) = ranges[0]
        for number, (_, begin, length) in ranges[1:]:
            if begin <= start + size + _GAP_BYTES and begin + length - start <= _ROUND_BYTES:
                place, size = min(place, number), max(size, begin + length - start)
            else:
                found.append((place, (entry, start, size)))
                place, start, size = number, begin, length
        found.append((place, (entry, start, size)))
    return [each for _, each in sorted(found, key=lambda each: each[0])]


class BucketSource:
    """The data of one file, to be read by ranges.

    Attributes
    ----------
    size
        Its bytes, as the listing has them.
    far
        Each read takes long, so what is needed is better read at once.
    """

    far = True

    def __init__(self, reading: Reading, entry: Entry, name: str) -> None:
        self.reading, self.entry = reading, entry
        self.size = entry.object.size
        self._name = name

    def read(self, offset: int, size: int) -> bytes:
        """Return `size` bytes from `offset` on."""
        if not size:
            return b""
        try:
            return self.reading.read(self.entry, offset, size)
        except MissingError as error:
            raise ChainError(f"{self._name}: was pruned while it was read") from error
        except StorageError as error:
            message = f"cannot read: {error.strerror}"
            raise StorageError(error.errno or errno.EIO, message, self._name) from error

    def ahead(self, wanted: Iterable[tuple[Source, int, int]]) -> None:
        """Fetch ranges of sources of the same chain that will be read."""
        self.reading.ahead(
            (source.entry, start, size) for source, start, size in wanted if isinstance(source, BucketSource)
        )

    def rest(self, root: bytes) -> None:
        """Do nothing: nothing is open."""

    def close(self) -> None:
        """Do nothing: nothing is open."""


def ends(entry: Entry) -> list[Range]:
    """Return the ranges before and behind the payload; all of a small file."""
    size, tail = entry.object.size, entry.data.tail
    if size <= _SMALL_BYTES or PAYLOAD_OFFSET + tail >= size:
        return [(entry, 0, size)]
    return [(entry, 0, PAYLOAD_OFFSET), (entry, size - tail, tail)]
