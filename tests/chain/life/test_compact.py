"""A finished run is rewritten: the same states in fewer bytes, or with fewer deltas."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lccodec import ArgumentError, Chain, ChainError, LccodecWarning, StorageError, validate
from lccodec.chain.life.compact import compact
from lccodec.chain.store.directory import DirectoryStore
from lccodec.constants import EXACT_NAME, PAYLOAD_OFFSET

from ...support.chains import HistoryChain
from ...support.crashes import hold
from ...support.damage import flip
from ...support.mirrors import chain_files
from ...support.systems import Faulty
from ...support.walks import assert_restores, assert_same, is_so, save_all, walk

STATES = walk(9, shape=(40, 30))


def run_of(directory: Path, policy: str = "lc-3", every: int = 2, **options: Any) -> Chain:
    chain = HistoryChain(directory, policy, keyframe_every=every, **options)
    for step, state in enumerate(STATES):
        chain.save(step, state, {"loss": step})
    return chain


def history(chain: Chain) -> list[Any]:
    return [chain.restore(step, exact=False) for step in chain.steps]


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["lossless", "lc-3", "balanced"])
@pytest.mark.parametrize(("before", "after"), [(2, 32), (2, 5), (2, 4), (8, 2), (8, 0), (0, 2)])
def test_the_same_states(tmp_path: Path, policy: str, before: int, after: int) -> None:
    chain = run_of(tmp_path, policy, before, newest="exact")
    expected, sizes = history(chain), {step: chain.info(step).file_bytes for step in chain.steps}
    told = chain.compact(keyframe_every=after, dry_run=True)
    assert sum(sizes.values()) == told.before == sum(chain.info(step).file_bytes for step in chain.steps)
    found = chain.compact(keyframe_every=after)
    assert found == told
    assert found.after == sum(chain.info(step).file_bytes for step in chain.steps)
    assert_same(history(chain), expected)
    assert_same(chain.restore(), STATES[-1])
    assert max(chain.info(step).deltas for step in chain.steps) <= after
    if after >= before:
        assert found.after <= found.before
        assert all(each.after < each.before for each in found.rewritten)
    assert validate(tmp_path, deep=True) == []
    assert chain.compact(keyframe_every=after).rewritten == ()
    chain.save(9, STATES[0])
    assert validate(tmp_path, deep=True) == []


def test_keyframes_become_deltas(tmp_path: Path) -> None:
    chain = run_of(tmp_path, "lossless")
    found = chain.compact(keyframe_every=5)
    assert [(each.step, each.parent) for each in found.rewritten] == [(3, 2)]
    assert [chain.info(step).deltas for step in chain.steps] == [0, 1, 2, 3, 4, 5, 0, 1, 2]


@pytest.mark.slow
def test_into_a_new_directory(tmp_path: Path) -> None:
    chain = run_of(tmp_path / "run", newest="exact")
    before, expected = chain_files(chain.directory), history(chain)
    found = chain.compact(keyframe_every=1, directory=tmp_path / "new" / "run")
    assert chain_files(chain.directory) == before
    other = HistoryChain(tmp_path / "new" / "run")
    assert_same(history(other), expected)
    assert (other.directory / EXACT_NAME).samefile(chain.directory / EXACT_NAME)
    assert other.info(8).exact
    assert (other.directory / "000000000000.lcc.h5").samefile(chain.directory / "000000000000.lcc.h5")
    assert found.after == sum(other.info(step).file_bytes for step in other.steps)
    assert chain.compact(keyframe_every=1, directory=tmp_path / "new" / "run").rewritten == ()  # again
    for place in (chain.directory.parent, chain.directory):
        with pytest.raises(ArgumentError, match="a fork needs a new directory"):
            HistoryChain(run_of(tmp_path / f"{place.name}-2").directory).compact(directory=place)


@pytest.mark.slow
def test_with_a_policy_it_says_what_is_lost(tmp_path: Path) -> None:
    chain = run_of(tmp_path / "run", "lossless")
    with pytest.raises(ArgumentError, match="needs directory= and does not support dry_run"):
        chain.compact("lc-2")
    with pytest.raises(ArgumentError, match="not empty"):
        chain.compact("lc-2", directory=chain.directory)
    found = chain.compact("balanced", directory=tmp_path / "new")
    other = HistoryChain(tmp_path / "new")
    assert (other.steps, other.policy.name) == (chain.steps, "balanced")
    assert found.after == sum(other.info(step).file_bytes for step in other.steps) < found.before
    lost = had = 0.0
    for step in other.steps:
        was, now = (c.restore(step)["layer"]["weight"].astype("f8") for c in (chain, other))
        lost, had = lost + np.square(now - was).sum(), had + np.square(was).sum()
        assert other.info(step).metadata == chain.info(step).metadata
        now, was = ([(a.name, a.role) for a in c.info(step).arrays] for c in (other, chain))
        assert now == was
    assert found.errors["weight"] == pytest.approx(np.sqrt(lost / had), rel=0.5)  # with the biases
    assert 0 < found.errors["weight"] < 0.1
    assert found.errors["other"] == 0
    assert chain.compact("lossless", directory=tmp_path / "exact").errors == {"weight": 0, "other": 0}


def test_with_a_policy_the_new_chain_has_no_exact_file(tmp_path: Path) -> None:
    chain = run_of(tmp_path / "run", "balanced", newest="exact")
    chain.compact("lc-3", directory=tmp_path / "new")  # of the history, which has lost something
    other = Chain(tmp_path / "new")
    assert (other.newest, (tmp_path / "new" / EXACT_NAME).exists()) == ("history", False)
    assert not other.info().exact


def test_with_a_policy_a_step_that_only_the_exact_file_has_is_saved_too(tmp_path: Path) -> None:
    chain = run_of(tmp_path / "run", "balanced", newest="exact")
    (tmp_path / "run" / "000000000008.lcc.h5").unlink()  # as if the disk had been full
    found = chain.compact("lossless", directory=tmp_path / "new")
    assert found.steps == len(STATES)
    assert Chain(tmp_path / "new").steps == chain.steps
    assert_same(Chain(tmp_path / "new").restore(), STATES[-1])
    with pytest.raises(ChainError, match="holds no checkpoint"):
        Chain(tmp_path / "nothing").compact("lossless", directory=tmp_path / "other")


def test_what_is_refused(tmp_path: Path) -> None:
    with pytest.raises((ChainError, StorageError)):
        HistoryChain(tmp_path / "nothing").compact()
    with pytest.raises(ArgumentError, match="keyframe_every must be a non-negative integer"):
        run_of(tmp_path / "run").compact(keyframe_every=-1)


def test_what_is_broken_stays(tmp_path: Path) -> None:
    chain = run_of(tmp_path, "lossless")
    path = tmp_path / "000000000003.lcc.h5"
    flip(path, PAYLOAD_OFFSET + 65)
    with pytest.warns(LccodecWarning, match="step [36] stays as it is: .*000000000003") as caught:
        found = chain.compact(keyframe_every=8)
    assert len(caught) == 2  # and 6, which would be a delta to what needs 3
    assert 3 not in [each.step for each in found.rewritten]
    assert_restores(chain, STATES, (0, 1, 2, 6, 7, 8))


@pytest.mark.slow
@pytest.mark.parametrize("ignore", ["", "sync"])
@pytest.mark.parametrize("every", [1, 8])
def test_no_crash_changes_a_state(tmp_path: Path, every: int, ignore: str) -> None:
    states = walk(5, shape=(6, 5))
    chain = Chain(tmp_path / "run", "lossless", keyframe_every=2, newest="exact")
    save_all(chain, states)

    wanted = [*states, states[-1]]

    def check(_: bool, place: Path) -> bool:
        whole = is_so(lambda: assert_same([*history(Chain(place)), Chain(place).restore()], wanted))
        return whole and Chain(place).info().exact

    work = lambda system: compact(DirectoryStore(chain.directory, system), every)  # noqa: E731
    hold(chain.directory, work, check, ignore, above=4)


def test_a_full_disk(tmp_path: Path) -> None:
    chain = run_of(tmp_path)
    before = chain_files(tmp_path)
    for call in ("write", "fsync", "replace"):
        system = Faulty(errno.ENOSPC, lambda name, _, call=call: name == call)
        with pytest.raises(StorageError, match="No space"):
            compact(DirectoryStore(tmp_path, system), 0)
        assert chain_files(tmp_path) == before
    assert chain.compact(keyframe_every=0).rewritten
