"""Hashes of segments, and the file of hashes: whatever becomes of it, a save goes on.

Chains that keep hashes of the newest step.

The frames against hashes are those against the whole parent, byte for byte. Values of the parent
come from the file beside the chain, or from the checkpoints.
"""

import errno
import json
import os
import struct
import threading
import warnings
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lccodec import ArgumentError, Chain, Keep, LccodecWarning, StorageError, bundle, validate
from lccodec.chain.read.checkpoint import open_name
from lccodec.chain.save import hash_reference
from lccodec.chain.save import hash_reference as segments
from lccodec.chain.save.hash_reference import (
    HASH_BYTES,
    MAX_SEGMENT,
    MIN_SEGMENT,
    HashedArray,
    HashFiles,
    Places,
    changed_segments,
    hash_checkpoint,
    hash_segments,
    runs_of,
    segment_size,
)
from lccodec.chain.store.directory import DirectoryStore
from lccodec.chain.store.store import checkpoint_name
from lccodec.constants import ELEMENT_TYPES
from lccodec.container.source import FileSource
from lccodec.container.system import System
from lccodec.element_types import components
from lccodec.frame.content import array_sum

from ...support.damage import flip
from ...support.directories import entries
from ...support.hashes import chain_of, large_state, small_blocks, touched
from ...support.paths import checkpoint_path
from ...support.programs import run_program
from ...support.strategies import random_array
from ...support.walks import assert_restores, assert_same, save_all


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


def test_what_did_not_change_takes_no_bytes(tmp_path: Path) -> None:
    state = large_state(0)
    with chain_of(tmp_path) as chain:
        chain.save(0, state)
        assert [array.stored for array in chain.plan(state).arrays] == ["unchanged"] * 7
        assert chain.save(1, state) < 1500
        plan = chain.plan(touched(state, 2))
        assert [array.name for array in plan.arrays if array.stored == "delta"] == ["table"]
        (table,) = [estimate for estimate in plan.estimates() if estimate.stored_bytes]
        assert table.error == 0


def test_a_plan_writes_nothing(tmp_path: Path) -> None:
    state = large_state(0)
    with Chain(tmp_path, "lossless") as chain:
        chain.save(0, state)
    before = entries(tmp_path)
    with chain_of(tmp_path) as chain:
        chain.plan(touched(state, 1))
        assert entries(tmp_path) == before
        chain.save(1, touched(state, 1))
        assert_same(chain.restore(), touched(state, 1))


def test_it_goes_on_after_any_chain(tmp_path: Path) -> None:
    """Also after one that lost something, or that has copies."""
    state = {"weight": np.linspace(0, 1, 50_000, dtype=np.float32), "half": np.zeros(9, np.float16)}
    state["half"] = state["weight"].astype(np.float16)
    Chain(tmp_path, "lc-3", newest="history").save(0, state)
    restored = Chain(tmp_path).restore()
    with pytest.warns(LccodecWarning, match="was saved with the policy 'lc-3'"), chain_of(tmp_path) as chain:
        chain.save(1, restored)
        assert_same(chain.restore(), restored)
        chain.save(2, state)
    assert_same(Chain(tmp_path).restore(), state)


PROGRAM = """
import sys
from pathlib import Path
from lccodec.chain.save import hash_reference
from tests.support.hashes import chain_of, large_state, touched
def decodes(*given):
    raise SystemExit("a checkpoint was decoded")
hash_reference.open_name = hash_reference.hash_checkpoint = decodes
with chain_of(Path(sys.argv[1])) as chain:
    chain.save(1, touched(large_state(0), 1))
"""


@pytest.mark.slow
def test_another_process_goes_on_without_decoding_anything(tmp_path: Path) -> None:
    with chain_of(tmp_path) as chain:
        chain.save(0, large_state(0))
    run_program(PROGRAM, tmp_path)
    chain = chain_of(tmp_path)
    assert_same(chain.restore(), touched(large_state(0), 1))
    assert chain.info(1).parent == 0


@pytest.mark.parametrize("step", [0, 2])
def test_another_process_adds_nothing_to_a_damaged_file(tmp_path: Path, step: int) -> None:
    """The hashes are as good as ever; but nothing that is taken against it can be restored."""
    with chain_of(tmp_path) as chain:
        for each in range(3):
            chain.save(each, touched(large_state(0), each))
    flip(tmp_path / checkpoint_name(step), 5000)
    with (
        chain_of(tmp_path) as chain,
        pytest.warns(LccodecWarning, match="writes a keyframe instead of a delta: step 2 cannot be restored"),
    ):
        chain.save(3, touched(large_state(0), 3))
    assert_same(chain.restore(), touched(large_state(0), 3))


