"""An open directory, and files in it that are there whole or not at all.

What is made, renamed and removed in a `Folder` is found relative to it. So a link that takes the
place of the directory, or lies in it, never leads elsewhere: a directory in it is opened only if it
is one, and a file is removed by its name here. All code that makes, renames or removes files in a
chain's directory uses a `Folder`. Systems without such calls (Windows) find the same names by
paths, after a look at each directory.

The bytes of a `WholeFile` go to a temporary (LCC-CHN-05), which gets the name of the file when it
is on the disk (LCC-CHN-06). A failure leaves nothing behind. `remove_stale_temporaries` removes
what a killed process leaves.

Files of other formats lie anywhere. Only regular files are read of them (`regular_file`), and one
is written whole or not at all (`replacing`), by whatever library.

A file that never changes can have a second name: a hard link, or a copy where there are none. What
a symbolic link points to is copied as well: from another directory the link may lead elsewhere. The
names of the directory still have to be brought to stable storage.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final, Self

from ..constants import TEMPORARY_PREFIX, WRITER_NAME
from ..errors import ArgumentError, LimitError, StorageError
from .source import FileSource, Source
from .system import (
    OPEN_FLAGS,
    SYSTEM,
    WINDOWS,
    Bytes,
    Entry,
    StrPath,
    System,
    checked_path,
    flag,
    storage_errors,
)

_NO_DIRECTORY_SYNC: Final = frozenset((errno.EINVAL, errno.ENOTSUP))
_NOT_EMPTY: Final = frozenset((errno.ENOTEMPTY, errno.EEXIST))
_TEMPORARY: Final = re.compile(re.escape(TEMPORARY_PREFIX) + "[0-9a-f]{16}")
_DIRECTORY_FLAGS: Final = os.O_RDONLY | flag("O_DIRECTORY") | OPEN_FLAGS
_STALE_FLAGS: Final = os.O_RDWR | flag("O_NONBLOCK") | flag("O_NOFOLLOW") | OPEN_FLAGS
_TEMPORARY_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | OPEN_FLAGS
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


class Folder(AbstractContextManager["Folder"]):
    """An open directory; a context manager.

    Methods raise ``OSError``. Callers wrap them in `storage_errors`. The directory may be a link:
    the caller has chosen it. `path` is what errors call it.
    """

    def __init__(self, path: StrPath, system: System = SYSTEM) -> None:
        self.path = Path(path)
        self.system = system
        self._fd = -1
        if not WINDOWS:  # which does not open directories
            self._fd = system.open(path, _DIRECTORY_FLAGS)

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

        Raises ``StorageError`` if it is a link or not a directory: whoever made it, it was not
        lccodec.
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
            opened._fd = self.system.open(entry, _DIRECTORY_FLAGS | flag("O_NOFOLLOW"))
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
    killed before. A name in a directory that this user may not list is left as it is. Raises
    ``OSError`` if one of them cannot be made, or is not a directory.
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


_PIECE_BYTES: Final = 1 << 20  # that are copied at once
_FAR_PIECE_BYTES: Final = 1 << 25  # as many of a source that is far: a round of requests
_FLUSH_BYTES: Final = 1 << 25  # that are copied before the system is told to begin with them
_MAX_ATTEMPTS: Final = 100  # to make a temporary; one fails only if another process removes it at once
#: Of a system without hard links, between two file systems, or of a file with too many names.
NO_HARD_LINK: Final = frozenset(
    (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV, errno.EMLINK)
)


class WholeFile:
    """Writes one file. It is a context manager; leaving it without `commit` leaves no file.

    With `overwrite`, a file of that name is replaced, and its permissions stay. Otherwise it is an
    error, and stays as it is. A `path` in an open `folder` is a name there: the file is made in
    that very directory, whatever becomes of the path. `size` are the bytes that were appended.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> path = Path(tempfile.mkdtemp()) / "one"
    >>> with WholeFile(path) as file:
    ...     file.write(b"some bytes")
    ...     file.commit()
    >>> path.read_bytes()
    b'some bytes'
    """

    def __init__(
        self, path: StrPath, *, overwrite: bool = False, system: System = SYSTEM, folder: Folder | None = None
    ) -> None:
        self.path = checked_path(path if folder is None else folder.path / path)
        self.size = 0
        self.committed = False
        self._overwrite = overwrite
        self._system = system if folder is None else folder.system
        self._folder = folder
        self._directory = self.path.parent if folder is None else folder
        self._fd = -1
        self._temporary = ""  # its name
        self._thread = threading.get_ident()

    def __enter__(self) -> Self:
        _unfinished.add(self)
        try:
            with storage_errors("cannot create", self.path):
                if not self._overwrite and self._system.exists(self.path):
                    raise ArgumentError(f"{self.path} already exists")
                replaced = self._system.mode(self.path) if self._overwrite else None
                for _ in range(_MAX_ATTEMPTS):
                    name = temporary_name()
                    temporary = self._directory / name
                    mode = 0o666 if replaced is None else 0o600
                    self._fd = self._system.open(temporary, _TEMPORARY_FLAGS, mode)
                    self._temporary = name
                    if replaced is not None:
                        with suppress(OSError):  # where it cannot be set, the owner alone has access
                            self._system.set_mode(self._fd, replaced)
                    with suppress(OSError):  # without locks nobody removes temporaries
                        self._system.lock(self._fd, True)
                    # Another process may have removed it between the two calls.
                    if self._system.exists(temporary):
                        return self
                    self._discard()
                raise OSError(errno.EAGAIN, "a temporary cannot be seen after it was made")
        except BaseException:
            self._discard()
            raise

    def write(self, data: Bytes) -> None:
        """Append bytes."""
        with self.working():
            view = memoryview(data).cast("B")
            self.size += len(view)
            while view:
                view = view[self._system.write(self._fd, view) :]

    def write_at(self, data: Bytes, offset: int) -> None:
        """Write at a place, within `working`; several threads may do so."""
        view = memoryview(data).cast("B")
        while view:
            count = self._system.write_at(self._fd, view, offset)
            view, offset = view[count:], offset + count

    def start_flush(self, offset: int, size: int) -> None:
        """Let the system begin to bring a part to the disk; do not wait."""
        with suppress(OSError):  # the fsync of a commit shows what is wrong
            self._system.start_flush(self._fd, offset, size)

    def copy(self, source: Source) -> None:
        """Append all bytes of a source."""
        flushed, piece = self.size, _FAR_PIECE_BYTES if source.far else _PIECE_BYTES
        for offset in range(0, source.size, piece):
            self.write(source.read(offset, min(piece, source.size - offset)))
            if self.size - flushed >= _FLUSH_BYTES:
                self.start_flush(flushed, self.size - flushed)
                flushed = self.size

    def commit(self, check: Callable[[Path], object] | None = None, *, sync: bool = True) -> None:
        """Give the file its name. When its bytes are on the disk, `check` is given its temporary
        name.

        `check` may raise an error. Raises ``ArgumentError`` if there is a file of that name, which
        is not to be replaced. After a ``StorageError`` nothing is committed; or, if the message
        says so and `committed` is set, the file is in place but its directory could not be synced,
        so that it may be lost in a power failure. Without `sync` it is left to the caller to bring
        the name to stable storage.
        """
        with self.working() as path:
            self._system.fsync(self._fd)
            if check is not None:
                check(path)
            temporary, target = self._directory / self._temporary, self._directory / self.path.name
            if WINDOWS:  # which neither renames nor unlinks an open file
                fd, self._fd = self._fd, -1
                with suppress(OSError):
                    self._system.close(fd)
            if self._overwrite:
                self._system.replace(temporary, target)
            else:
                try:
                    self._system.link(temporary, target)  # unlike a rename, it does not replace
                except FileExistsError:
                    raise ArgumentError(f"{self.path} already exists") from None
                except OSError as error:
                    if error.errno not in NO_HARD_LINK:
                        raise
                    if self._system.exists(self.path):
                        raise ArgumentError(f"{self.path} already exists") from None
                    self._system.replace(temporary, target)
            self.committed = True
        self._discard()
        if not sync:
            return
        with storage_errors("committed, but durability unknown: cannot sync the directory of", self.path):
            if self._folder is not None:
                self._folder.sync()
                return
            with Folder(self.path.parent, self._system) as folder:
                folder.sync()

    def revoke(self) -> None:
        """Let a file that this thread writes not get its name: a commit before that fails."""
        if (name := self._temporary) and self._thread == threading.get_ident():
            with suppress(OSError):
                self._system.unlink(self._directory / name)

    @contextmanager
    def working(self) -> Iterator[Path]:
        """Yield the temporary name. After an error nothing is left, and the file is closed.

        Nothing is tried again, because the state of a file is unknown after a failed fsync.
        """
        if not self._temporary:
            raise ArgumentError(f"the writer of {self.path} is closed")
        try:
            with storage_errors("cannot write", self.path):
                yield self.path.parent / self._temporary
        except BaseException:
            self._discard()
            raise

    def _discard(self, *_: object) -> None:
        """Close and unlink the temporary. After a commit this only removes its second name."""
        fd, self._fd = self._fd, -1
        name, self._temporary = self._temporary, ""
        if fd >= 0:
            with suppress(OSError):
                self._system.close(fd)
        if name:
            with suppress(OSError):
                self._system.unlink(self._directory / name)

    __exit__ = _discard


_unfinished: weakref.WeakSet[WholeFile] = weakref.WeakSet()


def revoke_unfinished(directory: Path) -> None:
    """Revoke the files in a directory that this thread was writing when a signal interrupted it.

    It is for a signal handler that writes there, too: what was interrupted must not be committed
    over what the handler commits.
    """
    for file in list(_unfinished):
        if file.path.parent == directory:
            file.revoke()


def remove_stale_temporaries(directory: StrPath | Folder, system: System = SYSTEM) -> list[str]:
    """Remove the temporaries in a directory whose writers are gone, and return their names.

    A writer holds a lock on its temporary. On a file system without locks nothing is removed.
    """
    if not isinstance(directory, Folder):
        with storage_errors("cannot list", directory), Folder(directory, system) as folder:
            return remove_stale_temporaries(folder)
    removed, system = [], directory.system
    with storage_errors("cannot list", directory.path):
        names = sorted(filter(is_temporary, directory.names()))
    for name in names:
        with suppress(OSError):
            fd = system.open(directory / name, _STALE_FLAGS)
            try:
                system.lock(fd, False)
                system.unlink(directory / name)
                removed.append(name)
            finally:
                system.close(fd)
    return removed


def duplicate(source: Path, folder: Folder, name: str, *, overwrite: bool = False) -> None:
    """Give a file a second name in a directory, without a copy where that is possible.

    With `overwrite` it replaces a file of that name, which is a ``StorageError`` otherwise. Raises
    ``FormatError`` if it would have to be copied, and is not a regular file.
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
    with closing(FileSource(path)) as source:
        if not overwrite and folder.system.exists(folder / name):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        with WholeFile(name, overwrite=overwrite, folder=folder) as file:
            file.copy(source)
            file.commit(sync=False)


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
