"""The reference has one owner, whoever saves: plans beside saves, and two threads at a time.

What a chain would take, told by two states, beside what it takes.

Feedback from a loss: steps follow the promise, it is asked rarely, and nothing is changed.

Estimates of a plan: near what the save then does.

A first keyframe is as fine as the state moves, where it is known what follows.
"""

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

import lccodec
from lccodec import (
    ArgumentError,
    Chain,
    Keep,
    LccodecError,
    LccodecWarning,
    Policy,
    StorageError,
    Triggered,
    UniformDeadzone,
)
from lccodec.chain.save import judge, reference
from lccodec.chain.save.plan import forecast
from lccodec.element_types import Array
from lccodec.frame.content import MAX_SHARED_COMPONENTS
from lccodec.policy.record import read_record

from ...support.adam import adam_states
from ...support.chains import HistoryChain
from ...support.checkpoints import unmeasured
from ...support.estimates import check_estimates
from ...support.profiles import examples
from ...support.tuning import tune
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


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["lossless", "balanced", "lc-3"])
@pytest.mark.parametrize("count", [1, 6])
def test_it_is_near(tmp_path, policy, count):
    states = adam_states(count)
    found = forecast(states[:2], policy)
    newest = "history" if policy == "lossless" else "exact"
    with Chain(tmp_path / "run", policy, newest=newest) as chain:
        for step, state in enumerate(states):
            chain.save(step, state, following=states[1] if count > 1 and step == 0 else None)
    taken = sum(path.stat().st_size for path in (tmp_path / "run").glob("*.lcc.h5"))
    assert 0.8 < found.chain_bytes(count) / taken < 1.25
    assert found.nbytes == sum(array.nbytes for part in states[0].values() for array in part.values())


def test_a_chain_without_an_exact_file_takes_less():
    found = forecast(adam_states(2), "balanced")
    assert found.chain_bytes(2) == found.chain_bytes(2, exact=False) + found.exact
    assert found.chain_bytes(2, exact=False) == found.keyframe + found.delta


def test_keyframes_come_again():
    found = forecast([{"weight": np.arange(5000.0)}, {"weight": np.arange(5000.0) + 1}], "lossless")
    assert found.chain_bytes(67) == 3 * found.keyframe + 64 * found.delta
    assert found.chain_bytes(0) == 0


SIZE = 5_000
SAVES = 14


class Valley:
    """A random walk with a drift, and a loss that falls with the drift and rises with an error."""

    def __init__(self, curvature: float) -> None:
        self.rng = np.random.default_rng(0)
        self.w = self.rng.standard_normal(SIZE).astype(np.float32)
        self.walked: list[Array] = []  # all weights that a state had
        self.curvature, self.asked = curvature, 0

    def state(self, step: int) -> dict[str, Any]:
        self.w = self.w + self.rng.standard_normal(SIZE).astype(np.float32) * np.float32(0.01)
        self.walked.append(self.w)
        moments = {name: self.rng.random(SIZE, np.float32) for name in ("exp_avg", "exp_avg_sq")}
        return {"model": {"weight": self.w}, "optimizer": {"state": {"0": {"step": step, **moments}}}}

    def loss(self, state: Any) -> float:
        self.asked += 1
        w = state["model"]["weight"]
        # The drift of the run is its step: each state is one of the walk, or near to one.
        errors = [float(np.mean(np.square(w - walked))) for walked in self.walked]
        nearest = int(np.argmin(errors))
        return -0.01 * nearest + self.curvature * errors[nearest]


def saved(directory: Path, valley: Valley, loss: Callable[[Any], Any], **options: Any) -> lccodec.Chain:
    policy = lccodec.Balanced(intervals=0.2, loss=loss)
    with lccodec.Chain(directory, policy, newest="history", **options) as chain:
        for step in range(SAVES):
            chain.save(step, valley.state(step))
    return chain


def widths(chain: lccodec.Chain) -> list[float]:
    policies = [read_record(chain.info(step).policy).policy for step in chain.steps]
    return [policy.width for policy in policies if isinstance(policy, lccodec.Balanced)]


@pytest.mark.slow
@pytest.mark.parametrize("workers", [None, 1])
def test_steps_follow_the_valley(tmp_path: Path, workers: int | None) -> None:
    """In a wide valley they become wider, in a narrow one narrower."""
    files = {}
    for name, curvature in (("wide", 0.0), ("narrow", 1e5)):
        valley = Valley(curvature)
        chain = saved(tmp_path / name, valley, valley.loss, workers=workers)
        files[name] = chain.info(SAVES - 1).file_bytes, widths(chain)
    assert files["wide"][0] < 0.85 * files["narrow"][0]
    assert files["wide"][1][-1] > 1.2
    assert files["narrow"][1][-1] < 0.5


