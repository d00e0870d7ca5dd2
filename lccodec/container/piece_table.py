"""The entries of frames in the manifest, and the tables of pieces behind frames that are cut.

An entry has the length and the digest of a frame (SPEC 8, LCC-MAN-05, LCC-MAN-08).

A frame of several blocks is cut before its first block, and between blocks. The table has the
length and the digest of each piece. It stands behind its frame, and the digest in the manifest is
its own: so a reader verifies the table, and by it any piece. Each byte is hashed once.

Source: SPEC 8 (LCC-PCS).
"""

from __future__ import annotations

import itertools
import math
import struct
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, NamedTuple, Protocol

from ..constants import DIGEST_SIZE, METHOD_RAW, PIECE_ENTRY_SIZE, RAW_BLOCK_LOG2
from ..cursor import Cursor, Stored
from ..errors import ChecksumError, DataError, FormatError, TruncatedError
from ..frame.header import (
    MIN_PIECE_BYTES,
    MIN_RAW_PIECE_BYTES,
    SIZE_BYTES,
    FrameHeader,
    block_count,
    block_number,
    block_starts,
    head_size,
    is_cut,
    parse_header,
)
from ..parallel import SideThread, batches, cached_property, ordered
from .source import Stretch
from .system import Bytes


def chunks_of(frame: Bytes | Iterable[Bytes]) -> Iterable[Bytes]:
    """Return the chunks of a frame that is given whole or in chunks."""
    return (frame,) if isinstance(frame, bytes | bytearray | memoryview) else frame


@dataclass(frozen=True)
class FrameEntry:
    """The entry of a frame: its length in bytes, a digest, and the length of its table.

    The digest is the start of the SHA-256 of the frame, or of its table if that is not 0 bytes long
    (LCC-MAN-08).
    """

    length: int
    digest: bytes
    table: int = 0

    @property
    def stored(self) -> int:
        """Bytes of the frame and of its table."""
        return self.length + self.table


class SizedFrame(Protocol):
    """A frame whose length is known before its chunks are made."""

    @property
    def length(self) -> int:
        """Bytes of the frame."""

    @property
    def table_pieces(self) -> int:
        """In how many pieces it is cut; 0 if it is not."""

    def chunks(self) -> Iterator[Bytes]:
        """Yield the bytes of the frame in chunks that do not change."""


_TASK_BYTES: Final = 1 << 22  # that a thread hashes at a time
_ENTRY: Final = struct.Struct(f"<IQ{DIGEST_SIZE}s")


class Piece(NamedTuple):
    """Some bytes of a frame: how many blocks they have, how many they are, and their digest."""

    blocks: int
    length: int
    digest: bytes


class FrameHasher:
    """Makes the entry of a frame whose bytes go by, and its table."""

    def __init__(self) -> None:
        self._pieces: list[Piece] = []
        self._digest, self._length, self._blocks = sha256(), 0, 0  # of the open piece
        self._held: bytes | None = b""  # until the first block is known
        self._left: float = 0  # bytes of the head, or of the block, that are to come
        self._fixed: int | None = None  # bytes of a block of a raw frame
        self._least = MIN_PIECE_BYTES
        self._field = b""  # the size of the next block, as far as it is there
        self._coming = 0  # blocks that have not begun

    def update(self, data: Bytes) -> None:
        """Take the next bytes of the frame."""
        view = memoryview(data).cast("B")
        if self._held is not None:
            view = memoryview(self._held + view) if self._held else view
            self._left = math.inf
            try:
                header = parse_header(view)
                if is_cut(header):
                    self._left, self._coming = head_size(view, header), block_count(header)
                    if header.method == METHOD_RAW:
                        self._fixed, self._least = header.kind.size << RAW_BLOCK_LOG2, MIN_RAW_PIECE_BYTES
            except TruncatedError:
                self._held = bytes(view)
                return
            except DataError:
                pass  # it is not cut
            self._held = None
        while len(view):
            if not self._left:  # the next block begins, or what is behind the last
                if not self._coming:
                    self._left = math.inf
                elif self._fixed is not None:
                    self._left = self._fixed if self._coming > 1 else math.inf
                else:
                    missing = SIZE_BYTES - len(self._field)
                    self._field += view[:missing]
                    self._left = min(missing, len(view))
                    if len(self._field) == SIZE_BYTES:
                        self._left = missing + int.from_bytes(self._field, "little")
                        self._field = b""
                if not self._field and self._coming:
                    self._coming -= 1
                    self._blocks += 1
            size = len(view) if len(view) < self._left else int(self._left)
            self._digest.update(view[:size])
            self._length += size
            view, self._left = view[size:], self._left - size
            # The open piece ends if it is the head, or long enough and not the last.
            ends = not self._blocks or (self._coming and self._length >= self._least)
            if ends and not self._left and not self._field:
                self._close()

    def finish(self) -> tuple[FrameEntry, bytes]:
        """Return the entry of the frame, and its table; empty for a frame of one piece."""
        held = self._held or b""  # of a frame that ends early
        self._digest.update(held)
        self._length += len(held)
        self._close()
        length, table = 0, bytearray()
        for piece in self._pieces:
            length += piece.length
            table += _ENTRY.pack(*piece)
        if len(self._pieces) == 1:
            return FrameEntry(length, self._pieces[0].digest), b""
        return FrameEntry(length, sha256(table).digest()[:DIGEST_SIZE], len(table)), bytes(table)

    def _close(self) -> None:
        self._pieces.append(Piece(self._blocks, self._length, self._digest.digest()[:DIGEST_SIZE]))
        self._digest, self._length, self._blocks = sha256(), 0, 0


