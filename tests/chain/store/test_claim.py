"""One process at a time saves to a chain; readers do not notice."""

import errno
import gc
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lccodec import Chain, ChainError, Keep, LccodecWarning
from lccodec.chain.life.rollback import rollback
from lccodec.chain.save import background
from lccodec.chain.store import claim
from lccodec.chain.store.claim import DirectoryClaim, Use
from lccodec.chain.store.directory import DirectoryStore
from lccodec.constants import WRITER_NAME
from lccodec.container.system import System

from ...support.chains import HistoryChain
from ...support.directories import entries
from ...support.interrupts import interrupted
from ...support.processes import children, is_running
from ...support.systems import Faulty
from ...support.tuning import tune
from ...support.walks import assert_same, save_all, walk

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no locks of this kind")

STATES = walk(8)

#: Saves step 100 (or more of them), says so, and waits until its input is closed.
WRITER = """
import sys, numpy as np, lccodec
chain = lccodec.Chain(sys.argv[1], "lossless")
save = chain.save_async if sys.argv[2] == "async" else chain.save
{save}
print("saved", flush=True)
sys.stdin.read()
"""
SAVE = """save(100, {"x": np.zeros(3)}); chain.wait()"""


@contextmanager
def writer(directory: Path, how: str = "", save: str = SAVE) -> Iterator[subprocess.Popen[str]]:
    """Another process that has saved to a directory, and may save again."""
    command = [sys.executable, "-c", WRITER.replace("{save}", save), str(directory), how]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "saved\n"
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for the end of another process as long as that takes on a busy machine."""
    tune(monkeypatch, claim_seconds_to_wait=60.0)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    tune(monkeypatch, claim_seconds_to_wait=0.1)


@pytest.mark.slow
@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("how", ["", "async"])
def test_a_second_writer_is_told_who_the_first_is(tmp_path: Path, how: str) -> None:
    run = tmp_path / "run"
    with HistoryChain(run) as chain, writer(run, how) as other:
        for save in (chain.save, chain.save_async):
            with pytest.raises(ChainError, match=f"process {other.pid} on .* is saving to this chain"):
                save(101, STATES[0])
        assert chain.steps == [100]
        assert chain.failure is None
        other.communicate("", timeout=60)  # it ends
        chain.save(101, STATES[0])
        assert chain.info(101).parent == 100
    assert not (run / WRITER_NAME).exists()


@pytest.mark.slow
@pytest.mark.usefixtures("impatient")
def test_what_others_may_do_meanwhile(tmp_path: Path) -> None:
    """Read, pin, thin out, fork; but not take away what the writer goes on from."""
    with HistoryChain(tmp_path / "run", "lossless") as chain:
        save_all(chain, STATES, range(5))
        chain.rollback(3)
    with writer(tmp_path / "run"):
        assert chain.restore(3)["epoch"] == 3
        chain.pin(1)
        assert chain.prune(Keep(steps=[3]), rewrite=True).removed == (0, 2)
        assert chain.compact(keyframe_every=0, dry_run=True).steps == 3
        chain.fork(tmp_path / "fork", 3)
        for refused in (
            lambda: chain.rollback(3),
            chain.undo_rollback,
            lambda: chain.compact(keyframe_every=0),
        ):
            with pytest.raises(ChainError, match="is saving to this chain"):
                refused()
        chain.delete_rolled_back()
    chain.rollback(3)
    assert chain.steps == [1, 3]


@pytest.mark.slow
@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("how", ["", "async"])
def test_a_writer_that_is_killed_has_no_claim(tmp_path: Path, how: str) -> None:
    with writer(tmp_path, how) as other:
        other.send_signal(signal.SIGKILL)
        other.wait()
        with HistoryChain(tmp_path) as chain:
            chain.save(101, STATES[0])
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{step:012d}.lcc.h5" for step in (100, 101)]


@pytest.mark.slow
@pytest.mark.usefixtures("patient")
def test_a_worker_that_outlives_its_client_keeps_the_claim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may still commit what it was given."""
    with writer(tmp_path, "async") as other:
        (worker,) = children(other.pid)
        os.kill(worker, signal.SIGSTOP)
        other.send_signal(signal.SIGKILL)
        other.wait()
        with HistoryChain(tmp_path) as chain:
            with monkeypatch.context() as patch:
                tune(patch, claim_seconds_to_wait=0.1)
                with pytest.raises(ChainError, match=f"process {other.pid}"):
                    chain.save(101, STATES[0])
            os.kill(worker, signal.SIGCONT)
            chain.save(101, STATES[0])  # it waits until the worker has ended


