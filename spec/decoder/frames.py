"""Frames (6): the header, blocks of planes (7.5), codebooks (7.6), fields (7.8), whole frames."""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator
from itertools import chain, islice, repeat
from math import prod
from typing import NamedTuple

from .fields import block_shapes, finished, smooth_values
from .streams import Cursor, Refused, components, stream


class ElementType(NamedTuple):
    """A row of section 5.2: `size` of a component, `mantissa` its stored bits of significand."""

    name: str
    size: int
    components: int = 1
    mantissa: int = 0


class Header(NamedTuple):
    """The header of a frame (6.1); `body` is the offset of what follows it."""

    method: int
    element: ElementType
    relative: bool
    run: bool
    ordered: bool
    block: int
    shapes: list[tuple[int, ...]]
    body: int


RAW, PLANES, CODEBOOK, SMOOTH = range(4)
ELEMENTS = [
    ElementType("bool", 1), ElementType("int8", 1), ElementType("int16", 2), ElementType("int32", 4),
    ElementType("int64", 8), ElementType("uint8", 1), ElementType("uint16", 2), ElementType("uint32", 4),
    ElementType("uint64", 8), ElementType("float16", 2, 1, 10), ElementType("bfloat16", 2, 1, 7),
    ElementType("float32", 4, 1, 23), ElementType("float64", 8, 1, 52), ElementType("complex64", 4, 2, 23),
    ElementType("complex128", 8, 2, 52),
]  # fmt: skip


# 7.5 and 7.6: components


def order(pattern: int, bits: int) -> int:
    """o(p): patterns of floating point as integers in the order of the numbers (LCC-PLN-02)."""
    return pattern ^ ((1 << bits) - 1 if pattern >> (bits - 1) else 1 << (bits - 1))


def disorder(number: int, bits: int) -> int:
    """The pattern p with o(p) = number."""
    return number ^ (1 << (bits - 1) if number >> (bits - 1) else (1 << bits) - 1)


def add(r: int, c: int, element: ElementType) -> int:
    """r + c in the element type, to nearest, ties to even (LCC-REC-03); c is finite."""
    bits, mantissa = 8 * element.size, element.mantissa
    top, special = 1 << (bits - 1), (1 << (bits - 1 - mantissa)) - 1
    terms = []
    for pattern in (r, c):
        exponent, fraction = (pattern & (top - 1)) >> mantissa, pattern & ((1 << mantissa) - 1)
        if exponent == special:
            # An infinity stays. No rule gives the bits of a NaN (LCC-REC-02): here it becomes
            # quiet.
            return pattern | (1 << (mantissa - 1) if fraction else 0)
        significand = fraction | (1 << mantissa if exponent else 0)
        terms.append((-significand if pattern & top else significand, max(exponent, 1)))
    unit = min(exponent for _, exponent in terms)
    total = sum(significand << (exponent - unit) for significand, exponent in terms)
    if total == 0:
        return r & c & top  # -0.0 only if both are
    return rounded(total, unit, element)


def interpolate(low: int, high: int, weight: int, element: ElementType) -> int:
    """l - ((l - h) * w) in the element type (LCC-INT-04); w is `weight` / 256."""
    top, mantissa = 1 << (8 * element.size - 1), element.mantissa
    special = (top - 1) >> mantissa
    if is_special(low, element) or is_special(high, element):
        return low
    d = add(low, high ^ top, element)
    if is_special(d, element):
        return low
    exponent, fraction = (d & (top - 1)) >> mantissa, d & ((1 << mantissa) - 1)
    product = (fraction | (1 << mantissa if exponent else 0)) * weight
    t = d & top
    if product:
        t = rounded(-product if t else product, max(exponent, 1) - 8, element)
    r = add(low, t ^ top, element)
    return low if (r & (top - 1)) >> mantissa == special else r


def round_to(pattern: int, element: ElementType) -> int:
    """The pattern of a float32 number in a smaller type (LCC-CPY-03)."""
    top, mantissa = 1 << (8 * element.size - 1), element.mantissa
    special = (top - 1) >> mantissa
    sign = top if pattern >> 31 else 0
    exponent, fraction = pattern >> 23 & 0xFF, pattern & 0x7FFFFF
    if exponent == 0xFF:
        quiet = (fraction >> (23 - mantissa) | 1 << (mantissa - 1)) if fraction else 0
        return sign | special << mantissa | quiet
    significand = fraction | (1 << 23 if exponent else 0)
    if not significand:
        return sign
    unit = max(exponent, 1) - 127 - 23 + (special >> 1) + mantissa
    return rounded(-significand if sign else significand, unit, element)


