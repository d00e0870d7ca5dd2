"""Open directories: names are found in them, whatever becomes of the path; links lead nowhere."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from lccodec.container.disk import folder as module
from lccodec.container.disk.folder import (
    Folder,
    is_temporary,
    make_directory,
    sync_directory,
    temporary_name,
)
from lccodec.container.disk.system import SYSTEM, System
from lccodec.errors import StorageError

from ...support.crashes import Replay, tried
from ...support.systems import Faulty
from ...support.tuning import tune


@pytest.fixture(name="outside")
def _outside(tmp_path: Path) -> Path:
    """A directory that a link in another one, `run`, leads to."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_bytes(b"mine")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "link").symlink_to(outside)
    return outside


@pytest.fixture(params=["descriptors", "paths"])
def how(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """How names are found: on this system, and on one that opens no directories."""
    if request.param == "paths":
        monkeypatch.setattr(module, "WINDOWS", True)
        tune(monkeypatch, calls_in_directories=False)
    yield request.param


@pytest.mark.usefixtures("how")
def test_what_is_done_in_a_directory(tmp_path: Path) -> None:
    with Folder(tmp_path) as folder:
        folder.make("inner")
        folder.make("inner")
        for name in ("one", "two"):
            SYSTEM.close(SYSTEM.open(folder / name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        SYSTEM.link(folder / "one", folder / "three")
        folder.rename("two", "four")
        assert sorted(folder.names()) == ["four", "inner", "one", "three"]
        folder.remove(["one", "nothing"])
        with folder.inner("inner") as inner:
            folder.system.link(folder / "three", inner / "five")
            assert inner.path == tmp_path / "inner"
            assert not folder.remove_empty("inner")
            inner.remove(inner.names())
            inner.sync()
        assert folder.remove_empty("inner")
        assert folder.lock()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["four", "three"]


@pytest.mark.usefixtures("how")
@pytest.mark.parametrize("kind", ["link", "file", "fifo"])
def test_only_directories_are_gone_into(outside: Path, kind: str) -> None:
    path = outside.parent / "run" / kind
    if kind == "file":
        path.touch()
    elif kind == "fifo":
        os.mkfifo(path)
    with Folder(path.parent) as folder, pytest.raises(StorageError, match="remove or rename it") as caught:
        folder.inner(kind)
    assert caught.value.filename == str(path)
    assert caught.value.errno == errno.ENOTDIR
    assert (outside / "file").read_bytes() == b"mine"


def test_a_link_that_comes_in_between(outside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes the place of a directory between the look and the opening, or afterwards."""
    run = outside.parent / "run"
    (run / "inner").mkdir()
    status = (run / "inner").lstat()
    with Folder(run) as folder:
        inner = folder.inner("inner")
        (run / "inner").rmdir()
        (run / "inner").symlink_to(outside)
        with inner:
            inner.remove(["file"])
            assert inner.names() == []
        monkeypatch.setattr(module.Entry, "lstat", lambda _: status)
        with pytest.raises(OSError, match=r"[Nn]ot a directory|[Tt]oo many"):
            folder.inner("inner")
    assert (outside / "file").exists()


def test_a_directory_that_is_moved_is_the_same(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "file").touch()
    with Folder(tmp_path / "run") as folder:
        (tmp_path / "run").rename(tmp_path / "moved")
        shutil.copytree(tmp_path / "moved", tmp_path / "run")
        folder.remove(["file"])
    assert (tmp_path / "run" / "file").exists()
    assert not (tmp_path / "moved" / "file").exists()


def test_a_junction_of_windows_is_a_link(outside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = outside.parent / "run"
    (run / "inner").mkdir()

    class Status:
        st_mode = stat.S_IFDIR
        st_file_attributes = 0x400

    monkeypatch.setattr(module.Entry, "lstat", lambda _: Status())
    monkeypatch.setattr(stat, "FILE_ATTRIBUTE_REPARSE_POINT", 0x400, raising=False)
    with Folder(run) as folder, pytest.raises(StorageError, match="it is a link"):
        folder.inner("inner")


def test_the_lock_of_a_directory(tmp_path: Path) -> None:
    system = Faulty(errno.ENOTSUP, lambda name, _: name == "lock")
    with Folder(tmp_path, system) as folder:
        assert folder.lock(wait=False)  # without locks the work is done
        assert system.log == ["open", "lock"]
    assert not system.descriptors
    fd = os.open(tmp_path, os.O_RDONLY)
    with Folder(tmp_path) as folder, pytest.raises(BlockingIOError):
        folder.lock()
        SYSTEM.lock(fd, False)
    SYSTEM.lock(fd, False)
    with Folder(tmp_path) as folder:
        assert not folder.lock(wait=False)
    os.close(fd)
    with pytest.raises(FileNotFoundError):
        Folder(tmp_path / "nothing")


@pytest.mark.parametrize("error", [OSError(errno.EIO, "error"), KeyboardInterrupt()])
def test_no_error_keeps_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """Who comes next would wait for it without end."""

    def fail(fd: int) -> None:  # noqa: ARG001 - as the system calls it
        raise error

    with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
        patch.setattr(System, "close", staticmethod(fail))
        with Folder(tmp_path) as folder:
            folder.lock()
    with Folder(tmp_path) as folder:
        assert folder.lock(wait=False)
    dropped = Folder(tmp_path)
    dropped.lock()
    del dropped
    with Folder(tmp_path) as folder:
        assert folder.lock(wait=False)


@pytest.mark.parametrize(
    ("code", "passed"), [(errno.EINVAL, True), (errno.ENOTSUP, True), (errno.EIO, False)]
)
def test_directories_that_cannot_be_synced(tmp_path: Path, code: int, passed: bool) -> None:
    system = Faulty(code, lambda name, _: name == "fsync")
    if passed:
        sync_directory(tmp_path, system)
    else:
        with pytest.raises(OSError, match="error"):
            sync_directory(tmp_path, system)
    assert not system.descriptors


@pytest.mark.parametrize("call", ["open", "fsync", "unlink", "rmdir", "listdir", "replace"])
def test_faults_close_what_is_open(tmp_path: Path, call: str) -> None:
    system = Faulty(errno.EIO, lambda name, _: name == call)

    def work() -> None:
        with Folder(tmp_path, system) as folder:
            folder.make("inner")
            with folder.inner("inner") as inner:
                inner.names()
            folder.rename("inner", "other")
            folder.remove_empty("other")
            folder.remove(["nothing"])

    with pytest.raises(OSError, match="error"):
        work()
    assert not system.descriptors


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (".tmp-writer", True),
        (".tmp-0123456789abcdef", True),
        (".tmp-0123456789ABCDEF", False),
        (".tmp-0123", False),
        (".tmp-notes", False),
        (".tmp-0123456789abcdef.txt", False),
        ("x.tmp-0123456789abcdef", False),
    ],
)
def test_the_names_of_temporaries(name: Any, expected: bool) -> None:
    assert is_temporary(name) == expected
    assert is_temporary(temporary_name())


# --- directories that are made --------------------------------------------------------------------


def test_a_directory_is_made_with_those_above_it(tmp_path: Path) -> None:
    make_directory(tmp_path / "a" / "b" / "c")
    make_directory(tmp_path / "a" / "b" / "c")
    assert (tmp_path / "a" / "b" / "c").is_dir()
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "inner"):
        with pytest.raises(OSError, match=r"exists|Not a directory"):
            make_directory(path)


def test_no_crash_loses_a_directory_that_was_made(tmp_path: Path) -> None:
    """Nor one that another process has made, and was killed before it flushed the name."""
    (tmp_path / "root").mkdir()

    def work(replay: Replay) -> None:
        make_directory(tmp_path / "root" / "a" / "b")
        replay.done("a/b")
        (tmp_path / "root" / "c").mkdir()
        make_directory(tmp_path / "root" / "c")
        replay.done("c")

    def check(reported: list[object], place: Path) -> None:
        assert all((place / str(name)).is_dir() for name in reported)

    assert tried(tmp_path / "root", work, check) == []
    shutil.rmtree(tmp_path / "root")
    (tmp_path / "root").mkdir()
    assert len(tried(tmp_path / "root", work, check, ignore="sync directory")) == 1


def test_a_directory_that_another_process_makes_meanwhile(tmp_path: Path) -> None:
    class Late(System):
        @staticmethod
        def mkdir(path: Any) -> None:
            Path(path).mkdir()
            System.mkdir(path)

    make_directory(tmp_path / "a" / "b", Late())
    assert (tmp_path / "a" / "b").is_dir()


def test_a_directory_that_may_not_be_listed_is_not_flushed(tmp_path: Path) -> None:
    system = Faulty(errno.EACCES, lambda name, _: name == "open")
    make_directory(tmp_path / "a", system)
    assert (tmp_path / "a").is_dir()
    with pytest.raises(OSError, match="Input/output"):
        make_directory(tmp_path / "a", Faulty(errno.EIO, lambda name, _: name == "fsync"))
