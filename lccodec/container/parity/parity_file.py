"""One parity file: a parity column of a group, between two copies of the group's index.

::

    head | index | parity blocks | index | head

So the index can be read if the file was cut off, or has another beginning. Blocks whose index is
damaged on both sides are found by the index of another file of the group.

Source: SPEC 9 (LCC-PAR).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from ...constants import FORMAT_MAJOR, INDEX_MINOR, PARITY_HEAD_SIZE, PARITY_MAGIC, ROOT_SIZE
from ...errors import ChecksumError, DataError, FormatError, TruncatedError, UnsupportedError
from ..disk.source import Source
from .layout import Index, Layout, block_hash, check_size, parse_index, parse_layout

_HEAD: Final = struct.Struct(f"<8sHHIQQ{ROOT_SIZE}s")  # LCC-PAR-02


@dataclass(frozen=True)
class Head:
    """The head of a parity file, which is also its end (LCC-PAR-02).

    Attributes
    ----------
    column
        Which parity column it has.
    description_length, index_length
        Bytes of the description, and of the whole index.
    digest
        The SHA-256 of the head before it, and of the index.
    """

    column: int
    description_length: int
    index_length: int
    digest: bytes = bytes(ROOT_SIZE)
    minor: int = INDEX_MINOR

    def to_bytes(self) -> bytes:
        """Return the head as stored."""
        lengths = (self.description_length, self.index_length)
        return _HEAD.pack(PARITY_MAGIC, FORMAT_MAJOR, self.minor, self.column, *lengths, self.digest)


def parse_head(data: bytes, where: str) -> Head:
    """Read a head.

    Raises
    ------
    FormatError
        If it is not a head (LCC-PAR-02), or its lengths are not possible.
    UnsupportedError
        If it has another major version (LCC-PAR-02).
    LimitError
        If the index is too long (LCC-LIM-04).
    """
    if len(data) != PARITY_HEAD_SIZE or not data.startswith(PARITY_MAGIC):
        raise FormatError("LCC-PAR-02", where, "not the head of a parity file")
    _, major, minor, column, description, index, digest = _HEAD.unpack(data)
    if major != FORMAT_MAJOR:
        raise UnsupportedError("LCC-PAR-02", where, f"format version {major}.{minor}")
    check_size(index, where)
    if description > index:
        raise FormatError("LCC-PAR-02", where, f"a description of {description} bytes in {index}")
    return Head(column, description, index, digest, minor)


def ends_of(index: Index, column: int) -> tuple[bytes, bytes]:
    """Return the bytes before and behind the blocks of a parity file."""
    text = index.to_bytes()
    bare = Head(column, len(index.layout.to_bytes()), len(text)).to_bytes()[:-ROOT_SIZE]
    head = bare + sha256(bare + text).digest()
    return head + text, text + head


def blocks_offset(index: Index) -> int:
    """Return where the blocks of a parity file begin."""
    return PARITY_HEAD_SIZE + index.layout.index_length


def file_length(index: Index) -> int:
    """Return the bytes of a parity file."""
    return 2 * blocks_offset(index) + index.layout.rows * index.layout.block


def read_index(source: Source, name: str) -> tuple[Index, int]:
    """Return the index of a parity file, and which parity column the file has.

    The copy at the end is read if that at the beginning is damaged. Then the error of the first is
    raised if the second is damaged, too.

    Raises
    ------
    DataError
        If no copy of the index is whole.
    """
    try:
        return _read_copy(source, name, at_end=False)
    except DataError as error:
        try:
            return _read_copy(source, name, at_end=True)
        except DataError:
            raise error from None


def read_layout(source: Source, name: str, group: str) -> Layout:
    """Return the description of a parity file, which its name proves. No hashes are read.

    Errors are as for `read_index`; also if the file is named for another group (LCC-PAR-01).
    """
    error: DataError | None = None
    for at_end in (False, True):
        try:
            head, place = _read_head(source, name, at_end=at_end)
            text = source.read(place, head.description_length)
            if sha256(text).hexdigest()[: len(group)] != group:
                raise FormatError("LCC-PAR-01", name, "its description is damaged, or of another group")
            return parse_layout(text, f"{name}: description")
        except DataError as found:
            error = error or found
    raise error or FormatError("LCC-PAR-02", name, "no head")


def _read_head(source: Source, name: str, *, at_end: bool) -> tuple[Head, int]:
    """Return a head, and where its index begins."""
    size = source.size
    if size < 2 * PARITY_HEAD_SIZE:
        raise TruncatedError("LCC-PAR-02", name, f"{size} bytes are too few for a parity file")
    data = source.read(size - PARITY_HEAD_SIZE if at_end else 0, PARITY_HEAD_SIZE)
    head = parse_head(data, f"{name}: {'end' if at_end else 'head'}")
    if head.index_length > size - 2 * PARITY_HEAD_SIZE:
        raise TruncatedError("LCC-PAR-02", name, f"an index of {head.index_length} bytes in {size}")
    return head, size - PARITY_HEAD_SIZE - head.index_length if at_end else PARITY_HEAD_SIZE


def _read_copy(source: Source, name: str, *, at_end: bool) -> tuple[Index, int]:
    head, place = _read_head(source, name, at_end=at_end)
    text = source.read(place, head.index_length)
    if sha256(head.to_bytes()[:-ROOT_SIZE] + text).digest() != head.digest:
        raise ChecksumError("LCC-PAR-02", name, "the index does not match its digest")
    index = parse_index(text, head.description_length, f"{name}: index")
    if head.column >= index.layout.parity:
        message = f"column {head.column} of {index.layout.parity}"
        raise FormatError("LCC-PAR-02", f"{name}: head", message)
    return index, head.column


def check_file(source: Source, name: str, file_name: str) -> Index:
    """Check a parity file whole: its name, both copies of its index, its blocks; return the index.

    Raises
    ------
    DataError
        The first rule that it breaks.
    """
    index, column = _read_copy(source, name, at_end=False)
    if index.layout.name(column) != file_name:
        raise FormatError("LCC-PAR-01", name, f"its name would be {index.layout.name(column)}")
    if source.size != file_length(index):
        raise FormatError("LCC-PAR-02", name, f"{source.size} bytes instead of {file_length(index)}")
    size = blocks_offset(index)
    front, behind = source.read(0, size), source.read(source.size - size, size)
    if behind != front[PARITY_HEAD_SIZE:] + front[:PARITY_HEAD_SIZE]:  # a head of any minor version
        raise ChecksumError("LCC-PAR-02", name, "the copy of the index at the end is another")
    damaged = damaged_rows(index, column, source)
    if damaged:
        raise ChecksumError("LCC-PAR-04", f"{name}: block {damaged[0]}", "the bytes do not match their hash")
    return index


def damaged_rows(index: Index, column: int, source: Source | None) -> list[int]:
    """Return the rows whose parity block is missing or does not match its hash."""
    return [row for row in range(index.layout.rows) if not is_whole_block(index, column, source, row)]


def is_whole_block(index: Index, column: int, source: Source | None, row: int) -> bool:
    """Return whether a parity block is there and matches its hash."""
    return block_hash(read_block(index, source, row)) == index.parity_hash(column, row)


def read_block(index: Index, source: Source | None, row: int) -> bytes:
    """Return a parity block as it is in a file: fewer bytes, or none, where the file is cut off."""
    block = index.layout.block
    start = blocks_offset(index) + row * block
    if source is None or source.size <= start:
        return b""
    return source.read(start, min(block, source.size - start))
