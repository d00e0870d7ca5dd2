"""Feedback from a loss: steps follow the promise, it is asked rarely, and nothing is changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lccodec
from lccodec.chain.save import judge as judging
from lccodec.element_types import Array
from lccodec.policy.record import read_record

SIZE = 5_000
SAVES = 14


class Valley:
    """A random walk with a drift, and a loss that falls with the drift and rises with an error."""

    def __init__(self, curvature: float) -> None:
        self.rng = np.random.default_rng(0)
        self.w = self.rng.standard_normal(SIZE).astype(np.float32)
        self.walked: list[Array] = []  # all weights that a state had
        self.curvature, self.asked = curvature, 0

    def state(self, step: int) -> dict[str, Any]:
        self.w = self.w + self.rng.standard_normal(SIZE).astype(np.float32) * np.float32(0.01)
        self.walked.append(self.w)
        moments = {name: self.rng.random(SIZE, np.float32) for name in ("exp_avg", "exp_avg_sq")}
        return {"model": {"weight": self.w}, "optimizer": {"state": {"0": {"step": step, **moments}}}}

    def loss(self, state: Any) -> float:
        self.asked += 1
        w = state["model"]["weight"]
        # The drift of the run is its step: each state is one of the walk, or near to one.
        errors = [float(np.mean(np.square(w - walked))) for walked in self.walked]
        nearest = int(np.argmin(errors))
        return -0.01 * nearest + self.curvature * errors[nearest]


def saved(directory: Path, valley: Valley, loss: Callable[[Any], Any], **options: Any) -> lccodec.Chain:
    policy = lccodec.Balanced(intervals=0.2, loss=loss)
    with lccodec.Chain(directory, policy, newest="history", **options) as chain:
        for step in range(SAVES):
            chain.save(step, valley.state(step))
    return chain


def widths(chain: lccodec.Chain) -> list[float]:
    policies = [read_record(chain.info(step).policy).policy for step in chain.steps]
    return [policy.width for policy in policies if isinstance(policy, lccodec.Balanced)]


@pytest.mark.slow
@pytest.mark.parametrize("workers", [None, 1])
def test_steps_follow_the_valley(tmp_path: Path, workers: int | None) -> None:
    """In a wide valley they become wider, in a narrow one narrower."""
    files = {}
    for name, curvature in (("wide", 0.0), ("narrow", 1e5)):
        valley = Valley(curvature)
        chain = saved(tmp_path / name, valley, valley.loss, workers=workers)
        files[name] = chain.info(SAVES - 1).file_bytes, widths(chain)
    assert files["wide"][0] < 0.85 * files["narrow"][0]
    assert files["wide"][1][-1] > 1.2
    assert files["narrow"][1][-1] < 0.5


@pytest.mark.slow
def test_a_resumed_chain_keeps_its_width(tmp_path: Path) -> None:
    valley = Valley(0.0)
    chain = saved(tmp_path, valley, valley.loss)
    last = widths(chain)[-1]
    with lccodec.Chain(tmp_path) as chain:  # without a loss, too
        chain.save(SAVES, valley.state(SAVES))
        assert widths(chain)[-1] == last
    with lccodec.Chain(tmp_path, lccodec.Balanced(intervals=0.2, loss=valley.loss)) as chain:
        chain.save(SAVES + 1, valley.state(SAVES + 1))
        assert widths(chain)[-1] == last


@pytest.mark.slow
def test_the_loss_is_asked_at_a_few_saves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Later on it takes at most a hundredth of the time: a slow one is not called again."""
    now = [0.0]
    monkeypatch.setattr(judging.time, "monotonic", lambda: now[0])
    valley, times = Valley(0.0), []

    def loss(state: Any) -> float:
        now[0] += 1.0
        times.append(now[0])
        return valley.loss(state)

    policy = lccodec.Balanced(intervals=0.2, loss=loss)
    with lccodec.Chain(tmp_path, policy, newest="history") as chain:
        for step in range(80):
            now[0] += 10.0
            chain.save(step, valley.state(step))
        first = len(times)
        assert 10 <= first <= 20
        for step in range(80, 400, 8):
            now[0] += 80.0
            chain.save(step, valley.state(step))
    assert first < len(times) <= 0.01 * now[0] + 2


