"""What a mirror lacks, in which order it is copied, and which mirrors are none.

A mirror is brought up to date: bit for bit, verified there, a chain of its own at any moment.

Mirrors behind the saves: no save waits or fails, all arrives in order, and what lags is seen.
"""

import random
import shutil
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lccodec import ArgumentError, Chain, ChainError, Keep, LccodecWarning, StorageError, validate
from lccodec.chain import chain as chain_module
from lccodec.chain.behind import Change
from lccodec.chain.life.prune import prune
from lccodec.chain.mend import mirror as behind
from lccodec.chain.mend.mirror import Inventory, bring_newest, compare, set_aside_of
from lccodec.chain.store.claim import Use
from lccodec.chain.store.directory import DirectoryStore
from lccodec.chain.store.store import checkpoint_name, checkpoints_among
from lccodec.constants import PAYLOAD_OFFSET
from lccodec.container.system import System

from ...support.crashes import hold
from ...support.damage import files_in, flip, refuse_to_read
from ...support.drifting import ROLES
from ...support.drifting import run_of as walk_of
from ...support.mirrors import Watched, chain_files, mirror_of, wait_for
from ...support.programs import run_program
from ...support.segments import STATES, all_restore, run_of
from ...support.systems import attempts
from ...support.tuning import tune
from ...support.walks import assert_same, save_all

WALK = walk_of(len(STATES), (20, 30))


def lacking(run: Path, mirror: Path, **options: Any) -> list[str]:
    here, there = (Inventory(DirectoryStore(place)).read() for place in (run, mirror))
    return list(compare(here, there, **options).names)


def names(*steps: int) -> list[str]:
    return list(map(checkpoint_name, steps))


def hindsight_run(directory: Path) -> None:
    with Chain(directory, "balanced", newest="exact", hindsight=4, roles=ROLES) as chain:
        save_all(chain, WALK)


def test_the_exact_file_comes_first_and_then_rising_steps(tmp_path: Path) -> None:
    run_of(tmp_path / "run", 5, newest="exact").close()
    assert lacking(tmp_path / "run", tmp_path / "m") == ["exact.lcc.h5", *names(0, 1, 2, 3, 4)]
    assert lacking(tmp_path / "run", tmp_path / "run") == []
    assert lacking(tmp_path / "none", tmp_path / "m") == []


def test_parents_come_first_whatever_the_mirror_has(tmp_path: Path) -> None:
    """Of interpolated checkpoints one parent is a later step."""
    hindsight_run(tmp_path / "run")
    store = DirectoryStore(tmp_path / "run")
    parents = {name: names(*store.parents_of(name)) for name in store.checkpoints().values()}
    assert any(above > name for name, found in parents.items() for above in found)
    generator = random.Random(0)
    for case in range(30):
        mirror = Path(shutil.copytree(tmp_path / "run", tmp_path / f"{case}"))
        kept = generator.sample(sorted(parents), generator.randint(0, 9))
        for name in parents.keys() - kept:
            (mirror / name).unlink()
        there = {*kept}
        for name in lacking(tmp_path / "run", mirror):
            assert there.issuperset(parents[name])
            there.add(name)
        assert there == {*parents}


def test_what_a_mirror_has_removed_stays_away_unless_it_is_needed(tmp_path: Path) -> None:
    run_of(tmp_path / "run", 9).close()
    shutil.copytree(tmp_path / "run", tmp_path / "m")
    for step in (1, 2, 3, 5, 8):
        (tmp_path / "m" / checkpoint_name(step)).unlink()
    assert lacking(tmp_path / "run", tmp_path / "m", sparse=True) == names(8)
    assert lacking(tmp_path / "run", tmp_path / "m") == names(1, 2, 3, 5, 8)
    (tmp_path / "m" / checkpoint_name(7)).unlink()
    (tmp_path / "m" / checkpoint_name(6)).unlink()
    assert lacking(tmp_path / "run", tmp_path / "m", sparse=True) == names(5, 6, 7, 8)


def test_a_settled_step_stays_as_it_was_where_a_delta_needs_it(tmp_path: Path) -> None:
    """It has other values now, and a step that was pruned here was taken against the old ones."""
    chain = Chain(tmp_path / "run", "balanced", newest="exact", hindsight=4, roles=ROLES)
    save_all(chain, WALK, range(4))
    shutil.copytree(tmp_path / "run", tmp_path / "m")
    save_all(chain, WALK, range(4, 10))
    chain.close()
    assert names(1) == [name for name in lacking(tmp_path / "run", tmp_path / "m") if name in names(1)]
    (tmp_path / "run" / checkpoint_name(2)).unlink()
    (tmp_path / "run" / checkpoint_name(3)).unlink()
    found = lacking(tmp_path / "run", tmp_path / "m")
    assert names(1)[0] not in found
    assert checkpoint_name(9) in found


