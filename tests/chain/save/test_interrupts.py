"""A signal between any two lines: what was promised stays, nothing hangs, and no lock is left.

Invariant: after it, each step that was reported done is there, each step that is there has its own
values, the next saves work, and closing the chain leaves no lock. Each test takes some lines of a
call as the moments; the nightly profile takes all of them.
"""

import gc
import logging
import random
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lccodec import ArgumentError, Chain, ChainError, LccodecError, LccodecWarning, follow, validate
from lccodec.chain.save.writer import SaveRequest
from lccodec.constants import WRITER_NAME
from lccodec.parallel import Line
from lccodec.workers.process import Arena

from ...support.interrupts import Interrupt, interrupt, interrupted, within
from ...support.profiles import LONG

pytestmark = pytest.mark.filterwarnings(  # Python drops what is raised within `__del__`
    "ignore::pytest.PytestUnraisableExceptionWarning"
)

_MOMENTS = 8  # of one call, unless all are taken
_FEW = 3  # where a worker is started for each
_SECONDS = 120  # until a call counts as one that hangs


def state_of(step: int) -> dict[str, Any]:
    """A state that says of which step each of its values is."""
    return {"model": {"weight": np.full(5000, step, np.float32), "bias": np.arange(9.0) + step}, "n": step}


def assert_own(chain: Chain, step: int) -> None:
    """Nothing in a step is of another step."""
    state, expected = chain.restore(step), state_of(step)
    assert state["n"] == step
    for name, array in expected["model"].items():
        np.testing.assert_array_equal(state["model"][name], array)


class Run:
    """A chain that is interrupted again and again.

    With `alone`, a thread of this process saves in the background, and not a worker.
    """

    def __init__(self, directory: Path, alone: bool, **options: Any) -> None:
        self._directory, self._options = directory, options
        self.many = _MOMENTS if alone else _FEW
        self.chain, self.step = self._opened(), 0
        self.futures: list[tuple[int, Future[int | None]]] = []
        self.done: list[int] = []

    def _opened(self) -> Chain:
        return Chain(self._directory, "lossless", newest="exact", **self._options)

    def next_step(self) -> int:
        """The next step to save."""
        self.step += 1
        return self.step

    def save(self) -> None:
        """Save a step, and note that this was reported."""
        step = self.next_step()
        self.chain.save(step, state_of(step))
        self.done.append(step)

    def save_async(self) -> None:
        """Begin to save a step."""
        step = self.next_step()
        self.futures.append((step, self.chain.save_async(step, state_of(step))))

    def emergency(self) -> None:
        """What a handler of SIGTERM does: it saves once more."""
        self.step += 100
        self.save()

    def check(self, *, may_fail: bool) -> None:
        """All holds that was promised, and the chain goes on."""
        for step, future in self.futures:
            try:
                within(_SECONDS, future.result)
                self.done.append(step)
            except LccodecError:
                assert may_fail
        self.futures.clear()
        for _ in range(3):
            try:
                assert within(_SECONDS, self.chain.wait)
                break
            except LccodecError:  # each failure is raised once
                assert may_fail
        for _ in range(2):
            self.step += 1
            step = self.step
            within(_SECONDS, self.chain.save_async(step, state_of(step)).result)
            self.done.append(step)
        steps = self.chain.steps
        assert set(self.done) <= set(steps)
        for step in steps[-5:]:
            assert_own(self.chain, step)

    def end(self) -> None:
        """Close the chain; nothing is left of its lock, and all files are sound."""
        within(_SECONDS, self.chain.close)
        assert not (self._directory / WRITER_NAME).exists()
        assert validate(self._directory, deep=True) == []

    def again(self) -> None:
        """Open the chain that was closed."""
        self.chain = self._opened()


#: Starting workers takes most of the time of these tests, so only the nightly profile has all.
_WORKER = [pytest.param("worker", marks=pytest.mark.slow)]


