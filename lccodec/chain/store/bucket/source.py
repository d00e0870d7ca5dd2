"""Files in a bucket as they are read: by ranges, of which those of one round are fetched together.

A reader says what it is about to read (`Reading.ahead`). What is near is joined into one request,
and all requests of a round run side by side, each as large as a request should be. What is to be
read later than that is fetched when its turn comes.

What arrives is verified, if digests cover it: the open file says so (`Range.verify`). Other bytes
are asked for once more, and only what was verified is kept on the disk. The memory also keeps what
cannot be verified yet, such as the ends of a file before it is open. Whoever finds that those bytes
are not what was stored lets them be forgotten.

Objects never change, and their names have their roots. So what is kept by root and range is never
stale. On the disk, each range is a file of its own with a digest at its end; one that does not
match is removed. What was used last stays longest. The files lie in the folder ``lccodec`` of the
user's folder for caches. ``LCCODEC_CACHE`` names another folder in place of that one, or turns the
cache off if it is empty; ``LCCODEC_CACHE_BYTES`` is the limit. Only files with the names below are
counted, read or removed, and a link is never followed: not as a file, and not as the folder.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import os
import re
import stat
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from ....constants import MAX_MANIFEST_BYTES, PAYLOAD_OFFSET, ROOT_SIZE, TRAILER_SIZE
from ....container.folder import Folder, remove_stale_temporaries, temporary_name
from ....container.source import Source, Verify, read_at
from ....container.system import OPEN_FLAGS, SYSTEM, flag
from ....errors import ChainError, ChecksumError, DataError, StorageError
from .backend import MissingError, PatientBackend
from .keys import Entry

FOLDER: Final = "lccodec"  # in the folder for caches

_MAX_MEMORY_BYTES: Final = 192 << 20
#: Of the disk, if ``LCCODEC_CACHE_BYTES`` says nothing.
_MAX_DISK_BYTES: Final = 1 << 30
_DIGEST_BYTES: Final = 16
#: After a removal, this part of the limit is left, so that not every write removes.
_LEFT: Final = 0.9
#: Root, start and size. The suffix tells these from the files of drafts, which were not verified.
_NAME: Final = re.compile(rf"[0-9a-f]{{{2 * ROOT_SIZE}}}-[0-9]{{1,16}}-[0-9]{{1,16}}\.range")
# Without O_NONBLOCK, opening a FIFO waits for a writer.
_READ_FLAGS: Final = os.O_RDONLY | flag("O_NOFOLLOW") | flag("O_NONBLOCK") | OPEN_FLAGS
_WRITE_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | flag("O_NOFOLLOW") | OPEN_FLAGS


@dataclass(frozen=True)
class _Range:
    """A range in memory, and whether its bytes are known to be those that were stored."""

    data: bytes
    verified: bool


class Memory:
    """Ranges of objects in memory, by key; what was used last stays longest.

    Several threads may use it, and a signal handler that has interrupted one of them. So there is
    no lock, and each change is one call. What one of them misses is only read again.
    """

    def __init__(self, limit: int = _MAX_MEMORY_BYTES) -> None:
        self._limit = limit
        self._kept: OrderedDict[tuple[str, int], _Range] = OrderedDict()
        self._starts: dict[str, dict[int, None]] = {}  # of a key; some may be gone
        self._size = 0  # about so many bytes; counted anew when there are too many

    def _ranges(self, key: str) -> list[tuple[int, _Range]]:
        """Return all ranges of an object with their starts."""
        places = [(start, self._kept.get((key, start))) for start in list(self._starts.get(key, ()))]
        return [(start, found) for start, found in places if found is not None]

    def get(self, key: str, start: int, size: int) -> bytes | None:
        """Return a range, if it is part of one that is kept."""
        for begin, found in self._ranges(key):
            if begin <= start and start + size <= begin + len(found.data):
                with suppress(KeyError):  # another thread has dropped it
                    self._kept.move_to_end((key, begin))
                return found.data[start - begin : start - begin + size]
        return None

    def put(self, key: str, start: int, data: bytes, *, verified: bool = False) -> None:
        """Keep a range. One that was verified takes the place of others in it that were not."""
        self._drop(key, start)
        for begin, found in self._ranges(key) if verified else ():
            end = start + len(data)
            if start <= begin and begin + len(found.data) <= end and not found.verified:
                self._drop(key, begin)
        self._kept[key, start] = _Range(data, verified)
        self._starts.setdefault(key, {})[start] = None
        self._size += len(data)
        if self._size > self._limit:
            sizes = [(place, len(found.data)) for place, found in list(self._kept.items())]
            self._size = sum(size for _, size in sizes)
            for place, _ in sizes[:-1]:
                if self._size <= _LEFT * self._limit:
                    break
                self._drop(*place)

    def unverified(self, key: str, start: int, size: int) -> bytes | None:
        """Return a range that was put as it is asked for, and was not verified."""
        found = self._kept.get((key, start))
        return None if found is None or found.verified or len(found.data) != size else found.data

    def drop(self, key: str, start: int, size: int) -> list[tuple[int, int]]:
        """Forget all ranges that have a part of one; return start and size of each."""
        ranges = [(begin, len(found.data)) for begin, found in self._ranges(key)]
        gone = [each for each in ranges if each[0] < start + size and start < sum(each)]
        for begin, _ in gone:
            self._drop(key, begin)
        return gone

    def _drop(self, key: str, start: int) -> None:
        found = self._kept.pop((key, start), None)
        self._starts.get(key, {}).pop(start, None)
        if found is not None:
            self._size -= len(found.data)


class Disk:
    """Ranges of objects on the disk, by root, in a folder of `base`; of ``None`` nothing is kept.

    What cannot be read or written is not kept. All take at most `limit` bytes together.
    """

    def __init__(self, base: Path | None, limit: int = _MAX_DISK_BYTES) -> None:
        self._base = base
        self._limit = limit
        self._written = limit  # since the last look at the sizes; so the first write looks

    @classmethod
    def of_user(cls) -> Disk:
        """Return what the environment asks for."""
        asked = os.environ.get("LCCODEC_CACHE")
        limit = _MAX_DISK_BYTES
        with suppress(ValueError):
            limit = int(os.environ.get("LCCODEC_CACHE_BYTES", limit))
        if limit <= 0 or asked == "":
            return cls(None, limit)
        with suppress(RuntimeError, OSError):  # there is no home, or no working directory
            folder = asked or os.environ.get("XDG_CACHE_HOME")
            return cls((Path(folder) if folder else Path.home() / ".cache").absolute(), limit)
        return cls(None, limit)

    def get(self, root: bytes, start: int, size: int) -> bytes | None:
        """Return a range that was kept as it is asked for."""
        name = _name(root, start, size)
        with suppress(OSError), self._opened() as folder:
            fd = SYSTEM.open(folder / name, _READ_FLAGS)
            try:
                status = os.fstat(fd)
                if not stat.S_ISREG(status.st_mode):
                    return None
                data = _read(fd, size + _DIGEST_BYTES) if status.st_size == size + _DIGEST_BYTES else b""
                if data and _digest(data[:size]) == data[size:]:
                    with suppress(OSError):  # the file is another user's
                        os.utime(fd if os.utime in os.supports_fd else folder / name)
                    return data[:size]
            finally:
                SYSTEM.close(fd)
            SYSTEM.unlink(folder / name)
        return None

    def put(self, root: bytes, start: int, data: bytes) -> None:
        """Keep a range, which was verified."""
        if self._base is None or len(data) > self._limit // 4:
            return
        with suppress(OSError):
            self._base.mkdir(parents=True, exist_ok=True)
            with Folder(self._base) as above:
                above.make(FOLDER)
            with self._opened() as folder:
                self._write(folder, _name(root, start, len(data)), data)
                self._written += len(data)
                if self._written >= self._limit // 10:
                    self._written = 0
                    self._shrink(folder)

    def drop(self, root: bytes, start: int, size: int) -> None:
        """Remove a range, if it is kept."""
        name = _name(root, start, size)
        with suppress(OSError), self._opened() as folder:
            if stat.S_ISREG((folder / name).lstat().st_mode):
                SYSTEM.unlink(folder / name)

    @contextmanager
    def _opened(self) -> Iterator[Folder]:
        """Open the folder of the cache; raise ``OSError`` if there is none, or it is a link."""
        if self._base is None:
            raise FileNotFoundError
        with Folder(self._base) as above, above.inner(FOLDER) as folder:
            yield folder

    @staticmethod
    def _write(folder: Folder, name: str, data: bytes) -> None:
        """Write a file whole. Its lock shows that its writer is there."""
        temporary = temporary_name()
        fd = SYSTEM.open(folder / temporary, _WRITE_FLAGS, 0o600)
        try:
            try:
                with suppress(OSError):  # without locks nobody removes temporaries
                    SYSTEM.lock(fd, False)
                view = memoryview(data + _digest(data))
                while view:
                    view = view[SYSTEM.write(fd, view) :]
            finally:
                SYSTEM.close(fd)
            with suppress(FileNotFoundError):
                if not stat.S_ISREG((folder / name).lstat().st_mode):
                    raise FileExistsError(name)  # it is not ours, and stays
            folder.rename(temporary, name)
        except BaseException:
            with suppress(OSError):
                SYSTEM.unlink(folder / temporary)
            raise

    def _shrink(self, folder: Folder) -> None:
        """Remove what kills have left, and what was used longest ago if all takes too much."""
        remove_stale_temporaries(folder)
        found = []
        for name in filter(_NAME.fullmatch, folder.names()):
            with suppress(OSError):
                status = (folder / name).lstat()
                if stat.S_ISREG(status.st_mode):
                    found.append((status.st_mtime, status.st_size, name))
        total = sum(size for _, size, _ in found)
        if total <= self._limit:
            return
        for _, size, name in sorted(found):
            if total <= self._limit * _LEFT:
                break
            with suppress(OSError):
                SYSTEM.unlink(folder / name)
                total -= size


def _name(root: bytes, start: int, size: int) -> str:
    return f"{root.hex()}-{start}-{size}.range"


def _read(fd: int, size: int) -> bytes:
    parts, offset = [], 0
    while offset < size and (part := read_at(fd, size - offset, offset)):
        parts.append(part)
        offset += len(part)
    return b"".join(parts)


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()[:_DIGEST_BYTES]


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

    `verify` says whether digests cover the bytes of a range, and raises ``DataError`` if they do
    not match; ``None`` as long as the file is not open.
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
        # Rounds that are to come, in the order of their use; each is added or taken by one call.
        self._rounds: dict[int, list[Request]] = {}
        self._numbers = itertools.count()

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
        for number, planned in list(self._rounds.items()):
            for each in (each for request in planned for each in request):
                if each.key == wanted.key and each.start <= wanted.start and wanted.end <= each.end:
                    return self._rounds.pop(number, [])
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
        for later in rounds[1:]:
            self._rounds[next(self._numbers)] = later
        for number in list(self._rounds)[:-_MAX_ROUNDS]:  # that nobody has read
            self._rounds.pop(number, None)
        with suppress(MissingError):  # the read will say so
            self._fetch(first)

    def _fetch(self, requests: Sequence[Request]) -> list[bytes]:
        """Return ranges from the disk, or else from the store, all in one round."""
        wanted = [each for request in requests for each in request]
        stored = ((each, self._disk.get(each.entry.data.root, each.start, each.size)) for each in wanted)
        found = {each: data for each, data in stored if data is not None}
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
    """The data of one file, to be read by ranges; `size` is what the listing says."""

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

        Raises ``ChecksumError`` if the name of the data has another root (LCC-BKT-01).
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
