"""Saves in the background: what is stored, when it is seen, and what becomes of failures."""

import errno
import gc
import os
import resource
import shutil
import signal
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from concurrent.futures import wait as wait_for
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lccodec import ArgumentError, Chain, Keep, LccodecWarning, Policy, StorageError, WorkerError, validate
from lccodec.chain.save import background
from lccodec.chain.save.background import Client, Report
from lccodec.constants import EXACT_NAME
from lccodec.quantizers import registry
from lccodec.quantizers.base import Quantizer
from lccodec.quantizers.residual import Residual
from lccodec.workers import process as memory

from ...support.directories import entries
from ...support.processes import children, is_running
from ...support.walks import assert_restores, assert_same, save_all, walk

pytestmark = pytest.mark.slow  # processes

STATES = walk(8)


def files_of(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in entries(directory)}


@pytest.fixture
def chain(tmp_path: Path) -> Iterator[Chain]:
    with Chain(tmp_path / "run", "lossless", worker_timeout=60) as chain:
        yield chain


def large(value: float) -> dict[str, Any]:
    """A state that takes a worker some time."""
    rng = np.random.default_rng(int(value))
    return {"weight": rng.standard_normal(4_000_000).astype(np.float32)}


def test_a_failure_after_a_save_does_not_hold_it_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise MemoryError

    monkeypatch.setattr("lccodec.chain.life.prune.prune", fail)
    with Chain(tmp_path, "lossless", keep=Keep(latest=1)) as chain:
        assert chain.save_async(0, STATES[0]).result(60) == chain.info(0).file_bytes
        with pytest.warns(LccodecWarning, match=r"step 0 is saved, but what follows .* MemoryError"):
            chain.wait()


