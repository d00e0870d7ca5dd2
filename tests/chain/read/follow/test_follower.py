"""Waiting for updates, closing, and what may be asked for."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lccodec
from lccodec import ArgumentError, Chain, follow
from lccodec.chain.read import follow_crew as crew
from lccodec.chain.read.follow_crew import Write, write_all
from lccodec.chain.read.followed_state import FollowedState
from lccodec.chain.store.bucket.source import Reading

from ....support.following import Run, Served, mixed, rounded, taken
from ....support.walks import assert_same


def test_a_chain_that_does_not_exist_yet(tmp_path: Path) -> None:
    with follow(tmp_path / "run", timeout=0) as follower:
        assert follower.prepare(0) is None
        assert (follower.step, follower.lag) == (None, (0, 0))
        assert list(follower) == []
        with pytest.raises(ArgumentError, match="no step was read yet"):
            follower.state()
        Run(tmp_path / "run").save(3)
        assert [update.step for update in follower] == [3]


def test_one_step(tmp_path: Path) -> None:
    run, served = Run(tmp_path), Served()
    run.save(*range(5))
    with follow(tmp_path, 3, timeout=0) as follower:
        for update in follower:  # ends by itself
            served.take(update)
        served.check(run.states[3])
        assert follower.step == 3
    with follow(tmp_path, 9, timeout=0) as follower:
        assert list(follower) == []
        run.save(9)
        assert [update.step for update in follower] == [9]


def test_some_arrays(tmp_path: Path) -> None:
    run, served = Run(tmp_path), Served()
    run.save(0)
    with follow(tmp_path, keys=["model", "step"]) as follower:
        for step in range(1, 6):
            taken(follower, served)
            served.check({"model": run.states[step - 1]["model"]})
            assert follower.state().keys() == {*served.arrays, "step"}
            run.save(step)
    with follow(tmp_path, keys="model/bias3") as follower:
        update = follower.prepare(0)
        assert update is not None
        assert update.names == ("model/bias3",)
        assert_same(follower.state()["model/bias3"], run.states[5]["model"]["bias3"])
        assert_same(follower.get("model/bias3"), run.states[5]["model"]["bias3"])
        with pytest.raises(ArgumentError, match="no array 'model' is held"):
            follower.get("model")
    with follow(tmp_path, keys="models") as follower, pytest.raises(ArgumentError, match="is it 'model'"):
        follower.prepare(0)


@pytest.mark.parametrize("keys", [None, "model"])
def test_weights_that_are_rounded_from_others(tmp_path: Path, keys: str | None) -> None:
    """They have no frame of their own, and are followed all the same."""
    state, served = mixed(np.random.default_rng(0)), Served()
    with Chain(tmp_path, "lossless") as chain, follow(tmp_path, keys=keys) as follower:
        for step in range(6):
            chain.save(step, state)
            assert len(taken(follower, served)) == 1
            served.check(state if keys is None else {"model": state["model"]})
            master = state["optimizer"]["master"].copy()
            if step != 2:  # then nothing moves
                master[step : step + 5] += 1
            state = {"model": {"weight": rounded(master)}, "optimizer": {"master": master}}
            if step == 3:  # not its rounding any more
                state["model"]["weight"][:9] = rounded(np.zeros(9, "f4"))
        assert chain.info(1).arrays[0].method == "copy"
        assert chain.info(4).arrays[0].method != "copy"


def test_every_update_is_of_the_step_before(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.save(0)
    with follow(tmp_path) as follower:
        first = follower.prepare(0)
        run.save(1)
        second = follower.prepare(0)
        assert first is not None
        assert second is not None
        with pytest.raises(ArgumentError, match="step 0 is not the follower's last one"):
            first.apply_to(run.states[0])
        second.apply_to(run.states[0])
        assert_same(run.states[0]["model"], run.states[1]["model"])
    with pytest.raises(ArgumentError, match="not the follower's last one"):
        second.apply_to(run.states[0])


def test_an_interrupt_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At any array of the preparation or of the commit: the next call goes on from there."""
    run, served = Run(tmp_path), Served()
    run.save(0)
    with follow(tmp_path) as follower:
        taken(follower, served)
        for where, method in enumerate(("prepare", "commit")):
            run.save(2 * where + 1, 2 * where + 2)
            whole = getattr(FollowedState, method)

            def cut(*arguments: Any, whole: Any = whole) -> Any:
                whole(*arguments)
                raise KeyboardInterrupt

            with monkeypatch.context() as patched:
                patched.setattr(FollowedState, method, cut)
                with pytest.raises(KeyboardInterrupt):
                    follower.prepare(0)
            [update] = taken(follower, served)
            assert (update.base, update.step) == (2 * where, 2 * where + 2)
            served.check(run.states[2 * where + 2])


