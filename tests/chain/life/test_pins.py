"""Pins: made, removed, listed; refused where there is nothing to pin.

The methods of a chain's life together: they pass on what they are given.
"""

import errno
import os
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from lccodec import ArgumentError, Chain, ChainError, Keep, LccodecWarning, StorageError, validate
from lccodec.chain.life.prune import pin, unpin
from lccodec.chain.store.directory import DirectoryStore
from lccodec.container.system import SYSTEM

from ...support.commands import run
from ...support.walks import assert_restores, assert_same, chain_of, save_all


def test_pins(tmp_path: Path) -> None:
    chain, _ = chain_of(tmp_path)
    assert chain.pins == []
    chain.pin(2)
    chain.pin(1)
    chain.pin(2)
    assert chain.pins == [1, 2]
    assert (tmp_path / "000000000002.pin").read_bytes() == b""
    assert chain.unpin(1)
    assert not chain.unpin(1)
    assert Chain(tmp_path).pins == [2]
    assert chain.steps == [0, 1, 2, 3]
    assert validate(tmp_path) == []
    assert Chain(tmp_path / "nothing").pins == []


def test_what_cannot_be_pinned(tmp_path: Path) -> None:
    chain, _ = chain_of(tmp_path)
    with pytest.raises(ChainError, match="no step 9"):
        chain.pin(9)
    with pytest.raises(ArgumentError):
        chain.pin("1")
    (tmp_path / "000000000000.lcc.h5").unlink()
    with pytest.raises(ChainError, match="its parent, step 0"):
        chain.pin(1)
    with pytest.raises(ChainError, match="has no step 0"):
        pin(DirectoryStore(tmp_path / "nothing"), 0)
    assert chain.pins == []
    assert not unpin(DirectoryStore(tmp_path / "nothing"), 0)


def test_a_directory_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chain, _ = chain_of(tmp_path)
    really = os.open

    def refuse(path: Any, flags: int, *more: int) -> int:
        if flags & os.O_CREAT:
            raise OSError(errno.EACCES, "Permission denied")
        return really(path, flags, *more)

    monkeypatch.setattr(SYSTEM, "open", refuse)
    with pytest.raises(StorageError, match="cannot pin"):
        chain.pin(1)
    assert chain.pins == []


def test_one_works_at_a_time(tmp_path: Path) -> None:
    """The lock of a directory is one of its own: it does not keep a chain from being read."""
    chain, states = chain_of(tmp_path)
    with DirectoryStore(tmp_path).locked():
        assert chain.restore()["epoch"] == states[-1]["epoch"]
        chain.save(9, states[0])


WEIGHTS = np.cumsum(np.random.default_rng(0).standard_normal((9, 40, 50), np.float32), 0)


def is_exact(chain: Chain, step: int) -> bool:
    return np.array_equal(chain.restore(step)["weight"], WEIGHTS[step])


