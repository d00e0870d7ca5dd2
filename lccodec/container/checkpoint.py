"""One checkpoint file: the bytes around its frames, reading it, and writing it (SPEC 8 and 9).

::

    head of the HDF5 file | payload: the frames | manifest | trailer

The *trailer* is a structure of fixed size at the end of the file. It says where payload and
manifest lie, and holds the root.

Before it lies a small HDF5 file (LCC-H5-02): the root group, two one-dimensional contiguous
datasets of unsigned bytes, ``payload`` and then ``manifest``, and an attribute that says what the
file is. All other bytes depend only on the two sizes (LCC-H5-05): the *skeleton*. They are laid out
here without the HDF5 library, so that no version of it can stop a save or a check. The tests let
the library write the same bytes.

The reader finds everything by the trailer, with positioned reads and without the HDF5 library:
stored bytes enter no C code but SHA-256 and the JSON parser. The digests in the manifest cover the
payload, and the root (LCC-TRL-05) covers all other bytes. Every declared size is compared with the
size of the file before memory is taken.

A checkpoint is written under a temporary name, and linked into place once it is on the disk
(LCC-CHN-06). So a reader sees the whole file or no file. A failure leaves nothing behind. A killed
process leaves a temporary file (:mod:`lccodec.container.folder`).
"""

from __future__ import annotations

import itertools
import re
import struct
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Final, Self, TypeVar

from ..constants import (
    DIGEST_SIZE,
    FORMAT_MAJOR,
    FORMAT_MINOR,
    MAX_MANIFEST_BYTES,
    PAYLOAD_DATASET,
    PAYLOAD_OFFSET,
    PIECE_ENTRY_SIZE,
    ROOT_SIZE,
    TRAILER_MAGIC,
    TRAILER_SIZE,
)
from ..cursor import Cursor, Stored
from ..errors import (
    ArgumentError,
    ChecksumError,
    DataError,
    FormatError,
    LimitError,
    TruncatedError,
    UnsupportedError,
)
from ..frame.header import TAIL, FrameHeader, parse_header
from ..parallel import cached_property, ordered
from .folder import WholeFile
from .manifest import INHERITED, Manifest, parse_manifest
from .piece_table import (
    FrameEntry,
    FrameHasher,
    FramePart,
    PieceTable,
    SizedFrame,
    chunks_of,
    hashed,
    hashed_beside,
)
from .source import BytesSource, FileSource, Source, Stretch
from .system import SYSTEM, Bytes, StrPath, System
from .tree import array_names, first_difference


@dataclass(frozen=True)
class Trailer:
    """The last bytes of the file (LCC-TRL-02): lengths of payload and manifest, and the root.

    The two lengths imply the offsets, because the HDF5 layout is fixed (LCC-H5-05).
    """

    payload_length: int
    manifest_length: int
    root: bytes = bytes(ROOT_SIZE)
    minor: int = FORMAT_MINOR

    @property
    def spans(self) -> list[int]:
        """Offset and length of payload and manifest, and the length of the whole file."""
        payload, manifest = self.payload_length, self.manifest_length
        end = PAYLOAD_OFFSET + payload
        return [PAYLOAD_OFFSET, payload, end, manifest, end + manifest + TRAILER_SIZE]

    def to_bytes(self) -> bytes:
        """Return the trailer as stored in the file."""
        return _TRAILER.pack(TRAILER_MAGIC, FORMAT_MAJOR, self.minor, _LAYOUT, *self.spans, self.root)


_LAYOUT: Final = 1  # LCC-TRL-04
_TRAILER: Final = struct.Struct(f"<8sHHI5Q{ROOT_SIZE}s")  # LCC-TRL-02
_PIECE_BYTES: Final = 1 << 20  # of a manifest that may be of any length, hashed at once


