"""Files of which nothing is promised: one written in place, and folders for temporary files.

A `Scratch` may be lost, torn or full of other bytes at any time. Whoever reads it knows by hashes
what it should hold, and has another source for it.

A `TemporaryFolder` lies outside of any chain; the next process removes what a kill leaves. It is
``lccodec-`` and a random number in the folder of the system for temporaries. Its maker holds the
lock of a file in it. So whoever gets that lock knows that the maker is gone, in whatever namespace
of processes it was. Another host that shares the folder may have locks of its own. Its folders,
told by what the file says, are left alone for a day. Only folders of the same user are looked at,
and only files with names that lccodec gives them are removed. A folder with other files stays.
Links are never followed.
"""

from __future__ import annotations

import errno
import os
import platform
import re
import secrets
import shutil
import stat
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from ..constants import CHECKPOINT_SUFFIX
from ..errors import StorageError
from .folder import Folder, is_temporary
from .source import read_at
from .system import OPEN_FLAGS, SYSTEM, System, flag, storage_errors

#: What the system says when there is no room.
NO_ROOM: Final = frozenset((errno.ENOSPC, errno.EDQUOT))

_FLAGS: Final = os.O_RDWR | flag("O_NOFOLLOW") | flag("O_NONBLOCK") | OPEN_FLAGS


class Scratch:
    """Bytes at places of a file in a directory; it is made when it is first written.

    It lies in a `folder` of an existing directory, which is made. It has one name only: of a second
    name of a file elsewhere, the name is given to a new file. An error of the system ends that it
    `works`.
    """

    def __init__(self, directory: Path, folder: str, name: str, system: System = SYSTEM) -> None:
        self._directory, self._folder, self._name, self._system = directory, folder, name, system
        self._fd = -1
        self.works = True

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes at a place; fewer if there are no more, or if they cannot be read."""
        parts = []
        with suppress(OSError):
            self._open(make=False)
            while size and (part := read_at(self._fd, size, offset)):
                parts.append(part)
                offset, size = offset + len(part), size - len(part)
        return b"".join(parts)

    def write(self, offset: int, data: memoryview) -> None:
        """Write bytes at a place, unless an earlier call failed. A full disk gets its room back."""
        if not self.works:
            return
        try:
            self._open(make=True)
            while data:
                count = self._system.write_at(self._fd, data, offset)
                data, offset = data[count:], offset + count
        except OSError as error:
            self.works = False
            if error.errno in NO_ROOM:
                self.give_up()

    def cut(self, size: int) -> None:
        """Give back what lies behind so many bytes."""
        with suppress(OSError):
            self._open(make=False)
            if os.fstat(self._fd).st_size > size:
                self._system.truncate(self._fd, size)

    def give_up(self) -> bool:
        """Remove the file, and make no other; return whether there was one."""
        self.works = False
        try:
            self._open(make=False)
            self.close()
            with Folder(self._directory, self._system) as above, above.inner(self._folder) as folder:
                self._system.unlink(folder / self._name)
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with suppress(OSError):
                self._system.close(fd)

    def __del__(self) -> None:
        # A chain was dropped without `close`. Names are gone at the end of a program.
        if self._fd >= 0 and suppress is not None:
            with suppress(OSError):
                os.close(self._fd)

    def _open(self, *, make: bool) -> None:
        """Open the file, or make it; a link or a pipe is an error."""
        if self._fd >= 0:
            return
        with Folder(self._directory, self._system) as above:
            if make:
                above.make(self._folder)
            with above.inner(self._folder) as folder:
                flags = _FLAGS | (os.O_CREAT if make else 0)
                fd = self._system.open(folder / self._name, flags, 0o600)
                status = os.fstat(fd)
                if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:  # as after `cp -al`
                    self._system.close(fd)
                    if not make:
                        raise OSError(f"{self._name} is a second name of another file")
                    self._system.unlink(folder / self._name)
                    fd = self._system.open(folder / self._name, flags | os.O_EXCL, 0o600)
                    status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            self._system.close(fd)
            raise OSError(f"{self._name} is not a regular file")
        self._fd = fd


_PREFIX: Final = "lccodec-"
_NAME: Final = re.compile(re.escape(_PREFIX) + "[0-9a-f]{16}")
_HELD: Final = ".held"  # the file whose lock the maker holds
_MAGIC: Final = b"lccodec temporary folder of "
_MAX_HELD_BYTES: Final = 1 << 10
_MAX_ATTEMPTS: Final = 100  # to make a folder; one fails only if another process removes it at once
#: A folder of another host is that of a process which is gone: no file takes so long to upload.
_SECONDS_OF_OTHERS: Final = 24 * 3600.0


_cleared: set[tuple[int, Path]] = set()  # by this process


class TemporaryFolder:
    """A new folder of this process; a context manager, which removes it with all that is in it.

    Raises ``StorageError`` if it cannot be made.

    Examples
    --------
    >>> with TemporaryFolder() as path:
    ...     size = (path / "file").write_bytes(b"some bytes")
    >>> path.exists()
    False
    """

    def __init__(self) -> None:
        self._process, self._fd = os.getpid(), -1
        clear_abandoned()
        with storage_errors("cannot make a folder for temporaries", _PREFIX):
            base = Path(tempfile.gettempdir())
            for _ in range(_MAX_ATTEMPTS):
                self.path = base / f"{_PREFIX}{secrets.token_hex(8)}"
                self.path.mkdir(mode=0o700)
                if self._hold():
                    return
                self.close()
        raise StorageError(None, "a folder cannot be seen after it was made", str(base))

    def _hold(self) -> bool:
        """Take the lock; return whether the folder is there then."""
        try:
            self._fd = SYSTEM.open(self.path / _HELD, _FLAGS | os.O_CREAT | os.O_EXCL, 0o600)
            SYSTEM.lock(self._fd, False)
        except (FileNotFoundError, BlockingIOError):  # another process took it for abandoned
            return False
        except OSError:
            if self._fd < 0:
                raise
            # Without locks nobody removes what a kill leaves.
        SYSTEM.write(self._fd, _mark())
        return os.fstat(self._fd).st_nlink > 0

    def close(self) -> None:
        """Remove the folder. Closing again does nothing; nor does it in a fork."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with suppress(OSError):
                SYSTEM.close(fd)
        if self._process == os.getpid():
            shutil.rmtree(self.path, ignore_errors=True)

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        # Names are gone at the end of a program.
        if getattr(self, "_fd", -1) >= 0 and shutil is not None:
            self.close()


