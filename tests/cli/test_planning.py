"""The text and the document of a plan."""

import numpy as np
import pytest

import lccodec
from lccodec.cli.network import Network, Task
from lccodec.cli.planning import plan_document, plan_text
from lccodec.cli.quality import figures_words

from ..support.estimates import check_estimates
from ..support.runs import arrays_of, run_states, save_run

STATE = {"weight": np.linspace(-1, 1, 300, dtype=np.float32).reshape(3, 100), "running_mean": np.ones(3)}


def planned(tmp_path, policy, state=STATE):
    with lccodec.Chain(tmp_path / "run", policy) as chain:
        chain.save(3, STATE)
        plan = chain.plan(state)
        return plan, plan.estimates()


def test_a_delta(tmp_path):
    policy = lccodec.Policy("bounded", {"weight": lccodec.UniformDeadzone(max_error=0.002)})
    state = {**STATE, "weight": STATE["weight"] + np.float32(0.01)}
    plan, estimates = planned(tmp_path, policy, state)
    text = plan_text(plan, estimates)
    assert "UniformDeadzone(max_error=0.002)" in text
    assert "error at most 0.002" in text
    assert "unchanged" in text
    assert "This would be a delta to step 3: about " in text
    document = plan_document(plan, estimates)
    assert document["parent"] == 3
    weight, other = document["arrays"]
    assert (weight["name"], weight["role"], weight["why"], weight["stored"]) == (
        "weight",
        "weight",
        "named 'weight'",
        "delta",
    )
    assert weight["estimated_bytes"] == estimates[0].stored_bytes > 0
    assert (other["estimated_bytes"], other["estimated_error"]) == (0, 0.0)
    assert document["totals"]["estimated_bytes"] == estimates[0].stored_bytes
    assert document["totals"]["nbytes"] == 1200 + 24


def digits(count):
    """States of a network that learns handwritten digits; one array has 200,000 weights."""
    task, network, states = Task(), Network.initial(), []
    for iteration in range(1, 4 * count + 1):
        task.train(network, iteration)
        if iteration % 4 == 0:
            state = network.to_state(iteration)
            states.append({n.replace("/", "."): array.copy() for n, array in arrays_of(state).items()})
    return states


@pytest.mark.parametrize("policy", ["balanced", "lossless", "small"])
def test_estimates_of_a_network_that_learns(tmp_path, policy, monkeypatch):
    monkeypatch.setattr("lccodec.chain.save.estimate._STRETCHES", 32)
    monkeypatch.setattr("lccodec.chain.save.estimate._STRETCH_COMPONENTS", 1024)
    assert check_estimates(tmp_path, digits(4), policy) == {True, False}


def test_a_keyframe_and_an_empty_state(tmp_path):
    with lccodec.Chain(tmp_path / "new", "lossless") as chain:
        plan = chain.plan(STATE)
        assert "This would be a keyframe: about " in plan_text(plan, plan.estimates())
        empty = chain.plan({"epoch": 1})
        assert "about 0 bytes for 0 (-)" in plan_text(empty, empty.estimates())


def test_what_the_last_save_lost(tmp_path):
    chain = save_run(tmp_path / "run", run_states(3), policy="balanced")
    plan, last = chain.plan(run_states(4)[3]), chain.info(20)
    estimates = plan.estimates()
    text, document = plan_text(plan, estimates, last), plan_document(plan, estimates, last)
    assert f"The last save, of step 20, lost:\n  weights: {figures_words(last.figures['weight'])}\n" in text
    assert document["last"]["step"] == 20
    assert document["last"]["figures"]["weight"] == last.figures["weight"].numbers()


def test_names_are_escaped(tmp_path):
    with lccodec.Chain(tmp_path / "new") as chain:
        plan = chain.plan({"\x1b[2J\u202e[red]weight": np.ones(3)})
        text = plan_text(plan, plan.estimates())
    assert not {"\x1b", "\u202e"} & set(text)
    assert "[red]" in text
