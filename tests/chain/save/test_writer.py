"""The reference has one owner, whoever saves: plans beside saves, and two threads at a time."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from lccodec import ArgumentError, Chain, Keep, LccodecError, LccodecWarning, Policy, UniformDeadzone
from lccodec.chain.save import reference

from ...support.profiles import examples
from ...support.walks import walk

STATES = walk(6)
BOUND = 0.05
POLICY = Policy("bounded", {"weight": UniformDeadzone(max_error=BOUND)})

who = pytest.mark.parametrize(
    "workers", [None, *(pytest.param(count, marks=pytest.mark.slow) for count in (1, 2))]
)


@pytest.mark.slow
@who
def test_plans_beside_saves_in_the_background(tmp_path: Path, workers: int | None) -> None:
    """A plan is that of the save after all that run, and turns none into a keyframe."""
    with Chain(tmp_path, "lc-3", workers=workers) as chain:
        for step, state in enumerate(STATES):
            chain.save_async(step, state)
            plan = chain.plan(STATES[(step + 1) % len(STATES)])
            assert plan.parent == step
            assert {array.stored for array in plan} <= {"delta", "unchanged", "waits"}
        chain.save(len(STATES), STATES[0])
        assert chain.plan(STATES[1]).parent == len(STATES)
        assert [chain.info(step).parent for step in chain.steps] == [None, *range(len(STATES))]


@pytest.mark.slow
@who
def test_what_is_told_is_the_same_whoever_has_the_reference(tmp_path: Path, workers: int | None) -> None:
    plans = []
    for name, background in (("here", False), ("there", True)):
        with Chain(tmp_path / name, "balanced", workers=workers if background else None) as chain:
            for step, state in enumerate(STATES[:3]):
                (chain.save_async if background else chain.save)(step, state)
            plan = chain.plan(STATES[3])
            plans.append((plan.parent, list(plan), plan.shortfall, plan.estimates()))
    assert plans[0] == plans[1]
    assert plans[0][0] == 2
    assert any(estimate.stored_bytes for estimate in plans[0][-1])


@pytest.mark.slow
def test_this_process_holds_no_second_reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Chain(tmp_path, "lc-3", workers=1) as chain:
        chain.save_async(0, STATES[0])
        monkeypatch.setattr(reference, "read_latest", lambda *_: pytest.fail("a reference was decoded here"))
        plan = chain.plan(STATES[1])
        assert plan.parent == 0
        assert len(plan.estimates()) == len(plan)


@pytest.mark.slow
def test_a_question_that_fails_leaves_the_chain_as_it_was(tmp_path: Path) -> None:
    with Chain(tmp_path, "lc-3", workers=1) as chain:
        chain.save_async(0, STATES[0])
        with pytest.raises(ArgumentError, match="weight"):
            chain.plan({"weight": np.array([{}])})
        assert chain.plan(STATES[1]).parent == 0
        chain.save_async(1, STATES[1])
        chain.wait()
        assert chain.info(1).parent == 0


def state_of(seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {"weight": rng.standard_normal(500).astype(np.float32), "seed": seed}


class TwoThreads(RuleBasedStateMachine):
    """Two threads use a chain at a time; whatever comes first, nothing is lost or out of place."""

    workers: int | None = None
    save_behind = "save"  # a verb: starting a process for each example takes long

    @initialize()
    def begin(self) -> None:
        self.directory = Path(tempfile.mkdtemp())
        self.chain = Chain(self.directory / "run", POLICY, workers=self.workers, max_concurrent_saves=2)
        self.seeds = 0
        self.chain.save(0, state_of(0))

    def teardown(self) -> None:
        if hasattr(self, "chain"):
            self.chain.close()
            shutil.rmtree(self.directory)

    def call(self, verb: str, number: int) -> Callable[[], Any]:
        """Return a call of a verb; what its arguments depend on may change before it is made."""
        chain, last = self.chain, self.chain.steps[-1]
        self.seeds += 1
        state = state_of(self.seeds)
        calls: dict[str, Callable[[], Any]] = {
            "save": lambda: chain.save(last + number, state),
            "save_async": lambda: chain.save_async(last + number, state).result(),
            "plan": lambda: chain.plan(state).estimates(),
            "restore": lambda: self.check(chain.restore(last, exact=False)),
            "rollback": lambda: chain.rollback(max(last - number, 0)),
            "prune": lambda: chain.prune(Keep(latest=number), rewrite=number > 1),
            "wait": chain.wait,
            "release_lock": chain.release_lock,
        }
        return calls[self.save_behind if verb == "save_behind" else verb]

    def check(self, state: dict[str, Any]) -> None:
        saved = state_of(state["seed"])
        assert np.abs(state["weight"] - saved["weight"]).max() <= BOUND

    verbs = st.sampled_from(
        ["save", "save_async", "plan", "restore", "rollback", "prune", "wait", "release_lock"]
    )

    @rule(verbs=st.tuples(verbs, verbs), numbers=st.tuples(st.integers(1, 3), st.integers(1, 3)))
    def at_once(self, verbs: tuple[str, str], numbers: tuple[int, int]) -> None:
        calls = [self.call(verb, number) for verb, number in zip(verbs, numbers, strict=True)]
        found: list[BaseException] = []

        def run(call: Callable[[], Any]) -> None:
            try:
                call()
            except LccodecWarning as warning:
                found.append(warning)
            except LccodecError as error:  # what came first has taken its step, or the steps before
                if not any(
                    word in str(error) for word in ("exists", "must be above", "no step", "no checkpoint")
                ):
                    found.append(error)
            except BaseException as error:
                found.append(error)

        threads = [threading.Thread(target=run, args=(call,)) for call in calls]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == []

    @invariant()
    def every_step_restores(self) -> None:
        if hasattr(self, "chain"):
            for step in self.chain.steps:
                self.check(self.chain.restore(step, exact=False))
            assert self.chain.plan(state_of(0)).parent == self.chain.steps[-1]


class WithAWorker(TwoThreads):
    workers = 1
    save_behind = "save_async"


TwoThreads.TestCase.settings = settings(examples(1 / 6), stateful_step_count=12)
WithAWorker.TestCase.settings = settings(examples(1 / 12), stateful_step_count=12)
TestTwoThreads = pytest.mark.slow(TwoThreads.TestCase)
TestWithAWorker = pytest.mark.slow(WithAWorker.TestCase)
