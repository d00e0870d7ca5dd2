"""Faults on the way to a real store: nothing half, nothing lost, and no loop that waits."""

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import lccodec
from lccodec.chain.store.bucket import backend as module
from lccodec.errors import ChainError, LccodecError

from ....support.buckets import Proxy, Request
from ....support.profiles import LONG
from ....support.walks import assert_restores, assert_same, save_all, walk

ROOT = Path(__file__).parents[4]
FAULTS = 500 if LONG else 40
KILLS = 50 if LONG else 4
SAVES = 100 if LONG else 12


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short waits between attempts."""
    monkeypatch.setattr(module.Patience.__init__, "__defaults__", (60.0, 60.0, 0.005, 0.05))


def at_random(seed: int, share: float, most: int) -> Callable[[Request], str | None]:
    """A rule: a share of all requests fails in one way or another, up to a number."""
    rng, left = random.Random(seed), [most]

    def rule(request: Request) -> str | None:
        if not left[0] or rng.random() > share:
            return None
        left[0] -= 1
        kinds = ("error", "cut", "lost") if request.method != "GET" else ("error", "cut", "lost", "torn")
        return rng.choice(kinds)

    return rule


def test_a_run_with_faults_is_as_one_without(run: str, proxy: Proxy) -> None:
    states, seed = walk(10), 0
    done = 0
    while done < FAULTS:
        seed += 1
        where = f"{run}{seed}"
        proxy.done.clear()
        proxy.rule = at_random(seed, 0.2, FAULTS - done)
        with lccodec.Chain(where, "lc-3", keyframe_every=3) as chain:
            save_all(chain, states)
            chain.prune(lccodec.Keep(latest=4))
            assert_same(chain.restore(), states[-1])
            lossy = [chain.restore(step, exact=False) for step in chain.steps]
        done += sum(count for kind, count in proxy.done.items() if kind)
        proxy.rule = lambda _: None
        assert lccodec.validate(where, deep=True) == []
        other = lccodec.Chain(where)
        assert other.latest == 9
        assert other.exact_step == 9
        for step, state in zip(other.steps, lossy, strict=True):
            assert_same(other.restore(step, exact=False), state)


def test_a_store_that_is_away_holds_no_loop_up(run: str, proxy: Proxy) -> None:
    """Two saves may be pending; the others are left out. The pending ones arrive in order."""
    states = walk(SAVES)
    with lccodec.Chain(run, "lossless", newest="history", max_concurrent_saves=2) as chain:
        chain.save_async(0, states[0]).result()
        proxy.rule = lambda _: "cut"
        futures = {step: chain.save_async(step, states[step], when_busy="skip") for step in range(1, SAVES)}
        pending = chain.pending
        assert pending == [1, 2]
        skipped = [step for step, future in futures.items() if future.done() and future.result() is None]
        assert skipped == list(range(3, SAVES))
        proxy.rule = lambda _: None
        assert [bool(futures[step].result()) for step in pending] == [True, True]
        assert chain.pending == []
        assert chain.steps == [0, 1, 2]
    assert_restores(lccodec.Chain(run), states, (0, 1, 2))


def test_an_outage_that_lasts_is_an_error(run: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.Patience.__init__, "__defaults__", (0.2, 0.2, 0.005, 0.05))
    with lccodec.Chain(run, "lossless") as chain:
        chain.save(0, walk(1)[0])
        proxy.rule = lambda _: "cut"
        with pytest.raises(lccodec.errors.StorageError, match="the store does not answer as it should"):
            chain.save(1, walk(2)[1])
        proxy.rule = lambda _: None
        chain.save(1, walk(2)[1])
        assert chain.steps == [0, 1]


def test_slow_listings_are_waited_for(run: str, proxy: Proxy) -> None:
    proxy.rule = lambda request: "slow" if request.is_listing else None
    with lccodec.Chain(run, "lossless") as chain:
        chain.save(0, walk(1)[0])
    assert lccodec.Chain(run).restore()["epoch"] == 0


SAVER = """
import sys, lccodec
from tests.support.walks import walk
states = walk(200)
chain = lccodec.Chain(sys.argv[1], "lc-3", keyframe_every=5, keep=lccodec.Keep(latest=12))
step = 0 if chain.latest is None else chain.latest + 1
print("ready", step, flush=True)
while step < 200:
    chain.save(step, states[step])
    print("saved", step, flush=True)
    step += 1
