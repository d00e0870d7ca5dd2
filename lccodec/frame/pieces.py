"""Where frames can be cut: before their first block, and between blocks (LCC-PCS-03).

What lies between two cuts can be read, verified and decoded without the rest. A raw frame has no
blocks; for this it counts as blocks of 2**16 components. Source: SPEC 6.1 and 8.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from ..constants import METHOD_CODEBOOK, METHOD_RAW, METHOD_SMOOTH, RAW_BLOCK_LOG2
from ..cursor import Cursor, Stored
from ..errors import DataError, FormatError, TruncatedError
from .header import FrameHeader, Shape, parse_header

#: Bytes of a piece, at least (a writer's choice): coded blocks may have a few bytes each.
_MIN_PIECE_BYTES: Final = 1 << 12
_MIN_RAW_PIECE_BYTES: Final = 1 << 18
_MIN_RAW_BYTES: Final = 1 << 20  # of a raw frame that is worth a table
_SIZE_BYTES: Final = 4  # of the size before each block


def block_count(header: FrameHeader) -> int:
    """Return the number of blocks of a frame."""
    return 0 if not header.components else block_number(header, header.components - 1) + 1


def block_number(header: FrameHeader, component: int) -> int:
    """Return the number of the block that holds a component."""
    if header.method == METHOD_SMOOTH:
        from . import smooth  # here, as it loads NumPy

        return smooth.block_number(header.shapes[0], header.block_log2, component)
    return component >> (RAW_BLOCK_LOG2 if header.method == METHOD_RAW else header.block_log2)


def whole_blocks(header: FrameHeader, start: int, stop: int) -> tuple[int, int]:
    """Return the components of the blocks that hold components of a frame: the first, and the end.

    They are the given ones if there are none, and in a raw frame, whose components are apart.
    """
    if header.method == METHOD_RAW or start == stop:
        return start, stop
    if header.method != METHOD_SMOOTH:
        block = 1 << header.block_log2
        return start // block * block, min(-(-stop // block) * block, header.components)
    from . import smooth

    return smooth.whole_blocks(header.shapes[0], header.block_log2, start, stop)


def blocks_of(header: FrameHeader, start: int, stop: int) -> Iterator[tuple[int, int, Shape | None]]:
    """Yield the first component, number of components and, of a field, the shape of each block.

    `start` is the first component of a block.
    """
    if header.method != METHOD_SMOOTH:
        length = 1 << header.block_log2
        for first in range(start, stop, length):
            yield first, length, None
        return
    from . import smooth

    for shape in smooth.block_shapes(header.shapes[0], header.block_log2, start):
        if start >= stop:
            return
        yield start, math.prod(shape), shape
        start += math.prod(shape)


def head_size(frame: Stored, header: FrameHeader) -> int:
    """Return the bytes before the first block: of the header, and of the codebook.

    Raises
    ------
    TruncatedError
        If the bytes end before that.
    """
    if header.method != METHOD_CODEBOOK:
        return header.size
    cursor = Cursor(frame, "frame", header.size)
    from .codebook import read_counts  # here, as it loads NumPy

    cursor.skip(int(read_counts(cursor, header).sum()) * header.kind.size, "representatives")
    return cursor.position


def block_starts(piece: Stored, header: FrameHeader, blocks: int, *, last: bool) -> Sequence[int]:
    """Return where each block of a piece begins; the last piece has the end of the frame too.

    Raises
    ------
    FormatError
        If the piece is not so many whole blocks (LCC-PCS-03).
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
    if not _is_cut(header):
        return 0
    blocks = -(-_MIN_RAW_PIECE_BYTES // (header.kind.size << RAW_BLOCK_LOG2))  # of a piece
    return 1 + -(-block_count(header) // blocks)


def _is_cut(header: FrameHeader) -> bool:
    large = header.method != METHOD_RAW or header.nbytes >= _MIN_RAW_BYTES
    return large and block_count(header) > 1


class Cutter:
    """Tells where a frame is cut while its bytes go by.

    Parameters
    ----------
    take
        Called with bytes of the open piece, in order.
    close
        Called at the end of every piece but the last, with the number of its blocks.
    """

    def __init__(self, take: Callable[[memoryview], object], close: Callable[[int], object]) -> None:
        self._take, self._close = take, close
        self._held: bytes | None = b""  # until the first block is known
        self._left: float = 0  # bytes of the head, or of the block, that are to come
        self._fixed: int | None = None  # bytes of a block of a raw frame
        self._least = _MIN_PIECE_BYTES
        self._field = b""  # the size of the next block, as far as it is there
        self._length = self._blocks = 0  # of the open piece
        self._coming = 0  # blocks that have not begun

    def update(self, data: bytes | bytearray | memoryview) -> None:
        """Take the next bytes of the frame."""
        view = memoryview(data).cast("B")
        if self._held is not None:
            view = memoryview(self._held + view) if self._held else view
            self._left = math.inf
            try:
                header = parse_header(view)
                head = head_size(view, header)
            except TruncatedError:
                self._held = bytes(view)
                return
            except DataError:
                pass  # it is not cut
            else:
                if _is_cut(header):
                    self._left, self._coming = head, block_count(header)
                    if header.method == METHOD_RAW:
                        self._fixed, self._least = header.kind.size << RAW_BLOCK_LOG2, _MIN_RAW_PIECE_BYTES
            self._held = None
        while len(view):
            if not self._left:  # the next block begins, or what is behind the last
                if not self._coming:
                    self._left = math.inf
                elif self._fixed is not None:
                    self._left = self._fixed if self._coming > 1 else math.inf
                else:
                    missing = _SIZE_BYTES - len(self._field)
                    self._field += view[:missing]
                    self._left = min(missing, len(view))
                    if len(self._field) == _SIZE_BYTES:
                        self._left = missing + int.from_bytes(self._field, "little")
                        self._field = b""
                if not self._field and self._coming:
                    self._coming -= 1
                    self._blocks += 1
            size = len(view) if len(view) < self._left else int(self._left)
            self._take(view[:size])
            self._length += size
            view, self._left = view[size:], self._left - size
            # The open piece ends if it is the head, or long enough and not the last.
            ends = not self._blocks or (self._coming and self._length >= self._least)
            if ends and not self._left and not self._field:
                self._close(self._blocks)
                self._length = self._blocks = 0

    def finish(self) -> int:
        """Take what is held back of a frame that ends early; return the last piece's blocks."""
        self._take(memoryview(self._held or b""))
        return self._blocks
