"""Figures: what a save measures of a state, and of what a restore of its checkpoint will return.

They say how arrays are spread, how far they moved, and what their restored values lost. Only the
save has both a state and what a restore returns. It compares them on a sample of each floating
point array, and keeps that of the state for the next save. Only extremes, and what is not finite,
are looked for in all elements: a single one matters.

A save keeps a sample of its state for the next one (:mod:`lccodec.chain.save.reference`).

The figures of many arrays of one type are made at once, from sums over their samples. Numbers of a
batch lie end to end, array after array. An element that is not finite, here or in what it is
compared with, counts in no sum.

Source: SPEC 8 (LCC-FIG-05).
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

import numpy as np

from ...byteorder import stored_bytes
from ...container.figures import (
    FIGURES,
    NEGATIVE_ZERO,
    OF_LOST,
    OF_MOVEMENT,
    QUANTILES,
    UNKNOWN_PATTERN,
    StoredFigures,
    have_lost,
)
from ...element_table import ElementType
from ...element_types import Array, narrow, work
from ...parallel import slices
from ...policy.policy import Candidate, Past
from ..read.replay import DecodedArray
from .sampling import NOTHING, PIECE, Batch, Drawn, SampledGroup, Samples, Sampling

_OF_STATE: Final = ("spread", "rms", "error")  # need no save before
_OF_MOVEMENT: Final = ("movement", "lag")
_BELOW_ONE: Final = 1 - 2**-8  # the largest bfloat16 number below 1


@dataclass(frozen=True, eq=False)
class _MeasuredGroup:
    """Arrays that are measured together.

    Parameters
    ----------
    sampled
        Which they are.
    arrays
        The arrays.
    batch
        Their samples.
    loses
        Whether one of them may lose something.
    past
        Their samples at the save before, if that had the same arrays.
    kind
        Their type.
    """

    sampled: SampledGroup
    arrays: Sequence[Candidate]
    batch: Batch
    loses: bool
    past: Batch | None
    kind: ElementType


class Measurement:
    """Measures what a checkpoint makes of a state, from a sample that is taken before it is coded.

    Parameters
    ----------
    arrays
        The arrays of the state.
    sampling
        Which of their components are sampled.
    losing
        The indices of the arrays that may lose something.
    before
        Samples of the state of the save before, as far as they are known.

    Attributes
    ----------
    samples
        What is sampled of the arrays that are saved.
    is_partial
        Whether the save leaves out some arrays.
    """

    def __init__(
        self,
        arrays: Sequence[Candidate],
        sampling: Sampling,
        losing: AbstractSet[int] = frozenset(),
        before: Samples = NOTHING,
    ) -> None:
        self._count = len(arrays)
        self._sampling = sampling
        self._before = before
        self._groups: list[_MeasuredGroup] = []
        self._drawn: dict[str, Drawn] = {}
        self._again: dict[str, Array] = {}  # components that were drawn at the save before
        self._extremes: dict[int, tuple[int, int, int]] = {}  # of arrays that are not sampled whole
        same = before.sampling is sampling
        self.is_partial = not same and any(c.inherited for c in arrays)
        for number, every in enumerate(sampling.groups):
            group = every
            if self.is_partial:
                group = every.of([p for p, index in enumerate(every.indices) if not arrays[index].inherited])
            if not group.indices:
                continue
            own = [arrays[index] for index in group.indices]
            if group.is_whole:
                bits = np.concatenate([c.bits for c in own])
            else:
                taken = [self._taken(index, arrays[index], index in losing) for index in group.indices]
                bits = np.concatenate(taken)
            past = before.batches[number] if same else None
            batch = Batch([c.name for c in own] if past is None else past.names, group.sizes, bits)
            loses = bool(losing) and not losing.isdisjoint(group.indices)
            self._groups.append(_MeasuredGroup(group, own, batch, loses, past, own[0].kind))
        batches = [group.batch for group in self._groups]
        self.samples = Samples(batches, self._drawn, None if self.is_partial else sampling)

    def _taken(self, index: int, c: Candidate, loses: bool) -> Array:
        """Return the sample of an array at equal distances.

        While the array is in the cache, all else is taken of it that is needed.
        """
        distance = self._sampling.distances[index]
        if distance == 1:
            return c.bits
        ends = Extremes(c.kind)
        look = ends.add if loses else np.asarray
        pieces = (look(c.bits[part]) for part in slices(c.bits.size, PIECE))
        if index in self._sampling.drawn:
            even = c.bits[::distance].copy()
            found = Drawn.of_parts(even, pieces, c.bits.size, c.kind, distance)
            if found is not None:
                self._drawn[c.name] = found
            past, known = self._before.drawn.get(c.name), self._before.even.get(c.name)
            if past is not None and known is not None and known.size == even.size:
                self._again[c.name] = past.again(c.bits)
        else:
            deque(pieces, 0)
            even = c.bits[::distance].copy()
        if loses:
            self._extremes[index] = ends.found()
        return even

    def figures(
        self,
        decoded: Mapping[str, DecodedArray],
        since: int | None,
        inherited: Mapping[str, Array] = MappingProxyType({}),
    ) -> StoredFigures | None:
        """Return the figures of the checkpoint.

        Parameters
        ----------
        decoded
            The arrays as a restore returns them, by name.
        since
            The step of the save before.
        inherited
            By name, the figures of arrays that the save leaves out.
        """
        columns = {name: np.full(self._count, np.nan) for name in FIGURES}
        columns["quantiles"] = np.full((self._count, len(QUANTILES)), np.nan)
        columns.update(inherited)
        for group in self._groups:
            found = (self._of_drawn if group.sampled.draws else self._of_even)(group, decoded)
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
        return rounded_figures(since, columns)

    def _descriptions(self, group: _MeasuredGroup, places: Array) -> dict[str, Array]:
        """Return how the values lie of those arrays of a group that lost something."""
        sizes, bits = group.batch.sizes, group.batch.bits
        if places.size < sizes.size:
            lost = np.zeros(sizes.size, bool)
            lost[places] = True
            bits, sizes = bits[np.repeat(lost, sizes)], sizes[places]
        found = descriptions(sizes, work(bits, group.kind))
        indices = [group.sampled.indices[place] for place in places.tolist()]
        large = [number for number, index in enumerate(indices) if index in self._extremes]
        if large:
            low, high, bad = zip(*(self._extremes[indices[number]] for number in large), strict=True)
            found["minimum"][large] = work(np.array(low, group.kind.bits), group.kind)
            found["maximum"][large] = work(np.array(high, group.kind.bits), group.kind)
            found["not_finite"][large] = bad
        return found

    def _decoded(self, group: _MeasuredGroup, decoded: Mapping[str, DecodedArray]) -> Array | None:
        """Return the samples as a restore returns them; ``None`` if nothing was lost."""
        if not group.loses:
            return None
        return self._sampling.joined(group.sampled, [decoded[c.name].bits for c in group.arrays])

    def _of_even(self, group: _MeasuredGroup, decoded: Mapping[str, DecodedArray]) -> dict[str, Array]:
        batch, kind = group.batch, group.kind
        known, past = _past(group, self._before)
        after = self._decoded(group, decoded)
        found = first_figures(
            batch.sizes,
            work(batch.bits, kind),
            None if after is None else work(after, kind),
            None if past is None else work(past, kind),
        )
        for name in _OF_MOVEMENT if past is None or not known.all() else ():
            found[name] = np.where(known, found[name], np.nan)
        return found

    def _of_drawn(self, group: _MeasuredGroup, decoded: Mapping[str, DecodedArray]) -> dict[str, Array]:
        own = dict(group.batch.each())
        after = self._decoded(group, decoded)
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
        values, after, sampled = (
            work(np.concatenate(bits), group.kind) for bits in (x, d if group.loses else x[:1], p)
        )
        distances = np.array([self._sampling.distances[group.sampled.indices[place]] for place in places])
        counted = _counts(np.array(sizes), distances, np.array(rates), sampled)
        past = None if before is None else sampled
        return first_figures(
            np.array(sizes), values, after if group.loses else None, past, counted, spreads=before is None
        )


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
    batch = group.batch
    if group.past is not None:
        return np.ones(len(group.arrays), bool), group.past.bits
    fits = [c.reference is not None for c in group.arrays]
    known = np.array(fits)
    there = before.like(batch)
    if there is not None and all(fits):
        return known, there.bits
    bits = []
    for place, (name, now) in enumerate(batch.each()):
        past = before.even.get(name) if fits[place] else None
        known[place] = past is not None and past.size == now.size
        bits.append(past if past is not None and known[place] else now)
    return known, np.concatenate(bits) if known.any() else None


class Extremes:
    """Finds the extremes of an array that comes in pieces.

    The patterns of floating point numbers have the order of their magnitudes, and two passes over
    integers are as fast as memory.
    """

    def __init__(self, kind: ElementType) -> None:
        self._kind = kind
        self._sign = 1 << (8 * kind.size - 1)
        self._infinite = self._sign - (1 << kind.mantissa)
        self._ends: list[int] = []  # patterns
        self._bad = 0

    def add(self, piece: Array) -> Array:
        """Look at a piece, and return it."""
        low, high = _ends(piece, self._sign)
        if low & (self._sign - 1) < self._infinite and high & (self._sign - 1) < self._infinite:
            self._ends += (low, high)
            return piece
        finite = piece[(piece & piece.dtype.type(self._sign - 1)) < self._infinite]
        self._bad += piece.size - finite.size
        if finite.size:
            self._ends += _ends(finite, self._sign)
        return piece

    def found(self) -> tuple[int, int, int]:
        """Return the patterns of the least and the greatest finite component, and how many are not.

        Both are those of a NaN if no component is finite.
        """
        if not self._ends:
            return self._infinite + 1, self._infinite + 1, self._bad
        sign = self._sign
        ordered = [end if end < sign else sign - end for end in self._ends]
        low, high = (end if end >= 0 else sign - end for end in (min(ordered), max(ordered)))
        return low, high, self._bad


def _ends(piece: Array, sign: int) -> tuple[int, int]:
    """Return the patterns of the least and of the greatest number; `sign` is that of a negative 0.

    Patterns of negative numbers are above all others, and rise as the numbers fall.
    """
    most = int(np.maximum.reduce(piece))
    if most < sign:
        return int(np.minimum.reduce(piece)), most
    signed = int(np.maximum.reduce(piece.view(f"i{piece.itemsize}")))
    return most, signed if signed >= 0 else int(np.minimum.reduce(piece))


#: The least variance, over the mean of the squares, that the difference of two sums gives rightly.
_LEAST_VARIANCE: Final = 2.0**-30

_MAX_SORTED: Final = 1 << 9  # components of an array: what a share of elements is not above is rough


def starts_of(sizes: Array) -> Array:
    """Return where each array of a batch starts, by the sizes of all."""
    starts: Array = np.cumsum(sizes) - sizes
    return starts


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
    starts = starts_of(sizes)
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
    found = {
        "movement": np.sqrt(moved / total),
        "error": np.sqrt(errors / total),
        "lag": -along / moved,
    }
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
    starts = starts_of(sizes)
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
    x = values.astype(np.float64)
    moved = along = np.zeros(len(starts))
    around = squares = errors = moved if spreads else np.full(len(starts), np.nan)

    def sum_of(a: Array, b: Array, out: Array | None = None) -> Array:
        product = np.multiply(a, b, out=out)
        if weights is not None:
            np.multiply(product, weights, out=product)
        found: Array = np.add.reduceat(product, starts)
        return found

    if decoded is not None:
        error = decoded.astype(np.float64)
        error -= x
    if before is not None:
        movement = before.astype(np.float64)
        np.subtract(x, movement, out=movement)
        if decoded is not None:
            along = sum_of(error, movement)
        moved = sum_of(movement, movement, movement)
    if decoded is not None and spreads:
        errors = sum_of(error, error, error)
    total = sizes.astype(np.float64) if weights is None else np.add.reduceat(weights, starts)
    if spreads:
        around = np.add.reduceat(x if weights is None else x * weights, starts)
        squares = sum_of(x, x, x)
    return [total, around, squares, errors, moved, along]


@np.errstate(all="ignore")
def descriptions(sizes: Array, values: Array) -> dict[str, Array]:
    """Return the figures of the values alone, of samples that may be whole arrays."""
    counts, starts = sizes, starts_of(sizes)
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
    zeros = np.searchsorted(starts, np.flatnonzero(kept == 0), "right") - 1  # of few, as a rule
    return {
        "minimum": low,
        "maximum": high,
        "zeros": np.bincount(zeros, minlength=len(starts)) / counts,
        "not_finite": bad,
        "quantiles": _quantiles(sizes, kept),
    }


def _quantiles(sizes: Array, values: Array) -> Array:
    """Return a row of quantiles for each array; NaN where a value is not finite."""
    starts = starts_of(sizes)
    found = np.empty((len(starts), len(QUANTILES)))
    steps = -(-sizes // _MAX_SORTED)
    lengths = -(-sizes // steps)
    for length in set(lengths.tolist()):  # those of a size are sorted together
        own = np.flatnonzero(lengths == length)
        if own.size * length == values.size:
            rows = values.reshape(-1, length)
        else:
            rows = values[starts[own, None] + np.arange(length) * steps[own, None]]
        ordered = np.sort(rows, axis=1)
        found[own] = ordered[:, [round(share * (length - 1)) for share in QUANTILES]]
        found[own[np.isnan(ordered[:, -1])]] = np.nan
    return found


_LARGEST: Final = np.float32(255 * 2.0**120)  # the largest number of bfloat16


def rounded_figures(since: int | None, numbers: Mapping[str, Array]) -> StoredFigures | None:
    """Return figures from float64 numbers by array, NaN where they are not known.

    Figures that know nothing are left out. So is how values lie that a restore returns as they
    were: that can be measured any time. The result is ``None`` if nothing is left.
    """
    errors = numbers.get("error")
    lost = slice(0) if errors is None or not (errors > 0).any() else have_lost(_rounded(errors))
    known = {}
    for name in FIGURES:
        own = numbers.get(name)
        if own is not None and name in OF_LOST:
            own = own[lost]
        if own is not None and not np.isnan(own).all():
            known[name] = own.reshape(-1)
    if not known:
        return None
    # All are rounded together: a checkpoint has ten figures, most of a few numbers.
    data = stored_bytes(_rounded(np.concatenate(list(known.values()))))
    ends = itertools.accumulate(2 * own.size for own in known.values())
    stored = {
        name: data[stop - 2 * own.size : stop] for (name, own), stop in zip(known.items(), ends, strict=True)
    }
    return StoredFigures(None if OF_MOVEMENT.isdisjoint(known) else since, stored)


@np.errstate(all="ignore")
def _rounded(numbers: Array) -> Array:
    """Return numbers as bfloat16 patterns."""
    single = numbers.astype(np.float32)
    np.minimum(single, _LARGEST, out=single)
    np.maximum(single, -_LARGEST, out=single)
    patterns = narrow(single)
    patterns[np.isnan(single)] = UNKNOWN_PATTERN
    patterns[patterns == NEGATIVE_ZERO] = 0  # also what was too small for a number below 0
    return patterns


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
