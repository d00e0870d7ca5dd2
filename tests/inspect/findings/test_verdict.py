"""A verdict: a run that learns is healthy; of one that was broken, the step is named."""

import pytest

import lccodec
from lccodec.container.figures import Figures
from lccodec.inspect.examination import examine
from lccodec.inspect.findings import verdict
from lccodec.inspect.report import Checkpoint, Flag

from ...support.broken import FAULTS, trained

AT = 200


def examined(directory, policy, **options):
    with lccodec.Chain(directory, policy=policy, newest="history") as chain:
        for step, state, metrics in trained(**options):
            chain.save(step, state, metrics=metrics)
    return examine(directory).runs[0]


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["balanced", "lossless"])
@pytest.mark.parametrize("seed", range(3))
def test_a_run_that_learns_is_healthy(tmp_path, policy, seed):
    run = examined(tmp_path / "run", policy, seed=seed)
    assert run.verdict.state == "healthy", run.verdict
    assert run.verdict.sentence.startswith("Healthy: test_loss falls from ")
    assert ("Restored weights are off by" in run.verdict.sentence) == (policy == "balanced")


@pytest.mark.slow
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
    assert any(f"between steps {step - 20} and {step}" in run.verdict.sentence for step in (AT, AT + 20))
    if fault == "dead layer":
        assert any("model/in.weight" in flag.arrays for flag in found), found
    if fault == "other optimizer":
        assert "momentum_buffer" in run.verdict.sentence


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12, 18))  # of runs by which nothing was tuned
def test_data_in_order_shows_in_the_gradients(tmp_path, seed):
    run = examined(tmp_path / "run", "balanced", fault="data in order", at=AT, seed=seed)
    assert {flag.step for flag in run.flags if flag.kind == "shifting"} & {AT + 20, AT + 40}
    assert "Gradients grow" in run.verdict.sentence
    healthy = examined(tmp_path / "healthy", "balanced", seed=seed)
    assert healthy.verdict.state == "healthy", healthy.verdict


def test_a_verdict_has_two_sentences():
    flags = [
        Flag("warning", "jumping", None, 20, "loss rises.", 10),
        Flag("warning", "exploding", "a", 20, "a moves far.", 10),
        Flag("warning", "frozen", "a", 40, "a stops.", 30),
        Flag("note", "dead", "b", None, "b is 0."),
    ]
    assert verdict(flags, {}).sentence == (
        "Look at what happened between steps 10 and 20: loss rises. a moves far. 1 more finding."
    )
    assert verdict([flags[0], flags[2]], {}).sentence == (
        "Look at what happened between steps 10 and 20: loss rises. Between steps 30 and 40: a stops."
    )
    assert verdict([Flag("warning", "frozen", "a", 4, "a stops.")], {}).sentence == "Look at step 4: a stops."
    assert (
        verdict([Flag("warning", "frozen", "a", None, "a stops.")], {}).sentence == "Look at this: a stops."
    )


def test_a_verdict_says_one_thing_of_an_array():
    flags = [
        Flag("warning", "exploding", "a", 20, "a moves far.", 10, ["a"]),
        Flag("warning", "frozen", "a", 30, "a stops.", 20, ["a"]),
        Flag("warning", "frozen", "a", 40, "2 weights stop: a, b.", 30, ["a", "b"]),
    ]
    assert verdict(flags, {}).sentence.endswith(
        ": a moves far. Between steps 30 and 40: 2 weights stop: a, b. 1 more finding."
    )


def test_a_verdict_begins_with_the_first_finding():
    """Also if a later one is graver."""
    flags = [
        Flag("error", "jumping", None, 40, "loss rises.", 30),
        Flag("warning", "changed", None, 30, "lr changes.", 20),
        Flag("warning", "shifting", None, 20, "Weights move farther.", 10),
    ]
    assert verdict(flags, {}).sentence == (
        "Broken between steps 10 and 20: Weights move farther. Between steps 30 and 40: loss rises. "
        "1 more finding."
    )


def test_a_broken_run_says_where():
    broken = [Flag("error", "jumping", None, 20, "loss rises.", since) for since in (10, None)]
    assert verdict(broken[:1], {}).sentence == "Broken between steps 10 and 20: loss rises."
    assert verdict(broken[1:], {}).sentence == "Broken from step 20 on: loss rises."
    lost = Flag("error", "missing", None, 1, "Step 1 cannot be fully restored.")
    assert verdict([lost], {}).sentence == "Broken: Step 1 cannot be fully restored."
    assert verdict([lost, *broken[:1]], {}).sentence == (
        "Broken between steps 10 and 20: Step 1 cannot be fully restored. loss rises."
    )


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (0.05, "5 % of their spread, or 0.5 of what they move between saves, as usual."),
        (0.3, "30 % of their spread, or 3 of what they move between saves, more than usual."),
        (0.08, "8 % of their spread, or 0.8 of what they move between saves, as usual."),
        (0.0, ""),
    ],
)
def test_a_healthy_run_says_what_it_lost(error, words):
    figures = {"weight": Figures(spread=1.0, movement=0.1, error=error)}
    found = verdict(
        [], {"loss": [2.0, 1.0]}, [Checkpoint(step, "delta", figures=figures) for step in range(3)]
    )
    lost = f" Restored weights are off by {words}" if words else ""
    assert found.sentence == f"Healthy: loss falls from 2 to 1, and no array stands out.{lost}"


def test_moments_that_are_far_off_are_said():
    """A healthy run whose moments lost much resumes badly from an older step."""
    figures = {
        "weight": Figures(spread=1.0, movement=0.1, error=0.05),
        "first_moment": Figures(spread=1.0, movement=0.1, error=0.1),
        "second_moment": Figures(spread=1.0, movement=0.1, error=2.0),
    }
    found = verdict([], {}, [Checkpoint(step, "delta", figures=figures) for step in range(3)])
    assert found.state == "healthy"
    assert found.sentence.endswith(
        "as usual. Restored second moments are off by 20 of what they move: resume from an exact state."
    )
