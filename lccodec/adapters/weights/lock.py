"""A lock on a directory: one process of a host at a time works in it.

The directory may be that of a stranger, with anything in it: links and other files in the places of
the lock and of its folder are refused.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ...container.folder import Folder
from ...container.system import OPEN_FLAGS, SYSTEM, System, flag, storage_errors
from ...errors import StorageError

#: Where the lock and notes are, in a directory.
NOTE_FOLDER: Final = ".lccodec"
_LOCK_NAME: Final = "lock"
_FLAGS: Final = os.O_RDWR | os.O_CREAT | flag("O_NOFOLLOW") | flag("O_NONBLOCK") | OPEN_FLAGS


@contextmanager
def locked(directory: Path, system: System = SYSTEM) -> Iterator[Folder]:
    """Wait for the lock of a directory, and hold it. The kernel releases that of a killed process.

    Yield the folder of the lock and the notes. Where the file system has no locks, nothing is held.

    Raises
    ------
    StorageError
        If the lock or its folder is a link or another file than a lock, or the operating system
        refuses.
    """
    with storage_errors("cannot lock", directory), Folder(directory, system) as folder:
        folder.make(NOTE_FOLDER)
        inner = folder.inner(NOTE_FOLDER)
    with inner:
        with storage_errors("cannot lock", directory):
            descriptor = _opened(inner)
        try:
            with storage_errors("cannot lock", directory):
                try:
                    system.lock(descriptor, True)
                except OSError as error:
                    if error.errno not in (errno.ENOTSUP, errno.ENOLCK, errno.ENOSYS):
                        raise
            yield inner
        finally:
            system.close(descriptor)


def _opened(folder: Folder) -> int:
    """Open the file to lock, and make it if it is not there."""
    entry = folder / _LOCK_NAME
    try:
        descriptor = folder.system.open(entry, _FLAGS, 0o666)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            raise
    else:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return descriptor
        folder.system.close(descriptor)
    message = "it is a link, or another file that lccodec did not make: remove or rename it"
    raise StorageError(errno.EEXIST, message, str(entry))
