"""A lock on a directory: one process of a host at a time works in it."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ...container.disk.folder import Folder
from ...container.disk.system import OPEN_FLAGS, SYSTEM, System, storage_errors

__all__ = ["NOTE_FOLDER", "locked"]

#: Where the lock and notes are, in a directory.
NOTE_FOLDER: Final = ".lccodec"
_LOCK_NAME: Final = "lock"


@contextmanager
def locked(directory: Path, system: System = SYSTEM) -> Iterator[None]:
    """Wait for the lock of a directory, and hold it. The kernel releases that of a killed process.

    Where the file system has no locks, nothing is held.
    """
    with storage_errors("cannot lock", directory):
        with Folder(directory, system) as folder:
            folder.make(NOTE_FOLDER)
        path, flags = directory / NOTE_FOLDER / _LOCK_NAME, os.O_RDWR | os.O_CREAT | OPEN_FLAGS
        descriptor = system.open(path, flags, 0o666)
    try:
        with storage_errors("cannot lock", directory):
            try:
                system.lock(descriptor, True)
            except OSError as error:
                if error.errno not in (errno.ENOTSUP, errno.ENOLCK, errno.ENOSYS):
                    raise
        yield
    finally:
        system.close(descriptor)
