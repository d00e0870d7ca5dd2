"""Erasure code over blocks of equal length: parity of blocks, and blocks from parity.

Arrays in, arrays out: nothing here knows files. Imports nothing but the ground floor.

Blocks of one row belong together: `d` data blocks give `k` parity blocks. Any `k` of all the blocks
may be lost. Data block j has the point y(j) of GF(256), parity block i the point x(i), all
different, and the coefficient of j in i is ``y(j) / (x(i) + y(j))``. That is a Cauchy matrix whose
columns are scaled so that the first row is all 1: the first parity block is a XOR. The points are
such that coefficients of the second row have few bits, because each bit of one costs a XOR.

A product is made from the highest bit of the coefficients down: double what is there, add the
blocks whose coefficient has this bit. So a row of any number of blocks costs 7 doublings.

Numbers of GF(256) are bytes: polynomials over GF(2), modulo x^8 + x^4 + x^3 + x^2 + 1. Sums are
XOR. Single numbers are multiplied by logarithms. Arrays are doubled eight bytes at a time.

Sources: SPEC 9 (LCC-PAR-05); J. Blömer et al., An XOR-based erasure-resilient coding scheme (1995);
H. P. Anvin, The mathematics of RAID-6 (2004), for the doubling.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ..constants import MAX_DATA_COLUMNS, MAX_PARITY_COLUMNS
from ..errors import ArgumentError

POLYNOMIAL: Final = 0x11D  # LCC-PAR-05: 2 generates all numbers but 0
_ORDER: Final = 255  # of the multiplicative group

Words = npt.NDArray[np.uint64]

_LOW_BIT: Final = np.uint64(0x0101010101010101)
_LOW_SEVEN: Final = np.uint64(0x7F7F7F7F7F7F7F7F)
_REDUCTION: Final = np.uint64(POLYNOMIAL & 0xFF)
_SEVEN: Final = np.uint64(7)


def _powers() -> tuple[list[int], list[int]]:
    """Return the powers of 2, twice in a row, and the logarithm of each number."""
    powers, logarithms, value = [0] * (2 * _ORDER), [0] * 256, 1
    for exponent in range(_ORDER):
        powers[exponent] = powers[exponent + _ORDER] = value
        logarithms[value] = exponent
        value <<= 1
        if value > _ORDER:
            value ^= POLYNOMIAL
    return powers, logarithms


_POWERS, _LOGARITHMS = _powers()


def multiply(a: int, b: int) -> int:
    """Return the product of two numbers."""
    return _POWERS[_LOGARITHMS[a] + _LOGARITHMS[b]] if a and b else 0


def divide(a: int, b: int) -> int:
    """Return the quotient of two numbers; `b` is not 0."""
    return _POWERS[_LOGARITHMS[a] + _ORDER - _LOGARITHMS[b]] if a else 0


def inverse(matrix: list[list[int]]) -> list[list[int]]:
    """Return the inverse of a square matrix that has one, by elimination."""
    size = len(matrix)
    rows = [[*row, *(int(i == j) for j in range(size))] for i, row in enumerate(matrix)]
    for column in range(size):
        pivot = next(i for i in range(column, size) if rows[i][column])
        rows[column], rows[pivot] = rows[pivot], rows[column]
        rows[column] = [divide(value, rows[column][column]) for value in rows[column]]
        for i, row in enumerate(rows):
            if i != column and (factor := row[column]):
                rows[i] = [a ^ multiply(factor, b) for a, b in zip(row, rows[column], strict=True)]
    return [row[size:] for row in rows]


def double(words: Words, spare: Words) -> None:
    """Double every byte of an array in place. `spare` is memory of the same shape.

    Bytes do not depend on each other, so the byte order of the host does not matter.
    """
    out: dict[str, Any] = {"out": spare}
    np.right_shift(words, _SEVEN, **out)
    np.bitwise_and(spare, _LOW_BIT, **out)
    np.multiply(spare, _REDUCTION, **out)
    np.bitwise_and(words, _LOW_SEVEN, out=words)
    np.add(words, words, out=words)
    np.bitwise_xor(words, spare, out=words)


Block = npt.NDArray[np.uint8]

_PIECE_WORDS: Final = 1 << 14  # of a block that are worked on at once: they stay in the cache
_WORD_BYTES: Final = 8


@cache
def points() -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the points of all data columns and of all parity columns (LCC-PAR-05)."""
    second = sorted(range(2, 256), key=lambda c: (c.bit_count(), c))
    found = [divide(c, c ^ 1) for c in second]
    data, rest = found[:MAX_DATA_COLUMNS], found[MAX_DATA_COLUMNS:]
    return tuple(data), (0, 1, *rest)[:MAX_PARITY_COLUMNS]


