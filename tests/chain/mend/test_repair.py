"""Damage up to the redundancy is mended bit for bit; beyond it, nothing is worse than before.

What is left of a damaged chain goes into a new one, and what is gone is named.

What a repair would give back is told before, and nothing is written for that.
"""

import errno
import itertools
import random
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lccodec
from lccodec import ArgumentError, Chain, LccodecError, LccodecWarning, StorageError, validate
from lccodec.chain.behind import AllBehind
from lccodec.chain.mend.mirror import Mirrors
from lccodec.chain.mend.protect import ParityBehind, Redundancy, protect
from lccodec.chain.mend.ranks import protect_ranks
from lccodec.chain.mend.repair import Repair, repair
from lccodec.chain.store.directory import DirectoryStore
from lccodec.chain.store.store import Store
from lccodec.constants import PAYLOAD_OFFSET
from lccodec.container.source import Source
from lccodec.container.system import System

from ...support.chains import HistoryChain
from ...support.checkpoints import damage_array
from ...support.crashes import hold
from ...support.damage import (
    Files,
    Truth,
    damaged,
    files_in,
    flip,
    lasting,
    protected_run,
    put,
    refuse_to_read,
)
from ...support.mirrors import mirror_of
from ...support.profiles import LONG
from ...support.programs import run_program
from ...support.ranks import REPAIR, save_of_ranks
from ...support.segments import STATES, run_of
from ...support.systems import attempts
from ...support.walks import assert_restores, assert_same, save_all, walk

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
        assert {name: data for name, data in now.items() if not name.startswith(".parity")} == {
            name: data for name, data in files.items() if not name.startswith(".parity")
        }
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
    assert {n: d for n, d in before.items() if "3.lcc.h5" not in n}.items() <= files_in(
        tmp_path / "other"
    ).items()


def refuse_to_open(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    opened = DirectoryStore.source

    def open_or_fail(store: DirectoryStore, name: str) -> Source:
        if name == path.name:
            raise StorageError(errno.EIO, "cannot open", name)
        return opened(store, name)

    monkeypatch.setattr(DirectoryStore, "source", open_or_fail)


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
            refuse_to_open(patch, path)
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
        assert "is saving to this chain" in run_program(REPAIR, tmp_path, code=1).stderr


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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LccodecWarning)
        tried = attempts(
            tmp_path / "run", lambda place, system: repair(DirectoryStore(place, system)), code, sticky=sticky
        )
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


SALVAGED = [
    {"model": {"a": np.full(3000, step, np.float32), "b": np.arange(3000.0) * step}, "epoch": step}
    for step in range(6)
]


def salvaged_chain(directory: Path) -> Chain:
    chain = Chain(directory, "lossless", keyframe_every=2, newest="history")
    for step, state in enumerate(SALVAGED):
        chain.save(step, state, {"loss": step})
    chain.close()
    return Chain(directory)


def test_a_sound_chain(tmp_path: Path) -> None:
    found = salvaged_chain(tmp_path / "run").salvage(tmp_path / "new")
    assert (found.whole, found.partial, found.gone) == (tuple(range(6)), {}, {})
    assert_restores(Chain(tmp_path / "new"), SALVAGED, range(len(SALVAGED)))
    assert validate(tmp_path / "new", deep=True) == []


def test_other_arrays_of_damaged_steps_are_kept(tmp_path: Path) -> None:
    chain = salvaged_chain(tmp_path / "run")
    damage_array(tmp_path / "run/000000000003.lcc.h5", "model/a")
    found = chain.salvage(tmp_path / "new")
    assert found.whole == (0, 1, 2)
    assert {step: list(lost) for step, lost in found.partial.items()} == {
        step: ["model/a"] for step in (3, 4, 5)
    }
    assert "do not match their digest" in found.partial[4]["model/a"]
    new = Chain(tmp_path / "new")
    for step in (3, 4, 5):
        assert_same(new.restore(step), {"model/b": SALVAGED[step]["model"]["b"]})
    assert new.info(3).metadata["loss"] == "3"


def test_steps_whose_parent_is_missing_are_gone(tmp_path: Path) -> None:
    chain = salvaged_chain(tmp_path / "run")
    (tmp_path / "run/000000000003.lcc.h5").unlink()
    (tmp_path / "run/000000000000.lcc.h5").write_bytes(b"")
    found = chain.salvage(tmp_path / "new")
    assert (found.whole, found.partial, list(found.gone)) == ((), {}, [0, 1, 2, 4, 5])
    assert "parent" in found.gone[4]


