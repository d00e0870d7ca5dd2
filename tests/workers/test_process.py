"""Shared memory: arrays keep it mapped, and nothing of it is left behind.

Messages: what is sent arrives, in shared memory where it lies there.

Workers as processes: they start by themselves, end by themselves, and end with their client.
"""

import errno
import gc
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec import Chain, DataError, FormatError, StorageError, WorkerError, validate
from lccodec.chain.save.background import ERRORS, TYPES, start_worker
from lccodec.constants import ELEMENT_TYPES
from lccodec.workers import process
from lccodec.workers import process as memory
from lccodec.workers.process import Arena, Channel, Segment, Worker, connect, place_of, shared_empty

from ..support.descriptors import SEGMENTS, open_files
from ..support.directories import entries
from ..support.processes import children, is_running, started_with
from ..support.walks import assert_same

FLOAT = np.dtype(np.float32)


def test_an_array_keeps_its_segment_and_knows_its_place() -> None:
    array = shared_empty(1000, FLOAT)
    array[:] = np.arange(1000)
    part = array[100:200]
    found = place_of(part)
    assert found is not None
    segment, offset = found
    assert (offset, len(segment)) == (400, 4000)
    del array, segment, found
    gc.collect()
    assert part.tolist() == list(range(100, 200))
    assert place_of(np.zeros(3)) is None
    assert place_of(np.frombuffer(b"abcd", np.uint8)) is None


def test_two_mappings_are_one_memory() -> None:
    first = Segment.create(8192)
    second = Segment.attach(os.dup(first.descriptor), 8192, first.identity)
    first.array(64, 10, FLOAT)[:] = 7
    assert second.array(64, 10, FLOAT).tolist() == [7] * 10
    second.close_descriptor()
    assert second.descriptor == -1
    assert second.array(64, 0, FLOAT).size == 0


def test_descriptors_are_closed() -> None:
    gc.collect()  # of other tests
    before = open_files(SEGMENTS)
    for _ in range(50):
        shared_empty(10, FLOAT)
    assert open_files(SEGMENTS) == before


def test_an_arena_uses_its_memory_again() -> None:
    arena = Arena()
    first = arena.empty(1000, FLOAT, 4 << 20)
    second = arena.empty(1 << 19, FLOAT)
    places = [place_of(array) for array in (first, second)]
    assert places[0] is not None
    assert places[1] is not None
    assert places[0][0] is places[1][0]  # one segment has room for both
    assert places[1][1] % arena.ALIGNMENT_BYTES == 0
    large = arena.empty(2 << 20, FLOAT)  # and not for this one
    assert place_of(large)[0] is not places[0][0]
    arena.clear()
    again = [arena.empty(1000, FLOAT), arena.empty(1 << 19, FLOAT), arena.empty(2 << 20, FLOAT)]
    for old, new in zip((first, second, large), again, strict=True):
        assert place_of(old) == place_of(new)


def test_a_file_on_a_disk_where_there_is_none_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create")
    monkeypatch.delattr(os, "posix_fallocate")
    array = shared_empty(1000, FLOAT)
    array[:] = 3
    assert array.sum() == 3000


@pytest.mark.parametrize("name", ["memfd_create", "ftruncate", "posix_fallocate"])
def test_no_memory_is_an_error(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(memory.os, name, fail)
    before = open_files(SEGMENTS)
    with pytest.raises(StorageError, match="no room for 4000 bytes of shared memory"):
        shared_empty(1000, FLOAT)
    assert open_files(SEGMENTS) == before


@dataclass(frozen=True)
class Point:
    place: tuple[int, ...]
    note: Any = None


def pair() -> tuple[Channel, Channel]:
    ends = socket.socketpair()
    return Channel(ends[0], (Point,), (FormatError, StorageError)), Channel(
        ends[1], (Point,), (FormatError, StorageError)
    )


@pytest.fixture
def channels() -> Iterator[tuple[Channel, Channel]]:
    both = pair()
    yield both
    for end in both:
        end.close()


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(st.text(), inner)
        | st.builds(Point, st.tuples(st.integers()), inner)
    ),
    max_leaves=20,
)


@given(VALUES)
def test_values_arrive_as_they_were_sent(value: Any) -> None:
    ours, theirs = pair()
    ours.send(value)
    assert repr(theirs.receive()) == repr(value)
    ours.close()
    theirs.close()


