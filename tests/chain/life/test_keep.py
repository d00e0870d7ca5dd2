"""Which steps a rule keeps, and which rules are refused."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec import ArgumentError, Chain, Keep
from lccodec.chain.life.prune import check_keep
from lccodec.container.scalars import numbers_of

FILES = range(0, 50, 5)


def nothing(_: int) -> Mapping[str, str]:
    raise AssertionError("metadata are for the best")


def never(_: int) -> float:
    raise AssertionError("times are for newer_than")


@pytest.mark.parametrize(
    ("rule", "kept"),
    [
        (Keep(latest=2), {40: "latest", 45: "latest"}),
        (Keep(latest=100), dict.fromkeys(FILES, "latest")),
        (Keep(every=20), {0: "every 20", 20: "every 20", 40: "every 20"}),
        (Keep(every=7), {0: "every 7", 35: "every 7"}),
        (Keep(steps=[25, 10, 11]), {10: "asked for", 25: "asked for"}),
        (Keep(steps=[11]), {}),
        (Keep(latest=1, every=45), {0: "every 45", 45: "latest, every 45"}),
    ],
)
def test_what_is_kept(rule: Keep, kept: dict[int, str]) -> None:
    assert rule.choose(FILES, nothing, never) == kept
    assert rule.choose([], nothing, never) == {}


@pytest.mark.parametrize(
    ("best", "kept"),
    [
        ((1, "loss", "min"), [30]),
        ((2, "loss", "min"), [25, 30]),  # of equal ones the later
        ((3, "loss", "min"), [20, 25, 30]),
        ((2, "loss", "max"), [0, 35]),
        ((99, "loss", "min"), [0, 5, 20, 25, 30, 35]),
        ((1, "accuracy", "max"), []),
    ],
)
def test_the_best(best: Any, kept: list[int]) -> None:
    texts = {0: "3.5", 5: "2", 10: "NaN", 15: "low", 20: "1e0", 25: "1", 30: "-0.5", 35: "inf", 40: ""}
    found = Keep(best=best).choose(
        FILES, lambda step: numbers_of({"loss": texts[step]} if step in texts else {}, []), never
    )
    assert list(found) == kept
    assert set(found.values()) <= {"best loss"}


def test_newer() -> None:
    now = time.time()
    ages = [100_000, 5000, 3000, -50_000]  # the last is from the future

    def chosen(newer_than: timedelta | datetime) -> list[int]:
        rule = Keep(newer_than=newer_than)
        return list(rule.choose(range(4), nothing, lambda step: now - ages[step]))

    assert chosen(timedelta(hours=1)) == [2, 3]
    assert chosen(datetime.fromtimestamp(now - 6000, UTC)) == [1, 2, 3]
    assert chosen(datetime.fromtimestamp(now - 6000)) == [1, 2, 3]  # local time
    assert chosen(timedelta()) == [3]


@pytest.mark.parametrize(
    "parts",
    [
        {},
        *({"latest": latest} for latest in (0, -1, 1.5, True)),
        *({"every": every} for every in (0, "10")),
        *(
            {"best": best}
            for best in ((), "min", (1, "loss"), (0, "loss", "min"), (1, "loss", "lowest"), (1, 3, "min"))
        ),
        *({"steps": steps} for steps in ([], 3, [None], "12")),
        *({"newer_than": age} for age in (3600, "1d")),
    ],
)
def test_rules_that_are_refused(parts: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError):
        Keep(**parts)


def test_numbers_of_numpy() -> None:
    rule = Keep(latest=np.int64(2), steps=np.array([3, 1]), best=[np.int32(1), "loss", "min"])  # type: ignore[arg-type]
    assert rule == Keep(latest=2, steps=(1, 3), best=(1, "loss", "min"))
    assert hash(rule) == hash(Keep(latest=2, steps=(1, 3), best=(1, "loss", "min")))


def test_the_parameter() -> None:
    rule = Keep(latest=1)
    assert check_keep(rule) is rule
    assert check_keep(None) is None
    with pytest.raises(ArgumentError, match=r"lccodec\.Keep"):
        check_keep(3)  # type: ignore[arg-type]


@given(st.sets(st.integers(0, 200)), st.integers(1, 9), st.integers(1, 40), st.sets(st.integers(0, 200)))
def test_parts_are_joined(steps: set[int], latest: int, every: int, asked: set[int]) -> None:
    rule = Keep(latest=latest, every=every, steps=asked)
    kept = set(rule.choose(sorted(steps), nothing, never))
    assert kept == {*sorted(steps)[-latest:], *(s for s in steps if s % every == 0), *(asked & steps)}


@given(st.dictionaries(st.integers(0, 50), st.floats(allow_nan=True) | st.text()), st.integers(1, 9))
def test_the_best_are_the_best(values: dict[int, Any], count: int) -> None:
    rule = Keep(best=(count, "x", "max"))
    kept = set(rule.choose(sorted(values), lambda step: numbers_of({"x": str(values[step])}, []), never))
    numbers = {}
    for step, value in values.items():
        try:
            numbers[step] = float(value)
        except ValueError:
            continue
    numbers = {step: value for step, value in numbers.items() if not math.isnan(value)}
    assert len(kept) == min(count, len(numbers))
    others = [value for step, value in numbers.items() if step not in kept]
    assert not others or min(numbers[step] for step in kept) >= max(others)


@pytest.mark.parametrize("background", [False, True])
def test_the_best_by_the_metrics_of_saves(tmp_path: Path, background: bool) -> None:
    """A metric is a number of the metadata; a tensor of one element has one, too."""
    losses = [np.float32(0.5), 0.25, np.array(3.0), 1]
    with Chain(tmp_path, "lossless", keyframe_every=0, keep=Keep(best=(2, "loss", "min"))) as chain:
        save = chain.save_async if background else chain.save
        for step, loss in enumerate(losses):
            save(step, {"w": np.arange(step, 9.0)}, {"run": "first"}, metrics={"loss": loss})
        chain.wait()
        assert chain.steps == [0, 1, 3]
        assert chain.info(1).metadata == {"run": "first", "loss": "0.25"}


@pytest.mark.parametrize(
    ("metadata", "metrics", "match"),
    [
        ({}, {"loss": "0.5"}, "metrics must be numbers; got '0.5' for 'loss'"),
        ({}, {"loss": np.ones(2)}, "metrics must be numbers; got array"),
        ({}, [0.5], "metrics must be a mapping from names to numbers; got list"),
        ({"loss": "0.5"}, {"loss": 0.5}, "'loss' must be in metadata or in metrics"),
    ],
)
def test_metrics_that_are_refused(tmp_path: Path, metadata: Any, metrics: Any, match: str) -> None:
    with Chain(tmp_path, "lossless") as chain, pytest.raises(ArgumentError, match=match):
        chain.save(0, {"w": np.ones(3)}, metadata, metrics=metrics)
    assert chain.steps == []
