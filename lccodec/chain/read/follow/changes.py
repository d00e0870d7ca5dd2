"""What differs between two decoded arrays: a few places and values, or the whole array.

Values are compared as bit patterns, so NaNs and zeros of both signs count as what they are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from ....element_table import ElementType
from ....element_types import Array, components, element_type, from_components
from ....errors import ArgumentError
from ....frame.header import Shape
from ....masks import true_places
from ....parallel import slices
from ....workers.memory import place_of
from ..replay import DecodedArray

#: If at most one component in this many differs, changing only their places is faster than a copy.
SPARSE_RATIO: Final = 8
_WORD_BYTES: Final = 8
_FEW_BYTES: Final = 1 << 15  # are compared at once: more calls take longer


@dataclass(frozen=True, eq=False)
class Change:
    """What is new in an array.

    Parameters
    ----------
    kind, shape
        Element type and shape of the array.
    places
        Flat places of the elements that differ: int64, rising. ``None`` if all of them are given.
    bits
        The new components: of these places, or of the whole array.
    """

    kind: ElementType
    shape: Shape
    places: Array | None
    bits: Array

    @property
    def nbytes(self) -> int:
        """Bytes of the new values."""
        return self.bits.nbytes

    def values(self, dtype: str | None) -> Array:
        """Return the new values, 1-D; `dtype` is as in :func:`lccodec.decode`."""
        return from_components(self.bits, self.kind, (self.bits.size // self.kind.components,), dtype)

    def kept(self) -> Change:
        """Return the change in memory of its own, if it lies where later ones are put."""
        if not self.is_shared or self.places is None:
            return self
        return replace(self, places=self.places.copy(), bits=self.bits.copy())

    @property
    def is_shared(self) -> bool:
        """Whether it lies where later changes are put."""
        return self.places is not None and place_of(self.places) is not None

    def write(self, bits: Array) -> None:
        """Write the new values into the components of an array. Writing them again is no harm."""
        if self.places is None:
            bits[:] = self.bits
        else:
            bits[self.places] = self.bits


def change_of(before: DecodedArray, places: Array, bits: Array) -> Change | None:
    """Return what is new in an array, given its places and components; ``None`` if nothing is."""
    if not places.size:
        return None
    if places.size * SPARSE_RATIO <= before.bits.size:
        return Change(before.kind, before.shape, places, bits)
    whole = before.bits.copy()
    whole[places] = bits
    return Change(before.kind, before.shape, None, whole)


def difference(before: DecodedArray | None, after: DecodedArray) -> Change | None:
    """Return what is new in an array, ``None`` if nothing is.

    All of it is new if there was none before, or one of another type or shape.
    """
    whole = Change(after.kind, after.shape, None, after.bits)
    if before is None or (before.kind, before.shape) != (after.kind, after.shape):
        return whole
    if after.kind.components > 1:  # places are those of elements
        return None if np.array_equal(before.bits, after.bits) else whole
    places, count = [], 0
    for part in slices(after.bits.size):
        found = _differing(before.bits[part], after.bits[part])
        if not found.size:
            continue
        count += found.size
        if count * SPARSE_RATIO > after.bits.size:
            return whole
        found += part.start
        places.append(found)
    if not count:
        return None
    there = np.concatenate(places)
    return Change(after.kind, after.shape, there, after.bits.take(there, mode="clip"))


def _differing(one: Array, other: Array) -> Array:
    """Return the places where two 1-D arrays of the same type differ: int64, rising.

    Words of eight bytes are compared first: where few values differ, most words are the same.
    """
    if one.nbytes <= _FEW_BYTES:
        places: Array = (one != other).nonzero()[0]
        return places
    ratio = _WORD_BYTES // one.itemsize
    end = one.size - one.size % ratio
    left, right = one[:end].view(np.uint64), other[:end].view(np.uint64)
    words = true_places(left != right)
    some = left.take(words, mode="clip") ^ right.take(words, mode="clip")
    inside = some.view(one.dtype).nonzero()[0]
    found: Array = words.take(inside // ratio, mode="clip")
    found *= ratio
    found += inside % ratio
    rest = (one[end:] != other[end:]).nonzero()[0]
    return np.append(found, rest + end) if rest.size else found


def check_target(name: str, change: Change, array: object) -> Array:
    """Return the array that a change is to be written to; refuse one that it does not fit."""
    if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):
        raise ArgumentError(f"array {name!r}: must be a NumPy array; got {type(array).__name__}")
    kind = element_type(array.dtype)
    if (kind, array.shape) != (change.kind, change.shape):
        expected = f"{change.kind.name} of shape {change.shape}"
        raise ArgumentError(f"array {name!r}: must be {expected}; got {kind.name} of shape {array.shape}")
    if not array.flags.writeable:
        raise ArgumentError(f"array {name!r}: cannot be written to")
    return array


def write_into(array: Array, change: Change) -> None:
    """Write a change into an array that it fits."""
    if array.flags.c_contiguous and array.dtype.isnative:
        change.write(array.reshape(-1).view(change.kind.bits))
        return
    # Its components are a copy, which goes back as a whole.
    bits = components(array)[1].copy()
    change.write(bits)
    array[...] = from_components(bits, change.kind, change.shape, "bits").view(array.dtype.newbyteorder("="))
