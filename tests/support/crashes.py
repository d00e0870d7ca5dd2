"""Directories that are killed or lose power: every state that may be found afterwards.

The operations run on the real file system and are logged. From the log come the states: a kill
leaves all operations up to a moment; a loss of power may drop or reorder those that no flush of the
file, or of the directory of the name, has made durable.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from lccodec.constants import TEMPORARY_PREFIX
from lccodec.container.disk.system import System

from .profiles import LONG

#: What a crash leaves: the bytes of every file, by its path below the root.
Found = dict[str, bytes]


class Journal(System):
    """The real system below a root, with a log of all changes.

    With `ignore`, flushes are done and not logged: of ``"sync"`` files, or of ``"sync directory"``.
    """

    def __init__(self, root: Path, ignore: str = "") -> None:
        self.root = root
        self.log: list[tuple[Any, ...]] = []
        self._ignore = ignore
        self._tree: dict[Path, Any] = {}  # what each path names now
        self._open: dict[int, list[Any]] = {}
        self._count = 0
        self._before: dict[Path, Any] = {}
        self._contents: dict[Any, bytes] = {}
        inodes: dict[int, Any] = {}
        for path in sorted(root.rglob("*")):
            inode = inodes.setdefault(path.stat().st_ino, self._new("d" if path.is_dir() else "f"))
            self._before[path] = self._tree[path] = inode
            if path.is_file():
                self._contents[inode] = path.read_bytes()

    def _new(self, kind: str) -> Any:
        self._count += 1
        return (kind, self._count)

    # --- the calls --------------------------------------------------------------------------------

    def open(self, path: Any, flags: int, mode: int = 0o777) -> int:
        new = flags & os.O_CREAT and not Path(path).exists()
        fd = os.open(path, flags, mode)
        if new:
            self._name(Path(path), self._new("f"))
        self._open[fd] = [self._tree.get(Path(path), Path(path)), 0, Path(path)]
        return fd

    def close(self, fd: int) -> None:
        self._open.pop(fd)
        os.close(fd)

    def seek(self, fd: int, offset: int, whence: int) -> None:
        os.lseek(fd, offset, whence)
        self._open[fd][1] = offset

    def write(self, fd: int, data: Any) -> int:
        count = os.write(fd, data)
        inode, offset, _ = self._open[fd]
        self.log.append(("write", inode, offset, bytes(data[:count])))
        self._open[fd][1] += count
        return count

    def write_at(self, fd: int, data: Any, offset: int) -> int:
        self.seek(fd, offset, os.SEEK_SET)
        return self.write(fd, data)

    def fsync(self, fd: int) -> None:
        inode, _, path = self._open[fd]
        kind = "sync directory" if path.is_dir() else "sync"
        if kind != self._ignore:
            self.log.append((kind, path if path.is_dir() else inode))

    def link(self, source: Any, target: Any) -> None:
        os.link(source, target)
        self._name(Path(target), self._tree[Path(source)])

    def replace(self, source: Any, target: Any) -> None:
        Path(source).replace(target)
        self._name(Path(target), self._tree[Path(source)], Path(source))

    def unlink(self, path: Any) -> None:
        Path(path).unlink()
        self._name(Path(path), None)

    def mkdir(self, path: Any) -> None:
        Path(path).mkdir()
        self._name(Path(path), self._new("d"))

    def rmdir(self, path: Any) -> None:
        Path(path).rmdir()
        self._name(Path(path), None)

    def _name(self, path: Path, inode: Any, moved_from: Path | None = None) -> None:
        self.log.append(("name", path, inode, moved_from))
        _apply(self._tree, path, inode, moved_from)

    # --- what is left -----------------------------------------------------------------------------

    def after(self, kept: list[tuple[Any, ...]]) -> Found:
        """The files there are once the kept operations, and no others, have reached the disk."""
        tree, contents = dict(self._before), {i: bytearray(data) for i, data in self._contents.items()}
        for kind, *details in kept:
            if kind == "name":
                _apply(tree, *details)
            elif kind == "write":
                inode, offset, data = details
                content = contents.setdefault(inode, bytearray())
                content.extend(bytes(max(0, offset + len(data) - len(content))))
                content[offset : offset + len(data)] = data
        return {
            path.relative_to(self.root).as_posix(): bytes(contents.get(inode, b""))
            for path, inode in tree.items()
            if inode[0] == "f" and _is_reached(tree, path, self.root)
        }

    def states(self, power: bool) -> Iterator[tuple[bool, Found]]:
        """Each different state once, and whether it comes after the last operation.

        A loss of power that loses nothing is a kill. Nothing reads what is unfinished, so of such a
        file it counts whether something is in it; the nightly profile has all states.
        """
        seen = set()
        for length in range(len(self.log) + 1):
            log = self.log[:length]
            for kept in power_losses(log) if power else [log]:
                found = self.after(kept)
                differing = [
                    (name, bool(found[name]) if TEMPORARY_PREFIX in name and not LONG else found[name])
                    for name in sorted(found)
                ]
                key = (length == len(self.log), hash(tuple(differing)))
                if key not in seen:
                    seen.add(key)
                    yield key[0], found


def unsynced(log: list[tuple[Any, ...]]) -> list[int]:
    """The positions of the operations that no later flush has made durable."""
    volatile: list[int] = []
    for position, (kind, *details) in enumerate(log):
        if kind == "sync":
            volatile = [i for i in volatile if log[i][0] != "write" or log[i][1] != details[0]]
        elif kind == "sync directory":
            volatile = [i for i in volatile if log[i][0] != "name" or log[i][1].parent != details[0]]
        else:
            volatile.append(position)
    return volatile


def power_losses(log: list[tuple[Any, ...]]) -> Iterator[list[tuple[Any, ...]]]:
    """What may be on the disk: of the unsynced operations none, one, all, some, or half a write."""
    volatile = unsynced(log)
    lost = [set(volatile), set(), *({i} for i in volatile), *(set(volatile) - {i} for i in volatile)]
    generator = random.Random(len(log))
    lost += [{i for i in volatile if generator.random() < 0.5} for _ in range(8)]
    for dropped in lost:
        yield [operation for i, operation in enumerate(log) if i not in dropped]
    for i in volatile:
        if log[i][0] == "write":
            *front, data = log[i]
            yield [*log[:i], (*front, data[: len(data) // 2]), *log[i + 1 :]]


def _apply(tree: dict[Path, Any], path: Path, inode: Any, moved_from: Path | None) -> None:
    if moved_from is not None:
        tree.pop(moved_from, None)
        for inner in [p for p in tree if moved_from in p.parents]:  # a directory moves with its names
            tree[path / inner.relative_to(moved_from)] = tree.pop(inner)
    if inode is None:
        tree.pop(path, None)
    else:
        tree[path] = inode


def _is_reached(tree: dict[Path, Any], path: Path, root: Path) -> bool:
    return all(parent in tree for parent in path.parents if root in parent.parents)


def broken(
    root: Path, work: Callable[[Journal], Any], check: Callable[[bool, Path], bool], ignore: str = ""
) -> tuple[int, int]:
    """Do some work below a root; count the states of all crashes, and those that a check refuses.

    The check is given whether the work was reported as done, and a directory in that state. Where
    something is ignored, one state that is refused is enough, and no more are looked at.
    """
    journal = Journal(root, ignore)
    work(journal)
    tried = wrong = 0
    for number, (done, found) in enumerate(journal.states(power=True)):
        tried += 1
        place = root.parent / f"crash-{number}"
        for name, data in found.items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes(data)
        place.mkdir(exist_ok=True)
        wrong += not check(done, place)
        if ignore and wrong:
            break
    return tried, wrong
