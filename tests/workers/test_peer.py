"""A worker of a crew: results of its tasks, and what they write."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import lccodec
from lccodec import Chain, StorageError
from lccodec.chain.read.crew import CloseFile, DecodeGroup, Source
from lccodec.chain.read.newest import open_path
from lccodec.chain.save.worker import start_worker
from lccodec.workers import memory
from lccodec.workers.peer import Peer

from ..support.descriptors import SEGMENTS, open_files


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
