"""Arguments of a chain and of `tune` that are refused before anything is read or written."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lccodec
from lccodec import ArgumentError
from lccodec.chain.tuning import tune


@pytest.fixture
def chain(tmp_path: Path) -> lccodec.Chain:
    found = lccodec.Chain(tmp_path / "chain")
    found.save(0, {"a": np.zeros(3, np.float32)})
    return found


@pytest.mark.parametrize("every", [-1, 1.5, "10", True])
def test_keyframe_every_is_a_count(tmp_path: Path, every: Any) -> None:
    with pytest.raises(ArgumentError, match="keyframe_every must be a non-negative integer"):
        lccodec.Chain(tmp_path, keyframe_every=every)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"keys": 3}, "keys must be names of leaves or containers"),
        ({"keys": ["a", 3]}, "a name must be a string; got 3"),
        ({"dtype": "float64"}, "dtype must be 'float32' or 'bits'"),
    ],
)
def test_what_is_restored_is_named(chain: lccodec.Chain, arguments: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        chain.restore(**arguments)


def test_a_closed_checkpoint_is_refused(chain: lccodec.Chain) -> None:
    (path,) = chain.directory.glob("*.lcc.h5")
    with lccodec.open(path) as file:
        assert file.get("a").shape == (3,)
    with pytest.raises(ArgumentError, match="closed"):
        file.get("a")


def zero(_: object) -> float:
    return 0.0


def fails(_: object) -> float:
    raise RuntimeError("no device")


@pytest.mark.parametrize(
    ("states", "evaluate", "max_loss", "message"),
    [
        (2, zero, -1.0, "max_loss must be a number of at least 0"),
        (2, zero, "little", "max_loss must be a number of at least 0"),
        (1, zero, 1.0, "tune needs at least two states"),
        (2, fails, 1.0, "evaluate failed: RuntimeError: no device"),
        (2, lambda _: float("nan"), 1.0, "evaluate returned nan"),
    ],
)
def test_what_tune_refuses(
    states: int, evaluate: Callable[[object], float], max_loss: Any, message: str
) -> None:
    run = [{"w": np.full(300, step, np.float32)} for step in range(states)]
    with pytest.raises(ArgumentError, match=message):
        tune(run, evaluate, max_loss=max_loss)


def test_tune_keeps_to_its_bound() -> None:
    random = np.random.default_rng(0)
    run = [{"w": w} for w in np.cumsum(random.normal(size=(3, 20_000)), axis=0, dtype=np.float32)]

    def evaluate(state: Any) -> float:
        return float(np.abs(state["w"] - run[-1]["w"]).mean())

    best = tune(run, evaluate, max_loss=0.5)
    assert 0 <= best.loss <= 0.5
    assert best.ratio > 1
