"""Frames with a broken stream: the one plane of a uint8 array (SPEC 7.2 to 7.4)."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace

from broken import Broken
from pieces import (
    PLANES,
    assembled,
    bits_to_bytes,
    block,
    classed,
    constant,
    huffman,
    packed,
    packed_symbols,
    raw,
    sparse,
    unzigzag,
)

#: Symbols of one bit, and a table that gives each of the two a code of one bit.
_BITS = [0, 1, 1, 0, 1, 0, 0, 1, 1, 1] * 2
_TABLE = bytes([1, 0x11])


def _plane(stream: bytes, symbols: Sequence[int]) -> bytes:
    """Return a frame of one stream."""
    head = (PLANES, "uint8", (len(symbols),), 17)
    padding = max(-(-len(symbols) // 1024) - 16 - len(block(stream)) - 12, 0)
    return assembled("", "", head, block(stream) + bytes(padding), unzigzag(symbols)).data


def _case(
    rule: str,
    case: str,
    why: str,
    stream: bytes,
    symbols: Sequence[int],
    sound: bytes | None = None,
    error: str = "FormatError",
) -> Broken:
    """Return the vector of a stream of these symbols; `sound` is the stream without its fault."""
    whole = None if sound is None else _plane(sound, symbols)
    return Broken(rule, case, error, why, _plane(stream, symbols), whole)


def _changed(data: bytes, offset: int, part: bytes) -> bytes:
    """Return bytes with some of them replaced."""
    return data[:offset] + part + data[offset + len(part) :]


def broken_streams() -> Iterator[Broken]:
    """Yield every frame made here."""
    yield from _codes()
    yield from _lanes()
    yield from _lane_ends()
    yield from _forms()
    yield from _packed()
    yield from _sparse()
    yield from _places()
    yield from _shapes_of_classes()
    yield from _cells_of_classes()


# --- Huffman runs ---------------------------------------------------------------------------------


def _codes() -> Iterator[Broken]:
    """Yield broken tables of code lengths, and tables of codes that are not complete."""
    symbols, rule = [0, 1, 0, 0, 1, 1], "LCC-HUF-02"
    two = huffman([1, 1], symbols, 1)
    why = "lengths 1 and 2 leave a quarter of the codes over"
    yield _case(rule, "incomplete", why, huffman([1, 2], symbols, 1), symbols, two)
    why = "three codes have one bit"
    yield _case(rule, "oversubscribed", why, huffman([1, 1, 1], symbols, 1), symbols, two)
    why = "one symbol alone has a code, of one bit"
    yield _case(rule, "one-code", why, huffman([1], [0] * 6, 1), [0] * 6, huffman([1, 1], [0] * 6, 1))
    why = "256 codes of 7 bits are twice as many as there can be"
    yield _case(rule, "all-too-short", why, huffman([7] * 256, [0] * 6, 1), [0] * 6)
    why = "the last symbol of the table has no code"
    yield _case("LCC-HUF-04", "last-length", why, huffman([1, 1, 0], symbols, 1), symbols, two)
    why = "a table of three lengths ends in four bits that are not 0"
    three = huffman([1, 2, 2], symbols, 1)
    unused = _changed(three, 3, bytes([three[3] | 0x80]))
    yield _case("LCC-HUF-04", "unused-bits", why, unused, symbols, three)


def _lanes() -> Iterator[Broken]:
    """Yield numbers of lanes, and widths of their sizes, that are not allowed."""
    rule, error = "LCC-LAN-02", "LimitError"
    none = bytes([2]) + _TABLE + struct.pack("<HHB", 0, 0, 0)
    one = huffman([1, 1], _BITS, 1)
    yield _case(rule, "none", "a run of 20 symbols has no lanes", none, _BITS, one, error)
    four, three = huffman([1, 1], [0, 1, 1], 4), huffman([1, 1], [0, 1, 1], 3)
    yield _case(rule, "empty-lane", "a run of 3 symbols has 4 lanes", four, [0, 1, 1], three, error)
    many = [*_BITS] * 102 + [0] * 9
    long, half = huffman([1, 1], many, 1), huffman([1, 1], many, 2)
    yield _case(rule, "long-lane", "the one lane has 2,049 symbols", long, many, half, error)

    rule, skewed = "LCC-LAN-03", [0] * 40 + [1] * 9 + [2] * 3 + [3]
    codes = [1, 2, 3, 3]
    for width in (9, 15, 17, 32, 255):
        stream, sound = huffman(codes, skewed, 5, width), huffman(codes, skewed, 5, 16)
        yield _case(rule, f"width-{width}", f"lane sizes have {width} bits", stream, skewed, sound)
    sound = huffman(codes, skewed, 5, 1)
    unused = _changed(sound, 9, bytes([sound[9] | 0x80]))
    yield _case(rule, "unused-bits", "a bit after the last lane size is 1", unused, skewed, sound)


def _run(rows: Sequence[str | bytes]) -> bytes:
    """Return a Huffman stream of these lanes, given as bits or as bytes."""
    lanes = [bits_to_bytes(row) if isinstance(row, str) else row for row in rows]
    least = min(map(len, lanes))
    excess = [len(lane) - least for lane in lanes]
    width = max(excess).bit_length()
    head = bytes([2]) + _TABLE + struct.pack("<HHB", len(lanes), least, width)
    return head + packed_symbols(excess, width) * bool(width) + b"".join(lanes)


def _lane_ends() -> Iterator[Broken]:
    """Yield lanes that do not end where their codes end."""
    rule = "LCC-LAN-04"
    rows = ["".join(map(str, _BITS[lane::2])) for lane in (0, 1)]
    lanes, sound = [bits_to_bytes(row) for row in rows], _run(rows)
    why = "the first lane has a byte after that of its last code"
    yield _case(rule, "byte-too-many", why, _run([lanes[0] + b"\0", lanes[1]]), _BITS, sound)
    why = "the last lane has a byte after that of its last code"
    yield _case(rule, "byte-too-many-at-the-end", why, _run([lanes[0], lanes[1] + b"\0"]), _BITS, sound)
    why = "a lane of eight codes of one bit, of a table that has longer ones, has a byte behind them"
    sound_alone = huffman([1, 2, 2], [0] * 8, 1)
    alone = _changed(sound_alone, len(sound_alone) - 4, struct.pack("<H", 2)) + b"\0"
    yield _case(rule, "byte-behind-eight", why, alone, [0] * 8, sound_alone)
    why = "the first lane ends before its last code"
    yield _case(rule, "too-short", why, _run([lanes[0][:1], lanes[1]]), _BITS, sound)
    why = "the last lane ends before its last code"
    yield _case(rule, "too-short-at-the-end", why, _run([lanes[0], lanes[1][:1]]), _BITS, sound)
    why = "20 symbols have codes of one bit, and no bytes"
    yield _case(rule, "no-bytes", why, _run([b"", b""]), _BITS, sound)
    why = "the bit after the last code of a lane is 1"
    yield _case(rule, "bit-behind", why, _run([rows[0] + "1", rows[1]]), _BITS, sound)
    why = "the last bit of the last lane is 1, after its last code"
    yield _case(rule, "last-bit", why, _run([rows[0], rows[1] + "000001"]), _BITS, sound)
    symbols = _BITS[:17]  # lanes of 9 and of 8 bits
    first, second = (bits_to_bytes("".join(map(str, symbols[lane::2]))) for lane in (0, 1))
    together = first + second
    why = "the sizes of two lanes, 2 and 1, are exchanged"
    stream = _run([together[:1], together[1:]])
    yield _case(rule, "sizes-exchanged", why, stream, symbols, _run([first, second]))
    many = _BITS * 20
    each = [bytes([symbol]) for symbol in many]
    why = "one of 400 lanes of one symbol has a bit that is 1 after its code"
    stream = _run([*each[:200], bytes([each[200][0] | 2]), *each[201:]])
    yield _case(rule, "bit-behind-in-many", why, stream, many, _run(each))
    why = "one of 400 lanes of one symbol has two bytes"
    stream = _run([*each[:200], each[200] + b"\0", *each[201:]])
    yield _case(rule, "byte-too-many-in-many", why, stream, many, _run(each))


# --- streams --------------------------------------------------------------------------------------


def _forms() -> Iterator[Broken]:
    """Yield forms that are not defined, Huffman runs of nothing, and streams too deep."""
    rule, error = "LCC-STR-01", "UnsupportedError"
    symbols = [*range(16)]
    for form in (7, 255):
        stream = bytes([form, *symbols])
        yield _case(
            rule, f"form-{form}", f"a stream has the form {form}", stream, symbols, raw(symbols), error
        )
    inside, sound = packed(4, bytes([7, *[0x10] * 8])), packed(4, raw([0x10] * 8))
    yield _case(rule, "form-7-inside", "a stream inside has the form 7", inside, [0, 1] * 8, sound, error)

    rule, zeros = "LCC-STR-02", [0] * 30
    nothing = bytes([2]) + _TABLE + struct.pack("<HHB", 1, 0, 0)
    sound = sparse(0, 0, raw([]), b"", raw([]))
    why = "the gaps of a sparse stream without gaps are a Huffman run"
    yield _case(rule, "gaps", why, sparse(0, 0, nothing, b"", raw([])), zeros, sound)
    why = "the values of a sparse stream without gaps are a Huffman run"
    yield _case(rule, "values", why, sparse(0, 0, raw([]), b"", nothing), zeros, sound)
    levels = ([0] * 5, [0] * 6)
    stream = classed(6, [1], levels, zeros, lambda cells: constant(0) if cells else nothing)
    sound = classed(6, [1], levels, zeros, lambda _: constant(0))
    yield _case(rule, "class", "a class without cells is a Huffman run", stream, zeros, sound)

    rule, error = "LCC-STR-03", "LimitError"
    symbols, stream = [1] + [0] * 31, packed(4, packed(4, packed(4, packed(4, raw([1, 0])))))
    sound = packed(4, packed(4, packed(4, raw([1, 0, 0, 0]))))
    yield _case(rule, "packed", "a packed stream has four others inside it", stream, symbols, sound, error)
    deep = [constant(0)]
    for _ in range(4):
        deep.append(sparse(0, 0, deep[-1], b"", raw([])))
    why = "the gaps of gaps of gaps of gaps are a stream of depth 5"
    yield _case(rule, "sparse", why, deep[4], zeros, deep[3], error)
    cells = [1] + [0] * 29

    def nested(depth: int) -> bytes:
        return classed(6, [1], levels, cells, lambda few: _packed_deep(few, depth))

    why = "a class is packed three times, which makes depth 5"
    yield _case(rule, "class", why, nested(3), cells, nested(2), error)


def _packed_deep(symbols: Sequence[int], depth: int) -> bytes:
    """Return symbols packed as many times."""
    if not symbols:
        return raw([])
    for _ in range(depth):
        symbols = packed_symbols(symbols, 4)
    return bytes([4, 4] * depth) + raw(symbols)


def _packed() -> Iterator[Broken]:
    """Yield packed streams of wrong widths, and with unused bits that are not 0."""
    rule = "LCC-STR-05"
    for width in (0, 3, 5, 8):
        symbols = [place * place % (1 << width) for place in range(16)]
        groups = packed_symbols(symbols, width) if width else b""
        stream = packed(width, raw(groups))
        yield _case(rule, f"width-{width}", f"symbols are packed with {width} bits", stream, symbols)
    for width, symbols in ((1, [0, 1, 0]), (2, [2, 3, 1]), (4, [1, 2, 3])):
        groups = packed_symbols(symbols, width)
        sound, broken = packed(width, raw(groups)), packed(width, raw([*groups[:-1], groups[-1] | 0x80]))
        why = f"{width}-bit symbols leave bits of their last byte unused, and one of them is 1"
        yield _case(rule, f"unused-bits-{width}", why, broken, symbols, sound)


def _sparse() -> Iterator[Broken]:
    """Yield sparse streams with too many gaps, too long gaps, or too many low bits."""
    rule = "LCC-STR-06"
    symbols = [0] * 300
    symbols[5] = 7
    sound = sparse(3, 1, raw([0]), bits_to_bytes("101"), raw([7]))
    stream = sparse(9, 1, raw([0]), bits_to_bytes("101000000"), raw([7]))
    yield _case(rule, "9-low-bits", "gaps have 9 low bits", stream, symbols, sound)
    stream, full = (
        sparse(0, 5, raw([0] * 5), b"", raw([1] * 5)),
        sparse(0, 4, raw([0] * 4), b"", raw([1] * 4)),
    )
    yield _case(rule, "more-than-symbols", "a stream of 4 symbols has 5 gaps", stream, [1] * 4, full)
    endless = struct.pack("<BBI", 3, 0, 0xFFFFFFFF) + constant(0) + constant(1)
    yield _case(rule, "4-billion", "a stream of 4 symbols has 2^32 - 1 gaps", endless, [1] * 4, full)
    symbols[5], symbols[299] = 0, 7
    sound = sparse(8, 1, raw([1]), bytes([43]), raw([7]))
    stream = sparse(8, 1, raw([1]), bytes([44]), raw([7]))
    yield _case(rule, "past-the-end", "a gap leads to position 300 of 300 symbols", stream, symbols, sound)
    symbols[0] = symbols[1] = 7
    sound, stream = (sparse(0, 4, raw([0, 0, 255, more]), b"", raw([7, 7, 0, 7])) for more in (41, 42))
    why = "the gaps lead to position 300 of 300 symbols together"
    yield _case(rule, "past-the-end-together", why, stream, symbols, sound)
    symbols = [0] * 20
    symbols[5], symbols[10] = 9, 8
    sound = sparse(3, 2, raw([0, 0]), bits_to_bytes("101" + "001"), raw([9, 8]))
    stream = sparse(3, 2, raw([0, 0]), bits_to_bytes("101" + "001" + "01"), raw([9, 8]))
    why = "a bit after the last low part is 1"
    yield _case(rule, "unused-bits", why, stream, symbols, sound)


def _places() -> Iterator[Broken]:
    """Yield streams with a place too many for their bytes."""
    rule, error = "LCC-LIM-14", "LimitError"

    def gaps(count: int) -> bytes:
        stream = struct.pack("<BBI", 3, 0, count) + constant(0) + constant(1)
        return _plane(stream, [1] * count)

    def cells(count: int) -> bytes:
        stream = struct.pack("<BHBBI", 5, count, 2, 1, count) + constant(0) * 2 + constant(1) + constant(0)
        return _plane(stream, [1] * count)

    yield Broken(rule, "gaps", error, "a sparse stream of 10 bytes has 2,561 gaps", gaps(2561), gaps(2560))
    why = "a classed stream of 17 bytes has 4,353 symbols that are not 0"
    yield Broken(rule, "symbols", error, why, cells(4353), cells(4352))


# --- classed streams ------------------------------------------------------------------------------

_CELLS = [row * column % 7 for row in range(5) for column in range(6)]
_LEVELS = ([0, 1, 2, 3, 3], [0, 2, 1, 0, 2, 15])


def _shapes_of_classes() -> Iterator[Broken]:
    """Yield classed streams in a wrong place, or with wrong columns, rows, classes or bounds."""
    rule = "LCC-STR-07"
    sound = classed(6, [2, 4], _LEVELS, _CELLS, raw)
    symbols = [symbol for cell in _CELLS for symbol in (cell, 0)]
    stream, flat = packed(4, sound), packed(4, raw(_CELLS))
    yield _case(rule, "inside-packed", "a classed stream lies inside a packed one", stream, symbols, flat)
    run = [0] * 60
    for place in range(30):
        run[place] = _CELLS[place]
    stream, flat = (sparse(0, 30, constant(0), b"", values) for values in (sound, raw(_CELLS)))
    yield _case(rule, "inside-sparse", "a classed stream lies inside a sparse one", stream, run, flat)
    yield _case(rule, "no-columns", "the matrix has no columns", _changed(sound, 1, b"\0\0"), _CELLS, sound)
    stream = struct.pack("<BHBBI", 5, 0, 2, 1, 0) + constant(0) + raw([]) + constant(0) * 2
    why = "the matrix has no columns, and no class has cells"
    yield _case(rule, "no-cells", why, stream, [0] * 30, raw([0] * 30))
    wide = classed(31, [2], ([1], [0, 1, 2] * 10 + [0]), _CELLS, raw)
    yield _case(rule, "31-columns", "a matrix of 30 symbols has 31 columns", wide, _CELLS, sound)

    def column(rows: int) -> bytes:
        head = struct.pack("<BHBBI", 5, 1, 2, 1, rows)
        return head + constant(0) + constant(0) + constant(0) + constant(0)

    why = "a matrix of one column has 65,536 rows"
    broken = _case(rule, "65536-rows", why, column(65536), [0] * 65536)
    yield replace(broken, sound=_plane(column(65535), [0] * 65535))
    yield _case(rule, "1-class", "there is one class", classed(6, [], _LEVELS, _CELLS, raw), _CELLS, sound)
    stream, most = (classed(6, range(1, count), _LEVELS, _CELLS, raw) for count in (17, 16))
    yield _case(rule, "17-classes", "there are 17 classes", stream, _CELLS, most)
    stream = classed(6, [2, 2], _LEVELS, _CELLS, raw)
    yield _case(rule, "equal-bounds", "two bounds are equal", stream, _CELLS, sound)
    stream = classed(6, [4, 2], _LEVELS, _CELLS, raw)
    yield _case(rule, "falling-bounds", "the second bound is below the first", stream, _CELLS, sound)


def _cells_of_classes() -> Iterator[Broken]:
    """Yield classed streams with impossible levels or cells."""
    rule = "LCC-STR-07"
    sound = classed(6, [2, 4], _LEVELS, _CELLS, raw)
    rows, columns = _LEVELS
    stream = classed(6, [2, 4], ([*rows[:-1], 16], columns), _CELLS, raw)
    yield _case(rule, "row-level-16", "a row has the level 16", stream, _CELLS, sound)
    stream = classed(6, [2, 4], (rows, [*columns[:-1], 16]), _CELLS, raw)
    yield _case(rule, "column-level-16", "a column has the level 16", stream, _CELLS, sound)
    stream = _changed(sound, 6, struct.pack("<2I", 16, 15))
    why = "the classes 0 and 1 have 31 of 30 cells"
    yield _case(rule, "more-cells-than-there-are", why, stream, _CELLS, sound)
    first, second = struct.unpack_from("<2I", sound, 6)
    # The place of the last cell of class 0. A class is stored as a form and its cells.
    place = len(sound) - 30 - 3 + first
    cell = sound[place : place + 1]
    stream = _changed(
        sound[:place] + b"\1" + cell + sound[place + 2 :], 6, struct.pack("<2I", first - 1, second + 1)
    )
    why = "class 0 has a cell fewer than the levels give it, class 1 one more"
    yield _case(rule, "cells-of-another-class", why, stream, _CELLS, sound)
    symbols = _CELLS[:27]
    stream = classed(6, [2, 4], _LEVELS, [*symbols, 1], raw)
    why = "the first cell after the 27 symbols holds 1"
    just = classed(6, [2, 4], _LEVELS, symbols, raw)
    yield _case(rule, "cell-just-behind", why, stream, symbols, just)
    stream = classed(6, [2, 4], _LEVELS, [*symbols, 0, 0, 1], raw)
    sound = classed(6, [2, 4], _LEVELS, symbols, raw)
    yield _case(rule, "cell-behind-the-end", "a cell after the 27 symbols holds 1", stream, symbols, sound)
