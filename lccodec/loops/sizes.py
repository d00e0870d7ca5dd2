"""Which components are of a size, by their patterns without the top bit. Source: SPEC 7.4."""

from __future__ import annotations

from typing import Final

import numpy as np

from ..element_types import Array
from ..parallel import PIECE, slices
from . import kernel
from .counts import bit_places

_CHUNK_WORDS: Final = 1 << 12  # that are searched at a time


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