def is_special(pattern: int, element: ElementType) -> bool:
    """Whether a pattern is an infinity or a NaN."""
    top = 1 << (8 * element.size - 1)
    return (pattern & (top - 1)) >> element.mantissa == (top - 1) >> element.mantissa


def rounded(total: int, unit: int, element: ElementType) -> int:
    """The pattern of an exact number that is not 0, to nearest, ties to even.

    `unit` is what the exponent would be if `total` was the significand.
    """
    mantissa, top = element.mantissa, 1 << (8 * element.size - 1)
    special = (top - 1) >> mantissa
    sign, magnitude = (top if total < 0 else 0), abs(total)
    shift = max(magnitude.bit_length() - (mantissa + 1), 1 - unit)
    if shift > 0:
        kept, rest = magnitude >> shift, magnitude & ((1 << shift) - 1)
        half = 1 << (shift - 1)
        if rest > half or (rest == half and kept & 1):
            kept += 1
        if kept >> (mantissa + 1):
            kept, shift = kept >> 1, shift + 1
    else:
        kept = magnitude << -shift
    exponent = unit + shift if kept >> mantissa else 0
    if exponent >= special:
        return sign | special << mantissa
    return sign | exponent << mantissa | kept & ((1 << mantissa) - 1)


def planes_block(cursor: Cursor, n: int, element: ElementType, reference: memoryview | None) -> bytearray:
    """The components of a block of planes (6.2, 7.5)."""
    size, bits = element.size, 8 * element.size
    codes = bytearray(n * size)
    for k in range(size):
        codes[k::size] = stream(cursor, n, 1, reference, size)
    references = repeat(0) if reference is None else components(reference, size)
    out = bytearray()
    for z, r in zip(components(codes, size), references, strict=False):
        d = ~(z >> 1) if z & 1 else z >> 1
        x = ((order(r, bits) if element.mantissa else r) + d) % (1 << bits)
        out += (disorder(x, bits) if element.mantissa else x).to_bytes(size, "little")
    return out


def codebook_block(
    cursor: Cursor,
    n: int,
    header: Header,
    reference: memoryview | None,
    books: Iterator[memoryview],
    two: bool,
) -> bytearray:
    """The components of a block of a codebook frame (6.3, 7.6).

    `books` gives the codebook of each component, `two` says whether symbols have two bytes.
    """
    element, size = header.element, header.element.size
    flags = cursor.integer(1)
    if flags & ~1:
        raise Refused("LCC-CBK-05", f"flags {flags} of a block")
    low = stream(cursor, n)
    high = stream(cursor, n) if two else bytes(n)
    symbols = [a | b << 8 for a, b in zip(low, high, strict=True)]
    chosen = list(zip(symbols, islice(books, n), strict=True))
    for symbol, book in chosen:
        if symbol * size > len(book):
            raise Refused("LCC-CBK-03", f"symbol {symbol} has no representative")
    mask = stream(cursor, n) if flags else bytes(n)
    escapes = components(cursor.take((n - mask.count(0)) * size), size)
    references = repeat(0) if reference is None else components(reference, size)
    out = bytearray()
    for r, (symbol, book), escaped in zip(references, chosen, mask, strict=False):
        c = int.from_bytes(book[(symbol - 1) * size : symbol * size], "little") if symbol else 0
        if escaped:  # LCC-REC-01
            x = next(escapes)
        elif header.ordered:  # LCC-REC-04
            x = disorder((order(r, 8 * size) + c) % (1 << 8 * size), 8 * size)
        elif reference is None:
            x = c
        elif symbol:
            x = add(r, c, element)
        else:
            x = add(r, 1 << (8 * size - 1), element)  # LCC-REC-02: r + (-0.0)
        out += x.to_bytes(size, "little")
    return out


def number(pattern: int, element: ElementType) -> float:
    """The value of a component."""
    if element.name == "bfloat16":
        return float(struct.unpack("<f", (pattern << 16).to_bytes(4, "little"))[0])
    form = {2: "<e", 4: "<f", 8: "<d"}[element.size]
    return float(struct.unpack(form, pattern.to_bytes(element.size, "little"))[0])


def component(value: float, element: ElementType) -> int:
    """The component of a value of binary64 in the element type (LCC-SMO-08)."""
    if element.name == "bfloat16":
        return round_to(component(value, ELEMENTS[11]), element)
    top, mantissa = 1 << (8 * element.size - 1), element.mantissa
    infinity = top - (1 << mantissa)
    sign = top if math.copysign(1, value) < 0 else 0
    if math.isnan(value):  # no rule gives its bits: here it is quiet
        return sign | infinity | 1 << (mantissa - 1)
    if math.isinf(value):
        return sign | infinity
    numerator, denominator = value.as_integer_ratio()
    if not numerator:
        return sign
    # The unit of the significand is 1 / denominator, a power of two.
    unit = (infinity >> mantissa >> 1) + mantissa - (denominator.bit_length() - 1)
    return rounded(numerator, unit, element)