def test_a_loss_that_loads_what_it_is_given_leaves_the_run_as_it_was(tmp_path: Path) -> None:
    """Its model has the arrays of the state that is saved: the last that it loads is exact."""
    valley = Valley(0.0)
    model = np.empty(SIZE, np.float32)

    def loss(state: Any) -> float:
        model[:] = state["model"]["weight"]
        return valley.loss({"model": {"weight": model.copy()}})

    policy = lccodec.Balanced(intervals=0.2, loss=loss)
    with lccodec.Chain(tmp_path, policy, newest="history") as chain:
        for step in range(8):
            state = valley.state(step)
            model[:] = state["model"]["weight"]
            state["model"]["weight"] = model
            before = model.tobytes()
            chain.save(step, state)
            assert model.tobytes() == before
    assert widths(chain)[-1] > 1


@pytest.mark.parametrize("broken", [ValueError("no data"), KeyError("model"), MemoryError()])
def test_a_loss_that_fails_costs_no_save(tmp_path: Path, broken: Exception) -> None:
    calls = []

    def loss(state: Any) -> float:
        calls.append(state)
        raise broken

    with pytest.warns(lccodec.LccodecWarning, match="loss= raised an error and is not called again"):
        chain = saved(tmp_path, Valley(0.0), loss)
    assert chain.steps == list(range(SAVES))
    assert len(calls) <= 2


@pytest.mark.slow
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_says_nothing(tmp_path: Path, value: float) -> None:
    chain = saved(tmp_path, Valley(0.0), lambda _: value)
    assert widths(chain) == [1.0] * SAVES


@pytest.mark.slow
def test_a_rollback_begins_anew(tmp_path: Path) -> None:
    valley = Valley(0.0)
    policy = lccodec.Balanced(intervals=0.2, loss=valley.loss)
    with lccodec.Chain(tmp_path, policy, newest="history") as chain:
        for step in range(6):
            chain.save(step, valley.state(step))
        chain.rollback(2)
        for step in range(3, 8):
            chain.save(step, valley.state(step))
        assert chain.steps == list(range(8))


def test_what_a_policy_takes() -> None:
    with pytest.raises(lccodec.ArgumentError, match="loss= needs intervals="):
        lccodec.Balanced(loss=lambda _: 0.0)
    with pytest.raises(lccodec.ArgumentError, match="loss must be a function"):
        lccodec.Balanced(intervals=0.1, loss=0.5)  # type: ignore[arg-type]
    with pytest.raises(lccodec.ArgumentError, match="at most one of ratio, max_bytes, error, intervals"):
        lccodec.Balanced(intervals=0.1, ratio=50)
    policy = lccodec.Balanced(intervals=0.1, loss=lambda _: 0.0, width=1.5)
    again = lccodec.Balanced.from_json(policy.to_json())
    assert again == policy
    assert (again.loss, again.width) == (None, 1.5)


def test_a_jump_of_the_movement_is_judged_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "_FIRST_SAVES", (1, 2))
    monkeypatch.setattr(judging, "_SHARE_OF_TIME", 0.0)
    monkeypatch.setattr(judging, "_SHARE_OF_TIME_IN_JUMPS", 1.0)
    valley, asked = Valley(0.0), []
    policy = lccodec.Balanced(intervals=0.2, loss=valley.loss)
    with lccodec.Chain(tmp_path, policy, newest="history") as chain:
        for step in range(9):
            before, w = valley.asked, valley.w
            state = valley.state(step)
            if step >= 5:  # the rate begins anew
                state["model"]["weight"] = valley.w = w + 10 * (valley.w - w)
            chain.save(step, state)
            asked.append(valley.asked > before)
    assert [step for step, found in enumerate(asked) if found] == [0, 1, 6]
