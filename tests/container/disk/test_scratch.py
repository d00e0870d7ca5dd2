from __future__ import annotations

import errno
import gc
import os
from pathlib import Path

import pytest

from lccodec.container.disk.scratch import Scratch

from ...support.systems import Faulty


def test_bytes_are_where_they_were_put(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path, "inner", "file")
    assert scratch.read(0, 4) == b""
    scratch.write(10, memoryview(b"abcdef"))
    scratch.write(12, memoryview(b"XY"))
    assert scratch.read(10, 6) == b"abXYef"
    assert scratch.read(14, 100) == b"ef"
    assert scratch.read(50, 1) == b""
    scratch.close()
    scratch.close()
    assert scratch.read(10, 2) == b"ab"
    assert (tmp_path / "inner" / "file").read_bytes() == bytes(10) + b"abXYef"
    scratch.close()


def test_what_lies_behind_a_place_is_given_back(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path, "inner", "file")
    scratch.cut(0)
    assert list(tmp_path.iterdir()) == []
    scratch.write(0, memoryview(b"abcdef"))
    scratch.cut(10)
    scratch.cut(4)
    assert scratch.read(0, 10) == b"abcd"
    scratch.close()


def test_one_that_is_dropped_is_closed(tmp_path: Path) -> None:
    system = Faulty()
    scratch = Scratch(tmp_path, "inner", "file", system)
    scratch.write(0, memoryview(b"abc"))
    (descriptor,) = system.descriptors
    os.fstat(descriptor)
    del scratch
    gc.collect()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_a_disk_that_is_full_ends_it(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path, "inner", "file", Faulty(errno.ENOSPC, lambda name, _: name == "write_at"))
    assert scratch.works
    scratch.write(0, memoryview(b"abc"))
    assert not scratch.works
    scratch.write(0, memoryview(b"abc"))
    assert scratch.read(0, 3) == b""
    scratch.close()


def test_a_disk_that_is_full_gets_the_room_back(tmp_path: Path) -> None:
    numbers = iter(range(10))
    system = Faulty(errno.ENOSPC, lambda name, _: name == "write_at" and next(numbers) == 1)
    scratch = Scratch(tmp_path, "inner", "file", system)
    scratch.write(0, memoryview(b"abc"))
    scratch.write(3, memoryview(b"def"))
    assert list((tmp_path / "inner").iterdir()) == []
    assert scratch.read(0, 3) == b""
    assert not system.descriptors
    assert not scratch.give_up()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes here")
def test_a_pipe_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    os.mkfifo(tmp_path / "inner" / "file")
    scratch = Scratch(tmp_path, "inner", "file")
    scratch.write(0, memoryview(b"abc"))
    assert not scratch.works
    assert scratch.read(0, 3) == b""
    assert not scratch.give_up()
    assert (tmp_path / "inner" / "file").is_fifo()


def test_a_second_name_of_another_file_is_made_anew(tmp_path: Path) -> None:
    """As after `cp -al`, or where somebody has put it: what is elsewhere stays."""
    (tmp_path / "inner").mkdir()
    (tmp_path / "mine").write_bytes(b"mine")
    (tmp_path / "inner" / "file").hardlink_to(tmp_path / "mine")
    scratch = Scratch(tmp_path, "inner", "file")
    scratch.cut(0)
    assert scratch.read(0, 4) == b""
    scratch.write(0, memoryview(b"abc"))
    assert scratch.read(0, 3) == b"abc"
    scratch.close()
    assert scratch.read(0, 3) == b"abc"
    scratch.close()
    assert (tmp_path / "mine").read_bytes() == b"mine"
