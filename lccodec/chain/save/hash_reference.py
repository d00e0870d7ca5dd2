"""The reference of a saver that keeps hashes of the newest step, not its values.

A segment of an array has a fixed number of bytes, a whole number of components; the last may be
shorter. Its hash is the first 16 bytes of SHA-256: two different segments with the same hash are
not found in less than 2**64 tries. The hashes of a state take at most 32 MiB up to 128 GiB of
state, and 1/4,096 of what is larger.

A save first hashes the state. What has the hashes of the parent is the parent's, and is not looked
at again. Of the rest, the parent's values are read where they are needed. They come from the file
of values beside the chain, and are verified by their hashes. What is not there as it should be is
decoded from the chain: no more blocks than that needs, and each once.

Each value of the state is copied once, and its hash, its code and the file of values are made of
that copy. Of an array of several blocks, one block is copied at a time, or only its segments that
changed. The frames are those that are made with the whole parent in memory, byte for byte, but for
split streams (LCC-STR-08): where only some segments of a block are read, nobody knows the size of
the rest of the reference. Then none is split.

Hashes that are not kept are made of the files of a checkpoint. A large array is decoded part by
part, so that no whole state is in memory. Such a chain loses nothing: what a restore returns is
what was hashed.

From files beside the chain, another process goes on: hashes, and values of the state. Both lie in
the folder ``.hashes`` of a directory, and are not a part of the format: they are never needed to
read a chain, and a writer without them reads the newest step once. The file of hashes is that of
one checkpoint, by its root. It has a hash of itself, and is replaced whole after each save. Who can
write it can write the checkpoints too, and is trusted as they are. The file of values is written in
place (:mod:`lccodec.container.scratch`): each segment that is read of it is verified by its hash.
"""

from __future__ import annotations

import itertools
import json
import math
import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, cast

import numpy as np

from ...constants import ELEMENT_TYPES, ElementType
from ...container.folder import Folder, WholeFile, remove_stale_temporaries
from ...container.scratch import NO_ROOM, Scratch
from ...container.source import FileSource
from ...element_types import Array, read_numbers, stored_bytes, stored_view, zigzag
from ...entropy.stream_writer import Piece
from ...errors import ArgumentError, ChainError, DataError, LccodecError, StorageError, warn
from ...frame import planes
from ...frame.content import MAX_SHARED_COMPONENTS, SUM_MASK, Content, array_sum, sum_change_of
from ...frame.encode import MAX_BLOCK_COMPONENTS, Effort, FrameCoder, encode_content
from ...frame.header import Shape
from ...parallel import batches, ordered, slices, thread_count
from ...policy.policy import Candidate
from ...policy.values import mark_equal
from ...quantizers.base import Lossless
from ..read.checkpoint import OpenCheckpoint, open_name
from ..read.links import Form, form_of
from ..read.replay import DecodedArray
from ..read.rows import Span, decode_span
from ..store.directory import DirectoryStore, as_directory
from ..store.store import HASHES_FOLDER, Store, WritableStore, checkpoint_name
from .plan import FramePlan, SavePlan
from .reference import Latest, Reference

HASH_BYTES: Final = 16
MIN_SEGMENT: Final = 1 << 12  # bytes; below this, the calls take longer than the hashes
MAX_SEGMENT: Final = 1 << 16
_MAX_HASHES_BYTES: Final = 1 << 25  # of a state, before segments grow
_TASK_BYTES: Final = 1 << 22  # that a thread hashes at a time
MAX_THREADS: Final = 4


@dataclass(frozen=True, eq=False)
class HashedArray:
    """What is kept of an array that was stored."""

    kind: ElementType
    shape: Shape
    offset: int  # its first byte in the file of values
    total: int  # its array sum (LCC-FRM-09)
    hashes: Array  # the hash of each segment, uint8 of shape ``(segments, HASH_BYTES)``

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

    def compare(task: list[tuple[Array, Array, bool]]) -> list[tuple[Array, bool]]:
        return [(differing(hash_segments(bits, size), hashes), last) for bits, hashes, last in task]

    for compared in ordered(compare, tasks, threads):
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


