"""Counting and searching: how often byte values occur, where masks are true, sums by symbols.

Masks are bool arrays, or packed bits (LCC-BIT-01). Source: SPEC 7.1 and 7.2.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ..element_types import Array
from ..parallel import slices
from . import kernel

#: From this many symbols on, counting pairs of bytes takes less time than counting bytes.
_MIN_PAIRED_SYMBOLS: Final = 1 << 17
_PAIRS_AT_A_TIME: Final = 1 << 18  # NumPy makes eight bytes of each


def _histogram(data: Array) -> Array:
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


def _histogram_loop(data: Array) -> Array:
    # Equal symbols next to each other do not wait for each other in four tables.
    counts = np.zeros((4, 256), np.int64)
    whole = data.size & ~3
    for place in range(0, whole, 4):
        counts[0, data[place]] += 1
        counts[1, data[place + 1]] += 1
        counts[2, data[place + 2]] += 1
        counts[3, data[place + 3]] += 1
    for place in range(whole, data.size):
        counts[0, data[place]] += 1
    total: Array = counts.sum(axis=0)
    return total


histogram = kernel(_histogram, _histogram_loop, "in u1")


def tally(symbols: Array, numbers: Array, unit: float, count: int) -> tuple[Array, Array]:
    """Return how many numbers have each of `count` symbols, and the sums of these, float64.

    Numbers are multiplied by `unit` before.
    """
    counts, sums = np.zeros(count, np.int64), np.zeros(count)
    form = _tally if symbols.itemsize <= 2 and numbers.dtype.char in "fd" else _tally_numpy
    form(symbols, numbers, numbers.dtype.type(unit), counts, sums)
    return counts, sums


def _tally_numpy(symbols: Array, numbers: Array, unit: Any, counts: Array, sums: Array) -> None:
    places = symbols.astype(np.intp)  # once for both
    counts += np.bincount(places, minlength=counts.size)
    sums += np.bincount(places, numbers if unit == 1 else numbers * unit, minlength=sums.size)


def _tally_loop(symbols: Array, numbers: Array, unit: Any, counts: Array, sums: Array) -> None:
    for place in range(symbols.size):
        counts[symbols[place]] += 1
        sums[symbols[place]] += numbers[place] * unit


_tally = kernel(
    _tally_numpy,
    _tally_loop,
    *(f"in {s}, in {t}, {t}, out i8, out f8" for s in ("u1", "u2") for t in ("f4", "f8")),
)


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
