"""Parity files: what mends damaged checkpoint files, in files of its own (SPEC 9, LCC-PAR).

The files of a group fill *columns* of blocks, `rows` in each. Block r of every data column and of
every parity column are a row of the code (:mod:`lccodec.parity`). Files either begin at a
column each, so that a whole file is one block of each row; or lie end to end, so that a column is
any part of them. What is behind the last byte counts as zeros. A group is of files of one chain, or
of files of the chains of ranks, whose names begin with the folder of the chain.

The index says what each block was. It is a description, as canonical JSON, and the hashes of all
blocks behind it. The description says all but the hashes, and the hashes follow from the files that
it names by their roots. So two indices with one description are the same.

A parity file is a parity column of a group, between two copies of the group's index::

    head | index | parity blocks | index | head

So the index can be read if the file was cut off, or has another beginning. Blocks whose index is
damaged on both sides are found by the index of another file of the group.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final, NamedTuple

from ..constants import (
    BLOCK_HASH_SIZE,
    CHECKPOINT_SUFFIX,
    EXACT_NAME,
    FORMAT_MAJOR,
    INDEX_MINOR,
    MAX_DATA_COLUMNS,
    MAX_GROUP_FILES,
    MAX_MANIFEST_BYTES,
    MAX_PARITY_BLOCK,
    MAX_PARITY_COLUMNS,
    MAX_STEP,
    MIN_PARITY_BLOCK,
    PARITY_HEAD_SIZE,
    PARITY_MAGIC,
    PARITY_SUFFIX,
    ROOT_SIZE,
)
from ..errors import ChecksumError, DataError, FormatError, LimitError, TruncatedError, UnsupportedError
from ..parallel import cached_property
from .source import Source
from .tree import Json, dump_json, parse_base64, parse_json, write_base64

_GROUP_BYTES: Final = 8  # of the SHA-256 of the description that are in the names of its files
_RANK: Final = re.compile("rank-(0|[1-9][0-9]{0,8})")
_STEP: Final = re.compile("[0-9]{12}|[1-9][0-9]{12,15}")
_KEYS: Final = ["block", "rows", "parity", "redundancy", "aligned", "files"]


class Member(NamedTuple):
    """A file of a group: its name, its length in bytes, and its root (LCC-TRL-05)."""

    name: str
    length: int
    root: bytes


class BlockPart(NamedTuple):
    """A part of a block: the file it is of, where in the file, where in the block, its bytes."""

    member: int
    offset: int
    start: int
    size: int


@dataclass(frozen=True)
class Layout:
    """Which files a group has, and in which blocks they lie (LCC-PAR-03)."""

    block: int  # bytes of a block: a power of two
    rows: int  # blocks of a column
    parity: int  # the number of parity columns, each a file of its own
    # What was asked for: files if aligned, else ten-thousandths of the bytes. Nothing depends on
    # it; parity that is renewed is made for the same.
    redundancy: int
    aligned: bool  # whether each file begins at a column of its own
    members: tuple[Member, ...]  # the files, in their order

    @property
    def of_ranks(self) -> bool:
        """Whether the files are of the chains of ranks, each in a folder of its own."""
        return "/" in self.members[0].name

    @property
    def length(self) -> int:
        """Bytes of all files together."""
        return sum(member.length for member in self.members)

    @property
    def columns(self) -> int:
        """The number of data columns."""
        return len(self.members) if self.aligned else math.ceil(self.length / (self.rows * self.block))

    @property
    def blocks(self) -> int:
        """The number of data blocks that have any byte of a file."""
        lengths = [member.length for member in self.members] if self.aligned else [self.length]
        return sum(math.ceil(length / self.block) for length in lengths)

    @property
    def index_length(self) -> int:
        """Bytes of the index."""
        hashes = self.blocks + self.parity * self.rows
        return len(self.to_bytes()) + hashes * BLOCK_HASH_SIZE

    @property
    def group(self) -> str:
        """What the names of the parity files begin with (LCC-PAR-01)."""
        return sha256(self.to_bytes()).hexdigest()[: 2 * _GROUP_BYTES]

    def name(self, column: int) -> str:
        """Return the name of the file of a parity column (LCC-PAR-01)."""
        return f"{self.group}-{column:02d}{PARITY_SUFFIX}"

    def rows_of(self, column: int) -> int:
        """Return how many blocks of a data column have any byte of a file."""
        column_bytes = self.rows * self.block
        length = self.members[column].length if self.aligned else self.length - column * column_bytes
        return min(self.rows, math.ceil(length / self.block))

    def first_block(self, column: int) -> int:
        """Return the number of the first block of a data column, counted over all columns."""
        return sum(map(self.rows_of, range(column))) if self.aligned else column * self.rows

    def parts(self, column: int, row: int, rows: int) -> Iterator[BlockPart]:
        """Yield the parts of files that fill some blocks of a data column, one below the other."""
        start, size = row * self.block, rows * self.block
        if self.aligned:
            if (left := self.members[column].length - start) > 0:
                yield BlockPart(column, start, 0, min(size, left))
            return
        start += column * self.rows * self.block
        begin = 0
        for number, member in enumerate(self.members):
            low, high = max(start, begin), min(start + size, begin + member.length)
            if low < high:
                yield BlockPart(number, low - begin, low - start, high - low)
            begin += member.length

    def to_bytes(self) -> bytes:
        """Return the description as stored."""
        return self._description

    @cached_property
    def _description(self) -> bytes:
        files = [[member.name, member.length, write_base64(member.root)] for member in self.members]
        numbers = (self.block, self.rows, self.parity, self.redundancy, self.aligned)
        document: dict[str, Json] = {**dict(zip(_KEYS, numbers, strict=False)), "files": files}
        return dump_json(document)


@dataclass(frozen=True)
class Index:
    """A layout, and the hashes of its blocks: one data column after the other, then parity."""

    layout: Layout  # where the blocks lie
    hashes: bytes = field(repr=False)  # the first bytes of the SHA-256 of each block (LCC-PAR-04)

    def data_hash(self, column: int, row: int) -> bytes:
        """Return the hash of a data block that has any byte of a file."""
        return self._hash(self.layout.first_block(column) + row)

    @property
    def data_hashes(self) -> bytes:
        """The hashes of all data columns."""
        return self.hashes[: self.layout.blocks * BLOCK_HASH_SIZE]

    def parity_hash(self, column: int, row: int) -> bytes:
        """Return the hash of a parity block."""
        return self._hash(self.layout.blocks + column * self.layout.rows + row)

    def _hash(self, number: int) -> bytes:
        return self.hashes[number * BLOCK_HASH_SIZE : (number + 1) * BLOCK_HASH_SIZE]

    def to_bytes(self) -> bytes:
        """Return the index as stored."""
        return self.layout.to_bytes() + self.hashes


def block_hash(block: bytes | memoryview) -> bytes:
    """Return the hash of a block (LCC-PAR-04)."""
    return sha256(block).digest()[:BLOCK_HASH_SIZE]


def parse_layout(data: bytes, where: str) -> Layout:
    """Read a description (LCC-MAN-01, LCC-PAR-03, LCC-LIM-11); errors begin with `where`."""
    document = parse_json(data, where)
    if type(document) is not dict:
        raise FormatError("LCC-PAR-03", where, "not a JSON object")
    if unknown := [key for key in document if key not in _KEYS]:
        raise UnsupportedError("LCC-PAR-03", where, f"unknown key {unknown[0]!r}")
    if list(document) != _KEYS:
        raise FormatError("LCC-PAR-03", where, f"keys missing or out of order: {', '.join(document)}")
    block, rows, parity, redundancy = (_positive(document[key], f"{where}: {key}") for key in _KEYS[:4])
    aligned, entries = document["aligned"], document["files"]
    if block & (block - 1) or block < MIN_PARITY_BLOCK:
        raise FormatError("LCC-PAR-03", f"{where}: block", f"{block} bytes")
    if type(aligned) is not bool:
        raise FormatError("LCC-PAR-03", f"{where}: aligned", "neither true nor false")
    if type(entries) is not list or not entries:
        raise FormatError("LCC-PAR-03", f"{where}: files", "not a list of files")
    if len(entries) > MAX_GROUP_FILES or parity > MAX_PARITY_COLUMNS or block > MAX_PARITY_BLOCK:
        message = f"{len(entries)} files, {parity} parity columns, blocks of {block} bytes"
        raise LimitError("LCC-LIM-11", where, message)
    members = tuple(_member(entry, f"{where}: files: {i}") for i, entry in enumerate(entries))
    if len({member.name for member in members}) < len(members):
        raise FormatError("LCC-PAR-03", f"{where}: files", "a file is named twice")
    if len({"/" in member.name for member in members}) > 1:
        raise FormatError("LCC-PAR-03", f"{where}: files", "some are files of ranks, and some are not")
    layout = Layout(block, rows, parity, redundancy, aligned, members)
    if layout.columns > MAX_DATA_COLUMNS:
        raise LimitError("LCC-LIM-11", where, f"{layout.columns} columns")
    longest = max(member.length for member in members) if aligned else layout.length
    if rows > math.ceil(longest / block) or (aligned and longest > rows * block):
        raise FormatError("LCC-PAR-03", f"{where}: rows", f"{rows} rows do not fit files of {longest} bytes")
    return layout


def _positive(value: Json, where: str) -> int:
    if type(value) is not int or not 0 < value <= MAX_STEP:
        raise FormatError("LCC-PAR-03", where, "not a positive integer")
    return value


def _member(entry: Json, where: str) -> Member:
    if type(entry) is list and len(entry) == 3 and type(entry[0]) is str and _is_name(entry[0]):
        length = entry[1]
        root = parse_base64(entry[2], ROOT_SIZE)
        if type(length) is int and 0 < length <= MAX_STEP and root is not None:
            return Member(entry[0], length, root)
    raise FormatError("LCC-PAR-03", where, "not the name, length and root of a file of a chain")


def rank_of(folder: str) -> int | None:
    """Return the number of a rank by the folder of its chain; ``None`` for another folder."""
    match = _RANK.fullmatch(folder)
    return None if match is None else int(match[1])


def _is_name(name: str) -> bool:
    """Return whether a name is that of a checkpoint or of the exact file, or of those of a rank."""
    folder, slash, name = name.rpartition("/")
    if slash and rank_of(folder) is None:
        return False
    digits = name.removesuffix(CHECKPOINT_SUFFIX)
    is_step = _STEP.fullmatch(digits) is not None and int(digits) <= MAX_STEP
    return name == EXACT_NAME or (name.endswith(CHECKPOINT_SUFFIX) and is_step)


def parse_index(data: bytes, length: int, where: str) -> Index:
    """Read an index whose description has `length` bytes.

    Errors are those of a description, and a ``FormatError`` if there is not one hash for each block
    (LCC-PAR-04).
    """
    layout = parse_layout(data[:length], f"{where}: description")
    if len(data) != layout.index_length:
        message = f"{len(data)} bytes, but its blocks need {layout.index_length}"
        raise FormatError("LCC-PAR-04", where, message)
    return Index(layout, data[length:])


def check_size(length: int, where: str) -> None:
    """Raise ``LimitError`` if an index is too long to be read (LCC-LIM-04)."""
    if length > MAX_MANIFEST_BYTES:
        raise LimitError("LCC-LIM-04", where, f"an index of {length} bytes is too long")


_HEAD: Final = struct.Struct(f"<8sHHIQQ{ROOT_SIZE}s")  # LCC-PAR-02


@dataclass(frozen=True)
class Head:
    """The head of a parity file, which is also its end (LCC-PAR-02)."""

    column: int  # which parity column it has
    # `description_length`, `index_length`: bytes of the description, and of the whole index.
    description_length: int
    index_length: int
    digest: bytes = bytes(ROOT_SIZE)  # the SHA-256 of the head before it, and of the index
    minor: int = INDEX_MINOR

    def to_bytes(self) -> bytes:
        """Return the head as stored."""
        lengths = (self.description_length, self.index_length)
        return _HEAD.pack(PARITY_MAGIC, FORMAT_MAJOR, self.minor, self.column, *lengths, self.digest)


def parse_head(data: bytes, where: str) -> Head:
    """Read a head (LCC-PAR-02, LCC-LIM-04)."""
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
    raised if the second is damaged, too. Raises ``DataError`` if no copy of the index is whole.
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
        except DataError as problem:
            error = error or problem
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

    Raises the ``DataError`` of the first rule that it breaks.
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
    if damaged := damaged_rows(index, column, source):
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
