"""Parity of blocks, and blocks from parity.

Blocks of one row belong together: `d` data blocks give `k` parity blocks. Any `k` of all the blocks
may be lost. Data block j has the point y(j) of GF(256), parity block i the point x(i), all
different, and the coefficient of j in i is ``y(j) / (x(i) + y(j))``. That is a Cauchy matrix whose
columns are scaled so that the first row is all 1: the first parity block is a XOR. The points are
such that coefficients of the second row have few bits, because each bit of one costs a XOR.

A product is made from the highest bit of the coefficients down: double what is there, add the
blocks whose coefficient has this bit. So a row of any number of blocks costs 7 doublings.

Source: SPEC 9 (LCC-PAR-05); J. Blömer et al., An XOR-based erasure-resilient coding scheme (1995).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt

from ..constants import MAX_DATA_COLUMNS, MAX_PARITY_COLUMNS
from ..errors import ArgumentError
from .field import Words, divide, double, inverse

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
