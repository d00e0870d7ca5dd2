"""What links in a directory may lead to, and whether it was touched."""

import os
import shutil
import signal
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lccodec.constants import EXACT_NAME

TEMPORARY = ".tmp-0123456789abcdef"

#: Names that lccodec gives to files that are not of a chain, in directories of their own.
NAMES = ("state.json", "lock", "hashes", "values", "model.safetensors", "config.json", "lccodec.sha256")

#: What takes such a place: made from the path of it, and the directory of what must stay.
KINDS: dict[str, Callable[[Path, Path], object]] = {
    "link to a file": lambda path, outside: path.symlink_to(outside / "file"),
    "link to a checkpoint": lambda path, outside: path.symlink_to(outside / "000000000004.lcc.h5"),
    "link to a chain": lambda path, outside: path.symlink_to(outside),
    "link to archives": lambda path, outside: path.symlink_to(outside / "archives"),
    "link to nothing": lambda path, outside: path.symlink_to(outside / "nothing"),
    "link to itself": lambda path, _: path.symlink_to(path.name),
    "link to a FIFO": lambda path, outside: path.symlink_to(outside / "fifo"),
    "second name of a file": lambda path, outside: path.hardlink_to(outside / "file"),
    "second name of a checkpoint": lambda path, outside: path.hardlink_to(outside / "000000000004.lcc.h5"),
    "FIFO": lambda path, _: os.mkfifo(path),
}


@contextmanager
def not_hanging(seconds: int = 120) -> Iterator[None]:
    """Raise where a verb waits for a FIFO."""

    def late(*_: object) -> None:
        raise AssertionError("it hangs")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def make_outside(sound: Path, outside: Path) -> Path:
    """A directory with files of the names that lccodec gives, and others; `sound` is a chain."""
    shutil.copytree(sound, outside)
    (outside / "file").write_bytes(b"mine")
    (outside / "file").chmod(0o640)
    (outside / "000000000001.pin").touch()
    (outside / TEMPORARY).write_bytes(b"a temporary of somebody")
    (outside / EXACT_NAME).write_bytes(b"mine")
    for name in NAMES:
        (outside / name).write_bytes(b"mine")
    (outside / "directory").mkdir()
    os.mkfifo(outside / "fifo")
    for name in (TEMPORARY, "0001-to-6"):
        shutil.copytree(sound, outside / "archives" / name)
    return outside


def picture(outside: Path) -> dict[str, Any]:
    """All that a verb may not change: what is there, its kind, mode, time, and content."""
    found = {}
    for path in [outside, *sorted(outside.rglob("*"))]:
        status = path.lstat()
        content = path.read_bytes() if stat.S_ISREG(status.st_mode) else None
        found[str(path)] = (status.st_mode, status.st_mtime_ns, status.st_ino, content)
    return found


def put(path: Path, kind: str, outside: Path) -> None:
    """Put something in the place of what may be there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    KINDS[kind](path, outside)
