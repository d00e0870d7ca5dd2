"""Waiting for updates, closing, and what may be asked for.

An update goes into the arrays of its user as a whole, or not at all.

A follower that starts from arrays at hand reads nothing of their step, and refuses others.

Whatever is done to a chain, and whenever followers look: they have what a restore returns.
"""

import os
import random
import threading
import warnings
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lccodec
from lccodec import (
    BFLOAT16_BITS,
    ArgumentError,
    Chain,
    ChainError,
    Follower,
    Keep,
    LccodecError,
    LccodecWarning,
    Patch,
    Update,
    follow,
)
from lccodec.chain.life.compact import rewrite
from lccodec.chain.read import follow_crew as crew
from lccodec.chain.read.follow_crew import Write, write_all
from lccodec.chain.read.followed_state import FollowedState
from lccodec.chain.store.bucket.source import Reading
from lccodec.chain.store.directory import DirectoryStore
from lccodec.container.source import FileSource
from lccodec.workers.process import Arena

from ...support.following import Run, Served, drift, first_state, mixed, rounded, taken
from ...support.profiles import LONG
from ...support.walks import assert_same, save_all, walk


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


@pytest.fixture
def first() -> dict[str, Any]:
    return {"model": {"w": np.zeros((40, 50), "f4"), "b/c": np.ones(3)}, "lr": 0.1}


@pytest.fixture
def pair(tmp_path: Path, first: dict[str, Any]) -> Any:
    """A follower at step 4, and the update that changed three values of one array."""
    with Chain(tmp_path, "lossless") as chain, follow(tmp_path) as follower:
        chain.save(3, first)
        assert follower.prepare(0) is not None
        weight = first["model"]["w"].copy()
        weight[1, 2] = weight[30, 49] = 7
        chain.save(4, {"model": {"w": weight, "b/c": np.full(3, 2.0)}, "lr": 0.1})
        update = follower.prepare(0)
        yield follower, update


def test_what_it_says(pair: tuple[Follower, Update]) -> None:
    _, update = pair
    assert repr(update) == "Update(step=4, base=3, 2 arrays)"
    assert update.names == ("model/w", "model/b~1c")
    assert update.nbytes == 8 + 24
    wide, small = update.patches()
    assert wide == Patch("model/w", "float32", (40, 50), wide.places, wide.values)
    assert wide.places is not None
    assert (wide.places.tolist(), wide.values.tolist()) == ([52, 1549], [7, 7])
    assert (small.name, small.places, small.values.tolist()) == ("model/b~1c", None, [2, 2, 2])


def test_a_nested_state_or_arrays_by_name(pair: tuple[Follower, Update], first: dict[str, Any]) -> None:
    follower, update = pair
    flat = {"model/w": first["model"]["w"].copy(), "model/b~1c": np.ones(3), "more": np.ones(1)}
    update.apply_to(flat)
    update.apply_to(first)
    update.apply_to(first)  # again is no harm
    assert_same(first, follower.state())
    assert_same(flat["model/w"], first["model"]["w"])
    assert_same(flat["model/b~1c"], first["model"]["b/c"])


def test_keys_with_a_slash_at_the_root(tmp_path: Path) -> None:
    state = {"a/b": np.zeros(5), "c": np.zeros(5)}
    with Chain(tmp_path, "lossless") as chain, follow(tmp_path, timeout=0) as follower:
        for step in range(2):
            chain.save(step, {name: array + step for name, array in state.items()})
            for update in follower:
                update.apply_to(state)
    assert state["a/b"].tolist() == state["c"].tolist() == [1] * 5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda model: model.pop("b/c"), "the arrays lack 'model/b~1c', which step 4 has anew"),
        (lambda model: model.clear(), "the arrays lack 'model/w' and 1 more"),
        (lambda model: model.update({"b/c": np.ones(4)}), r"must be float64 of shape \(3,\)"),
        (lambda model: model.update({"b/c": 1.0}), "the arrays lack 'model/b~1c'"),
    ],
)
def test_what_does_not_fit_changes_nothing(
    pair: tuple[Follower, Update], first: dict[str, Any], change: Any, message: str
) -> None:
    _, update = pair
    weight = first["model"]["w"]
    change(first["model"])
    with pytest.raises(ArgumentError, match=message):
        update.apply_to(first)
    assert not weight.any()


