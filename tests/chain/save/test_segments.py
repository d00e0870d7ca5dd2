"""Hashes of segments, and the file of hashes: whatever becomes of it, a save goes on."""

from __future__ import annotations

import json
import struct
import warnings
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec import LccodecWarning, validate
from lccodec.chain.save import hash_reference, segments
from lccodec.chain.save.segments import (
    HASH_BYTES,
    MAX_SEGMENT,
    MIN_SEGMENT,
    HashedArray,
    HashFiles,
    Places,
    changed_segments,
    differing,
    hash_segments,
    runs_of,
    segment_size,
)
from lccodec.chain.store.directory import DirectoryStore
from lccodec.container.disk.source import FileSource
from lccodec.element_table import ELEMENT_TYPES

from ...support.hashes import chain_of, large_state, touched
from ...support.walks import assert_same


@pytest.mark.parametrize("size", [0, 1, 1023, 1024, 1025, 5000])
def test_a_hash_for_each_segment(size: int) -> None:
    bits = np.arange(size, dtype=np.uint32)
    data = bits.astype("<u4").tobytes()
    hashes = hash_segments(bits, 4096)
    assert hashes.shape == (-(-size // 1024), HASH_BYTES)
    for number, found in enumerate(hashes):
        assert found.tobytes() == sha256(data[4096 * number : 4096 * (number + 1)]).digest()[:HASH_BYTES]


@given(st.lists(st.integers(0, 3_000_000), max_size=5), st.sets(st.integers(0, 2_999_999), max_size=5))
def test_segments_that_changed_are_found(sizes: list[int], places: set[int]) -> None:
    arrays = [np.zeros(size, np.uint8) for size in sizes]
    hashes = [hash_segments(bits, 4096) for bits in arrays]
    for bits in arrays:
        bits[[place for place in places if place < bits.size]] = 1
    calls: list[int] = []
    pairs = zip(arrays, hashes, strict=True)
    found = list(changed_segments(pairs, 4096, lambda: calls.append(1)))
    for bits, differ in zip(arrays, found, strict=True):
        assert set(np.flatnonzero(differ)) == {place // 4096 for place in places if place < bits.size}
        assert differ.size == -(-bits.size // 4096)
    assert len(found) == len(sizes)
    assert bool(calls) == bool(sizes)


def test_differing() -> None:
    left = np.zeros((3, HASH_BYTES), np.uint8)
    right = left.copy()
    right[1, -1] = 1
    assert differing(left, right).tolist() == [False, True, False]


@given(st.sets(st.integers(0, 40)))
def test_runs(segments: set[int]) -> None:
    runs = list(runs_of(sorted(segments)))
    assert [each for run in runs for each in range(*run)] == sorted(segments)
    assert all(stop < start for (_, stop), (start, _) in pairwise(runs))


@pytest.mark.parametrize("log2", range(10, 50, 3))
def test_hashes_take_at_most_a_thousandth_of_a_state_and_32_mib(log2: int) -> None:
    nbytes = 1 << log2
    size = segment_size(nbytes)
    assert MIN_SEGMENT <= size <= MAX_SEGMENT
    assert nbytes // size * HASH_BYTES <= max(1 << 25, nbytes // 4096)


def test_no_two_arrays_share_a_byte() -> None:
    taken = [(50, 60), (10, 20), (15, 18), (20, 20), (25, 30)]
    places = Places(taken)
    found = [(at, at + size) for size in (5, 0, 20, 8, 5, 2, 100, 1) for at in [places.take(size)]]
    used = [byte for start, stop in [(10, 20), (25, 30), (50, 60), *found] for byte in range(start, stop)]
    assert len(used) == len(set(used))
    assert max(used) < 60 + 8 + 100


def test_it_begins_at_the_beginning() -> None:
    places = Places()
    assert [places.take(4), places.take(0), places.take(4)] == [0, 4, 4]


def file_of(body: dict[str, Any] | bytes, hashes: bytes) -> bytes:
    """A file of hashes, with the hash of itself."""
    head = body if isinstance(body, bytes) else json.dumps(body).encode()
    rest = struct.pack("<Q", len(head)) + head + hashes
    return b"LCCHASH\x01" + sha256(rest).digest() + rest


def parts_of(data: bytes) -> tuple[dict[str, Any], bytes]:
    (length,) = struct.unpack_from("<Q", data, 40)
    return json.loads(data[48 : 48 + length]), data[48 + length :]


def with_entry(**changed: Any) -> Any:
    """Change the entry of the first array."""
    places = {"name": 0, "code": 1, "shape": 2, "offset": 3, "total": 4, "count": 5}

    def change(data: bytes) -> bytes:
        body, hashes = parts_of(data)
        for what, value in changed.items():
            body["arrays"][0][places[what]] = value
        return file_of(body, hashes)

    return change


def with_head(**changed: Any) -> Any:
    def change(data: bytes) -> bytes:
        body, hashes = parts_of(data)
        return file_of({**body, **changed}, hashes)

    return change


DAMAGES = {
    "empty": lambda _: b"",
    "torn": lambda data: data[: len(data) // 2],
    "a flipped bit": lambda data: data[:-1] + bytes([data[-1] ^ 1]),
    "other magic": lambda data: b"x" + data[1:],
    "not JSON": lambda data: file_of(b"[", parts_of(data)[1]),
    "deep JSON": lambda _: file_of(b"[" * 100_000, b""),
    "a list": lambda _: file_of(b"[]", b""),
    "another root": with_head(root="00" * 32),
    "no root": with_head(root=None),
    "no arrays": with_head(arrays=[]),
    "a segment of 1": with_head(segment=1),
    "a segment that is true": with_head(segment=True),
    "another name": with_entry(name="other"),
    "an unknown type": with_entry(code=99),
    "a name as a type": with_entry(code="float32"),
    "a negative size": with_entry(shape=[-1]),
    "a huge shape": with_entry(shape=[1 << 62, 1 << 62]),
    "another shape": with_entry(shape=[5]),
    "a negative offset": with_entry(offset=-1),
    "a huge offset": with_entry(offset=1 << 63),
    "a sum that is no number": with_entry(total="1"),
    "too many hashes": with_entry(count=1 << 40),
    "fewer hashes": with_entry(count=1),
    "a negative count": with_entry(count=-1),
    "more bytes": lambda data: file_of(parts_of(data)[0], parts_of(data)[1] + b"x"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_file_that_is_not_of_the_checkpoint_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    state = large_state(0, 20_000)
    with chain_of(tmp_path) as chain:
        chain.save(0, state)
    path = tmp_path / ".hashes" / "hashes"
    good = path.read_bytes()
    path.write_bytes(DAMAGES[damage](good))
    made, hash_checkpoint = [], hash_reference.hash_checkpoint
    monkeypatch.setattr(
        hash_reference, "hash_checkpoint", lambda *given: made.append(1) or hash_checkpoint(*given)
    )
    with chain_of(tmp_path) as chain:
        chain.save(1, touched(state, 1))
        assert made == [1]
        assert_same(chain.restore(), touched(state, 1))
    with chain_of(tmp_path) as chain:
        chain.save(2, touched(state, 2))
    assert made == [1]
    assert chain.steps == [0, 1, 2]
    assert validate(tmp_path, deep=True) == []


def test_a_file_that_is_longer_than_hashes_can_be_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = large_state(0)
    with chain_of(tmp_path) as chain:
        chain.save(0, state)

    class Huge(FileSource):
        size = property(lambda _: 1 << 40, lambda *_: None)  # as a file with holes has

        def read(self, offset: int, size: int) -> bytes:
            assert size < 1 << 30
            return super().read(offset, size)

    monkeypatch.setattr(segments, "FileSource", Huge)
    with chain_of(tmp_path) as chain:
        chain.save(1, touched(state, 1))
    assert_same(chain.restore(), touched(state, 1))


def test_names_of_any_length_fit(tmp_path: Path) -> None:
    forms = {"\U0001f600\x00" * 5000: (ELEMENT_TYPES[0], (1,) * 32), "": (ELEMENT_TYPES[0], ())}
    none = np.empty((1, 16), np.uint8)
    arrays = {name: HashedArray(*form, 0, 0, none) for name, form in forms.items()}
    found = HashFiles(DirectoryStore(tmp_path))
    found.write(b"root", 4096, arrays)
    assert found.read([b"root"], forms) is not None


def test_a_file_that_is_good_is_not_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = large_state(0)
    for step in range(6):
        with chain_of(tmp_path, keyframe_every=3) as chain:
            chain.save(step, touched(state, step))
        monkeypatch.setattr(hash_reference, "hash_checkpoint", lambda *_: pytest.fail("made anew"))
    assert_same(chain.restore(), touched(state, 5))


def test_hashes_that_lie_about_the_parent_are_found_out(tmp_path: Path) -> None:
    """They have the right root and form, but not the hashes of what is stored."""
    state = large_state(0, 20_000)
    with chain_of(tmp_path) as chain:
        chain.save(0, state)
    (tmp_path / ".hashes" / "values").unlink()
    path = tmp_path / ".hashes" / "hashes"
    body, hashes = parts_of(path.read_bytes())
    path.write_bytes(file_of(body, bytes(len(hashes))))
    with (
        chain_of(tmp_path) as chain,
        pytest.warns(LccodecWarning, match="started again: .* the hashes that are kept of step 0"),
    ):
        chain.save(1, touched(state, 1))
    assert_same(chain.restore(), touched(state, 1))


@pytest.mark.parametrize("obstacle", ["a file", "a link"])
def test_where_no_folder_can_be_made_the_chain_goes_on_without(tmp_path: Path, obstacle: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    directory = tmp_path / "chain"
    directory.mkdir()
    place = directory / ".hashes"
    if obstacle == "a file":
        place.write_bytes(b"mine")
    else:
        place.symlink_to(elsewhere)
    state = large_state(0, 20_000)
    with pytest.warns(LccodecWarning, match="values cannot be written"), chain_of(directory) as chain:
        for step in range(3):
            chain.save(step, touched(state, step))
            assert_same(chain.restore(), touched(state, step))
    assert list(elsewhere.iterdir()) == []


def test_a_warning_that_is_an_error_comes_after_the_save(tmp_path: Path) -> None:
    (tmp_path / ".hashes").write_bytes(b"mine")
    state = large_state(0, 20_000)
    with chain_of(tmp_path) as chain:
        with warnings.catch_warnings():
            warnings.simplefilter("error", LccodecWarning)
            with pytest.raises(LccodecWarning, match="values cannot be written"):
                chain.save(0, state)
            chain.save(1, touched(state, 1))  # it is told once
        assert chain.info(1).parent == 0
        assert_same(chain.restore(), touched(state, 1))


def test_nothing_is_kept_where_nothing_is(tmp_path: Path) -> None:
    found = HashFiles(DirectoryStore(tmp_path))
    assert found.read([b""], {}) is None
    found.remove()
    assert list(tmp_path.iterdir()) == []
