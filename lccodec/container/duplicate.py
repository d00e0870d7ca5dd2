"""A second name for a file that never changes: a hard link, or a copy where there are none.

A copy is written under a temporary name (LCC-CHN-05). So a file of the new name is whole or absent,
with both ways. The names of the directory still have to be brought to stable storage.
"""

from __future__ import annotations

import errno
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final

from ..constants import TEMPORARY_PREFIX
from .system import OPEN_FLAGS, SYSTEM, System, storage_errors

#: Of a system without hard links, between two file systems, or of a file with too many names.
NO_HARD_LINK: Final = frozenset(
    (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV, errno.EMLINK)
)
_PIECE_BYTES: Final = 1 << 22


def duplicate(source: Path, target: Path, system: System = SYSTEM, *, overwrite: bool = False) -> None:
    """Give a file a second name in another directory, without a copy where that is possible.

    Raises
    ------
    StorageError
        If the operating system refuses; also if `target` is there, unless `overwrite` is set.
    """
    with storage_errors("cannot link or copy to", target):
        if not overwrite:
            try:
                system.link(source, target)
                return
            except OSError as error:
                if error.errno not in NO_HARD_LINK:
                    raise
        _copy(source, target, system, overwrite)


def _copy(source: Path, target: Path, system: System, overwrite: bool) -> None:
    """Copy a file and bring its bytes to stable storage, then give it its name."""
    temporary = target.parent / f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}"
    fd = system.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | OPEN_FLAGS, 0o666)
    try:
        try:
            with suppress(OSError):  # without locks nobody removes temporaries
                system.lock(fd, True)
            with source.open("rb") as file:
                while piece := file.read(_PIECE_BYTES):
                    view = memoryview(piece)
                    while view:
                        view = view[system.write(fd, view) :]
            system.fsync(fd)
        finally:
            system.close(fd)
        if not overwrite and system.exists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        system.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            system.unlink(temporary)
        raise
