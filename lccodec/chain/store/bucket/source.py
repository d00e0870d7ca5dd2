"""Files in a bucket as they are read: by ranges, of which those of one round are fetched together.

A reader says what it is about to read (`Reading.ahead`). What is near is joined into one request,
and all requests of a round run side by side, each as large as a request should be. What is to be
read later than that is fetched when its turn comes.

What arrives is verified, if digests cover it: the open file says so (`Range.verify`). Other bytes
are asked for once more, and only what was verified is kept on the disk. The memory also keeps what
cannot be verified yet, such as the ends of a file before it is open. Whoever finds that those bytes
are not what was stored lets them be forgotten.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from ....constants import MAX_MANIFEST_BYTES, PAYLOAD_OFFSET, TRAILER_SIZE
from ....container.disk.source import Source, Verify
from ....errors import ChainError, ChecksumError, DataError, StorageError
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

_MAX_ATTEMPTS: Final = 2  # to read a range whose bytes are not what was stored


class Range(NamedTuple):
    """A range of the data of a file.

    Parameters
    ----------
    entry
        The file, as a listing has it.
    start, size
        The range.
    verify
        Says whether digests cover the bytes of a range, and raises ``DataError`` if they do not
        match; ``None`` as long as the file is not open.
    """

    entry: Entry
    start: int
    size: int
    verify: Verify | None = None

    @property
    def key(self) -> str:
        """The key of the object."""
        return self.entry.object.key

    @property
    def end(self) -> int:
        """Where the range ends."""
        return self.start + self.size

    def is_verified(self, data: bytes) -> bool:
        """Return whether bytes are known to be those of the range; raise ``DataError`` if not."""
        return self.verify is not None and self.verify(self.start, data)


#: Ranges of one object that are fetched by one request, in their order.
Request = tuple[Range, ...]


class Reading:
    """What is read of the objects of a chain, and what is kept of that."""

    def __init__(self, backend: PatientBackend, disk: Disk) -> None:
        self._backend = backend
        self._memory = Memory()
        self._disk = disk
        self._rounds: dict[int, list[Request]] = {}  # that are to come, in the order of their use
        self._count = 0
        self._changing = threading.Lock()

    def read(self, wanted: Range) -> bytes:
        """Return a range of the data of a file."""
        place = wanted.key, wanted.start, wanted.size
        found = self._memory.get(*place)
        if found is None and (planned := self._round_of(wanted)):
            self._fetch(planned)
            found = self._memory.get(*place)
        return self._fetch([(wanted,)])[0] if found is None else found

    def _round_of(self, wanted: Range) -> list[Request]:
        """Return the planned round that has a range, which is planned no more."""
        with self._changing:
            for number, planned in self._rounds.items():
                for each in (each for request in planned for each in request):
                    if each.key == wanted.key and each.start <= wanted.start and wanted.end <= each.end:
                        return self._rounds.pop(number)
        return []

    def ahead(self, wanted: Iterable[Range]) -> None:
        """Fetch ranges that will be read, in one round; what is too much for it, later."""
        total, first = 0, list[Request]()
        rounds = [first]
        for request in _joined(wanted):
            left = tuple(r for r in request if self._memory.get(r.key, r.start, r.size) is None)
            if left:
                size = left[-1].end - left[0].start
                if rounds[-1] and total + size > _ROUND_BYTES:
                    rounds.append([])
                    total = 0
                rounds[-1].append(left)
                total += size
        with self._changing:
            for later in rounds[1:]:
                self._count += 1
                self._rounds[self._count] = later
            while len(self._rounds) > _MAX_ROUNDS:  # that nobody has read
                del self._rounds[next(iter(self._rounds))]
        with suppress(MissingError):  # the read will say so
            self._fetch(first)

    def _fetch(self, requests: Sequence[Request]) -> list[bytes]:
        """Return ranges from the disk, or else from the store, all in one round."""
        wanted = [each for request in requests for each in request]
        found = {each: data for each in wanted if (data := self._on_disk(each)) is not None}
        for each, data in found.items():
            self._memory.put(each.key, each.start, data, verified=True)
        left = [tuple(each for each in request if each not in found) for request in requests]
        for _ in range(_MAX_ATTEMPTS):
            arrived = self._ask([request for request in left if request])
            found |= arrived
            asked = [each for each in arrived.items() if each[0].verify is not None]
            answers = zip(asked, self._backend.each(_soundness, asked), strict=True)
            sound = {each: answer for (each, _), answer in answers}
            for each, data in arrived.items():
                is_verified = sound.get(each) is True
                self._memory.put(each.key, each.start, data, verified=is_verified)
                if is_verified:
                    self._disk.put(each.entry.data.root, each.start, data)
            garbled = {each for each, answer in sound.items() if answer is None}
            if not garbled:
                break
            left = [tuple(each for each in request if each in garbled) for request in left]
        return [found[each] for each in wanted]

    def _on_disk(self, wanted: Range) -> bytes | None:
        return self._disk.get(wanted.entry.data.root, wanted.start, wanted.size)

    def _ask(self, requests: Sequence[Request]) -> dict[Range, bytes]:
        """Return the ranges of requests from the store."""
        spans = [(parts[0].key, parts[0].start, parts[-1].end - parts[0].start) for parts in requests]
        answers = self._backend.read_many(spans) if spans else []
        return {
            each: answer[each.start - parts[0].start : each.end - parts[0].start]
            for parts, answer in zip(requests, answers, strict=True)
            for each in parts
        }

    def verified(self, wanted: Range, *, ask: bool) -> None:
        """Keep a range on the disk that was verified since it arrived, if memory still has it.

        With `ask`, it was not: it is verified now.
        """
        place = wanted.key, wanted.start, wanted.size
        data = self._memory.unverified(*place)
        if data is not None and (not ask or _soundness((wanted, data))):
            self._memory.put(wanted.key, wanted.start, data, verified=True)
            self._disk.put(wanted.entry.data.root, wanted.start, data)

    def forget(self, wanted: Range) -> None:
        """Forget all that is kept of a range: it is not what was stored."""
        for start, size in self._memory.drop(wanted.key, wanted.start, wanted.size):
            self._disk.drop(wanted.entry.data.root, start, size)


def _soundness(arrived: tuple[Range, bytes]) -> bool | None:
    """Return whether bytes are verified; ``None`` if they are not what was stored."""
    try:
        return arrived[0].is_verified(arrived[1])
    except DataError:
        return None


def _joined(wanted: Iterable[Range]) -> list[Request]:
    """Return requests in the order of the use of ranges.

    Ranges that touch are one, those that are near to each other one request.
    """
    parts: dict[str, list[tuple[int, Range]]] = {}
    for number, each in enumerate(wanted):
        parts.setdefault(each.key, []).append((number, each))
    found: list[tuple[int, list[Range]]] = []
    for ranges in parts.values():
        ranges.sort(key=lambda each: each[1].start)
        place, first = ranges[0]
        request = [first]
        for number, each in ranges[1:]:
            last = request[-1]
            if each.start > last.end + _GAP_BYTES or each.end - request[0].start > _ROUND_BYTES:
                found.append((place, request))
                place, request = number, [each]
                continue
            place = min(place, number)
            if each.start <= last.end:
                end, verify = max(last.end, each.end), last.verify or each.verify
                request[-1] = last._replace(size=end - last.start, verify=verify)
            else:
                request.append(each)
        found.append((place, request))
    return [tuple(request) for _, request in sorted(found, key=lambda each: each[0])]


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
        self._verify: Verify | None = None

    def range(self, offset: int, size: int) -> Range:
        """Return a range of the file, for `Reading`."""
        return Range(self.entry, offset, size, self._verify)

    def read(self, offset: int, size: int) -> bytes:
        """Return `size` bytes from `offset` on."""
        if not size:
            return b""
        try:
            return self.reading.read(self.range(offset, size))
        except MissingError as error:
            raise ChainError(f"{self._name}: was pruned while it was read") from error
        except StorageError as error:
            message = f"cannot read: {error.strerror}"
            raise StorageError(error.errno or errno.EIO, message, self._name) from error

    def ahead(self, wanted: Iterable[tuple[Source, int, int]]) -> None:
        """Fetch ranges of sources of the same chain that will be read."""
        self.reading.ahead(
            source.range(start, size) for source, start, size in wanted if isinstance(source, BucketSource)
        )

    def opened(self, root: bytes, verify: Verify) -> None:
        """Let what arrives be verified, and keep the ends of the file on the disk.

        Raises
        ------
        ChecksumError
            If the name of the data has another root (LCC-BKT-01).
        """
        if root != self.entry.data.root:
            message = "its data is another file than the name of the data says"
            raise ChecksumError("LCC-BKT-01", self._name, message)
        self._verify = verify
        for each in ends(self.entry):
            whole = each.size == self.size  # with the payload, of which the root says nothing
            self.reading.verified(self.range(each.start, each.size) if whole else each, ask=whole)

    def forget(self, offset: int, size: int) -> bool:
        """Forget what is kept of a range; the store may send other bytes next time."""
        self.reading.forget(self.range(offset, size))
        return True

    def rest(self, root: bytes) -> None:
        """Do nothing: nothing is open."""

    def close(self) -> None:
        """Let go of the open file."""
        self._verify = None


def ends(entry: Entry) -> list[Range]:
    """Return the ranges before and behind the payload; all of a small file.

    There are none of a file whose name says what cannot be: its reader finds out with less.
    """
    size, tail = entry.object.size, entry.data.tail
    if size <= _SMALL_BYTES:
        return [Range(entry, 0, size)]
    if PAYLOAD_OFFSET + tail > size or tail > MAX_MANIFEST_BYTES + TRAILER_SIZE:
        return []
    if PAYLOAD_OFFSET + tail == size:
        return [Range(entry, 0, size)]
    return [Range(entry, 0, PAYLOAD_OFFSET), Range(entry, size - tail, tail)]
