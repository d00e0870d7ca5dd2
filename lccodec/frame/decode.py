"""Frames to arrays; every byte of a frame is checked. Source: SPEC 6.

`changed` tells what a frame changes of its reference, without a pass over all of it. Few changes
are places and codes in the frame already. So their time is that of the changes, not of the array.
The array sum of the result is that of the reference and what the changes add to it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from ..constants import (
    ELEMENT_TYPES,
    MAX_EXPANSION,
    MAX_SMOOTH_COMPONENTS,
    METHOD_CODEBOOK,
    METHOD_PLANES,
    METHOD_RAW,
    METHOD_SMOOTH,
)
from ..cursor import Cursor, Stored
from ..element_types import Array, check_dtype, components, from_components, read_numbers
from ..entropy.stream_reader import Reading, side_by_side
from ..errors import ArgumentError, ChecksumError, FormatError, LimitError, TruncatedError
from ..loops.sums import crc32
from ..parallel import batches
from . import planes, smooth
from .codebook import Codebook, read_block, read_codebook
from .content import SUM_MASK, array_sum, part_of, reference_components, sum_change_of
from .header import TAIL, FrameHeader, block_number, blocks_of, parse_header, whole_blocks

_ALIGNMENT_BYTES: Final = 64  # a cache line


def decode(
    frame: bytes | bytearray | memoryview,
    reference: Array | None = None,
    out: Array | None = None,
    *,
    dtype: Literal["float32", "bits"] | None = None,
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
    check_dtype(dtype)
    try:
        data = memoryview(frame)
        data = data.cast("B") if data.nbytes else memoryview(b"")
    except TypeError as error:
        raise ArgumentError(
            f"a frame must be bytes in one piece; got {type(frame).__name__}: {error}"
        ) from error
    header = checked_header(data)
    if header.run:
        raise ArgumentError("this frame is a run of arrays; read them through their checkpoint")
    shape = header.shapes[0]
    base = None
    if header.relative:
        if reference is None:
            raise ArgumentError("this frame was coded against a reference; pass it as reference=")
        base = reference_components(reference, header.kind, shape)
    if out is None:
        bits = decode_components(data, base, header=header)
        return from_components(bits, header.kind, shape, dtype)
    if not isinstance(out, np.ndarray) or isinstance(out, np.ma.MaskedArray):
        raise ArgumentError(f"out must be a NumPy array; got {type(out).__name__}")
    if not (out.flags.c_contiguous and out.flags.writeable and out.shape == shape):
        raise ArgumentError(f"out must be a writable C-contiguous array of shape {shape}")
    found, target = (
        components(out) if out.dtype != np.bool_ else (ELEMENT_TYPES[0], out.reshape(-1).view(np.uint8))
    )
    if found != header.kind:
        raise ArgumentError(f"out must have dtype {header.kind.name}; got {found.name}")
    base = target if base is not None and reference is out else base
    decode_components(data, base, target, header=header)
    if not out.dtype.isnative:  # then the components are a copy
        out.reshape(-1).view(found.bits.newbyteorder("S"))[:] = target
    return out


def decode_rows(frame: memoryview, first: int, last: int) -> Array:
    """Return rows `first` to `last - 1` of the array that a frame holds, without the other blocks.

    The frame has no reference. Its CRC-32 is checked, and its array sum if all blocks are needed.
    An ``ArgumentError`` says that it needs a reference or is a run, or the array does not have
    these rows; a ``DataError`` is as for :func:`decode`.
    """
    header = parse_header(frame, behind=TAIL.size)
    shape = header.shapes[0]
    if header.run or header.relative or not shape or not 0 <= first <= last <= shape[0]:
        return decode(frame)[first:last]
    row = header.components // shape[0] if shape[0] else 0
    start, stop = whole_blocks(header, first * row, last * row)
    if start == stop or (start, stop) == (0, header.components):
        return decode(frame)[first:last]
    bits = decode_range(frame, slice(start, stop), None)[first * row - start : last * row - start]
    return from_components(bits, header.kind, (last - first, *shape[1:]), None)


def decode_components(
    frame: Stored,
    reference: Array | None,
    out: Array | None = None,
    *,
    check_sum: bool = True,
    header: FrameHeader | None = None,
) -> Array:
    """Return the components that a frame holds, 1-D, decoded into `out` if it is given.

    `reference` (components) may be `out`. The check of the array sum may be left out if the result
    is the reference of another frame, whose sum shows a wrong value too. `header` is that of the
    frame if the frame was checked already.
    """
    header = header or checked_header(frame)
    if out is None:
        out = _empty(header, header.components)
    base = reference if header.relative else None
    _decode_part(frame, header, slice(0, header.components), base, out)
    if check_sum:
        check_array_sum(frame, array_sum(out))
    return out


def decode_range(
    frame: Stored,
    part: slice,
    reference: Array | None,
    out: Array | None = None,
    *,
    check_crc: bool = True,
    begin: tuple[int, int] | None = None,
) -> Array:
    """Decode some blocks of a frame. Others can be decoded elsewhere, as by another process.

    The array sum is not checked: `check_array_sum` does that for the sums of all parts together. An
    ``ArgumentError`` says that `part` is not whole blocks, or that a reference or `out` has another
    size. Rules about the end of a frame are checked with the last block.

    Parameters
    ----------
    part
        The components of the blocks, as :func:`lccodec.frame.header.whole_blocks` returns them. Of
        other blocks only the sizes are read.
    reference, out
        Components of the part. `out`, which is returned, may be `reference`; by default it is new
        memory.
    check_crc
        Whether to read the whole frame, and check its CRC-32. It must be checked once.
    begin
        The first component of the part's first block, and where that begins in the frame. By
        default it is found by the sizes of those before.
    """
    header = checked_header(frame, check_crc)
    valid = 0 <= part.start <= part.stop <= header.components
    if not (valid and whole_blocks(header, part.start, part.stop) == (part.start, part.stop)):
        raise ArgumentError(
            f"components {part.start} to {part.stop} are not blocks of 2**{header.block_log2}"
        )
    base, size = reference if header.relative else None, part.stop - part.start
    given = [bits for bits in (base, out) if bits is not None]
    if any(bits.size != size for bits in given) or (header.relative and base is None):
        raise ArgumentError(f"reference and out must have {size} components")
    if out is None:
        out = _empty(header, size)
    _decode_part(frame, header, part, base, out, begin)
    return out


def check_array_sum(frame: Stored, total: int) -> None:
    """Raise ``ChecksumError`` if a frame has another array sum (LCC-FRM-09).

    `total` is what :func:`lccodec.frame.content.array_sum` returns for the decoded components, or
    the sum of what it returns for parts.
    """
    stored, _ = TAIL.unpack(frame[len(frame) - TAIL.size : len(frame)])
    if total & SUM_MASK != stored:
        reason = "decoded values differ"
        if parse_header(frame).relative:
            reason = "the reference is not the one it was coded against"
        raise ChecksumError("LCC-FRM-09", "frame", f"the sum of the decoded array does not match: {reason}")


def checked_header(data: Stored, check_crc: bool = True) -> FrameHeader:
    """Return the header of a frame, after a check of its CRC and its limits."""
    header = parse_header(data, behind=TAIL.size)
    crc = 0
    for chunk in Cursor(data, "frame").chunks(len(data) - 4 if check_crc else 0, "frame"):
        crc = crc32(chunk, crc)
    if check_crc and crc != int.from_bytes(data[len(data) - 4 :], "little"):
        raise ChecksumError("LCC-FRM-08", "frame", "the CRC-32 does not match: bytes are damaged or missing")
    if not header.relative and header.nbytes > MAX_EXPANSION * len(data):
        raise LimitError("LCC-LIM-03", "frame", f"{len(data)} bytes declare {header.nbytes} decoded bytes")
    most = MAX_SMOOTH_COMPONENTS * len(data)
    if header.method == METHOD_SMOOTH and header.components > most:
        message = f"{len(data)} bytes declare {header.components} components of a field"
        raise LimitError("LCC-LIM-12", "frame", message)
    if header.method == METHOD_RAW and header.nbytes > len(data):
        raise TruncatedError("LCC-FRM-02", "frame", f"{header.nbytes} raw bytes in a frame of {len(data)}")
    return header


def _empty(header: FrameHeader, count: int) -> Array:
    """Return memory for components of a frame."""
    nbytes = count * header.kind.size
    try:
        if len(header.shapes) > 1 or nbytes < 1 << 16:
            return np.empty(count, header.kind.bits)
        # JAX takes over memory that begins at a multiple of 64 bytes. NumPy's own seldom does.
        memory = np.empty(nbytes + _ALIGNMENT_BYTES - 1, np.uint8)
    except MemoryError as error:
        message = f"not enough memory for {nbytes} decoded bytes"
        raise LimitError("LCC-LIM-03", "frame", message) from error
    start = -memory.ctypes.data % _ALIGNMENT_BYTES
    return memory[start : start + nbytes].view(header.kind.bits)


def _decode_part(
    data: Stored,
    header: FrameHeader,
    part: slice,
    reference: Array | None,
    out: Array,
    begin: tuple[int, int] | None = None,
) -> None:
    """Decode whole blocks; `reference` and `out` are the components of this part of the frame."""
    cursor = Cursor(data, "frame", header.size, len(data) - TAIL.size)
    filling = 0
    if header.method == METHOD_RAW:
        cursor.skip(part.start * header.kind.size, "raw values")
        at = 0
        for chunk in cursor.chunks(out.nbytes, "raw values"):
            numbers = read_numbers(chunk, out.dtype)
            out[at : at + numbers.size] = numbers
            at += numbers.size
    else:
        book: Codebook | None = None
        if header.method == METHOD_CODEBOOK:
            book = read_codebook(cursor, header)
        first, offset = begin or (0, cursor.position)
        cursor.skip(offset - cursor.position, "blocks before the part")
        for number, (start, length, shape) in enumerate(
            blocks_of(header, first, part.stop), block_number(header, first)
        ):
            size = cursor.integer("I", f"size of block {number}")
            if start < part.start:
                cursor.skip(size, f"block {number}")
                continue
            block = Cursor(cursor.take(size, f"block {number}"), f"frame, block {number}")
            here = slice(start - part.start, start - part.start + length)
            target = out[here]
            base = target if reference is out else part_of(reference, here)  # one object: nothing to copy
            try:
                if shape is not None:
                    smooth.read_block(block, shape, header.kind, base, target)
                elif book is None:
                    planes.read_block(block, base, header.kind, target)
                else:
                    read_block(block, book, start, base, target)
            except MemoryError as error:
                raise LimitError("LCC-LIM-02", block.where, "not enough memory for a block") from error
            if block.remaining:
                raise FormatError("LCC-FRM-07", block.where, f"{block.remaining} bytes are left over")
        if part.stop == header.components:
            filling = header.padding(cursor.position + TAIL.size)
    if part.stop == header.components and (
        cursor.remaining != filling or any(map(any, cursor.chunks(cursor.remaining, "filling")))
    ):
        raise FormatError("LCC-FRM-07", "frame", "there are bytes after the last value")
    if header.kind.kind == "b" and int(out.max(initial=0)) > 1:
        raise FormatError("LCC-FRM-10", "frame", "a bool must be 0 or 1")


_BLOCKS_AT_A_TIME: Final = 16  # read side by side: their bytes and codes are in memory


@dataclass(frozen=True, eq=False)
class Changed:
    """The components that differ from those of the reference."""

    places: Array  # where they are, int64, rising
    bits: Array  # the new components
    total: int  # the array sum of the new array


def may_tell(header: FrameHeader) -> bool:
    """Return whether a frame may tell what it changes: it has byte planes of one array's delta."""
    kind = header.kind
    return (
        header.relative
        and header.method == METHOD_PLANES
        and not header.run
        and kind.components == 1
        and kind.kind != "b"
    )