def test_an_exact_file_that_came_alone_is_known_by_its_checkpoint(tmp_path: Path) -> None:
    run_of(tmp_path / "run", 1, newest="exact").close()
    (tmp_path / "m").mkdir()
    shutil.copy(tmp_path / "run/exact.lcc.h5", tmp_path / "m")
    with Chain(tmp_path / "run") as chain:
        chain.save(1, STATES[1])
    assert lacking(tmp_path / "run", tmp_path / "m") == ["exact.lcc.h5", *names(0, 1)]


def test_a_mirror_that_shares_nothing_is_taken_only_if_it_is_known(tmp_path: Path) -> None:
    with run_of(tmp_path / "run", 3) as chain:
        shutil.copytree(tmp_path / "run", tmp_path / "m")
        chain.save(3, STATES[3])
        chain.prune(Keep(latest=1))
    with pytest.raises(ChainError, match="it shares no file with"):
        lacking(tmp_path / "run", tmp_path / "m")
    assert lacking(tmp_path / "run", tmp_path / "m", known=True) == names(3)


def test_rollbacks_are_known_by_what_they_have_set_aside(tmp_path: Path) -> None:
    with run_of(tmp_path / "run", 6, newest="exact") as chain:
        shutil.copytree(tmp_path / "run", tmp_path / "m")
        chain.rollback(4)
        chain.rollback(2)
    store = DirectoryStore(tmp_path / "run")
    assert [step for step, _ in set_aside_of(store)] == [4, 2]
    here, there = (Inventory(DirectoryStore(tmp_path / each)).read() for each in ("run", "m"))
    found = compare(here, there, rolled_back=lambda: set_aside_of(store))
    assert (found.names, found.set_aside) == ((), 2)


def test_files_are_read_again_only_if_they_change(tmp_path: Path) -> None:
    run_of(tmp_path, 4).close()
    read = list[str]()

    class Counting(DirectoryStore):
        def root(self, name: str) -> tuple[bytes, int]:
            read.append(name)
            return super().root(name)

    inventory = Inventory(Counting(tmp_path))
    before = inventory.read()
    assert before.newest == 3
    with Chain(tmp_path) as chain:
        chain.save(4, STATES[4])
    (tmp_path / checkpoint_name(1)).write_bytes(b"")
    found = inventory.read()
    assert read == names(0, 1, 2, 3, 1, 4)
    assert list(found.unreadable) == names(1)
    assert found.newest == 4


def test_a_mirror_has_the_same_bytes(tmp_path: Path) -> None:
    run_of(tmp_path / "run", 6, newest="exact").close()
    mirror = mirror_of(tmp_path / "run", tmp_path / "m")
    mirror.look()
    lag = mirror.state()
    assert (lag.files, lag.bytes) == (7, sum(map(len, files_in(tmp_path / "run").values())))
    assert str(lag) == f"{tmp_path / 'm'}: 7 files, {lag.bytes:,} bytes behind"
    assert str(mirror.bring()) == f"{tmp_path / 'm'}: up to date"
    assert chain_files(tmp_path / "m") == chain_files(tmp_path / "run")
    assert mirror_of(tmp_path / "run", tmp_path / "m").look()[2].names == ()


