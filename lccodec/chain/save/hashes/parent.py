"""Values of the parent, some segments at a time.

They come from the file of values beside the chain, and are verified by their hashes. What is not
there as it should be is decoded from the chain: no more blocks than that needs, and each once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from ....byteorder import read_numbers
from ....container.disk.scratch import Scratch
from ....element_types import Array
from ....errors import ChainError, DataError, StorageError
from ....frame.encode import MAX_BLOCK_COMPONENTS
from ...read.checkpoint import OpenCheckpoint, open_name
from ...read.rows import Span, decode_span
from ...store.names import checkpoint_name
from ...store.store import Store
from .segments import HashedArray, differing, hash_segments, runs_of

_PART_COMPONENTS: Final = 1 << 21  # that are decoded at a time: a block of a large array


@dataclass(eq=False)
class Parent:
    """A checkpoint, and the hashes of its arrays.

    Parameters
    ----------
    store, step
        Where it is.
    segment
        Bytes of a segment.
    arrays
        The hashes by name.
    values
        The file of values, if there can be one.
    distrust
        Called if the hashes turn out to be wrong.
    """

    store: Store
    step: int
    segment: int
    arrays: Mapping[str, HashedArray]
    values: Scratch | None
    distrust: Callable[[], None]
    _file: OpenCheckpoint | None = None
    _together: dict[int, Array] = field(default_factory=dict)  # of the frame that was decoded last
    _last: dict[tuple[str, int], Array] = field(default_factory=dict)  # decoded last; where it begins

    def read(self, name: str, segments: Sequence[int]) -> Array:
        """Return the components of segments of an array, rising, end to end.

        Raises
        ------
        ChainError
            If the hashes are not those of the checkpoint's values; or if they must be decoded, and
            the chain cannot be read. Another attempt hashes the checkpoint anew.
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
