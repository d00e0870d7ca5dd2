"""The header of a frame: its method, element type and shapes (SPEC 6.1).

The parser checks every rule of the header before anything of the declared size is allocated.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from typing import Final

from ..constants import (
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
)
from ..cursor import Cursor, Stored
from ..element_table import ELEMENT_TYPES, ElementType
from ..errors import ArgumentError, FormatError, LimitError, TruncatedError, UnsupportedError

Shape = tuple[int, ...]

_HEAD: Final = struct.Struct("<2sBBBBBB")
#: The last bytes of a frame: the array sum and the CRC-32.
TAIL: Final = struct.Struct("<QI")
#: The least and the largest block_log2 of methods that are not as others (LCC-LIM-02).
_BLOCK_LOG2: Final = {METHOD_RAW: (0, 0), METHOD_SMOOTH: (MIN_SMOOTH_BLOCK_LOG2, MAX_SMOOTH_BLOCK_LOG2)}
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
    broken = _too_many_elements([shape])
    if len(shape) > MAX_DIMENSIONS:
        broken = f"{len(shape)} dimensions, more than {MAX_DIMENSIONS}"
    if broken:
        raise ArgumentError(f"an array of shape {shape} cannot be stored: {broken}")


def _too_many_elements(shapes: Sequence[Shape]) -> str | None:
    """Return what is wrong with arrays of these shapes together, or ``None``."""
    elements = 0
    for shape in shapes:
        elements += math.prod(filter(None, shape))  # the extents of an empty array are limited too
    return f"more than {MAX_ELEMENTS} elements, extents of 0 left out" if elements > MAX_ELEMENTS else None


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
    if broken := _too_many_elements(header.shapes):
        raise LimitError("LCC-LIM-01", where, broken)
    if run and header.components > MAX_RUN_COMPONENTS:
        raise LimitError("LCC-LIM-09", where, f"a run of {header.components} components is too long")
    return header
