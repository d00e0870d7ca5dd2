"""Classes of a matrix's cells by the levels of their row and column, each class with codes of its own.

Rows and columns of a weight differ in how much they move: neurons that learn, inputs that are rare. A
symbol tells more where few others like it are expected, so symbols are dealt out to classes by how
active their row and their column are, and every class is coded by itself.

Source: SPEC 7.4 (classed streams), `spec/decisions/0007-classed-streams.md`.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ..element_types import Array
from .histogram import entropy_bits

__all__ = ["Classes", "find_classes", "row_length"]

#: What the encoder tries: so many classes, of matrices of so many symbols that are not 0, at least.
_CLASSES: Final = 4
_FEWEST: Final = 200

_LEVELS: Final = 3  # levels for each factor of four in activity, on either side of the mean
_HIGHEST: Final = 12  # levels are 0 to this one; the middle one is the mean
_ROUNDING: Final = 0.3  # added to occurrences, of which few tell little
_COUNTED: Final = 16  # symbols from the last of these on are counted as one

_SAMPLE: Final = 1 << 16  # symbols that classes are found by, at least, and so many for each column
_SAMPLES_EACH: Final = 32

_CLASS_BITS: Final = 200.0  # what a class takes beyond its symbols: heads and tables of its streams
_WORTH: Final = 0.03  # share of the bits that classes have to save


def row_length(shape: tuple[int, ...], components: int) -> int:
    """Return the components in a row, as which the cells of an array are looked at; 0 for a vector.

    An array of more than two dimensions is parted between the two that make the matrix squarest.
    """
    size, rows = components, 1
    for extent in shape:
        size *= extent
    best = 0
    for extent in shape[:-1]:
        rows *= extent
        columns = size // max(rows, 1)
        if min(rows, columns) > min(best, size // max(best, 1)):
            best = columns
    return best


class Classes:
    """Which class each cell of a matrix is in.

    Parameters
    ----------
    rows, columns
        Level of each row and of each column, uint8, of few values.
    bounds
        Rising, uint8: the class of a cell is the number of them that are at most the sum of its levels.

    Attributes
    ----------
    sizes
        Cells of each class.
    """

    def __init__(self, rows: Array, columns: Array, bounds: Array) -> None:
        self.rows, self.columns, self.bounds = rows, columns, bounds
        # Rows of one level, a kind, have their classes in the same columns.
        kinds, self._kind = np.unique(rows, return_inverse=True)
        sums = np.add.outer(kinds, columns, dtype=np.int64)
        class_of = np.searchsorted(bounds, np.arange(511), side="right").astype(np.uint8)
        self._class = class_of.take(sums)  # (kinds, columns)
        self._order = np.argsort(self._class, axis=1, kind="stable")  # columns, class by class
        counts = np.stack(
            [(self._class == k).sum(axis=1) for k in range(bounds.size + 1)]
        )  # (classes, kinds)
        here = counts[:, self._kind]
        ends = np.cumsum(here, axis=1)
        self._starts = ends - here  # of a row in a class, (classes, rows)
        self.sizes: list[int] = ends[:, -1].tolist()
        # What leads from a place in a class to one in the order of columns of all kinds.
        first = (np.cumsum(counts, axis=0) - counts)[:, self._kind]
        self._shift = first + self._kind * columns.size - self._starts

    def deal(self, positions: Array) -> list[tuple[Array, Array]]:
        """Deal cells out to their classes.

        Parameters
        ----------
        positions
            Of cells in the matrix, row by row, int64, rising.

        Returns
        -------
        list of tuple of ndarray
            For each class, which of `positions` are in it and their positions there; int64, rising.
        """
        columns = self.columns.size
        row = _quotient(positions, columns)
        cell = positions - (row - self._kind.take(row)) * columns  # in a table with a row for each kind
        ordinal = np.empty_like(self._order)
        np.put_along_axis(ordinal, self._order, np.arange(ordinal.size).reshape(ordinal.shape), axis=1)
        ordinal = ordinal.reshape(-1).take(cell)
        found = self._class.reshape(-1).take(cell)
        dealt = []
        for number, shift in enumerate(self._shift):
            few = np.flatnonzero(found == number)
            dealt.append((few, ordinal.take(few) - shift.take(row.take(few))))
        return dealt

    def collect(self, number: int, places: Array) -> Array:
        """Return the cells (int64, rising) that lie at `places` (int64, rising) of a class."""
        ends = np.append(np.searchsorted(places, self._starts[number]), places.size)
        row = np.repeat(np.arange(self.rows.size), np.diff(ends))
        columns: Array = self._order.reshape(-1).take(places + self._shift[number].take(row))
        return columns + row * self.columns.size


def find_classes(positions: Array, values: Array, count: int, columns: int) -> Classes | None:
    """Return classes that make a run of symbols smaller; ``None`` where they do not.

    Parameters
    ----------
    positions, values
        Of the symbols that are not 0: int64, rising, and uint8.
    count
        Of all symbols.
    columns
        In a row.
    """
    rows = -(-count // columns)
    if positions.size < _FEWEST or rows < 2 or columns < 2:
        return None
    stride = max(positions.size // max(_SAMPLE, _SAMPLES_EACH * columns), 1)
    symbol, position = np.minimum(values[::stride], _COUNTED - 1), positions[::stride]
    row = _quotient(position, columns)
    column = position - row * columns
    in_row = np.diff(np.searchsorted(positions, np.arange(rows + 1) * columns))
    levels = (
        _levels(in_row, positions.size / rows),
        _levels(stride * np.bincount(column, minlength=columns), positions.size / columns),
    )
    # How often each symbol is at the cells of each sum of levels: neighbours with like shares are merged.
    sums = 2 * _HIGHEST + 1
    at = (levels[0].take(row) + levels[1].take(column)).astype(np.intp) * _COUNTED + symbol
    table = stride * np.bincount(at, minlength=sums * _COUNTED).reshape(sums, _COUNTED).astype(np.float64)
    seen = [np.bincount(level, minlength=_HIGHEST + 1) for level in levels]
    table[:, 0] = np.maximum(np.convolve(seen[0], seen[1]) - table[:, 1:].sum(axis=1), 0)
    bounds, bits = _merge(table)
    bits += sum(float(entropy_bits(level)) for level in seen)
    if bounds.size == 0 or bits > (1 - _WORTH) * float(entropy_bits(table.sum(axis=0))):
        return None
    return Classes(*levels, bounds)


def _quotient(positions: Array, columns: int) -> Array:
    """Return the row of each position, int64; several times as fast by 32-bit numbers."""
    rows: Array = (positions.astype(np.uint32) // np.uint32(columns)).astype(np.int64)
    return rows


def _levels(counts: Array, mean: float) -> Array:
    """Return the level (uint8) of rows, by how many of their symbols are not 0."""
    edges = [(mean + _ROUNDING) * 2.0 ** ((k - _HIGHEST / 2 + 0.5) * 2 / _LEVELS) for k in range(_HIGHEST)]
    return np.searchsorted(edges, counts + _ROUNDING).astype(np.uint8)


def _merge(table: Array) -> tuple[Array, float]:
    """Merge neighbouring sums of levels as long as it saves bits, and to no more classes than allowed.

    Returns
    -------
    tuple
        Bounds between the classes (uint8), and the bits that they take.
    """
    first = np.flatnonzero(table.any(axis=1))
    table = table[first]
    bits = entropy_bits(table) + _CLASS_BITS
    while len(table) > 1:
        together = entropy_bits(table[:-1] + table[1:]) + _CLASS_BITS
        costs = together - bits[:-1] - bits[1:]
        best = int(costs.argmin())
        if len(table) <= _CLASSES and costs[best] >= 0:
            break
        table[best] += table[best + 1]
        bits[best] = together[best]
        others = np.arange(len(table)) != best + 1
        table, bits, first = table[others], bits[others], first[others]
    return first[1:].astype(np.uint8), float(bits.sum())
