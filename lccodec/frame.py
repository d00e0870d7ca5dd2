"""One array <-> one self-contained byte string, with checksums: the waist of the design.

Everything below works on components (bit patterns); everything above carries frames. No I/O.

Source: SPEC 6.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from . import codebook as codebooks
from . import planes
from .bits import Cursor
from .codebook import Codebook, reconstruct
from .constants import (
    FLAG_REFERENCE,
    FORMAT_MAJOR,
    FRAME_MAGIC,
    MAX_BLOCK_LOG2,
    MAX_DIMENSIONS,
    MAX_ELEMENTS,
    MAX_EXPANSION,
    METHOD_CODEBOOK,
    METHOD_PLANES,
    METHOD_RAW,
    MIN_BLOCK_LOG2,
)
from .errors import (
    ArgumentError,
    ChecksumError,
    FormatError,
    LimitError,
    TruncatedError,
    UnsupportedError,
)
from .floats import ELEMENT_TYPES, Array, ElementType, components, from_components, subtract, unwork, work
from .quantize import PIECE, Partition, Quantizer
from .symbols import Piece

__all__ = ["FrameHeader", "decode", "decode_components", "encode", "encode_components", "parse_header"]

_HEAD: Final = struct.Struct("<2sBBBBBB")
_TAIL: Final = struct.Struct("<QI")
_BLOCK_LOG2: Final = 22  # an encoder's choice: enough symbols for many lanes, little to hold at once
_SUM_MASK: Final = (1 << 64) - 1
_ODD: Final = np.arange(1, 2 * PIECE, 2, dtype=np.uint64)

_METHODS: Final = {METHOD_RAW: "raw", METHOD_PLANES: "planes", METHOD_CODEBOOK: "codebook"}


@dataclass(frozen=True)
class FrameHeader:
    """The first bytes of a frame (SPEC 6.1).

    Parameters
    ----------
    method
        ``METHOD_RAW``, ``METHOD_PLANES`` or ``METHOD_CODEBOOK``.
    kind
        Element type.
    relative
        Whether the frame is decoded against a reference of the same type and shape.
    shape
        Shape of the array.
    block_log2
        Binary logarithm of the components in a block; 0 for raw frames.
    """

    method: int
    kind: ElementType
    relative: bool
    shape: tuple[int, ...]
    block_log2: int

    @property
    def method_name(self) -> str:
        """``"raw"``, ``"planes"`` or ``"codebook"``."""
        return _METHODS[self.method]

    @property
    def components(self) -> int:
        """Number of components of the array."""
        return math.prod(self.shape) * self.kind.components

    @property
    def nbytes(self) -> int:
        """Bytes of the decoded array."""
        return self.components * self.kind.size

    @property
    def size(self) -> int:
        """Bytes of the serialized header."""
        return _HEAD.size + 8 * len(self.shape)

    def to_bytes(self) -> bytes:
        """Return the header as stored."""
        flags = FLAG_REFERENCE if self.relative else 0
        head = _HEAD.pack(
            FRAME_MAGIC, FORMAT_MAJOR, self.method, self.kind.code, flags, len(self.shape), self.block_log2
        )
        return head + struct.pack(f"<{len(self.shape)}Q", *self.shape)


def parse_header(data: bytes | memoryview, where: str = "frame") -> FrameHeader:
    """Read the header at the start of a frame; `data` may end behind it.

    Raises
    ------
    DataError
        If it breaks a rule of SPEC 6.1.
    """
    cursor = Cursor(memoryview(data), where)
    magic, version, method, code, flags, dimensions, block_log2 = _HEAD.unpack(
        cursor.take(_HEAD.size, "header")
    )
    if magic != FRAME_MAGIC:
        raise FormatError("LCC-FRM-01", where, "this is not an lccodec frame")
    if version != FORMAT_MAJOR:
        raise UnsupportedError(
            "LCC-VER-01", where, f"frame version {version}; this reader knows {FORMAT_MAJOR}"
        )
    if method not in _METHODS:
        raise UnsupportedError("LCC-FRM-03", where, f"method {method} is not defined")
    if flags & ~FLAG_REFERENCE or (flags and method == METHOD_RAW):
        raise UnsupportedError("LCC-FRM-04", where, f"flags {flags:#x} are reserved for method {method}")
    if code >= len(ELEMENT_TYPES):
        raise UnsupportedError("LCC-FRM-06", where, f"element type {code} is not defined")
    kind = ELEMENT_TYPES[code]
    if method == METHOD_CODEBOOK and not kind.is_float:
        raise FormatError("LCC-FRM-06", where, f"the codebook method does not store {kind.name}")
    if dimensions > MAX_DIMENSIONS:
        raise LimitError("LCC-FRM-05", where, f"{dimensions} dimensions")
    smallest, largest = (0, 0) if method == METHOD_RAW else (MIN_BLOCK_LOG2, MAX_BLOCK_LOG2)
    if not smallest <= block_log2 <= largest:
        raise LimitError("LCC-LIM-02", where, f"blocks of 2**{block_log2} components")
    shape = struct.unpack(f"<{dimensions}Q", cursor.take(8 * dimensions, "shape"))
    nonzero = [extent for extent in shape if extent]
    if math.prod(nonzero) > MAX_ELEMENTS:  # an empty array too must not have absurd extents
        raise LimitError("LCC-LIM-01", where, f"shape {shape} has more than {MAX_ELEMENTS} elements")
    return FrameHeader(method, kind, bool(flags), shape, block_log2)


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


def encode(array: Array, quantizer: Quantizer, reference: Array | None = None) -> bytes:
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
    return b"".join(encode_components(bits, kind, array.shape, quantizer, base))


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
    shape: tuple[int, ...],
    quantizer: Quantizer,
    reference: Array | None,
    out: Array | None = None,
) -> Iterator[bytes]:
    """Code components as a frame, yielded block by block, so that no frame need be held whole.

    What the frame decodes to is written into `out`, which may be `reference`, as it goes on.
    """
    crc = 0
    for piece in _write_frame(bits, kind, shape, quantizer, reference, out):
        crc = zlib.crc32(piece, crc)
        yield piece
    yield struct.pack("<I", crc)


def _write_frame(
    bits: Array,
    kind: ElementType,
    shape: tuple[int, ...],
    quantizer: Quantizer,
    reference: Array | None,
    out: Array | None,
) -> Iterator[bytes]:
    """Yield all of a frame but its CRC-32."""
    partition = quantizer.fit(bits, reference, kind) if kind.is_float and bits.size else None
    method = METHOD_PLANES if partition is None else METHOD_CODEBOOK
    header = FrameHeader(method, kind, reference is not None, shape, _BLOCK_LOG2)
    head = header.to_bytes()
    book = None
    if partition is not None:
        book = Codebook(unwork(partition.representatives, kind), kind, reference is not None)
        head += struct.pack("<H", book.representatives.size) + book.representatives.tobytes()
    length = checksum = 0
    for start in range(0, bits.size, 1 << _BLOCK_LOG2):
        part = slice(start, start + (1 << _BLOCK_LOG2))
        base, target = _part(reference, part), _part(out, part)
        if partition is None or book is None:
            pieces = planes.write_block(bits[part], base, kind)
            checksum += array_sum(bits[part], start * kind.size // 8)
            if target is not None:
                target[:] = bits[part]
        else:
            pieces, block_sum = _quantize_block(bits[part], base, partition, book, target, start)
            checksum += block_sum
        block = b"".join(pieces)
        if partition is None and start == 0 and bits.nbytes <= len(block) + 4:
            yield FrameHeader(METHOD_RAW, kind, False, shape, 0).to_bytes() + bits.tobytes()
            break
        yield head + struct.pack("<I", len(block)) + block
        length += len(head) + 4 + len(block)
        head = b""
    else:
        yield head  # of an array without blocks
        length += len(head)
        if reference is None:
            yield bytes(_padding(header.nbytes, length + _TAIL.size))
    yield struct.pack("<Q", checksum & _SUM_MASK)


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
        escape = ~np.isfinite(d)
        if escape.any():
            d = np.where(escape, d.dtype.type(0), d)
        symbols[part], outside = partition.symbols(d)
        if outside is not None:
            escape |= outside
        result = np.empty(d.size, bits.dtype)
        reconstruct(book.expand(symbols[part]), base, kind, result)
        value = work(result, kind)
        escape |= ~np.isfinite(value)  # the sum can overflow where the difference did not
        if partition.max_error is not None:
            escape |= _breaks_bound(work(bits[part], kind), value, partition.max_error)
        if escape.any():
            symbols[part][escape] = 0
            result[escape] = bits[part][escape]
            if not escaped.size:
                escaped = np.zeros(bits.size, bool)
            escaped[part] = escape
        checksum += array_sum(result, (first + start) * kind.size // 8)
        if out is not None:
            out[part] = result
    return codebooks.write_block(symbols, escaped if escaped.size else None, bits), checksum


def _breaks_bound(original: Array, decoded: Array, bound: float) -> Array:
    """Return where ``|decoded - original|`` may exceed `bound` (never missing one that does).

    The difference is rounded to nearest; comparing it with the number just below the bound makes
    the test strict whatever the rounding did.
    """
    wide = np.promote_types(original.dtype, np.float32).type
    limit = np.nextafter(wide(bound), wide(0))
    if float(limit) > bound:  # the bound itself was rounded up
        limit = np.nextafter(limit, wide(0))
    with np.errstate(all="ignore"):
        return np.asarray(~(np.abs(decoded.astype(wide, copy=False) - original) <= limit))


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
        Bytes made by :func:`encode`.
    reference
        The array the frame was coded against; ignored by a frame that needs none.
    out
        Array of the frame's dtype and shape, C-contiguous and writable, to decode into. It may be
        `reference`. Its contents are undefined if decoding fails.
    dtype
        ``"float32"`` returns a bfloat16 array as float32 (exact), ``"bits"`` as `BFLOAT16_BITS`; other
        types are not affected.

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
    data, header = _checked(frame)
    base = None
    if header.relative:
        if reference is None:
            raise ArgumentError("this frame was coded against a reference; pass it as reference=")
        base = _reference_components(reference, header.kind, header.shape)
    if out is None:
        bits = _decode(data, header, base, None)
        return from_components(bits, header.kind, header.shape, dtype)
    if not (
        out.flags.c_contiguous and out.flags.writeable and out.dtype.isnative and out.shape == header.shape
    ):
        raise ArgumentError(f"out must be a writable C-contiguous array of shape {header.shape}")
    found, target = (
        components(out) if out.dtype != np.bool_ else (ELEMENT_TYPES[0], out.reshape(-1).view(np.uint8))
    )
    if found != header.kind:
        raise ArgumentError(f"out has dtype {found.name}, the frame {header.kind.name}")
    _decode(data, header, base, target)
    return out


def decode_components(
    frame: bytes | bytearray | memoryview,
    reference: Array | None,
    out: Array | None = None,
    *,
    check_sum: bool = True,
) -> Array:
    """Return the components that a frame holds, 1-D, decoded into `out` if it is given.

    `reference` (components) must be given where the header says so, and may be `out`. The array sum
    may be left out where another frame is applied to the result: a wrong value there shows in the next sum.
    """
    data, header = _checked(frame)
    return _decode(data, header, reference if header.relative else None, out, check_sum)


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
    data: memoryview, header: FrameHeader, reference: Array | None, out: Array | None, check_sum: bool = True
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
        _decode_blocks(cursor, header, reference, out)
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


def _decode_blocks(cursor: Cursor, header: FrameHeader, reference: Array | None, out: Array) -> None:
    book = None
    if header.method == METHOD_CODEBOOK:
        count = cursor.integer("H", "number of representatives")
        stored = cursor.take(count * header.kind.size, "representatives")
        representatives = np.frombuffer(stored, header.kind.bits.newbyteorder("<")).astype(header.kind.bits)
        if not np.isfinite(work(representatives, header.kind)).all():
            raise FormatError("LCC-CBK-02", cursor.where, "a representative that is not finite")
        book = Codebook(representatives, header.kind, header.relative)
    for number, start in enumerate(range(0, out.size, 1 << header.block_log2)):
        part = slice(start, start + (1 << header.block_log2))
        size = cursor.integer("I", f"size of block {number}")
        block = Cursor(cursor.take(size, f"block {number}"), f"frame, block {number}")
        try:
            if book is None:
                planes.read_block(block, _part(reference, part), header.kind, out[part])
            else:
                codebooks.read_block(block, book, _part(reference, part), out[part])
        except MemoryError as error:
            raise LimitError("LCC-LIM-02", block.where, "not enough memory for a block") from error
        if block.remaining:
            raise FormatError("LCC-FRM-07", block.where, f"{block.remaining} bytes are left over")
