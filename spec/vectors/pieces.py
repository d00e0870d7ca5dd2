"""Pieces of frames, made byte by byte from the specification, without the encoder."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lccodec.constants import ELEMENT_TYPES, ElementType
from lccodec.element_types import Array

METHODS = ("raw", "planes", "codebook", "smooth")
RAW, PLANES, CODEBOOK, SMOOTH = range(4)
KINDS = {kind.name: kind for kind in ELEMENT_TYPES}
FLOATS = tuple(kind for kind in ELEMENT_TYPES if kind.is_float)


@dataclass(frozen=True)
class Frame:
    """A frame vector.

    Attributes
    ----------
    name
        Name of its files.
    description
        What it tests, in one line.
    data
        The frame.
    expected
        The components it decodes to, as bytes in C order, little-endian.
    reference
        The components of its reference, if it has one.
    stored
        Whether the expected bytes get a file; otherwise only their digest is kept.
    """

    name: str
    description: str
    data: bytes
    expected: bytes = field(repr=False)
    reference: bytes | None = None
    stored: bool = True


def assembled(
    name: str,
    description: str,
    head: tuple[int, str, tuple[int, ...] | list[tuple[int, ...]], int],
    body: bytes,
    expected: Array,
    reference: Array | None = None,
    *,
    ordered: bool = False,
) -> Frame:
    """Return the vector of a frame; `head` has method, element type, shape, block_log2 (SPEC 6.1).

    For a run of arrays, `head` has a list of shapes.
    """
    method, dtype, shape, block_log2 = head
    run = isinstance(shape, list)
    shapes = shape if isinstance(shape, list) else [shape]
    flags = (reference is not None) | 2 * run | 4 * ordered
    first = 0 if run else len(shapes[0])
    data = struct.pack("<2s6B", b"LC", 1, method, KINDS[dtype].code, flags, first, block_log2)
    if run:
        data += struct.pack("<I", len(shapes)) + bytes(map(len, shapes))
    extents = [extent for one in shapes for extent in one]
    data += struct.pack(f"<{len(extents)}Q", *extents) + body
    decoded = little(expected)
    words = struct.unpack(f"<{-(-len(decoded) // 8)}Q", decoded + bytes(-len(decoded) % 8))
    data += struct.pack("<Q", sum((2 * i + 1) * word for i, word in enumerate(words)) % 2**64)
    data += struct.pack("<I", zlib.crc32(data))
    return Frame(name, description, data, decoded, None if reference is None else little(reference))


def little(numbers: Array) -> bytes:
    """Return numbers as they are stored; results of NumPy are in the byte order of the host."""
    return numbers.astype(numbers.dtype.newbyteorder("<")).tobytes()


def block(*pieces: bytes) -> bytes:
    """Return a block: its size and its content."""
    content = b"".join(pieces)
    return struct.pack("<I", len(content)) + content


def constant(value: int) -> bytes:
    """Return a constant stream."""
    return bytes([0, value])


def raw(symbols: Sequence[int]) -> bytes:
    """Return a raw stream."""
    return bytes([1, *symbols])


def sparse(low: int, gaps: int, high: bytes, low_parts: bytes, values: bytes) -> bytes:
    """Return a sparse stream of `gaps` gaps."""
    return struct.pack("<BBI", 3, low, gaps) + high + low_parts + values


def packed(width: int, groups: bytes) -> bytes:
    """Return a packed stream."""
    return bytes([4, width]) + groups


def classed(
    columns: int,
    bounds: Sequence[int],
    levels: tuple[Sequence[int], Sequence[int]],
    symbols: Sequence[int],
    coded: Callable[[Sequence[int]], bytes],
) -> bytes:
    """Return a classed stream, cell by cell; `levels` has those of the rows and of the columns."""
    classes: list[list[int]] = [[] for _ in range(len(bounds) + 1)]
    for cell in range(len(levels[0]) * columns):
        level = levels[0][cell // columns] + levels[1][cell % columns]
        number = sum(bound <= level for bound in bounds)
        classes[number].append(symbols[cell] if cell < len(symbols) else 0)
    sizes = [len(cells) for cells in classes[:-1]]
    head = struct.pack("<BHB", 5, columns, len(classes)) + bytes(bounds)
    head += struct.pack(f"<{len(sizes)}I", *sizes) + raw(levels[0]) + raw(levels[1])
    return head + b"".join(map(coded, classes))


def split(
    bounds: Sequence[int],
    reference: Sequence[int],
    symbols: Sequence[int],
    kind: ElementType,
    coded: Sequence[Callable[[Sequence[int]], bytes]],
    left: Sequence[int] = (),
) -> bytes:
    """Return a split stream, component by component.

    `coded` makes the stream of each part, and that of the rest. Components of parts whose symbols
    stand in the rest are `left`.
    """
    parts: list[list[int]] = [[] for _ in bounds]
    rest = list(symbols)
    for place, component in enumerate(reference):
        size = int(component) & ((1 << (8 * kind.size - 1)) - 1)
        number = sum(bound <= size for bound in bounds)
        if number < len(bounds):
            parts[number].append(0 if place in left else symbols[place])
            rest[place] = symbols[place] if place in left else 0
    head = bytes([6, len(bounds)]) + b"".join(bound.to_bytes(kind.size, "little") for bound in bounds)
    head += struct.pack(f"<{len(parts)}I", *map(len, parts))
    return head + b"".join(code(run) for code, run in zip(coded, (*parts, rest), strict=True))


def moved(reference: Sequence[int] | Array, codes: Sequence[int] | Array, kind: ElementType) -> Array:
    """Return the components of zigzag codes, number by number (LCC-PLN-01, LCC-PLN-02)."""
    ones = (1 << (8 * kind.size)) - 1
    top = (ones >> 1) + 1

    def ordered(pattern: int) -> int:
        return pattern if not kind.is_float else pattern ^ (ones if pattern & top else top)

    found = []
    for before, code in zip(reference, codes, strict=True):
        step = int(code) >> 1 if int(code) % 2 == 0 else -(int(code) + 1 >> 1)
        number = (ordered(int(before)) + step) & ones
        found.append(number if not kind.is_float else number ^ (top if number & top else ones))
    return np.array(found, kind.bits.newbyteorder("<"))


def huffman(lengths: Sequence[int], symbols: Sequence[int], lanes: int, width: int | None = None) -> bytes:
    """Return a Huffman stream, one bit at a time; `width` of lane sizes is the least by default."""
    codes, code, before = {}, 0, 0
    for length, symbol in sorted((length, symbol) for symbol, length in enumerate(lengths) if length):
        code = code << (length - before)
        codes[symbol] = format(code, f"0{length}b")
        code, before = code + 1, length
    rows = ["".join(codes[symbol] for symbol in symbols[lane::lanes]) for lane in range(lanes)]
    data = [bits_to_bytes(row) for row in rows]
    least = min(map(len, data))
    excess = [len(row) - least for row in data]
    width = max(excess).bit_length() if width is None else width
    table = bits_to_bytes("".join(format(length, "04b")[::-1] for length in lengths))
    directory = bits_to_bytes("".join(format(more, f"0{width}b")[::-1] for more in excess if width))
    head = bytes([2, len(lengths) - 1]) + table + struct.pack("<HHB", lanes, least, width)
    return head + directory + b"".join(data)


def bits_to_bytes(bits: str) -> bytes:
    """Return a string of 0 and 1 as bytes, the first in the lowest bit."""
    return int(bits[::-1] or "0", 2).to_bytes(-(-len(bits) // 8), "little")


def packed_symbols(symbols: Sequence[int], width: int) -> bytes:
    """Return symbols packed with `width` bits each (LCC-BIT-01)."""
    return bits_to_bytes("".join(format(symbol, f"0{width}b")[::-1] for symbol in symbols))


def unzigzag(codes: Sequence[int] | Array, kind: type[np.unsignedinteger[Any]] = np.uint8) -> Array:
    """Return the unsigned integers of zigzag codes, without a reference (LCC-PLN-01)."""
    stored = np.asarray(codes, kind)
    found: Array = (stored >> kind(1)) ^ (kind(0) - (stored & kind(1)))
    return found
