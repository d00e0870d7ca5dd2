"""Thinning out: what goes, what stays and why, whatever crashes, pins, reads or saves beside it."""

from __future__ import annotations

import errno
import shutil
import subprocess
import sys
import warnings
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec import (
    ArgumentError,
    Chain,
    ChainError,
    Keep,
    LccodecError,
    LccodecWarning,
    StorageError,
    validate,
)
from lccodec.chain import checkpoint as checkpoint_module
from lccodec.chain import prune as module
from lccodec.chain.checkpoint import open_step
from lccodec.chain.prune import prune
from lccodec.container.system import directory_lock

from ..support.crashes import broken
from ..support.directories import entries
from ..support.systems import Faulty
from ..support.walks import assert_same, walk

STATES = walk(10, shape=(6, 5))


def run_of(directory: Path, steps: int = 9, **options: Any) -> Chain:
    """A chain of segments of three: 0 1 2, 3 4 5, 6 7 8."""
    chain = Chain(directory, "lossless", keyframe_every=2, **options)
    for step in range(steps):
        chain.save(step, STATES[step], {"loss": 10 - step})
    return chain


def all_restore(directory: Path) -> bool:
    chain = Chain(directory)
    try:
        for step in chain.steps:
            assert_same(chain.restore(step), STATES[step])
    except (AssertionError, LccodecError):
        return False
    return True


def test_what_goes_and_what_stays(tmp_path: Path) -> None:
    chain = run_of(tmp_path)
    files = {path.name: path.read_bytes() for path in entries(tmp_path)}
    found = chain.prune(Keep(steps=[4]), dry_run=True)
    assert found.removed == (0, 1, 2, 5)
    assert found.kept == {4: "asked for", 8: "newest"}
    assert found.needed == {3: 4, 6: 8, 7: 8}
    assert found.freed == sum(len(files[f"{step:012d}.lcc.h5"]) for step in (0, 1, 2, 5))
    assert chain.steps == list(range(9))
    assert chain.prune(Keep(steps=[4])) == found
    assert chain.steps == [3, 4, 6, 7, 8]
    for path in entries(tmp_path):
        assert path.read_bytes() == files[path.name]
    assert all_restore(tmp_path)
    assert validate(tmp_path, deep=True) == []
    assert chain.prune(Keep(steps=[4])).removed == ()
    chain.save(9, STATES[9])
    assert chain.prune(Keep(latest=1)).removed == (3, 4, 6, 7, 8)
    assert_same(chain.restore(), STATES[9])


@pytest.mark.parametrize(
    ("rule", "left"),
    [
        (Keep(latest=1), [6, 7, 8]),
        (Keep(latest=3, every=3), [0, 3, 6, 7, 8]),
        (Keep(best=(2, "loss", "max")), [0, 1, 6, 7, 8]),
        (Keep(newer_than=timedelta(hours=1)), list(range(9))),
        (Keep(steps=[0]), [0, 6, 7, 8]),
    ],
)
def test_rules(tmp_path: Path, rule: Keep, left: list[int]) -> None:
    chain = run_of(tmp_path)
    chain.prune(rule)
    assert chain.steps == left
    assert all_restore(tmp_path)


@given(kept=st.sets(st.integers(0, 8), min_size=1), pins=st.sets(st.integers(0, 8)))
def test_all_that_stays_restores(
    tmp_path_factory: pytest.TempPathFactory, kept: set[int], pins: set[int]
) -> None:
    chain = run_of(tmp_path_factory.mktemp("run"))
    for step in pins:
        chain.pin(step)
    found = chain.prune(Keep(steps=kept))
    assert all_restore(chain.directory)
    assert set(chain.steps) == set(found.kept) | set(found.needed)
    assert set(found.kept) == kept | pins | {8}
    assert sorted({*found.kept, *found.needed, *found.removed}) == list(range(9))


def test_a_rule_that_keeps_nothing_is_refused(tmp_path: Path) -> None:
    chain = run_of(tmp_path)
    for rule in (Keep(steps=[99]), Keep(best=(3, "accuracy", "max"))):
        with pytest.raises(ArgumentError, match="keeps none of the 9 steps"):
            chain.prune(rule)
    with pytest.raises(ArgumentError, match=r"lccodec\.Keep"):
        chain.prune(3)  # type: ignore[arg-type]
    assert chain.steps == list(range(9))
    (tmp_path / "empty").mkdir()
    for name in ("empty", "nothing"):
        with pytest.raises((ChainError, StorageError)):
            Chain(tmp_path / name).prune(Keep(latest=1))