def parse_trailer(data: bytes, where: str) -> Trailer:
    """Read a trailer of `TRAILER_SIZE` bytes (LCC-TRL-01 to LCC-TRL-06, LCC-LIM-04)."""
    if len(data) != TRAILER_SIZE or not data.startswith(TRAILER_MAGIC):
        raise FormatError("LCC-TRL-01", where, "no trailer")
    _, major, minor, layout, *spans, root = _TRAILER.unpack(data)
    if major != FORMAT_MAJOR:
        raise UnsupportedError("LCC-TRL-03", where, f"format version {major}.{minor}")
    if layout != _LAYOUT:
        raise UnsupportedError("LCC-TRL-04", where, f"layout {layout} in version {major}.{minor}")
    trailer = Trailer(payload_length=spans[1], manifest_length=spans[3], root=root, minor=minor)
    if trailer.manifest_length > MAX_MANIFEST_BYTES:
        raise LimitError("LCC-LIM-04", where, f"a manifest of {trailer.manifest_length} bytes is too long")
    if spans != trailer.spans:
        raise FormatError("LCC-TRL-06", where, f"offsets and lengths do not agree: {spans}")
    return trailer


def root_of(head: bytes, tail: bytes) -> bytes:
    """Return the root: the SHA-256 of all bytes before and behind the payload (LCC-TRL-05)."""
    digest = sha256(head)
    digest.update(tail)
    return digest.digest()


def sound_root(source: Source) -> bytes | None:
    """Return the root of a file of any version, if it is that of the bytes around its payload.

    Otherwise it returns ``None``. Any version is taken to have a trailer of this form.
    """
    if source.size < PAYLOAD_OFFSET + TRAILER_SIZE:
        return None
    data = source.read(source.size - TRAILER_SIZE, TRAILER_SIZE)
    magic, _, minor, _, *spans, root = _TRAILER.unpack(data)
    trailer = Trailer(payload_length=spans[1], manifest_length=spans[3], root=root, minor=minor)
    if magic != TRAILER_MAGIC or spans != trailer.spans or spans[4] != source.size:
        return None
    digest, end = sha256(source.read(0, PAYLOAD_OFFSET)), source.size - ROOT_SIZE
    for start in range(spans[2], end, _PIECE_BYTES):
        digest.update(source.read(start, min(_PIECE_BYTES, end - start)))
    return root if digest.digest() == root else None


# LCC-H5-05. An item is bytes in hexadecimal, or *n for n bytes 0, or ff*n for n bytes 0xff, or the
# name of a u64, or # for the checksum of all bytes since the last one.
_HEAD: Final = """
894844460d0a1a0a 02080800 *8 ff*8 end 30 *7 #
4f484452 0200bc
02120000 0000 ff*16
0a060001 000202003f00
06120000 010007 7061796c6f6164 f7 *7
06130000 010008 6d616e6966657374 5a01 *6
15120004 0000 ff*16
0c550000 0300 0600 0800 0400 00 61626f757400 13010000 3a000000 02000000
6c63636f64656320636865636b706f69 6e743a2070697020696e7374616c6c20
6c63636f6465633b206c63636f646563 20696e666f2046494c45 #
4f484452 020058
01140000 02010101 payload_size payload_size
030c0001 10000000 010000000000 0800
05020001 0306
08120000 0301 payload_address payload_size
00100000 *16 #
4f484452 020058
01140000 02010101 manifest_size manifest_size
030c0001 10000000 010000000000 0800
05020001 0306
08120000 0301 manifest_address manifest_size
00100000 *16 #
"""
_UNDEFINED_ADDRESS: Final = (1 << 64) - 1
_WORD: Final = 0xFFFFFFFF


def skeleton(trailer: Trailer) -> bytes:
    """Return the head: all bytes of the HDF5 part that are neither payload nor manifest.

    A payload of no bytes is a dataset of no elements, which has no address (LCC-H5-04).

    Examples
    --------
    >>> len(skeleton(Trailer(payload_length=10**12, manifest_length=500)))
    445
    """
    payload, size, manifest, manifest_size, _ = trailer.spans
    values = {
        "payload_size": size,
        "payload_address": payload if size else _UNDEFINED_ADDRESS,
        "manifest_size": manifest_size,
        "manifest_address": manifest,
        "end": manifest + manifest_size,
    }
    made, start = bytearray(), 0
    for item in _HEAD.split():
        digits, times, count = item.partition("*")
        if item in values:
            made += struct.pack("<Q", values[item])
        elif item == "#":
            made += struct.pack("<I", _checksum(made[start:]))
            start = len(made)
        else:
            made += bytes.fromhex(digits or "00") * (int(count) if times else 1)
    return bytes(made)