def _check_digest(piece: Piece, digest: bytes, number: int, where: str) -> None:
    if digest[:DIGEST_SIZE] != piece.digest:
        raise ChecksumError("LCC-PCS-02", where, f"piece {number} does not match its digest")


def hashed_beside(frame: Iterable[Bytes]) -> tuple[FrameEntry, bytes]:
    """Return the same as :func:`hashed`; a thread hashes a chunk while the next one is made."""
    hasher = FrameHasher()
    with SideThread() as side:
        for chunk in frame:
            side.call(hasher.update, chunk)
        return side.call(hasher.finish).result()


def hashed(frame: Bytes | Iterable[Bytes]) -> tuple[FrameEntry, bytes]:
    """Return the entry and the table of a frame that is given whole or in chunks."""
    hasher = FrameHasher()
    for chunk in chunks_of(frame):
        hasher.update(chunk)
    return hasher.finish()


@dataclass(frozen=True)
class FramePart:
    """A frame of which only some bytes are there, all of them verified."""

    size: int  # bytes of the whole frame
    parts: Sequence[tuple[int, memoryview]]  # bytes that are there, with their offsets in the frame
    # `component`, `offset`: the first component of a block, and where this block begins in the
    # frame.
    component: int
    offset: int

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, part: slice) -> memoryview:
        start, stop, _ = part.indices(self.size)
        for offset, data in self.parts:
            if offset <= start and stop <= offset + len(data):
                return data[start - offset : stop - offset]
        raise FormatError("LCC-PCS-03", "frame", f"bytes {start} to {stop} are not in the pieces of a part")


