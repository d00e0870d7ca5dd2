"""A history in groups: which saves are ends, and what a run keeps of the others."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lccodec
from lccodec import ArgumentError, Chain, Keep, LccodecWarning
from lccodec.chain.save.hindsight.groups import Groups
from lccodec.chain.store.directory import DirectoryStore
from lccodec.policy.presets import POLICIES

from ....support.drifting import ROLES, error, run_of
from ....support.paths import checkpoints
from ....support.walks import assert_same

STATES = run_of(26)


def opened(directory: Path, size: int = 4, **options: Any) -> Chain:
    return Chain(directory, "balanced", roles=ROLES, hindsight=size, **options)


def kinds(chain: Chain) -> str:
    return "".join(chain.info(step).kind[0] for step in chain.steps)


def size(directory: Path) -> int:
    return sum(path.stat().st_size for path in checkpoints(directory).values())


@pytest.mark.slow
def test_a_history_in_groups(tmp_path: Path) -> None:
    with Chain(tmp_path / "plain", "balanced", roles=ROLES) as plain:
        for step, state in enumerate(STATES):
            plain.save(step, state)
    with opened(tmp_path / "run", 8) as chain:
        for step, state in enumerate(STATES):
            chain.save(step, state)
            assert_same(chain.restore(), state)  # the newest is exact
            assert lccodec.validate(chain.directory) == []
    assert kinds(chain) == "kiiiiiiidiiiiiiidiiiiiiidd"
    assert [chain.info(step).parents for step in (3, 8, 9, 25)] == [(0, 8), (0,), (8, 16), (24,)]
    assert lccodec.validate(chain.directory, deep=True) == []
    assert size(chain.directory) < 0.75 * size(plain.directory)  # a third of that is exact
    moved = np.sqrt(np.mean([error(a["w"], b["w"]) ** 2 for a, b in pairwise(STATES)]))
    for step, state in enumerate(STATES):
        restored = chain.restore(step, exact=False)
        assert error(restored["w"], state["w"]) < 2 * moved
        assert (restored["v"] > 0).all()
        for name in ("mean", "count", "loss"):
            np.testing.assert_array_equal(restored[name], state[name])


@pytest.mark.parametrize(
    ("ends", "between", "shape"), [("f8", "f4", (2, 600)), ("f4", "f2", (2, 600)), ("f4", "f4", (1200,))]
)
def test_an_array_has_another_form_at_the_save_before_an_end(
    tmp_path: Path, ends: str, between: str, shape: tuple[int, ...]
) -> None:
    """Its movement since that save is not known, though the end before has its form."""
    with opened(tmp_path) as chain:
        for step, form in enumerate([ends, *[between] * 3, ends]):
            values = np.linspace(1, 2 + step, 1200).astype(form)
            other = values.reshape((2, 600) if step in (0, 4) else shape)
            chain.save(step, {**STATES[step], "other": other})
        assert chain.info(4).parents == (0,)
        moved = {array.name: array.figures.movement for array in chain.info(4).arrays}
    assert moved["other"] is None
    assert moved["w"] is not None


@pytest.mark.slow
def test_what_is_told_is_measured(tmp_path: Path) -> None:
    """Errors of settled steps are those that they have now, and their lag is not known."""
    with opened(tmp_path, 8) as chain:
        for step, state in enumerate(STATES[:9]):
            chain.save(step, state)
    for step in range(1, 8):
        restored, figures = chain.restore(step), chain.info(step).figures
        for name, role in ROLES.items():
            told = figures[role].error
            assert told == pytest.approx(error(restored[name], STATES[step][name]), rel=0.15)
        assert figures["weight"].lag is None
        assert chain.info(step).lossy


@pytest.mark.slow
@pytest.mark.parametrize("every", [0, 3, 8, 13])
def test_a_restore_replays_as_many_deltas_as_it_may(tmp_path: Path, every: int) -> None:
    with opened(tmp_path, keyframe_every=every) as chain:
        for step, state in enumerate(STATES):
            chain.save(step, state)
            assert max(chain.info(step).deltas for step in chain.steps) <= every + 1
    assert lccodec.validate(tmp_path, deep=True) == []
    assert kinds(chain).count("i") >= (0 if every == 0 else 15)
    for step in chain.steps:  # no keyframe is in a group
        parents = chain.info(step).parents
        if len(parents) == 2:
            assert all(chain.info(s).kind != "keyframe" for s in range(parents[0] + 1, parents[1]))


@pytest.mark.slow
def test_a_process_goes_on_where_another_one_ended(tmp_path: Path) -> None:
    """The first save begins a group; what was complete before is settled."""
    chain = opened(tmp_path)
    for step in range(6):
        chain.save(step, STATES[step])
    with pytest.raises(KeyboardInterrupt), chain:
        raise KeyboardInterrupt
    with opened(tmp_path) as chain:
        for step in range(6, 12):
            chain.save(step, STATES[step])
            assert_same(chain.restore(), STATES[step])
    assert kinds(chain) == "kiiid" + "dd" + "iiid" + "d"
    assert chain.info(10).parent == 6
    assert lccodec.validate(tmp_path, deep=True) == []


def test_what_was_not_settled_is_settled_by_the_next_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lccodec.chain.save.hindsight.groups._SHARE", -1.0)
    chain = opened(tmp_path)
    for step in range(6):
        chain.save(step, STATES[step])
    with pytest.raises(KeyboardInterrupt), chain:
        raise KeyboardInterrupt
    assert kinds(chain) == "kddddd"
    assert chain.info(4).parent == 0
    with opened(tmp_path) as chain:
        chain.save(6, STATES[6])
    assert kinds(chain) == "kiiiddd"
    with opened(tmp_path) as chain:  # one that saves nothing changes nothing
        before = size(tmp_path)
    assert size(tmp_path) == before


@pytest.mark.slow  # processes
def test_workers_write_the_same_files(tmp_path: Path) -> None:
    with opened(tmp_path / "here") as chain:
        for step, state in enumerate(STATES):
            chain.save(step, state)
    with opened(tmp_path / "there", workers=2) as other:
        for step, state in enumerate(STATES):
            other.save_async(step, state)
    assert kinds(chain) == kinds(other)
    for (_, one), (_, another) in zip(
        checkpoints(chain.directory).items(), checkpoints(other.directory).items(), strict=True
    ):
        assert one.read_bytes() == another.read_bytes()


@pytest.mark.slow
def test_a_chain_that_is_rolled_back_goes_on(tmp_path: Path) -> None:
    with opened(tmp_path) as chain:
        for step in range(11):
            chain.save(step, STATES[step])
        before = {step: chain.restore(step, exact=False) for step in range(11)}
        chain.rollback(6)
        for step in range(7):
            assert_same(chain.restore(step, exact=False), before[step])
        for step in range(7, 14):
            chain.save(step, STATES[step])
    assert lccodec.validate(tmp_path, deep=True) == []
    assert chain.info(11).parent == 7
    assert kinds(chain)[7:] == "diiidd" + "d"


@pytest.mark.slow
def test_steps_within_a_group_can_be_pruned(tmp_path: Path) -> None:
    with opened(tmp_path, keep=Keep(every=2, latest=5)) as chain:
        for step, state in enumerate(STATES):
            chain.save(step, state)
    with opened(tmp_path, keep=Keep(every=2, latest=5)) as chain:
        chain.prune(Keep(every=2, latest=5))
    assert chain.steps == [*range(0, 20, 2), *range(20, 26)]
    assert lccodec.validate(tmp_path, deep=True) == []


def test_a_save_that_fails_costs_no_other(tmp_path: Path) -> None:
    """The end that a save was to be coded against is gone with the save: a group begins anew."""
    with opened(tmp_path) as chain:
        for step in range(4):
            chain.save(step, STATES[step])
        with pytest.raises(ArgumentError):
            chain.save(4, {**STATES[4], "w": np.array(["text"])})
        for step in range(4, 9):
            chain.save(step, STATES[step])
    assert kinds(chain) == "kiiidiiid"


@pytest.mark.slow
def test_exact_files_that_are_written_now_and_then(tmp_path: Path) -> None:
    with opened(tmp_path, exact_every=3) as chain:
        for step in range(12):
            chain.save(step, STATES[step])
            exact = chain.exact_step
            assert exact is not None
            assert_same(chain.restore(exact), STATES[exact])
    assert lccodec.validate(tmp_path, deep=True) == []


def test_no_error_of_settling_is_one_of_the_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise KeyError("a defect")

    monkeypatch.setattr("lccodec.chain.save.hindsight.groups.settle", broken)
    with pytest.warns(LccodecWarning, match="stays larger .* 'a defect'"), opened(tmp_path) as chain:
        for step in range(9):
            chain.save(step, STATES[step])
    assert kinds(chain) == "kdddddddd"
    assert lccodec.validate(tmp_path, deep=True) == []


@pytest.mark.slow
def test_a_worker_that_is_given_up_stops_settling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Groups, "_settle", lambda *_: None)
        with opened(tmp_path) as chain:
            for step in range(9):
                chain.save(step, STATES[step])
    assert kinds(chain) == "kdddddddd"

    def gone() -> None:
        raise InterruptedError("the client is gone")

    groups = Groups(DirectoryStore(tmp_path), 4, 32)
    groups.base(None, POLICIES["balanced"])  # looks for what is not settled
    with pytest.raises(InterruptedError):
        groups.settle(60, gone)
    groups.settle_rest()
    assert kinds(chain) == "kiiidiiid"


def test_the_plan_says_what_becomes_of_a_step(tmp_path: Path) -> None:
    with opened(tmp_path, 3) as chain:
        found = []
        for step in range(5):
            found.append(chain.plan(STATES[step]).group)
            chain.save(step, STATES[step])
    again = "It is coded again from both when the later end is there."
    assert found == [
        "It begins a group.",
        f"It is number 1 of 2 between two ends, after step 0. {again}",
        f"It is number 2 of 2 between two ends, after step 0. {again}",
        "It ends a group: 2 steps between step 0 and this one are coded again from both, in the background.",
        f"It is number 1 of 2 between two ends, after step 3. {again}",
    ]
    with Chain(tmp_path / "plain", "balanced", roles=ROLES) as plain:
        assert plain.plan(STATES[0]).group is None


def test_damage_is_no_end(tmp_path: Path) -> None:
    """What cannot be settled stays, and a warning says so."""
    chain = opened(tmp_path)
    for step in range(4):
        chain.save(step, STATES[step])
    path = checkpoints(tmp_path)[2]
    data = bytearray(path.read_bytes())
    data[300] ^= 1
    with pytest.warns(LccodecWarning, match="stays larger than it could be"):
        path.write_bytes(data)
        chain.save(4, STATES[4])
        chain.close()
    assert_same(chain.restore(), STATES[4])
    assert error(chain.restore(1)["w"], STATES[1]["w"]) < 0.02


@pytest.mark.parametrize("hindsight", [1, -1, True, 2.5, "8"])
def test_what_is_no_size(tmp_path: Path, hindsight: Any) -> None:
    with pytest.raises(ArgumentError, match="hindsight must be 0 or an integer of at least 2"):
        Chain(tmp_path, hindsight=hindsight)


def test_what_groups_need(tmp_path: Path) -> None:
    with Chain(tmp_path / "a", "lossless", hindsight=8) as chain:
        with pytest.raises(ArgumentError, match="'lossless' loses nothing"):
            chain.save(0, STATES[0])
        assert chain.steps == []
    with (
        Chain(tmp_path / "b", "balanced", newest="history", hindsight=8) as chain,
        pytest.raises(ArgumentError, match="newest='exact'"),
    ):
        chain.save(0, STATES[0])


@pytest.mark.parametrize("workers", [None, pytest.param(1, marks=pytest.mark.slow)])
def test_a_plan_says_what_the_save_does(tmp_path: Path, workers: int | None) -> None:
    with opened(tmp_path, keyframe_every=9, workers=workers) as chain:
        for step, state in enumerate(STATES[:14]):
            plan = chain.plan(state)
            told = sum(each.stored_bytes for each in plan.estimates())
            assert told == pytest.approx(chain.save(step, state), abs=1500)
            assert chain.info(step).parent == plan.parent
            assert chain.info(step).kind == ("keyframe" if plan.parent is None else "delta")
