"""Figures: what a save measures of a state, and of what a restore of its checkpoint will return.

They say how arrays are spread, how far they moved, and what their restored values lost. Only the
save has both a state and what a restore returns. It compares them on a sample of each floating
point array, and keeps that of the state for the next save. Only extremes, and what is not finite,
are looked for in all elements: a single one matters.

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
small array would be slow. The figures of many arrays of one type are made at once, from sums over
their samples. Numbers of a batch lie end to end, array after array. An element that is not finite,
here or in what it is compared with, counts in no sum.

Sources: SPEC 8 (LCC-FIG-05); priority sampling, Duffield, Lund and Thorup (2007); weights, Horvitz
and Thompson (1952).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from itertools import pairwise
from operator import attrgetter
from typing import Any, Final, Self

import numpy as np

from ...constants import ElementType
from ...container.manifest import (
    FIGURES,
    NEGATIVE_ZERO,
    OF_LOST,
    OF_MOVEMENT,
    QUANTILES,
    UNKNOWN_PATTERN,
    Manifest,
    StoredFigures,
    have_lost,
)
from ...element_types import Array, narrow, stored_bytes, work
from ...parallel import cached_property, slices
from ...policy.policy import Candidate, Past
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

    def of(self, names: Container[str]) -> Samples:
        """Return the samples of some arrays."""
        even = [(name, bits) for name, bits in self.even.items() if name in names]
        return Samples.of_arrays(even, {n: found for n, found in self.drawn.items() if n in names})


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

    `distances` has for each array the distance between two sampled components: 1 if all are
    sampled. `drawn` has the indices of the arrays of which components are drawn by their size too.
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
        names = list(parents)
        if len(arrays) != len(names):
            return False
        for c, name in zip(arrays, names, strict=True):
            if c.reference is None or c.inherited or c.name != name:  # with one: of its type and shape
                return False
        drawn = set()
        for index in self._large:
            if arrays[index].role == "second_moment":
                drawn.add(index)
        return drawn == self.drawn

    def taken(self, index: int, array: DecodedArray) -> tuple[Array, Drawn | None]:
        """Return copies of all that is sampled of an array."""
        bits, distance = array.bits, self.distances[index]
        drawn = Drawn.of(bits, array.kind, distance) if index in self.drawn else None
        return bits[::distance].copy(), drawn


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


_OF_STATE: Final = ("spread", "rms", "error")  # need no save before
_OF_MOVEMENT: Final = ("movement", "lag")
_BELOW_ONE: Final = 1 - 2**-8  # the largest bfloat16 number below 1


@dataclass(frozen=True, eq=False)
class _MeasuredGroup:
    """Arrays that are measured together."""

    sampled: SampledGroup  # which they are
    arrays: Sequence[Candidate]
    batch: Batch  # their samples
    loses: bool  # whether one of them may lose something
    past: Batch | None  # their samples at the save before, if that had the same arrays
    kind: ElementType


class Measurement:
    """Measures what a checkpoint makes of a state, from a sample of it.

    `losing` are the indices of the arrays that may lose something, and `before` samples of the
    state of the save before, as far as they are known. Arrays that the save leaves out have the
    samples and the figures of that.
    """

    def __init__(
        self,
        arrays: Sequence[Candidate],
        sampling: Sampling,
        losing: AbstractSet[int] = frozenset(),
        before: Samples = NOTHING,
    ) -> None:
        self._arrays = arrays
        self._sampling = sampling
        self._losing = losing
        self._before = before
        self._evens: dict[int, Array] = {}  # samples of arrays that are not sampled whole
        self._drawn: dict[str, Drawn] = {}
        self._again: dict[str, Array] = {}  # components that were drawn at the save before
        #: Of arrays that are not sampled whole, what `with_extremes` finds.
        self._extremes: dict[int, list[int]] = {}
        self._is_same = before.sampling is sampling
        self._is_partial = not self._is_same and any(c.inherited for c in arrays)

    def take(self, index: int) -> None:
        """Take all that is needed of an array that is not sampled whole, while the cache has it.

        What was not taken before the figures are asked for is taken then.
        """
        distance = self._sampling.distances[index]
        if distance == 1 or index in self._evens:
            return
        c, loses, extremes = self._arrays[index], index in self._losing, list[int]()
        even = self._evens[index] = c.bits[::distance].copy()
        pieces: Iterator[Array] = (c.bits[part] for part in slices(c.bits.size, PIECE))
        if loses:
            pieces = with_extremes(pieces, c.kind, extremes)
        if index in self._sampling.drawn:
            found = Drawn.of_parts(even, pieces, c.bits.size, c.kind, distance)
            if found is not None:
                self._drawn[c.name] = found
            past, known = self._before.drawn.get(c.name), self._before.even.get(c.name)
            if past is not None and known is not None and known.size == even.size:
                self._again[c.name] = past.again(c.bits)
        elif loses:
            deque(pieces, maxlen=0)
        if loses:
            self._extremes[index] = extremes

    @cached_property
    def samples(self) -> Samples:
        """The samples of the state."""
        batches = [group.batch for group in self._groups]
        if not self._is_partial:
            return Samples(batches, self._drawn, self._sampling)
        left_out = self._before.of({c.name for c in self._arrays if c.inherited})
        return Samples([*batches, *left_out.batches], {**self._drawn, **left_out.drawn})

    @cached_property
    def _groups(self) -> list[_MeasuredGroup]:
        """The arrays that are measured, with their samples."""
        groups: list[_MeasuredGroup] = []
        for number, every in enumerate(self._sampling.groups):
            group = every
            if self._is_partial:
                left = [p for p, index in enumerate(every.indices) if not self._arrays[index].inherited]
                group = every.of(left)
            if not group.indices:
                continue
            for index in group.indices:
                self.take(index)
            own = [self._arrays[index] for index in group.indices]
            taken = [self._evens.get(index, c.bits) for index, c in zip(group.indices, own, strict=True)]
            past = self._before.batches[number] if self._is_same else None
            batch = Batch(
                [c.name for c in own] if past is None else past.names, group.sizes, np.concatenate(taken)
            )
            loses = not self._losing.isdisjoint(group.indices)
            groups.append(_MeasuredGroup(group, own, batch, loses, past, own[0].kind))
        return groups

    def figures(
        self,
        decoded: Mapping[str, DecodedArray],
        before: Manifest | None,
    ) -> StoredFigures | None:
        """Return the figures of the checkpoint.

        `decoded`: the arrays as a restore returns them, by name. `before`: the manifest of the save
        before.
        """
        columns = dict(zip(FIGURES, np.full((len(FIGURES), len(self._arrays)), np.nan), strict=True))
        columns["quantiles"] = np.full((len(self._arrays), len(QUANTILES)), np.nan)
        if self._is_partial and before is not None:
            _inherit(columns, self._arrays, before.figures)
        for group in self._groups:
            after = None  # the samples as a restore returns them
            if group.loses:
                taken = []
                for index, c in zip(group.sampled.indices, group.arrays, strict=True):
                    taken.append(decoded[c.name].bits[:: self._sampling.distances[index]])
                after = np.concatenate(taken)
            if group.sampled.draws:
                found = self._of_drawn(group, after, decoded)
            else:
                known, past = _past(group, self._before)
                found = first_figures(
                    group.batch.sizes,
                    work(group.batch.bits, group.kind),
                    None if after is None else work(after, group.kind),
                    None if past is None else work(past, group.kind),
                )
                for name in _OF_MOVEMENT if past is None or not known.all() else ():
                    found[name] = np.where(known, found[name], np.nan)
            places = group.sampled.places
            for name, numbers in found.items():
                columns[name][places] = numbers
            lost = np.flatnonzero(found["error"] > 0) if group.loses else np.empty(0, np.intp)
            for name, numbers in self._descriptions(group, lost).items() if lost.size else ():
                columns[name][np.array(group.sampled.indices)[lost]] = numbers
        # A sample may have met nothing but zeros.
        some = (columns["minimum"] != 0) | (columns["maximum"] != 0)
        most = np.where(some | (columns["zeros"] < 1), _BELOW_ONE, 1.0)
        columns["zeros"] = np.minimum(columns["zeros"], most)
        return rounded_figures(None if before is None else before.step, columns)

    @np.errstate(all="ignore")
    def _descriptions(self, group: _MeasuredGroup, places: Array) -> dict[str, Array]:
        """Return how the values lie of those arrays of a group that lost something.

        ``quantiles`` has a row for each array, NaN where a value is not finite.
        """
        sizes, bits = group.batch.sizes, group.batch.bits
        if places.size < sizes.size:
            lost = np.zeros(sizes.size, bool)
            lost[places] = True
            bits, sizes = bits[np.repeat(lost, sizes)], sizes[places]
        values = work(bits, group.kind)
        counts, starts = sizes, np.cumsum(sizes) - sizes
        low = np.minimum.reduceat(values, starts)
        high = np.maximum.reduceat(values, starts)
        bad = np.zeros(len(counts))
        kept = values
        if not (np.isfinite(low) & np.isfinite(high)).all():
            finite = np.isfinite(values)
            bad = counts - np.add.reduceat(finite, starts, dtype=np.int64)
            counts = np.where(counts > bad, counts - bad, np.nan)
            low, high = (
                np.where(np.isnan(counts), np.nan, which.reduceat(np.where(finite, values, end), starts))
                for which, end in ((np.minimum, np.inf), (np.maximum, -np.inf))
            )
            kept = np.where(finite, values, values.dtype.type(np.nan))
        quantiles = np.empty((len(starts), len(QUANTILES)))
        steps = -(-sizes // _MAX_SORTED)
        lengths = -(-sizes // steps)
        for length in set(lengths.tolist()):  # those of a size are sorted together
            own = np.flatnonzero(lengths == length)
            if own.size * length == kept.size:
                rows = kept.reshape(-1, length)
            else:
                rows = kept[starts[own, None] + np.arange(length) * steps[own, None]]
            ordered = np.sort(rows, axis=1)
            quantiles[own] = ordered[:, np.rint(np.multiply(QUANTILES, length - 1)).astype(np.intp)]
            quantiles[own[np.isnan(ordered[:, -1])]] = np.nan
        zeros = np.searchsorted(starts, np.flatnonzero(kept == 0), "right") - 1  # of few, as a rule
        found = {
            "minimum": low,
            "maximum": high,
            "zeros": np.bincount(zeros, minlength=len(starts)) / counts,
            "not_finite": bad,
            "quantiles": quantiles,
        }
        for number, place in enumerate(places.tolist()):
            if extremes := self._extremes.get(group.sampled.indices[place]):
                ends = work(np.array(extremes[:2], group.kind.bits), group.kind)
                found["minimum"][number], found["maximum"][number] = ends
                found["not_finite"][number] = extremes[2]
        return found

    def _of_drawn(
        self, group: _MeasuredGroup, after: Array | None, decoded: Mapping[str, DecodedArray]
    ) -> dict[str, Array]:
        """Return the first figures of a group of which components are drawn."""
        own = dict(group.batch.each())
        even = own if after is None else dict(replace(group.batch, bits=after).each())
        now = self._compared(group, range(len(group.arrays)), own, even, decoded, None)
        found = {name: now[name] for name in _OF_STATE}
        known, _ = _past(group, self._before)
        places = np.flatnonzero(known)
        for name in _OF_MOVEMENT:
            found[name] = np.full(len(group.arrays), np.nan)
        if places.size:
            moved = self._compared(group, places.tolist(), own, even, decoded, self._before)
            for name in _OF_MOVEMENT:
                found[name][places] = moved[name]
        return found

    def _compared(
        self,
        group: _MeasuredGroup,
        places: Sequence[int],
        own: Mapping[str, Array],
        even: Mapping[str, Array],
        decoded: Mapping[str, DecodedArray],
        before: Samples | None,
    ) -> dict[str, Array]:
        """Compare arrays where samples were taken of this state, or of the one before.

        `own` are their components at equal distances, which each array has first, and `even` the
        same as decoded.
        """
        x: list[Array] = []
        d: list[Array] = []
        p: list[Array] = []
        sizes, rates = [], []
        samples = self.samples if before is None else before
        for place in places:
            name = group.arrays[place].name
            drawn = samples.drawn.get(name)
            x.append(own[name])
            d.append(even[name])
            p.append(own[name] if before is None else before.even[name])
            sizes.append(p[-1].size)
            rates.append(0.0 if drawn is None else drawn.rate)
            if drawn is not None:
                x.append(drawn.bits if before is None else self._again[name])
                d.append(drawn.again(decoded[name].bits) if group.loses else x[-1])
                p.append(drawn.bits)
                sizes[-1] += drawn.bits.size
        values, sampled = work(np.concatenate(x), group.kind), work(np.concatenate(p), group.kind)
        after = work(np.concatenate(d), group.kind) if group.loses else None
        distances = np.array([self._sampling.distances[group.sampled.indices[place]] for place in places])
        counted = _counts(np.array(sizes), distances, np.array(rates), sampled)
        past = None if before is None else sampled
        return first_figures(np.array(sizes), values, after, past, counted, spreads=before is None)


def _inherit(columns: Mapping[str, Array], arrays: Sequence[Candidate], stored: StoredFigures | None) -> None:
    """Put the figures that are `stored` of the arrays that a save leaves out into columns."""
    own = np.array([c.inherited for c in arrays], bool)
    floats = np.array([c.kind.is_float and c.bits.size > 0 for c in arrays], bool)
    if stored is not None:
        for name in FIGURES:
            columns[name][own] = stored.read(name, len(arrays))[own]
    columns["movement"][own & floats] = 0.0
    columns["lag"][own] = np.nan  # there is no movement that values could lag behind


@np.errstate(all="ignore")
def _counts(sizes: Array, distances: Array, rates: Array, sampled: Array) -> Array:
    """Return what each component counts: one over the probability that it is there.

    `sampled` are the values that the samples were taken of, array after array.
    """
    evenly = 1 / distances  # the probability that it is there by its place
    there = np.repeat(rates * (1 - evenly), sizes)
    there *= np.abs(sampled)
    there += np.repeat(evenly, sizes)
    np.minimum(there, 1, out=there)
    found: Array = np.reciprocal(there, out=there)
    return found


def _past(group: _MeasuredGroup, before: Samples) -> tuple[Array, Array | None]:
    """Return of which arrays the samples of the save before are known, and these end to end.

    An array that was not there, or had another shape, is in its place as it is now. The second
    result is ``None`` if nothing is known.
    """
    if group.past is not None:
        return np.ones(len(group.arrays), bool), group.past.bits
    known, bits = np.zeros(len(group.arrays), bool), []
    for place, (c, (name, now)) in enumerate(zip(group.arrays, group.batch.each(), strict=True)):
        past = before.even.get(name) if c.reference is not None else None
        known[place] = past is not None and past.size == now.size
        bits.append(past if past is not None and known[place] else now)
    return known, np.concatenate(bits) if known.any() else None


def with_extremes(pieces: Iterable[Array], kind: ElementType, found: list[int]) -> Iterator[Array]:
    """Yield the pieces of a floating point array; then put what they have into `found`.

    These are the patterns of the least and the greatest finite component, those of a NaN if there
    is none, and how many are not finite. Patterns have the order of magnitudes, and two passes over
    integers are as fast as memory. Those of negative numbers are above all others.
    """
    sign = 1 << (8 * kind.size - 1)  # the pattern of a negative 0
    infinite = sign - (1 << kind.mantissa)
    ends: list[int] = []  # patterns; of a negative number, that of its magnitude below 0
    bad = 0
    for piece in pieces:
        part = piece
        while part.size:
            most = int(np.maximum.reduce(part))
            low, high = sign - most, most
            if most < sign:
                low = int(np.minimum.reduce(part))
            else:
                high = int(np.maximum.reduce(part.view(f"i{part.itemsize}")))
                high = high if high >= 0 else sign - int(np.minimum.reduce(part))
            if -infinite < low and high < infinite:
                ends += (low, high)
                break
            finite = part[(part & part.dtype.type(sign - 1)) < infinite]
            bad += part.size - finite.size
            part = finite
        yield piece
    low, high = (min(ends), max(ends)) if ends else (infinite + 1, infinite + 1)
    found += (low if low >= 0 else sign - low, high if high >= 0 else sign - high, bad)


#: The least variance, over the mean of the squares, that the difference of two sums gives rightly.
_LEAST_VARIANCE: Final = 2.0**-30

_MAX_SORTED: Final = 1 << 9  # components of an array: what a share of elements is not above is rough


@np.errstate(all="ignore")  # of hostile values too
def first_figures(
    sizes: Array,
    values: Array,
    decoded: Array | None,
    before: Array | None,
    weights: Array | None = None,
    spreads: bool = True,
) -> dict[str, Array]:
    """Return the figures of arrays that are made of sums over their components, float64.

    NaN stands for what is not known. `sizes` (int64) are those of the samples. `decoded` is
    ``None`` if nothing was lost, and `before` if nothing is known of the save before. Components
    count by their weights, or equally. Without `spreads`, spread, rms and error are not known.
    """
    starts = np.cumsum(sizes) - sizes
    sums = _sums(values, decoded, before, weights, spreads, starts, sizes)
    if not np.isfinite(sums if spreads else [sums[0], *sums[4:]]).all():
        given = [each for each in (values, decoded, before, weights) if each is not None]
        finite = np.logical_and.reduce([np.isfinite(each) for each in given])
        most = np.maximum.reduceat(np.where(finite, values, -np.inf), starts)
        values = np.where(finite, values, np.repeat(most, sizes))
        decoded, before = (None if e is None else np.where(finite, e, values) for e in (decoded, before))
        weights = np.where(finite, 1 if weights is None else weights, 0)
        sums = _sums(values, decoded, before, weights, spreads, starts, sizes)
    total, around, squares, errors, moved, along = sums
    total = np.where(total > 0, total, np.nan)
    found = {"movement": np.sqrt(moved / total), "error": np.sqrt(errors / total), "lag": -along / moved}
    if spreads:
        squares /= total
        around /= total
        variance = squares - np.square(around)
        close = ~(variance >= _LEAST_VARIANCE * squares)  # of a NaN too
        found["rms"], found["spread"] = np.sqrt(squares), np.sqrt(variance)
        if close.any():
            own = np.repeat(close, sizes)
            counted = None if weights is None else weights[own]
            found["rms"][close], found["spread"][close] = _of_close(sizes[close], values[own], counted)
    return found


def _of_close(sizes: Array, values: Array, weights: Array | None) -> tuple[Array, Array]:
    """Return rms and spread of arrays whose values lie close together, but far from 0."""
    starts = np.cumsum(sizes) - sizes
    x = values.astype(np.float64)
    first = x[starts]
    x -= np.repeat(first, sizes)
    product = x if weights is None else x * weights
    total = sizes if weights is None else np.add.reduceat(weights, starts)
    total = np.where(total > 0, total, np.nan)
    around = np.add.reduceat(product, starts) / total
    squares = np.add.reduceat(product * x, starts) / total
    spread = np.sqrt(squares - np.square(around))
    rms = np.hypot(first + around, spread)
    return rms, np.where(squares != 0, spread, rms)


def _sums(
    values: Array,
    decoded: Array | None,
    before: Array | None,
    weights: Array | None,
    spreads: bool,
    starts: Array,
    sizes: Array,
) -> list[Array]:
    """Return what the figures of arrays are made of: six sums for each array.

    They are those of the weights, of the values and of their squares, of the squares of the errors
    and of the movements, and of the products of these two.
    """
    total, around, squares, errors, moved, along = range(6)
    x = values.astype(np.float64)
    unknown = np.zeros(len(starts)) if spreads else np.full(len(starts), np.nan)
    sums = [sizes.astype(np.float64), unknown, unknown, unknown, *np.zeros((2, len(starts)))]
    if weights is not None:
        sums[total] = np.add.reduceat(weights, starts)
    products: list[tuple[int, Array, Array, Array | None]] = []  # the last use of an array overwrites it
    if decoded is not None:
        error = decoded.astype(np.float64)
        error -= x
    if before is not None:
        movement = before.astype(np.float64)
        np.subtract(x, movement, out=movement)
        if decoded is not None:
            products.append((along, error, movement, None))
        products.append((moved, movement, movement, movement))
    if decoded is not None and spreads:
        products.append((errors, error, error, error))
    if spreads:
        sums[around] = np.add.reduceat(x if weights is None else x * weights, starts)
        products.append((squares, x, x, x))
    for number, left, right, out in products:
        product = np.multiply(left, right, out=out)
        if weights is not None:
            np.multiply(product, weights, out=product)
        sums[number] = np.add.reduceat(product, starts)
    return sums


_LARGEST: Final = np.float32(255 * 2.0**120)  # the largest number of bfloat16


@np.errstate(all="ignore")
def rounded_figures(since: int | None, numbers: Mapping[str, Array]) -> StoredFigures | None:
    """Return figures from float64 numbers by array, NaN where they are not known.

    Figures that know nothing are left out. So is how values lie that a restore returns as they
    were: that can be measured any time. The result is ``None`` if nothing is left.
    """
    names = [name for name in FIGURES if name in numbers]
    # All are rounded together: a checkpoint has ten figures, most of a few numbers.
    single = np.concatenate([np.ravel(numbers[name]) for name in names], dtype=np.float32)
    np.minimum(single, _LARGEST, out=single)
    np.maximum(single, -_LARGEST, out=single)
    patterns = narrow(single)
    patterns[np.isnan(single)] = UNKNOWN_PATTERN
    patterns[patterns == NEGATIVE_ZERO] = 0  # also what was too small for a number below 0
    stored: dict[str, bytes] = {}
    stop, lost = 0, np.zeros(0, bool)
    for name in names:
        start, stop = stop, stop + numbers[name].size
        own = patterns[start:stop].reshape(numbers[name].shape)
        if name in OF_LOST:
            own = own[lost] if lost.any() else own[:0]
        elif name == "error":
            lost = have_lost(own)
        if (own != UNKNOWN_PATTERN).any():
            stored[name] = stored_bytes(own.reshape(-1))
    if not stored:
        return None
    return StoredFigures(None if OF_MOVEMENT.isdisjoint(stored) else since, stored)


def add_past(arrays: Sequence[Candidate], sampling: Sampling, before: Samples) -> None:
    """Give weights and second moments a sample of what they were at the save before."""
    for c, distance in zip(arrays, sampling.distances, strict=True):
        wanted = c.role in ("weight", "second_moment") and not c.inherited
        found = before.even.get(c.name) if wanted else None
        if found is not None and c.reference is not None and found.size == -(-c.bits.size // distance):
            c.past = Past(distance, found)


def movements(arrays: Sequence[Candidate], now: Samples, before: Samples) -> dict[str, float]:
    """Return how far arrays moved between two states, by their even samples: root mean squares.

    Arrays that were not there before, or had another shape, are not among them.
    """
    found = {}
    with np.errstate(all="ignore"):
        for c in arrays:
            past, own = before.even.get(c.name), now.even.get(c.name)
            if past is None or own is None or past.shape != own.shape or past.dtype != own.dtype:
                continue
            d = work(own, c.kind).astype(np.float64) - work(past, c.kind)
            d = d[np.isfinite(d)]
            found[c.name] = math.sqrt(float(np.square(d).mean())) if d.size else 0.0
    return found
