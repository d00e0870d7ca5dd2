"""Directories that are killed or lose power: every state that may be found afterwards.

A *replay* logs what a process does to the files below a root, by whatever means: after each call
that names, removes or flushes something, it compares what is there with what was there before. So
it sees what `System`, pathlib, shutil, and libraries in C do. From the log come the states. A kill
leaves all operations up to a moment. A loss of power may drop those that nothing has made durable:

- bytes, as long as their file was not flushed; of what was written last, it may keep the first
  half;
- a name that was made, changed or removed, as long as its directory was not flushed. A rename is
  one operation.
"""

from __future__ import annotations

import builtins
import io
import itertools
import os
import random
import shutil
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from unittest import mock

from lccodec.constants import TEMPORARY_PREFIX
from lccodec.container.system import SYSTEM, System

from .profiles import LONG

#: What there is below a root: files with their bytes, links with their targets, directories.
Found = dict[str, bytes | str | None]

#: Calls that make, rename or remove a name; each is one operation of the log.
_NAMING: Final = (
    *("open", "link", "symlink", "rename", "replace", "unlink", "remove"),
    *("mkdir", "rmdir", "truncate", "ftruncate"),
)
_FLUSHING: Final = ("fsync", "fdatasync")


@dataclass
class _Tree:
    """What there is: directories, files and links by a number, which no other ever has."""

    directories: dict[int, dict[str, int]] = field(default_factory=dict)
    files: dict[int, bytes] = field(default_factory=dict)
    links: dict[int, str] = field(default_factory=dict)

    def copy(self) -> _Tree:
        inner = {number: dict(entries) for number, entries in self.directories.items()}
        return _Tree(inner, dict(self.files), dict(self.links))


