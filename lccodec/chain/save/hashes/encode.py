"""The frames of a save against hashes, and the hashes of what they hold.

Each value is copied once, and its hash, its code and the file of values are made of that copy. Of
an array of several blocks, one block is copied at a time, or only its segments that changed.

The frames are those that are made with the whole parent in memory, byte for byte, but for split
streams (LCC-STR-08): where only some segments of a block are read, nobody knows the size of the
rest of the reference. Then none is split.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from ....byteorder import stored_view
from ....container.disk.scratch import Scratch
from ....element_types import Array
from ....entropy.zigzag import zigzag
from ....frame import planes
from ....frame.checksum import SUM_MASK, array_sum, sum_change_of
from ....frame.content import MAX_SHARED_COMPONENTS, Content
from ....frame.encode import MAX_BLOCK_COMPONENTS, FrameCoder, encode_content
from ....policy.policy import Candidate
from ....quantizers.lossless import Lossless
from ..plan import SavePlan
from ..planned import FramePlan
from .parent import Parent
from .places import Places
from .segments import HashedArray, differing, hash_segments, runs_of

#: With a larger share of changed segments, a block is compared whole.
_MAX_SHARE: Final = 0.5
#: With as many in an array of one block, its frame may be raw: then all of it is copied.
_MAX_SHARE_OF_ONE_BLOCK: Final = 0.25


@dataclass(eq=False)
class Stored:
    """The arrays of a step as they are stored, frame by frame.

    Parameters
    ----------
    segment
        Bytes of a segment.
    values
        The file of values, if there can be one.
    parent
        What the step is a delta to, if it is one.
    changes
        Which segments of arrays of the parent differ, bool, by name.
    arrays
        The hashes of what is stored by now.
    places
        Where new arrays lie in the file of values.
    between
        Called again and again while arrays are coded.
    """

    segment: int
    values: Scratch | None
    parent: Parent | None = None
    changes: Mapping[str, Array] = field(default_factory=dict)
    arrays: dict[str, HashedArray] = field(default_factory=dict)
    places: Places = field(default_factory=Places)
    between: Callable[[], None] = lambda: None

    def encode(self, plan: SavePlan) -> Iterator[tuple[Iterator[bytes], list[Candidate]]]:
        """Yield the chunks of each frame of a plan, and its arrays.

        Their hashes are there once all chunks have been taken.
        """
        for frame in plan.frames:
            arrays = [plan.candidates[index] for index in frame.arrays]
            self.between()
            yield self._frame(frame, arrays), arrays
        for index, source in plan.copies.items():
            self.between()
            self._copy(plan.candidates[index], self.arrays[plan.candidates[source].name])

    def _frame(self, frame: FramePlan, arrays: Sequence[Candidate]) -> Iterator[bytes]:
        c = arrays[0]
        several = c.bits.size > MAX_BLOCK_COMPONENTS
        few = c.bits.size > MAX_SHARED_COMPONENTS and self._share(c) <= _MAX_SHARE_OF_ONE_BLOCK
        if frame.relative and len(arrays) == 1 and (several or few):
            return self._changed(c)
        return self._by_block(c) if several else self._at_once(frame, arrays)

    def _share(self, c: Candidate) -> float:
        found = self.changes.get(c.name)
        return 1.0 if found is None else float(found.mean())

    def _at_once(self, frame: FramePlan, arrays: Sequence[Candidate]) -> Iterator[bytes]:
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

    def _by_block(self, c: Candidate) -> Iterator[bytes]:
        """Code an array without the parent's, block by block."""
        coder = FrameCoder(Content(c.bits, c.kind, (c.shape,)), Lossless())
        offset, found, total = self._place(c), [], 0

        def blocks() -> Iterator[tuple[bytes, int]]:
            nonlocal total
            for part in coder.parts:
                self.between()
                own, first = c.bits[part].copy(), part.start * c.kind.size // 8
                found.append(hash_segments(own, self.segment))
                self.write(offset + part.start * own.itemsize, own)
                pieces, block_sum = planes.write_block(own, None, c.kind, first)
                total += block_sum
                yield b"".join(pieces), block_sum

        yield from coder.join(blocks())
        self.arrays[c.name] = HashedArray(c.kind, c.shape, offset, total & SUM_MASK, np.concatenate(found))

    def _changed(self, c: Candidate) -> Iterator[bytes]:
        """Code an array against the parent's, of which only segments that changed are read."""
        known, length = self._known(c), self.segment // c.bits.itemsize
        if known is None or self.parent is None:
            raise ValueError(f"{c.name!r} has no parent")
        # A reference makes the frame a relative one; its blocks are made here.
        coder = FrameCoder(Content(c.bits, c.kind, (c.shape,), c.bits), Lossless())
        differ, hashes, total = self.changes[c.name], known.hashes.copy(), known.total

        def blocks() -> Iterator[tuple[bytes, int]]:
            nonlocal total
            before = total  # the sum of the parent's array goes on
            for part in coder.parts:
                self.between()
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
    ) -> tuple[bytes, int]:
        """Return a block, and what it changes of the array sum; put the new hashes in place."""
        length, word = self.segment // c.bits.itemsize, part.start * c.kind.size // 8
        size = min(part.stop, c.bits.size) - part.start
        whole = float(differ.mean()) > _MAX_SHARE
        chosen = np.arange(differ.size) if whole else np.flatnonzero(differ)
        if not chosen.size:
            return b"".join(planes.write_codes(size, c.kind, chosen, np.empty(0, c.kind.bits))), 0
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
            return b"".join(pieces), total - array_sum(before, word)
        at = np.flatnonzero(own != before)
        new, old = own.take(at), before.take(at)
        places = chosen.take(at // length) * length + at % length
        pieces = planes.write_codes(size, c.kind, places, zigzag(new, old, c.kind))
        return b"".join(pieces), sum_change_of(new, old, places, word)

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
