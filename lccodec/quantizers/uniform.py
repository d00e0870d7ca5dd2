"""Equal steps with a dead zone: of differences, of the values of keyframes, and by second moments.

**Keyframes.** A keyframe needs no reference, but it need not be exact either. An error of the size
of a delta's error costs a resumed run nothing that could be seen, and takes a tenth of the bytes.
The movement since the last checkpoint says how large that is. The first keyframe of a chain knows
no movement, so its steps are small parts of the values' spread, or finer ones if it is known what
follows.

**Second moments.** Where the curvature of the loss is small, an error does little harm and the zone
is wide. Where the curvature is large, the zone is narrow, so that smaller movements are stored. The
second moment is an estimate of the curvature, as in :class:`lccodec.Balanced`. The decoder does not
need the moments: a movement inside the zone has symbol 0.

Sources: SPEC 7.7; Sullivan, "Efficient scalar quantization of exponential and Laplacian random
variables", IEEE Trans. Inf. Theory 42 (1996) (dead zone with centroids); ExCP (Li et al., ICML
2024), section 3.2 (joint pruning of weights by their second moments);
``spec/decisions/0008-joint-pruning.md``, ``spec/decisions/0011-lossy-keyframes.md``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final

import numpy as np

from ..constants import ElementType
from ..element_types import Array, work
from ..errors import ArgumentError, check_bool, positive
from ..loops.search import Marked, outside_weighted
from ..parallel import PIECE
from .base import DEAD_ZONE, Guarantee, Lossless, Quantizer
from .grid import MAX_GAIN, Grid, fit_grid
from .residual import Owner, Residual, array_sums, root_mean_square

_SIZES: Final = ("step", "max_error", "relative_step", "share")

# A few outliers must not set the step of all other elements.
_OUTLIER_SQUARE_SHARE: Final = 1 / 16  # of the sum of squares: a difference with more is an outlier
_MIN_NONZERO_DIFFERENCES: Final = 1 << 14  # fewer are too few to find outliers among them
_MAX_OUTLIERS: Final = 64

_MAX_SHARE: Final = 0.95  # that a limit of the step leads to
_MAX_STEP_SPREADS: Final = 1.0  # of a `share`: the step in units of the spread of the values

_SIZED_COMPONENTS: Final = 1 << 10  # of each stretch of the sample of a large array
_EDGE_EPSILONS: Final = 4  # from a size to an edge of the zone beside it: rounding moves it by less


@dataclass(frozen=True)
class UniformDeadzone(Quantizer):
    """Equal steps with a dead zone on either side of 0, of 0.6 steps if nothing else is given.

    With a reference, the representative of a bin lies beyond the mean of its differences, so that
    what a chain of deltas decodes to does not trail what was saved. That leaves a larger squared
    error than means, in as many bytes; a training run that resumes feels the lag, and not the
    error. Without a reference, a bin decodes as its mean.

    Exactly one of `step`, `max_error`, `relative_step` and `share` must be given.

    Parameters
    ----------
    step
        Width of a bin, in the units of the array.
    max_error
        Bound on ``|decoded - original|`` of every element, after rounding to the array's type. An
        element that would break the bound is stored exactly. The step is ``max_error / 0.6``.
    relative_step
        The step as a multiple of the root mean square of the differences. In a large array this is
        estimated on evenly spread pieces, without the few differences that outweigh all others.
        Above 3, errors in a chain may grow without limit.
    share
        The share of the differences that lie outside the dead zone, of those that are not 0; below
        1. The step of each array follows from it, by a sample; in a delta it is at most the spread
        of the values. All deltas of a chain then take about as many bytes, and errors settle: at
        about one movement for a share of 0.3, at three and more for 0.06. In a delta, a matrix
        keeps the sums of its rows or columns.
    absolute
        Whether to quantize the values themselves, without a reference. This is for arrays that
        forget their past between two checkpoints, such as first moments. A value then decodes as 0,
        or as a number of the same sign and at most 16/3 times its size; with another dead zone z,
        2 (1 + z) / z times. With a relative step or a share, those that are not 0 are larger by up
        to a factor of 2, and stand for those that are.
    dead_zone
        Where the dead zone ends, in steps; only with a `relative_step`. A narrow one keeps the
        signs of small values, and little of the sizes of large ones.

    Raises
    ------
    ArgumentError
        Unless exactly one of `step`, `max_error`, `relative_step` and `share` is given, positive
        and finite, and the share is below 1; for another `dead_zone` without a `relative_step`.
    """

    step: float | None = None
    max_error: float | None = None
    relative_step: float | None = None
    absolute: bool = False
    share: float | None = field(default=None, kw_only=True)
    dead_zone: float = field(default=DEAD_ZONE, kw_only=True)

    def __post_init__(self) -> None:
        given = [value for value in map(self.__getattribute__, _SIZES) if value is not None]
        if len(given) != 1:
            raise ArgumentError(f"UniformDeadzone: give exactly one of {', '.join(_SIZES)}")
        number = positive("UniformDeadzone: the step or bound", given[0])
        if self.share is not None and number >= 1:
            raise ArgumentError(f"UniformDeadzone: the share must be below 1; got {self.share!r}")
        for name in _SIZES:
            if getattr(self, name) is not None:
                object.__setattr__(self, name, number)
        check_bool("UniformDeadzone: absolute", self.absolute)
        object.__setattr__(self, "dead_zone", positive("UniformDeadzone: dead_zone", self.dead_zone))
        if self.dead_zone > 1 or (self.dead_zone != DEAD_ZONE and self.relative_step is None):
            raise ArgumentError("UniformDeadzone: another dead_zone needs a relative_step, and is at most 1")

    @property
    def is_relative(self) -> bool:
        """Whether the step follows from the differences."""
        return self.relative_step is not None or self.share is not None

    @property
    def guarantee(self) -> Guarantee:
        """The bound of the error; of values themselves, their sign and how far they may grow."""
        if not self.absolute or self.max_error is not None:
            return Guarantee(max_error=self.max_error)
        # A value that is coded lies in a bin; the first one begins where the zone ends.
        return Guarantee(max_growth=MAX_GAIN * (self.dead_zone + 1) / self.dead_zone)

    @property
    def keeps_sums(self) -> bool:  # type: ignore[override]
        """Whether sums of rows are kept: where steps follow a share of the differences."""
        return self.share is not None and not self.absolute

    def finer(self, max_error: float) -> UniformDeadzone | None:
        """Return the quantizer with another bound; ``None`` if it has none."""
        return None if self.max_error is None else replace(self, max_error=max_error)

    def bin_width(self, differences: Array) -> float | None:
        """Return the step for differences like these, 0 if all are 0; ``None`` if it is fixed."""
        if self.relative_step is not None:
            return self.relative_step * root_mean_square(differences)
        if self.share is None:
            return None
        moved = np.abs(differences[differences != 0])
        return float(np.quantile(moved, 1 - self.share)) / DEAD_ZONE if moved.size else 0.0

    def scaled(self, factor: float) -> UniformDeadzone:
        """Return the quantizer with its relative step multiplied, or with a share that does it."""
        return _scaled(self, factor) if self.is_relative else self

    def widest_factor(self, differences: Array, step: float) -> float:
        """Return the largest factor of steps that are at most `step` for such differences."""
        sizes = np.abs(differences[differences != 0])
        if self.share is None or not sizes.size or not step > 0:
            return math.inf
        share = min(float(np.mean(sizes > DEAD_ZONE * step)), _MAX_SHARE)
        odds = self.share / (1 - self.share)
        return math.inf if share == 0 else round(math.sqrt(odds * (1 - share) / share), 2)

    def fit(self, batch: Residual) -> Grid | None:
        """Choose the representatives; ``None`` if exact storage is at least as small."""
        is_delta = batch.reference is not None
        gains = self.absolute and self.is_relative
        steps = self.steps(batch)
        return fit_grid(batch, steps, self.max_error, leads=is_delta, gains=gains, dead_zone=self.dead_zone)

    def steps(self, batch: Residual) -> Array:
        """Return the step of each array of a batch, float64; 0 or infinite if it cannot be used."""
        if not self.is_relative:
            step = self.step if self.step is not None else float(self.max_error or 0) / DEAD_ZONE
            return np.full(batch.arrays, step)
        with np.errstate(over="ignore"):
            if self.share is not None:
                steps = _edges(batch, self.share) / DEAD_ZONE
                if batch.reference is not None:  # after a jump, errors of many movements do harm
                    values = Residual(batch.bits, None, batch.kind, sizes=batch.sizes)
                    steps = np.minimum(steps, _MAX_STEP_SPREADS * spreads(values, _enough(batch)))
            else:
                steps = (self.relative_step or 0) * root_mean_squares(batch)
        return np.where(steps == 0, 1.0, steps)


@lru_cache(maxsize=256)  # thousands of small arrays may share a step
def _scaled(quantizer: UniformDeadzone, factor: float) -> UniformDeadzone:
    if quantizer.share is not None:
        # A small share goes by the square of the step (`lead`).
        odds = quantizer.share / (1 - quantizer.share) / factor**2
        return replace(quantizer, share=odds / (1 + odds))
    return replace(quantizer, relative_step=(quantizer.relative_step or 0) * factor)


def _enough(batch: Residual) -> int | None:
    """Return how many components of each stretch of a sample say how large steps are."""
    return None if batch.arrays > 1 or batch.bits.size <= PIECE else _SIZED_COMPONENTS


def _edges(batch: Residual, share: float) -> Array:
    """Return the size from which on a share of each array's differences other than 0 are coded.

    It is estimated on a sample; 0 for an array of which nothing moved.
    """
    d, found, *_ = batch.sampled(_enough(batch))
    moved = d != 0
    size = np.abs(d[moved])
    owner = np.zeros(1, np.int64) if isinstance(found, int) else found[moved]
    count = _counts(size, owner, batch.arrays)
    wanted = np.maximum(share * count, 1)
    # Patterns are in the order of sizes. So the array and the upper half of a pattern make one key.
    shift = max(8 * size.itemsize - 32, 0)
    patterns = size.view(f"u{size.itemsize}")
    keys: Array = (patterns >> shift).astype(np.uint32)
    if batch.arrays > 1:
        keys = owner << 32 | keys
    some = count > 0
    places = (np.cumsum(count) - wanted.astype(np.int64))[some]
    patterns = np.zeros(batch.arrays, patterns.dtype)
    if places.size:
        ranked = np.partition(keys, places)
        patterns[some] = (ranked[places] & 0xFFFFFFFF).astype(patterns.dtype) << shift
    edges = patterns.view(size.dtype).astype(np.float64)
    # Many may have that very size, as in a type of few digits. All of them or none are coded,
    # whichever is nearer to the share; but never nothing at all.
    margin = _EDGE_EPSILONS * float(np.finfo(size.dtype).eps)
    below, above = edges * (1 - margin), edges * (1 + margin)
    with_them = _counts(size >= below[owner], owner, batch.arrays)
    without = _counts(size > above[owner], owner, batch.arrays)
    nearer: Array = np.where(with_them * without > wanted**2, above, below)
    return nearer


def _counts(marked: Array, owner: Array, arrays: int) -> Array:
    """Return how many elements of each array are not 0."""
    if arrays == 1:
        return np.array([np.count_nonzero(marked)])
    return np.bincount(owner, marked != 0, minlength=arrays).astype(np.int64)


def root_mean_squares(batch: Residual, most: int | None = None) -> Array:
    """Return the root mean square of each array's finite differences, by a sample (`sampled`)."""
    d, owner, ends, seen = batch.sampled(most)
    with np.errstate(over="ignore"):  # fit_grid stores an array with an infinite step exactly
        square = np.square(d, dtype=np.float64)
        squares = _stretch_sums(square, owner, ends, batch.arrays)
    largest = float(square.max(initial=0))
    if batch.arrays > 1:
        return np.sqrt(squares / batch.sizes)
    if largest > _OUTLIER_SQUARE_SHARE * squares[0] or math.isinf(squares[0]):
        near = _rms_of_most(d)
        if near is not None:
            return np.array([near])
    return np.sqrt(squares / max(seen, 1))


