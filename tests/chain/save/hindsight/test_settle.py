"""Settling a group: each step as it was saved or settled, whatever happens meanwhile."""

from __future__ import annotations

import errno
import shutil
from collections import deque
from pathlib import Path

import numpy as np
import pytest

import lccodec
from lccodec import Chain, Keep, StorageError
from lccodec.chain.read.checkpoint import open_name
from lccodec.chain.save.hindsight.settle import settle, unsettled
from lccodec.chain.store.directory import DirectoryStore
from lccodec.chain.store.names import checkpoint_name
from lccodec.container.reader import CheckpointReader

from ....support.crashes import broken
from ....support.drifting import run_of
from ....support.settled import STATES, history, kinds, settle_all, waiting
from ....support.systems import Faulty
from ....support.walks import assert_same


@pytest.mark.slow
def test_what_is_settled_and_what_stays(tmp_path: Path) -> None:
    states = run_of(9, (40, 30))
    chain = waiting(tmp_path, states)
    assert kinds(chain) == "kdddddddd"
    assert unsettled(DirectoryStore(tmp_path), 100) == [(0, 4), (4, 8)]
    assert unsettled(DirectoryStore(tmp_path), 5) == [(4, 8)]
    before = [chain.info(step) for step in chain.steps]
    settle_all(DirectoryStore(tmp_path))
    assert kinds(chain) == "kiiidiiid"
    assert unsettled(DirectoryStore(tmp_path), 100) == []
    for old in before:
        new = chain.info(old.step)
        assert new.metadata == old.metadata
        assert (new.policy, new.exact_root) == (old.policy, old.exact_root)
        assert [(a.name, a.dtype, a.shape, a.role) for a in new.arrays] == [
            (a.name, a.dtype, a.shape, a.role) for a in old.arrays
        ]
        if new.kind == "interpolated":
            assert new.replaces == (old.root,)
            assert new.file_bytes < old.file_bytes
        else:
            assert new == old
        restored = chain.restore(old.step, exact=False)
        for name in ("mean", "count", "loss"):
            np.testing.assert_array_equal(restored[name], states[old.step or 0][name])
    assert_same(chain.restore(), states[-1])


def test_pinned_steps_stay(tmp_path: Path) -> None:
    chain = waiting(tmp_path)
    chain.pin(2)
    before = chain.restore(2)
    settle_all(DirectoryStore(tmp_path))
    assert kinds(chain) == "kddidiiid"
    assert_same(chain.restore(2), before)


def test_a_step_that_is_pinned_meanwhile(tmp_path: Path) -> None:
    chain = waiting(tmp_path)
    store = DirectoryStore(tmp_path)
    for number, _ in enumerate(settle(store, 0, 4)):
        if number == 2:
            chain.pin(3)
    assert kinds(chain) == "kdddddddd"


def test_nothing_is_settled_without_its_lock(tmp_path: Path) -> None:
    chain = waiting(tmp_path, STATES[:5])
    store = DirectoryStore(tmp_path)
    with store.locked():
        settle_all(DirectoryStore(tmp_path))
    assert kinds(chain) == "kdddd"


def test_steps_that_others_need_stay(tmp_path: Path) -> None:
    """A prune may have rewritten a step, or have removed an end."""
    chain = waiting(tmp_path, run_of(9, (12, 10)))  # all of them are small, and so exact
    chain.prune(Keep(steps=[0, 2, 3, 8]), rewrite=True)
    before = history(chain)
    for low, high in ((0, 8), (0, 4), (2, 8), (3, 3), (5, 1)):
        deque(settle(DirectoryStore(tmp_path), low, high), maxlen=0)
    assert lccodec.validate(tmp_path, deep=True) == []
    assert_same(history(chain), before)


def test_a_lossless_history_stays(tmp_path: Path) -> None:
    with Chain(tmp_path, "lossless", keyframe_every=4) as chain:
        for step, state in enumerate(STATES):
            chain.save(step, state)
    for low, high in ((0, 5), (0, 3)):
        deque(settle(DirectoryStore(tmp_path), low, high), maxlen=0)
    assert "i" not in kinds(chain)


def test_a_reader_that_comes_in_between(tmp_path: Path) -> None:
    """It has opened a delta, and finds that the parent is settled: so is the step by now."""
    waiting(tmp_path)

    class Settled(DirectoryStore):
        """A store whose groups are settled after the first checkpoint of it was opened."""

        def open(self, name: str) -> CheckpointReader:
            reader = super().open(name)
            settle_all(DirectoryStore(tmp_path))
            return reader

    with open_name(Settled(tmp_path), checkpoint_name(3)) as file:
        assert file.info().parents == (0, 4)
        assert_same(file.state(), Chain(tmp_path).restore(3))


def test_a_restore_that_goes_on(tmp_path: Path) -> None:
    """An open checkpoint says that its parents were replaced, or has their values."""
    chain = waiting(tmp_path)
    before = chain.restore(3)
    with lccodec.open(tmp_path / "000000000003.lcc.h5") as file:
        settle_all(DirectoryStore(tmp_path))
        try:
            assert_same(file.state(), before)
        except lccodec.ChainError as raised:
            assert "replaced by another file" in str(raised)


@pytest.mark.slow
@pytest.mark.parametrize("ignore", ["", "sync"])
def test_no_crash_loses_a_step(tmp_path: Path, ignore: str) -> None:
    chain = waiting(tmp_path / "run", STATES[:5])
    before = history(chain)
    settle_all(DirectoryStore(Path(shutil.copytree(tmp_path / "run", tmp_path / "settled"))))
    after = history(Chain(tmp_path / "settled"))

    def check(_: bool, place: Path) -> bool:
        try:
            found = history(Chain(place))
            assert_same(Chain(place).restore(), STATES[4])
            for step, state in enumerate(found):
                try:
                    assert_same(state, before[step])
                except AssertionError:
                    assert_same(state, after[step])
            settle_all(DirectoryStore(place))
            assert_same(history(Chain(place)), after)
        except (AssertionError, lccodec.LccodecError):
            return False
        return lccodec.validate(place, deep=True) == []

    tried, wrong = broken(
        chain.directory, lambda system: settle_all(DirectoryStore(chain.directory, system)), check, ignore
    )
    assert ignore or tried > 10
    assert (wrong > 0) == bool(ignore)


@pytest.mark.slow
@pytest.mark.parametrize(("code", "sticky"), [(errno.ENOSPC, False), (errno.EIO, True)])
def test_faults_at_every_operation(tmp_path: Path, code: int, sticky: bool) -> None:
    chain = waiting(tmp_path / "run", STATES[:4], 3)
    before = history(chain)
    healthy = Faulty(0, lambda *_: False)
    settled = Path(shutil.copytree(chain.directory, tmp_path / "settled"))
    settle_all(DirectoryStore(settled, healthy))
    after = history(Chain(settled))
    assert not healthy.descriptors
    for position in range(len(healthy.log)):
        place = Path(shutil.copytree(chain.directory, tmp_path / f"{position}"))

        def fails(_: str, number: int, position: int = position) -> bool:
            return number == position or (sticky and number > position)

        try:
            settle_all(DirectoryStore(place, Faulty(code, fails)))
        except StorageError as raised:
            assert raised.errno == code
        for step, state in enumerate(history(Chain(place))):
            same = state["w"].tobytes()
            assert same in (before[step]["w"].tobytes(), after[step]["w"].tobytes())
        settle_all(DirectoryStore(place))
        assert_same(history(Chain(place)), after)
