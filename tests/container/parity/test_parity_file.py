"""One parity file: either copy of its index is enough, and nothing else passes."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest

from lccodec.container.disk.source import BytesSource
from lccodec.container.parity.layout import Index, Layout, Member, block_hash
from lccodec.container.parity.parity_file import (
    Head,
    blocks_offset,
    check_file,
    damaged_rows,
    ends_of,
    file_length,
    parse_head,
    read_block,
    read_index,
    read_layout,
)
from lccodec.errors import DataError

LAYOUT = Layout(512, 3, 2, 2, True, (Member("000000000000.lcc.h5", 1200, bytes(32)),))
BLOCKS = [bytes([i]) * 512 for i in range(3)]
INDEX = Index(LAYOUT, b"".join(map(block_hash, BLOCKS)) * 3)
FRONT, END = ends_of(INDEX, 1)
FILE = FRONT + b"".join(BLOCKS) + END


def test_the_file() -> None:
    assert len(FILE) == file_length(INDEX)
    assert FILE[blocks_offset(INDEX) :].startswith(BLOCKS[0])
    assert read_index(BytesSource(FILE), "") == (INDEX, 1)
    assert check_file(BytesSource(FILE), "", LAYOUT.name(1)) == INDEX
    head = parse_head(FILE[:64], "")
    assert head.to_bytes() == FILE[:64] == FILE[-64:]
    assert head == Head(1, len(LAYOUT.to_bytes()), LAYOUT.index_length, head.digest)


@pytest.mark.parametrize("place", range(0, len(FRONT), 7))
def test_either_copy_is_enough(place: int) -> None:
    front = FILE[:place] + bytes([FILE[place] ^ 1]) + FILE[place + 1 :]
    back = len(FILE) - 1 - place
    both = front[:back] + bytes([front[back] ^ 1]) + front[back + 1 :]
    assert read_index(BytesSource(front), "") == (INDEX, 1)
    for data in (front, both):
        with pytest.raises(DataError):
            check_file(BytesSource(data), "", LAYOUT.name(1))
    with pytest.raises(DataError):
        read_index(BytesSource(both), "")


@pytest.mark.parametrize("size", range(0, len(FILE), 101))
def test_every_prefix(size: int) -> None:
    source = BytesSource(FILE[:size])
    with pytest.raises(DataError):
        check_file(source, "", LAYOUT.name(1))
    if size < max(len(FRONT), 128):
        with pytest.raises(DataError):
            read_index(source, "")
    elif size >= len(FRONT) + 64:
        assert read_index(source, "") == (INDEX, 1)
    there = max(0, (size - len(FRONT)) // 512)
    assert damaged_rows(INDEX, 1, source) == list(range(min(3, there), 3))


def test_damaged_blocks_are_found() -> None:
    data = bytearray(FILE)
    data[len(FRONT) + 600] ^= 1
    source = BytesSource(bytes(data))
    assert damaged_rows(INDEX, 1, source) == [1]
    assert read_block(INDEX, source, 0) == BLOCKS[0]
    assert damaged_rows(INDEX, 1, None) == [0, 1, 2]
    with pytest.raises(DataError, match="LCC-PAR-04"):
        check_file(source, "", LAYOUT.name(1))


def test_a_description_is_read_without_hashes() -> None:
    """Of either copy, and only where the name proves it."""
    group, text = LAYOUT.group, len(LAYOUT.to_bytes())
    head = b"x" + FILE[1:]
    word = FILE[:70] + bytes([FILE[70] ^ 1]) + FILE[71:]
    end = FILE[:-1] + bytes([FILE[-1] ^ 1])
    for data in (FILE, head, word, end):
        assert read_layout(BytesSource(data), "", group) == LAYOUT
    with pytest.raises(DataError, match="LCC-PAR-01"):
        read_layout(BytesSource(FILE), "", "0" * len(group))
    back = len(FILE) - 64 - LAYOUT.index_length + text // 2
    both = word[:back] + bytes([word[back] ^ 1]) + word[back + 1 :]
    with pytest.raises(DataError, match="LCC-PAR-01"):
        read_layout(BytesSource(both), "", group)
    with pytest.raises(DataError, match="LCC-PAR-02"):  # the error of the first copy
        read_layout(BytesSource(b"x" + both[1:]), "", group)
    with pytest.raises(DataError, match="LCC-PAR-02"):
        read_layout(BytesSource(FILE[:100]), "", group)


def test_another_name() -> None:
    with pytest.raises(DataError, match="LCC-PAR-01"):
        check_file(BytesSource(FILE), "", LAYOUT.name(0))


def test_a_head_of_a_newer_minor_version() -> None:
    """Both copies of the head are compared with each other, not with what this version writes."""
    text = INDEX.to_bytes()
    bare = replace(parse_head(FILE[:64], "head"), minor=7).to_bytes()[:32]
    head = bare + hashlib.sha256(bare + text).digest()
    newer = head + FILE[64:-64] + head
    assert check_file(BytesSource(newer), "", LAYOUT.name(1)) == INDEX
    with pytest.raises(DataError, match="LCC-PAR-02"):
        check_file(BytesSource(head + FILE[64:]), "", LAYOUT.name(1))
