"""Restores divided among processes: the same values, in the same order, and the same errors."""

import errno
import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lccodec import Chain, ChainError, ChecksumError, WorkerError
from lccodec.chain.read.checkpoint import open_step
from lccodec.chain.read.crew import CloseFile, Source, replay_shared
from lccodec.chain.save import background
from lccodec.chain.save.settings import WorkerOptions
from lccodec.chain.store.directory import DirectoryStore
from lccodec.workers import process as memory
from lccodec.workers.crew import Crew, Threads
from lccodec.workers.process import place_of

from ...support.chains import HistoryChain
from ...support.descriptors import SEGMENTS, open_files
from ...support.directories import entries
from ...support.processes import children
from ...support.tuning import tune
from ...support.walks import assert_same

pytestmark = pytest.mark.slow  # processes

STEPS = 4


@pytest.fixture(scope="module", autouse=True)
def all_begin() -> Iterator[None]:
    """Otherwise a short restore is over before a worker has begun."""
    begin = background.crew_of

    def begun(options: WorkerOptions) -> Crew:
        crew = begin(options)
        crew.everywhere(CloseFile())
        return crew

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(background, "crew_of", begun)
        yield


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A chain with a large array, which is cut into ranges, and runs of small ones."""
    place = tmp_path_factory.mktemp("run")
    rng = np.random.default_rng(0)
    state: dict[str, Any] = {
        "large": {"weight": rng.standard_normal(9_000_000).astype(np.float32)},
        "middle": {"weight": rng.standard_normal((500, 300)), "n": np.arange(200_000)},
        "small": [rng.standard_normal(100) for _ in range(20)],
        "empty": np.zeros((0, 5)),
        "epoch": 1,
    }
    with HistoryChain(place, "lc-3") as chain:
        for step in range(STEPS):
            chain.save(step, state)
            state["large"]["weight"] += rng.standard_normal(9_000_000).astype(np.float32) * np.float32(0.01)
            state["middle"]["weight"] += 0.01 * rng.standard_normal((500, 300))
            state["small"][3] = state["small"][3] + 0.01
            state["epoch"] += 1
    return place


@pytest.fixture(scope="module")
def shared(directory: Path) -> Iterator[Chain]:
    with HistoryChain(directory, workers=3) as chain:
        yield chain


def test_states_are_the_same(directory: Path, shared: Chain) -> None:
    for step in range(STEPS):
        assert_same(shared.restore(step), HistoryChain(directory).restore(step))
    assert len(children()) == 2


def test_leaves_come_in_the_order_asked_for(directory: Path, shared: Chain) -> None:
    expected = list(HistoryChain(directory).restore_iter(2))
    found = list(shared.restore_iter(2))
    assert [name for name, _ in found] == [name for name, _ in expected]
    assert_same(dict(found), dict(expected))
    keys = ["small/5", "large", "epoch", "middle/n", "small/2"]
    assert_same(shared.restore(3, keys), HistoryChain(directory).restore(3, keys))
    arrivals = shared.restore_iter(3)  # given up on the way
    next(arrivals)
    arrivals.close()
    assert_same(shared.restore(1), HistoryChain(directory).restore(1))


def test_nothing_is_shared_after_a_restore(shared: Chain) -> None:
    gc.collect()
    before = open_files(SEGMENTS)
    state = shared.restore(3)
    for array in (state["large"]["weight"], state["middle"]["weight"], state["small"][0]):
        assert place_of(array) is None
        assert array.flags.writeable
    assert open_files(SEGMENTS) == before
    for worker in children():
        assert "lccodec" not in Path(f"/proc/{worker}/maps").read_text().replace("lccodec/", "")


def test_no_memory_to_share(directory: Path, shared: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    """This process decodes all by itself then."""
    expected = HistoryChain(directory).restore(3)

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(memory.os, "memfd_create", refuse)
    assert_same(shared.restore(3), expected)
    monkeypatch.undo()
    assert_same(shared.restore(3), expected)


def test_damage_is_found_wherever_it_is(directory: Path, tmp_path: Path) -> None:
    for path in entries(directory):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    with HistoryChain(tmp_path, workers=2) as chain:
        good = chain.restore()
        path = tmp_path / "000000000001.lcc.h5"
        data = path.read_bytes()
        for place in (len(data) // 10, len(data) // 2, len(data) * 9 // 10):
            path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
            with pytest.raises(ChecksumError, match=r"000000000001\.lcc\.h5"):
                chain.restore()
        path.write_bytes(data)
        assert_same(chain.restore(), good)


def test_a_file_that_is_replaced_on_the_way(directory: Path) -> None:
    with open_step(DirectoryStore(directory), 2) as file:
        source = Source(str(directory / "000000000003.lcc.h5"), file.links[-1].reader.root)
        with pytest.raises(ChainError, match="was replaced after it was opened"):
            list(replay_shared(file, source, [0, 1], Threads()))


def test_a_crew_of_threads(directory: Path) -> None:
    with open_step(DirectoryStore(directory), 3) as file:
        source = Source(str(directory / "000000000003.lcc.h5"), file.links[-1].reader.root)
        crew = Threads(2)
        found = dict(replay_shared(file, source, range(5), crew))
        assert crew.bench == {}
        expected = dict(file.decode_each(range(5)))
    for index, array in expected.items():
        np.testing.assert_array_equal(found[index].array(), array.array())
    CloseFile().run({})


def test_a_worker_that_is_gone(directory: Path) -> None:
    before = children()  # of an earlier test, which may be on their way out
    with HistoryChain(directory, workers=2) as chain:
        expected = chain.restore()
        (worker,) = set(children()).difference(before)
        os.kill(worker, signal.SIGKILL)
        with pytest.raises(WorkerError, match="a worker is gone"):
            chain.restore()
        assert_same(chain.restore(), expected)  # by a fresh one


def test_small_states_are_decoded_here(tmp_path: Path) -> None:
    with HistoryChain(tmp_path, workers=2) as chain:
        HistoryChain(tmp_path).save(0, {"a": np.arange(1000)})
        before = children()
        assert chain.restore()["a"].sum() == 499500
        assert children() == before


def test_what_is_sent_and_what_is_shared(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tune(monkeypatch, min_shared_bytes=0)
    keys = ["middle", "small"]
    expected = HistoryChain(directory).restore(3, keys)
    for limit in (0, 1 << 30):
        tune(monkeypatch, max_sent_bytes=limit)
        with HistoryChain(directory, workers=2) as chain:
            assert_same(chain.restore(3, keys), expected)