def _checksum(data: bytes | bytearray) -> int:
    """Return the checksum of HDF5 metadata: Jenkins' lookup3, ``hashlittle`` from 0."""
    words = struct.unpack(f"<{-(-len(data) // 12) * 3}I", data + bytes(-len(data) % 12))
    a = b = c = (0xDEADBEEF + len(data)) & _WORD
    for place in range(0, len(words), 3):
        if place:  # mix
            for bits in (4, 6, 8, 16, 19, 4):
                a = (a - c) & _WORD ^ (c << bits & _WORD | c >> 32 - bits)
                a, b, c = b, (c + b) & _WORD, a
        a, b, c = (a + words[place]) & _WORD, (b + words[place + 1]) & _WORD, (c + words[place + 2]) & _WORD
    for bits in (14, 11, 25, 16, 4, 14, 24):  # final
        a, b, c = b, ((c ^ b) - (b << bits & _WORD | b >> 32 - bits)) & _WORD, a
    return b


_HDF5_SIGNATURE: Final = b"\x89HDF\r\n\x1a\n"
# Bytes of the head that hold the length of the HDF5 part, and the name of the first dataset.
_HDF5_END, _HDF5_PAYLOAD_NAME = slice(28, 36), slice(94, 101)
_MAX_WHOLE_BYTES: Final = 1 << 24  # largest frame that is read into memory whole
# The first bytes of every manifest of a delta, and of an exact file (LCC-MAN-01, LCC-MAN-03).
_PARENTS: Final = re.compile(
    rb'\{"lccodec":\[\d+,\d+\],"step":(?:\d+|null),"parent":\[(\d{1,16}),"[\w-]*"\]'
    rb'(?:,"later":\[(\d{1,16}),)?'
)
_EXACT: Final = re.compile(rb'\{"lccodec":\[\d+,\d+\],"step":(\d{1,16}),"parent":null,"exact":true,')
_START_BYTES: Final = 256  # of a manifest, in which both of these lie

T = TypeVar("T")


