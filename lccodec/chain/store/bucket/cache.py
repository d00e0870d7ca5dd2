"""What was read of objects and is kept: in memory for a while, on the disk up to a size.

Objects never change, and their names have their roots. So what is kept by root and range is never
stale. On the disk each range is a file of its own with a digest at its end; one that does not match
is removed. What was used last stays longest.

The folder is ``lccodec`` in the user's folder for caches. ``LCCODEC_CACHE`` names another one, or
turns it off if it is empty; ``LCCODEC_CACHE_BYTES`` is the limit.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from typing import Final

from ....container.disk.folder import temporary_name

_MAX_MEMORY_BYTES: Final = 192 << 20
#: Of the disk, if ``LCCODEC_CACHE_BYTES`` says nothing.
_MAX_DISK_BYTES: Final = 1 << 30
_DIGEST_BYTES: Final = 16
#: After a removal, this part of the limit is left, so that not every write removes.
_LEFT: Final = 0.9


class Memory:
    """Ranges of objects in memory, by key; what was used last stays longest."""

    def __init__(self, limit: int = _MAX_MEMORY_BYTES) -> None:
        self._limit = limit
        self._kept: OrderedDict[tuple[str, int], bytes] = OrderedDict()
        self._places: dict[str, list[int]] = {}
        self._size = 0
        self._changing = threading.Lock()

    def get(self, key: str, start: int, size: int) -> bytes | None:
        """Return a range, if it is part of one that is kept."""
        with self._changing:
            for begin in self._places.get(key, ()):
                data = self._kept[key, begin]
                if begin <= start and start + size <= begin + len(data):
                    self._kept.move_to_end((key, begin))
                    return data[start - begin : start - begin + size]
        return None

    def put(self, key: str, start: int, data: bytes) -> None:
        """Keep a range."""
        with self._changing:
            self._drop(key, start)
            self._kept[key, start] = data
            self._places.setdefault(key, []).append(start)
            self._size += len(data)
            while self._size > self._limit and len(self._kept) > 1:
                self._drop(*next(iter(self._kept)))

    def _drop(self, key: str, start: int) -> None:
        data = self._kept.pop((key, start), None)
        if data is not None:
            self._size -= len(data)
            self._places[key].remove(start)
            if not self._places[key]:
                del self._places[key]


class Disk:
    """Ranges of objects on the disk, by root. What cannot be read or written is not kept.

    Parameters
    ----------
    folder
        Where they are; ``None`` for nowhere.
    limit
        The bytes that all take together at most.
    """

    def __init__(self, folder: Path | None, limit: int = _MAX_DISK_BYTES) -> None:
        self._folder = folder
        self._limit = limit
        self._written = limit  # since the last look at the sizes; so the first write looks

    @classmethod
    def of_user(cls) -> Disk:
        """Return what the environment asks for."""
        asked = os.environ.get("LCCODEC_CACHE")
        limit = _MAX_DISK_BYTES
        with suppress(ValueError):
            limit = int(os.environ.get("LCCODEC_CACHE_BYTES", limit))
        if asked is not None:
            return cls(Path(asked) if asked and limit > 0 else None, limit)
        base = os.environ.get("XDG_CACHE_HOME")
        with suppress(RuntimeError):  # there is no home
            return cls((Path(base) if base else Path.home() / ".cache") / "lccodec", limit)
        return cls(None, limit)

    def get(self, root: bytes, start: int, size: int) -> bytes | None:
        """Return a range that was kept as it is asked for."""
        if self._folder is None:
            return None
        path = self._path(root, start, size)
        with suppress(OSError):
            data = path.read_bytes()
            if len(data) == size + _DIGEST_BYTES and _digest(data[:size]) == data[size:]:
                os.utime(path)
                return data[:size]
            path.unlink()
        return None

    def put(self, root: bytes, start: int, data: bytes) -> None:
        """Keep a range."""
        if self._folder is None or len(data) > self._limit // 4:
            return
        with suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            temporary = self._folder / temporary_name()
            temporary.write_bytes(data + _digest(data))
            temporary.replace(self._path(root, start, len(data)))
            self._written += len(data)
            if self._written >= self._limit // 10:
                self._written = 0
                self._shrink()

    def _path(self, root: bytes, start: int, size: int) -> Path:
        return (self._folder or Path()) / f"{root.hex()}-{start}-{size}"

    def _shrink(self) -> None:
        """Remove what was used longest ago, if all takes too much."""
        found = []
        with os.scandir(self._folder) as entries:
            for entry in entries:
                with suppress(OSError):
                    status = entry.stat()
                    found.append((status.st_mtime, status.st_size, entry.path))
        total = sum(size for _, size, _ in found)
        if total <= self._limit:
            return
        for _, size, path in sorted(found):
            if total <= self._limit * _LEFT:
                break
            with suppress(OSError):
                Path(path).unlink()
                total -= size


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()[:_DIGEST_BYTES]
