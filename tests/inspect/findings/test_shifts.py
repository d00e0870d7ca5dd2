"""What most arrays do at once is found at its step, but no noise, slow course or single array."""

import numpy as np
import pytest

from lccodec.inspect.findings import shift_flags, shifts
from lccodec.inspect.report import ArrayRow

STEPS = list(range(0, 400, 10))
FIGURES = {"second_moment": "rms", "weight": "movement"}


def found(series, role="second_moment", steps=STEPS, saved=None):
    rows = [ArrayRow(f"a{i}", role, "", "float32", (9,), 9, "", 0, 0) for i in range(len(series))]
    unknown = [[None] * len(steps)] * len(rows)
    figures = {"rms": unknown, "movement": unknown} | {FIGURES[role]: series}
    return [
        (flag.severity, flag.kind, flag.array, flag.step)
        for flag in shift_flags(shifts(rows, steps, figures, saved or steps), steps)
    ]


def noisy(seed=0, arrays=6, noise=0.05):
    rng = np.random.default_rng(seed)
    course = np.exp(-np.arange(len(STEPS)) / 30) + 0.2
    scales = rng.lognormal(0, 3, (arrays, 1))
    return scales * course * np.exp(noise * rng.standard_normal((arrays, len(STEPS))))


@pytest.mark.parametrize("role", FIGURES)
def test_a_shift_is_found_at_its_step(role):
    series = noisy()
    series[:, 20:] *= 2
    assert found(series.tolist(), role) == [("warning", "shifting", None, 200)]


@pytest.mark.parametrize("noise", [0.01, 0.1, 0.3])
def test_noise_is_no_shift(noise):
    assert sum(bool(found(noisy(seed, noise=noise).tolist())) for seed in range(50)) <= 1


def test_what_grows_slowly_is_no_shift():
    growing = [[scale * 1.3**i for i in range(len(STEPS))] for scale in (1, 2, 3)]
    assert found(growing) == []


def test_single_arrays_and_short_runs_are_no_shift():
    series = noisy()
    series[:2, 20:] *= 9
    assert found(series.tolist()) == []
    two = noisy(arrays=2)
    two[:, 20:] *= 9
    assert found(two.tolist()) == []
    early = noisy()
    early[:, 3:] *= 9
    assert found(early.tolist()) == []


def test_falling_is_no_shift():
    series = noisy()
    series[:, 20:] /= 5
    assert found(series.tolist()) == []


def test_movements_of_other_intervals_are_not_compared():
    series = noisy()
    series[:, -1] *= 3
    saved = [*STEPS[:-1], STEPS[-1] + 20]
    assert found(series.tolist(), "weight", steps=saved) == []
    assert found(series.tolist(), "weight") == [("warning", "shifting", None, 390)]


def test_unknown_and_zero_figures_are_left_out():
    series = noisy().tolist()
    for row in series[:3]:
        row[::2] = [None] * len(row[::2])
    series[3] = [0.0] * len(STEPS)
    assert found(series) == []
    assert found([]) == []
    assert found([[None] * len(STEPS)] * 4) == []


def said(series, role="weight"):
    rows = [ArrayRow(f"a{i}", role, "", "float32", (9,), 9, "", 0, 0) for i in range(len(series))]
    unknown = [[None] * len(STEPS)] * len(rows)
    figures = {"rms": unknown, "movement": unknown} | {FIGURES[role]: series}
    (flag,) = shift_flags(shifts(rows, STEPS, figures, STEPS), STEPS)
    return flag


def test_a_shift_says_how_many_arrays_and_how_far():
    series = noisy(noise=0.001)
    series[:, 20:] *= 20
    flag = said(series.tolist())
    assert flag.sentence == (
        "All 6 weights move farther at once, typically 19 times as far, as when the learning rate changes."
    )
    assert (flag.since, flag.step, flag.arrays) == (190, 200, [f"a{i}" for i in range(6)])
    series[0, 20:] /= 20
    assert said(series.tolist()).sentence.startswith(
        "5 of 6 weights move farther at once, typically 19 times as far."
    )
    assert said(series.tolist(), "second_moment").sentence.startswith(
        "Gradients grow: 5 of 6 second moments rise"
    )
