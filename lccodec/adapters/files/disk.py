"""Files on the disk: only regular ones are read, and each is written whole or not at all."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from ...container.system import checked_path, flag, storage_errors
from ...errors import StorageError

__all__ = ["regular_file", "replacing"]


@contextmanager
def regular_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file for reading; a FIFO or device is refused, as reading it may never end.

    Raises
    ------
    StorageError
        For what is no regular file, and if the operating system cannot read it.
    """
    path = checked_path(path)
    with storage_errors("cannot read", path), open(path, "rb", opener=_open_at_once) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise StorageError(errno.EINVAL, "cannot read: not a regular file", str(path))
        yield file


def _open_at_once(name: str, flags: int) -> int:
    """Open a file; without O_NONBLOCK, to open a FIFO waits for a writer."""
    return os.open(name, flags | flag("O_NONBLOCK"))


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield the path of an empty temporary file that takes the place of `path` once it is written.

    It takes the mode of the file it replaces. A symbolic link is replaced by a file, with the mode of what it
    points to.

    Raises
    ------
    ArgumentError
        If there can be no file of that name.
    StorageError
        If the operating system refuses to write; what was there stays, and no temporary is left.
    """
    target = checked_path(path)
    temporary = target.parent / f".tmp-{secrets.token_hex(8)}"
    with storage_errors("cannot write", target):
        try:
            kept = _mode(target)
            # While it is written, nobody may read it who could not read what it replaces.
            temporary.touch(0o666 if kept is None else 0o600, exist_ok=False)
            if kept is not None:
                temporary.chmod(kept | 0o600)  # a file that is read-only is written all the same
            mode = temporary.stat().st_mode if kept is None else kept
            yield temporary
            with temporary.open("r+b") as file:
                temporary.chmod(mode)  # safetensors writes a file of its own, that only its owner can read
                os.fsync(file.fileno())  # a crash must not leave the new name on an empty file
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)


def _mode(path: Path) -> int | None:
    """Return the permissions of a regular file, None where there is none."""
    try:
        status = path.stat()
    except OSError:  # whoever writes there is told what is wrong
        return None
    return stat.S_IMODE(status.st_mode) if stat.S_ISREG(status.st_mode) else None
