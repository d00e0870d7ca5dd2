"""A file that is written from its first to its last byte, and is there whole or not at all.

The bytes go to a temporary (LCC-CHN-05), which gets the name of the file when it is on the disk
(LCC-CHN-06). A failure leaves nothing behind. `remove_stale_temporaries` removes what a killed
process leaves.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, Self

from ..constants import TEMPORARY_PREFIX
from ..errors import ArgumentError
from .frame_entry import Bytes
from .source import Source
from .system import OPEN_FLAGS, SYSTEM, WINDOWS, StrPath, System, checked_path, storage_errors

_PIECE_BYTES: Final = 1 << 20  # that are copied at once
_FLUSH_BYTES: Final = 1 << 25  # that are written before the system is told to begin with them
_MAX_ATTEMPTS: Final = 100  # to make a temporary; one fails only if another process removes it at once
_NO_HARD_LINKS: Final = frozenset((errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS))
_NO_DIRECTORY_SYNC: Final = frozenset((errno.EINVAL, errno.ENOTSUP))


class WholeFile:
    """Writes one file. It is a context manager; leaving it without `commit` leaves no file.

    Parameters
    ----------
    overwrite
        Whether to replace a file of that name, and keep its permissions. Otherwise such a file is
        an error, and stays as it is.

    Attributes
    ----------
    size
        Bytes that are written.

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

    def __init__(self, path: StrPath, *, overwrite: bool = False, system: System = SYSTEM) -> None:
        self._path = checked_path(path)
        self._overwrite = overwrite
        self._system = system
        self._temporary = self._path.parent / f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}"
        self._fd = -1
        self._flushed = 0
        self.size = 0

    def __enter__(self) -> Self:
        try:
            with storage_errors("cannot create", self._path):
                if not self._overwrite and self._system.exists(self._path):
                    raise ArgumentError(f"{self._path} already exists")
                self._create_temporary()
        except BaseException:
            self._discard()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._discard()

    def write(self, data: Bytes) -> None:
        """Append bytes."""
        with self._working():
            view = memoryview(data).cast("B")
            self.size += len(view)
            while view:
                view = view[self._system.write(self._fd, view) :]
            if self.size - self._flushed >= _FLUSH_BYTES:
                with suppress(OSError):  # the fsync of a commit shows what is wrong
                    self._system.start_flush(self._fd, self._flushed, self.size - self._flushed)
                self._flushed = self.size

    def copy(self, source: Source) -> None:
        """Append all bytes of a source."""
        for offset in range(0, source.size, _PIECE_BYTES):
            self.write(source.read(offset, min(_PIECE_BYTES, source.size - offset)))

    def commit(self) -> None:
        """Give the file its name.

        Raises
        ------
        ArgumentError
            If there is a file of that name, which is not to be replaced.
        StorageError
            Nothing is committed; or, if the message says so, the file is in place but its directory
            could not be synced, so that it may be lost in a power failure.
        """
        with self._working():
            self._system.fsync(self._fd)
            self._publish()
        self._discard()
        with storage_errors("committed, but durability unknown: cannot sync the directory of", self._path):
            self._sync_directory()

    def _create_temporary(self) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | OPEN_FLAGS
        replaced = self._system.mode(self._path) if self._overwrite else None
        for _ in range(_MAX_ATTEMPTS):
            self._fd = self._system.open(self._temporary, flags, 0o666 if replaced is None else 0o600)
            if replaced is not None:
                with suppress(OSError):  # on systems that cannot set them, the owner alone has access
                    self._system.set_mode(self._fd, replaced)
            with suppress(OSError):  # without locks nobody removes temporaries
                self._system.lock(self._fd, True)
            # Another process may have removed it between the two calls.
            if self._system.exists(self._temporary):
                return
            self._discard()
        raise OSError(errno.EAGAIN, "a temporary cannot be seen after it was made")

    @contextmanager
    def _working(self) -> Iterator[None]:
        if self._fd < 0:
            raise ArgumentError(f"the writer of {self._path} is closed")
        try:
            with storage_errors("cannot write", self._path):
                yield
        except BaseException:
            self._discard()
            raise

    def _publish(self) -> None:
        if WINDOWS:  # which neither renames nor unlinks an open file
            self._close()
        if self._overwrite:
            self._system.replace(self._temporary, self._path)
            return
        try:
            self._system.link(self._temporary, self._path)  # unlike a rename, it does not replace
        except FileExistsError:
            raise ArgumentError(f"{self._path} already exists") from None
        except OSError as error:
            if error.errno not in _NO_HARD_LINKS:
                raise
            if self._system.exists(self._path):
                raise ArgumentError(f"{self._path} already exists") from None
            self._system.replace(self._temporary, self._path)

    def _close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with suppress(OSError):
                self._system.close(fd)

    def _discard(self) -> None:
        """Close and unlink the temporary. After a commit this only removes its second name."""
        opened = self._fd >= 0
        self._close()
        if opened or WINDOWS:
            with suppress(OSError):
                self._system.unlink(self._temporary)

    def _sync_directory(self) -> None:
        if WINDOWS:  # which has no such call
            return
        fd = self._system.open(self._path.parent, os.O_RDONLY | OPEN_FLAGS)
        try:
            self._system.fsync(fd)
        except OSError as error:
            if error.errno not in _NO_DIRECTORY_SYNC:
                raise
        finally:
            self._system.close(fd)
