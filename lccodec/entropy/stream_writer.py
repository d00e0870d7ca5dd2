"""Symbols to streams: constant, raw, Huffman, sparse (gaps and values), packed, classed, split.

A *stream* codes a known number of bytes. A Huffman code cannot take less than one bit for a symbol.
So a run that is mostly zeros is stored *sparse*: the gaps between its non-zero symbols, and their
values. A run over a small alphabet is *packed*: several symbols form one group, which gets one
code. A run that is a matrix can be *classed*: its cells are coded apart by the levels of their row
and column. A plane that has a reference can be *split*: where that is small, symbols stand apart.
These four forms contain streams again.

Source: SPEC 7.1 (packing) and 7.4 (streams).
"""

from __future__ import annotations

import math
import struct
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ..constants import (
    MAX_SIDE,
    MAX_SPLIT_SYMBOLS,
    MAX_STREAM_DEPTH,
    MAX_STREAM_PLACES,
    STREAM_CLASSED,
    STREAM_CONSTANT,
    STREAM_HUFFMAN,
    STREAM_PACKED,
    STREAM_RAW,
    STREAM_SPARSE,
    STREAM_SPLIT,
)
from ..element_types import Array, scattered, stored_bytes
from ..loops import kernel
from ..loops.search import histogram
from . import lanes
from .classes import Classes, find_classes
from .lanes import entropy_bits
from .runs import Gathered, Sparse, as_sparse, dense, group_symbols, nonzero_count, pack, parts, unpack
from .split import Small

# All of these are an encoder's choice.

#: A Huffman run must be smaller than the raw symbols by this factor to be worth its time.
_MAX_CODED_SHARE: Final = 0.97

#: A run of at least this many symbols is long. There a sample is looked at first, and saving time
#: is worth a percent of the bytes: a plane of 7.7 bits a byte would take as long as the rest of its
#: block together.
_LONG_RUN_SYMBOLS: Final = 1 << 18
_FEW_SYMBOLS: Final = 1 << 10  # that are looked at before all of a run
_SAMPLED_SYMBOLS: Final = 1 << 16
_NOISE_BITS: Final = 7.6  # entropy of a symbol from which a long run is stored raw

# With at most one non-zero symbol in this many, the sparse form is the smallest, or nearly.
_SPARSE_RATIO: Final = 5
_SPARSE_RATIO_LONG: Final = 3  # the same for long runs
# With a larger share of non-zero symbols, positions cost more than they save.
_MAX_NONZERO_SHARE: Final = 0.7
_MAX_NONZERO_SHARE_LONG: Final = 0.4  # the same for long runs
_STRETCH_SYMBOLS: Final = 1 << 16  # length of the stretch whose gaps are looked at

_MAX_GAP: Final = 255  # of a stream whose gaps have no low bits

#: Symbols next to each other, on average, from which on they may be rows of a matrix.
_MIN_ROW_SYMBOLS: Final = 6
#: The same, from which on the gaps between runs of them are padded.
_MIN_RUN_SYMBOLS: Final = 16

#: Binary logarithms of the lengths of rows that are tried: a row of 768 is three of 256.
_ROW_WIDTHS: Final = range(3, 13)
_SAMPLED_POSITIONS: Final = 1 << 13  # by which the length is chosen
_MAX_FILLING: Final = 1.1  # cells of rows over symbols that are not 0
_SURE_ROW_SYMBOLS: Final = 1 << 10  # from which on rows are known to take less than gaps

_SPARSE_HEAD: Final = struct.Struct("<BBI")  # mode, low bits, count
_CLASSED_HEAD: Final = struct.Struct("<BHB")  # mode, columns, classes

#: Part of a coded stream; all of them are joined.
Piece: TypeAlias = bytes | memoryview


# _OCCURRENCES[width][group, symbol]: how often a symbol occurs in a group of 8 // width symbols.
_OCCURRENCES: Final = {
    width: (group_symbols(width)[:, :, None] == np.arange(1 << width)).sum(axis=1) for width in (1, 2, 4)
}


