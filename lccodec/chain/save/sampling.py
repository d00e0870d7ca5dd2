"""Which components of a state stand for the others, and what is kept of them for the next save.

All of a small state is in the sample. Of a large one it takes at most one component of 16, but
`_MIN_SAMPLED` of any array, and never more than `_MAX_SAMPLED`. These lie at equal distances, which
have no divisor in common with a row, so that no column is left out. How much is sampled depends on
the sizes of all arrays. So states with the same arrays have samples that fit each other.

Of second moments, few large elements decide over root mean squares. Elements at equal distances
miss them: of 2,000,000 log-normal values, 8,192 such elements are off by a factor of two. So of
those that are not sampled whole, half as many components again are drawn in proportion to their
size: each brings about the same share of a sum, and the large ones are all there. The same elements
also are those that move, as a second moment decays by a share of itself, and grows by squares of
gradients that are as large as it.

Each element has a number between 0 and 1, by its place: multiples of the golden ratio, which are
spread evenly. Its priority is its size over this number, and those of the highest priorities are
drawn. So the same are drawn of the same array, in one pass, and no generator is needed. An element
is among them with a probability that is its size over the highest priority that is not drawn.

An element of a sample may be there by its place or by its size. What it counts is one over the
probability that it is there at all. So no element counts more than by its place alone, and the
small ones are not lost.

There may be thousands of arrays. So samples are made, kept and compared in batches: a call for each
small array would be slow.

Sources: SPEC 8 (LCC-FIG-05); priority sampling, Duffield, Lund and Thorup (2007); weights, Horvitz
and Thompson (1952).
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, lru_cache
from itertools import pairwise
from operator import attrgetter
from typing import Any, Final, Self

import numpy as np

from ...element_table import ElementType
from ...element_types import Array, work
from ...parallel import slices
from ...policy.policy import Candidate
from ..read.replay import DecodedArray

#: Components of a piece: their sizes stay in the cache.
PIECE: Final = 1 << 16
_PIECE_BITS: Final = PIECE.bit_length() - 1
_ROW_BITS: Final = 12
_ROW: Final = 1 << _ROW_BITS  # components of a row of a piece, which have consecutive numbers
_ROW_SHIFT: Final = 233  # numbers: no two rows compare the same column with the same number,
_PIECE_SHIFT: Final = 10_007  # and no two pieces
_SPAN: Final = _ROW + (PIECE >> _ROW_BITS) * _ROW_SHIFT  # numbers of a piece
_SHIFTS: Final = 1 << 16  # pieces begin at as many numbers, at most
_GOLDEN: Final = (5**0.5 - 1) / 2

#: About as many components are looked at, over those that are drawn: the sample at equal distances
#: says only roughly which priorities are high.
_LOOKED_AT: Final = 1.5

#: Components at equal distances for each one that is drawn.
_EVEN_PER_DRAWN: Final = 2


@dataclass(frozen=True, eq=False)
class Drawn:
    """Components of an array that were drawn by their size."""

    places: Array  # their indices, rising
    bits: Array  # the components
    rate: float  # the probability for a component of size 1; all are drawn for which it is 1 or more

    @classmethod
    def of(cls, bits: Array, kind: ElementType, distance: int) -> Self | None:
        """Draw from a floating point array what is not at equal distances; ``None`` if all are 0.

        At most half as many are drawn as lie at the distances. Those that lie there are left out.
        What is not finite is not drawn.

        Examples
        --------
        >>> from lccodec.element_types import components
        >>> kind, bits = components(np.array([9, 4, 2, 1], np.float32))
        >>> found = Drawn.of(bits, kind, distance=2)
        >>> found.places.tolist(), round(found.rate, 3)
        ([1], 0.068)
        """
        return cls.of_parts(bits[::distance], [bits], bits.size, kind, distance)

    @classmethod
    @np.errstate(all="ignore")  # of hostile values too
    def of_parts(
        cls, even: Array, parts: Iterable[Array], size: int, kind: ElementType, distance: int
    ) -> Self | None:
        """Draw the same from an array of `size` components that comes in parts.

        `even` has the components at equal distances. The sizes of all parts but the last are
        multiples of `PIECE`.
        """
        numbers, tiny = _numbers(kind)
        bound = max(_bound(work(even, kind), distance * _EVEN_PER_DRAWN), tiny)
        bounds = numbers[: _SPAN if size <= PIECE else None] * numbers.dtype.type(bound)
        found = []
        for start, piece in _pieces(parts):
            own = _above(_sizes(piece, kind, bounds.dtype), bounds, _first_number(start)).nonzero()[0]
            found.append((own + start, piece[own]))
        places, drawn = found[0] if len(found) == 1 else map(np.concatenate, zip(*found, strict=True))
        sizes = np.abs(work(drawn, kind), dtype=np.float64)
        rows = (places & PIECE - 1) >> _ROW_BITS
        own_numbers = numbers[_first_number(places) + rows * _ROW_SHIFT + (places & _ROW - 1)]
        priorities = np.where(np.isfinite(sizes), sizes / own_numbers, 0)
        count = -(-even.size // _EVEN_PER_DRAWN)
        if places.size > count:
            bound = max(bound, float(np.partition(priorities, -count - 1)[-count - 1]))
        chosen = np.flatnonzero(priorities > bound)
        if bound == np.inf or not chosen.size:
            return None
        places = places[chosen]
        elsewhere = places % distance != 0
        return cls(places[elsewhere].astype(np.min_scalar_type(size)), drawn[chosen[elsewhere]], 1 / bound)

    def again(self, bits: Array) -> Array:
        """Return the same components of another array of the same size."""
        found: Array = bits.take(self.places)
        return found


@cache
def _numbers(kind: ElementType) -> tuple[Array, float]:
    """Return all numbers between 0 and 1 that components have, and the least bound of priorities.

    They have the type that components are compared in: float16 has too few exponents.
    """
    dtype = np.result_type(kind.work, np.float32)
    numbers = (np.arange(1, _SHIFTS + _SPAN + 1) * _GOLDEN % 1).astype(dtype)
    return numbers, float(np.finfo(dtype).tiny)


def _first_number(place: Any) -> Any:
    """Return which number is the first of the piece that components lie in."""
    return (place >> _PIECE_BITS) * _PIECE_SHIFT & _SHIFTS - 1


def _sizes(piece: Array, kind: ElementType, dtype: np.dtype[Any]) -> Array:
    """Return the sizes of components; no copy is made if none is negative, as a rule."""
    values = work(piece, kind).astype(dtype, copy=False)
    found: Array = values if np.maximum.reduce(piece) >> (8 * kind.size - 1) == 0 else np.abs(values)
    return found


def _above(sizes: Array, bounds: Array, shift: int) -> Array:
    """Return which sizes are above their bounds; each row begins `_ROW_SHIFT` bounds later."""
    rows, rest = divmod(sizes.size, _ROW)
    whole = sizes.size - rest
    step = bounds.itemsize
    steps = _ROW_SHIFT * step, step
    by_row: Array = np.ndarray((rows + (rest > 0), _ROW), bounds.dtype, bounds, shift * step, steps)
    found = np.empty(sizes.size, bool)
    np.greater(sizes[:whole].reshape(rows, _ROW), by_row[:rows], out=found[:whole].reshape(rows, _ROW))
    if rest:
        np.greater(sizes[whole:], by_row[rows, :rest], out=found[whole:])
    return found


def _bound(values: Array, distance: int) -> float:
    """Return a priority that more than enough components have, by the values of one in `distance`.

    One of them that is large would be drawn anyhow, and counts as one.
    """
    sizes = np.abs(values, dtype=np.float64)
    if not np.maximum.reduce(sizes) < np.inf:
        sizes = sizes[sizes < np.inf]
    highest = distance * np.add.reduce(sizes) / max(sizes.size, 1)
    return float(distance * np.add.reduce(np.minimum(sizes, highest))) / max(sizes.size, 1) / _LOOKED_AT


def _pieces(parts: Iterable[Array]) -> Iterator[tuple[int, Array]]:
    """Yield where each piece starts, and the piece."""
    start = 0
    for part in parts:
        for stretch in slices(part.size, PIECE):
            yield start + stretch.start, part[stretch]
        start += part.size


_MAX_SAMPLED: Final = 1 << 13  # components of an array
_MIN_SAMPLED: Final = 1 << 6  # of which fewer are less than what else is kept of an array
_MIN_SAMPLE_BYTES: Final = 1 << 19  # that may be taken of any state
_SAMPLED_SHARE: Final = 16  # of a large state: one element in 16

_GROUP_COMPONENTS: Final = 1 << 16  # so that their float64 numbers stay in the cache


@dataclass(frozen=True, eq=False)
class Batch:
    """Samples at equal distances of arrays of one type."""

    names: list[str]  # of the arrays
    sizes: Array  # of their samples (int64)
    bits: Array  # the components, array after array

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
    """Samples of a state."""

    batches: Sequence[Batch] = ()  # components at equal distances
    # By the names of arrays, those that were drawn by their size, if any were.
    drawn: Mapping[str, Drawn] = field(default_factory=dict)
    # What all of the state was sampled by, batch by batch; ``None`` if it was not.
    sampling: Sampling | None = None

    @classmethod
    def of_arrays(cls, even: Iterable[tuple[str, Array]], drawn: Mapping[str, Drawn]) -> Samples:
        """Return samples that come array by array."""
        return cls([Batch([name], np.array([bits.size]), bits) for name, bits in even], drawn)

    @cached_property
    def even(self) -> Mapping[str, Array]:
        """Components at equal distances, by the names of arrays."""
        found: dict[str, Array] = {}
        for batch in self.batches:
            found.update(batch.each())
        return found

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
class SampledGroup:
    """Arrays of one type that are sampled and measured together."""

    indices: list[int]  # which they are
    sizes: Array  # of their samples at equal distances (int64)
    is_whole: bool  # whether all of their components are sampled
    draws: bool  # whether components are drawn by their size too

    @cached_property
    def places(self) -> slice | Array:
        """The indices, to take their numbers from an array."""
        first, last = self.indices[0], self.indices[-1]
        return slice(first, last + 1) if last - first + 1 == len(self.indices) else np.array(self.indices)

    def of(self, places: Sequence[int]) -> SampledGroup:
        """Return some of the arrays as a group."""
        return replace(self, indices=[self.indices[place] for place in places], sizes=self.sizes[places])


#: The samples of a state that nothing is known of.
NOTHING: Final = Samples()


class Sampling:
    """Which components of a state are sampled.

    `arrays`: the arrays of the state. `distances`: of each array, the distance between two sampled
    components; 1 if all are sampled. `drawn`: the indices of the arrays of which components are
    drawn by their size too.
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
        self.drawn: set[int] = set()
        self._large: list[int] = []  # arrays that are not sampled whole
        #: Arrays of one type, as many as can be measured together. Of all or none some are drawn.
        self.groups: list[SampledGroup] = []
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
            self.drawn.update(indices[place] for place in drawn)
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
            self.groups.append(SampledGroup(own, sizes[start:stop], is_whole, own[0] in self.drawn))

    def fits(self, arrays: Sequence[Candidate], parents: Iterable[str]) -> bool:
        """Return whether a state is sampled in the same places as that before, which is sampled so.

        `parents` are the names of the arrays of that, in their order.
        """
        if any(c.reference is None or c.inherited for c in arrays):  # with one: of its type and shape
            return False
        if [c.name for c in arrays] != list(parents):
            return False
        return all((arrays[index].role == "second_moment") == (index in self.drawn) for index in self._large)

    def taken(self, index: int, array: DecodedArray) -> tuple[Array, Drawn | None]:
        """Return copies of all that is sampled of an array."""
        bits, distance = array.bits, self.distances[index]
        drawn = Drawn.of(bits, array.kind, distance) if index in self.drawn else None
        return self.of(index, bits).copy(), drawn

    def of(self, index: int, bits: Array) -> Array:
        """Return a view of the sampled components of the array of an index."""
        distance = self.distances[index]
        return bits if distance == 1 else bits[::distance]

    def joined(self, group: SampledGroup, arrays: Sequence[Array]) -> Array:
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
