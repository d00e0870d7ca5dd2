"""Canonical, length-limited Huffman codes for bytes: lengths, codes, the stored table.

A code is sent with its most significant bit first, into the lowest free bit, as in Deflate.

Order-0 entropy is about the bits that a code needs. Encoders compare it to choose a form. Reading
never needs it.

Sources: SPEC 7.2; Larmore & Hirschberg, "A fast algorithm for optimal length-limited Huffman
codes", J. ACM 37 (1990) (package-merge).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ..constants import MAX_CODE_BITS
from ..cursor import Cursor
from ..element_types import Array
from ..errors import FormatError
from ..loops import kernel
from .runs import is_filled, packed_size, unpack


def entropy_bits(counts: Array) -> Array:
    """Return the order-0 entropy of all symbols together, in bits (float64), as whole numbers.

    The last dimension of `counts` has the occurrences of each symbol. Machines differ in the last
    bit of a logarithm; rounding keeps that bit from deciding anything.

    Examples
    --------
    >>> entropy_bits(np.array([[4, 4, 0], [8, 0, 0]])).tolist()
    [8.0, 0.0]
    """
    total = counts.sum(axis=-1)
    bits = total * np.log2(np.maximum(total, 1))
    rounded: Array = np.rint(bits - (counts * np.log2(np.maximum(counts, 1))).sum(axis=-1))
    return rounded


#: An encoder's choice: lookup tables of this many bits stay in the first-level cache, and codes are
#: hardly longer.
PREFERRED_CODE_BITS: Final = 12

#: Longer codes are taken if they save at least one bit in this many.
_MIN_SAVED_RATIO: Final = 500


def _reversed_numbers(bits: int) -> Array:
    """Return the numbers of so many bits with their bits in reverse order, as uint16."""
    numbers = np.zeros(1, np.uint16)
    for bit in reversed(range(bits)):
        numbers = np.concatenate([numbers, numbers | np.uint16(1 << bit)])
    return numbers


#: The 15-bit numbers with their bits in reverse order.
REVERSED: Final = _reversed_numbers(MAX_CODE_BITS)


class PackageMerge:
    """The lists of package-merge for `counts` (int64), two or more of them positive.

    A limit uses one list for each bit.
    """

    def __init__(self, counts: Array) -> None:
        symbols = np.flatnonzero(counts)
        self._order = symbols[np.argsort(counts[symbols], kind="stable")]
        self._leaves = counts[self._order].astype(np.int64)
        self._items = self._leaves
        self._flags = [np.ones(self._leaves.size, bool)]  # for each list, which items are leaves
        self._settled = False  # whether all lists from here on are the same
        self._alphabet = counts.size

    def lengths(self, limit: int) -> Array:
        """Return the code lengths (uint8) of least total size with at most `limit` bits."""
        while len(self._flags) < limit:
            if self._settled:
                self._flags.append(self._flags[-1])
                continue
            # The next list: pairs of the last list's items (packages), merged with the leaves.
            paired = self._items[: self._items.size & ~1]
            merged = np.concatenate([self._leaves, paired[0::2] + paired[1::2]])
            by_weight = np.argsort(merged, kind="stable")
            items = merged.take(by_weight)
            self._settled = items.size == self._items.size and bool((items == self._items).all())
            self._items = items
            self._flags.append(by_weight < self._leaves.size)
        # Walk back through the lists. Each chosen leaf adds a bit to its symbol; these leaves are
        # the smallest, so they are a prefix. Each chosen package is two items of the list before.
        bits = np.zeros(self._leaves.size, np.int64)
        chosen = 2 * self._leaves.size - 2
        for flags in reversed(self._flags[:limit]):
            taken = int(np.count_nonzero(flags[:chosen]))
            bits[:taken] += 1
            chosen = 2 * (chosen - taken)
        lengths = np.zeros(self._alphabet, np.uint8)
        lengths[self._order] = bits
        return lengths


def _choose_lengths(counts: Array) -> Array:
    """Return code lengths (uint8) for an encoder: short tables, or longer codes that save enough.

    `counts` are int64, two or more of them positive.
    """
    lists = PackageMerge(counts)
    lengths = lists.lengths(PREFERRED_CODE_BITS)
    if int(lengths.max()) < PREFERRED_CODE_BITS:
        return lengths
    free = lists.lengths(MAX_CODE_BITS)
    saved = int(counts @ lengths) - int(counts @ free)
    return free if saved * _MIN_SAVED_RATIO > int(counts @ free) else lengths


def _choose_lengths_loop(counts: Array) -> Array:
    leaves = np.int64(np.count_nonzero(counts))
    order = np.empty(leaves, np.int64)  # symbols by their counts; of equal ones the lower first
    found = 0
    for symbol in range(counts.size):
        if counts[symbol]:
            place = found
            while place and counts[order[place - 1]] > counts[symbol]:
                order[place] = order[place - 1]
                place -= 1
            order[place] = symbol
            found += 1
    weights = np.empty(2 * leaves, np.int64)  # of the items of a list; a leaf goes before a package
    before = np.empty(2 * leaves, np.int64)  # those of the list before
    taken = np.zeros((MAX_CODE_BITS, 2 * leaves + 1), np.int64)  # leaves among the first items
    size = np.int64(0)
    for number in range(MAX_CODE_BITS):
        leaf = package = 0
        packages = size // 2
        while leaf < leaves or package < packages:
            item = leaf + package
            pair = before[2 * package] + before[2 * package + 1] if package < packages else np.int64(0)
            if leaf < leaves and (package == packages or counts[order[leaf]] <= pair):
                weights[item] = counts[order[leaf]]
                leaf += 1
            else:
                weights[item] = pair
                package += 1
            taken[number, item + 1] = leaf
        size = leaves + packages
        weights, before = before, weights
    lengths = np.zeros((2, counts.size), np.uint8)
    bits = np.zeros(2, np.int64)
    for free in range(2):
        chosen = np.int64(2 * leaves - 2)
        for number in range((MAX_CODE_BITS if free else PREFERRED_CODE_BITS) - 1, -1, -1):
            few = taken[number, chosen]
            for place in range(few):
                lengths[free, order[place]] += 1
                bits[free] += counts[order[place]]
            chosen = 2 * (chosen - few)
    chosen_lengths: Array = lengths[1 if (bits[0] - bits[1]) * _MIN_SAVED_RATIO > bits[1] else 0]
    return chosen_lengths.copy()


choose_lengths = kernel(_choose_lengths, _choose_lengths_loop, "in i8")


def canonical_order(lengths: Array) -> Array:
    """Return the symbols that have a code, in the order of their codes: by length, then symbol."""
    order = np.argsort(lengths, kind="stable")
    return order[lengths[order] > 0]


def canonical_codes(lengths: Array) -> Array:
    """Return the code of each symbol, most significant bit first (LCC-HUF-03), as uint16."""
    codes = np.zeros(lengths.size, np.uint16)
    order = canonical_order(lengths)
    unused = MAX_CODE_BITS - lengths[order].astype(np.int64)
    spans = 1 << unused
    codes[order] = (np.cumsum(spans) - spans) >> unused
    return codes


def read_lengths(cursor: Cursor) -> Array:
    """Return a table of code lengths (uint8), up to the last symbol that has a code.

    Raises
    ------
    FormatError
        If the code is not complete (LCC-HUF-02) or the table is not canonical (LCC-HUF-04).
    """
    last = cursor.integer("B", "last symbol")
    stored = cursor.take(packed_size(last + 1, 4), "code lengths")
    lengths = unpack(stored, last + 1, 4)
    if lengths[last] == 0 or not is_filled(stored, last + 1, 4):
        raise FormatError("LCC-HUF-04", cursor.where, "the table of code lengths is not canonical")
    space = int((1 << (MAX_CODE_BITS - lengths[lengths > 0].astype(np.int64))).sum())
    if space != 1 << MAX_CODE_BITS:  # nor does that of a single symbol
        raise FormatError("LCC-HUF-02", cursor.where, "the code lengths do not form a complete code")
    return lengths