def changed(
    frame: Stored,
    reference: Array,
    total: int,
    empty: Callable[[int, np.dtype[Any]], Array] = np.empty,
) -> Reading[Changed | None]:
    """Read what a frame changes; ``None`` if that is much, so that it takes less time to decode it.

    The frame is one that `may_tell`. `total` is the array sum of the reference, given as
    components. `empty` returns memory for so many components of a type: for the places, and for the
    new components. A ``DataError`` says that the bytes break a rule, or that the new array has
    another sum than the frame says.
    """
    header = checked_header(frame)
    cursor = Cursor(frame, "frame", header.size, len(frame) - TAIL.size)
    places, starts, bits = list[Array](), list[int](), list[Array]()
    blocks = enumerate(blocks_of(header, 0, header.components))
    for group in batches(blocks, lambda _: 1, _BLOCKS_AT_A_TIME):
        some = []
        for number, (start, length, _) in group:
            size = cursor.integer("I", f"size of block {number}")
            block = Cursor(cursor.take(size, f"block {number}"), f"frame, block {number}")
            some.append((block, slice(start, min(start + length, header.components))))
        try:
            found = yield from side_by_side(
                planes.reading_codes(block, reference[here], header.kind) for block, here in some
            )
        except MemoryError as error:
            raise LimitError("LCC-LIM-02", "frame", "not enough memory for its blocks") from error
        for (block, here), codes in zip(some, found, strict=True):
            if codes is None:
                return None
            if block.remaining:
                raise FormatError("LCC-FRM-07", block.where, f"{block.remaining} bytes are left over")
            new, word = np.empty_like(codes.codes), here.start * header.kind.size // 8
            for part, before in codes.decode(reference[here], new):
                total += sum_change_of(new[part], before, codes.places[part], word)
            places.append(codes.places)
            starts.append(here.start)
            bits.append(new)
    if cursor.remaining:
        raise FormatError("LCC-FRM-07", "frame", "there are bytes after the last value")
    check_array_sum(frame, total)
    if starts != [0] or empty is not np.empty:
        count = sum(own.size for own in places)
        joined, end = empty(count, np.dtype(np.int64)), 0
        for own, start in zip(places, starts, strict=True):
            np.add(own, start, out=joined[end : end + own.size])
            end += own.size
        none = np.zeros(0, header.kind.bits)
        bits = [np.concatenate([none, *bits], out=empty(count, header.kind.bits))]
        places = [joined]
    return Changed(places[0], bits[0], total & SUM_MASK)
