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

from ...container.folder import sync_directory, temporary_name
from ...container.system import SYSTEM, checked_path, flag, storage_errors
from ...errors import FormatError, LimitError, StorageError

#: Most decoded bytes for each byte of a file of another format. Deflate alone reaches 1,032.
MAX_FILE_EXPANSION: Final = 1 << 12


@contextmanager
def regular_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file for reading; raise ``StorageError`` for a FIFO or device, which may never end."""
    path = checked_path(path)

    def at_once(name: str, flags: int) -> int:  # opening a FIFO waits for a writer otherwise
        return os.open(name, flags | flag("O_NONBLOCK"))

    with storage_errors("cannot read", path), open(path, "rb", opener=at_once) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise StorageError(errno.EINVAL, "cannot read: not a regular file", str(path))
        yield file


def read_bounded(path: str | os.PathLike[str], most: int | None, rule: str) -> bytes:
    """Return the bytes of a regular file; raise ``LimitError`` if there are more than `most`."""
    with regular_file(path) as file:
        data = file.read(-1 if most is None else most + 1)
    if most is not None and len(data) > most:
        raise LimitError(rule, str(path), f"more than {most:,} bytes")
    return data


def parsed(text: bytes, rule: str, where: str) -> Any:
    """Return the document that a text of JSON is; raise ``FormatError`` if it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise FormatError(rule, where, "not JSON, or nested too deeply") from None


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield the path of an empty temporary file that replaces `path` after it is written.

    It gets the mode of what it replaces. Bytes and name are on the disk at the end. After a
    ``StorageError`` an existing file is unchanged, and no temporary file is left.
    """
    target = checked_path(path)
    temporary = target.parent / temporary_name()
    with storage_errors("cannot write", target):
        try:
            kept = SYSTEM.mode(target)
            # Until it is complete, only its owner can read it: the replaced file may have been
            # private.
            temporary.touch(0o666 if kept is None else 0o600, exist_ok=False)
            mode = temporary.stat().st_mode if kept is None else kept
            temporary.chmod(mode | 0o600)  # a read-only file is replaced too
            yield temporary
            with temporary.open("r+b") as file:
                temporary.chmod(mode)  # safetensors creates a new file that only its owner can read
                os.fsync(file.fileno())  # after a crash the new name must not be on an empty file
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
        sync_directory(target.parent)
