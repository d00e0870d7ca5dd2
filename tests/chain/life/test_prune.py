"""Thinning out: what goes, what stays and why, whatever pins, reads or saves beside it."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec import ArgumentError, ChainError, Keep, LccodecWarning, StorageError, validate
from lccodec.chain.life.prune import prune
from lccodec.chain.read.checkpoint import open_step
from lccodec.chain.store.directory import DirectoryStore
from lccodec.chain.store.names import checkpoint_name
from lccodec.container.disk.folder import Folder
from lccodec.container.reader import CheckpointReader

from ...support.chains import HistoryChain
from ...support.mirrors import chain_files
from ...support.programs import run_program
from ...support.segments import STATES, all_restore, run_of
from ...support.walks import assert_same


def test_what_goes_and_what_stays(tmp_path: Path) -> None:
    chain = run_of(tmp_path)
    files = chain_files(tmp_path)
    found = chain.prune(Keep(steps=[4]), dry_run=True)
    assert found.removed == (0, 1, 2, 5)
    assert found.kept == {4: "asked for", 8: "newest"}
    assert found.needed == {3: 4, 6: 8, 7: 8}
    assert found.freed == sum(len(files[f"{step:012d}.lcc.h5"]) for step in (0, 1, 2, 5))
    assert chain.steps == list(range(9))
    assert chain.prune(Keep(steps=[4])) == found
    assert chain.steps == [3, 4, 6, 7, 8]
    assert chain_files(tmp_path).items() <= files.items()
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


@pytest.mark.slow
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
            HistoryChain(tmp_path / name).prune(Keep(latest=1))


def test_other_files_stay(tmp_path: Path) -> None:
    chain = run_of(tmp_path, newest="exact")
    mine = [tmp_path / name for name in ("5.lcc.h5", "notes.txt", "000000000001.lcc.h5.bak")]
    for path in mine:
        path.write_bytes(b"mine")
    (tmp_path / ".tmp-0123456789abcdef").write_bytes(b"left by a kill")
    chain.prune(Keep(latest=1))
    assert all(path.exists() for path in mine)
    assert not (tmp_path / ".tmp-0123456789abcdef").exists()
    assert chain.info().exact
    assert_same(chain.restore(), STATES[8])


# --- pins -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_pins_of_another_process(tmp_path: Path) -> None:
    chain = run_of(tmp_path)
    run_program("import sys, lccodec; lccodec.Chain(sys.argv[1]).pin(1)", tmp_path)
    found = chain.prune(Keep(latest=1))
    assert (found.kept[1], found.needed[0]) == ("pinned", 1)
    assert chain.steps == [0, 1, 6, 7, 8]


def test_a_pin_that_comes_in_between(tmp_path: Path) -> None:
    """Where there are no locks, pins are looked for again before each group of files goes."""
    chain = run_of(tmp_path)

    class Pinning(Folder):
        def remove(self, names: Iterable[str]) -> None:
            super().remove(names)
            (tmp_path / "000000000001.pin").touch()

    class Unlocked(DirectoryStore):
        @contextmanager
        def locked(self) -> Iterator[Folder]:
            with Pinning(self.path, self.system) as folder:
                yield folder

    found = prune(Unlocked(tmp_path), Keep(latest=1))
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
    with open_step(DirectoryStore(tmp_path), 5) as file:
        chain.prune(Keep(latest=1))
        assert_same(file.state(), STATES[5])
    with pytest.raises(ChainError, match="no step 5; the nearest is 6; it was never saved, or it was pruned"):
        chain.restore(5)


def test_what_is_pruned_while_it_is_opened(tmp_path: Path) -> None:
    """The file is opened, and before its parent is, a prune has written it anew."""
    chain = run_of(tmp_path)
    rules = iter([Keep(latest=3), Keep(latest=2), Keep(latest=1)])

    class Pruned(DirectoryStore):
        def open(self, name: str) -> CheckpointReader:
            if name != checkpoint_name(8) and (rule := next(rules, None)):
                prune(DirectoryStore(tmp_path), rule, rewrite=True)
            return super().open(name)

    with open_step(Pruned(tmp_path)) as file:
        assert_same(file.state(), STATES[8])
    assert chain.steps == [8]

    class Stale(DirectoryStore):
        """The first list of steps is an old one."""

        def steps(self) -> dict[int, str]:
            return {step: checkpoint_name(step) for step in stale.pop()} if stale else super().steps()

    store, stale = Stale(tmp_path), [[8, 9]]
    with open_step(store) as file:
        assert_same(file.state(), STATES[8])
    stale = [[5]]
    with pytest.raises(ChainError, match="no step 5; the nearest is 8; it was never saved, or it was pruned"):
        open_step(store, 5)


def test_a_writer_goes_on(tmp_path: Path) -> None:
    """Another process's prune leaves what the next delta is taken against."""
    writer = run_of(tmp_path, 8)
    prune(DirectoryStore(tmp_path), Keep(steps=[0]))
    with warnings.catch_warnings(action="error"):
        writer.save(8, STATES[8])
    assert writer.info(8).parent == 7
    assert all_restore(tmp_path)


def test_after_each_save(tmp_path: Path) -> None:
    chain = HistoryChain(tmp_path, "lossless", keyframe_every=2, keep=Keep(latest=2, every=4))
    left = []
    for step in range(9):
        chain.save(step, STATES[step])
        left.append(chain.steps)
        assert all_restore(tmp_path)
    assert left[3] == [0, 1, 2, 3]
    assert left[4] == [0, 3, 4]
    assert left[8] == [0, 3, 4, 6, 7, 8]
    with pytest.raises(ArgumentError, match=r"lccodec\.Keep"):
        HistoryChain(tmp_path, keep=3)  # type: ignore[arg-type]


def test_a_save_stands_if_pruning_fails(tmp_path: Path) -> None:
    chain = HistoryChain(tmp_path, "lossless", keep=Keep(best=(2, "loss", "min")))
    with pytest.warns(LccodecWarning, match="the state is saved, but pruning the chain failed") as caught:
        chain.save(0, STATES[0])
    assert caught[0].filename == __file__
    assert_same(chain.restore(), STATES[0])


def test_beside_another_prune_a_save_does_not_wait(tmp_path: Path) -> None:
    chain = HistoryChain(tmp_path, "lossless", keyframe_every=0, keep=Keep(latest=1))
    chain.save(0, STATES[0])
    with DirectoryStore(tmp_path).locked():
        chain.save(1, STATES[1])
        assert chain.steps == [0, 1]
    chain.save(2, STATES[2])
    assert chain.steps == [2]
