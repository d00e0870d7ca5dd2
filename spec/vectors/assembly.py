"""Frames put together byte by byte from the specification.

Nothing here uses the encoder or the decoder. The values that a frame decodes to are computed here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

import numpy as np
from pieces import (
    CODEBOOK,
    KINDS,
    PLANES,
    RAW,
    Frame,
    assembled,
    bits_to_bytes,
    block,
    classed,
    constant,
    huffman,
    little,
    packed,
    packed_symbols,
    raw,
    sparse,
    unzigzag,
)


def _of_every_stream() -> Iterator[Frame]:
    """Yield each form of stream, as the only plane of a uint8 array."""

    def planes(name: str, description: str, stream: bytes, symbols: Sequence[int], log2: int = 12) -> Frame:
        head = (PLANES, "uint8", (len(symbols),), log2)
        return assembled(f"planes-{name}", description, head, block(stream), unzigzag(symbols))

    yield planes("constant", "all symbols alike", constant(7), [7] * 30)
    yield planes("raw-stream", "symbols as they are", raw(range(30)), range(30))
    yield planes(
        "huffman", "two codes of one bit, one lane", huffman([1, 1], [0, 1, 1] * 9, 1), [0, 1, 1] * 9
    )
    skewed = [0] * 40 + [1] * 9 + [2] * 3 + [3]
    for width in (None, 8, 16):
        yield planes(
            f"huffman-lanes-{width or 'least'}",
            "five lanes of different length, and sizes of more bits than they need",
            huffman([1, 2, 3, 3], skewed, 5, width),
            skewed,
        )
    longest = [*range(1, 16), 15]
    every = [*range(16), 15, 0, 14]
    yield planes("huffman-15-bits", "codes of every length up to 15 bits", huffman(longest, every, 3), every)
    flat = [*range(255, -1, -1)]
    yield planes(
        "huffman-256-codes", "every symbol has a code of 8 bits", huffman([8] * 256, flat, 256), flat
    )
    many = [1, 0, 0, 0] * 100
    yield planes(
        "huffman-one-symbol-lanes", "a lane for every symbol", huffman([1, 1], many, len(many)), many
    )

    run = [0] * 300
    run[5], run[6], run[299] = 9, 8, 255
    stream = sparse(0, 4, raw([5, 0, 255, 36]), b"", raw([9, 8, 0, 255]))
    yield planes("sparse-filler", "a gap too long for one, joined by a value 0", stream, run)
    stream = sparse(3, 3, raw([0, 0, 36]), bits_to_bytes("101" + "000" + "001"), raw([9, 8, 255]))
    run[299], run[6 + 292 + 1] = 0, 255
    yield planes("sparse-low-bits", "gaps with three raw low bits", stream, run)
    stream = sparse(8, 2, raw([0, 1]), bytes([4, 37]), constant(1))
    run = [0] * 300
    run[4] = run[4 + 293 + 1] = 1
    yield planes("sparse-8-low-bits", "gaps with a raw low byte, equal values", stream, run)
    yield planes(
        "sparse-nothing", "no gaps: all symbols are 0", sparse(0, 0, constant(0), b"", raw([])), [0] * 30
    )
    stream = sparse(0, 30, constant(0), b"", raw(range(1, 31)))
    yield planes("sparse-full", "as many gaps as symbols, all 0", stream, range(1, 31))

    for width in (1, 2, 4):
        symbols = [place * place % 11 % (1 << width) for place in range(29)]
        yield planes(
            f"packed-{width}",
            f"symbols of {width} bits, the last group not full",
            packed(width, raw(packed_symbols(symbols, width))),
            symbols,
        )
    symbols = [row * column % 7 for row in range(5) for column in range(6)]
    levels = ([0, 1, 2, 3, 3], [0, 2, 1, 0, 2, 15])
    yield planes("classed", "three classes of a matrix", classed(6, [2, 4], levels, symbols, raw), symbols)
    stream = classed(6, [1, 17], levels, symbols[:27], lambda cells: packed(4, raw(packed_symbols(cells, 4))))
    yield planes(
        "classed-row",
        "one row, as wide as there are symbols",
        classed(30, [2], ([1], levels[1] * 5), symbols, raw),
        symbols,
    )
    yield planes(
        "classed-part-row", "two classes in use, packed; the last row not full", stream, symbols[:27]
    )
    stream = classed(
        1,
        [0, 255],
        ([0] * 9, [0]),
        [0] * 8 + [3],
        lambda cells: sparse(0, 1, raw([8]), b"", raw([3])) if cells else raw([]),
    )
    yield planes("classed-column", "one column, classes without cells", stream, [0] * 8 + [3])
    # Gaps 0, 0, 0, 3 of a stream of depth 1. Their one gap, 3, is at depth 3, its value, 3, at 4.
    stream = sparse(0, 4, sparse(0, 1, packed(4, raw([3])), b"", raw([3])), b"", packed(4, constant(0x55)))
    run = [0] * 30
    for place in (0, 1, 2, 6):
        run[place] = 5
    yield planes("nested", "streams inside streams, four deep", stream, run)
    yield planes(
        "packed-nested", "packed three times", packed(4, packed(4, packed(4, raw([1, 0])))), [1] + [0] * 15
    )


def blocks_of_frames() -> Iterator[Frame]:
    """Yield frames of small blocks."""
    values = np.arange(2500, dtype="<u2") * 3
    codes = values << 1
    body = b"".join(
        block(raw((codes[part] & 255).astype(np.uint8)), raw((codes[part] >> 8).astype(np.uint8)))
        for part in (slice(0, 1024), slice(1024, 2048), slice(2048, 2500))
    )
    yield assembled(
        "planes-blocks", "three blocks, the last not full", (PLANES, "uint16", (4, 625), 10), body, values
    )
    reference = np.arange(2100, dtype="<f4")
    symbols = np.arange(2100) % 3
    symbols[:1024] = 0
    symbols[1500] = 0
    expected = reference + np.array([0, 0.5, -2], "<f4")[symbols]
    expected[1500] = np.inf
    book = struct.pack("<H2f", 2, 0.5, -2.0)
    escape = sparse(0, 2, raw([255, 220]), b"", raw([0, 1]))  # place 255 + 1 + 220 of the block
    body = b"".join(
        [
            block(b"\0", constant(0)),
            block(b"\1", raw(symbols[1024:2048].astype(np.uint8)), escape, struct.pack("<f", np.inf)),
            block(b"\0", raw(symbols[2048:].astype(np.uint8))),
        ]
    )
    head = (CODEBOOK, "float32", (2100,), 10)
    yield assembled(
        "codebook-blocks", "three blocks, one with an escape", head, book + body, expected, reference
    )
    one, four = np.array([1], np.uint8), np.array([4], np.uint8)
    head = (PLANES, "uint8", (), 10)
    yield assembled("planes-0d-relative", "no dimensions: 4 - 3", head, block(constant(5)), one, four)
    none = np.zeros(0, "<u4")
    yield assembled("raw-empty", "no elements", (RAW, "int32", (0, 3), 0), b"", none)
    yield assembled(
        "planes-empty-relative", "no elements, no blocks", (PLANES, "int32", (2, 0), 10), b"", none, none
    )
    zeros = np.zeros(3000, np.uint8)
    stream = block(constant(0))
    head = (PLANES, "uint8", (zeros.size,), 22)
    yield assembled("planes-largest-block", "a block of 2**22 components may hold less", head, stream, zeros)


def _of_arithmetic() -> Iterator[Frame]:
    """Yield codebook frames whose sums are computed by hand."""
    # 1 + 2**-11 is a tie and stays 1, which is even. One place above 1, the tie goes up to even.
    reference = np.array([0x3C00, 0x3C01, 0x8000, 0x0000, 0x0001, 0x8001, 0x03FF, 0x7C00, 0xFC00], "<u2")
    book = struct.pack("<H3H", 3, 0x1000, 0x0001, 0x8000)
    symbols = [1, 1, 0, 0, 2, 2, 2, 1, 0]
    expected = np.array([0x3C00, 0x3C02, 0x8000, 0x0000, 0x0002, 0x0000, 0x0400, 0x7C00, 0xFC00], "<u2")
    yield assembled(
        "codebook-float16-rounding",
        "ties to even, signed zeros, subnormals in sum and representative, infinities",
        (CODEBOOK, "float16", (9,), 10),
        book + block(b"\0", raw(symbols)),
        expected,
        reference,
    )
    reference = np.array([0x3F80, 0x3F81, 0x8000, 0x0000, 0x0001, 0x8001, 0x007F, 0x7F7F, 0xFF80], "<u2")
    book = struct.pack("<H4H", 4, 0x3B80, 0x0001, 0x8000, 0x7F00)
    symbols = [1, 1, 0, 3, 2, 2, 2, 4, 0]
    expected = np.array([0x3F80, 0x3F82, 0x8000, 0x0000, 0x0002, 0x0000, 0x0080, 0x7F80, 0xFF80], "<u2")
    yield assembled(
        "codebook-bfloat16-rounding",
        "ties to even, signed zeros, subnormals in sum and representative, overflow to infinity",
        (CODEBOOK, "bfloat16", (9,), 10),
        book + block(b"\0", raw(symbols)),
        expected,
        reference,
    )
    book = struct.pack("<H3I", 3, 0x80000000, 0x00000001, 0x7F7FFFFF)
    stream = packed(2, raw(bits_to_bytes("00" + "10" + "01" + "11" + "00")))
    yield assembled(
        "codebook-float32-no-reference",
        "symbol 0 is +0.0; -0.0, a subnormal and the largest number as representatives",
        (CODEBOOK, "float32", (5,), 10),
        book + block(b"\0", stream),
        np.array([0, 0x80000000, 1, 0x7F7FFFFF, 0], "<u4"),
    )
    reference = np.array([0x7FC00001, 0x3F800000, 0x80000000, 0x00000001, 0x7F800000], "<u4")
    mask, escapes = raw([1, 0, 255, 0, 0]), struct.pack("<2I", 0x7FA00001, 0xFFFFFFFF)
    yield assembled(
        "codebook-float32-exact",
        "no representatives; escapes are NaN patterns, a signaling one among them, marked by any value but 0",
        (CODEBOOK, "float32", (5,), 10),
        struct.pack("<H", 0) + block(b"\1", constant(0), mask, escapes),
        np.array([0x7FA00001, 0x3F800000, 0xFFFFFFFF, 0x00000001, 0x7F800000], "<u4"),
        reference,
    )
    for width in (1, 2, 4):
        symbols = [place * place % 7 % (1 << width) for place in range(21)]
        book = struct.pack("<H", (1 << width) - 1) + little(np.arange(1, 1 << width, dtype="<f4") / 4)
        yield assembled(
            f"codebook-packed-{width}",
            f"symbols of {width} bits, added to 2",
            (CODEBOOK, "float32", (7, 3), 10),
            book + block(b"\0", packed(width, raw(packed_symbols(symbols, width)))),
            2 + np.array(symbols, "<f4") / 4,
            np.full(21, 2, "<f4"),
        )
    book = struct.pack("<257H", 256, *range(0x3C00, 0x3D00))
    low, high = raw([0, 1, 2, 255, 0, 0, 254, 1]), raw([0, 0, 0, 0, 1, 0, 0, 0])
    yield assembled(
        "codebook-wide-first",
        "256 representatives, the fewest that make symbols two bytes",
        (CODEBOOK, "float16", (8,), 10),
        book + block(b"\0", low, high),
        np.array([0, 0x3C00, 0x3C01, 0x3CFE, 0x3CFF, 0, 0x3CFD, 0x3C00], "<u2"),
    )


def assembled_frames() -> Iterator[Frame]:
    """Yield every frame made here."""
    yield from _of_every_stream()
    yield from blocks_of_frames()
    yield from _of_arithmetic()
    yield from _of_order()
    yield from _of_runs()


def _of_order() -> Iterator[Frame]:
    """Yield ordered codebook frames: steps from number to number, across zero and past infinity."""
    # Steps of 1, of -2 and of a power of two: 1.0 and its neighbours, both zeros, the smallest
    # numbers, the largest number to infinity, infinity to NaN, and the last pattern to the first.
    steps = struct.pack("<3Hh", 3, 0x0001, 0xFFFE, 0x0400)
    before = [0x3C00, 0x3C00, 0xBC00, 0x8000, 0x0000, 0x0001, 0x7BFF, 0x7C00, 0x7FFF, 0xFFFF, 0xFFFF, 0xFC00]
    symbols = [3, 2, 3, 1, 2, 2, 1, 1, 1, 0, 2, 0]
    after = [0x4000, 0x3BFE, 0xB800, 0x0000, 0x8001, 0x8000, 0x7C00, 0x7C01, 0xFFFF, 0xFFFF, 0x7FFE, 0xFC00]
    yield assembled(
        "codebook-float16-ordered",
        "steps of 1, of -2 and of a power of two, across zero, infinity and the last pattern",
        (CODEBOOK, "float16", (12,), 10),
        steps + block(b"\0", raw(symbols)),
        np.array(after, "<u2"),
        np.array(before, "<u2"),
        ordered=True,
    )
    for name, code in (("bfloat16", "H"), ("float32", "I"), ("float64", "Q"), ("complex64", "I")):
        kind = KINDS[name]
        # The pattern of 1.0.
        one = ((1 << (8 * kind.size - 2)) - 1) >> kind.mantissa << kind.mantissa
        power, all_ones = 1 << kind.mantissa, (1 << (8 * kind.size)) - 1
        count = 5 * kind.components
        before_bits = np.array([one, one, one + power, 0, 7] * kind.components, kind.bits)
        moved = np.array([one + power, one - 3, one + power, 0, one], kind.bits)
        book = struct.pack(f"<H2{code}", 2, power, all_ones - 2)
        stream = packed(2, raw(packed_symbols([1, 2, 0, 0, 0] * kind.components, 2)))
        mask = raw([0, 0, 0, 0, 1] * kind.components)
        exact = np.array([one] * kind.components, kind.bits.newbyteorder("<")).tobytes()
        yield assembled(
            f"codebook-{name}-ordered",
            "twice as large, three numbers down, unchanged, and an escape",
            (CODEBOOK, name, (5,), 10),
            book + block(b"\1", stream, mask, exact),
            np.tile(moved, count // 5).astype(kind.bits.newbyteorder("<")),
            before_bits.astype(kind.bits.newbyteorder("<")),
            ordered=True,
        )


def _of_runs() -> Iterator[Frame]:
    """Yield runs: three arrays of 3, 1 and 4 elements."""
    shapes: list[tuple[int, ...]] = [(3,), (), (2, 2)]
    values = np.arange(8, dtype="<i2") - 3
    yield assembled("run-raw", "three arrays, raw", (RAW, "int16", shapes, 0), little(values), values)
    codes = np.array([1, 0, 3, 2, 5, 4, 7, 6])
    before = np.arange(8, dtype="<i2") * 1000
    after = before + ((codes >> 1) ^ -(codes & 1)).astype("<i2")
    body = block(raw(codes), constant(0))
    yield assembled(
        "run-planes", "three arrays, relative", (PLANES, "int16", shapes, 10), body, after, before
    )
    # Codebooks of 2, 0 and 3 representatives: the value of a symbol depends on the array.
    book = struct.pack("<3H5f", 2, 0, 3, 0.5, -0.5, 1.0, 2.0, 4.0)
    symbols = [1, 2, 0, 0, 3, 2, 1, 0]
    made = np.array([0.5, -0.5, 0, 0, 4, 2, 1, 0], "<f4")
    head = (CODEBOOK, "float32", shapes, 10)
    yield assembled("run-codebook", "a codebook each", head, book + block(b"\0", raw(symbols)), made)
    start = np.arange(8, dtype="<f4")
    escapes = sparse(0, 1, raw([3]), b"", constant(1)) + np.array([np.inf], "<f4").tobytes()
    moved = start + made
    moved[3] = np.inf
    yield assembled(
        "run-codebook-relative",
        "and an escape",
        head,
        book + block(b"\1", raw(symbols), escapes),
        moved,
        start,
    )
    steps = struct.pack("<3H3i", 1, 0, 2, 1 << 23, -(1 << 23), -1)
    powers = np.array([1, 2, 3, 0, 8, 16, 32, 1], "<f4")
    scaled = np.array([2, 2, 6, 0, 4, 16, 16, 1 - 2**-24], "<f4")
    yield assembled(
        "run-codebook-ordered",
        "twice or half as large, and the number before",
        head,
        steps + block(b"\0", raw([1, 0, 1, 0, 1, 0, 1, 2])),
        scaled,
        powers,
        ordered=True,
    )
    wide = struct.pack("<3H", 1, 300, 0) + np.arange(301, dtype="<f4").tobytes()
    first = struct.pack("<3H", 1, 256, 0) + np.arange(257, dtype="<f4").tobytes()
    yield assembled(
        "run-codebook-wide-first",
        "one array has 256 representatives, the fewest that make symbols two bytes",
        head,
        first + block(b"\0", raw([1, 0, 1, 0, 0, 0, 0, 0]), raw([0, 0, 0, 1, 0, 0, 0, 0])),
        np.array([0, 0, 0, 256, 0, 0, 0, 0], "<f4"),
    )
    highs = [0, 0, 0, 1, 0, 0, 0, 0]
    lows = [1, 0, 1, 44, 0, 0, 0, 0]
    expected = np.array([0, 0, 0, 300, 0, 0, 0, 0], "<f4")
    yield assembled(
        "run-codebook-wide",
        "one array has 300 representatives",
        head,
        wide + block(b"\0", raw(lows), raw(highs)),
        expected,
    )
