"""Updates prepared by several processes: the same as by one, also when a worker is gone."""

import errno
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lccodec
from lccodec import Chain, LccodecWarning
from lccodec.chain.read import follow_crew as crew
from lccodec.chain.read.follow_crew import ReadChanges, Tellers
from lccodec.workers import process as memory
from lccodec.workers.crew import Crew, Processes, Task

from ...support.processes import children
from ...support.programs import run_program
from ...support.tuning import tune

pytestmark = pytest.mark.slow  # processes


@pytest.fixture(autouse=True)
def all_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a short update is prepared before a worker has begun."""
    begin = Tellers.begin

    def begun(tellers: Tellers) -> Crew:
        found = begin(tellers)
        found.everywhere(ReadChanges([], [], [], "", []))
        return found

    monkeypatch.setattr(Tellers, "begin", begun)
    tune(monkeypatch, follower_min_batch_bytes=1, follower_min_places=1)


def states(steps: int) -> Iterator[dict[str, Any]]:
    """Some arrays; at each step few of their values change, and at one step most of one array."""
    rng = np.random.default_rng(0)
    state = {f"layer{i}": rng.integers(0, 1 << 16, 20_000).astype(np.uint16) for i in range(8)}
    for step in range(steps):
        for array in state.values():
            array[rng.integers(0, array.size, 300)] += 1
        if step == 2:
            state["layer3"] ^= np.uint16(step)
            state["late"] = np.arange(9000)
        yield {name: array.copy() for name, array in state.items()}


def test_updates_are_the_same(tmp_path: Path) -> None:
    served: list[dict[str, Any]] = [{}, {}]
    with Chain(tmp_path, "lossless") as chain, lccodec.follow(tmp_path, workers=1) as alone:
        with lccodec.follow(tmp_path, workers=3) as shared:
            for step, state in enumerate(states(6)):
                chain.save(step, state)
                updates = [follower.prepare(0) for follower in (alone, shared)]
                for update, arrays in zip(updates, served, strict=True):
                    assert update is not None
                    arrays.update({n: np.zeros_like(a) for n, a in state.items() if n not in arrays})
                    update.apply_to(arrays)
                assert updates[0].names == updates[1].names
                for name, array in state.items():
                    for found in (*served, shared.state()):
                        np.testing.assert_array_equal(found[name], array)
            assert len(children()) == 2
        assert children() == []


def test_a_follower_that_is_dropped_ends_its_workers(tmp_path: Path) -> None:
    Chain(tmp_path, "lossless").save(0, {"a": np.zeros(5)})
    follower = lccodec.follow(tmp_path, workers=2)
    assert follower.prepare(0) is not None
    assert len(children()) == 1
    del follower
    assert children() == []


def test_patches_may_be_kept(tmp_path: Path) -> None:
    """A worker puts places and values where it puts those of the update after the next."""
    kept = []
    with Chain(tmp_path, "lossless") as chain, lccodec.follow(tmp_path, workers=2) as follower:
        for step, state in enumerate(states(6)):
            chain.save(step, state)
            update = follower.prepare(0)
            assert update is not None
            kept += [
                (patch, patch.places.copy(), patch.values.copy())
                for patch in update.patches()
                if patch.places is not None
            ]
    for patch, places, values in kept:
        np.testing.assert_array_equal(patch.places, places)
        np.testing.assert_array_equal(patch.values, values)


def test_a_follower_goes_on_alone_if_a_worker_is_gone(tmp_path: Path) -> None:
    with Chain(tmp_path, "lossless") as chain, lccodec.follow(tmp_path, workers=2) as follower:
        for step, state in enumerate(states(4)):
            chain.save(step, state)
            if step == 1:
                os.kill(children()[0], signal.SIGSTOP)  # so that it has a task when it is killed
                os.kill(children()[0], signal.SIGKILL)
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(Crew, "everywhere", lambda *_: None)
                    patch.setattr(Tellers, "begin", lambda tellers: tellers._crew)
                    with pytest.warns(LccodecWarning, match="alone"):
                        update = follower.prepare(0)
            else:
                update = follower.prepare(0)  # of the last ones with a fresh worker
            assert update is not None
            assert update.step == step
            for name, array in follower.state().items():
                np.testing.assert_array_equal(array, state[name])
        assert len(children()) == 1
    assert children() == []


def test_an_update_is_whole_if_a_worker_dies_while_it_writes(tmp_path: Path) -> None:
    beside = Processes.beside

    def killed(crew: Processes, tasks: Sequence[Task], own: Callable[[], None]) -> None:
        assert tasks
        os.kill(children()[0], signal.SIGSTOP)  # so that it has the task when it is killed

        def kill() -> None:
            own()
            os.kill(children()[0], signal.SIGKILL)

        beside(crew, tasks, kill)

    with Chain(tmp_path, "lossless") as chain, lccodec.follow(tmp_path, workers=2) as follower:
        for step, state in enumerate(states(3)):
            chain.save(step, state)
            with pytest.MonkeyPatch.context() as patch:
                if step == 1:
                    patch.setattr(Processes, "beside", killed)
                    with pytest.warns(LccodecWarning, match="SIGKILL; this process has written"):
                        update = follower.prepare(0)
                else:
                    update = follower.prepare(0)
            assert update is not None
            for name, array in follower.state().items():
                np.testing.assert_array_equal(array, state[name])


def test_damage_is_told_as_by_one(tmp_path: Path) -> None:
    with Chain(tmp_path, "lossless") as chain, lccodec.follow(tmp_path, workers=2) as follower:
        for step, state in zip(range(2), states(2), strict=True):
            chain.save(step, state)
            if step == 0:
                assert follower.prepare(0) is not None
        path = tmp_path / "000000000001.lcc.h5"
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
        with pytest.warns(LccodecWarning, match=r"000000000001\.lcc\.h5"):
            assert follower.prepare(0) is None
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
        update = follower.prepare(0)
        assert update is not None
        np.testing.assert_array_equal(follower.get("layer1"), state["layer1"])


def test_no_memory_to_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(memory.os, "memfd_create", refuse)
    with Chain(tmp_path, "lossless") as chain, lccodec.follow(tmp_path, workers=2) as follower:
        for step, state in enumerate(states(3)):
            chain.save(step, state)
            assert follower.prepare(0) is not None
            np.testing.assert_array_equal(follower.get("layer3"), state["layer3"])


def test_a_worker_that_cannot_be_started_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crew.sys, "executable", "")
    tellers = Tellers(2)
    assert tellers.begin().members == 1
    tellers.close()


FORK = """
import os, sys, numpy as np, lccodec
chain, follower = lccodec.Chain(sys.argv[1], "lossless"), lccodec.follow(sys.argv[1], workers=2)
state = {"a": np.arange(20_000)}

