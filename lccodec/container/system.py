"""The operating system: its calls for writing, its errors, and the places where files may be.

Another system takes the place of `SYSTEM` in tests: one that fails, or that is slow. A place is a
path of the disk, or the address of a store that is reached over a network.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeGuard

from ..errors import ArgumentError, StorageError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


StrPath: TypeAlias = str | os.PathLike[str]

Bytes: TypeAlias = bytes | bytearray | memoryview

WINDOWS: Final = os.name == "nt"


def flag(name: str) -> int:
    """Return a flag of `os.open`, or 0 on a system that does not have it."""
    return int(getattr(os, name, 0))


#: An address such as ``s3://bucket/run``, which `pathlib.Path` turns into ``s3:/bucket/run``. One
#: letter is a drive of Windows.
_ADDRESS_START: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.:-]+:/")

_HOME_STARTS: Final = tuple(f"~{separator}" for separator in (os.sep, os.altsep) if separator)

OPEN_FLAGS: Final = flag("O_CLOEXEC") | flag("O_BINARY")

_LINK_ITSELF: Final = {"follow_symlinks": False} if os.link in os.supports_follow_symlinks else {}
_SEEK_LOCK: Final = threading.Lock()


@dataclass(frozen=True)
class Entry(os.PathLike[str]):
    """A name in an open directory: the calls below find it there, whatever becomes of the path."""

    directory: Path
    name: str
    descriptor: int  # the open directory; -1 on systems that find files by their paths only

    def __str__(self) -> str:
        return str(self.directory / self.name)

    __fspath__ = __str__

    def lstat(self) -> os.stat_result:
        """Return what is known of the file; of a symbolic link, not of what it points to."""
        name, directory = _in_directory(self)
        return os.stat(name, dir_fd=directory, follow_symlinks=False)


def _in_directory(path: StrPath) -> tuple[StrPath, int | None]:
    """Return what a call to the system is given: a path; or a name, and the directory it is in."""
    if isinstance(path, Entry) and path.descriptor >= 0:
        return path.name, path.descriptor
    return path, None


def _seek_and_write(fd: int, data: memoryview, offset: int) -> int:
    """Write at a place of a file on Windows."""
    with _SEEK_LOCK:
        os.lseek(fd, offset, os.SEEK_SET)
        return os.write(fd, data)


#: Writes at a place of a file; several threads may do so.
_write_at: Final[Callable[[int, memoryview, int], int]] = getattr(os, "pwrite", _seek_and_write)

#: Returns the names in a directory, by its path or its descriptor.
_listdir: Final[Callable[[Any], list[str]]] = os.listdir

#: Sets the permissions of an open file, on systems that can.
_set_mode: Final[Callable[[int, int], object]] = getattr(os, "fchmod", lambda *_: None)


class System:
    """The calls to the operating system for writing. Tests replace them by a faulty system."""

    write = staticmethod(os.write)
    write_at = staticmethod(_write_at)
    set_mode = staticmethod(_set_mode)
    truncate = staticmethod(os.ftruncate)
    fsync = staticmethod(os.fsync)
    close = staticmethod(os.close)
    exists = staticmethod(os.path.lexists)
    listdir = staticmethod(_listdir)

    @staticmethod
    def open(path: StrPath, flags: int, mode: int = 0o777) -> int:
        """Open a file, or a directory."""
        name, directory = _in_directory(path)
        return os.open(name, flags, mode, dir_fd=directory)

    @staticmethod
    def link(source: StrPath, target: StrPath) -> None:
        """Give a file a second name. A symbolic link gets one itself, not what it points to."""
        (old, from_), (new, to) = _in_directory(source), _in_directory(target)
        os.link(old, new, src_dir_fd=from_, dst_dir_fd=to, **_LINK_ITSELF)

    @staticmethod
    def replace(source: StrPath, target: StrPath) -> None:
        """Rename a file or directory. A file of the new name is replaced."""
        (old, from_), (new, to) = _in_directory(source), _in_directory(target)
        os.replace(old, new, src_dir_fd=from_, dst_dir_fd=to)

    @staticmethod
    def unlink(path: StrPath) -> None:
        """Remove a file. A symbolic link goes itself, not what it points to."""
        name, directory = _in_directory(path)
        os.unlink(name, dir_fd=directory)

    @staticmethod
    def mkdir(path: StrPath) -> None:
        """Make a directory."""
        name, directory = _in_directory(path)
        os.mkdir(name, dir_fd=directory)

    @staticmethod
    def rmdir(path: StrPath) -> None:
        """Remove an empty directory."""
        name, directory = _in_directory(path)
        os.rmdir(name, dir_fd=directory)

    @staticmethod
    def mode(path: StrPath) -> int | None:
        """Return the permissions of the file at a path, or None if there is no file."""
        try:
            return stat.S_IMODE(Path(path).stat().st_mode)
        except FileNotFoundError:
            return None

    @staticmethod
    def start_flush(fd: int, offset: int, size: int) -> None:
        """Let the system begin to bring a part of a file to the disk, if it can; do not wait."""
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(fd, offset, size, os.POSIX_FADV_DONTNEED)

    @staticmethod
    def lock(fd: int, wait: bool) -> None:
        """Lock a file for this process alone. Raises OSError if that is not possible."""
        if fcntl is None:
            raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))
        fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))

    @staticmethod
    def unlock(fd: int) -> None:
        """Release a lock, on systems that have them."""
        if fcntl is not None:
            fcntl.flock(fd, fcntl.LOCK_UN)


SYSTEM: Final = System()


@contextmanager
def storage_errors(action: str, path: StrPath) -> Iterator[None]:
    """Raise an ``OSError`` from within as ``StorageError``."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(error.errno, f"{action}: {error.strerror or error}", str(path)) from error


