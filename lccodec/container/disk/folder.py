"""An open directory: what is made, renamed and removed in it is found relative to it.

So a link that takes the place of the directory, or lies in it, never leads elsewhere: a directory
in it is opened only if it is one, and a file is removed by its name here. All code that makes,
renames or removes files in a chain's directory uses a `Folder`.

Systems without such calls (Windows) find the same names by paths, after a look at each directory.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from ...constants import TEMPORARY_PREFIX, WRITER_NAME
from ...errors import StorageError
from .system import OPEN_FLAGS, SYSTEM, WINDOWS, Entry, StrPath, System, flag

_NO_DIRECTORY_SYNC: Final = frozenset((errno.EINVAL, errno.ENOTSUP))
_NOT_EMPTY: Final = frozenset((errno.ENOTEMPTY, errno.EEXIST))
_TEMPORARY: Final = re.compile(re.escape(TEMPORARY_PREFIX) + "[0-9a-f]{16}")
_CALLS_IN_DIRECTORIES: Final = {
    os.open,
    os.link,
    os.rename,
    os.unlink,
    os.mkdir,
    os.rmdir,
} <= os.supports_dir_fd and os.listdir in os.supports_fd


def temporary_name() -> str:
    """Return a name that no file has (LCC-CHN-05)."""
    return f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}"


def is_temporary(name: str) -> bool:
    """Return whether a file has the name of a temporary (LCC-CHN-05), or of a lock (LCC-CHN-11)."""
    return name == WRITER_NAME or _TEMPORARY.fullmatch(name) is not None


class Folder:
    """An open directory; a context manager.

    Methods raise ``OSError``. Callers wrap them in `storage_errors`.

    Parameters
    ----------
    path
        The directory. It may be a link: the caller has chosen it.

    Attributes
    ----------
    path
        What errors call it.
    """

    def __init__(self, path: StrPath, system: System = SYSTEM) -> None:
        self.path = Path(path)
        self.system = system
        self._fd = -1
        if not WINDOWS:  # which does not open directories
            self._fd = system.open(path, os.O_RDONLY | flag("O_DIRECTORY") | OPEN_FLAGS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._fd >= 0:
            with suppress(OSError):  # nothing depends on it
                self.system.unlock(self._fd)  # whatever becomes of the next call
            fd, self._fd = self._fd, -1
            with suppress(OSError):
                self.system.close(fd)

    def __del__(self) -> None:
        # An interrupt came before it could be closed. Names are gone at the end of a program.
        if getattr(self, "_fd", -1) >= 0 and suppress is not None:
            with suppress(OSError):
                os.close(self._fd)

    def __truediv__(self, name: str) -> Entry:
        """Return a name in the directory, for a call to the system."""
        return Entry(self.path, name, self._fd if _CALLS_IN_DIRECTORIES else -1)

    def names(self) -> list[str]:
        """Return the names in the directory."""
        by_descriptor = _CALLS_IN_DIRECTORIES and self._fd >= 0
        return self.system.listdir(self._fd if by_descriptor else self.path)

    def inner(self, name: str) -> Folder:
        """Open a directory in this one.

        Raises
        ------
        StorageError
            If it is a link or not a directory: whoever made it, it was not lccodec.
        """
        entry = self / name
        status = entry.lstat()
        if not stat.S_ISDIR(status.st_mode) or _is_junction(status):
            kind = "a link" if stat.S_ISLNK(status.st_mode) or _is_junction(status) else "not a directory"
            message = f"it is {kind}, and lccodec goes only into directories here: remove or rename it"
            raise StorageError(errno.ENOTDIR, message, str(entry))
        opened = object.__new__(Folder)
        opened.path, opened.system, opened._fd = Path(entry), self.system, -1
        if not WINDOWS:
            flags = os.O_RDONLY | flag("O_DIRECTORY") | flag("O_NOFOLLOW") | OPEN_FLAGS
            opened._fd = self.system.open(entry, flags)
        return opened

    def make(self, name: str) -> None:
        """Make a directory in this one, if there is no file of that name."""
        with suppress(FileExistsError):
            self.system.mkdir(self / name)

    def rename(self, name: str, new: str) -> None:
        """Rename a file or directory. A file of the new name is replaced."""
        self.system.replace(self / name, self / new)

    def add(self, name: str) -> None:
        """Make an empty file, if there is no file of that name."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | OPEN_FLAGS
        with suppress(FileExistsError):
            self.system.close(self.system.open(self / name, flags, 0o666))

    def remove(self, names: Iterable[str]) -> None:
        """Remove files, and bring that to stable storage. One may be gone already."""
        for name in names:
            with suppress(FileNotFoundError):
                self.system.unlink(self / name)
        self.sync()

    def remove_empty(self, name: str) -> bool:
        """Remove a directory in this one; return whether it was empty."""
        try:
            self.system.rmdir(self / name)
        except OSError as error:
            if error.errno not in _NOT_EMPTY:
                raise
            return False
        return True

    def sync(self) -> None:
        """Bring the names in the directory to stable storage, on systems that can."""
        if self._fd >= 0:
            try:
                self.system.fsync(self._fd)
            except OSError as error:
                if error.errno not in _NO_DIRECTORY_SYNC:
                    raise

    def lock(self, *, wait: bool = True) -> bool:
        """Take the directory's lock, and keep it until the folder is closed.

        Returns False if another process has it and `wait` is not set. Only one process at a time
        pins or removes files. On systems without such locks, it returns True and nothing is held.
        """
        try:
            if self._fd >= 0:
                self.system.lock(self._fd, wait)
        except BlockingIOError:
            return False
        except OSError:
            pass
        return True


def _is_junction(status: os.stat_result) -> bool:
    """Return whether a directory of Windows is another one in truth."""
    attributes = getattr(status, "st_file_attributes", 0)
    return bool(attributes & getattr(stat, "FILE_ATTRIBUTE_REPARSE_POINT", 0))


def make_directory(directory: StrPath, system: System = SYSTEM) -> None:
    """Make a directory, and those above it that are missing; bring their names to stable storage.

    Otherwise a crash may lose the directory, with files in it that were flushed. The name of a
    directory that was there already is brought to stable storage too: who made it may have been
    killed before. A name in a directory that this user may not list is left as it is.

    Raises
    ------
    OSError
        If one of them cannot be made, or is not a directory.
    """
    path = Path(directory)
    missing = []
    while not path.is_dir():
        missing.append(path)
        if path == path.parent:
            break
        path = path.parent
    for made in reversed(missing):
        try:
            system.mkdir(made)
        except FileExistsError:  # another process was first
            if not made.is_dir():
                raise
    for made in reversed(missing or [path]):
        with suppress(PermissionError):
            sync_directory(made.parent, system)


def sync_directory(directory: StrPath, system: System = SYSTEM) -> None:
    """Bring the names in a directory to stable storage, on systems that can."""
    with Folder(directory, system) as folder:
        folder.sync()
