"""Occurrences of symbols, and their order-0 entropy: about the bits that a Huffman code needs.

Encoders compare these figures to choose a form. Reading never needs them.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ..element_types import Array
from ..parallel import slices

#: From this many symbols on, counting pairs of bytes takes less time than counting bytes.
_MIN_PAIRED_SYMBOLS: Final = 1 << 17
_PAIRS_AT_A_TIME: Final = 1 << 18  # NumPy makes eight bytes of each


def histogram(data: Array) -> Array:
    """Return how often each of the 256 byte values occurs in `data` (uint8), as int64."""
    if data.size < _MIN_PAIRED_SYMBOLS:
        return np.bincount(data, minlength=256)
    whole = data[: data.size & ~1].view(np.uint16)
    pairs = np.zeros((256, 256), np.int64)
    for part in slices(whole.size, _PAIRS_AT_A_TIME):
        pairs += np.bincount(whole[part], minlength=1 << 16).reshape(256, 256)
    counts: Array = pairs.sum(axis=0) + pairs.sum(axis=1)
    if data.size & 1:
        counts[data[-1]] += 1
    return counts


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
