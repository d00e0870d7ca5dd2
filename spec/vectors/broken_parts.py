"""Frames with a broken split stream: the first plane of two (LCC-STR-08, LCC-STR-09)."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

import numpy as np
from broken import Broken
from parts import BEFORE, CODES, full, high, low, places
from pieces import (
    CODEBOOK,
    KINDS,
    PLANES,
    SMOOTH,
    assembled,
    block,
    constant,
    little,
    moved,
    packed,
    packed_symbols,
    raw,
    sparse,
    split,
)

_KIND = KINDS["bfloat16"]
_REFERENCE = np.array(BEFORE, "<u2")
_COUNT = len(BEFORE)
_LOW = low(CODES)

#: Where the fields of the stream lie that has one part.
_PARTS, _BOUND, _SIZE, _STREAMS = 1, 2, 4, 8


def _frame(first: bytes, codes: Sequence[int] = CODES) -> bytes:
    """Return a frame, given the stream of its first plane."""
    head = (PLANES, "bfloat16", (_COUNT,), 10)
    body = block(first, places(high(codes)))
    return assembled("", "", head, body, moved(BEFORE, codes, _KIND), _REFERENCE).data


def _stream(bounds: Sequence[int]) -> bytes:
    return split(bounds, BEFORE, _LOW, _KIND, [raw] * (len(bounds) + 1))


def _case(rule: str, case: str, why: str, stream: bytes, sound: bytes, error: str = "FormatError") -> Broken:
    return Broken(rule, case, error, why, _frame(stream), _frame(sound), little(_REFERENCE))


def broken_parts() -> Iterator[Broken]:
    """Yield every frame made here."""
    yield from _places_of_streams()
    yield from _heads()
    yield from _references()
    yield from _limits()


def _places_of_streams() -> Iterator[Broken]:
    """Yield split streams where there can be none."""
    rule, sound = "LCC-STR-08", _stream([0x3DCD])
    flat = packed(4, raw(packed_symbols([code & 15 for code in CODES], 4)))
    groups = bytes(packed_symbols([code & 15 for code in CODES], 4))
    inside = bytes([6, 1]) + struct.pack("<HI", 0, 0) + raw([]) + raw(groups)
    codes = [code & 15 for code in CODES]
    for case, why, broken, right in (
        ("inside-packed", "a split stream lies inside a packed one", packed(4, inside), flat),
        (
            "inside-sparse",
            "a split stream lies inside a sparse one",
            sparse(0, _COUNT, constant(0), b"", inside[:-10] + raw(codes)),
            sparse(0, _COUNT, constant(0), b"", raw(codes)),
        ),
    ):
        yield Broken(
            rule, case, "FormatError", why, _frame(broken, codes), _frame(right, codes), little(_REFERENCE)
        )
    size = struct.unpack_from("<I", sound, _SIZE)[0]
    part = sound[_STREAMS : _STREAMS + 1 + size]
    nested = bytes([6, 1]) + struct.pack("<HI", 0, 0) + raw([]) + part
    stream = sound[:_STREAMS] + nested + sound[_STREAMS + 1 + size :]
    yield _case(rule, "inside-part", "a part of a split stream is split", stream, sound)
    rest = bytes([6, 1]) + struct.pack("<HI", 0, 0) + raw([]) + sound[_STREAMS + 1 + size :]
    stream = sound[: _STREAMS + 1 + size] + rest
    yield _case(rule, "inside-rest", "the rest of a split stream is split", stream, sound)

    # A stream that would do without a reference: no component is below its bound.
    symbols = [3, 0, 2, 1]
    stream = bytes([6, 1, 0]) + struct.pack("<I", 0) + raw([]) + raw(symbols)
    head, codes = (PLANES, "uint8", (4,), 10), moved([0] * 4, symbols, KINDS["uint8"])
    data, sound = (assembled("", "", head, block(each), codes).data for each in (stream, raw(symbols)))
    yield Broken(rule, "no-reference", "FormatError", "the frame has no reference", data, sound)
    head = (CODEBOOK, "float16", (4,), 10)
    before = np.array([0x3C00] * 4, "<u2")
    after = np.array([0x4000, 0x3C00, 0x4000, 0x3C00], "<u2")
    book, symbols = struct.pack("<HH", 1, 0x3C00), [1, 0, 1, 0]
    stream = bytes([6, 1, 0, 0]) + struct.pack("<I", 0) + raw([]) + raw(symbols)
    data, sound = (
        assembled("", "", head, book + block(b"\0", each), after, before).data
        for each in (stream, raw(symbols))
    )
    why = "the symbols of a codebook frame are split"
    yield Broken(rule, "codebook", "FormatError", why, data, sound, little(before))
    yield _of_escapes()


def _of_escapes() -> Broken:
    """Return a smooth frame with a reference whose only element is an escape in a split stream."""
    kind = KINDS["float32"]
    one = 0x3F800000
    value = np.array([one], "<u4")
    code = one << 1  # without a reference
    planes = [code >> (8 * k) & 255 for k in range(4)]
    content = b"\1" + struct.pack("<2d", 1.0, 0.0) + b"\0" + b"\x10" + raw([0]) + raw([1])
    first = bytes([6, 1]) + bytes(4) + struct.pack("<I", 0) + raw([]) + raw(planes[:1])
    head = (SMOOTH, kind.name, (), 16)
    data, sound = (
        assembled(
            "", "", head, block(content, each, *(raw([byte]) for byte in planes[1:])), value, value
        ).data
        for each in (first, raw(planes[:1]))
    )
    why = "the escapes of a smooth frame are split"
    return Broken("LCC-STR-08", "escapes", "FormatError", why, data, sound, little(value))


def _heads() -> Iterator[Broken]:
    """Yield split streams with wrong numbers of parts, bounds or sizes."""
    rule, sound = "LCC-STR-08", _stream([0x3DCD])
    stream = bytes([6, 0]) + raw(_LOW)
    yield _case(rule, "no-parts", "there are no parts", stream, sound)
    four, three = _stream([1, 0x80, 0x81, 0x3F80]), _stream([1, 0x80, 0x81])
    yield _case(rule, "4-parts", "there are four parts", four, three)
    two = _stream([0x80, 0x3DCD])
    yield _case(rule, "equal-bounds", "two bounds are equal", _stream([0x3DCD, 0x3DCD]), two)
    yield _case(rule, "falling-bounds", "the second bound is below the first", _stream([0x3DCD, 0x80]), two)
    yield _wide_bounds()
    first, second = struct.unpack_from("<2I", two, 6)
    for case, why, sizes in (
        ("19-components", "the parts have 19 of 18 components", (first, _COUNT + 1 - first)),
        ("4-billion", "a part has 2^32 - 1 of 18 components", (0xFFFFFFFF, second)),
    ):
        yield _case(rule, case, why, two[:6] + struct.pack("<2I", *sizes) + two[14:], two)
    stream = sound[:_SIZE] + struct.pack("<I", _COUNT + 1) + raw([0] * (_COUNT + 1)) + raw(_LOW)
    yield _case(rule, "large-part", "a part has 19 of 18 components, all stored", stream, sound)


def _wide_bounds() -> Broken:
    """Return a frame of int64 whose second bound has a higher low half, and a lower high half."""
    kind, before = KINDS["int64"], np.arange(4, dtype="<u8")
    bounds = [(1 << 32) + 5, (2 << 32) + 1]
    sound = split(bounds, before, [2, 0, 2, 0], kind, [raw] * 3)
    falling = sound[:2] + sound[10:18] + sound[2:10] + sound[18:]
    after = before + np.array([1, 0, 1, 0], "<u8")
    data, right = (
        assembled("", "", (PLANES, "int64", (4,), 10), block(one, *[constant(0)] * 7), after, before).data
        for one in (falling, sound)
    )
    why = "the second bound is below the first, and its low half is not"
    return Broken("LCC-STR-08", "falling-wide", "FormatError", why, data, right, little(before))


def _references() -> Iterator[Broken]:
    """Yield split streams of another reference, and components with two symbols."""
    rule, error = "LCC-STR-09", "ChecksumError"
    sound = split([0x3DCD], BEFORE, _LOW, _KIND, (raw, places))
    (size,) = struct.unpack_from("<I", sound, _SIZE)
    part = list(sound[_STREAMS + 1 : _STREAMS + 1 + size])
    rest = sound[_STREAMS + 1 + size :]
    for case, why, own in (
        ("fewer", "the part has a component fewer than the reference gives it", part[:-1]),
        ("more", "the part has a component more than the reference gives it", [*part, 0]),
    ):
        stream = sound[:_SIZE] + struct.pack("<I", len(own)) + raw(own) + rest
        yield _case(rule, case, why, stream, sound, error)
    two = _stream([0x80, 0x3DCD])
    first, second = struct.unpack_from("<2I", two, 6)
    stored = two[14 + 1 + first :]
    own, rest = list(stored[1 : 1 + second]), stored[1 + second :]
    stream = two[:10] + struct.pack("<I", second + 1) + two[14 : 15 + first] + raw([*own, 0]) + rest
    yield _case(rule, "more-in-the-second", "the second part has a component more", stream, two, error)
    few = [0] * _COUNT  # so few that a reader may keep their places only
    few[9], few[16] = 5, 4
    why = "a component has the symbol 5 in its part and in the rest"
    for case, coded in (("two-symbols", places), ("two-symbols-raw", raw)):
        right = split([0x3DCD], BEFORE, few, _KIND, (raw, coded))
        broken = right[: _STREAMS + 1 + size] + coded(few)
        yield Broken(rule, case, error, why, _frame(broken, few), _frame(right, few), little(_REFERENCE))


def _limits() -> Iterator[Broken]:
    """Yield split streams with a symbol too many for their bytes."""
    rule, error = "LCC-LIM-14", "LimitError"
    for case, why, count, bound, symbols in (
        ("split-part", "a split stream of 11 bytes has 2,817 symbols that are not 0", 2817, 1, (1, 0)),
        ("split-rest", "the rest of a split stream of 11 bytes has 2,817 that are not 0", 2817, 0, (0, 1)),
        ("split-size", "a split stream of 11 bytes has 45,057 symbols", 45057, 1, (0, 0)),
    ):
        data, sound = (full(count, bound, symbols, longer=longer) for longer in (False, True))
        yield Broken(rule, case, error, why, data.data, sound.data, data.reference)