class CheckpointReader(AbstractContextManager["CheckpointReader"]):
    """A checkpoint that is open for reading; `open_checkpoint` and `open_bytes` return it.

    Opening verifies the root and parses the manifest; `frame` verifies each frame. Several threads
    may read frames at once, but not while another thread closes the reader. Errors call the file by
    its `name`. The `root` stands for all bytes of the file.
    """

    def __init__(self, source: Source, name: str) -> None:
        self._source: Source | None = source
        self.name = name
        self.file_size = source.size
        self._tables: dict[int, PieceTable] = {}
        self._heads: dict[int, bytes] = {}  # of frames of a far source, as they were handed out
        try:
            self.of_frame(None, self._open)
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        """Read and verify all but the payload."""
        source = self.source
        trailer = self.trailer = read_trailer(source, self.name)
        self.root = trailer.root
        head = source.read(0, PAYLOAD_OFFSET)
        _, declared, start, size, _ = trailer.spans
        tail = source.read(start, size + TRAILER_SIZE)
        if root_of(head, tail[:-ROOT_SIZE]) != trailer.root:
            raise ChecksumError("LCC-TRL-05", self.name, "the bytes around the payload do not match the root")
        where = f"{self.name}: manifest"
        manifest = self.manifest = parse_manifest(tail[:-TRAILER_SIZE], where)
        if manifest.minor != trailer.minor:
            raise FormatError("LCC-MAN-09", f"{where}: lccodec", "not the same version as in the trailer")
        self._offsets = [PAYLOAD_OFFSET]  # of each frame, and the end of the last
        for entry in manifest.frames:
            self._offsets.append(self._offsets[-1] + entry.length + entry.table)
        if (length := self._offsets[-1] - PAYLOAD_OFFSET) != declared:
            message = f"{length} bytes of frames in a payload of {declared} bytes"
            raise FormatError("LCC-MAN-05", f"{where}: frames", message)
        source.opened(self.root, self._is_covered)

    def of_frame(self, index: int | None, read: Callable[[], T]) -> T:
        """Return what `read` makes of bytes of a frame, which it checks; None stands for all bytes.

        If it raises ``DataError``, it is called once more where the store may have sent other bytes
        than it has.
        """
        try:
            return read()
        except DataError:
            start, size = (0, self.file_size) if index is None else self.span(index)[1:]
            if not self.source.forget(start, size):
                raise
        return read()

    def frame(self, index: int, *, verify: bool = True, threads: int = 1) -> Stored:
        """Return the bytes of a frame; raise ``ChecksumError`` for other bytes (LCC-MAN-08).

        A large frame is read once to verify it, by so many `threads` if it has a table, and a
        second time while it is decoded. Without `verify`, any frame is read while it is decoded,
        and somebody else must verify it.
        """
        length, offset = self._entry(index).length, self._offsets[index]
        if not verify:
            return Stretch(self._read_slice, offset, length)
        twice = length > _MAX_WHOLE_BYTES and not self.source.far

        def read() -> Stored:
            data: Stored
            if twice:
                data = Stretch(self._read_slice, offset, length)
            else:
                data = memoryview(self.source.read(offset, length))
            self._verify(index, data, threads)
            return data

        data = self.of_frame(index, read)
        if index in self._heads:
            self._check_head(index, data)
        return data

    def _verify(self, index: int, data: Stored, threads: int = 1) -> None:
        """Raise ``ChecksumError`` if the bytes of a frame are not those that were stored."""
        entry = self._entry(index)
        if entry.table:
            self._verify_pieces(index, data, threads)
            return
        digest = sha256()
        for chunk in Cursor(data, self.name).chunks(entry.length, "frame"):
            digest.update(chunk)
        if digest.digest()[:DIGEST_SIZE] != entry.digest:
            raise self._other_bytes(index, "the bytes do")

    def _check_head(self, index: int, data: Stored) -> None:
        """Raise ``ChecksumError`` if the head of a verified frame was handed out with other bytes.

        The store has sent it garbled then, and what was planned by it is wrong.
        """
        head = self._heads[index]
        if bytes(data[: len(head)]) != head[: len(data)]:
            self.source.forget(self._offsets[index], len(head))
            raise self._other_bytes(index, "the bytes of its head, as they were first read, do")

    def part(self, index: int, header: FrameHeader, start: int, stop: int) -> FramePart | None:
        """Return the bytes of a frame that some of its components need, verified.

        They are those from `start`, the first of a block, to `stop`, the end of one. ``None`` if
        the frame has no table of pieces: then it is verified whole. Raises ``ChecksumError`` or
        ``FormatError`` if the table or a piece that is read is damaged (LCC-MAN-08, LCC-PCS).
        """
        if not self._entry(index).table:
            return None
        where, offset = self._place(index), self._offsets[index]
        read = lambda at, size: self.source.read(offset + at, size)  # noqa: E731
        part = self.of_frame(index, lambda: self._table(index).part(read, header, start, stop, where))
        if index in self._heads:
            self._check_head(index, part.parts[0][1])
        return part

    def _table(self, index: int) -> PieceTable:
        """Return the table of a frame, verified; it is read once."""
        if index not in self._tables:
            entry = self._entry(index)
            start = self._offsets[index] + entry.length
            self.of_frame(index, lambda: self._take(index, self.source.read(start, entry.table)))
        return self._tables[index]

    def _take(self, index: int, data: Bytes) -> None:
        """Verify the bytes of the table of a frame, and keep it."""
        entry = self._entry(index)
        if sha256(data).digest()[:DIGEST_SIZE] != entry.digest:
            raise self._other_bytes(index, "the bytes of the table do")
        self._tables[index] = PieceTable.parse(bytes(data), entry.length, self._place(index))

    def _is_covered(self, start: int, data: bytes) -> bool:
        """Return whether digests cover all of a range; raise ``DataError`` if they do not match.

        They cover whole frames and tables, pieces whose table is known, and all bytes of the file.
        """
        view, at, end = memoryview(data), start, start + len(data)
        if start == 0 and end == self.file_size:
            manifest = self.trailer.spans[2]
            tail = data[manifest:-ROOT_SIZE]
            if root_of(data[:PAYLOAD_OFFSET], tail) != self.root:
                raise ChecksumError("LCC-TRL-05", self.name, "the bytes around the payload do not match")
            at, end = PAYLOAD_OFFSET, manifest
        if not PAYLOAD_OFFSET <= at <= end <= self._offsets[-1]:
            return False
        while at < end:
            index = bisect_right(self._offsets, at) - 1
            entry, begin = self.manifest.frames[index], self._offsets[index]
            table = begin + entry.length
            if at == table and table + entry.table <= end:
                self._take(index, view[at - start : at - start + entry.table])
                at += entry.table
            elif at == begin and table + entry.table <= end:
                if entry.table:
                    self._take(index, view[table - start : table - start + entry.table])
                self._verify(index, view[at - start : table - start])
                at = table + entry.table
            elif index in self._tables and (length := self._verified_piece(index, view[at - start :], at)):
                at += length
            else:
                return False
        return True

    def _verified_piece(self, index: int, data: memoryview, at: int) -> int:
        """Verify the piece of a frame that begins at a place, and return its bytes.

        It returns 0 if none begins there, or not all of it is there.
        """
        table = self._tables[index]
        number = bisect_right(table.starts, at - self._offsets[index]) - 1
        piece = table.pieces[number]
        if table.starts[number] != at - self._offsets[index] or piece.length > len(data):
            return 0
        table.verify_piece(number, data[: piece.length], self._place(index))
        return piece.length

    def _verify_pieces(self, index: int, data: Stored, threads: int) -> None:
        where, table = self._place(index), self._table(index)
        table.verify(data, where, threads)
        try:
            header = parse_header(data, behind=TAIL.size)
        except DataError:
            return  # who decodes the frame raises it
        try:
            table.check(data, header)
        except FormatError as error:
            raise error.inside(where) from None

    def _place(self, index: int) -> str:
        name = self._names[index]
        return f"{self.name}: frame {index}" + ("" if name is None else f" ({name!r})")

    def _other_bytes(self, index: int, what: str) -> ChecksumError:
        return ChecksumError("LCC-MAN-08", self._place(index), f"{what} not match their digest")

    def verify(self) -> None:
        """Verify every frame; raise ``ChecksumError`` for the first that is damaged."""
        for index in range(len(self.manifest.frames)):
            self.frame(index)

    def frame_head(self, index: int, size: int) -> bytes:
        """Return the first `size` bytes of a frame, or all of a shorter one, not verified."""
        head = self.source.read(self._offsets[index], min(size, self._entry(index).length))
        if self.source.far:  # what a store sends may differ from one time to the next
            self._heads[index] = head
        return head

    def span(self, index: int, size: int | None = None) -> tuple[Source, int, int]:
        """Return the range of a frame and its table, or of its start, for `read_ahead`."""
        length = self._entry(index).stored
        return self.source, self._offsets[index], length if size is None else min(size, length)

    def table_span(self, index: int) -> tuple[Source, int, int]:
        """Return the range of the table of a frame, or of a frame without one, for `read_ahead`."""
        entry, offset = self._entry(index), self._offsets[index]
        return self.source, offset + (entry.length if entry.table else 0), entry.table or entry.length

    def part_spans(
        self, index: int, header: FrameHeader, start: int, stop: int
    ) -> list[tuple[Source, int, int]]:
        """Return the ranges that `part` reads, for `read_ahead`."""
        if not self._entry(index).table:
            return []
        table, offset = self._table(index), self._offsets[index]
        first, end, _ = table.holding(header, start, stop)
        size = sum(piece.length for piece in table.pieces[first:end])
        head = table.pieces[0].length
        return [(self.source, offset, head), (self.source, offset + table.starts[first], size)]

    def rest(self) -> None:
        """Give up the open file until the next read, which opens it again if it is the same."""
        if self._source is not None:
            self._source.rest(self.root)

    @property
    def roots(self) -> frozenset[bytes]:
        """The roots that others may name it by: its own, and those it replaces (LCC-CHN-10)."""
        return frozenset((self.root, *self.manifest.replaces))

    @property
    def source(self) -> Source:
        """What the bytes of the whole file are read from; ``ArgumentError`` once it is closed."""
        if self._source is None:
            raise ArgumentError(f"{self.name}: closed")
        return self._source

    def close(self, *_: object) -> None:
        """Close the file. Closing it again does nothing."""
        source, self._source = self._source, None
        if source is not None:
            source.close()

    __exit__ = close

    def _entry(self, index: int) -> FrameEntry:
        if not 0 <= index < len(self.manifest.frames):
            raise ArgumentError(f"{self.name}: no frame {index}, there are {len(self.manifest.frames)}")
        return self.manifest.frames[index]

    @cached_property  # made when an error needs it
    def _names(self) -> list[str | None]:
        """Name of the first array of each frame."""
        tree = self.manifest.tree
        named = [] if tree is INHERITED else list(array_names(tree).items())
        names = {i: name for name, i in reversed(named)}  # the first of several names
        return [names.get(members[0]) for members in self.manifest.members]

    def _read_slice(self, part: slice) -> bytes:
        return self.source.read(part.start, part.stop - part.start)


