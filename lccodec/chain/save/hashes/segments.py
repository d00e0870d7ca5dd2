"""The hashes of arrays, segment by segment.

A segment has a fixed number of bytes, a whole number of components; the last of an array may be
shorter. Its hash is the first 16 bytes of SHA-256: two different segments with the same hash are
not found in less than 2**64 tries. The hashes of a state take at most 32 MiB up to 128 GiB of
state, and 1/4,096 of what is larger.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

import numpy as np

from ....byteorder import stored_view
from ....element_table import ElementType
from ....element_types import Array
from ....frame.header import Shape
from ....parallel import batches, ordered, thread_count

HASH_BYTES: Final = 16
MIN_SEGMENT: Final = 1 << 12  # bytes; below this, the calls take longer than the hashes
MAX_SEGMENT: Final = 1 << 16
_MAX_HASHES_BYTES: Final = 1 << 25  # of a state, before segments grow
_TASK_BYTES: Final = 1 << 22  # that a thread hashes at a time
MAX_THREADS: Final = 4


@dataclass(frozen=True, eq=False)
class HashedArray:
    """What is kept of an array that was stored.

    Parameters
    ----------
    kind, shape
        Its type and its shape.
    offset
        Its first byte in the file of values.
    total
        Its array sum (LCC-FRM-09).
    hashes
        The hash of each segment, uint8 of shape ``(segments, HASH_BYTES)``.
    """

    kind: ElementType
    shape: Shape
    offset: int
    total: int
    hashes: Array

    @property
    def size(self) -> int:
        """How many components it has."""
        return math.prod(self.shape) * self.kind.components


def segment_size(nbytes: int) -> int:
    """Return the bytes of a segment for a state of so many bytes."""
    size = MIN_SEGMENT
    while size < MAX_SEGMENT and nbytes // size * HASH_BYTES > _MAX_HASHES_BYTES:
        size *= 2
    return size


def hash_segments(bits: Array, size: int) -> Array:
    """Return the hashes of the segments of components, in segments of `size` bytes."""
    data = stored_view(bits).data
    found = bytearray()
    for start in range(0, len(data), size):
        found += sha256(data[start : start + size]).digest()[:HASH_BYTES]
    return np.frombuffer(bytes(found) or b"", np.uint8).reshape(-1, HASH_BYTES)


def differing(left: Array, right: Array) -> Array:
    """Return which hashes of two arrays differ, bool."""
    found: Array = (left != right).any(axis=1)
    return found


def changed_segments(
    arrays: Iterable[tuple[Array, Array]], size: int, between: Callable[[], None] = lambda: None
) -> Iterator[Array]:
    """Yield which segments of arrays differ from those of given hashes, bool for each array.

    An array may change meanwhile. A segment that does not differ had, at the moment when it was
    read, the values that the hash is of. Nothing is copied. `between` is called again and again.
    """
    threads = min(thread_count(0), MAX_THREADS)
    parts = (task for bits, hashes in arrays for task in _tasks(bits, hashes, size))
    tasks = batches(parts, lambda task: task[0].nbytes, _TASK_BYTES)  # small arrays together
    together: list[Array] = []
    for compared in ordered(lambda task: [_compared(*part, size) for part in task], tasks, threads):
        between()
        for found, is_last in compared:
            together.append(found)
            if is_last:
                yield together[0] if len(together) == 1 else np.concatenate(together)
                together = []


def _tasks(bits: Array, hashes: Array, size: int) -> Iterator[tuple[Array, Array, bool]]:
    """Yield parts of an array with their hashes, and whether each is the last."""
    length, count = _TASK_BYTES // bits.itemsize, _TASK_BYTES // size
    number = max(-(-bits.size // length), 1)
    for part in range(number):
        own = slice(part * length, (part + 1) * length)
        yield bits[own], hashes[part * count : (part + 1) * count], part == number - 1


def _compared(bits: Array, hashes: Array, is_last: bool, size: int) -> tuple[Array, bool]:
    return differing(hash_segments(bits, size), hashes), is_last


def runs_of(segments: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the runs of segments next to each other, each as its first and the one behind its last.

    Examples
    --------
    >>> list(runs_of([3, 4, 5, 9]))
    [(3, 6), (9, 10)]
    """
    start = stop = None
    for each in segments:
        if start is None or stop != each:
            if start is not None and stop is not None:
                yield start, stop
            start = each
        stop = each + 1
    if start is not None and stop is not None:
        yield start, stop
