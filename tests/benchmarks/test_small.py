"""The benchmarks of parity and of reports, at a small size."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.mending.loop import ARMS, measure_loop, waits_table
from benchmarks.mending.program import loop_goals, measure_arithmetic, measure_chain, measure_recovery
from benchmarks.mending.ranks import measure_ranks
from benchmarks.networks.models import GPT, BatchNormNet, LeNet5
from benchmarks.pages.broken import FAULTS, RUNS, BrokenRun
from benchmarks.pages.large import large
from benchmarks.pages.program import measure_large
from benchmarks.pages.verdicts import Case, Found, cases, table

from ..support.tiny_tasks import tiny_task


def test_the_arithmetic_is_right() -> None:
    found = measure_arithmetic(1 << 20, 1)
    assert [goal.unit for goal in found] == ["copies", "copies"]
    assert all(goal.measured for goal in found)


@pytest.mark.slow
def test_a_chain_is_protected_and_repaired(tmp_path: Path) -> None:
    found = measure_chain(tmp_path / "run", 1 << 22)
    assert len(found) == 5
    missed = [goal for goal in found if not goal.is_met]
    assert {goal.unit for goal in missed} == {"x"}  # hashes weigh more in so small a chain
    assert all(goal.measured and goal.measured < 2 for goal in missed)


def test_a_state_is_recovered_from_a_mirror(tmp_path: Path) -> None:
    [goal] = measure_recovery(tmp_path, 1 << 20, 1)
    assert goal.measured
    assert not (tmp_path / "empty").exists()


@pytest.mark.slow
def test_a_loop_that_saves_with_and_without_parity(tmp_path: Path) -> None:
    found = measure_loop(tmp_path, 1 << 16, 2, 1, 0.001)
    assert {name: len(waits.calls) for name, waits in found.items()} == dict.fromkeys(ARMS, 2)
    assert all(seconds > 0 for waits in found.values() for seconds in waits.calls + waits.work)
    [goal] = loop_goals(found)
    assert goal.measured
    assert waits_table(found).count("\n") == 1 + len(ARMS)
    assert not any(tmp_path.iterdir())


@pytest.mark.slow
def test_ranks_make_parity_in_both_ways() -> None:
    import torch  # noqa: F401 - what it needs

    found = measure_ranks(1 << 16, 1, 1)
    assert list(found) == ["all ranks", "one gathers"]
    assert all(each["busiest"] > 0 and each["seconds"] > 0 for each in found.values())


def test_the_large_report_has_the_size_that_is_asked_for() -> None:
    run = large(steps=4, arrays=7, bins=8)["runs"][0]
    assert len(run["steps"]) == len(run["checkpoints"]) == 4
    assert len(run["arrays"]) == len(run["figures"]["rms"]) == len(run["histograms"]) == 7


@pytest.mark.browser
def test_a_page_is_written_and_opened(tmp_path: Path) -> None:
    found = measure_large(tmp_path / "page.html", 3, 6, openings=1)
    assert [goal.unit for goal in found] == ["s", "MB", "s", "s"]
    assert all(goal.measured for goal in found)


def test_every_network_is_healthy_once_and_has_each_fault_that_it_can_have() -> None:
    found = list(cases(range(2), saves=20))
    assert len(found) == 2 * (len(RUNS) + sum(map(len, FAULTS.values())))
    assert all(10 <= case.at < 14 for case in found if case.fault)


def test_a_verdict_is_right_if_it_names_one_of_the_steps() -> None:
    broken, healthy = Case("gpt", "dead layer", 0, 10), Case("gpt", None, 0, 0)
    for step, right in {49: 0, 50: 1, 65: 1, 66: 0, None: 0}.items():
        line = table({broken: Found("look", step, ""), healthy: Found("healthy", None, "")}, 5).splitlines()[
            -1
        ]
        assert line == f"| {RUNS['gpt']} | {right} of 1 | - | - | - | 1 of 1 |"


@pytest.mark.parametrize(("fault", "network"), [(fault, name) for fault in FAULTS for name in FAULTS[fault]])
def test_a_fault_changes_what_it_says(fault: str, network: str) -> None:
    build = {"momentum": LeNet5, "batchnorm": BatchNormNet, "gpt": lambda: GPT(8, 2, heads=2, context=8)}[
        network
    ]
    kind = "gpt" if network == "gpt" else "momentum" if network == "momentum" else "logistic"
    run = BrokenRun(replace(tiny_task(kind), build=build))
    run.advance(2, seed=0)
    usual, losses = set(run.state()), run.loss
    before = run.task
    run.break_(fault)
    run.advance(2, seed=0)
    assert run.loss != losses
    assert (set(run.state()) != usual) == (fault == "other optimizer")
    assert (run.task is before) == (fault == "dead layer")
    if fault == "data in order":
        assert len(set(run.task.batch_of(0, run.iteration)[1].tolist())) <= 2