def test_what_arrives_is_verified_there(tmp_path: Path) -> None:
    """A disk that stores other bytes than it was given."""

    class Wrong(System):
        @staticmethod
        def write(fd: int, data: Any) -> int:
            wrong = bytearray(data)
            wrong[len(wrong) // 2] ^= 1
            return System.write(fd, memoryview(wrong))

    run_of(tmp_path / "run", 2).close()
    mirror = mirror_of(tmp_path / "run", tmp_path / "m", Wrong())
    with pytest.raises(StorageError, match="what arrived is not what was sent"):
        mirror.bring()
    assert chain_files(tmp_path / "m") == {}
    assert mirror.state().files == 2
    mirror_of(tmp_path / "run", tmp_path / "m").bring()
    assert chain_files(tmp_path / "m") == chain_files(tmp_path / "run")


@pytest.mark.parametrize("place", [PAYLOAD_OFFSET, -1])
def test_a_file_that_the_disk_refuses_to_read_waits_and_others_are_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    run_of(tmp_path / "run", 6).close()
    path, mirror = tmp_path / "run/000000000004.lcc.h5", mirror_of(tmp_path / "run", tmp_path / "m")
    with monkeypatch.context() as patch:
        refuse_to_read(patch, path, place % path.stat().st_size)
        state = mirror.bring()
        assert "cannot read" in state.skipped[path.name]
    assert sorted(chain_files(tmp_path / "m")) == [f"{step:012d}.lcc.h5" for step in range(4)]
    assert str(mirror.bring()) == f"{tmp_path / 'm'}: up to date"  # the error has passed
    assert chain_files(tmp_path / "m") == chain_files(tmp_path / "run")


def test_what_is_damaged_here_is_not_copied_and_neither_is_what_needs_it(tmp_path: Path) -> None:
    run_of(tmp_path / "run", 6).close()
    path = tmp_path / "run/000000000001.lcc.h5"
    flip(path)
    state = mirror_of(tmp_path / "run", tmp_path / "m").bring()
    assert "do not match their digest" in state.skipped["000000000001.lcc.h5"]
    assert state.skipped["000000000002.lcc.h5"] == "step 1, which it needs, is not in the mirror"
    assert sorted(chain_files(tmp_path / "m")) == [f"00000000000{i}.lcc.h5" for i in (0, 3, 4, 5)]
    assert validate(tmp_path / "m", deep=True) == []
    path.write_bytes(b"")
    state = mirror_of(tmp_path / "run", tmp_path / "m").bring()
    assert "not an lccodec checkpoint" in state.skipped["000000000001.lcc.h5"]


def test_a_damaged_file_of_the_mirror_is_replaced(tmp_path: Path) -> None:
    run_of(tmp_path / "run", 4).close()
    mirror_of(tmp_path / "run", tmp_path / "m").bring()
    for name, data in (("000000000001.lcc.h5", b""), ("000000000002.lcc.h5", b"\0" * 999)):
        (tmp_path / "m" / name).write_bytes(data)
    mirror_of(tmp_path / "run", tmp_path / "m").bring()
    assert chain_files(tmp_path / "m") == chain_files(tmp_path / "run")


def test_nothing_is_removed_from_the_mirror(tmp_path: Path) -> None:
    chain = run_of(tmp_path / "run", 9)
    mirror = mirror_of(tmp_path / "run", tmp_path / "m")
    mirror.bring()
    before = chain_files(tmp_path / "m")
    chain.prune(Keep(latest=2))
    chain.close()
    mirror.bring()
    assert chain_files(tmp_path / "m") == before
    assert all_restore(tmp_path / "m")


def test_what_the_mirror_is_not_to_keep_does_not_come_back(tmp_path: Path) -> None:
    with run_of(tmp_path / "run", 9) as chain:
        thin: Any = {"thin_out": lambda store: prune(store, Keep(latest=1), wait=False)}
        mirror_of(tmp_path / "run", tmp_path / "m", **thin).bring()
        assert Chain(tmp_path / "m").steps == [6, 7, 8]
        mirror = mirror_of(tmp_path / "run", tmp_path / "m", **thin)
        assert mirror.look()[2].names == ()
        assert mirror.state().files == 0
        chain.save(9, STATES[9])
        mirror.bring()
    assert Chain(tmp_path / "m").steps == [9]
    assert Chain(tmp_path / "run").steps == list(range(10))


# --- what changes here ----------------------------------------------------------------------------


def test_a_rollback_is_followed(tmp_path: Path) -> None:
    """What was set aside here is set aside there; nothing is lost."""
    with run_of(tmp_path / "run", 6, newest="exact") as chain:
        mirror_of(tmp_path / "run", tmp_path / "m").bring()
        chain.rollback(3)
        chain.save(5, STATES[7])
    mirror_of(tmp_path / "run", tmp_path / "m").bring()  # as a new process would
    assert chain_files(tmp_path / "m") == chain_files(tmp_path / "run")
    [aside] = Chain(tmp_path / "m").rolled_back
    assert (aside.steps, aside.exact) == ((4, 5), True)


def test_a_rollback_that_left_no_trace_is_followed_if_it_is_known(tmp_path: Path) -> None:
    with run_of(tmp_path / "run", 6) as chain:
        mirror = mirror_of(tmp_path / "run", tmp_path / "m")
        mirror.bring()
        before = chain_files(tmp_path / "m")
        chain.rollback(3, delete=True)
        with pytest.raises(ChainError, match=r"and newer: it has step 5, and the chain ends at 3"):
            mirror.bring()
        chain.save(5, STATES[7])
        with pytest.raises(ChainError, match=r"another chain.*: step 5 is another one there"):
            mirror.bring()
        assert chain_files(tmp_path / "m") == before
        mirror.rolled_back(3)
        mirror.bring()
    assert chain_files(tmp_path / "m") == chain_files(tmp_path / "run")
    assert Chain(tmp_path / "m").rolled_back[0].steps == (4, 5)


def test_an_undone_rollback_is_followed(tmp_path: Path) -> None:
    with run_of(tmp_path / "run", 6) as chain:
        mirror = mirror_of(tmp_path / "run", tmp_path / "m")
        mirror.bring()
        chain.rollback(3)
        mirror.bring()
        assert Chain(tmp_path / "m").steps == [0, 1, 2, 3]
        chain.undo_rollback()
    mirror.bring()
    assert chain_files(tmp_path / "m") == chain_files(tmp_path / "run")


def test_files_that_compact_replaces_are_replaced(tmp_path: Path) -> None:
    with run_of(tmp_path / "run", 9) as chain:
        mirror = mirror_of(tmp_path / "run", tmp_path / "m")
        mirror.bring()
        before = chain_files(tmp_path / "m")
        chain.compact(keyframe_every=8)
    assert chain_files(tmp_path / "run") != before
    mirror.bring()
    assert chain_files(tmp_path / "m") == chain_files(tmp_path / "run")
    assert all_restore(tmp_path / "m")


def test_a_mirror_that_was_compacted_stays(tmp_path: Path) -> None:
    run_of(tmp_path / "run", 9).close()
    mirror_of(tmp_path / "run", tmp_path / "m").bring()
    Chain(tmp_path / "m").compact(keyframe_every=8)
    before = chain_files(tmp_path / "m")
    mirror_of(tmp_path / "run", tmp_path / "m").bring()
    assert chain_files(tmp_path / "m") == before != chain_files(tmp_path / "run")


# --- mirrors that are none ------------------------------------------------------------------------


def test_a_mirror_of_another_chain_is_left_alone(tmp_path: Path) -> None:
    run_of(tmp_path / "run", 3).close()
    with Chain(tmp_path / "m", "lossless", newest="exact") as other:
        other.save(7, STATES[7])
    before = files_in(tmp_path / "m")
    with pytest.raises(ChainError, match="is a mirror of another chain: it shares no file with"):
        mirror_of(tmp_path / "run", tmp_path / "m").bring()
    with Chain(tmp_path / "m") as other:
        other.rollback(7)
    run_of(tmp_path / "other", 2, newest="exact").close()
    with Chain(tmp_path / "second", "lossless") as second:
        second.save(0, STATES[5])
    with pytest.raises(ChainError, match=r"is a mirror of another chain than .*: step 0 is another one"):
        mirror_of(tmp_path / "second", tmp_path / "other").bring()
    assert chain_files(tmp_path / "m") == {k: v for k, v in before.items() if k[0] != "."}


def test_a_newer_mirror_is_left_alone(tmp_path: Path) -> None:
    run_of(tmp_path / "run", 5, newest="exact").close()
    mirror_of(tmp_path / "run", tmp_path / "m").bring()
    for name in ("000000000004.lcc.h5", "exact.lcc.h5"):
        (tmp_path / "run" / name).unlink()
    before = chain_files(tmp_path / "m")
    with pytest.raises(ChainError, match=r"newer: it has step 4, and the chain ends at 3.*repair --mirror"):
        mirror_of(tmp_path / "run", tmp_path / "m").bring()
    (tmp_path / "m/000000000004.lcc.h5").unlink()  # the exact file alone is newer, too
    with pytest.raises(ChainError, match="newer: it has step 4"):
        mirror_of(tmp_path / "run", tmp_path / "m").bring()
    del before["000000000004.lcc.h5"]
    assert chain_files(tmp_path / "m") == before


def test_a_mirror_is_another_place(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="a mirror must be another place"):
        mirror_of(tmp_path, tmp_path)


def test_a_mirror_has_one_writer(tmp_path: Path) -> None:
    run_of(tmp_path / "run", 2).close()
    first, second = (mirror_of(tmp_path / "run", tmp_path / "m") for _ in range(2))
    first.bring()
    use = Use()
    first._claim.take(use)  # it copies
    with pytest.raises(ChainError, match="is saving to"):
        second.bring()
    use.end()
    first.release()
    second.bring()


# --- the way back ---------------------------------------------------------------------------------


def test_the_newest_step_comes_back_with_what_it_needs(tmp_path: Path) -> None:
    run_of(tmp_path / "run", 8, newest="exact").close()
    mirror_of(tmp_path / "run", tmp_path / "m").bring()
    assert bring_newest(DirectoryStore(tmp_path / "m"), DirectoryStore(tmp_path / "new")) == [6, 7]
    assert all_restore(tmp_path / "new")
    mirror_of(tmp_path / "new", tmp_path / "m").bring()
    assert chain_files(tmp_path / "m") == chain_files(tmp_path / "run")


def test_an_exact_file_alone_comes_back(tmp_path: Path) -> None:
    run_of(tmp_path / "run", 4, newest="exact").close()
    (tmp_path / "run/000000000003.lcc.h5").unlink()  # as if the save had been cut short
    mirror_of(tmp_path / "run", tmp_path / "m").bring()
    assert bring_newest(DirectoryStore(tmp_path / "m"), DirectoryStore(tmp_path / "new")) == [3]


# --- crashes and faults ---------------------------------------------------------------------------


def two_states(directory: Path) -> tuple[Path, Path]:
    """A chain, and a mirror of an earlier moment: since then it was rolled back, and more."""
    run, mirror = directory / "run", directory / "m"
    with run_of(run, 5, newest="exact") as chain:
        mirror_of(run, mirror).bring()
        chain.rollback(3)
        chain.compact(keyframe_every=8)
        save_all(chain, STATES, (4, 5))
    return run, mirror


def test_a_rollback_while_a_mirror_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was deleted has left no trace: that it was is noted until the mirror has followed."""
    with run_of(tmp_path / "run", 6, newest="exact") as chain:
        mirror = mirror_of(tmp_path / "run", tmp_path / "m")
        mirror.bring()
        look = mirror.look

        def meanwhile() -> Any:
            found = look()
            chain.rollback(3, delete=True)
            mirror.rolled_back(3)
            return found

        monkeypatch.setattr(mirror, "look", meanwhile)
        mirror.bring()
        monkeypatch.undo()
        mirror.bring()
        assert Chain(tmp_path / "m").steps == [0, 1, 2, 3]
        chain.save(4, STATES[5])
        mirror.bring()
    assert chain_files(tmp_path / "m") == chain_files(tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize("ignore", ["", "sync"])
def test_no_crash_harms_a_mirror(tmp_path: Path, ignore: str) -> None:
    run, mirror = two_states(tmp_path)
    wanted = chain_files(run)

    def check(done: bool, place: Path) -> bool:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LccodecWarning)  # of an exact file that is damaged
            if not all_restore(place):
                return False
        if validate(place, deep=True) or (done and chain_files(place) != wanted):
            return False
        mirror_of(run, place).bring()
        return chain_files(place) == wanted

    hold(mirror, lambda system: mirror_of(run, mirror, system).bring(), check, ignore, above=9)


@pytest.mark.slow
@pytest.mark.parametrize("sticky", [False, True])
def test_faults_at_every_operation(tmp_path: Path, sticky: bool) -> None:
    run, mirror = two_states(tmp_path)
    wanted = chain_files(run)

    def act(place: Path, system: System) -> None:
        behind = mirror_of(run, place, system)
        try:
            behind.bring()
        finally:
            behind.release()

    tried = attempts(mirror, act, sticky=sticky)
    assert chain_files(next(tried)[0]) == wanted
    for place, _ in tried:
        assert all_restore(place)
        mirror_of(run, place).bring()
        assert chain_files(place) == wanted


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], Watched]:
    """Let the stores of mirrors be such that note what is done to them."""
    made: dict[Path, Watched] = {}

    def store(place: Path, *_: object) -> Watched:
        return made.setdefault(place, Watched(place))

    monkeypatch.setattr(behind, "writable_store", store)
    return store


def saves(directory: Path, steps: Any, **options: Any) -> Chain:
    chain = Chain(directory, "lossless", keyframe_every=4, **options)
    for step in steps:
        chain.save(step, {"w": np.arange(50.0) * step})
    return chain


@pytest.mark.parametrize("newest", ["exact", "history"])
def test_all_is_there_when_the_chain_is_closed(tmp_path: Path, newest: Any) -> None:
    with run_of(tmp_path / "run", 6, newest=newest, mirror=[tmp_path / "a", str(tmp_path / "b")]) as chain:
        assert [state.place for state in chain.mirrors] == [str(tmp_path / "a"), str(tmp_path / "b")]
    assert [state.files for state in chain.mirrors] == [0, 0]
    assert chain_files(tmp_path / "a") == chain_files(tmp_path / "b") == chain_files(tmp_path / "run")


@pytest.mark.slow
def test_saves_in_the_background(tmp_path: Path) -> None:
    with Chain(tmp_path / "run", "lossless", mirror=tmp_path / "m", workers=2) as chain:
        for step in range(3):
            chain.save_async(step, STATES[step])
    assert chain_files(tmp_path / "m") == chain_files(tmp_path / "run")


def test_the_thread_that_saves_has_nothing_to_do_with_the_mirror(
    tmp_path: Path, watched: Callable[[Path], Watched]
) -> None:
    """It makes no call to it, and saves are done while a call to it does not return."""
    mirror, go_on = watched(tmp_path / "m"), threading.Event()
    chain = Chain(tmp_path / "run", "lossless", newest="exact", mirror=tmp_path / "m")
    mirror.calls.clear()
    mirror.leave = lambda: go_on.wait(60)
    save_all(chain, STATES, range(5), metrics={"loss": 1.0})
    assert chain.mirrors[0].files == 6
    assert "6 files" in repr(chain)
    assert chain.steps == [0, 1, 2, 3, 4]
    assert {thread for _, thread in mirror.calls} - {threading.get_ident()} == {
        thread for _, thread in mirror.calls
    }
    go_on.set()
    chain.close()
    assert chain_files(tmp_path / "m") == chain_files(tmp_path / "run")


@pytest.mark.slow
def test_a_mirror_that_cannot_be_reached_for_a_hundred_saves(
    tmp_path: Path, watched: Callable[[Path], Watched]
) -> None:
    away = tmp_path / "away"
    mirror = watched(away / "m")
    saves(tmp_path / "run", [0], mirror=away / "m").close()
    away.rename(tmp_path / "kept")
    away.write_text("a file is where the directory was")
    with pytest.warns(LccodecWarning, match=r"the mirror .* is \d+ files behind: ") as told:
        chain = saves(tmp_path / "run", range(1, 101), mirror=away / "m")
    assert len(told) == 1  # for all hundred
    [state] = chain.mirrors
    assert state.files == 101  # nothing could be asked of it
    assert "cannot make the directory" in (state.error or "")
    away.unlink()
    (tmp_path / "kept").rename(away)
    mirror.arrived.clear()
    chain.close()
    arrived = list(checkpoints_among(mirror.arrived))
    assert arrived == list(range(1, 101))
    assert [name for name in mirror.arrived if name[0] == "0"] == list(
        checkpoints_among(mirror.arrived).values()
    )
    assert chain_files(away / "m") == chain_files(tmp_path / "run")


def test_closing_waits_within_a_limit_and_a_new_process_goes_on(tmp_path: Path) -> None:
    away = tmp_path / "away"
    away.write_text("")
    saves(tmp_path / "run", range(3)).close()
    with pytest.warns(LccodecWarning, match=r"4 files(, [\d,]+ bytes)? behind") as told:
        saves(tmp_path / "run", [3], mirror=away / "m", mirror_timeout=0).close()
    assert "the next process goes on" in str(told[-1].message)
    away.unlink()
    with Chain(tmp_path / "run", mirror=away / "m"):
        pass
    assert chain_files(away / "m") == chain_files(tmp_path / "run")


def test_a_mirror_that_is_stuck_does_not_hold_a_program(
    tmp_path: Path, watched: Callable[[Path], Watched], monkeypatch: pytest.MonkeyPatch
) -> None:
    tune(monkeypatch, mirror_seconds_to_stop=0)
    mirror, go_on = watched(tmp_path / "m"), threading.Event()
    mirror.leave = lambda: go_on.wait(60)
    chain = saves(tmp_path / "run", range(3), mirror=tmp_path / "m", mirror_timeout=0)
    with pytest.warns(LccodecWarning, match="3 files"):
        chain.close()
    go_on.set()


@pytest.mark.slow
def test_a_prune_of_each_place_is_its_own(tmp_path: Path) -> None:
    keep: dict[str, Any] = {"keep": Keep(latest=2), "mirror_keep": Keep(latest=1, every=8)}
    for steps in (range(9), range(9, 17), range(17, 20)):  # its end waits for the mirror, which may be behind
        with saves(tmp_path / "run", steps, mirror=[tmp_path / "m"], **keep) as chain:
            pass
    assert chain.steps[-2:] == [18, 19]
    assert {0, 8, 16, 19} <= set(Chain(tmp_path / "m").steps)
    assert validate(tmp_path / "m", deep=True) == []
    with saves(tmp_path / "run", range(20, 24), mirror=tmp_path / "all", keep=Keep(latest=2)):
        pass
    assert set(range(20, 24)) <= set(Chain(tmp_path / "all").steps)


def test_a_prune_leaves_the_step_that_shows_whose_the_mirror_is(
    tmp_path: Path, watched: Callable[[Path], Watched]
) -> None:
    """Otherwise a mirror that was away for long would share no file with its chain."""
    mirror, go_on = watched(tmp_path / "m"), threading.Event()
    with saves(tmp_path / "run", [0], mirror=tmp_path / "m", keep=Keep(latest=1)):
        pass
    mirror.leave = lambda: go_on.wait(60)
    chain = saves(tmp_path / "run", range(1, 15), mirror=tmp_path / "m", keep=Keep(latest=1))
    assert chain.steps[0] == 0
    assert chain.prune(Keep(latest=1), dry_run=True).kept[0] == "last in a mirror"
    go_on.set()
    chain.close()
    assert Chain(tmp_path / "m").steps[-1] == 14
    assert all(Chain(tmp_path / "m").restore(14)["w"] == np.arange(50.0) * 14)


@pytest.mark.slow
def test_what_verbs_change_arrives(tmp_path: Path) -> None:
    with run_of(tmp_path / "run", 9, newest="exact", mirror=tmp_path / "m") as chain:
        chain.rollback(6, delete=True)
        chain.save(7, STATES[7])
        chain.compact(keyframe_every=8)
        chain.rollback(5)
        chain.undo_rollback()
        chain.prune(Keep(latest=2, every=3), rewrite=True)
    own = chain_files(tmp_path / "run")
    assert {name: data for name, data in chain_files(tmp_path / "m").items() if name in own} == own
    assert all_restore(tmp_path / "m")
    assert validate(tmp_path / "m", deep=True) == []


def test_no_mirror_complains_of_a_rollback_under_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It sees the files go before it is told why."""
    with run_of(tmp_path / "run", 6, newest="exact", mirror=tmp_path / "m") as chain:
        wait_for(chain)
        rollback = chain_module.rollback

        def watched(*arguments: Any, **options: Any) -> Any:
            found = rollback(*arguments, **options)
            chain._mirrors.after(Change())
            wait_for(chain)
            assert [state.error for state in chain.mirrors] == [None]
            return found

        monkeypatch.setattr(chain_module, "rollback", watched)
        chain.rollback(3, delete=True)
    assert Chain(tmp_path / "m").steps == [0, 1, 2, 3]


def test_what_is_written_anew_arrives_where_the_mirror_keeps_what_needed_it(tmp_path: Path) -> None:
    run_of(tmp_path / "run", 9, newest="exact", mirror=tmp_path / "m").close()
    with Chain(tmp_path / "run", mirror=tmp_path / "m") as chain:
        chain.prune(Keep(every=4), rewrite=True)
    own = chain_files(tmp_path / "run")
    assert {name: data for name, data in chain_files(tmp_path / "m").items() if name in own} == own
    assert all_restore(tmp_path / "m")


def test_hindsight(tmp_path: Path) -> None:
    """Files that are replaced, and need a later step."""
    with Chain(tmp_path / "run", "balanced", newest="exact", hindsight=3, mirror=tmp_path / "m") as chain:
        save_all(chain, STATES)
    assert chain_files(tmp_path / "m") == chain_files(tmp_path / "run")
    assert validate(tmp_path / "m", deep=True) == []


# --- a mirror of another chain, a newer one, and an empty chain ----------------------------------


def test_mirrors_that_are_none_are_refused_at_once(tmp_path: Path) -> None:
    run_of(tmp_path / "run", 3).close()
    with Chain(tmp_path / "m", "lossless") as other:
        other.save(0, STATES[5])
    before = chain_files(tmp_path / "m")
    with pytest.raises(ChainError, match="a mirror of another chain"):
        Chain(tmp_path / "run", mirror=tmp_path / "m")
    shutil.rmtree(tmp_path / "m")
    shutil.copytree(tmp_path / "run", tmp_path / "m")
    with Chain(tmp_path / "m") as other:
        other.save(3, STATES[3])
    with pytest.raises(ChainError, match="newer: it has step 3"):
        Chain(tmp_path / "run", mirror=tmp_path / "m")
    assert chain_files(tmp_path / "m") != before
    with pytest.raises(ArgumentError, match="another place"):
        Chain(tmp_path / "run", mirror=tmp_path / "run")


def test_a_mirror_that_another_writes_to_is_told_of(tmp_path: Path) -> None:
    chain = run_of(tmp_path / "run", 3, mirror=tmp_path / "m", mirror_timeout=30)
    wait_for(chain)
    (tmp_path / "m/000000000002.lcc.h5").unlink()
    with Chain(tmp_path / "m") as other:
        other.save(2, STATES[7])
    chain.save(3, STATES[3])
    with pytest.warns(LccodecWarning, match="step 2 is another one there"):
        chain.close()
    assert Chain(tmp_path / "m").steps == [0, 1, 2]


def test_an_empty_chain_goes_on_from_its_mirror(tmp_path: Path) -> None:
    run_of(tmp_path / "run", 8, newest="exact", mirror=tmp_path / "m").close()
    shutil.rmtree(tmp_path / "run")
    with pytest.warns(LccodecWarning, match="run is empty: it is read from the mirror"):
        chain = Chain(tmp_path / "run", mirror=tmp_path / "m")
    assert chain.latest == 7
    assert chain.policy.name == "lossless"
    assert chain.info().step == 7
    assert_same(chain.restore(), STATES[7])
    assert_same(dict(chain.restore_iter(keys=["layer"]))["layer/weight"], STATES[7]["layer"]["weight"])
    assert not (tmp_path / "run").exists()
    with pytest.warns(LccodecWarning, match="step 7 was brought back from the mirror"):
        chain.save(8, STATES[8])
    assert chain.steps == [6, 7, 8]
    assert chain.info(8).parent == 7
    chain.close()
    assert Chain(tmp_path / "m").steps == list(range(9))
    assert all_restore(tmp_path / "m")
    assert all_restore(tmp_path / "run")


def test_an_empty_chain_with_an_empty_mirror_is_a_new_one(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with run_of(tmp_path / "run", 2, mirror=tmp_path / "m") as chain:
            assert chain.steps == [0, 1]


def test_an_empty_chain_does_not_begin_anew_while_its_mirror_is_away(tmp_path: Path) -> None:
    (tmp_path / "m").write_text("")
    with pytest.raises(StorageError, match="cannot list"):
        Chain(tmp_path / "run", mirror=tmp_path / "m")


FORK = """
import os, sys, threading
import numpy as np
from lccodec import Chain
from lccodec.chain.mend.mirror import Mirror

begun, bring = threading.Event(), Mirror._bring
go_on, is_closed = os.pipe(), os.pipe()

def held(*given):
    begun.set()
    os.read(go_on[0], 1)
    bring(*given)

Mirror._bring = held
chain = Chain(sys.argv[1], "lossless", newest="history", mirror=sys.argv[2])
chain.save(0, {"w": np.zeros(9)})
begun.wait()
process = os.fork()
if process == 0:
    Mirror._bring = bring
    os.close(go_on[1])  # or the parent would wait for this process
    os.close(is_closed[1])
    os.read(is_closed[0], 1)
    chain.save(1, {"w": np.ones(9)})
    chain.close()
    os._exit(7)
Mirror._bring = bring
os.close(go_on[1])
chain.close()
os.close(is_closed[1])
assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 7
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="forks of POSIX")
def test_a_fork_has_not_the_thread(tmp_path: Path) -> None:
    """It copies what it saves itself, with a thread of its own, once its parent has let go."""
    run_program(FORK, tmp_path / "run", tmp_path / "m", flags=("-W", "ignore"))
    assert Chain(tmp_path / "m").steps == [0, 1]
    assert chain_files(tmp_path / "m") == chain_files(tmp_path / "run")
