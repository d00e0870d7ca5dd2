"""Frames whose streams are split by the size of the reference (LCC-STR-08)."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from pieces import (
    KINDS,
    PLANES,
    Frame,
    assembled,
    block,
    constant,
    huffman,
    moved,
    packed,
    packed_symbols,
    raw,
    sparse,
    split,
)

Coded = Callable[[Sequence[int]], bytes]

#: Patterns of bfloat16: zeros, subnormals, numbers, infinities, NaN.
BEFORE = [
    *(0x0000, 0x8000, 0x0001, 0x8001, 0x007F, 0x0080, 0x3F80, 0xBF80),
    *(0x3DCC, 0xBDCC, 0x3DCD, 0xBDCD, 0x7F7F, 0x7F80, 0xFF80, 0x7FC1, 0xFFFF, 0x7F81),
]
CODES = [1, 0, 2, 3, 0, 0, 1, 2, 0, 5, 0, 0, 1, 1, 2, 300, 4, 0]


def low(codes: Sequence[int]) -> list[int]:
    """Return the first bytes of codes."""
    return [code & 255 for code in codes]


def high(codes: Sequence[int]) -> list[int]:
    """Return the second bytes of codes."""
    return [code >> 8 for code in codes]


def places(run: Sequence[int]) -> bytes:
    """Return a sparse stream of few symbols whose gaps are short."""
    found = [place for place, symbol in enumerate(run) if symbol]
    gaps = [place - before - 1 for before, place in zip([-1, *found], found, strict=False)]
    return sparse(0, len(found), raw(gaps), b"", raw([run[place] for place in found]))


def split_frames() -> Iterator[Frame]:
    """Yield every frame made here."""
    kind, zeros = KINDS["bfloat16"], constant(0)
    head, reference = (PLANES, "bfloat16", (3, 6), 10), np.array(BEFORE, "<u2")
    after = moved(BEFORE, CODES, kind)

    def frame(name: str, why: str, *streams: bytes) -> Frame:
        return assembled(f"planes-split{name}", why, head, block(*streams), after, reference)

    def first(bounds: Sequence[int], *coded: Coded, left: Sequence[int] = ()) -> bytes:
        return split(bounds, BEFORE, low(CODES), kind, coded, left)

    second = places(high(CODES))
    yield frame("", "small numbers apart, both signs; raw symbols", first([0x3DCD], raw, raw), second)
    yield frame("-sparse", "few symbols in the part and in the rest", first([0x3DCD], places, places), second)
    yield frame("-sparse-in-raw", "few symbols in the part only", first([0x3DCD], places, raw), second)
    yield frame("-raw-in-sparse", "few symbols in the rest only", first([0x3DCD], raw, places), second)
    both = split([0x0100], BEFORE, high(CODES), kind, (raw, raw))
    why = "both planes, by bounds of their own"
    yield frame("-planes", why, first([0x3DCD], raw, raw), both)
    both = split([0x3DCD], BEFORE, high(CODES), kind, (raw, raw))
    yield frame("-planes-alike", "both planes, by the same bound", first([0x3DCD], raw, raw), both)
    why = "three parts, of zeros, of subnormal numbers and of small ones"
    yield frame("-3-parts", why, first([0x0001, 0x0080, 0x3F80], raw, places, raw, raw), second)
    why = "two parts, to the infinities and beyond"
    yield frame("-2-parts", why, first([0x7F80, 0x7F81], raw, raw, places), second)
    why = "parts without components, below the bound 0 and between equal sizes"
    empty = first([0, 0x0081, 0x0082], lambda _: constant(9), raw, lambda _: raw([]), raw)
    yield frame("-empty-parts", why, empty, second)
    why = "every component in parts, by bounds that no size reaches"
    yield frame("-all", why, first([0x8000, 0xFFFF], raw, lambda _: raw([]), lambda _: zeros), second)
    why = "symbols of the part in the rest: of -0.0 and of the number 0xbdcc"
    yield frame("-left", why, first([0x3DCD], places, places, left=(1, 9)), second)
    why = "the same where the rest is raw, and all symbols of the part are 0"
    yield frame("-left-raw", why, first([0x3DCD], lambda _: zeros, raw, left=range(18)), second)

    def few(run: Sequence[int]) -> bytes:
        return packed(4, raw(packed_symbols(run, 4)))

    small = [code if code < 300 else 2 for code in CODES]
    stream = split([0x3DCD], BEFORE, small, kind, (few, lambda run: huffman([1, 2, 3, 3], cut(run), 2)))
    codes = [min(code, 3) if size >= 0x3DCD else code for code, size in zip(small, sizes(), strict=True)]
    yield assembled(
        "planes-split-huffman",
        "a packed part, and a rest in a Huffman code",
        head,
        block(stream, zeros),
        moved(BEFORE, codes, kind),
        reference,
    )
    yield from _of_other_types()
    yield from _of_blocks()
    yield full(2816, 1, (1, 0))
    yield full(2816, 0, (0, 1))
    yield full(45056, 1, (0, 0))


def full(count: int, bound: int, symbols: tuple[int, int], *, longer: bool = False) -> Frame:
    """Return a frame with a split stream of eleven bytes, or of two more, for zeros of uint8.

    `symbols` are that of the part, to which all components belong if the bound is not 0, and that
    of the rest.
    """
    before = np.zeros(count, "<u1")
    part, rest = map(constant, symbols)
    if longer:
        part, rest = (part, packed(4, rest)) if bound else (packed(4, part), rest)
    stream = bytes([6, 1, bound]) + struct.pack("<I", count if bound else 0) + part + rest
    after = moved([0] * count, [max(symbols)] * count, KINDS["uint8"])
    why = f"{count:,} symbols, {max(symbols)}, for {len(stream)} bytes"
    head = (PLANES, "uint8", (count,), 16)
    return assembled(f"planes-split-{count}-{bound}", why, head, block(stream), after, before)


def cut(run: Sequence[int]) -> list[int]:
    """Return symbols of which none is above 3."""
    return [min(symbol, 3) for symbol in run]


def sizes() -> list[int]:
    """Return the sizes of the reference."""
    return [component & 0x7FFF for component in BEFORE]


def _of_other_types() -> Iterator[Frame]:
    """Yield frames of components of other lengths, of integers, and of complex numbers."""
    for name, bound in (("uint8", 5), ("int64", 1 << 40), ("float32", 0x3F800000), ("float64", 1 << 62)):
        kind = KINDS[name]
        top = 1 << (8 * kind.size - 1)
        before = [0, 1, bound - 1, bound, top, top | 1, top | bound, 2 * top - 1, top - 1, bound + 1]
        codes = [2, 0, 1, 3, 2, 5, 0, 1, 1, 4]
        streams = [split([bound], before, codes, kind, (raw, raw)), *[constant(0)] * (kind.size - 1)]
        yield assembled(
            f"planes-{name}-split",
            "patterns at the bound, and with the top bit",
            (PLANES, name, (10,), 10),
            block(*streams),
            moved(before, codes, kind),
            np.array(before, kind.bits.newbyteorder("<")),
        )
    kind = KINDS["complex64"]
    before = [0x3F800000, 0, 0x80000001, 0x40000000, 1, 0xBF800000]
    codes = [1, 2, 3, 4, 0, 6]
    stream = split([0x00800000], before, codes, kind, (raw, raw))
    yield assembled(
        "planes-complex64-split",
        "real and imaginary parts each by its own size",
        (PLANES, "complex64", (3,), 10),
        block(stream, *[constant(0)] * 3),
        moved(before, codes, kind),
        np.array(before, "<u4"),
    )


def _of_blocks() -> Iterator[Frame]:
    """Yield a frame of two blocks, each with a bound of its own, and a run of arrays."""
    kind = KINDS["float16"]
    before = [place * 29 % 31_744 for place in range(1500)]
    codes = [2 if before[place] < 3000 and place % 3 else 0 for place in range(1500)]
    blocks = []
    for bound, part in ((3000, slice(0, 1024)), (2000, slice(1024, 1500))):
        stream = split([bound], before[part], codes[part], kind, (raw, raw))
        blocks.append(block(stream, constant(0)))
    yield assembled(
        "planes-split-blocks",
        "two blocks, the last not full, each by its own bound",
        (PLANES, "float16", (1500,), 10),
        b"".join(blocks),
        moved(before, codes, kind),
        np.array(before, "<u2"),
    )
    shapes: list[tuple[int, ...]] = [(3,), (), (2, 2)]
    before, codes = [0x3C00, 0x0000, 0x8001, 0x2000, 0xA000, 0x3C00, 0x7C00, 0x0001], [2, 1, 0, 3, 2, 0, 1, 1]
    stream = split([0x2001], before, codes, kind, (raw, raw))
    yield assembled(
        "run-planes-split",
        "three arrays, split as one",
        (PLANES, "float16", shapes, 10),
        block(stream, constant(0)),
        moved(before, codes, kind),
        np.array(before, "<u2"),
    )