def smooth_blocks(header: Header) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """The first component, the number of components and the shape of each block of a field."""
    start = 0
    for shape in block_shapes(header.shapes[0], header.block):
        yield start, prod(shape), shape
        start += prod(shape)


def smooth_block(
    cursor: Cursor, shape: tuple[int, ...], element: ElementType, reference: memoryview | None
) -> bytearray:
    """The components of a block of a field (6.4, 7.8)."""
    n, size = prod(shape), element.size
    values, offset, limits, flags = smooth_values(cursor, shape)
    mask = stream(cursor, n) if flags & 1 else bytes(n)
    kept = planes_block(cursor, n - mask.count(0), element, None) if flags & 1 else b""
    escapes = components(kept, size)
    before = None if reference is None else components(reference, size)
    references = repeat(None) if before is None else (number(r, element) for r in before)
    out = bytearray()
    for y, r, escaped in zip(values, references, mask, strict=False):
        x = next(escapes) if escaped else component(finished(y, offset, r, limits), element)
        out += x.to_bytes(size, "little")
    return out


# 6: frames


def counts_of(header: Header) -> list[int]:
    """The number of components of each array of a frame."""
    return [prod(shape) * header.element.components for shape in header.shapes]


def frame_header(data: bytes) -> Header:
    """The header of a frame (6.1), checked in the order of section 12."""
    cursor = Cursor(memoryview(data))
    *magic, version, method, code, flags, dimensions, block = cursor.take(8)
    if bytes(magic) != b"LC":
        raise Refused("LCC-FRM-01", "no frame")
    if version != 1:
        raise Refused("LCC-VER-01", "another major version")
    if method > SMOOTH:
        raise Refused("LCC-FRM-03", f"method {method}")
    relative, run, ordered = bool(flags & 1), bool(flags & 2), bool(flags & 4)
    if flags & ~7 or (method == RAW and relative) or (method == SMOOTH and run):
        raise Refused("LCC-FRM-04", f"flags {flags} of method {method}")
    if ordered and not (relative and method == CODEBOOK):
        raise Refused("LCC-FRM-12", "an ordered frame without a codebook or a reference")
    if code >= len(ELEMENTS):
        raise Refused("LCC-FRM-06", f"element type {code}")
    element = ELEMENTS[code]
    if method == CODEBOOK and not element.mantissa:
        raise Refused("LCC-FRM-06", f"a codebook of {element.name}")
    if method == SMOOTH and (not element.mantissa or element.components > 1):
        raise Refused("LCC-FRM-06", f"a field of {element.name}")
    if (block != 0) if method == RAW else block not in (range(16, 25) if method == SMOOTH else range(10, 23)):
        raise Refused("LCC-LIM-02", f"blocks of 2^{block} components")
    shapes = frame_shapes(cursor, run, dimensions)
    header = Header(method, element, relative, run, ordered, block, shapes, len(data) - len(cursor.data))
    if run and sum(counts_of(header)) > 2**22:
        raise Refused("LCC-LIM-09", "a run of more than 2^22 components")
    return header


def frame_shapes(cursor: Cursor, run: bool, dimensions: int) -> list[tuple[int, ...]]:
    """The shape of each array of a frame (6.1, LCC-FRM-11)."""
    ranks = bytes([dimensions])
    if run:
        count = cursor.integer(4)
        if dimensions or not 1 <= count <= 2**20:
            raise Refused("LCC-FRM-11", f"a run of {count} arrays, {dimensions} dimensions")
        ranks = bytes(cursor.take(count))
    if max(ranks) > 32:
        raise Refused("LCC-FRM-05", f"{max(ranks)} dimensions")
    extents = components(cursor.take(8 * sum(ranks)), 8)
    Cursor(cursor.data).take(12)  # the array sum and the CRC-32 are there
    shapes = [tuple(next(extents) for _ in range(rank)) for rank in ranks]
    if sum(prod(extent or 1 for extent in shape) for shape in shapes) > 2**40:
        raise Refused("LCC-LIM-01", "the extents multiply to more than 2^40")
    return shapes


def array_sum(data: bytes | bytearray) -> int:
    """The array sum of components (LCC-FRM-09)."""
    words = components(data + bytes(-len(data) % 8), 8)
    return sum((2 * i + 1) * word for i, word in enumerate(words)) % 2**64


