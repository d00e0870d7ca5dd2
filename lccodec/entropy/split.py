"""Split streams: the symbols of components whose reference is small stand apart.

An update changes numbers by about the same size. So it moves a small number to another pattern far
more often than a large one: the hundredth of the components with the smallest references has a
third of the symbols that are not 0. *Small* is meant of patterns: without its top bit, that of a
number rises with its magnitude.

Two bounds make a *part* of the components between them. What belongs to no part is coded in its
place among all components: so a reader needs the places of the few small ones only.

Source: SPEC 7.4 (split streams), `spec/decisions/0026-split-streams.md`.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final, TypeAlias

import numpy as np

from ..element_types import Array
from ..loops.search import below, between, bit_places, tally_sizes
from ..parallel import cached_property
from .lanes import entropy_bits
from .runs import Sparse

# All of these are an encoder's choice.
_MIN_COMPONENTS: Final = 1 << 14  # of a block that may be split
_MIN_NONZERO: Final = 500  # symbols that are not 0 in a run that may be split
_SAMPLE_ROW: Final = 16  # components that are next to each other in a sample
_SAMPLE_ROWS: Final = 1 << 12
_SAMPLE_DISTANCE: Final = 4  # at most one row in so many is in the sample
_FEWER: Final = 8  # times fewer rows are looked at first
_MIN_SAMPLED_CHANGES: Final = 64
_ENOUGH_CHANGES: Final = 256  # of which a bound is chosen; more take time
_MAX_CHANGED_RATIO: Final = 2  # where more than one component in so many changed, places tell little
_BUCKETS_LOG2: Final = 11  # of sizes: for a bfloat16, each power of two has eight
_MAX_SMALL_RATIO: Final = 8  # at most one component in so many is small: their places are in memory
_SPLIT_BITS: Final = 500.0  # that a split costs: heads and tables of two streams instead of one
_SMALL_BITS: Final = 0.5  # that a small component has to save, so that finding it is worth its time
_VALUE_BITS: Final = 2.0  # of a symbol that is not 0, about
_MIN_SAVED_SHARE: Final = 0.03  # of the bits, so that a split is worth its time

#: A reader keeps the places of parts for the next stream if they are at most one in so many.
_KEPT_RATIO: Final = 8

Run: TypeAlias = Sparse | Array


class References:
    """The components of the reference of a block, to be searched by their size.

    Parameters
    ----------
    bits
        The components. They must not change until the last search.
    """

    def __init__(self, bits: Array) -> None:
        self.bits = bits
        self._kept: tuple[list[int], list[Array]] | None = None

    def parts(self, bounds: Array) -> list[Array]:
        """Return the places (int64, rising) of the components of each part, given rising bounds."""
        ends = bounds.tolist()
        if self._kept is not None and self._kept[0] == ends:
            return self._kept[1]
        parts = [between(self.bits, low, high) for low, high in pairwise([0, *ends])]
        if sum(part.size for part in parts) * _KEPT_RATIO <= self.bits.size:
            self._kept = ends, parts
        return parts


class Small:
    """The small components of a block: a writer finds them as it reads the reference.

    Parameters
    ----------
    bound
        Small components are those below it, of the type of components.
    """

    def __init__(self, bound: np.unsignedinteger[Any]) -> None:
        self.bounds = np.array([bound])
        self._below: list[Array] = []

    def add(self, reference: Array) -> None:
        """Take the next components of the reference: a multiple of eight, but for the last."""
        self._below.append(below(reference, self.bounds)[0])

    @cached_property
    def places(self) -> Array:
        """The places of all small components that were added: int64, rising."""
        return bit_places(np.concatenate([np.zeros(0, np.uint8), *self._below]))

    def divide(self, run: Run, count: int) -> tuple[Run, Run] | None:
        """Return the symbols of small components, and a run of `count` symbols without them.

        ``None`` is returned if a split saves too little.
        """
        small = self.places
        if not isinstance(run, Sparse):
            own = run.take(small)
            if not _pays(count, int(np.count_nonzero(run)), small.size, int(np.count_nonzero(own))):
                return None
            rest = run.copy()
            rest[small] = 0
            return own, rest
        at = np.searchsorted(small, run.positions)
        is_small = small.take(at, mode="clip") == run.positions if small.size else np.zeros(at.size, bool)
        if not _pays(count, at.size, small.size, int(np.count_nonzero(is_small))):
            return None
        few, others = is_small.nonzero()[0], (~is_small).nonzero()[0]
        return (
            Sparse(at.take(few), run.values.take(few)),
            Sparse(run.positions.take(others), run.values.take(others)),
        )


def find_small(bits: Array, reference: Array) -> Small | None:
    """Return small components of which a split saves much, by a sample of a block; else ``None``.

    `bits` may change meanwhile.
    """
    if bits.size < _MIN_COMPONENTS:
        return None
    shift = max(8 * bits.itemsize - 1 - _BUCKETS_LOG2, 0)
    rows = bits.size // _SAMPLE_ROW
    step = max(-(-rows // _SAMPLE_ROWS), _SAMPLE_DISTANCE)
    for distance in (_FEWER * step, step):
        sizes, moved = tally_sizes(bits, reference, _SAMPLE_ROW, distance, shift)
        count, changes = int(sizes.sum()), int(moved.sum())
        if not 0 < changes <= count // _MAX_CHANGED_RATIO:
            return None
        if changes >= _ENOUGH_CHANGES:
            break
    if changes < _MIN_SAMPLED_CHANGES:
        return None
    small = np.cumsum(sizes)
    ends = moved.nonzero()[0]  # a bucket in which nothing changed makes no bound better
    ends = ends[small[ends] <= count // _MAX_SMALL_RATIO]
    if ends.size == 0:
        return None
    small, few = small[ends], np.cumsum(moved[ends])
    saved = _saved_bits(count, changes, small, few) - _SMALL_BITS * small
    best = int(saved.argmax())
    if saved[best] < _SPLIT_BITS * count / bits.size + _MIN_SAVED_SHARE * _bits(count, changes):
        return None
    return Small(bits.dtype.type((int(ends[best]) + 1) << shift))


def _pays(count: int, nonzero: int, small: int, few: int) -> bool:
    """Return whether a split is worth its time: `few` of the symbols that are not 0 are small."""
    if nonzero < _MIN_NONZERO:
        return False
    saved = float(_saved_bits(count, nonzero, np.array(small), np.array(few)))
    return saved >= _SPLIT_BITS + _MIN_SAVED_SHARE * _bits(count, nonzero)


def _bits(count: int, nonzero: int) -> float:
    """Return about the bits of `count` symbols."""
    return float(_place_bits(np.array(count), np.array(nonzero))) + _VALUE_BITS * nonzero


def _saved_bits(count: int, nonzero: int, small: Array, few: Array) -> Array:
    """Return the bits that places take less if `few` of `nonzero` are among `small` components."""
    whole = _place_bits(np.array(count), np.array(nonzero))
    saved: Array = whole - _place_bits(small, few) - _place_bits(np.array(count), nonzero - few)
    return saved


def _place_bits(count: Array, nonzero: Array) -> Array:
    return entropy_bits(np.stack([nonzero, count - nonzero], axis=-1).astype(np.float64))