def is_plain(path: StrPath) -> TypeGuard[str]:
    """Return whether a path is a string that `checked_path` returns as it is: of most files.

    Many files are opened one after the other, and a `Path` takes as long as the opening.
    """
    return (
        type(path) is str
        and os.sep == "/"
        and path.startswith("/")
        and path.isascii()
        and "\0" not in path
        and "://" not in path
    )


def checked_path(path: StrPath) -> Path:
    """Return a path that was given as absolute, so that it stays the same after `os.chdir`.

    A ``~`` in front is the user's home. Raises ``ArgumentError`` if no file can have that name. The
    address of a remote store is refused: it would become a directory of that name. Raises
    ``StorageError`` if the path is relative, and the working directory is gone.

    Examples
    --------
    >>> checked_path("~/run") == Path.home() / "run"
    True
    >>> checked_path("s3://bucket/run")
    Traceback (most recent call last):
    lccodec.errors.ArgumentError: a path must be local; got the address 's3://bucket/run'
    """
    try:
        text = os.fspath(path)
        possible = isinstance(text, str) and text != "" and b"\0" not in os.fsencode(text)
    except (TypeError, UnicodeEncodeError):
        possible = False
    if not possible:
        raise ArgumentError(f"a path must be a valid string or path object; got {path!r}")
    if _ADDRESS_START.match(text) or "://" in text:
        raise ArgumentError(f"a path must be local; got the address {text!r}")
    if text == "~" or text.startswith(_HOME_STARTS):  # `~name` may be the name of a file
        path = text = os.path.expanduser(text)  # noqa: PTH111 - Path raises where there is no home
    checked = path if isinstance(path, Path) else Path(path)
    if checked.is_absolute():
        return checked
    with storage_errors("cannot find the working directory of", text):
        return checked.absolute()


#: Of an address such as ``s3://bucket/run``: the scheme, and what it is followed by.
_ADDRESS: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://(.+)", re.DOTALL)
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


@dataclass(frozen=True, order=True)
class Address(os.PathLike[str]):
    """The address of a chain or a file in a store, such as ``s3://bucket/run``.

    It is what a `pathlib.Path` is for a directory: messages show it, and ``address / name`` is the
    address of a file in it.

    Examples
    --------
    >>> str(Address.of("s3://bucket/run/") / "000000000010.lcc.h5")
    's3://bucket/run/000000000010.lcc.h5'
    """

    scheme: str  # what is before ``://``, in lower case
    rest: str  # what is behind it, without slashes at its end

    @classmethod
    def of(cls, text: str) -> Address:
        """Return the address that a text is; raise ``ArgumentError`` if it is none."""
        match = _ADDRESS.fullmatch(text)
        rest = match[2].rstrip("/") if match else ""
        if match is None or not rest or not text.isprintable():
            raise ArgumentError(f"an address must look like s3://bucket/run; got {text!r}")
        return cls(match[1].lower(), rest)

    def __str__(self) -> str:
        return f"{self.scheme}://{self.rest}"

    __fspath__ = __str__

    def __truediv__(self, name: str) -> Address:
        return Address(self.scheme, f"{self.rest}/{name}")

    @property
    def name(self) -> str:
        """What is behind the last slash."""
        return self.rest.rpartition("/")[2]


#: Where a chain or a file may be.
Place: TypeAlias = Path | Address


def checked_place(place: StrPath) -> Place:
    """Return the address that was given, or a path as `checked_path` does.

    Raises ``ArgumentError`` or ``StorageError`` if it is neither. Errors are those of
    `checked_path`.

    Examples
    --------
    >>> checked_place("s3://bucket/run/")
    Address(scheme='s3', rest='bucket/run')
    """
    if isinstance(place, Address):
        return place
    if isinstance(place, str) and _SCHEME.match(place):
        return Address.of(place)
    return checked_path(place)