def test_waiting_is_bounded_and_sees_a_save(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.save(0)
    with follow(tmp_path, poll=0.01, timeout=0.05) as follower:
        assert [update.step for update in follower] == [0]
        saving = threading.Timer(0.05, run.save, [1])
        saving.start()
        update = follower.prepare(60)
        saving.join()
        assert update is not None
        assert update.step == 1


def test_another_thread_closes_it(tmp_path: Path) -> None:
    run, seen = Run(tmp_path), list[int]()
    run.save(0)
    follower = follow(tmp_path, poll=30)
    first = threading.Event()

    def serve() -> None:
        for update in follower:
            seen.append(update.step)
            first.set()

    thread = threading.Thread(target=serve)
    thread.start()
    assert first.wait(60)
    follower.close()  # the thread waits for a step that never comes
    thread.join(60)
    assert not thread.is_alive()
    assert seen == [0]
    follower.close()
    assert list(follower) == []
    for call in (follower.prepare, follower.state, lambda: follower.lag):
        with pytest.raises(ArgumentError, match="closed"):
            call()


def test_closing_gives_up_what_is_being_prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Run(tmp_path).save(0)
    follower = follow(tmp_path)
    whole = FollowedState._decode

    def slow(*arguments: Any) -> None:
        follower._closed.set()  # as `close` of another thread does first
        whole(*arguments)

    monkeypatch.setattr(FollowedState, "_decode", slow)
    assert follower.prepare() is None
    follower.close()


def test_a_bundle(tmp_path: Path) -> None:
    run, served = Run(tmp_path / "run"), Served()
    run.save(0, 1)
    lccodec.bundle(tmp_path / "run", tmp_path / "run.lccb")
    with follow(tmp_path / "run.lccb", timeout=0) as follower:
        for update in follower:
            served.take(update)
    served.check(run.states[1])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"step": 1.5}, "a step must be an integer"),
        ({"poll": 0}, "poll must be a number of seconds above 0"),
        ({"poll": "1"}, "poll must be a number of seconds"),
        ({"timeout": -1}, "timeout must be a number of seconds"),
        ({"keys": 3}, "keys must be names"),
    ],
)
def test_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        follow(tmp_path, **options)


def test_a_chain_in_a_store_is_followed() -> None:
    import fsspec  # noqa: F401 - memory:// is a file system of it

    run = "memory://followed/run"
    served = {"w": np.ones(1000, np.float32)}
    with lccodec.Chain(run, "lossless") as chain, lccodec.follow(run, timeout=0) as follower:
        for step in range(3):
            weight = np.zeros(1000, np.float32)
            weight[:step] = step
            chain.save(step, {"w": weight})
            (update,) = follower
            update.apply_to(served)
            assert (update.step, update.nbytes) == (step, 4 * step if step else 4000)
            np.testing.assert_array_equal(served["w"], weight)


@pytest.mark.parametrize("keys", [None, ["a"]])
def test_an_array_that_shared_a_frame_is_gone(tmp_path: Path, keys: list[str] | None) -> None:
    """The frame of the step between cannot be decoded without its values before."""
    rng = np.random.default_rng(0)
    state = {name: rng.standard_normal(50).astype(np.float32) for name in "abc"}
    with lccodec.Chain(tmp_path, "lossless") as chain, follow(tmp_path, keys=keys, timeout=0) as follower:
        chain.save(0, state)
        next(follower)
        state = {name: array + np.float32(1e-4) for name, array in state.items()}
        chain.save(1, state)
        del state["b"]
        state["a"] = state["a"] + 1
        chain.save(2, state)
        update = next(follower)
        assert (update.step, update.removed) == (2, ("b",))
        for name in update.names:
            np.testing.assert_array_equal(follower.get(name), state[name])


def test_frames_of_a_store_are_fetched_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other, each of many arrays would take the time of an answer."""
    fetched = list[int]()
    fetch = Reading._fetch

    def counted(self: Reading, wanted: Any) -> Any:
        fetched.append(len(wanted))
        return fetch(self, wanted)

    monkeypatch.setattr(Reading, "_fetch", counted)
    rng = np.random.default_rng(0)
    state = {f"w{number}": rng.standard_normal(30_000) for number in range(9)}
    run = "memory://fetched/run"
    with lccodec.Chain(run, "lossless") as chain, lccodec.follow(run, timeout=0) as follower:
        for step in range(2):
            for array in state.values():
                array[rng.integers(0, array.size, 4000)] += step
            chain.save(step, state)
            fetched.clear()
            assert next(follower).names == tuple(state)
            assert len(fetched) <= 3
        for name, array in state.items():
            np.testing.assert_array_equal(follower.get(name), array)


def test_an_interrupt_leaves_no_state_of_two_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some arrays have their new values, others do not yet."""
    state = {name: np.arange(20_000) for name in "abc"}
    with Chain(tmp_path, "lossless") as chain, follow(tmp_path) as follower:
        chain.save(0, state)
        follower.prepare(0)
        for array in state.values():
            array[:9] += 1
        chain.save(1, state)

        def cut(writes: Iterable[Write]) -> None:
            write_all(list(writes)[:1])
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(crew, "write_all", cut)
            with pytest.raises(KeyboardInterrupt):
                follower.prepare(0)
        np.testing.assert_array_equal(follower.get("c"), state["c"])
        assert_same(follower.state(), state)
        assert follower.step == 1
        update = follower.prepare(0)
        assert update is not None
        assert (update.base, update.step, update.names) == (0, 1, ("a", "b", "c"))


def test_a_pattern_of_names(tmp_path: Path) -> None:
    with Chain(tmp_path, "lossless") as chain, follow(tmp_path, keys="m/*.w", timeout=0) as follower:
        for step in range(2):
            chain.save(step, {"m": {"a.w": np.full(3, step), "a.b": np.ones(2)}, "o": np.ones(4)})
            assert [patch.name for update in follower for patch in update.patches()] == ["m/a.w"]
