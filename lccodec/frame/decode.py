"""Frames to arrays; every byte of a frame is checked. Source: SPEC 6."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Final, Literal

import numpy as np

from ..byteorder import read_numbers
from ..constants import MAX_EXPANSION, METHOD_CODEBOOK, METHOD_RAW
from ..element_types import ELEMENT_TYPES, Array, check_dtype, components, from_components, work
from ..entropy.bits import Cursor, Stored
from ..errors import ArgumentError, ChecksumError, FormatError, LimitError, TruncatedError
from ..parallel import ordered, thread_count
from . import planes
from .checksum import array_sum
from .codebook import Codebook, read_block
from .content import part_of, reference_components
from .encode import TAIL, padding
from .header import FrameHeader, parse_header

_ALIGNMENT_BYTES: Final = 64  # a cache line


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
        Bytes made by :func:`lccodec.encode`.
    reference
        The array that the frame was coded against. A frame without a reference ignores it.
    out
        Array to decode into, of the frame's dtype and shape, C-contiguous and writable. It may be
        `reference`. If it is not in native byte order, decoding makes one more copy. Its contents
        are undefined if decoding fails.
    dtype
        ``"float32"`` returns a bfloat16 array as float32 (exact), ``"bits"`` as `BFLOAT16_BITS`.
        Other types are not affected.
    threads
        Number of threads; 0 for one per core.

    Returns
    -------
    ndarray
        The decoded array, of the dtype and shape that were encoded, in native byte order and C
        order; `out` if it was given.

    Raises
    ------
    DataError
        If the bytes break a rule of the format.
    ArgumentError
        If the reference is missing or does not match, bfloat16 cannot be represented, or another
        argument is not as described above.
    """
    threads = thread_count(threads)
    check_dtype(dtype)
    try:
        data = memoryview(frame)
        data = data.cast("B") if data.nbytes else memoryview(b"")
    except TypeError as error:
        raise ArgumentError(f"a frame is bytes in one piece, not {type(frame).__name__}: {error}") from error
    header = _checked(data)
    if header.run:
        raise ArgumentError("this frame is a run of arrays; read them through their checkpoint")
    shape = header.shapes[0]
    base = None
    if header.relative:
        if reference is None:
            raise ArgumentError("this frame was coded against a reference; pass it as reference=")
        base = reference_components(reference, header.kind, shape)
    if out is None:
        bits = _decode(data, header, base, None, threads=threads)
        return from_components(bits, header.kind, shape, dtype)
    if not isinstance(out, np.ndarray) or isinstance(out, np.ma.MaskedArray):
        raise ArgumentError(f"out is a {type(out).__name__}, not a NumPy array")
    if not (out.flags.c_contiguous and out.flags.writeable and out.shape == shape):
        raise ArgumentError(f"out must be a writable C-contiguous array of shape {shape}")
    found, target = (
        components(out) if out.dtype != np.bool_ else (ELEMENT_TYPES[0], out.reshape(-1).view(np.uint8))
    )
    if found != header.kind:
        raise ArgumentError(f"out has dtype {found.name}, the frame {header.kind.name}")
    _decode(data, header, target if reference is out else base, target, threads=threads)
    if not out.dtype.isnative:  # then the components are a copy
        out.reshape(-1).view(found.bits.newbyteorder("S"))[:] = target
    return out


def decode_components(
    frame: Stored,
    reference: Array | None,
    out: Array | None = None,
    *,
    check_sum: bool = True,
    threads: int = 1,
) -> Array:
    """Return the components that a frame holds, 1-D, decoded into `out` if it is given.

    `reference` (components) may be `out`. The check of the array sum may be left out if the result
    is the reference of another frame, whose sum shows a wrong value too.
    """
    header = _checked(frame)
    base = reference if header.relative else None
    return _decode(frame, header, base, out, check_sum=check_sum, threads=threads)


