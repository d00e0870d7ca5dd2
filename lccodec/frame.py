"""One array <-> one self-contained byte string, with checksums: the waist of the design.

Everything below works on components (bit patterns); everything above carries frames. No I/O.

Source: SPEC 6.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, Literal

import numpy as np

from . import codebook as codebooks
from . import planes
from .bits import Cursor
from .codebook import Codebook, RunCodebook, reconstruct
from .constants import MAX_EXPANSION, METHOD_CODEBOOK, METHOD_PLANES, METHOD_RAW
from .errors import ArgumentError, ChecksumError, FormatError, LimitError, TruncatedError
from .floats import ELEMENT_TYPES, Array, ElementType, components, from_components, subtract, unwork, work
from .header import FrameHeader, Shape, parse_header
from .parallel import ordered, thread_count
from .quantize import PIECE, Partition, Quantizer
from .runs import FittedRun
from .symbols import Piece

__all__ = ["decode", "decode_components", "encode", "encode_components"]

_TAIL: Final = struct.Struct("<QI")
_BLOCK_LOG2: Final = 22  # an encoder's choice: enough symbols for many lanes, little to hold at once
_SUM_MASK: Final = (1 << 64) - 1
_ODD: Final = np.arange(1, 2 * PIECE, 2, dtype=np.uint64)


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


def _part(bits: Array | None, part: slice) -> Array | None:
    return None if bits is None else bits[part]


def encode(array: Array, quantizer: Quantizer, reference: Array | None = None, *, threads: int = 1) -> bytes:
    """Code an array as a frame.

    Parameters
    ----------
    array
        Any shape, order and byte order; a dtype of SPEC 5.2. Integers and bool are stored exactly
        whatever the quantizer.
    quantizer
        `ExponentBuckets`, `UniformDeadzone` or `Lossless`.
    reference
        Array of the same dtype and shape that :func:`decode` will be given: the parent *as decoded*.
    threads
        How many to use, 0 for one each core; the frame is the same whatever the number.

    Returns
    -------
    bytes
        The frame (SPEC 6).

    Raises
    ------
    ArgumentError
        For a dtype that cannot be stored, or a reference of another dtype or shape.

    Examples
    --------
    >>> import numpy as np, lccodec
    >>> before = np.linspace(0, 1, 1000, dtype=np.float32)
    >>> after = before + np.float32(0.01)
    >>> frame = lccodec.encode(after, lccodec.UniformDeadzone(max_error=1e-3), reference=before)
    >>> bool(abs(lccodec.decode(frame, reference=before) - after).max() <= 1e-3)
    True
    """
    array = np.asanyarray(array)
    kind, bits = components(array)
    base = None if reference is None else _reference_components(reference, kind, array.shape)
    threads = thread_count(threads)
    return b"".join(encode_components(bits, kind, [array.shape], quantizer, base, threads=threads))


def _reference_components(reference: Array, kind: ElementType, shape: tuple[int, ...]) -> Array:
    reference = np.asanyarray(reference)
    if reference.shape != shape:
        raise ArgumentError(f"the reference has shape {reference.shape}, the array {shape}")
    found, bits = components(reference)
    if found != kind:
        raise ArgumentError(f"the reference has dtype {found.name}, the array {kind.name}")
    return bits


def encode_components(
    bits: Array,
    kind: ElementType,
    shapes: Sequence[Shape],
    quantizer: Quantizer,
    reference: Array | None,
    out: Array | None = None,
    *,
    run: bool = False,
    threads: int = 1,
) -> Iterator[bytes]:
    """Code components as a frame, yielded block by block, so that no frame need be held whole.

    What the frame decodes to is written into `out`, which may be `reference`, as it goes on. With
    `run`, the components are those of several arrays, none of them empty, together at most 2**22.
    """
    crc = 0
    for piece in _write_frame(bits, kind, shapes, quantizer, reference, out, run, threads):
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
    threads: int,
) -> Iterator[bytes]:
    """Yield all of a frame but its CRC-32."""
    relative = reference is not None
    header = FrameHeader(METHOD_PLANES, kind, relative, tuple(shapes), _BLOCK_LOG2, run)
    lossy = kind.is_float and bits.size > 0
    partition = quantizer.fit(bits, reference, kind) if lossy and not run else None
    fitted = _fit_run(bits, reference, header, quantizer) if lossy and run else None
    book = None
    codebook = b""
    if partition is not None:
        header = replace(header, method=METHOD_CODEBOOK)
        book = Codebook(unwork(partition.representatives, kind), kind, relative)
        codebook = struct.pack("<H", book.representatives.size) + book.representatives.tobytes()
    elif fitted is not None:
        header = replace(header, method=METHOD_CODEBOOK)
        codebook = fitted.counts.astype("<u2").tobytes() + unwork(fitted.representatives, kind).tobytes()
    head = header.to_bytes() + codebook

    def write_block(start: int) -> tuple[bytes, int]:
        part = slice(start, start + (1 << _BLOCK_LOG2))
        base, target = _part(reference, part), _part(out, part)
        if partition is not None and book is not None:
            pieces, block_sum = _quantize_block(bits[part], base, partition, book, target, start)
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
            yield bytes(_padding(header.nbytes, length + _TAIL.size))
    yield struct.pack("<Q", checksum & _SUM_MASK)


def _fit_run(
    bits: Array, reference: Array | None, header: FrameHeader, quantizer: Quantizer
) -> FittedRun | None:
    d = subtract(bits, reference, header.kind)
    d = np.where(np.isfinite(d), d, d.dtype.type(0))
    return quantizer.fit_run(d, np.array(header.sizes), header.kind)


def _quantize_run(
    bits: Array, reference: Array | None, header: FrameHeader, fitted: FittedRun, out: Array | None
) -> tuple[list[Piece], int]:
    """Do for a whole run what :func:`_quantize_block` does for a block of an array."""
    kind = header.kind
    book = RunCodebook(
        fitted.counts, unwork(fitted.representatives, kind), np.array(header.sizes), kind, header.relative
    )
    symbols = fitted.symbols
    result = np.empty_like(bits)
    reconstruct(book.expand(symbols, slice(None)), reference, kind, result)
    value = work(result, kind)
    escape = fitted.outside | ~np.isfinite(subtract(bits, reference, kind)) | ~np.isfinite(value)
    if fitted.max_error is not None:
        escape |= ~_within_bound(work(bits, kind), value, fitted.max_error)
    symbols[escape] = 0
    result[escape] = bits[escape]
    if out is not None:
        out[:] = result
    return codebooks.write_block(symbols, escape if escape.any() else None, bits), array_sum(result)


def _padding(decoded: int, length: int) -> int:
    """Zero bytes that keep a frame without a reference inside the expansion limit (LCC-LIM-03)."""
    return max(0, -(-decoded // MAX_EXPANSION) - length)


def _quantize_block(
    bits: Array, reference: Array | None, partition: Partition, book: Codebook, out: Array | None, first: int
) -> tuple[list[Piece], int]:
    """Return the pieces of the block at component `first` and its part of the array sum.

    What they decode to is written into `out`, if it is given.
    """
    kind = book.kind
    symbols = np.empty(bits.size, np.uint16 if book.wide else np.uint8)
    escaped = np.zeros(0, bool)
    checksum = 0
    for start in range(0, bits.size, PIECE):
        part = slice(start, start + PIECE)
        base = _part(reference, part)
        d = subtract(bits[part], base, kind)
        kept = np.isfinite(d)
        if not kept.all():
            d = np.where(kept, d, d.dtype.type(0))
        symbols[part], outside = partition.symbols(d)
        if outside is not None:
            kept &= ~outside
        result = np.empty(d.size, bits.dtype)
        codebooks.apply(symbols[part], book, base, result)
        value = work(result, kind)
        kept &= np.isfinite(value)  # the sum can overflow where the difference did not
        if partition.max_error is not None:
            kept &= _within_bound(work(bits[part], kind), value, partition.max_error)
        if not kept.all():
            escape = ~kept
            symbols[part][escape] = 0
            result[escape] = bits[part][escape]
            if not escaped.size:
                escaped = np.zeros(bits.size, bool)
            escaped[part] = escape
        checksum += array_sum(result, (first + start) * kind.size // 8)
        if out is not None:
            out[part] = result
    return codebooks.write_block(symbols, escaped if escaped.size else None, bits), checksum


def _within_bound(original: Array, decoded: Array, bound: float) -> Array:
    """Return where ``|decoded - original|`` is certain not to exceed `bound`.

    The difference is rounded to nearest; comparing it with the number just below the bound makes
    the test strict whatever the rounding did.
    """
    wide = np.promote_types(original.dtype, np.float32).type
    limit = np.nextafter(wide(bound), wide(0))
    if float(limit) > bound:  # the bound itself was rounded up
        limit = np.nextafter(limit, wide(0))
    with np.errstate(all="ignore"):
        return np.asarray(np.abs(decoded.astype(wide, copy=False) - original) <= limit)


def decode(
    frame: bytes | bytearray | memoryview,
    reference: Array | None = None,
    out: Array | None = None,
    *,
    dtype: Literal["float32", "bits"] | None = None,
    threads: int = 1,
) -> Array:
    """Return the array that a frame holds.

    Parameters
    ----------
    frame
        Bytes made by :func:`encode`.
    reference
        The array the frame was coded against; ignored by a frame that needs none.
    out
        Array of the frame's dtype and shape, C-contiguous and writable, to decode into. It may be
        `reference`. Its contents are undefined if decoding fails.
    dtype
        ``"float32"`` returns a bfloat16 array as float32 (exact), ``"bits"`` as `BFLOAT16_BITS`; other
        types are not affected.
    threads
        How many to use, 0 for one each core.

    Returns
    -------
    ndarray
        Of the dtype and shape that were encoded, native byte order, C order; `out` if it was given.

    Raises
    ------
    DataError
        If the bytes break a rule of the format.
    ArgumentError
        If the reference is missing or does not match, or bfloat16 cannot be represented.
    """
    threads = thread_count(threads)
    data, header = _checked(frame)
    if header.run:
        raise ArgumentError("this frame is a run of arrays; they are read through their checkpoint")
    shape = header.shapes[0]
    base = None
    if header.relative:
        if reference is None:
            raise ArgumentError("this frame was coded against a reference; pass it as reference=")
        base = _reference_components(reference, header.kind, shape)
    if out is None:
        bits = _decode(data, header, base, None, threads=threads)
        return from_components(bits, header.kind, shape, dtype)
    if not (out.flags.c_contiguous and out.flags.writeable and out.dtype.isnative and out.shape == shape):
        raise ArgumentError(f"out must be a writable C-contiguous array of shape {shape}")
    found, target = (
        components(out) if out.dtype != np.bool_ else (ELEMENT_TYPES[0], out.reshape(-1).view(np.uint8))
    )
    if found != header.kind:
        raise ArgumentError(f"out has dtype {found.name}, the frame {header.kind.name}")
    _decode(data, header, base, target, threads=threads)
    return out


def decode_components(
    frame: bytes | bytearray | memoryview,
    reference: Array | None,
    out: Array | None = None,
    *,
    check_sum: bool = True,
    threads: int = 1,
) -> Array:
    """Return the components that a frame holds, 1-D, decoded into `out` if it is given.

    `reference` (components) must be given where the header says so, and may be `out`. The array sum
    may be left out where another frame is applied to the result: a wrong value there shows in the next sum.
    """
    data, header = _checked(frame)
    base = reference if header.relative else None
    return _decode(data, header, base, out, check_sum=check_sum, threads=threads)


def _checked(frame: bytes | bytearray | memoryview) -> tuple[memoryview, FrameHeader]:
    """Return the bytes and the header of a frame, its CRC and its limits checked."""
    data = memoryview(frame).cast("B")
    header = parse_header(data)
    if len(data) < header.size + _TAIL.size:
        raise TruncatedError("LCC-FRM-02", "frame", f"{len(data)} bytes hold no whole frame")
    if zlib.crc32(data[:-4]) != int.from_bytes(data[-4:], "little"):
        raise ChecksumError("LCC-FRM-08", "frame", "the CRC-32 does not match: bytes are damaged or missing")
    if not header.relative and header.nbytes > MAX_EXPANSION * len(data):
        raise LimitError("LCC-LIM-03", "frame", f"{len(data)} bytes declare {header.nbytes} decoded bytes")
    if header.method == METHOD_RAW and header.nbytes > len(data):
        raise TruncatedError("LCC-FRM-02", "frame", f"{header.nbytes} raw bytes in a frame of {len(data)}")
    return data, header


def _decode(
    data: memoryview,
    header: FrameHeader,
    reference: Array | None,
    out: Array | None,
    *,
    check_sum: bool = True,
    threads: int = 1,
) -> Array:
    """Decode a checked frame; all arrays are components."""
    if out is None:
        try:
            out = np.empty(header.components, header.kind.bits)
        except MemoryError as error:
            message = f"not enough memory for {header.nbytes} decoded bytes"
            raise LimitError("LCC-LIM-03", "frame", message) from error
    body = data[header.size : -_TAIL.size]
    checksum, _ = _TAIL.unpack(data[-_TAIL.size :])
    cursor = Cursor(body, "frame")
    if header.method == METHOD_RAW:
        out[:] = np.frombuffer(cursor.take(header.nbytes, "raw values"), out.dtype.newbyteorder("<"))
    else:
        _decode_blocks(cursor, header, reference, out, threads)
    padding = (
        0
        if header.relative or header.method == METHOD_RAW
        else _padding(header.nbytes, header.size + cursor.position + _TAIL.size)
    )
    if cursor.remaining != padding or any(body[cursor.position :]):
        raise FormatError("LCC-FRM-07", "frame", f"{cursor.remaining} bytes are left over")
    if header.kind.kind == "b" and int(out.max(initial=0)) > 1:
        raise FormatError("LCC-FRM-10", "frame", "a bool that is neither 0 nor 1")
    if check_sum and array_sum(out) != checksum:
        reason = (
            "the reference is not the one it was coded against"
            if header.relative
            else "decoded values differ"
        )
        raise ChecksumError("LCC-FRM-09", "frame", f"the sum of the decoded array does not match: {reason}")
    return out


def _decode_blocks(
    cursor: Cursor, header: FrameHeader, reference: Array | None, out: Array, threads: int
) -> None:
    book: Codebook | RunCodebook | None = None
    if header.method == METHOD_CODEBOOK:
        book = _read_codebook(cursor, header)

    def blocks() -> Iterator[tuple[Cursor, slice]]:
        for number, start in enumerate(range(0, out.size, 1 << header.block_log2)):
            size = cursor.integer("I", f"size of block {number}")
            block = Cursor(cursor.take(size, f"block {number}"), f"frame, block {number}")
            yield block, slice(start, start + (1 << header.block_log2))

    def read_block(item: tuple[Cursor, slice]) -> None:
        block, part = item
        target = out[part]
        base = target if reference is out else _part(reference, part)  # one object: nothing to copy
        try:
            if book is None:
                planes.read_block(block, base, header.kind, target)
            elif isinstance(book, RunCodebook):
                codebooks.read_run_block(block, book, part, base, target)
            else:
                codebooks.read_block(block, book, base, target)
        except MemoryError as error:
            raise LimitError("LCC-LIM-02", block.where, "not enough memory for a block") from error
        if block.remaining:
            raise FormatError("LCC-FRM-07", block.where, f"{block.remaining} bytes are left over")

    for _ in ordered(read_block, blocks(), threads):
        pass


def _read_codebook(cursor: Cursor, header: FrameHeader) -> Codebook | RunCodebook:
    kind, arrays = header.kind, len(header.shapes)
    counts = np.frombuffer(cursor.take(2 * arrays, "numbers of representatives"), "<u2").astype(np.int64)
    stored = cursor.take(int(counts.sum()) * kind.size, "representatives")
    representatives = np.frombuffer(stored, kind.bits.newbyteorder("<")).astype(kind.bits)
    if not np.isfinite(work(representatives, kind)).all():
        raise FormatError("LCC-CBK-02", cursor.where, "a representative that is not finite")
    if header.run:
        return RunCodebook(counts, representatives, np.array(header.sizes), kind, header.relative)
    return Codebook(representatives, kind, header.relative)
