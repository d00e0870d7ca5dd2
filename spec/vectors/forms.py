"""What a sound frame consists of, read without the decoder."""

from __future__ import annotations

import math
import struct

from pieces import CODEBOOK, RAW, SMOOTH

from lccodec.constants import ELEMENT_TYPES


def stream_forms(frame: bytes) -> list[str]:
    """Return the forms of a sound frame's streams, such as ``"packed 2"``, each once and sorted."""
    method, code, log2, shapes, place = frame_head(frame)
    kind, found = ELEMENT_TYPES[code], set[str]()
    streams, wide = kind.size, False
    if method == CODEBOOK:
        representatives = struct.unpack_from(f"<{len(shapes)}H", frame, place)
        place += 2 * len(shapes) + sum(representatives) * kind.size
        streams, wide = 1, max(representatives) > 255
    if method == SMOOTH and 0 in shapes[0]:
        return []
    if method == SMOOTH:
        _walk_field(frame, place, log2, shapes[0] or (1,), found)
        return sorted(found)
    count = sum(map(math.prod, shapes)) * kind.components if method != RAW else 0
    for start in range(0, count, 1 << log2):
        size = min(1 << log2, count - start)
        (length,) = struct.unpack_from("<I", frame, place)
        at, escapes = place + 4, 0
        if method == CODEBOOK:
            escapes, at = frame[at], at + 1
        for _ in range(streams + wide + escapes):
            at = _walk(frame, at, size, found, kind.size)
        place += 4 + length
    return sorted(found)


def _walk_field(frame: bytes, place: int, log2: int, shape: tuple[int, ...], found: set[str]) -> None:
    """Add the forms of a smooth frame's streams but those of escapes; its blocks have one shape."""
    axis = next(k for k in range(len(shape)) if math.prod(shape[k + 1 :]) <= 1 << log2)
    most = (1 << log2) // math.prod(shape[axis + 1 :])
    rows = -(-shape[axis] // -(-shape[axis] // most))
    count = math.prod(shape[:axis]) * -(-shape[axis] // rows)
    block = (rows, *shape[axis + 1 :])
    strides = [1 << power for power in reversed(range((max(block) - 1).bit_length()))]
    sizes = [_lattice(block, stride) - _lattice(block, 2 * stride) for stride in strides]
    passes = sum(extent > stride for stride in strides for extent in block)
    for _ in range(count):
        (length,) = struct.unpack_from("<I", frame, place)
        flags, at = frame[place + 4], place + 21
        at += 16 * (flags >> 1 & 1) + 8 * (flags >> 2) + len(strides) + passes
        joined, at = frame[at], at + 1
        for numbers in (1 + sum(sizes[:joined]), *sizes[joined:]):
            at = _walk_numbers(frame, at, numbers, found)
        if flags & 1:
            _walk(frame, at, math.prod(block), found)
        place += 4 + length


def _lattice(shape: tuple[int, ...], stride: int) -> int:
    return math.prod(-(-extent // stride) for extent in shape)


def _walk_numbers(data: bytes, at: int, count: int, found: set[str]) -> int:
    planes, low = divmod(data[at], 16)
    at += 1 + -(-count * low // 8)
    for _ in range(planes):
        at = _walk(data, at, count, found)
    return at


def frame_head(frame: bytes) -> tuple[int, int, int, list[tuple[int, ...]], int]:
    """Return method, element type, block_log2, the shapes and the offset of the body."""
    _, _, method, code, flags, first, log2 = struct.unpack_from("<2s6B", frame)
    dimensions, place = bytes([first]), 8
    if flags & 2:
        (count,) = struct.unpack_from("<I", frame, place)
        dimensions, place = frame[12 : 12 + count], 12 + count
    shapes = []
    for number in dimensions:
        shapes.append(struct.unpack_from(f"<{number}Q", frame, place))
        place += 8 * number
    return method, code, log2, shapes, place


def _walk(data: bytes, at: int, count: int, found: set[str], size: int = 0) -> int:
    """Add the forms of the stream at an offset to `found`; return where it ends.

    `size` is that of a component, for a stream that may be split.
    """
    form, at = data[at], at + 1
    if form == 0:
        found.add("constant")
        return at + 1
    if form == 1:
        found.add("raw")
        return at + count
    if form == 2:
        found.add("huffman")
        at += 1 + (data[at] + 2) // 2
        lanes, least, width = struct.unpack_from("<HHB", data, at)
        table = -(-lanes * width // 8)
        directory = int.from_bytes(data[at + 5 : at + 5 + table], "little")
        excess = sum(directory >> (lane * width) & ((1 << width) - 1) for lane in range(lanes))
        return at + 5 + table + lanes * least + excess
    if form == 3:
        low, gaps = struct.unpack_from("<BI", data, at)
        found.add("sparse with low bits" if low else "sparse")
        at = _walk(data, at + 5, gaps, found) + -(-gaps * low // 8)
        return _walk(data, at, gaps, found)
    if form == 5:
        found.add("classed")
        columns, classes = struct.unpack_from("<HB", data, at)
        sizes = struct.unpack_from(f"<{classes - 1}I", data, at + 2 + classes)
        at += 2 + classes + 4 * len(sizes)
        rows = -(-count // columns)
        for extent in (rows, columns, *sizes, rows * columns - sum(sizes)):
            at = _walk(data, at, extent, found)
        return at
    if form == 6:
        found.add("split")
        parts, at = data[at], at + 1 + data[at] * size
        sizes = struct.unpack_from(f"<{parts}I", data, at)
        at += 4 * parts
        for own in (*sizes, count):
            at = _walk(data, at, own, found)
        return at
    found.add(f"packed {data[at]}")
    return _walk(data, at + 1, -(-count * data[at] // 8), found)
