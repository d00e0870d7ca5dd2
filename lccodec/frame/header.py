"""What is known of a frame without decoding it: its header, and where it can be cut.

The parser checks every rule of the header before anything of the declared size is allocated.

A frame is cut before its first block, and between blocks (LCC-PCS-03). What lies between two cuts
can be read, verified and decoded without the rest. A raw frame has no blocks; for this it counts as
blocks of 2**16 components. NumPy, which takes long to load, is not needed here.

Source: SPEC 6.1 and 8.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Final

from ..constants import (
    ELEMENT_TYPES,
    FLAG_ORDERED,
    FLAG_REFERENCE,
    FLAG_RUN,
    FORMAT_MAJOR,
    FRAME_MAGIC,
    MAX_ARRAYS,
    MAX_BLOCK_LOG2,
    MAX_DIMENSIONS,
    MAX_ELEMENTS,
    MAX_EXPANSION,
    MAX_RUN_COMPONENTS,
    MAX_SMOOTH_BLOCK_LOG2,
    MAX_SMOOTH_COMPONENTS,
    METHOD_CODEBOOK,
    METHOD_PLANES,
    METHOD_RAW,
    METHOD_SMOOTH,
    MIN_BLOCK_LOG2,
    MIN_SMOOTH_BLOCK_LOG2,
    RAW_BLOCK_LOG2,
    ElementType,
)
from ..cursor import Cursor, Stored
from ..errors import ArgumentError, FormatError, LimitError, TruncatedError, UnsupportedError
from ..parallel import cached_property

Shape = tuple[int, ...]

_HEAD: Final = struct.Struct("<2sBBBBBB")
#: The last bytes of a frame: the array sum and the CRC-32.
TAIL: Final = struct.Struct("<QI")
#: The least and the largest block_log2 of methods that are not as others (LCC-LIM-02).
_BLOCK_LOG2: Final = {METHOD_RAW: (0, 0), METHOD_SMOOTH: (MIN_SMOOTH_BLOCK_LOG2, MAX_SMOOTH_BLOCK_LOG2)}
_TOO_MANY_ELEMENTS: Final = f"more than {MAX_ELEMENTS} elements, extents of 0 left out"
_METHODS: Final = {
    METHOD_RAW: "raw",
    METHOD_PLANES: "planes",
    METHOD_CODEBOOK: "codebook",
    METHOD_SMOOTH: "smooth",
}


@dataclass(frozen=True)
class FrameHeader:
    """The first bytes of a frame.

    Parameters
    ----------
    method
        ``METHOD_RAW``, ``METHOD_PLANES``, ``METHOD_CODEBOOK`` or ``METHOD_SMOOTH``.
    relative
        Whether the frame is decoded against a reference of the same type and shapes.
    shapes
        Shape of each array.
    block_log2
        Binary logarithm of the components in a block; 0 for raw frames.
    run
        Whether the frame holds a run of arrays laid end to end. Otherwise it holds one array.
    ordered
        Whether representatives are added to the order-preserving integers of the reference.
    """

    method: int
    kind: ElementType
    relative: bool
    shapes: tuple[Shape, ...]
    block_log2: int
    run: bool = False
    ordered: bool = False

    @property
    def method_name(self) -> str:
        """``"raw"``, ``"planes"``, ``"codebook"`` or ``"smooth"``."""
        return _METHODS[self.method]

    @cached_property  # a run has thousands of them
    def sizes(self) -> list[int]:
        """Number of components of each array."""
        sizes = []
        for shape in self.shapes:
            sizes.append(math.prod(shape) * self.kind.components)
        return sizes

    @cached_property
    def components(self) -> int:
        """Number of components of all arrays."""
        return sum(self.sizes)

    @property
    def nbytes(self) -> int:
        """Bytes of the decoded arrays."""
        return self.components * self.kind.size

    @property
    def size(self) -> int:
        """Bytes of the serialized header."""
        extents = 8 * sum(map(len, self.shapes))
        return _HEAD.size + extents + (4 + len(self.shapes) if self.run else 0)

    def padding(self, length: int) -> int:
        """Return how many zero bytes keep a frame inside its limit (LCC-LIM-03, LCC-LIM-12)."""
        least = 0 if self.relative else -(-self.nbytes // MAX_EXPANSION)
        if self.method == METHOD_SMOOTH:
            least = max(least, -(-self.components // MAX_SMOOTH_COMPONENTS))
        return max(0, least - length)

    def to_bytes(self) -> bytes:
        """Return the header as stored."""
        flags = FLAG_REFERENCE * self.relative | FLAG_RUN * self.run | FLAG_ORDERED * self.ordered
        first = 0 if self.run else len(self.shapes[0])
        head = _HEAD.pack(
            FRAME_MAGIC, FORMAT_MAJOR, self.method, self.kind.code, flags, first, self.block_log2
        )
        if self.run:
            head += struct.pack("<I", len(self.shapes)) + bytes(map(len, self.shapes))
        extents = list(chain.from_iterable(self.shapes))
        return head + struct.pack(f"<{len(extents)}Q", *extents)


def check_shape(shape: Shape) -> None:
    """Raise ``ArgumentError`` if no reader accepts an array of this shape."""
    broken = None
    if math.prod(filter(None, shape)) > MAX_ELEMENTS:
        broken = _TOO_MANY_ELEMENTS
    if len(shape) > MAX_DIMENSIONS:
        broken = f"{len(shape)} dimensions, more than {MAX_DIMENSIONS}"
    if broken:
        raise ArgumentError(f"an array of shape {shape} cannot be stored: {broken}")


def parse_header(data: bytes | Stored, where: str = "frame", behind: int = 0) -> FrameHeader:
    """Read the header at the start of a frame; raise ``DataError`` if it breaks a rule of SPEC 6.1.

    `data` is the frame, or its first bytes. It must have `behind` bytes behind the header.
    """
    cursor = Cursor(memoryview(data) if isinstance(data, bytes) else data, where)
    magic, version, method, code, flags, first, block_log2 = _HEAD.unpack(cursor.take(_HEAD.size, "header"))
    if magic != FRAME_MAGIC:
        raise FormatError("LCC-FRM-01", where, "this is not an lccodec frame")
    if version != FORMAT_MAJOR:
        message = f"frame version {version}; this reader knows {FORMAT_MAJOR}"
        raise UnsupportedError("LCC-VER-01", where, message)
    if method not in _METHODS:
        raise UnsupportedError("LCC-FRM-03", where, f"method {method} is not defined")
    relative, run, ordered = bool(flags & FLAG_REFERENCE), bool(flags & FLAG_RUN), bool(flags & FLAG_ORDERED)
    not_allowed = (relative and method == METHOD_RAW) or (run and method == METHOD_SMOOTH)
    if flags & ~(FLAG_REFERENCE | FLAG_RUN | FLAG_ORDERED) or not_allowed:
        raise UnsupportedError("LCC-FRM-04", where, f"flags {flags:#x} are reserved for method {method}")
    if ordered and not (relative and method == METHOD_CODEBOOK):
        message = f"an ordered frame cannot have method {method} and flags {flags:#x}"
        raise UnsupportedError("LCC-FRM-12", where, message)
    if code >= len(ELEMENT_TYPES):
        raise UnsupportedError("LCC-FRM-06", where, f"element type {code} is not defined")
    kind = ELEMENT_TYPES[code]
    if method == METHOD_CODEBOOK and not kind.is_float:
        raise FormatError("LCC-FRM-06", where, f"the codebook method does not store {kind.name}")
    if method == METHOD_SMOOTH and kind.kind != "f":
        raise FormatError("LCC-FRM-06", where, f"the smooth method does not store {kind.name}")
    smallest, largest = _BLOCK_LOG2.get(method, (MIN_BLOCK_LOG2, MAX_BLOCK_LOG2))
    if not smallest <= block_log2 <= largest:
        raise LimitError("LCC-LIM-02", where, f"blocks of 2**{block_log2} components are not allowed")
    dimensions = bytes([first])
    if run:
        count = cursor.integer("I", "number of arrays")
        if first or not 1 <= count <= MAX_ARRAYS:
            message = f"a run cannot have {count} arrays and {first} dimensions"
            raise FormatError("LCC-FRM-11", where, message)
        dimensions = bytes(cursor.take(count, "dimensions"))
    if max(dimensions) > MAX_DIMENSIONS:
        message = f"{max(dimensions)} dimensions, more than {MAX_DIMENSIONS}"
        raise LimitError("LCC-FRM-05", where, message)
    total = sum(dimensions)
    extents = struct.unpack(f"<{total}Q", cursor.take(8 * total, "shape"))
    left = iter(extents)
    shapes = tuple(tuple(islice(left, count)) for count in dimensions) if run else (extents,)
    if cursor.remaining < behind:
        raise TruncatedError("LCC-FRM-02", where, f"{len(data)} bytes do not hold a whole frame")
    header = FrameHeader(method, kind, relative, shapes, block_log2, run, ordered)
    elements = 0
    for shape in shapes:
        elements += math.prod(filter(None, shape))  # the extents of an empty array are limited too
    if elements > MAX_ELEMENTS:
        raise LimitError("LCC-LIM-01", where, _TOO_MANY_ELEMENTS)
    if run and header.components > MAX_RUN_COMPONENTS:
        raise LimitError("LCC-LIM-09", where, f"a run of {header.components} components is too long")
    return header


#: Bytes of a piece, at least (a writer's choice): coded blocks may have a few bytes each.
MIN_PIECE_BYTES: Final = 1 << 12
MIN_RAW_PIECE_BYTES: Final = 1 << 18
_MIN_RAW_BYTES: Final = 1 << 20  # of a raw frame that is worth a table
SIZE_BYTES: Final = 4  # of the size before each block


def block_count(header: FrameHeader) -> int:
    """Return the number of blocks of a frame."""
    return 0 if not header.components else block_number(header, header.components - 1) + 1


def block_number(header: FrameHeader, component: int) -> int:
    """Return the number of the block that holds a component."""
    if header.method != METHOD_SMOOTH:
        return component >> (RAW_BLOCK_LOG2 if header.method == METHOD_RAW else header.block_log2)
    shape = header.shapes[0] or (1,)
    if 0 in shape:
        return 0
    axis, rows = _rows_of_a_block(shape, header.block_log2)
    row = math.prod(shape[axis + 1 :])
    before, within = divmod(component, shape[axis] * row)
    return before * -(-shape[axis] // rows) + within // (rows * row)


def whole_blocks(header: FrameHeader, start: int, stop: int) -> tuple[int, int]:
    """Return the components of the blocks that hold components of a frame: the first, and the end.

    They are the given ones if there are none, and in a raw frame, whose components are apart.
    """
    if header.method == METHOD_RAW or start == stop:
        return start, stop
    if header.method != METHOD_SMOOTH:
        block = 1 << header.block_log2
        return start // block * block, min(-(-stop // block) * block, header.components)
    shape = header.shapes[0] or (1,)
    if 0 in shape:
        return start, stop
    axis, rows = _rows_of_a_block(shape, header.block_log2)
    row = math.prod(shape[axis + 1 :])
    block, whole = rows * row, shape[axis] * row
    first, last = start // whole * whole, (stop - 1) // whole * whole
    end = last + min(((stop - 1) % whole // block + 1) * block, whole)
    return first + start % whole // block * block, end


def blocks_of(header: FrameHeader, start: int, stop: int) -> Iterator[tuple[int, int, Shape | None]]:
    """Yield the first component, number of components and, of a field, the shape of each block.

    `start` is the first component of a block.
    """
    if header.method != METHOD_SMOOTH:
        length = 1 << header.block_log2
        for first in range(start, stop, length):
            yield first, length, None
        return
    for shape in block_shapes(header.shapes[0], header.block_log2, start):
        if start >= stop:
            return
        yield start, math.prod(shape), shape
        start += math.prod(shape)


def block_shapes(shape: Shape, log2: int, start: int) -> Iterator[Shape]:
    """Yield the shape of each block of a field (LCC-SMO-01), from that of component `start` on.

    Examples
    --------
    >>> list(block_shapes((100, 10, 2), 10, 0))
    [(50, 10, 2), (50, 10, 2)]
    >>> list(block_shapes((2, 3, 1000), 10, 0))
    [(1, 1000), (1, 1000), (1, 1000), (1, 1000), (1, 1000), (1, 1000)]
    >>> list(block_shapes((), 10, 0))
    [(1,)]
    """
    if 0 in shape:
        return
    shape = shape or (1,)
    axis, rows = _rows_of_a_block(shape, log2)
    row = math.prod(shape[axis + 1 :])
    before, within = divmod(start, shape[axis] * row)
    first = within // row
    for _ in range(before, math.prod(shape[:axis])):
        for at in range(first, shape[axis], rows):
            yield (min(rows, shape[axis] - at), *shape[axis + 1 :])
        first = 0


def _rows_of_a_block(shape: Shape, log2: int) -> tuple[int, int]:
    """Return the axis that blocks cut, and how many of its rows a block has (LCC-SMO-01)."""
    axis = next(k for k in range(len(shape)) if math.prod(shape[k + 1 :]) <= 1 << log2)
    extent, row = shape[axis], math.prod(shape[axis + 1 :])
    return axis, -(-extent // -(-extent // ((1 << log2) // row)))


def head_size(frame: Stored, header: FrameHeader) -> int:
    """Return the bytes before the first block: of the header, and of the codebook.

    A ``TruncatedError`` says that the bytes end before that.
    """
    if header.method != METHOD_CODEBOOK:
        return header.size
    cursor, arrays = Cursor(frame, "frame", header.size), len(header.shapes)
    counts = struct.unpack(f"<{arrays}H", cursor.take(2 * arrays, "numbers of representatives"))
    cursor.skip(sum(counts) * header.kind.size, "representatives")
    return cursor.position


def block_starts(piece: Stored, header: FrameHeader, blocks: int, *, last: bool) -> Sequence[int]:
    """Return where each block of a piece begins; the last piece has the end of the frame too.

    A piece must be so many whole blocks (LCC-PCS-03).
    """
    if header.method == METHOD_RAW:
        length = header.kind.size << RAW_BLOCK_LOG2
        sound = last or len(piece) == blocks * length
        # No list: the piece may be shorter than the blocks that it is said to have.
        starts: Sequence[int] = range(0, blocks * length, length)
    else:
        cursor, starts = Cursor(piece, "frame"), (found := list[int]())
        try:
            for _ in range(blocks):
                found.append(cursor.position)
                cursor.skip(cursor.integer("I", "size of a block"), "block")
            sound = last or not cursor.remaining
        except TruncatedError:
            sound = False
    if not sound:
        raise FormatError("LCC-PCS-03", "frame", f"a piece is not {blocks} whole blocks")
    return starts


def raw_pieces(header: FrameHeader) -> int:
    """Return in how many pieces a raw frame is cut; 0 if it is not."""
    if not is_cut(header):
        return 0
    blocks = -(-MIN_RAW_PIECE_BYTES // (header.kind.size << RAW_BLOCK_LOG2))  # of a piece
    return 1 + -(-block_count(header) // blocks)


def is_cut(header: FrameHeader) -> bool:
    """Return whether a frame has several pieces."""
    large = header.method != METHOD_RAW or header.nbytes >= _MIN_RAW_BYTES
    return large and block_count(header) > 1
