"""The hashes of arrays, segment by segment, and the files beside a chain that keep them.

A segment has a fixed number of bytes, a whole number of components; the last of an array may be
shorter. Its hash is the first 16 bytes of SHA-256: two different segments with the same hash are
not found in less than 2**64 tries. The hashes of a state take at most 32 MiB up to 128 GiB of
state, and 1/4,096 of what is larger.

From the files, another process goes on: hashes, and values of the state. Both lie in the folder
``.hashes`` of a directory, and are not a part of the format: they are never needed to read a chain,
and a writer without them reads the newest step once. The file of hashes is that of one checkpoint,
by its root. It has a hash of itself, and is replaced whole after each save. Who can write it can
write the checkpoints too, and is trusted as they are.

The file of values is written in place (:mod:`lccodec.container.disk.scratch`): each segment that is
read of it is verified by its hash.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import numpy as np

from ...byteorder import stored_bytes, stored_view
from ...container.disk.folder import Folder
from ...container.disk.scratch import Scratch
from ...container.disk.source import FileSource
from ...container.disk.whole_file import WholeFile, remove_stale_temporaries
from ...element_table import ELEMENT_TYPES, ElementType
from ...element_types import Array
from ...errors import LccodecError, warn
from ...frame.header import Shape
from ...parallel import batches, ordered, thread_count
from ..read.links import Form
from ..store.directory import DirectoryStore
from ..store.store import HASHES_FOLDER

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
    arrays: Iterable[tuple[Array, Array]], size: int, heartbeat: Callable[[], None] = lambda: None
) -> Iterator[Array]:
    """Yield which segments of arrays differ from those of given hashes, bool for each array.

    An array may change meanwhile. A segment that does not differ had, at the moment when it was
    read, the values that the hash is of. Nothing is copied. `heartbeat` is called again and again.
    """
    threads = min(thread_count(0), MAX_THREADS)
    parts = (task for bits, hashes in arrays for task in _tasks(bits, hashes, size))
    tasks = batches(parts, lambda task: task[0].nbytes, _TASK_BYTES)  # small arrays together
    together: list[Array] = []
    for compared in ordered(lambda task: [_compared(*part, size) for part in task], tasks, threads):
        heartbeat()
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


class Places:
    """Room for new arrays: between those that stay where they are, or behind all of them.

    So the file does not grow with each save of an array whose shape changes, such as a buffer.

    Parameters
    ----------
    taken
        Where those that stay begin and end, in any order.

    Examples
    --------
    >>> places = Places([(0, 10), (30, 40)])
    >>> [places.take(15), places.take(15), places.take(5)]
    [10, 40, 25]
    """

    def __init__(self, taken: Iterable[tuple[int, int]] = ()) -> None:
        self._gaps: list[tuple[int, int]] = []
        self._end = 0
        for start, stop in sorted(taken):
            if start > self._end:
                self._gaps.append((self._end, start))
            self._end = max(self._end, stop)

    def take(self, size: int) -> int:
        """Return where an array of so many bytes begins."""
        for number, (start, stop) in enumerate(self._gaps):
            if stop - start >= size:
                self._gaps[number : number + 1] = [(start + size, stop)] if stop - start > size else []
                return start
        start, self._end = self._end, self._end + size
        return start


HASHES: Final = "hashes"
VALUES: Final = "values"

_HEAD: Final = struct.Struct("<8s32sQ")  # magic, SHA-256 of all that follows it, bytes of the JSON
_MAGIC: Final = b"LCCHASH\x01"
#: What bytes may raise that are not a file of hashes.
_NOT_HASHES: Final = (
    *(LccodecError, OSError, ValueError, LookupError, TypeError, OverflowError),
    *(struct.error, RecursionError),
)
_SUMMED_FROM: Final = 40  # the bytes behind the SHA-256
_TEXT_BYTES: Final = 1 << 10  # of what is said of an array but its name: five numbers and its shape
_ESCAPED_BYTES: Final = 12  # of a character of a name in JSON


class HashFiles:
    """The files beside the chain of a directory.

    Parameters
    ----------
    store
        The directory.
    """

    def __init__(self, store: DirectoryStore) -> None:
        self._store = store
        self._path: Path = store.path / HASHES_FOLDER
        self.values = Scratch(store.path, HASHES_FOLDER, VALUES, store.system)
        self._told = False  # whether a warning was given

    def remove(self) -> None:
        """Remove the hashes, which turned out to be wrong."""
        with (
            suppress(LccodecError, OSError),
            Folder(self._store.path, self._store.system) as above,
            above.inner(HASHES_FOLDER) as folder,
        ):
            folder.remove([HASHES])

    def read(
        self, roots: Collection[bytes], forms: Mapping[str, Form]
    ) -> tuple[int, dict[str, HashedArray]] | None:
        """Return the bytes of a segment and the hashes of a checkpoint's arrays.

        ``None`` if they are not there, are damaged, or are of another checkpoint: its root is among
        `roots`, and its arrays have the types and shapes of `forms`.
        """
        try:
            with closing(FileSource(self._path / HASHES)) as source:
                if source.size > _most_bytes(forms):
                    return None
                data = memoryview(source.read(0, source.size))
            return _parse(data, roots, forms)
        except _NOT_HASHES:
            return None

    def warn(self) -> None:
        """Warn if the file of values cannot be written: once."""
        if not self.values.works and not self._told:
            self._told = True
            warn(f"{self._path / VALUES} cannot be written: saves read what changed from the checkpoints")

    def write(self, root: bytes, segment: int, arrays: Mapping[str, HashedArray]) -> None:
        """Replace the hashes. What the system refuses is not done: the file is not needed."""
        told = [
            [name, a.kind.code, list(a.shape), a.offset, a.total, len(a.hashes)] for name, a in arrays.items()
        ]
        head = json.dumps({"root": root.hex(), "segment": segment, "arrays": told}).encode()
        body = [struct.pack("<Q", len(head)), head, *(stored_bytes(a.hashes) for a in arrays.values())]
        digest = sha256()
        for part in body:
            digest.update(part)
        self.values.cut(max((a.offset + len(a.hashes) * segment for a in arrays.values()), default=0))
        with suppress(LccodecError, OSError), Folder(self._store.path, self._store.system) as above:
            above.make(HASHES_FOLDER)
            with above.inner(HASHES_FOLDER) as folder:
                remove_stale_temporaries(folder)
                with WholeFile(HASHES, overwrite=True, folder=folder) as file:
                    file.write(_MAGIC + digest.digest())
                    for part in body:
                        file.write(part)
                    file.commit()


def _most_bytes(forms: Mapping[str, Form]) -> int:
    """Return how long a file of the hashes of such arrays is at most: no more is read."""
    names = sum(_ESCAPED_BYTES * len(name) for name in forms)
    segments = sum(_segments(form, MIN_SEGMENT) for form in forms.values())
    return _TEXT_BYTES * (1 + len(forms)) + names + HASH_BYTES * segments


def _segments(form: Form, segment: int) -> int:
    """Return how many segments an array has."""
    kind, shape = form
    return -(-math.prod(shape) * kind.components * kind.size // segment)


def _parse(
    data: memoryview, roots: Collection[bytes], forms: Mapping[str, Form]
) -> tuple[int, dict[str, HashedArray]] | None:
    """Return what a file of hashes has; raise ``ValueError`` or another error for other bytes."""
    magic, digest, length = _HEAD.unpack(data[: _HEAD.size])
    if magic != _MAGIC or sha256(data[_SUMMED_FROM:]).digest() != digest:
        return None
    head: Any = json.loads(bytes(data[_HEAD.size : _HEAD.size + length]))
    segment = head["segment"]
    if bytes.fromhex(head["root"]) not in roots or [each[0] for each in head["arrays"]] != list(forms):
        return None
    if segment not in [1 << log2 for log2 in range(MIN_SEGMENT.bit_length() - 1, MAX_SEGMENT.bit_length())]:
        return None
    start, found = _HEAD.size + length, {}
    for name, code, shape, offset, total, count in head["arrays"]:
        own = data[start : start + count * HASH_BYTES]
        hashes = np.frombuffer(own, np.uint8).reshape(count, HASH_BYTES)
        array = HashedArray(ELEMENT_TYPES[code], tuple(shape), offset, total, hashes)
        found[name] = _checked(array, forms[name], segment)
        start += count * HASH_BYTES
    return (segment, found) if start == len(data) else None


def _checked(array: HashedArray, form: Form, segment: int) -> HashedArray:
    """Return an array whose numbers fit its form; raise ``ValueError`` otherwise."""
    if (array.kind, array.shape) != form or len(array.hashes) != _segments(form, segment):
        raise ValueError("hashes that do not fit their array")
    if type(array.offset) is not int or type(array.total) is not int:
        raise ValueError("no integers")
    if not (0 <= array.offset < 1 << 62 and 0 <= array.total < 1 << 64):
        raise ValueError("numbers out of range")
    return array
