"""Arrays to frames, block by block. Source: SPEC 6, 7.6 and 7.7.

A frame holds one array, or a run of small ones. It is coded in four steps, each a function below:
the arrays are cut into batches, the quantizer is fitted to each batch, its choice becomes the
codebook, and the blocks are written. Where the quantizer chooses nothing, the blocks are byte
planes.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from ..byteorder import stored_bytes
from ..constants import MAX_EXPANSION, METHOD_CODEBOOK, METHOD_PLANES, METHOD_RAW
from ..element_types import Array, ElementType, components, octaves, ordered_steps, unwork, work
from ..entropy.classes import row_length
from ..entropy.forms import Sparse, as_sparse
from ..entropy.stream_writer import Piece
from ..errors import ArgumentError
from ..parallel import PIECE, ordered, thread_count
from ..quantizers.base import Exact, Partition, Quantizer
from ..quantizers.registry import resolve_quantizer
from ..quantizers.residual import Residual
from ..quantizers.signs import has_negative, negative, spoiled
from . import codebook, planes
from .checksum import SUM_MASK, array_sum
from .codebook import Codebook, part_of, reconstruct
from .header import FrameHeader, Shape, check_shape

__all__ = [
    "TAIL",
    "Content",
    "Effort",
    "check_effort",
    "checked_array",
    "encode",
    "encode_content",
    "padding",
    "reference_components",
]

#: How hard the encoder tries: ``"high"`` codes symbols by the class of their row and column.
Effort: TypeAlias = Literal["normal", "high"]
_EFFORTS: Final = ("normal", "high")

TAIL: Final = struct.Struct("<QI")
_BLOCK_LOG2: Final = 22  # an encoder's choice: enough symbols for many lanes, little to hold at once
_BATCH_ARRAYS: Final = 1024  # of a run that are fitted together, at most, each with tables of its own
_NO_PLACES: Final = np.zeros(0, np.int64)


def encode(
    array: Array,
    quantizer: Quantizer | str,
    reference: Array | None = None,
    *,
    effort: Effort = "normal",
    threads: int = 1,
) -> bytes:
    """Code an array as a frame.

    The array may change meanwhile, as one that is trained does: then the frame holds every element
    as it was at one moment or another, within the error asked for. The reference has to hold still
    until this returns.

    Parameters
    ----------
    array
        Any shape, order and byte order; a dtype of SPEC 5.2. Integers and bool are stored exactly
        whatever the quantizer.
    quantizer
        `ExponentBuckets`, `UniformDeadzone`, `LogSteps`, `Clusters`, `Lossless` or one of your own;
        or the name of a preset that codes every weight in one way: ``"lossless"``, ``"lc-2"`` or
        ``"lc-3"``.
    reference
        Array of the same dtype and shape that :func:`decode` will be given: the parent *as
        decoded*.
    effort
        ``"high"`` looks at a lossy array as a matrix whose rows and columns change more or less
        than others: fewer bytes for more time, both to encode and to decode
        (``spec/decisions/0007-classed-streams.md``).
    threads
        How many to use, 0 for one each core; the frame is the same whatever the number.

    Returns
    -------
    bytes
        The frame (SPEC 6).

    Raises
    ------
    ArgumentError
        For what is no NumPy array, or one of a dtype or a shape that cannot be stored; a reference
        of another dtype or shape; what is no quantizer; or an unknown effort.

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
    """Raise ``ArgumentError`` for what is no effort."""
    if not isinstance(effort, str) or effort not in _EFFORTS:
        raise ArgumentError(f"unknown effort {effort!r}; there are {', '.join(_EFFORTS)}")


