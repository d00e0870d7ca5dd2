"""Damage up to the redundancy is mended bit for bit; beyond it, nothing is worse than before."""

from __future__ import annotations

import errno
import itertools
import random
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lccodec
from lccodec import Chain, LccodecWarning
from lccodec.chain.mend.repair import Repair, repair
from lccodec.chain.store.directory import DirectoryStore
from lccodec.constants import PAYLOAD_OFFSET
from lccodec.container.disk.system import System

from ...support.crashes import hold
from ...support.damage import (
    REPAIRING,
    Files,
    Truth,
    damaged,
    files_in,
    flip,
    lasting,
    protected_run,
    put,
    refuse_to_open,
    refuse_to_read,
)
from ...support.profiles import LONG
from ...support.programs import run_program
from ...support.segments import STATES, run_of
from ...support.systems import attempts
from ...support.walks import assert_same

CASES = 10_000 if LONG else 120


class Unsynced(System):
    """The real system without flushes, which take longest."""

    fsync = staticmethod(lambda _: None)


def truths(files: Files) -> list[Truth]:
    """The groups of a directory."""
    return [Truth(files, name) for name in files if name.endswith("-00.lcc.par")]


def assert_honest(place: Path, files: Files, broken: Files) -> bool:
    """Repair damaged files; return whether all were mended, as they must be where possible."""
    put(place, broken)
    store = DirectoryStore(place, Unsynced())
    told = repair(store, dry_run=True)
    assert files_in(place) == broken
    found = repair(store)
    now = files_in(place)
    later = {*found.remade} - {*told.remade}  # from, or after, a file that had to be mended first
    assert len({*found.mended}) == len(found.mended)
    assert [name for name in found.mended if name not in later] == [n for n in told.mended if n not in later]
    assert {*told.lost} - later == {*found.lost}
    for truth in truths(files):
        original = {name: files[name] for name in truth.names}
        mended = {name: now.get(name) for name in truth.names} == original
        assert mended or not truth.is_mendable(broken)
    for name, data in files.items():
        if name in found.remade and now[name] != data:
            with lccodec.open(place / name) as file:  # nothing else has this step any more
                assert_same(file.state(), STATES[file.info().step])
        elif name in now and now[name] != data and not name.startswith(".parity"):
            assert now[name] == broken.get(name)
            assert name in found.lost
    if not found.lost and not found.remade and all(name in now for name in files):
        own, was = ({n: d for n, d in some.items() if not n.startswith(".parity")} for some in (now, files))
        assert own == was
        return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize(("redundancy", "places"), [(2, 3), ("20%", 3), (1, 2), ("50%", 8)])
def test_random_damage(tmp_path: Path, redundancy: object, places: int) -> None:
    protected_run(tmp_path / "run", redundancy, newest="exact")
    files = files_in(tmp_path / "run")
    generator, whole = random.Random(f"{redundancy}"), 0
    cases = CASES // 4
    for _ in range(cases):
        broken = damaged(files, generator, generator.randint(1, places))
        whole += assert_honest(tmp_path / "case", files, broken)
    assert cases // 8 < whole < cases  # some are beyond the limit, and some are not


def test_an_exact_file_with_a_length_beyond_a_limit_is_damaged(tmp_path: Path) -> None:
    """No version writes such a manifest (LCC-LIM-04): a byte of the trailer is wrong."""
    protected_run(tmp_path / "run", 2, newest="exact")
    files = files_in(tmp_path / "run")
    data = bytearray(files["exact.lcc.h5"])
    data[-88 + 40 + 7] ^= 1
    assert assert_honest(tmp_path / "case", files, {**files, "exact.lcc.h5": bytes(data)})


@pytest.mark.parametrize("pair", list(itertools.combinations(range(8), 2)))
def test_all_pairs_of_whole_files(tmp_path: Path, pair: tuple[int, int]) -> None:
    """Of six checkpoints and their two parity files."""
    protected_run(tmp_path / "run", 2)
    files = files_in(tmp_path / "run")
    lost = [sorted(files)[number] for number in pair]
    left = {name: data for name, data in files.items() if name not in lost}
    whole = assert_honest(tmp_path / "case", files, left)
    assert whole or pair == (0, 1)  # without any parity nothing can be made anew
    assert files_in(tmp_path / "case") == (files if whole else left)