def _checked(data: Stored) -> FrameHeader:
    """Return the header of a frame, after a check of its CRC and its limits."""
    header = parse_header(data, behind=TAIL.size)
    crc = 0
    for chunk in Cursor(data, "frame").chunks(len(data) - 4, "frame"):
        crc = zlib.crc32(chunk, crc)
    if crc != int.from_bytes(data[len(data) - 4 :], "little"):
        raise ChecksumError("LCC-FRM-08", "frame", "the CRC-32 does not match: bytes are damaged or missing")
    if not header.relative and header.nbytes > MAX_EXPANSION * len(data):
        raise LimitError("LCC-LIM-03", "frame", f"{len(data)} bytes declare {header.nbytes} decoded bytes")
    if header.method == METHOD_RAW and header.nbytes > len(data):
        raise TruncatedError("LCC-FRM-02", "frame", f"{header.nbytes} raw bytes in a frame of {len(data)}")
    return header


def _empty(header: FrameHeader) -> Array:
    """Return memory for the components of a frame."""
    if len(header.shapes) > 1 or header.nbytes < 1 << 16:
        return np.empty(header.components, header.kind.bits)
    # JAX takes over memory that begins at a multiple of 64 bytes. NumPy's own memory seldom does.
    memory = np.empty(header.nbytes + _ALIGNMENT_BYTES - 1, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT_BYTES
    return memory[start : start + header.nbytes].view(header.kind.bits)


def _decode(
    data: Stored,
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
            out = _empty(header)
        except MemoryError as error:
            message = f"not enough memory for {header.nbytes} decoded bytes"
            raise LimitError("LCC-LIM-03", "frame", message) from error
    cursor = Cursor(data, "frame", header.size, len(data) - TAIL.size)
    checksum, _ = TAIL.unpack(data[cursor.end :])
    filling = 0
    if header.method == METHOD_RAW:
        start = 0
        for chunk in cursor.chunks(header.nbytes, "raw values"):
            part = read_numbers(chunk, out.dtype)
            out[start : start + part.size] = part
            start += part.size
    else:
        _decode_blocks(cursor, header, reference, out, threads)
        if not header.relative:
            filling = padding(header.nbytes, cursor.position + TAIL.size)
    if cursor.remaining != filling or any(map(any, cursor.chunks(cursor.remaining, "filling"))):
        raise FormatError("LCC-FRM-07", "frame", "there are bytes after the last value")
    if header.kind.kind == "b" and int(out.max(initial=0)) > 1:
        raise FormatError("LCC-FRM-10", "frame", "a bool must be 0 or 1")
    if check_sum and array_sum(out) != checksum:
        reason = "decoded values differ"
        if header.relative:
            reason = "the reference is not the one it was coded against"
        raise ChecksumError("LCC-FRM-09", "frame", f"the sum of the decoded array does not match: {reason}")
    return out


def _decode_blocks(
    cursor: Cursor, header: FrameHeader, reference: Array | None, out: Array, threads: int
) -> None:
    book: Codebook | None = None
    if header.method == METHOD_CODEBOOK:
        book = _read_codebook(cursor, header)

    def blocks() -> Iterator[tuple[Cursor, slice]]:
        for number, start in enumerate(range(0, out.size, 1 << header.block_log2)):
            size = cursor.integer("I", f"size of block {number}")
            block = Cursor(cursor.take(size, f"block {number}"), f"frame, block {number}")
            yield block, slice(start, start + (1 << header.block_log2))

    def decode_block(item: tuple[Cursor, slice]) -> None:
        block, part = item
        target = out[part]
        base = target if reference is out else part_of(reference, part)  # one object: nothing to copy
        try:
            if book is None:
                planes.read_block(block, base, header.kind, target)
            else:
                read_block(block, book, part.start, base, target)
        except MemoryError as error:
            raise LimitError("LCC-LIM-02", block.where, "not enough memory for a block") from error
        if block.remaining:
            raise FormatError("LCC-FRM-07", block.where, f"{block.remaining} bytes are left over")

    for _ in ordered(decode_block, blocks(), threads):
        pass


def _read_codebook(cursor: Cursor, header: FrameHeader) -> Codebook:
    kind, arrays = header.kind, len(header.shapes)
    counts = read_numbers(cursor.take(2 * arrays, "numbers of representatives"), np.uint16).astype(np.int64)
    stored = cursor.take(int(counts.sum()) * kind.size, "representatives")
    representatives = read_numbers(stored, kind.bits)
    if not header.ordered and not np.isfinite(work(representatives, kind)).all():
        raise FormatError("LCC-CBK-02", cursor.where, "a representative that is not finite")
    sizes = np.array(header.sizes)
    return Codebook(counts, representatives, sizes, kind, relative=header.relative, ordered=header.ordered)
