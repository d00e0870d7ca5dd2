"""Frames that decoders misread or refuse which are wrong in one place (``fuzz/wrong.py``)."""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from broken import Broken
from pieces import (
    CODEBOOK,
    KINDS,
    PLANES,
    RAW,
    SMOOTH,
    Frame,
    assembled,
    bits_to_bytes,
    block,
    classed,
    constant,
    huffman,
    little,
    moved,
    packed,
    packed_symbols,
    raw,
    sparse,
    split,
    unzigzag,
)

from lccodec.constants import ElementType
from lccodec.element_types import Array

FLOATS = ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")


def trap_frames() -> Iterator[Frame]:
    """Yield valid frames."""
    yield from _sums()
    yield from _wide()
    yield from _blocks_and_escapes()
    yield from _predictions()
    yield from _finished()
    yield from _geometry()
    yield from _streams()
    yield from _splits()
    yield from _shapes()
    yield from _needless()


def chance(count: int, seed: int) -> list[int]:
    """Return numbers below 2^64 that look random (SplitMix64)."""
    found = []
    for place in range(1, count + 1):
        z = (place * 0x9E3779B97F4A7C15 + (seed << 32)) % 2**64
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
        found.append(z ^ z >> 31)
    return found


# --- codebooks ------------------------------------------------------------------------------------


def values_of(bits: Array, kind: ElementType) -> Array:
    """Return components as numbers of float32 or float64, or of float16 where the type is that."""
    if kind.name == "bfloat16":
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return bits.view({2: np.float16, 4: np.float32, 8: np.float64}[kind.size])


def bits_of(values: Array, kind: ElementType) -> Array:
    """Return numbers that `values_of` gave as components; of bfloat16 rounded to nearest even."""
    if kind.name != "bfloat16":
        return values.view(kind.bits)
    whole = values.view(np.uint32)
    rounded = (whole + np.uint32(0x7FFF) + (whole >> np.uint32(16) & np.uint32(1))) >> np.uint32(16)
    return rounded.astype(np.uint16)


def edge_patterns(kind: ElementType) -> list[int]:
    """Return both zeros, subnormal numbers, the least normal one, 1, the largest: of both signs."""
    sign, one = 1 << (8 * kind.size - 1), 1 << kind.mantissa
    infinity = sign - one
    unit = (infinity >> kind.mantissa >> 1) << kind.mantissa
    patterns = [0, 1, one - 1, one, one + 1, unit, unit + 1, infinity - 1]
    return [pattern | side for pattern in patterns for side in (0, sign)]


