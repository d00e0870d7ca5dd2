"""Tasks, and who does them: alone, in threads, or in processes."""

import gc
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import lccodec
from lccodec import Chain, Lossless, StorageError, WorkerError
from lccodec.chain.read.checkpoint import open_path
from lccodec.chain.read.crew import CloseFile, DecodeGroup, DecodeRange, Source
from lccodec.chain.save.background import start_worker
from lccodec.chain.save.encode import CloseFrame, EncodeBlock, EncodeFrames, FrameInput, OpenFrame
from lccodec.element_types import components
from lccodec.workers import process as memory
from lccodec.workers.crew import Bench, Crew, Done, Peer, Processes, Threads, Writes
from lccodec.workers.process import Arena, place_of

from ..support.descriptors import SEGMENTS, open_files

PEERS = 2


@pytest.fixture(params=["one thread", "threads", "processes"])
def crew(request: pytest.FixtureRequest) -> Iterator[Crew]:
    if request.param == "processes":
        crew: Crew = Processes([start_worker() for _ in range(PEERS)], lambda: None, 60)
    else:
        crew = Threads(3 if request.param == "threads" else 1)
    yield crew
    crew.close()


def frame(crew: Crew, value: float, size: int = 1000) -> FrameInput:
    kind, bits = components(np.full(size, value, np.float32))
    return FrameInput(
        [crew.shared(bits)], kind, ((size,),), crew.empty(size, kind.bits), False, Lossless(), "normal"
    )


def test_results_come_in_the_order_of_the_tasks(crew: Crew) -> None:
    frames = [frame(crew, value) for value in range(50)]
    expected = [EncodeFrames([f]).run({}) for f in frames]
    assert list(crew.ordered(map(EncodeFrames, [[f] for f in frames]))) == expected
    for value, f in enumerate(frames):  # decoded in memory that all members see
        assert (f.out.view(np.float32) == value).all()


def test_few_tasks_are_taken_ahead(crew: Crew) -> None:
    taken = []

    def tasks() -> Iterator[EncodeFrames]:
        for value in range(60):
            taken.append(value)
            yield EncodeFrames([frame(crew, value)])

    for count, _ in enumerate(crew.ordered(tasks())):
        time.sleep(0.005)  # whoever takes the results is slower than the members
        assert len(taken) <= count + 1 + 4 * crew.members


@pytest.mark.slow
def test_every_member_does_a_task(crew: Crew) -> None:
    crew.everywhere(OpenFrame(frame(crew, 3, 5_000_000)))
    blocks = list(crew.ordered(map(EncodeBlock, range(2))))
    assert blocks[0] != blocks[1]
    crew.everywhere(CloseFrame())
    assert crew.bench == {}
    with pytest.raises(WorkerError if crew.members > 3 else (WorkerError, KeyError)):
        list(crew.ordered(EncodeBlock(0) for _ in range(6)))


def test_an_error_comes_in_its_turn(crew: Crew) -> None:
    good, bad = frame(crew, 1), frame(crew, 2)
    broken = FrameInput([bad.arrays[0][:5]], bad.kind, bad.shapes, bad.out[:3], False, Lossless(), "normal")
    results = crew.ordered(map(EncodeFrames, [[good], [good], [broken], [good], [good], [good]]))
    expected = EncodeFrames([good]).run({})
    assert [next(results), next(results)] == [expected] * 2
    with pytest.raises(Exception, match="broadcast"):
        next(results)
    assert list(crew.ordered(map(EncodeFrames, [[good]] * 3))) == [expected] * 3  # and the crew goes on


def test_memory(crew: Crew) -> None:
    array = np.arange(10)
    shared = crew.shared(array)
    assert shared.tolist() == list(range(10))
    assert crew.shared(shared) is shared
    assert (place_of(shared) is not None) == isinstance(crew, Processes)


def test_workers_do_a_task_each_beside_this_process(crew: Crew) -> None:
    frames = [frame(crew, value) for value in range(PEERS + 2)]
    crew.everywhere(CloseFile())
    assert crew.begun == (PEERS if isinstance(crew, Processes) else 0)
    done = list[int]()
    crew.beside([EncodeFrames([f]) for f in frames], lambda: done.append(1))
    assert done == [1]
    for value, f in enumerate(frames):
        assert (f.out.view(np.float32) == value).all()


