"""Arrays to frames, block by block. Source: SPEC 6, 7.6 and 7.7.

A frame holds one array, or a run of small arrays. It is coded in four steps. The arrays are cut
into batches. The quantizer is fitted to each batch. The partitions become the codebook. The blocks
are written. If the quantizer returns no partition, the blocks are byte planes.

Where values are stored raw because that is fastest, a `RawFrame` is made chunk by chunk at the
speed of a copy. Its length is known before it is made. `encode_content` makes a raw frame where
nothing else is smaller.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from io import BytesIO
from typing import Final, Literal, TypeAlias, get_args

import numpy as np

from ..constants import METHOD_CODEBOOK, METHOD_PLANES, METHOD_RAW, METHOD_SMOOTH
from ..element_types import Array, components, stored_bytes, stored_view
from ..entropy.classes import row_length
from ..entropy.stream_writer import Piece
from ..errors import check_choice
from ..loops.sums import crc32
from ..parallel import slices
from ..quantizers.base import Quantizer
from ..quantizers.registry import resolve_quantizer
from . import planes, smooth
from .codebook import SymbolCoder, fit_batches
from .content import SUM_MASK, Content, array_sum, checked_array, part_of, reference_components
from .header import TAIL, FrameHeader, check_shape, raw_pieces

#: How much time the encoder spends: ``"high"`` codes symbols by the class of their row and column.
Effort: TypeAlias = Literal["normal", "high"]

_BLOCK_LOG2: Final = 22  # of components, the encoder's choice: enough symbols for many lanes, little memory
# Of arrays of more than one such block: rows of them can be read without the rest (decision 25).
_LARGE_BLOCK_LOG2: Final = 21
MAX_BLOCK_COMPONENTS: Final = 1 << _BLOCK_LOG2
_MIN_CHUNK_BYTES: Final = 1 << 16


def encode(
    array: Array,
    quantizer: Quantizer | str,
    reference: Array | None = None,
    *,
    effort: Effort = "normal",
) -> bytes:
    """Code an array as a frame.

    The array may change during the call, as in a training thread. The frame then holds each element
    as it was at some moment of the call, within the error asked for. The reference must not change
    until this function returns.

    Parameters
    ----------
    array
        An array of any shape, order and byte order, with a dtype of SPEC 5.2. Integers and bool are
        stored exactly with every quantizer.
    quantizer
        `ExponentBuckets`, `UniformDeadzone`, `LogSteps`, `Clusters`, `Lossless` or one of your own;
        or the name of a preset that uses one quantizer for all weights: ``"lossless"``, ``"lc-2"``
        or ``"lc-3"``.
    reference
        Array of the same dtype and shape: the parent *as decoded*. :func:`decode` needs the same
        array.
    effort
        ``"high"`` treats a lossy array as a matrix, some of whose rows and columns change more than
        others. The frame is smaller, and takes more time to encode and to decode
        (``spec/decisions/0007-classed-streams.md``).

    Returns
    -------
    bytes
        The frame (SPEC 6).

    Raises
    ------
    ArgumentError
        If the array is not a NumPy array, or its dtype or shape cannot be stored; if the reference
        has another dtype or shape; if the quantizer or the effort is unknown.

    Examples
    --------
    >>> import numpy as np, lccodec
    >>> before = np.linspace(0, 1, 1000, dtype=np.float32)
    >>> after = before + np.float32(0.01)
    >>> frame = lccodec.encode(after, lccodec.UniformDeadzone(max_error=1e-3), reference=before)
    >>> bool(abs(lccodec.decode(frame, reference=before) - after).max() <= 1e-3)
    True
    """
    quantizer = resolve_quantizer(quantizer)
    array = checked_array(array, "the array")
    check_shape(array.shape)
    kind, bits = components(array)
    if quantizer.resolve is not None:
        quantizer, _ = quantizer.resolve(bits, array.shape, kind)
    base = None if reference is None else reference_components(reference, kind, array.shape)
    check_effort(effort)
    content = Content(bits, kind, (array.shape,), None if quantizer.absolute else base)
    # A list of chunks, to be joined, would take the memory twice.
    frame = BytesIO() if quantizer.lossy else _memory(content.bits.nbytes)
    frame.writelines(encode_content(content, quantizer, effort=effort))
    frame.truncate()
    return frame.getvalue()


def _memory(nbytes: int) -> BytesIO:
    """Return a stream that has memory for so many bytes; it takes more if it needs more.

    Memory that nobody has written to yet is mapped page by page, which takes as long as a copy. So
    the system is asked for large pages, as NumPy asks for the memory of its arrays. A keyframe of
    64 to 192 MB takes 2.5 ns a float32 with compiled loops, and 3.7 without that. Where the system
    has to make room for such pages first, it takes up to twice as long: then nothing is gained.
    """
    if nbytes < _MIN_LARGE_BYTES or sys.platform != "linux":
        return BytesIO()
    try:
        memory = bytes(nbytes)
    except MemoryError:  # the frame may be smaller
        return BytesIO()
    start = -(-np.frombuffer(memory, np.uint8).ctypes.data // _PAGE_BYTES) * _PAGE_BYTES
    with suppress(AttributeError, OSError):  # nothing depends on the answer
        advise = ctypes.CDLL(None).madvise
        advise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
        advise(start, nbytes - _PAGE_BYTES, _MADV_HUGEPAGE)
    return BytesIO(memory)


_MIN_LARGE_BYTES: Final = (1 << 25) + 1  # of which the C library always maps fresh memory
_PAGE_BYTES: Final = 1 << 16  # a multiple of the bytes of a page, on any processor
_MADV_HUGEPAGE: Final = 14  # of Linux


def check_effort(effort: object) -> None:
    """Raise ``ArgumentError`` for an unknown effort."""
    check_choice("effort", effort, get_args(Effort))


def encode_content(
    content: Content, quantizer: Quantizer, out: Array | None = None, *, effort: Effort = "normal"
) -> Iterator[Piece]:
    """Code arrays as a frame; yield it in chunks, so that no whole frame is in memory.

    The decoded components are written into `out`, block by block. `out` may be the reference.
    `effort` is described in :func:`lccodec.encode`.
    """
    coder = FrameCoder(content, quantizer, out, effort)
    return coder.join(map(coder.write_block, coder.parts))


class FrameCoder:
    """Codes one frame. Its blocks may be written in any order, and by several coders of the frame.

    All coders of a frame must have been made before the first block is written if `out` is the
    reference: each fits the quantizer to the whole frame.

    Parameters
    ----------
    content, quantizer, out, effort
        As for :func:`encode_content`.

    Attributes
    ----------
    parts
        The components of each block; the last slice may go beyond the end.
    write_block
        Returns the pieces of the block of some components, and its part of the array sum; writes
        what it decodes to.
    """

    def __init__(
        self, content: Content, quantizer: Quantizer, out: Array | None = None, effort: Effort = "normal"
    ) -> None:
        self._content, self._out = content, out
        kind, relative = content.kind, content.reference is not None
        log2 = _LARGE_BLOCK_LOG2 if content.bits.size > MAX_BLOCK_COMPONENTS else _BLOCK_LOG2
        self.parts = list(slices(content.bits.size, 1 << log2))
        self._header = FrameHeader(METHOD_PLANES, kind, relative, content.shapes, log2, content.run)
        self._codebook = b""
        self.write_block: Callable[[slice], tuple[list[Piece], int]] = _PlaneCoder(content, out).write_block
        is_field = kind.kind == "f" and not content.run and content.bits.size > 0
        if is_field and quantizer.field is not None and (plan := quantizer.field(content.bits, kind)):
            log2 = smooth.block_log2(content.bits.size)
            self._header = replace(self._header, method=METHOD_SMOOTH, block_log2=log2)
            field = smooth.SmoothCoder(content, plan, out)
            self.write_block, self.parts = field.write_block, field.blocks(log2)
            return
        fitted = fit_batches(content, self._header, quantizer)
        if fitted:
            ordered = fitted[0].residual.ordered
            self._header = replace(self._header, method=METHOD_CODEBOOK, ordered=ordered)
            matrix = effort == "high" and not content.run
            columns = row_length(content.shapes[0], kind.components) if matrix else 0
            in_place = out is content.reference
            coder = SymbolCoder(self._header, fitted, out, columns, in_place=in_place)
            self.write_block, self._codebook = coder.write_block, coder.codebook

    def join(self, blocks: Iterable[tuple[list[Piece], int]]) -> Iterator[Piece]:
        """Yield the frame in chunks, given what `write_block` has returned for each block."""
        crc = 0
        for chunk in self._joined(blocks):
            crc = crc32(chunk, crc)
            yield chunk
        yield struct.pack("<I", crc)

    def _joined(self, blocks: Iterable[tuple[list[Piece], int]]) -> Iterator[Piece]:
        """Yield a frame without its CRC-32."""
        bits = self._content.bits
        head = self._header.to_bytes() + self._codebook
        length = checksum = 0
        for block, block_sum in blocks:
            checksum += block_sum
            planes, size = self._header.method == METHOD_PLANES, sum(map(len, block))
            if planes and length == 0 and bits.nbytes <= size + 4:
                own = bits.copy()  # one copy is stored, decoded and summed: the array may change
                if self._out is not None:
                    self._out[:] = own
                checksum = array_sum(own)
                yield replace(self._header, method=METHOD_RAW, relative=False, block_log2=0).to_bytes()
                yield stored_bytes(own)
                break
            small: list[Piece] = [head, struct.pack("<I", size)]
            for piece in block:  # small ones are joined: a call for each would take longer
                if len(piece) < _MIN_CHUNK_BYTES:
                    small.append(piece)
                else:
                    yield b"".join(small)
                    yield piece
                    small = []
            yield b"".join(small)
            length += len(head) + 4 + size
            head = b""
        else:
            yield head  # not written yet if the array is empty
            length += len(head)
            yield bytes(self._header.padding(length + TAIL.size))
        yield struct.pack("<Q", checksum & SUM_MASK)


@dataclass(frozen=True, eq=False)
class _PlaneCoder:
    """Writes blocks exactly, as byte planes."""

    content: Content
    out: Array | None

    def write_block(self, part: slice) -> tuple[list[Piece], int]:
        """Return a block and its part of the array sum; write the same components into `out`."""
        content = self.content
        first = part.start * content.kind.size // 8
        base, out = part_of(content.reference, part), part_of(self.out, part)
        if self.out is content.reference:
            out = base  # one object: only what differs is written
        return planes.write_block(content.bits[part], base, content.kind, first, out)


_CHUNK_BYTES: Final = 1 << 20  # copied, summed, hashed and written while the cache has them


@dataclass(frozen=True, eq=False)
class RawFrame:
    """A raw frame that is not made yet.

    Parameters
    ----------
    header
        Of the frame: ``FrameHeader(METHOD_RAW, kind, False, shapes, 0, run)``.
    read
        Returns the content, which may change meanwhile if it is a single array.
    """

    header: FrameHeader
    read: Callable[[], Content]

    @property
    def length(self) -> int:
        """Bytes of the frame."""
        return self.header.size + self.header.nbytes + TAIL.size

    @property
    def table_pieces(self) -> int:
        """In how many pieces it is cut; 0 if it is not (LCC-PCS)."""
        return raw_pieces(self.header)

    def chunks(self) -> Iterator[bytes | memoryview]:
        """Yield the bytes of the frame in chunks that do not change. Each value is read once."""
        head, total = self.header.to_bytes(), 0
        yield head
        crc, bits, size = crc32(head), self.read().bits, self.header.kind.size
        for part in slices(bits.size, _CHUNK_BYTES // size):
            own = bits[part] if self.header.run else bits[part].copy()
            total += array_sum(own, part.start * size // 8)
            data = stored_view(own).data
            crc = crc32(data, crc)
            yield data
        tail = struct.pack("<Q", total & SUM_MASK)
        yield tail + struct.pack("<I", crc32(tail, crc))
