"""Runs go on as they would have, gaps are counted in intervals, outcomes are kept."""

import json
import math
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import lccodec
from benchmarks.measure.results import parse
from benchmarks.networks.datasets import Split
from benchmarks.promise import kinds, program, restored, table
from benchmarks.promise.restored import EXACT, STALE, Outcome

from ..support.pools import Here


@pytest.fixture(scope="module")
def data() -> kinds.Data:
    random = np.random.default_rng(1)
    images = random.standard_normal((200, 1, 28, 28)).astype(np.float32)
    split = Split(images, random.integers(10, size=200))
    return kinds.Data(split, split, random.integers(4, size=3_000))


#: A small network that is saved every second iteration.
SMALL = replace(kinds.KINDS["regression"], make=partial(kinds.regression, width=96), every=(2,), points=(8,))


@pytest.mark.slow
@pytest.mark.parametrize("name", program.RUNS)
def test_a_run_that_is_put_back_is_the_run(
    name: str, data: kinds.Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kinds, "BEFORE", 2)
    run, other = (program.RUNS[name].make(data, seed) for seed in (0, 1))
    run.advance(3, seed=5)
    state = run.state()
    run.advance(5, seed=6)
    other.put_back(state, 3)
    assert other.loss() != run.loss()
    other.advance(5, seed=6)
    assert other.loss() == run.loss()
    other.put_back(state, 3)
    other.advance(5, seed=7)
    assert other.loss() != run.loss()


@pytest.mark.slow
def test_outcomes(data: kinds.Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restored, "MARKS", (10, 15))
    policies = {"lossless": "lossless", "lc-2": "lc-2"}
    restored.measure(SMALL, data, tmp_path, policies, seeds=2)
    found = {each.policy: each for each in restored.outcomes(tmp_path, SMALL, policies, seeds=2)}
    assert found["lossless"].losses == found[EXACT].losses
    assert found["lossless"].error == found["lossless"].lag == 0
    assert found["lc-2"].losses != found[EXACT].losses != found[STALE].losses
    assert found["lc-2"].delta_ratio > found["lossless"].delta_ratio > 1
    assert 0 < found["lc-2"].error < 3
    assert [i for i, _ in found[EXACT].curve] == list(range(0, 24, restored.LOOK))
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "promise").iterdir()}
    restored.measure(SMALL, data, tmp_path, policies, seeds=2)
    assert files == {path: path.stat().st_mtime_ns for path in (tmp_path / "promise").iterdir()}


def outcome(policy: str, *losses: float, curve: tuple[tuple[int, float], ...] = ()) -> Outcome:
    return Outcome("made up", 20, 200, policy, losses, 30.0, 20.0, 0.5, 0.1, curve)


#: It falls by 0.002 an iteration: 0.04 an interval.
CURVE = tuple((i, 2 - 0.002 * i) for i in range(0, 400, 10))


def test_gaps_are_counted_in_intervals() -> None:
    exact = outcome(EXACT, 1.0, 1.2, 1.1, curve=CURVE)
    stale = outcome(STALE, 1.1, 1.3, 1.2)
    (row,) = table.rows([exact, stale, outcome("p", 1.05, 1.25, 1.15)])
    assert (row.gap, row.gap_error) == (pytest.approx(0.5), pytest.approx(0, abs=1e-9))
    assert (row.rework, row.rework_error) == (pytest.approx(0.05 / 0.04), pytest.approx(0, abs=1e-9))
    assert row.cost == pytest.approx(0.5)
    (row,) = table.rows([exact, stale, outcome("p", 1.05, 1.35, 1.1)])
    assert row.gap == pytest.approx(0.2 / 0.3)
    assert row.gap_error == pytest.approx(0.0764 / 3**0.5 / 0.1, rel=0.01)
    assert row.cost == pytest.approx(row.gap + row.gap_error)
    assert not row.is_told


def test_where_an_interval_costs_nothing_it_is_no_unit() -> None:
    flat = tuple((i, 1.0 + 0.01 * (i % 20 == 0)) for i in range(0, 400, 10))
    exact = outcome(EXACT, 1.0, 1.2, 1.1, curve=flat)
    (row,) = table.rows([exact, outcome(STALE, 1.1, 1.1, 1.1), outcome("p", 1.05, 1.25, 1.15)])
    assert math.isnan(row.gap) and math.isnan(row.rework) and math.isnan(row.cost)
    assert "| - | - |" in table.markdown([row], ["p"])
    assert len(table.summary([row], ["p"]).splitlines()) == 2


def test_tables() -> None:
    exact, stale = outcome(EXACT, 1.0, 1.2, 1.1, curve=CURVE), outcome(STALE, 1.1, 1.3, 1.2)
    rows = table.rows([exact, stale, outcome("p", 1.05, 1.25, 1.15), outcome("q", 1.0, 1.2, 1.1)])
    assert table.summary(rows, ["p", "q"]).splitlines()[2:] == [
        "| p | 0.50 | made up every 20 at 200 | 0.50 | 0.50 | 1 of 1 | 30x | 20x |",
        "| q | 0.00 | made up every 20 at 200 | 0.00 | 0.00 | 1 of 1 | 30x | 20x |",
    ]
    assert table.markdown(rows, ["p"]).splitlines()[2:] == [
        "| made up | 20 | 200 | 30x | 0.50 ± 0.00 | 1.25 ± 0.00 | 0.50, 0.10 |"
    ]


@pytest.mark.slow
def test_command(
    data: kinds.Data,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(program, "ProcessPoolExecutor", Here)
    monkeypatch.setattr(program, "as_completed", list)
    monkeypatch.setattr(kinds.Data, "load", lambda _: data)
    monkeypatch.setattr(restored, "MARKS", (10, 15))
    monkeypatch.setitem(program.RUNS, "regression", SMALL)
    own = f"mine={json.dumps(lccodec.POLICIES['lc-2'].to_json())}"
    command = ["promise.py", "--data", str(tmp_path), "--cache", str(tmp_path), "--seeds", "2"]
    command += ["--kinds", "regression", "--policies", "lc-3", own, "--results", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", command)
    assert program.main() == 0
    shown = capsys.readouterr().out
    assert "| regression | 2 | 8 |" in shown
    assert parse(shown) == json.loads((tmp_path / "promise.json").read_text())