def test_other_files_stay(tmp_path: Path) -> None:
    chain = run_of(tmp_path, newest="exact")
    mine = [tmp_path / name for name in ("5.lcc.h5", "notes.txt", "000000000001.lcc.h5.bak")]
    for path in mine:
        path.write_bytes(b"mine")
    (tmp_path / ".tmp-0123").write_bytes(b"left by a kill")
    chain.prune(Keep(latest=1))
    assert all(path.exists() for path in mine)
    assert not (tmp_path / ".tmp-0123").exists()
    assert chain.info().exact
    assert_same(chain.restore(), STATES[8])


# --- kept steps written anew ----------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["lossless", "lc-3", "balanced"])
@pytest.mark.parametrize(
    "rule", [Keep(latest=1), Keep(latest=3), Keep(every=2), Keep(steps=[4, 5]), Keep(steps=[1])]
)
def test_kept_steps_need_only_kept_ones(tmp_path: Path, policy: str, rule: Keep) -> None:
    states = walk(9, shape=(40, 30))
    chain = Chain(tmp_path, policy, keyframe_every=5, newest="exact")
    for step, state in enumerate(states):
        chain.save(step, state)
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
    with warnings.catch_warnings():
        warnings.simplefilter("error")
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
    data = bytearray(path.read_bytes())
    data[400] ^= 1
    path.write_bytes(data)
    with pytest.warns(LccodecWarning, match="step 5 cannot be written anew, so what it needs stays"):
        found = chain.prune(Keep(steps=[5]), rewrite=True)
    assert found.needed == {3: 5, 4: 5}
    assert chain.steps == [3, 4, 5, 8]


def test_a_full_disk(tmp_path: Path) -> None:
    run_of(tmp_path)
    system = Faulty(errno.ENOSPC, lambda name, _: name == "write")
    with pytest.raises(StorageError, match="No space"):
        prune(tmp_path, Keep(latest=1), rewrite=True, system=system)
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
        prune(tmp_path / "run", Keep(latest=2, steps=[4]), rewrite=True, system=system)

    tried, wrong = broken(tmp_path / "run", work, check, ignore)
    assert tried > 40
    assert (wrong > 0) == bool(ignore)


# --- pins -----------------------------------------------------------------------------------------


def test_pins_of_another_process(tmp_path: Path) -> None:
    chain = run_of(tmp_path)
    program = "import sys, lccodec; lccodec.Chain(sys.argv[1]).pin(1)"
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True)
    found = chain.prune(Keep(latest=1))
    assert (found.kept[1], found.needed[0]) == ("pinned", 1)
    assert chain.steps == [0, 1, 6, 7, 8]


