"""Uniform bins around a dead zone, fitted to each array of a batch, and what stands for them.

Representatives lie at the means of bins, ahead of them, or are larger. Means leave the least
squared error. A run that resumes feels other things first: what trails, and what is lost.

Sources: SPEC 7.7; Sullivan, "Efficient scalar quantization of exponential and Laplacian random
variables", IEEE Trans. Inf. Theory 42 (1996) (dead zone with centroids). The measurements are in
``spec/decisions/0010-unbiased-representatives.md`` and ``0015-presets-by-promise.md``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import numpy as np

from ..constants import ElementType
from ..element_types import Array, unwork, work
from ..loops.partitions import zigzags
from ..loops.search import largest, tally
from ..loops.whole import STRETCHES, Parts, Tally, has_loops, miss_whole, settle_whole, tally_whole
from ..parallel import PIECE, cached_property
from .base import DEAD_ZONE, Settles
from .residual import Outside, Owner, Residual, Zone, array_sums

_EDGE_EPSILONS: Final = 2  # of the quotient that says in which bin an element lies
_LEAD_RATIO: Final = 0.75  # of the zone: see `lead`
MAX_GAIN: Final = 2.0  # see `gain`
_GAIN_STEPS: Final = 64.0  # gains are rounded to so many to 1: the same on every machine


def lead(share: Array, dead_zone: float = DEAD_ZONE) -> Array:
    """Return how far representatives lie beyond the means, in steps.

    Means leave the least squared error, but in a chain of deltas they leave a state that trails:
    an element that keeps moving waits in the dead zone, is coded, has caught up, and waits again.
    So it is behind all the time, and a run that resumes goes back in time. Beyond the mean by a
    distance s, with a zone that ends at z, an element starts ahead instead. If it moves steadily,
    it is right on average at ``s = z``, less half of what it moves between two deltas. If it moves
    at random, with variance 1 between two deltas, it trails by ``(z - s)**2 / 6`` intervals, its
    squared error is ``(z**2 + s**2) / 6``, and a share ``1 / (z**2 - s**2)`` is coded each time. So
    a lead of three quarters of the zone leaves a 16th of the lag.

    Parameters
    ----------
    share
        Share of each array's elements that is outside the dead zone. If many are, elements move
        farther between two deltas than the zone is wide, and means are right on average.
    dead_zone
        Where the zone ends, in steps.
    """
    inside = np.maximum(1 - share, 0)
    # A root is the same number on every machine. A power may not be.
    steps: Array = _LEAD_RATIO * dead_zone * (inside * np.sqrt(inside))
    return steps


def gain(inside: Array, along: Array) -> Array:
    """Return the factor by which representatives are larger than the means.

    A first moment is a step that the optimizer has yet to take, spread over the next updates. What
    lies in the zone is a part of it that is lost: the run falls behind. With representatives that
    are larger by this factor, the decoded moment reaches as far as the original, along the
    original. Squared errors are larger, but the run that goes on feels the lost step first.

    `inside` is the sum of the squares of each array's elements in the zone, `along` that of the
    products of the elements outside and the means of their bins.
    """
    wanted = 1 + np.divide(inside, along, out=np.zeros(inside.shape), where=along > 0)
    rounded: Array = np.round(np.minimum(wanted, MAX_GAIN) * _GAIN_STEPS) / _GAIN_STEPS
    return rounded


def representatives(
    codes: Array,
    steps: Array,
    ahead: Array,
    sums: Array,
    counts: Array,
    max_error: float | None,
    kind: ElementType | None,
    dead_zone: float = DEAD_ZONE,
) -> Array:
    """Return the representatives of bins, float64: their means, moved by the lead (`ahead`).

    Under a bound they are numbers of the element type that have the bound for the whole bin. An
    element may be coded again and again, each time in the company of others. As long as it stays in
    its bin, it has the bound for what it was at first. If a bin has no such number, its only
    representative is the one next to its middle.

    `max_error` is the largest distance from the representative to an edge of the bin, in the units
    of all lengths here. `kind` is given if bins are of numbers of an element type. Half the dead
    zone is `dead_zone`, in steps.
    """
    index = (codes >> 1) ^ -(codes & 1)  # bin number with its sign
    sign, number = np.sign(index), np.abs(index)
    mean: Array = np.divide(sums, counts, out=(number + dead_zone - 0.5) * steps * sign, where=counts > 0)
    mean += ahead * sign
    if max_error is None:
        return mean
    if kind is None:
        edges = (number + dead_zone) * steps, (number + dead_zone - 1) * steps
        clipped: Array = np.clip(np.abs(mean), edges[0] - max_error, edges[1] + max_error) * sign
        return clipped
    # The bin of an element beside an edge depends on the rounding of its quotient.
    width = np.promote_types(kind.work, np.float32)
    slack = _EDGE_EPSILONS * float(np.finfo(width).eps) * (number + 1) * steps
    far, near = (number + dead_zone) * steps + slack, (number + dead_zone - 1) * steps - slack
    low, high = far - max_error, near + max_error
    chosen = _rounded(np.clip(np.abs(mean), low, high), kind)
    middle = _rounded((far + near) / 2, kind)
    within: Array = np.where((chosen >= low) & (chosen <= high), chosen, middle) * sign
    return within


def _rounded(numbers: Array, kind: ElementType) -> Array:
    """Return numbers as an element type has them, float64."""
    with np.errstate(over="ignore"):
        rounded: Array = work(unwork(numbers.astype(np.promote_types(kind.work, np.float32)), kind), kind)
        return rounded.astype(np.float64)


_MAX_BINS_PER_SIDE: Final = (1 << 15) - 1  # so that symbols fit 16 bits

_MIN_PIECES_FOR_MEANS: Final = 16  # of a large array: the means are estimated on as many or more

#: About how many bits the sign and the exponent of a number take if it is stored exactly.
_SIGN_AND_EXPONENT_BITS: Final = 4

#: The outermost bins are left out if that saves enough. It must save this many representatives (in
#: a small array, in a large array) and lower the cost to this ratio. Otherwise the outermost bins
#: belong to the tail of the distribution, and hold no outliers.
_MIN_SAVED_REPRESENTATIVES: Final = (8, 64)
_MAX_COST_RATIO: Final = 0.75


def fit_grid(
    batch: Residual,
    steps: Array,
    max_error: float | None,
    beyond: Outside | None = None,
    *,
    leads: bool = False,
    gains: bool = False,
    dead_zone: float = DEAD_ZONE,
) -> Grid | None:
    """Fit uniform bins with a dead zone to each array of a batch; ``None`` to store all exactly.

    All are stored exactly where that is at least as small, and each whose step (`steps`, float64)
    is too small or infinite. `max_error` is as in `Partition`, `beyond` as in `Zone`. With `leads`,
    representatives lie beyond the means, so that a chain of deltas does not trail. With `gains`,
    and no `max_error`, they are larger, so that they also stand for the elements in the zone
    (`gain`). Half the dead zone is `dead_zone`, in steps.
    """
    kind = batch.kind
    finest = float(np.finfo(np.promote_types(kind.work, np.float32)).tiny) * 4
    usable = (steps >= finest) & (steps < math.inf)  # so that the reciprocal is finite
    if not usable.any():
        return None
    steps = np.where(usable, steps, 1.0)
    # The computed difference is rounded. A zone slightly inside the error bound makes sure that the
    # exact difference is inside the bound too.
    reach = dead_zone * steps
    if max_error is not None:
        reach[:] = max_error * (1 - 2.0 ** (1 - kind.mantissa))
    zone = Zone.within(reach * usable, kind.work, beyond)
    most, tallies = np.zeros(batch.arrays), _Tallies()
    searched, passes = batch.pieces, _has_passes(batch, zone)
    if passes and batch.is_shifted:  # what is found now is not used again
        searched = _sampled_pieces(batch)
    for start in batch.pieces:
        if start in tallies.starts:
            continue
        if batch.arrays > 1:
            d, owner = batch.finite_outside(start, zone)
            np.maximum.at(most, owner, np.abs(d).astype(np.float64))
            continue
        operands = batch.operands(start)
        if start in searched:
            d = batch.outside(start, zone)[1]
            operands = d, d[:0]
        top = largest(*operands)
        if not top < math.inf:
            d = batch.outside(start, zone)[1]
            top = largest(d[np.isfinite(d)], d[:0])
        most[0] = max(most[0], top if top >= zone.high[0] else 0)
        if passes and start == 0 and d.size > _WHOLE_SHARE * PIECE:
            tallies = _tallied(batch, zone, steps, dead_zone, gains)
            most[0] = max(most[0], tallies.largest)
            searched = tallies.starts or searched
    if beyond is not None and most.any():
        most = np.maximum(most, dead_zone * steps)  # at least one bin
    # Slightly more than the largest difference, so that rounding puts no element past the last bin.
    with np.errstate(over="ignore"):
        wanted = most / steps * (1 + 1e-6) + 1 - dead_zone
    wanted = np.where(usable, np.minimum(wanted, _MAX_BINS_PER_SIDE), 0).astype(np.int64)
    bins = np.minimum(wanted, np.maximum(batch.sizes // 2, 4))
    grid = Grid(steps, bins, ~usable, np.empty(0, kind.work), zone, max_error, dead_zone)
    return _with_representatives(grid, batch, wanted, tallies.of_pieces, leads, gains)


_WHOLE_SHARE: Final = 1 / 4  # outside the zone, from which on passes over all take less than a search
_NO_WINDOW: Final = np.zeros(0, np.uint64)


@dataclass(frozen=True, eq=False)
class _Tallies:
    """What passes over all of some pieces have found."""

    starts: range = range(0)  # the pieces, by their first components
    largest: float = 0.0
    of_pieces: Mapping[int, Tally] = field(default_factory=dict)  # by which means are estimated


def _has_passes(batch: Residual, zone: Zone) -> bool:
    """Return whether loops pass over all differences at once."""
    is_simple = zone.beyond is None and batch.arrays == 1 and not batch.ordered
    return is_simple and zone.low.dtype.itemsize >= 4 and has_loops()


def _tallied(batch: Residual, zone: Zone, steps: Array, dead_zone: float, gains: bool) -> _Tallies:
    """Return what there is in the sampled pieces but the first, of one array with much outside.

    There is nothing if some differences are not finite, or a byte has not enough symbols for them.
    """
    bins = Parts(_NO_WINDOW, 0, zone.low[0], zone.high[0], _per_unit(steps, zone)[0], 0.0, dead_zone)
    pieces, top, found = _sampled_pieces(batch)[1:], 0.0, dict[int, Tally]()
    for start in pieces[::STRETCHES]:
        values = batch.operands(start, count=(STRETCHES - 1) * pieces.step + PIECE)
        some = tally_whole(*values, bins, PIECE, pieces.step, with_squares=gains)
        if some is None:
            return _Tallies()
        top = max(top, *(each.largest for each in some))
        found |= zip(range(start, batch.bits.size, pieces.step), some, strict=False)
    return _Tallies(pieces, top, found)


def _sampled_pieces(batch: Residual) -> range:
    """Return the pieces by which means are estimated."""
    return batch.pieces[:: max(len(batch.pieces) // _MIN_PIECES_FOR_MEANS, 1)]


@dataclass(frozen=True, eq=False)
class Grid:
    """The partition of a batch into uniform bins around a dead zone, as `Partition`."""

    steps: Array  # width of the bins of each array, float64
    bins: Array  # on either side of each array's zone, int64; bin j of sign s has symbol zigzag(s * j)
    exact: Array  # whether each array is stored exactly, bool
    representatives: Array
    zone: Zone
    max_error: float | None
    dead_zone: float = DEAD_ZONE

    @cached_property
    def counts(self) -> Array:
        """Return the number of representatives of each array."""
        return 2 * self.bins

    @cached_property
    def codes(self) -> Array:
        """Return the symbol of each representative."""
        first = np.cumsum(self.counts) - self.counts
        codes: Array = np.arange(1, int(self.counts.sum()) + 1) - np.repeat(first, self.counts)
        return codes

    @cached_property
    def _reciprocals(self) -> Array:
        return _per_unit(self.steps, self.zone)

    @cached_property
    def _ends(self) -> Array:
        """Where the last bin ends: in steps behind the zone, plus 1; 0 for an exact array."""
        return np.where(self.exact, 0, self.bins + 1)

    def symbols(self, differences: Array, owner: Owner) -> tuple[Array, Array | None]:
        """Return zigzag bin numbers: uint8 for up to 127 bins a side, uint16 for more."""
        # Differences in a narrowed zone go to the first bin.
        narrowed, wide = self.zone.beyond is not None, int(self.bins.max()) > 127
        reciprocals, ends = self._reciprocals[owner], self._ends[owner]
        return zigzags(differences, reciprocals, ends, self.dead_zone, wide, narrowed)

    @cached_property
    def _parts(self) -> Parts | None:
        """The bins of one array for loops that pass over all; ``None`` if none are compiled."""
        work = self.zone.low.dtype
        if self.zone.beyond is not None or work.itemsize < 4 or self.bins.size > 1 or not has_loops():
            return None
        zone, end = (self.zone.low[0], self.zone.high[0]), float(self._ends[0])
        return Parts(_NO_WINDOW, 0, *zone, self._reciprocals[0], end, self.dead_zone)

    @property
    def settles(self) -> Settles | None:
        """What codes a whole piece; see `Partition`."""
        return self._parts and partial(settle_whole, parts=self._parts)

    @property
    def misses(self) -> Callable[..., tuple[Array, Array]] | None:
        """What says what the differences of a whole piece would miss; see `Partition`."""
        return self._parts and partial(miss_whole, parts=self._parts)


def _per_unit(steps: Array, zone: Zone) -> Array:
    """Return the steps for each unit, of the type in which bins are computed."""
    return (1 / steps).astype(np.promote_types(zone.low.dtype, np.float32))


def _with_representatives(
    grid: Grid, batch: Residual, wanted: Array, tallies: Mapping[int, Tally], leads: bool, gains: bool
) -> Grid | None:
    """Return a grid with representatives; ``None`` if exact storage of all arrays is smaller.

    The means of a large array are estimated on evenly spread pieces. Outermost bins are left out if
    storing their few elements exactly takes less. `wanted` is the number of bins on either side
    that would reach the largest difference of each array. `tallies` are those of some pieces.
    """
    firsts = np.cumsum(grid.counts) - grid.counts + np.arange(batch.arrays)  # index of each array's symbol 0
    total = int(grid.counts.sum()) + batch.arrays
    sums, counts, past = np.zeros(total), np.zeros(total), np.zeros(batch.arrays)
    inside = np.zeros(batch.arrays)  # sums of squares
    unit = 2.0**-64 if float(grid.steps.max()) > 2.0**900 else 1.0  # so that sums do not overflow
    starts = _sampled_pieces(batch)
    stride = starts.step // PIECE
    for start in starts:
        known = tallies.get(start)
        if known is not None and unit == 1 and not known.counts[total:].any():
            counts[: known.counts.size] += known.counts[:total]
            sums[: known.sums.size] += known.sums[:total]
            inside += known.squares  # 0 if no gain is wanted
            continue
        d, owner = batch.finite_outside(start, grid.zone)
        symbols, outside = grid.symbols(d, owner)
        if outside is not None:
            past += array_sums(outside, owner, batch.arrays)
        if gains:
            inside += batch.squares_inside(start, grid.zone, unit)
        places = symbols if isinstance(owner, int) else symbols + firsts[owner]
        number, added = tally(places, d, unit, total)
        counts += number
        sums += added
    own = np.ones(total, bool)
    own[firsts] = False  # symbol 0 has no bin
    sums, counts = sums[own], counts[own]
    arrays = np.repeat(np.arange(batch.arrays), grid.counts)
    moved = past + np.bincount(arrays, counts, minlength=batch.arrays)
    ahead = lead(stride * moved / batch.sizes, grid.dead_zone) * grid.steps * leads
    bins, spared = _worthwhile(stride * counts, stride * past, grid.bins, batch.sizes)
    doubtful = (bins > 127) | (bins < wanted)
    exact = grid.exact.copy()
    if doubtful.any():
        exact |= doubtful & _too_large(stride * counts, bins, spared, grid, batch)
    if exact.all():
        return None
    bins = np.where(exact, 0, bins)
    kept = grid.codes <= np.repeat(2 * bins, grid.counts)
    zone = grid.zone
    if (exact & ~grid.exact).any():
        zone = Zone(zone.low * ~exact, zone.high * ~exact, zone.beyond)
        batch.forget()  # the zones of the arrays that are exact now became smaller
    grid = replace(grid, bins=bins, exact=exact, zone=zone)
    steps, ahead = (np.repeat(lengths * unit, grid.counts) for lengths in (grid.steps, ahead))
    bound = None if grid.max_error is None else grid.max_error * unit
    numbers = None if batch.ordered else batch.kind
    chosen = representatives(
        grid.codes, steps, ahead, sums[kept], counts[kept], bound, numbers, grid.dead_zone
    )
    if gains:
        held, number = sums[kept], np.maximum(counts[kept], 1)
        owners = np.repeat(np.arange(batch.arrays), grid.counts)
        along = np.bincount(owners, np.square(held) / number, minlength=batch.arrays)
        chosen *= gain(inside, along)[owners]
    with np.errstate(over="ignore"):  # a bin without elements may overflow
        return replace(grid, representatives=(chosen / unit).astype(batch.kind.work))


def _worthwhile(held: Array, past: Array, bins: Array, sizes: Array) -> tuple[Array, Array]:
    """Return the best number of bins on either side, and the number of elements past them.

    A bin on both sides takes two representatives in the codebook. An element past the last bin is
    stored exactly and takes about as much as one representative. `held` is the number of elements
    in each bin, array by array in the order of the symbols, and `past` that past all bins of each
    array.
    """
    if 2 * int(bins.max()) < _MIN_SAVED_REPRESENTATIVES[0]:
        return bins, past
    pairs = held.reshape(-1, 2).sum(axis=1)
    ends = np.cumsum(bins)
    starts = ends - bins
    # The cost of each number of bins, less the cost of no bins at all.
    costs = np.cumsum(2 - pairs)
    costs -= np.repeat(np.append(0, costs)[starts], bins)
    some = bins > 0
    least = np.zeros(bins.size)
    least[some] = np.minimum.reduceat(costs, starts[some])
    least = np.minimum(least, 0)
    at_least = np.flatnonzero(costs <= np.repeat(least, bins))
    owners = np.searchsorted(ends, at_least, "right")
    best = np.zeros(bins.size, np.int64)
    best[owners[::-1]] = (at_least - starts[owners] + 1)[::-1]  # reversed: the smallest number of bins wins
    best[least == 0] = 0
    within = np.append(0, np.cumsum(pairs))
    elements = past + within[ends] - within[starts]
    all_cost = elements + 0.0
    all_cost[some] += costs[ends[some] - 1]
    saved = all_cost - (elements + least)
    enough = saved >= np.clip(sizes >> 10, *_MIN_SAVED_REPRESENTATIVES)
    worth = enough & (elements + least <= _MAX_COST_RATIO * all_cost)
    best = np.where(worth, best, bins)
    return best, elements - (within[starts + best] - within[starts])


def _too_large(held: Array, bins: Array, spared: Array, grid: Grid, batch: Residual) -> Array:
    """Return which arrays take more bytes with bins than exactly, by the entropy of their symbols.

    `held` is the number of elements in each bin of `grid`; `bins` is how many are kept on either
    side of each array, and `spared` the number of elements past them.
    """
    owner = np.repeat(np.arange(batch.arrays), grid.counts)
    counts = np.where(grid.codes <= 2 * bins[owner], held, 0)
    others = np.maximum(batch.sizes - spared - np.bincount(owner, counts, minlength=batch.arrays), 0)
    totals = np.bincount(owner, counts, minlength=batch.arrays) + others + spared
    bits = -np.bincount(owner, _information(counts, totals[owner]), minlength=batch.arrays)
    bits -= _information(others, totals) + _information(spared, totals)
    bits += 8 * batch.kind.size * (2 * bins + spared)
    too_large: Array = bits > batch.sizes * (batch.kind.mantissa + _SIGN_AND_EXPONENT_BITS)
    return too_large


def _information(counts: Array, totals: Array) -> Array:
    """Return ``counts * log2(counts / totals)``, and 0 where a count is 0."""
    shares = np.divide(counts, totals, out=np.ones(counts.shape), where=counts > 0)
    information: Array = counts * np.log2(shares)
    return information
