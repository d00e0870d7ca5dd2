"""Which steps are averaged and what each counts, or why the choice is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec import ArgumentError, Chain, ChainError
from lccodec.chain.read.average import select_shares
from lccodec.chain.store.directory import DirectoryStore

RUN = Path("run")
WEIGHTS = st.floats(0, 1e308) | st.integers(0, 10**6)


@given(st.dictionaries(st.integers(0, 10**6), WEIGHTS, min_size=1))
def test_shares_are_the_weights_by_their_sum(weights: dict[int, float]) -> None:
    if not any(weights.values()):
        return
    shares = select_shares(DirectoryStore(RUN), weights, weights=weights.values())
    assert list(shares) == sorted(weights)
    assert sum(shares.values()) == pytest.approx(1)
    largest = max(weights, key=lambda step: weights[step])
    for step, share in shares.items():
        assert share / shares[largest] == pytest.approx(weights[step] / weights[largest])


def test_all_count_the_same_by_default() -> None:
    assert select_shares(DirectoryStore(RUN), iter([30, 10])) == {10: 0.5, 30: 0.5}
    assert select_shares(DirectoryStore(RUN), [np.int64(3)]) == {3: 1.0}


@pytest.mark.parametrize("decay", [0.9, 1, np.float32(0.5)])
def test_decay_counts_age_in_checkpoints(decay: float) -> None:
    shares = select_shares(DirectoryStore(RUN), [7, 100, 8], decay=decay)
    weights = np.array([float(decay) ** age for age in (2, 1, 0)])
    np.testing.assert_allclose(list(shares.values()), weights / weights.sum(), rtol=1e-15)
    assert list(shares) == [7, 8, 100]


def test_the_last_steps(tmp_path: Path) -> None:
    with pytest.raises(ChainError, match="holds no checkpoint"):
        select_shares(DirectoryStore(tmp_path / "absent"), last=1)
    with Chain(tmp_path) as chain:
        for step in (3, 5, 1000):
            chain.save(step, {})
    assert list(select_shares(DirectoryStore(tmp_path), last=2)) == [5, 1000]
    assert list(select_shares(DirectoryStore(tmp_path), last=np.int8(9))) == [3, 5, 1000]
    assert select_shares(DirectoryStore(tmp_path), last=2, weights=[1, 3]) == {5: 0.25, 1000: 0.75}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "either steps= or last="),
        ({"steps": [1], "last": 1}, "either steps= or last="),
        ({"last": 0}, "positive integer"),
        ({"last": True}, "positive integer"),
        ({"last": 1.5}, "positive integer"),
        ({"steps": []}, "at least one step"),
        ({"steps": 5}, "an iterable of steps; got 5"),
        ({"steps": ["1"]}, "a step must be an integer"),
        ({"steps": [4, 5, 4]}, "step 4 is given twice"),
        ({"steps": [1, 2], "weights": [1]}, "for each of 2 steps; got 1"),
        ({"steps": [1, 2], "weights": 0.9}, "for an exponential average, use decay="),
        ({"steps": [1, 2], "weights": [1, -1]}, "got -1"),
        ({"steps": [1, 2], "weights": [1, float("nan")]}, "got nan"),
        ({"steps": [1, 2], "weights": [1, float("inf")]}, "got inf"),
        ({"steps": [1, 2], "weights": [1, "a"]}, "got 'a'"),
        ({"steps": [1, 2], "weights": [1, None]}, "got None"),
        ({"steps": [1, 2], "weights": [0, 0.0]}, "at least one weight must be above 0"),
        ({"steps": [1, 2], "decay": 0}, "above 0 and at most 1; got 0"),
        ({"steps": [1, 2], "decay": 1.01}, "above 0"),
        ({"steps": [1, 2], "decay": float("nan")}, "above 0"),
        ({"steps": [1, 2], "decay": [1, 2]}, "above 0"),
        ({"steps": [1, 2], "decay": 0.5, "weights": [1, 2]}, "either weights= or decay="),
    ],
)
def test_what_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        select_shares(DirectoryStore(RUN), **arguments)
