"""The figures of a report are the run's: beside the states themselves, whatever a policy loses."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest

import lccodec
from lccodec.inspect.examination import examine
from lccodec.inspect.report import Run

from ..support.digits import adam_digits
from ..support.runs import arrays_of

COUNT = 12
LOSSY = ("balanced", "small", "lc-2", "lc-3")


def rms(array: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(array, dtype=np.float64))))


def examined(directory: Path, policy: str, **options: int) -> tuple[lccodec.Chain, Run]:
    """The report of a network that learns, with a keyframe every four steps."""
    with lccodec.Chain(directory, policy, keyframe_every=3, **options) as chain:
        for step, state in enumerate(adam_digits(COUNT)):
            chain.save(step, state)
    (run,) = examine(directory).runs
    return chain, run


def truth(index: int, run: Run) -> list[dict[str, float]]:
    """What an array did, by the states: a table of each step."""
    name = run.arrays[index].name
    arrays = [arrays_of(state)[name].astype(np.float64) for state in adam_digits(COUNT)]
    found = [{"rms": rms(x), "zeros": float(np.mean(x == 0))} for x in arrays]
    for figures, (before, x) in zip(found[1:], pairwise(arrays), strict=True):
        figures["movement"] = rms(x - before) / rms(before)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("policy", LOSSY)
def test_what_moved_and_what_was_lost(tmp_path: Path, policy: str) -> None:
    chain, run = examined(tmp_path, policy)
    states = [arrays_of(state) for state in adam_digits(COUNT)]
    restored = [arrays_of(chain.restore(step, exact=False)) for step in run.steps]
    for index, row in enumerate(run.arrays):
        own = {name: rows[index] for name, rows in run.figures.items()}
        for step, true in enumerate(truth(index, run)):
            x = states[step][row.name].astype(np.float64)
            assert own["rms"][step] == pytest.approx(true["rms"], rel=0.1)
            assert own["zeros"][step] == pytest.approx(true["zeros"], abs=0.02)
            assert own["minimum"][step] == pytest.approx(x.min(), rel=2**-8)
            assert own["maximum"][step] == pytest.approx(x.max(), rel=2**-8)
            assert own["not_finite"][step] == 0
            if not step:
                assert own["movement"][step] is own["error"][step] is own["lag"][step] is None
                continue
            assert own["movement"][step] == pytest.approx(true["movement"], rel=0.1)
            moved = x - states[step - 1][row.name]
            error = restored[step][row.name] - x
            intervals = rms(error) / rms(moved)
            assert own["error"][step] == pytest.approx(intervals, rel=0.1)
            lag = -float(np.sum(error * moved) / np.sum(moved * moved))  # at most `intervals`
            # Of a sample, whose products spread as the error does.
            share = 0.1 if row.role == "second_moment" else 0.05
            assert own["lag"][step] == pytest.approx(lag, abs=share * max(intervals, 1))


@pytest.mark.slow
@pytest.mark.parametrize("policy", LOSSY)
def test_layers_have_the_order_in_which_they_move(tmp_path: Path, policy: str) -> None:
    _, run = examined(tmp_path, policy)
    found = [fmean(filter(None, series)) for series in run.figures["movement"]]
    true = [fmean(f["movement"] for f in truth(i, run)[1:]) for i in range(len(run.arrays))]
    ranks = [np.argsort(np.argsort(values)) for values in (found, true)]
    assert np.corrcoef(*ranks)[0, 1] >= 0.98


@pytest.mark.slow
@pytest.mark.parametrize("policy", LOSSY)
def test_a_keyframe_is_no_event(tmp_path: Path, policy: str) -> None:
    """No figure jumps by more than a fifth where the run's does not."""
    _, run = examined(tmp_path, policy)
    keyframes = [each.step for each in run.checkpoints if each.kind == "keyframe"][1:]
    assert keyframes
    for index, row in enumerate(run.arrays):
        true = truth(index, run)
        for name in ("movement", "rms"):
            own = run.figures[name][index]
            for step in [step for step in keyframes if step is not None]:
                jumps = [after / before for before, after in ((own[step - 1] or 1, own[step] or 1),)]
                real = true[step][name] / true[step - 1].get(name, true[step][name])
                assert jumps[0] == pytest.approx(real, rel=0.2), (row.name, step, name)
        assert max(run.figures["zeros"][index]) <= max(f["zeros"] for f in true) + 0.02


@pytest.mark.slow
def test_a_history_with_hindsight(tmp_path: Path) -> None:
    chain, run = examined(tmp_path, "balanced", hindsight=4)
    assert "interpolated" in {each.kind for each in run.checkpoints}
    for index, series in enumerate(run.figures["movement"]):
        for step, true in list(enumerate(truth(index, run)))[1:]:
            assert series[step] == pytest.approx(true["movement"], rel=0.1)
    assert chain.steps == run.steps