def test_what_is_done_beside_may_be_interrupted(crew: Crew) -> None:
    frames = [frame(crew, value) for value in range(PEERS)]
    crew.everywhere(CloseFile())

    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        crew.beside([EncodeFrames([f]) for f in frames], interrupted)
    expected = EncodeFrames(frames[:1]).run({})
    assert list(crew.ordered([EncodeFrames(frames[:1])] * 3)) == [expected] * 3


@pytest.mark.slow
@pytest.mark.parametrize("call", [Processes.beside, lambda crew, tasks, _: list(crew.ordered(tasks))])
def test_an_error_of_a_task_leaves_no_member_at_work(call: Callable[..., object]) -> None:
    """It might write into memory that the next round uses."""
    crew = Processes([start_worker() for _ in range(PEERS)], lambda: None, 60)
    crew.everywhere(CloseFile())
    bad, good = frame(crew, 2), frame(crew, 1, 1 << 20)
    broken = FrameInput([bad.arrays[0][:5]], bad.kind, bad.shapes, bad.out[:3], False, Lossless(), "normal")
    with pytest.raises(WorkerError, match="broadcast"):
        call(crew, [EncodeFrames([broken]), EncodeFrames([good])], lambda: None)
    assert not any(peer.waiting for peer in crew._peers)
    assert not crew.broken
    crew.close()


@pytest.mark.slow
def test_few_tasks_may_be_given_at_a_time() -> None:
    crew = Processes([start_worker() for _ in range(PEERS)], lambda: None, 60, 1)
    crew.everywhere(CloseFile())
    frames = [frame(crew, value) for value in range(30)]
    expected = [EncodeFrames([f]).run({}) for f in frames]
    waiting = set[int]()

    def tasks() -> Iterator[EncodeFrames]:
        for f in frames:
            waiting.update(len(peer.waiting) for peer in crew._peers)
            yield EncodeFrames([f])

    assert list(crew.ordered(tasks())) == expected
    assert waiting == {0, 1}
    crew.close()


@pytest.mark.slow
def test_a_member_that_dies() -> None:
    workers = [start_worker() for _ in range(PEERS)]
    crew = Processes(workers, lambda: None, 60)
    crew.everywhere(CloseFile())  # all have begun
    frames = [frame(crew, value) for value in range(20)]
    list(crew.ordered(map(EncodeFrames, [[f] for f in frames])))
    os.kill(workers[0].pid, signal.SIGKILL)
    with pytest.raises(WorkerError, match="was ended by SIGKILL"):
        for _ in range(100):
            list(crew.ordered(map(EncodeFrames, [[f] for f in frames])))
    crew.close()


@pytest.mark.slow
def test_a_round_that_is_interrupted_twice_leaves_no_member_at_work() -> None:
    interrupts = [KeyboardInterrupt(), KeyboardInterrupt()]
    workers = [start_worker() for _ in range(PEERS)]
    crew = Processes(workers, lambda: None, 60)
    crew.everywhere(CloseFile())  # they have begun

    def interrupted() -> None:
        if interrupts:
            crew._bell.release()  # as an interrupt ends a wait
            raise interrupts.pop()

    crew.heartbeat = interrupted
    for worker in workers:
        os.kill(worker.pid, signal.SIGSTOP)  # they are at work
    with pytest.raises(KeyboardInterrupt):
        list(crew.ordered(EncodeFrames([frame(crew, value)]) for value in range(20)))
    assert crew.broken
    assert [worker.state() for worker in workers] == ["was ended by SIGKILL"] * PEERS


@pytest.mark.slow
def test_a_member_that_does_nothing() -> None:
    workers = [start_worker()]
    crew = Processes(workers, lambda: None, 0.3)
    crew.everywhere(CloseFile())
    os.kill(workers[0].pid, signal.SIGSTOP)
    with pytest.raises(WorkerError, match=r"has not answered for 0\.3 seconds"):
        list(crew.ordered(EncodeFrames([frame(crew, value)]) for value in range(20)))
    workers[0].kill()


def test_a_member_that_does_not_begin_is_not_missed() -> None:
    stopped, dead = start_worker(), start_worker()
    os.kill(stopped.pid, signal.SIGSTOP)
    os.kill(dead.pid, signal.SIGKILL)
    crew = Processes([stopped, dead], lambda: None, 60)
    frames = [frame(crew, value) for value in range(20)]
    assert len(list(crew.ordered(EncodeFrames([f]) for f in frames))) == len(frames)
    crew.everywhere(CloseFile(), begun=True)
    assert not crew.broken
    crew.close()
    assert stopped.state() == "was ended by SIGKILL"


