"""Second names of files: links, and copies where there are none; whole or absent."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from lccodec import LccodecError, StorageError
from lccodec.container.disk.folder import Folder
from lccodec.container.disk.system import SYSTEM, System
from lccodec.container.disk.whole_file import NO_HARD_LINK
from lccodec.container.disk.whole_file import duplicate as duplicate_into

from ...support.crashes import broken
from ...support.systems import Faulty

DATA = bytes(range(256)) * 40


def duplicate(source: Path, target: Path, system: System = SYSTEM, *, overwrite: bool = False) -> None:
    with Folder(target.parent, system) as folder:
        duplicate_into(source, folder, target.name, overwrite=overwrite)


def refusing(code: int) -> Faulty:
    return Faulty(code, lambda name, _: name == "link")


def test_a_link(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(DATA)
    duplicate(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b").samefile(tmp_path / "a")


@pytest.mark.parametrize("code", sorted(NO_HARD_LINK))
def test_a_copy(tmp_path: Path, code: int) -> None:
    (tmp_path / "a").write_bytes(DATA)
    duplicate(tmp_path / "a", tmp_path / "b", refusing(code))
    assert (tmp_path / "b").read_bytes() == DATA
    assert not (tmp_path / "b").samefile(tmp_path / "a")
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("overwrite", [False, True])
def test_what_a_link_points_to_is_copied(tmp_path: Path, overwrite: bool) -> None:
    """A relative link in another directory would lead elsewhere."""
    (tmp_path / "a").write_bytes(DATA)
    (tmp_path / "link").symlink_to("a")
    (tmp_path / "inner").mkdir()
    duplicate(tmp_path / "link", tmp_path / "inner" / "b", overwrite=overwrite)
    assert not (tmp_path / "inner" / "b").is_symlink()
    assert (tmp_path / "inner" / "b").read_bytes() == DATA


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
    (tmp_path / "a").write_bytes(DATA)
    (tmp_path / "b").write_bytes(b"mine")
    with pytest.raises(StorageError, match="exists"):
        duplicate(tmp_path / "a", tmp_path / "b", refusing(code) if code else Faulty())
    assert (tmp_path / "b").read_bytes() == b"mine"
    for _ in range(2):  # the second time both are one file, where there are hard links
        duplicate(tmp_path / "a", tmp_path / "b", refusing(code) if code else SYSTEM, overwrite=True)
        assert (tmp_path / "b").read_bytes() == DATA
        assert (tmp_path / "b").samefile(tmp_path / "a") == (code == 0)
        assert len(list(tmp_path.iterdir())) == 2


def test_faults_of_a_copy_leave_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(DATA)
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
    (root / "a").write_bytes(DATA)
    (root / "b").write_bytes(b"of the user")

    def check(_: bool, place: Path) -> bool:
        return (place / "b").read_bytes() in (b"of the user", DATA)

    def work(system: System) -> None:
        monkeypatch.setattr(system, "link", refuse)
        duplicate(root / "a", root / "b", system, overwrite=True)

    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    _, wrong = broken(root, work, check, ignore)
    assert (wrong == 0) == safe
