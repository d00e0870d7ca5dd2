"""Second moments, coded in steps of their logarithm: they stay positive and keep their size.

Adam divides by ``sqrt(v) + eps``. An error of a sum ``r + c`` may be small beside the largest v and
large beside the smallest. The smallest would then decode as 0 or as negative numbers. A factor
``r * 2**c`` avoids this. The factor is applied as an integer sum on the order-preserving patterns
(SPEC 7.6, LCC-REC-04). The upper bits of a pattern are the exponent. So a pattern is a logarithm in
base 2 that is linear within each power of two, and the sum needs no rounding.

Second moments drift: they grow while an average fills up, and shrink with the gradients. All stale
moments are then too small, or all are too large. This bias does more harm than an error of the same
size without a bias. So if most steps of an array have the same sign, its representatives lie ahead
of the means, as far as the error bound allows. The error then takes both signs, and the next step
is needed later.

Source: Liang et al., "An efficient transformation scheme for lossy data compression with point-wise
relative error bound", IEEE Cluster 2018 (bins of the logarithm); SPEC 7.7, LCC-QNT-02.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Final

import numpy as np

from ..constants import ElementType
from ..element_types import Array, work
from ..errors import number
from .base import DEAD_ZONE, Guarantee, Partition, Quantizer, fit_each, plane_bits
from .grid import Grid, fit_grid
from .residual import Owner, Residual, Zone, array_sums

_MIN_PIECES_FOR_COUNTS: Final = 16  # of a large array: steps and bins are counted in as many or more

#: Behind the point, of a logarithm in float64: of those of 11 bits before it, so many are sure.
_LOGARITHM_BITS: Final = 40
_MAX_BINS: Final = (1 << 16) - 1  # so that symbols fit 16 bits

_MIN_SAVED_BINS: Final = 8  # sparse bins at the ends are left out if that saves as many

#: A zone that contains no number: 0.0 and -0.0 are coded differently.
_EMPTY_ZONE: Final = Zone.within(np.zeros(1), np.dtype("f4"))

#: If a larger share of an array fits no step, as after a first step from 0, coding it without its
#: reference, or as byte planes, takes fewer bytes.
_MAX_EXACT_SHARE: Final = 0.25
_BITS_PER_STEP: Final = 1.5  # estimate for an element that fits a step, in an array where many do not


@dataclass(frozen=True)
class LogSteps(Quantizer):
    """Equal steps of the base-2 logarithm with a dead zone, for arrays of positive numbers.

    The steps lead from the reference to the number. Without a reference, the logarithms of the
    numbers themselves have bins. An element is stored exactly if it, or its reference, is zero,
    negative, subnormal, infinite or NaN; unless it did not change. So 0 decodes as 0, and no other
    number does.

    Parameters
    ----------
    step
        Width of a bin in powers of two. The decoded number is at most `max_ratio` times the
        original, and at least the original divided by `max_ratio`.

    Raises
    ------
    ArgumentError
        Unless the step is a number from 0.001 to 64.

    Examples
    --------
    >>> import numpy as np, lccodec
    >>> before = np.array([1e-12, 1e-6, 0.0], np.float32)
    >>> after = np.array([3e-10, 1.2e-6, 0.0], np.float32)
    >>> frame = lccodec.encode(after, LogSteps(1.0), reference=before)
    >>> restored = lccodec.decode(frame, reference=before)
    >>> bool((restored[:2] / after[:2] <= LogSteps(1.0).max_ratio).all()), float(restored[2])
    (True, 0.0)
    """

    ordered: ClassVar[bool] = True

    step: float = 1.0

    def __post_init__(self) -> None:
        wanted = "a number from 0.001 to 64"
        step = number("LogSteps: the step", self.step, wanted, lambda n: 1e-3 <= n <= 64)
        object.__setattr__(self, "step", step)

    @property
    def max_ratio(self) -> float:
        """Bound on decoded / original and its inverse; Adam's update changes by the square root."""
        return self.guarantee.max_ratio or math.inf

    def bin_width(self, differences: Array) -> float:  # noqa: ARG002
        """Return the step."""
        return self.step

    @property
    def guarantee(self) -> Guarantee:
        """The bound on the ratio."""
        return Guarantee(max_octaves=DEAD_ZONE * self.step)

    def fit(self, batch: Residual) -> Partition | None:
        """Choose representatives of the steps; ``None`` if exact storage is at least as small."""
        if batch.reference is None:
            return fit_each(self._fit_alone, batch)
        if _exact_is_smaller(batch):
            return None
        bound = DEAD_ZONE * self.step
        grid = fit_grid(batch, np.full(batch.arrays, bound / DEAD_ZONE), bound)
        if grid is None:
            return None
        up, down = np.zeros(batch.arrays), np.zeros(batch.arrays)
        starts = batch.pieces
        for start in starts[:: max(len(starts) // _MIN_PIECES_FOR_COUNTS, 1)]:
            d, owner = batch.finite_outside(start, grid.zone)
            up += array_sums(d > 0, owner, batch.arrays)
            down += array_sums(d < 0, owner, batch.arrays)
        drift = np.repeat((up - down) / np.maximum(up + down, 1), grid.counts)
        return replace(grid, representatives=self._ahead(grid, drift, batch.kind))

    def stands_alone(self, bits: Array, reference: Array, kind: ElementType) -> bool:
        """Return whether too many elements fit no step, as after a first step from 0."""
        return _exact_share(Residual(bits, reference, kind, ordered=True)) > _MAX_EXACT_SHARE

    def _fit_alone(self, residual: Residual) -> _LogBins | None:
        """Choose bins of the numbers' logarithms, as wide as the bound allows."""
        kind = residual.kind
        width = 2 * (DEAD_ZONE * self.step - 2.0 ** -min(kind.mantissa, _LOGARITHM_BITS))
        low, high = _range(_logarithms_of(residual, residual.pieces))
        if not (low <= high and width > 0):
            return None
        low, high = _without_outliers(residual, low, high, width)
        bins = int((high - low) / width + 1) if low <= high else 0
        if not 0 < bins <= min(_MAX_BINS, residual.bits.size / 8):
            return None
        middles = low + (np.arange(bins) + 0.5) * width
        exponents = np.floor(middles)
        with np.errstate(over="ignore"):
            representatives = np.ldexp(middles - exponents + 1, exponents.astype(np.int64))
            return _LogBins(representatives.astype(kind.work), kind, low, width)

    def _ahead(self, grid: Grid, drift: Array, kind: ElementType) -> Array:
        """Return representatives moved ahead in the direction of the drift.

        The drift of each is the share of the steps up minus the share of the steps down.
        """
        sign = 1 - 2 * (grid.codes & 1)
        # A representative is at most the bound away from the near edge of its bin. The last term
        # leaves room for rounding to a pattern.
        farthest = ((grid.codes + 1 >> 1) - 1 + 2 * DEAD_ZONE) * self.step - 2.0**-kind.mantissa
        size = np.abs(grid.representatives.astype(np.float64))
        size += np.maximum(drift * sign, 0) * np.maximum(farthest - size, 0)
        return (sign * size).astype(grid.representatives.dtype)


@dataclass(frozen=True, eq=False)
class _LogBins:
    """Bins of the logarithm of positive numbers, for one array without a reference."""

    representatives: Array
    kind: ElementType
    low: float  # where the first bin begins
    width: float
    zone: Zone = _EMPTY_ZONE
    max_error: None = None

    @property
    def counts(self) -> Array:
        """Return the number of bins."""
        return np.array([self.representatives.size])

    def symbols(self, differences: Array, owner: Owner) -> tuple[Array, Array]:  # noqa: ARG002
        """Return the symbols: 1 + the bin of a number, 0 for +0.0; and which are stored exactly."""
        positive = _positive(differences, self.kind)
        bins = (logarithms(np.where(positive, differences, 1)) - self.low) * (1 / self.width)
        count = self.representatives.size
        # Numbers that changed since the fit may be in no bin. The last bin's end may be rounded.
        positive &= (bins >= 0) & (bins < count * (1 + 1e-15))
        symbols = np.where(positive, np.minimum(bins, count - 1) + 1, 0)
        plus_zero = (differences == 0) & ~np.signbit(differences)
        return symbols.astype(np.uint8 if count < 256 else np.uint16), ~positive & ~plus_zero


def _without_outliers(residual: Residual, low: float, high: float, width: float) -> tuple[float, float]:
    """Return the range of the logarithms without outliers; an empty range if no bins pay.

    A bin takes one representative in the codebook. An element without a bin is stored exactly and
    takes about as much.
    """
    bins, size = int((high - low) / width + 1), residual.bits.size
    if bins < _MIN_SAVED_BINS:
        return low, high
    starts = residual.pieces
    stride = max(len(starts) // _MIN_PIECES_FOR_COUNTS, 1)
    held = np.zeros(bins, np.int64)
    for found in _logarithms_of(residual, starts[::stride]):
        places = ((found - low) * (1 / width)).clip(0, bins - 1).astype(np.int64)
        held += stride * np.bincount(places, minlength=bins)
    first, exact = _sparse_ends(held)
    last, more = _sparse_ends(held[::-1])
    if first + last - exact - more < _MIN_SAVED_BINS:
        return low, high
    if exact + more > size / 2 or first + last >= bins:
        return math.inf, -math.inf
    least, most = low + first * width, low + (bins - last) * width
    pieces = _logarithms_of(residual, starts)
    return _range(found[(found >= least) & (found < most)] for found in pieces)


def _range(pieces: Iterable[Array]) -> tuple[float, float]:
    """Return the least and the greatest number; an empty range if there is none."""
    low, high = math.inf, -math.inf
    for piece in pieces:
        low, high = min(low, piece.min(initial=low)), max(high, piece.max(initial=high))
    return low, high


def _logarithms_of(residual: Residual, starts: Iterable[int]) -> Iterator[Array]:
    """Yield the logarithms of the positive numbers of each piece."""
    for start in starts:
        d = residual.outside(start, _EMPTY_ZONE)[1]
        yield logarithms(d[_positive(d, residual.kind)])


def _sparse_ends(held: Array) -> tuple[int, int]:
    """Return how many of the first bins hold too few elements to pay, and their elements."""
    elements = np.append(0, np.cumsum(held))
    count = int((np.arange(elements.size) - elements).argmax())
    return count, int(elements[count])


def logarithms(numbers: Array) -> Array:
    """Return base-2 logarithms (float64) of positive numbers, linear within each power of two."""
    fractions, exponents = np.frexp(numbers.astype(np.float64))
    lines: Array = 2 * fractions + exponents - 2
    return lines


def _positive(numbers: Array, kind: ElementType) -> Array:
    """Return which numbers are positive and normal in their type."""
    least = work(np.array([1 << kind.mantissa], kind.bits), kind)[0]
    positive: Array = (numbers >= least) & np.isfinite(numbers)
    return positive


def _exact_is_smaller(batch: Residual) -> bool:
    """Return whether too many elements fit no step, so that exact storage of all takes less."""
    share, size = _exact_share(batch), 8 * batch.kind.size
    if share <= _MAX_EXACT_SHARE:
        return False
    # Byte planes need a whole frame. A batch of several arrays may share its frame with others that
    # have bins.
    exact = plane_bits(batch.bits, batch.reference, batch.kind) if batch.arrays == 1 else size
    return share * size + _BITS_PER_STEP > exact


def _exact_share(batch: Residual) -> float:
    """Return an estimate of the share of the elements that fit no step."""
    d, _, _, seen = batch.sampled()
    return (seen - d.size) / max(seen, 1)  # finite differences are those of what fits a step
