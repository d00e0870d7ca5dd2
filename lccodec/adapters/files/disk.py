"""Files on the disk: only regular files are read, and a file is written whole or not at all."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final

from ...container.disk.folder import sync_directory, temporary_name
from ...container.disk.system import checked_path, flag, storage_errors
from ...errors import FormatError, LimitError, StorageError

#: Most decoded bytes for each byte of a file of another format. Deflate alone reaches 1,032.
MAX_FILE_EXPANSION: Final = 1 << 12


@contextmanager
def regular_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file for reading. A FIFO or device is refused: reading it may never end.

    Raises
    ------
    StorageError
        If it is not a regular file, or the operating system cannot read it.
    """
    path = checked_path(path)
    with storage_errors("cannot read", path), open(path, "rb", opener=_open_at_once) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise StorageError(errno.EINVAL, "cannot read: not a regular file", str(path))
        yield file


def _open_at_once(name: str, flags: int) -> int:
    """Open a file with O_NONBLOCK: without it, opening a FIFO waits for a writer."""
    return os.open(name, flags | flag("O_NONBLOCK"))


def read_bounded(path: str | os.PathLike[str], most: int | None, rule: str) -> bytes:
    """Return the bytes of a regular file.

    Raises
    ------
    LimitError
        If there are more than `most`, if that is a number. No more is read.
    StorageError
        As `regular_file`.
    """
    with regular_file(path) as file:
        data = file.read(-1 if most is None else most + 1)
    if most is not None and len(data) > most:
        raise LimitError(rule, str(path), f"more than {most:,} bytes")
    return data


def parsed(text: bytes, rule: str, where: str) -> Any:
    """Return the document that a text of JSON is.

    Raises
    ------
    FormatError
        If it is not JSON, or nests deeper than Python can go.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise FormatError(rule, where, "not JSON, or nested too deeply") from None


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield the path of an empty temporary file that replaces `path` after it is written.

    It gets the mode of the file that it replaces. A symbolic link is replaced by a file with the
    mode of the file that the link points to. Its bytes are on the disk before it has its name, and
    the name is on the disk at the end.

    Raises
    ------
    ArgumentError
        If no file can have this name.
    StorageError
        If the operating system refuses to write. An existing file is unchanged, and no temporary
        file is left.
    """
    target = checked_path(path)
    temporary = target.parent / temporary_name()
    with storage_errors("cannot write", target):
        try:
            kept = _mode(target)
            # Until it is complete, only its owner can read it: the replaced file may have been
            # private.
            temporary.touch(0o666 if kept is None else 0o600, exist_ok=False)
            if kept is not None:
                temporary.chmod(kept | 0o600)  # a read-only file is replaced too
            mode = temporary.stat().st_mode if kept is None else kept
            yield temporary
            with temporary.open("r+b") as file:
                temporary.chmod(mode)  # safetensors creates a new file that only its owner can read
                os.fsync(file.fileno())  # after a crash the new name must not be on an empty file
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
        sync_directory(target.parent)


def _mode(path: Path) -> int | None:
    """Return the permissions of a regular file, or None if there is no such file."""
    try:
        status = path.stat()
    except OSError:  # writing there raises the error
        return None
    return stat.S_IMODE(status.st_mode) if stat.S_ISREG(status.st_mode) else None
