"""Second moments: coded in steps of their logarithm, so that they stay positive and keep their size.

Adam divides by ``sqrt(v) + eps``. A sum ``r + c`` with an error that is small beside the largest v is
large beside the smallest ones: they would decode as 0 or below. A factor ``r * 2**c`` cannot do that.
It is an integer sum on the order-preserving patterns (SPEC 7.6, LCC-REC-04), whose upper bits are the
exponent: a logarithm in base 2 that is a straight line within each power of two, without a rounding.

Second moments drift: they grow while an average fills up, and shrink with the gradients. Stale ones are then
all too small, or all too large, which costs more than the same error without a bias. So where most steps of
an array lead one way, its representatives go ahead of the means, as far as the bound lets them: the error
then runs through both signs, and the next step is due later.

Source: Liang et al., "An efficient transformation scheme for lossy data compression with point-wise
relative error bound", IEEE Cluster 2018 (bins of the logarithm); SPEC 7.7, LCC-QNT-02.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Final

import numpy as np

from ..arguments import as_number
from ..element_types import Array, ElementType, work
from ..errors import ArgumentError
from .residual import Residual, Zone
from .runs import FittedRun
from .uniform import DEAD_ZONE, Partition, UniformDeadzone

__all__ = ["LogSteps", "logarithms"]

#: log2(1 + f) - f is at most this for a fraction f in 0..1, and its slope at most 1 / ln 2.
_LINE: Final = 0.0861

_COUNTED: Final = 16  # pieces of a large array that steps up and down are counted in, at least

_MOST_BINS: Final = (1 << 16) - 1  # symbols of 16 bits

_SPARED: Final = 8  # bins that hold less than they take are left out if they are so many

#: A zone that holds no number: zeros have to be told from negative ones.
_NOWHERE: Final[Zone] = (np.float32(0), np.float32(0))

#: Where more of an array than this fits no step, as after a first step from 0, planes are smaller.
_MOST_EXACT: Final = 0.25


@dataclass(frozen=True)
class LogSteps:
    """Equal steps of the base-2 logarithm with a dead zone, for arrays of positive numbers.

    Against a reference; without one, the numbers themselves in bins of the logarithm. Every element that is,
    or whose reference is, zero, negative, subnormal, infinite or NaN is stored exactly, unless it is
    unchanged. So 0 decodes as 0, and nothing else does.

    Parameters
    ----------
    step
        Width of a bin in powers of two. The decoded number is at most `max_ratio` times the original
        and at least the original over it.

    Raises
    ------
    ArgumentError
        Unless it is a number from 0.001 to 64.

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
    absolute: ClassVar[bool] = False

    step: float = 1.0

    def __post_init__(self) -> None:
        step = as_number(self.step)
        if step is None or not 1e-3 <= step <= 64:
            raise ArgumentError(f"LogSteps: the step is a number from 0.001 to 64, not {self.step!r}")
        object.__setattr__(self, "step", step)

    @property
    def max_ratio(self) -> float:
        """Bound of decoded / original and of original / decoded; Adam's update changes by its root."""
        bound = DEAD_ZONE * self.step
        return float(2.0 ** min(bound / math.log(2), bound + _LINE))

    @property
    def _grid(self) -> UniformDeadzone:
        return UniformDeadzone(max_error=DEAD_ZONE * self.step)

    def fit(self, residual: Residual) -> Partition | None:
        """Choose the centroids of the steps; ``None`` where exact storage is at least as small."""
        if residual.reference is None:
            return self._fit_alone(residual)
        if _starts_anew(residual):
            return None
        grid = self._grid.fit(residual)
        if grid is None:
            return None
        starts = residual.pieces()
        found = [residual.outside(s, grid.zone)[1] for s in starts[:: max(len(starts) // _COUNTED, 1)]]
        up, down = (sum(np.count_nonzero(d > 0) for d in found), sum(np.count_nonzero(d < 0) for d in found))
        codes = np.arange(1, grid.representatives.size + 1)
        drift = np.array((up - down) / max(up + down, 1))
        ahead = self._ahead(grid.representatives, codes, drift, residual.kind)
        return replace(grid, representatives=ahead)

    def alone(self, bits: Array, reference: Array, kind: ElementType) -> bool:
        """Return whether an array had better be coded without its reference, as after a first step from 0."""
        return _starts_anew(Residual(bits, reference, kind, ordered=True))

    def _fit_alone(self, residual: Residual) -> _LogBins | None:
        """Choose bins for the numbers themselves: as wide as the bound allows, with their middles."""
        kind = residual.kind
        width = 2 * (DEAD_ZONE * self.step - 2.0**-kind.mantissa)
        low, high = math.inf, -math.inf
        for places in _logarithms_of(residual, residual.pieces()):
            low, high = min(low, places.min(initial=low)), max(high, places.max(initial=high))
        if not (low <= high and width > 0):
            return None
        low, high = _without_outliers(residual, low, high, width)
        bins = int((high - low) / width + 1) if low <= high else 0
        if not 0 < bins <= min(_MOST_BINS, residual.bits.size / 8):
            return None
        middles = low + (np.arange(bins) + 0.5) * width
        exponents = np.floor(middles)
        with np.errstate(over="ignore"):
            representatives = np.ldexp(middles - exponents + 1, exponents.astype(np.int64))
            return _LogBins(representatives.astype(kind.work), kind, low, width)

    def fit_run(self, differences: Array, sizes: Array, kind: ElementType) -> FittedRun | None:
        """Choose the centroids of each array of a run."""
        run = self._grid.fit_run(differences, sizes, kind)
        starts = np.cumsum(sizes) - sizes
        steps = np.add.reduceat((run.symbols > 0).astype(np.int64), starts)
        down = np.add.reduceat((run.symbols & 1).astype(np.int64), starts)
        codes = np.arange(run.representatives.size) - np.repeat(
            np.cumsum(run.counts) - run.counts, run.counts
        )
        drift = np.repeat((steps - 2 * down) / np.maximum(steps, 1), run.counts)
        return replace(run, representatives=self._ahead(run.representatives, codes + 1, drift, kind))

    def _ahead(self, representatives: Array, codes: Array, drift: Array, kind: ElementType) -> Array:
        """Return representatives moved ahead with the drift.

        Parameters
        ----------
        representatives, codes
            Of bins, and the zigzag numbers of these: odd ones are steps down.
        drift
            Share of the steps up less that of the steps down.
        """
        sign = 1 - 2 * (codes & 1)
        # From the near edge of a bin not farther than the bound, with room for rounding to a pattern.
        farthest = ((codes + 1 >> 1) - 1 + 2 * DEAD_ZONE) * self.step - 2.0**-kind.mantissa
        size = np.abs(representatives.astype(np.float64))
        size += np.maximum(drift * sign, 0) * np.maximum(farthest - size, 0)
        return (sign * size).astype(representatives.dtype)


@dataclass(frozen=True)
class _LogBins:
    """Bins of the logarithm of positive numbers, without a reference."""

    representatives: Array
    kind: ElementType
    low: float  # where the first bin begins
    width: float
    zone: Zone = _NOWHERE
    max_error: None = None

    def symbols(self, differences: Array) -> tuple[Array, Array]:
        """Return the number of each bin, 0 for +0.0, and which numbers are neither."""
        positive = _positive(differences, self.kind)
        bins = (logarithms(np.where(positive, differences, 1)) - self.low) * (1 / self.width)
        count = self.representatives.size
        few = count < 256
        # In no bin is what has changed since these were chosen; the end of the last one may be rounded.
        positive &= (bins >= 0) & (bins < count * (1 + 1e-15))
        symbols = np.where(positive, np.minimum(bins, count - 1) + 1, 0)
        nothing = (differences == 0) & ~np.signbit(differences)
        return symbols.astype(np.uint8 if few else np.uint16), ~positive & ~nothing


def _without_outliers(residual: Residual, low: float, high: float, width: float) -> tuple[float, float]:
    """Return where the logarithms lie that are so many that bins for them pay; if there are none, no range.

    A bin takes a representative in the codebook, an element in none, which is stored exactly, about as much.
    """
    bins, size = int((high - low) / width + 1), residual.bits.size
    if bins < _SPARED:
        return low, high
    starts = residual.pieces()
    stride = max(len(starts) // _COUNTED, 1)
    places = [(places - low) * (1 / width) for places in _logarithms_of(residual, starts[::stride])]
    held = stride * np.bincount(np.concatenate(places).clip(0, bins - 1).astype(np.int64), minlength=bins)
    first, exact = _sparse_ends(held)
    last, more = _sparse_ends(held[::-1])
    if first + last - exact - more < _SPARED:
        return low, high
    if exact + more > size / 2 or first + last >= bins:
        return math.inf, -math.inf
    least, most = low + first * width, low + (bins - last) * width
    low, high = math.inf, -math.inf
    for found in _logarithms_of(residual, starts):
        near = found[(found >= least) & (found < most)]
        low, high = min(low, near.min(initial=low)), max(high, near.max(initial=high))
    return low, high


def _logarithms_of(residual: Residual, starts: Iterable[int]) -> Iterator[Array]:
    """Yield the logarithms of the positive numbers of each piece."""
    for start in starts:
        d = residual.outside(start, _NOWHERE)[1]
        yield logarithms(d[_positive(d, residual.kind)])


def _sparse_ends(held: Array) -> tuple[int, int]:
    """Return how many of the first bins hold so few elements that they do not pay, and how many elements."""
    elements = np.append(0, np.cumsum(held))
    count = int((np.arange(elements.size) - elements).argmax())
    return count, int(elements[count])


def logarithms(numbers: Array) -> Array:
    """Return logarithms in base 2 (float64) of positive numbers, a straight line within each power of two."""
    fractions, exponents = np.frexp(numbers.astype(np.float64))
    lines: Array = 2 * fractions + exponents - 2
    return lines


def _positive(numbers: Array, kind: ElementType) -> Array:
    """Return where numbers are positive normal ones of their type."""
    least = work(np.array([1 << kind.mantissa], kind.bits), kind)[0]
    positive: Array = (numbers >= least) & np.isfinite(numbers)
    return positive


def _starts_anew(residual: Residual) -> bool:
    """Return whether so many elements fit no step that steps do not pay."""
    exact = seen = 0
    for d in residual.sample():
        exact += int(np.count_nonzero(np.isnan(d)))
        seen += d.size
    return exact > _MOST_EXACT * seen