@pytest.mark.parametrize("hindsight", [0, 3])
@pytest.mark.parametrize("background", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_step_that_is_asked_for_exactly_stays_so(tmp_path: Path, background: bool, hindsight: int) -> None:
    """On every way by which it may be coded again."""
    with Chain(tmp_path / "run", "balanced", keyframe_every=4, hindsight=hindsight) as chain:
        for step, weight in enumerate(WEIGHTS):
            if background:
                chain.save_async(step, {"weight": weight}, exact=step == 4)
            else:
                chain.save(step, {"weight": weight}, exact=step == 4)
            if step == 6:  # the newest, in the exact file
                chain.pin(6, exact=True)
        chain.pin(4, exact=True)
    assert [step for step in chain.steps if is_exact(chain, step)] == [4, 6, 8]
    assert validate(tmp_path / "run", deep=True) == []
    chain.compact("small", directory=tmp_path / "compact")
    chain.compact("small", directory=tmp_path / "again", hindsight=3)
    chain.prune(Keep(every=2), rewrite=True)
    for place in ("run", "compact", "again"):
        found = Chain(tmp_path / place)
        assert all(is_exact(found, step) for step in (4, 6)), place
        assert not is_exact(found, 2), place


def test_an_exact_first_keyframe_takes_no_steps_from_the_next_state(tmp_path: Path) -> None:
    with Chain(tmp_path, "small") as chain:
        chain.save(0, {"weight": WEIGHTS[0]}, following={"weight": WEIGHTS[1]}, exact=True)
        for step in (1, 2):
            chain.save(step, {"weight": WEIGHTS[step]})
        assert (is_exact(chain, 0), is_exact(chain, 1)) == (True, False)


def test_an_exact_step_that_only_the_exact_file_has_stays_so(tmp_path: Path) -> None:
    full = StorageError(errno.ENOSPC, "no space", "somewhere")
    with Chain(tmp_path, "balanced") as chain:
        chain.save(0, {"weight": WEIGHTS[0]})
        with (
            mock.patch("lccodec.chain.save.reference.encode_plan", side_effect=full),
            pytest.warns(LccodecWarning, match="only in the exact file"),
        ):
            chain.save(1, {"weight": WEIGHTS[1]}, exact=True)
        chain.save(2, {"weight": WEIGHTS[2]})
        assert is_exact(chain, 1)


def test_an_exact_state_that_is_gone_is_not_pinned(tmp_path: Path) -> None:
    with Chain(tmp_path, "balanced") as chain:
        for step in range(2):
            chain.save(step, {"weight": WEIGHTS[step]})
        with pytest.raises(ChainError, match="the exact state of step 0 is gone"):
            chain.pin(0, exact=True)
        assert chain.pins == []
        with pytest.raises(ArgumentError, match="exact=True saves all arrays"):
            chain.save(2, {"weight": WEIGHTS[2]}, only=["weight"], exact=True)
        with pytest.raises(ArgumentError, match="exact must be True or False"):
            chain.save(2, {"weight": WEIGHTS[2]}, exact=1)
    run("pin", tmp_path, 1, "--exact")
    with Chain(tmp_path) as chain:
        chain.save(2, {"weight": WEIGHTS[2]})
        assert (chain.pins, is_exact(chain, 1)) == ([1], True)


def test_parity_and_a_mirror_have_the_step_that_was_pinned_exactly(tmp_path: Path) -> None:
    """Its file is written anew: what stands beside the chain is of the new one."""
    moved = np.random.default_rng(0).standard_normal((4, 80, 60)) * [[[1]], [[0.01]], [[0.01]], [[0.01]]]
    walk = np.cumsum(moved, axis=0)
    states = [{"model": {"w": weights}} for weights in walk.astype("f4")]
    options: dict[str, Any] = {"roles": {"model/*": "weight"}, "parity": 1, "mirror": tmp_path / "mirror"}
    with Chain(tmp_path / "run", "balanced", **options) as chain:
        save_all(chain, states, range(3))
        chain.wait()
        chain.pin(2, exact=True)
        chain.save(3, states[3])
        chain.wait()
    (tmp_path / "run" / "000000000002.lcc.h5").unlink()
    assert Chain(tmp_path / "run").repair().mended == ("000000000002.lcc.h5",)
    for place in ("run", "mirror"):
        assert validate(tmp_path / place, deep=True) == []
        found = Chain(tmp_path / place).restore(2)["model"]["w"]
        assert found.tobytes() == states[2]["model"]["w"].tobytes()


def test_a_run_that_goes_astray(tmp_path: Path) -> None:
    chain, states = chain_of(tmp_path / "run", 6)
    chain.pin(3)
    assert chain.fork(tmp_path / "fork", 5) == [3, 4, 5]
    assert chain.rollback(2).steps == (3, 4, 5)
    assert chain.pins == []
    chain.save(3, states[5])
    chain.rollback(2, delete=True)
    assert [each.steps for each in chain.rolled_back] == [(3, 4, 5)]
    chain.undo_rollback()
    assert chain.pins == [3]
    assert chain.unpin(3)
    assert chain.delete_rolled_back() == []
    assert_restores(chain, states, range(6))
    assert_same(Chain(tmp_path / "fork").restore(), states[5])
    chain.save(6, states[0])
    assert chain.info(6).parent is None
