"""A second name for a file that never changes: a hard link, or a copy where there are none.

What a symbolic link points to is copied as well: from another directory the link may lead
elsewhere. A copy is written under a temporary name (LCC-CHN-05). So a file of the new name is whole
or absent, with both ways. The names of the directory still have to be brought to stable storage.
"""

from __future__ import annotations

import errno
import os
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from .folder import Folder, temporary_name
from .source import FileSource
from .system import OPEN_FLAGS, Entry, storage_errors

#: Of a system without hard links, between two file systems, or of a file with too many names.
NO_HARD_LINK: Final = frozenset(
    (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV, errno.EMLINK)
)
_PIECE_BYTES: Final = 1 << 22


def duplicate(source: Path, folder: Folder, name: str, *, overwrite: bool = False) -> None:
    """Give a file a second name in a directory, without a copy where that is possible.

    With `overwrite` it replaces a file of that name.

    Raises
    ------
    StorageError
        If the operating system refuses; also if there is a file of that name, unless `overwrite` is
        set.
    FormatError
        If it would have to be copied, and is not a regular file.
    """
    made = folder / (temporary_name() if overwrite else name)
    with storage_errors("cannot link or copy to", folder / name):
        if not (source.is_symlink() and source.is_file()):
            try:
                folder.system.link(source, made)
            except OSError as error:
                if error.errno not in NO_HARD_LINK:
                    raise
            else:
                if overwrite:
                    _replace(folder, made, name)
                return
        _copy(source, folder, name, overwrite)


def _replace(folder: Folder, temporary: Entry, name: str) -> None:
    """Give the name of a file to another, which loses its temporary name in any case."""
    try:
        folder.system.replace(temporary, folder / name)
    finally:
        with suppress(OSError):  # it is left where both were one file already
            folder.system.unlink(temporary)


def _copy(path: Path, folder: Folder, name: str, overwrite: bool) -> None:
    """Copy a file and bring its bytes to stable storage, then give it its name."""
    system, temporary, target = folder.system, folder / temporary_name(), folder / name
    with closing(FileSource(path)) as source:
        fd = system.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | OPEN_FLAGS, 0o666)
        try:
            try:
                with suppress(OSError):  # without locks nobody removes temporaries
                    system.lock(fd, True)
                for offset in range(0, source.size, _PIECE_BYTES):
                    view = memoryview(source.read(offset, min(_PIECE_BYTES, source.size - offset)))
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