def test_a_parent_that_cannot_be_read_is_followed_by_a_keyframe(tmp_path: Path) -> None:
    """What changed would be compared with it; but a save that can be kept is kept."""
    state = large_state(0)
    with chain_of(tmp_path) as chain:
        chain.save(0, state)
        (tmp_path / ".hashes" / "values").write_bytes(b"")
        path = tmp_path / checkpoint_name(0)
        with path.open("r+b") as file:
            file.seek(3000)
            file.write(bytes(path.stat().st_size - 30_000))
        with (
            pytest.warns(LccodecWarning, match="started again: step 0 cannot be read"),
            pytest.warns(LccodecWarning, match="this save writes a keyframe instead of a delta"),
        ):
            chain.save(1, touched(state, 1))
    assert_same(chain.restore(), touched(state, 1))
    assert chain.info(1).parent is None


def test_another_process_mends_a_damaged_step_from_the_exact_file(tmp_path: Path) -> None:
    with chain_of(tmp_path, newest="exact") as chain:
        for step in range(3):
            chain.save(step, touched(large_state(0), step))
    flip(tmp_path / checkpoint_name(2), 5000)
    with (
        chain_of(tmp_path) as chain,
        pytest.warns(LccodecWarning, match="step 2 was written anew from the exact file"),
    ):
        chain.save(3, touched(large_state(0), 3))
    assert validate(tmp_path, deep=True) == []
    assert_same(chain.restore(2), touched(large_state(0), 2))


@pytest.mark.slow
def test_after_rollback_prune_compact_and_fork(tmp_path: Path) -> None:
    states = [touched(large_state(0), step) for step in range(8)]
    with chain_of(tmp_path / "run", keyframe_every=3, keep=Keep(latest=4)) as chain:
        save_all(chain, states, range(6))
        chain.rollback(4)
        chain.save(5, states[6])
        assert_same(chain.restore(5), states[6])
        chain.prune(Keep(latest=2), rewrite=True)
        chain.save(6, states[7])
        assert_same(chain.restore(6), states[7])
        chain.compact(keyframe_every=1)
        chain.save(7, states[0])
        chain.fork(tmp_path / "fork", 6)
        bundle(tmp_path / "run", tmp_path / "whole.lcc")
    with chain_of(tmp_path / "fork") as fork:
        fork.save(8, states[3])
        assert_same(fork.restore(), states[3])
        assert_same(fork.restore(6), states[7])
        fork.protect(1)
        assert not fork.repair().mended
    for directory in ("run", "fork"):
        assert validate(tmp_path / directory, deep=True) == []


def test_another_writer_between_two_saves(tmp_path: Path) -> None:
    state = large_state(0)
    with chain_of(tmp_path) as chain:
        chain.save(0, state)
        chain.release_lock()
        with Chain(tmp_path) as other:
            other.save(1, touched(state, 1))
        with pytest.warns(LccodecWarning, match="step 1 was saved by another writer"):
            chain.save(2, touched(state, 2))
        chain.save(3, touched(state, 3))
        for step in (1, 2, 3):
            assert_same(chain.restore(step), touched(state, step))


@pytest.mark.parametrize("policy", ["balanced", "lc-3", None])
def test_a_policy_that_loses_something_is_refused(tmp_path: Path, policy: str | None) -> None:
    chain = Chain(tmp_path, policy, reference="hashes")
    with pytest.raises(ArgumentError, match=r"needs a chain that loses nothing.*'weight'"):
        chain.save(0, {"weight": np.zeros((99, 99), np.float32)})
    assert chain.steps == []


def test_a_save_of_some_arrays_is_refused(tmp_path: Path) -> None:
    chain = chain_of(tmp_path)
    for call in (chain.save, chain.save_async):
        with pytest.raises(ArgumentError, match="only= cannot be used with reference='hashes'"):
            call(0, large_state(0), only=["table"])


@pytest.mark.slow  # processes
@pytest.mark.parametrize("workers", [1, 2])
def test_saves_in_the_background(tmp_path: Path, workers: int) -> None:
    states = [touched(large_state(0), step) for step in range(4)]
    with chain_of(tmp_path, workers=workers) as chain:
        futures = [chain.save_async(step, state) for step, state in enumerate(states)]
        assert all(future.result() for future in futures)
        assert_restores(chain, states, range(len(states)))
        assert [array.stored for array in chain.plan(states[3]).arrays] == ["unchanged"] * 7
    assert validate(tmp_path, deep=True) == []