def checked_array(array: Any, what: str) -> Array:
    """Return an array, or what NumPy takes for one, as an array; `what` it is called in errors."""
    if isinstance(array, np.ma.MaskedArray):
        raise ArgumentError(f"{what} is a masked array: code its data and its mask")
    if array is None or isinstance(array, list | tuple | dict | set | str | bytes):
        raise ArgumentError(f"{what} is a {type(array).__name__}, not a NumPy array")
    try:
        return np.asanyarray(array)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ArgumentError(f"{what} is a {type(array).__name__}, not a NumPy array: {error}") from error


def reference_components(reference: Array, kind: ElementType, shape: Shape) -> Array:
    """Return the components of a reference; raise ``ArgumentError`` if it is of another type or shape."""
    reference = checked_array(reference, "the reference")
    if reference.shape != shape:
        raise ArgumentError(f"the reference has shape {reference.shape}, the array {shape}")
    found, bits = components(reference)
    if found != kind:
        raise ArgumentError(f"the reference has dtype {found.name}, the array {kind.name}")
    return bits


@dataclass(frozen=True, eq=False)
class Content:
    """What one frame is to hold: an array, or a run of several.

    Parameters
    ----------
    bits
        Components of the arrays end to end, 1-D. Those of one array may change while they are
        coded: whatever is stored of a component is computed from one copy of it. Those of a run
        hold still.
    kind, shapes
        Element type, and the shape of each array.
    reference
        Components of the same arrays that it is relative to; ``None`` if it stands alone.
    run
        Whether it is a run: none of the arrays is empty, together they have at most 2**22
        components.
    """

    bits: Array
    kind: ElementType
    shapes: tuple[Shape, ...]
    reference: Array | None = None
    run: bool = False


def encode_content(
    content: Content,
    quantizer: Quantizer,
    out: Array | None = None,
    *,
    effort: Effort = "normal",
    threads: int = 1,
) -> Iterator[bytes]:
    """Code arrays as a frame, yielded block by block, so that no frame need be held whole.

    What the frame decodes to is written into `out` (components; it may be the reference) as it goes
    on. `effort` is described in :func:`lccodec.encode`.
    """
    crc = 0
    for piece in _write_frame(content, quantizer, out, effort, threads):
        crc = zlib.crc32(piece, crc)
        yield piece
    yield struct.pack("<I", crc)


def _write_frame(
    content: Content, quantizer: Quantizer, out: Array | None, effort: Effort, threads: int
) -> Iterator[bytes]:
    """Yield all of a frame but its CRC-32."""
    bits, kind, reference = content.bits, content.kind, content.reference
    header = FrameHeader(METHOD_PLANES, kind, reference is not None, content.shapes, _BLOCK_LOG2, content.run)
    fitted = _fit(content, header, quantizer)
    if fitted:
        header = replace(header, method=METHOD_CODEBOOK, ordered=fitted[0].residual.ordered)
        columns = row_length(header.shapes[0], kind.components) if effort == "high" and not header.run else 0
        coder = _SymbolCoder(header, fitted, out, columns, in_place=out is reference)
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
        if reference is None:
            yield bytes(padding(header.nbytes, length + TAIL.size))
    yield struct.pack("<Q", checksum & SUM_MASK)