def open_checkpoint(path: StrPath) -> CheckpointReader:
    """Open a checkpoint file; raise ``StorageError``, or the ``DataError`` of the first rule it
    breaks.
    """
    return CheckpointReader(FileSource(path), str(path))


def open_bytes(data: Bytes, name: str = "<bytes>") -> CheckpointReader:
    """Open a checkpoint that is in memory. The bytes must not change while it is read."""
    return CheckpointReader(BytesSource(data), name)


def first_steps(source: Source, *, of_exact: bool) -> tuple[int, ...]:
    """Return the steps that a manifest begins with: of its parents, or of an exact file its own.

    There are none in another file. Raises what the trailer breaks, but not what the root or the
    manifest do: the step of a damaged file is known, so that it is opened and its error told.
    """
    size = min(source.size, TRAILER_SIZE)
    _, _, start, length, _ = parse_trailer(source.read(source.size - size, size), "").spans
    match = (_EXACT if of_exact else _PARENTS).match(source.read(start, min(length, _START_BYTES)))
    return () if match is None else tuple(map(int, filter(None, match.groups())))


def check_skeleton(reader: CheckpointReader) -> FormatError | None:
    """Compare the bytes before the payload with those that belong there (LCC-H5-05).

    HDF5 tools may then see something else in this file than lccodec does.
    """
    expected, stored = skeleton(reader.trailer), reader.source.read(0, PAYLOAD_OFFSET)
    if stored == expected:
        return None
    place = first_difference(stored, expected)
    return FormatError("LCC-H5-05", f"{reader.name}: byte {place}", "not the byte that HDF5 has here")