def test_arrays_and_element_types(channels: tuple[Channel, Channel]) -> None:
    ours, theirs = channels
    shared = shared_empty(1000, np.dtype(np.int32))
    shared[:] = np.arange(1000)
    ours.send([shared[10:20], np.arange(6.0)[::2], ELEMENT_TYPES[5]])
    near, far, kind = theirs.receive()
    assert kind is ELEMENT_TYPES[5]
    assert far.tolist() == [0, 2, 4]
    shared[10] = 77
    assert near.tolist() == [77, *range(11, 20)]  # the same memory
    theirs.send(near)  # and back, to where it came from
    assert place_of(ours.receive()) == (place_of(shared)[0], 40)


def test_a_segment_is_passed_once_and_dropped_with_its_last_array(channels: tuple[Channel, Channel]) -> None:
    ours, theirs = channels
    for _ in range(3):
        shared = shared_empty(100, np.dtype(np.uint8))
        for _ in range(3):
            ours.send(shared)
            assert theirs.receive().size == 100
            assert len(theirs._theirs) == 1
        del shared
        gc.collect()
        ours.send(None)
        theirs.receive()
        assert theirs._theirs == {}


def test_many_segments_and_much_data(channels: tuple[Channel, Channel]) -> None:
    ours, theirs = channels
    arrays = [shared_empty(10, np.dtype(np.uint8)) for _ in range(450)]
    for number, array in enumerate(arrays):
        array[:] = number % 250
    found: list[Any] = []
    receiver = threading.Thread(target=lambda: found.append(theirs.receive()))
    receiver.start()
    ours.send([arrays, bytes(5_000_000)])
    receiver.join()
    assert [int(array[3]) for array in found[0][0]] == [number % 250 for number in range(450)]
    assert len(found[0][1]) == 5_000_000


def test_errors(channels: tuple[Channel, Channel]) -> None:
    ours, theirs = channels
    ours.send([FormatError("LCC-FRM-01", "here", "wrong"), StorageError(28, "No space left", "file")])
    first, second = theirs.receive()
    assert isinstance(first, DataError)
    assert str(first) == "here: wrong [LCC-FRM-01]"
    assert (second.errno, second.filename) == (28, "file")
    ours.send(KeyError("a bug"))
    failed = theirs.receive()
    assert isinstance(failed, WorkerError)
    assert "KeyError: 'a bug'" in str(failed)


def test_what_cannot_be_sent(channels: tuple[Channel, Channel]) -> None:
    with pytest.raises(TypeError, match="cannot be sent"):
        channels[0].send(object())


def test_the_end_of_the_other_side(channels: tuple[Channel, Channel]) -> None:
    ours, theirs = channels
    assert not theirs.is_ended()
    ours.send("last words")
    ours.close()
    assert theirs.receive() == "last words"
    assert theirs.is_ended()
    with pytest.raises(EOFError):
        theirs.receive()
    with pytest.raises(EOFError):
        theirs.send("anybody?")


def test_a_side_that_does_nothing(channels: tuple[Channel, Channel]) -> None:
    ours, _ = channels
    ours.limit(0.05)
    with pytest.raises(TimeoutError):
        ours.receive()
    with pytest.raises(TimeoutError):
        ours.send(bytes(50_000_000))


def test_a_message_that_is_cut_off() -> None:
    ends = socket.socketpair()
    channel = Channel(ends[0], ())
    ends[1].sendall(b"\1\2\3")
    ends[1].close()
    with pytest.raises(EOFError):
        channel.receive()
    channel.close()


def test_an_arena_is_passed_once(channels: tuple[Channel, Channel]) -> None:
    ours, theirs = channels
    arena = Arena()
    for value in range(3):
        arena.clear()
        array = arena.empty(10, np.dtype(np.int64))
        array[:] = value
        ours.send(array)
        assert theirs.receive().tolist() == [value] * 10
    assert len(theirs._theirs) == 1


#: A training script without a main guard, as in a notebook: saves until it is killed.
pytestmark = pytest.mark.slow  # processes

SCRIPT = """
import os, sys, numpy as np, lccodec
chain = lccodec.Chain(sys.argv[1], "lossless", workers=int(sys.argv[2]), newest="exact")
for step in range(int(sys.argv[3])):
    chain.save_async(step, {"weight": np.full(3_000_000, step, np.float32), "step": step})
    print(step, flush=True)
"""


