"""The exact file and the checkpoint of its step: one that is lost is made from the other."""

import errno
import shutil
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec import (
    Chain,
    LccodecError,
    LccodecWarning,
    LimitError,
    StorageError,
    UnsupportedError,
    open,
    validate,
)
from lccodec.chain.mend.protect import Redundancy, protect
from lccodec.chain.mend.repair import repair
from lccodec.chain.store.directory import DirectoryStore
from lccodec.chain.store.store import checkpoint_name
from lccodec.constants import EXACT_NAME, PAYLOAD_OFFSET, ROOT_SIZE, TRAILER_MAGIC
from lccodec.container.checkpoint import root_of
from lccodec.container.manifest import Manifest
from lccodec.container.system import System

from ...support.crashes import hold
from ...support.damage import Files, files_in, flip, refuse_to_open
from ...support.mirrors import chain_files, mirror_of
from ...support.systems import attempts
from ...support.walks import NAMES, assert_same, is_so, lossy_chain, save_all, walk

STATES = walk(7)
#: Of each file: the front, the payload, the manifest, the trailer, the end, all.
DAMAGE = ["front", "payload", "manifest", "trailer", "cut", "empty"]


def hurt(path: Path, how: str) -> bytes:
    """Damage a file in a place; return what it is now."""
    data = bytearray(path.read_bytes())
    if how in ("cut", "empty"):
        del data[len(data) // 2 if how == "cut" else 0 :]
    else:
        data[{"front": 3, "payload": PAYLOAD_OFFSET + 9, "manifest": -400, "trailer": -20}[how]] ^= 4
    path.write_bytes(data)
    return bytes(data)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A lossy chain of five steps with an exact file. The newest is a delta to the one before."""
    lossy_chain(tmp_path / "run", 5).close()
    return tmp_path / "run"


NEWEST = "000000000040.lcc.h5"


def backed_up(run: Path, other: str) -> list[Path]:
    """Give a chain parity, or a mirror, which is returned."""
    if other == "parity":
        protect(DirectoryStore(run), Redundancy(files=1))
        return []
    mirror_of(run, run.parent / "m").bring()
    return [run.parent / "m"]


def save_next(chain: Chain, background: bool) -> None:
    if background:
        chain.save_async(50, STATES[5]).result()
        chain.wait()
    else:
        chain.save(50, STATES[5])


@pytest.mark.parametrize("how", DAMAGE)
def test_the_checkpoint_is_written_anew(run: Path, how: str) -> None:
    before = chain_files(run)
    damaged = hurt(run / NEWEST, how)
    told = Chain(run).repair(dry_run=True)
    assert (run / NEWEST).read_bytes() == damaged
    found = Chain(run).repair()
    assert found == told
    assert (found.mended, found.lost) == ((NEWEST,), {})
    assert dict(found.remade) == {NEWEST: "as a keyframe, from the exact file"}
    assert validate(run, deep=True) == []
    after = chain_files(run)
    assert {name for name in before if after[name] != before[name]} == {NEWEST}
    assert_same(Chain(run).restore(40), STATES[4])
    (run / EXACT_NAME).unlink()
    with warnings.catch_warnings(action="error"):  # nothing is lossy, so the exact file is not missed
        assert_same(Chain(run).restore(), STATES[4])
    assert Chain(run).info(40).parent is None


@pytest.mark.parametrize("how", DAMAGE)
@pytest.mark.parametrize("background", [False, True])
@pytest.mark.slow
def test_the_next_save_does_so_first(run: Path, how: str, background: bool) -> None:
    """Otherwise the step would be lost with the exact file that is replaced."""
    hurt(run / NEWEST, how)
    with Chain(run) as chain, pytest.warns(LccodecWarning, match="step 40 was written anew") as told:
        save_next(chain, background)
    assert len(told) == 1
    assert validate(run, deep=True) == []
    assert_same(Chain(run).restore(40), STATES[4])
    assert_same(Chain(run).restore(), STATES[5])
    assert Chain(run).info(50).parent == 40


def test_the_same_chain_finds_its_last_step_damaged(tmp_path: Path) -> None:
    with lossy_chain(tmp_path, 5) as chain:
        hurt(tmp_path / NEWEST, "trailer")
        with pytest.warns(LccodecWarning, match="written anew"):
            chain.save(50, STATES[5])
    assert_same(Chain(tmp_path).restore(40), STATES[4])


@pytest.mark.parametrize("how", ["damaged", "missing"])
def test_a_step_whose_parent_is_lost(run: Path, how: str) -> None:
    """Its own file is whole, and cannot be restored."""
    parent = run / "000000000030.lcc.h5"
    flip(parent) if how == "damaged" else parent.unlink()
    with Chain(run) as chain:
        told = chain.repair(dry_run=True)
        found = chain.repair()
    assert found == told
    assert (list(found.remade), list(found.lost)) == ([NEWEST], [parent.name] if how == "damaged" else [])
    assert_same(Chain(run).restore(40), STATES[4])
    assert Chain(run).info(40).parent is None


def test_what_is_whole_stays(run: Path) -> None:
    """Nothing is written anew because of damage that does not concern the newest step."""
    hurt(run / "000000000010.lcc.h5", "payload")
    files = chain_files(run)
    found = Chain(run).repair()
    assert (list(found.lost), dict(found.remade)) == (["000000000010.lcc.h5"], {})
    assert chain_files(run) == files


def test_a_step_that_others_need_stays_as_it_was(tmp_path: Path) -> None:
    with Chain(tmp_path, "lc-3", exact_every=2) as chain:
        save_all(chain, STATES, range(4))
    assert open(tmp_path / EXACT_NAME).info().step == 2
    damaged = hurt(tmp_path / NAMES[2], "payload")
    found = Chain(tmp_path).repair()
    assert "step 3 needs step 2 with the values that it had" in found.lost[NAMES[2]]
    assert (tmp_path / NAMES[2]).read_bytes() == damaged
    with pytest.warns(LccodecWarning, match="the exact file is of step 2"):
        saved = Chain(tmp_path).salvage(tmp_path / "new")
    assert saved.whole == (0, 1, 2)
    assert_same(Chain(tmp_path / "new").restore(2), STATES[2])


def test_an_exact_file_of_another_save_is_not_taken(run: Path) -> None:
    with lossy_chain(run.parent / "other", 0) as other:
        other.save(40, STATES[6])
    shutil.copy(run.parent / "other" / EXACT_NAME, run / EXACT_NAME)
    hurt(run / NEWEST, "payload")
    found = Chain(run).repair()
    assert "belongs to another checkpoint of step 40" in found.lost[NEWEST]
    assert not found.remade


def test_both_are_damaged(run: Path) -> None:
    before = {NEWEST: hurt(run / NEWEST, "payload"), EXACT_NAME: hurt(run / EXACT_NAME, "payload")}
    found = Chain(run).repair()
    assert set(found.lost) == {NEWEST, EXACT_NAME}
    assert {name: chain_files(run)[name] for name in before} == before
    with pytest.warns(LccodecWarning, match="writes a keyframe instead"), Chain(run) as chain:
        chain.save(50, STATES[5])


# --- what only cannot be read now -----------------------------------------------------------------


REFUSALS = [
    *(StorageError(code, "cannot open", "file") for code in (errno.EIO, errno.EACCES, errno.ESTALE)),
    UnsupportedError("LCC-VER-01", "file", "of a newer version"),
    LimitError("LCC-LIM-05", "file", "too large"),
]


@pytest.mark.parametrize("error", REFUSALS, ids=lambda error: f"{type(error).__name__}-{error.args[0]}")
@pytest.mark.parametrize("name", [NEWEST, "000000000030.lcc.h5"])
def test_a_checkpoint_that_cannot_be_read_now_stays(
    run: Path, monkeypatch: pytest.MonkeyPatch, name: str, error: LccodecError
) -> None:
    files = chain_files(run)
    refuse_to_open(monkeypatch, name, error)
    told = repair(DirectoryStore(run), dry_run=True)
    found = repair(DirectoryStore(run))
    assert found == told
    assert (found.mended, found.lost[name]) == ((), str(error))
    assert str(error) in found.lost[NEWEST]
    assert chain_files(run) == files
    with Chain(run) as chain, pytest.warns(LccodecWarning, match="writes a keyframe instead") as warned:
        chain.save(50, STATES[5])
    assert len(warned) == 1
    monkeypatch.undo()
    assert (run / NEWEST).read_bytes() == files[NEWEST]
    assert validate(run, deep=True) == []


def test_an_exact_file_that_cannot_be_read_now_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be of a newer step than the checkpoint that it could be written anew from."""
    with Chain(tmp_path, "lossless", newest="exact") as chain:
        for step in (30, 40):
            chain.save(step, STATES[step // 10])
    (tmp_path / NEWEST).unlink()  # as after a save that was cut short
    files = chain_files(tmp_path)
    refuse_to_open(monkeypatch, EXACT_NAME)
    found = repair(DirectoryStore(tmp_path))
    assert (found.mended, list(found.lost)) == ((), [EXACT_NAME])
    assert chain_files(tmp_path) == files


@pytest.mark.parametrize("times", [1, 99])
@pytest.mark.parametrize("other", ["parity", "mirror"])
def test_an_older_exact_file_does_not_take_the_place_of_one_that_cannot_be_read_now(
    run: Path, monkeypatch: pytest.MonkeyPatch, other: str, times: int
) -> None:
    mirrors = list(map(DirectoryStore, backed_up(run, other)))
    Chain(run).save(50, STATES[5])
    (run / checkpoint_name(50)).unlink()  # as after a save that was cut short
    files = chain_files(run)
    refuse_to_open(monkeypatch, EXACT_NAME, place=run, times=times)
    assert repair(DirectoryStore(run), mirrors=mirrors).mended == ()
    monkeypatch.undo()
    assert chain_files(run) == files
    assert_same(Chain(run).restore(), STATES[5])


def of_newer_version(data: bytes, place: str) -> bytes:
    """The bytes of a checkpoint, as a version might write them that this one does not know."""
    start = data.index(b'{"lccodec":[1,')
    tail = data[start:-ROOT_SIZE]
    if place == "manifest":
        tail = tail.replace(b"[1,", b"[2,", 1)
    else:
        tail = tail.replace(TRAILER_MAGIC + b"\1", TRAILER_MAGIC + b"\2")
    return data[:start] + tail + root_of(data[:PAYLOAD_OFFSET], tail)


@pytest.mark.parametrize("place", ["manifest", "trailer"])
@pytest.mark.parametrize("other", ["parity", "mirror"])
def test_a_checkpoint_that_a_newer_version_wrote_anew_stays(run: Path, other: str, place: str) -> None:
    mirrors = list(map(DirectoryStore, backed_up(run, other)))
    (run / NEWEST).write_bytes(of_newer_version((run / NEWEST).read_bytes(), place))
    files = chain_files(run)
    found = repair(DirectoryStore(run), mirrors=mirrors)
    assert (found.mended, found.remade, list(found.lost)) == ((), {}, [NEWEST])
    assert "format version 2" in found.lost[NEWEST]
    assert chain_files(run) == files


def test_a_version_that_is_a_damaged_byte_is_mended(run: Path) -> None:
    protect(DirectoryStore(run), Redundancy(files=1))
    files = chain_files(run)
    for name in (NEWEST, EXACT_NAME):
        data = files[name].replace(TRAILER_MAGIC + b"\1", TRAILER_MAGIC + b"\2")
        (run / name).write_bytes(data)
        assert repair(DirectoryStore(run)).mended == (name,)
        assert chain_files(run) == files


# --- the exact file -------------------------------------------------------------------------------


KINDS = ["float32", "float64", "float16", "complex64", "int64", "uint8", "bool"]


@pytest.mark.slow
@given(st.integers(0, 1000), st.lists(st.sampled_from(KINDS), min_size=1, max_size=8), st.booleans())
def test_the_exact_file_comes_back_bit_for_bit(
    tmp_path_factory: pytest.TempPathFactory, seed: int, kinds: list[str], mixed: bool
) -> None:
    """If the checkpoint has lost nothing."""
    run, rng = tmp_path_factory.mktemp("run"), np.random.default_rng(seed)
    state: dict[str, Any] = {
        f"{kind}{number}.weight": (rng.standard_normal(rng.integers(0, 3000)) * 90).astype(kind)
        for number, kind in enumerate(kinds)
    }
    if mixed:  # a copy of a weight
        state |= {"optim": {"exp_avg": rng.standard_normal((9, 9)).astype(np.float32), "step": 4}}
        state["master"] = {"w": rng.standard_normal(200).astype(np.float32)}
        state["w"] = state["master"]["w"].astype(np.float16)
    with Chain(run, "lossless", newest="exact") as chain:
        chain.save(0, state, {"loss": 1})
        chain.save(1, state, {"loss": 2})
    files = chain_files(run)
    hurt(run / EXACT_NAME, "cut")
    told = Chain(run).repair(dry_run=True)
    found = Chain(run).repair()
    assert found == told
    assert dict(found.remade) == {EXACT_NAME: "bit for bit, from the checkpoint of its step"}
    assert chain_files(run) == files


def test_an_exact_file_of_an_older_version_comes_back_with_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or it would have another root than its checkpoint names."""
    with monkeypatch.context() as patch, Chain(tmp_path, "lossless", newest="exact") as chain:
        patch.setattr("lccodec.chain.save.encode.Manifest", partial(Manifest, minor=0))
        chain.save(0, {"w": np.arange(3000.0)})
        chain.save(1, {"w": np.arange(3000.0) + 1})
    files = chain_files(tmp_path)
    assert b'{"lccodec":[1,0]' in files[EXACT_NAME]
    hurt(tmp_path / EXACT_NAME, "cut")
    remade = dict(Chain(tmp_path).repair().remade)
    assert remade == {EXACT_NAME: "bit for bit, from the checkpoint of its step"}
    assert chain_files(tmp_path) == files


def test_a_lossy_checkpoint_has_not_all_of_it(run: Path) -> None:
    damaged = hurt(run / EXACT_NAME, "payload")
    found = Chain(run).repair()
    assert "has not all bits of the state" in found.lost[EXACT_NAME]
    assert (run / EXACT_NAME).read_bytes() == damaged


def test_nothing_names_an_exact_file(tmp_path: Path) -> None:
    with Chain(tmp_path, "lossless", newest="history") as chain:
        chain.save(0, STATES[0])
    (tmp_path / EXACT_NAME).write_bytes(b"something")
    assert "no checkpoint names an exact file" in Chain(tmp_path).repair().lost[EXACT_NAME]


# --- with parity and mirrors ----------------------------------------------------------------------


def test_parity_comes_first_and_is_true_afterwards(run: Path) -> None:
    protect(DirectoryStore(run), Redundancy(files=1))
    files = chain_files(run)
    hurt(run / NEWEST, "payload")
    assert not Chain(run).repair().remade
    assert chain_files(run) == files
    shutil.rmtree(run / ".parity")
    protect(DirectoryStore(run), Redundancy(files=1))
    hurt(run / NEWEST, "payload")
    for path in (run / ".parity").iterdir():
        path.write_bytes(path.read_bytes()[:100])
    found = Chain(run).repair()
    assert list(found.remade) == [NEWEST]
    protect(DirectoryStore(run), Redundancy(files=1))
    (run / "000000000010.lcc.h5").unlink()
    assert Chain(run).repair().mended == ("000000000010.lcc.h5",)


@pytest.mark.parametrize("background", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("other", ["parity", "mirror"])
@pytest.mark.parametrize("lost", [NEWEST, "000000000030.lcc.h5"])
def test_a_save_leaves_what_comes_back_as_it_was(run: Path, other: str, lost: str, background: bool) -> None:
    mirror = backed_up(run, other)
    files = chain_files(run)
    hurt(run / lost, "payload")
    with Chain(run, mirror=mirror) as chain, pytest.warns(LccodecWarning, match="keyframe instead") as told:
        save_next(chain, background)
        newest = [chain_files(run)[name] for name in (checkpoint_name(50), EXACT_NAME)]
        assert chain.repair().mended == (lost,)
    assert len(told) == 1
    assert chain_files(run) == {**files, checkpoint_name(50): newest[0], EXACT_NAME: newest[1]}


def test_a_save_trusts_no_parity_that_cannot_give_it_back(run: Path) -> None:
    protect(DirectoryStore(run), Redundancy(files=1))
    for name in ("000000000010.lcc.h5", NEWEST):
        hurt(run / name, "payload")
    with Chain(run) as chain, pytest.warns(LccodecWarning, match="step 40 was written anew"):
        chain.save(50, STATES[5])
    assert_same(Chain(run).restore(40), STATES[4])


def test_a_mirror_takes_the_new_file_for_the_old_one(run: Path) -> None:
    mirror = run.parent / "m"
    mirror_of(run, mirror).bring()
    hurt(run / NEWEST, "trailer")
    repair(DirectoryStore(run))
    assert chain_files(run) != chain_files(mirror)
    with Chain(run, mirror=mirror) as chain:
        chain.save(50, STATES[5])
    assert chain_files(run) == chain_files(mirror)
    assert validate(mirror, deep=True) == []


def test_a_mirror_comes_first(run: Path) -> None:
    mirror = run.parent / "m"
    mirror_of(run, mirror).bring()
    files = chain_files(run)
    hurt(run / NEWEST, "trailer")
    found = Chain(run, mirror=mirror).repair()
    assert (list(found.mirrored), dict(found.remade)) == ([NEWEST], {})
    assert chain_files(run) == files


def test_a_mirror_with_later_steps_keeps_what_they_need(run: Path) -> None:
    """The disk was put back to an earlier moment: the mirror is newer, and is told so."""
    mirror = run.parent / "m"
    shutil.copytree(run, run.parent / "copy")
    with Chain(run, mirror=mirror) as chain:
        chain.save(50, STATES[5])
    files = chain_files(mirror)
    hurt(run.parent / "copy" / NEWEST, "payload")
    repair(DirectoryStore(run.parent / "copy"))
    with pytest.raises(LccodecError, match="and newer: it has step 50"):
        mirror_of(run.parent / "copy", mirror).bring()
    assert chain_files(mirror) == files


# --- salvage --------------------------------------------------------------------------------------


def test_salvage_takes_the_exact_file(run: Path) -> None:
    for name in (NEWEST, "000000000000.lcc.h5", "000000000030.lcc.h5"):
        hurt(run / name, "payload")
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        found = Chain(run).salvage(run.parent / "new")
    assert found.whole == (40,)
    assert_same(Chain(run.parent / "new").restore(40), STATES[4])


# --- crashes --------------------------------------------------------------------------------------


def is_kept(run: Path) -> bool:
    """Whether the newest step is there with all its bits, and goes on."""

    def go_on() -> None:
        assert_same(Chain(run).restore(40), STATES[4])
        with Chain(run) as chain:
            chain.save(60, STATES[6])
        assert_same(Chain(run).restore(40), STATES[4])
        assert_same(Chain(run).restore(), STATES[6])

    with warnings.catch_warnings(action="ignore"):
        return is_so(go_on)


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["repair", "save"])
@pytest.mark.parametrize("how", ["payload", "trailer"])
def test_a_crash_at_every_operation(run: Path, verb: str, how: str) -> None:
    """The step can be restored at any moment, and is part of the history in the end."""
    hurt(run / NEWEST, how)
    files = chain_files(run)
    others = {name: data for name, data in files.items() if name not in (NEWEST, EXACT_NAME)}

    def check(_: bool, place: Path) -> bool:
        now = chain_files(place)
        return {name: now.get(name) for name in others} == others and is_kept(place)

    def work(system: Any) -> None:
        if verb == "repair":
            assert repair(DirectoryStore(run, system)).lost == {}
            return
        with warnings.catch_warnings(action="ignore"):
            chain = Chain(run)
            for part in (chain._store, chain._writer._saver._store):
                part.system = system
            chain.save(50, STATES[5])
            chain.close()

    hold(run, work, check, above=8)


@pytest.mark.slow
@pytest.mark.parametrize("lost", [NEWEST, EXACT_NAME])
@pytest.mark.parametrize("sticky", [False, True])
def test_a_fault_at_every_operation(tmp_path: Path, lost: str, sticky: bool) -> None:
    """Each file is as it was, or whole."""
    with Chain(tmp_path / "run", "lossless", newest="exact") as chain:
        for step in (30, 40):
            chain.save(step, STATES[step // 10])
    hurt(tmp_path / "run" / lost, "payload")
    files = files_in(tmp_path / "run")
    lost_there: list[Any] = []

    def act(place: Path, system: System) -> None:
        lost_there[:] = ["an error"]
        lost_there[:] = repair(DirectoryStore(place, system)).lost

    tried = attempts(tmp_path / "run", act, sticky=sticky)
    whole: Files = files_in(next(tried)[0])
    assert not lost_there
    told = 0
    for place, _ in tried:
        told += bool(lost_there)
        for name, data in files.items():
            assert files_in(place)[name] in (data, whole[name])
        assert repair(DirectoryStore(place)).lost == {}
        assert {name: files_in(place)[name] for name in whole} == whole
    assert told > 10
