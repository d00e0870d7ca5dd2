"""Who saves to a bucket: one process, and one chain of it at a time."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

import lccodec
from lccodec.chain.store.bucket import claim as module
from lccodec.errors import ChainError

from ....support.tuning import tune
from ....support.walks import assert_same, walk

SAVER = """
import sys, lccodec
from tests.support.walks import walk
chain = lccodec.Chain(sys.argv[1], "lossless")
chain.save(0, walk(1)[0])
print("saved", flush=True)
sys.stdin.read()
"""


def test_another_process_is_refused_until_this_one_is_gone(run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then it is not waited for: it was of this machine."""
    root = Path(__file__).parents[4]
    command = [sys.executable, "-c", SAVER, run]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=root) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"saved\n"
        tune(monkeypatch, bucket_claim_seconds_to_wait=0.0)
        state = walk(2)[1]
        with pytest.raises(
            ChainError, match=rf"process {other.pid} on .* is saving to this chain, which has"
        ):
            lccodec.Chain(run).save(1, state)
        assert lccodec.Chain(run).steps == [0]  # readers are not kept away
        other.send_signal(signal.SIGKILL)
    with lccodec.Chain(run) as chain:
        chain.save(1, state)
        assert_same(chain.restore(), state)


@pytest.mark.filterwarnings("ignore:.*was saved by another writer:lccodec.LccodecWarning")
def test_chains_of_one_process_take_turns(place: str) -> None:
    states = walk(4)
    with lccodec.Chain(place, "lossless") as one, lccodec.Chain(place, "lossless") as two:
        for step, state in enumerate(states):
            (one, two)[step % 2].save(step, state)
    for step, state in enumerate(states):
        assert_same(lccodec.Chain(place).restore(step), state)
    assert place not in module._shared


def test_a_released_lock_is_taken_again(place: str) -> None:
    chain = lccodec.Chain(place)
    chain.save(0, walk(1)[0])
    assert place in module._shared
    chain.release_lock()
    assert place not in module._shared
    chain.save(1, walk(2)[1])
    chain.close()
    assert place not in module._shared
