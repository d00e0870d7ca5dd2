"""Frames with a broken header, body, checksum or codebook (SPEC 6)."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from broken import Broken
from broken_parts import broken_parts
from broken_streams import broken_streams
from fields import broken_fields
from pieces import (
    CODEBOOK,
    FLOATS,
    KINDS,
    PLANES,
    RAW,
    Frame,
    assembled,
    block,
    constant,
    little,
    packed,
    packed_symbols,
    raw,
    sparse,
)
from traps import broken_traps

from lccodec.constants import ElementType

#: Offsets in a header (SPEC 6.1).
_VERSION, _METHOD, _TYPE, _FLAGS, _DIMENSIONS, _BLOCKS, _SHAPE = range(2, 9)
_TAIL = 12  # bytes of array sum and CRC-32


def _sealed(data: bytes) -> bytes:
    """Return a frame with the CRC-32 that its bytes have."""
    return data[:-4] + struct.pack("<I", zlib.crc32(data[:-4]))


def _changed(frame: bytes, offset: int, part: bytes) -> bytes:
    """Return a frame with some bytes replaced."""
    return _sealed(frame[:offset] + part + frame[offset + len(part) :])


def _padded(head: tuple[int, str, tuple[int, ...] | list[tuple[int, ...]], int], size: int) -> Frame:
    """Return a frame of one block of zeros, padded with zeros to a size in bytes."""
    # The array sum of zeros is 0, however many they are.
    planes = [constant(0)] * KINDS[head[1]].size
    short = assembled("", "", head, block(*planes), np.zeros(0, np.uint8))
    padding = bytes(max(size - len(short.data), 0))
    return replace(short, data=_sealed(short.data[:-_TAIL] + padding + short.data[-_TAIL:]))


def _case(rule: str, case: str, why: str, data: bytes, sound: Frame, error: str = "FormatError") -> Broken:
    """Return a vector that is `sound` with one fault."""
    return Broken(rule, case, error, why, data, sound.data, sound.reference)


def broken_frames() -> Iterator[Broken]:
    """Yield every invalid frame."""
    yield from _fields()
    yield from _shapes()
    yield from _runs()
    yield from _truncated()
    yield from _left_over()
    yield from _sums()
    yield from _codebooks()
    yield from _symbols()
    yield from broken_fields()
    yield from broken_streams()
    yield from broken_parts()
    yield from broken_traps()


_NUMBERS = np.arange(5, dtype=np.uint8)
_CODES = raw(range(0, 10, 2))
_PLAIN = assembled("", "", (RAW, "uint8", (5,), 0), _NUMBERS.tobytes(), _NUMBERS)
_COMMON = assembled("", "", (PLANES, "uint8", (5,), 10), block(_CODES), _NUMBERS)
_DELTA = assembled("", "", (PLANES, "uint8", (5,), 10), block(_CODES), _NUMBERS + 9, _NUMBERS * 0 + 9)
_FLOATS = np.array([0.5, -0.5, 0.0, 0.5], "<f4")
_HEAD = (CODEBOOK, "float32", (4,), 10)
_BOOK = struct.pack("<H2f", 2, 0.5, -0.5)
_LOSSY = assembled("", "", _HEAD, _BOOK + block(b"\0", raw([1, 2, 0, 1])), _FLOATS)
_MOVED = assembled("", "", _HEAD, _BOOK + block(b"\0", raw([1, 2, 0, 1])), _FLOATS + 2, 0 * _FLOATS + 2)


# --- header ---------------------------------------------------------------------------------------


def _fields() -> Iterator[Broken]:
    """Yield headers with a field that is missing, or has a value that is not defined."""
    newer = "UnsupportedError"
    yield _case("LCC-FRM-01", "magic", "the magic is LD", _changed(_PLAIN.data, 1, b"D"), _PLAIN)
    yield _case("LCC-FRM-01", "magic-first", "the magic is MC", _changed(_PLAIN.data, 0, b"M"), _PLAIN)
    for version in (0, 2):
        data = _changed(_PLAIN.data, _VERSION, bytes([version]))
        yield _case("LCC-VER-01", f"version-{version}", f"the version is {version}", data, _PLAIN, newer)
    for method in (4, 255):
        data = _changed(_COMMON.data, _METHOD, bytes([method]))
        yield _case("LCC-FRM-03", f"method-{method}", f"the method is {method}", data, _COMMON, newer)
    for bit in (3, 7):
        data = _changed(_COMMON.data, _FLAGS, bytes([1 << bit]))
        yield _case("LCC-FRM-04", f"bit-{bit}", f"bit {bit} of the flags is 1", data, _COMMON, newer)
    why = "a raw frame has bit 0 of the flags, of a reference"
    yield _case("LCC-FRM-04", "raw-relative", why, _changed(_PLAIN.data, _FLAGS, b"\1"), _PLAIN, newer)
    why = "the same, and there is a reference of its type and shape"
    data = _changed(_PLAIN.data, _FLAGS, b"\1")
    raws = _case("LCC-FRM-04", "raw-with-reference", why, data, _PLAIN, newer)
    yield replace(raws, reference=_PLAIN.expected)
    why = "the element type is 15"
    yield _case("LCC-FRM-06", "type-15", why, _changed(_PLAIN.data, _TYPE, b"\x0f"), _PLAIN, newer)
    whole = np.array([1, 2, 0, 1], "<i4")
    book = struct.pack("<H2i", 2, 1, 2)
    data = assembled(
        "", "", (CODEBOOK, "int32", (4,), 10), book + block(b"\0", raw([1, 2, 0, 1])), whole
    ).data
    yield _case("LCC-FRM-06", "codebook-int32", "the codebook method has int32", data, _LOSSY)
    truth = np.array([1, 0], np.uint8)
    head = (CODEBOOK, "bool", (2,), 10)
    data = assembled("", "", head, struct.pack("<HB", 1, 1) + block(b"\0", raw([1, 0])), truth).data
    yield _case("LCC-FRM-06", "codebook-bool", "the codebook method has bool", data, _LOSSY)
    for name, frame, size in (("small", _COMMON, 9), ("large", _COMMON, 23), ("raw", _PLAIN, 10)):
        why = f"blocks have 2^{size} components" + ", in a raw frame" * (name == "raw")
        data = _changed(frame.data, _BLOCKS, bytes([size]))
        yield _case("LCC-LIM-02", name, why, data, frame, "LimitError")
    why = "blocks have 2^23 components, in a codebook frame"
    data = _changed(_LOSSY.data, _BLOCKS, bytes([23]))
    yield _case("LCC-LIM-02", "codebook", why, data, _LOSSY, "LimitError")
    why = "blocks have 2^1 components, in a raw frame"
    yield _case("LCC-LIM-02", "raw-1", why, _changed(_PLAIN.data, _BLOCKS, b"\1"), _PLAIN, "LimitError")
    why = "an ordered frame has the planes method"
    yield _case("LCC-FRM-12", "planes", why, _changed(_DELTA.data, _FLAGS, b"\5"), _DELTA, newer)
    why = "an ordered frame has no reference"
    yield _case("LCC-FRM-12", "no-reference", why, _changed(_LOSSY.data, _FLAGS, b"\4"), _LOSSY, newer)
    yield _case(
        "LCC-FRM-12", "raw", "an ordered frame is raw", _changed(_PLAIN.data, _FLAGS, b"\4"), _PLAIN, newer
    )


def _shapes() -> Iterator[Broken]:
    """Yield shapes beyond their limits."""
    one, none, error = np.ones(1, np.uint8), np.zeros(0, np.uint8), "LimitError"
    rule, most = "LCC-FRM-05", (1,) * 32
    sound = assembled("", "", (RAW, "uint8", most, 0), b"\1", one)
    data = assembled("", "", (RAW, "uint8", (*most, 1), 0), b"\1", one).data
    yield _case(rule, "33-dimensions", "the array has 33 dimensions", data, sound, error)
    sound, run = (
        assembled("", "", (RAW, "uint8", [(1,), s], 0), b"\1\1", one.repeat(2)) for s in (most, (*most, 1))
    )
    yield _case(rule, "33-dimensions-in-a-run", "an array of a run has 33 dimensions", run.data, sound, error)
    rule, limit = "LCC-LIM-01", 1 << 40
    sound = assembled("", "", (RAW, "uint8", (0, limit), 0), b"", none)
    for name, shape, why in (
        ("elements", (0, limit + 1), "extents of 0 and 2^40 + 1"),
        ("product", (1 << 20, 0, 1 << 21), "extents of 2^20, 0 and 2^21"),
        ("overflow", (1 << 32, 1 << 32, 0), "extents of 2^32, 2^32 and 0, whose product is 0 in 64 bits"),
        ("64-bits", (0, (1 << 64) - 1), "extents of 0 and 2^64 - 1"),
    ):
        data = assembled("", "", (RAW, "uint8", shape, 0), b"", none).data
        yield _case(rule, name, f"the array, which is empty, has {why}", data, sound, error)
    shapes: list[tuple[int, ...]] = [(0, limit), (0, 1)]
    sound, run = (assembled("", "", (RAW, "uint8", some, 0), b"", none) for some in (shapes[:1], shapes))
    why = "the extents of two empty arrays of a run multiply to 2^40 and 1"
    yield _case(rule, "run", why, run.data, sound, error)


def _runs() -> Iterator[Broken]:
    """Yield runs without arrays, and runs that are too large."""
    values = np.arange(4, dtype=np.uint8)
    sound = assembled("", "", (RAW, "uint8", [(3,), ()], 0), values.tobytes(), values)
    data = assembled("", "", (RAW, "uint8", [], 0), b"", values[:0]).data
    yield _case("LCC-FRM-11", "no-arrays", "a run has no arrays", data, sound)
    for name, count in (("more-arrays", (1 << 20) + 1), ("most-arrays", (1 << 32) - 1)):
        data = _changed(sound.data, _SHAPE, struct.pack("<I", count))
        yield _case("LCC-FRM-11", name, f"a run says that it has {count:,} arrays", data, sound)
    why = "a run has a number of dimensions in the place of the one of an array"
    yield _case("LCC-FRM-11", "dimensions", why, _changed(sound.data, _DIMENSIONS, b"\1"), sound)
    data = _padded((PLANES, "uint8", [(1 << 22,), (1,)], 22), 4097).data
    sound = _padded((PLANES, "uint8", [((1 << 22) - 1,), (1,)], 22), 4096)
    yield _case("LCC-LIM-09", "components", "a run has 2^22 + 1 components", data, sound, "LimitError")
    data = _padded((PLANES, "complex64", [(1 << 21,), ()], 22), 16385).data
    why = "a run has 2^21 + 1 complex elements, of two components each"
    yield _case("LCC-LIM-09", "complex", why, data, sound, "LimitError")


# --- body -----------------------------------------------------------------------------------------


def _truncated() -> Iterator[Broken]:
    """Yield frames that end before a field does."""

    def cut(case: str, why: str, data: bytes, sound: Frame) -> Broken:
        return _case("LCC-FRM-02", case, why, data, sound, "TruncatedError")

    plain, common, lossy = _PLAIN.data, _COMMON.data, _LOSSY.data
    yield cut("nothing", "the frame has no bytes", b"", _PLAIN)
    yield cut("header", "the frame ends in the header", plain[:7], _PLAIN)
    yield cut("shape", "the frame ends in the shape", plain[:12], _PLAIN)
    shapes: list[tuple[int, ...]] = [(3,), ()]
    run = assembled("", "", (RAW, "uint8", shapes, 0), bytes(4), _NUMBERS[:4] * 0)
    yield cut("arrays", "a run ends in the number of its arrays", run.data[:11], run)
    many = struct.pack("<I", 1 << 20)
    yield cut(
        "dimensions",
        "a run of 2^20 arrays ends before their dimensions",
        _changed(run.data, _SHAPE, many),
        run,
    )
    empty = assembled("", "", (RAW, "uint8", (0,), 0), b"", _NUMBERS[:0])
    short = _sealed(empty.data[:-_TAIL] + bytes(11))
    yield cut("sum", "11 bytes follow the header, not 12", short, empty)
    yield cut("tail", "the frame ends with its shape", plain[:16], _PLAIN)
    scalar = assembled("", "", (PLANES, "uint8", (), 10), block(constant(0)), _NUMBERS[:1] * 0)
    yield cut("no-dimensions", "19 bytes have no dimensions", _sealed(scalar.data[:8] + bytes(11)), scalar)
    why = "4 of 5 raw components are there"
    yield cut("raw-values", why, _sealed(plain[:-13] + plain[-12:]), _PLAIN)
    why = "a block is a byte longer than what there is"
    size = struct.pack("<I", len(_CODES) + 1)
    yield cut("block", why, _changed(common, _SHAPE + 8, size), _COMMON)
    size = struct.pack("<I", len(_CODES) - 1)
    why = "a raw stream of 5 symbols ends after the fourth, and so does its block"
    data = _sealed(common[: _SHAPE + 8] + size + common[_SHAPE + 12 : -13] + common[-12:])
    yield cut("stream", why, data, _COMMON)
    zeros = np.zeros(1025, np.uint8)
    two = assembled("", "", (PLANES, "uint8", (1025,), 10), block(constant(0)) * 2, zeros)
    one = assembled("", "", (PLANES, "uint8", (1025,), 10), block(constant(0)), zeros).data
    yield cut("second-block", "one of two blocks is there", one, two)
    head = (PLANES, "int16", (5,), 10)
    both = assembled("", "", head, block(_CODES, constant(0)), _NUMBERS.astype("<i2"))
    low = assembled("", "", head, block(_CODES), _NUMBERS.astype("<i2")).data
    yield cut("plane", "a block of int16 has one plane", low, both)
    many = struct.pack("<H", 60000)
    why = "2 of 60,000 representatives are there"
    yield cut("representatives", why, _changed(lossy, _SHAPE + 8, many), _LOSSY)
    infinite = np.array([np.inf, 0, 0, np.inf], "<f4")
    pieces = b"\1", constant(0), raw([1, 0, 0, 1]), infinite[[0, 3]].tobytes()
    sound = assembled("", "", _HEAD, b"\0\0" + block(*pieces), infinite)
    short = assembled("", "", _HEAD, b"\0\0" + block(*pieces[:-1], pieces[-1][:4]), infinite).data
    yield cut("escapes", "one of two escapes is there", short, sound)
    short = assembled("", "", _HEAD, b"\0\0" + block(*pieces[:2]), infinite).data
    yield cut("mask", "a block with escapes has no mask", short, sound)


def _left_over() -> Iterator[Broken]:
    """Yield frames with bytes after their body, and with wrong padding."""
    rule = "LCC-FRM-07"
    data = _sealed(_PLAIN.data[:-_TAIL] + b"\0" + _PLAIN.data[-_TAIL:])
    yield _case(rule, "raw", "a byte follows the raw components", data, _PLAIN)
    data = assembled("", "", (PLANES, "uint8", (5,), 10), block(_CODES, b"\0"), _NUMBERS).data
    yield _case(rule, "block", "a byte follows the stream of a block", data, _COMMON)
    for name, frame in (("blocks", _COMMON), ("relative", _DELTA), ("codebook", _LOSSY)):
        data = _sealed(frame.data[:-_TAIL] + b"\0" + frame.data[-_TAIL:])
        yield _case(rule, name, "a zero byte follows the last block, and no limit asks for it", data, frame)
    empty = assembled("", "", (PLANES, "uint8", (0,), 10), b"", _NUMBERS[:0])
    data = assembled("", "", (PLANES, "uint8", (0,), 10), block(b""), _NUMBERS[:0]).data
    yield _case(rule, "empty", "an empty array has a block", data, empty)
    head = (PLANES, "uint8", (1 << 16,), 22)
    sound = _padded(head, 64)  # bytes, the fewest that 2^16 may have
    data = _changed(sound.data, 64 - _TAIL - 1, b"\1")
    yield _case(rule, "padding-of-1", "the last byte of the padding is 1", data, sound)
    data = _padded(head, 65).data
    yield _case(rule, "padding-too-long", "the padding is a byte longer than needed", data, sound)
    rule, error = "LCC-LIM-03", "LimitError"
    data = _padded(head, 63).data
    yield _case(rule, "padding-too-short", "63 bytes decode to 2^16", data, sound, error)
    data = _padded(head, 0).data
    yield _case(rule, "no-padding", "34 bytes decode to 2^16", data, sound, error)
    one = np.zeros(1, np.uint8)
    tight = assembled("", "", (PLANES, "uint8", (34 << 10,), 22), block(constant(0)), one)
    more = assembled("", "", (PLANES, "uint8", ((34 << 10) + 1,), 22), block(constant(0)), one).data
    yield _case(rule, "one-more", "34 bytes decode to 34 times 1,024 and one more", more, tight, error)
    data = _changed(data, _SHAPE, struct.pack("<Q", 1 << 40))
    yield _case(rule, "2-to-the-40", "34 bytes decode to 2^40", data, sound, error)


def _sums() -> Iterator[Broken]:
    """Yield frames that do not match their CRC-32 or array sum, or hold a bool of 2."""
    rule, error, plain = "LCC-FRM-08", "ChecksumError", _PLAIN.data
    yield _case(
        rule, "crc", "a bit of the CRC-32 is changed", plain[:-1] + bytes([plain[-1] ^ 1]), _PLAIN, error
    )
    data = plain[:-13] + b"\x05" + plain[-12:]
    yield _case(rule, "value", "the last component is 5 and was 4", data, _PLAIN, error)
    rule = "LCC-FRM-09"
    data = _changed(plain, len(plain) - _TAIL, bytes([plain[-_TAIL] ^ 1]))
    yield _case(rule, "sum", "a bit of the array sum is changed", data, _PLAIN, error)
    data = _sealed(plain[:-13] + b"\x05" + plain[-12:])
    yield _case(rule, "value", "the last component is 5 and was 4 in the array sum", data, _PLAIN, error)
    # Words of weights 1 and 3: a sum without weights would not change.
    words = np.array([7, 9], "<u8")
    sound = assembled("", "", (RAW, "uint64", (2,), 0), words.tobytes(), words)
    data = assembled("", "", (RAW, "uint64", (2,), 0), words[::-1].tobytes(), words).data
    yield _case(rule, "words-exchanged", "two words are exchanged", data, sound, error)
    why = "the reference has a component that is 10 and was 9"
    other = _case(rule, "reference", why, _DELTA.data, _DELTA, error)
    yield replace(other, reference=bytes([9, 9, 10, 9, 9]), sound=None)
    rule = "LCC-FRM-10"
    truth, two = (np.array(values, np.uint8) for values in ([1, 0, 1], [1, 0, 2]))
    sound = assembled("", "", (RAW, "bool", (3,), 0), truth.tobytes(), truth)
    data = assembled("", "", (RAW, "bool", (3,), 0), two.tobytes(), two).data
    yield _case(rule, "raw", "a bool is 2", data, sound)
    head = (PLANES, "bool", (3,), 10)
    data = assembled("", "", head, block(raw([2, 0, 4])), two).data
    yield _case(rule, "planes", "a bool is decoded as 2", data, sound)
    moved = assembled("", "", head, block(raw([0, 0, 2])), two, np.array([1, 0, 1], np.uint8))
    before = assembled("", "", head, block(raw([0, 0, 0])), truth, np.array([1, 0, 1], np.uint8))
    yield _case(rule, "relative", "1 and a difference of 1 are a bool of 2", moved.data, before)
    why = "a bool is 2, and a zero byte follows the last block"
    data = assembled("", "", head, block(raw([2, 0, 4])) + b"\0", two).data
    yield _case("LCC-FRM-07", "before-a-bool", why, data, sound)


# --- codebook -------------------------------------------------------------------------------------


def _codebooks() -> Iterator[Broken]:
    """Yield representatives that are not numbers, and reserved flags of blocks."""
    for name, value in (("infinity", np.inf), ("minus-infinity", -np.inf), ("nan", np.nan)):
        book = struct.pack("<H2f", 2, 0.5, value)
        values = np.array([0.5, 0, 0, 0.5], "<f4")
        data = assembled("", "", _HEAD, book + block(b"\0", raw([1, 0, 0, 1])), values).data
        why = f"the second representative, which no symbol stands for, is {value}"
        yield _case("LCC-CBK-02", name, why, data, _LOSSY)
    for kind in FLOATS:
        top, unit = 1 << 8 * kind.size - 1, 1 << kind.mantissa
        for word, pattern in (("infinite", top - unit), ("minus-infinite", 2 * top - unit)):
            why = f"the only representative of {kind.name} is {word.replace('-', ' ')}"
            data = _alone(kind, pattern).data
            yield _case("LCC-CBK-02", f"{word}-{kind.name}", why, data, _alone(kind, unit))
    head, symbols = (CODEBOOK, "float32", [(3,), ()], 10), block(b"\0", raw([1, 0, 0, 1]))
    sound, run = (
        assembled("", "", head, struct.pack("<2H2f", 1, 1, 0.5, last) + symbols, values)
        for last, values in (
            (2, np.array([0.5, 0, 0, 2], "<f4")),
            (np.inf, np.array([0.5, 0, 0, np.inf], "<f4")),
        )
    )
    yield _case("LCC-CBK-02", "run", "the representative of the second array is inf", run.data, sound)
    for flags in (2, 0x80):
        data = assembled("", "", _HEAD, _BOOK + block(bytes([flags]), raw([1, 2, 0, 1])), _FLOATS).data
        why = f"the flags of a block are {flags:#04x}"
        yield _case("LCC-CBK-05", f"flags-{flags:02x}", why, data, _LOSSY)


def _alone(kind: ElementType, pattern: int) -> Frame:
    """Return a frame of one element, whose components are the only representative."""
    values = np.array([pattern] * kind.components, kind.bits)
    body = struct.pack("<H", 1) + little(values[:1]) + block(b"\0", raw([1] * kind.components))
    return assembled("", "", (CODEBOOK, kind.name, (1,), 10), body, values)


def _symbols() -> Iterator[Broken]:
    """Yield symbols that have no representative, in every form of stream."""
    rule = "LCC-CBK-03"
    for frame, reference in ((_LOSSY, None), (_MOVED, 0 * _FLOATS + 2)):
        relative = "-relative" * (reference is not None)
        for name, stream in (
            ("raw", raw([1, 2, 3, 1])),
            ("constant", constant(3)),
            ("packed", packed(2, raw(packed_symbols([1, 2, 3, 1], 2)))),
            ("sparse", sparse(0, 1, raw([2]), b"", raw([3]))),
        ):
            data = assembled("", "", _HEAD, _BOOK + block(b"\0", stream), _FLOATS, reference).data
            why = f"a {name} stream has symbol 3, and there are 2 representatives"
            yield _case(rule, name + relative, why, data, frame)
    infinite = np.array([np.inf, 0, 0, 0], "<f4")
    pieces = b"\1", raw([3, 0, 0, 0]), raw([1, 0, 0, 0]), infinite[:1].tobytes()
    data = assembled("", "", _HEAD, _BOOK + block(*pieces), infinite).data
    yield _case(rule, "escape", "an escape has symbol 3, and there are 2 representatives", data, _LOSSY)
    wide = struct.pack("<H", 256) + np.arange(256, dtype="<f4").tobytes()
    values = np.array([255, 0, 0, 0], "<f4")
    sound = assembled("", "", _HEAD, wide + block(b"\0", raw([0] * 4), raw([1, 0, 0, 0])), values)
    data = assembled("", "", _HEAD, wide + block(b"\0", raw([1, 0, 0, 0]), raw([1, 0, 0, 0])), values).data
    yield _case(rule, "wide", "a symbol is 257, and there are 256 representatives", data, sound)
    shapes: list[tuple[int, ...]] = [(3,), ()]
    head, values = (CODEBOOK, "float32", shapes, 10), np.array([0.5, 0, 0, 4], "<f4")
    book = struct.pack("<2H3f", 1, 2, 0.5, 2, 4)
    sound = assembled("", "", head, book + block(b"\0", raw([1, 0, 0, 2])), values)
    data = assembled("", "", head, book + block(b"\0", raw([1, 2, 0, 2])), values).data
    why = "a symbol of the first array, 2, has a representative in the second array only"
    yield _case(rule, "run", why, data, sound)