@pytest.mark.slow
def test_a_resumed_chain_keeps_its_width(tmp_path: Path) -> None:
    valley = Valley(0.0)
    chain = saved(tmp_path, valley, valley.loss)
    last = widths(chain)[-1]
    with lccodec.Chain(tmp_path) as chain:  # without a loss, too
        chain.save(SAVES, valley.state(SAVES))
        assert widths(chain)[-1] == last
    with lccodec.Chain(tmp_path, lccodec.Balanced(intervals=0.2, loss=valley.loss)) as chain:
        chain.save(SAVES + 1, valley.state(SAVES + 1))
        assert widths(chain)[-1] == last


@pytest.mark.slow
def test_the_loss_is_asked_at_a_few_saves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Later on it takes at most a hundredth of the time: a slow one is not called again."""
    now = [0.0]
    monkeypatch.setattr(judge.time, "monotonic", lambda: now[0])
    valley, times = Valley(0.0), []

    def loss(state: Any) -> float:
        now[0] += 1.0
        times.append(now[0])
        return valley.loss(state)

    policy = lccodec.Balanced(intervals=0.2, loss=loss)
    with lccodec.Chain(tmp_path, policy, newest="history") as chain:
        for step in range(80):
            now[0] += 10.0
            chain.save(step, valley.state(step))
        first = len(times)
        assert 10 <= first <= 20
        for step in range(80, 400, 8):
            now[0] += 80.0
            chain.save(step, valley.state(step))
    assert first < len(times) <= 0.01 * now[0] + 2


def test_a_loss_that_loads_what_it_is_given_leaves_the_run_as_it_was(tmp_path: Path) -> None:
    """Its model has the arrays of the state that is saved: the last that it loads is exact."""
    valley = Valley(0.0)
    model = np.empty(SIZE, np.float32)

    def loss(state: Any) -> float:
        model[:] = state["model"]["weight"]
        return valley.loss({"model": {"weight": model.copy()}})

    policy = lccodec.Balanced(intervals=0.2, loss=loss)
    with lccodec.Chain(tmp_path, policy, newest="history") as chain:
        for step in range(8):
            state = valley.state(step)
            model[:] = state["model"]["weight"]
            state["model"]["weight"] = model
            before = model.tobytes()
            chain.save(step, state)
            assert model.tobytes() == before
    assert widths(chain)[-1] > 1


@pytest.mark.parametrize("broken", [ValueError("no data"), KeyError("model"), MemoryError()])
def test_a_loss_that_fails_costs_no_save(tmp_path: Path, broken: Exception) -> None:
    calls = []

    def loss(state: Any) -> float:
        calls.append(state)
        raise broken

    with pytest.warns(lccodec.LccodecWarning, match="loss= raised an error and is not called again"):
        chain = saved(tmp_path, Valley(0.0), loss)
    assert chain.steps == list(range(SAVES))
    assert len(calls) <= 2


@pytest.mark.slow
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_says_nothing(tmp_path: Path, value: float) -> None:
    chain = saved(tmp_path, Valley(0.0), lambda _: value)
    assert widths(chain) == [1.0] * SAVES


@pytest.mark.slow
def test_a_rollback_begins_anew(tmp_path: Path) -> None:
    valley = Valley(0.0)
    policy = lccodec.Balanced(intervals=0.2, loss=valley.loss)
    with lccodec.Chain(tmp_path, policy, newest="history") as chain:
        for step in range(6):
            chain.save(step, valley.state(step))
        chain.rollback(2)
        for step in range(3, 8):
            chain.save(step, valley.state(step))
        assert chain.steps == list(range(8))


def test_what_a_policy_takes() -> None:
    with pytest.raises(lccodec.ArgumentError, match="loss= needs intervals="):
        lccodec.Balanced(loss=lambda _: 0.0)
    with pytest.raises(lccodec.ArgumentError, match="loss must be a function"):
        lccodec.Balanced(intervals=0.1, loss=0.5)
    with pytest.raises(lccodec.ArgumentError, match="at most one of ratio, max_bytes, error, intervals"):
        lccodec.Balanced(intervals=0.1, ratio=50)
    policy = lccodec.Balanced(intervals=0.1, loss=lambda _: 0.0, width=1.5)
    again = lccodec.Balanced.from_json(policy.to_json())
    assert again == policy
    assert (again.loss, again.width) == (None, 1.5)


def test_a_jump_of_the_movement_is_judged_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tune(monkeypatch, judge_first_saves=(1, 2), judge_share_of_time=0.0, judge_share_of_time_in_jumps=1.0)
    valley, asked = Valley(0.0), []
    policy = lccodec.Balanced(intervals=0.2, loss=valley.loss)
    with lccodec.Chain(tmp_path, policy, newest="history") as chain:
        for step in range(9):
            before, w = valley.asked, valley.w
            state = valley.state(step)
            if step >= 5:  # the rate begins anew
                state["model"]["weight"] = valley.w = w + 10 * (valley.w - w)
            chain.save(step, state)
            asked.append(valley.asked > before)
    assert [step for step, found in enumerate(asked) if found] == [0, 1, 6]


@pytest.fixture(autouse=True)
def _small_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays of more than 32,768 components are sampled."""
    tune(monkeypatch, estimate_stretches=32, estimate_stretch_components=1024)


