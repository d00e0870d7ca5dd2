"""Components to frames: the encoder's half, block by block. Source: SPEC 6, 7.6 and 7.7."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

import numpy as np

from ..byteorder import stored_bytes
from ..constants import MAX_EXPANSION, METHOD_CODEBOOK, METHOD_PLANES, METHOD_RAW
from ..element_types import Array, ElementType, octaves, ordered_steps, unwork, work
from ..entropy.classes import row_length
from ..entropy.forms import Sparse
from ..entropy.stream_writer import Piece
from ..errors import ArgumentError
from ..parallel import ordered
from ..quantizers.residual import PIECE, Residual, difference
from ..quantizers.signs import has_negative, negative, spoiled
from ..quantizers.uniform import Partition, Quantizer
from . import codebook as codebooks
from . import planes
from .checksum import SUM_MASK, array_sum
from .codebook import Codebook, reconstruct
from .header import FrameHeader, Shape

__all__ = ["TAIL", "Effort", "check_effort", "encode_components", "padding", "part_of"]

#: How hard the encoder tries: ``"high"`` codes symbols by the class of their row and column.
Effort: TypeAlias = Literal["normal", "high"]
_EFFORTS: Final = ("normal", "high")

TAIL: Final = struct.Struct("<QI")
_BLOCK_LOG2: Final = 22  # an encoder's choice: enough symbols for many lanes, little to hold at once
_TOGETHER: Final = 256  # arrays of a run handled at a time, each with tables of its own
_NOWHERE: Final = np.zeros(0, np.int64)


def check_effort(effort: object) -> None:
    """Raise ``ArgumentError`` for what is no effort."""
    if not isinstance(effort, str) or effort not in _EFFORTS:
        raise ArgumentError(f"unknown effort {effort!r}; there are {', '.join(_EFFORTS)}")


def part_of(bits: Array | None, part: slice) -> Array | None:
    """Return a part of components that may not be there."""
    return None if bits is None else bits[part]


def encode_components(
    bits: Array,
    kind: ElementType,
    shapes: Sequence[Shape],
    quantizer: Quantizer,
    reference: Array | None,
    out: Array | None = None,
    *,
    run: bool = False,
    effort: Effort = "normal",
    threads: int = 1,
) -> Iterator[bytes]:
    """Code components as a frame, yielded block by block, so that no frame need be held whole.

    What the frame decodes to is written into `out`, which may be `reference`, as it goes on. With
    `run`, the components are those of several arrays, none of them empty, together at most 2**22.
    `effort` is described in :func:`lccodec.encode`.

    The components of one array may change meanwhile: whatever is stored of a component, and written into
    `out`, is computed from one copy of it. Those of a run have to hold still; they are a copy already.
    """
    crc = 0
    for piece in _write_frame(bits, kind, shapes, quantizer, reference, out, run, effort, threads):
        crc = zlib.crc32(piece, crc)
        yield piece
    yield struct.pack("<I", crc)


def _write_frame(
    bits: Array,
    kind: ElementType,
    shapes: Sequence[Shape],
    quantizer: Quantizer,
    reference: Array | None,
    out: Array | None,
    run: bool,
    effort: Effort,
    threads: int,
) -> Iterator[bytes]:
    """Yield all of a frame but its CRC-32."""
    relative = reference is not None
    header = FrameHeader(METHOD_PLANES, kind, relative, tuple(shapes), _BLOCK_LOG2, run)
    lossy = kind.is_float and bits.size > 0
    steps = quantizer.ordered and relative  # an ordered frame needs a reference
    residual = Residual(bits, reference, kind, steps)
    partition = quantizer.fit(residual) if lossy and not run else None
    coded = _quantize_run(bits, reference, header, quantizer, out) if lossy and run else None
    book = None
    codebook = b""
    # Steps of the logarithm lead from positive numbers to positive numbers.
    signed = partition is None or quantizer.ordered or has_negative(bits, kind)
    if partition is not None:
        header = replace(header, method=METHOD_CODEBOOK, ordered=steps)
        book = Codebook(_patterns(partition.representatives, header), kind, relative, header.ordered)
        codebook = struct.pack("<H", book.representatives.size) + stored_bytes(book.representatives)
    elif coded is not None:
        header = replace(header, method=METHOD_CODEBOOK, ordered=steps)
        codebook = coded.codebook
    head = header.to_bytes() + codebook
    columns = row_length(shapes[0], kind.components) if effort == "high" and not run else 0

    def write_block(start: int) -> tuple[bytes, int]:
        part = slice(start, start + (1 << _BLOCK_LOG2))
        base, target = part_of(reference, part), part_of(out, part)
        if partition is not None and book is not None:
            pieces, block_sum = _quantize_block(residual, part, partition, book, out, columns, signed)
        elif coded is not None:
            pieces, block_sum = coded.pieces, coded.checksum
        else:
            pieces, block_sum = _write_planes(bits[part], base, target, kind, start)
        return b"".join(pieces), block_sum

    length = checksum = 0
    for block, block_sum in ordered(write_block, range(0, bits.size, 1 << _BLOCK_LOG2), threads):
        checksum += block_sum
        if header.method == METHOD_PLANES and length == 0 and bits.nbytes <= len(block) + 4:
            own = bits.copy()  # read once: it is stored, decoded and summed up
            if out is not None:
                out[:] = own
            checksum = array_sum(own)
            yield replace(header, method=METHOD_RAW, relative=False, block_log2=0).to_bytes()
            yield stored_bytes(own)
            break
        yield head + struct.pack("<I", len(block))
        yield block
        length += len(head) + 4 + len(block)
        head = b""
    else:
        yield head  # of an array without blocks
        length += len(head)
        if not relative:
            yield bytes(padding(header.nbytes, length + TAIL.size))
    yield struct.pack("<Q", checksum & SUM_MASK)


def _write_planes(
    bits: Array, reference: Array | None, out: Array | None, kind: ElementType, first: int
) -> tuple[list[Piece], int]:
    """Return the pieces of a block stored exactly, and its part of the array sum.

    Parameters
    ----------
    bits, reference, out
        Components of the block; those that were read are written into `out`.
    first
        Place of the block in the array.
    """
    block_sum = 0

    def taken(start: int, own: Array) -> None:
        nonlocal block_sum
        block_sum += array_sum(own, (first + start) * kind.size // 8)
        if out is not None:
            out[start : start + own.size] = own

    return planes.write_block(bits, reference, kind, taken), block_sum


def _patterns(representatives: Array, header: FrameHeader) -> Array:
    """Return representatives as components; one past the largest number, of an empty bin, is that."""
    kind = header.kind
    if header.ordered:
        return ordered_steps(representatives, kind)
    patterns = unwork(representatives, kind)
    sign = kind.bits.type(1 << (8 * kind.size - 1))
    largest = kind.bits.type(int(sign) - (1 << kind.mantissa) - 1)
    finite: Array = (patterns & sign) | np.minimum(patterns & ~sign, largest)
    return finite


@dataclass(frozen=True)
class _Run:
    """What a run was coded to: its codebook, the pieces of its one block, and the array sum."""

    codebook: bytes
    pieces: list[Piece]
    checksum: int


def _quantize_run(
    bits: Array, reference: Array | None, header: FrameHeader, quantizer: Quantizer, out: Array | None
) -> _Run | None:
    """Do for a whole run what :func:`_quantize_block` does for a block; ``None`` to store it exactly."""
    if quantizer.ordered and reference is None:
        return None
    all_sizes = np.array(header.sizes)
    header = replace(header, ordered=quantizer.ordered)
    kind = header.kind
    decoded = np.empty_like(bits) if out is None else out
    symbols = np.empty(bits.size, np.uint8)
    counts, patterns, escapes = [], [], []
    for sizes, part in _stretches(all_sizes):
        original, base, result = bits[part], part_of(reference, part), decoded[part]
        d = difference(original, base, kind, quantizer.ordered)
        kept = np.isfinite(d)
        if not kept.all():
            d = np.where(kept, d, d.dtype.type(0))
        fitted = quantizer.fit_run(d, sizes, kind)
        if fitted is None:
            return None
        counts.append(fitted.counts)
        patterns.append(_patterns(fitted.representatives, header))
        book = Codebook(patterns[-1], kind, header.relative, header.ordered)
        reconstruct(book.expand(fitted.entries), base, kind, result)
        kept &= np.isfinite(work(result, kind))
        if fitted.outside is not None:
            kept &= ~fitted.outside
        if fitted.max_error is not None:
            kept &= _within_bound(original, result, fitted.max_error, kind, header.ordered)
        if not header.ordered:
            unsigned = ~np.logical_or.reduceat(negative(original, kind), np.cumsum(sizes) - sizes)
            if unsigned.any():
                kept &= ~(np.repeat(unsigned, sizes) & spoiled(result, original, kind))
        if not kept.all():
            escape = np.flatnonzero(~kept)
            result[escape] = original[escape]
            escapes.append(escape + part.start)
        symbols[part] = fitted.symbols
    escape = np.concatenate([np.zeros(0, np.int64), *escapes])
    symbols[escape] = 0
    codebook = stored_bytes(np.concatenate(counts).astype(np.uint16)) + stored_bytes(np.concatenate(patterns))
    return _Run(codebook, codebooks.write_block(symbols, escape, bits[escape], bits.size), array_sum(decoded))


def _stretches(sizes: Array) -> Iterator[tuple[Array, slice]]:
    """Yield the sizes of some arrays of a run at a time, and where they lie: what stays in the cache."""
    ends = np.cumsum(sizes)
    first = start = 0
    while first < sizes.size:
        last = int(np.searchsorted(ends, start + PIECE, "right"))
        last = min(max(last, first + 1), first + _TOGETHER)
        stop = int(ends[last - 1])
        yield sizes[first:last], slice(start, stop)
        first, start = last, stop


def padding(decoded: int, length: int) -> int:
    """Zero bytes that keep a frame without a reference inside the expansion limit (LCC-LIM-03)."""
    return max(0, -(-decoded // MAX_EXPANSION) - length)


def _quantize_block(
    residual: Residual,
    block: slice,
    partition: Partition,
    book: Codebook,
    out: Array | None,
    columns: int,
    signed: bool,
) -> tuple[list[Piece], int]:
    """Return the pieces of a block and its part of the array sum.

    What it decodes to is written into `out`, components of the whole array, if that is given. Only
    components outside the dead zone are looked at one by one: inside it the reference stays. Of an array
    that is not `signed` all are, so that none becomes negative, and what is 0 stays so.
    """
    bits = residual.bits
    places, symbols, escapes, exact = [], [], [_NOWHERE], [bits[:0]]
    checksum = 0
    for start in range(block.start, min(block.stop, bits.size), PIECE):
        part = slice(start, start + PIECE)
        original, base = bits[part], part_of(residual.reference, part)
        place, symbol, values, escaped = _quantize_piece(residual, start, partition, book)
        result = np.empty_like(original) if out is None else out[part]
        if base is None:
            result[:] = 0
        elif out is not residual.reference:
            result[:] = base
        result[place] = values
        if not signed:
            own = original.copy()
            marked = spoiled(result, own, book.kind)
            if marked.any():
                np.copyto(result, own, where=marked)
                symbol[marked.take(place)] = 0
                marked[escaped] = True
                escaped = np.flatnonzero(marked)
        if escaped.size:
            escapes.append(escaped + (start - block.start))
            exact.append(result.take(escaped))
        checksum += array_sum(result, start * book.kind.size // 8)
        places.append(place + (start - block.start))
        symbols.append(symbol)
    found = Sparse(np.concatenate(places), np.concatenate(symbols))
    count = min(block.stop, bits.size) - block.start
    pieces = codebooks.write_block(found, np.concatenate(escapes), np.concatenate(exact), count, columns)
    return pieces, checksum


def _quantize_piece(
    residual: Residual, start: int, partition: Partition, book: Codebook
) -> tuple[Array, Array, Array, Array]:
    """Return of the components of a piece that are outside the dead zone places, symbols and decoded values.

    The last of the four are the places of those that are stored exactly: they have symbol 0, and among
    the values themselves, as they were read once.
    """
    kind, part = book.kind, slice(start, start + PIECE)
    original, base = residual.bits[part], part_of(residual.reference, part)
    place, d = residual.outside(start, partition.zone)
    kept = np.isfinite(d)
    if not kept.all():
        d = np.where(kept, d, d.dtype.type(0))
    symbol, unfit = partition.symbols(d)
    if unfit is not None:
        kept &= ~unfit
    values = np.empty(d.size, original.dtype)
    before = None if base is None else base.take(place, mode="clip")
    reconstruct(book.expand(symbol), before, kind, values)
    kept &= np.isfinite(work(values, kind))  # the sum can overflow where the difference did not
    if partition.max_error is not None:
        near = original.take(place, mode="clip")
        kept &= _within_bound(near, values, partition.max_error, kind, residual.ordered)
    if kept.all():
        return place, symbol, values, _NOWHERE
    escaped = np.flatnonzero(~kept)
    symbol[escaped] = 0
    values[escaped] = original.take(place.take(escaped), mode="clip")
    return place, symbol, values, place.take(escaped)


def _within_bound(original: Array, decoded: Array, bound: float, kind: ElementType, ordered: bool) -> Array:
    """Return where the difference of two components is certain not to exceed `bound`.

    The difference is rounded to nearest; comparing it with the number just below the bound makes
    the test strict whatever the rounding did.
    """
    wide = np.promote_types(kind.work, np.float32).type
    with np.errstate(over="ignore"):
        limit = np.nextafter(wide(bound), wide(0))
    if float(limit) > bound:  # the bound itself was rounded up
        limit = np.nextafter(limit, wide(0))
    with np.errstate(all="ignore"):
        if ordered:
            return np.asarray(np.abs(octaves(decoded, original, kind)) <= limit)
        distance = np.abs(work(decoded, kind).astype(wide, copy=False) - work(original, kind))
        return np.asarray(distance <= limit)