@pytest.fixture(params=["thread", *(_WORKER if LONG else [])])
def run(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    alone = request.param == "thread"
    if alone:
        monkeypatch.setattr("sys.executable", None)  # so that no worker can be started
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LccodecWarning)
        run = Run(tmp_path / "run", alone, max_concurrent_saves=2)
        run.save_async()
        run.check(may_fail=False)
        yield run
        run.end()


def moments(call: Callable[[], object], many: int = _MOMENTS) -> list[int]:
    """The numbers of the lines of a call at which it is interrupted."""
    count = len(interrupted(call))
    assert count > many
    return list(range(count)) if LONG else sorted(random.Random(count).sample(range(count), many))


def calls_of(run: Run) -> dict[str, Callable[[], object]]:
    """What is interrupted."""
    return {
        "save": run.save,
        "save_async": run.save_async,
        "plan": lambda: run.chain.plan(state_of(run.step + 1)),
        "estimates": lambda: run.chain.plan(state_of(run.step + 1)).estimates(),
        "wait": lambda: (run.save_async(), run.chain.wait()),
        "restore": run.chain.restore,
    }


@pytest.mark.parametrize("run", _WORKER, indirect=True)
@pytest.mark.parametrize("name", ["save_async", "plan"])
def test_an_error_of_a_handler_with_a_worker(run: Run, name: str) -> None:
    test_an_error_of_a_handler(run, name)


@pytest.mark.parametrize("name", ["save", "save_async", "plan", "estimates", "wait", "restore"])
def test_an_error_of_a_handler(run: Run, name: str) -> None:
    call = calls_of(run)[name]
    for number in moments(call, run.many):
        interrupted(call, number)
        run.check(may_fail=False)


@pytest.mark.parametrize("name", ["save", "save_async", "plan", "wait", "restore"])
def test_a_handler_that_saves(run: Run, name: str) -> None:
    """What it reports is there; what it has interrupted may be given up, and then says so."""
    call = calls_of(run)[name]
    for number in moments(call, run.many):
        try:
            interrupted(call, number, run.emergency)
        except LccodecError:
            assert "save" in name or name == "wait"
        run.check(may_fail=True)


