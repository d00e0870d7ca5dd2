"""What an array is at a step, and how far it moved since the step before: one pass over its pieces.

Each piece fits the cache, and is converted to float64 once. Root mean squares, range, zeros,
difference and histogram are taken from it there. Elements that are not finite count as such, and
for nothing else; differences are taken over elements that are finite in both states. A complex
number counts by its magnitude; differences of integers are exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from ...element_table import ElementType
from ...element_types import Array, work
from ...parallel import WIDE_PIECE, slices
from ..difference import distance, magnitude
from ..summary import numbers
from .bins import Bins

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
    before: float = 0.0  # squares of the elements before that are finite in both states
    differences: float = 0.0  # squares


def measure(bits: Array, before: Array | None, kind: ElementType, bins: Bins | None = None) -> Measures:
    """Return the figures of an array, given by its components.

    `before` has those of the step before, if it has an array of this type and shape. `bins` counts
    the values in its last row.

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
    sums = _Sums()
    cut = _real_pieces if kind.is_float and kind.kind != "c" else _other_pieces

    def pieces() -> Iterator[_Piece]:
        return cut(bits, before, kind)

    vanishes = kind.is_float and kind.size == 8  # squares of others do not
    with np.errstate(over="ignore", invalid="ignore"):
        for piece in pieces():
            _add(sums, piece, bins)
        rms = _root(sums.squares, lambda: (piece.finite() for piece in pieces()), vanishes)
        old = _root(sums.before, lambda: (piece.common()[0] for piece in pieces()), vanishes)
        moved = _root(sums.differences, lambda: (piece.common()[1] for piece in pieces()), vanishes)
    size = bits.size // kind.components
    return Measures(
        size=size,
        not_finite=size - sums.finite,
        zeros=sums.zeros / size if size else 0.0,
        minimum=sums.low if sums.finite else None,
        maximum=sums.high if sums.finite else None,
        rms=_product(rms[0] / math.sqrt(sums.finite), rms[1]) if sums.finite else None,
        movement=_product(moved[0] / old[0], moved[1] - old[1]) if old[0] else None,
    )


class _Piece(NamedTuple):
    """A part of an array as float64: values, values before, differences; not all are finite."""

    values: Array
    old: Array | None
    gaps: Array | None

    def finite(self) -> Array:
        kept: Array = self.values[np.isfinite(self.values)]
        return kept

    def common(self) -> tuple[Array, Array]:
        """Return values before and differences where both states are finite."""
        if self.old is None or self.gaps is None:
            return np.empty(0), np.empty(0)
        kept = np.isfinite(self.gaps)
        return self.old[kept], self.gaps[kept]


def _add(sums: _Sums, piece: _Piece, bins: Bins | None) -> None:
    values, old, gaps = piece
    low, high = (float(values.min()), float(values.max())) if values.size else (math.inf, -math.inf)
    if not (math.isfinite(low) and math.isfinite(high)):  # a NaN is minimum and maximum
        values = piece.finite()
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
    if not math.isfinite(differences):
        old, gaps = piece.common()
        differences = _squares(gaps)
    sums.before += _squares(old)
    sums.differences += differences


def _root(squares: float, arrays: Callable[[], Iterator[Array]], vanishes: bool) -> tuple[float, int]:
    """Return the root of a sum of squares, as a float and the power of two to multiply it by.

    If the sum has overflowed or lost digits, it is taken again from the arrays, divided by that
    power.
    """
    if _LEAST_SUM < squares < _MOST_SUM or (squares == 0 and not vanishes):
        return math.sqrt(squares), 0
    peak = max((float(np.abs(values).max(initial=0.0)) for values in arrays()), default=0.0)
    exponent = math.frexp(peak)[1]
    return math.sqrt(sum(_squares(np.ldexp(values, -exponent)) for values in arrays())), exponent


def _product(value: float, exponent: int) -> float | None:
    """Return ``value * 2**exponent``; ``None`` if that is no finite number."""
    try:
        return math.ldexp(value, exponent)
    except OverflowError:
        return None


def _squares(values: Array) -> float:
    """Return the sum of squares. ``values @ values`` would wait for threads (see `rank`)."""
    return float(np.einsum("i,i->", values, values))


def _real_pieces(bits: Array, before: Array | None, kind: ElementType) -> Iterator[_Piece]:
    for part in slices(bits.size, WIDE_PIECE):
        values = work(bits[part], kind).astype(np.float64)
        if before is None:
            yield _Piece(values, None, None)
        else:
            old = work(before[part], kind).astype(np.float64)
            yield _Piece(values, old, values - old)


def _other_pieces(bits: Array, before: Array | None, kind: ElementType) -> Iterator[_Piece]:
    """Yield pieces of integers, and of complex numbers by their magnitudes."""
    earlier = iter(()) if before is None else numbers(before, kind)
    for values in numbers(bits, kind):
        own, old = _magnitudes(values), next(earlier, None)
        if old is None:
            yield _Piece(own, None, None)
        else:
            yield _Piece(own, _magnitudes(old), distance(old, values))


def _magnitudes(values: Array) -> Array:
    """Return integers as float64, and complex numbers by their magnitudes.

    A magnitude that is too large counts as the largest float64.
    """
    if values.dtype.kind in "iu":
        return values.astype(np.float64)
    found = magnitude(values)
    found[np.isinf(found) & np.isfinite(values)] = np.finfo(np.float64).max
    return found