def frame_blocks(cursor: Cursor, header: Header, n: int, reference: memoryview | None) -> Iterator[bytearray]:
    """The components of a frame of planes or codebooks, block by block (6.1 to 6.3)."""
    element, size = header.element, header.element.size
    books: list[memoryview] = []
    if header.method == CODEBOOK:
        numbers = [cursor.integer(2) for _ in header.shapes]
        books = [cursor.take(number * size) for number in numbers]
        special = (1 << (8 * size - 1)) - (1 << element.mantissa)
        stored = (c for book in books for c in components(book, size))
        if not header.ordered and any(c & special == special for c in stored):
            raise Refused("LCC-CBK-02", "a representative is not finite")
    # LCC-CBK-04: all books count, not only those of a block.
    two = any(len(book) > 255 * size for book in books)
    book_of = chain.from_iterable(repeat(book, k) for book, k in zip(books, counts_of(header), strict=False))
    starts = [(start, min(1 << header.block, n - start), None) for start in range(0, n, 1 << header.block)]
    for start, count, shape in smooth_blocks(header) if header.method == SMOOTH else starts:
        content = Cursor(cursor.take(cursor.integer(4)))
        part = None if reference is None else reference[start * size : (start + count) * size]
        if shape is not None:
            yield smooth_block(content, shape, element, part)
        elif header.method == PLANES:
            yield planes_block(content, count, element, part)
        else:
            yield codebook_block(content, count, header, part, book_of, two)
        if content.data:
            raise Refused("LCC-FRM-07", "bytes after the content of a block")


def check_cuts(data: bytes, header: Header, pieces: list[tuple[int, int]]) -> None:
    """Check that pieces, given by blocks and length, are cut between blocks (LCC-PCS-03)."""
    n, size, start = sum(counts_of(header)), header.element.size, header.body
    if header.method == CODEBOOK:
        start += 2 * len(header.shapes)
        if start > len(data):
            raise Refused("LCC-PCS-03", "the frame ends in the numbers of representatives")
        start += sum(components(data[header.body : start], 2)) * size
    count = -(-n // (1 << (16 if header.method == RAW else header.block)))
    if header.method == SMOOTH:
        count = sum(1 for _ in smooth_blocks(header))
    if pieces[0][1] != start or sum(blocks for blocks, _ in pieces) != count:
        raise Refused("LCC-PCS-03", "the head or the number of blocks is another")
    for number, (blocks, length) in enumerate(pieces[1:], 1):
        at, end = start, start + length
        for _ in range(blocks):
            if header.method == RAW:
                at += size << 16
            else:
                at += 4 + int.from_bytes(data[at : at + 4], "little") if at + 4 <= end else end
            if at > end and not (header.method == RAW and number == len(pieces) - 1):
                raise Refused("LCC-PCS-03", "a piece ends inside a block")
        if at != end and number < len(pieces) - 1:
            raise Refused("LCC-PCS-03", "a piece has more than its blocks")
        start = end


def decode_frame(data: bytes, reference: bytes | None = None) -> tuple[str, list[tuple[int, ...]], bytes]:
    """The element type, shapes and components of a frame, checked in the order of section 12."""
    header = frame_header(data)
    element = header.element
    n = sum(counts_of(header))
    if zlib.crc32(data[:-4]) != int.from_bytes(data[-4:], "little"):
        raise Refused("LCC-FRM-08", "the CRC-32 does not match")
    if not header.relative:
        reference = None
        if n * element.size > 1024 * len(data):
            raise Refused("LCC-LIM-03", f"{len(data)} bytes declare {n} components")
    elif reference is None or len(reference) != n * element.size:
        raise Refused("LCC-FRM-04", "the frame needs a reference of its type and shape")
    if header.method == SMOOTH and n > 256 * len(data):
        raise Refused("LCC-LIM-12", f"{len(data)} bytes declare {n} components of a field")
    cursor = Cursor(memoryview(data)[header.body : -12])
    out = bytearray()
    if header.method == RAW:
        out += cursor.take(n * element.size)
    else:
        for block in frame_blocks(cursor, header, n, None if reference is None else memoryview(reference)):
            out += block
    least = 0 if header.method == RAW or header.relative else -(-len(out) // 1024)
    least = max(least, -(-n // 256) if header.method == SMOOTH else 0)
    padding = max(0, least - (len(data) - len(cursor.data)))
    if len(cursor.data) != padding or any(cursor.data):
        raise Refused("LCC-FRM-07", "bytes after the body that are not its padding")
    if element.name == "bool" and out.translate(None, b"\0\1"):
        raise Refused("LCC-FRM-10", "a bool is not 0 or 1")
    if array_sum(out) != int.from_bytes(data[-12:-4], "little"):
        raise Refused("LCC-FRM-09", "the array sum does not match")
    return element.name, header.shapes, bytes(out)