@pytest.mark.slow
@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("how", ["", "async"])
def test_a_forked_process_neither_has_nor_keeps_it(tmp_path: Path, how: str) -> None:
    """What runs in the background is the parent's: the child neither waits for it nor ends it."""
    fork = """
import os, pathlib, time
from lccodec.chain.store import claim
claim._SECONDS_TO_WAIT = 0.1
save(100, {"x": np.zeros(3)}); chain.wait()
if os.fork() == 0:
    for refused in (lambda: save(101, {"x": np.ones(3)}), lambda: chain.rollback(100), chain.undo_rollback):
        try:
            refused()
        except lccodec.ChainError as error:
            assert "process" in str(error) or "rolled back" in str(error), error
        else:
            print("not refused", flush=True)
    chain.wait()
    chain.abort()
    chain.close()
    sys.stdin = open(os.devnull)
    path = pathlib.Path(sys.argv[1], "refused")
    path.with_suffix(".new").write_text(str(os.getpid()))
    path.with_suffix(".new").rename(path)
    os.close(1)
    time.sleep(1000)
while not os.path.exists(sys.argv[1] + "/refused"):
    time.sleep(0.01)
save(101, {"x": np.ones(3)}); chain.wait()
"""
    with writer(tmp_path, how, save=fork) as other:
        forked = int((tmp_path / "refused").read_text())
        workers = set(children(other.pid)) - {forked}
        with Chain(tmp_path) as chain:
            assert chain.steps == [100, 101]
            with pytest.raises(ChainError, match=f"process {other.pid} "):
                chain.save(102, STATES[0])
            other.send_signal(signal.SIGKILL)
            other.wait()
            while any(map(is_running, workers)):  # they end by themselves, though the child has copies
                time.sleep(0.01)
            chain.save(102, STATES[0])
        assert is_running(forked)
        os.kill(forked, signal.SIGKILL)


@pytest.mark.slow
def test_all_of_one_process_share_it(tmp_path: Path) -> None:
    """They save in turn, also where nobody can close one: a traceback in a notebook may hold it."""
    one, two = Chain(tmp_path, "lossless"), Chain(tmp_path, "lossless")
    one.save(0, STATES[0])
    two.save(1, STATES[1])
    one.save_async(2, STATES[2]).result()
    assert (tmp_path / WRITER_NAME).read_text().startswith(f"process {os.getpid()} on ")
    one.close()
    assert (tmp_path / WRITER_NAME).exists()
    two.rollback(0)
    two.save(1, STATES[2])
    two.close()
    assert not (tmp_path / WRITER_NAME).exists()
    assert_same(two.restore(), STATES[2])


@pytest.mark.slow
@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("dropped", [False, True])
@pytest.mark.parametrize("worker", [True, False])
def test_one_chain_of_a_process_saves_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, worker: bool, dropped: bool
) -> None:
    """Otherwise a delta could be committed whose parent was taken away meanwhile."""
    if not worker:
        monkeypatch.setattr(background, "find_obstacle", lambda _: "a thread saves")
        monkeypatch.setattr(background, "has_lock", lambda: False)  # which would warn of that
    one, go_on = Chain(tmp_path, "lossless"), threading.Event()
    save_all(one, STATES, range(3))
    one.rollback(1)
    future = one.save_async(2, STATES[2], progress=lambda *_: go_on.wait())
    if dropped:
        del one
        gc.collect()
    with Chain(tmp_path) as two:
        for refused in (
            lambda: two.save(3, STATES[3]),
            lambda: two.save_async(3, STATES[3]),
            lambda: two.rollback(0),
            lambda: two.compact(keyframe_every=0),
            two.undo_rollback,
            lambda: rollback(DirectoryStore(tmp_path), 0),
        ):
            with pytest.raises(ChainError, match="another Chain of this process is saving to this chain"):
                refused()
        go_on.set()
        future.result()
        two.rollback(0)
        assert two.steps == [0]
        two.save(1, STATES[1])
        assert_same(two.restore(), STATES[1])
    if not dropped:
        one.close()


@pytest.mark.parametrize("held", [False, True])
def test_a_claim_that_outlives_its_module_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: bool
) -> None:
    """At the end of a program, as after Ctrl-C in a framework that keeps the frames of callers."""
    own = DirectoryClaim(tmp_path)
    if held:
        own.take(Use())
    with monkeypatch.context() as patch:
        for name in [name for name in vars(claim) if not name.startswith("__")]:
            patch.setattr(claim, name, None)
        own.__del__()
    own.release()


def test_a_save_that_is_refused_uses_it_no_longer(tmp_path: Path) -> None:
    with Chain(tmp_path, "lossless") as one, Chain(tmp_path, "lossless") as two:
        one.save(0, STATES[0])
        for step, save in ((1, one.save), (2, one.save_async)):
            with pytest.raises(ValueError, match="set"):
                save(step, {"a": {1}})
            two.save(step, STATES[step])