def _stretch_sums(values: Array, owner: Owner, ends: list[int], arrays: int) -> Array:
    """Return the sum of the values of each array, float64; of one array, stretch by stretch."""
    if not isinstance(owner, int):
        return array_sums(values, owner, arrays)
    total = np.zeros(1)
    for start, end in pairwise([0, *ends]):
        total += np.add.reduce(values[start:end], dtype=np.float64)
    return total


def spreads(batch: Residual, most: int | None = None) -> Array:
    """Return the root mean square of each array's distances from its mean, by a sample.

    Scales of normalization layers lie around 1. What a run has learned is how far from 1. An array
    of equal values has the root mean square of the values.
    """
    sizes = root_mean_squares(batch, most)
    values, owner, ends, size = batch.sampled(most)
    several = not isinstance(owner, int)
    counts = np.bincount(owner, minlength=batch.arrays) if several else np.array([values.size])
    seen = batch.sizes if several else size
    with np.errstate(over="ignore", invalid="ignore"):
        sums = _stretch_sums(values, owner, ends, batch.arrays)
        of_means = np.square(sums / np.maximum(counts, 1)) * counts / np.maximum(seen, 1)
        around = np.sqrt(np.square(sizes) - of_means)
    found: Array = np.where(around > 0, around, sizes)
    return found


