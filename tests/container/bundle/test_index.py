"""The index and the trailer of a bundle: what is written is read, and nothing else is."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lccodec.constants import BUNDLE_MAGIC, BUNDLE_TRAILER_SIZE
from lccodec.container.bundle.index import (
    BundledFile,
    BundleIndex,
    BundleTrailer,
    parse_bundle_trailer,
    parse_index,
)
from lccodec.errors import DataError, FormatError, LimitError, TruncatedError, UnsupportedError

ROOT = bytes(range(32))
INDEX = BundleIndex({3: BundledFile(10, ROOT), 2**53 - 1: BundledFile(500, bytes(32))}, BundledFile(7, ROOT))


@pytest.mark.parametrize("index", [INDEX, BundleIndex(INDEX.checkpoints)])
def test_an_index_comes_back(index: BundleIndex) -> None:
    data = index.to_bytes()
    assert parse_index(data, "index") == index
    assert parse_index(data, "index").to_bytes() == data
    assert ("exact" in json.loads(data)) == (index.exact is not None)


def test_where_files_lie() -> None:
    assert (INDEX.files_length, INDEX.offsets) == (517, [8, 18, 518])
    assert [file.length for file in INDEX.files] == [10, 500, 7]


@pytest.mark.parametrize("size", range(len(INDEX.to_bytes())))
def test_every_prefix_is_refused(size: int) -> None:
    with pytest.raises(DataError):
        parse_index(INDEX.to_bytes()[:size], "index")


@pytest.mark.parametrize("entry", [None, 1, [], [1], [1, 2], [1, 2, "x", 3], [True, 1, "A" * 43]])
@pytest.mark.parametrize("member", ["checkpoints", "exact"])
def test_other_entries_are_refused(member: str, entry: Any) -> None:
    document = json.loads(INDEX.to_bytes())
    document[member] = [entry] if member == "checkpoints" else entry
    with pytest.raises(FormatError) as caught:
        parse_index(json.dumps(document, separators=(",", ":")).encode(), "index")
    assert caught.value.rule == "LCC-BUN-06"
    assert caught.value.where.startswith(f"index: {member}")


def test_a_trailer_comes_back() -> None:
    trailer = BundleTrailer(1000, 50, ROOT)
    data = trailer.to_bytes()
    assert len(data) == BUNDLE_TRAILER_SIZE
    assert data.startswith(BUNDLE_MAGIC)
    assert trailer.bundle_length == 8 + 1000 + 50 + 64
    assert parse_bundle_trailer(data, trailer.bundle_length, "trailer") == trailer
    newer = BundleTrailer(1000, 50, ROOT, minor=9)
    assert parse_bundle_trailer(newer.to_bytes(), trailer.bundle_length, "trailer") == newer


@pytest.mark.parametrize(
    ("place", "value", "error"),
    [
        (0, 0, TruncatedError),
        (8, 2, UnsupportedError),
        (12, 1, UnsupportedError),
        (16, 1, FormatError),
        (23, 255, FormatError),
        (24, 1, FormatError),
        (31, 255, LimitError),
    ],
)
def test_other_trailers_are_refused(place: int, value: int, error: type[DataError]) -> None:
    trailer = BundleTrailer(1000, 50, ROOT)
    data = bytearray(trailer.to_bytes())
    data[place] = value
    with pytest.raises(error) as caught:
        parse_bundle_trailer(bytes(data), trailer.bundle_length, "trailer")
    assert type(caught.value) is error
    with pytest.raises(TruncatedError):
        parse_bundle_trailer(trailer.to_bytes(), 71, "trailer")
