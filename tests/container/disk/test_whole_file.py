"""A file is written whole or not at all, whatever fails."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from lccodec.constants import TEMPORARY_PREFIX
from lccodec.container.disk.folder import Folder
from lccodec.container.disk.source import BytesSource
from lccodec.container.disk.system import System
from lccodec.container.disk.whole_file import WholeFile, remove_stale_temporaries
from lccodec.errors import ArgumentError, StorageError

from ...support.checkpoints import listing
from ...support.crashes import Replay, power_losses
from ...support.systems import Faulty, failing_at
from ...support.tuning import tune

DATA = os.urandom(100) * 30


def write(path: Path, data: bytes = DATA, **options: object) -> None:
    with WholeFile(path, **options) as file:  # type: ignore[arg-type]
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