def read_trailer(source: Source, name: str) -> Trailer:
    """Return the trailer of a file, which must be one for its size. Nothing is verified."""
    size = min(source.size, TRAILER_SIZE)
    data = source.read(source.size - size, size)
    if not data.startswith(TRAILER_MAGIC):
        raise _not_a_checkpoint(source, name)
    trailer = parse_trailer(data, f"{name}: trailer")
    if (length := trailer.spans[4]) != source.size:
        message = f"says that the file has {length} bytes, but it has {source.size}"
        raise FormatError("LCC-TRL-06", f"{name}: trailer", message)
    return trailer


def _not_a_checkpoint(source: Source, name: str) -> DataError:
    """Return why a file without a trailer is refused: cut off, extended, damaged or not ours."""
    head = source.read(0, min(source.size, PAYLOAD_OFFSET))
    if not head:
        return FormatError("LCC-TRL-01", name, "not an lccodec checkpoint: empty")
    is_ours = head.startswith(_HDF5_SIGNATURE[: len(head)]) and head[8:9] in (b"", b"\2")
    if not is_ours or not PAYLOAD_DATASET.encode().startswith(head[_HDF5_PAYLOAD_NAME]):
        return FormatError("LCC-TRL-01", name, "not an lccodec checkpoint")
    end = int.from_bytes(head[_HDF5_END], "little") + TRAILER_SIZE
    if source.size < end:
        return TruncatedError("LCC-H5-01", name, f"cut off at byte {source.size}")
    extra = source.size - end
    return FormatError("LCC-TRL-01", name, f"{extra} bytes behind the trailer" if extra else "no trailer")


