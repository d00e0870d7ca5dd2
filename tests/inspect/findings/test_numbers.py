"""Numbers beside the arrays: what jumps or is lost is flagged, noise and schedules are not."""

import math

import numpy as np
import pytest

from lccodec.inspect.findings import calmed, number_flags
from lccodec.inspect.report import Flag


def jumps(values, name="loss"):
    return [
        (flag.severity, flag.kind, flag.step) for flag in number_flags({name: values}, range(len(values)))
    ]


def test_numbers_that_jump():
    falling = [2.0, 1.5, 1.2, 1.0, 0.9, 0.85]
    assert jumps(falling) == []
    assert jumps([*falling, 2.5, 2.4]) == [("warning", "jumping", 6)]
    assert jumps([*falling, 0.01]) == []  # for the better
    assert jumps([-x for x in [*falling, 2.5]], "accuracy") == [("warning", "jumping", 6)]
    assert jumps([*falling, math.nan, 0.8]) == [("warning", "not finite", 6)]
    assert jumps([*falling, math.nan]) == [("error", "not finite", 6)]
    assert jumps([*falling[:3], 2.5]) == []  # too early to say
    assert jumps([0.5, 0.5, 0.5, 0.5, 0.5, 0.5001]) == []
    assert jumps([None, *falling, None]) == []


@pytest.mark.parametrize("noise", [0.02, 0.1, 0.3])
def test_noise_is_no_jump(noise):
    rng = np.random.default_rng(0)
    course = 2 * np.exp(-np.arange(200) / 60) + 0.3
    noisy = [course * np.exp(noise * rng.standard_normal(200)) for _ in range(40)]
    assert sum(bool(jumps(losses.tolist())) for losses in noisy) <= 4
    assert sum(bool(jumps([*losses[:150], *(20 * losses[150:])])) for losses in noisy) >= 38


def test_a_spike_that_stays_counts_sooner():
    course = [1.0, 0.9, 1.0, 0.9, 1.0, 0.9]
    assert jumps([*course, 1.6, 0.9, 1.0, 0.9, 1.0]) == []
    assert jumps([*course, 1.6, 1.7, 1.6, 1.8, 1.7]) == [("warning", "jumping", 6)]


def test_settings_that_are_changed():
    assert jumps([0.1] * 4 + [1.0] * 4, "lr") == [("warning", "changed", 4)]
    assert jumps([1.0] * 4 + [0.1] * 4, "lr") == [("note", "changed", 4)]
    assert jumps([1.0] * 4 + [0.1] * 2 + [0.01] * 4, "lr") == []  # a schedule
    assert jumps([0.1] * 2 + [1.0] * 6, "lr") == []  # a warm-up


def test_a_rise_that_stays_needs_less():
    """The loss of a run whose learning rate was 30 times too large from step 375 on."""
    losses = [4.056, 3.694, 3.438, 3.199, 3.01, 2.88, 2.822, 2.738, 2.64, 2.614, 2.604, 2.585, 2.592]
    losses += [2.556, 2.535, 3.193, 3.041, 2.96, 2.883, 2.913, 2.841, 2.785, 2.826, 2.771, 2.764, 2.782]
    (flag,) = number_flags({"train_loss": losses}, range(25, 25 + 25 * len(losses), 25))
    assert (flag.severity, flag.since, flag.step) == ("warning", 375, 400)
    assert flag.sentence == "train_loss rises suddenly from 2.54 to 3.19, and ends at 2.78."
    assert jumps([*losses[:16], *losses[12:15]]) == []  # it comes back


@pytest.mark.parametrize("noise", [0.02, 0.1, 0.3])
@pytest.mark.parametrize("level", [0.0, 2.0])
def test_short_noisy_runs_have_no_flags(noise, level):
    rng = np.random.default_rng(1)
    course = 2 * np.exp(-np.arange(40) / 12) + 0.3 + level
    noisy = [course * np.exp(noise * rng.standard_normal(40)) for _ in range(60)]
    assert sum(bool(jumps(losses.tolist())) for losses in noisy) <= 2


def test_a_run_that_loses_all_is_an_error():
    falling = [2.3, 1.8, 1.3, 0.9, 0.7, 0.5, 0.4, 0.35]
    (flag,) = number_flags({"loss": [*falling, 1.9, 2.1, 2.5, 2.49]}, range(12))
    assert (flag.severity, flag.since, flag.step) == ("error", 7, 8)
    assert flag.sentence == (
        "loss rises suddenly from 0.35 to 1.9, and ends at 2.49, above where it started (2.3)."
    )
    (flag,) = number_flags({"loss": [*falling, 1.9, 2.1, 2.29, 2.2]}, range(12))
    assert flag.severity == "warning"  # not above
    slow = [2.3 - 0.1 * i for i in range(15)] + [0.9 + 0.1 * i for i in range(16)]
    (flag,) = number_flags({"loss": slow}, range(31))
    assert (flag.severity, flag.since, flag.step) == ("error", None, 15)
    assert flag.sentence == "loss ends at 2.4, above where it started (2.3). Its best was 0.9, at step 14."
    assert jumps([2.3, 2.2, 2.3, 2.2, 2.3, 2.4, 2.3, 2.4]) == []  # it never was better


def test_a_dip_before_a_jump_begins_it():
    falling = [2.3, 1.8, 1.3, 0.9, 0.7, 0.5, 0.4, 0.35, 0.3]
    (flag,) = number_flags({"loss": [*falling, 0.02, 1.9, 1.8, 2.0]}, range(13))
    assert (flag.since, flag.step) == (8, 9)
    assert flag.sentence == "loss falls suddenly from 0.3 to 0.02, then rises to 1.9, and ends at 2."


def test_what_explodes_is_a_warning_where_the_loss_goes_on_falling():
    flags = [Flag("error", "exploding", "w", 3, ""), Flag("error", "not finite", "w", 3, "")]

    def severities(losses):
        return [flag.severity for flag in calmed(flags, {"loss": losses, "lr": [1.0] * 6}, range(6))]

    assert severities([5.0, 4, 3, 3.2, 2, 1]) == ["warning", "error"]
    assert severities([5.0, 4, 3, 3.2, 4, 3.5]) == ["error", "error"]
    assert severities([5.0, 4, 3, 2, 2, math.nan]) == ["error", "error"]
    assert [flag.severity for flag in calmed(flags, {}, range(6))] == ["error", "error"]
