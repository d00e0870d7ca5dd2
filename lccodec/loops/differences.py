"""Where two arrays differ."""

from __future__ import annotations

from typing import Final

import numpy as np

from ..element_types import Array
from . import kernel
from .counts import true_places

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
