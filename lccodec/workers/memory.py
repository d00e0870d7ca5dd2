"""Memory that several processes share, and arrays in it.

A segment is a file without a name that is mapped into memory. There is nothing to clean up: the
system frees it when no process maps it and no descriptor refers to it.
"""

from __future__ import annotations

import errno
import itertools
import mmap
import os
import tempfile
from typing import Any, Final, Self

import numpy as np

from ..element_types import Array
from ..errors import StorageError

#: Bytes of a segment at least: small arrays share one.
_MIN_SEGMENT_BYTES: Final = 1 << 20

_NO_SPACE: Final = frozenset((errno.ENOMEM, errno.ENOSPC, errno.EDQUOT, errno.EFBIG))

_counter = itertools.count()


class Segment(mmap.mmap):
    """A piece of shared memory. Arrays in it keep it mapped."""

    # Names the segment among those of all processes: the process that made it, and a number.
    identity: tuple[int, int]
    descriptor: int  # the descriptor of its file, to be passed on; -1 once it is closed
    address: int  # where it begins in the memory of this process

    @classmethod
    def create(cls, nbytes: int) -> Self:
        """Return a new segment of so many bytes; raise ``StorageError`` if there is no memory."""
        descriptor = -1
        try:
            descriptor = _nameless_file()
            os.ftruncate(descriptor, nbytes)
            if hasattr(os, "posix_fallocate"):  # or the lack of memory would be a signal, SIGBUS
                os.posix_fallocate(descriptor, 0, nbytes)
            return cls.attach(descriptor, nbytes, (os.getpid(), next(_counter)))
        except OSError as error:
            if descriptor >= 0:
                os.close(descriptor)
            what = "no room for" if error.errno in _NO_SPACE else "cannot make"
            raise StorageError(error.errno, f"{what} {nbytes} bytes of shared memory: {error}") from error

    @classmethod
    def attach(cls, descriptor: int, nbytes: int, identity: tuple[int, int]) -> Self:
        """Map the segment of a descriptor, which is then the segment's own."""
        segment = cls(descriptor, nbytes)
        segment.identity, segment.descriptor = identity, descriptor
        segment.address = address_of(np.frombuffer(segment, np.uint8))
        return segment

    def __del__(self) -> None:
        self.close_descriptor()

    def close_descriptor(self) -> None:
        """Close the descriptor: the segment cannot be passed on any more."""
        descriptor, self.descriptor = getattr(self, "descriptor", -1), -1
        if descriptor >= 0:
            os.close(descriptor)

    def array(self, offset: int, count: int, dtype: np.dtype[Any]) -> Array:
        """Return the 1-D array at an offset in bytes."""
        found: Array = np.frombuffer(self, dtype, count, offset)
        return found


def _nameless_file() -> int:
    """Return the descriptor of a file without a name, in memory where the system can do that."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("lccodec", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def place_of(array: Array) -> tuple[Segment, int] | None:
    """Return the segment that an array lies in, and its offset in bytes; ``None`` if in none."""
    owner: Any = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
    if not isinstance(owner, memoryview) or not isinstance(owner.obj, Segment):
        return None
    return owner.obj, address_of(array) - owner.obj.address


def address_of(array: Array) -> int:
    """Return where an array begins in the memory of this process."""
    address: int = array.__array_interface__["data"][0]
    return address


class Arena:
    """Shared memory for arrays that are all given up together, and whose place is used again.

    Memory that was used before is warm: the system has given it to the process already. So copying
    into it is faster than into new memory. `segments`: the memory so far. `place`: of the array
    that was given out last: the number of its segment, and its place there.
    """

    ALIGNMENT_BYTES: Final = 64  # arrays begin at a multiple of it: a line of the cache

    def __init__(self) -> None:
        self.segments: list[Segment] = []
        self._current, self._used = 0, 0
        self.place = 0, 0

    def memory(self) -> list[Array]:
        """Return all memory of the arena, as bytes."""
        return [segment.array(0, len(segment), np.dtype(np.uint8)) for segment in self.segments]

    def clear(self) -> None:
        """Give up all arrays: the next ones take their place."""
        self._current = self._used = 0
        self.place = 0, 0

    def empty(self, count: int, dtype: np.dtype[Any], more: int = 0) -> Array:
        """Return a 1-D array with undefined values.

        A new segment has room for `more` bytes at least.
        """
        nbytes = count * dtype.itemsize
        while self._current < len(self.segments):
            if self._used + nbytes <= len(self.segments[self._current]):
                break
            self._current, self._used = self._current + 1, 0
        else:
            size = max(nbytes, more, _MIN_SEGMENT_BYTES)
            self.segments.append(Segment.create(-(-size // mmap.PAGESIZE) * mmap.PAGESIZE))
        self.place = self._current, self._used
        found = self.segments[self._current].array(self._used, count, dtype)
        self._used += -(-nbytes // self.ALIGNMENT_BYTES) * self.ALIGNMENT_BYTES
        return found


class PrivateArena(Arena):
    """Memory of this process alone, where it need not be shared."""

    def __init__(self) -> None:
        super().__init__()
        self._arrays: list[Array] = []

    def memory(self) -> list[Array]:
        """Return the arrays as bytes."""
        return [array.view(np.uint8) for array in self._arrays]

    def clear(self) -> None:
        """Give up all arrays."""
        self._arrays = []

    def empty(self, count: int, dtype: np.dtype[Any], more: int = 0) -> Array:  # noqa: ARG002
        """Return a new array."""
        self.place = len(self._arrays), 0
        self._arrays.append(np.empty(count, dtype))
        return self._arrays[-1]


def shared_empty(count: int, dtype: np.dtype[Any]) -> Array:
    """Return a 1-D array with undefined values, in a segment of its own."""
    nbytes = max(count * dtype.itemsize, 1)
    return Segment.create(nbytes).array(0, count, dtype)