@dataclass(frozen=True)
class PieceTable:
    """The pieces of a frame, in order: first its head, and then some blocks in each."""

    pieces: Sequence[Piece]

    @classmethod
    def parse(cls, data: bytes, length: int, where: str) -> PieceTable:
        """Read the table of a frame of `length` bytes.

        Raises ``FormatError`` if it has another form (LCC-PCS-01).
        """
        if len(data) % PIECE_ENTRY_SIZE or len(data) < 2 * PIECE_ENTRY_SIZE:
            raise FormatError("LCC-PCS-01", where, f"{len(data)} bytes are not the table of pieces")
        pieces = [Piece(*fields) for fields in _ENTRY.iter_unpack(data)]
        if pieces[0].blocks or not all(piece.blocks for piece in pieces[1:]):
            raise FormatError("LCC-PCS-01", where, "blocks before the first block, or a piece without one")
        if sum(piece.length for piece in pieces) != length:
            raise FormatError("LCC-PCS-01", where, f"the pieces are not the {length} bytes of the frame")
        return cls(pieces)

    @cached_property
    def starts(self) -> list[int]:
        """The offset of each piece in the frame."""
        return list(itertools.accumulate((piece.length for piece in self.pieces[:-1]), initial=0))

    @cached_property
    def ends(self) -> list[int]:
        """How many blocks each piece and those before it have."""
        return list(itertools.accumulate(piece.blocks for piece in self.pieces))

    def verify(self, frame: Stored, where: str, threads: int = 1) -> None:
        """Raise ``ChecksumError`` if a piece of a whole frame is damaged (LCC-PCS-02).

        So many `threads` read and hash the pieces.
        """

        def verified(numbers: Sequence[int]) -> None:
            for number in numbers:
                piece, digest = self.pieces[number], sha256()
                data = Stretch(frame.__getitem__, self.starts[number], piece.length)
                for chunk in Cursor(data, where).chunks(piece.length, "piece"):
                    digest.update(chunk)
                _check_digest(piece, digest.digest(), number, where)

        numbers = batches(range(len(self.pieces)), lambda number: self.pieces[number].length, _TASK_BYTES)
        for _ in ordered(verified, numbers, threads):
            pass

    def verify_piece(self, number: int, data: Bytes, where: str) -> None:
        """Raise ``ChecksumError`` if the bytes of one piece are damaged (LCC-PCS-02)."""
        _check_digest(self.pieces[number], sha256(data).digest(), number, where)

    def check(self, frame: Stored, header: FrameHeader) -> None:
        """Raise ``FormatError`` if the pieces of a whole frame are not its blocks (LCC-PCS-03)."""
        self._check_head(frame, header)
        last = len(self.pieces) - 1
        for number, (start, piece) in enumerate(zip(self.starts, self.pieces, strict=True)):
            if number:
                data = Stretch(frame.__getitem__, start, piece.length)
                block_starts(data, header, piece.blocks, last=number == last)

    def holding(self, header: FrameHeader, start: int, stop: int) -> tuple[int, int, int]:
        """Return which pieces hold components: the first, the end, and the first one's first block.

        Raises ``FormatError`` if the table has another number of blocks than the frame, or the
        frame does not have these components (LCC-PCS-03).
        """
        self._check_blocks(header)
        if not 0 <= start < stop <= header.components:
            message = f"components {start} to {stop} of {header.components}"
            raise FormatError("LCC-PCS-03", "frame", message)
        first, last = block_number(header, start), block_number(header, stop - 1)
        begin = bisect_right(self.ends, first)
        return begin, bisect_right(self.ends, last) + 1, self.ends[begin - 1]

    def part(
        self, read: Callable[[int, int], bytes], header: FrameHeader, start: int, stop: int, where: str
    ) -> FramePart:
        """Read and verify the pieces that hold some components, and the head.

        `read` returns bytes of the frame, by their offset and their number. The components are
        those from `start`, the first of a block, to `stop`, the end of one. Raises
        ``ChecksumError`` or ``FormatError`` if a piece that is read is damaged (LCC-PCS-02), or is
        not whole blocks (LCC-PCS-03).
        """
        first, end, block = self.holding(header, start, stop)
        starts, length = self.starts, self.starts[-1] + self.pieces[-1].length
        head = memoryview(read(0, self.pieces[0].length))
        _check_digest(self.pieces[0], sha256(head).digest(), 0, where)
        self._check_head(head, header)
        size = sum(piece.length for piece in self.pieces[first:end])
        body = memoryview(read(starts[first], size))
        offset = None
        for number in range(first, end):
            at, piece = starts[number] - starts[first], self.pieces[number]
            data = body[at : at + piece.length]
            _check_digest(piece, sha256(data).digest(), number, where)
            own_starts = block_starts(data, header, piece.blocks, last=number == len(self.pieces) - 1)
            if offset is None:
                offset = starts[first] + own_starts[block_number(header, start) - block]
        return FramePart(length, ((0, head), (starts[first], body)), start, offset or 0)

    def _check_head(self, frame: Stored, header: FrameHeader) -> None:
        self._check_blocks(header)
        try:
            fits = head_size(frame, header) == self.pieces[0].length
        except TruncatedError:  # the codebook goes beyond the piece
            fits = False
        if not fits:
            raise FormatError("LCC-PCS-03", "frame", "the first piece does not end at the first block")

    def _check_blocks(self, header: FrameHeader) -> None:
        if self.ends[-1] != block_count(header):
            raise FormatError("LCC-PCS-03", "frame", "the table has another number of blocks")