def _rms_of_most(d: Array) -> float | None:
    """Return the root mean square without outliers; ``None`` if there are too many of them."""
    sizes = np.abs(d.astype(np.float64))
    if np.count_nonzero(sizes) < _MIN_NONZERO_DIFFERENCES:
        return None
    least = sizes.size - _MAX_OUTLIERS
    while sizes.size >= least:
        largest = float(sizes.max())
        with np.errstate(under="ignore"):  # in units of the largest, squares do not overflow
            squares = np.square(sizes / largest)
        mean = float(np.add.reduce(squares)) / sizes.size
        near = squares <= _OUTLIER_SQUARE_SHARE * mean * sizes.size
        if near.all():
            return largest * math.sqrt(mean)
        sizes = sizes[near]
    return None


_MAX_SPREADS: Final = 1 / 4  # a step is at most this part of the spread of the values


@dataclass(frozen=True)
class KeyframeSteps(Quantizer):
    """Equal steps of the values themselves, for the weights of keyframes.

    Steps are rounded to powers of two, so that small arrays share frames. An array that did not
    move is stored exactly.

    Parameters
    ----------
    movements
        The step in units of the root mean square of the differences to the last checkpoint as
        decoded. It is at most a quarter of the spread of the values: an array that was replaced by
        another one, as after a run that diverged, moved farther than it is wide.
    first
        The step in units of the spread of the values, the root mean square of their distances from
        their mean, where there is no checkpoint before.

    Raises
    ------
    ArgumentError
        Unless both are positive and finite.
    """

    absolute = True  # no reference is needed

    movements: float = 1.0
    first: float = 1 / 64

    def __post_init__(self) -> None:
        for name in ("movements", "first"):
            object.__setattr__(self, name, positive(f"KeyframeSteps: {name}", getattr(self, name)))

    def settled(self, bits: Array, reference: Array | None, kind: ElementType) -> Quantizer:
        """Return the quantizer with the step for an array; both arrays are components."""
        if reference is None:
            return self
        (moved,) = root_mean_squares(Residual(bits, reference, kind))
        if moved == 0:
            return Lossless()
        (spread,) = spreads(Residual(bits, None, kind))
        widest = _MAX_SPREADS * spread if spread > 0 else math.inf
        step = float(_power_of_two(np.array(min(self.movements * moved, widest))))
        return UniformDeadzone(step=step, absolute=True) if 0 < step < math.inf else Lossless()

    def foreseen(self, bits: Array, following: Array, kind: ElementType) -> Quantizer:
        """Return steps of the movement until the next state, if they are finer than `first`."""
        found = self.settled(bits, following, kind)
        if isinstance(found, UniformDeadzone):
            (spread,) = spreads(Residual(bits, None, kind))
            return found if (found.step or 0.0) < self.first * spread else self
        return found

    def fit(self, batch: Residual) -> Grid | None:
        """Choose the steps by the values, as in a first keyframe."""
        with np.errstate(over="ignore"):
            steps = _power_of_two(self.first * spreads(batch))
        if not steps.all():
            # Of zeros alone, or of numbers whose squares are too small: those are stored exactly.
            numbers = np.zeros(batch.arrays)
            for sampled, owner in batch.sample():
                numbers += array_sums(sampled != 0, owner, batch.arrays)
            steps = np.where(steps != 0, steps, np.where(numbers > 0, math.inf, 1.0))
        return fit_grid(batch, steps, None)


