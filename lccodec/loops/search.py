"""Counting and searching: how often values occur, and where an array has what is looked for.

That may be what is true in a mask, where two arrays differ, or components of a size, by their
patterns without the top bit. Masks are bool arrays, or packed bits (LCC-BIT-01).

Source: SPEC 7.1, 7.2 and 7.4.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ..element_types import Array
from ..parallel import PIECE, slices
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


_WORD_BYTES: Final = 8
_FEW_BYTES: Final = 1 << 12  # of fewer, the calls of a search by words take longer than the search
_CHUNK_WORDS: Final = 1 << 12  # that are searched at a time


def _differing(one: Array, other: Array) -> Array:
    """Return the places where two 1-D arrays of unsigned integers differ: int64, rising.

    With an empty second array, these are the places of what is not 0. Words of eight bytes are
    compared first: where few values differ, most words are the same.
    """
    if one.nbytes <= _FEW_BYTES:
        places: Array = (one != other if other.size else one).nonzero()[0]
        return places
    ratio = _WORD_BYTES // one.itemsize
    end = one.size - one.size % ratio
    left = one[:end].view(np.uint64)
    if other.size:
        right = other[:end].view(np.uint64)
        words = true_places(left != right)
        some = left.take(words, mode="clip") ^ right.take(words, mode="clip")
        rest = (one[end:] != other[end:]).nonzero()[0]
    else:
        words = true_places(left != 0)
        some = left.take(words, mode="clip")
        rest = one[end:].nonzero()[0]
    inside = some.view(one.dtype).nonzero()[0]
    found: Array = words.take(inside // ratio, mode="clip")
    found *= ratio
    found += inside % ratio
    return np.append(found, rest + end) if rest.size else found


def _differing_loop(one: Array, other: Array) -> Array:
    # No branch depends on a value, since a processor cannot guess which values differ.
    unit, ratio = np.uint64(1), np.uint64(_WORD_BYTES // one.itemsize)
    zero = one.dtype.type(0)  # with a plain 0, numbers of 64 bits would be compared as floats
    end = one.size - one.size % ratio
    left, right = one[:end].view(np.uint64), other[: min(end, other.size)].view(np.uint64)
    words, room = np.empty(_CHUNK_WORDS, np.uint64), _CHUNK_WORDS * _WORD_BYTES
    places, found = np.empty(room, np.int64), np.uint64(0)
    for first in range(0, left.size, _CHUNK_WORDS):
        count = np.uint64(0)
        if right.size:
            for word in range(np.uint64(first), np.uint64(min(first + _CHUNK_WORDS, left.size))):
                words[count] = word
                count += np.uint64(left[word] != right[word])
        else:
            for word in range(np.uint64(first), np.uint64(min(first + _CHUNK_WORDS, left.size))):
                words[count] = word
                count += np.uint64(left[word] != 0)
        if found + count * ratio >= np.uint64(places.size):
            more = np.empty(2 * places.size + room, np.int64)
            more[:found] = places[:found]
            places = more
        for k in range(count):
            start = words[k] * ratio
            for place in range(start, start + ratio):
                places[found] = place
                found += np.uint64(one[place] != (other[place] if right.size else zero))
    result = np.empty(found + np.uint64(one.size - end), np.int64)
    result[:found] = places[:found]
    for place in range(end, one.size):
        if one[place] != (other[place] if other.size else zero):
            result[found] = place
            found += unit
    return result[:found]


differing = kernel(_differing, _differing_loop, *(f"in u{n}, in u{n}" for n in (1, 2, 4, 8)))


def without_top_bit(bits: Array, out: Array | None = None) -> Array:
    """Return components without their top bits; they are also written into `out`."""
    size: Array = np.bitwise_and(bits, bits.dtype.type((1 << (8 * bits.itemsize - 1)) - 1), out=out)
    return size


def below(bits: Array, bounds: Array) -> Array:
    """Return which components are below each bound: a row of packed bits each (LCC-BIT-01)."""
    rows = np.empty((bounds.size, -(-bits.size // 8)), np.uint8)
    size, mask = np.empty(min(bits.size, PIECE), bits.dtype), np.empty(min(bits.size, PIECE), bool)
    for part in slices(bits.size):
        some = bits[part]
        without_top_bit(some, size[: some.size])
        for row, bound in zip(rows, bounds, strict=True):
            found = np.packbits(np.less(size[: some.size], bound, out=mask[: some.size]), bitorder="little")
            row[part.start // 8 :][: found.size] = found
    return rows


def _between(bits: Array, low: int, high: int) -> Array:
    """Return the places (int64, rising) of components from one bound on, and below another."""
    bounds = np.array([low, high][not low :], bits.dtype)
    found: Array = np.bitwise_xor.reduce(below(bits, bounds), axis=0)
    return bit_places(found)


def _between_loop(bits: Array, low: int, high: int) -> Array:
    # No branch depends on a value, since a processor cannot guess which are small. The top bit of a
    # lane is set where a component is not below `high`: the sum cannot reach the next lane.
    one, width = np.uint64(1), np.uint64(8 * bits.itemsize)
    ratio, top = np.uint64(8 // bits.itemsize), one << width - one
    lanes = np.uint64(0)
    for lane in range(ratio):
        lanes |= one << width * np.uint64(lane)
    tops = lanes * top
    rest = lanes * (top - min(np.uint64(high), top))
    end = bits.size - bits.size % ratio
    words = bits[:end].view(np.uint64)
    chosen, room = np.empty(_CHUNK_WORDS, np.uint64), _CHUNK_WORDS * 8
    places, found = np.empty(room, np.int64), np.uint64(0)
    for first in range(0, words.size + 1, _CHUNK_WORDS):
        count = np.uint64(0)
        for word in range(np.uint64(first), np.uint64(min(first + _CHUNK_WORDS, words.size))):
            chosen[count] = word
            count += np.uint64(((words[word] & ~tops) + rest) & tops != tops)
        if found + count * ratio + ratio >= np.uint64(places.size):
            more = np.empty(2 * places.size + room, np.int64)
            more[:found] = places[:found]
            places = more
        for k in range(count):
            start = chosen[k] * ratio
            for place in range(start, start + ratio):
                size = np.uint64(bits[place]) & (top - one)
                places[found] = place
                found += np.uint64((size >= np.uint64(low)) & (size < np.uint64(high)))
    for place in range(np.uint64(end), np.uint64(bits.size)):
        size = np.uint64(bits[place]) & (top - one)
        places[found] = place
        found += np.uint64((size >= np.uint64(low)) & (size < np.uint64(high)))
    return places[:found].copy()


between = kernel(_between, _between_loop, *(f"in u{n}, u8, u8" for n in (1, 2, 4, 8)))
