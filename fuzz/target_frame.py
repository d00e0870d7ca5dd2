"""Invariant: decoding returns or raises a LccodecError, nothing else, in bounded time and memory.

The input is a frame. Its CRC-32 is computed anew, so that what was changed is parsed and not just
noticed, and a frame that asks for a reference is given one of its type and shape.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from outcomes import Outcomes, TooLargeError

import lccodec
from lccodec.constants import ELEMENT_TYPES, MAX_EXPANSION, METHOD_PLANES, STREAM_SPLIT, ElementType
from lccodec.element_types import Array, components, from_components, unwork, zigzag
from lccodec.entropy.stream_writer import write_stream
from lccodec.frame.content import SUM_MASK, array_sum
from lccodec.frame.decode import decode_components
from lccodec.frame.encode import Content, encode_content
from lccodec.frame.header import FrameHeader, parse_header
from lccodec.quantizers import Quantizer

#: Most decoded bytes of an input that is decoded. The format allows more; inputs beyond tell
#: nothing new.
MAX_DECODED = 1 << 20

outcomes = Outcomes()

#: Bytes worth writing over or between others: streams in streams, counts, sizes, header fields.
TOKENS = (
    *(bytes([mode, value]) for mode in range(7) for value in (0, 1, 2, 4, 255)),
    *(value.to_bytes(size, "little") for size in (2, 4, 8) for value in (0, 1, 8, 255, 256, 0xFFFF)),
    *(value.to_bytes(4, "little") for value in (1 << 15, 1 << 16, 1 << 20, 1 << 24, 0xFFFF_FFFF)),
    *(value.to_bytes(8, "little") for value in (1 << 24, 1 << 40, 1 << 63, (1 << 64) - 1)),
)


def check(data: bytes) -> None:
    """Decode an input; any exception from here is a violation of the invariant."""
    with outcomes.counted():
        decoded(sealed(data))


def decoded(frame: bytes) -> Array:
    """Return the array that a frame holds, or its components if they are of a run."""
    header = parse_header(frame)
    reference = None
    if header.nbytes > MAX_DECODED:
        if header.relative or header.nbytes <= MAX_EXPANSION * len(frame):
            raise TooLargeError
    elif header.relative:
        reference = reference_array(header.kind, header.shapes[0])
    if header.run:
        base = reference_array(header.kind, (header.components // header.kind.components,))
        return decode_components(frame, components(base)[1] if header.relative else None)
    return lccodec.decode(frame, reference, dtype="bits")


def sealed(frame: bytes) -> bytes:
    """Return a frame with its last four bytes replaced by the CRC-32 of the others (LCC-FRM-08)."""
    return frame[:-4] + zlib.crc32(frame[:-4]).to_bytes(4, "little")


def reference_array(kind: ElementType, shape: tuple[int, ...]) -> Array:
    """Return the reference of all relative frames of a type and shape: a pattern of numbers."""
    pattern = np.arange(int(np.prod(shape, dtype=np.int64)) * kind.components) * 37 % 251
    if kind.is_float:
        bits = unwork((pattern / 64 - 1).astype(kind.work), kind)
    else:
        bits = (pattern % (2 if kind.kind == "b" else 251)).astype(kind.bits)
    return from_components(bits, kind, shape, "bits")


def vectors() -> Iterator[bytes]:
    """Yield the frames among the vectors of the specification, valid or not."""
    for path in sorted((Path(__file__).parents[1] / "spec" / "vectors").rglob("*.lcf")):
        yield path.read_bytes()


def seeds() -> Iterator[bytes]:
    """Yield frames of every element type, method and stream form, with and without a reference."""
    rng = np.random.default_rng(0)
    quantizers = (
        lccodec.Lossless(),
        lccodec.ExponentBuckets(1),
        lccodec.ExponentBuckets(2),
        lccodec.ExponentBuckets(8),
        lccodec.UniformDeadzone(step=0.5),
        lccodec.UniformDeadzone(max_error=0.002),
        lccodec.LogSteps(0.5),
        lccodec.Smooth(max_error=0.01),
        lccodec.Smooth(max_error=1e-6, conserve="sum"),
    )
    for kind in ELEMENT_TYPES:
        for shape in ((), (0, 3), (5,), (40, 30), (6000,)):
            base = reference_array(kind, shape)
            size = base.size * kind.components
            for share in (0.01, 0.2, 1.0):  # of elements that differ from the reference
                change = (rng.standard_normal(size) * (rng.random(size) < share)).astype(np.float32)
                bits = _plus(base, change, kind)
                array = from_components(bits, kind, shape, "bits")
                for quantizer in quantizers if kind.is_float else quantizers[:1]:
                    for reference in (None, base):
                        yield lccodec.encode(array, quantizer, reference)
        yield from _runs(kind, quantizers if kind.is_float else quantizers[:1])
        if kind.is_float:
            yield from _classed(kind)
        yield from _split(kind)


def _runs(kind: ElementType, quantizers: Sequence[Quantizer]) -> Iterator[bytes]:
    """Yield runs of arrays of one type."""
    shapes = ((7,), (), (3, 40), (500,))
    base = components(reference_array(kind, (628,)))[1]
    rng = np.random.default_rng(1)
    bits = _plus(base, rng.standard_normal(base.size).astype(np.float32), kind)
    for quantizer in quantizers:
        for reference in (None, base):
            yield b"".join(encode_content(Content(bits, kind, shapes, reference, run=True), quantizer))


def _classed(kind: ElementType) -> Iterator[bytes]:
    """Yield frames of rows of which some change much more than others."""
    base = reference_array(kind, (50, 60))
    rng = np.random.default_rng(2)
    for share in (0.1, 0.6):
        active = np.repeat([share / 20, share], base.size * kind.components // 2)
        change = (rng.standard_normal(active.size) * (rng.random(active.size) < active)).astype(np.float32)
        array = from_components(_plus(base, change, kind), kind, base.shape, "bits")
        yield lccodec.encode(array, lccodec.UniformDeadzone(step=0.5), base, effort="high")


def _split(kind: ElementType) -> Iterator[bytes]:
    """Yield frames whose planes are split by one bound, and by three."""
    base = reference_array(kind, (600,))
    before = components(base)[1]
    moved = (np.random.default_rng(3).random(before.size) < 0.05).astype(np.float32)
    codes, top = zigzag(_plus(base, moved, kind), before, kind.is_float), 8 * kind.size - 1
    for bounds in ((1 << top - 1,), (1, 3 << top - 3, 1 << top)):
        size = before & before.dtype.type((1 << top) - 1)
        number = np.searchsorted(np.array(bounds, before.dtype), size, side="right")
        head = bytes([STREAM_SPLIT, len(bounds)])
        head += b"".join(bound.to_bytes(kind.size, "little") for bound in bounds)
        head += np.bincount(number, minlength=len(bounds))[: len(bounds)].astype("<u4").tobytes()
        content = b""
        for plane in ((codes >> (8 * place)).astype(np.uint8) for place in range(kind.size)):
            parts = [plane[number == part] for part in range(len(bounds))]
            rest = np.where(number == len(bounds), plane, 0).astype(np.uint8)
            content += head + b"".join(b"".join(write_stream(run, 2)) for run in (*parts, rest))
        frame = FrameHeader(METHOD_PLANES, kind, True, (base.shape,), 20).to_bytes()
        frame += len(content).to_bytes(4, "little") + content + bytes(8)
        out = decode_components(sealed(frame + bytes(4)), before, check_sum=False)
        yield sealed(frame[:-8] + (array_sum(out) & SUM_MASK).to_bytes(8, "little") + bytes(4))


def _plus(base: Array, change: Array, kind: ElementType) -> Array:
    """Return the components of `base` changed by about `change`, a few of them not finite."""
    changed: Array
    bits = base.reshape(-1).view(kind.bits)
    if not kind.is_float:
        changed = bits + (change * 4).astype(np.int64).astype(kind.bits)
        return changed & kind.bits.type(1) if kind.kind == "b" else changed
    values = unwork(change.astype(kind.work), kind)
    changed = np.where(change != 0, values, bits)
    changed[17::997] = kind.bits.type(~0 & ((1 << (8 * kind.size)) - 1))  # a NaN with a payload
    return changed
