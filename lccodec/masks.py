"""Searching in masks: bool arrays, and packed bits (LCC-BIT-01)."""

from __future__ import annotations

from typing import Final

import numpy as np

from .element_types import Array

_DENSE: Final = 10  # if more than one element in so many is true, NumPy looks at each without a jump
_DENSE_BYTES: Final = 4  # the same for bytes of packed bits
_MIN_ELEMENTS: Final = 1 << 15  # of fewer, the additional calls take longer than the search

#: The place of the lowest bit that is set in each byte.
_LOWEST_BIT: Final = np.array([0, *(((byte & -byte).bit_length() - 1) for byte in range(1, 256))], np.uint8)


def true_places(mask: Array) -> Array:
    """Return the places where a 1-D bool array is true: int64, rising, as ``np.flatnonzero`` does.

    Where few elements are true, NumPy jumps from one to the next, and a processor cannot guess how
    far. So this looks first which words of eight have any, and then at all elements of these words.
    """
    if mask.size < _MIN_ELEMENTS or _DENSE * np.count_nonzero(mask) > mask.size:
        return mask.nonzero()[0]
    whole = mask.size & ~7
    words = mask[:whole].view(np.uint64)
    some = (words != 0).nonzero()[0]
    found = words.take(some, mode="clip").view(np.bool_).nonzero()[0]
    some <<= 3
    result: Array = some.take(found >> 3, mode="clip")
    found &= 7
    result += found
    if mask[whole:].any():
        result = np.append(result, mask[whole:].nonzero()[0] + whole)
    return result


def bit_places(bits: Array) -> Array:
    """Return the places of the bits that are set in bytes (LCC-BIT-01): int64, rising.

    Where few are set, most bytes that are not 0 have one. It is looked up, and the others again.
    """
    if bits.size % 2:
        bits = np.append(bits, np.uint8(0))
    if np.count_nonzero(bits) * _DENSE_BYTES > bits.size:
        return true_places(np.unpackbits(bits, bitorder="little").view(np.bool_))
    some = (bits.view(np.uint16) != 0).nonzero()[0]
    pairs = bits.reshape(-1, 2).take(some, axis=0, mode="clip").reshape(-1)
    which = (pairs != 0).nonzero()[0]
    left = pairs.take(which, mode="clip")
    place = some.take(which >> 1, mode="clip")
    place <<= 1
    which &= 1
    place += which
    place <<= 3
    found = []
    while left.size:
        found.append(place + _LOWEST_BIT.take(left))
        left &= left - np.uint8(1)
        some = left.nonzero()[0]
        place, left = place.take(some, mode="clip"), left.take(some, mode="clip")
    result: Array = np.concatenate([np.zeros(0, np.int64), *found])
    result.sort(kind="stable")  # a few rising runs: that is fast
    return result
