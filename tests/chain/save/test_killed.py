"""A real loop is killed at random moments, and goes on: nothing that was reported is lost."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lccodec import Chain, LccodecWarning, validate
from lccodec.chain.store.directory import DirectoryStore
from lccodec.constants import ROLLED_BACK_NAME, TEMPORARY_PREFIX

from ...support.killed_loop import state_of
from ...support.processes import children, is_running
from ...support.profiles import LONG
from ...support.walks import assert_same

pytestmark = pytest.mark.slow  # processes

LOOP = Path(__file__).parents[2] / "support" / "killed_loop.py"
#: 200 in the nightly profile, which takes some minutes.
KILLS = 200 if LONG else 3


def run_and_kill(directory: Path, policy: str, seconds: float, output: Path) -> list[list[str]]:
    """Run the loop for some seconds after its first report; return what it reported."""
    with output.open("w") as file:
        process = subprocess.Popen([sys.executable, str(LOOP), str(directory), policy], stdout=file)
        while not output.read_text():
            assert process.poll() is None
            time.sleep(0.01)
        time.sleep(seconds)
        process.send_signal(signal.SIGSTOP)  # so that it starts no worker any more
        workers = children(process.pid)
        process.send_signal(signal.SIGKILL)
        process.wait()
    while any(map(is_running, workers)):  # they give up what they do, and end
        time.sleep(0.01)
    return [line.split() for line in output.read_text().splitlines()]


@pytest.mark.skipif(sys.platform == "win32", reason="processes are killed by a signal")
@pytest.mark.parametrize("policy", ["lossless", "hashes", "balanced"])
def test_kills_at_random_moments(tmp_path: Path, policy: str) -> None:
    """What a run resumes from is what was reported last, or newer, bit for bit."""
    generator = random.Random(0)
    directory = tmp_path / "run"
    least, reports, unfinished = -1, 0, 0
    for _ in range(KILLS):
        for kind, number in run_and_kill(directory, policy, generator.uniform(0, 0.4), tmp_path / "reports"):
            least = int(number)
            reports += kind == "saved"
            assert kind in ("saved", "back")
        chain = Chain(directory)
        assert chain.steps[-1] >= least
        if kind == "back" and policy == "balanced" and chain.exact_step != chain.steps[-1]:
            with pytest.warns(
                LccodecWarning, match="the exact file is missing"
            ):  # it went with the later steps
                assert chain.restore()["step"] == chain.steps[-1]
        else:
            assert_same(chain.restore(), state_of(chain.steps[-1]))  # and no warning
        for step in chain.steps:
            restored = chain.restore(step, exact=False)
            if policy != "balanced":
                assert_same(restored, state_of(step))
            assert restored["step"] == step
        assert validate(directory, deep=True) == []
        unfinished += DirectoryStore(directory).unfinished_step() is not None
    print(f"{KILLS} kills, {reports} saves, {unfinished} of the exact file alone, newest {chain.steps[-1]}")
    chain = Chain(directory)
    chain.rollback(chain.steps[-2])
    chain.delete_rolled_back()
    chain.save(chain.steps[-1] + 1, state_of(chain.steps[-1] + 1))
    chain.close()
    assert validate(directory, deep=True) == []
    left = [path.name for path in directory.iterdir() if path.name.startswith(TEMPORARY_PREFIX)]
    assert left == []
    assert not (directory / ROLLED_BACK_NAME).exists()