def test_an_array_in_two_places(tmp_path: Path) -> None:
    tied = np.zeros(30, "f4")
    served = {"tied": [tied, tied], "apart": np.zeros(2)}
    untied = {"tied": [tied.copy(), tied.copy()], "apart": np.zeros(2)}
    with Chain(tmp_path, "lossless") as chain, follow(tmp_path) as follower:
        for value in range(2):
            array = np.full(30, value, "f4")
            chain.save(value, {"tied": [array, array], "apart": np.zeros(2)})
            update = follower.prepare(0)
            assert update is not None
            assert update.names[:2] == ("tied/0", "tied/1")
            update.apply_to(served)
            update.apply_to(untied)
    assert tied.tolist() == untied["tied"][0].tolist() == untied["tied"][1].tolist() == [1] * 30


def test_bfloat16_as_asked(tmp_path: Path) -> None:
    bits = np.array([0x3F80, 0x4000], np.uint16)
    with Chain(tmp_path, "lossless") as chain, follow(tmp_path) as follower:
        chain.save(0, {"w": bits.view(BFLOAT16_BITS)})
        update = follower.prepare(0)
        assert update is not None
        [patch] = update.patches("float32")
        assert (patch.dtype, patch.values.dtype, patch.values.tolist()) == ("bfloat16", np.float32, [1, 2])
        [patch] = update.patches("bits")
        assert patch.values.dtype == BFLOAT16_BITS
        with pytest.raises(ArgumentError, match="dtype must be"):
            next(update.patches("f4"))


