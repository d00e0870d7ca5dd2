"""The array sum: a checksum of what a frame decodes to (LCC-FRM-09)."""

from __future__ import annotations

import sys
from typing import Final

import numpy as np

from ..byteorder import stored_bytes, stored_view
from ..element_types import Array
from ..parallel import PIECE

__all__ = ["SUM_MASK", "array_sum"]

SUM_MASK: Final = (1 << 64) - 1
_COLUMNS: Final = 1 << 11  # words in a row of the matrices that the array sum adds up
_ODD: Final = np.arange(1, 2 * _COLUMNS, 2, dtype=np.uint64)


def array_sum(bits: Array, first: int = 0) -> int:
    """Return the checksum of an array's components: the sum of ``(2 i + 1) * word_i`` mod 2**64.

    Parts of an array can be summed apart: `first` is the index of the part's first word. Words are
    the little-endian bytes of the array, eight at a time, the last one filled with zeros
    (LCC-FRM-09). It tells a wrong reference or a codec that computes differently, at the speed of
    reading memory; stored bytes have their own CRC.
    """
    if sys.byteorder == "big" and bits.size > PIECE:  # so that no array is copied as a whole
        starts = range(0, bits.size, PIECE)
        return sum(array_sum(bits[i : i + PIECE], first + i * bits.itemsize // 8) for i in starts) & SUM_MASK
    data = stored_view(bits)
    whole = data.size & ~7
    words = data[:whole].view("<u8")
    total = 0
    if whole < data.size:
        rest = int.from_bytes(stored_bytes(data[whole:]), "little")
        total = (2 * first + whole // 4 + 1) * rest
    # In a matrix of words, row r and column c together make the weight of (r, c): two passes of additions
    # take less time than one multiplication of every word.
    end = words.size - words.size % _COLUMNS
    for start in range(0, end, PIECE):
        matrix = words[start : min(start + PIECE, end)].reshape(-1, _COLUMNS)
        rows, columns = np.add.reduce(matrix, axis=1), np.add.reduce(matrix, axis=0)
        heads = np.arange(first + start, first + start + matrix.size, _COLUMNS, dtype=np.uint64)
        total += int(np.add.reduce(columns * _ODD)) + 2 * int(np.add.reduce(rows * heads))
    if end < words.size:
        tail = words[end:]
        total += int(np.add.reduce(tail * _ODD[: tail.size])) + 2 * (first + end) * int(np.add.reduce(tail))
    return total & SUM_MASK
