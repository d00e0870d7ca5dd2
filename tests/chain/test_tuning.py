from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lccodec import ArgumentError
from lccodec.chain.tuning import Trial, tune

from ..support.adam import State, adam_states
from ..support.chains import HistoryChain
from ..support.directories import entries
from ..support.walks import save_all

STATES = adam_states(3)


def off(state: State) -> float:
    """The distance of the weights from the exact ones, over that to the state before."""
    last, before = STATES[-1]["model"]["large"], STATES[-2]["model"]["large"]
    return float(np.linalg.norm(state["model"]["large"] - last) / np.linalg.norm(last - before))


@cache
def tuned(bound: float) -> Trial:
    """What is found for a bound: takes a second."""
    return tune(STATES, off, bound)


@pytest.mark.slow
def test_a_bound_is_kept_and_used() -> None:
    ratios = []
    for bound in (0.15, 0.5):
        best = tuned(bound)
        assert best.loss <= bound
        ratios.append(best.ratio)
    assert 5 < ratios[0] < ratios[1]


@pytest.mark.slow
def test_a_chain_as_well(tmp_path: Path) -> None:
    with HistoryChain(tmp_path, "lossless") as chain:
        save_all(chain, STATES)
        before = entries(tmp_path)
        assert tune(chain, off, 0.5) == tuned(0.5)
        assert entries(tmp_path) == before


@pytest.mark.slow
def test_evaluate_may_change_the_state() -> None:
    def harsh(state: State) -> float:
        value = off(state)
        state["model"]["large"][:] = np.nan
        return value

    assert tune(STATES, harsh, 0.5) == tuned(0.5)


@pytest.mark.slow
def test_what_no_policy_reaches() -> None:
    with pytest.raises(ArgumentError, match=r"no policy loses at most 0; the nearest loses 0\.\d"):
        tune(STATES, off, 0)


@pytest.mark.parametrize(
    ("evaluate", "match"),
    [
        (lambda _: 1 / 0, "evaluate failed: ZeroDivisionError"),
        (lambda _: None, "evaluate failed: TypeError"),
        (lambda _: float("nan"), "evaluate returned nan"),
    ],
)
def test_an_evaluate_that_fails(evaluate: Any, match: str) -> None:
    with pytest.raises(ArgumentError, match=match):
        tune(STATES, evaluate)


@pytest.mark.parametrize(
    ("states", "bound", "match"),
    [
        ([], 1, "at least two states"),
        (STATES[:1], 1, "at least two states"),
        (STATES, -1, "max_loss must be a number of at least 0"),
        (STATES, "1", "max_loss must be a number of at least 0"),
        (7, 1, "states"),
    ],
)
def test_bad_arguments(states: Any, bound: Any, match: str) -> None:
    with pytest.raises(ArgumentError, match=match):
        tune(states, off, bound)


def test_a_bound_is_kept_for_one_array() -> None:
    random = np.random.default_rng(0)
    run = [{"w": w} for w in np.cumsum(random.normal(size=(3, 20_000)), axis=0, dtype=np.float32)]
    best = tune(run, lambda state: float(np.abs(state["w"] - run[-1]["w"]).mean()), max_loss=0.5)
    assert 0 <= best.loss <= 0.5


@pytest.mark.slow
def test_a_bound_in_intervals() -> None:
    """The unit is what `evaluate` falls by: for `off`, about 1 for each state that is missing."""
    fall = (off(STATES[0]) - off(STATES[-1])) / (len(STATES) - 1)
    assert tune(STATES, off, intervals=0.5 / fall) == tuned(0.5)
    with pytest.raises(ArgumentError, match="evaluate must fall over the states"):
        tune(STATES, lambda state: -off(state), intervals=0.5)
    with pytest.raises(ArgumentError, match="intervals must be a number of at least 0"):
        tune(STATES, off, intervals=-1)
