"""A verdict: a run that learns is healthy; of one that was broken, the step is named."""

import math

import numpy as np
import pytest

import lccodec
from lccodec.inspect.examination import examine
from lccodec.inspect.findings.verdict import change_flags, number_flags, verdict
from lccodec.inspect.report import ArrayRow, Flag

from ...support.broken import FAULTS, trained

AT = 200


def examined(directory, policy, **options):
    with lccodec.Chain(directory, policy=policy, newest="history") as chain:
        for step, state, metrics in trained(**options):
            chain.save(step, state, metrics=metrics)
    return examine(directory).runs[0]


@pytest.mark.parametrize("policy", ["balanced", "lossless"])
@pytest.mark.parametrize("seed", range(3))
def test_a_run_that_learns_is_healthy(tmp_path, policy, seed):
    run = examined(tmp_path / "run", policy, seed=seed)
    assert run.verdict.state == "healthy", run.verdict
    assert run.verdict.sentence.startswith("Healthy: test_loss falls from ")
    assert ("off by about" in run.verdict.sentence) == (policy == "balanced")


@pytest.mark.parametrize("policy", ["balanced", "lossless"])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("fault", FAULTS)
def test_the_step_of_a_broken_run_is_named(tmp_path, fault, policy, seed):
    run = examined(tmp_path / "run", policy, fault=fault, at=AT, seed=seed)
    assert run.verdict.state != "healthy"
    found = [flag for flag in run.flags if flag.severity != "note"]
    # A state that is saved at the step of the fault does not show it yet.
    assert {flag.step for flag in found} & {AT, AT + 20}, found
    assert all(AT <= flag.step <= AT + 60 for flag in found), found
    assert any(f"step {step}" in run.verdict.sentence for step in (AT, AT + 20))
    if fault == "dead layer":
        assert any(flag.array == "model/in.weight" for flag in found), found
    if fault == "other optimizer":
        assert "momentum_buffer" in run.verdict.sentence


@pytest.mark.parametrize("seed", range(12, 18))  # of runs by which nothing was tuned
def test_data_in_order_shows_in_the_gradients(tmp_path, seed):
    run = examined(tmp_path / "run", "balanced", fault="data in order", at=AT, seed=seed)
    assert {flag.step for flag in run.flags if flag.kind == "shifting"} & {AT + 20, AT + 40}
    assert "Gradients are larger from step" in run.verdict.sentence
    healthy = examined(tmp_path / "healthy", "balanced", seed=seed)
    assert healthy.verdict.state == "healthy", healthy.verdict


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


def test_a_verdict_names_moments_by_their_weights():
    row = ArrayRow("opt/0/exp_avg", "first_moment", "", "float32", (2,), 2, "", 0, 0, of="model/ln.bias")
    flags = [Flag("error", "not finite", row.name, step, "2 of 2 elements are NaN.") for step in range(4, 9)]
    found = verdict(flags, [row], {}, [[None]])
    assert found.state == "broken"
    assert found.sentence.startswith(
        "Broken from step 4 on: model/ln.bias, first moment: 2 of 2 elements are"
    )
    assert found.sentence.endswith(" 2 more below.")


def test_a_verdict_says_once_what_is_alike():
    flags = [Flag("warning", "frozen", name, 4, "It does not move.") for name in "abc"]
    found = verdict([*flags, Flag("warning", "jumping", None, 2, "loss rises.")], [], {}, [])
    assert found.sentence == "Look at step 2: a and 2 more: It does not move. loss rises."
    assert verdict(flags[:1], [], {}, []).sentence == "Look at this: a: It does not move."
    lost = Flag("error", "missing", None, 1, "Step 1 cannot be fully restored.")
    assert verdict([lost], [], {}, []).sentence == "Broken: Step 1 cannot be fully restored."


def test_changes_of_a_state():
    flags = change_flags([(3, [f"new{i}" for i in range(5)], [])])
    assert flags[0].sentence == "From step 3 on 5 arrays are new (new0, new1, new2, and 2 more)."
    assert change_flags([(3, [], ["old"])])[0].sentence == "From step 3 on 1 array is gone (old)."
    new, gone = (
        [f"optimizer/state/{i}/{name}" for i in range(3) for name in names]
        for names in (["momentum_buffer"], ["exp_avg", "exp_avg_sq"])
    )
    assert change_flags([(3, new, gone)])[0].sentence == (
        "From step 3 on 3 arrays are new (momentum_buffer) and 6 are gone (exp_avg, exp_avg_sq)."
    )
    assert change_flags([(3, ["a/b", "a"], ["a/c"])])[0].sentence == (
        "From step 3 on 2 arrays are new (a/b, a) and 1 is gone (c)."
    )
