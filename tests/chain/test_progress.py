"""How far a save or restore is: arrays are counted, in a function or in a bar on a terminal."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from lccodec import ArgumentError, Chain, LccodecWarning

from ..support.walks import assert_same

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
            self.options, self.n, self.total, self.closed = options, 0, 0, False
            bars.append(self)

        def update(self, more: int) -> None:
            self.n += more

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
    chain.save(3, {name: np.full(5, 3, np.float32) for name in NAMES}, progress=True)
    told = [(bar.options["desc"], bar.total, bar.n, bar.closed) for bar in bars]
    assert told == [("restore", 3, 3, True), ("restore", 3, 1, True), ("save", 3, 3, True)]
    monkeypatch.setitem(sys.modules, "tqdm", None)
    chain.save(4, {"epoch": 4, "a": np.ones(2)}, progress=True)
    assert chain.restore(progress=True)["epoch"] == 4


def test_what_is_neither_is_refused(chain: Chain) -> None:
    with pytest.raises(ArgumentError, match="progress must be True, False or a function"):
        chain.restore(progress="bar")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="progress must be True, False or a function"):
        chain.save(3, {}, progress=3)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="progress must be True, False or a function"):
        chain.save_async(3, {}, progress=3)  # type: ignore[arg-type]
    assert chain.steps == [0, 1, 2]


# --- saves ----------------------------------------------------------------------------------------


def state(step: int) -> dict[str, np.ndarray]:
    """Two arrays with a frame of their own, and three of one frame."""
    large = {f"large{i}": np.full(70_000, step + i, np.float32) for i in range(2)}
    return large | {f"small{i}": np.full(7, step + i, np.float32) for i in range(3)}


def save(chain: Chain, how: str, step: int, progress: Callable[[int, int], object] | bool) -> int | None:
    if how == "async":
        return chain.save_async(step, state(step), progress=progress).result()
    return chain.save(step, state(step), progress=progress)


@pytest.mark.parametrize(("how", "workers"), [("here", None), ("async", None), ("worker", 2)])
def test_a_save_tells_how_many_arrays_are_coded(tmp_path: Path, how: str, workers: int | None) -> None:
    told: list[tuple[int, int]] = []
    with Chain(tmp_path, "lossless", workers=workers) as chain:
        for step in range(2):
            told.clear()
            save(chain, how, step, lambda *numbers: told.append(numbers))
            assert told[-1] == (5, 5)
            assert told == sorted(set(told))
            assert how != "here" or told == [(1, 5), (2, 5), (5, 5)]
        told.clear()
        chain.save(2, state(1), progress=lambda *numbers: told.append(numbers))
        assert told == []  # nothing is coded
        save(chain, how, 3, progress=True)
    assert chain.steps == [0, 1, 2, 3]


@pytest.mark.parametrize(("how", "workers"), [("here", None), ("async", None), ("worker", 2)])
def test_an_error_of_the_function_stops_no_save(tmp_path: Path, how: str, workers: int | None) -> None:
    told = []

    def fail(done: int, total: int) -> None:
        told.append((done, total))
        raise ValueError("enough")

    with Chain(tmp_path, "lossless", workers=workers) as chain:
        with pytest.warns(LccodecWarning, match="goes on, but not its progress: ValueError: enough"):
            assert save(chain, how, 0, fail)
            chain.wait()
        assert len(told) == 1
    assert_same(chain.restore(), state(0))


def test_an_interrupt_of_the_function(tmp_path: Path) -> None:
    """Whether the worker was faster or not."""

    def interrupt(*_: int) -> None:
        raise KeyboardInterrupt

    with Chain(tmp_path, "lossless") as chain:
        save(chain, "async", 0, progress=False)
        with pytest.raises(KeyboardInterrupt):
            save(chain, "async", 1, interrupt)
        with pytest.raises(KeyboardInterrupt):
            chain.wait()
        save(chain, "async", 2, progress=False)
    assert chain.steps in ([0, 2], [0, 1, 2])
    assert_same(chain.restore(), state(2))
