"""Classes of the cells of a matrix: each class has its own codes.

Rows and columns of a weight matrix differ in how much they move. Each row and each column has a
*level*, and the class of a cell follows from the sum of the two. Each class is coded on its own,
because like symbols together take fewer bits.

Source: SPEC 7.4 (classed streams), `spec/decisions/0007-classed-streams.md`.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from ..element_types import Array
from ..parallel import cached_property
from .lanes import entropy_bits
from .runs import Sparse, parts

# All of these are an encoder's choice.
_MAX_CLASSES_TRIED: Final = 4
_MIN_NONZERO: Final = 200  # symbols that are not 0 in a matrix for which classes are tried

_LEVELS_PER_4X: Final = 3  # levels for each factor of four in activity
_TOP_LEVEL: Final = 12  # levels are 0 to this one; the middle one is the mean activity
_COUNT_OFFSET: Final = 0.3  # added to counts, so that small ones, which are chance, move levels less
_ALPHABET: Final = 16  # symbols that are counted apart; larger ones count as the last of these

# Classes are found from a sample of this many symbols at least, and of so many for each column.
_SAMPLE_SYMBOLS: Final = 1 << 16
_SAMPLE_SYMBOLS_PER_COLUMN: Final = 32

_CLASS_BITS: Final = 200.0  # of a class beyond its symbols: heads and tables of its streams
_MIN_SAVED_SHARE: Final = 0.03  # of the bits, so that classes are worth their time


def row_length(shape: tuple[int, ...], components: int) -> int:
    """Return the number of components in a row when an array is seen as a matrix; 0 for a vector.

    An array of more than two dimensions is split where the matrix becomes most nearly square.
    """
    size = components * math.prod(shape)
    if size == 0:
        return 0
    lengths = (components * math.prod(shape[k:]) for k in range(1, len(shape)))
    return max(lengths, key=lambda length: min(length, size // length), default=0)


class Classes:
    """Which class each cell of a matrix belongs to.

    Parameters
    ----------
    rows, columns
        Level of each row and of each column, uint8, with few different values.
    bounds
        Rising, uint8. The class of a cell is the number of bounds that are at most the sum of its
        two levels.

    Attributes
    ----------
    sizes
        Number of cells in each class.
    """

    def __init__(self, rows: Array, columns: Array, bounds: Array) -> None:
        self.rows, self.columns, self.bounds = rows, columns, bounds
        # Rows of the same level (a kind) have the same class in each column.
        kinds, self._kind = np.unique(rows, return_inverse=True)
        sums = np.add.outer(kinds, columns, dtype=np.int64)
        every_sum = np.arange(2 * 255 + 1)  # of two levels, which are uint8
        class_of = np.searchsorted(bounds, every_sum, side="right").astype(np.uint8)
        self._class = class_of.take(sums)  # (kinds, columns)
        # (classes, kinds)
        self._counts = np.stack([(self._class == k).sum(axis=1) for k in range(bounds.size + 1)])
        self._before = np.cumsum(self._counts, axis=0) - self._counts
        self.sizes: list[int] = (self._counts @ np.bincount(self._kind, minlength=kinds.size)).tolist()

    def _rows_of(self, number: int) -> tuple[Array, Array]:
        """Return where each row begins in a class, and how far from there it is in `_order`."""
        here = self._counts[number].take(self._kind)
        starts = np.cumsum(here) - here
        first = self._before[number] + np.arange(self._before[number].size) * self.columns.size
        return starts, first.take(self._kind) - starts

    @cached_property
    def _order(self) -> Array:
        """The columns of each kind of row, class by class."""
        return np.argsort(self._class, axis=1, kind="stable")

    @cached_property
    def _ordinal(self) -> Array:
        """The place of each cell of the table in `_order`."""
        ordinal = np.empty_like(self._order)
        np.put_along_axis(ordinal, self._order, np.arange(ordinal.size).reshape(ordinal.shape), axis=1)
        return ordinal.reshape(-1)

    def deal(self, positions: Array) -> list[tuple[Array, Array]]:
        """Sort cells, by their positions in the matrix (int64, rising), into their classes.

        Returns for each class which of `positions` belong to it, and their positions within the
        class. Both are int64 and rising.
        """
        columns = self.columns.size
        row = _quotient(positions, columns)
        cell = positions - (row - self._kind.take(row)) * columns  # in a table with a row for each kind
        ordinal = self._ordinal.take(cell)
        found = self._class.reshape(-1).take(cell)
        dealt = []
        for number in range(len(self.sizes)):
            _, shift = self._rows_of(number)
            which = np.flatnonzero(found == number)
            dealt.append((which, ordinal.take(which) - shift.take(row.take(which))))
        return dealt

    def collect(self, number: int, places: Array) -> Array:
        """Return the cells (int64, rising) at `places` (int64, rising) of class `number`."""
        if not places.size:
            return places
        starts, shift = self._rows_of(number)
        ends = np.append(np.searchsorted(places, starts), places.size)
        row = np.repeat(np.arange(self.rows.size), np.diff(ends))
        columns: Array = self._order.reshape(-1).take(places + shift.take(row))
        return columns + row * self.columns.size


def find_classes(run: Sparse | Array, count: int, columns: int) -> Classes | None:
    """Return classes that make a run of `count` symbols (uint8) smaller, ``None`` if none do."""
    rows = -(-count // columns)
    nonzero = run.positions.size if isinstance(run, Sparse) else int(np.count_nonzero(run))
    if nonzero < _MIN_NONZERO or rows < 2 or columns < 2:
        return None
    stride = max(nonzero // max(_SAMPLE_SYMBOLS, _SAMPLE_SYMBOLS_PER_COLUMN * columns), 1)
    in_row, seen = np.zeros(rows, np.int64), 0
    symbols, positions = [], []
    for part in parts(run):
        sample = slice(-seen % stride, None, stride)
        symbols.append(part.values[sample].copy())  # or the whole part would stay
        positions.append(part.positions[sample].copy())
        first, last = part.positions[[0, -1]] // columns if part.positions.size else (0, -1)
        edges = np.arange(first, last + 2) * columns
        in_row[first : last + 1] += np.diff(np.searchsorted(part.positions, edges))
        seen += part.positions.size
    symbol, position = np.minimum(np.concatenate(symbols), _ALPHABET - 1), np.concatenate(positions)
    row = _quotient(position, columns)
    column = position - row * columns
    levels = (
        _levels(in_row, nonzero / rows),
        _levels(stride * np.bincount(column, minlength=columns), nonzero / columns),
    )
    # Count each symbol at the cells of each sum of levels. Neighbours with like shares are merged.
    sums = 2 * _TOP_LEVEL + 1
    at = (levels[0].take(row) + levels[1].take(column)).astype(np.intp) * _ALPHABET + symbol
    table = stride * np.bincount(at, minlength=sums * _ALPHABET).reshape(sums, _ALPHABET).astype(np.float64)
    used = [np.bincount(level, minlength=_TOP_LEVEL + 1) for level in levels]
    table[:, 0] = np.maximum(np.convolve(used[0], used[1]) - table[:, 1:].sum(axis=1), 0)
    bounds, bits = _merge(table)
    bits += sum(float(entropy_bits(level)) for level in used)
    if bounds.size == 0 or bits > (1 - _MIN_SAVED_SHARE) * float(entropy_bits(table.sum(axis=0))):
        return None
    return Classes(*levels, bounds)


def _quotient(positions: Array, columns: int) -> Array:
    """Return the row of each position, int64. 32-bit division is several times as fast."""
    rows: Array = (positions.astype(np.uint32) // np.uint32(columns)).astype(np.int64)
    return rows


def _levels(counts: Array, mean: float) -> Array:
    """Return the level (uint8) of rows or columns from their counts of symbols that are not 0."""
    edges = [
        (mean + _COUNT_OFFSET) * 2.0 ** ((k - _TOP_LEVEL / 2 + 0.5) * 2 / _LEVELS_PER_4X)
        for k in range(_TOP_LEVEL)
    ]
    return np.searchsorted(edges, counts + _COUNT_OFFSET).astype(np.uint8)


def _merge(table: Array) -> tuple[Array, float]:
    """Merge neighbouring sums of levels while that saves bits, and to no more classes than allowed.

    `table` has the occurrences of each symbol (columns) at each sum of levels (rows). Returns the
    bounds between the classes (uint8), and the bits that all classes take.
    """
    first = np.flatnonzero(table.any(axis=1))
    table = table[first]
    bits = entropy_bits(table) + _CLASS_BITS
    while len(table) > 1:
        together = entropy_bits(table[:-1] + table[1:]) + _CLASS_BITS
        costs = together - bits[:-1] - bits[1:]
        best = int(costs.argmin())
        if len(table) <= _MAX_CLASSES_TRIED and costs[best] >= 0:
            break
        table[best] += table[best + 1]
        bits[best] = together[best]
        others = np.arange(len(table)) != best + 1
        table, bits, first = table[others], bits[others], first[others]
    return first[1:].astype(np.uint8), float(bits.sum())
