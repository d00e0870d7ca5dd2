"""A file that is written in place, and of which nothing is promised.

It may be lost, torn or full of other bytes at any time. Whoever reads it knows by hashes what it
should hold, and has another source for it.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from .folder import Folder
from .source import read_at
from .system import OPEN_FLAGS, SYSTEM, System, flag

#: What the system says when there is no room.
NO_ROOM: Final = frozenset((errno.ENOSPC, errno.EDQUOT))

_FLAGS: Final = os.O_RDWR | flag("O_NOFOLLOW") | flag("O_NONBLOCK") | OPEN_FLAGS


class Scratch:
    """Bytes at places of a file in a directory; it is made when it is first written.

    It has one name only. Of a second name of a file elsewhere, the name is given to a new file.

    Parameters
    ----------
    directory
        An existing directory.
    folder, name
        The directory in it that the file lies in, which is made; and its name there.

    Attributes
    ----------
    works
        Whether the file can be used. An error of the system ends that.
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
