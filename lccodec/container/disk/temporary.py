"""Folders for temporary files outside of any chain; the next process removes what a kill leaves.

Each is ``lccodec-`` and a random number in the folder of the system for temporaries. Its maker
holds the lock of a file in it. So whoever gets that lock knows that the maker is gone, in whatever
namespace of processes it was. Another host that shares the folder may have locks of its own. Its
folders, told by what the file says, are left alone for a day.

Only folders of the same user are looked at, and only files with names that lccodec gives them are
removed. A folder with other files stays. Links are never followed.
"""

from __future__ import annotations

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

from ...constants import CHECKPOINT_SUFFIX
from ...errors import StorageError
from .folder import Folder, is_temporary
from .system import OPEN_FLAGS, SYSTEM, flag, storage_errors

_PREFIX: Final = "lccodec-"
_NAME: Final = re.compile(re.escape(_PREFIX) + "[0-9a-f]{16}")
_HELD: Final = ".held"  # the file whose lock the maker holds
_MAGIC: Final = b"lccodec temporary folder of "
_MAX_HELD_BYTES: Final = 1 << 10
_MAX_ATTEMPTS: Final = 100  # to make a folder; one fails only if another process removes it at once
#: A folder of another host is that of a process which is gone: no file takes so long to upload.
_SECONDS_OF_OTHERS: Final = 24 * 3600.0

_FLAGS: Final = os.O_RDWR | flag("O_NOFOLLOW") | flag("O_NONBLOCK") | OPEN_FLAGS

_cleared: set[tuple[int, Path]] = set()  # by this process


class TemporaryFolder:
    """A new folder of this process; a context manager, which removes it with all that is in it.

    Attributes
    ----------
    path
        Where it is.

    Raises
    ------
    StorageError
        If it cannot be made.

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
        _clear_all(base)


def _clear_all(base: Path) -> None:
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