def test_a_damaged_byte_costs_one_block(tmp_path: Path) -> None:
    """One parity file mends a byte in each file, if no two are in a row."""
    protected_run(tmp_path / "run", 1)
    files = files_in(tmp_path / "run")
    [truth] = truths(files)
    assert truth.rows > 1
    broken = dict(files)
    for row, name in enumerate(["000000000000.lcc.h5", "000000000003.lcc.h5"]):
        data = bytearray(files[name])
        data[row * truth.block + 7] ^= 8
        broken[name] = bytes(data)
    assert assert_honest(tmp_path / "case", files, broken)


def test_one_whole_copy_of_the_index_is_enough(tmp_path: Path) -> None:
    protected_run(tmp_path / "run", 2)
    files = files_in(tmp_path / "run")
    [truth] = truths(files)
    broken = dict(files)
    del broken["000000000002.lcc.h5"]
    first, second = (bytearray(files[name]) for name in truth.parity)
    for data, places in ((first, [70, len(first) - 70]), (second, [70])):
        for place in places:
            data[place] ^= 1
    broken |= {truth.parity[0]: bytes(first), truth.parity[1]: bytes(second)}
    assert assert_honest(tmp_path / "case", files, broken)
    assert files_in(tmp_path / "case") == files


# --- parity that does not fit ---------------------------------------------------------------------


def test_parity_of_another_chain_is_not_trusted(tmp_path: Path) -> None:
    protected_run(tmp_path / "run", 2)
    other = Chain(tmp_path / "other", "lossless", newest="history")
    for step in range(5):
        other.save(step, {"w": np.arange(9.0) * step})
    shutil.copytree(tmp_path / "run/.parity", tmp_path / "other/.parity")
    before = files_in(tmp_path / "other")
    found = repair(DirectoryStore(tmp_path / "other"), dry_run=True)
    assert (found.mended, len(found.stale)) == ((), 1)
    (tmp_path / "other/000000000003.lcc.h5").write_bytes(b"damaged")
    found = repair(DirectoryStore(tmp_path / "other"))
    assert found.mended == ()
    assert list(found.lost) == ["000000000003.lcc.h5"]
    others = {n: d for n, d in before.items() if "3.lcc.h5" not in n}
    assert others.items() <= files_in(tmp_path / "other").items()


@pytest.mark.parametrize("what", ["open", "read"])
def test_a_checkpoint_whose_head_the_disk_refuses_to_read_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """A read error may pass; nothing says then that this file is the one that parity knows."""
    protected_run(tmp_path, 1, 4)
    files, path = files_in(tmp_path), tmp_path / "000000000002.lcc.h5"
    flip(tmp_path / "000000000003.lcc.h5")
    before = path.stat()
    with monkeypatch.context() as patch:
        if what == "read":
            refuse_to_read(patch, path, before.st_size - 1)
        else:
            refuse_to_open(patch, path.name)
        told = repair(DirectoryStore(tmp_path), dry_run=True)
        found = repair(DirectoryStore(tmp_path))
    assert found == told
    assert path.stat().st_ino == before.st_ino
    assert f"cannot {what}" in found.lost[path.name]
    assert path.name not in found.mended
    assert repair(DirectoryStore(tmp_path)).lost == {}  # the error has passed
    assert files_in(tmp_path) == files


def test_a_bad_sector_of_parity_costs_its_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    protected_run(tmp_path, 2, 4)
    files = files_in(tmp_path)
    first, *_ = sorted((tmp_path / ".parity").iterdir())
    (tmp_path / "000000000002.lcc.h5").unlink()
    with monkeypatch.context() as patch:
        refuse_to_read(patch, first, first.stat().st_size // 2)
        found = repair(DirectoryStore(tmp_path))
    assert (found.mended, found.parity) == (("000000000002.lcc.h5",), (first.name,))
    assert files_in(tmp_path) == files


@pytest.mark.parametrize("components", [100, 100_000])
def test_a_bad_sector_of_a_payload_is_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, components: int
) -> None:
    """Also of a small file, which is otherwise read at once."""
    with Chain(tmp_path, "lossless", parity=1) as chain:
        for step in range(3):
            chain.save(step, {"w": np.random.default_rng(step).random(components)})
    files, path = files_in(tmp_path), tmp_path / "000000000001.lcc.h5"
    before = path.stat()
    with monkeypatch.context() as patch:
        refuse_to_read(patch, path, PAYLOAD_OFFSET + 100)
        found = repair(DirectoryStore(tmp_path))
    assert found.mended == (path.name,)
    assert path.stat().st_ino != before.st_ino
    assert files_in(tmp_path) == files


