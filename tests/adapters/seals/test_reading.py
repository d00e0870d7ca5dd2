"""What is loaded is what was sealed; an error names the file and the tensor.

Whole files and parts of them are hashed in one pass; what changes meanwhile is noticed.
"""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Callable
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lccodec
from lccodec import ChecksumError, FormatError, StorageError
from lccodec.adapters import hdf5, npz, safetensors, seals
from lccodec.adapters import seals as reading
from lccodec.adapters.files import states
from lccodec.adapters.seals import (
    Entry,
    SealedPart,
    check_unchanged,
    damaged_parts,
    digest_of,
    entry_of,
    find_seal,
    in_threads,
    read_sealed,
    sealed_file,
)

from ...support.damage import flip
from ...support.tuning import tuned

STATE = {"a": np.arange(1000, dtype=np.float32), "b": np.ones((30, 20), np.float32)}
FORMATS = ["m.safetensors", "m.safetensors.index.json", "m.npz", "m.h5"]


@pytest.fixture(params=["beside", "directory", "above"])
def seal(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Path], object]:
    """Seals the file at a path, or the directory that it is in."""

    def make(path: Path) -> object:
        alone = request.param == "beside" and not path.name.endswith(".index.json")
        return seals.seal(path if alone else path.parent if request.param == "directory" else tmp_path)

    return make


@pytest.mark.parametrize("name", FORMATS)
def test_a_sealed_state_is_loaded_if_it_is_whole(tmp_path: Path, name: str, seal: Any) -> None:
    path = tmp_path / "model" / name
    path.parent.mkdir()
    states.save_file(STATE, path, {})
    seal(path)
    before = states.load_file(path)
    assert all(np.array_equal(before[0][key], array) for key, array in STATE.items())
    shard = next(path.parent.glob("*-00001-*"), path)
    flip(shard, shard.stat().st_size - 8)
    with pytest.raises(ChecksumError, match="changed") as caught:
        states.load_file(path)
    assert (caught.value.rule, caught.value.where) == ("seal", str(shard))


@pytest.mark.parametrize("load", [safetensors.load_file, safetensors.load_state, safetensors.load_metadata])
@pytest.mark.parametrize("sealed_by", ["lccodec", "sha256sum"])
def test_the_damaged_tensor_is_named(tmp_path: Path, load: Any, sealed_by: str) -> None:
    path = tmp_path / "m.safetensors"
    safetensors.save_file(STATE, path)
    made = seals.seal(path)
    assert (made.files, made.tensors, made.nbytes) == (1, 2, path.stat().st_size)
    if sealed_by == "sha256sum":
        made.path.write_text(made.path.read_text().splitlines()[1] + "\n")
    load(path)
    flip(path, -1)
    with pytest.raises(ChecksumError, match="tensor 'b'" if sealed_by == "lccodec" else "changed"):
        load(path)
    flip(path, -1)
    flip(path, 10)
    with pytest.raises(ChecksumError, match="'__metadata__'" if sealed_by == "lccodec" else "changed"):
        load(path)


