"""What a checkpoint is read from: a file, or bytes in memory.

A chain can have more files than a process may open. So files that *rest* share a bounded number of
descriptors, and are opened again when they are read.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from ..errors import ArgumentError, ChainError, FormatError, StorageError, TruncatedError
from .system import OPEN_FLAGS, Bytes, StrPath, checked_path, flag, is_plain, storage_errors

_MAX_RESTING: Final = 32  # descriptors that are open for files that rest
_END_BYTES: Final = 1 << 14  # of a file, that are read together: trailer and manifest of most files


#: Is given the place of a range, and its bytes. Returns whether digests cover all of them.
#: Raises ``DataError`` if the bytes do not match.
Verify: TypeAlias = Callable[[int, bytes], bool]


class Source(Protocol):
    """What a checkpoint is read from."""

    @property
    def size(self) -> int:
        """The bytes that there are."""

    @property
    def far(self) -> bool:
        """Whether each read takes long, so that what is needed is better read at once."""

    def read(self, offset: int, size: int) -> bytes:
        """Return `size` bytes from `offset` on. Several threads may read at once."""

    def ahead(self, wanted: Iterable[tuple[Source, int, int]]) -> None:
        """Take note of ranges that will be read, of this source and others of the same store."""

    def opened(self, root: bytes, verify: Verify) -> None:
        """Take note that the bytes around the payload were verified by their root.

        From now on `verify` tells of other ranges whether they are what was stored, so that a store
        that keeps what it has read keeps nothing else. Raises ``DataError`` if the store knows the
        file by another root.
        """

    def forget(self, offset: int, size: int) -> bool:
        """Forget what is kept of a range, whose bytes are not what was stored.

        Returns whether another read may bring other bytes: an answer of a store that is far may
        have been garbled on its way.
        """

    def rest(self, root: bytes) -> None:
        """Hold nothing open until the next read. `root`, the end of the file, identifies it."""

    def close(self) -> None:
        """Release what is held open."""


def read_ahead(wanted: Iterable[tuple[Source, int, int]]) -> None:
    """Let sources of one store that are far fetch ranges, given by start and size, together."""
    far = [span for span in wanted if span[0].far]
    if far:
        far[0][0].ahead(far)


class _Near:
    """A source that is quick to read, and of which nothing is kept."""

    far = False

    def ahead(self, wanted: Iterable[tuple[Source, int, int]]) -> None:
        """Do nothing."""

    def opened(self, root: bytes, verify: Verify) -> None:
        """Do nothing."""

    def forget(self, offset: int, size: int) -> bool:  # noqa: ARG002 - nothing is kept
        """Return that another read brings the same bytes."""
        return False


@dataclass(frozen=True)
class Stretch:
    """Bytes of a file or a frame, read when they are asked for, as memory need not hold all."""

    read: Callable[[slice], Bytes]
    offset: int
    size: int

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, part: slice) -> memoryview:
        start, stop, _ = part.indices(self.size)
        return memoryview(self.read(slice(self.offset + start, self.offset + stop)))


_SEEK_LOCK: Final = threading.Lock()
#: Without O_NONBLOCK, opening a FIFO waits for a writer.
_READ_FLAGS: Final = os.O_RDONLY | flag("O_NONBLOCK") | OPEN_FLAGS


def _seek_and_read(fd: int, size: int, offset: int) -> bytes:
    """Read at a place on Windows."""
    with _SEEK_LOCK:
        os.lseek(fd, offset, os.SEEK_SET)
        return os.read(fd, size)


#: Returns bytes of an open file, given their number and place; fewer if there are no more.
#: Threads may share the file.
read_at: Final[Callable[[int, int, int], bytes]] = getattr(os, "pread", _seek_and_read)


class _Descriptor:
    """An open regular file. It is closed when the last reader drops it."""

    _fd = -1

    def __init__(self, path: str, name: str) -> None:
        self.name = name
        try:
            try:  # without `storage_errors`, which takes as long as the call
                self._fd = os.open(path, _READ_FLAGS)
            except OSError as error:
                with storage_errors("cannot open", name):
                    raise error
            try:
                status = os.fstat(self._fd)
            except OSError as error:
                with storage_errors("cannot read", name):
                    raise error
            if stat.S_ISDIR(status.st_mode):
                message = "a directory, not a regular file; lccodec.Chain reads a directory of checkpoints"
                raise FormatError("LCC-H5-01", name, message)
            if not stat.S_ISREG(status.st_mode):
                raise FormatError("LCC-H5-01", name, "not a regular file")
        except BaseException:
            self.close()
            raise
        self.size = status.st_size

    def read(self, offset: int, size: int) -> bytes:
        parts = []
        while size:
            try:
                part = read_at(self._fd, size, offset)
            except OSError as error:
                with storage_errors("cannot read", self.name):
                    raise error
            if not part:
                raise TruncatedError("LCC-H5-01", self.name, f"ends at byte {offset}")
            parts.append(part)
            offset += len(part)
            size -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def close(self) -> None:
        if self._fd >= 0:
            with storage_errors("cannot close", self.name):
                fd, self._fd = self._fd, -1
                os.close(fd)

    def __del__(self) -> None:
        # An interrupt came before the file could be closed. Names are gone at the end of a program.
        if self._fd >= 0 and suppress is not None:
            with suppress(OSError):
                os.close(self._fd)


#: What resting sources read last, by the id of the source: the source itself would never be freed.
#: There is no lock: an interrupt or a fork could leave it locked. Each step is one call of a dict.
_RESTING: Final[OrderedDict[int, _Descriptor]] = OrderedDict()


class FileSource(_Near):
    """A file that stays open until it rests. From then on it is opened when it is read.

    Its end is read at once, and kept until it rests. Several threads may read at once.
    """

    def __init__(self, path: StrPath) -> None:
        self._path = path if is_plain(path) else str(checked_path(path))
        self._name = os.fspath(path)  # what errors call it
        self._root = b""
        self._descriptor: _Descriptor | None = _Descriptor(self._path, self._name)
        self.size = self._descriptor.size
        self._end: bytes | None = None
        self._end_offset = max(0, self.size - _END_BYTES)

    def read(self, offset: int, size: int) -> bytes:
        """Return `size` bytes from `offset` on. A file that rests is opened."""
        descriptor, start = self._descriptor, offset - self._end_offset
        if descriptor is None:
            return self._opened().read(offset, size)
        if start < 0 or offset + size > self.size:
            return descriptor.read(offset, size)
        if self._end is None:
            try:
                self._end = descriptor.read(self._end_offset, self.size - self._end_offset)
            except StorageError:  # a bad sector may lie in another part of it
                return descriptor.read(offset, size)
        return self._end[start : start + size]

    def rest(self, root: bytes) -> None:
        """Share the descriptor from now on. `root`, the end of the file, identifies it later."""
        self._root = root
        self._end = None
        if self._descriptor is not None:
            self._share(self._descriptor)
            self._descriptor = None

    def _share(self, descriptor: _Descriptor) -> None:
        """Keep a descriptor open until too many others have been read."""
        _RESTING[id(self)] = descriptor
        if len(_RESTING) > _MAX_RESTING:
            with suppress(KeyError):  # another thread has removed it
                _RESTING.popitem(last=False)  # a thread that is reading still has it

    def _opened(self) -> _Descriptor:
        resting = _RESTING.get(id(self))
        if resting is None:
            try:
                resting = _Descriptor(self._path, self._name)
            except StorageError as error:
                if error.errno != errno.ENOENT:
                    raise
                raise ChainError(f"{self._name}: was pruned while it was read") from error
            end = self.size - len(self._root)
            if resting.size != self.size or resting.read(end, len(self._root)) != self._root:
                raise ChainError(f"{self._name}: replaced by another file, or pruned, while it was read")
            self._share(resting)
        else:
            with suppress(KeyError):
                _RESTING.move_to_end(id(self))
        return resting

    def close(self) -> None:
        """Close the file."""
        _RESTING.pop(id(self), None)
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            descriptor.close()

    def __del__(self) -> None:
        if _RESTING is not None:  # at the end of a program
            _RESTING.pop(id(self), None)


class BytesSource(_Near):
    """Bytes in memory, which must not change while they are read."""

    def __init__(self, data: Bytes) -> None:
        try:
            self._view = memoryview(data).cast("B")
        except (TypeError, ValueError, BufferError, NotImplementedError) as error:
            message = f"{type(data).__name__} is not the bytes of a checkpoint; load_file takes a path"
            raise ArgumentError(message) from error
        self.size = self._view.nbytes

    def read(self, offset: int, size: int) -> bytes:
        """Return `size` bytes from `offset` on."""
        return bytes(self._view[offset : offset + size])

    def rest(self, root: bytes) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Release the bytes."""
        self._view.release()


class Section(_Near):
    """A part of a file that others read too: a checkpoint in a bundle. Its opener closes it."""

    def __init__(self, source: FileSource, offset: int, size: int) -> None:
        self._source, self.offset = source, offset
        self.size = size

    def read(self, offset: int, size: int) -> bytes:
        """Return `size` bytes from `offset` on."""
        return self._source.read(self.offset + offset, size)

    def rest(self, root: bytes) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""
