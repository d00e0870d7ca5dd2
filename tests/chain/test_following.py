"""A writer and readers that follow it are killed at random moments: no state is half applied.

The state of a step is a function of the step, so every state that is shown can be checked.
"""

import random
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

import lccodec
from lccodec import Chain, LccodecError, LccodecWarning, Update, follow

from ..support.following import Served
from ..support.killed_loop import state_of
from ..support.models import read_model, write_model
from ..support.processes import children, is_running
from ..support.profiles import LONG
from ..support.walks import assert_same

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="processes are killed by a signal"),
]

ROOT = Path(__file__).parents[2]
KILLS = 50 if LONG else 2


class Loop:
    """A process that is started, and killed with its workers."""

    def __init__(self, module: str, output: Path, *words: object) -> None:
        self._output = output
        with output.open("w") as file:
            command = [sys.executable, "-m", f"tests.support.{module}", *map(str, words)]
            self._process = subprocess.Popen(command, cwd=ROOT, stdout=file)

    def wait_for_a_report(self) -> None:
        while not self._output.read_text():
            assert self._process.poll() is None
            time.sleep(0.01)

    def kill(self) -> list[list[str]]:
        """Kill it, and return what it reported."""
        assert self._process.poll() is None
        workers = children(self._process.pid)
        self._process.kill()
        self._process.wait()
        while any(map(is_running, workers)):
            time.sleep(0.01)
        return [line.split() for line in self._output.read_text().splitlines()]


@pytest.mark.parametrize("policy", ["lossless", "balanced"])
def test_a_follower_of_a_writer_that_is_killed(tmp_path: Path, policy: str) -> None:
    """Each update leads to the state of its step; what was reported last is followed in the end."""
    served, problems, updates, compared = Served(), list[BaseException](), list[int](), list[bool]()
    follower = follow(tmp_path / "run", poll=0.002)

    def serve() -> None:
        try:
            for update in follower:
                served.take(update)
                updates.append(update.step)
                compared.append(check(served, update, policy, tmp_path / "run"))
        except BaseException as error:
            problems.append(error)

    generator, newest = random.Random(1), -1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LccodecWarning)
        thread = threading.Thread(target=serve)
        thread.start()
        for number in range(KILLS):
            writer = Loop("killed_loop", tmp_path / f"reports-{number}", tmp_path / "run", policy)
            writer.wait_for_a_report()
            time.sleep(generator.uniform(0, 0.4))
            writer.kill()
        newest = Chain(tmp_path / "run").steps[-1]
        end = time.monotonic() + 60
        while follower.step != newest and time.monotonic() < end and not problems:
            time.sleep(0.01)
        follower.close()
        thread.join()
    assert problems == []
    assert updates[-1] == newest
    assert sum(compared) >= KILLS
    print(f"{KILLS} kills, {len(updates)} updates, {sum(compared)} compared, newest {newest}")


def check(served: Served, update: Update, policy: str, run: Path) -> bool:
    """The arrays are those of the step, and of its file; return whether that is there still."""
    expected = {name: a for name, a in state_of(update.step).items() if isinstance(a, np.ndarray)}
    if policy == "lossless":
        served.check(expected)
    assert_same(served.arrays["bias"], expected["bias"])  # nothing of it is lost
    for exact in (True, False):
        try:
            with lccodec.open(run, step=update.step, exact=exact) as file:
                if file.info().root == update.root:
                    served.check({name: file.get(name) for name in file.keys()})  # noqa: SIM118 - no dict
                    return True
        except LccodecError:  # taken away, or replaced
            pass
    return False


def test_local_models_of_readers_that_are_killed(tmp_path: Path) -> None:
    """The model is that of one step after each kill, while a writer goes on and is killed too."""
    run, model, generator = tmp_path / "run", tmp_path / "model", random.Random(2)
    arrays = {name: value for name, value in state_of(0).items() if isinstance(value, np.ndarray)}
    write_model(model, arrays, 2)
    Chain(run, "lossless").save(0, state_of(0))
    writer = Loop("killed_loop", tmp_path / "writer", run, "lossless")
    writer.wait_for_a_report()
    pulled = 0
    for number in range(KILLS):
        reader = Loop("pull_loop", tmp_path / f"reader-{number}", run, model)
        reader.wait_for_a_report()
        time.sleep(generator.uniform(0, 0.2))
        reports = reader.kill()
        pulled += len(reports)
        found = read_model(model)
        step = int(np.frombuffer(found["bias"], np.int64)[0])
        expected = state_of(step)
        assert found == {name: expected[name].tobytes() for name in found}
        if number % 2:
            writer.kill()
            writer = Loop("killed_loop", tmp_path / f"writer-{number}", run, "lossless")
            writer.wait_for_a_report()
    writer.kill()
    assert pulled >= KILLS
    print(f"{KILLS} kills, {pulled} pulls, newest {step}")