def test_with_an_exact_file(tmp_path: Path) -> None:
    state = large_state(0)
    with chain_of(tmp_path, newest="exact", exact_every=2) as chain:
        for step in range(4):
            chain.save(step, touched(state, step))
    with chain_of(tmp_path) as chain:
        chain.save(4, touched(state, 4))
    for step in range(5):
        assert_same(chain.restore(step), touched(state, step))


@pytest.mark.slow
def test_a_chain_without_files_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a bucket: hashes are in memory alone."""
    monkeypatch.setattr(DirectoryStore, "has_folders", False)
    small_blocks(monkeypatch)
    state = large_state(0)
    for process in range(2):
        with chain_of(tmp_path) as chain:
            for step in range(3):
                chain.save(3 * process + step, touched(state, step))
                assert_same(chain.restore(), touched(state, step))
    assert not (tmp_path / ".hashes").exists()


def test_a_save_that_fails_leaves_hashes_of_the_step_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = large_state(0)
    with chain_of(tmp_path) as chain:
        chain.save(0, state)
        with monkeypatch.context() as patch:
            patch.setattr(hash_reference.HashReference, "keep", lambda *_: 1 / 0)  # committed, but not kept
            with pytest.raises(ZeroDivisionError):
                chain.save(1, touched(state, 1))
        chain.save(2, touched(state, 2))
        with monkeypatch.context() as patch:
            patch.setattr("lccodec.chain.save.saver.held_together", lambda *_: 1 / 0)  # not committed
            with pytest.raises(ZeroDivisionError):
                chain.save(3, touched(state, 3))
        assert chain.steps == [0, 1, 2]
        chain.save(3, touched(state, 4))
        assert_same(chain.restore(), touched(state, 4))
        assert_same(chain.restore(1), touched(state, 1))


@pytest.mark.slow
def test_values_take_no_more_room_than_the_state(tmp_path: Path) -> None:
    """Also where an array gets another shape with each save, as a buffer that grows does."""
    rng = np.random.default_rng(0)
    whole = rng.standard_normal(60_000)
    with chain_of(tmp_path, keyframe_every=12) as chain:
        for step in range(16):
            state = {name: whole[: 3000 * (step + 1)].copy() for name in ("first", f"of {step}", "last")}
            state["small"] = whole[step:1000]
            chain.save(step, state)
            segments = sum(-(-array.nbytes // 4096) for array in state.values())
            assert (tmp_path / ".hashes" / "values").stat().st_size <= 2 * 4096 * segments
            assert_same(chain.restore(), state)
        chain.save(16, {"small": whole[:1000]})
        assert (tmp_path / ".hashes" / "values").stat().st_size <= 8192
        assert_same(chain.restore(), {"small": whole[:1000]})


@pytest.mark.parametrize("newest", ["history", "exact"])
def test_values_make_room_for_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, newest: Any
) -> None:
    """They are for speed alone; without them the chain would have room."""
    values, write = tmp_path / ".hashes" / "values", System.write

    def written(fd: int, data: memoryview) -> int:
        if values.exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(fd, data)

    state = large_state(0)
    with chain_of(tmp_path, newest=newest) as chain:
        chain.save(0, state)
        monkeypatch.setattr(System, "write", staticmethod(written))
        with pytest.warns(LccodecWarning, match=r"values cannot be written"):
            chain.save(1, touched(state, 1))
        chain.save(2, touched(state, 2))
        assert not values.exists()
    with (
        chain_of(tmp_path, newest=newest) as chain,
        pytest.warns(LccodecWarning, match=r"values cannot be written"),
    ):
        chain.save(3, touched(state, 3))
        for step in (1, 2, 3):
            assert_same(chain.restore(step), touched(state, step))
    assert validate(tmp_path, deep=True) == []


def test_values_make_room_for_a_step_that_only_the_exact_file_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values, write, link = tmp_path / ".hashes" / "values", System.write, System.link

    def linked(source: Any, target: Any) -> None:
        if Path(target).name == checkpoint_name(1):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        link(source, target)

    def written(fd: int, data: memoryview) -> int:
        if values.exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(fd, data)

    state = large_state(0)
    with chain_of(tmp_path, newest="exact") as chain:
        chain.save(0, state)
        with monkeypatch.context() as patch, pytest.warns(LccodecWarning, match="only in the exact file"):
            patch.setattr(System, "link", staticmethod(linked))
            chain.save(1, touched(state, 1))
        monkeypatch.setattr(System, "write", staticmethod(written))
        with pytest.warns(LccodecWarning, match="values cannot be written"):
            chain.save(2, touched(state, 2))
        for step in range(3):
            assert_same(chain.restore(step), touched(state, step) if step else state)


def test_a_step_that_is_there_is_not_saved_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsync = System.fsync

    def synced(fd: int) -> None:
        if (tmp_path / checkpoint_name(1)).exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(fd)

    state = large_state(0)
    with chain_of(tmp_path) as chain:
        chain.save(0, state)
        monkeypatch.setattr(System, "fsync", staticmethod(synced))
        with pytest.raises(StorageError, match="committed, but durability unknown"):
            chain.save(1, touched(state, 1))
        assert chain.steps == [0, 1]


@pytest.mark.slow
def test_hashes_are_those_of_what_is_stored_while_values_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a later save would take a value for the parent's which is not."""
    small_blocks(monkeypatch)
    state: dict[str, Any] = {"table": np.zeros(200_000, np.float32), "one": np.zeros(20_000, np.float64)}
    forms = {name: (components(array)[0], array.shape) for name, array in state.items()}
    ended = threading.Event()

    def change() -> None:
        rng = np.random.default_rng(0)
        while not ended.is_set():
            for array in state.values():
                array[rng.integers(0, array.size, 50)] += 1

    thread = threading.Thread(target=change)
    thread.start()
    try:
        with chain_of(tmp_path, keyframe_every=4) as chain:
            for step in range(8):
                chain.save(step, state)
                with DirectoryStore(tmp_path).open(checkpoint_name(step)) as reader:
                    found = HashFiles(DirectoryStore(tmp_path)).read(reader.roots, forms)
                assert found is not None
                for name, array in chain.restore(step).items():
                    _, bits = components(array)
                    np.testing.assert_array_equal(found[1][name].hashes, hash_segments(bits, found[0]))
    finally:
        ended.set()
        thread.join()
    assert validate(tmp_path, deep=True) == []


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.0, 0.0001, 0.01, 0.5, 1.0])
def test_files_are_those_of_an_ordinary_chain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    small_blocks(monkeypatch)
    state = large_state(0)
    here, there = tmp_path / "values", tmp_path / "hashes"
    with Chain(here, "lossless", keyframe_every=2) as one, chain_of(there, keyframe_every=2) as other:
        for step in range(4):
            assert one.save(step, state) == other.save(step, state)
            assert checkpoint_path(here, step).read_bytes() == checkpoint_path(there, step).read_bytes()
            state = touched(state, step + 1, share)


