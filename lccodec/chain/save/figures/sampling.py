"""Which components of a state stand for the others, and what is kept of them for the next save.

All of a small state is in the sample. Of a large one it takes at most one component of 16, but
`_MIN_SAMPLED` of any array, and never more than `_MAX_SAMPLED`. These lie at equal distances, which
have no divisor in common with a row, so that no column is left out. Of second moments that are not
sampled whole, half as many components again are drawn by their size.

How much is sampled depends on the sizes of all arrays. So states with the same arrays have samples
that fit each other.

There may be thousands of arrays. So samples are made, kept and compared in batches: a call for each
small array would be slow.

Source: SPEC 8 (LCC-FIG-05).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from operator import attrgetter
from typing import Final

import numpy as np

from ....element_table import ElementType
from ....element_types import Array
from ....policy.policy import Candidate
from ...read.replay import DecodedArray
from .drawing import Drawn

_MAX_SAMPLED: Final = 1 << 13  # components of an array
_MIN_SAMPLED: Final = 1 << 6  # of which fewer are less than what else is kept of an array
_MIN_SAMPLE_BYTES: Final = 1 << 19  # that may be taken of any state
_SAMPLED_SHARE: Final = 16  # of a large state: one element in 16

_GROUP_COMPONENTS: Final = 1 << 16  # so that their float64 numbers stay in the cache


@dataclass(frozen=True, eq=False)
class Batch:
    """Samples at equal distances of arrays of one type.

    Parameters
    ----------
    names
        Of the arrays.
    sizes
        Of their samples (int64).
    bits
        The components, array after array.
    """

    names: list[str]
    sizes: Array
    bits: Array

    def fits(self, other: Batch) -> bool:
        """Return whether another batch has samples of the same arrays, of the same sizes."""
        return (
            self.names == other.names
            and self.bits.dtype == other.bits.dtype
            and np.array_equal(self.sizes, other.sizes)
        )

    def each(self) -> Iterator[tuple[str, Array]]:
        """Yield the sample of each array, a view."""
        start = 0
        for name, size in zip(self.names, self.sizes.tolist(), strict=True):
            yield name, self.bits[start : start + size]
            start += size


@dataclass(frozen=True, eq=False)
class Samples:
    """Samples of a state.

    Parameters
    ----------
    batches
        Components at equal distances.
    drawn
        By the names of arrays, those that were drawn by their size, if any were.
    sampling
        What all of the state was sampled by, batch by batch; ``None`` if it was not.
    """

    batches: Sequence[Batch] = ()
    drawn: Mapping[str, Drawn] = field(default_factory=dict)
    sampling: Sampling | None = None

    @classmethod
    def of_arrays(cls, even: Iterable[tuple[str, Array]], drawn: Mapping[str, Drawn]) -> Samples:
        """Return samples that come array by array."""
        return cls([Batch([name], np.array([bits.size]), bits) for name, bits in even], drawn)

    @cached_property
    def even(self) -> Mapping[str, Array]:
        """Components at equal distances, by the names of arrays."""
        return {name: bits for batch in self.batches for name, bits in batch.each()}

    @cached_property
    def _by_first(self) -> Mapping[str, Batch]:
        return {batch.names[0]: batch for batch in self.batches}

    def like(self, batch: Batch) -> Batch | None:
        """Return the batch with samples of the same arrays, of the same sizes."""
        found = self._by_first.get(batch.names[0])
        return found if found is not None and found.fits(batch) else None

    def of(self, names: Container[str]) -> Samples:
        """Return the samples of some arrays."""
        even = [(name, bits) for name, bits in self.even.items() if name in names]
        return Samples.of_arrays(even, {n: found for n, found in self.drawn.items() if n in names})

    def with_those_of(self, other: Samples) -> Samples:
        """Return samples of the arrays of both, which have none in common."""
        if not other.batches:
            return self
        return Samples([*self.batches, *other.batches], {**self.drawn, **other.drawn})


@dataclass(frozen=True, eq=False)
class Group:
    """Arrays of one type that are sampled and measured together.

    Parameters
    ----------
    indices
        Which they are.
    sizes
        Of their samples at equal distances (int64).
    is_whole
        Whether all of their components are sampled.
    draws
        Whether components are drawn by their size too.
    """

    indices: list[int]
    sizes: Array
    is_whole: bool
    draws: bool

    @cached_property
    def places(self) -> slice | Array:
        """The indices, to take their numbers from an array."""
        first, last = self.indices[0], self.indices[-1]
        return slice(first, last + 1) if last - first + 1 == len(self.indices) else np.array(self.indices)

    def of(self, places: Sequence[int]) -> Group:
        """Return some of the arrays as a group."""
        return replace(self, indices=[self.indices[place] for place in places], sizes=self.sizes[places])


#: The samples of a state that nothing is known of.
NOTHING: Final = Samples()


class Sampling:
    """Which components of a state are sampled.

    Parameters
    ----------
    arrays
        The arrays of the state.

    Attributes
    ----------
    distances
        Of each array, the distance between two sampled components; 1 if all are sampled.
    """

    def __init__(self, arrays: Sequence[Candidate]) -> None:
        kinds, counts = [c.kind for c in arrays], [c.bits.size for c in arrays]
        of_type: dict[ElementType, list[int]] = {}
        sizes: dict[ElementType, Array] = {}
        for kind in filter(attrgetter("is_float"), dict.fromkeys(kinds)):
            indices = list(range(len(kinds)))
            if kinds.count(kind) < len(kinds) or 0 in counts:  # mostly, all are of one type
                indices = [index for index in indices if kinds[index] is kind and counts[index]]
            if indices:
                of_type[kind] = indices
                sizes[kind] = np.array([counts[index] for index in indices], np.int64)
        limit = _limit(sizes)
        self.distances = [1] * len(arrays)
        self._large: list[int] = []  # arrays that are not sampled whole
        self._drawn: set[int] = set()
        #: Arrays of one type, as many as can be measured together. Of all or none some are drawn.
        self.groups: list[Group] = []
        for kind, own in sizes.items():
            indices, drawn, samples = of_type[kind], [], own.copy()
            for place in np.flatnonzero(own > limit).tolist():
                c = arrays[indices[place]]
                row = c.bits.size // c.shape[0]  # of one dimension: one component
                distance = _distance(c.bits.size, limit, row)
                self.distances[indices[place]] = distance
                self._large.append(indices[place])
                samples[place] = -(-c.bits.size // distance)
                if c.role == "second_moment":
                    drawn.append(place)
            self._drawn.update(indices[place] for place in drawn)
            if not drawn:
                self._add_groups(indices, samples)
                continue
            even = np.delete(np.arange(len(indices)), drawn).tolist()
            for places in filter(None, (even, drawn)):
                self._add_groups([indices[place] for place in places], samples[places])

    def _add_groups(self, indices: list[int], sizes: Array) -> None:
        """Note arrays of one type, with the sizes of their samples."""
        numbers = (np.cumsum(sizes) - sizes) // _GROUP_COMPONENTS  # of the group of each array
        cuts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(indices)]
        for start, stop in pairwise(cuts):
            own = indices[start:stop]
            is_whole = all(self.distances[index] == 1 for index in own)
            self.groups.append(Group(own, sizes[start:stop], is_whole, own[0] in self._drawn))

    def fits(self, arrays: Sequence[Candidate], parents: Iterable[str]) -> bool:
        """Return whether a state is sampled in the same places as that before, which is sampled so.

        `parents` are the names of the arrays of that, in their order.
        """
        if any(c.reference is None or c.inherited for c in arrays):  # with one: of its type and shape
            return False
        if [c.name for c in arrays] != list(parents):
            return False
        return all((arrays[index].role == "second_moment") == (index in self._drawn) for index in self._large)

    def draws(self, index: int) -> bool:
        """Return whether components of the array of an index are drawn by their size too."""
        return index in self._drawn

    def draw(self, index: int, bits: Array, kind: ElementType) -> Drawn | None:
        """Return those that are drawn; ``None`` if none are."""
        if index not in self._drawn:
            return None
        return Drawn.of(bits, kind, self.distances[index])

    def draw_parts(
        self, index: int, even: Array, parts: Callable[[], Iterable[Array]], size: int, kind: ElementType
    ) -> Drawn | None:
        """Return those that are drawn of an array that comes in parts (see `Drawn.of_parts`)."""
        if index not in self._drawn:
            return None
        return Drawn.of_parts(even, parts(), size, kind, self.distances[index])

    def taken(self, index: int, array: DecodedArray) -> tuple[Array, Drawn | None]:
        """Return copies of all that is sampled of an array."""
        return self.of(index, array.bits).copy(), self.draw(index, array.bits, array.kind)

    def of(self, index: int, bits: Array) -> Array:
        """Return a view of the sampled components of the array of an index."""
        distance = self.distances[index]
        return bits if distance == 1 else bits[::distance]

    def joined(self, group: Group, arrays: Sequence[Array]) -> Array:
        """Return the sampled components of the arrays of a group end to end: a copy."""
        return np.concatenate(arrays if group.is_whole else list(map(self.of, group.indices, arrays)))


def _limit(sizes: Mapping[ElementType, Array]) -> int:
    """Return how many components of an array are sampled at most, for arrays of these sizes."""

    def nbytes(limit: float) -> int:
        return sum(int(np.minimum(counts, limit).sum()) * kind.size for kind, counts in sizes.items())

    most = max(nbytes(math.inf) // _SAMPLED_SHARE, _MIN_SAMPLE_BYTES)
    limit = _MAX_SAMPLED
    while limit > _MIN_SAMPLED and nbytes(limit) > most:
        limit //= 2
    return limit


@lru_cache  # the arrays of a state have few sizes
def _distance(size: int, limit: int, row: int) -> int:
    """Return the distance between sampled components of an array of `size`, of rows of `row`.

    Examples
    --------
    >>> _distance(9 * 5 * 64, limit=200, row=5 * 64)
    17
    """
    distance = -(-size // limit)
    while math.gcd(distance, 2 * row) > 1:
        distance += 1
    return distance
