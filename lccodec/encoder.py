"""Components to frames: the encoder's half, block by block. Source: SPEC 6, 7.6 and 7.7."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, Literal, TypeAlias

import numpy as np

from . import codebook as codebooks
from . import planes
from .classes import row_length
from .codebook import Codebook, RunCodebook, reconstruct
from .constants import MAX_EXPANSION, METHOD_CODEBOOK, METHOD_PLANES, METHOD_RAW
from .errors import ArgumentError
from .floats import Array, ElementType, octaves, ordered_steps, unwork, work
from .header import FrameHeader, Shape
from .parallel import ordered
from .quantize import Partition, Quantizer
from .residual import PIECE, Residual, difference
from .runs import FittedRun
from .symbols import Piece, Sparse

__all__ = ["TAIL", "Effort", "array_sum", "check_effort", "encode_components", "padding", "part_of"]

#: How hard the encoder tries: ``"high"`` codes symbols by the class of their row and column.
Effort: TypeAlias = Literal["normal", "high"]
_EFFORTS: Final = ("normal", "high")

TAIL: Final = struct.Struct("<QI")
_BLOCK_LOG2: Final = 22  # an encoder's choice: enough symbols for many lanes, little to hold at once
_SUM_MASK: Final = (1 << 64) - 1
_ODD: Final = np.arange(1, 2 * PIECE, 2, dtype=np.uint64)


def check_effort(effort: object) -> None:
    """Raise ``ArgumentError`` for what is no effort."""
    if effort not in _EFFORTS:
        raise ArgumentError(f"unknown effort {effort!r}; there are {', '.join(_EFFORTS)}")


def array_sum(bits: Array, first: int = 0) -> int:
    """Return the checksum of an array's components: the sum of ``(2 i + 1) * word_i`` mod 2**64.

    Parts of an array can be summed apart: `first` is the index of the part's first word. Words are
    the little-endian bytes of the array, eight at a time, the last one filled with zeros
    (LCC-FRM-09). It tells a wrong reference or a codec that computes differently, at the speed of
    reading memory; stored bytes have their own CRC.
    """
    data = bits.view(np.uint8)
    whole = data.size & ~7
    words = data[:whole].view("<u8")
    rest = int.from_bytes(data[whole:].tobytes(), "little")
    total = (2 * first + whole // 4 + 1) * rest
    product = np.empty(min(words.size, PIECE), np.uint64)
    for start in range(0, words.size, PIECE):
        piece = words[start : start + PIECE]
        np.multiply(piece, _ODD[: piece.size], out=product[: piece.size])
        total += int(np.add.reduce(product[: piece.size])) + 2 * (first + start) * int(np.add.reduce(piece))
    return total & _SUM_MASK


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
    residual = Residual(bits, reference, kind, quantizer.ordered)
    partition = quantizer.fit(residual) if lossy and not run else None
    fitted = _fit_run(bits, reference, header, quantizer) if lossy and run else None
    book = None
    codebook = b""
    if partition is not None:
        header = replace(header, method=METHOD_CODEBOOK, ordered=quantizer.ordered)
        book = Codebook(_patterns(partition.representatives, header), kind, relative, header.ordered)
        codebook = struct.pack("<H", book.representatives.size) + book.representatives.tobytes()
    elif fitted is not None:
        header = replace(header, method=METHOD_CODEBOOK, ordered=quantizer.ordered)
        codebook = fitted.counts.astype("<u2").tobytes() + _patterns(fitted.representatives, header).tobytes()
    head = header.to_bytes() + codebook
    columns = row_length(shapes[0], kind.components) if effort == "high" and not run else 0

    def write_block(start: int) -> tuple[bytes, int]:
        part = slice(start, start + (1 << _BLOCK_LOG2))
        base, target = part_of(reference, part), part_of(out, part)
        if partition is not None and book is not None:
            pieces, block_sum = _quantize_block(residual, part, partition, book, out, columns)
        elif fitted is not None:
            pieces, block_sum = _quantize_run(bits, reference, header, fitted, target)
        else:
            pieces = planes.write_block(bits[part], base, kind)
            block_sum = array_sum(bits[part], start * kind.size // 8)
            if target is not None:
                target[:] = bits[part]
        return b"".join(pieces), block_sum

    length = checksum = 0
    for block, block_sum in ordered(write_block, range(0, bits.size, 1 << _BLOCK_LOG2), threads):
        checksum += block_sum
        if header.method == METHOD_PLANES and length == 0 and bits.nbytes <= len(block) + 4:
            yield replace(header, method=METHOD_RAW, relative=False, block_log2=0).to_bytes() + bits.tobytes()
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
    yield struct.pack("<Q", checksum & _SUM_MASK)


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


def _fit_run(
    bits: Array, reference: Array | None, header: FrameHeader, quantizer: Quantizer
) -> FittedRun | None:
    if quantizer.ordered and reference is None:
        return None
    d = difference(bits, reference, header.kind, quantizer.ordered)
    d = np.where(np.isfinite(d), d, d.dtype.type(0))
    return quantizer.fit_run(d, np.array(header.sizes), header.kind)


def _quantize_run(
    bits: Array, reference: Array | None, header: FrameHeader, fitted: FittedRun, out: Array | None
) -> tuple[list[Piece], int]:
    """Do for a whole run what :func:`_quantize_block` does for a block of an array."""
    kind = header.kind
    patterns = _patterns(fitted.representatives, header)
    book = RunCodebook(fitted.counts, patterns, np.array(header.sizes), kind, header.relative, header.ordered)
    symbols = fitted.symbols
    result = np.empty_like(bits)
    reconstruct(book.expand(symbols, slice(None)), reference, kind, result)
    value = work(result, kind)
    d = difference(bits, reference, kind, header.ordered)
    escape = fitted.outside | ~np.isfinite(d) | ~np.isfinite(value)
    if fitted.max_error is not None:
        escape |= ~_within_bound(bits, result, fitted.max_error, kind, header.ordered)
    symbols[escape] = 0
    result[escape] = bits[escape]
    if out is not None:
        out[:] = result
    places = np.flatnonzero(symbols != 0)
    found = Sparse(places, symbols.take(places))
    return codebooks.write_block(found, np.flatnonzero(escape), bits), array_sum(result)


def padding(decoded: int, length: int) -> int:
    """Zero bytes that keep a frame without a reference inside the expansion limit (LCC-LIM-03)."""
    return max(0, -(-decoded // MAX_EXPANSION) - length)


def _quantize_block(
    residual: Residual, block: slice, partition: Partition, book: Codebook, out: Array | None, columns: int
) -> tuple[list[Piece], int]:
    """Return the pieces of a block and its part of the array sum.

    What it decodes to is written into `out`, components of the whole array, if that is given. Only
    components outside the dead zone are looked at one by one: inside it the reference stays.
    """
    kind, bits = book.kind, residual.bits
    places, symbols, escapes = [], [], [np.zeros(0, np.int64)]
    checksum = 0
    for start in range(block.start, min(block.stop, bits.size), PIECE):
        part = slice(start, start + PIECE)
        original, base = bits[part], part_of(residual.reference, part)
        place, d = residual.outside(start, partition.zone)
        kept = np.isfinite(d)
        if not kept.all():
            d = np.where(kept, d, d.dtype.type(0))
        symbol, unfit = partition.symbols(d)
        if unfit is not None:
            kept &= ~unfit
        values = np.empty(d.size, bits.dtype)
        before = None if base is None else base.take(place, mode="clip")
        reconstruct(book.expand(symbol), before, kind, values)
        numbers = work(values, kind)
        kept &= np.isfinite(numbers)  # the sum can overflow where the difference did not
        if partition.max_error is not None:
            exact = original.take(place, mode="clip")
            kept &= _within_bound(exact, values, partition.max_error, kind, residual.ordered)
        if not kept.all():
            escaped = np.flatnonzero(~kept)
            symbol[escaped] = 0
            values[escaped] = original[place[escaped]]
            escapes.append(place[escaped] + (start - block.start))
        result = np.empty_like(original) if out is None else out[part]
        if base is None:
            result[:] = 0
        elif out is not residual.reference:
            result[:] = base
        result[place] = values
        checksum += array_sum(result, start * kind.size // 8)
        places.append(place + (start - block.start))
        symbols.append(symbol)
    found = Sparse(np.concatenate(places), np.concatenate(symbols))
    return codebooks.write_block(found, np.concatenate(escapes), bits[block], columns), checksum


def _within_bound(original: Array, decoded: Array, bound: float, kind: ElementType, ordered: bool) -> Array:
    """Return where the difference of two components is certain not to exceed `bound`.

    The difference is rounded to nearest; comparing it with the number just below the bound makes
    the test strict whatever the rounding did.
    """
    wide = np.promote_types(kind.work, np.float32).type
    limit = np.nextafter(wide(bound), wide(0))
    if float(limit) > bound:  # the bound itself was rounded up
        limit = np.nextafter(limit, wide(0))
    with np.errstate(all="ignore"):
        if ordered:
            return np.asarray(np.abs(octaves(decoded, original, kind)) <= limit)
        distance = np.abs(work(decoded, kind).astype(wide, copy=False) - work(original, kind))
        return np.asarray(distance <= limit)
