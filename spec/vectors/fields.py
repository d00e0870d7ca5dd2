"""Smooth frames put together from the specification, valid and broken (SPEC 6.4 and 7.8)."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from broken import Broken
from pieces import SMOOTH, Frame, assembled, block, constant, packed_symbols, raw, sparse

from lccodec.element_types import Array

Shape = tuple[int, ...]


def _numbers(symbols: Sequence[int]) -> bytes:
    """Return numbers of one byte."""
    return b"\x10" + raw(symbols)


def _field(
    shape: Shape,
    body: bytes,
    expected: Sequence[float] | Array,
    name: str = "",
    description: str = "",
    dtype: str = "float64",
    reference: Sequence[float] | None = None,
    log2: int = 16,
) -> Frame:
    form = {"float64": "<f8", "float32": "<f4", "float16": "<f2"}[dtype]
    before = None if reference is None else np.array(reference, form)
    return assembled(name, description, (SMOOTH, dtype, shape, log2), body, np.array(expected, form), before)


def _head(flags: int = 0, step: float = 1.0, origin: float = 0.0) -> bytes:
    return struct.pack("<Bdd", flags, step, origin)


#: Five elements: levels of stride 4, 2 and 1, a pass each. Numbers: 2; -1; 0; 1, -1.
_FIVE = (b"\xff" * 3, b"\1\1\1", b"\0", _numbers([4]), _numbers([1]), _numbers([0]), _numbers([2, 1]))
# y_0 = 2. y_4 = y_0 - 1. y_2 = 1.5. y_1 = (2 + 1.5) / 2 + 1. y_3 = (1.5 + 1) / 2 - 1.
_FIVE_VALUES = [2.0, 2.75, 1.5, 0.25, 1.0]


def assembled_fields() -> Iterator[Frame]:
    """Yield valid fields."""
    body = block(_head(), *_FIVE)
    yield _field((5,), body, _FIVE_VALUES, "smooth-five", "a level of one pass after the other")
    yield _field((0, 3), b"", [], "smooth-empty", "no elements, no blocks")
    joined = block(_head(), b"\xff" * 3, b"\1\1\1", b"\3", _numbers([4, 1, 0, 2, 1]))
    yield _field((5,), joined, _FIVE_VALUES, "smooth-joined", "all levels are joined")
    halves = [2.0, 2.0, 1.75, 1.125, 1.5]
    body = block(_head(), b"\x7f\x7f\x3f", b"\1\1\1", b"\3", _numbers([4, 1, 0, 1, 2]))
    halves[1], halves[3] = (2 + 1.75) / 2 - 0.25, (1.75 + 1.5) / 2 + 0.25
    yield _field((5,), body, halves, "smooth-finer", "levels with a half and a quarter of the step")
    flags = _head(6), struct.pack("<3d", 0.5, 2.5, 0.25)
    limited = [2.25, 2.5, 1.75, 0.5, 1.25]
    yield _field((5,), block(*flags, *_FIVE), limited, "smooth-limits", "limits and an offset")
    escapes = (sparse(0, 1, raw([3]), b"", constant(1)), *_planes(np.array([np.inf])))
    escaped = [*_FIVE_VALUES[:3], np.inf, 1.0]
    yield _field((5,), block(_head(1), *_FIVE, *escapes), escaped, "smooth-escape", "an escape")
    none = (constant(0), *(constant(0) for _ in range(8)))
    body = block(_head(1), *_FIVE, *none)
    yield _field((5,), body, _FIVE_VALUES, "smooth-no-escapes", "a mask without an escape")
    before = [0.1, 1e300, -2.0, 3.0, np.inf]
    moved = [value + at for value, at in zip(_FIVE_VALUES, before, strict=True)]
    body = block(_head(), *_FIVE)
    yield _field((5,), body, moved, "smooth-relative", "one addition each", "float64", before)
    before = [0.0, 1e-3, 1e-3, 1e-4, 0.0]
    rounded = np.array(before, "<f2").astype("<f8") + _FIVE_VALUES
    yield _field((5,), body, rounded, "smooth-rounded", "rounded once", "float16", before)
    large = block(_head(0, 2.0**100), *_FIVE)
    beyond = [2.0**101, 2.75 * 2.0**100, 1.5 * 2.0**100, 2.0**98, 2.0**100]
    yield _field((5,), large, beyond, "smooth-large", "numbers of float32", "float32")
    half = [np.inf] * 5
    large = block(_head(0, 2.0**100), *_FIVE)
    yield _field((5,), large, half, "smooth-overflow", "infinities of float16", "float16")
    wide = b"\x23" + bytes(packed_symbols([1, 2, 3, 4, 5], 3)) + raw([0, 1, 2, 3, 4]) + raw([1, 0, 0, 0, 0])
    z = [1 + 2048, 2 + 8, 3 + 16, 4 + 24, 5 + 32]
    m = [-(each + 1) // 2 if each % 2 else each // 2 for each in z]
    body = block(_head(), b"\xff" * 3, b"\0\0\0", b"\3", wide)
    values = [m[0], m[3], m[2], m[4], m[1]]
    yield _field((5,), body, values, "smooth-wide", "numbers of low bits and two bytes, not predicted")
    body = block(_head(0, 1.0, 7.0), b"", b"", b"\0", _numbers([3]))
    yield _field((), body, [5.0], "smooth-0d", "no dimensions")
    yield _field((1, 1), body, [5.0], "smooth-ones", "dimensions of one element")
    # Two rows of 40,000 do not fit a block of 2^16: each is one.
    rows = [
        block(_head(0, 1.0, origin), b"\xff" * 16, b"\1" * 16, b"\x10", b"\x10" + constant(0))
        for origin in (1.0, 2.0)
    ]
    padding = bytes(80_000 // 256 + 1 - 8 - 16 - 12 - 2 * len(rows[0]))
    values = [1.0] * 40_000 + [2.0] * 40_000
    frame = _field(
        (2, 40_000), b"".join(rows) + padding, values, "smooth-blocks", "a row is a block", "float16"
    )
    yield replace(frame, stored=False)
    steep = [float(k**3) for k in range(0, 16, 2)]  # what lies between is of the polynomial too
    cubic = [float(k**3) for k in range(16)]
    for predictor, name in ((2, "four"), (3, "six")):
        yield _cubic(predictor, name, steep, cubic)


def _cubic(predictor: int, name: str, knots: Sequence[float], expected: Sequence[float]) -> Frame:
    """Return a field whose finest level is the cubic polynomial through every second element."""
    symbols = _coarse(knots)
    behind = expected[15] - (knots[7] * 1.875 - knots[6] * 1.25 + knots[5] * 0.375)
    finest = [0] * 7 + [_zigzag(behind * 8)]
    body = block(
        _head(0, 1 / 8),
        b"\xff" * 4,
        bytes([0, 0, 0, predictor]),
        b"\0",
        *(_large(part) for part in symbols),
        _large(finest),
    )
    description = f"a cubic polynomial, predicted from {name} points"
    return _field((16,), body, expected, f"smooth-{name}", description)


def _coarse(knots: Sequence[float]) -> list[list[int]]:
    """Return the numbers, not predicted, of eight elements: the first, and three levels."""
    order = [[0], [4], [2, 6], [1, 3, 5, 7]]
    return [[_zigzag(knots[k] * 8) for k in part] for part in order]


def _zigzag(number: float) -> int:
    whole = int(number)
    return 2 * whole if whole >= 0 else -2 * whole - 1


def _large(symbols: Sequence[int]) -> bytes:
    """Return numbers of three bytes."""
    return b"\x30" + b"".join(raw([each >> shift & 255 for each in symbols]) for shift in (0, 8, 16))


def _planes(values: np.ndarray) -> Iterator[bytes]:
    """Yield the planes of numbers of float64."""
    for shift in range(0, 64, 8):
        codes = []
        for bits in values.astype("<f8").view("<u8").tolist():
            code = (bits << 1 | bits >> 63) & (1 << 64) - 1
            codes.append(code >> shift & 255)
        yield raw(codes)


def broken_fields() -> Iterator[Broken]:
    """Yield invalid fields."""
    sound = _field((5,), block(_head(), *_FIVE), _FIVE_VALUES)

    def case(rule: str, name: str, why: str, *pieces: bytes, error: str = "FormatError") -> Broken:
        data = _field((5,), block(*pieces), _FIVE_VALUES).data
        return Broken(rule, name, error, why, data, sound.data, None)

    for flags in (8, 0x80):
        why = f"the flags of a block are {flags:#04x}"
        yield case("LCC-SMO-02", f"flags-{flags:02x}", why, _head(flags), *_FIVE)
    for name, step in (("zero", 0.0), ("negative", -1.0), ("infinite", np.inf), ("nan", np.nan)):
        yield case("LCC-SMO-02", f"step-{name}", f"the step is {step}", _head(0, step), *_FIVE)
    yield case("LCC-SMO-02", "origin", "the origin is infinite", _head(0, 1.0, np.inf), *_FIVE)
    for name, low, high in (("order", 1.0, 0.5), ("nan", np.nan, 1.0)):
        limits = struct.pack("<2d", low, high)
        yield case("LCC-SMO-02", f"limits-{name}", f"limits from {low} to {high}", _head(2), limits, *_FIVE)
    offset = struct.pack("<d", np.nan)
    yield case("LCC-SMO-02", "offset", "the offset is a NaN", _head(4), offset, *_FIVE)
    many = (_FIVE[0], _FIVE[1], b"\4", *_FIVE[3:])
    yield case("LCC-SMO-03", "joined", "4 of 3 levels are joined", _head(), *many)
    unknown = (_FIVE[0], b"\1\4\1", *_FIVE[2:])
    yield case("LCC-SMO-05", "predictor", "a predictor is 4", _head(), *unknown)
    for form in (0x00, 0x80, 0x18):
        why = f"numbers have {form >> 4} bytes and {form & 15} low bits"
        pieces = (*_FIVE[:3], bytes([form]), *(raw([4]) for _ in range(9)), *_FIVE[4:])
        yield case("LCC-SMO-07", f"form-{form:02x}", why, _head(), *pieces)
    for form in (0x00, 0x80):
        more = constant(0) * max(0, (form >> 4) - 1)
        pieces = (*_FIVE[:3], bytes([form]) + raw([4]) + more, *_FIVE[4:])
        why = f"a number has {form >> 4} bytes, and all of them are there"
        yield case("LCC-SMO-07", f"{form >> 4}-planes", why, _head(), *pieces)
    none = (*_FIVE[:3], b"\x00", *_FIVE[4:])
    yield case("LCC-SMO-07", "no-planes", "a number has 0 bytes, and none is there", _head(), *none)
    padding = (*_FIVE[:3], b"\x11\x02", raw([2]), *_FIVE[4:])
    yield case("LCC-SMO-07", "padding", "a bit behind the low bits is 1", _head(), *padding)
    large = (*_FIVE[:3], b"\x70", *(constant(0) for _ in range(6)), raw([0x20]), *_FIVE[4:])
    yield case("LCC-SMO-07", "53-bits", "a number is 2^53", _head(), *large)
    short = (*_FIVE[:3], *_FIVE[3:6])
    why = "the numbers of the last level are missing"
    yield case("LCC-FRM-02", "numbers", why, _head(), *short, error="TruncatedError")
    why = "a byte follows the numbers"
    yield case("LCC-FRM-07", "smooth", why, _head(), *_FIVE, b"\0")
    one = _one_number(1.0, b"\1", constant(0), *[constant(0)] * 8)
    classes = struct.pack("<BHBBI", 5, 0, 2, 1, 0) + raw([]) * 4
    why = "no escapes are a matrix without columns"
    data = _one_number(1.0, b"\1", constant(0), classes, *[constant(0)] * 7).data
    yield Broken("LCC-STR-07", "nothing-without-columns", "FormatError", why, data, one.data, None)
    yield _long()
    small = _field((5,), block(_head(), *_FIVE), _FIVE_VALUES, log2=15).data
    yield Broken("LCC-LIM-02", "smooth", "LimitError", "blocks of 2^15 components", small, sound.data, None)
    run = assembled("", "", (SMOOTH, "float64", [(5,)], 16), block(_head(), *_FIVE), np.array(_FIVE_VALUES))
    yield Broken(
        "LCC-FRM-04", "smooth-run", "UnsupportedError", "a smooth frame is a run", run.data, sound.data, None
    )
    for dtype in ("int64", "complex128"):
        values = np.zeros(5, "<c16" if dtype[0] == "c" else "<i8")
        data = assembled("", "", (SMOOTH, dtype, (5,), 16), block(_head(), *_FIVE), values).data
        why = f"the smooth method has {dtype}"
        yield Broken("LCC-FRM-06", f"smooth-{dtype}", "FormatError", why, data, sound.data, None)


def _one_number(origin: float, flags: bytes, *behind: bytes) -> Frame:
    """Return a field of one element, which is its origin; `behind` are the mask and the escapes."""
    body = block(flags, struct.pack("<2d", 1.0, origin), b"\0" + b"\x10" + constant(0), *behind)
    return assembled("", "", (SMOOTH, "float64", (1,), 16), body, np.array([origin]))


def _long() -> Broken:
    """Return a field that is a component too long for its bytes, beside one that is not."""
    frames = []
    for extra in (0, 1):
        size = (1 << 16) + extra
        levels = 16 + extra
        head = (b"\xff" * levels, b"\1" * levels, bytes([levels]), b"\x10" + constant(0))
        body = block(_head(), *head)
        padding = 256 - 16 - 12 - len(body)
        frames.append(_field((size,), body + bytes(padding), [0.0] * size, dtype="float16", log2=17).data)
    why = "256 bytes declare 2^16 + 1 components"
    return Broken("LCC-LIM-12", "components", "LimitError", why, frames[1], frames[0], None)
