"""Folders for temporary files: what a kill leaves goes, and nothing else does."""

import errno
import gc
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from lccodec.container import scratch as temporary
from lccodec.container.scratch import Scratch, TemporaryFolder, clear_abandoned
from lccodec.container.system import SYSTEM
from lccodec.errors import StorageError

from ..support.programs import run_program
from ..support.systems import Faulty


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


_CODE = """
import sys
from lccodec.container.scratch import TemporaryFolder
folder = TemporaryFolder()
(folder.path / "000000000001.lcc.h5").write_bytes(bytes(1000))
(folder.path / (".tmp-" + 16 * "0")).write_bytes(bytes(1000))
print(folder.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the system for temporaries."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(temporary, "_cleared", set())
    return tmp_path


def other_process() -> tuple[subprocess.Popen[str], Path]:
    """A process that has a folder, and the folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", _CODE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def killed(count: int) -> list[Path]:
    """The folders of processes that were there together, and were killed."""
    processes, paths = zip(*(other_process() for _ in range(count)), strict=True)
    for process in processes:
        process.kill()
        process.communicate()
    assert [len(list(path.iterdir())) for path in paths] == [3] * count
    return list(paths)


def test_a_folder_is_there_for_a_while(base: Path) -> None:
    with TemporaryFolder() as path:
        assert path.parent == base
        assert path.stat().st_mode & 0o777 == 0o700
        (path / "some").mkdir()
        (path / "some" / "file").write_text("")
    assert list(base.iterdir()) == []
    folder = TemporaryFolder()
    folder.close()
    folder.close()
    assert list(base.iterdir()) == []
    dropped = TemporaryFolder()
    del dropped
    assert list(base.iterdir()) == []


def test_what_a_kill_left_is_removed_by_the_next_process(base: Path) -> None:
    killed(1)
    process, theirs = other_process()  # which begins after the kill
    try:
        killed(1)
        with TemporaryFolder() as own:
            assert sorted(base.iterdir()) == sorted((own, theirs))
            assert len(list(theirs.iterdir())) == 3
    finally:
        process.communicate("")
    assert list(base.iterdir()) == []


def test_a_fork_does_not_remove_the_folder_of_its_parent(base: Path) -> None:
    code = """
import os
from lccodec.container.scratch import TemporaryFolder
with TemporaryFolder() as path:
    if (child := os.fork()) == 0:
        raise SystemExit
    assert os.waitpid(child, 0)[1] == 0
    assert path.exists()
"""
    run_program(code)
    assert list(base.iterdir()) == []


def test_a_kill_between_the_first_calls(base: Path) -> None:
    (base / f"lccodec-{'0' * 16}").mkdir()
    clear_abandoned()
    assert list(base.iterdir()) == []


def test_a_folder_that_another_process_removes_at_once_is_made_anew(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks abandoned until its lock is taken."""
    lock, calls = SYSTEM.lock, 0

    def late(fd: int, wait: bool) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            (path,) = base.iterdir()
            (path / ".held").unlink()
            path.rmdir()
        if calls == 2:
            raise BlockingIOError
        lock(fd, wait)

    monkeypatch.setattr(type(SYSTEM), "lock", staticmethod(late))
    with TemporaryFolder() as path:
        assert list(base.iterdir()) == [path]
    assert calls == 3


@pytest.mark.usefixtures("base")
@pytest.mark.parametrize("days", [0, 2])
def test_a_folder_of_another_host_is_left_alone_for_a_day(days: int) -> None:
    [path] = killed(1)
    held = path / ".held"
    held.write_bytes(held.read_bytes()[:-3] + b"...")
    moment = held.stat().st_mtime - days * 86400
    os.utime(held, (moment, moment))
    clear_abandoned()
    assert path.exists() == (days == 0)


@pytest.mark.usefixtures("base")
@pytest.mark.parametrize("content", [b"", b"something else"])
def test_what_only_looks_like_ours(content: bytes) -> None:
    [path] = killed(1)
    (path / ".held").write_bytes(content)
    clear_abandoned()
    assert len(list(path.iterdir())) == 3


def test_files_of_others_stay(base: Path) -> None:
    elsewhere = base / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "000000000001.lcc.h5").write_text("")
    foreign, linked, inner = killed(3)
    (foreign / "thesis.tex").write_text("")
    (linked / "000000000002.lcc.h5").symlink_to(elsewhere / "000000000001.lcc.h5")
    (inner / "000000000002.lcc.h5").mkdir()
    named = [base / name for name in ("lccodec-notes", f"lccodec-{'0' * 15}", f"lccodec-{'0' * 16}.old")]
    for path in named:
        path.mkdir()
    (base / f"lccodec-{'1' * 16}").symlink_to(elsewhere)
    (base / f"lccodec-{'2' * 16}").write_text("")
    clear_abandoned()
    assert (foreign / "thesis.tex").exists()
    assert (linked / "000000000002.lcc.h5").is_symlink()
    assert (inner / "000000000002.lcc.h5").is_dir()
    assert [path.name for path in elsewhere.iterdir()] == ["000000000001.lcc.h5"]
    assert all(path.is_dir() for path in named)
    assert (base / f"lccodec-{'1' * 16}").is_symlink()
    assert (base / f"lccodec-{'2' * 16}").is_file()


@pytest.mark.parametrize("kind", ["link", "fifo", "folder"])
def test_a_lock_that_is_no_file(base: Path, kind: str) -> None:
    [path] = killed(1)
    held = path / ".held"
    held.rename(base / "held")
    if kind == "link":
        held.symlink_to(base / "held")
    elif kind == "fifo":
        os.mkfifo(held)
    else:
        held.mkdir()
    clear_abandoned()
    assert len(list(path.iterdir())) == 3


def test_folders_of_other_users_are_left_alone(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [path] = killed(1)
    (base / f"lccodec-{'0' * 16}").mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    clear_abandoned()
    assert len(list(path.iterdir())) == 3
    assert len(list(base.iterdir())) == 2


def test_a_base_that_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def nowhere() -> str:
        raise FileNotFoundError

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(StorageError, match="cannot make a folder"):
        TemporaryFolder()
    monkeypatch.setattr(tempfile, "gettempdir", nowhere)
    clear_abandoned()
    with pytest.raises(StorageError, match="cannot make a folder"):
        TemporaryFolder()
