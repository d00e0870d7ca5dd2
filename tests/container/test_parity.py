"""Parity files: layouts of groups, indices, and files that are cut off or damaged."""

import hashlib
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec.container.parity import (
    Head,
    Index,
    Layout,
    Member,
    block_hash,
    blocks_offset,
    check_file,
    damaged_rows,
    ends_of,
    file_length,
    parse_head,
    parse_index,
    parse_layout,
    read_block,
    read_index,
    read_layout,
)
from lccodec.container.source import BytesSource
from lccodec.errors import DataError

SIZES = st.lists(st.integers(1, 9000), min_size=1, max_size=9)


def layout_of(sizes: list[int], aligned: bool, rows: int = 3, parity: int = 2) -> Layout:
    """A layout of files, with as many rows as it must have or may have."""
    members = tuple(Member(f"{i:012d}.lcc.h5", size, bytes([i]) * 32) for i, size in enumerate(sizes))
    most = math.ceil(max(sizes) / 512) if aligned else min(rows, math.ceil(sum(sizes) / 512))
    return Layout(512, most, parity, 7, aligned, members)


@given(SIZES, st.booleans(), st.integers(1, 9))
def test_every_byte_lies_in_one_place(sizes: list[int], aligned: bool, rows: int) -> None:
    layout = layout_of(sizes, aligned, rows)
    found = {
        (part.member, part.offset + i): (column, row, part.start + i)
        for column in range(layout.columns)
        for row in range(layout.rows_of(column))
        for part in layout.parts(column, row, 1)
        for i in range(part.size)
    }
    expected, begin = {}, 0
    for number, size in enumerate(sizes):
        for offset in range(size):
            place = offset if aligned else begin + offset
            column, within = (number, place) if aligned else divmod(place, layout.rows * 512)
            expected[number, offset] = (column, *divmod(within, 512))
        begin += size
    assert found == expected
    blocks = {(column, row) for column, row, _ in found.values()}
    assert layout.blocks == len(blocks)
    numbers = [layout.first_block(j) + r for j in range(layout.columns) for r in range(layout.rows_of(j))]
    assert numbers == list(range(layout.blocks))


@given(SIZES, st.booleans(), st.integers(1, 9))
def test_what_is_written_is_read(sizes: list[int], aligned: bool, rows: int) -> None:
    layout = layout_of(sizes, aligned, rows)
    assert parse_layout(layout.to_bytes(), "") == layout
    count = layout.blocks + layout.parity * layout.rows
    index = Index(layout, b"".join(i.to_bytes(8, "little") for i in range(count)))
    data = index.to_bytes()
    assert len(data) == layout.index_length
    assert parse_index(data, len(layout.to_bytes()), "") == index
    assert index.parity_hash(1, 0) == (layout.blocks + layout.rows).to_bytes(8, "little")
    assert index.data_hash(0, 0) == bytes(8)
    with pytest.raises(DataError, match="LCC-PAR-04"):
        parse_index(data + bytes(8), len(layout.to_bytes()), "")


def test_a_claim_of_huge_files_takes_no_memory() -> None:
    description = layout_of([5], True).to_bytes().replace(b",5,", b",9007199254740991,")
    rows = str(math.ceil((2**53 - 1) / 512)).encode()
    description = description.replace(b'"rows":1', b'"rows":' + rows)
    with pytest.raises(DataError, match=r"2 bytes, but its blocks need \d{15}|blocks need"):
        parse_index(description, len(description), "")


def test_names_follow_from_the_description() -> None:
    layout = layout_of([5, 6], True)
    assert layout.name(1) == f"{layout.group}-01.lcc.par"
    assert layout.group != layout_of([5, 7], True).group


def test_a_hash_has_eight_bytes() -> None:
    assert block_hash(b"abc").hex() == "ba7816bf8f01cfea"  # FIPS 180-2


def one_file(length: int, rows: int = 1, block: int = 512, name: str = f"{1:012d}.lcc.h5") -> Layout:
    """A layout of one file with a data column of its own."""
    return Layout(block, rows, 1, 7, True, (Member(name, length, bytes(32)),))


@pytest.mark.parametrize(
    "layout",
    [
        Layout(512, 1, 64, 7, True, tuple(Member(f"{i:012d}.lcc.h5", 5, bytes(32)) for i in range(64))),
        one_file(1 << 18, block=1 << 18),
        Layout(512, 1, 1, 7, False, (Member(f"{1:012d}.lcc.h5", 128 * 512, bytes(32)),)),
        one_file(2**53 - 1, rows=2**44),
        one_file(1),
        one_file(5, name=f"{2**53 - 1}.lcc.h5"),
        one_file(5, name="exact.lcc.h5"),
    ],
    ids=["files", "block", "columns", "length", "byte", "name", "exact"],
)
def test_what_is_just_within_a_limit_is_read(layout: Layout) -> None:
    assert parse_layout(layout.to_bytes(), "") == layout


@pytest.mark.parametrize("digits", ["\u0661" * 12, "00000000000x", "0" * 17, "1" * 11])
def test_a_name_has_digits_of_a_step(digits: str) -> None:
    with pytest.raises(DataError, match="LCC-PAR-03"):
        parse_layout(one_file(5, name=f"{digits}.lcc.h5").to_bytes(), "")


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
