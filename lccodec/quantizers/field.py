"""Fields: what must hold for one, its values that stand for nothing, and whether it is smooth.

Files mark places without a value by a number far outside of all others, as 1e20 or -9999. Such a
fill value is no part of the range of a field. It is stored exactly, and no neighbour is predicted
from it.

Whether neighbours predict the elements of an array, a sample says. An element in the middle of two
others is compared with their mean, along each axis. If that is far nearer to it than an element
usually is to the mean of all, the array is smooth. For noise the two are about the same.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from ..constants import ElementType
from ..element_types import Array, from_ordered, to_ordered, unwork, work
from ..loops.representatives import is_native
from ..parallel import WIDE_PIECE, slices
from .lattice import Shape

#: Numbers beyond it are stored exactly: sums of some of them must not overflow.
LARGEST: Final = 2.0**1000
#: Bounds below it are of no use: their inverse would overflow.
LEAST_BOUND: Final = 2.0**-1000
#: On a lattice, numbers beyond so many steps are stored exactly: their sum with `LATTICE_ORIGIN`
#: would have another exponent.
MOST_LATTICE_STEPS: Final = 2.0**50
#: In steps: numbers around it are multiples of one step, because binary64 has no others there.
LATTICE_ORIGIN: Final = 1.5 * 2.0**52

_FILL_GAP: Final = 4.0  # from a fill value to the nearest number, in ranges of all other numbers
_MIN_FILLED: Final = 16  # elements with the fill value
_SAMPLE: Final = 1 << 12  # elements by which a usual magnitude is known
_USUAL_SHARE: Final = 0.95  # of them that are at most of that magnitude


@dataclass(frozen=True)
class FieldPlan:
    """What must hold for every element of a field, and for all together."""

    bound: float  # of ``|decoded - original|`` of every element after rounding
    step: float  # twice the error that is allowed before rounding
    # Limits of decoded values; the original has no finite number beyond them.
    lower: float = -math.inf
    upper: float = math.inf
    fills: tuple[float, ...] = ()  # values that are stored exactly
    keeps_sum: bool = False  # whether the mean error is taken back
    on_lattice: bool = False  # whether decoded values are multiples of the step, a power of two
    span: tuple[float, float] | None = None  # the least and the largest number, if all are finite


@dataclass(frozen=True)
class Outside:
    """Which numbers of a field are no part of its range: fill values, and beyond limits."""

    fills: tuple[float, ...] = ()
    minimum: float | None = None
    maximum: float | None = None


#: No number is known to be outside.
ALL: Final = Outside()


@dataclass(frozen=True)
class Extent:
    """The least and the largest finite number of an array, fill values left out."""

    low: float
    high: float
    fills: tuple[float, ...] = ()
    is_all: bool = field(default=False, compare=False)  # whether no number lies outside

    @property
    def range(self) -> float:
        """The distance of the two; infinite if it is too large for binary64."""
        return self.high - self.low

    def share(self, factor: float) -> float:
        """Return the range times a factor, or the largest number if that is too large."""
        found = factor * self.range
        if math.isinf(found):
            found = factor * self.high - factor * self.low
        return min(found, sys.float_info.max)

    @property
    def largest(self) -> float:
        """The largest magnitude."""
        return max(abs(self.low), abs(self.high))


@np.errstate(invalid="ignore")  # NumPy 1 widens what it compares, and tells of signaling NaNs
def find_extent(
    bits: Array,
    kind: ElementType,
    outside: Outside = ALL,
    least: int | None = None,
) -> Extent | None:
    """Return the extent of an array, given as components; ``None`` if it has no finite number.

    `outside` says what is known to be no part of it. Another number that lies far outside is one
    that occurs `least` times; by default as often as a fill value does that nobody has told of.
    """
    least = _MIN_FILLED if least is None else least
    extent = _extent(bits, kind, outside)
    sample = bits[:: max(bits.size // _SAMPLE, 1)].copy()
    for _ in range(2):  # one fill value below all others, one above
        if extent is None:
            return None
        fill = max((extent.low, extent.high), key=abs)
        without = replace(outside, fills=(*extent.fills, fill))
        # What does not lie far outside of a sample does not lie far outside of all.
        if not _is_apart(fill, _extent(sample, kind, without)):
            return extent
        if sum(np.count_nonzero(piece == fill) for piece in _pieces(bits, kind)) < least:
            return extent
        rest = _extent(bits, kind, without)
        if rest is None or not _is_apart(fill, rest):
            return extent
        extent = rest
    return extent


def _is_apart(fill: float, rest: Extent | None) -> bool:
    """Return whether a number lies far outside of others; they are unknown if all are left out."""
    return rest is None or min(abs(fill - rest.low), abs(fill - rest.high)) > _FILL_GAP * rest.range


def rounded(numbers: tuple[float, ...], kind: ElementType) -> tuple[float, ...]:
    """Return numbers as an element type has them."""
    if not numbers:
        return ()
    with np.errstate(over="ignore"):
        values = np.array(numbers).astype(np.promote_types(kind.work, np.float32))
        return tuple(wide(unwork(values, kind), kind).tolist())


def _extent(bits: Array, kind: ElementType, outside: Outside) -> Extent | None:
    low, high = math.inf, -math.inf
    least_valid = -math.inf if outside.minimum is None else outside.minimum
    most_valid = math.inf if outside.maximum is None else outside.maximum
    is_all = True
    for piece in _pieces(bits, kind):
        least, most = float(np.minimum.reduce(piece)), float(np.maximum.reduce(piece))
        limited = least < least_valid or most > most_valid
        if outside.fills or limited or not math.isfinite(least - most):
            is_all, kept = False, piece[np.isfinite(piece)].astype(np.float64)
            for fill in outside.fills:
                kept = kept[kept != fill]
            if limited:
                kept = kept[(kept >= least_valid) & (kept <= most_valid)]
            least = float(kept.min(initial=math.inf))
            most = float(kept.max(initial=-math.inf))
        low, high = min(low, least), max(high, most)
    return Extent(low, high, outside.fills, is_all) if low <= high else None


def _pieces(bits: Array, kind: ElementType) -> Iterator[Array]:
    numbers = bits.view(kind.work) if is_native(kind) else None
    for part in slices(bits.size, WIDE_PIECE):
        yield wide(bits[part], kind) if numbers is None else numbers[part]


def wide(bits: Array, kind: ElementType) -> Array:
    """Return components as new float64 numbers; a signaling NaN becomes quiet."""
    with np.errstate(invalid="ignore"):
        return work(bits, kind).astype(np.float64)


def usable_step(bound: float, bits: Array, kind: ElementType, extent: Extent) -> float | None:
    """Return the step for a bound; ``None`` if rounding to the element type takes all of it.

    Rounding moves a value by half the distance of two numbers of the element type. A step leaves
    that much of the bound, but for the few bounds below two of these distances. A few outliers must
    not make all of an array exact: if the largest number leaves no room, a usual one counts.
    """
    unit = _spacing(extent.largest, kind)
    if bound < 2 * unit:
        unit = min(unit, _spacing(_usual(bits, kind), kind))
    if bound < max(0.5 * unit, LEAST_BOUND):
        return None
    inner = bound - 0.5 * unit if bound >= 2 * unit else min(bound, (math.floor(bound / unit) + 0.5) * unit)
    return 2 * min(inner, LARGEST) * (1 - 2.0**-30)


def inwards(limit: float, kind: ElementType, sign: int) -> float:
    """Return the number of an element type that is nearest to a limit, and not beyond it.

    `sign` is 1 for a lower limit and -1 for an upper one. The result is infinite if there is none.

    Examples
    --------
    >>> from lccodec.element_types import ELEMENT_TYPES
    >>> single = next(kind for kind in ELEMENT_TYPES if kind.name == "float32")
    >>> inwards(2 / 3, single, -1) < 2 / 3 < inwards(2 / 3, single, 1)
    True
    """
    with np.errstate(over="ignore", under="ignore"):
        bits = unwork(np.array([limit]).astype(np.promote_types(kind.work, np.float32)), kind)
    while sign * (found := float(work(bits, kind)[0])) < sign * limit:
        if math.isinf(found):
            return found
        keys = to_ordered(bits)
        bits = from_ordered(keys + kind.bits.type(1) if sign > 0 else keys - kind.bits.type(1))
    return found


def lattice_step(widest: float) -> float | None:
    """Return the largest power of two that is at most so wide; ``None`` if it is of no use."""
    step = math.ldexp(1.0, math.frexp(min(widest, 2.0**900))[1] - 1)
    return step if step >= LEAST_BOUND else None


def _spacing(number: float, kind: ElementType) -> float:
    """Return the distance of neighbours of a number, or that of several roundings in float64."""
    bits = min(kind.mantissa, 49)
    return math.ldexp(1.0, math.frexp(number)[1] - 1 - bits) if 0 < number < math.inf else 0.0


def _usual(bits: Array, kind: ElementType) -> float:
    """Return a magnitude that few elements of a sample exceed; infinite if the sample has none."""
    sample = np.abs(wide(bits[:: max(bits.size // _SAMPLE, 1)], kind))
    sample = np.sort(sample[np.isfinite(sample)])
    return float(sample[int(sample.size * _USUAL_SHARE)]) if sample.size else math.inf


_SMOOTH_SHARE: Final = 0.25  # of the usual distance from the mean
_LEAST_KNOWN: Final = 16  # fewer elements with neighbours tell nothing


def is_smooth(bits: Array, shape: Shape, kind: ElementType, outside: Outside = ALL) -> bool:
    """Return whether an array, given as components, is a field that neighbours predict.

    NaN, infinities and fill values are left out, and the numbers of `outside`. A constant array is
    not smooth: without a bound it takes no bytes either. Nor is an array of whole numbers, which
    count or name something.
    """
    if kind.kind != "f" or not bits.size:
        return False
    # An odd stride meets all places along rows of any length.
    places = np.arange(0, bits.size, max(bits.size // _SAMPLE, 1) | 1)
    extent = find_extent(bits[places], kind, outside)
    if extent is None or not extent.range > 0:
        return False
    values, known = _values(bits, places, kind, extent.fills)
    if np.array_equal(values[known], np.rint(values[known])):
        return False
    with np.errstate(all="ignore"):
        usual = float(np.abs(values[known] - values[known].mean()).mean())
    return any(
        _roughness(bits, places, shape, axis, kind, extent.fills) <= _SMOOTH_SHARE * usual
        for axis in range(len(shape))
    )


def _roughness(
    bits: Array, places: Array, shape: Shape, axis: int, kind: ElementType, fills: tuple[float, ...]
) -> float:
    """Return the mean distance of elements from the mean of two neighbours; infinite if unknown."""
    stride = math.prod(shape[axis + 1 :])
    along = places // stride % shape[axis]
    inner = places[(along > 0) & (along < shape[axis] - 1)]
    found = [_values(bits, inner + offset, kind, fills) for offset in (-stride, 0, stride)]
    known = found[0][1] & found[1][1] & found[2][1]
    if np.count_nonzero(known) < _LEAST_KNOWN:
        return math.inf
    before, middle, after = (values[known] for values, _ in found)
    with np.errstate(all="ignore"):
        return float(np.abs(middle - (before + after) / 2).mean())


def _values(bits: Array, places: Array, kind: ElementType, fills: tuple[float, ...]) -> tuple[Array, Array]:
    """Return numbers of an array, and which of them are finite and not a fill value."""
    values = wide(bits[places], kind)
    known = np.isfinite(values)
    for fill in fills:
        known &= values != fill
    return values, known