def test_of_many_threads_one_uses_it_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them have the lock already; so each looks at the uses of the others."""
    monkeypatch.setattr(claim, "_SECONDS_BETWEEN_ATTEMPTS", 0.0)
    using, most, start = list[int](), list[int](), threading.Barrier(4, timeout=60)

    def use(number: int) -> None:
        own = DirectoryClaim(tmp_path)
        with own.around_save():
            pass
        start.wait()
        for _ in range(20):
            one = Use()
            own.take(one)
            using.append(number)
            time.sleep(0.0002)
            most.append(len(using))
            using.remove(number)
            one.end()
        own.release()

    threads = [threading.Thread(target=use, args=(number,)) for number in range(4)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert (len(most), max(most)) == (80, 1)
    assert not (tmp_path / WRITER_NAME).exists()


def test_reading_takes_no_claim(tmp_path: Path) -> None:
    HistoryChain(tmp_path).save(0, STATES[0])
    chain = HistoryChain(tmp_path)
    chain.restore()
    chain.plan(STATES[1])
    assert [path.name for path in tmp_path.iterdir()] == ["000000000000.lcc.h5"]


@pytest.mark.slow
@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_without_locks_saves_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def refuse(fd: int, wait: bool) -> None:  # noqa: ARG001
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(System, "lock", staticmethod(refuse))
    with HistoryChain(tmp_path) as chain:
        chain.save(0, STATES[0])
        chain.save_async(1, STATES[1])
        chain.wait()
        chain.rollback(0)
        assert [path.name for path in entries(tmp_path)] == [".rolled-back", "000000000000.lcc.h5"]
        assert not (tmp_path / WRITER_NAME).exists()


def test_a_file_that_cannot_be_made_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = DirectoryClaim(tmp_path / "missing")
    held.take(Use())
    assert held.descriptors == []
    opening = System.open

    def refuse(path: Any, flags: int, mode: int = 0o777) -> int:
        if Path(path).name == WRITER_NAME:
            raise OSError(errno.EACCES, "Permission denied")
        return opening(path, flags, mode)

    monkeypatch.setattr(System, "open", staticmethod(refuse))
    with Chain(tmp_path) as chain:
        chain.save(0, STATES[0])
    assert chain.steps == [0]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["link", "nowhere", "directory", "link to a directory", "fifo"])
def test_what_is_no_file_cannot_be_locked(tmp_path: Path, kind: str) -> None:
    """It is left as it is; without the lock nobody would know who saves."""
    path, other = tmp_path / "run" / WRITER_NAME, tmp_path / "other"
    path.parent.mkdir()
    if kind == "directory":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to(other)
        if kind == "link":
            other.write_bytes(b"mine")
        elif kind == "link to a directory":
            other.mkdir()
    mode = path.lstat().st_mode
    with Chain(path.parent) as chain:
        for save in (chain.save, chain.save_async):
            with pytest.raises(ChainError, match=r"did not make, .*; remove it"):
                save(0, STATES[0])
        assert path.lstat().st_mode == mode
        assert kind != "link" or other.read_bytes() == b"mine"
        path.rmdir() if kind == "directory" else path.unlink()
        chain.save(0, STATES[0])
        assert path.exists()


def test_a_second_name_of_another_file_is_not_written_to(tmp_path: Path) -> None:
    """So it is after a kill and a backup by hard links."""
    path, other = tmp_path / "run" / WRITER_NAME, tmp_path / "other"
    path.parent.mkdir()
    other.write_bytes(b"mine")
    path.hardlink_to(other)
    with Chain(path.parent) as chain:
        with pytest.warns(LccodecWarning, match="was a second name of a file elsewhere"):
            chain.save(0, STATES[0])
        assert not path.samefile(other)
        assert path.read_text().startswith(f"process {os.getpid()} on ")
    assert other.read_bytes() == b"mine"


def test_a_second_name_of_what_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"mine")
    (tmp_path / WRITER_NAME).hardlink_to(tmp_path / "other")
    with pytest.raises(ChainError, match=r"did not make, .*; remove it"):
        DirectoryClaim(tmp_path, Faulty(errno.EACCES, lambda name, _: name == "open")).take(Use())


@pytest.mark.slow
@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("harm", ["file", "directory"])
def test_a_claim_whose_file_is_gone_is_taken_anew(tmp_path: Path, harm: str) -> None:
    run = tmp_path / "run"
    with HistoryChain(run, "lossless") as chain:
        chain.save(0, STATES[0])
        if harm == "file":
            (run / WRITER_NAME).unlink()
        else:
            run.rename(tmp_path / "moved")
            shutil.copytree(tmp_path / "moved", run)
        chain.save(1, STATES[1])
        text = "import sys, lccodec; from lccodec.chain.store import claim; claim._SECONDS_TO_WAIT = 0; "
        command = [sys.executable, "-c", text + "lccodec.Chain(sys.argv[1]).save(9, {})", str(run)]
        other = subprocess.run(command, check=False, capture_output=True, text=True)
        assert f"process {os.getpid()} on " in other.stderr
    assert not (run / WRITER_NAME).exists()


@pytest.mark.slow
def test_the_end_of_a_program_removes_the_file(tmp_path: Path) -> None:
    with writer(tmp_path, "async") as other:
        assert (tmp_path / WRITER_NAME).exists()
        other.communicate("", timeout=60)
    assert not (tmp_path / WRITER_NAME).exists()


def test_a_handler_that_takes_the_claim_keeps_its_use(tmp_path: Path) -> None:
    """What it has interrupted takes the same claim, and may end before it."""
    lock, first = DirectoryClaim(tmp_path), Use()
    lock.take(first)  # by a thread; later ones need none
    first.end()
    for number in range(len(interrupted(lambda: lock.take(first)))):
        use, other = Use(), Use()
        interrupted(lambda use=use: lock.take(use), number, lambda other=other: lock.take(other))  # type: ignore[misc]
        use.end()
        assert lock.is_used, number
        other.end()
        assert not lock.is_used
    lock.release()


def test_a_file_that_another_removes_at_once(tmp_path: Path) -> None:
    """It was stale: between the two calls another process has cleaned up."""
    count = 0

    class Removing(System):
        @staticmethod
        def lock(fd: int, wait: bool) -> None:
            nonlocal count
            count += 1
            if count == 1:
                (tmp_path / WRITER_NAME).unlink()
            System.lock(fd, wait)

    with DirectoryClaim(tmp_path, Removing()).held():
        assert count == 2
        assert (tmp_path / WRITER_NAME).exists()
    assert list(tmp_path.iterdir()) == []


def test_the_first_save_makes_the_directory_and_takes_it(tmp_path: Path) -> None:
    with HistoryChain(tmp_path / "run") as chain:
        with pytest.raises(ValueError, match="set"):
            chain.save(0, {"a": {1}})
        assert not (tmp_path / "run").exists()
        chain.save(0, {"a": np.ones(3)})
        assert (tmp_path / "run" / WRITER_NAME).exists()


@pytest.mark.usefixtures("impatient")
def test_of_two_that_begin_a_chain_at_once_the_second_writes_nothing(tmp_path: Path) -> None:
    refused: list[str] = []

    def save_too(done: int, total: int) -> None:  # noqa: ARG001 - it is told when the first one codes
        with pytest.raises(ChainError) as caught:
            other.save(0, {"a": np.zeros(3)})
        refused.append(str(caught.value))

    with HistoryChain(tmp_path / "run") as chain, HistoryChain(tmp_path / "run") as other:
        chain.save(0, {"a": np.ones(3)}, progress=save_too)
        assert chain.steps == [0]
        assert chain.restore(0)["a"].tolist() == [1, 1, 1]
    assert "another Chain of this process is saving to this chain" in refused[0]


@pytest.mark.slow
@pytest.mark.usefixtures("patient")
def test_a_wait_for_the_end_of_another(tmp_path: Path) -> None:
    with writer(tmp_path) as other, HistoryChain(tmp_path) as chain:
        assert other.stdin is not None
        other.stdin.close()
        chain.save(101, STATES[0])
        assert chain.steps == [100, 101]


@pytest.mark.slow
@pytest.mark.usefixtures("impatient")
@pytest.mark.filterwarnings("ignore:.* this save writes a keyframe instead of a delta")
def test_a_directory_that_is_moved_away_and_back(tmp_path: Path) -> None:
    """The worker of this process has the lock as well, and keeps it meanwhile."""
    run = tmp_path / "run"
    with HistoryChain(run, "lossless") as chain:
        chain.save_async(0, STATES[0]).result()
        run.rename(tmp_path / "moved")
        chain.save_async(1, STATES[1]).result()
        shutil.rmtree(run)
        (tmp_path / "moved").rename(run)
        chain.save_async(2, STATES[2]).result()
    assert chain.steps == [0, 2]


@pytest.mark.slow
@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("how", ["", "async"])
def test_a_chain_that_gives_way(tmp_path: Path, how: str) -> None:
    with HistoryChain(tmp_path, "lossless") as chain:
        chain.save(0, STATES[0])
        if how:
            chain.save_async(1, STATES[1])
        chain.release_lock()
        with writer(tmp_path, how) as other:
            with pytest.raises(ChainError, match=f"process {other.pid} on "):
                chain.save(101, STATES[1])
            other.communicate("", timeout=60)
        chain.rollback(0)
        chain.save(101, STATES[1])
    assert chain.steps == [0, 101]
