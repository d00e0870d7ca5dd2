"""Whole files and parts of them are hashed in one pass; what changes meanwhile is noticed."""

from __future__ import annotations

import io
import os
from hashlib import sha256
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec import ChecksumError
from lccodec.adapters.seals import reading
from lccodec.adapters.seals.listing import Entry, Part
from lccodec.adapters.seals.reading import check_unchanged, damaged_parts, digest_of, entry_of
from lccodec.adapters.seals.seal import in_threads


@given(st.binary(max_size=60), st.sets(st.integers(0, 70)), st.integers(1, 20))
def test_parts_of_any_place_are_hashed(data: bytes, cuts: set[int], piece: int) -> None:
    places = sorted(cuts)
    parts = [Part(f"{start}", start, end) for start, end in zip(places[::2], places[1::2], strict=False)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "_PIECE_BYTES", piece)
        found = entry_of(io.BytesIO(data), parts)
    assert found.digest == sha256(data).hexdigest() == digest_of(io.BytesIO(data))
    whole = [part for part in parts if part.end <= len(data)]
    assert list(found.parts) == [
        Part(p.name, p.start, p.end, sha256(data[p.start : p.end]).hexdigest()) for p in whole
    ]


@given(st.binary(min_size=8, max_size=40), st.data())
def test_damaged_parts_are_those_that_differ(data: bytes, draws: st.DataObject) -> None:
    cuts = [0, 3, 5, len(data)]
    sealed = entry_of(io.BytesIO(data), [Part(f"{a}", a, b) for a, b in pairwise(cuts)])
    now = draws.draw(st.one_of(st.just(data[:-1]), st.binary(min_size=len(data), max_size=len(data))))
    expected = [p.name for p in sealed.parts if now[p.start : p.end] != data[p.start : p.end]]
    assert damaged_parts(io.BytesIO(now), sealed.parts) == expected


def test_a_file_that_changes_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"abc")
    with path.open("rb") as file:
        before = os.fstat(file.fileno())
        check_unchanged(file, before)
        os.utime(path, ns=(0, before.st_mtime_ns + 1))
        with pytest.raises(ChecksumError, match="changed while it was read"):
            check_unchanged(file, before)
        os.utime(path, ns=(0, before.st_mtime_ns))
        check_unchanged(file, before)
        other = tmp_path / "b"
        other.write_bytes(b"abc")
        other.replace(path)
        with pytest.raises(ChecksumError, match="changed while it was read"):
            check_unchanged(file, before)


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_results_are_in_order_and_bytes_are_told(threads: int) -> None:
    told: list[tuple[int, int]] = []

    def call(item: bytes, count: reading.Count) -> Entry:
        return entry_of(io.BytesIO(item), (), count)

    items = [bytes([i]) * 1000 * i for i in range(1, 9)]
    found = in_threads(call, items, 36_000, threads, lambda *numbers: told.append(numbers), "hash")
    assert [entry.digest for entry in found] == [sha256(item).hexdigest() for item in items]
    assert told[-1] == (36_000, 36_000)
    assert [done for done, _ in told] == sorted(done for done, _ in told)


@pytest.mark.parametrize("threads", [1, 3])
def test_an_error_of_a_call_comes_out(threads: int) -> None:
    def call(item: int, _: reading.Count) -> int:
        if item == 2:
            raise ChecksumError("seal", "x", "changed")
        return item

    with pytest.raises(ChecksumError):
        in_threads(call, [1, 2, 3], 0, threads, False, "hash")
