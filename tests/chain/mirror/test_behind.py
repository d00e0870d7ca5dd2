"""Mirrors behind the saves: no save waits or fails, all arrives in order, and what lags is seen."""

from __future__ import annotations

import shutil
import subprocess
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
from lccodec.chain.mirror import behind
from lccodec.chain.store.names import checkpoints_among

from ...support.mirrors import Watched, chain_files, wait_for
from ...support.segments import STATES, all_restore, run_of
from ...support.tuning import tune
from ...support.walks import assert_same, save_all


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
    for step in range(5):
        chain.save(step, STATES[step], metrics={"loss": 1.0})
    assert chain.mirrors[0].files == 6
    assert "6 files" in repr(chain)
    assert chain.steps == [0, 1, 2, 3, 4]
    assert threading.get_ident() not in {thread for _, thread in mirror.calls}
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
    arrived = checkpoints_among(mirror.arrived)
    assert list(arrived) == list(range(1, 101))
    assert [name for name in mirror.arrived if name[0] == "0"] == list(arrived.values())
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
    with warnings.catch_warnings(action="error"), run_of(tmp_path / "run", 2, mirror=tmp_path / "m") as chain:
        assert chain.steps == [0, 1]


def test_an_empty_chain_does_not_begin_anew_while_its_mirror_is_away(tmp_path: Path) -> None:
    (tmp_path / "m").write_text("")
    with pytest.raises(StorageError, match="cannot list"):
        Chain(tmp_path / "run", mirror=tmp_path / "m")


FORK = """
import os, sys, threading
import numpy as np
from lccodec import Chain
from lccodec.chain.mirror.transfer import Mirror

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
    places = [str(tmp_path / "run"), str(tmp_path / "m")]
    subprocess.run([sys.executable, "-W", "ignore", "-c", FORK, *places], timeout=120, check=True)
    assert Chain(tmp_path / "m").steps == [0, 1]
    assert chain_files(tmp_path / "m") == chain_files(tmp_path / "run")