def clear_abandoned() -> None:
    """Remove the folders whose makers are gone. A process does this once."""
    with suppress(OSError):  # there may be no folder for temporaries, and no need of one
        base = Path(tempfile.gettempdir())
        if (os.getpid(), base) in _cleared:
            return
        _cleared.add((os.getpid(), base))
        with Folder(base) as above:
            for name in filter(_NAME.fullmatch, above.names()):
                with suppress(OSError):  # it is held, or is not a folder, or is another user's
                    _clear(above, name)


def _clear(above: Folder, name: str) -> None:
    """Remove a folder if its maker is gone; raise ``OSError`` if that is not possible."""
    with above.inner(name) as folder:
        if not _is_of_user((folder / os.curdir).lstat()):
            return
        with suppress(FileNotFoundError):  # a kill came before it; then there is no other file
            fd = SYSTEM.open(folder / _HELD, _FLAGS)
            try:
                SYSTEM.lock(fd, False)
                if not _is_over(fd):
                    return
                for each in filter(_is_ours, folder.names()):
                    if stat.S_ISREG((folder / each).lstat().st_mode):
                        SYSTEM.unlink(folder / each)
                if folder.names() == [_HELD]:
                    SYSTEM.unlink(folder / _HELD)
            finally:
                SYSTEM.close(fd)
    above.remove_empty(name)


def _is_over(fd: int) -> bool:
    """Return whether the maker of a folder is gone, whose lock is free."""
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode) or not _is_of_user(status):
        return False
    held = os.read(fd, _MAX_HELD_BYTES)
    if held == _mark():
        return True
    # The maker is of another host, or of an earlier start of this one, or has not come to write.
    return (not held or held.startswith(_MAGIC)) and time.time() - status.st_mtime > _SECONDS_OF_OTHERS


def _is_of_user(status: os.stat_result) -> bool:
    return not hasattr(os, "geteuid") or status.st_uid == os.geteuid()


def _is_ours(name: str) -> bool:
    return name.endswith(CHECKPOINT_SUFFIX) or is_temporary(name)


def _mark() -> bytes:
    """Return what the makers have in common whose locks can be seen: the start of this system."""
    try:
        start = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        start = platform.node()
    return _MAGIC + start.encode()
