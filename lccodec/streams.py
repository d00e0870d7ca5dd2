"""Streams -> symbols: constant, raw, Huffman, sparse, packed or classed.

A stream is read without decoding the Huffman codes in it; those of all streams that lie behind each other
are then decoded together.

Source: SPEC 7.4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from . import lanes
from .bits import Cursor, packed_size, unpack
from .classes import Classes
from .constants import (
    MAX_CLASSES,
    MAX_LEVEL,
    MAX_SIDE,
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
from .forms import Form, Packed, Sparse, as_sparse, dense

__all__ = ["read_stream", "read_streams"]


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
        self._runs: list[lanes.Run] = []
        self._symbols: list[Array] = []

    def decode(self) -> None:
        """Decode all Huffman runs of the streams that were read."""
        self._symbols = lanes.decode(self._runs)

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
            self._runs.append(lanes.read_run(cursor, count))
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
        rows = -(-count // max(columns, 1))
        if depth > 1 or not 0 < columns <= count or rows > MAX_SIDE or not 1 < number <= MAX_CLASSES:
            message = f"{number} classes of {columns} columns for {count} symbols at depth {depth}"
            raise FormatError("LCC-STR-07", cursor.where, message)
        bounds = np.frombuffer(cursor.take(number - 1, "bounds of classes"), np.uint8)
        sizes = np.frombuffer(cursor.take(4 * number - 4, "sizes of classes"), "<u4").tolist()
        sizes.append(rows * columns - sum(sizes))
        if sizes[-1] < 0 or (bounds[1:] <= bounds[:-1]).any():
            raise FormatError("LCC-STR-07", cursor.where, f"classes of {sizes} with bounds {bounds.tolist()}")
        read_levels = [self.stream(extent, depth + 1) for extent in (rows, columns)]
        read_classes = [self.stream(size, depth + 1) for size in sizes]

        def finish() -> Sparse:
            levels = [
                dense(read(), extent) for read, extent in zip(read_levels, (rows, columns), strict=True)
            ]
            if max(int(level.max()) for level in levels) > MAX_LEVEL:
                raise FormatError("LCC-STR-07", cursor.where, f"a level above {MAX_LEVEL}")
            classes = Classes(levels[0], levels[1], bounds)
            if classes.sizes != sizes:
                message = f"classes of {sizes}, but their cells are {classes.sizes}"
                raise FormatError("LCC-STR-07", cursor.where, message)
            cells = []
            for k, (read, size) in enumerate(zip(read_classes, sizes, strict=True)):
                found = as_sparse(read(), size)
                cells.append(classes.collect(k, found.positions) << 8 | found.values)
            # Each class is in order already, which a stable sort makes use of.
            together = np.sort(np.concatenate(cells), kind="stable")
            positions = together >> 8
            if together.size and int(positions[-1]) >= count:
                raise FormatError("LCC-STR-07", cursor.where, "a symbol behind the last one is not 0")
            return Sparse(positions, together.astype(np.uint8))

        return finish
