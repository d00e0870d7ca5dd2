"""The benchmark of parity, at a small size."""

from pathlib import Path

import pytest

from benchmarks.mending.loop import ARMS, measure_loop, waits_table
from benchmarks.mending.program import loop_goals, measure_arithmetic, measure_chain, measure_recovery
from benchmarks.mending.ranks import measure_ranks


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
