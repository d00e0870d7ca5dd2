"""Numbers beside the arrays become series: what changes, each once."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

import lccodec
from lccodec.container.scalars import numbers_of
from lccodec.inspect.examination import examine
from lccodec.inspect.report import MAX_SERIES, document, series_of


def test_what_is_a_number() -> None:
    texts = {"loss": " 0.5", "bad": "nan", "run": "third", "": "1"}
    scalars = [("loss", 3), ("flag", True), ("note", "x"), ("none", None), ("big", 10**400), ("lr", 0.1)]
    found = numbers_of(texts, scalars)
    assert math.isnan(found.pop("bad"))
    assert found == {"loss": 0.5, "": 1.0, "lr": 0.1}
    assert len(numbers_of({}, [(str(i), i) for i in range(10_000)])) == 256


def test_constants_steps_and_copies_are_left_out() -> None:
    numbers = [
        {"lr": 0.1, "step": i, "a": i % 3, "b": i % 3, "late": i} if i else {"lr": 0.1} for i in range(5)
    ]
    assert series_of(numbers, [7, 1, 2, 3, 4]) == {
        "step": [None, 1, 2, 3, 4],
        "a": [None, 1, 2, 0, 1],
    }
    assert series_of([{"x": math.nan}, {"x": math.nan}, {"x": math.nan}], [0, 1, 2]) == {}
    many = [{str(i): i * n for i in range(1, 100)} for n in range(3)]
    assert len(series_of(many, [5, 6, 8])) == MAX_SERIES


def test_a_run_has_its_loss_at_every_checkpoint(tmp_path: Path) -> None:
    """In the metadata and in the state; a checkpoint that cannot be read has none."""
    losses = [2.0, 1.5, math.nan, 0.75]
    with lccodec.Chain(tmp_path, "lossless") as chain:
        for step, loss in enumerate(losses):
            state = {"w": np.full(10, step, np.float32), "rate": 0.1 / (step + 1), "epoch": 1}
            chain.save(10 * step, state, metrics={"loss": loss})
    (run,) = examine(tmp_path, steps=[0]).runs
    assert list(run.scalars) == ["loss", "rate"]
    np.testing.assert_array_equal(run.scalars["loss"], losses)
    (found,) = document(examine(tmp_path))["runs"]
    assert found["scalars"]["loss"] == [2.0, 1.5, None, 0.75]
    last = sorted(tmp_path.glob("*.lcc.h5"))[-2]
    last.write_bytes(last.read_bytes()[:-100])
    (run,) = examine(tmp_path).runs
    assert len(run.scalars["loss"]) == len(run.checkpoints) == 4
    assert run.scalars["loss"][:2] == [2.0, 1.5] and run.scalars["loss"][-1] is None