def test_bytes_behind_the_tensors(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    safetensors.save_file(STATE, path)
    seals.seal(path)
    with path.open("ab") as file:
        file.write(b"more")
    with pytest.raises(ChecksumError, match="changed, but none of its tensors"):
        safetensors.load_file(path)


def test_many_damaged_tensors_are_not_all_named(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    safetensors.save_file({f"w{i:02}": np.full(2, i, np.float32) for i in range(30)}, path)
    seals.seal(path)
    path.write_bytes(path.read_bytes()[: -30 * 8] + bytes(30 * 8))
    with pytest.raises(ChecksumError, match=r"tensors 'w01', 'w02', .*'w08' and 21 others since"):
        safetensors.load_file(path)


def test_what_changes_between_check_and_load_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.npz"
    npz.save_file(STATE, path)
    seals.seal(path)
    digest_of = reading.digest_of

    def meanwhile(*arguments: Any) -> str:
        found = digest_of(*arguments)
        data = path.read_bytes()
        path.write_bytes(data)
        os.utime(path, ns=(0, 0))
        return found

    monkeypatch.setattr(reading, "digest_of", meanwhile)
    with pytest.raises(ChecksumError, match="changed while it was read"):
        npz.load_file(path)


def test_the_file_that_is_yielded_is_the_one_that_was_verified(tmp_path: Path) -> None:
    path, other = tmp_path / "a", tmp_path / "b"
    path.write_bytes(b"sealed")
    other.write_bytes(b"others")
    seals.seal(path)
    with pytest.raises(ChecksumError, match="changed while"), sealed_file(path) as file:
        other.replace(path)
        assert file.read() == b"sealed"


def test_hdf5_goes_by_the_path_and_a_file_in_its_place_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hdf5.save_file(STATE, tmp_path / "a.h5")
    hdf5.save_file({"a": np.zeros(3)}, tmp_path / "b.h5")
    seals.seal(tmp_path / "a.h5")
    opened = h5py.File

    def meanwhile(path: str, mode: str) -> Any:
        (tmp_path / "b.h5").replace(path)
        return opened(path, mode)

    monkeypatch.setattr(h5py, "File", meanwhile)
    with pytest.raises(ChecksumError, match="changed while it was read"):
        hdf5.load_state(tmp_path / "a.h5")


def test_the_nearest_seal_counts(tmp_path: Path) -> None:
    folder = tmp_path / "sub"
    folder.mkdir()
    path = folder / "a"
    assert find_seal(path) is None
    path.write_bytes(b"abc")
    seals.seal(tmp_path)
    assert (found := find_seal(path)) and found.seal == tmp_path / "lccodec.sha256"
    seals.seal(folder)
    assert (found := find_seal(path)) and found.seal == folder / "lccodec.sha256"
    seals.seal(path)
    assert (found := find_seal(path)) and found.seal == folder / "a.sha256"
    assert find_seal(folder / "new") is None
    (folder / "new").write_bytes(b"new")
    assert read_sealed(folder / "new") == b"new"


def test_a_seal_of_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    shutil.move(seals.seal(tmp_path / "a").path, tmp_path / "b.sha256")
    (tmp_path / "b").write_bytes(b"abc")
    with pytest.raises(FormatError, match="does not name 'b'"):
        read_sealed(tmp_path / "b")


def test_a_seal_that_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    os.mkfifo(tmp_path / "a.sha256")
    with pytest.raises(StorageError, match="not a regular file"):
        read_sealed(tmp_path / "a")
    (tmp_path / "a.sha256").unlink()
    (tmp_path / "lccodec.sha256").mkdir()
    with pytest.raises(StorageError):
        read_sealed(tmp_path / "a")


def test_a_checkpoint_has_hashes_of_its_own(tmp_path: Path) -> None:
    lccodec.save_file(STATE, tmp_path / "m.lcc.h5")
    seals.seal(tmp_path)
    assert list(lccodec.load_file(tmp_path / "m.lcc.h5")) == ["a", "b"]


def test_an_index_that_is_replaced_may_be_damaged(tmp_path: Path) -> None:
    index = tmp_path / "m.safetensors.index.json"
    safetensors.save_file(STATE, index)
    seals.seal(tmp_path)
    index.write_bytes(b"damaged")
    safetensors.save_file(STATE, index)
    assert seals.check(tmp_path) == []
    flip(index, 5)  # others, who know of no seal, may read it: its shards stay until the index is replaced
    safetensors.save_file(STATE, index)
    assert {problem.message for problem in seals.check(tmp_path)} >= {"changed", "missing"}
    (tmp_path / "lccodec.sha256").unlink()
    assert list(safetensors.load_file(index)) == ["a", "b"]


@given(st.binary(max_size=60), st.sets(st.integers(0, 70)), st.integers(1, 20))
def test_parts_of_any_place_are_hashed(data: bytes, cuts: set[int], piece: int) -> None:
    places = sorted(cuts)
    parts = [
        SealedPart(f"{start}", start, end) for start, end in zip(places[::2], places[1::2], strict=False)
    ]
    with tuned(seal_piece_bytes=piece):
        found = entry_of(io.BytesIO(data), parts)
    assert found.digest == sha256(data).hexdigest() == digest_of(io.BytesIO(data))
    whole = [part for part in parts if part.end <= len(data)]
    assert list(found.parts) == [
        SealedPart(p.name, p.start, p.end, sha256(data[p.start : p.end]).hexdigest()) for p in whole
    ]


@given(st.binary(min_size=8, max_size=40), st.data())
def test_damaged_parts_are_those_that_differ(data: bytes, draws: st.DataObject) -> None:
    cuts = [0, 3, 5, len(data)]
    sealed = entry_of(io.BytesIO(data), [SealedPart(f"{a}", a, b) for a, b in pairwise(cuts)])
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
