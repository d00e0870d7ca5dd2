"""Thinning out: kept steps rewritten, damaged ones, and whatever crashes meanwhile."""

from __future__ import annotations

import errno
import warnings
from pathlib import Path
from typing import Any

import pytest

from lccodec import Chain, Keep, LccodecWarning, StorageError, validate
from lccodec.chain.life.prune import prune
from lccodec.chain.store.directory import DirectoryStore
from lccodec.constants import PAYLOAD_OFFSET
from lccodec.container.disk.system import SYSTEM, System

from ...support.crashes import broken, hold
from ...support.damage import flip
from ...support.directories import entries
from ...support.segments import Parentless, all_restore, run_of
from ...support.systems import Faulty, attempts
from ...support.walks import assert_same, save_all, walk

# --- kept steps rewritten ----------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["lossless", "lc-3", "balanced"])
@pytest.mark.parametrize(
    "rule", [Keep(latest=1), Keep(latest=3), Keep(every=2), Keep(steps=[4, 5]), Keep(steps=[1])]
)
def test_kept_steps_need_only_kept_ones(tmp_path: Path, policy: str, rule: Keep) -> None:
    states = walk(9, shape=(40, 30))
    chain = Chain(tmp_path, policy, keyframe_every=5, newest="exact")
    save_all(chain, states)
    before = {step: chain.restore(step, exact=False) for step in chain.steps}
    deltas = {step: chain.info(step).deltas for step in chain.steps}
    told = chain.prune(rule, rewrite=True, dry_run=True)
    assert chain.steps == list(range(9))
    found = chain.prune(rule, rewrite=True)
    assert found == told
    assert chain.steps == list(found.kept)
    assert found.needed == {}
    for step in chain.steps:
        assert_same(chain.restore(step, exact=False), before[step])
        assert chain.info(step).deltas <= deltas[step]
    assert_same(chain.restore(), states[8])
    assert validate(tmp_path, deep=True) == []
    sizes = {each.step: each.after for each in found.rewritten}
    assert all(chain.info(step).file_bytes == size for step, size in sizes.items())
    assert found.cost == sum(each.after - each.before for each in found.rewritten)
    again = chain.prune(rule, rewrite=True)
    assert (again.removed, again.rewritten) == ((), ())
    with warnings.catch_warnings(action="error"):
        chain.save(9, states[0])
    assert validate(tmp_path, deep=True) == []


def test_children_of_what_is_written_anew_stay_as_they_are(tmp_path: Path) -> None:
    chain = run_of(tmp_path, newest="exact")
    sizes = {step: chain.info(step).file_bytes for step in chain.steps}
    found = chain.prune(Keep(latest=2), rewrite=True)
    assert [(each.step, each.parent) for each in found.rewritten] == [(7, None)]
    assert chain.steps == [7, 8]
    assert chain.info(8).file_bytes == sizes[8]
    assert chain.info(8).exact
    assert all_restore(tmp_path)


def test_what_cannot_be_written_anew_stays_with_what_it_needs(tmp_path: Path) -> None:
    chain = run_of(tmp_path)
    path = tmp_path / "000000000004.lcc.h5"
    flip(path, PAYLOAD_OFFSET + 65)
    with pytest.warns(LccodecWarning, match="step 5 cannot be rewritten, so what it needs stays"):
        found = chain.prune(Keep(steps=[5]), rewrite=True)
    assert found.needed == {3: 5, 4: 5}
    assert chain.steps == [3, 4, 5, 8]


def test_a_full_disk(tmp_path: Path) -> None:
    run_of(tmp_path)
    system = Faulty(errno.ENOSPC, lambda name, _: name == "write")
    with pytest.raises(StorageError, match="No space"):
        prune(DirectoryStore(tmp_path, system), Keep(latest=1), rewrite=True)
    assert Chain(tmp_path).steps == list(range(9))
    assert all_restore(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("ignore", ["", "sync", "sync directory"])
def test_no_crash_loses_what_is_written_anew(tmp_path: Path, ignore: str) -> None:
    run_of(tmp_path / "run", newest="exact")

    def check(done: bool, place: Path) -> bool:
        steps = Chain(place).steps
        sound = all_restore(place) and {4, 7, 8} <= set(steps) and Chain(place).info(8).exact
        return sound and (not done or steps == [4, 7, 8])

    def work(system: Any) -> None:
        prune(DirectoryStore(tmp_path / "run", system), Keep(latest=2, steps=[4]), rewrite=True)

    hold(tmp_path / "run", work, check, ignore, above=15)


# --- damage, crashes, faults ----------------------------------------------------------------------


@pytest.mark.parametrize("data", [b"", b"damaged"])
def test_what_a_damaged_step_may_need_stays(tmp_path: Path, data: bytes) -> None:
    chain = run_of(tmp_path)
    (tmp_path / "000000000005.lcc.h5").write_bytes(data)
    with pytest.warns(LccodecWarning, match="step 5 cannot be read, so it is taken to need"):
        found = chain.prune(Keep(steps=[5]))
    assert found.needed == {3: 5, 4: 5, 6: 8, 7: 8}
    assert chain.prune(Keep(latest=1)).removed == (3, 4, 5)


def test_a_parent_that_was_deleted_by_hand(tmp_path: Path) -> None:
    chain = run_of(tmp_path)
    (tmp_path / "000000000004.lcc.h5").unlink()
    assert chain.prune(Keep(steps=[5])).removed == (0, 1, 2, 3)
    assert chain.steps == [5, 6, 7, 8]


@pytest.mark.slow
@pytest.mark.parametrize("ignore", ["", "sync directory"])
def test_no_crash_leaves_a_step_that_cannot_be_restored(tmp_path: Path, ignore: str) -> None:
    run_of(tmp_path / "run").pin(1)

    def check(done: bool, place: Path) -> bool:
        steps = Chain(place).steps
        return all_restore(place) and {0, 1, 6, 7, 8} <= set(steps) and (not done or len(steps) == 5)

    def work(system: Any) -> None:
        prune(DirectoryStore(tmp_path / "run", system), Keep(latest=1))

    hold(tmp_path / "run", work, check, ignore, above=6)


def test_parents_that_go_with_their_children_are_found(tmp_path: Path) -> None:
    run_of(tmp_path / "run")
    work = lambda system: prune(Parentless(tmp_path / "run", system), Keep(latest=1))  # noqa: E731
    assert broken(tmp_path / "run", work, lambda _, place: all_restore(place))[1] > 0


@pytest.mark.slow
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("sticky", [False, True])
@pytest.mark.parametrize("rewrite", [False, True])
def test_faults_at_every_operation(tmp_path: Path, code: int, sticky: bool, rewrite: bool) -> None:
    run_of(tmp_path / "run", newest="exact")

    def act(place: Path, system: System = SYSTEM) -> None:
        prune(DirectoryStore(place, system), Keep(latest=1), rewrite=rewrite)

    for place, _ in attempts(tmp_path / "run", act, code, sticky=sticky):
        assert all_restore(place)
        assert Chain(place).info(8).exact
        act(place)
        assert Chain(place).steps == ([8] if rewrite else [6, 7, 8])
        assert sorted(path.name for path in entries(place))[-1] == "exact.lcc.h5"
