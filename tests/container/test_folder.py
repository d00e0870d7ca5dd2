"""Open directories: names are found in them, whatever becomes of the path; links lead nowhere.

A file is written whole or not at all, whatever fails.

Second names of files: links, and copies where there are none; whole or absent.

Of files of other formats only regular ones are read.
"""

import errno
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from lccodec import LccodecError
from lccodec.constants import TEMPORARY_PREFIX
from lccodec.container import folder as module
from lccodec.container.folder import (
    NO_HARD_LINK,
    Folder,
    WholeFile,
    is_temporary,
    make_directory,
    regular_file,
    remove_stale_temporaries,
    replacing,
    sync_directory,
    temporary_name,
)
from lccodec.container.folder import duplicate as duplicate_into
from lccodec.container.source import BytesSource
from lccodec.container.system import SYSTEM, System
from lccodec.errors import ArgumentError, StorageError

from ..support.checkpoints import listing
from ..support.crashes import Replay, broken, power_losses, tried
from ..support.systems import Faulty, failing_at
from ..support.tuning import tune


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


DATA = os.urandom(100) * 30


def write(path: Path, data: bytes = DATA, **options: object) -> None:
    with WholeFile(path, **options) as file:
        file.write(data[:10])
        file.copy(BytesSource(data[10:]))
        file.commit()
    assert file.size == len(data)


def test_bytes_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tune(monkeypatch, file_piece_bytes=7, file_flush_bytes=1000)
    write(tmp_path / "one")
    assert (tmp_path / "one").read_bytes() == DATA
    write(tmp_path / "empty", b"")
    assert listing(tmp_path) == ["empty", "one"]


def test_an_existing_file_stays_unless_it_is_to_be_replaced(tmp_path: Path) -> None:
    path = tmp_path / "one"
    path.write_bytes(b"precious")
    path.chmod(0o600)
    with pytest.raises(ArgumentError, match="already exists"):
        write(path)
    with pytest.raises(ArgumentError, match="already exists"), WholeFile(tmp_path / "two") as file:
        (tmp_path / "two").write_bytes(b"came in between")
        file.commit()
    assert path.read_bytes() == b"precious"
    write(path, overwrite=True)
    assert path.read_bytes() == DATA
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert listing(tmp_path) == ["one", "two"]


def test_leaving_without_a_commit_leaves_nothing(tmp_path: Path) -> None:
    with WholeFile(tmp_path / "one") as file:
        file.write(b"a")
    with pytest.raises(ArgumentError, match="closed"):
        file.write(b"a")
    with pytest.raises(ArgumentError, match="closed"):
        file.commit()
    with pytest.raises(StorageError):
        write(tmp_path / "none" / "one")
    assert listing(tmp_path) == []


def test_a_temporary_cleaned_up_before_it_was_locked_is_made_again(tmp_path: Path) -> None:
    class Cleaned(System):
        locks = 0

        def lock(self, fd: int, wait: bool) -> None:
            self.locks += 1
            if self.locks == 1:
                remove_stale_temporaries(tmp_path)
            System.lock(fd, wait)

    system = Cleaned()
    write(tmp_path / "one", system=system)
    assert system.locks == 2
    assert listing(tmp_path) == ["one"]


@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOTSUP, errno.ENOSYS])
def test_without_hard_links_the_file_is_renamed(tmp_path: Path, code: int) -> None:
    system = Faulty(code, lambda name, _: name == "link")
    write(tmp_path / "one", system=system)
    assert (tmp_path / "one").read_bytes() == DATA
    assert listing(tmp_path) == ["one"]
    with (
        pytest.raises(ArgumentError, match="already exists"),
        WholeFile(tmp_path / "two", system=system) as f,
    ):
        (tmp_path / "two").write_bytes(b"came in between")
        f.commit()
    assert (tmp_path / "two").read_bytes() == b"came in between"


