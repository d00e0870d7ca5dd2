"""Operating systems that fail, and file systems that lose power."""

from __future__ import annotations

import errno
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from lccodec.container.disk.system import System
from lccodec.errors import StorageError

# --- faults ---------------------------------------------------------------------------------------


OPERATIONS = (
    "mode",
    "open",
    "set_mode",
    "lock",
    "exists",
    "seek",
    "write",
    "write_at",
    "truncate",
    "fsync",
    "close",
    "link",
    "replace",
    "unlink",
    "listdir",
    "mkdir",
    "rmdir",
)


class Faulty(System):
    """The real system, but for the operations that `fails` picks by name and number."""

    def __init__(self, code: int = 0, fails: Callable[[str, int], bool] = lambda *_: False) -> None:
        self.log: list[str] = []
        self.descriptors: set[int] = set()
        for name in OPERATIONS:
            setattr(self, name, self._wrap(name, code, fails))

    def _wrap(self, name: str, code: int, fails: Callable[[str, int], bool]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            self.log.append(name)
            failed = fails(name, len(self.log) - 1)
            if failed and name != "close":
                raise OSError(code, os.strerror(code))
            result = getattr(System, name)(*arguments)
            if name == "open":
                self.descriptors.add(result)
            if name == "close":
                self.descriptors.remove(arguments[0])
            if failed:  # a close that fails has closed the file all the same
                raise OSError(code, os.strerror(code))
            return result

        return call


def failing_at(position: int, *, sticky: bool = False, spared: str = "") -> Callable[[str, int], bool]:
    """What picks one operation; with `sticky` also those after it, but for the spared one."""
    return lambda name, number: number == position or (sticky and number > position and name != spared)


def attempts(
    origin: Path, act: Callable[[Path, System], object], code: int = errno.EIO, *, sticky: bool = False
) -> Iterator[tuple[Path, StorageError | None]]:
    """Act on a copy of a directory for each operation, which fails there; first on a healthy one.

    Yields the copy, and the error if one was raised. It has the code, and no file stays open.
    """
    healthy = Faulty()
    act(place := Path(shutil.copytree(origin, origin.parent / "healthy")), healthy)
    assert not healthy.descriptors
    yield place, None
    for position in range(len(healthy.log)):
        place = Path(shutil.copytree(origin, origin.parent / f"attempt-{position}"))
        system, raised = Faulty(code, failing_at(position, sticky=sticky)), None
        try:
            act(place, system)
        except StorageError as error:
            raised = error
            assert error.errno == code
        assert not system.descriptors
        yield place, raised


# --- kill and power loss --------------------------------------------------------------------------


class Disk(System):
    """A file system in memory that logs each change to files and directories, synced or not."""

    def __init__(self, files: dict[str, bytes], ignore: str = "") -> None:
        self.log: list[tuple[Any, ...]] = []
        self.names = {name: ("old", name) for name in files}
        self.initial = files
        self._ignore = ignore
        self._files: dict[int, list[Any]] = {}

    def open(self, path: Path, flags: int, _mode: int = 0) -> int:
        fd = len(self._files) + 100
        inode = ("new", fd) if flags & os.O_CREAT else None
        if inode:
            self._name(path.name, inode)
        self._files[fd] = [inode, 0]
        return fd

    def seek(self, fd: int, offset: int, _whence: int) -> None:
        self._files[fd][1] = offset

    def write(self, fd: int, data: memoryview) -> int:
        inode, offset = self._files[fd]
        piece = bytes(data[:2000])  # large writes are partial
        self.log.append(("write", inode, offset, piece))
        self._files[fd][1] += len(piece)
        return len(piece)

    def write_at(self, fd: int, data: memoryview, offset: int) -> int:
        self.seek(fd, offset, 0)
        return self.write(fd, data)

    def fsync(self, fd: int) -> None:
        inode = self._files[fd][0]
        kind = "sync" if inode else "sync directory"
        if kind != self._ignore:
            self.log.append((kind, inode))

    def close(self, fd: int) -> None: ...

    def lock(self, fd: int, wait: bool) -> None: ...

    def mode(self, path: Path) -> int | None:
        return 0o644 if path.name in self.names else None

    def set_mode(self, fd: int, mode: int) -> None: ...

    def exists(self, path: Path) -> bool:
        return path.name in self.names

    def listdir(self, _directory: object) -> list[str]:
        return sorted(self.names)

    def link(self, source: Path, target: Path) -> None:
        if target.name in self.names:
            raise FileExistsError(errno.EEXIST, "exists")
        self._name(target.name, self.names[source.name])

    def replace(self, source: Path, target: Path) -> None:
        self._name(target.name, self.names[source.name], source.name)

    def unlink(self, path: Path) -> None:
        if path.name not in self.names:
            raise FileNotFoundError(errno.ENOENT, "missing")
        self._name(path.name, None)

    def _name(self, name: str, inode: Any, moved_from: str | None = None) -> None:
        self.log.append(("name", name, inode, moved_from))
        _apply_name(self.names, name, inode, moved_from)

    def after(self, kept: list[tuple[Any, ...]]) -> dict[str, bytes]:
        """The files there are once the kept operations, and no others, have reached the disk."""
        names: dict[str, Any] = {name: ("old", name) for name in self.initial}
        contents = {("old", name): bytearray(data) for name, data in self.initial.items()}
        for kind, *details in kept:
            if kind == "name":
                _apply_name(names, *details)
            elif kind == "write":
                inode, offset, data = details
                content = contents.setdefault(inode, bytearray())
                content.extend(bytes(max(0, offset + len(data) - len(content))))
                content[offset : offset + len(data)] = data
        return {name: bytes(contents.get(inode, b"")) for name, inode in names.items()}


def _apply_name(names: dict[str, Any], name: str, inode: Any, moved_from: str | None) -> None:
    if moved_from is not None:
        names.pop(moved_from, None)
    if inode is None:
        names.pop(name, None)
    else:
        names[name] = inode


def unsynced(log: list[tuple[Any, ...]]) -> list[int]:
    """The positions of the operations that no later sync has made durable."""
    volatile: list[int] = []
    for position, (kind, *details) in enumerate(log):
        if kind == "sync":
            volatile = [i for i in volatile if log[i][0] != "write" or log[i][1] != details[0]]
        elif kind == "sync directory":
            volatile = [i for i in volatile if log[i][0] != "name"]
        else:
            volatile.append(position)
    return volatile


def power_losses(log: list[tuple[Any, ...]]) -> Iterator[list[tuple[Any, ...]]]:
    """What may have reached the disk: of the unsynced operations none, one, all, or some."""
    volatile = unsynced(log)
    lost = [set(volatile), set(), *({i} for i in volatile), *(set(volatile) - {i} for i in volatile)]
    generator = random.Random(len(log))
    lost += [{i for i in volatile if generator.random() < 0.5} for _ in range(20)]
    for dropped in lost:
        yield [operation for i, operation in enumerate(log) if i not in dropped]