class Replay:
    """A log of all that is done below a root while it is entered, and the states of a crash.

    Parameters
    ----------
    root
        The directory.
    ignore
        What is done and not logged, to see that a check would find it: ``"sync"``, flushes of
        files, or ``"sync directory"``.
    """

    def __init__(self, root: Path, ignore: str = "") -> None:
        self.root = root
        self.log: list[tuple[Any, ...]] = []
        self._ignore = ignore
        self._turn = threading.RLock()
        self._patches = ExitStack()
        self._counter = itertools.count()
        self._numbers: dict[int, int] = {}  # by the number of the file system
        self._real = {name: getattr(os, name) for name in (*_NAMING, *_FLUSHING)}
        self._directories = set[int]()  # that there ever were
        self._top, self._now = -1, _Tree()
        self._look()
        self._before = self._now.copy()
        self.log.clear()

    def __enter__(self) -> Replay:
        for name in _NAMING:
            watched = self._watched(self._real[name], _writes if name == "open" else _always)
            self._patches.enter_context(mock.patch.object(os, name, watched))
        for module in (builtins, io):
            watched = self._watched(io.open, _writes_by_mode)
            self._patches.enter_context(mock.patch.object(module, "open", watched))
        for name in _FLUSHING:
            self._patches.enter_context(mock.patch.object(os, name, self._flushing(self._real[name])))
        flush = staticmethod(self._flushing(self._real["fsync"]))
        self._patches.enter_context(mock.patch.object(System, "fsync", flush))
        return self

    def __exit__(self, *_: object) -> None:
        self._patches.close()
        self._look()

    def done(self, what: object = True) -> None:
        """Note that something was reported as done: from now on no crash may lose it."""
        with self._turn:
            self._look()
            self.log.append(("done", what))

    # --- what is seen -----------------------------------------------------------------------------

    def _watched(self, call: Callable[..., Any], changes: Callable[..., object]) -> Callable[..., Any]:
        def watched(*arguments: Any, **options: Any) -> Any:
            if not changes(*arguments, **options):
                return call(*arguments, **options)
            with self._turn:
                self._look()
                try:
                    return call(*arguments, **options)
                finally:
                    self._look()

        return watched

    def _flushing(self, call: Callable[[int], None]) -> Callable[[int], None]:
        def flush(fd: Any) -> None:
            number = fd if isinstance(fd, int) else fd.fileno()
            with self._turn:
                self._look()
                call(number)
                status = os.fstat(number)
                inode = self._numbers.get(status.st_ino)
                kind = "sync directory" if stat.S_ISDIR(status.st_mode) else "sync"
                if inode is not None and kind != self._ignore:
                    self.log.append((kind, inode))

        return flush

    def _look(self) -> None:
        """Log what has changed since the last look."""
        there, seen = _Tree(), dict[int, int]()
        self._top = self._seen(self.root.stat().st_ino, seen)
        waiting = [(str(self.root), self._top)]
        while waiting:
            place, number = waiting.pop()
            entries = there.directories[number] = {}
            with os.scandir(place) as listed:
                found = sorted(listed, key=lambda entry: entry.name)
            for entry in found:
                inner = entries[entry.name] = self._seen(entry.inode(), seen)
                if entry.is_symlink():
                    there.links[inner] = str(Path(entry.path).readlink())
                elif entry.is_dir(follow_symlinks=False):
                    waiting.append((entry.path, inner))
                elif entry.is_file(follow_symlinks=False) and inner not in there.files:
                    there.files[inner] = self._content(entry.path)
        self._numbers = seen
        self._directories |= there.directories.keys()
        before, self._now = self._now, there
        for number, data in there.files.items():
            old = before.files.get(number, b"")
            if data != old:
                self.log.append(("write", number, *_difference(old, data)))
        names = tuple(_renamings(before.directories, there.directories))
        if names:
            self.log.append(("names", names, dict(there.links)))

    def _seen(self, inode: int, seen: dict[int, int]) -> int:
        """The number of a file or directory. One that was gone is another when it comes back."""
        if inode not in seen:
            seen[inode] = self._numbers[inode] if inode in self._numbers else next(self._counter)
        return seen[inode]

    def _content(self, path: str) -> bytes:
        fd = self._real["open"](path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            return os.pread(fd, os.fstat(fd).st_size, 0)
        finally:
            os.close(fd)

    # --- what is left -----------------------------------------------------------------------------

    def after(self, kept: list[tuple[Any, ...]]) -> Found:
        """What there is once the kept operations, and no others, have reached the disk."""
        tree = self._before.copy()
        for kind, *details in kept:
            if kind == "write":
                number, offset, data, size = details
                content = tree.files.get(number, b"")[:size].ljust(min(offset, size), b"\0")
                whole = content[:offset] + data + content[offset + len(data) :]
                tree.files[number] = whole[:size].ljust(size, b"\0")
            elif kind == "names":
                tree.links.update(details[1])
                for directory, name, number in details[0]:
                    entries = tree.directories.setdefault(directory, {})
                    if number is None:
                        entries.pop(name, None)
                    else:
                        entries[name] = number
        found: Found = {}
        self._collect(tree, self._top, "", found)
        return found

    def _collect(self, tree: _Tree, number: int, above: str, found: Found) -> None:
        for name, inner in tree.directories.get(number, {}).items():
            path = above + name
            if inner in self._directories:
                found[path] = None
                self._collect(tree, inner, f"{path}/", found)
            else:
                found[path] = tree.links[inner] if inner in tree.links else tree.files.get(inner, b"")

    def states(self, most: int | None = None, *, power: bool = True) -> Iterator[tuple[list[object], Found]]:
        """Each different state once, with all that was reported as done before.

        With `most`, so many of them, drawn at random and the same every time. Without `power`, only
        those of kills. A loss of power that
        loses nothing is a kill. Nothing reads what is unfinished, so of such a file it counts
        whether something is in it; the nightly profile has all states.
        """
        seen = set()
        candidates = self._drawn() if most is not None else self._all() if power else self._kills()
        for length, kept in candidates:
            if len(seen) == most:
                return
            found, reported = self.after(kept), [op[1] for op in self.log[:length] if op[0] == "done"]
            key = (len(reported), hash(tuple((name, _told(name, found[name])) for name in sorted(found))))
            if key not in seen:
                seen.add(key)
                yield reported, found

    def _all(self) -> Iterator[tuple[int, list[tuple[Any, ...]]]]:
        for length in range(len(self.log) + 1):
            for kept in power_losses(self.log[:length]):
                yield length, kept

    def _kills(self) -> Iterator[tuple[int, list[tuple[Any, ...]]]]:
        for length in range(len(self.log) + 1):
            yield length, self.log[:length]

    def _drawn(self) -> Iterator[tuple[int, list[tuple[Any, ...]]]]:
        generator = random.Random(len(self.log))
        for _ in range(len(self.log) * 20):
            length = generator.randint(0, len(self.log))
            losses = list(power_losses(self.log[:length]))
            # What nothing has flushed is lost as a whole more often than by a rare reordering.
            yield length, losses[generator.choice((0, 1, 2, generator.randrange(len(losses)))) % len(losses)]


def _always(*_: object, **__: object) -> bool:
    return True


def _writes(_: object, flags: int, *__: object, **___: object) -> int:
    """Whether a call of `os.open` may make a file, or empty it."""
    return flags & (os.O_CREAT | os.O_TRUNC)


def _writes_by_mode(_: object, mode: str = "r", *__: object, **___: object) -> bool:
    return not {"w", "a", "x"}.isdisjoint(mode)


def _difference(old: bytes, new: bytes) -> tuple[int, bytes, int]:
    """Where bytes begin to differ, what is new from there on, and the size."""
    start = next(
        (i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new))
    )
    end = len(new)
    if len(old) == len(new):
        while end > start and old[end - 1] == new[end - 1]:
            end -= 1
    return start, new[start:end], len(new)