def test_an_exact_file_is_not_replaced_by_an_older_one(tmp_path: Path) -> None:
    protected_run(tmp_path, 1, 4, newest="exact")
    with Chain(tmp_path) as chain:
        chain.save(4, STATES[4])
    (tmp_path / "exact.lcc.h5").write_bytes(b"damaged")
    path = tmp_path / "000000000004.lcc.h5"  # from which it would be written anew
    flip(path)
    found = repair(DirectoryStore(tmp_path))
    assert found.mended == ()
    assert "parity is older than step 4" in found.lost["exact.lcc.h5"]
    assert (tmp_path / "exact.lcc.h5").read_bytes() == b"damaged"


def test_parity_that_claims_huge_blocks(tmp_path: Path) -> None:
    protected_run(tmp_path, 1, 4)
    [path] = (tmp_path / ".parity").iterdir()
    data = path.read_bytes()
    path.write_bytes(data[:24] + (1 << 62).to_bytes(8, "little") + data[32:-64])
    found = repair(DirectoryStore(tmp_path))
    assert (found.mended, found.lost) == ((), {})


def test_a_chain_without_parity(tmp_path: Path) -> None:
    run_of(tmp_path, 3).close()
    assert repair(DirectoryStore(tmp_path)) == Repair((), {})
    (tmp_path / "000000000002.lcc.h5").write_bytes(b"")
    assert list(repair(DirectoryStore(tmp_path)).lost) == ["000000000002.lcc.h5"]


@pytest.mark.slow
def test_nobody_repairs_while_another_saves(tmp_path: Path) -> None:
    protected_run(tmp_path, 1, 3)
    with Chain(tmp_path) as chain:
        chain.save(3, STATES[3])
        assert chain.repair().protected == 3  # by its own claim
        chain.save(4, STATES[4])  # and takes it again
        assert "is saving to this chain" in run_program(REPAIRING, tmp_path, code=1).stderr


# --- crashes and faults ---------------------------------------------------------------------------


def three_damaged(directory: Path) -> tuple[Files, Files]:
    """A chain of which a file is gone and one is damaged: what it was, and what it is."""
    protected_run(directory, 2, 5, newest="exact")
    files = files_in(directory)
    (directory / "000000000001.lcc.h5").unlink()
    path = directory / "000000000003.lcc.h5"
    path.write_bytes(path.read_bytes()[:900] + b"another end")
    return files, files_in(directory)


@pytest.mark.slow
@pytest.mark.parametrize("ignore", ["", "sync"])
def test_no_crash_of_a_repair_harms(tmp_path: Path, ignore: str) -> None:
    files, broken_files = three_damaged(tmp_path / "run")

    def check(done: bool, place: Path) -> bool:
        now = files_in(place)
        for name, data in files.items():
            if now.get(name) not in (data, broken_files.get(name)):
                return False
        if done and {n: now.get(n) for n in files} != files:
            return False
        repair(DirectoryStore(place))
        return lasting(place) == files

    def work(system: Any) -> None:
        repair(DirectoryStore(tmp_path / "run", system))

    hold(tmp_path / "run", work, check, ignore, above=4)


@pytest.mark.slow
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("sticky", [False, True])
def test_faults_at_every_operation(tmp_path: Path, code: int, sticky: bool) -> None:
    files, broken_files = three_damaged(tmp_path / "run")
    with warnings.catch_warnings(action="ignore", category=LccodecWarning):
        act = lambda place, system: repair(DirectoryStore(place, system))  # noqa: E731
        tried = attempts(tmp_path / "run", act, code, sticky=sticky)
        assert files_in(next(tried)[0]) == files
        told = 0
        for place, error in tried:
            told += error is not None
            now = files_in(place)
            for name, data in files.items():
                assert now.get(name) in (data, broken_files.get(name))
            repair(DirectoryStore(place))
            assert lasting(place) == files
    assert told > 10
