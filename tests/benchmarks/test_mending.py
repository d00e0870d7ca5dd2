"""The benchmark of parity, at a small size."""

from __future__ import annotations

from pathlib import Path

from benchmarks.mending.program import measure_arithmetic, measure_chain, measure_recovery


def test_the_arithmetic_is_right() -> None:
    found = measure_arithmetic(1 << 20, 1)
    assert [goal.unit for goal in found] == ["copies", "copies"]
    assert all(goal.measured for goal in found)


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