def test_an_update_in_the_memory_of_another_process_is_refused(
    pair: tuple[Follower, Update], first: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a fork: what a worker found may be overwritten there by now."""
    _, update = pair
    monkeypatch.setattr(os, "getpid", lambda: -1)
    update.apply_to(first)  # it is in private memory, which a fork has copied
    changes = dict(update._changes or {})
    name = "model/w"
    shared = Arena().empty(2, np.dtype(np.int64))
    shared[:] = changes[name].places
    update._changes = {**changes, name: replace(changes[name], places=shared)}
    with pytest.raises(ArgumentError, match=r"step 4 is in memory of the process .* forked from"):
        update.apply_to(first)


@pytest.mark.parametrize("step", [0, 2, 4])  # keyframes and a delta
def test_only_deltas_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    run, served = Run(tmp_path, keyframe_every=3), Served()
    run.save(*range(step + 1))
    own = {**run.states[step]["model"], **{"wide": run.states[step]["model"]["wide"].copy()}}
    with follow(tmp_path, keys="model", start=(step, {"model": own}), timeout=0) as follower:
        assert follower.step == step
        assert_same(follower.state(), {f"model/{name}": array for name, array in own.items()})
        assert list(follower) == []
        run.save(step + 1)
        size = (tmp_path / f"{step + 1:012d}.lcc.h5").stat().st_size
        read, whole = [0], FileSource.read

        def counted(source: FileSource, offset: int, size: int) -> bytes:
            read[0] += size
            return whole(source, offset, size)

        monkeypatch.setattr(FileSource, "read", counted)
        served.arrays = {f"model/{name}": array.copy() for name, array in own.items()}
        [update] = list(follower)
        served.take(update)
        assert read[0] < size + 4096
    assert (update.base, update.step) == (step, step + 1)
    served.check({"model": run.states[step + 1]["model"]})
    assert_same(own, run.states[step]["model"])  # a copy was followed


def test_weights_that_are_copies(tmp_path: Path) -> None:
    state = mixed(np.random.default_rng(0))
    with Chain(tmp_path, "lossless") as chain:
        chain.save(0, state)
        start = (0, {"model": state["model"]})
        with follow(tmp_path, keys="model", start=start, timeout=0) as follower:
            state["optimizer"]["master"][:3] += 1
            state["model"]["weight"] = rounded(state["optimizer"]["master"])
            chain.save(1, state)
            [update] = list(follower)
            assert (update.names, update.nbytes) == (("model/weight",), 6)
        start[1]["model"] = {"weight": rounded(state["optimizer"]["master"])}
        with pytest.raises(ArgumentError, match="'model/weight' differs"):
            follow(tmp_path, keys="model", start=start)


def changed(model: dict[str, Any], name: str) -> dict[str, Any]:
    return {**model, name: np.nextafter(model[name], np.float32(9), dtype=model[name].dtype)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda model: changed(model, "wide"), "not the arrays of step 2: 'model/wide' differs"),
        (lambda model: changed(model, "bias1"), "'model/bias1' differs"),  # shares a frame
        (lambda model: {**model, "wide": model["wide"].astype("f8")}, "'model/wide' differs"),
        (lambda model: {**model, "half": model["half"].T.copy()}, "'model/half' differs"),
        (lambda model: {k: a for k, a in model.items() if k != "ids"}, "'model/ids' is missing"),
        (lambda _: {}, "'model/wide' is missing, .*, and 3 more"),
    ],
)
def test_other_arrays_are_refused(tmp_path: Path, change: Any, message: str) -> None:
    run = Run(tmp_path)
    run.save(0, 1, 2)
    model = run.states[2]["model"]
    follow(tmp_path, keys="model", start=(2, {"model": model})).close()
    with pytest.raises(ArgumentError, match=message):
        follow(tmp_path, keys="model", start=(2, {"model": change(model)}))


def test_a_step_that_cannot_be_started_from(tmp_path: Path) -> None:
    states = walk(9, shape=(80, 60))
    with Chain(tmp_path, "balanced", hindsight=4) as chain:
        save_all(chain, states)
    with pytest.raises(ChainError, match="step 2 is interpolated"):
        follow(tmp_path, start=(2, states[2]))
    with pytest.raises(ChainError, match="has no step 99"):
        follow(tmp_path, start=(99, states[2]))
    for start in (3, (1, 2, 3), ("1", {})):
        with pytest.raises(ArgumentError, match="must be"):
            follow(tmp_path, start=start)


SEEDS, OPERATIONS = (20, 60) if LONG else (1, 15)


class Story:
    """A chain to which things are done at random."""

    def __init__(self, directory: Path, policy: str, seed: int) -> None:
        self.directory, self.random = directory, random.Random(seed)
        self.rng = np.random.default_rng(seed)
        self.state: dict[str, Any] = first_state(self.rng)
        hindsight = 0 if policy == "lossless" else 3
        self.chain = Chain(directory, policy, keyframe_every=4, hindsight=hindsight)

    def go_on(self) -> None:
        """Do something."""
        draw, steps = self.random.random(), self.chain.steps
        if draw < 0.65 or len(steps) < 3:
            latest = self.chain.latest
            self.chain.save(0 if latest is None else latest + self.random.randint(1, 3), self.state)
            self.state = drift(self.rng, self.state, self.random.choice([0.01, 0.5]))
        elif draw < 0.75:
            self.chain.rollback(self.random.choice(steps[-3:]), delete=self.random.random() < 0.5)
        elif draw < 0.82:
            self.chain.prune(Keep(latest=self.random.randint(1, 3)), rewrite=self.random.random() < 0.5)
        elif draw < 0.9:
            rewrite(DirectoryStore(self.directory), self.random.choice(steps[-2:]), None)
        elif draw < 0.95:
            self.chain.compact(keyframe_every=2)
        else:
            self.chain.close()
            self.chain = Chain(self.directory)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize(("policy", "exact"), [("lossless", True), ("balanced", True), ("balanced", False)])
def test_followers_have_the_newest_state(tmp_path: Path, policy: str, exact: bool, seed: int) -> None:
    story = Story(tmp_path, policy, seed)
    whole, part = Served(), Served()
    with (
        warnings.catch_warnings(),
        follow(tmp_path, exact=exact) as often,
        follow(tmp_path, keys="model", exact=exact) as seldom,
    ):
        warnings.simplefilter("ignore", LccodecWarning)
        for _ in range(OPERATIONS):
            try:
                story.go_on()
            except LccodecError as error:  # such as a step that hindsight needs
                print(error)
            if story.chain.latest is None:
                continue
            expected = story.chain.restore(exact=exact)
            taken(often, whole)
            whole.check(expected)
            assert often.step == story.chain.latest
            if story.random.random() < 0.2:
                taken(seldom, part)
                part.check({"model": expected["model"]})
        assert often.refused == seldom.refused == {}
    story.chain.close()