def test_a_pin_that_comes_in_between(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there are no locks, pins are looked for again before each group of files goes."""
    chain = run_of(tmp_path)
    removals = []

    def pinning(paths: Any, *arguments: Any) -> None:
        removals.append(len(paths))
        real(paths, *arguments)
        if len(removals) == 1:
            (tmp_path / "000000000001.pin").touch()

    real = module.remove_files
    monkeypatch.setattr(module, "remove_files", pinning)
    found = chain.prune(Keep(latest=1))
    assert chain.steps == [0, 1, 6, 7, 8]
    assert found.removed == (2, 3, 4, 5)
    assert found.kept[1] == "pinned"


def test_what_was_pruned_cannot_be_pinned(tmp_path: Path) -> None:
    chain = run_of(tmp_path)
    chain.prune(Keep(latest=1))
    with pytest.raises(ChainError, match="was pruned"):
        chain.pin(1)
    assert chain.pins == []


# --- readers and writers beside it ----------------------------------------------------------------


def test_a_reader_keeps_what_it_has_opened(tmp_path: Path) -> None:
    chain = run_of(tmp_path)
    with open_step(tmp_path, 5) as file:
        chain.prune(Keep(latest=1))
        assert_same(file.state(), STATES[5])
    with pytest.raises(ChainError, match="no step 5; the nearest is 6; it was never saved, or it was pruned"):
        chain.restore(5)


def test_what_is_pruned_while_it_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is opened, and before its parent is, a prune has written it anew."""
    chain = run_of(tmp_path)
    rules = iter([Keep(latest=3), Keep(latest=2), Keep(latest=1)])
    real = checkpoint_module.open_parent

    def prune_first(*arguments: Any) -> Any:
        if (rule := next(rules, None)) is not None:
            with monkeypatch.context() as inner:
                inner.setattr(checkpoint_module, "open_parent", real)
                prune(tmp_path, rule, rewrite=True)
        return real(*arguments)

    monkeypatch.setattr(checkpoint_module, "open_parent", prune_first)
    assert_same(chain.restore(), STATES[8])
    assert chain.steps == [8]
    monkeypatch.setattr(checkpoint_module, "open_parent", real)
    real_steps = checkpoint_module.directory_steps
    monkeypatch.setattr(
        checkpoint_module, "directory_steps", lambda directory: stale.pop() or real_steps(directory)
    )
    stale = [None, {8: tmp_path / "000000000008.lcc.h5", 9: tmp_path / "000000000009.lcc.h5"}]
    assert_same(chain.restore(), STATES[8])
    stale = [None, {5: tmp_path / "000000000005.lcc.h5"}]
    with pytest.raises(ChainError, match="no step 5; the nearest is 8; it was never saved, or it was pruned"):
        chain.restore(5)


def test_a_writer_goes_on(tmp_path: Path) -> None:
    """Another process's prune leaves what the next delta is taken against."""
    writer = run_of(tmp_path, 8)
    prune(tmp_path, Keep(steps=[0]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        writer.save(8, STATES[8])
    assert writer.info(8).parent == 7
    assert all_restore(tmp_path)


def test_after_each_save(tmp_path: Path) -> None:
    chain = Chain(tmp_path, "lossless", keyframe_every=2, keep=Keep(latest=2, every=4))
    left = []
    for step in range(9):
        chain.save(step, STATES[step])
        left.append(chain.steps)
        assert all_restore(tmp_path)
    assert left[3] == [0, 1, 2, 3]
    assert left[4] == [0, 3, 4]
    assert left[8] == [0, 3, 4, 6, 7, 8]
    with pytest.raises(ArgumentError, match=r"lccodec\.Keep"):
        Chain(tmp_path, keep=3)  # type: ignore[arg-type]


def test_a_save_stands_if_pruning_fails(tmp_path: Path) -> None:
    chain = Chain(tmp_path, "lossless", keep=Keep(best=(2, "loss", "min")))
    with pytest.warns(
        LccodecWarning, match="the state is saved, but thinning out the chain failed"
    ) as caught:
        chain.save(0, STATES[0])
    assert caught[0].filename == __file__
    assert_same(chain.restore(), STATES[0])


def test_beside_another_prune_a_save_does_not_wait(tmp_path: Path) -> None:
    chain = Chain(tmp_path, "lossless", keyframe_every=0, keep=Keep(latest=1))
    chain.save(0, STATES[0])
    with directory_lock(tmp_path):
        chain.save(1, STATES[1])
        assert chain.steps == [0, 1]
    chain.save(2, STATES[2])
    assert chain.steps == [2]


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
        prune(tmp_path / "run", Keep(latest=1), system=system)

    tried, wrong = broken(tmp_path / "run", work, check, ignore)
    assert tried > 10
    assert (wrong > 0) == bool(ignore)


def test_parents_that_go_first_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "waves", lambda steps: [[step] for step in sorted(steps)])
    run_of(tmp_path / "run")
    work = lambda system: prune(tmp_path / "run", Keep(latest=1), system=system)  # noqa: E731
    assert broken(tmp_path / "run", work, lambda _, place: all_restore(place))[1] > 0


@pytest.mark.slow
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("sticky", [False, True])
@pytest.mark.parametrize("rewrite", [False, True])
def test_faults_at_every_operation(tmp_path: Path, code: int, sticky: bool, rewrite: bool) -> None:
    run_of(tmp_path / "run", newest="exact")
    healthy, options = Faulty(0, lambda *_: False), {"rewrite": rewrite}
    copy = Path(shutil.copytree(tmp_path / "run", tmp_path / "healthy"))
    prune(copy, Keep(latest=1), system=healthy, **options)
    for position in range(len(healthy.log)):
        place = Path(shutil.copytree(tmp_path / "run", tmp_path / f"{position}"))

        def fails(_: str, number: int, position: int = position) -> bool:
            return number == position or (sticky and number > position)

        try:
            prune(place, Keep(latest=1), system=Faulty(code, fails), **options)
        except StorageError as error:
            assert error.errno == code
        assert all_restore(place)
        assert Chain(place).info(8).exact
        prune(place, Keep(latest=1), **options)
        assert Chain(place).steps == ([8] if rewrite else [6, 7, 8])
        assert sorted(path.name for path in entries(place))[-1] == "exact.lcc.h5"
