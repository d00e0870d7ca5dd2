"""What was read of objects and is kept: in memory for a while, on the disk up to a size.

Objects never change, and their names have their roots. So what is kept by root and range is never
stale. Only what was verified goes to the disk (:mod:`.source` knows that), so a garbled answer is
never kept there. Each range is a file of its own with a digest at its end; one that does not match
is removed. What was used last stays longest.

The files lie in the folder ``lccodec`` of the user's folder for caches. ``LCCODEC_CACHE`` names
another folder in place of that one, or turns the cache off if it is empty;
``LCCODEC_CACHE_BYTES`` is the limit. Only files with the names below are counted, read or removed,
and a link is never followed: not as a file, and not as the folder ``lccodec``.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ....constants import ROOT_SIZE
from ....container.disk.folder import Folder, temporary_name
from ....container.disk.source import read_at
from ....container.disk.system import OPEN_FLAGS, SYSTEM, flag
from ....container.disk.whole_file import remove_stale_temporaries

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
    """Ranges of objects in memory, by key; what was used last stays longest."""

    def __init__(self, limit: int = _MAX_MEMORY_BYTES) -> None:
        self._limit = limit
        self._kept: OrderedDict[tuple[str, int], _Range] = OrderedDict()
        self._places: dict[str, list[int]] = {}
        self._size = 0
        self._changing = threading.Lock()

    def get(self, key: str, start: int, size: int) -> bytes | None:
        """Return a range, if it is part of one that is kept."""
        with self._changing:
            for begin in self._places.get(key, ()):
                data = self._kept[key, begin].data
                if begin <= start and start + size <= begin + len(data):
                    self._kept.move_to_end((key, begin))
                    return data[start - begin : start - begin + size]
        return None

    def put(self, key: str, start: int, data: bytes, *, verified: bool = False) -> None:
        """Keep a range. One that was verified takes the place of others in it that were not."""
        with self._changing:
            self._drop(key, start)
            for begin in list(self._places.get(key, ())) if verified else ():
                found, end = self._kept[key, begin], start + len(data)
                if start <= begin and begin + len(found.data) <= end and not found.verified:
                    self._drop(key, begin)
            self._kept[key, start] = _Range(data, verified)
            self._places.setdefault(key, []).append(start)
            self._size += len(data)
            while self._size > self._limit and len(self._kept) > 1:
                self._drop(*next(iter(self._kept)))

    def unverified(self, key: str, start: int, size: int) -> bytes | None:
        """Return a range that was put as it is asked for, and was not verified."""
        with self._changing:
            found = self._kept.get((key, start))
            return None if found is None or found.verified or len(found.data) != size else found.data

    def drop(self, key: str, start: int, size: int) -> list[tuple[int, int]]:
        """Forget all ranges that have a part of one; return start and size of each."""
        with self._changing:
            gone = [(begin, len(self._kept[key, begin].data)) for begin in self._places.get(key, ())]
            gone = [each for each in gone if each[0] < start + size and start < sum(each)]
            for begin, _ in gone:
                self._drop(key, begin)
        return gone

    def _drop(self, key: str, start: int) -> None:
        found = self._kept.pop((key, start), None)
        if found is not None:
            self._size -= len(found.data)
            self._places[key].remove(start)
            if not self._places[key]:
                del self._places[key]


class Disk:
    """Ranges of objects on the disk, by root. What cannot be read or written is not kept.

    Parameters
    ----------
    base
        The folder that the cache's own folder lies in; ``None`` to keep nothing.
    limit
        The bytes that all take together at most.
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