def adam(count: int, size: int = 300_000, seed: int = 0) -> list[dict[str, Any]]:
    """States of Adam on noise, with arrays that are sampled and arrays that are not."""
    rng = np.random.default_rng(seed)
    shapes = {"wide.weight": (size // 100, 100), "middle.weight": (100, 300), "small.bias": (70,)}
    weights = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    first = {name: np.zeros(shape) for name, shape in shapes.items()}
    second = {name: np.zeros(shape) for name, shape in shapes.items()}
    states = []
    for _ in range(count):
        for name, shape in shapes.items():
            gradient = rng.normal(size=shape) * np.exp(
                0.3 * rng.normal(size=(shape[0], *[1] * (len(shape) - 1)))
            )
            first[name] = 0.9 * first[name] + 0.1 * gradient
            second[name] = 0.99 * second[name] + 0.01 * gradient**2
            weights[name] = weights[name] - 1e-3 * first[name] / np.sqrt(second[name] + 1e-8)
        parts = {"model": weights, "exp_avg": first, "exp_avg_sq": second}
        states.append({key: {n: a.astype(np.float32) for n, a in of.items()} for key, of in parts.items()})
    return states


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["balanced", "lossless", "lc-3", "small"])
def test_estimates_of_adam(tmp_path: Path, policy: str) -> None:
    assert check_estimates(tmp_path, adam(4), policy) == {True, False}


def test_arrays_without_a_frame(tmp_path: Path) -> None:
    policy = Policy("calm", {"weight": Triggered(UniformDeadzone(relative_step=1.0), threshold=0.1)})
    rng = np.random.default_rng(0)
    weight = rng.normal(size=20_000).astype(np.float32)
    still = weight[:50].copy()
    with HistoryChain(tmp_path, policy) as chain:
        chain.save(0, {"weight": weight, "same": still, "none": np.zeros((0, 3))})
        plan = chain.plan({"weight": weight + np.float32(1e-3), "same": still, "none": np.zeros((0, 3))})
        assert [array.stored for array in plan] == ["waits", "unchanged", "unchanged"]
        waits, same, none = plan.estimates()
    assert (waits.stored_bytes, waits.error) == (0, pytest.approx(1.0))
    assert (same.stored_bytes, same.error, same.sampled) == (0, 0.0, False)
    assert (none.stored_bytes, none.error) == (0, 0.0)


def test_values_that_are_not_finite_and_complex_numbers(tmp_path: Path) -> None:
    large = np.full(10 * MAX_SHARED_COMPONENTS, 1 + 2j, np.complex64)
    large[:100] = np.nan
    state = {"weight": np.full(100, np.nan, np.float32), "large": large, "empty": np.ones((3, 0))}
    estimates = HistoryChain(tmp_path, "balanced").plan(state).estimates()
    assert [each.error for each in estimates] == [0.0, 0.0, 0.0]
    assert estimates[1].sampled
    assert all(each.stored_bytes > 0 for each in estimates)


def test_nothing_is_written(tmp_path: Path) -> None:
    chain = lccodec.Chain(tmp_path / "run")
    chain.plan({"weight": np.ones(10)}).estimates()
    assert not (tmp_path / "run").exists()


RNG = np.random.default_rng(0)
BASE = RNG.normal(0, 0.05, (200, 300)).astype(np.float32)


def states(movement, count=4):
    """Weights that walk, beside some that stay."""
    rng, weight, found = np.random.default_rng(1), BASE.copy(), []
    for _ in range(count):
        found.append({"fc": {"weight": weight}, "frozen": {"weight": BASE[:90]}})
        weight = weight + rng.normal(0, movement, weight.shape).astype(np.float32)
    return found


def errors(directory, originals):
    """The error of each step in movements."""
    found = []
    for step, state in enumerate(originals):
        weight, exact = Chain(directory).restore(step)["fc"]["weight"], state["fc"]["weight"]
        other = originals[step - 1 if step else 1]["fc"]["weight"]
        found.append(np.sqrt(np.mean((weight - exact) ** 2) / np.mean((exact - other) ** 2)))
    return found


def save_all(directory, originals, policy="balanced", foreseen=True, workers=None):
    with Chain(directory, policy, newest="history", workers=workers) as chain:
        for step, state in enumerate(originals):
            chain.save(step, state, following=originals[1] if foreseen and step == 0 else None)
    return sorted(directory.iterdir())


@pytest.mark.parametrize("policy", ["balanced", "small"])
@pytest.mark.parametrize("movement", [1e-5, 1e-3])
def test_no_step_is_many_movements_off(tmp_path, movement, policy):
    originals = states(movement)
    save_all(tmp_path / "run", originals, policy)
    assert max(errors(tmp_path / "run", originals)) < 2
    weight = Chain(tmp_path / "run").restore(0)["fc"]["weight"]
    assert np.count_nonzero(weight == 0) <= np.count_nonzero(np.abs(BASE) < movement)


def test_without_what_follows_it_is_far_off(tmp_path):
    originals = states(1e-5)
    save_all(tmp_path / "run", originals, foreseen=False)
    found = errors(tmp_path / "run", originals)
    assert found[0] > 20 and found[0] > 4 * min(found)


def test_what_does_not_move_is_exact(tmp_path):
    originals = states(1e-3)
    save_all(tmp_path / "run", originals)
    for step in range(4):
        np.testing.assert_array_equal(Chain(tmp_path / "run").restore(step)["frozen"]["weight"], BASE[:90])


def test_steps_that_take_as_many_bytes_as_exact_values_are_not_taken(tmp_path):
    originals = [{"weight": (BASE / 2**20).astype(np.float16) + np.float16(1)} for _ in range(2)]
    originals[1]["weight"].flat[0] += np.float16(2**-10)  # the movement is far below the resolution
    save_all(tmp_path / "run", originals)
    np.testing.assert_array_equal(Chain(tmp_path / "run").restore(0)["weight"], originals[0]["weight"])


@pytest.mark.slow
def test_workers_write_the_same_files(tmp_path):
    originals = states(1e-4, 3)
    here, there = (save_all(tmp_path / str(n), originals, workers=n) for n in (None, 1))
    assert [path.read_bytes() for path in here] == [path.read_bytes() for path in there]


@pytest.mark.slow
@pytest.mark.parametrize("workers", [None, 1])
def test_what_follows_one_state_is_forgotten_when_its_save_fails(tmp_path, workers):
    one, other = states(1e-5, 2), states(1e-2, 2)
    options = {"newest": "history", "workers": workers}
    with Chain(tmp_path / "a", "balanced", **options) as chain:
        with pytest.raises(ArgumentError, match="a step must be an integer"):
            chain.save(-1, one[0], following=one[1])
        (tmp_path / "a").touch()
        with pytest.raises(StorageError):
            chain.save(0, one[0], following=one[1])
        (tmp_path / "a").unlink()
        chain.save(0, other[0])
    with Chain(tmp_path / "b", "balanced", **options) as chain:
        chain.save(0, other[0])
    left, right = (next((tmp_path / name).iterdir()).read_bytes() for name in "ab")
    assert left == right


def test_only_the_first_keyframe_is_foreseen(tmp_path):
    originals = states(1e-4, 3)
    save_all(tmp_path / "run", originals)
    with Chain(tmp_path / "other", "balanced", newest="history") as chain:
        for step, state in enumerate(originals):
            chain.save(step, state, following=originals[0 if step else 1])
    assert [unmeasured(p) for p in sorted((tmp_path / "run").iterdir())] == [
        unmeasured(p) for p in sorted((tmp_path / "other").iterdir())
    ]


@pytest.mark.parametrize(
    "policy", ["lossless", "lc-3", Policy("mine", {"weight": UniformDeadzone(share=0.1)})]
)
def test_exact_keyframes_stay_exact(tmp_path, policy):
    originals = states(1e-4, 2)
    with Chain(tmp_path / "run", policy) as chain:
        chain.save(0, originals[0], following=originals[1])
    np.testing.assert_array_equal(Chain(tmp_path / "run").restore(0)["fc"]["weight"], BASE)


def test_a_state_of_other_arrays_follows(tmp_path):
    one, other = {"fc": {"weight": BASE}}, {"fc": {"weight": BASE[:9]}, "new": {"weight": BASE}}
    for name, following in (("a", None), ("b", other)):
        with Chain(tmp_path / name, "balanced", newest="history") as chain:
            chain.save(0, one, following=following)
    left, right = (next((tmp_path / name).iterdir()).read_bytes() for name in "ab")
    assert left == right


@pytest.mark.slow
def test_a_chain_that_is_coded_anew_is_as_fine(tmp_path):
    originals = states(1e-5)
    save_all(tmp_path / "run", originals, "lossless")
    Chain(tmp_path / "run").compact("balanced", directory=tmp_path / "small")
    assert max(errors(tmp_path / "small", originals)) < 2
