"""Both means of a centered optimizer: what is left of their difference stays positive."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lccodec
from lccodec import POLICIES

SIZE = 3_000
LOSSY = [name for name, policy in POLICIES.items() if policy.lossy]


def state(step: int) -> dict[str, Any]:
    """A weight with means of which a tenth of the gradients hardly changes."""
    rng = np.random.default_rng(step)
    scale = np.exp(np.random.default_rng(100).normal(size=SIZE))
    mean = scale * np.where(np.arange(SIZE) < SIZE // 10, 1.0, 0.1 * rng.normal(size=SIZE))
    square = mean**2 + scale**2 * np.where(np.arange(SIZE) < SIZE // 10, 1e-4, rng.uniform(0.5, 1.5, SIZE))
    square[-5:] = mean[-5:] = 0.0
    entries = {"square_avg": square, "grad_avg": mean}
    arrays = {name: array.astype(np.float32) for name, array in entries.items()}
    weight = (np.random.default_rng(0).normal(size=SIZE) + 1e-3 * step * scale).astype(np.float32)
    return {"model": {"weight": weight}, "rmsprop": {"state": {"0": arrays}}}


def spread(found: dict[str, Any]) -> np.ndarray:
    own = found["rmsprop"]["state"]["0"]
    return own["square_avg"].astype(float) - own["grad_avg"].astype(float) ** 2


@pytest.mark.parametrize("policy", LOSSY)
def test_the_difference_stays_positive_and_near(tmp_path: Path, policy: str) -> None:
    chain = lccodec.Chain(tmp_path, policy, newest="history")
    plans = [chain.plan(state(step)) for step in range(4) if chain.save(step, state(step))]
    roles = {array.name.rpartition("/")[2]: array.role for array in plans[0]}
    assert (roles["square_avg"], roles["grad_avg"]) == ("second_moment", "first_moment")
    bound = max(lccodec.LogSteps(2.0).max_ratio, 1)
    for step in range(4):
        found, wanted = spread(chain.restore(step)), spread(state(step))
        some = wanted > 0
        assert (found[~some] == 0).all()
        assert (found[some] > 0).all()
        assert np.abs(np.log2(found[some] / wanted[some])).max() <= np.log2(bound) + 0.01


def test_what_is_nearly_the_same_at_every_step_stays_exact(tmp_path: Path) -> None:
    chain = lccodec.Chain(tmp_path, newest="history")
    for step in range(2):
        chain.save(step, state(step))
    found, wanted = (each["rmsprop"]["state"]["0"] for each in (chain.restore(1), state(1)))
    for name, array in wanted.items():
        assert np.array_equal(found[name][: SIZE // 10], array[: SIZE // 10])
    assert not found["grad_avg"][SIZE // 10 :].any()


def test_the_newest_state_is_exact_and_groups_stay_positive(tmp_path: Path) -> None:
    with lccodec.Chain(tmp_path, hindsight=3) as chain:
        for step in range(7):
            chain.save(step, state(step))
    chain = lccodec.Chain(tmp_path)
    assert np.array_equal(spread(chain.restore()), spread(state(6)))
    for step in range(7):
        assert (spread(chain.restore(step, exact=False)) >= 0).all()
    assert any(chain.info(step).kind == "interpolated" for step in chain.steps)


def swinging(step: int) -> dict[str, Any]:
    """Means that are small at a quarter of the elements: at each step others are not exact."""
    large = np.arange(SIZE) % 4 != step % 4
    mean = np.where(large, 1.0, 0.1) * np.random.default_rng(step).uniform(0.8, 1.2, SIZE)
    square = np.where(large, 1.02, 4) * mean**2
    arrays = {"square_avg": square.astype(np.float32), "grad_avg": mean.astype(np.float32)}
    return {**state(step), "rmsprop": {"state": {"0": arrays}}}


def test_between_two_ends_both_are_coded_together(tmp_path: Path) -> None:
    with lccodec.Chain(tmp_path, hindsight=3) as chain:
        for step in range(4):
            chain.save(step, swinging(step))
    assert chain.info(2).kind == "interpolated"
    assert all((spread(chain.restore(step, exact=False)) > 0).all() for step in range(4))


def test_without_its_square_the_mean_is_a_moment_like_others(tmp_path: Path) -> None:
    chain = lccodec.Chain(tmp_path, roles={"*grad_avg": "first_moment", "*square_avg": "other"})
    chain.save(0, state(0))
    assert "CenteredMean" not in str([array.quantizer for array in chain.plan(state(1))])


def test_if_one_of_both_is_exact_so_is_the_other(tmp_path: Path) -> None:
    policy = lccodec.Policy("mine", {"second_moment": lccodec.LogSteps(1.0)})
    chain = lccodec.Chain(tmp_path, policy, newest="history")
    for step in range(2):
        chain.save(step, state(step))
    assert np.array_equal(spread(chain.restore()), spread(state(1)))
