"""Histories with hindsight: smaller, as good, and exact where they must be."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lccodec
from lccodec import ArgumentError, Chain

from ...support.commands import run, run_json
from ...support.drifting import ROLES, error, run_of
from ...support.paths import checkpoints
from ...support.walks import assert_same, save_all

STEPS = [10 * step for step in range(20)]

STATES = run_of()


def saved(directory: Path, states: list[dict[str, Any]], policy: str = "lossless", **options: Any) -> Chain:
    chain = Chain(directory, policy, newest="history", roles=ROLES, **options)
    for step, state in zip(STEPS, states, strict=False):
        chain.save(step, state, {"loss": state["loss"]})
    return chain


def size(directory: Path) -> int:
    return sum(path.stat().st_size for path in checkpoints(directory).values())


@pytest.mark.slow
def test_it_is_several_times_smaller_and_no_step_is_far_off(tmp_path: Path) -> None:
    with saved(tmp_path / "run", STATES) as chain:
        plain = chain.compact("balanced", directory=tmp_path / "plain")
        found = chain.compact("balanced", hindsight=8, directory=tmp_path / "new")
    assert found.steps == 20
    assert found.before == size(tmp_path / "run")
    assert found.after == size(tmp_path / "new") < 0.75 * plain.after  # a third of which is exact
    moved = np.sqrt(np.mean([error(a["w"], b["w"]) ** 2 for a, b in pairwise(STATES)]))
    with Chain(tmp_path / "new") as new:
        assert new.steps == STEPS
        assert lccodec.validate(new.directory, deep=True) == []
        worst = 0.0
        for step, state in zip(STEPS, STATES, strict=True):
            restored = new.restore(step)
            worst = max(worst, error(restored["w"], state["w"]) / moved)
            assert (restored["v"] > 0).all()
            for name in ("mean", "count", "loss"):
                assert_same(restored[name], state[name])
            assert new.info(step).metadata == {"loss": str(state["loss"])}
            assert {a.name: a.role for a in new.info(step).arrays if a.name in ROLES} == ROLES
        assert worst < 2.2
        kinds = [new.info(step).kind for step in STEPS]
        assert kinds == ["keyframe", *(["interpolated"] * 7 + ["delta"]) * 2, *["interpolated"] * 2, "delta"]
        assert max(new.info(step).deltas for step in STEPS) == 4
        told = [new.info(step).figures["weight"].error_in_movements for step in STEPS[1:]]
        assert max(told) == pytest.approx(worst, rel=0.2)


@pytest.mark.slow
@pytest.mark.parametrize("group", [2, 3, 5, 19, 40])
def test_groups_of_any_length(tmp_path: Path, group: int) -> None:
    states = run_of(20, (20, 30))
    with saved(tmp_path / "run", states) as chain:
        chain.compact("balanced", hindsight=group, directory=tmp_path / "new")
        chain.compact("balanced", hindsight=group, directory=tmp_path / "shallow", keyframe_every=2)
    with Chain(tmp_path / "new") as new:
        ends = [s for s in STEPS if new.info(s).kind != "interpolated"]
        assert ends == sorted({*STEPS[::group], STEPS[-1]})
        assert [new.info(step).kind for step in ends] == ["keyframe", *["delta"] * (len(ends) - 1)]
        assert lccodec.validate(new.directory, deep=True) == []
        assert_same(new.restore(30)["mean"], states[3]["mean"])
    with Chain(tmp_path / "shallow") as new:
        assert max(new.info(step).deltas for step in STEPS) <= 3
        assert lccodec.validate(new.directory, deep=True) == []


@pytest.mark.slow
def test_a_jump_within_a_group_is_coded_where_it_is(tmp_path: Path) -> None:
    states = run_of(17, jump=5)
    with saved(tmp_path / "run", states) as chain:
        chain.compact("balanced", directory=tmp_path / "plain")
        chain.compact("balanced", hindsight=8, directory=tmp_path / "new")
    with Chain(tmp_path / "new") as new, Chain(tmp_path / "plain") as plain:
        for step, state in zip(STEPS, states, strict=False):
            saved_error = error(plain.restore(step)["w"], state["w"])
            assert error(new.restore(step)["w"], state["w"]) < saved_error + 0.04  # the jump is 0.5
        assert checkpoints(new.directory)[40].stat().st_size > 1500


@pytest.mark.slow
def test_arrays_that_come_change_and_go(tmp_path: Path) -> None:
    states = run_of(12, (20, 30))
    for step, state in enumerate(states):
        if step > 3:
            state["lora"] = np.full((30, 30), step, np.float32)
        if step > 6:
            del state["mean"]
            state["w"] = state["w"][:10]
        state["nan"] = np.where(np.arange(400) == step, np.nan, step).astype(np.float32)
    with saved(tmp_path / "run", states) as chain:
        chain.compact("balanced", hindsight=8, directory=tmp_path / "new")
    assert lccodec.validate(tmp_path / "new", deep=True) == []
    with Chain(tmp_path / "new") as new:
        for step, state in zip(STEPS, states, strict=False):
            restored = new.restore(step)
            assert restored.keys() == state.keys()
            for name in set(state) - set(ROLES):
                assert_same(restored[name], state[name])
            assert restored["w"].shape == state["w"].shape


@pytest.mark.slow
def test_a_chain_goes_on_from_its_last_end(tmp_path: Path) -> None:
    with saved(tmp_path / "run", STATES[:12]) as chain:
        chain.compact("balanced", hindsight=8, directory=tmp_path / "new")
    with Chain(tmp_path / "new") as new:
        new.save(STEPS[12], STATES[12])
        assert new.info().parent == STEPS[11]
        new.rollback(50)
        assert new.steps == STEPS[:6]
        assert lccodec.validate(new.directory, deep=True) == []


def test_one_state_and_a_step_of_the_exact_file_alone(tmp_path: Path) -> None:
    with saved(tmp_path / "one", STATES[:1]) as chain:
        assert chain.compact("balanced", hindsight=8, directory=tmp_path / "new").steps == 1
    with Chain(tmp_path / "run", "balanced", newest="exact", roles=ROLES) as chain:
        save_all(chain, STATES, range(3))
        checkpoints(chain.directory)[2].unlink()
        assert chain.steps == [0, 1, 2]
        assert chain.compact(hindsight=8, directory=tmp_path / "two").steps == 3
    with Chain(tmp_path / "two") as new:
        assert new.steps == [0, 1, 2]
        assert error(new.restore(2)["w"], STATES[2]["w"]) < 0.02


def test_what_is_refused(tmp_path: Path) -> None:
    with saved(tmp_path / "run", STATES[:3]) as chain:
        with pytest.raises(ArgumentError, match="'lossless' loses nothing"):
            chain.compact(hindsight=4, directory=tmp_path / "new")  # the recorded policy
        for wrong in (1, -1, 2.5, "8"):
            with pytest.raises(ArgumentError, match="hindsight must be 0 or an integer"):
                chain.compact("balanced", hindsight=wrong, directory=tmp_path / "new")
        with pytest.raises(ArgumentError, match=r"compact\(hindsight=...\) needs directory="):
            chain.compact("balanced", hindsight=8)
        with pytest.raises(ArgumentError, match="does not support dry_run"):
            chain.compact("balanced", hindsight=8, directory=tmp_path / "new", dry_run=True)
        with pytest.raises(ArgumentError, match="is not empty"):
            chain.compact("balanced", hindsight=8, directory=tmp_path / "run")
        path = checkpoints(chain.directory)[10]
        path.write_bytes(path.read_bytes()[:-1])
        with pytest.raises(lccodec.DataError, match=path.name):
            chain.compact("balanced", hindsight=8, directory=tmp_path / "new")
    with pytest.raises(lccodec.ChainError, match="holds no checkpoint"):
        Chain(tmp_path / "none").compact("balanced", hindsight=8, directory=tmp_path / "nothing")


@pytest.mark.slow
def test_the_program(tmp_path: Path) -> None:
    saved(tmp_path / "run", STATES[:10]).close()
    words = ["compact", tmp_path / "run", "--policy", "balanced", "-o"]
    told = run_json(*words, tmp_path / "new", "--hindsight")
    assert (told["steps"], told["after"]) == (10, size(tmp_path / "new"))
    assert set(told["errors"]) >= {"weight", "first_moment", "second_moment"}
    assert "interp" in run("ls", tmp_path / "new")[0]
    run(*words, tmp_path / "other", "--hindsight", "3")
    assert Chain(tmp_path / "other").info(30).kind == "delta"


def test_who_is_told(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    with saved(tmp_path / "run", STATES[:10]) as chain:
        chain.compact(
            "balanced", hindsight=4, directory=tmp_path / "new", progress=lambda *both: told.append(both)
        )
    assert told == [(done, 10) for done in range(1, 11)]


def test_a_rollback_within_a_group_makes_a_row_of_deltas(tmp_path: Path) -> None:
    """Each step that needed a later one becomes a delta to the step before, rewritten or not."""
    with saved(tmp_path / "run", run_of(9, (20, 30))) as chain:
        chain.compact("balanced", hindsight=8, directory=tmp_path / "new")
    with Chain(tmp_path / "new") as new:
        before = {step: new.restore(step) for step in STEPS[:7]}
        assert [new.info(step).kind for step in STEPS[1:7]] == ["interpolated"] * 6
        new.rollback(STEPS[6])
        assert [new.info(step).parents for step in STEPS[1:7]] == [(step,) for step in STEPS[:6]]
        for step, state in before.items():
            assert_same(new.restore(step)["w"], state["w"])


def test_roles_that_were_given_hold_when_a_chain_is_compacted(tmp_path: Path) -> None:
    """Also for `m` and `v`, which at a first save are asked for their values."""
    with saved(tmp_path / "run", STATES[:2]) as chain:
        chain.compact("balanced", directory=tmp_path / "new")
    first = Chain(tmp_path / "new").info(STEPS[0])
    assert {array.name for array in first.arrays if array.lossy} == set(ROLES)