def test_a_handler_that_saves_while_its_thread_logs(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    """Each save is logged, too; what was interrupted may have the lock of the log."""
    caplog.set_level("INFO")
    log, before = logging.getLogger("user"), len(run.done)

    def emergency() -> None:
        run.save_async()
        run.futures[-1][1].result(_SECONDS)

    for number in moments(lambda: log.info("an epoch ends"), 2 * run.many):
        interrupted(lambda: log.info("an epoch ends"), number, emergency)
        run.check(may_fail=False)
    assert {f"run: step {step}, " in caplog.text for step in run.done[before:]} == {True}


@pytest.mark.parametrize("run", _WORKER, indirect=True)
def test_close_with_a_worker(run: Run) -> None:
    test_close(run, "raises")


@pytest.mark.parametrize("handler", ["raises", "saves"])
def test_close(run: Run, handler: str) -> None:
    run.save_async()
    for number in moments(run.chain.close, run.many):
        run.again()
        run.save_async()
        try:
            interrupted(run.chain.close, number, interrupt if handler == "raises" else run.emergency)
        except ArgumentError as error:  # after all saves are done, it is as after `close`
            assert "the chain is closed" in str(error)
        within(_SECONDS, run.chain.close)  # a second one, as of a context manager
        gc.collect()
        assert not (run.chain.directory / WRITER_NAME).exists(), number
        run.again()
        run.check(may_fail=False)


def test_a_close_that_was_interrupted_keeps_nobody_away(run: Run) -> None:
    """Neither this process nor another one, once the saves that ran are done."""
    for number in moments(run.chain.close, run.many):
        run.again()
        run.save_async()
        interrupted(run.chain.close, number)
        other = Run(run.chain.directory, True)
        other.step = run.step
        other.check(may_fail=False)
        run.step = other.step
        within(_SECONDS, run.chain.close)
        other.end()
    run.again()


def test_a_save_within_a_rollback_is_refused(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a handler can come to that: the files it would go on from are taken away."""
    from lccodec.chain import chain as chain_module

    monkeypatch.setattr(chain_module, "rollback", lambda *_, **__: run.save())
    with pytest.raises(ChainError, match="the signal came while the chain's files are changed"):
        run.chain.rollback(1)
    run.check(may_fail=False)


def test_no_thread_to_be_had(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller saves; nothing sleeps, and later saves go on as ever."""

    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr("_thread.start_new_thread", refuse)
        run.save_async()
        assert all(future.done() for _, future in run.futures)
    run.check(may_fail=False)


def test_memory_has_one_owner(run: Run) -> None:
    """Steps that are saved at a time never have values of each other, whatever was interrupted."""
    for number in moments(run.save_async, run.many):
        interrupted(run.save_async, number)
        for _ in range(4):
            run.save_async()
        run.check(may_fail=False)


# --- workers --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_answer_to_another_request_is_not_taken(tmp_path: Path) -> None:
    with Chain(tmp_path, "lossless") as chain:
        chain.save_async(0, state_of(0)).result()
        client = chain._writer._background._client
        assert client is not None
        client._number += 1  # as if an answer had been left unread
        leader = client._leader()
        leader.channel.send(chain._writer._copied(1, SaveRequest(state_of(1)), Arena(), number=7))
        large = np.random.default_rng(0).standard_normal(4_000_000)  # which takes a leader some time
        error = chain.save_async(2, {"weight": large}).exception()
        assert "a worker has answered request 7, not 3" in str(error)
        with pytest.raises(LccodecError, match="request 7"):
            chain.wait()
        chain.save_async(3, state_of(3)).result()
        assert_own(chain, 3)


@pytest.mark.slow
def test_restores_by_workers(tmp_path: Path) -> None:
    state = {"weight": np.arange(6_000_000, dtype=np.float32), "bias": np.arange(3_000_000)}
    with Chain(tmp_path, "lossless") as chain:
        chain.save(0, state)
    with Chain(tmp_path, workers=2) as chain:
        for number in moments(chain.restore, _FEW):
            interrupted(chain.restore, number)
            found = within(_SECONDS, chain.restore)
            for name, array in state.items():
                np.testing.assert_array_equal(found[name], array)


def test_follow(run: Run) -> None:
    with follow(run.chain.directory, poll=0.01) as follower:
        updates = state_of(0)

        def step_of() -> int | None:
            update = follower.prepare(0)
            if update is not None:
                update.apply_to(updates)
            return follower.step

        step_of()
        run.save()
        for number in moments(step_of, run.many):
            run.save()
            interrupted(step_of, number)
            within(_SECONDS, step_of)
            assert follower.step == run.step
            assert follower.state()["n"] == run.step
            np.testing.assert_array_equal(follower.state()["model"]["weight"], np.full(5000, run.step, "f4"))


def test_lines_are_interrupted_where_python_calls_handlers() -> None:
    """And not between the end of a block and its exit, where it never does."""
    line = Line()
    passed = interrupted(lambda: line.add(lambda: None))
    assert passed
    assert interrupted(lambda: line.add(lambda: None), 2)[:2] == passed[:2]
    with pytest.raises(Interrupt):
        interrupt()
    assert line.wait(_SECONDS)


def test_a_save_within_a_look_at_the_newest_state_is_refused(tmp_path: Path) -> None:
    """It would overwrite the arrays that a publisher reads: a version would mix two steps."""
    with Chain(tmp_path, "lossless") as chain:
        chain.save(0, {"w": np.zeros(1000, np.float32)})
        with chain._writer.newest_held() as latest:
            assert latest is not None
            with pytest.raises(ChainError, match="its newest state is published; save"):
                chain.save(1, {"w": np.ones(1000, np.float32)})
            assert not latest.arrays["w"].bits.any()
        chain.save(1, {"w": np.ones(1000, np.float32)})
        assert chain.steps == [0, 1]