def _renamings(
    before: dict[int, dict[str, int]], after: dict[int, dict[str, int]]
) -> Iterator[tuple[int, str, int | None]]:
    """Names that are new, have another file, or are gone: in each directory."""
    for directory in sorted(before.keys() | after.keys()):
        old, new = before.get(directory, {}), after.get(directory, {})
        for name in sorted(old.keys() | new.keys()):
            if old.get(name) != new.get(name):
                yield directory, name, new.get(name)


def _told(name: str, content: bytes | str | None) -> object:
    return bool(content) if TEMPORARY_PREFIX in name and not LONG else content


def unsynced(log: list[tuple[Any, ...]]) -> list[int]:
    """The positions of the operations that no later flush has made durable."""
    volatile: list[int] = []
    for position, (kind, *details) in enumerate(log):
        if kind == "sync":
            volatile = [i for i in volatile if log[i][0] != "write" or log[i][1] != details[0]]
        elif kind == "sync directory":
            volatile = [i for i in volatile if log[i][0] != "names" or not _is_in(log[i], details[0])]
        elif kind in ("write", "names"):
            volatile.append(position)
    return volatile


def _is_in(operation: tuple[Any, ...], directory: int) -> bool:
    return any(change[0] == directory for change in operation[1])


def power_losses(log: list[tuple[Any, ...]]) -> Iterator[list[tuple[Any, ...]]]:
    """What may be on the disk: of the unsynced operations none, one, all, some, or half a write.

    First come the usual losses: nothing, all, and all bytes but no names.
    """
    volatile = unsynced(log)
    lost = [
        set(),
        set(volatile),
        {i for i in volatile if log[i][0] == "write"},
        *({i} for i in volatile),
        *(set(volatile) - {i} for i in volatile),
    ]
    generator = random.Random(len(log))
    lost += [{i for i in volatile if generator.random() < 0.5} for _ in range(8)]
    for dropped in lost:
        yield [operation for i, operation in enumerate(log) if i not in dropped]
    for i in volatile:
        if log[i][0] == "write":
            kind, number, offset, data, size = log[i]
            half = data[: len(data) // 2]
            torn = (kind, number, offset, half, size if offset + len(data) < size else offset + len(half))
            yield [*log[:i], torn, *log[i + 1 :]]


def put(found: Found, place: Path, *, links: bool = True) -> Path:
    """Make a directory in the state of a crash; with `links`, a file has all its names again."""
    place.mkdir(parents=True)
    first: dict[int, Path] = {}
    for name, content in found.items():
        if content is None:
            (place / name).mkdir(parents=True, exist_ok=True)
            continue
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str):
            (place / name).symlink_to(content)
        elif links and len(content) > 1 and id(content) in first:  # an object for each file
            (place / name).hardlink_to(first[id(content)])
        else:
            first[id(content)] = place / name
            (place / name).write_bytes(content)
    return place


def tried(
    root: Path,
    work: Callable[[Replay], object],
    check: Callable[[list[object], Path], object],
    *,
    most: int | None = None,
    ignore: str = "",
) -> list[str]:
    """Do some work below a root; hold states of crashes against a check, and say which are bad.

    The check is given what was reported as done (`Replay.done`), and a directory in the state that
    a crash has left. It raises an error if that is bad. With `ignore`, one bad state is enough.
    """
    with Replay(root, ignore) as replay:
        work(replay)
    bad = []
    for number, (reported, found) in enumerate(replay.states(most)):
        place = put(found, root.parent / f"{root.name}-crash-{number}")
        try:
            check(reported, place)
        except Exception as error:  # whatever it is, the state is not as it should be
            bad.append(f"state {number}, after {reported}, {sorted(found)}: {type(error).__name__}: {error}")
        shutil.rmtree(place, ignore_errors=True)
        if ignore and bad:
            break
    return bad


def hold(
    root: Path,
    work: Callable[[System], Any],
    check: Callable[[bool, Path], bool],
    ignore: str = "",
    *,
    above: int = 0,
) -> None:
    """Hold all crashes of some work against a check: there are more than `above`, and none is bad.

    Where something is ignored, one must be bad: the check would find it.
    """
    count, wrong = broken(root, work, check, ignore)
    assert ignore or count > above
    assert (wrong > 0) == bool(ignore)


def broken(
    root: Path, work: Callable[[System], Any], check: Callable[[bool, Path], bool], ignore: str = ""
) -> tuple[int, int]:
    """Do some work below a root; count the states of all crashes, and those that a check refuses.

    The check is given whether the work was reported as done, and a directory in that state. Where
    something is ignored, one state that is refused is enough, and no more are looked at.
    """
    with Replay(root, ignore) as replay:
        work(SYSTEM)
    replay.done()
    count = wrong = 0
    for number, (reported, found) in enumerate(replay.states()):
        count += 1
        wrong += not check(bool(reported), put(found, root.parent / f"crash-{number}"))
        if ignore and wrong:
            break
    return count, wrong
