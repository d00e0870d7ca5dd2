"""Frames just within a limit, and those that take a way of a decoder that others do not.

Mutation testing (``fuzz/mutants.py``) has found that no other vector notices them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from pieces import (
    CODEBOOK,
    PLANES,
    RAW,
    SMOOTH,
    Frame,
    assembled,
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

from lccodec.element_types import Array


def edge_frames() -> Iterator[Frame]:
    """Yield frames with the most of something, or that a decoder may read in a way of its own."""
    yield from _streams()
    yield from _lanes()
    yield from _long()
    yield from _numbers()
    yield from _limits()
    yield from _codebooks()
    yield _few()
    why, none = "no elements, and 2^40 as its second extent", np.zeros(0, np.uint8)
    yield assembled("raw-empty-widest", why, (RAW, "uint8", (0, 1 << 40), 0), b"", none)
    codes = raw([1, 0, 2])  # of which 0 changes nothing
    before = np.arange(400, dtype="<u1")
    after = before.copy()
    after[10], after[12] = before[10] - 1, before[12] + 1
    stream = sparse(0, 3, raw([10, 0, 0]), b"", codes)
    why = "a few changes, and a place with the code 0"
    head = (PLANES, "uint8", (400,), 10)
    yield assembled("planes-few-filler", why, head, block(stream), after, before)


def _streams() -> Iterator[Frame]:
    """Yield Huffman runs and classed streams."""
    symbols = [0, 1, 2, 1] * 512
    yield _plane("huffman-full-lane", "2,048 symbols in a lane", huffman([1, 2, 2], symbols, 1), symbols)
    lengths = [*range(1, 11), 10]
    # Codes of nine and ten bits. In a word, the last of five begins as late as it may.
    symbols = [symbol for symbol in (8, 8, 8, 9, 9, 9, 9, 9, 9, 10, 9, 9) for _ in range(80)]
    many = huffman(lengths, symbols, 80)
    yield _plane("huffman-many-lanes", "80 lanes of twelve codes of nine or ten bits", many, symbols)
    rows = 65_535
    gaps, last = divmod(rows - 1, 255)
    stream = struct.pack("<BHBBI", 5, 1, 2, 1, rows) + constant(0) + constant(0)
    stream += sparse(0, gaps + 1, raw([254] * gaps + [last]), b"", raw([0] * gaps + [7])) + constant(0)
    symbols = [0] * (rows - 1) + [7]
    yield _plane("classed-65535-rows", "one column of as many rows as there may be", stream, symbols)
    most = sparse(0, 2560, constant(0), b"", constant(1))
    yield _plane("sparse-most-gaps", "256 gaps for each of 10 bytes", most, [1] * 2560)
    symbols = [row * column % 7 for row in range(5) for column in range(6)]
    levels = ([0, 1, 2, 3, 3], [0, 2, 1, 0, 2, 15])
    stream = classed(6, range(1, 16), levels, symbols, raw)
    yield _plane("classed-16-classes", "as many classes as there may be", stream, symbols)
    highest = ([0, 1, 2, 3, 15], [0, 2, 1, 0, 2, 3])
    rows_first = classed(6, [4], highest, symbols, raw)
    columns = sparse(0, 5, packed(4, raw([0x01, 0x00, 0x00])), b"", raw([2, 1, 0, 2, 3]))
    deep = rows_first.replace(raw(highest[1]), columns, 1)
    yield _plane("classed-deep-columns", "the levels of the columns are four deep", deep, symbols)
    zeros = classed(6, [2, 4], levels, [0] * 30, lambda _: constant(0))
    yield _plane("classed-zeros", "three classes of zeros", zeros, [0] * 30)
    gaps_of_levels = packed(4, raw([0x01, 0x00]))  # at the depths 3 and 4
    rows_of_levels = sparse(0, 4, gaps_of_levels, b"", raw([1, 2, 3, 3]))
    whole = classed(6, [4], levels, symbols, raw)
    deep = whole.replace(raw(levels[0]), rows_of_levels, 1)
    yield _plane("classed-deep-levels", "the levels of the rows are four deep", deep, symbols)


def _lanes() -> Iterator[Frame]:
    """Yield runs of many lanes, which a decoder may read in a way of its own."""
    symbols = [place * place % 7 % 3 for place in range(837)]
    short = huffman([1, 2, 2], symbols, 100)
    yield _plane("huffman-short-lanes", "100 lanes of eight or nine codes", short, symbols)
    low, high = ([place * k % 11 % 3 for place in range(1350)] for k in (2, 3))
    values = unzigzag(np.array(low) + 256 * np.array(high), np.uint16)
    body = block(huffman([1, 2, 2], low, 300), huffman([2, 2, 1], high, 250))
    why = "two planes, of 300 lanes and of 250"
    yield assembled("planes-huffman-two-planes", why, (PLANES, "uint16", (1350,), 12), body, values)


def _long() -> Iterator[Frame]:
    """Yield frames of many components, of which a decoder may read a part at a time."""
    gaps = np.zeros((1 << 17) + 4500, np.uint8)
    gaps[::220] = 3
    places = np.cumsum(gaps.astype(np.int64) + 1) - 1
    symbols = np.zeros(int(places[-1]) + 100, np.uint8)
    symbols[places] = 2
    threes = sparse(0, 617, raw([0, *[219] * 616]), b"", constant(3))
    stream = sparse(0, gaps.size, threes, b"", constant(2))
    yield _plane("sparse-many-gaps", "135,572 gaps, most of them 0", stream, symbols.tolist())
    yield _plane("constant-long", "700,000 equal symbols", constant(2), [2] * 700_000)
    shapes: list[tuple[int, ...]] = [((1 << 22) - 5,), (5,)]
    ones = np.ones(1 << 22, np.uint8)
    body = block(constant(2))
    body += bytes((1 << 12) - (8 + 4 + 2 + 16) - len(body) - 12)
    why = "two arrays of 2^22 components together, as many as there may be"
    head = (PLANES, "uint8", shapes, 22)
    yield replace(assembled("run-planes-longest", why, head, body, ones), stored=False)


#: Five elements of which the first is 2 * step above the origin, and the others are predicted.
_LEVELS = b"\xff" * 3 + b"\1" * 3 + b"\0"
_STILL = (b"\x10" + constant(0)) * 3


def field(name: str, description: str, first: bytes, number: int, before: Array | None = None) -> Frame:
    """Return five equal elements, added to others; `first` is the stored number of the first."""
    values = np.full(5, number, "<f8") + (0 if before is None else before)
    head = (SMOOTH, "float64", (5,), 16)
    body = block(struct.pack("<Bdd", 0, 1.0, 0.0), _LEVELS, first, _STILL)
    return assembled(f"smooth-{name}", description, head, body, values, before)


def _numbers() -> Iterator[Frame]:
    """Yield fields whose first number has the most low bits, or the most bytes."""
    low = b"\x17" + bytes([0b1010100]) + raw([3])  # 3 * 128 + 84 is the zigzag code of 234
    yield field("7-low-bits", "a number of one byte and seven low bits", low, 234)
    wide = b"\x22" + bytes([0b11]) + raw([255]) + raw([255])
    yield field("18-bits", "a number of two bytes and two low bits, all of them 1", wide, -(2**17))
    most = b"\x70" + b"".join(raw([byte]) for byte in (2**53 - 1).to_bytes(7, "little"))
    yield field("53-bits", "the largest number, of seven bytes", most, -(2**52))


def _limits() -> Iterator[Frame]:
    """Yield fields with limits that are zeros, and one that is cut along its last axis."""
    limits, number = struct.pack("<dd", -np.inf, -0.0), lambda code: b"\x10" + raw([code])
    body = struct.pack("<Bdd", 2, 1.0, -1.0) + limits + b"\xff" * 3 + b"\1" * 3 + b"\0"
    body += number(4) + number(1) + number(0) + b"\x10" + raw([2, 1])
    values = np.array([-0.0, -0.0, -0.0, -0.75, 0.0])
    why = "an upper limit of -0.0, which leaves 0.0 as it is"
    yield assembled("smooth-upper-limit", why, (SMOOTH, "float64", (5,), 16), block(body), values)
    body = struct.pack("<Bdd", 2, 1.0, 0.0) + struct.pack("<dd", 1.0, 1.0) + _LEVELS + number(4) + _STILL
    why = "a lower limit that is the upper one, too"
    yield assembled("smooth-equal-limits", why, (SMOOTH, "float64", (5,), 16), block(body), np.ones(5))
    # The first number below 0, and 0.0. Between them half of their sum, -0.0, and -1 times no step.
    body = struct.pack("<Bdd", 2, 5e-324, 0.0) + struct.pack("<dd", 0.0, np.inf) + b"\xff\3" + b"\1" * 2
    body += b"\0" + number(1) + number(2) + number(1)
    values = np.array([0.0, -0.0, 0.0])
    why = "a lower limit of 0.0, which leaves -0.0 as it is"
    yield assembled("smooth-lower-limit", why, (SMOOTH, "float64", (3,), 16), block(body), values)
    levels = b"\xff" * 16 + b"\1" * 16 + b"\x10" + b"\x10" + constant(0)
    blocks = b"".join(block(struct.pack("<Bdd", 0, 1.0, origin), levels) for origin in (1.0, 2.0, 3.0, 4.0))
    values = np.repeat(np.arange(1, 5, dtype="<f2"), 35_000)
    padding = bytes(-(-values.size // 256) - (24 + len(blocks) + 12))
    head = (SMOOTH, "float16", (2, 70_000), 16)
    frame = assembled("smooth-long-rows", "two blocks in each of two rows", head, blocks + padding, values)
    yield replace(frame, stored=False)


def _codebooks() -> Iterator[Frame]:
    """Yield codebook frames of dense, packed and few symbols, and runs of two arrays."""
    steps = np.arange(1, 256, dtype="<f4") / 8
    book = struct.pack("<H", 255) + steps.tobytes()
    head = (CODEBOOK, "float32", (4,), 10)
    body = book + block(b"\0", raw([255, 0, 1, 254]))
    values = np.array([steps[254], 0, steps[0], steps[253]], "<f4")
    yield assembled("codebook-255", "the most representatives of symbols of one byte", head, body, values)
    few = np.zeros(40, "<f4")
    few[3] = few[30] = 0.5
    body = struct.pack("<Hf", 1, 0.5) + block(b"\0", raw((few * 2).astype(np.uint8)))
    head = (CODEBOOK, "float32", (40,), 10)
    yield assembled("codebook-few", "two symbols of 40 are not 0, in a raw stream", head, body, few)
    yield assembled("codebook-few-relative", "the same, added to 2", head, body, few + 2, few * 0 + 2)
    count = (1 << 17) + 1024
    body = struct.pack("<HH", 1, 0x3C00) + block(b"\0", packed(1, constant(0x55)))
    ones = np.tile(np.array([1, 0], "<f2"), count // 2)
    head = (CODEBOOK, "float16", (count,), 22)
    body += bytes(-(-ones.nbytes // 1024) - 16 - len(body) - 12)
    yield replace(
        assembled("codebook-packed-many", "132,096 symbols of one bit", head, body, ones), stored=False
    )
    shapes: list[tuple[int, ...]] = [(3,), (5,)]
    book = struct.pack("<2H3f", 1, 2, 0.5, 1.0, 2.0)
    symbols, made = [1, 0, 1, 2, 1, 0, 2, 1], np.array([0.5, 0, 0.5, 2, 1, 0, 2, 1], "<f4")
    head = (CODEBOOK, "float32", shapes, 10)
    for name, stream in (("two", raw(symbols)), ("packed", packed(2, raw(packed_symbols(symbols, 2))))):
        body = book + block(b"\0", stream)
        yield assembled(f"run-codebook-{name}", "two arrays, symbols as bytes or packed", head, body, made)


def _few() -> Frame:
    """Return a frame of sparse planes: no place of the second is one of the first."""
    places, codes = [10, 200], [2, 4]
    low = sparse(0, 2, raw([10, 189]), b"", raw(codes))
    high = sparse(0, 1, raw([50]), b"", raw([2]))
    before = np.arange(400, dtype="<u2")
    after = before.copy()
    after[places] += np.array(codes, "<u2") // 2
    after[50] += 256
    head = (PLANES, "uint16", (400,), 10)
    return assembled("planes-few", "a few changes, each in one plane", head, block(low, high), after, before)


def _plane(name: str, description: str, stream: bytes, symbols: list[int]) -> Frame:
    """Return the frame of a stream, as the only plane of a uint8 array."""
    head = (PLANES, "uint8", (len(symbols),), max(17, (len(symbols) - 1).bit_length()))
    padding = bytes(max(-(-len(symbols) // 1024) - 16 - len(block(stream)) - 12, 0))
    frame = assembled(f"planes-{name}", description, head, block(stream) + padding, unzigzag(symbols))
    return replace(frame, stored=False)