def _sums() -> Iterator[Frame]:
    """Yield every edge added to every other one, and edges alone."""
    for name in FLOATS:
        kind = KINDS[name]
        sign, infinity = 1 << (8 * kind.size - 1), (1 << (8 * kind.size - 1)) - (1 << kind.mantissa)
        representatives = edge_patterns(kind)
        before = [*edge_patterns(kind), infinity, infinity | sign]
        book = struct.pack("<H", len(representatives)) + _bits(representatives, kind).tobytes()
        pairs = [(r, s) for r in before for s in range(len(representatives) + 1)]
        reference = np.array([r for r, _ in pairs], kind.bits)
        symbols = [s for _, s in pairs]
        added = np.array([representatives[s - 1] if s else sign for s in symbols], kind.bits)
        with np.errstate(all="ignore"):
            after = bits_of(values_of(reference, kind) + values_of(added, kind), kind)
        head = (CODEBOOK, name, (len(symbols) // kind.components,), 10)
        body = book + block(b"\0", raw(symbols))
        why = "sums of zeros, subnormal numbers, 1, the largest number and infinities"
        yield assembled(f"codebook-{name}-sums", why, head, body, _le(after, kind), _le(reference, kind))
        symbols = list(range(len(representatives) + 1)) + [0] * (kind.components - 1)
        values = np.array([0, *representatives] + [0] * (kind.components - 1), kind.bits)
        head = (CODEBOOK, name, (len(symbols) // kind.components,), 10)
        why = "the same as representatives, without a reference"
        yield assembled(
            f"codebook-{name}-alone", why, head, book + block(b"\0", raw(symbols)), _le(values, kind)
        )


def _bits(patterns: Sequence[int], kind: ElementType) -> Array:
    return np.array(patterns, kind.bits.newbyteorder("<"))


def _le(bits: Array, kind: ElementType) -> Array:
    return bits.astype(kind.bits.newbyteorder("<"))


def every_form() -> list[Callable[[Sequence[int]], bytes]]:
    """Return a function for each form of stream: of symbols below 4, the first of equal ones."""
    return [
        lambda run: constant(run[0]),
        raw,
        lambda run: huffman([1, 2, 3, 3], run, min(len(run), 7)),
        _sparse,
        lambda run: packed(2, raw(packed_symbols(run, 2))),
        _classed,
    ]


def _classed(run: Sequence[int]) -> bytes:
    """Return a classed stream of two classes: the rows of even numbers, and the others."""
    columns = min(32, len(run))
    levels = [row % 2 for row in range(-(-len(run) // columns))]
    return classed(columns, [1], (levels, [0] * columns), run, raw)


def _sparse(run: Sequence[int]) -> bytes:
    """Return a sparse stream with eight low bits."""
    places = [place for place, symbol in enumerate(run) if symbol]
    gaps = [place - before - 1 for before, place in zip([-1, *places], places, strict=False)]
    high, low = raw([gap >> 8 for gap in gaps]), bytes(gap & 255 for gap in gaps)
    return sparse(8, len(places), high, low, raw([run[place] for place in places]))


def _wide() -> Iterator[Frame]:
    """Yield symbols of two bytes: of every form in blocks of one frame, ordered, of other types."""
    count, kind = 1024, KINDS["float16"]
    book = np.arange(0x3C00, 0x3C00 + 800, dtype="<u2")
    body, expected = struct.pack("<H", 800) + book.tobytes(), []
    forms = every_form()
    for place in range(7):
        numbers = chance(count, place + 7)
        low = [number % 4 if number >> 32 & 7 == 0 else 0 for number in numbers]
        high = [number >> 8 & 3 if number >> 40 & 7 == 0 else 0 for number in numbers]
        mask = [number >> 16 & 3 if number >> 48 & 7 == 0 else 0 for number in numbers]
        if place == 0:
            low, high, mask = [3] * count, [2] * count, [2] * count
        escapes = [0xFC00 - i for i, marked in enumerate(mask) if marked]
        streams = [forms[(place + turn) % 6 if place else 0] for turn in range(3)]
        if place:
            low, high, mask = (
                [run[0]] * count if stream is forms[0] else run
                for run, stream in zip((low, high, mask), streams, strict=True)
            )
            escapes = [0xFC00 - i for i, marked in enumerate(mask) if marked]
        low_stream, high_stream, mask_stream = (
            stream(run) for stream, run in zip(streams, (low, high, mask), strict=True)
        )
        body += block(b"\1", low_stream, high_stream, mask_stream, np.array(escapes, "<u2").tobytes())
        left = iter(escapes)
        for a, b, marked in zip(low, high, mask, strict=True):
            symbol = a | b << 8
            expected.append(next(left) if marked else 0x3C00 + symbol - 1 if symbol else 0)
    head = (CODEBOOK, "float16", (7 * count,), 10)
    why = "symbols, high bytes and escape masks of every form of stream, one form after the other"
    yield assembled("codebook-wide-forms", why, head, body, np.array(expected, "<u2"))

    for name, ordered, relative in (
        ("bfloat16", True, True),
        ("float32", True, True),
        ("float64", False, True),
        ("complex64", False, False),
        ("complex128", True, True),
    ):
        kind = KINDS[name]
        unit = edge_patterns(kind)[10]
        steps = [(step * 3 - 400) % (1 << 8 * kind.size) if ordered else unit + step for step in range(300)]
        if ordered:  # of any value: infinities and NaN as numbers of float64, too
            steps[7] = (1 << (8 * kind.size - 1)) - (1 << kind.mantissa)
            steps[8] = (1 << 8 * kind.size) - 1
        symbols = [300, 0, 1, 255, 256, 8, 9, 299, 44, 2]
        before = [unit, 0, unit, unit + 5, 1 << (8 * kind.size - 1), unit, 0, unit, unit, 7]
        mask = [0, 0, 4, 0, 0, 0, 0, 0, 0, 128]
        after = []
        for r, symbol, marked in zip(before, symbols, mask, strict=True):
            if marked:
                after.append(unit + 77)
            elif ordered:
                code = steps[symbol - 1] if symbol else 0
                zigzag = (
                    code << 1 if code < 1 << (8 * kind.size - 1) else ((1 << 8 * kind.size) - code << 1) - 1
                )
                after.append(int(moved([r], [zigzag], kind)[0]))
            elif relative:
                c = steps[symbol - 1] if symbol else 1 << (8 * kind.size - 1)
                both = [values_of(np.array([p], kind.bits), kind) for p in (r, c)]
                after.append(int(bits_of(both[0] + both[1], kind)[0]))
            else:
                after.append(steps[symbol - 1] if symbol else 0)
        body = struct.pack("<H", 300) + _bits(steps, kind).tobytes()
        escapes = _bits([unit + 77] * 2, kind).tobytes()
        low, high = raw([s & 255 for s in symbols]), raw([s >> 8 for s in symbols])
        yield assembled(
            f"codebook-{name}-wide{'-ordered' if ordered else ''}",
            "symbols of two bytes, and escapes" + (", ordered" if ordered else ""),
            (CODEBOOK, name, (10 // kind.components,), 10),
            body + block(b"\1", low, high, raw(mask), escapes),
            _bits(after, kind),
            _bits(before, kind) if relative else None,
            ordered=ordered,
        )


def _blocks_and_escapes() -> Iterator[Frame]:
    """Yield codebooks of empty arrays, masks of all or nothing, full blocks."""
    head, book = (CODEBOOK, "float32", (4,), 10), struct.pack("<H2f", 2, 0.5, -2.0)
    body = book + block(b"\1", raw([1, 0, 2, 1]), constant(0))
    values = np.array([0.5, 0, -2, 0.5], "<f4")
    yield assembled("codebook-no-escapes", "a mask without an escape", head, body, values)
    exact = np.array([np.inf, -0.0, 7, 1], "<f4")
    body = book + block(b"\1", raw([1, 0, 2, 1]), constant(2), exact.tobytes())
    yield assembled("codebook-all-escapes", "every component is an escape, marked by 2", head, body, exact)
    none = np.zeros(0, "<f4")
    head = (CODEBOOK, "float32", (3, 0), 10)
    yield assembled("codebook-empty", "no elements, and two representatives", head, book, none)
    yield assembled("codebook-empty-relative", "the same, with a reference", head, book, none, none)
    body = b"".join(block(b"\0", packed(1, constant(fill))) for fill in (0xFF, 0x55))
    values = np.array([0.5] * 1024 + [0.5, 0] * 512, "<f4")
    head = (CODEBOOK, "float32", (2048,), 10)
    one = struct.pack("<Hf", 1, 0.5)
    yield assembled("codebook-full-block", "the last block is full", head, one + body, values)
    many = (np.arange(1100) * 3).astype("<f8")
    symbols = [(7 * place) % 1101 for place in range(40)]
    body = struct.pack("<H", 1100) + many.tobytes()
    body += block(b"\0", raw([s & 255 for s in symbols]), raw([s >> 8 for s in symbols]))
    values = np.array([many[s - 1] if s else 0 for s in symbols])
    yield assembled("codebook-1100", "1,100 representatives", (CODEBOOK, "float64", (40,), 10), body, values)


# --- fields ---------------------------------------------------------------------------------------


class Field:
    """A block of a field: its numbers, and the values that they give (SPEC 7.8).

    `predictors` are taken in turn for its passes, `parts` for its levels, `forms` for its streams.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        predictors: Sequence[int],
        *,
        parts: Sequence[int] = (256,),
        step: float = 0.1,
        origin: float = 0.3,
        joined: int = 0,
        forms: Sequence[tuple[int, int]] = ((1, 0),),
        coded: Sequence[Callable[[Sequence[int]], bytes]] = (raw,),
        largest: int = 32,
        seed: int = 1,
        numbers: Sequence[int] | None = None,
    ) -> None:
        levels = max((max(shape, default=1) - 1).bit_length(), 0)
        self.shape, self.passes = (
            shape or (1,),
            [
                (level, axis)
                for level in range(levels)
                for axis, extent in enumerate(shape)
                if extent > 1 << (levels - 1 - level)
            ],
        )
        turn, fractions = itertools.cycle(predictors), itertools.cycle(parts)
        chosen = [next(turn) for _ in self.passes]
        self.parts = [next(fractions) for _ in range(levels)]
        drawn = iter(numbers) if numbers is not None else None
        random = iter(chance(math.prod(self.shape), seed))
        self.y = np.zeros(self.shape)
        stored: list[list[int]] = [[] for _ in range(levels + 1)]

        def number(level: int) -> int:
            b, low = forms[level % len(forms)]
            most = largest if largest else min(1 << (8 * b + low), 1 << 53)
            code = next(drawn) if drawn is not None else next(random) % most
            stored[level].append(code)
            return code // 2 if code % 2 == 0 else -(code + 1) // 2

        self.y[(0,) * len(self.shape)] = origin + number(0) * step
        for (level, axis), predictor in zip(self.passes, chosen, strict=True):
            h = 1 << (levels - 1 - level)
            s = step * (self.parts[level] / 256)
            along = [range(0, n, h if k < axis else 2 * h) for k, n in enumerate(self.shape)]
            along[axis] = range(h, self.shape[axis], 2 * h)
            count = -(-self.shape[axis] // (2 * h))
            for index in itertools.product(*along):
                line = [float(self.y[(*index[:axis], 2 * h * j, *index[axis + 1 :])]) for j in range(count)]
                p = predicted(line, index[axis] // (2 * h), predictor, origin)
                self.y[index] = p + number(level + 1) * s
        groups = [[*itertools.chain(*stored[: joined + 1])], *stored[joined + 1 :]]
        self.levels = bytes(part - 1 for part in self.parts) + bytes(chosen) + bytes([joined])
        self.numbers = b""
        for place, group in enumerate(groups):
            at = place if not place else place + joined
            b, low = forms[at % len(forms)]
            self.numbers += bytes([16 * b + low])
            if low:
                width = (1 << low) - 1
                self.numbers += bits_to_bytes("".join(format(z & width, f"0{low}b")[::-1] for z in group))
            for k in range(b):
                symbols = [z >> (low + 8 * k) & 255 for z in group]
                self.numbers += coded[at % len(coded)](symbols)
        self.head = step, origin

    def block(self, flags: int = 0, limits: bytes = b"", offset: bytes = b"", behind: bytes = b"") -> bytes:
        """Return the block."""
        head = struct.pack("<Bdd", flags, *self.head)
        return block(head, limits, offset, self.levels, self.numbers, behind)


def predicted(known: Sequence[float], j: int, predictor: int, origin: float) -> float:
    """Return p of LCC-SMO-05, in Python's floats, which are binary64."""
    c = len(known)
    if predictor == 0:
        return origin
    if predictor == 1 or c < 4:
        if j < c - 1:
            return (known[j] + known[j + 1]) * 0.5
        return known[j] * 1.5 + known[j - 1] * -0.5 if j else known[0]
    if j == c - 1:
        return (known[j] * 1.875 + known[j - 1] * -1.25) + known[j - 2] * 0.375
    if j == 0 or j == c - 2:
        a, b, d, e = known[:4] if j == 0 else known[:-5:-1]
        return ((a * 0.3125 + b * 0.9375) + d * -0.3125) + e * 0.0625
    if predictor == 2 or not 1 < j < c - 3:
        return (known[j] + known[j + 1]) * 0.5625 + (known[j - 1] + known[j + 2]) * -0.0625
    a = (known[j] + known[j + 1]) * 0.5859375
    b = (known[j - 1] + known[j + 2]) * -0.09765625
    return (a + b) + (known[j - 2] + known[j + 3]) * 0.01171875


def stored_as(y: Array, name: str) -> Array:
    """Return values of binary64 rounded to an element type (LCC-SMO-08)."""
    with np.errstate(all="ignore"):
        if name == "bfloat16":
            return bits_of(y.astype("<f4"), KINDS[name]).astype("<u2")
        return y.astype({"float16": "<f2", "float32": "<f4", "float64": "<f8"}[name])


def _smooth(
    name: str,
    why: str,
    field: Field,
    dtype: str = "float64",
    *,
    flags: int = 0,
    before: Array | None = None,
    limits: tuple[float, float] = (-math.inf, math.inf),
    offset: float = 0.0,
    marks: dict[int, int] | None = None,
    mask: Callable[[Sequence[int]], bytes] = raw,
    coded: Callable[[Sequence[int]], bytes] = raw,
    log2: int = 16,
) -> Frame:
    """Return the frame of one block; `marks` are the mask of its escapes, by place."""
    y, kind = field.y.reshape(-1).copy(), KINDS[dtype]
    if flags & 4:
        y = y + offset
    if before is not None:
        y = y + values_of(before.view(kind.bits), kind).astype("<f8")
    if flags & 2:
        y = np.where(y < limits[0], limits[0], np.where(y > limits[1], limits[1], y))
    values = stored_as(y, dtype).view(kind.bits)
    behind = b""
    if flags & 1:
        marks = marks or {}
        symbols = [marks.get(place, 0) for place in range(y.size)]
        patterns = [_odd(place, kind) for place in sorted(marks)]
        codes = [(p << 1 | p >> (8 * kind.size - 1)) & (1 << 8 * kind.size) - 1 for p in patterns]
        planes = [coded([code >> 8 * k & 255 for code in codes]) for k in range(kind.size)]
        behind = mask(symbols) + b"".join(planes)
        values[sorted(marks)] = patterns
    stored = struct.pack("<dd", *limits) if flags & 2 else b""
    moved_by = struct.pack("<d", offset) if flags & 4 else b""
    body = field.block(flags, stored, moved_by, behind)
    frame = (SMOOTH, dtype, field.shape, log2)
    body += bytes(max(0, -(-y.size // 256) - (8 + 8 * len(field.shape) + len(body) + 12)))
    expected = _le(values, kind)
    reference = None if before is None else _le(before.view(kind.bits), kind)
    return assembled(f"smooth-{name}", why, frame, body, expected, reference)


def _odd(place: int, kind: ElementType) -> int:
    """Return the pattern of an escape: infinite, a NaN, -0.0, or beyond all limits."""
    sign, infinity = 1 << (8 * kind.size - 1), (1 << (8 * kind.size - 1)) - (1 << kind.mantissa)
    return [infinity, infinity | 5, sign, infinity - 3, infinity | sign][place % 5]


def _predictions() -> Iterator[Frame]:
    """Yield fields of all predictors, with few known values and many, of one to six dimensions."""
    for predictor, what in ((1, "linear"), (2, "four"), (3, "six")):
        for shape in ((10, 12), (14, 16)):
            name = f"{what}-{shape[0]}x{shape[1]}"
            why = f"predictor {predictor} between one to eight known values, and behind them"
            yield _smooth(name, why, Field(shape, [predictor], seed=predictor))
    for shape in ((23,), (11, 3), (3, 2, 11), (2, 11, 2, 2), (2, 2, 3, 2, 7), (2, 3, 2, 2, 2, 3), (2,) * 7):
        for turn in range(2 if len(shape) < 7 else 1):
            predictors = [3, 2, 1, 0] if turn == 0 else [1, 0, 3, 2]
            name = f"{len(shape)}d-{'first' if turn == 0 else 'second'}"
            why = f"{len(shape)} dimensions, all predictors in turn"
            yield _smooth(name, why, Field(shape, predictors, seed=20 + len(shape)))
    why = "parts of the step from 1/256 on, two levels joined"
    field = Field((60,), [2, 3, 1], parts=[1, 256, 2, 77, 255], joined=2)
    yield _smooth("parts", why, field)
    why = "numbers of one to seven bytes and of none to seven low bits, a level each"
    forms = [(4, 4), (5, 5), (1, 1), (3, 6), (6, 0), (2, 7), (4, 0), (7, 3), (1, 2)]
    yield _smooth("forms", why, Field((200,), [1, 0], forms=forms, largest=0, step=2.0**-30), "float64")
    why = "numbers of every form of stream, a level each"
    coded = [raw, lambda run: constant(run[0]) if len(set(run)) == 1 else raw(run), *every_form()[2:]]
    numbers = [number % 4 if number & 12 == 0 else 0 for number in chance(300, 3)]
    numbers[1] = 3
    yield _smooth("streams", why, Field((300,), [1, 3], coded=coded, numbers=numbers))
    why = "a step of 10^308, whose product with 256 is not finite"
    numbers = [1, 0, 1, 0, 0]
    yield _smooth("huge-step", why, Field((5,), [1, 0], step=1e308, numbers=numbers, parts=[200]))


def _finished() -> Iterator[Frame]:
    """Yield fields with escapes, limits, offsets and references, of each type."""
    limits, offset = (-0.7, 0.9), 0.05
    marks = {1: 1, 4: 2, 6: 128, 8: 255, 15: 3}
    for flags in (2, 3, 4, 5, 7):
        why = f"a block with the flags {flags}"
        field = Field((19,), [1, 2], seed=flags)
        yield _smooth(f"flags-{flags}", why, field, flags=flags, limits=limits, offset=offset, marks=marks)
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        kind = KINDS[dtype]
        before = stored_as(np.array([0.1 * (place * 7 % 19 - 9) for place in range(19)]), dtype)
        for flags in (2, 4, 6, 7):
            why = f"a block with the flags {flags}, and a reference"
            field = Field((19,), [1, 3], seed=40 + flags)
            name = f"{dtype}-flags-{flags}"
            yield _smooth(
                name, why, field, dtype, flags=flags, before=before, limits=limits, offset=offset, marks=marks
            )
        sub = 2.0 ** ({"float16": -24, "bfloat16": -133, "float32": -149, "float64": -1074}[dtype])
        step = max(sub * 0.75, 5e-324)
        field = Field((40,), [0], step=step, origin=0.0, numbers=range(40))
        yield _smooth(f"{dtype}-subnormal", "subnormal numbers, rounded once", field, dtype)
        top = {"float16": 65504.0, "bfloat16": 3.3895313892515355e38, "float32": 3.4028234663852886e38}
        most = top.get(dtype, 1.7976931348623157e308)
        numbers = range(40) if dtype == "float64" else [z * 3 for z in range(40)]
        field = Field((40,), [0], step=most / 16, origin=0.0, numbers=numbers)
        yield _smooth(f"{dtype}-largest", "numbers up to the largest, and infinities", field, dtype)
        # Halfway between two numbers of the type, but for what binary32 does not hold.
        origin = 1 + 2.0 ** -(kind.mantissa + 1) + 2.0**-40
        field = Field((3,), [0], step=2.0**-kind.mantissa, origin=origin, numbers=[0, 2, 4])
        yield _smooth(f"{dtype}-halfway", "a little more than halfway, in binary64", field, dtype)
    why = "limits that are infinite, and equal ones"
    field = Field((19,), [1], seed=9)
    yield _smooth("upper-alone", why, field, flags=2, limits=(-math.inf, 0.4))
    yield _smooth("lower-and-upper", "two limits", field, flags=2, limits=(0.1, 0.4))
    for turn, form in enumerate(every_form()[2:]):
        name = ("huffman", "sparse", "packed", "classed")[turn]
        some = {place: 1 + place % 3 for place in range(5, 90, 6)}
        field = Field((90,), [1], seed=60 + turn)
        yield _smooth(f"mask-{name}", f"a {name} mask of escapes", field, flags=1, marks=some, mask=form)
    empties = itertools.cycle(
        [
            raw([]),
            sparse(0, 0, constant(1), b"", raw([])),
            packed(4, raw([])),
            packed(1, constant(0)),
            sparse(3, 0, packed(2, raw([])), b"", sparse(0, 0, raw([]), b"", constant(7))),
        ]
    )
    field = Field((9,), [1], seed=70)
    why = "no escapes, in streams of no symbols of several forms"
    yield _smooth(
        "escapes-of-nothing", why, field, flags=1, mask=lambda _: constant(0), coded=lambda _: next(empties)
    )


def _geometry() -> Iterator[Frame]:
    """Yield fields whose blocks are at the edges of LCC-SMO-01, and of LCC-LIM-02."""
    for log2 in (17, 22, 23, 24):
        field = Field((7, 3), [1], seed=log2)
        yield _smooth(f"block-{log2}", f"blocks of up to 2^{log2} components", field, log2=log2)

    def still(shape: tuple[int, ...], origin: float) -> bytes:
        levels = (max(shape) - 1).bit_length()
        passes = sum(extent > 1 << level for level in range(levels) for extent in shape)
        parts = b"\xff" * levels + b"\1" * passes + bytes([levels])
        return block(struct.pack("<Bdd", 0, 1.0, origin), parts, b"\x10" + constant(0))

    def blocks(name: str, why: str, shape: tuple[int, ...], inner: Sequence[tuple[int, ...]]) -> Frame:
        body = b"".join(still(one, float(place + 1)) for place, one in enumerate(inner))
        sizes = [math.prod(one) for one in inner]
        values = np.repeat(np.arange(1, len(inner) + 1, dtype="<f2"), sizes)
        body += bytes(max(0, -(-values.size // 256) - (8 + 8 * len(shape) + len(body) + 12)))
        frame = assembled(f"smooth-{name}", why, (SMOOTH, "float16", shape, 16), body, values)
        return replace(frame, stored=False)

    half = 1 << 15
    why = "rows of exactly 2^16 components, a block each"
    yield blocks("whole-rows", why, (2, 1 << 16), [(1, 1 << 16)] * 2)
    why = "two blocks, of 2^15 + 1 and of 2^15 components: the last has a level less"
    yield blocks("last-level", why, (2 * half + 1,), [(half + 1,), (half,)])
    why = "two blocks of 16 and 15 rows, where 30 would fit"
    yield blocks("even-blocks", why, (31, 2150), [(16, 2150), (15, 2150)])
    why = "one block of exactly 2^16 components"
    yield blocks("full", why, (256, 256), [(256, 256)])


# --- streams --------------------------------------------------------------------------------------


def _planes(name: str, why: str, streams: Sequence[bytes], codes: Sequence[int], dtype: str) -> Frame:
    """Return unsigned integers of these zigzag codes, without a reference."""
    kind = KINDS[dtype]
    log2 = max(10, (len(codes) - 1).bit_length())
    body = block(*streams)
    body += bytes(max(0, -(-len(codes) * kind.size // 1024) - (16 + len(body) + 12)))
    values = unzigzag(np.array(codes, kind.bits), kind.bits.type)
    head = (PLANES, dtype, (len(codes),), log2)
    return assembled(f"planes-{name}", why, head, body, _le(values, kind))


def _codes(rows: Sequence[Sequence[int]]) -> list[int]:
    """Return the codes of symbols, plane by plane."""
    return [sum(symbol << 8 * k for k, symbol in enumerate(column)) for column in zip(*rows, strict=True)]


def _streams() -> Iterator[Frame]:
    def unpacked(data: Sequence[int], width: int = 4) -> list[int]:
        return [byte >> shift & (1 << width) - 1 for byte in data for shift in range(0, 8, width)]

    few = [0, 0, 0x21, 0, 0, 0, 3, 0]
    two, one = [0, 0x30], [0x21, 0, 3, 0]
    streams, rows = [], []
    for inner, data in (
        (constant(0x21), [0x21] * 8),
        (raw(few), few),
        (huffman([1, 1], [0, 1, 1, 0, 1, 0, 0, 1], 3), [0, 1, 1, 0, 1, 0, 0, 1]),
        (sparse(0, 2, raw([2, 3]), b"", raw([0x21, 3])), few),
        (
            sparse(
                1,
                2,
                sparse(0, 2, constant(0), b"", constant(1)),
                bits_to_bytes("01"),
                sparse(0, 2, constant(0), b"", raw([9, 8])),
            ),
            [0, 0, 9, 0, 0, 0, 8, 0],
        ),
    ):
        streams.append(packed(4, inner))
        rows.append(unpacked(data))
    for inner, data in (
        (constant(0x21), [0x21] * 4),
        (huffman([1, 1], [0, 1, 1, 0], 2), [0, 1, 1, 0]),
        (sparse(0, 2, raw([0, 1]), b"", raw([0x21, 3])), one),
    ):
        streams.append(packed(4, packed(4, inner)))
        rows.append(unpacked(unpacked(data)))
    why = "every form inside packed streams, at the depths 2 and 3, a plane each"
    yield _planes("forms-inside", why, streams, _codes(rows), "uint64")
    streams, rows = [], []
    for inner, data in ((constant(0x31), [0x31] * 2), (raw(two), two), (huffman([1, 1], [1, 0], 1), [1, 0])):
        streams.append(packed(4, packed(4, packed(4, inner))))
        rows.append(unpacked(unpacked(unpacked(data))))
    row = [0] * 16
    row[1], row[2], row[5] = 7, 7, 7
    streams.append(
        sparse(0, 3, raw([1, 0, 2]), b"", sparse(0, 3, constant(0), b"", packed(4, raw([0x77, 0x07]))))
    )
    rows.append(row)
    streams.append(
        sparse(2, 3, packed(1, constant(0)), bits_to_bytes("100001"), huffman([1, 1, 0, 0][:2], [1, 0, 1], 1))
    )
    row = [0] * 16
    row[1], row[2], row[5] = 1, 0, 1
    rows.append(row)
    streams.append(sparse(4, 0, constant(0), b"", packed(4, raw([]))))
    rows.append([0] * 16)
    streams.append(sparse(0, 0, packed(2, constant(9)), b"", sparse(0, 0, raw([]), b"", raw([]))))
    rows.append([0] * 16)
    streams.append(sparse(0, 3, huffman([1, 1, 0][:2], [1, 0, 1], 1), b"", raw([4, 5, 6])))
    row = [0] * 16
    row[1], row[2], row[4] = 4, 5, 6
    rows.append(row)
    why = "forms at depth 4, and as gaps and values; streams of no symbols"
    yield _planes("forms-deep", why, streams, _codes(rows), "uint64")

    symbols = [0] * 200 + [1] * 9 + [2] * 3 + [3] * 200
    streams, lengths = [], [1, 2, 3, 3]
    for width in (5, 6, 7, 4):
        streams.append(
            huffman(lengths, symbols, 3, max(width, 5)) if width != 4 else huffman(lengths, symbols, 9, 6)
        )
    wide = [
        huffman(lengths, symbols, 4, 5),
        huffman(lengths, symbols, 2, 6),
        huffman(lengths, symbols, 3, 7),
        huffman(lengths, symbols, 40, 8),
    ]
    yield _planes(
        "huffman-widths",
        "excess sizes of 5, 6, 7 and 8 bits, a plane each",
        wide,
        _codes([symbols] * 4),
        "uint32",
    )
    del streams
    symbols = [place * place % 5 % 3 for place in range(2500)]
    stream = huffman([1, 2, 2], symbols, 1100)
    yield _planes("huffman-1100-lanes", "1,100 lanes", [stream], symbols, "uint8")
    narrow = [huffman([1, 2, 2], symbols, 20, width) for width in (1, 2, 3, 4)]
    skewed = [symbols[place] if place % 20 else 0 for place in range(2500)]
    narrow = [huffman([1, 2, 2], skewed, 20, width) for width in (5, 6, 7, 8)]
    yield _planes(
        "huffman-many-widths",
        "lanes of other lengths, a plane for each width",
        narrow,
        _codes([skewed] * 4),
        "uint32",
    )
    mild = [0 if place % 4 == 0 else 1 + place % 2 for place in range(60)]
    slight = [huffman([1, 2, 2], mild, 4, 4), huffman([1, 2, 2], mild, 1, 3)]
    yield _planes(
        "huffman-few-widths",
        "excess sizes of 3 and 4 bits, one of a single lane",
        slight,
        _codes([mild] * 2),
        "uint16",
    )
    stream = struct.pack("<BHBBI", 5, 1, 2, 1, 4352) + constant(0) * 2 + constant(1) * 2
    yield replace(
        _planes("classed-most", "256 symbols for each of 17 bytes", [stream], [1] * 4352, "uint8"),
        stored=False,
    )
    stream = struct.pack("<BHBBI", 5, 1, 2, 1, 65_535) + constant(0) * 4
    frame = _planes("classed-nothing", "65,535 zeros in 17 bytes", [stream], [0] * 65_535, "uint8")
    yield replace(frame, stored=False)
    columns = [place % 3 for place in range(1100)]
    stream = classed(1100, [1, 2], ([0, 1, 0], columns), [place % 7 for place in range(3300)], raw)
    stream = struct.pack("<BHB", 5, 1100, 3) + stream[4:]
    values = [place % 7 for place in range(3300)]
    frame = _planes("classed-columns", "1,100 columns", [stream], values, "uint8")
    yield replace(frame, stored=False)
    # A second block, of a classed stream; and of sparse ones with each number of low bits.
    values = [0] * 1024 + [place % 5 for place in range(90)]
    levels = ([0, 1, 2], [place % 2 for place in range(30)])
    body = block(constant(0)) + block(classed(30, [1, 2], levels, values[1024:], raw))
    head = (PLANES, "uint8", (len(values),), 10)
    yield assembled(
        "planes-classed-second", "a classed stream in the second block", head, body, unzigzag(values)
    )
    streams, rows = [], []
    for low in range(1, 9):
        row = [0] * 700
        gaps, place = [low, 0, 2 * low, 5], -1
        for gap in gaps:
            place += gap + 1
            row[place] = low
        rows.append(row)
        high, rest = [gap >> low for gap in gaps], [gap & (1 << low) - 1 for gap in gaps]
        bits = bits_to_bytes("".join(format(one, f"0{low}b")[::-1] for one in rest))
        streams.append(sparse(low, 4, raw(high), bits, constant(low)))
    frame = _planes(
        "sparse-widths", "gaps of one to eight low bits, a plane each", streams, _codes(rows), "uint64"
    )
    yield replace(frame, stored=False)
    levels = ([0, 2, 1], [1, 0, 2, 0])
    values = [place % 6 for place in range(12)]
    streams = [classed(4, [1, 3], levels, values, raw) for _ in range(4)]
    yield _planes("classed-planes", "a classed stream in each plane", streams, _codes([values] * 4), "uint32")


def _splits() -> Iterator[Frame]:
    """Yield split streams of two and three parts, of each size of a component and in each plane."""
    for name in ("uint8", "uint16", "float32", "float64"):
        kind = KINDS[name]
        top, one = 1 << (8 * kind.size - 1), 1 << (8 * kind.size - 4)
        before = [
            0,
            1,
            top,
            top | 1,
            one - 1,
            one,
            one + 1,
            top | one,
            2 * one,
            2 * one - 1,
            3 * one,
            top - 1,
        ]
        rows, streams = [], []
        for plane in range(kind.size):
            row = [(3 * place + plane) % 4 for place in range(len(before))]
            bounds = [[1, one, 2 * one], [one, 3 * one], [2 * one]][plane % 3]
            rows.append(row)
            streams.append(split(bounds, before, row, kind, [raw] * (len(bounds) + 1)))
        if kind.size == 1:
            streams = [split([1, one, 2 * one], before, rows[0], kind, [raw] * 4)]
        after = moved(before, _codes(rows), kind)
        head = (PLANES, name, (len(before),), 10)
        why = "three parts, two and one in turn, in each plane"
        yield assembled(f"planes-{name}-parts", why, head, block(*streams), after, _bits(before, kind))
    before, row = [0, 1, 2, 130, 64, 7], [1, 2, 3, 1, 2, 3]
    kind = KINDS["uint8"]
    stream = split([2, 64], before, row, kind, [raw] * 3)
    after = moved(before, row, kind)
    why = "two parts, the size of a component is its low bits"
    yield assembled(
        "planes-uint8-two-parts", why, (PLANES, "uint8", (6,), 10), block(stream), after, _bits(before, kind)
    )


# --- heads ----------------------------------------------------------------------------------------


def _shapes() -> Iterator[Frame]:
    """Yield runs and shapes that are rare."""
    for name in ("complex64", "complex128", "bfloat16", "float64", "bool", "uint8", "int64"):
        kind = KINDS[name]
        shapes: list[tuple[int, ...]] = [(2, 1), (0, 3), (3,), (1,) * 32]
        count = 6 * kind.components
        patterns = (
            [place % 2 for place in range(count)]
            if name == "bool"
            else [p % (1 << 8 * kind.size) for p in chance(count, kind.code)]
        )
        bits = _bits(patterns, kind)
        data = assembled(
            f"run-{name}-raw",
            "an empty array, and one of 32 dimensions",
            (RAW, name, shapes, 0),
            bits.tobytes(),
            bits,
        )
        yield data
        codes = [(place * 5) % 4 for place in range(count)] if name != "bool" else [0] * count
        body = block(raw(codes), *[constant(0)] * (kind.size - 1))
        after = moved(patterns, codes, kind)
        yield assembled(
            f"run-{name}-planes", "the same, with a reference", (PLANES, name, shapes, 10), body, after, bits
        )
        if kind.is_float:
            book = struct.pack("<4H", 1, 2, 0, 1) + _bits(edge_patterns(kind)[10:14], kind).tobytes()
            owners = [0] * 2 * kind.components + [2] * 3 * kind.components + [3] * kind.components
            symbols = [0 if owner == 2 else place % 2 for place, owner in enumerate(owners)]
            chosen = {0: 0, 3: 3}
            values = [
                edge_patterns(kind)[10 + chosen[owner]] if s else 0
                for s, owner in zip(symbols, owners, strict=True)
            ]
            yield assembled(
                f"run-{name}-codebook",
                "an empty array with two representatives, one without any",
                (CODEBOOK, name, shapes, 10),
                book + block(b"\0", raw(symbols)),
                _bits(values, kind),
            )
    values = np.arange(3, dtype="<f4")
    yield assembled("run-raw-one", "a run of one array", (RAW, "float32", [(3,)], 0), little(values), values)
    none = np.zeros(0, "<f4")
    yield assembled(
        "run-raw-empty", "two arrays without elements", (RAW, "float32", [(0,), (2, 0)], 0), b"", none
    )
    yield assembled("run-planes-empty", "the same", (PLANES, "float32", [(0,), (2, 0)], 10), b"", none, none)
    head = (CODEBOOK, "float32", [(0,), (2, 0)], 10)
    yield assembled("run-codebook-empty", "the same", head, struct.pack("<2Hf", 0, 1, 1.5), none)
    zeros = np.zeros(3, "<f4")
    body = block(*[constant(0)] * 4)
    yield assembled("run-planes-one", "a run of one array", (PLANES, "float32", [(3,)], 10), body, zeros)
    body = struct.pack("<Hf", 1, 0.5) + block(b"\0", raw([1, 0, 1]))
    head = (CODEBOOK, "float32", [(3,)], 10)
    yield assembled("run-codebook-one", "a run of one array", head, body, np.array([0.5, 0, 0.5], "<f4"))
    shapes = [(700,), (1, 800)]
    values = np.repeat(np.array([4, 5], "<u1"), [1024, 476])
    body = block(constant(8)) + block(constant(10))
    values = unzigzag(np.repeat(np.array([8, 10], np.uint8), [1024, 476]))
    yield assembled(
        "run-planes-blocks", "two blocks, and two arrays", (PLANES, "uint8", shapes, 10), body, values
    )
    book = struct.pack("<2H3f", 2, 1, 0.5, 1.5, 2.5)
    symbols = [place % 3 for place in range(700)] + [place % 2 for place in range(800)]
    table = {0: [0, 0.5, 1.5], 1: [0, 2.5]}
    values = np.array([table[place >= 700][symbol] for place, symbol in enumerate(symbols)], "<f4")
    parts = [
        block(b"\0", packed(2, raw(packed_symbols(part, 2)))) for part in (symbols[:1024], symbols[1024:])
    ]
    head = (CODEBOOK, "float32", shapes, 10)
    frame = assembled(
        "run-codebook-blocks", "two blocks, and two arrays", head, book + b"".join(parts), values
    )
    yield replace(frame, stored=False)
    for dimensions in (5, 32):
        shape = (2, 1, 3) + (1,) * (dimensions - 3)
        values = np.arange(6, dtype="<f4")
        yield assembled(
            f"raw-{dimensions}-dimensions",
            "many dimensions",
            (RAW, "float32", shape, 0),
            little(values),
            values,
        )
        zeros = np.zeros(6, "<f4")
        body = block(*[constant(0)] * 4)
        yield assembled(
            f"planes-{dimensions}-dimensions", "many dimensions", (PLANES, "float32", shape, 10), body, zeros
        )
        body = struct.pack("<Hf", 1, 0.5) + block(b"\0", raw([1, 0, 1, 0, 0, 1]))
        half = np.array([0.5, 0, 0.5, 0, 0, 0.5], "<f4")
        yield assembled(
            f"codebook-{dimensions}-dimensions",
            "many dimensions",
            (CODEBOOK, "float32", shape, 10),
            body,
            half,
        )
    yield assembled("planes-empty", "no elements, no reference", (PLANES, "float32", (0,), 10), b"", none)


def _needless() -> Iterator[Frame]:
    """Yield frames that come with a reference which they do not need (LCC-FRM-04)."""
    other = np.array([7.0, 8.0, -1.0, np.inf], "<f4").tobytes()
    values = np.array([0.5, 0, -2, 0.5], "<f4")
    why = "it comes with a reference that it does not need"
    raws = assembled("raw-needless", why, (RAW, "float32", (4,), 0), little(values), values)
    body = struct.pack("<H2f", 2, 0.5, -2.0) + block(b"\0", raw([1, 0, 2, 1]))
    books = assembled("codebook-needless", why, (CODEBOOK, "float32", (4,), 10), body, values)
    twos = np.full(4, 2, "<u4").view("<f4")
    planes = assembled(
        "planes-needless", why, (PLANES, "float32", (4,), 10), block(constant(4), *[constant(0)] * 3), twos
    )
    yield from (replace(frame, reference=other) for frame in (raws, books, planes))
    field = _smooth("needless", why, Field((4,), [1]), "float32")
    yield replace(field, reference=other)
    wrong = assembled(
        "planes-needless-type",
        "the same, of another size",
        (PLANES, "uint8", (4,), 10),
        block(constant(4)),
        np.full(4, 2, "<u1"),
    )
    yield replace(wrong, reference=b"\1\2\3")


# --- faults ---------------------------------------------------------------------------------------


def broken_traps() -> Iterator[Broken]:
    """Yield invalid frames that decoders read which are wrong in one place."""

    def case(rule: str, name: str, error: str, why: str, frame: Frame, sound: Frame) -> Broken:
        return Broken(rule, name, error, why, frame.data, sound.data, frame.reference)

    def plane(stream: bytes, symbols: Sequence[int]) -> Frame:
        return _planes("", "", [stream], symbols, "uint8")

    limit = "LimitError"
    zeros = [sparse(0, count, constant(0), b"", constant(0)) for count in (2561, 2560)]
    why = "2,561 gaps in a stream of 10 bytes, whose values are 0"
    frames = [plane(stream, [0] * 2561) for stream in zeros]
    yield case("LCC-LIM-14", "gaps-of-zeros", limit, why, *frames)
    why = "2,561 gaps in a stream of 10 bytes, inside a packed one"
    frames = [plane(packed(4, stream), [0] * 5122) for stream in zeros]
    yield case("LCC-LIM-14", "gaps-inside", limit, why, *frames)
    why = "4,353 symbols that are not 0 in a classed stream of 17 bytes"
    streams = [
        struct.pack("<BHBBI", 5, 1, 2, 1, count) + constant(0) * 2 + constant(1) * 2 for count in (4353, 4352)
    ]
    frames = [plane(stream, [1] * count) for stream, count in zip(streams, (4353, 4352), strict=True)]
    yield case("LCC-LIM-14", "classed", limit, why, *frames)
    # LCC-LIM-14 before the cells behind the last.
    stream = struct.pack("<BHBBI", 5, 2, 2, 1, 4354) + constant(0) * 2 + constant(1) * 2
    sound = struct.pack("<BHBBI", 5, 2, 2, 1, 4352) + constant(0) * 2 + constant(1) * 2
    why = "4,354 cells that are not 0 in a stream of 17 bytes; the last is behind the symbols"
    yield case(
        "LCC-LIM-14", "before-the-cells", limit, why, plane(stream, [1] * 4353), plane(sound, [1] * 4352)
    )
    far = sparse(0, 2561, constant(1), b"", constant(1))
    near = sparse(0, 2560, constant(0), b"", constant(1))
    why = "2,561 gaps in a stream of 10 bytes go past the end"
    frames = [plane(far, [1] * 2561), plane(near, [1] * 2560 + [0])]
    yield case("LCC-STR-06", "before-the-limit", "FormatError", why, *frames)
    far, near = (
        sparse(0, 1, raw([gap]), b"", values) for gap, values in ((30, bytes([7, 0])), (29, raw([5])))
    )
    why = "a gap goes past the end, and the values have an unknown form"
    frames = [plane(stream, [0] * 29 + [5]) for stream in (far, near)]
    yield case("LCC-STR-06", "before-the-values", "FormatError", why, *frames)
    same = np.zeros(2000, "<u1")
    for name, count, why in (
        ("together", 2000, "2,000 symbols of a part and 2,000 of the rest are not 0, for 11 bytes"),
        ("before-the-reference", 1999, "more symbols are not 0 than may be, and the reference is another"),
    ):
        frames = []
        for symbol in (1, 0):
            stream = struct.pack("<BBBI", 6, 1, 1, count) + constant(1) + constant(symbol)
            after = np.full(2000, 255, "<u1")
            frames.append(assembled("", "", (PLANES, "uint8", (2000,), 11), block(stream), after, same))
        good = frames[1] if name == "together" else None
        yield Broken(
            "LCC-LIM-14",
            f"split-{name}",
            limit,
            why,
            frames[0].data,
            good and good.data,
            frames[0].reference,
        )
    deep = packed(4, packed(4, packed(4, sparse(0, 1, raw([0]), b"", raw([1])))))
    fine = packed(4, packed(4, packed(4, raw([1]))))
    symbols = [1, 0] + [0] * 6
    why = "a sparse stream is four deep, and its gaps are five"
    yield case("LCC-STR-03", "gaps", "LimitError", why, plane(deep, symbols), plane(fine, symbols))
    for name, rows, columns in (("rows", True, False), ("columns", False, True)):
        levels = [raw([0, 1]), raw([0, 1])]
        nest = packed(4, packed(4, packed(4, raw([0]))))
        low = packed(4, packed(4, raw([0])))
        head = struct.pack("<BHBBI", 5, 2, 2, 1, 4)
        parts = [constant(0) * 0 + (nest if rows else raw([0, 0])), nest if columns else raw([0, 0])]
        good = [low if rows else raw([0, 0]), low if columns else raw([0, 0])]
        cells = raw([1, 2, 3, 4]) + raw([])
        why = f"the levels of the {name} of a classed stream are five deep"
        bad, right = (plane(head + b"".join(one) + cells, [1, 2, 3, 4]) for one in (parts, good))
        yield case("LCC-STR-03", f"levels-of-{name}", "LimitError", why, bad, right)
        del levels
    kind, before = KINDS["uint8"], [0, 1, 2, 3]
    nests = [packed(4, packed(4, packed(4, raw([0])))), packed(4, packed(4, raw([0])))]
    streams = [split([2], before, [0] * 4, kind, [lambda _, inner=inner: inner, raw]) for inner in nests]
    frames = [
        assembled(
            "",
            "",
            (PLANES, "uint8", (4,), 10),
            block(stream),
            np.array(before, "<u1"),
            np.array(before, "<u1"),
        )
        for stream in streams
    ]
    yield case("LCC-STR-03", "part", "LimitError", "a part of a split stream is five deep", *frames)
    sizes = _planes("", "", [constant(0)], [0] * 4, "uint8")
    for count in (0, 2):
        frame = assembled("", "", (PLANES, "uint8", (4,), 10), b"\2\0"[:count], np.zeros(4, "<u1"))
        why = f"{count} bytes are left for the size of a block before the last 12"
        yield case("LCC-FRM-02", f"size-{count}", "TruncatedError", why, frame, sizes)
    long = assembled("", "", (PLANES, "float32", (1 << 20,), 22), b"", np.zeros(0, "<f4")).data
    why = "the CRC-32 does not match, and 36 bytes declare 2^20 numbers"
    yield Broken("LCC-FRM-08", "before-the-limit", "ChecksumError", why, long[:-1] + bytes([long[-1] ^ 1]))
    same = np.zeros(1030, "<u1")
    head = (PLANES, "uint8", same.shape, 10)
    frames = [
        assembled("", "", head, block(constant(0), extra) + block(second), same)
        for extra, second in ((b"\0", bytes([7, 0])), (b"", constant(0)))
    ]
    why = "the first block has a byte too many, and the second an unknown form"
    yield case("LCC-FRM-07", "first-block", "FormatError", why, *frames)
    # A field.
    field = Field((5,), [1])
    sound = _smooth("", "", field, flags=4, offset=0.5)
    for name, offset in (("infinite", math.inf), ("minus-infinite", -math.inf)):
        data = _smooth("", "", field, flags=4, offset=offset)
        yield case("LCC-SMO-02", f"offset-{name}", "FormatError", f"the offset is {offset}", data, sound)
    for name, limits in (("upper-nan", (0.0, math.nan)), ("both-nan", (math.nan, math.nan))):
        data = _smooth("", "", field, flags=2, limits=limits)
        good = _smooth("", "", field, flags=2, limits=(0.0, 1.0))
        yield case(
            "LCC-SMO-02",
            f"limits-{name}",
            "FormatError",
            f"limits from {limits[0]} to {limits[1]}",
            data,
            good,
        )
    origin = Field((5,), [1], origin=math.nan)
    yield case(
        "LCC-SMO-02",
        "origin-nan",
        "FormatError",
        "the origin is a NaN",
        _smooth("", "", origin),
        _smooth("", "", field),
    )
    large, right = (_smooth("", "", field, log2=log2) for log2 in (25, 24))
    yield case("LCC-LIM-02", "smooth-25", limit, "blocks of 2^25 components", large, right)
    same, levels = np.zeros(83 * 256 + 1, "<f2"), b"\xff" * 15 + b"\1" * 15 + b"\x0f"
    body = block(struct.pack("<Bdd", 0, 1.0, 0.0), levels, b"\x10" + constant(0))
    long = assembled("", "", (SMOOTH, "float16", same.shape, 16), body, same, same)
    why = "83 bytes declare 21,249 components, with a reference"
    yield Broken("LCC-LIM-12", "with-a-reference", limit, why, long.data, None, long.reference)
    values: Any = np.zeros(3, "<f4")
    good = assembled("", "", (PLANES, "float32", (3,), 10), block(*[constant(0)] * 4), values, values)
    bad = assembled("", "", (PLANES, "float32", (3,), 10), block(*[constant(0)] * 4) + b"\0", values, values)
    yield case(
        "LCC-FRM-07", "padding-relative", "FormatError", "a byte of padding, with a reference", bad, good
    )