def runs_of(segments: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the runs of segments next to each other, each as its first and the one behind its last.

    Examples
    --------
    >>> list(runs_of([3, 4, 5, 9]))
    [(3, 6), (9, 10)]
    """
    for _, run in itertools.groupby(enumerate(segments), lambda pair: pair[1] - pair[0]):
        numbers = [segment for _, segment in run]
        yield numbers[0], numbers[-1] + 1


class Places:
    """Room for new arrays: between those that stay where they are, or behind all of them.

    So the file does not grow with each save of an array whose shape changes, such as a buffer.
    `taken`: where those that stay begin and end, in any order.

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
    """The files beside the chain of a directory."""

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
                names = sum(_ESCAPED_BYTES * len(name) for name in forms)
                segments = sum(_segments(form, MIN_SEGMENT) for form in forms.values())
                if source.size > _TEXT_BYTES * (1 + len(forms)) + names + HASH_BYTES * segments:
                    return None  # no such file is as long
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


_PART_COMPONENTS: Final = 1 << 21  # that are decoded at a time: a block of a large array


@dataclass(eq=False)
class Parent:
    """A checkpoint, and the hashes of its arrays."""

    store: Store
    step: int
    segment: int  # bytes of a segment
    arrays: Mapping[str, HashedArray]  # the hashes by name
    values: Scratch | None  # the file of values, if there can be one
    distrust: Callable[[], None]  # called if the hashes turn out to be wrong
    _file: OpenCheckpoint | None = None
    _together: dict[int, Array] = field(default_factory=dict)  # of the frame that was decoded last
    _last: dict[tuple[str, int], Array] = field(default_factory=dict)  # decoded last; where it begins

    def read(self, name: str, segments: Sequence[int]) -> Array:
        """Return the components of segments of an array, rising, end to end.

        Raises ``ChainError`` if the hashes are not those of the checkpoint's values; or if they
        must be decoded, and the chain cannot be read. Another attempt hashes the checkpoint anew.
        """
        array = self.arrays[name]
        found = [self._run(name, array, *run) for run in runs_of(segments)]
        return found[0] if len(found) == 1 else np.concatenate(found)

    def _run(self, name: str, array: HashedArray, start: int, stop: int) -> Array:
        hashes, size = array.hashes[start:stop], self.segment // array.kind.bits.itemsize
        known = self._kept(array, start, stop)
        if known is not None and not differing(hash_segments(known, self.segment), hashes).any():
            return known
        try:
            bits = self._decoded(name, slice(start * size, min(stop * size, array.size)))
        except (DataError, StorageError) as error:
            self.distrust()
            raise ChainError(f"step {self.step} cannot be read: {error}") from error
        if differing(hash_segments(bits, self.segment), hashes).any():
            self.distrust()
            raise ChainError(
                f"{self.store.path}: the hashes that are kept of step {self.step} are not those of {name!r}"
            )
        return bits

    def _kept(self, array: HashedArray, start: int, stop: int) -> Array | None:
        """Return what the file of values has in the place of segments; ``None`` without them."""
        nbytes = array.size * array.kind.size
        first, last = start * self.segment, min(stop * self.segment, nbytes)
        data = b"" if self.values is None else self.values.read(array.offset + first, last - first)
        if len(data) != last - first:
            return None
        bits: Array = read_numbers(data, array.kind.bits)
        return bits

    def _decoded(self, name: str, part: slice) -> Array:
        """Decode components of an array from the chain, with those of the same block."""
        size = self.arrays[name].size
        length = size if size <= MAX_BLOCK_COMPONENTS else _PART_COMPONENTS
        found = []
        for start in range(part.start - part.start % length, part.stop, length):
            bits = self._last.get((name, start))  # most segments that changed lie in the same block
            if bits is None:
                self._last.clear()  # its memory is free before the next is decoded
                bits = self._last[name, start] = self._span(name, slice(start, min(start + length, size)))
            found.append(bits[max(part.start - start, 0) : part.stop - start])
        return found[0] if len(found) == 1 else np.concatenate(found)

    def _span(self, name: str, part: slice) -> Array:
        if self._file is None:
            self._file = open_name(self.store, checkpoint_name(self.step))
        file = self._file
        bits = decode_span(file.links, name, Span(part.start, part.stop))
        if bits is not None:
            return bits
        index = file.index_of(name)
        if index not in self._together:  # the arrays of a frame are asked for one after the other
            found = file.decode_some(file.together[index])
            self._together = {index: array.bits for index, array in found.items()}
        return self._together[index][part]

    def close(self) -> None:
        """Close the files; they are opened again when they are read."""
        self._together, self._last = {}, {}
        if self._file is not None:
            self._file.close()
            self._file = None


@dataclass(frozen=True, eq=False)
class ParentBits:
    """The components of an array of the parent, which are read when a part of them is asked for.

    It stands for an array (`Candidate.reference`) that is not held.
    """

    parent: Parent
    name: str

    @property
    def hashed(self) -> HashedArray:
        """What is kept of the array."""
        return self.parent.arrays[self.name]

    def __getitem__(self, part: slice) -> Array:
        own = self.hashed
        start, stop, step = part.indices(own.size)
        length = self.parent.segment // own.kind.bits.itemsize
        if stop <= start:
            return np.empty(0, own.kind.bits)
        first = start // length
        bits = self.parent.read(self.name, range(first, -(-stop // length)))
        return bits[start - first * length : stop - first * length : step]


def hash_checkpoint(
    file: OpenCheckpoint, values: Scratch | None, heartbeat: Callable[[], None] = lambda: None
) -> tuple[int, dict[str, HashedArray]]:
    """Return the bytes of a segment, and the hashes of the arrays of a checkpoint by name.

    The values are put into the file of `values`. `heartbeat` is called again and again. Raises
    ``DataError`` if a stored byte breaks a rule.
    """
    last = file.links[-1]
    forms = {name: form_of(last, name) for name in last.index_names}
    none = np.empty((0, 0), np.uint8)
    arrays = {name: HashedArray(*form, 0, 0, none) for name, form in forms.items()}
    segment = segment_size(sum(array.size * array.kind.size for array in arrays.values()))
    offsets, end = {}, 0
    for name, array in arrays.items():
        offsets[name] = end
        end += -(-array.size * array.kind.size // segment) * segment
    found = {}
    for name, parts in _in_parts(file, arrays):
        kind, offset, total, hashes = arrays[name].kind, offsets[name], 0, []
        for start, bits in parts:
            heartbeat()
            hashes.append(hash_segments(bits, segment))
            total += array_sum(bits, start * kind.size // 8)
            if values is not None:
                values.write(offset + start * kind.size, stored_view(bits).data)
        found[name] = HashedArray(*forms[name], offset, total & SUM_MASK, np.concatenate(hashes))
    return segment, {name: found[name] for name in arrays}


def _in_parts(
    file: OpenCheckpoint, arrays: dict[str, HashedArray]
) -> Iterator[tuple[str, Iterable[tuple[int, Array]]]]:
    """Yield arrays by name, each in parts with their first component."""
    small = []
    for index, name in enumerate(file.links[-1].index_names):
        if arrays[name].size <= MAX_BLOCK_COMPONENTS:
            small.append(index)
        else:
            yield name, _spans(file, name, arrays[name].size)
    array: DecodedArray
    for index, array in file.decode_each(small):
        yield file.links[-1].index_names[index], [(0, array.bits)]


def _spans(file: OpenCheckpoint, name: str, size: int) -> Iterator[tuple[int, Array]]:
    """Decode a large array, which shares no frame, part by part."""
    for part in slices(size, _PART_COMPONENTS):
        bits = decode_span(file.links, name, Span(part.start, min(part.stop, size)))
        yield part.start, np.ascontiguousarray(bits)


#: With a larger share of changed segments, a block is compared whole.
_MAX_SHARE: Final = 0.5
#: With as many in an array of one block, its frame may be raw: then all of it is copied.
_MAX_SHARE_OF_ONE_BLOCK: Final = 0.25


@dataclass(eq=False)
class HashedStep:
    """The arrays of a step as they are stored, frame by frame."""

    segment: int  # bytes of a segment
    values: Scratch | None  # the file of values, if there can be one
    parent: Parent | None = None  # what the step is a delta to, if it is one
    # Which segments of arrays of the parent differ, bool, by name.
    changes: Mapping[str, Array] = field(default_factory=dict)
    arrays: dict[str, HashedArray] = field(default_factory=dict)  # the hashes of what is stored by now
    places: Places = field(default_factory=Places)  # where new arrays lie in the file of values
    heartbeat: Callable[[], None] = lambda: None  # called again and again while arrays are coded

    def encode(self, plan: SavePlan) -> Iterator[tuple[Iterator[Piece], list[Candidate]]]:
        """Yield the chunks of each frame of a plan, and its arrays.

        Their hashes are there once all chunks have been taken.
        """
        for frame in plan.frames:
            arrays = [plan.candidates[index] for index in frame.arrays]
            self.heartbeat()
            yield self._frame(frame, arrays), arrays
        for index, source in plan.copies.items():
            self.heartbeat()
            self._copy(plan.candidates[index], self.arrays[plan.candidates[source].name])

    def _frame(self, frame: FramePlan, arrays: Sequence[Candidate]) -> Iterator[Piece]:
        c = arrays[0]
        several = c.bits.size > MAX_BLOCK_COMPONENTS
        few = c.bits.size > MAX_SHARED_COMPONENTS and self._share(c) <= _MAX_SHARE_OF_ONE_BLOCK
        if frame.relative and len(arrays) == 1 and (several or few):
            return self._changed(c)
        return self._by_block(c) if several else self._at_once(frame, arrays)

    def _share(self, c: Candidate) -> float:
        found = self.changes.get(c.name)
        return 1.0 if found is None else float(found.mean())

    def _at_once(self, frame: FramePlan, arrays: Sequence[Candidate]) -> Iterator[Piece]:
        """Code arrays of one block together, from copies of them and of the parent's."""
        copies = [c.bits.copy() for c in arrays]
        known = [self._known(c) for c in arrays]
        before = []
        for c, own, array in zip(arrays, copies, known, strict=True):
            hashes = hash_segments(own, self.segment)
            differ = np.ones(len(hashes), bool) if array is None else differing(hashes, array.hashes)
            if frame.relative and self.parent is not None:
                before.append(self._before(c.name, own, differ))
            self._keep(c, HashedArray(c.kind, c.shape, self._place(c), array_sum(own), hashes), own, differ)
        run = len(arrays) > 1
        bits = np.concatenate(copies) if run else copies[0]
        reference = (np.concatenate(before) if run else before[0]) if before else None
        content = Content(bits, arrays[0].kind, tuple(c.shape for c in arrays), reference, run)
        return encode_content(content, Lossless())

    def _copy(self, c: Candidate, source: HashedArray) -> None:
        """Keep an array that is stored as a copy of an equal one: its hashes are those of that."""
        differ = self.changes.get(c.name)
        differ = np.ones(len(source.hashes), bool) if differ is None else differ
        self._keep(c, replace(source, offset=self._place(c)), c.bits, differ)

    def _before(self, name: str, own: Array, differ: Array) -> Array:
        """Return an array of the parent, given those of its segments that it shares with a copy."""
        before, length = own.copy(), self.segment // own.itemsize
        for start, stop in runs_of(np.flatnonzero(differ).tolist()):
            if self.parent is not None:
                before[start * length : stop * length] = self.parent.read(name, range(start, stop))
        return before

    def _by_block(self, c: Candidate) -> Iterator[Piece]:
        """Code an array without the parent's, block by block."""
        coder = FrameCoder(Content(c.bits, c.kind, (c.shape,)), Lossless())
        offset, found, total = self._place(c), [], 0

        def blocks() -> Iterator[tuple[list[Piece], int]]:
            nonlocal total
            for part in coder.parts:
                self.heartbeat()
                own, first = c.bits[part].copy(), part.start * c.kind.size // 8
                found.append(hash_segments(own, self.segment))
                self.write(offset + part.start * own.itemsize, own)
                pieces, block_sum = planes.write_block(own, None, c.kind, first)
                total += block_sum
                yield pieces, block_sum

        yield from coder.join(blocks())
        self.arrays[c.name] = HashedArray(c.kind, c.shape, offset, total & SUM_MASK, np.concatenate(found))

    def _changed(self, c: Candidate) -> Iterator[Piece]:
        """Code an array against the parent's, of which only segments that changed are read."""
        known, length = self._known(c), self.segment // c.bits.itemsize
        if known is None or self.parent is None:
            raise ValueError(f"{c.name!r} has no parent")
        # A reference makes the frame a relative one; its blocks are made here.
        coder = FrameCoder(Content(c.bits, c.kind, (c.shape,), c.bits), Lossless())
        differ, hashes, total = self.changes[c.name], known.hashes.copy(), known.total

        def blocks() -> Iterator[tuple[list[Piece], int]]:
            nonlocal total
            before = total  # the sum of the parent's array goes on
            for part in coder.parts:
                self.heartbeat()
                first = part.start // length
                here = differ[first : -(-part.stop // length)]
                block, change = self._block(c, known, part, here, hashes[first : first + here.size])
                total += change
                yield block, before + change
                before = 0

        yield from coder.join(blocks())
        self.arrays[c.name] = HashedArray(c.kind, c.shape, known.offset, total & SUM_MASK, hashes)

    def _block(
        self, c: Candidate, known: HashedArray, part: slice, differ: Array, hashes: Array
    ) -> tuple[list[Piece], int]:
        """Return a block, and what it changes of the array sum; put the new hashes in place."""
        length, word = self.segment // c.bits.itemsize, part.start * c.kind.size // 8
        size = min(part.stop, c.bits.size) - part.start
        whole = float(differ.mean()) > _MAX_SHARE
        chosen = np.arange(differ.size) if whole else np.flatnonzero(differ)
        if not chosen.size:
            return planes.write_codes(size, c.kind, chosen, np.empty(0, c.kind.bits)), 0
        bits, first = c.bits[part], part.start // length
        runs = [slice(start * length, stop * length) for start, stop in runs_of(chosen.tolist())]
        own = bits.copy() if whole else np.concatenate([bits[run] for run in runs])
        before = self._read(c.name, chosen + first)
        hashes[chosen] = hash_segments(own, self.segment)
        written = 0
        for run in runs:
            count = min(run.stop, size) - run.start
            self.write(known.offset + (part.start + run.start) * own.itemsize, own[written : written + count])
            written += count
        if whole:
            pieces, total = planes.write_block(own, before, c.kind, word)
            return pieces, total - array_sum(before, word)
        at = np.flatnonzero(own != before)
        new, old = own.take(at), before.take(at)
        places = chosen.take(at // length) * length + at % length
        pieces = planes.write_codes(size, c.kind, places, zigzag(new, old, c.kind.is_float))
        return pieces, sum_change_of(new, old, places, word)

    def _read(self, name: str, segments: Array) -> Array:
        if self.parent is None:
            raise ValueError(f"{name!r} has no parent")
        return self.parent.read(name, segments.tolist())

    def _known(self, c: Candidate) -> HashedArray | None:
        """Return what is kept of the parent's array; ``None`` if that has another form."""
        found = None if self.parent is None else self.parent.arrays.get(c.name)
        return found if found is not None and (found.kind, found.shape) == (c.kind, c.shape) else None

    def _place(self, c: Candidate) -> int:
        """Return where an array lies in the file of values: that of the parent stays there."""
        known = self._known(c)
        if known is not None:
            return known.offset
        return self.places.take(-(-c.bits.nbytes // self.segment) * self.segment)

    def _keep(self, c: Candidate, array: HashedArray, own: Array, differ: Array) -> None:
        """Keep an array, and the values of its segments that differ."""
        length = self.segment // own.itemsize
        for start, stop in runs_of(np.flatnonzero(differ).tolist()):
            self.write(array.offset + start * self.segment, own[start * length : stop * length])
        self.arrays[c.name] = array

    def write(self, offset: int, bits: Array) -> None:
        """Put components into the file of values."""
        if self.values is not None:
            self.values.write(offset, stored_view(bits).data)


class HashReference(Reference):
    """Hashes of the newest step of a chain, and what a save does with them.

    In a directory, hashes and values are kept beside the chain. `heartbeat` is called again and
    again.
    """

    has_values = False

    def __init__(self, store: WritableStore, heartbeat: Callable[[], None] = lambda: None) -> None:
        self._store, self._heartbeat = store, heartbeat
        self._keeps = True  # what is made of the files of a checkpoint
        self._kept = HashFiles(as_directory(store, "a file of hashes")) if store.has_folders else None
        self._stored: HashedStep | None = None  # by the save that runs
        self._changes: dict[str, Array] = {}  # of the state that is saved, by name

    @property
    def _values(self) -> Scratch | None:
        return None if self._kept is None else self._kept.values

    def forget(self) -> None:
        """Close what is open."""
        self._stored, self._changes = None, {}
        if self._kept is not None:
            self._kept.values.close()

    def read(self, file: OpenCheckpoint) -> dict[str, DecodedArray]:
        """Return the arrays of a checkpoint with their hashes: kept ones, or made of its files.

        Raises ``DataError``, ``ChainError`` or ``StorageError`` if the checkpoint cannot be
        restored.
        """
        last = file.links[-1]
        forms = {name: form_of(last, name) for name in last.index_names}
        found = None if self._kept is None else self._kept.read(last.reader.roots, forms)
        if found is not None:
            self._verify(file)
        else:
            found = hash_checkpoint(file, self._values if self._keeps else None, self._heartbeat)
            if self._kept is not None and self._keeps:
                self._kept.write(last.reader.root, *found)
        step = last.manifest.step or 0
        return _held(Parent(self._store, step, *found, self._values, self._distrust))

    def _verify(self, file: OpenCheckpoint) -> None:
        """Raise ``DataError`` if a stored byte is damaged: the kept hashes do not tell that."""
        threads = min(thread_count(0), MAX_THREADS)
        for link in file.links:
            for number in range(len(link.manifest.frames)):
                self._heartbeat()
                link.reader.frame(number, threads=threads)

    @contextmanager
    def planning(self) -> Iterator[None]:
        """Keep nothing meanwhile that is made of the files of a checkpoint."""
        self._keeps = False
        try:
            yield
        finally:
            self._keeps = True

    def compare(self, arrays: Sequence[Candidate], before: Latest | None, is_keyframe: bool) -> None:  # noqa: ARG002
        """Find which arrays are equal; of a delta, first which differ from the parent's."""
        self._changes = {}
        if not is_keyframe:
            self._find_changes(arrays)
        mark_equal(arrays)

    def _find_changes(self, arrays: Sequence[Candidate]) -> None:
        """Find which segments of arrays differ from the parent's."""
        known = [(c, c.reference) for c in arrays if c.reference is not None]
        references = [cast(ParentBits, reference) for _, reference in known]
        if not references:
            return
        pairs = ((c.bits, r.hashed.hashes) for (c, _), r in zip(known, references, strict=True))
        changes = changed_segments(pairs, references[0].parent.segment, self._heartbeat)
        for (c, _), differ in zip(known, changes, strict=True):
            c.changed = float(differ.mean()) if differ.size else 0.0
            self._changes[c.name] = differ

    def check(self, plan: SavePlan) -> None:
        """Raise ``ArgumentError`` if a plan may lose something: then hashes say nothing of it."""
        for index, c in enumerate(plan.candidates):
            if plan.may_lose(index):
                raise ArgumentError(
                    f"reference='hashes' needs a chain that loses nothing, such as with policy='lossless';"
                    f" {plan.policy.name!r} may lose something of {c.name!r}"
                )

    def encode(
        self,
        plan: SavePlan,
        latest: Latest | None,
        effort: Effort,  # noqa: ARG002 - nothing is tried for lossless frames
    ) -> Iterator[tuple[Iterator[Piece], dict[str, DecodedArray]]]:
        """Yield the chunks of each frame, and its arrays by name: nothing is lost of them."""
        parent = None  # what the arrays of the latest checkpoint are read from, if it has any
        if latest is not None and plan.parent is not None and latest.arrays:
            parent = cast(ParentBits, next(iter(latest.arrays.values())).bits).parent
        segment = segment_size(sum(c.bits.nbytes for c in plan.candidates))
        stored = HashedStep(segment, self._values, heartbeat=self._heartbeat)
        if parent is not None:
            stay = [cast(ParentBits, c.reference).hashed for c in plan.candidates if c.reference is not None]
            places = Places((a.offset, a.offset + len(a.hashes) * parent.segment) for a in stay)
            known = parent, self._changes, dict(parent.arrays), places, self._heartbeat
            stored = HashedStep(parent.segment, self._values, *known)
        self._stored = stored
        try:
            for chunks, arrays in stored.encode(plan):
                yield chunks, {c.name: DecodedArray(c.kind, c.shape, c.bits) for c in arrays}
        finally:
            if parent is not None:
                parent.close()

    def keep(
        self,
        step: int,
        root: bytes,
        arrays: Mapping[str, DecodedArray],  # noqa: ARG002 - those of the caller
        names: Sequence[str],
    ) -> dict[str, DecodedArray]:
        """Return the arrays of a step that is committed; keep their hashes."""
        stored, self._stored, self._changes = self._stored, None, {}
        if stored is None:
            raise ValueError("nothing was coded")
        hashed = {name: stored.arrays[name] for name in names}
        if self._kept is not None:
            self._kept.write(root, stored.segment, hashed)
        parent = Parent(self._store, step, stored.segment, hashed, self._values, self._distrust)
        return _held(parent)

    def warn(self) -> None:
        """Warn if the file of values cannot be written: once."""
        if self._kept is not None:
            self._kept.warn()

    def makes_room(self, error: Exception) -> bool:
        """Return whether a save that failed for want of room may have it now.

        The file of values goes for it: a checkpoint is worth more.
        """
        is_full = isinstance(error, StorageError) and error.errno in NO_ROOM
        return is_full and self._kept is not None and self._kept.values.give_up()

    def _distrust(self) -> None:
        """Let the next attempt hash the newest step anew."""
        if self._kept is not None:
            self._kept.remove()


def _held(parent: Parent) -> dict[str, DecodedArray]:
    """Return the arrays of a checkpoint for `Latest`. Their components are read when needed."""
    return {
        name: DecodedArray(array.kind, array.shape, cast(Array, ParentBits(parent, name)))
        for name, array in parent.arrays.items()
    }