@pytest.mark.parametrize("sticky", [False, True])
@pytest.mark.parametrize("overwrite", [False, True])
def test_faults_at_every_operation(tmp_path: Path, sticky: bool, overwrite: bool) -> None:
    healthy = Faulty(errno.ENOSPC, lambda *_: False)
    write(tmp_path / "healthy", system=healthy, overwrite=overwrite)
    for position, _ in enumerate(healthy.log):
        directory = tmp_path / f"{position}"
        directory.mkdir()
        path = directory / "one"
        if overwrite:
            path.write_bytes(b"before")

        # A sticky fault lasts, but lets the temporary be removed: a full disk does.
        fails = failing_at(position, sticky=sticky, spared="unlink")
        system, error = Faulty(errno.ENOSPC, fails), None
        try:
            write(path, system=system, overwrite=overwrite)
        except StorageError as caught:
            error = caught
        assert not system.descriptors
        found = path.read_bytes() if path.exists() else None
        if error is None or "durability unknown" in str(error):
            assert found == DATA
        else:
            assert found == (b"before" if overwrite else None)
        left = [name for name in listing(directory) if name.startswith(TEMPORARY_PREFIX)]
        assert len(left) <= (healthy.log[position] == "unlink")


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("ignore", ["", "sync", "sync directory"])
def test_a_kill_or_a_power_loss_at_any_moment(tmp_path: Path, overwrite: bool, ignore: str) -> None:
    if overwrite:
        (tmp_path / "one").write_bytes(b"before")
    with Replay(tmp_path, ignore) as replay:
        write(tmp_path / "one", overwrite=overwrite)
    before = {b"before"} if overwrite else {None}
    seen = {found.get("one") for _, found in replay.states()}
    assert {DATA} < seen
    torn = seen - {DATA} - before
    assert bool(torn) == (ignore == "sync")  # without fsync the name may come before the bytes
    last = {replay.after(kept).get("one") for kept in power_losses(replay.log)}
    assert (last == {DATA}) == (ignore == "")


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_file_in_an_open_directory_is_made_there_whatever_becomes_of_the_path(
    tmp_path: Path, overwrite: bool
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "one").write_bytes(b"mine")
    if overwrite:
        (tmp_path / "run" / "one").write_bytes(b"before")
    with Folder(tmp_path / "run") as folder:
        file = WholeFile("one", overwrite=overwrite, folder=folder)
        assert file.path == tmp_path / "run" / "one"
        with file:
            file.write(DATA)
            (tmp_path / "run").rename(tmp_path / "moved")
            (tmp_path / "run").symlink_to(tmp_path / "outside")
            if not overwrite:  # where the path leads there is a file of this name
                (tmp_path / "outside" / "one").unlink()
            file.commit()
    assert (tmp_path / "moved" / "one").read_bytes() == DATA
    assert listing(tmp_path / "moved") == ["one"]
    assert listing(tmp_path / "outside") == (["one"] if overwrite else [])


COPIED = bytes(range(256)) * 40


def duplicate(source: Path, target: Path, system: System = SYSTEM, *, overwrite: bool = False) -> None:
    with Folder(target.parent, system) as folder:
        duplicate_into(source, folder, target.name, overwrite=overwrite)


def refusing(code: int) -> Faulty:
    return Faulty(code, lambda name, _: name == "link")


def test_a_link(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(COPIED)
    duplicate(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b").samefile(tmp_path / "a")


@pytest.mark.parametrize("code", sorted(NO_HARD_LINK))
def test_a_copy(tmp_path: Path, code: int) -> None:
    (tmp_path / "a").write_bytes(COPIED)
    duplicate(tmp_path / "a", tmp_path / "b", refusing(code))
    assert (tmp_path / "b").read_bytes() == COPIED
    assert not (tmp_path / "b").samefile(tmp_path / "a")
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("overwrite", [False, True])
def test_what_a_link_points_to_is_copied(tmp_path: Path, overwrite: bool) -> None:
    """A relative link in another directory would lead elsewhere."""
    (tmp_path / "a").write_bytes(COPIED)
    (tmp_path / "link").symlink_to("a")
    (tmp_path / "inner").mkdir()
    duplicate(tmp_path / "link", tmp_path / "inner" / "b", overwrite=overwrite)
    assert not (tmp_path / "inner" / "b").is_symlink()
    assert (tmp_path / "inner" / "b").read_bytes() == COPIED


@pytest.mark.parametrize("kind", ["nowhere", "directory", "fifo"])
def test_what_is_no_file_is_taken_as_it_is(tmp_path: Path, kind: str) -> None:
    """So a link that leads nowhere stays one; nothing waits for a FIFO."""
    (tmp_path / "directory").mkdir()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "a").symlink_to(kind)
    duplicate(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b").readlink() == Path(kind)
    with pytest.raises(LccodecError, match=r"No such file|regular file"):
        duplicate(tmp_path / "a", tmp_path / "c", refusing(errno.EPERM))
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize("code", [0, errno.EPERM])
def test_a_file_in_its_place(tmp_path: Path, code: int) -> None:
    (tmp_path / "a").write_bytes(COPIED)
    (tmp_path / "b").write_bytes(b"mine")
    with pytest.raises(StorageError, match="exists"):
        duplicate(tmp_path / "a", tmp_path / "b", refusing(code) if code else Faulty())
    assert (tmp_path / "b").read_bytes() == b"mine"
    for _ in range(2):  # the second time both are one file, where there are hard links
        duplicate(tmp_path / "a", tmp_path / "b", refusing(code) if code else SYSTEM, overwrite=True)
        assert (tmp_path / "b").read_bytes() == COPIED
        assert (tmp_path / "b").samefile(tmp_path / "a") == (code == 0)
        assert len(list(tmp_path.iterdir())) == 2


def test_faults_of_a_copy_leave_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(COPIED)
    healthy = refusing(errno.EPERM)
    duplicate(tmp_path / "a", tmp_path / "b", healthy)
    for position in range(2, len(healthy.log) - 1):  # without the opening and closing of the directory
        target = tmp_path / f"{position}"

        def fails(name: str, number: int, position: int = position) -> bool:
            return name == "link" or number == position

        failed = False
        try:
            duplicate(tmp_path / "a", target, Faulty(errno.EPERM, fails))
        except StorageError:
            failed = True
        assert failed != target.exists()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".tmp-")]
    with pytest.raises(StorageError):
        duplicate(tmp_path / "missing", tmp_path / "c")