_FLUSH_BYTES: Final = 1 << 23  # that are written before the system is told to begin with them
_MIN_BYTES_BESIDE: Final = 1 << 23  # of a frame that a thread of its own may hash

#: Bytes of the longest entry of a frame: a length of 16 digits, a digest, and punctuation.
_MAX_ENTRY_BYTES: Final = len('[9007199254740991,"0123456789012345678901",9007199254740991],')


def check_manifest(manifest: Manifest, frames: int) -> None:
    """Check a manifest before its frames are made, by the number that there will be.

    Names, arrays and scalars have been checked by `tree.flatten`. Raises ``ArgumentError`` if the
    policy is not JSON, or the manifest would be longer than LCC-LIM-04 allows.
    """
    size = len(manifest.to_bytes()) + frames * _MAX_ENTRY_BYTES
    if size > MAX_MANIFEST_BYTES:
        raise ArgumentError(
            f"names, scalars and metadata take {size} bytes of a manifest, which has at most"
            f" {MAX_MANIFEST_BYTES} (LCC-LIM-04)"
        )
    rest = replace(manifest, tree={}, scalars=[], arrays=(), copies=(), frames=())
    try:
        parse_manifest(rest.to_bytes(), "manifest")
    except DataError as error:  # so only the reader has the rules
        raise ArgumentError(_NOT_READABLE.format(error)) from error


_NOT_READABLE: Final = "the manifest could not be read again: {}"


def to_bytes(frames: Sequence[Bytes], manifest: Manifest) -> bytes:
    """Return the bytes of a checkpoint file, as `CheckpointWriter` would write them."""
    hashed_frames = [hashed(frame) for frame in frames]
    if list(manifest.frames) != [entry for entry, _ in hashed_frames]:
        raise ArgumentError("the manifest does not list the frames that were given")
    head, tail = _assemble(manifest)
    payload = itertools.chain.from_iterable(
        (frame, table) for frame, (_, table) in zip(frames, hashed_frames, strict=True)
    )
    return b"".join((head, *payload, tail))


def root_of_file(manifest: Manifest) -> bytes:
    """Return the root that the file of a manifest has."""
    return _assemble(manifest)[1][-ROOT_SIZE:]


def size_of_file(manifest: Manifest) -> int:
    """Return how many bytes the file of a manifest has."""
    return manifest.payload_length + sum(map(len, _assemble(manifest)))


def _assemble(manifest: Manifest) -> tuple[bytes, bytes]:
    """Return the bytes before the payload and behind it. The last of them are the root.

    A manifest that figures would make too long goes without them.
    """
    data = manifest.to_bytes()
    if len(data) > MAX_MANIFEST_BYTES:
        data = replace(manifest, figures=None).to_bytes()
    trailer = Trailer(manifest.payload_length, len(data), minor=manifest.minor)
    try:
        parse_manifest(data, "manifest")
        parse_trailer(trailer.to_bytes(), "trailer")
    except DataError as error:
        raise ArgumentError(_NOT_READABLE.format(error)) from error
    head, tail = skeleton(trailer), data + trailer.to_bytes()[:-ROOT_SIZE]
    return head, tail + root_of(head, tail)


