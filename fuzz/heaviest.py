"""The heaviest frames that the format allows, structure by structure, put together byte by byte.

A frame is as long as it is told, and decodes to as much as its bytes may. Its sums are right, so
all of it is read. Nothing here uses the encoder.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from lccodec.constants import (
    MAX_BLOCK_LOG2,
    MAX_CLASSES,
    MAX_EXPANSION,
    MAX_LEVEL,
    MAX_PARTS,
    MAX_SIDE,
    MAX_SMOOTH_BLOCK_LOG2,
    MAX_SMOOTH_COMPONENTS,
    MAX_SPLIT_SYMBOLS,
    MAX_STREAM_DEPTH,
    METHOD_CODEBOOK,
    METHOD_PLANES,
    METHOD_SMOOTH,
    MIN_BLOCK_LOG2,
    MIN_SMOOTH_BLOCK_LOG2,
)
from lccodec.element_types import ELEMENT_TYPES, Array, ElementType
from lccodec.frame.content import array_sum
from lccodec.frame.decode import decode_components
from lccodec.frame.header import block_shapes

KINDS = {kind.name: kind for kind in ELEMENT_TYPES}

#: Makes the stream of `count` symbols that lies `depth` deep.
Stream = Callable[[int, int], bytes]

_TAIL = 12  # bytes of the sums of a frame


@dataclass(frozen=True)
class Heavy:
    """A frame of one structure: its name, its bytes, its arrays, and what it decodes to."""

    name: str
    data: bytes
    arrays: int
    components: Array


# --- streams --------------------------------------------------------------------------------------


def constant(value: int) -> Stream:
    """Return a maker of streams of one value."""
    return lambda _count, _depth: bytes([0, value])


def packed(inner: Stream) -> Stream:
    """Return a maker of streams that are packed into each other, one bit a symbol."""

    def make(count: int, depth: int) -> bytes:
        if depth >= MAX_STREAM_DEPTH or count < 8:
            return inner(count, depth)
        return bytes([4, 1]) + make(-(-count // 8), depth + 1)

    return make


def full(count: int, depth: int) -> bytes:
    """Return a sparse stream with a gap for each symbol, of streams like it, as deep as may be."""
    if depth >= MAX_STREAM_DEPTH:
        return bytes([0, depth & 1])
    gaps = full(count, depth + 1) if depth + 1 < MAX_STREAM_DEPTH else bytes(2)
    zeros = gaps[:-1] + b"\0"  # all gaps are 0: the last byte is the value of the innermost stream
    return struct.pack("<BBI", 3, 0, count) + zeros + full(count, depth + 1)


def noisy(count: int, _depth: int) -> bytes:
    """Return a Huffman run of codes of 15 bits, or raw symbols."""
    lanes = -(-count // 2048)
    lengths = [*range(1, 16), 15]
    table = bytes(a | b << 4 for a, b in zip(lengths[::2], lengths[1::2], strict=True))
    lane = bytes([0xFF] * 15 * (-(-count // lanes) // 8 + 1))
    size = 15 * (count // lanes) // 8
    if count % (lanes * 8) or size > 0xFFFF:
        return bytes([1]) + bytes(count)
    return bytes([2, 15]) + table + struct.pack("<HHB", lanes, size, 0) + lane[:size] * lanes


def levels_stream(levels: Sequence[int]) -> bytes:
    """Return a stream of levels of which only the first few are not 0."""
    return struct.pack("<BBI", 3, 0, len(levels)) + bytes([0, 0, 1]) + bytes(levels)


def classed(cells: Stream, columns: int) -> Stream:
    """Return a maker of classed streams, with as many levels and classes as may be."""

    def make(count: int, depth: int) -> bytes:
        wide = min(max(columns, -(-count // MAX_SIDE)), count, MAX_SIDE)
        rows = -(-count // wide)
        levels = [[*range(1, MAX_LEVEL + 1)][: extent - 1] for extent in (rows, wide)]
        counted = [
            np.bincount(some, minlength=16) + np.eye(1, 16, dtype=np.int64)[0] * (extent - len(some))
            for some, extent in zip(levels, (rows, wide), strict=True)
        ]
        sums = np.convolve(*counted)
        sizes = [*sums[: MAX_CLASSES - 1].tolist(), int(sums[MAX_CLASSES - 1 :].sum())]
        head = struct.pack("<BHB", 5, wide, MAX_CLASSES) + bytes(range(1, MAX_CLASSES))
        head += struct.pack(f"<{MAX_CLASSES - 1}I", *sizes[:-1])
        streams = [cells(size, depth + 1) if size else bytes(2) for size in sizes]
        return b"".join((head, *map(levels_stream, levels), *streams))

    return make


def split(kind: ElementType) -> Stream:
    """Return a maker of split streams of zeros, all in one part, of as few bytes as may be."""

    def make(count: int, _depth: int) -> bytes:
        head = bytes([6, MAX_PARTS]) + b"".join(n.to_bytes(kind.size, "little") for n in (1, 2, 3))
        head += struct.pack("<3I", count, 0, 0) + bytes(6)
        filler = max(-(-count // MAX_SPLIT_SYMBOLS) - len(head) - 9, 0)
        return head + struct.pack("<BBI", 3, 0, filler) + bytes([1] + [0] * filler) + bytes(2)

    return make


# --- frames ---------------------------------------------------------------------------------------


def blocks(
    kind: ElementType, count: int, log2: int, stream: Stream, streams: int = 0, head: bytes = b""
) -> bytes:
    """Return the blocks of `count` components: a head, and as many streams as asked for."""
    found = []
    made: dict[int, bytes] = {}
    for start in range(0, count, 1 << log2):
        size = min(1 << log2, count - start)
        if size not in made:
            content = head + b"".join(stream(size, 1) for _ in range(streams or kind.size))
            made[size] = struct.pack("<I", len(content)) + content
        found.append(made[size])
    return b"".join(found)


def fields(kind: ElementType, shape: Sequence[int], log2: int, stream: Stream, streams: int) -> bytes:
    """Return the blocks of a smooth frame, with escapes in no place, but streams for them."""
    found = []
    for block in block_shapes(tuple(shape), log2, 0):
        size = int(np.prod(block))
        levels = max((extent - 1).bit_length() for extent in block)
        passes = sum(extent > 1 << k for k in range(levels) for extent in block)
        content = struct.pack("<Bdd", 1, 1e-3, 0.0) + bytes([255] * levels + [3] * passes + [levels])
        content += bytes([16 * streams]) + stream(size, 1) * streams
        content += bytes(2) + stream(size, 1) * kind.size
        found.append(struct.pack("<I", len(content)) + content)
    return b"".join(found)


def finished(
    method: int, kind: ElementType, shape: Sequence[int], log2: int, body: bytes, base: Array | None = None
) -> tuple[bytes, Array]:
    """Return a frame with its padding and sums, and its decoded components."""
    head = struct.pack("<2s6B", b"LC", 1, method, kind.code, base is not None, len(shape), log2)
    head += struct.pack(f"<{len(shape)}Q", *shape) + body
    return sealed(head, method, int(np.prod(shape)) * kind.components, kind, base)


def sealed(
    head: bytes, method: int, count: int, kind: ElementType, base: Array | None = None
) -> tuple[bytes, Array]:
    """Return a frame, given all of it but the padding and the sums, and its decoded components."""
    least = -(-count * kind.size // MAX_EXPANSION) if base is None else 0
    if method == METHOD_SMOOTH:
        least = max(least, -(-count // MAX_SMOOTH_COMPONENTS))
    head += bytes(max(least - len(head) - _TAIL, 0))
    frame = head + bytes(8)
    out = decode_components(frame + struct.pack("<I", zlib.crc32(frame)), base, check_sum=False)
    frame = head + struct.pack("<Q", array_sum(out) & (1 << 64) - 1)
    return frame + struct.pack("<I", zlib.crc32(frame)), out


def fitting(size: int, make: Callable[[int], bytes], most: int, unit: int = 1) -> int:
    """Return the largest multiple of a unit, up to `most`, of which `make` gives `size` bytes."""
    low, high = 0, most // unit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if len(make(middle * unit)) + 64 <= size else (low, middle - 1)
    return low * unit


def heavy_frames(size: int) -> Iterator[Heavy]:
    """Yield frames of about `size` bytes."""
    for name, dtype, log2, stream in (
        ("zeros", "uint8", MAX_BLOCK_LOG2, constant(0)),
        ("constants", "float64", MAX_BLOCK_LOG2, constant(1)),
        ("constants, small blocks", "float64", MIN_BLOCK_LOG2, constant(1)),
        ("packed", "uint8", MAX_BLOCK_LOG2, packed(constant(255))),
        ("full sparse, small blocks", "uint8", MIN_BLOCK_LOG2, full),
        ("full sparse", "uint8", MIN_BLOCK_LOG2 + 1, full),
        ("full sparse", "float64", MIN_BLOCK_LOG2 + 1, full),
        ("Huffman, small blocks", "uint8", MIN_BLOCK_LOG2, noisy),
        ("sparse in packed", "uint8", MAX_BLOCK_LOG2, _gaps_in_packed),
        ("classed, columns", "uint8", 16, classed(constant(0), 1)),
        ("classed, columns, all in use", "uint8", 16, classed(_one_value, 1)),
        ("classed, rows", "uint8", 20, classed(constant(0), MAX_SIDE)),
        ("classed, rows, all in use", "uint8", 20, classed(_one_value, MAX_SIDE)),
        ("classed, square", "uint8", 12, classed(constant(1), 64)),
        ("classed, small blocks", "uint8", MIN_BLOCK_LOG2, classed(constant(1), 32)),
        ("classed, many symbols", "uint8", MAX_BLOCK_LOG2, classed(_many_values, 2048)),
    ):
        kind = KINDS[dtype]

        def make(count: int, kind: ElementType = kind, log2: int = log2, stream: Stream = stream) -> bytes:
            return blocks(kind, count, log2, stream)

        most = size * MAX_EXPANSION // kind.size
        count = fitting(size, make, most, 1 << log2 if most >= 1 << log2 else 1)
        yield Heavy(f"planes, {name}, {dtype}", *_one(METHOD_PLANES, kind, (count,), log2, make(count)))
    for dtype in ("float16", "bfloat16", "complex128"):
        kind = KINDS[dtype]
        book = struct.pack("<H", 256) + bytes(256 * kind.size)
        count = size * MAX_EXPANSION // kind.itemsize
        body = book + blocks(kind, count * kind.components, 18, _every_other, 3, b"\1")
        yield Heavy(f"codebook, wide, {dtype}", *_one(METHOD_CODEBOOK, kind, (count,), 18, body))
    for name, dtype, log2, streams in (
        ("line", "float64", MAX_SMOOTH_BLOCK_LOG2, 7),
        ("line", "float16", MAX_SMOOTH_BLOCK_LOG2, 7),
        ("small blocks", "float16", MIN_SMOOTH_BLOCK_LOG2, 7),
        ("many dimensions", "float32", MAX_SMOOTH_BLOCK_LOG2, 1),
    ):
        kind = KINDS[dtype]
        count = min(size * MAX_SMOOTH_COMPONENTS, size * MAX_EXPANSION // kind.size)
        extents = (2,) * (count.bit_length() - 1) if name == "many dimensions" else (count,)
        body = fields(kind, extents, log2, constant(0), streams)
        yield Heavy(f"smooth, {name}, {dtype}", *_one(METHOD_SMOOTH, kind, extents, log2, body))
    yield _scalars(size)


def _one(
    method: int, kind: ElementType, shape: Sequence[int], log2: int, body: bytes
) -> tuple[bytes, int, Array]:
    data, out = finished(method, kind, shape, log2, body)
    return data, 1, out


def _scalars(size: int) -> Heavy:
    """Return a run of arrays without dimensions."""
    kind = KINDS["uint8"]
    count = size - 100
    head = struct.pack("<2s6BI", b"LC", 1, METHOD_PLANES, kind.code, 2, 0, 20, count) + bytes(count)
    data, out = sealed(head + blocks(kind, count, 20, constant(3)), METHOD_PLANES, count, kind)
    return Heavy("planes, a run of scalars, uint8", data, count, out)


def _every_other(count: int, depth: int) -> bytes:
    return packed(constant(0))(count, depth)


def _one_value(_count: int, _depth: int) -> bytes:
    """Return a stream in which only the first symbol is not 0."""
    return struct.pack("<BBI", 3, 0, 1) + bytes([0, 0, 0, 1])


def _many_values(count: int, _depth: int) -> bytes:
    """Return a stream of as many equal symbols as its bytes may have, in a row."""
    return bytes([4, 1, 4, 1, 1]) + bytes([255] * (count // 64)) if count % 64 == 0 else bytes(2)


def _gaps_in_packed(count: int, _depth: int) -> bytes:
    """Return a sparse stream whose gaps are packed twice, so that their bytes allow many."""
    places = min(count, 1 << 19)
    gaps = bytes([4, 1, 4, 1, 1]) + bytes(-(-places // 64))
    return struct.pack("<BBI", 3, 0, places) + gaps + bytes([0, 1])