def test_only_into_a_new_directory(tmp_path: Path) -> None:
    chain = salvaged_chain(tmp_path / "run")
    with pytest.raises(ArgumentError, match="needs a new or empty directory"):
        chain.salvage(tmp_path / "run")


NAMES = [f"{step:012d}.lcc.h5" for step in range(4)]


def deltas(directory: Path, seed: int = 0) -> Path:
    """A chain of four steps, each a delta to the one before."""
    with HistoryChain(directory, policy="lossless") as chain:
        save_all(chain, walk(4, seed))
    assert chain.info(3).deltas == 3
    return directory


def is_told(run: Path, *mirrors: Path) -> bool:
    before = files_in(run)
    store = DirectoryStore(run)
    behind = AllBehind([ParityBehind(store, None), Mirrors(store, mirrors)])
    told = behind.gives_back(NAMES[3])
    assert files_in(run) == before
    return told


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Path]:
    """A chain with parity for one file. What is told of it is held to what a repair does."""
    protect(DirectoryStore(deltas(tmp_path / "run")), Redundancy(files=1))
    files = files_in(tmp_path / "run")
    yield tmp_path / "run"
    if is_told(tmp_path / "run"):
        repair(DirectoryStore(tmp_path / "run"))
        assert files_in(tmp_path / "run") == files


@pytest.mark.parametrize("place", [None, 3, -400, -20])
@pytest.mark.parametrize("name", [NAMES[3], NAMES[1]])
def test_one_file_comes_back_from_parity(run: Path, name: str, place: int | None) -> None:
    flip(run / name, *([] if place is None else [place]))
    assert is_told(run)


def test_a_file_that_is_gone_comes_back(run: Path) -> None:
    (run / NAMES[2]).unlink()
    assert is_told(run)


def test_two_files_do_not(run: Path) -> None:
    flip(run / NAMES[3])
    flip(run / NAMES[0])
    assert not is_told(run)


def test_damaged_parity_gives_nothing(run: Path) -> None:
    flip(run / NAMES[3])
    [path] = (run / ".parity").iterdir()
    path.write_bytes(path.read_bytes()[:100])
    assert not is_told(run)


def test_parity_of_an_older_chain_gives_nothing(run: Path) -> None:
    """Another file has the name of one of the group, so what is missing may be gone on purpose."""
    shutil.copy(deltas(run.parent / "other", 1) / NAMES[0], run / NAMES[0])
    (run / NAMES[2]).unlink()
    assert not is_told(run)


def test_a_mirror_gives_all_back(tmp_path: Path) -> None:
    run, mirror = deltas(tmp_path / "run"), tmp_path / "m"
    mirror_of(run, mirror).bring()
    flip(run / NAMES[3])
    flip(run / NAMES[1])
    assert not is_told(run)
    assert is_told(run, mirror)
    flip(mirror / NAMES[1])
    assert not is_told(run, mirror)


def test_a_mirror_of_another_chain_gives_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, other = deltas(tmp_path / "run"), deltas(tmp_path / "other", 1)
    flip(run / NAMES[3])
    mirrors = Mirrors(DirectoryStore(run), [])

    def refused() -> list[Store]:
        raise LccodecError("no network")

    for opened in (lambda: [DirectoryStore(other), DirectoryStore(tmp_path / "nothing")], refused):
        monkeypatch.setattr(mirrors, "opened", opened)
        assert not mirrors.gives_back(NAMES[3])


def test_the_chain_of_a_rank_has_parity_with_others(tmp_path: Path) -> None:
    save_of_ranks(tmp_path, [200, 300, 100], range(4), newest="history")
    protect_ranks(DirectoryStore(tmp_path), Redundancy(files=1))
    flip(tmp_path / "rank-1" / NAMES[3])
    assert is_told(tmp_path / "rank-1")
    protect(DirectoryStore(tmp_path / "rank-1"), Redundancy(files=1))  # which has none of that file
    assert is_told(tmp_path / "rank-1")
    flip(tmp_path / "rank-0" / NAMES[3])
    assert not is_told(tmp_path / "rank-1")