"""


def test_a_writer_that_is_killed_leaves_whole_steps(run: str) -> None:
    """And all that it has said to be saved; the next one goes on at once."""
    states, rng, committed = walk(200), random.Random(int(time.time()) if LONG else 0), -1
    for _ in range(KILLS):
        command = [sys.executable, "-c", SAVER, run]
        with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, text=True) as writer:
            assert writer.stdout is not None
            words, begun = writer.stdout.readline().split(), int(committed)
            assert words[0] == "ready"
            assert int(words[1]) in (begun + 1, begun + 2)  # the save that was cut short may have arrived
            timer = threading.Timer(rng.uniform(0.05, 0.6), writer.send_signal, [signal.SIGKILL])
            timer.start()
            for line in writer.stdout:
                if line.endswith("\n"):  # a kill may leave a part of a line
                    committed = int(line.split()[1])
            timer.join()
        chain = lccodec.Chain(run)
        steps = chain.steps
        if committed >= 0:
            assert steps[-1] in (committed, committed + 1)
            assert_same(chain.restore(), states[steps[-1]])
            assert lccodec.validate(run, deep=True) == []
            committed = steps[-1]
    for left in Path(tempfile.gettempdir()).glob("lccodec-*"):  # the next process does it
        shutil.rmtree(left)


def test_a_stopped_writer_that_comes_back_does_not_commit(run: str, proxy: Proxy) -> None:
    """It was taken for dead between its upload and its commit."""
    states = walk(3)
    with lccodec.Chain(run, "lossless") as first:
        first.save(0, states[0])
        first.save(1, states[1])

        def rule(request: Request) -> str | None:
            if request.method == "PUT" and request.path.endswith("000000000002.lcc.h5/0"):
                proxy.rule = lambda _: None
                # Another process, which does not know that this one lives, saves the same step.
                code = (
                    "import sys, lccodec; from lccodec.chain.store.bucket import claim;"
                    "claim.Lease._is_over = lambda *_: True;"
                    "chain = lccodec.Chain(sys.argv[1], 'lossless');"
                    "chain.save(2, {'other': 1}); chain.close()"
                )
                subprocess.run([sys.executable, "-c", code, run], check=True, env=os.environ)
            return None

        proxy.rule = rule
        with pytest.raises(ChainError, match="another process is saving to this chain"):
            first.save(2, states[2])
    assert lccodec.Chain(run).steps == [0, 1, 2]
    assert lccodec.Chain(run).restore() == {"other": 1}


def test_readers_beside_a_writer_see_whole_steps(run: str) -> None:
    states, problems = walk(12), list[BaseException]()
    ended = threading.Event()

    def read() -> None:
        while not ended.is_set():
            try:
                chain = lccodec.Chain(run)
                if (latest := chain.latest) is not None:
                    state = chain.restore()
                    assert state["epoch"] >= latest
                    assert_same(state, states[state["epoch"]])
            except ChainError:
                pass  # of a step that is gone by now
            except (LccodecError, AssertionError) as error:
                problems.append(error)

    readers = [threading.Thread(target=read) for _ in range(2)]
    with lccodec.Chain(run, "lossless", keyframe_every=3, keep=lccodec.Keep(latest=3)) as chain:
        chain.save(0, states[0])
        for reader in readers:
            reader.start()
        for step, state in enumerate(states[1:], 1):
            chain.save(step, state)
    ended.set()
    for reader in readers:
        reader.join()
    assert problems == []
