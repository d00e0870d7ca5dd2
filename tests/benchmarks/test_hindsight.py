"""Histories in groups are placed around a point, and every place is measured."""

import json
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from benchmarks.measure.results import parse
from benchmarks.networks.datasets import Split
from benchmarks.promise import hindsight, kinds, restored

from ..support.pools import Here


@pytest.mark.parametrize("place", hindsight.PLACES.values())
def test_a_point_has_its_place(place: int) -> None:
    found = hindsight.saved_around(20, 500, place)
    assert len(found) == 25
    assert min(found) > 0
    assert found.index(500) % 8 == place % 8
    assert found.index(500) > 8 or place == 8


def test_a_run_without_a_group_before() -> None:
    assert hindsight.saved_around(20, 160, 8) == []
    assert hindsight.saved_around(20, 180, 8)[:2] == [20, 40]


@pytest.mark.slow
def test_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    random = np.random.default_rng(1)
    images = random.standard_normal((200, 1, 28, 28)).astype(np.float32)
    split = Split(images, random.integers(10, size=200))
    data = kinds.Data(split, split, random.integers(4, size=3_000))
    monkeypatch.setattr(restored, "MARKS", (2, 3))
    monkeypatch.setattr(hindsight, "ProcessPoolExecutor", Here)
    monkeypatch.setattr(hindsight, "as_completed", list)
    monkeypatch.setattr(kinds.Data, "load", lambda _: data)
    make = partial(kinds.regression, width=96)
    small = replace(kinds.KINDS["regression"], make=make, every=(1, 2), points=(8, 40))
    monkeypatch.setitem(kinds.KINDS, "regression", small)
    command = ["hindsight.py", "--data", str(tmp_path), "--cache", str(tmp_path), "--seeds", "2"]
    command += ["--kinds", "regression", "--results", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", command)
    assert hindsight.main() == 0
    text = capsys.readouterr().out
    assert parse(text) == json.loads((tmp_path / "hindsight-every-middle.json").read_text())
    (row,) = [line for line in text.splitlines() if line.startswith("| regression")]
    cells = [cell.strip() for cell in row.split("|")[4:-1]]
    assert len(cells) == 10
    assert all(cell == "-" or "±" in cell for cell in cells[:-1])
    float(cells[-1])
    outcomes = {r["policy"]: r for r in map(json.loads, map(Path.read_text, tmp_path.glob("*/*.json")))}
    plain = outcomes["balanced"]["delta_ratio"]
    assert all(outcomes[place]["delta_ratio"] > 1.1 * plain for place in hindsight.PLACES)
