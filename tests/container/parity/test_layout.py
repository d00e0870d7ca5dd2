"""Where blocks lie, and what an index must have: against the plain form of both layouts."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec.container.parity.layout import (
    Index,
    Layout,
    Member,
    block_hash,
    parse_index,
    parse_layout,
)
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
