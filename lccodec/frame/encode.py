"""Arrays to frames, block by block. Source: SPEC 6, 7.6 and 7.7.

A frame holds one array, or a run of small arrays. It is coded in four steps. The arrays are cut
into batches. The quantizer is fitted to each batch. The partitions become the codebook. The blocks
are written. If the quantizer returns no partition, the blocks are byte planes.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from ..byteorder import stored_bytes
from ..constants import MAX_EXPANSION, METHOD_CODEBOOK, METHOD_PLANES, METHOD_RAW
from ..element_types import Array, components
from ..entropy.classes import row_length
from ..errors import ArgumentError
from ..parallel import ordered, thread_count
from ..quantizers.base import Quantizer
from ..quantizers.registry import resolve_quantizer
from . import planes
from .checksum import SUM_MASK, array_sum
from .content import Content, checked_array, part_of, reference_components
from .header import FrameHeader, check_shape
from .symbols import SymbolCoder, fit_batches

__all__ = ["TAIL", "Content", "Effort", "check_effort", "encode", "encode_content", "padding"]

#: How much time the encoder spends: ``"high"`` codes symbols by the class of their row and column.
Effort: TypeAlias = Literal["normal", "high"]
_KNOWN_EFFORTS: Final = ("normal", "high")

TAIL: Final = struct.Struct("<QI")
_BLOCK_LOG2: Final = 22  # of components, the encoder's choice: enough symbols for many lanes, little memory


def encode(
    array: Array,
    quantizer: Quantizer | str,
    reference: Array | None = None,
    *,
    effort: Effort = "normal",
    threads: int = 1,
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
    threads
        Number of threads; 0 for one per core. The frame does not depend on it.

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
    base = None if reference is None else reference_components(reference, kind, array.shape)
    check_effort(effort)
    threads = thread_count(threads)
    content = Content(bits, kind, (array.shape,), None if quantizer.absolute else base)
    return b"".join(encode_content(content, quantizer, effort=effort, threads=threads))


def check_effort(effort: object) -> None:
    """Raise ``ArgumentError`` for an unknown effort."""
    if not isinstance(effort, str) or effort not in _KNOWN_EFFORTS:
        raise ArgumentError(f"unknown effort {effort!r}; there are {', '.join(_KNOWN_EFFORTS)}")


def encode_content(
    content: Content,
    quantizer: Quantizer,
    out: Array | None = None,
    *,
    effort: Effort = "normal",
    threads: int = 1,
) -> Iterator[bytes]:
    """Code arrays as a frame; yield it block by block, so that no whole frame is in memory.

    The decoded components are written into `out`, block by block. `out` may be the reference.
    `effort` is described in :func:`lccodec.encode`.
    """
    crc = 0
    for piece in _write_frame(content, quantizer, out, effort, threads):
        crc = zlib.crc32(piece, crc)
        yield piece
    yield struct.pack("<I", crc)


def _write_frame(
    content: Content, quantizer: Quantizer, out: Array | None, effort: Effort, threads: int
) -> Iterator[bytes]:
    """Yield a frame without its CRC-32."""
    bits, kind, reference = content.bits, content.kind, content.reference
    header = FrameHeader(METHOD_PLANES, kind, reference is not None, content.shapes, _BLOCK_LOG2, content.run)
    fitted = fit_batches(content, header, quantizer)
    if fitted:
        header = replace(header, method=METHOD_CODEBOOK, ordered=fitted[0].residual.ordered)
        columns = row_length(header.shapes[0], kind.components) if effort == "high" and not header.run else 0
        coder = SymbolCoder(header, fitted, out, columns, in_place=out is reference)
        head = header.to_bytes() + coder.codebook
        write_block: Callable[[slice], tuple[bytes, int]] = coder.write_block
    else:
        head = header.to_bytes()
        write_block = _PlaneCoder(content, out).write_block

    length = checksum = 0
    blocks = (slice(start, start + (1 << _BLOCK_LOG2)) for start in range(0, bits.size, 1 << _BLOCK_LOG2))
    for block, block_sum in ordered(write_block, blocks, threads):
        checksum += block_sum
        if header.method == METHOD_PLANES and length == 0 and bits.nbytes <= len(block) + 4:
            own = bits.copy()  # one copy is stored, decoded and summed: the array may change
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
        yield head  # not written yet if the array is empty
        length += len(head)
        if reference is None:
            yield bytes(padding(bits.nbytes, length + TAIL.size))
    yield struct.pack("<Q", checksum & SUM_MASK)


def padding(decoded: int, length: int) -> int:
    """Return how many zero bytes keep a frame inside the expansion limit (LCC-LIM-03)."""
    return max(0, -(-decoded // MAX_EXPANSION) - length)


@dataclass(frozen=True, eq=False)
class _PlaneCoder:
    """Writes blocks exactly, as byte planes."""

    content: Content
    out: Array | None

    def write_block(self, part: slice) -> tuple[bytes, int]:
        """Return a block and its part of the array sum; write the same components into `out`."""
        block_sum, kind = 0, self.content.kind

        def taken(start: int, own: Array) -> None:
            nonlocal block_sum
            start += part.start
            block_sum += array_sum(own, start * kind.size // 8)
            if self.out is not None:
                self.out[start : start + own.size] = own

        base = part_of(self.content.reference, part)
        return b"".join(planes.write_block(self.content.bits[part], base, kind, taken)), block_sum