def test_between_tasks_a_call_is_made() -> None:
    calls: list[int] = []
    crew = Threads(heartbeat=lambda: calls.append(1))
    crew.everywhere(OpenFrame(frame(crew, 1)))
    list(crew.ordered(EncodeFrames([frame(crew, 1)]) for _ in range(3)))
    assert len(calls) == 4


@pytest.fixture
def bell() -> threading.Semaphore:
    return threading.Semaphore(0)


@pytest.fixture
def peer(bell: threading.Semaphore) -> Iterator[Peer]:
    peer = Peer(start_worker(), bell)
    assert bell.acquire(timeout=60)
    assert peer.begun
    yield peer
    peer.worker.end()


@pytest.fixture
def source(tmp_path: Path) -> Source:
    with Chain(tmp_path, "lossless") as chain:
        chain.save(0, {"a": np.arange(1000.0), "b": np.arange(3)})
    path = tmp_path / "000000000000.lcc.h5"
    with open_path(path) as file:
        return Source(str(path), file.links[-1].reader.root)


def take(peer: Peer, bell: threading.Semaphore) -> None:
    assert bell.acquire(timeout=60)
    before = len(peer.waiting)
    peer.collect()
    assert len(peer.waiting) == before - 1


@pytest.mark.slow
def test_what_a_task_writes_is_copied(peer: Peer, bell: threading.Semaphore, source: Source) -> None:
    gc.collect()  # what other tests have left
    before = open_files(SEGMENTS)
    counts = set()
    for _ in range(3):
        out = np.zeros(1000, np.uint64)
        place = peer.give(DecodeGroup(source, [0, 1], [out, None]))
        assert place == []
        take(peer, bell)
        assert place[0].value()[1].view(np.int64).tolist() == [0, 1, 2]
        np.testing.assert_array_equal(out.view(np.float64), np.arange(1000.0))
        counts.add(len(open_files(SEGMENTS)))
    assert len(counts) == 1  # one memory for all of them
    assert counts.pop() > len(before)
    peer.release()
    assert open_files(SEGMENTS) == before


@pytest.mark.slow
def test_nothing_is_copied_after_an_error(peer: Peer, bell: threading.Semaphore, source: Source) -> None:
    out = np.full(1000, 7, np.uint64)
    place = peer.give(DecodeGroup(Source(source.path, b"another"), [0], [out]))
    take(peer, bell)
    with pytest.raises(lccodec.ChainError, match="was replaced after it was opened"):
        place[0].value()
    assert (out == 7).all()
    peer.release()


@pytest.mark.slow
def test_no_memory_to_share(
    peer: Peer, bell: threading.Semaphore, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError("no")

    monkeypatch.setattr(memory.os, "memfd_create", refuse)
    with pytest.raises(StorageError):
        peer.give(DecodeGroup(source, [0], [np.zeros(1000, np.uint64)]))
    assert not peer.waiting
    place = peer.give(CloseFile())
    take(peer, bell)
    assert place[0].value() is None


SOURCE = Source("nowhere", b"")


@dataclass(frozen=True)
class _Nothing:
    def run(self, bench: Bench) -> int:
        return len(bench)


def test_a_result_or_an_error() -> None:
    assert Done.of(_Nothing(), {}).value() == 0
    with pytest.raises(TypeError):
        Done.of(_Nothing(), None).value()


def test_tasks_that_write_are_staged() -> None:
    group = DecodeGroup(SOURCE, [0, 1], [np.zeros(5, np.uint8), None])
    part = DecodeRange(SOURCE, "w", 10, 15, 1, 3, np.zeros(5, np.uint32))
    arena = Arena()
    for task, out in ((group, group.out[0]), (part, part.out)):
        assert isinstance(task, Writes)
        staged = task.staged(arena)
        written = staged.out[0] if isinstance(staged, DecodeGroup) else staged.out
        assert written is not None
        assert place_of(written) is not None
        written[:] = range(5)
        task.take(staged)
        assert out is not None
        assert out.tolist() == [*range(5)]
        assert place_of(out) is None
    assert len(arena.segments) == 1
    assert not isinstance(CloseFile(), Writes)
