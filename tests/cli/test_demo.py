"""The demo keeps its own protocol and leaves a chain behind that can be inspected."""

import dataclasses
import json

import numpy as np
import pytest

import lccodec
from lccodec.cli import demonstration as demo
from lccodec.errors import ArgumentError

pytestmark = pytest.mark.slow

ITERATIONS = 64  # a failure after 34 iterations, on the steep part


@pytest.fixture(scope="module")
def experiment(tmp_path_factory):
    """One short run: the report, its directory, and the calls of its progress function."""
    directory = tmp_path_factory.mktemp("demo") / "chain"
    calls = []
    report = demo.run(directory, iterations=ITERATIONS, progress=lambda *call: calls.append(call))
    return report, directory, calls


@pytest.fixture
def report(experiment):
    return experiment[0]


def test_the_network_is_as_large_as_documented(report):
    assert 190_000 < report.parameters < 210_000
    assert report.full_bytes == 4 * report.parameters


def test_bytes_are_those_on_the_disk(experiment):
    report, directory, _ = experiment
    assert report.chain_bytes == sum(path.stat().st_size for path in directory.iterdir())
    assert report.chain_ratio > 5
    assert report.outcomes[0].bytes_on_disk < report.chain_bytes


def test_the_failure_is_halfway_between_two_saves(report):
    assert report.failure_iteration == 34
    assert [outcome.scheme for outcome in report.outcomes] == [
        "chain, newest exact",
        "chain, history",
        "full, same interval",
        "full, same bytes",
        "SCAR, same bytes",
    ]
    for outcome in report.outcomes:
        assert outcome.lost_iterations == min(report.failure_iteration, round(outcome.interval / 2))


def test_no_scheme_writes_more_than_its_budget(report):
    chain, history, full, rare, scar = report.outcomes
    assert history.bytes_on_disk < chain.bytes_on_disk - report.full_bytes
    assert full.bytes_on_disk == 9 * report.full_bytes
    assert rare.bytes_on_disk == chain.bytes_on_disk
    assert 0.99 * chain.bytes_on_disk < scar.bytes_on_disk <= chain.bytes_on_disk


def test_the_restored_state_is_exact_and_the_history_close(report):
    chain, history, full, rare, scar = report.outcomes
    assert abs(history.accuracy - report.accuracy_before) < 0.05
    # An exact checkpoint walks the same path again, and is back by the failure's iteration.
    assert chain.rework_iterations == full.rework_iterations <= full.lost_iterations
    assert chain.loss == full.loss
    assert history.rework_iterations < rare.rework_iterations
    assert history.rework_iterations <= scar.rework_iterations  # with half the bytes
    assert report.accuracy_uninterrupted > report.accuracy_before
    assert report.accuracy_resumed == report.accuracy_uninterrupted


def test_every_step_of_the_chain_restores(experiment):
    report, directory, _ = experiment
    with lccodec.Chain(directory, policy=report.policy) as chain:
        assert list(chain.steps) == list(range(0, ITERATIONS + 1, report.save_every))
        assert len(chain.steps) == report.checkpoints
        for step in chain.steps:
            state = chain.restore(step)
            assert state["iteration"] == step
            assert sum(array.size for array in state["parameters"].values()) == report.parameters
            assert all(np.isfinite(array).all() for array in state["parameters"].values())


def test_progress_counts_to_its_total(experiment):
    total = 2 * ITERATIONS + 2  # the run that fails, its twin, and two iterations done again
    assert experiment[2] == [(done, total) for done in range(1, total + 1)]


def test_the_report_is_ready_for_json(report):
    assert json.loads(json.dumps(dataclasses.asdict(report)))["iterations"] == ITERATIONS


def test_a_directory_in_use_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ArgumentError, match="empty"):
        demo.run(tmp_path)


def test_a_run_too_short_to_fail_in_is_refused(tmp_path):
    with pytest.raises(ArgumentError, match="16 iterations"):
        demo.run(tmp_path, iterations=15)
