"""Who saves to a bucket: one process, and one chain of it at a time.

A lease: one holder at a time, and what becomes of one that is gone.
"""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import lccodec
from lccodec.chain.store.bucket import claim as module
from lccodec.chain.store.bucket.backend import PatientBackend
from lccodec.chain.store.bucket.claim import Lease, LeasedError, Terms
from lccodec.chain.store.bucket.store import connect
from lccodec.chain.store.claim import HOLDS
from lccodec.container.system import Address
from lccodec.errors import ChainError

from ....support.tuning import tune
from ....support.walks import assert_restores, assert_same, walk

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
    assert_restores(lccodec.Chain(place), states, range(len(states)))
    assert place not in HOLDS


def test_a_released_lock_is_taken_again(place: str) -> None:
    chain = lccodec.Chain(place)
    chain.save(0, walk(1)[0])
    assert place in HOLDS
    chain.release_lock()
    assert place not in HOLDS
    chain.save(1, walk(2)[1])
    chain.close()
    assert place not in HOLDS


STILL = Terms(renewed=600.0)  # a holder that gives no sign of life


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Let seconds pass on the clock that no two processes share."""
    passed, monotonic = [0.0], time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: monotonic() + passed[0])

    def pass_by(seconds: float) -> None:
        passed[0] += seconds

    return pass_by


def backend(place: str) -> PatientBackend:
    return connect(Address.of(place))._backend


def numbers(place: str) -> list[str]:
    return [each.key for each in backend(place).objects("x")]


def take(place: str, terms: Terms = STILL) -> Lease:
    lease = Lease(backend(place), "x", terms)
    lease.try_take()
    return lease


def test_one_holds_it_until_it_is_released(place: str) -> None:
    lease = take(place)
    assert lease.is_held
    with pytest.raises(LeasedError, match=r"process [0-9]+ on "):
        take(place)
    lease.release()
    lease.release()
    assert not lease.is_held
    assert numbers(place) == []
    take(place).release()


def test_a_holder_that_gives_signs_of_life_keeps_it(place: str, later: Callable[[float], None]) -> None:
    holder, other = take(place, Terms(renewed=0.02)), Lease(backend(place), "x")
    for _ in range(3):
        number = holder._number
        with pytest.raises(LeasedError):
            other.try_take()
        while (holder._number or 0) < (number or 0) + 2:  # the other may have seen the next one
            time.sleep(0.01)
        later(1000.0)
    assert holder.is_held
    holder.release()


def test_a_holder_without_a_sign_of_life_loses_it(place: str, later: Callable[[float], None]) -> None:
    lost, other = take(place), Lease(backend(place), "x", STILL)
    with pytest.raises(LeasedError):
        other.try_take()
    later(STILL.lasts - 5)
    with pytest.raises(LeasedError):
        other.try_take()
    later(10.0)
    other.try_take()
    assert other.is_held
    assert not lost._put((lost._number or 0) + 1)  # its next sign comes too late
    assert len(numbers(place)) == 1
    other.release()


def test_who_has_slept_finds_no_higher_number(place: str) -> None:
    """It has seen a number, and comes back when another holds the lease."""
    sleeper = take(place)
    number = sleeper._number
    assert number is not None
    sleeper.release()
    time.sleep(0.01)
    with_it = take(place)
    assert not sleeper._put(number + 1)
    assert numbers(place) == [f"x/{with_it._number}"]
    with_it.release()


def test_a_process_of_this_machine_that_is_gone_is_not_waited_for(place: str) -> None:
    lease = take(place)
    gone = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True
    )
    content = f'{{"id": "other", "machine": "{module._machine()}", "pid": {int(gone.stdout)}}}'
    backend(place).put_if_absent(f"x/{(lease._number or 0) + 1}", content.encode())
    take(place, Terms()).release()


def test_an_old_number_is_not_waited_for(place: str) -> None:
    take(place)
    with pytest.raises(LeasedError):
        take(place, Terms())
    take(place, Terms(abandoned=-60.0)).release()


@pytest.mark.parametrize("content", [b"", b"[]", b'{"pid": [], "machine": 3, "host": "a\\nb"}'])
def test_what_is_written_there_is_not_trusted(place: str, content: bytes) -> None:
    backend(place).put_if_absent("x/9999999999999", content)
    with pytest.raises(LeasedError, match=r"^another process$"):
        take(place, Terms())
    assert numbers(place) == ["x/9999999999999"]


def test_two_that_meet_do_not_both_hold_it(place: str) -> None:
    number = time.time_ns() // 1_000_000
    first, second = Lease(backend(place), "x", STILL), Lease(backend(place), "x", STILL)
    assert [first._put(number), second._put(number)] == [True, False]
    assert first._put(number)  # an answer that was lost