class CheckpointWriter:
    """Writes one checkpoint file, frame by frame, and commits it atomically (LCC-CHN-06).

    It is a context manager. Leaving it without a commit, or by an exception, leaves no file behind.
    The writer is closed after any error. Nothing is tried again, because the state of a file is
    unknown after a failed fsync. With `overwrite`, a file of that name is replaced, and its
    permissions stay. Otherwise it is an error. `root` and `size` are those of the committed file.

    Examples
    --------
    >>> import tempfile
    >>> from lccodec.container.checkpoint import open_checkpoint
    >>> path = Path(tempfile.mkdtemp()) / "one.lcc.h5"
    >>> with CheckpointWriter(path) as writer:
    ...     entry = writer.write_frame(b"a frame")
    ...     root = writer.commit(Manifest(7, None, "lossless", {}, {"w": 0}, [], (1,), (entry,)))
    >>> with open_checkpoint(path) as reader:
    ...     reader.manifest.step, bytes(reader.frame(0)), reader.root == root
    (7, b'a frame', True)
    """

    def __init__(self, path: StrPath, *, overwrite: bool = False, system: System = SYSTEM) -> None:
        self.root: bytes | None = None
        self.size = 0
        self._file = WholeFile(path, overwrite=overwrite, system=system)
        self._entries: list[FrameEntry] = []

    def __enter__(self) -> Self:
        self._file.__enter__()
        self._file.write(bytes(PAYLOAD_OFFSET))  # the place of the head
        return self

    def __exit__(self, *_: object) -> None:
        self._file.__exit__()

    def write_frame(self, frame: Bytes | Iterable[Bytes]) -> FrameEntry:
        """Append a frame, whole or in chunks, to the payload; return its entry for the manifest.

        The table of its pieces follows, if it is cut.
        """
        hasher = FrameHasher()
        with self._file.working():
            for chunk in chunks_of(frame):
                self._file.write(chunk)
                hasher.update(chunk)
            entry, table = hasher.finish()
            self._file.write(table)
            self._entries.append(entry)
        return self._entries[-1]

    def write_frames(self, frames: Sequence[SizedFrame], threads: int) -> tuple[FrameEntry, ...]:
        """Append frames to an empty payload, several at a time; return their entries."""
        if threads == 1:
            for frame in frames:
                self.write_frame(frame.chunks())
            return tuple(self._entries)
        offsets = [PAYLOAD_OFFSET]
        for frame in frames:
            offsets.append(offsets[-1] + frame.length + frame.table_pieces * PIECE_ENTRY_SIZE)
        total = offsets[-1] - PAYLOAD_OFFSET

        def write(place: tuple[SizedFrame, int]) -> FrameEntry:
            # The other threads are done long before that of a frame that is most of the file.
            large = place[0].length > max(total // 2, _MIN_BYTES_BESIDE)
            entry, table = (hashed_beside if large else hashed)(self._written_at(*place))
            self._file.write_at(table, place[1] + entry.length)
            return entry

        with self._file.working():
            self._entries += ordered(write, zip(frames, offsets, strict=False), threads)
        return tuple(self._entries)

    def commit(self, manifest: Manifest, check: Callable[[Path], object] | None = None) -> bytes:
        """Write everything but the payload, give the file its name, and return the root.

        The frames of the manifest are the entries that `write_frame` returned, in that order.
        Before the file gets its name, `check` is called as by `WholeFile.commit`, which has the
        errors, too; an ``ArgumentError`` also for a manifest that is not valid. `root` is set once
        the file is in place.
        """
        with self._file.working():
            if list(manifest.frames) != self._entries:
                raise ArgumentError("the manifest does not list the frames that were written")
            head, tail = _assemble(manifest)
            self._file.write_at(tail, PAYLOAD_OFFSET + manifest.payload_length)
            self._file.write_at(head, 0)
        root = tail[-ROOT_SIZE:]
        try:
            self._file.commit(check)
        finally:
            if self._file.committed:
                self.root = root
                self.size = len(head) + manifest.payload_length + len(tail)
        return root

    def _written_at(self, frame: SizedFrame, offset: int) -> Iterator[Bytes]:
        """Yield the chunks of a frame, each when it is written."""
        flushed = offset
        for chunk in frame.chunks():
            self._file.write_at(chunk, offset)
            offset += memoryview(chunk).nbytes
            if offset - flushed >= _FLUSH_BYTES:
                self._file.start_flush(flushed, offset - flushed)
                flushed = offset
            yield chunk