@st.composite
def changes(draw: st.DrawFn) -> list[dict[str, Any]]:
    """States, each the one before with some arrays changed, added or left out."""
    arrays: dict[str, np.ndarray] = {}
    states = []
    for _ in range(draw(st.integers(2, 3))):
        for name in draw(st.sets(st.sampled_from("abcd"), max_size=3)):
            kind = draw(st.sampled_from(["float32", "float64", "int16", "uint8", "complex64"]))
            size, seed = draw(st.sampled_from([0, 1, 300, 20_000, 40_001])), draw(st.integers(0, 99))
            arrays[name] = random_array(kind, (size,), seed)
        arrays = {name: array.copy() for name, array in arrays.items()}
        for name in draw(st.sets(st.sampled_from(sorted(arrays)))) if arrays else ():
            start, length = draw(st.integers(0, 45_000)), draw(st.sampled_from([1, 5000, 45_000]))
            part = arrays[name][start : start + length]
            part[:] = random_array(str(part.dtype), part.shape, draw(st.integers(0, 99)))
        states.append(dict(arrays))
    return states


@pytest.mark.slow  # many saves
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(changes(), st.booleans())
def test_any_changes_are_stored_as_by_an_ordinary_chain(
    monkeypatch: pytest.MonkeyPatch, states: list[dict[str, Any]], again: bool
) -> None:
    """Also by a new process at each step, which does not know how far arrays moved."""
    small_blocks(monkeypatch)
    with TemporaryDirectory() as folder:
        here, there = Path(folder, "values"), Path(folder, "hashes")
        one, other = Chain(here, "lossless"), chain_of(there)
        for step, state in enumerate(states):
            if again:
                other.close()
                other = chain_of(there)
            other.save(step, state)
            assert_same(other.restore(step), state)
            if not again:
                one.save(step, state)
                assert checkpoint_path(here, step).read_bytes() == checkpoint_path(there, step).read_bytes()
        one.close()
        other.close()


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["removed", "torn", "other bytes", "a link", "a directory"])
def test_without_the_file_of_values_they_come_from_the_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    small_blocks(monkeypatch)
    here, there = tmp_path / "values", tmp_path / "hashes"
    state, values = large_state(0), there / ".hashes" / "values"
    for step in range(3):
        with Chain(here, "lossless") as chain:
            chain.save(step, state)
        if step == 2:
            data = values.read_bytes()
            values.unlink()
            if damage == "torn":
                values.write_bytes(data[:50_000])
            elif damage == "other bytes":
                values.write_bytes(bytes(len(data)))
            elif damage == "a link":
                (tmp_path / "other").write_bytes(data)
                values.symlink_to(tmp_path / "other")
            elif damage == "a directory":
                values.mkdir()
        with chain_of(there) as chain:
            if step == 2 and damage in ("a link", "a directory"):
                with pytest.warns(LccodecWarning, match="values cannot be written"):
                    chain.save(step, state)
            else:
                chain.save(step, state)
            assert_same(chain.restore(), state)
        sizes = [checkpoint_path(each, step).stat().st_size for each in (here, there)]
        assert abs(sizes[0] - sizes[1]) < 400  # a new process doesn't know how far arrays moved
        state = touched(state, step + 1)
    if damage == "a link":
        assert (tmp_path / "other").read_bytes() == data