def coefficients(parity: Sequence[int], data: Sequence[int]) -> list[list[int]]:
    """Return the coefficients of data columns in parity columns, both given by their numbers."""
    ys, xs = points()
    return [[divide(ys[j], xs[i] ^ ys[j]) for j in data] for i in parity]


def combine(rows: Sequence[Sequence[int]], blocks: Sequence[Block], outs: Sequence[Block]) -> None:
    """Write the sum of coefficient times block, of each row, into the block of that row.

    All blocks have one length, a multiple of 8 bytes, and are contiguous. A row has a coefficient
    for each block. Those that are 0 cost nothing.
    """
    inputs, results = [_words(each) for each in blocks], [_words(each) for each in outs]
    length = len(results[0]) if results else 0
    spare = np.empty(min(_PIECE_WORDS, length), np.uint64)
    for start in range(0, length, _PIECE_WORDS):
        part = slice(start, min(start + _PIECE_WORDS, length))
        pieces = [each[part] for each in inputs]
        for row, result in zip(rows, results, strict=True):
            _combine_piece(row, pieces, result[part], spare[: part.stop - part.start])


def _combine_piece(row: Sequence[int], pieces: Sequence[Words], out: Words, spare: Words) -> None:
    is_empty = True
    for bit in reversed(range(max(row, default=0).bit_length())):
        chosen = [piece for number, piece in zip(row, pieces, strict=True) if number >> bit & 1]
        if is_empty:  # the highest bit: there is always a block that has it
            np.copyto(out, chosen[0])
            chosen, is_empty = chosen[1:], False
        else:
            double(out, spare)
        for piece in chosen:
            np.bitwise_xor(out, piece, out=out)
    if is_empty:
        out[:] = 0


def encode(data: Mapping[int, Block], parity: Mapping[int, Block]) -> None:
    """Write parity blocks from data blocks, by their columns; those that are left out are zeros."""
    combine(coefficients(list(parity), list(data)), list(data.values()), list(parity.values()))


def rebuild(data: Mapping[int, Block], parity: Mapping[int, Block], lost: Mapping[int, Block]) -> None:
    """Write lost data blocks from all the others and from parity blocks, by their columns.

    Data columns that are in neither count as zeros. Of the parity blocks as many are used as blocks
    are lost, those of the lowest columns. Raises ``ArgumentError`` if there are fewer.
    """
    if len(parity) < len(lost):
        raise ArgumentError(f"{len(parity)} parity blocks cannot replace {len(lost)} data blocks")
    if not lost:
        return
    used = sorted(parity)[: len(lost)]
    sums = coefficients(used, list(data))
    spares = [np.empty_like(parity[i]) for i in used]
    # What the lost blocks add to each parity block: the parity block, and all that is known of it.
    rows = [[*(int(i == j) for j in used), *row] for i, row in zip(used, sums, strict=True)]
    combine(rows, [*(parity[i] for i in used), *data.values()], spares)
    solution = inverse(coefficients(used, list(lost)))
    outs = list(lost.values())
    if used[0] == 0:  # a XOR of all: the last block is what the others leave of it
        combine(solution[:-1], spares, outs[:-1])
        ones = [1] * len(outs)
        combine([ones], [spares[0], *outs[:-1]], outs[-1:])
    else:
        combine(solution, spares, outs)


def _words(block: Block) -> Words:
    if len(block) % _WORD_BYTES:
        raise ArgumentError(f"a block must have a multiple of {_WORD_BYTES} bytes; got {len(block)}")
    return block.view(np.uint64)