def write_stream(symbols: Array, depth: int = 1) -> list[Piece]:
    """Code a run of symbols (1-D contiguous uint8) as a stream, in the form of the least room.

    `depth` is how deep the stream lies inside others, 1 for the outermost.
    """
    # Noise has so many values that it is not constant, nor sparse: it may be looked for first.
    looked = bool((symbols[:_FEW_SYMBOLS] >> 7).any())
    if looked and _is_noise(symbols, symbols.size):
        return [bytes([STREAM_RAW]), symbols.data]
    nonzero = int(np.count_nonzero(symbols))
    if nonzero == 0:
        return [bytes([STREAM_CONSTANT, 0])]
    largest = int(symbols.max())
    if nonzero == symbols.size and int(symbols.min()) == largest:
        return [bytes([STREAM_CONSTANT, largest])]
    if largest >> 7 and not looked and _is_noise(symbols, symbols.size):
        return [bytes([STREAM_RAW]), symbols.data]
    inside = depth < MAX_STREAM_DEPTH  # whether another stream may lie inside this one
    if inside and _is_sparse(nonzero, symbols.size):
        return _write_sparse(symbols, symbols.size, depth)
    width = 1 << (largest.bit_length() - 1).bit_length() if inside else 8
    groups = pack(symbols, width)
    counts = histogram(groups)
    options = []
    if width < 8:
        options.append((groups, counts, bytes([STREAM_PACKED, width])))
        counts = counts @ _OCCURRENCES[width]
        counts[0] -= groups.size * (8 // width) - symbols.size  # the padding of the last group
    options.append((symbols, counts, b""))
    least = math.inf
    for numbers, occurring, head in options:
        size, lengths = len(head) + 1 + numbers.size, None  # about the bytes, raw
        if np.count_nonzero(occurring) > 1:
            found = lanes.choose_lengths(occurring)
            # The codes, 1 % for the lanes, and the table.
            coded = len(head) + 1 + int(occurring @ found) * 101 // 800 + 6
            coded += (int(np.flatnonzero(found)[-1]) + 2) // 2
            if coded < size * _MAX_CODED_SHARE:
                size, lengths = coded, found
        if size < least:
            least, chosen = size, (numbers, occurring, head, lengths)
    if inside and _sparse_estimate(symbols, counts) < least:
        return _write_sparse(symbols, symbols.size, depth)
    numbers, occurring, head, lengths = chosen
    if lengths is None:
        return [head, bytes([STREAM_RAW]), numbers.data]
    return [head, bytes([STREAM_HUFFMAN]), *lanes.encode(numbers, occurring, lengths)]


def write_run(run: Sparse | Array, count: int, columns: int = 0, depth: int = 1) -> list[Piece]:
    """Code a run of `count` symbols (uint8) as a stream, as :func:`write_stream`.

    `columns` is the length of a row if the run is a matrix and lies in no other stream, else 0.
    """
    if 0 < columns <= MAX_SIDE and count <= columns * MAX_SIDE:
        classes = find_classes(run, count, columns)
        pieces = [] if classes is None else _write_classed(run, classes)
        if pieces and nonzero_count(run, count) <= MAX_STREAM_PLACES * sum(map(len, pieces)):
            return pieces
    if isinstance(run, Sparse) and run.positions.size and _is_sparse(run.positions.size, count):
        return _write_sparse(run, count, depth)
    return write_stream(dense(run, count), depth)


def write_plane(run: Sparse | Array, count: int, small: Small | None = None, depth: int = 1) -> list[Piece]:
    """Code a run of `count` symbols (uint8) as the stream that :func:`write_stream` makes of it.

    It is split if that saves enough; `small` has what is known of its reference.
    """
    if small is not None and (divided := small.divide(run, count)):
        own, rest = divided
        some, bounds = small.places.size, small.bounds
        pieces: list[Piece] = [bytes([STREAM_SPLIT, bounds.size]), stored_bytes(bounds)]
        pieces.append(struct.pack("<I", some))
        pieces += [*write_plane(own, some, depth=2), *write_plane(rest, count, depth=2)]
        size = sum(map(len, pieces))
        if nonzero_count(run, count) <= MAX_STREAM_PLACES * size and count <= MAX_SPLIT_SYMBOLS * size:
            return pieces
    if isinstance(run, Sparse):
        if run.positions.size == 0:
            return [bytes([STREAM_CONSTANT, 0])]
        largest = int(run.values.max())
        if _is_sparse(run.positions.size, count) and not (largest >> 7 and _is_noise(run, count)):
            return _write_sparse(run, count, depth)
    return write_stream(dense(run, count), depth)


def _write_classed(run: Sparse | Array, classes: Classes) -> list[Piece]:
    sizes = np.array(classes.sizes, np.uint32)
    pieces: list[Piece] = [_CLASSED_HEAD.pack(STREAM_CLASSED, classes.columns.size, sizes.size)]
    pieces += [stored_bytes(classes.bounds), stored_bytes(sizes[:-1])]
    for levels in (classes.rows, classes.columns):
        pieces += write_stream(levels, 2)
    runs = [Gathered(size) for size in classes.sizes]
    for part in parts(run):
        for own, (few, places) in zip(runs, classes.deal(part.positions), strict=True):
            own.add(0, places, part.values.take(few))
    for own, size in zip(runs, classes.sizes, strict=True):
        pieces += write_run(own.run(), size, depth=2)
    return pieces


def _is_sparse(nonzero: int, count: int) -> bool:
    ratio = _SPARSE_RATIO_LONG if count >= _LONG_RUN_SYMBOLS else _SPARSE_RATIO
    return nonzero * ratio <= count


def _is_noise(run: Sparse | Array, count: int) -> bool:
    """Return whether a sample has nearly eight bits a symbol, so that a code is a waste of time."""
    if count < _LONG_RUN_SYMBOLS:
        return False
    places = scattered(count, _SAMPLED_SYMBOLS)
    if isinstance(run, Sparse):
        at = np.searchsorted(run.positions, places)
        there = run.positions.take(at, mode="clip") == places
        counts = np.bincount(run.values.take(at, mode="clip")[there], minlength=256)
        counts[0] += _SAMPLED_SYMBOLS - counts.sum()
    else:
        counts = histogram(run.take(places))
    return bool(entropy_bits(counts) > _NOISE_BITS * counts.sum())


def _sparse_estimate(symbols: Array, counts: Array) -> float:
    """Return about the bytes of a sparse stream, from the gaps in the middle stretch.

    Real gaps come in clusters, so counts alone would not do.
    """
    total, nonzero = int(counts.sum()), int(counts[1:].sum())
    limit = _MAX_NONZERO_SHARE if total < _LONG_RUN_SYMBOLS else _MAX_NONZERO_SHARE_LONG
    if nonzero > limit * total:
        return math.inf
    middle = max((total - _STRETCH_SYMBOLS) // 2, 0)
    gaps = gaps_between(symbols[middle : middle + _STRETCH_SYMBOLS])[0][1:]
    if gaps.size == 0:
        return math.inf
    _, zeros, largest = totals_of(gaps)
    low = _low_bits(zeros, gaps.size)
    high = histogram(np.minimum(gaps >> low, _MAX_GAP).astype(np.uint8))[: (largest >> low) + 1]
    bits = low + float(entropy_bits(high)) / gaps.size + float(entropy_bits(counts[1:])) / nonzero
    tables = (high.size + int(np.flatnonzero(counts)[-1])) / 2
    return nonzero * bits / 8 * 1.02 + tables + 40


def _low_bits(zeros: int, gaps: int) -> int:
    """Return how many low bits of each gap are stored as they are.

    Within a cell that is much smaller than the mean gap, all places are about equally likely. The
    Huffman code then has a small alphabet for the high parts.
    """
    return min(max((zeros // gaps).bit_length() - 2, 0), 8)


def _write_sparse(run: Sparse | Array, count: int, depth: int) -> list[Piece]:
    gaps, values = _gaps_of(run) if isinstance(run, Sparse) else gaps_between(run)
    totals = totals_of(gaps)
    together = gaps.size // (totals[0] or 1)  # symbols next to each other, on average
    rows = []
    if depth == 1 and together >= _MIN_ROW_SYMBOLS:
        rows = _write_rows(as_sparse(run, count), count)
    if rows and gaps.size >= _SURE_ROW_SYMBOLS:
        return rows
    others = _write_gaps(values, gaps, *totals[1:], together, depth)
    return rows if rows and sum(map(len, rows)) < sum(map(len, others)) else others


def _gaps_of(symbols: Sparse) -> tuple[Array, Array]:
    """Return the zeros before each symbol that is not 0 (uint32), and these symbols."""
    gaps = symbols.positions.astype(np.uint32)
    np.subtract(gaps[1:], gaps[:-1].copy(), out=gaps[1:])
    gaps[1:] -= 1
    return gaps, symbols.values


def _gaps_between(symbols: Array) -> tuple[Array, Array]:
    """Return the same for all symbols of a run, uint8."""
    return _gaps_of(as_sparse(symbols, symbols.size))


def _rows_of_gaps() -> tuple[Array, Array]:
    """Return what loops look up by which of eight symbols are not 0, the first in the lowest bit.

    These are the zeros before each of them, as four words of two gaps, and the zeros after the
    last.
    """
    bits = unpack(np.arange(256, dtype=np.uint8), 256 * 8, 1).reshape(256, 8)
    places = np.sort(np.where(bits, np.arange(8), 64), axis=1)
    gaps = (np.diff(places, prepend=-1) - 1).astype(np.uint32)
    tails = 7 - np.where(bits, np.arange(8), -1).max(axis=1)
    return gaps.view(np.uint64).reshape(-1), tails.astype(np.uint64)


_ROWS, _TAILS = _rows_of_gaps()
_WORDS_AT_A_TIME: Final = 1 << 8
_LOW_BITS: Final = np.uint64(0x7F7F7F7F7F7F7F7F)
_BYTES: Final = np.uint64(0x0101010101010101)
_PAIRS: Final = np.uint64(0x0001000100010001)
_FOURS: Final = np.uint64(0x0000000100000001)


def _gaps_between_loop(symbols: Array) -> tuple[Array, Array]:
    # Eight symbols at a time, and without a branch: a processor cannot guess where the next one is.
    end, total, unit = symbols.size & ~7, 0, np.uint64
    for place in range(symbols.size):
        total += symbols[place] != 0
    gaps, values = np.empty(total + 8, np.uint32), np.empty(total + 8, np.uint8)
    two_gaps = as_strided(gaps[:2].view(np.uint64), (total + 7,), (4,))
    eight_values = as_strided(values[:8].view(np.uint64), (total + 1,), (1,))
    words = symbols[:end].view(np.uint64)
    closed, marks, counts = np.empty((3, _WORDS_AT_A_TIME), np.uint64)
    found = carry = unit(0)
    for start in range(0, words.size, _WORDS_AT_A_TIME):
        own = words[start : start + _WORDS_AT_A_TIME]
        for k in range(own.size):
            word = own[k]
            some = ((word & _LOW_BITS) + _LOW_BITS | word) >> unit(7) & _BYTES
            marks[k], counts[k] = some * unit(0x0102040810204080) >> unit(56), some * _BYTES >> unit(56)
            # Symbols that are not 0 close up: of a pair, then of two pairs, then of two fours.
            low = (some & _PAIRS) * unit(0xFFFF)
            word = word & low | (word >> unit(8)) & ~low & (_PAIRS * unit(0xFF))
            count = some + (some >> unit(8)) & _PAIRS * unit(0xFF)
            high = word >> unit(16) & _FOURS * unit(0xFFFF)
            one = (count & _FOURS) * unit(0xFFFFFFFF)
            two = (count >> unit(1) & _FOURS) * unit(0xFFFFFFFF)
            word &= _FOURS * unit(0xFFFF)
            word |= high << unit(16) & two | high << unit(8) & one | high & ~(one | two)
            count = count + (count >> unit(16)) & unit(0xFF)
            closed[k] = word & unit(0xFFFFFFFF) | word >> unit(32) << (count << unit(3))
        for k in range(own.size):
            mark = marks[k]
            row = mark << unit(2)
            eight_values[found] = closed[k]
            two_gaps[found] = _ROWS[row] + carry
            two_gaps[found + unit(2)] = _ROWS[row + unit(1)]
            two_gaps[found + unit(4)] = _ROWS[row + unit(2)]
            two_gaps[found + unit(6)] = _ROWS[row + unit(3)]
            tail = _TAILS[mark]
            carry = tail + carry if tail == unit(8) else tail
            found += counts[k]
    for place in range(end, symbols.size):
        gaps[found], values[found] = carry, symbols[place]
        carry = unit(0) if symbols[place] else carry + unit(1)
        found += unit(symbols[place] != 0)
    return gaps[:total], values[:total]


gaps_between = kernel(_gaps_between, _gaps_between_loop, "in u1")


def _totals(gaps: Array) -> tuple[int, int, int]:
    """Return how many gaps (uint32) are not 0, their sum, and the largest of them."""
    return int(np.count_nonzero(gaps)), int(gaps.sum(dtype=np.int64)), int(gaps.max())


def _totals_loop(gaps: Array) -> tuple[int, int, int]:
    nonzero, total, largest = 0, 0, 0
    for k in range(gaps.size):
        gap: Any = gaps[k]
        nonzero += gap > 0
        total += gap
        largest = max(largest, gap)
    return nonzero, total, largest


totals_of = kernel(_totals, _totals_loop, "in u4")


def _write_gaps(
    values: Array, gaps: Array, zeros: int, largest: int, together: int, depth: int
) -> list[Piece]:
    low = _low_bits(zeros, gaps.size)
    if low and together >= _MIN_RUN_SYMBOLS:
        if depth == 1 and (runs := _write_runs(gaps, values, low)):
            return runs
        low = 0 if depth > 1 else low
    if largest >> low > 255:  # symbols of value 0 are put into gaps, so that each is below the reach
        reach = 256 << low
        long = np.flatnonzero(gaps >= reach)
        fillers = gaps[long] // reach
        gaps[long] %= reach
        before = np.repeat(long, fillers)
        gaps, values = np.insert(gaps, before, reach - 1), np.insert(values, before, 0)
    pieces = _gaps_and_values(gaps, values, low, depth)
    if gaps.size > MAX_STREAM_PLACES * sum(map(len, pieces)):
        pieces = _gaps_and_values(gaps, values, low + 1, depth)  # a bit of each gap: that is enough
    return pieces


def _gaps_and_values(gaps: Array, values: Array, low: int, depth: int) -> list[Piece]:
    high = (gaps >> low if low else gaps).astype(np.uint8)
    pieces = [_SPARSE_HEAD.pack(STREAM_SPARSE, low, gaps.size), *write_stream(high, depth + 1)]
    if low:
        pieces.append(stored_bytes(pack(gaps.astype(np.uint8) & np.uint8((1 << low) - 1), low)))
    return [*pieces, *write_stream(values, depth + 1)]


def _write_rows(symbols: Sparse, count: int) -> list[Piece]:
    """Code symbols that fill some rows of a matrix, as of a table of which some rows changed.

    The rows that have any are one class, with all of their cells, and the others are the other.

    Returns
    -------
    list
        Empty if there are no such rows: the symbols fill no rows of any length that is tried.
    """
    widths = [log2 for log2 in _ROW_WIDTHS if 1 << log2 < count <= MAX_SIDE << log2]
    sample = symbols.positions[:_SAMPLED_POSITIONS]
    cells_of = [(1 + np.count_nonzero(np.diff(sample >> log2))) << log2 for log2 in widths]
    few = [log2 for log2, n in zip(widths, cells_of, strict=True) if n <= _MAX_FILLING * sample.size]
    if not few:
        return []
    log2 = few[-1]  # the fewest rows take the fewest bytes to say which they are
    rows = symbols.positions >> log2
    levels = np.zeros(-(-count >> log2), np.uint8)
    levels[rows] = 1
    number = np.cumsum(levels, dtype=np.int64)[rows] - 1  # of each row, among those that changed
    cells = np.zeros((int(number[-1]) + 1) << log2, np.uint8)
    if cells.size > _MAX_FILLING * rows.size:
        return []
    cells[symbols.positions - ((rows - number) << log2)] = symbols.values
    length = 1 << log2
    unchanged = levels.size * length - cells.size
    head = _CLASSED_HEAD.pack(STREAM_CLASSED, length, 2) + struct.pack("<BI", 1, unchanged)
    constant = bytes([STREAM_CONSTANT, 0])  # the levels of the columns, and the cells of other rows
    pieces = [head, *write_stream(levels, 2), constant, constant, *write_stream(cells, 2)]
    return pieces if rows.size <= MAX_STREAM_PLACES * sum(map(len, pieces)) else []


def _write_runs(gaps: Array, values: Array, low: int) -> list[Piece]:
    """Code symbols that lie next to each other, as in rows of a table that changed.

    A gap takes symbols of value 0: some with the largest gap, and the rest of it without gaps. So
    the gaps are 0 within a run, and all others are the same; and the values are 0 only between
    runs. Both streams are sparse, and a run takes a few bytes of them. Low bits take some of each
    symbol.

    Returns
    -------
    list
        Empty if `low` bits of each symbol take less.
    """
    long = np.flatnonzero(gaps)
    steps, rest = (each.astype(np.int64) for each in np.divmod(gaps[long], _MAX_GAP + 1))
    if int(steps.sum()) > low * gaps.size:
        return []
    before = np.zeros(gaps.size, np.int64)  # symbols that are put before each one
    before[long] = steps + rest
    places = np.arange(gaps.size) + np.cumsum(before)
    count = int(places[-1]) + 1
    first = np.repeat(places[long] - before[long] - np.cumsum(steps) + steps, steps)
    stepping = first + np.arange(first.size)
    pieces: list[Piece] = [_SPARSE_HEAD.pack(STREAM_SPARSE, 0, count)]
    if stepping.size:
        pieces += _write_sparse(Sparse(stepping, np.full(stepping.size, _MAX_GAP, np.uint8)), count, 2)
    else:
        pieces += [bytes([STREAM_CONSTANT, 0])]
    pieces += _write_sparse(Sparse(places, values), count, 2)
    return pieces if count <= MAX_STREAM_PLACES * sum(map(len, pieces)) else []
