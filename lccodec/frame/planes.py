"""The planes method: any bit pattern, exactly, as byte planes of the difference to the reference.

Each byte of the zigzag codes is a plane, and each plane is one stream. A code is 0 where a
component is equal to its reference. If that is so for most of them, only the places and codes of
the others are handled: a pass over all components then takes longer than their coding.

Source: SPEC 6.2 and 7.5. The order-preserving difference is from FM-Delta (Ning et al., NeurIPS
2024).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from ..constants import STREAM_HUFFMAN, STREAM_PACKED, STREAM_RAW, ElementType
from ..cursor import Cursor
from ..element_types import Array, scattered, unzigzag, zigzag
from ..entropy.runs import Form, Sparse, as_sparse, dense
from ..entropy.split import References, find_small
from ..entropy.stream_reader import Reading, finish, reading
from ..entropy.stream_writer import Piece, write_plane
from ..loops import is_compiled, kernel
from ..loops.search import true_places
from ..parallel import PIECE, slices
from .content import array_sum, sum_change

# With more than one changed component (or word of eight bytes) in so many, passes over all
# components take less time than places.
_CHANGED_RATIO: Final = 4
_INSERT_RATIO: Final = 1000  # of so many elements, a new one is put in between by two copies
_MERGE_COST: Final = 4  # places that are changed in the time of finding one of a plane among others
_SAMPLE_DISTANCE: Final = 64  # of the words that are compared first: where all differ, that is enough
_PIECE_BYTES: Final = 1 << 20  # that are searched at a time, if these are more than `PIECE` components
_PART_MULTIPLE: Final = 1 << 14  # components; of such parts the array sum takes least time
_MIN_COMPONENTS: Final = 1 << 13  # of fewer, the additional calls take longer than the passes
_WORDS_AT_A_TIME: Final = 1 << 14  # that differ, so that they and their components stay in the cache
_WHOLE_PLANES: Final = {STREAM_HUFFMAN, STREAM_PACKED, STREAM_RAW}  # modes of streams of all symbols
_PLACES_AT_A_TIME: Final = 1 << 14  # that are changed, so that they and their codes stay in the cache


def write_block(
    bits: Array, reference: Array | None, kind: ElementType, first: int = 0, out: Array | None = None
) -> tuple[list[Piece], int]:
    """Return the pieces of one block, and its part of the array sum.

    They are the streams of each byte of the codes, lowest byte first. `bits` may change meanwhile:
    all that is stored of a component is computed from one reading of it. These components are
    written into `out`, which may be `reference`. `first` is the block's first word in the array
    sum.
    """
    planes = _Planes(bits.size, kind, first)
    small = None if reference is None else find_small(bits, reference)
    for part in slices(bits.size, _part_length(bits.size, kind)):
        here = first + part.start * kind.size // 8
        before = None if reference is None else reference[part]
        target = None if out is None else out[part]
        if before is not None and small is not None:
            small.add(before)  # which `out` may be
        changes = None if before is None else _changes(bits[part], before)
        if before is None or changes is None:
            own = bits[part].copy()
            planes.total += array_sum(own, here)
            planes.fill(part, own, before)
            if target is not None:
                target[:] = own
            continue
        planes.total += array_sum(before, here)
        if target is not None:
            if out is not reference:
                target[:] = before
            changes.apply(target)
        planes.add(part, changes)
    pieces = [piece for run in planes.runs() for piece in write_plane(run, bits.size, small)]
    return pieces, planes.total


def write_codes(size: int, kind: ElementType, places: Array, codes: Array) -> list[Piece]:
    """Return the pieces of one block of `size` components, given its codes that are not 0.

    They are those of :func:`write_block`, but none is split. The places of the codes rise.
    """
    pieces: list[Piece] = []
    for plane in range(kind.size):
        run = as_sparse(Sparse(places, (codes >> (8 * plane)).astype(np.uint8)), size)
        pieces.append(b"".join(write_plane(run, size)))
    return pieces


def _part_length(size: int, kind: ElementType) -> int:
    """Return the length of about equal parts of a block, whole words.

    A short part at the end, of which much differs, would make the whole block one with many codes.
    """
    parts = max(-(-size // max(PIECE, _PIECE_BYTES // kind.size)), 1)
    return -(-size // (_PART_MULTIPLE * parts)) * _PART_MULTIPLE or _PART_MULTIPLE


@dataclass(frozen=True, eq=False)
class _Changes:
    """The words of eight bytes in which components differ from their reference."""

    places: Array  # where the words are, int64, rising
    new: Array  # uint64; the last word of an array is filled up with zeros
    old: Array  # those of the reference

    def apply(self, target: Array) -> None:
        """Write the words into a copy of the reference, or into itself; it has components."""
        joined = 8 // target.itemsize
        whole = target.size - target.size % joined
        places, new = self.places, self.new
        if whole < target.size and places.size and int(places[-1]) == whole // joined:
            target[whole:] = new[-1:].view(target.dtype)[: target.size - whole]
            places, new = places[:-1], new[:-1]
        target[:whole].view(np.uint64)[places] = new


def _changes(bits: Array, before: Array) -> _Changes | None:
    """Return in which words components differ from their reference; ``None`` if in many.

    The answer is also ``None`` for a part too small to be searched. `bits` may change meanwhile.
    Words that do not differ are not read again: they are those of the reference. Others are copied
    once.
    """
    if bits.size < _MIN_COMPONENTS:
        return None
    words, old = (_whole_words(components) for components in (bits, before))
    if not is_compiled(differing):  # it stops by itself where too many differ
        places = scattered(words.size, words.size // _SAMPLE_DISTANCE)
        sample = words.take(places) != old.take(places)
        if np.count_nonzero(sample) * 2 > sample.size:
            return None
    many, places, new, old = differing(words, old, words.size // _CHANGED_RATIO)
    return None if many else _Changes(places, new, old)


def _differing(words: Array, old: Array, most: int) -> tuple[bool, Array, Array, Array]:
    """Return whether more than `most` words (uint64) differ; else which do, and both of each."""
    differs = words != old
    if np.count_nonzero(differs) > most:
        return True, differs[:0].view(np.int64), words[:0], old[:0]
    places = true_places(differs)
    return False, places, words.take(places), old.take(places)


def _differing_loop(words: Array, old: Array, most: int) -> tuple[bool, Array, Array, Array]:
    # Eight words at a time: a processor guesses well that none of them differs.
    places, zero, whole = np.empty(most + 8, np.int64), np.uint64(0), words.size & ~7
    new, before, found = np.empty(most + 8, np.uint64), np.empty(most + 8, np.uint64), zero
    for start in range(0, words.size, 8):
        first, last, differ = np.uint64(start), np.uint64(min(start + 8, words.size)), zero
        if start < whole:
            for k in range(8):
                at = first + np.uint64(k)
                differ |= words[at] ^ old[at]
        if differ != zero or start == whole:
            for place in range(first, last):
                places[found], new[found], before[found] = place, words[place], old[place]
                found += np.uint64(words[place] != old[place])
            if found > np.uint64(most):
                return True, places[:0], new[:0], before[:0]
    return False, places[:found].copy(), new[:found].copy(), before[:found].copy()


differing = kernel(_differing, _differing_loop, "in u8, in u8, i8")


def _whole_words(bits: Array) -> Array:
    """Return components as words of eight bytes (uint64); the last one is filled up with zeros."""
    if bits.nbytes % 8:
        filled = np.zeros(-(-bits.nbytes // 8) * 8 // bits.itemsize, bits.dtype)
        filled[: bits.size] = bits
        bits = filled
    return bits.view(np.uint64)


class _Planes:
    """The codes of a block: those that are not 0 with their places; or whole planes, if many.

    `first` is the block's first word in the array sum. `total` is the block's part of that sum;
    what changes add to it is there after `runs`.
    """

    def __init__(self, size: int, kind: ElementType, first: int) -> None:
        self._size, self._kind, self._first = size, kind, first
        self.total = 0
        self._waiting = 0  # words
        self._few: list[_Changes] = []  # that wait, each with its places in the block
        self._found: list[tuple[Array, Array]] = []  # places and codes of components that differ
        self._planes: list[Array] | None = None

    def add(self, part: slice, changes: _Changes) -> None:
        """Add a part of the block in which few words differ."""
        start = part.start * self._kind.size // 8
        self._waiting += changes.places.size
        self._few.append(_Changes(changes.places + start, changes.new, changes.old))
        if self._waiting > _WORDS_AT_A_TIME:
            self._narrow()
        for plane in self._planes or ():
            plane[part] = 0

    def fill(self, part: slice, bits: Array, reference: Array | None) -> None:
        """Add a part of the block in which many components differ, or all have no reference."""
        planes = tuple(plane[part] for plane in self._spread(part.start))
        split(bits, bits[:0] if reference is None else reference, self._kind.is_float, planes)

    def runs(self) -> Iterator[Sparse | Array]:
        """Yield the planes, lowest byte first; a plane is not needed any more when the next is."""
        self._narrow()
        few = (np.zeros(0, np.int64), np.zeros(0, self._kind.bits))
        places, codes = (np.concatenate(parts) for parts in zip(few, *self._found, strict=True))
        self._found = []
        for place in range(self._kind.size):
            values = (codes >> (8 * place)).astype(np.uint8)
            if self._planes is None:
                yield as_sparse(Sparse(places, values), self._size)
            else:
                plane = self._planes.pop(0)
                plane[places] = values
                yield plane

    def _narrow(self) -> None:
        """Turn words that differ into places and codes of components; add what they change."""
        if not self._few:
            return
        words, new, old = (
            np.concatenate([getattr(each, name) for each in self._few]) for name in ("places", "new", "old")
        )
        self._few, self._waiting = [], 0
        own, before = new.view(self._kind.bits), old.view(self._kind.bits)
        self.total += sum_change(own, before, words + self._first)
        some = (own != before).nonzero()[0]
        joined_log2 = 3 - own.itemsize.bit_length() + 1  # components of a word
        places = words.take(some >> joined_log2)
        places <<= joined_log2
        places += some & (1 << joined_log2) - 1
        self._found.append((places, zigzag(own.take(some), before.take(some), self._kind.is_float)))

    def _spread(self, start: int) -> list[Array]:
        """Return whole planes; the part at `start` is the first with many changes."""
        if self._planes is None:
            self._planes = [np.empty(self._size, np.uint8) for _ in range(self._kind.size)]
            for plane in self._planes:
                plane[:start] = 0
        return self._planes


def read_block(cursor: Cursor, reference: Array | None, kind: ElementType, out: Array) -> None:
    """Read one block into `out`, which may be `reference`; both are components."""
    planes = finish(_reading(cursor, reference, kind, out.size))
    few = [plane for plane in planes if isinstance(plane, Sparse)]
    if len(few) < kind.size:
        before = out[:0] if reference is None else reference
        whole = [dense(plane, out.size) for plane in planes]
        for part in slices(out.size):
            join(tuple(plane[part] for plane in whole), before[part], kind.is_float, out[part])
        return
    if reference is None:
        out[:] = 0
    elif out is not reference:
        np.copyto(out, reference)
    codes = _joined(few, kind)
    values = np.empty_like(codes.codes)
    for part, _ in codes.decode(reference, values):
        out[codes.places[part]] = values[part]


def _reading(cursor: Cursor, reference: Array | None, kind: ElementType, size: int) -> Reading[list[Form]]:
    """Read the planes of a block, all whole if the places of few codes would not take less time."""
    planes: list[Form] = []
    references = None if reference is None else References(reference)
    changed = 0
    for number in range(kind.size):
        planes.append((yield from reading(cursor, size, references=references)))
        count = planes[-1].positions.size if isinstance(planes[-1], Sparse) else size
        changed += count * _MERGE_COST if number else count
        if changed * _CHANGED_RATIO > size:
            planes = [dense(plane, size) for plane in planes]
    return planes


@dataclass(frozen=True, eq=False)
class Codes:
    """The codes of a block that are not 0."""

    places: Array  # where they are in the block, int64, rising
    codes: Array  # zigzag
    kind: ElementType

    def decode(self, reference: Array | None, out: Array) -> Iterator[tuple[slice, Array]]:
        """Write the components into `out`; yield which as they come, and those of the reference."""
        for part in slices(self.places.size, _PLACES_AT_A_TIME):
            before = None if reference is None else reference.take(self.places[part], mode="clip")
            unzigzag(self.codes[part], before, self.kind.is_float, out[part])
            yield part, out[:0] if before is None else before


def reading_codes(cursor: Cursor, reference: Array, kind: ElementType) -> Reading[Codes | None]:
    """Read a block, given the components of its reference; ``None`` if many of its codes are not 0.

    Then the rest of the block is not read.
    """
    if cursor.next_byte() in _WHOLE_PLANES:
        return None
    planes = yield from _reading(cursor, reference, kind, reference.size)
    few = [plane for plane in planes if isinstance(plane, Sparse)]
    return _joined(few, kind) if len(few) == kind.size else None


def _split(bits: Array, reference: Array, is_float: bool, planes: tuple[Array, ...]) -> None:
    """Write each byte of zigzag codes of components into its plane; `reference` may be empty."""
    codes = zigzag(bits, reference if reference.size else None, is_float)
    for place, plane in enumerate(planes):
        plane[:] = codes >> (8 * place)


def _split_loop(bits: Array, reference: Array, is_float: bool, planes: tuple[Array, ...]) -> None:
    one, width = np.uint64(1), np.uint64(8 * len(planes))
    top = one << width - one
    full = top | top - one
    for place in range(bits.size):
        own = np.uint64(bits[place])
        if is_float and reference.size == 0:
            code = own << one | own >> width - one
        else:
            if reference.size:
                before = np.uint64(reference[place])
                if is_float:
                    own ^= full if own & top else top
                    before ^= full if before & top else top
                own -= before
            code = ~(own << one) if own & top else own << one
        for number in range(len(planes)):
            planes[number][place] = code >> np.uint64(8 * number) & np.uint64(255)


_OF_PLANES: Final = (1, 2, 4, 8)


split = kernel(_split, _split_loop, *(f"in u{n}, in u{n}, b1, {n} out u1" for n in _OF_PLANES))


def _join(planes: tuple[Array, ...], reference: Array, is_float: bool, out: Array) -> None:
    """Write the components that `_split` has split into `out`, which may be the reference."""
    codes = planes[-1].astype(out.dtype)
    for plane in planes[-2::-1]:
        codes <<= 8
        codes |= plane
    unzigzag(codes, reference if reference.size else None, is_float, out)


def _join_loop(planes: tuple[Array, ...], reference: Array, is_float: bool, out: Array) -> None:
    one, width = np.uint64(1), np.uint64(8 * len(planes))
    top = one << width - one
    full = top | top - one
    reference = reference.copy()  # else a component waits for the one before, if it is `out`
    for place in range(out.size):
        code = np.uint64(0)
        for number in range(len(planes)):
            code |= np.uint64(planes[number][place]) << np.uint64(8 * number)
        if is_float and reference.size == 0:
            own = code >> one | code << width - one
        else:
            own = ~(code >> one) if code & one else code >> one
            if reference.size:
                before = np.uint64(reference[place])
                if is_float:
                    before ^= full if before & top else top
                own += before
                if is_float:
                    own ^= top if own & top else full
        out[place] = own & full


join = kernel(_join, _join_loop, *(f"{n} in u1, in u{n}, b1, out u{n}" for n in _OF_PLANES))


def _joined(planes: Sequence[Sparse], kind: ElementType) -> Codes:
    """Return the places of all planes, and the codes at them."""
    places, codes = planes[0].positions, planes[0].values.astype(kind.bits)
    for number, plane in enumerate(planes[1:], 1):
        if plane.positions.size == 0:
            continue
        at = np.searchsorted(places, plane.positions)
        new = places.take(at, mode="clip") != plane.positions if places.size else np.ones(at.size, bool)
        if new.any():
            some = new.nonzero()[0]
            places = _between(places, at[some], plane.positions[some])
            codes = _between(codes, at[some], np.zeros(some.size, kind.bits))
            at += np.cumsum(new) - new
        codes[at] |= plane.values.astype(kind.bits) << (8 * number)
    if not codes.all():  # a writer stores no 0 among them, but may
        some = codes != 0
        places, codes = places[some], codes[some]
    return Codes(places, codes, kind)


def _between(array: Array, at: Array, new: Array) -> Array:
    """Return an array with new elements before those at some places, which rise."""
    if at.size * _INSERT_RATIO > array.size:
        return np.insert(array, at, new)
    parts, start = [], 0
    for number, end in enumerate(at.tolist()):
        parts += [array[start:end], new[number : number + 1]]
        start = end
    return np.concatenate([*parts, array[start:]])