# --- what is stored -------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["lossless", "lc-3", "balanced", "small"])
def test_the_bytes_do_not_depend_on_the_workers(policy: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    moved = np.cumsum(rng.standard_normal((3, 3, 1200, 700)).astype(np.float32), axis=1)
    states = [
        {"weight": w, "exp_avg": m, "exp_avg_sq": v * v, **small}
        for w, m, v, small in zip(*moved, walk(3), strict=True)
    ]
    numbers = {"balanced": (1, 2, 5), "lossless": (0, 2)}.get(policy, (1, 2))
    for workers in (None, *numbers):
        with Chain(tmp_path / str(workers), policy, workers=workers, newest="exact") as chain:
            sizes = [chain.save(step, state) for step, state in enumerate(states)]
        assert sizes == [(chain.directory / f"{step:012}.lcc.h5").stat().st_size for step in range(3)]
    expected = files_of(tmp_path / "None")
    assert all(files_of(tmp_path / str(workers)) == expected for workers in numbers)


def test_large_frames_are_divided(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    before = rng.standard_normal((1 << 22) + 1000).astype(np.float32)
    states = [
        {"weight": before, "n": np.arange(9_000_000)},
        {"weight": before + 1, "n": np.arange(9_000_000)},
    ]
    for workers in (None, 2):
        with Chain(tmp_path / str(workers), "lc-3", workers=workers) as chain:
            save_all(chain, states)
    assert files_of(tmp_path / "None") == files_of(tmp_path / "2")


def test_the_state_at_the_call_is_stored(chain: Chain) -> None:
    array, inner = np.arange(1_000_000.0), {"step": 1, "list": [1, 2]}
    state = {"weight": array, "inner": inner}
    future = chain.save_async(1, state, {"loss": "3"})
    array += 1  # an optimizer's step, with its counter
    inner["step"], inner["more"] = 2, np.zeros(3)
    inner["list"].append(3)
    assert future.result() == (chain.directory / "000000000001.lcc.h5").stat().st_size
    restored = chain.restore(1)
    assert restored["inner"] == {"step": 1, "list": [1, 2]}
    np.testing.assert_array_equal(restored["weight"], np.arange(1_000_000.0))
    assert chain.info(1).metadata == {"loss": "3"}


def test_a_tree_that_changes_between_calls(chain: Chain) -> None:
    states = [STATES[0], {"other": np.arange(5)}, {}, {"x": [np.zeros((0, 3)), True]}, STATES[1]]
    for step, state in enumerate(states):
        chain.save_async(step, state)
    chain.wait()
    assert_restores(chain, states, range(len(states)))


def test_roles_metadata_and_the_exact_file(tmp_path: Path) -> None:
    states = [{"a": np.random.default_rng(i).standard_normal(5000)} for i in range(3)]
    for name, save in (("now", Chain.save), ("later", Chain.save_async)):
        with Chain(tmp_path / name, "lc-2", roles={"a": "weight"}, newest="exact") as chain:
            for step, state in enumerate(states):
                save(chain, step, state, {"epoch": step})
    assert files_of(tmp_path / "now") == files_of(tmp_path / "later")
    assert_same(Chain(tmp_path / "later").restore(), states[2])


def test_an_adapter_and_every_kind_of_array(tmp_path: Path) -> None:
    from lccodec import BFLOAT16_BITS

    state = {
        "half": np.arange(5).astype(np.float16),
        "b": np.arange(6, dtype=np.uint16).view(BFLOAT16_BITS),
        "flags": np.array([[True, False]]),
        "big": np.arange(4, dtype=">i4"),
        "turned": np.arange(6).reshape(2, 3).T,
        "z": np.array(1j),
        "none": np.zeros((3, 0)),
    }
    for name, workers in (("now", None), ("later", 1)):
        with Chain(tmp_path / name, "lossless", workers=workers) as chain:
            chain.save(0, state)
    assert files_of(tmp_path / "now") == files_of(tmp_path / "later")


def test_steps_appear_in_order_and_only_when_they_are_there(tmp_path: Path) -> None:
    with Chain(tmp_path, "lossless", max_concurrent_saves=3) as chain:
        futures = [chain.save_async(step, large(step)) for step in range(3)]
        while not futures[-1].done():
            steps = chain.steps
            assert steps == list(range(len(steps)))
            assert all(validate(chain.directory / f"{step:012}.lcc.h5") == [] for step in steps)
        assert chain.steps == [0, 1, 2]


def test_a_save_waits_for_those_before(chain: Chain) -> None:
    first = chain.save_async(0, large(0))
    assert chain.save(1, STATES[0]) > 0
    assert first.done()
    assert chain.steps == [0, 1]


def test_busy_may_skip(chain: Chain) -> None:
    first = chain.save_async(0, large(0))
    assert chain.save_async(1, STATES[0], when_busy="skip").result() is None
    assert first.result()
    assert chain.save_async(1, STATES[0], when_busy="skip").result()
    assert chain.steps == [0, 1]


def test_a_chain_goes_on_where_it_stopped(tmp_path: Path) -> None:
    for step in range(4):
        with Chain(tmp_path, "lossless" if step == 0 else None) as chain:
            save = chain.save if step % 2 else chain.save_async
            save(step, STATES[step])
    assert [chain.info(step).parent for step in range(4)] == [None, 0, 1, 2]


def test_warnings_come_with_a_later_call(tmp_path: Path) -> None:
    Chain(tmp_path, "lossless").save(0, STATES[0])
    path = tmp_path / "000000000000.lcc.h5"
    path.write_bytes(path.read_bytes()[:-40])
    with Chain(tmp_path, "lossless") as chain:
        chain.save_async(1, STATES[1])
        with pytest.warns(LccodecWarning, match="writes a keyframe instead of a delta") as told:
            chain.wait()
        assert told[0].filename == __file__
        path.write_bytes(b"")
        (tmp_path / "000000000001.lcc.h5").write_bytes(b"")
        with pytest.warns(LccodecWarning, match="writes a keyframe instead of a delta"):
            chain.save(2, STATES[2])


def test_rollback_and_thinning_out_beside_saves_in_the_background(tmp_path: Path) -> None:
    with Chain(tmp_path, "lc-3", keyframe_every=1, newest="exact", keep=Keep(latest=2)) as chain:
        for step in range(6):
            chain.save_async(step, STATES[step])
        chain.wait()
        assert chain.steps == [4, 5]
        chain.rollback(4, delete=True)
        chain.save_async(7, STATES[7])
        chain.wait()
        assert_same(chain.restore(), STATES[7])  # bit for bit, as before the rollback
        assert (chain.steps[-1], chain.info(7).parent, chain.info(7).exact) == (7, 4, True)


# --- failures -------------------------------------------------------------------------------------


def break_directory(chain: Chain) -> None:
    """Put a file where only the worker finds it."""
    if chain.directory.exists():
        chain.directory.rename(chain.directory.with_name("moved"))
    chain.directory.write_bytes(b"not a directory")


def mend_directory(chain: Chain) -> None:
    chain.directory.unlink()


def fail(chain: Chain) -> Any:
    """A save that fails in the worker."""
    future = chain.save_async(0, large(0))
    break_directory(chain)
    wait_for([future])
    mend_directory(chain)
    return future


#: What a worker imports when it starts: its disk is as a file says, call and errno.
BROKEN_DISK = """
import os, pathlib
calls = {"open": os.open, "write": os.write, "fsync": os.fsync, "link": os.link}

def broken(name):
    def call(*arguments, **options):
        told = pathlib.Path(__file__).with_name("broken")
        reads = name == "open" and not arguments[1] & os.O_CREAT
        if not reads and told.exists() and told.read_text().split()[0] == name:
            raise OSError(int(told.read_text().split()[1]), "as the test says")
        return calls[name](*arguments, **options)
    return call

for name in calls:
    setattr(os, name, broken(name))
"""


@pytest.mark.parametrize(
    ("call", "number"),
    [("open", errno.EROFS), ("write", errno.ENOSPC), ("fsync", errno.EIO), ("link", errno.EDQUOT)],
)
def test_a_disk_that_is_full_or_read_only_is_found_by_the_worker(
    call: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(BROKEN_DISK)
    monkeypatch.syspath_prepend(tmp_path / "site")
    with Chain(tmp_path / "run", "lossless") as chain:
        chain.save_async(0, STATES[0])
        chain.wait()
        (tmp_path / "site" / "broken").write_text(f"{call} {number}")
        error = chain.save_async(1, STATES[1]).exception()
        assert isinstance(error, StorageError)
        assert error.errno == number
        (tmp_path / "site" / "broken").unlink()
        with pytest.raises(StorageError, match="as the test says"):
            chain.wait()
        assert [p.name for p in entries(chain.directory)] == ["000000000000.lcc.h5"]
        chain.save_async(1, STATES[1])
    assert_same(chain.restore(1), STATES[1])


@pytest.mark.parametrize("how", ["save_async", "save", "wait", "close", "with"])
def test_a_failure_is_raised_once_by_the_next_call(how: str, chain: Chain) -> None:
    future = fail(chain)
    assert isinstance(future.exception(), StorageError)
    assert chain.failure is future.exception()
    with pytest.raises(StorageError) as raised:
        if how == "with":
            with chain:
                pass
        elif how in ("wait", "close"):
            getattr(chain, how)()
        else:
            getattr(chain, how)(1, STATES[1])
    assert raised.value is future.exception()
    assert "step 0 was not saved" in raised.value.__notes__[0]
    assert chain.failure is None
    if how not in ("close", "with"):
        assert chain.save_async(1, STATES[1]).result()
        assert chain.steps == [1]


def test_an_error_of_the_end_does_not_hide_an_error_of_the_loop(
    chain: Chain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no notes, as an error of a save in the background has."""

    def refuse(_: bool) -> None:
        raise StorageError("the disk is gone")

    with pytest.raises(ZeroDivisionError) as raised, chain:
        monkeypatch.setattr(chain._writer, "close", refuse)
        _ = 1 / 0
    assert raised.value.__notes__ == ["the disk is gone"]


def test_a_failure_does_not_hide_an_error_of_the_loop(chain: Chain) -> None:
    with pytest.raises(ZeroDivisionError) as raised, chain:
        fail(chain)
        _ = 1 / 0
    assert "step 0 was not saved" in raised.value.__notes__[0]


def test_the_end_of_a_program_tells_what_went_wrong(chain: Chain, capsys: pytest.CaptureFixture[str]) -> None:
    fail(chain)
    background._at_exit()
    told = capsys.readouterr().err
    assert told.startswith("lccodec: ")
    assert "step 0 was not saved" in told


def test_steps_are_checked_at_once(chain: Chain) -> None:
    chain.save_async(5, large(0))
    for step, message in ((5, "exists already"), (3, "above the latest"), (-1, "an integer from 0")):
        with pytest.raises(ArgumentError, match=message):
            chain.save_async(step, STATES[1])
    with pytest.raises(ArgumentError, match="exists already"):
        chain.save(5, STATES[1])
    chain.wait()
    assert chain.failure is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"workers": -1}, "workers must be"),
        ({"workers": 1.5}, "workers must be"),
        ({"workers": True}, "workers must be"),
        ({"max_concurrent_saves": 0}, "max_concurrent_saves must be"),
        ({"worker_timeout": 0}, "worker_timeout must be a number"),
        ({"worker_timeout": float("nan")}, "worker_timeout must be a number"),
    ],
)
def test_bad_options(arguments: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=message):
        Chain(tmp_path, **arguments)


@pytest.mark.parametrize("value", ["", "later", None, True])
def test_bad_when_busy(value: Any, chain: Chain) -> None:
    with pytest.raises(ArgumentError, match="when_busy must be one of wait, skip"):
        chain.save_async(0, STATES[0], when_busy=value)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"a": np.array([object()])}, "entry 'a' has dtype object"),
        ({"a": {1: 2}}, "key"),
        ({"a": object()}, "a"),
    ],
)
def test_states_that_cannot_be_stored_are_refused_at_once(state: Any, message: str, chain: Chain) -> None:
    with pytest.raises(ArgumentError, match=message):
        chain.save_async(0, state)
    chain.save_async(0, STATES[0])
    chain.wait()
    assert chain.steps == [0]


def test_a_closed_chain(chain: Chain) -> None:
    chain.save_async(0, STATES[0])
    chain.close()
    for save in (chain.save, chain.save_async):
        with pytest.raises(ArgumentError, match="the chain is closed"):
            save(1, STATES[1])
    assert_same(chain.restore(), STATES[0])
    chain.close()


def test_no_memory_to_share(chain: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    chain.save_async(0, STATES[0])
    chain.wait()

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(memory.os, "memfd_create", refuse)
        with pytest.warns(LccodecWarning, match="no room for .* saves go on in a thread"):
            chain.save_async(1, large(1))
    chain.save_async(2, STATES[2])
    chain.wait()
    assert chain.steps == [0, 1, 2]
    assert_same(chain.restore(1), large(1))
    assert_same(chain.restore(2), STATES[2])


@pytest.mark.parametrize("executable", ["/nowhere/python", None])
def test_no_process_to_be_had(chain: Chain, monkeypatch: pytest.MonkeyPatch, executable: str | None) -> None:
    monkeypatch.setattr("sys.executable", executable)
    with pytest.warns(LccodecWarning, match="cannot be started: .* saves go on in a thread"):
        chain.save_async(0, STATES[0])
        chain.wait()
    assert_same(chain.restore(0), STATES[0])
    assert_same(Chain(chain.directory, workers=3).restore(0), STATES[0])


@dataclass(frozen=True)
class Mine(Quantizer):
    """A quantizer that workers do not know."""

    def fit_one(self, residual: Residual) -> None:
        """Store all exactly."""


def test_a_quantizer_of_your_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._registered, "Mine", Mine)
    with Chain(tmp_path, Policy("mine", {"weight": Mine()})) as chain:
        with pytest.warns(LccodecWarning, match="they do not know the quantizer Mine"):
            chain.save_async(0, {"weight": np.arange(5.0)})
        chain.save_async(1, {"weight": np.arange(5.0) + 1})
    np.testing.assert_array_equal(chain.restore(1)["weight"], np.arange(5.0) + 1)


# --- workers that die -----------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2])
def test_a_worker_is_killed(workers: int, tmp_path: Path) -> None:
    with Chain(tmp_path, "lossless", workers=workers) as chain:
        chain.save(0, large(0))
        for victim in range(workers):
            before = children()
            assert len(before) == workers
            future = chain.save_async(10 + victim, large(1))
            time.sleep(0.02)
            os.kill(before[victim], signal.SIGKILL)
            error = future.exception()
            assert error is None or isinstance(error, WorkerError)
            if error is not None:
                assert chain.failure is error
                with pytest.raises(WorkerError, match="a worker is gone"):
                    chain.wait()
            if chain.steps[-1] != 10 + victim:
                chain.save(10 + victim, large(1))  # a fresh worker, with the reference from the disk
            assert [p.name for p in entries(tmp_path) if not p.name.endswith(".lcc.h5")] == []
            assert chain.info(chain.steps[-1]).parent is not None
        assert_same(chain.restore(), large(1))


def test_an_older_exact_file_of_a_step_is_not_the_save_of_a_worker_that_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Chain(tmp_path, "balanced", newest="exact") as chain:
        save_all(chain, STATES, range(2))
    (tmp_path / "000000000001.lcc.h5").unlink()  # as if the save had been cut short
    commits = False

    def dies(client: Client, *_: Any) -> Report:
        client.started = True
        if commits:
            shutil.copy(tmp_path / EXACT_NAME, tmp_path / "copy")
            (tmp_path / "copy").replace(tmp_path / EXACT_NAME)
        raise WorkerError("a worker is gone")

    monkeypatch.setattr(Client, "request", dies)
    with Chain(tmp_path) as chain:
        assert isinstance(chain.save_async(1, STATES[2]).exception(), WorkerError)
        with pytest.raises(WorkerError):
            chain.wait()
        commits = True
        future = chain.save_async(1, STATES[2])
        assert future.result() == (tmp_path / EXACT_NAME).stat().st_size
        with pytest.warns(LccodecWarning, match="step 1 is on the disk, but its save did not end"):
            chain.wait()


def test_a_worker_is_stopped(tmp_path: Path) -> None:
    with Chain(tmp_path, "lossless", worker_timeout=4) as chain:
        chain.save_async(0, STATES[0])
        chain.wait()
        (worker,) = children()
        os.kill(worker, signal.SIGSTOP)
        future = chain.save_async(1, large(1))
        assert isinstance(future.exception(), WorkerError)
        assert not is_running(worker)
        with pytest.raises(WorkerError, match=r"has not answered for 4(\.0)? seconds"):
            chain.wait()
    with Chain(tmp_path) as chain:
        chain.save_async(1, STATES[1])
    assert chain.steps == [0, 1]


def test_abort_leaves_nothing_behind(tmp_path: Path) -> None:
    with Chain(tmp_path, "lossless", max_concurrent_saves=3) as chain:
        chain.save(0, STATES[0])
        futures = [chain.save_async(step, large(step)) for step in (1, 2, 3)]
        chain.abort()
        assert all(future.done() for future in futures)
        with pytest.raises((WorkerError, CancelledError)):
            futures[-1].result()
        assert chain.failure is None
        assert [p.name for p in entries(tmp_path) if not p.name.endswith(".lcc.h5")] == []
        step = chain.steps[-1] + 1
        chain.save_async(step, STATES[step])
        chain.wait()
        assert_same(chain.restore(), STATES[step])
        chain.abort()  # nothing to give up


def test_several_chains(tmp_path: Path) -> None:
    chains = [Chain(tmp_path / name, "lossless") for name in "abc"]
    for step in range(3):
        for chain in chains:
            chain.save_async(step, STATES[step])
    for chain in chains:
        chain.close()
        assert_same(chain.restore(1), STATES[1])
    assert children() == []


def test_a_chain_that_is_dropped_ends_its_workers(tmp_path: Path) -> None:
    chain = Chain(tmp_path, "lossless")
    chain.save_async(0, STATES[0]).result()
    assert len(children()) == 1
    del chain
    gc.collect()
    assert children() == []


def test_hundreds_of_saves_take_no_more_than_ten(tmp_path: Path) -> None:
    state = {"weight": np.arange(1000, dtype=np.float32)}
    with Chain(tmp_path, "lc-3") as chain:
        for step in range(300):
            state["weight"] += 1
            chain.save_async(step, state)
            if step == 20:
                chain.wait()
                worker = children()[0]
                before = [usage("self"), usage(worker)]
        chain.wait()
        after = [usage("self"), usage(worker)]
    for (descriptors, size), (later, more) in zip(before, after, strict=True):
        assert later <= descriptors
        assert more < size + (16 << 20)


def usage(process: object) -> tuple[int, int]:
    """Open descriptors and resident bytes of a process."""
    place = Path(f"/proc/{process}")
    pages = int((place / "statm").read_text().split()[1])
    return len([*(place / "fd").iterdir()]), pages * resource.getpagesize()
