"""Bins of a histogram over time, whose range is not known before the last value is seen.

Bins are as wide as a power of two, and begin at multiples of their width. So two neighbours become
one bin of twice the width, and the counts are as if they had been counted in it. Bins are merged
when a value lies outside: there is one pass over the values, and nothing is clipped. In the end
there are more than 16 bins, or as many as the values need.
"""

from __future__ import annotations

import math
import sys
from typing import Final

import numpy as np

from ...element_types import Array
from ..report import Histogram

MAX_BINS: Final = 32

_LEAST_EXPONENT: Final = -1074  # of the width: the smallest float64
_MANTISSA_BITS: Final = 53
_MOST_FACTOR_LOG2: Final = 1023  # a larger power of two is no float64


class Bins:
    """Counts of values in bins of equal width; one row of counts for each step.

    Examples
    --------
    >>> bins = Bins()
    >>> for values in ([0.1, 0.3], [0.9, 3.5]):
    ...     bins.begin()
    ...     bins.add(np.array(values), min(values), max(values))
    >>> found = bins.histogram()
    >>> found.low, found.high, [sum(row) for row in found.counts]
    (0.0, 3.625, [2, 2])
    """

    def __init__(self) -> None:
        self._counts = np.zeros((0, MAX_BINS), np.int64)
        self._rows = 0
        self._exponent: int | None = None  # of the width
        self._start = 0  # number of the first bin: its lower end over the width
        self._ends = (math.inf, -math.inf)  # what the bins cover

    def begin(self) -> None:
        """Begin a row."""
        if self._rows == len(self._counts):
            self._counts = np.concatenate([self._counts, np.zeros((self._rows + 8, MAX_BINS), np.int64)])
        self._rows += 1

    def add(self, values: Array, low: float, high: float) -> None:
        """Count finite values (float64) in the last row; they lie between `low` and `high`."""
        if not (self._ends[0] <= low and high < self._ends[1]):
            self._cover(low, high)
        row, exponent = self._counts[self._rows - 1], self._exponent or 0
        if low == high:
            row[_number(low, exponent) - self._start] += values.size
            return
        if -exponent > _MOST_FACTOR_LOG2:
            numbers = np.ldexp(values, -exponent)
        else:
            numbers = values * 2.0**-exponent
        np.floor(numbers, out=numbers)
        if exponent > 0 and low < 0:  # what is tiny and negative may have vanished
            numbers[(numbers == 0) & (values < 0)] = -1
        numbers -= self._start
        row += np.bincount(numbers.astype(np.intp), minlength=MAX_BINS)

    def _cover(self, low: float, high: float) -> None:
        """Widen or move the bins so that they cover a range and all values before."""
        if self._exponent is None:
            self._exponent = max(math.frexp(max(abs(low), abs(high)))[1] - _MANTISSA_BITS, _LEAST_EXPONENT)
            if low == high == 0:
                self._exponent = _LEAST_EXPONENT
        ends = _number(low, self._exponent), _number(high, self._exponent)
        used = [self._start + int(place) for place in np.flatnonzero(self._counts.any(axis=0))]
        below, above = min([*used, *ends]), max([*used, *ends])
        shift = max((above - below).bit_length() - MAX_BINS.bit_length(), 0)
        while (above >> shift) - (below >> shift) >= MAX_BINS:
            shift += 1
        below, above = below >> shift, above >> shift
        start = below - (MAX_BINS - 1 - (above - below)) // 2  # room on both sides
        if used:
            moved = [((self._start + place) >> shift) - start for place in range(MAX_BINS)]
            counts = np.zeros_like(self._counts)
            for place, target in enumerate(moved):
                if 0 <= target < MAX_BINS:  # there are no counts in the others
                    counts[:, target] += self._counts[:, place]
            self._counts = counts
        self._start, self._exponent = start, self._exponent + shift
        self._ends = self._edge(start), self._edge(start + MAX_BINS)

    def _edge(self, number: int) -> float:
        try:
            return math.ldexp(number, self._exponent or 0)
        except OverflowError:
            return math.copysign(sys.float_info.max, number)

    def histogram(self) -> Histogram | None:
        """Return the rows over the bins that have values; ``None`` if there is no value."""
        if self._exponent is None:
            return None
        counts = self._counts[: self._rows]
        used = np.flatnonzero(counts.any(axis=0))
        first, last = int(used[0]), int(used[-1])
        rows = [row.tolist() if row.any() else [] for row in counts[:, first : last + 1]]
        return Histogram(self._edge(self._start + first), self._edge(self._start + last + 1), rows)


def _number(value: float, exponent: int) -> int:
    """Return ``floor(value / 2**exponent)``, exactly."""
    numerator, denominator = value.as_integer_ratio()
    if exponent < 0:
        return (numerator << -exponent) // denominator
    return numerator // (denominator << exponent)
