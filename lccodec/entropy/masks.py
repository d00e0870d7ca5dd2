"""Searching in masks: bool arrays."""

from __future__ import annotations

from typing import Final

import numpy as np

from ..element_types import Array

_DENSE: Final = 10  # if more than one element in so many is true, NumPy looks at each without a jump
_MIN_ELEMENTS: Final = 1 << 15  # of fewer, the additional calls take longer than the search


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