def until(condition: object, seconds: float = 120) -> bool:
    """Whether a condition comes true; the time only ends a test that hangs."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.01)
    return False


def script(directory: Path, workers: int, steps: int, text: str = SCRIPT) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", text, str(directory), str(workers), str(steps)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def check_directory(directory: Path, names: int = 0) -> None:
    """Nothing partial, and nothing beside checkpoints: a restore of each gives what was saved."""
    left = [p.name for p in entries(directory) if not p.name.endswith(".lcc.h5")]
    assert len(left) <= names
    chain = Chain(directory)
    for step in chain.steps:
        restored = chain.restore(step, exact=False)
        assert restored["step"] == step
        assert (restored["weight"] == step).all()
    assert all(validate(path) == [] for path in directory.glob("0*.lcc.h5"))


def test_a_worker_ends_when_its_channel_is_closed() -> None:
    worker = start_worker()
    worker.ready()
    assert is_running(worker.pid)
    worker.end(seconds=60)
    assert not is_running(worker.pid)
    assert worker.state() == "ended with code 0"


def test_a_worker_that_does_not_end_is_killed() -> None:
    worker = start_worker()
    os.kill(worker.pid, signal.SIGSTOP)
    worker.end(seconds=0.1)
    assert worker.state() == "was ended by SIGKILL"


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_signals_to_a_whole_job_do_not_end_a_worker(name: str) -> None:
    worker = start_worker()
    worker.ready()
    os.kill(worker.pid, getattr(signal, name))
    worker.end(seconds=60)
    assert worker.state() == "ended with code 0"


@pytest.mark.parametrize("executable", ["/nowhere/python", None, "", "a\0b"])
def test_a_worker_that_cannot_be_started(monkeypatch: pytest.MonkeyPatch, executable: str | None) -> None:
    """A program that embeds Python has no executable."""
    monkeypatch.setattr("sys.executable", executable)
    pairs, pair = [], socket.socketpair
    monkeypatch.setattr(socket, "socketpair", lambda: pairs.append(pair()) or pairs[-1])
    with pytest.raises(WorkerError, match="cannot be started"):
        Worker("lccodec.chain.save.background", TYPES, ERRORS)
    assert all(end.fileno() == -1 for ends in pairs for end in ends)


def test_what_interrupts_a_start_leaves_no_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs, pair = [], socket.socketpair

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(socket, "socketpair", lambda: pairs.append(pair()) or pairs[-1])
    monkeypatch.setattr(subprocess, "Popen", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Worker("lccodec.chain.save.background", TYPES, ERRORS)
    assert [end.fileno() for end in pairs[0]] == [-1, -1]


@pytest.mark.parametrize("workers", [1, 2])
def test_the_end_of_a_program_waits_for_its_saves(workers: int, tmp_path: Path) -> None:
    run = script(tmp_path, workers, 3)
    _, told = run.communicate(timeout=60)
    assert (run.returncode, told) == (0, "")
    check_directory(tmp_path)
    assert Chain(tmp_path).steps == [0, 1, 2]


def test_the_end_of_a_program_tells_of_failures(tmp_path: Path) -> None:
    text = """
import sys, numpy as np, lccodec, os
chain = lccodec.Chain(sys.argv[1], "lossless")
future = chain.save_async(0, {"weight": np.random.default_rng(0).random(4_000_000)})
os.rename(sys.argv[1], sys.argv[1] + ".moved") if os.path.exists(sys.argv[1]) else None
open(sys.argv[1], "w").close()
"""
    run = script(tmp_path / "run", 1, 0, text)
    _, told = run.communicate(timeout=60)
    assert "lccodec:" in told
    assert "step 0 was not saved" in told


@pytest.mark.parametrize("delay", [0.0, 0.05, 0.2, 0.5])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_program_that_is_killed_leaves_no_process_and_no_part_of_a_file(
    delay: float, workers: int, tmp_path: Path
) -> None:
    with script(tmp_path / "run", workers, 1000) as run:
        assert run.stdout is not None
        run.stdout.readline()
        assert until(lambda: len(children(run.pid)) == workers)
        started = children(run.pid)
        time.sleep(delay)
        run.kill()
        run.wait()
    assert until(lambda: not any(map(is_running, started)))
    if (tmp_path / "run").exists():
        check_directory(tmp_path / "run")


def test_all_killed_at_once_leaves_whole_checkpoints(tmp_path: Path) -> None:
    with script(tmp_path, 2, 1000) as run:
        assert run.stdout is not None
        for _ in range(4):
            run.stdout.readline()
        for process in [run.pid, *children(run.pid)]:
            os.kill(process, signal.SIGKILL)
    check_directory(tmp_path, names=2)  # temporaries, which the next save removes
    with Chain(tmp_path) as chain:
        step = chain.steps[-1] + 1
        chain.save_async(step, {"weight": np.full(3_000_000, step, np.float32), "step": step})
    check_directory(tmp_path)


def test_a_fork_while_a_save_is_in_flight(tmp_path: Path) -> None:
    """As the workers of a DataLoader: they may outlive the parent; the chain's workers do not."""
    text = SCRIPT.replace(
        "    print(step, flush=True)\n",
        """    if os.fork() == 0:
        os.close(1)
        if step == 1:  # the child may use the chain too, with workers of its own
            chain.restore(exact=False)
            other = lccodec.Chain(sys.argv[1] + "-child", "lossless")
            other.save(0, {"x": np.zeros(3)})
            other.close()
        import time
        time.sleep(1000)
    print(step, os.getpid(), flush=True)
""",
    )
    with script(tmp_path / "run", 1, 3, text) as run:
        assert run.stdout is not None
        for _ in range(3):
            run.stdout.readline()
        workers = children(run.pid)
        assert until((tmp_path / "run-child" / "000000000000.lcc.h5").exists)
        run.send_signal(signal.SIGKILL)
        run.wait()
        assert until(lambda: not any(map(is_running, workers)))
        forked = started_with(tmp_path)
        assert forked
        for process in forked:
            os.kill(process, signal.SIGKILL)
    check_directory(tmp_path / "run")


