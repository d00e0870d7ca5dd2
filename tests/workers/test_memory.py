"""Shared memory: arrays keep it mapped, and nothing of it is left behind."""

from __future__ import annotations

import errno
import gc
import os

import numpy as np
import pytest

from lccodec import StorageError
from lccodec.workers import memory
from lccodec.workers.memory import Arena, Segment, place_of, shared_empty

from ..support.descriptors import SEGMENTS, open_files

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
    assert place_of(large)[0] is not places[0][0]  # type: ignore[index]
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
