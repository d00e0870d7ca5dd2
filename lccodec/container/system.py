"""The calls to the operating system for writing a checkpoint, paths, and their errors."""

from __future__ import annotations

import errno
import os
import re
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeAlias

from ..errors import ArgumentError, StorageError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


StrPath: TypeAlias = str | os.PathLike[str]

WINDOWS: Final = os.name == "nt"


def flag(name: str) -> int:
    """Return a flag of `os.open`, or 0 on a system that does not have it."""
    return int(getattr(os, name, 0))


#: An address such as ``s3://bucket/run``, which `pathlib.Path` turns into ``s3:/bucket/run``. One
#: letter is a drive of Windows.
_ADDRESS_START: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.:-]+:/")

_HOME_STARTS: Final = tuple(f"~{separator}" for separator in (os.sep, os.altsep) if separator)

OPEN_FLAGS: Final = flag("O_CLOEXEC") | flag("O_BINARY")

_NO_DIRECTORY_SYNC: Final = frozenset((errno.EINVAL, errno.ENOTSUP))
_SEEK_LOCK: Final = threading.Lock()


class System:
    """The calls to the operating system for writing. Tests replace them by a faulty system."""

    open = staticmethod(os.open)
    seek = staticmethod(os.lseek)
    write = staticmethod(os.write)
    fsync = staticmethod(os.fsync)
    close = staticmethod(os.close)
    link = staticmethod(os.link)
    replace = staticmethod(os.replace)
    unlink = staticmethod(os.unlink)
    exists = staticmethod(os.path.lexists)
    listdir = staticmethod(os.listdir)
    mkdir = staticmethod(os.mkdir)
    rmdir = staticmethod(os.rmdir)

    @staticmethod
    def mode(path: StrPath) -> int | None:
        """Return the permissions of the file at a path, or None if there is no file."""
        try:
            return stat.S_IMODE(Path(path).stat().st_mode)
        except FileNotFoundError:
            return None

    @staticmethod
    def set_mode(fd: int, mode: int) -> None:
        """Set the permissions of an open file, on systems that can."""
        if hasattr(os, "fchmod"):
            os.fchmod(fd, mode)

    @staticmethod
    def write_at(fd: int, data: memoryview, offset: int) -> int:
        """Write at a place of a file; several threads may do so."""
        if hasattr(os, "pwrite"):
            return os.pwrite(fd, data, offset)
        with _SEEK_LOCK:  # Windows
            os.lseek(fd, offset, os.SEEK_SET)
            return os.write(fd, data)

    @staticmethod
    def start_flush(fd: int, offset: int, size: int) -> None:
        """Let the system begin to bring a part of a file to the disk, if it can; do not wait."""
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(fd, offset, size, os.POSIX_FADV_DONTNEED)

    @staticmethod
    def lock(fd: int, wait: bool) -> None:
        """Take the lock of an active writer. Raises OSError if that is not possible."""
        if fcntl is None:
            raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))
        fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))


SYSTEM: Final = System()


def sync_directory(directory: StrPath, system: System = SYSTEM) -> None:
    """Bring the names in a directory to stable storage, on systems that can."""
    if WINDOWS:  # which has no such call
        return
    fd = system.open(directory, os.O_RDONLY | OPEN_FLAGS)
    try:
        system.fsync(fd)
    except OSError as error:
        if error.errno not in _NO_DIRECTORY_SYNC:
            raise
    finally:
        system.close(fd)


@contextmanager
def directory_lock(directory: StrPath, system: System = SYSTEM, *, wait: bool = True) -> Iterator[bool]:
    """Hold the lock of a directory: of those who pin and remove files there, one works at a time.

    Yields whether to go on: with `wait` always. Where there are no such locks, nothing is held.
    """
    if WINDOWS:  # which does not open directories
        yield True
        return
    fd = system.open(directory, os.O_RDONLY | OPEN_FLAGS)
    try:
        free = True
        try:
            system.lock(fd, wait)
        except BlockingIOError:
            free = False
        except OSError:
            pass
        yield free
    finally:
        system.close(fd)


@contextmanager
def storage_errors(action: str, path: StrPath) -> Iterator[None]:
    """Raise an ``OSError`` from within as ``StorageError``."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(error.errno, f"{action}: {error.strerror or error}", str(path)) from error


def checked_path(path: StrPath) -> Path:
    """Return a path that was given as absolute, so that it stays the same after `os.chdir`.

    A ``~`` in front is the user's home.

    Raises
    ------
    ArgumentError
        If no file can have that name. The address of a remote store is refused: it would become a
        directory of that name.
    StorageError
        If the path is relative, and the working directory is gone.

    Examples
    --------
    >>> checked_path("~/run") == Path.home() / "run"
    True
    >>> checked_path("s3://bucket/run")
    Traceback (most recent call last):
    lccodec.errors.ArgumentError: 's3://bucket/run' is an address: remote stores are not there yet
    """
    try:
        text = os.fspath(path)
        possible = isinstance(text, str) and text != "" and b"\0" not in os.fsencode(text)
    except (TypeError, UnicodeEncodeError):
        possible = False
    if not possible:
        raise ArgumentError(f"not a path: {path!r}")
    if _ADDRESS_START.match(text) or "://" in text:
        raise ArgumentError(f"{text!r} is an address: remote stores are not there yet")
    if text == "~" or text.startswith(_HOME_STARTS):  # `~name` may be the name of a file
        path = text = os.path.expanduser(text)  # noqa: PTH111 - Path raises where there is no home
    found = path if isinstance(path, Path) else Path(path)
    if found.is_absolute():
        return found
    with storage_errors("cannot find the working directory of", text):
        return found.absolute()
