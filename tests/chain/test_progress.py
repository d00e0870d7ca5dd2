"""How far a call is: what is done is counted, in a function or in a bar on a terminal."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lccodec
from lccodec import ArgumentError, Chain, Keep, LccodecWarning

from ..support.walks import assert_same

NAMES = ["a", "b", "c"]


@pytest.fixture
def chain(tmp_path: Path) -> Chain:
    (tmp_path / "to").mkdir()
    chain = Chain(tmp_path / "run", "lossless", newest="exact")
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


@pytest.fixture
def bars(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The bars that are drawn, on a standard error that is a terminal."""
    drawn: list[Any] = []

    class Bar:
        def __init__(self, **options: object) -> None:
            self.options, self.n, self.total, self.closed = options, 0, 0, False
            drawn.append(self)

        def update(self, more: int) -> None:
            self.n += more

        def close(self) -> None:
            self.closed = True

    monkeypatch.setitem(sys.modules, "tqdm", types.SimpleNamespace(tqdm=Bar))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    return drawn


def seen(bars: list[Any]) -> list[tuple[str, str, int, int, bool]]:
    return [(bar.options["desc"], bar.options["unit"], bar.total, bar.n, bar.closed) for bar in bars]


def test_a_bar_on_a_terminal(chain: Chain, bars: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    chain.restore(progress=True)
    with chain.restore_iter(progress=True) as leaves:
        next(leaves)
    chain.save(3, {name: np.full(5, 3, np.float32) for name in NAMES}, progress=True)
    assert seen(bars) == [
        ("restore", " arrays", 3, 3, True),
        ("restore", " arrays", 3, 1, True),
        ("save", " arrays", 3, 3, True),
    ]
    bars.clear()
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False)
    chain.restore(progress=True)
    assert bars == []


#: The long calls, each with how it is named on a bar, what is counted, and how many there are.
LONG = {
    "prune": (lambda chain, _, p: chain.prune(Keep(latest=1), rewrite=True, progress=p), "checkpoints", 3),
    "compact": (lambda chain, _, p: chain.compact(keyframe_every=0, progress=p), "checkpoints", 3),
    "compact to": (
        lambda chain, to, p: chain.compact(directory=to / "new", keyframe_every=0, progress=p),
        *("checkpoints", 3),
    ),
    "compact with a policy": (
        lambda chain, to, p: chain.compact("lc-2", directory=to / "new", progress=p),
        *("checkpoints", 3),
    ),
    "compact with hindsight": (
        lambda chain, to, p: chain.compact("balanced", hindsight=2, directory=to / "new", progress=p),
        *("checkpoints", 3),
    ),
    "average": (lambda chain, _, p: chain.average(last=2, roles=["other"], progress=p), "arrays", 3),
    "bundle": (lambda chain, to, p: lccodec.bundle(chain.directory, to / "run.lcc", progress=p), "files", 4),
    "save": (
        lambda chain, to, p: lccodec.save_file(chain.restore(), to / "new.lcc.h5", progress=p),
        *("arrays", 3),
    ),
    "restore": (
        lambda chain, _, p: lccodec.load_file(chain.directory / "exact.lcc.h5", progress=p),
        *("arrays", 3),
    ),
}


@pytest.mark.parametrize("name", LONG)
def test_a_long_call_tells_a_function(chain: Chain, tmp_path: Path, name: str) -> None:
    call, unit, total = LONG[name]
    told: list[tuple[int, int]] = []
    call(chain, tmp_path / "to", lambda *numbers: told.append(numbers))
    assert told == sorted(set(told))
    assert {number for _, number in told} == {total}
    assert told[-1] == (total, total)
    assert len(told) > 1 or unit == "arrays"  # small ones are in one frame


@pytest.mark.parametrize("name", LONG)
def test_a_long_call_draws_a_bar(chain: Chain, bars: list[Any], tmp_path: Path, name: str) -> None:
    call, unit, total = LONG[name]
    call(chain, tmp_path / "to", True)
    assert seen(bars) == [(name.partition(" ")[0], f" {unit}", total, total, True)]


@pytest.mark.parametrize("name", LONG)
def test_a_long_call_refuses_what_is_neither(chain: Chain, tmp_path: Path, name: str) -> None:
    before = sorted(path.name for path in chain.directory.iterdir())
    with pytest.raises(ArgumentError, match="progress must be True, False or a function"):
        LONG[name][0](chain, tmp_path / "to", "bar")
    assert sorted(path.name for path in chain.directory.iterdir()) == before


@pytest.mark.slow
@pytest.mark.parametrize("terminal", [True, False])
def test_without_tqdm_a_warning_says_what_to_install(
    chain: Chain, terminal: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tqdm", None)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    folders = [tmp_path / "to" / str(place) for place in range(len(LONG))]
    for folder in folders:
        folder.mkdir()
    calls = [
        *(partial(call, chain, folder) for folder, (call, *_) in zip(folders, LONG.values(), strict=True)),
        lambda progress: chain.restore(progress=progress),
        lambda progress: chain.save(9, {"epoch": 4, "a": np.ones(2)}, progress=progress),
        lambda progress: chain.save_async(10, {"epoch": 5, "a": np.ones(2)}, progress=progress).result(),
    ]
    for call in calls:
        with pytest.warns(LccodecWarning) as warned:
            call(True)
        (message,) = [str(each.message) for each in warned]
        assert "tqdm is not installed: pip install 'lccodec[progress]'" in message
    chain.close()
    assert chain.restore()["epoch"] == 5


def test_unbundling_tells_too(chain: Chain, bars: list[Any], tmp_path: Path) -> None:
    lccodec.bundle(chain.directory, tmp_path / "to" / "run.lcc")
    told: list[tuple[int, int]] = []
    for _ in range(2):  # the second time, all files are there
        told.clear()
        progress = lambda *numbers: told.append(numbers)  # noqa: E731
        lccodec.unbundle(tmp_path / "to" / "run.lcc", tmp_path / "to" / "back", progress=progress)
        assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]
    lccodec.unbundle(tmp_path / "to" / "run.lcc", tmp_path / "to" / "again", progress=True)
    assert seen(bars) == [("unbundle", " files", 4, 4, True)]


def test_an_error_of_the_function_leaves_a_chain_that_can_be_restored(chain: Chain, tmp_path: Path) -> None:
    def fail(*_: int) -> None:
        raise ValueError("enough")

    for call in (LONG["prune"][0], LONG["compact"][0], LONG["bundle"][0]):
        with pytest.raises(ValueError, match="enough"):
            call(chain, tmp_path / "to", fail)
        assert lccodec.validate(chain.directory, deep=True) == []
    assert not (tmp_path / "to" / "run.lcc").exists()


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


@pytest.mark.slow
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
    assert chain.steps == [0, 1, 2]


@pytest.mark.slow
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


@pytest.mark.slow
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