def _power_of_two(lengths: Array) -> Array:
    """Return the nearest powers of two by their ratio; 0, infinity and NaN as they are."""
    fractions, exponents = np.frexp(lengths)
    with np.errstate(over="ignore"):
        powers = np.ldexp(1.0, exponents - (fractions < math.sqrt(0.5)))
    nearest: Array = np.where(np.isfinite(lengths) & (lengths > 0), powers, lengths)
    return nearest


#: The narrowest and the widest dead zone, over the zone without moments.
_NARROWEST_RATIO: Final = 0.7
_WIDEST_RATIO: Final = 4.0


def weighted(quantizer: Quantizer, moment: Array, kind: ElementType, typical: float) -> Quantizer:
    """Return the quantizer with dead zones by second moments; itself if its step is fixed."""
    if isinstance(quantizer, UniformDeadzone) and quantizer.is_relative and not quantizer.absolute:
        return Weighted(quantizer, moment, kind, typical)
    return quantizer


@dataclass(frozen=True, eq=False)
class Weighted(Quantizer):
    """A `UniformDeadzone` that divides the dead zone of each element by the 8th root of its moment.

    It is for one array of one delta. If the moment of an element is negative or NaN, its zone is
    not changed.
    """

    then: UniformDeadzone  # gives the steps, by the differences
    moment: Array = field(repr=False)  # second moments of all elements, as components
    kind: ElementType = field(repr=False)  # of the moments
    typical: float  # the second moment at which the dead zone is not changed

    def fit(self, batch: Residual) -> Grid | None:
        """Choose steps and representatives, with a width of the zone for each component.

        The moments belong to one array, so a batch of several arrays has zones of one width.
        """
        beyond = self._outside if batch.arrays == 1 else None
        return fit_grid(batch, self.then.steps(batch), None, beyond, leads=True)

    def sampled(self, parts: Sequence[slice]) -> Weighted:
        """Return the quantizer for a sample of the array, made of these parts end to end."""
        return replace(self, moment=np.concatenate([self.moment[part] for part in parts]))

    def _outside(self, components: Array | slice, values: Array, reference: Array, high: Any) -> Marked:
        """Mark the differences outside their zones; see `Outside`."""
        if isinstance(components, slice):
            moments = self.moment[components]
        else:
            moments = self.moment.take(components, mode="clip")
        with np.errstate(all="ignore"):
            unit = np.divide(1, high * math.sqrt(math.sqrt(math.sqrt(self.typical))))
            bounds = high, unit, _NARROWEST_RATIO * high, _WIDEST_RATIO * high
        return outside_weighted(values, reference, work(moments, self.kind), *bounds)
