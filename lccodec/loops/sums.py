"""Sums that guard bytes: the weighted sum of words (SPEC 6.1), and the CRC-32.

A CRC is the remainder of a polynomial. With ``y = x**64``, the polynomial of this one divides ``1 +
y**1837 + y**2091 + y**4018``. So a word can be added to three words behind it instead of being
divided: the remainder stays the same. Additions are exclusive ors, which a processor makes of many
words at once. The words at the end are left to zlib.

Source: Russell, "Chorba: A novel CRC32 implementation", arXiv 2412.16398 (2024).
"""

from __future__ import annotations

import zlib
from typing import Any, Final

import numpy as np

from ..element_types import Array
from . import is_compiled, kernel

_ROW_WORDS: Final = 1 << 11  # words in a row of the matrices that are summed
_WEIGHTS: Final = np.arange(1, 2 * _ROW_WORDS, 2, dtype=np.uint64)
_WORDS_AT_A_TIME: Final = 1 << 17

# How many words a word is added behind: the exponents above, from the largest down.
_NEAR: Final = 4018 - 2091
_MIDDLE: Final = 4018 - 1837
_FAR: Final = 4018
_FOLDED_WORDS: Final = 16 * _NEAR  # at a time: they stay in the cache
#: Of fewer bytes, zlib takes less time.
_MIN_FOLDED_BYTES: Final = 1 << 17
_ONES: Final = (1 << 32) - 1


def _weighted_sum(words: Array, first: int) -> Any:
    """Return the sum of ``(2 i + 1) * word_i`` modulo 2**64; `first` is the number of the first."""
    # In a matrix of words the weight of a word is the sum of a weight of its row and one of its
    # column. So two passes of additions replace a multiplication of every word, which takes longer.
    end = words.size - words.size % _ROW_WORDS
    total = start = 0
    while start < words.size:
        part = words[start : min(start + _WORDS_AT_A_TIME, end) if start < end else words.size]
        start += part.size
        matrix = part.reshape(-1, min(_ROW_WORDS, part.size))
        rows, columns = np.add.reduce(matrix, axis=1), np.add.reduce(matrix, axis=0)
        heads = np.arange(first, first + part.size, _ROW_WORDS, dtype=np.uint64)
        total += int(np.add.reduce(columns * _WEIGHTS[: columns.size])) + 2 * int(np.add.reduce(rows * heads))
        first += part.size
    return total


def _weighted_sum_loop(words: Array, first: int) -> Any:
    total, weight = np.uint64(0), np.uint64(2 * first + 1)
    for place in range(words.size):
        total += words[place] * weight
        weight += np.uint64(2)
    return total


weighted_sum = kernel(_weighted_sum, _weighted_sum_loop, "in u8, i8")


def crc32(data: bytes | memoryview, before: int = 0) -> int:
    """Return the CRC-32 of bytes behind others, whose CRC-32 is `before`, as ``zlib.crc32``."""
    size = len(data) - len(data) % 8
    if len(data) < _MIN_FOLDED_BYTES or not is_compiled(_folded):
        return zlib.crc32(data, before)
    last = _folded(np.frombuffer(data, np.uint64, size // 8), ~before & _ONES)
    return zlib.crc32(memoryview(data)[size:], zlib.crc32(last.data, _ONES))


def _folded_numpy(words: Array, register: int) -> Array:
    """Return the words at the end, with all others added to them.

    There are more than `_FAR` words. The register of the CRC is added to the first one.
    """
    folded = words.copy()
    folded[0] ^= np.uint64(register)
    for start in range(0, words.size - _FAR, _NEAR):
        own = folded[start : min(start + _NEAR, words.size - _FAR)]
        for distance in (_NEAR, _MIDDLE, _FAR):
            folded[start + distance :][: own.size] ^= own
    return folded[-_FAR:]


def _folded_loop(words: Array, register: int) -> Array:
    # The window has the words before, folded, and then those at hand.
    near, middle, far = np.uint64(_FAR - _NEAR), np.uint64(_FAR - _MIDDLE), np.uint64(_FAR)
    window = np.zeros(_FAR + _FOLDED_WORDS, np.uint64)
    window[0] = register
    end = words.size - _FAR
    for start in range(0, end, _FOLDED_WORDS):
        own = words[start : min(start + _FOLDED_WORDS, end)]
        for place in range(own.size):
            k = np.uint64(place)  # a signed place would be looked at
            window[k + far] = own[k] ^ window[k + near] ^ window[k + middle] ^ window[k]
        for word in range(_FAR):
            window[word] = window[own.size + word]
    last = words[end:].copy()
    for distance in (_NEAR, _MIDDLE, _FAR):
        own = window[_FAR - distance : _FAR]
        for word in range(distance):
            last[word] ^= own[word]
    return last


_folded = kernel(_folded_numpy, _folded_loop, "in u8, i8")
