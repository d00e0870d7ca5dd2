"""Estimates of a plan: near what the save then does."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lccodec
from lccodec import Policy, Triggered, UniformDeadzone
from lccodec.frame.content import MAX_SHARED_COMPONENTS

from ...support.chains import HistoryChain
from ...support.estimates import check_estimates
from ...support.tuning import tune


@pytest.fixture(autouse=True)
def _small_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays of more than 32,768 components are sampled."""
    tune(monkeypatch, estimate_stretches=32, estimate_stretch_components=1024)


def adam(count: int, size: int = 300_000, seed: int = 0) -> list[dict[str, Any]]:
    """States of Adam on noise, with arrays that are sampled and arrays that are not."""
    rng = np.random.default_rng(seed)
    shapes = {"wide.weight": (size // 100, 100), "middle.weight": (100, 300), "small.bias": (70,)}
    weights = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    first = {name: np.zeros(shape) for name, shape in shapes.items()}
    second = {name: np.zeros(shape) for name, shape in shapes.items()}
    states = []
    for _ in range(count):
        for name, shape in shapes.items():
            gradient = rng.normal(size=shape) * np.exp(
                0.3 * rng.normal(size=(shape[0], *[1] * (len(shape) - 1)))
            )
            first[name] = 0.9 * first[name] + 0.1 * gradient
            second[name] = 0.99 * second[name] + 0.01 * gradient**2
            weights[name] = weights[name] - 1e-3 * first[name] / np.sqrt(second[name] + 1e-8)
        parts = {"model": weights, "exp_avg": first, "exp_avg_sq": second}
        states.append({key: {n: a.astype(np.float32) for n, a in of.items()} for key, of in parts.items()})
    return states


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["balanced", "lossless", "lc-3", "small"])
def test_estimates_of_adam(tmp_path: Path, policy: str) -> None:
    assert check_estimates(tmp_path, adam(4), policy) == {True, False}


def test_arrays_without_a_frame(tmp_path: Path) -> None:
    policy = Policy("calm", {"weight": Triggered(UniformDeadzone(relative_step=1.0), threshold=0.1)})
    rng = np.random.default_rng(0)
    weight = rng.normal(size=20_000).astype(np.float32)
    still = weight[:50].copy()
    with HistoryChain(tmp_path, policy) as chain:
        chain.save(0, {"weight": weight, "same": still, "none": np.zeros((0, 3))})
        plan = chain.plan({"weight": weight + np.float32(1e-3), "same": still, "none": np.zeros((0, 3))})
        assert [array.stored for array in plan] == ["waits", "unchanged", "unchanged"]
        waits, same, none = plan.estimates()
    assert (waits.stored_bytes, waits.error) == (0, pytest.approx(1.0))
    assert (same.stored_bytes, same.error, same.sampled) == (0, 0.0, False)
    assert (none.stored_bytes, none.error) == (0, 0.0)


def test_values_that_are_not_finite_and_complex_numbers(tmp_path: Path) -> None:
    large = np.full(10 * MAX_SHARED_COMPONENTS, 1 + 2j, np.complex64)
    large[:100] = np.nan
    state = {"weight": np.full(100, np.nan, np.float32), "large": large, "empty": np.ones((3, 0))}
    estimates = HistoryChain(tmp_path, "balanced").plan(state).estimates()
    assert [each.error for each in estimates] == [0.0, 0.0, 0.0]
    assert estimates[1].sampled
    assert all(each.stored_bytes > 0 for each in estimates)


def test_nothing_is_written(tmp_path: Path) -> None:
    chain = lccodec.Chain(tmp_path / "run")
    chain.plan({"weight": np.ones(10)}).estimates()
    assert not (tmp_path / "run").exists()
