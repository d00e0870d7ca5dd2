"""Symbols -> streams: constant, raw, Huffman, sparse (gaps + values), packed or classed.

A *stream* codes a known number of bytes. Single symbols cannot go below one bit each under a Huffman
code, so a mostly-zero run is stored *sparse*, as the gaps between its non-zero symbols and their
values, and a run over a small alphabet is *packed*, several symbols into one group that gets one code.
A *classed* run is a matrix whose cells are apart by the levels of their row and column. All three contain
streams again. Nothing here knows what the symbols mean.

Source: SPEC 7.1 (packing) and 7.4 (streams).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np

from ..byteorder import stored_bytes
from ..constants import (
    MAX_SIDE,
    MAX_STREAM_DEPTH,
    STREAM_CLASSED,
    STREAM_CONSTANT,
    STREAM_HUFFMAN,
    STREAM_PACKED,
    STREAM_RAW,
    STREAM_SPARSE,
)
from ..element_types import Array
from . import huffman, lanes
from .bits import pack
from .classes import Classes, find_classes
from .forms import Sparse, dense, sparse
from .histogram import entropy_bits, histogram

__all__ = ["Piece", "write_places", "write_stream"]

#: A Huffman run must be smaller than the raw symbols by this factor to be worth its time.
_WORTH_CODING: Final = 0.97

#: From so many symbols on, a quarter as many are looked at before all are, and time counts more: a
#: plane of 7.7 bits a byte would take as long as all else in its block, for 1 % of the bytes.
_SAMPLED: Final = 1 << 18
_NOISE_BITS: Final = 7.6

#: With at most one symbol in this many not 0, no other form than sparse can be smaller, or by much.
_CLEARLY_SPARSE: Final = 5
_SPARSE_ENOUGH: Final = 3  # the same in long runs, where time counts more than a percent
_TOO_MANY: Final = 0.7  # share of symbols not 0 at which positions cost more than they save
_TOO_MANY_LONG: Final = 0.4  # the same in long runs
_STRETCH: Final = 1 << 16  # symbols whose gaps are looked at

_MODE: Final = struct.Struct("<B")
_SPARSE: Final = struct.Struct("<BBI")  # mode, low bits, count
_PAIR: Final = struct.Struct("<BB")
_CLASSED: Final = struct.Struct("<BHB")  # mode, columns, classes

#: Part of a coded stream, to be joined with the others.
Piece: TypeAlias = bytes | memoryview


# _OCCURRENCES[width][group, symbol]: how often a symbol occurs in a group of 8 // width symbols.
_OCCURRENCES: Final = {
    width: np.stack(
        [
            ((np.arange(256)[:, None] >> np.arange(0, 8, width)) % (1 << width) == s).sum(axis=1)
            for s in range(1 << width)
        ],
        axis=1,
    )
    for width in (1, 2, 4)
}


def _symbol_width(largest: int) -> int:
    return next(width for width in (1, 2, 4, 8) if largest < 1 << width)


def write_stream(symbols: Array, depth: int = 1) -> list[Piece]:
    """Code a run of symbols as a stream, in the form that takes least room.

    Parameters
    ----------
    symbols
        1-D contiguous uint8.
    depth
        How deep this stream lies inside others, 1 for the outermost.

    Returns
    -------
    list of bytes or memoryview
        Pieces of the stream, to be joined.
    """
    nonzero = int(np.count_nonzero(symbols))
    if nonzero == 0:
        return [_PAIR.pack(STREAM_CONSTANT, 0)]
    largest = int(symbols.max())
    if nonzero == symbols.size and int(symbols.min()) == largest:
        return [_PAIR.pack(STREAM_CONSTANT, largest)]
    if symbols.size >= _SAMPLED and largest >> 7 and _is_noise(symbols):
        return [_MODE.pack(STREAM_RAW), symbols.data]
    inside = depth < MAX_STREAM_DEPTH  # whether another stream may lie inside this one
    if inside and _is_sparse(nonzero, symbols.size):
        return _write_sparse(sparse(symbols), depth)
    width = _symbol_width(largest) if inside else 8
    groups = pack(symbols, width)
    counts = histogram(groups)
    options = []
    if width < 8:
        options.append(_coded(groups, counts, _PAIR.pack(STREAM_PACKED, width)))
        counts = counts @ _OCCURRENCES[width]
        counts[0] -= groups.size * (8 // width) - symbols.size  # the filling of the last group
    options.append(_coded(symbols, counts, b""))
    size, write = min(options, key=lambda option: option[0])
    if inside and _sparse_estimate(symbols, counts) < size:
        return _write_sparse(sparse(symbols), depth)
    return write()


def write_places(symbols: Sparse, count: int, columns: int = 0, depth: int = 1) -> list[Piece]:
    """Code a run of symbols that is known by its non-zero places; as :func:`write_stream`.

    Parameters
    ----------
    symbols
        Those that are not 0.
    count
        Of all symbols.
    columns
        In a row, where they are those of a matrix and this is the outermost stream.
    depth
        As in :func:`write_stream`.
    """
    if 0 < columns <= MAX_SIDE and count <= columns * MAX_SIDE:
        classes = find_classes(symbols.positions, symbols.values, count, columns)
        if classes is not None:
            return _write_classed(symbols, classes)
    if symbols.positions.size and _is_sparse(symbols.positions.size, count):
        return _write_sparse(symbols, depth)
    return write_stream(dense(symbols, count), depth)


def _write_classed(symbols: Sparse, classes: Classes) -> list[Piece]:
    sizes = np.array(classes.sizes, np.uint32)
    pieces: list[Piece] = [_CLASSED.pack(STREAM_CLASSED, classes.columns.size, sizes.size)]
    pieces += [stored_bytes(classes.bounds), stored_bytes(sizes[:-1])]
    for levels in (classes.rows, classes.columns):
        pieces += write_stream(levels, 2)
    for size, (few, places) in zip(classes.sizes, classes.deal(symbols.positions), strict=True):
        pieces += write_places(Sparse(places, symbols.values.take(few)), size, depth=2)
    return pieces


def _is_sparse(nonzero: int, count: int) -> bool:
    return nonzero * (_SPARSE_ENOUGH if count >= _SAMPLED else _CLEARLY_SPARSE) <= count


def _is_noise(symbols: Array) -> bool:
    """Whether a sample of the symbols has nearly eight bits each, so that no code is worth its time."""
    sample = symbols[:: symbols.size // (_SAMPLED // 4)]
    return float(entropy_bits(np.bincount(sample))) > _NOISE_BITS * sample.size


def _coded(groups: Array, counts: Array, head: bytes) -> tuple[int, Callable[[], list[Piece]]]:
    """Return about what `groups` take as a Huffman run, or raw where that is less, and its writer."""
    raw = len(head) + 1 + groups.size
    if np.count_nonzero(counts) > 1:
        lengths = huffman.choose_lengths(counts)
        size = len(head) + 1 + huffman.size_bound(counts, lengths)
        if size < raw * _WORTH_CODING:
            return size, lambda: [head, _MODE.pack(STREAM_HUFFMAN), *lanes.encode(groups, counts, lengths)]
    return raw, lambda: [head, _MODE.pack(STREAM_RAW), groups.data]


def _sparse_estimate(symbols: Array, counts: Array) -> float:
    """Return about what a sparse stream takes, from the gaps of a stretch: real ones lie in clusters."""
    total, nonzero = int(counts.sum()), int(counts[1:].sum())
    if nonzero > (_TOO_MANY if total < _SAMPLED else _TOO_MANY_LONG) * total:
        return float("inf")
    middle = max((total - _STRETCH) // 2, 0)
    places = np.flatnonzero(symbols[middle : middle + _STRETCH] != 0)  # of bools, several times as fast
    if places.size < 2:
        return float("inf")
    gaps = np.diff(places) - 1
    low = _low_bits(int(gaps.sum()), gaps.size)
    high = np.bincount(np.minimum(gaps >> low, 255))
    bits = low + float(entropy_bits(high)) / gaps.size + float(entropy_bits(counts[1:])) / nonzero
    tables = (high.size + int(np.flatnonzero(counts)[-1])) / 2
    return nonzero * bits / 8 * 1.02 + tables + 40


def _low_bits(zeros: int, gaps: int) -> int:
    """Return how many low bits of gaps are sent as they are.

    Inside a cell much smaller than the mean gap all places are about equally likely, and what is left for
    the Huffman code is a small alphabet.
    """
    return min(max((zeros // gaps).bit_length() - 2, 0), 8)


def _write_sparse(symbols: Sparse, depth: int) -> list[Piece]:
    positions, values = symbols.positions, symbols.values
    gaps = positions.astype(np.uint32)
    np.subtract(gaps[1:], gaps[:-1].copy(), out=gaps[1:])
    gaps[1:] -= 1
    low = _low_bits(int(positions[-1]) + 1 - positions.size, positions.size)
    if int(gaps.max()) >> low > 255:
        gaps, values = _split_gaps(gaps, values, 256 << low)
    high = (gaps >> low).astype(np.uint8)
    pieces = [_SPARSE.pack(STREAM_SPARSE, low, gaps.size), *write_stream(high, depth + 1)]
    if low:
        pieces.append(stored_bytes(pack(gaps.astype(np.uint8) & np.uint8((1 << low) - 1), low)))
    return [*pieces, *write_stream(values, depth + 1)]


def _split_gaps(gaps: Array, values: Array, reach: int) -> tuple[Array, Array]:
    """Put symbols of value 0 into gaps of `reach` or more, so that every gap is below `reach`."""
    long = np.flatnonzero(gaps >= reach)
    fillers = gaps[long] // reach
    gaps[long] %= reach
    before = np.repeat(long, fillers)
    return np.insert(gaps, before, reach - 1), np.insert(values, before, 0)
