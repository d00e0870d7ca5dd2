"""How far a restore is: every array is counted once, in a function or in a bar on a terminal."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import numpy as np
import pytest

from lccodec import ArgumentError, Chain

NAMES = ["a", "b", "c"]


@pytest.fixture
def chain(tmp_path: Path) -> Chain:
    chain = Chain(tmp_path, "lossless", newest="exact")
    for step in range(3):
        chain.save(step, {name: np.full(5, step, np.float32) for name in NAMES} | {"epoch": step})
    return chain


@pytest.mark.parametrize("step", [0, 1, 2])  # a keyframe, a delta, the exact file
def test_a_function_is_told(chain: Chain, step: int) -> None:
    told: list[tuple[int, int]] = []
    state = chain.restore(step, progress=lambda done, total: told.append((done, total)))
    assert (state["a"] == step).all()
    assert told == [(1, 3), (2, 3), (3, 3)]
    told.clear()
    chain.restore(step, keys=["b"], progress=lambda *numbers: told.append(numbers))
    assert told == [(1, 1)]


def test_it_is_told_array_by_array(chain: Chain) -> None:
    told: list[int] = []
    for name, _ in chain.restore_iter(progress=lambda done, _: told.append(done)):
        assert name == "epoch" or told == [*range(1, NAMES.index(name) + 2)]


def test_a_bar_on_a_terminal(chain: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    bars = []

    class Bar:
        def __init__(self, **options: object) -> None:
            self.options, self.done, self.closed = options, 0, False
            bars.append(self)

        def update(self) -> None:
            self.done += 1

        def close(self) -> None:
            self.closed = True

    monkeypatch.setitem(sys.modules, "tqdm", types.SimpleNamespace(tqdm=Bar))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False)
    chain.restore(progress=True)
    assert bars == []
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    chain.restore(progress=True)
    with chain.restore_iter(progress=True) as leaves:
        next(leaves)
    assert [(bar.options["total"], bar.done, bar.closed) for bar in bars] == [(3, 3, True), (3, 1, True)]
    monkeypatch.setitem(sys.modules, "tqdm", None)
    assert chain.restore(progress=True)["epoch"] == 2


def test_what_is_neither_is_refused(chain: Chain) -> None:
    with pytest.raises(ArgumentError, match="progress is True, False or a function"):
        chain.restore(progress="bar")  # type: ignore[arg-type]