@pytest.mark.parametrize(("ignore", "safe"), [("", True), ("sync", False)])
def test_a_copy_is_whole_under_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ignore: str, safe: bool
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "a").write_bytes(COPIED)
    (root / "b").write_bytes(b"of the user")

    def check(_: bool, place: Path) -> bool:
        return (place / "b").read_bytes() in (b"of the user", COPIED)

    def work(system: System) -> None:
        monkeypatch.setattr(system, "link", refuse)
        duplicate(root / "a", root / "b", system, overwrite=True)

    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    _, wrong = broken(root, work, check, ignore)
    assert (wrong == 0) == safe


# --- files of other formats -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["directory", "fifo", "missing"])
def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x"
    if kind == "directory":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    with pytest.raises(StorageError, match="cannot read") as caught, regular_file(path):
        pass
    assert caught.value.filename == str(path)


def test_a_file_takes_the_place_of_another_once_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")
    with replacing(path) as temporary:
        temporary.write_bytes(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.ENOSPC, "full"), ValueError("x")])
def test_what_fails_leaves_what_was_there_and_no_temporary(tmp_path: Path, error: BaseException) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")
    kind = StorageError if isinstance(error, OSError) else type(error)
    with pytest.raises(kind), replacing(path) as temporary:
        temporary.write_bytes(b"new")
        raise error
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_new_file_has_ordinary_permissions(tmp_path: Path) -> None:
    (tmp_path / "usual").touch()
    with replacing(tmp_path / "a") as temporary:
        temporary.write_bytes(b"new")
        temporary.chmod(0o600)  # as a library does that writes a file of its own
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_what_is_written_is_never_open_to_more_readers_than_the_file(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_bytes(b"")
    path.chmod(0o600)
    with replacing(path) as temporary:
        assert temporary.stat().st_mode & 0o777 == 0o600
    (tmp_path / "link").symlink_to(path)
    with replacing(tmp_path / "link") as temporary:
        assert temporary.stat().st_mode & 0o777 == 0o600
        temporary.write_bytes(b"new")
    assert not (tmp_path / "link").is_symlink()  # the link is replaced, not what it points to
    assert path.read_bytes() == b""
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    with replacing(tmp_path / "dangling") as temporary:
        temporary.write_bytes(b"new")
    assert (tmp_path / "dangling").read_bytes() == b"new"


def test_no_crash_loses_a_file_that_was_written(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    path = tmp_path / "root" / "a"
    path.write_bytes(b"old")

    def work(replay: Replay) -> None:
        with replacing(path) as temporary:
            temporary.write_bytes(b"new")
        replay.done()

    def check(reported: Any, place: Path) -> None:
        assert (place / "a").read_bytes() in ([b"new"] if reported else [b"old", b"new"])

    assert tried(tmp_path / "root", work, check) == []
    for ignore in ("sync", "sync directory"):
        path.write_bytes(b"old")
        assert len(tried(tmp_path / "root", work, check, ignore=ignore)) == 1
