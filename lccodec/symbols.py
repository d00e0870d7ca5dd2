"""Runs of small symbols <-> streams: constant, raw, Huffman, sparse (gaps + values), packed or classed.

A *stream* codes a known number of bytes. Single symbols cannot go below one bit each under a Huffman
code, so a mostly-zero run is stored *sparse*, as the gaps between its non-zero symbols and their
values, and a run over a small alphabet is *packed*, several symbols into one group that gets one code.
A *classed* run is a matrix whose cells are apart by the level of their row and column. All three contain
streams again. Nothing here knows what the symbols mean.

Source: SPEC 7.1 (packing) and 7.4 (streams).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from . import huffman
from .bits import Cursor, pack, packed_size, unpack
from .classes import Classes, find_classes
from .constants import (
    MAX_CLASSES,
    MAX_COLUMNS,
    MAX_STREAM_DEPTH,
    STREAM_CLASSED,
    STREAM_CONSTANT,
    STREAM_HUFFMAN,
    STREAM_PACKED,
    STREAM_RAW,
    STREAM_SPARSE,
)
from .errors import FormatError, LimitError, UnsupportedError
from .floats import Array

__all__ = [
    "Packed",
    "Piece",
    "Sparse",
    "dense",
    "places_of",
    "read_stream",
    "read_streams",
    "write_places",
    "write_stream",
]

#: A Huffman run must be smaller than the raw symbols by this factor to be worth its time.
_WORTH_CODING: Final = 0.97

#: From so many symbols on, a quarter as many are looked at before all are, and time counts more: a
#: plane of 7.7 bits a byte would take as long as all else in its block, for 1 % of the bytes.
_SAMPLED: Final = 1 << 18
_NOISE_BITS: Final = 7.6

#: With at most one symbol in this many not 0, no other form than sparse can be smaller, or by much.
_CLEARLY_SPARSE: Final = 5
_SPARSE_ENOUGH: Final = 3  # the same in long runs, where time counts more than a percent

_MODE: Final = struct.Struct("<B")
_SPARSE: Final = struct.Struct("<BBI")  # mode, low bits, count
_PAIR: Final = struct.Struct("<BB")
_CLASSED: Final = struct.Struct("<BHB")  # mode, columns, classes

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


#: Part of a coded stream, to be joined with the others.
Piece: TypeAlias = bytes | memoryview


@dataclass(frozen=True)
class Sparse:
    """A run of symbols given by a few places: ``positions`` (int64, rising), ``values`` (uint8); else 0."""

    positions: Array
    values: Array


@dataclass(frozen=True)
class Packed:
    """A run of symbols of ``width`` bits each, packed into the bytes ``groups`` (uint8)."""

    groups: Array
    width: int


#: A run of symbols, in the form it is stored in.
Form: TypeAlias = Array | Sparse | Packed


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
    if nonzero == symbols.size and int(symbols.min()) == int(symbols.max()):
        return [_PAIR.pack(STREAM_CONSTANT, int(symbols[0]))]
    if symbols.size >= _SAMPLED and _is_noise(symbols):
        return [_MODE.pack(STREAM_RAW), symbols.data]
    inside = depth < MAX_STREAM_DEPTH  # whether another stream may lie inside this one
    if inside and _is_sparse(nonzero, symbols.size):
        return _write_sparse(_sparse(symbols), depth)
    width = _symbol_width(int(symbols.max())) if inside else 8
    groups = pack(symbols, width)
    counts = _histogram(groups)
    options = []
    if width < 8:
        options.append(_coded(groups, counts, _PAIR.pack(STREAM_PACKED, width)))
        counts = counts @ _OCCURRENCES[width]
        counts[0] -= groups.size * (8 // width) - symbols.size  # the filling of the last group
    options.append(_coded(symbols, counts, b""))
    size, write = min(options, key=lambda option: option[0])
    if inside and _sparse_estimate(counts) < size:
        return _write_sparse(_sparse(symbols), depth)
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
    if 0 < columns <= MAX_COLUMNS:
        classes = find_classes(symbols.positions, symbols.values, count, columns)
        if classes is not None:
            return _write_classed(symbols, classes)
    if symbols.positions.size and _is_sparse(symbols.positions.size, count):
        return _write_sparse(symbols, depth)
    return write_stream(dense(symbols, count), depth)


def _write_classed(symbols: Sparse, classes: Classes) -> list[Piece]:
    sizes = np.array(classes.sizes, "<u4")
    pieces: list[Piece] = [_CLASSED.pack(STREAM_CLASSED, classes.columns.size, sizes.size)]
    pieces += [classes.bounds.tobytes(), sizes[:-1].tobytes()]
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
    shares = np.bincount(sample, minlength=256) / sample.size
    shares = shares[shares > 0]
    return -float(shares @ np.log2(shares)) > _NOISE_BITS


def _histogram(data: Array) -> Array:
    """Return the occurrences (int64) of each byte value; pairs are counted, which halves the work."""
    if data.size < 1 << 17:
        return np.bincount(data, minlength=256)
    pairs = np.bincount(data[: data.size & ~1].view(np.uint16), minlength=1 << 16).reshape(256, 256)
    counts: Array = pairs.sum(axis=0) + pairs.sum(axis=1)
    if data.size & 1:
        counts[data[-1]] += 1
    return counts


def _coded(groups: Array, counts: Array, head: bytes) -> tuple[int, Callable[[], list[Piece]]]:
    """Return about what `groups` take as a Huffman run, or raw where that is less, and its writer."""
    raw = len(head) + 1 + groups.size
    if np.count_nonzero(counts) > 1:
        lengths = huffman.choose_lengths(counts)
        size = len(head) + 1 + huffman.size_bound(counts, lengths)
        if size < raw * _WORTH_CODING:
            return size, lambda: [head, _MODE.pack(STREAM_HUFFMAN), *huffman.encode(groups, counts, lengths)]
    return raw, lambda: [head, _MODE.pack(STREAM_RAW), groups.data]


def _sparse_estimate(counts: Array) -> float:
    """Bytes a sparse stream would take if its non-zero symbols lay at random places."""
    total, nonzero = int(counts.sum()), int(counts[1:].sum())
    p = nonzero / total
    if nonzero == 0 or p > 0.4:  # at more than that, positions cost more than they save
        return float("inf")
    shares = counts[1:][counts[1:] > 0] / nonzero
    bits = -p * np.log2(p) - (1 - p) * np.log2(1 - p) - p * float(shares @ np.log2(shares))
    return float(bits) * total / 8 * (1.02 + 0.03 * p) + 40


def _sparse(symbols: Array) -> Sparse:
    positions = np.flatnonzero(symbols != 0)
    return Sparse(positions, symbols.take(positions))


def _write_sparse(symbols: Sparse, depth: int) -> list[Piece]:
    positions, values = symbols.positions, symbols.values
    gaps = positions.astype(np.uint32)
    np.subtract(gaps[1:], gaps[:-1].copy(), out=gaps[1:])
    gaps[1:] -= 1
    # Low bits of a gap are sent as they are: inside a cell much smaller than the mean gap all places
    # are about equally likely, and what is left for the Huffman code is a small alphabet.
    mean = (int(positions[-1]) + 1 - positions.size) // positions.size
    low = min(max(mean.bit_length() - 2, 0), 8)
    if int(gaps.max()) >> low > 255:
        gaps, values = _split_gaps(gaps, values, 256 << low)
    high = (gaps >> low).astype(np.uint8)
    pieces = [_SPARSE.pack(STREAM_SPARSE, low, gaps.size), *write_stream(high, depth + 1)]
    if low:
        pieces.append(pack(gaps.astype(np.uint8) & np.uint8((1 << low) - 1), low).tobytes())
    return [*pieces, *write_stream(values, depth + 1)]


def _split_gaps(gaps: Array, values: Array, reach: int) -> tuple[Array, Array]:
    """Put symbols of value 0 into gaps of `reach` or more, so that every gap is below `reach`."""
    long = np.flatnonzero(gaps >= reach)
    fillers = gaps[long] // reach
    gaps[long] %= reach
    before = np.repeat(long, fillers)
    return np.insert(gaps, before, reach - 1), np.insert(values, before, 0)


def read_stream(cursor: Cursor, count: int) -> Form:
    """Read a stream of `count` symbols.

    Returns
    -------
    ndarray, Sparse or Packed
        The symbols in the form they are stored in; :func:`dense` makes an array of any of them.

    Raises
    ------
    DataError
        If the stream breaks a rule of SPEC 7.
    """
    return read_streams(cursor, [count])[0]


def read_streams(cursor: Cursor, counts: Iterable[int]) -> list[Form]:
    """Read streams that lie one behind the other; as :func:`read_stream`, and faster than one by one."""
    parser = _Parser(cursor)
    finishes = [parser.stream(count, 1) for count in counts]
    parser.decode()
    return [finish() for finish in finishes]


class _Parser:
    """Reads streams without decoding their Huffman runs, which all are decoded together."""

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self._runs: list[huffman.Run] = []
        self._symbols: list[Array] = []

    def decode(self) -> None:
        """Decode all Huffman runs of the streams that were read."""
        self._symbols = huffman.decode(self._runs)

    def stream(self, count: int, depth: int) -> Callable[[], Form]:
        """Read a stream; return what makes its symbols of the decoded runs."""
        cursor = self._cursor
        if depth > MAX_STREAM_DEPTH:
            raise LimitError("LCC-STR-03", cursor.where, f"streams nested more than {MAX_STREAM_DEPTH} deep")
        mode = cursor.integer("B", "stream mode")
        if mode == STREAM_CONSTANT:
            value = cursor.integer("B", "constant")
            if value == 0:
                return lambda: Sparse(np.empty(0, np.int64), np.empty(0, np.uint8))
            return lambda: np.full(count, value, np.uint8)
        if mode == STREAM_RAW:
            symbols = np.frombuffer(cursor.take(count, "raw symbols"), np.uint8)
            return lambda: symbols
        if mode == STREAM_HUFFMAN:
            if count == 0:
                raise FormatError("LCC-STR-02", cursor.where, "a Huffman run of no symbols")
            number = len(self._runs)
            self._runs.append(huffman.read_run(cursor, count))
            return lambda: self._symbols[number]
        if mode == STREAM_PACKED:
            return self._packed(count, depth)
        if mode == STREAM_SPARSE:
            return self._sparse(count, depth)
        if mode == STREAM_CLASSED:
            return self._classed(count, depth)
        raise UnsupportedError("LCC-STR-01", cursor.where, f"stream mode {mode} is not defined")

    def _packed(self, count: int, depth: int) -> Callable[[], Packed]:
        where = self._cursor.where
        width = self._cursor.integer("B", "packing width")
        if width not in (1, 2, 4):
            raise FormatError("LCC-STR-05", where, f"packing width {width} is not 1, 2 or 4")
        size = packed_size(count, width)
        read = self.stream(size, depth + 1)

        def finish() -> Packed:
            groups = dense(read(), size)
            used = count * width % 8
            if used and groups[-1] >> used:
                raise FormatError("LCC-STR-05", where, "the filling of the last group is not zero")
            return Packed(groups, width)

        return finish

    def _sparse(self, count: int, depth: int) -> Callable[[], Sparse]:
        cursor = self._cursor
        low = cursor.integer("B", "low bits")
        stored = cursor.integer("I", "count of gaps")
        if low > 8 or stored > count:
            message = f"{stored} gaps with {low} low bits for {count} symbols"
            raise FormatError("LCC-STR-06", cursor.where, message)
        read_high = self.stream(stored, depth + 1)
        packed = cursor.take(packed_size(stored, low), "low bits of the gaps")
        read_values = self.stream(stored, depth + 1)

        def finish() -> Sparse:
            gaps = dense(read_high(), stored).astype(np.int64)
            if low:
                gaps <<= low
                gaps |= unpack(packed, stored, low)
            gaps += 1
            positions = np.cumsum(gaps, out=gaps)
            positions -= 1
            if stored and int(positions[-1]) >= count:
                message = f"a gap leads to {int(positions[-1])}, past {count} symbols"
                raise FormatError("LCC-STR-06", cursor.where, message)
            return Sparse(positions, dense(read_values(), stored))

        return finish

    def _classed(self, count: int, depth: int) -> Callable[[], Sparse]:
        cursor = self._cursor
        columns = cursor.integer("H", "columns")
        number = cursor.integer("B", "classes")
        if depth > 1 or not 0 < columns <= count or not 1 < number <= MAX_CLASSES:
            message = f"{number} classes of {columns} columns for {count} symbols at depth {depth}"
            raise FormatError("LCC-STR-07", cursor.where, message)
        bounds = np.frombuffer(cursor.take(number - 1, "bounds of classes"), np.uint8)
        sizes = np.frombuffer(cursor.take(4 * number - 4, "sizes of classes"), "<u4").tolist()
        rows = -(-count // columns)
        sizes.append(rows * columns - sum(sizes))
        if sizes[-1] < 0 or (bounds[1:] <= bounds[:-1]).any():
            raise FormatError("LCC-STR-07", cursor.where, f"classes of {sizes} with bounds {bounds.tolist()}")
        read_levels = [self.stream(extent, depth + 1) for extent in (rows, columns)]
        read_classes = [self.stream(size, depth + 1) for size in sizes]

        def finish() -> Sparse:
            levels = [
                dense(read(), extent) for read, extent in zip(read_levels, (rows, columns), strict=True)
            ]
            classes = Classes(levels[0], levels[1], bounds)
            if classes.sizes != sizes:
                message = f"classes of {sizes}, but their cells are {classes.sizes}"
                raise FormatError("LCC-STR-07", cursor.where, message)
            cells = []
            for k, (read, size) in enumerate(zip(read_classes, sizes, strict=True)):
                found = _as_sparse(read(), size)
                cells.append(classes.collect(k, found.positions) << 8 | found.values)
            # Each class is in order already, which a stable sort makes use of.
            together = np.sort(np.concatenate(cells), kind="stable")
            positions = together >> 8
            if together.size and int(positions[-1]) >= count:
                raise FormatError("LCC-STR-07", cursor.where, "a symbol behind the last one is not 0")
            return Sparse(positions, together.astype(np.uint8))

        return finish


def _as_sparse(run: Form, count: int) -> Sparse:
    """Return the symbols of a run that are not 0."""
    if not isinstance(run, Sparse):
        return _sparse(dense(run, count))
    if run.values.all():
        return run
    few = np.flatnonzero(run.values != 0)
    return Sparse(run.positions.take(few), run.values.take(few))


def dense(run: Form, count: int) -> Array:
    """Return a run of `count` symbols as uint8 of shape ``(count,)``."""
    if isinstance(run, Packed):
        return unpack(run.groups, count, run.width)
    if isinstance(run, Sparse):
        symbols = np.zeros(count, np.uint8)
        symbols[run.positions] = run.values
        return symbols
    return run


def places_of(run: Form, count: int) -> Array:
    """Return the places (int64, rising) of the symbols of a run of `count` that are not 0."""
    return _as_sparse(run, count).positions