def padding(decoded: int, length: int) -> int:
    """Zero bytes that keep a frame without a reference inside the expansion limit (LCC-LIM-03)."""
    return max(0, -(-decoded // MAX_EXPANSION) - length)


@dataclass(frozen=True, eq=False)
class _PlaneCoder:
    """Writes blocks exactly, as byte planes."""

    content: Content
    out: Array | None

    def write_block(self, part: slice) -> tuple[bytes, int]:
        """Return a block and its part of the array sum; what was read is written into `out`."""
        block_sum, kind = 0, self.content.kind

        def taken(start: int, own: Array) -> None:
            nonlocal block_sum
            start += part.start
            block_sum += array_sum(own, start * kind.size // 8)
            if self.out is not None:
                self.out[start : start + own.size] = own

        base = part_of(self.content.reference, part)
        return b"".join(planes.write_block(self.content.bits[part], base, kind, taken)), block_sum


@dataclass(frozen=True, eq=False)
class _Fitted:
    """A batch and what the quantizer chose for it.

    Parameters
    ----------
    residual, partition
        The batch's.
    first, array
        Place of its first component in the frame, and number of its first array.
    unsigned
        Whether the arrays (bool of shape ``(arrays,)``) have no negative number; ``None`` if all
        have.
    """

    residual: Residual
    partition: Partition
    first: int
    array: int
    unsigned: Array | None


def _fit(content: Content, header: FrameHeader, quantizer: Quantizer) -> list[_Fitted]:
    """Return the batches of the arrays with their partitions; none to store all exactly."""
    kind = content.kind
    if not kind.is_float or content.bits.size == 0:
        return []
    in_order = quantizer.ordered and header.relative  # an ordered frame needs a reference
    batches = [
        (first, array, Residual(content.bits[part], part_of(content.reference, part), kind, in_order, sizes))
        for first, array, part, sizes in _batches(np.array(header.sizes))
    ]
    partitions = [quantizer.fit(residual) for _, _, residual in batches]
    if all(partition is None for partition in partitions):
        return []
    nothing = np.empty(0, kind.work)
    fitted = []
    for (first, array, residual), partition in zip(batches, partitions, strict=True):
        chosen = Exact(nothing, residual.arrays) if partition is None else partition
        # Steps of the logarithm lead from positive numbers to positive numbers.
        unsigned = None if quantizer.ordered else _unsigned(residual)
        fitted.append(_Fitted(residual, chosen, first, array, unsigned))
    return fitted


def _batches(sizes: Array) -> Iterator[tuple[int, int, slice, Array]]:
    """Yield of each batch the first component, the first array, where it lies, and the sizes of its arrays.

    A batch is one array, or as many as fit one piece.
    """
    ends = np.cumsum(sizes)
    first = start = 0
    while first < sizes.size:
        last = int(np.searchsorted(ends, start + PIECE, "right"))
        last = min(max(last, first + 1), first + _BATCH_ARRAYS)
        stop = int(ends[last - 1])
        yield start, first, slice(start, stop), sizes[first:last]
        first, start = last, stop


def _unsigned(residual: Residual) -> Array | None:
    """Return which arrays of a batch have no negative number; ``None`` if all have."""
    if residual.arrays == 1:
        return None if has_negative(residual.bits, residual.kind) else np.ones(1, bool)
    starts = np.cumsum(residual.sizes) - residual.sizes
    unsigned: Array = ~np.logical_or.reduceat(negative(residual.bits, residual.kind), starts)
    return unsigned if unsigned.any() else None


class _SymbolCoder:
    """Writes blocks of symbols, and what they decode to into `out`, components of the whole frame."""

    def __init__(
        self, header: FrameHeader, fitted: list[_Fitted], out: Array | None, columns: int, *, in_place: bool
    ) -> None:
        self._fitted = fitted
        self._run = header.run
        self._out = np.empty(header.components, header.kind.bits) if out is None and header.run else out
        self._in_place = in_place
        self._columns = columns
        self._size = header.components
        counts = np.concatenate([batch.partition.counts for batch in fitted])
        patterns = _patterns(np.concatenate([batch.partition.representatives for batch in fitted]), header)
        sizes = np.array(header.sizes)
        self._book = Codebook(
            counts, patterns, sizes, header.kind, relative=header.relative, ordered=header.ordered
        )
        self.codebook = stored_bytes(counts.astype(np.uint16)) + stored_bytes(patterns)

    def write_block(self, part: slice) -> tuple[bytes, int]:
        """Return a block and its part of the array sum.

        Only components outside the dead zone are looked at one by one: inside it the reference
        stays. Of an array without negative numbers all are, so that none becomes negative, and what
        is 0 stays so.
        """
        places, symbols, escapes, exact = [], [], [_NO_PLACES], [self._fitted[0].residual.bits[:0]]
        checksum, kind = 0, self._book.kind
        for batch, start in self._pieces(part):
            first = batch.first + start  # in the frame
            place, symbol, result, escaped = self._quantize_piece(batch, start)
            if escaped.size:
                escapes.append(escaped + (first - part.start))
                exact.append(result.take(escaped))
            if not self._run:
                checksum += array_sum(result, first * kind.size // 8)
            places.append(place + (first - part.start))
            symbols.append(symbol)
        if self._run and self._out is not None:  # the words of the sum may reach over the ends of batches
            checksum = array_sum(self._out)
        values = np.concatenate(symbols).astype(np.uint16 if self._book.wide else np.uint8, copy=False)
        found = as_sparse(Sparse(np.concatenate(places), values), self._size)
        count = min(part.stop, self._size) - part.start
        pieces: list[Piece] = codebook.write_block(
            found, np.concatenate(escapes), np.concatenate(exact), count, self._columns
        )
        return b"".join(pieces), checksum

    def _pieces(self, part: slice) -> Iterator[tuple[_Fitted, int]]:
        """Yield the pieces of a block, each as its batch and the first component in that."""
        for batch in self._fitted:
            stop = min(part.stop - batch.first, batch.residual.bits.size)
            for start in range(max(part.start - batch.first, 0), stop, PIECE):
                yield batch, start

    def _quantize_piece(self, batch: _Fitted, start: int) -> tuple[Array, Array, Array, Array]:
        """Return places and symbols of the components outside the dead zone, and what the piece decodes to.

        The last of the four are the places of what is stored exactly: it has symbol 0, and is among
        what the piece decodes to as it was read once.
        """
        residual, kind = batch.residual, self._book.kind
        part = slice(start, start + PIECE)
        original, base = residual.bits[part], part_of(residual.reference, part)
        place, symbol, values, escaped = self._quantize_outside(batch, start, original, base)
        if self._out is None:
            result = np.empty_like(original)
        else:
            result = self._out[batch.first + start : batch.first + start + original.size]
        if base is None:
            result[:] = 0
        elif not self._in_place:
            result[:] = base
        result[place] = values
        if batch.unsigned is not None:
            own = original.copy()
            marked = spoiled(result, own, kind)
            if residual.arrays > 1:
                marked &= batch.unsigned[residual.owner()]
            if marked.any():
                np.copyto(result, own, where=marked)
                symbol[marked.take(place)] = 0
                marked[escaped] = True
                escaped = np.flatnonzero(marked)
        return place, symbol, result, escaped

    def _quantize_outside(
        self, batch: _Fitted, start: int, original: Array, base: Array | None
    ) -> tuple[Array, Array, Array, Array]:
        """Return of the components of a piece outside the dead zone places, symbols and decoded values.

        The last of the four are the places of those that are stored exactly.
        """
        residual, partition, kind = batch.residual, batch.partition, self._book.kind
        place, d = residual.outside(start, partition.zone)
        owner = residual.owner(place)
        kept = np.isfinite(d)
        if not kept.all():
            d = np.where(kept, d, d.dtype.type(0))
        symbol, unfit = partition.symbols(d, owner)
        if unfit is not None:
            kept &= ~unfit
        values = np.empty(d.size, original.dtype)
        before = None if base is None else base.take(place, mode="clip")
        reconstruct(self._book.expand(symbol, owner + batch.array), before, kind, values)
        kept &= np.isfinite(work(values, kind))  # the sum can overflow where the difference did not
        if partition.max_error is not None:
            near = original.take(place, mode="clip")
            kept &= _within_bound(near, values, partition.max_error, kind, residual.ordered)
        if kept.all():
            return place, symbol, values, _NO_PLACES
        escaped = np.flatnonzero(~kept)
        symbol[escaped] = 0
        values[escaped] = original.take(place.take(escaped), mode="clip")
        return place, symbol, values, place.take(escaped)


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