def test_values_are_not_decoded_if_they_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_blocks(monkeypatch)
    state = large_state(0)
    with chain_of(tmp_path) as chain:
        chain.save(0, state)
    monkeypatch.setattr(hash_reference, "open_name", lambda *_: pytest.fail("a checkpoint was decoded"))
    state["small"][0][1, 1] = 7
    with chain_of(tmp_path) as chain:
        chain.save(1, touched(state, 1))
        chain.save(2, touched(state, 2))
        assert_same(chain.restore(1), touched(state, 1))


def test_a_block_is_decoded_once_whatever_changed_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a bucket, where there is no file of values: there each segment would cost a block."""
    monkeypatch.setattr(DirectoryStore, "has_folders", False)
    spans, decode_span = [], hash_reference.decode_span
    monkeypatch.setattr(
        hash_reference, "decode_span", lambda *given: spans.append(given) or decode_span(*given)
    )
    table = np.zeros(300_000)
    with chain_of(tmp_path) as chain:
        chain.save(0, {"table": table})
        table[::3000] += 1
        chain.save(1, {"table": table})
        assert len(spans) <= 2
        np.testing.assert_array_equal(chain.restore(1)["table"], table)


def test_parts_of_an_array_of_the_parent(tmp_path: Path) -> None:
    values = np.arange(10_000, dtype=np.float64)
    with chain_of(tmp_path) as chain:
        chain.save(0, {"a": values})
        latest = chain._writer._saver._latest
        assert latest is not None
        bits = latest.arrays["a"].bits
        for part in (slice(0, 10), slice(500, 1700), slice(9_990, 20_000), slice(3, 3), slice(0, 9000, 7)):
            np.testing.assert_array_equal(bits[part].view(np.float64), values[part])


def test_hashes_of_any_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_blocks(monkeypatch)
    state = large_state(0)
    chain = Chain(tmp_path, "lossless")
    chain.save(0, state)
    state = touched(state, 1)
    chain.save(1, state)
    with open_name(DirectoryStore(tmp_path), checkpoint_name(1)) as file:
        segment, found = hash_checkpoint(file, None)
    arrays = {"table": state["table"], "one": state["one"], "small/0": state["small"][0]}
    for name, array in {**arrays, "small/2": state["small"][2], "complex": state["complex"]}.items():
        kind, bits = components(array)
        assert (found[name].kind, found[name].shape) == (kind, array.shape)
        np.testing.assert_array_equal(found[name].hashes, hash_segments(bits, segment))
        assert found[name].total == array_sum(bits)
    ends = [a.offset + len(a.hashes) * segment for a in found.values()]
    assert [a.offset for a in found.values()] == [0, *ends[:-1]]


def test_an_unknown_reference_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="reference must be one of values, hashes"):
        Chain(tmp_path, "lossless", reference="tree")


def test_groups_of_a_history_are_refused(tmp_path: Path) -> None:
    """Also with a policy that may lose something, but nothing of small arrays."""
    with pytest.raises(ArgumentError, match="hindsight= cannot be used with reference='hashes'"):
        Chain(tmp_path, "balanced", reference="hashes", newest="exact", hindsight=2)