def test_ctrl_c_during_a_save_loses_nothing(tmp_path: Path) -> None:
    text = """
import signal, sys, numpy as np, lccodec
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background of a shell has none
chain = lccodec.Chain(sys.argv[1], "lossless", workers=2)
chain.save(0, {"weight": np.zeros(9), "step": 0})
print("ready", flush=True)
try:
    while True:
        step = chain.steps[-1] + 1
        chain.save(step, {"weight": np.full(9_000_000, step, np.float32), "step": step})
except KeyboardInterrupt:
    print("interrupted", flush=True)
    chain.close()
"""
    run = subprocess.Popen(
        [sys.executable, "-c", text, str(tmp_path)], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert run.stdout is not None
    assert run.stdout.readline() == "ready\n"
    time.sleep(0.3)
    os.killpg(run.pid, signal.SIGINT)  # as a terminal does: to all processes of the job
    assert run.stdout.readline() == "interrupted\n"
    assert run.wait(60) == 0
    run.stdout.close()
    check_directory(tmp_path)


def test_a_restored_state_is_as_it_was(tmp_path: Path) -> None:
    state = {"weight": np.arange(10.0), "step": 0}
    with Chain(tmp_path, "lossless", workers=1) as chain:
        chain.save(0, state)
        assert_same(chain.restore(), state)


def test_what_a_worker_does_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """It leaves the signals of a job to its client, and says that it has begun."""
    ignored = []
    monkeypatch.setattr(signal, "signal", lambda number, handler: ignored.append((number, handler)))
    ours, theirs = socket.socketpair()
    channel = connect(theirs.detach(), TYPES, ERRORS)
    assert (signal.SIGINT, signal.SIG_IGN) in ignored
    assert (signal.SIGTERM, signal.SIG_IGN) in ignored
    client = Channel(ours, TYPES, ERRORS)
    assert client.receive() is None
    channel.close()
    client.close()
    gone, theirs = socket.socketpair()
    gone.close()
    connect(theirs.detach(), TYPES, ERRORS).close()  # the client is gone already


def test_what_a_forked_process_does() -> None:
    """It closes its copies of the sockets; this one had the only copy, so the worker ends."""
    worker = start_worker()
    worker.ready()
    process._starting.acquire()  # as before a fork
    process._after_fork()
    assert os.waitpid(worker.pid, 0)[1] == 0
    assert not is_running(worker.pid)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_worker_has_a_reference_and_pieces(workers: int, tmp_path: Path) -> None:
    """Beside them the copy of the state; also if it reads its reference from files."""
    large = np.random.default_rng(0).standard_normal(16_000_000, np.float32)
    for steps in ([0, 1], [2]):
        with Chain(tmp_path, "balanced", roles={"w": "weight"}, workers=workers, newest="exact") as chain:
            for step in steps:
                chain.save_async(step, {"w": large}).result()
                large *= np.float32(1.001)
            for worker in children():
                status = Path(f"/proc/{worker}/status").read_text()
                most = 1024 * int(status.partition("VmHWM:")[2].split()[0])
                assert most < 2 * large.nbytes + (128 << 20)
