"""Streams of symbols (7.1 to 7.4): packing, Huffman runs, and the forms of a stream."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import accumulate, pairwise, repeat


class Refused(Exception):  # noqa: N818
    """The bytes break a rule of the text; `rule` is its identifier."""

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(f"{rule}: {message}")
        self.rule = rule


class Cursor:
    """Bytes that are read from the front; a field beyond their end is a truncation (LCC-FRM-02)."""

    def __init__(self, data: memoryview) -> None:
        self.data = data

    def take(self, size: int) -> memoryview:
        """The next bytes."""
        if size > len(self.data):
            raise Refused("LCC-FRM-02", f"{size} bytes are declared, {len(self.data)} are left")
        taken, self.data = self.data[:size], self.data[size:]
        return taken

    def integer(self, size: int) -> int:
        """The next unsigned integer."""
        return int.from_bytes(self.take(size), "little")


def components(data: bytes | bytearray | memoryview, size: int) -> Iterator[int]:
    """The components that the bytes hold."""
    for (value,) in struct.iter_unpack({1: "<B", 2: "<H", 4: "<I", 8: "<Q"}[size], data):
        yield value


# 7.1: packing


def packed(cursor: Cursor, count: int, width: int, rule: str) -> Iterator[int]:
    """Values of `width` bits each (LCC-BIT-01); `rule` is the one that makes unused bits 0."""
    data = cursor.take((count * width + 7) // 8)
    if count * width % 8 and data[-1] >> (count * width % 8):
        raise Refused(rule, "unused bits are not 0")
    for bit in range(0, count * width, width or 1):
        # A value of at most 16 bits lies in at most three bytes.
        yield int.from_bytes(data[bit // 8 : bit // 8 + 3], "little") >> (bit % 8) & ((1 << width) - 1)


# 7.2 and 7.3: Huffman runs


def huffman_codes(cursor: Cursor) -> dict[int, int]:
    """The symbol of each code (7.2); a code is its bits after a 1 that keeps leading zeros."""
    last = cursor.integer(1)
    lengths = list(packed(cursor, last + 1, 4, "LCC-HUF-04"))
    if not lengths[last]:
        raise Refused("LCC-HUF-04", "the last symbol of the table has no code")
    if sum(1 << (15 - length) for length in lengths if length) != 1 << 15:
        raise Refused("LCC-HUF-02", "the codes are not complete")
    codes = {}
    code = before = 0
    for length, symbol in sorted((length, symbol) for symbol, length in enumerate(lengths) if length):
        if before:  # LCC-HUF-03; the first code is all zeros
            code = (code + 1) << (length - before)
        before = length
        codes[1 << length | code] = symbol
    return codes


def huffman_run(cursor: Cursor, n: int) -> bytearray:
    """The symbols of a Huffman run (7.3)."""
    if n == 0:
        raise Refused("LCC-STR-02", "a Huffman run of no symbols")
    codes = huffman_codes(cursor)
    lanes, least, width = cursor.integer(2), cursor.integer(2), cursor.integer(1)
    if not 1 <= lanes <= n or n > 2048 * lanes:
        raise Refused("LCC-LAN-02", f"{lanes} lanes for {n} symbols")
    if width > 8 and width != 16:
        raise Refused("LCC-LAN-03", f"excess sizes of {width} bits")
    # A width of 0 bits stores nothing: every lane has the least size.
    excess = packed(cursor, lanes, width, "LCC-LAN-03") if width else repeat(0, lanes)
    stored = [cursor.take(size) for size in [least + more for more in excess]]
    symbols = bytearray(n)
    for lane, data in enumerate(stored):
        position = 0
        for i in range(lane, n, lanes):  # LCC-LAN-01
            code = 1
            while code not in codes:
                if position >= 8 * len(data):
                    raise Refused("LCC-LAN-04", "a lane ends inside a code")
                code = code << 1 | data[position // 8] >> (position % 8) & 1
                position += 1
            symbols[i] = codes[code]
        if (position + 7) // 8 != len(data) or (position % 8 and data[-1] >> (position % 8)):
            raise Refused("LCC-LAN-04", "a lane does not end in its last byte, or bits after it are not 0")
    return symbols


# 7.4: streams


def sparse_stream(cursor: Cursor, n: int, depth: int) -> bytearray:
    """The symbols of a sparse stream (LCC-STR-06)."""
    start = len(cursor.data) + 1
    low_bits, count = cursor.integer(1), cursor.integer(4)
    if low_bits > 8 or count > n:
        raise Refused("LCC-STR-06", f"{low_bits} low bits, {count} gaps in {n} symbols")
    high = stream(cursor, count, depth + 1)
    low = bytes(packed(cursor, count, low_bits, "LCC-STR-06")) if low_bits else bytes(count)
    steps = ((a << low_bits | b) + 1 for a, b in zip(high, low, strict=True))
    positions = [position - 1 for position in accumulate(steps)]
    if positions and positions[-1] >= n:
        raise Refused("LCC-STR-06", "a gap goes past the end")
    values = stream(cursor, count, depth + 1)
    check_places(count, start - len(cursor.data))
    symbols = bytearray(n)
    for position, value in zip(positions, values, strict=True):
        symbols[position] = value
    return symbols


def check_places(places: int, size: int) -> None:
    """Refuse more gaps, or symbols other than 0, than a stream of a size may have (LCC-LIM-14)."""
    if places > 256 * size:
        raise Refused("LCC-LIM-14", f"{places} places in a stream of {size} bytes")


def classed_stream(cursor: Cursor, n: int, depth: int) -> bytearray:
    """The symbols of a classed stream (LCC-STR-07)."""
    start = len(cursor.data) + 1
    if depth != 1:
        raise Refused("LCC-STR-07", "a classed stream inside another")
    columns = cursor.integer(2)
    if not 1 <= columns <= n or (rows := -(-n // columns)) > 65535:
        raise Refused("LCC-STR-07", f"{columns} columns for {n} symbols")
    classes = cursor.integer(1)
    if not 2 <= classes <= 16:
        raise Refused("LCC-STR-07", f"{classes} classes")
    bounds = bytes(cursor.take(classes - 1))
    if any(a >= b for a, b in pairwise(bounds)):
        raise Refused("LCC-STR-07", "the bounds do not rise")
    counts = [cursor.integer(4) for _ in range(classes - 1)]
    row_levels, column_levels = stream(cursor, rows, depth + 1), stream(cursor, columns, depth + 1)
    if max(row_levels) > 15 or max(column_levels) > 15:
        raise Refused("LCC-STR-07", "a level is above 15")
    class_of = [sum(bound <= level for bound in bounds) for level in range(31)]
    given = [0] * classes
    for a in range(16):
        for b in range(16):
            given[class_of[a + b]] += row_levels.count(a) * column_levels.count(b)
    if given[:-1] != counts:
        raise Refused("LCC-STR-07", "the numbers of cells are not those that the levels give")
    streams = [stream(cursor, count, depth + 1) for count in given]
    check_places(sum(len(cells) - cells.count(0) for cells in streams), start - len(cursor.data))
    cells = list(map(iter, streams))
    symbols = bytearray()
    for row in row_levels:
        symbols += bytes(next(cells[class_of[row + column]]) for column in column_levels)
    if any(symbols[n:]):
        raise Refused("LCC-STR-07", "a cell after the last symbol is not 0")
    return symbols[:n]


def split_stream(cursor: Cursor, n: int, depth: int, reference: memoryview | None, size: int) -> bytearray:
    """The symbols of a split stream (LCC-STR-08, LCC-STR-09)."""
    start = len(cursor.data) + 1
    if depth != 1 or reference is None:
        raise Refused("LCC-STR-08", "a split stream inside another, or without a reference")
    parts = cursor.integer(1)
    if not 1 <= parts <= 3:
        raise Refused("LCC-STR-08", f"{parts} parts")
    bounds = [cursor.integer(size) for _ in range(parts)]
    if any(a >= b for a, b in pairwise(bounds)):
        raise Refused("LCC-STR-08", "the bounds do not rise")
    counts = [cursor.integer(4) for _ in range(parts)]
    if sum(counts) > n:
        raise Refused("LCC-STR-08", f"{sum(counts)} of {n} components are in parts")
    streams = [stream(cursor, count, depth + 1) for count in (*counts, n)]
    check_places(sum(len(symbols) - symbols.count(0) for symbols in streams), start - len(cursor.data))
    if n > 4096 * (start - len(cursor.data)):
        raise Refused("LCC-LIM-14", f"{n} symbols in a split stream of {start - len(cursor.data)} bytes")
    members: list[list[int]] = [[] for _ in bounds]
    for i, component in enumerate(components(reference, size)):
        own = component & (1 << 8 * size - 1) - 1
        if own < bounds[-1]:
            members[sum(bound <= own for bound in bounds)].append(i)
    if [len(part) for part in members] != counts:
        raise Refused("LCC-STR-09", "the parts have other numbers of components than the reference gives")
    symbols = streams[-1]
    for part, found in zip(members, streams, strict=False):
        for i, symbol in zip(part, found, strict=True):
            if symbol and symbols[i]:
                raise Refused("LCC-STR-09", "a component has two symbols that are not 0")
            symbols[i] |= symbol
    return symbols


def stream(
    cursor: Cursor, n: int, depth: int = 1, reference: memoryview | None = None, size: int = 0
) -> bytearray:
    """The n symbols of a stream (7.4).

    A stream of a planes frame with a reference is given the components of that, and their size.
    """
    if depth > 4:
        raise Refused("LCC-STR-03", "streams nest more than four deep")
    form = cursor.integer(1)
    if form == 0:
        return bytearray(cursor.take(1)) * n
    if form == 1:
        return bytearray(cursor.take(n))
    if form == 2:
        return huffman_run(cursor, n)
    if form == 3:
        return sparse_stream(cursor, n, depth)
    if form == 4:
        width = cursor.integer(1)
        if width not in (1, 2, 4):
            raise Refused("LCC-STR-05", f"packed symbols of {width} bits")
        inner = Cursor(memoryview(stream(cursor, (n * width + 7) // 8, depth + 1)))
        return bytearray(packed(inner, n, width, "LCC-STR-05"))
    if form == 5:
        return classed_stream(cursor, n, depth)
    if form == 6:
        return split_stream(cursor, n, depth, reference, size)
    raise Refused("LCC-STR-01", f"a stream of form {form}")
