"""What an array is at a step, and how far it moved since the step before: one pass over its pieces.

Each piece fits the cache, and is converted to float64 once. Root mean squares, range, zeros,
difference and histogram are taken from it there. Elements that are not finite count as such, and
for nothing else; differences are taken over elements that are finite in both states. A complex
number counts by its magnitude; differences of integers are exact.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from ..element_types import Array, ElementType, work
from ..parallel import slices
from .bins import Bins
from .difference import distance, magnitude
from .summary import numbers

# Sums of squares outside of these have overflowed, or lost digits by underflow.
_LEAST_SUM: Final = 1e-250
_MOST_SUM: Final = 1e300


@dataclass(frozen=True)
class Measures:
    """Figures of one array at one step; ``None`` where no element is finite."""

    size: int
    not_finite: int
    zeros: float  # share of all elements; 0 for an empty array
    minimum: float | None
    maximum: float | None
    rms: float | None
    movement: float | None  # rms of the difference over rms of the array before; None if that is 0


@dataclass
class _Sums:
    """What the pieces of an array add up to."""

    finite: int = 0
    zeros: int = 0
    low: float = math.inf
    high: float = -math.inf
    squares: float = 0.0
    common: int = 0  # elements that are finite in both states
    before: float = 0.0  # squares of the elements before
    differences: float = 0.0  # squares

    def is_exact(self) -> bool:
        """Return whether no sum has overflowed or vanished."""
        sums = (self.squares, self.before, self.differences)
        peak = max(abs(self.low), abs(self.high)) if self.finite else 0.0
        largest = max(sums)
        return largest < _MOST_SUM and (largest > _LEAST_SUM or (peak == 0 and largest == 0))


def measure(bits: Array, before: Array | None, kind: ElementType, bins: Bins | None = None) -> Measures:
    """Return the figures of an array, given by its components.

    Parameters
    ----------
    bits
        Components of the array, as :func:`lccodec.element_types.components` returns them.
    before
        Those of the step before; ``None`` if there is none of this type and shape.
    bins
        Counts the values in its last row.

    Examples
    --------
    >>> from lccodec.element_types import components
    >>> kind, bits = components(np.array([0, 3, 4, np.nan], np.float32))
    >>> found = measure(bits, components(np.array([0, 3, 3, 1], np.float32))[1], kind)
    >>> found.not_finite, found.zeros, found.maximum
    (1, 0.25, 4.0)
    >>> round(found.movement, 3)  # the root of (0 + 0 + 1) / (0 + 9 + 9)
    0.236
    """
    sums, exponent = _Sums(), 0
    pieces = _real_pieces if kind.is_float and kind.kind != "c" else _other_pieces
    with np.errstate(over="ignore", invalid="ignore"):
        for piece in pieces(bits, before, kind):
            _add(sums, *piece, bins)
        if not sums.is_exact():
            exponent = _peak_exponent(bits, before, kind)
            scaled = _Sums()
            for values, old, gaps in pieces(bits, before, kind):
                own = np.ldexp(values, -exponent)
                _add(scaled, own, _scaled(old, exponent), _scaled(gaps, exponent), None)
            sums.squares, sums.before, sums.differences = scaled.squares, scaled.before, scaled.differences
    size = bits.size // kind.components
    return Measures(
        size=size,
        not_finite=size - sums.finite,
        zeros=sums.zeros / size if size else 0.0,
        minimum=sums.low if sums.finite else None,
        maximum=sums.high if sums.finite else None,
        rms=_root(sums.squares, sums.finite, exponent) if sums.finite else None,
        movement=math.sqrt(sums.differences / sums.before) if sums.before else None,
    )


def _scaled(values: Array | None, exponent: int) -> Array | None:
    return None if values is None else np.ldexp(values, -exponent)


def _root(squares: float, count: int, exponent: int) -> float | None:
    try:
        return math.ldexp(math.sqrt(squares / count), exponent)
    except OverflowError:
        return None


def _add(sums: _Sums, values: Array, old: Array | None, gaps: Array | None, bins: Bins | None) -> None:
    """Add a piece: its values, and the finite values before with their differences (float64)."""
    low, high = (float(values.min()), float(values.max())) if values.size else (math.inf, -math.inf)
    if not (math.isfinite(low) and math.isfinite(high)):  # a NaN is minimum and maximum
        values = values[np.isfinite(values)]
        low, high = float(values.min(initial=math.inf)), float(values.max(initial=-math.inf))
    if values.size:
        sums.finite += values.size
        sums.low, sums.high = min(sums.low, low), max(sums.high, high)
        sums.squares += _squares(values)
        if low <= 0 <= high:
            sums.zeros += values.size - int(np.count_nonzero(values))
        if bins is not None:
            bins.add(values, low, high)
    if old is None or gaps is None:
        return
    differences = _squares(gaps)
    if not math.isfinite(differences):  # or it has overflowed, which is seen later
        kept = np.isfinite(gaps)
        old, gaps = old[kept], gaps[kept]
        differences = _squares(gaps)
    sums.common += gaps.size
    sums.before += _squares(old)
    sums.differences += differences


def _squares(values: Array) -> float:
    """Return the sum of squares. ``values @ values`` would wait for threads (see `rank`)."""
    return float(np.einsum("i,i->", values, values))


def _real_pieces(
    bits: Array, before: Array | None, kind: ElementType
) -> Iterator[tuple[Array, Array | None, Array | None]]:
    """Yield values, values before, and differences, as float64; some may not be finite."""
    for part in slices(bits.size):
        values = work(bits[part], kind).astype(np.float64)
        if before is None:
            yield values, None, None
        else:
            old = work(before[part], kind).astype(np.float64)
            yield values, old, values - old


def _other_pieces(
    bits: Array, before: Array | None, kind: ElementType
) -> Iterator[tuple[Array, Array | None, Array | None]]:
    """Yield the same of integers and complex numbers: by their magnitudes, but signed integers."""
    earlier = iter(()) if before is None else numbers(before, kind)
    for values in numbers(bits, kind):
        own = values.astype(np.float64) if values.dtype.kind in "iu" else _magnitudes(values)
        old = next(earlier, None)
        if old is None:
            yield own, None, None
        else:
            gaps = distance(old, values)
            yield own, old.astype(np.float64) if old.dtype.kind in "iu" else _magnitudes(old), gaps


def _magnitudes(values: Array) -> Array:
    """Return magnitudes; one that is too large counts as the largest float64."""
    found = magnitude(values)
    too_large = np.isinf(found) & np.isfinite(values)
    found[too_large] = np.finfo(np.float64).max
    return found


def _peak_exponent(bits: Array, before: Array | None, kind: ElementType) -> int:
    """Return the power of two above all finite values of two states."""
    peak = 0.0
    for array in (bits, before) if before is not None else (bits,):
        for values in numbers(array, kind):
            sizes = magnitude(values)
            peak = max(peak, float(sizes.max(initial=0.0, where=np.isfinite(sizes))))
    return math.frexp(peak)[1]