def save(step):
    state["a"][step] = -7
    chain.save(step, state)

for step in range(3):
    save(step)
    assert follower.prepare(0).base == (step - 1 if step else None)
there, here = os.pipe(), os.pipe()
process = os.fork()
os.close((here if process else there)[1])
if process == 0:
    os.read(there[0], 1)
    assert follower.step is None
    assert follower.prepare(0).names == ("a",)
    assert (follower.get("a") == chain.restore(3)["a"]).all()
    os.write(here[1], b"x")
    follower.close()
    os._exit(7)
save(3)
assert follower.prepare(0).base == 2
os.write(there[1], b"x")
os.read(here[0], 1)
save(4)
assert follower.prepare(0).base == 3
assert (follower.get("a") == state["a"]).all()
assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 7
follower.close()
"""


def test_a_fork_begins_anew(tmp_path: Path) -> None:
    """Its arrays lie in memory that its parent writes to, and that it must not write to."""
    run_program(FORK, tmp_path, flags=("-W", "ignore"))


def test_memory_of_arrays_that_grow_or_go_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    tune(monkeypatch, follower_segment_bytes=1, follower_max_lost_bytes=3 << 20)
    tellers = Tellers(2)
    for number in range(40):
        tellers.keep({"grows", f"goes{number}"})
        for name in ("grows", f"goes{number}"):
            tellers.visible(name, np.zeros((1 << 20) + number, np.uint8))
        list(tellers.told(list, lambda: None))
        assert sum(map(len, tellers._arena.segments)) < 12 << 20
    tellers.close()
