"""The verb demo, with and without --json.

The network of the demo: how it starts, learns and is stored.
"""

import dataclasses
from importlib.util import find_spec

import numpy as np
import pytest

import lccodec
from lccodec.cli import demonstration as demo
from lccodec.cli import demonstration as digits

from ..support.commands import run, run_json, state


def quick_demo(directory, *, progress):
    """Stand in for the experiment, which has tests of its own."""
    if directory.exists():
        raise lccodec.ArgumentError("the demo needs an empty directory")
    with lccodec.Chain(directory, policy="lc-3") as chain:
        for step in (10, 20, 30):
            chain.save(step, state(step))
            progress(step, 30)
    outcome = demo.Outcome("chain", 4, 1000, 11.5, 2, 0.918, 0.36, 3)
    never = dataclasses.replace(outcome, scheme="SCAR, same bytes", rework_iterations=None)
    figures = (2005, 8020, 30, 10, 22, 0.91, 0.35)
    return demo.DemoResult(str(directory), "lc-3", *figures, (outcome, never), 3, 9000, 2.67, 0.93, 0.94)


@pytest.mark.slow
def test_demo(tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "run", quick_demo)
    monkeypatch.chdir(tmp_path)
    stdout, _ = run("demo")
    assert "\nchain " in stdout
    assert "\nSCAR, same bytes " in stdout
    assert "accuracy at the end: 93.00 %, without the failure 94.00 %" in stdout
    commands = [line.split()[1:] for line in stdout.splitlines() if line.startswith("  lccodec ")]
    assert [words[0] for words in commands[:5]] == ["ls", "info", "show", "diff", "check"]
    for words in commands[:5]:
        run(*words)
    if find_spec("vl_convert"):
        assert stdout.endswith("open this file in a browser: lccodec-demo-report.html\n")
        assert (tmp_path / "lccodec-demo-report.html").read_bytes().startswith(b"<!doctype html>")
    monkeypatch.setattr("lccodec.cli.demonstration.find_spec", lambda _: None)
    document = run_json("demo")
    assert (document["directory"], document["page"]) == ("lccodec-demo-2", None)
    assert document["outcomes"][0]["scheme"] == "chain"
    _, stderr = run("demo", "--directory", "lccodec-demo", code=2)
    assert "needs an empty directory" in stderr


def test_demo_without_the_extra_says_how_to_get_the_page(tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "run", quick_demo)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("lccodec.cli.demonstration.find_spec", lambda _: None)
    stdout, _ = run("demo")
    assert "  lccodec report lccodec-demo\n" in stdout
    assert "pip install 'lccodec[report]'" in stdout.splitlines()[-1]
    assert [path.name for path in tmp_path.iterdir()] == ["lccodec-demo"]


def test_gradient_is_the_slope_of_the_loss(monkeypatch):
    # With one batch of all images, a small step along the gradient lowers the loss by rate * |g|^2.
    monkeypatch.setattr(digits, "BATCH_IMAGES", digits.TRAIN_IMAGES)
    monkeypatch.setattr(digits, "LEARNING_RATE", 1e-3)
    task, network = digits.Task(), digits.Network.initial()
    start, before = network.vector.copy(), task.loss(network)
    task.train(network, 1)
    step = network.vector - start
    expected = float(step.astype(np.float64) @ step) / digits.LEARNING_RATE
    assert before - task.loss(network) == pytest.approx(expected, rel=0.05)
