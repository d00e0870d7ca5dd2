"""The claim of a process on a chain that it saves to: no other process saves there meanwhile.

A writer holds a lock on the file ``.tmp-writer`` of the directory as long as it may save. Its
worker holds the same lock, since it may finish a save after the writer was killed. The kernel
releases the lock when both are gone. Whoever locks the file then may remove it: it is a temporary.

All `Chain` objects of a process share the lock, and one of them uses it at a time. While it saves,
another is refused, as another process would be. Between their saves, the two are told apart by
roots (:mod:`lccodec.chain.save.reference`). A forked process is another process: it closes its copy
of the lock, which would otherwise stay after the writer's end.

An interrupt leaves no use and no half of a lock behind: a use ends with whoever has it, and a lock
is taken and released by a thread of its own (`lccodec.parallel.uninterrupted`).

Source: SPEC 9 (LCC-CHN-05, LCC-CHN-11).
"""

from __future__ import annotations

import atexit
import errno
import os
import platform
import stat
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from ...constants import WRITER_NAME
from ...container.folder import make_directory
from ...container.system import OPEN_FLAGS, SYSTEM, WINDOWS, System, flag
from ...errors import ChainError, warn
from ...parallel import uninterrupted

#: Seconds until a writer that was killed, and the worker that saves for it, are surely gone.
_SECONDS_TO_WAIT: Final = 5.0
_SECONDS_BETWEEN_ATTEMPTS: Final = 0.05
_MAX_ATTEMPTS: Final = 100  # to lock a file; one fails only if another process removes it at once
_MAX_HOLDER_BYTES: Final = 200  # of the text that says who holds a lock
_READ_FLAGS: Final = os.O_RDONLY | flag("O_NONBLOCK") | flag("O_NOFOLLOW") | OPEN_FLAGS
_FLAGS: Final = _READ_FLAGS | os.O_RDWR | os.O_CREAT

#: Device and number of a file.
_Identity: TypeAlias = tuple[int, int]


class Use:
    """One use of a claim: a save. It lasts until it ends, or until nobody has the object any more.

    So a save that is interrupted before it could end its use does not keep others away.
    """

    def __init__(self) -> None:
        self._process = os.getpid()
        self._is_ended = False

    def end(self) -> None:
        """End it: what was taken is kept, and others of this process may use it."""
        self._is_ended = True

    @property
    def lasts(self) -> bool:
        """Whether it has not ended; one of the parent of a forked process does not count."""
        return not self._is_ended and self._process == os.getpid()


class Uses:
    """The uses of one claim."""

    def __init__(self) -> None:
        self._begun: list[weakref.ref[Use]] = []

    def __bool__(self) -> bool:
        return any((use := each()) is not None and use.lasts for each in self._begun)

    def begin(self, use: Use) -> None:
        """Add a use, unless it is there already."""
        lasting = [each for each in self._begun if (one := each()) is not None and one.lasts]
        self._begun = lasting if any(each() is use for each in lasting) else [*lasting, weakref.ref(use)]


@dataclass(eq=False)
class _Lock:
    """A lock that this process holds, and the claims that share it."""

    path: Path
    descriptor: int
    identity: _Identity
    claims: weakref.WeakSet[DirectoryClaim] = field(default_factory=weakref.WeakSet)


OTHERS: Final = "another Chain of this process"  # that holds a claim

_held: dict[_Identity | None, _Lock] = {}
_changing = threading.RLock()


class HeldError(Exception):
    """Somebody else holds a claim, as the text says, and may release it within some seconds."""

    def __init__(self, holder: str, seconds: float, pause: float) -> None:
        super().__init__(holder)
        self.seconds, self.pause = seconds, pause


class Claim(ABC):
    """A claim on a chain, which is taken before a save and kept; messages call it by its place."""

    #: What a worker that saves for this process keeps open.
    descriptors: Sequence[int] = ()

    def __init__(self, place: str) -> None:
        self._place = place
        self.uses = Uses()

    def take(self, use: Use, *, make: bool = False) -> None:
        """Take the claim, if it is not held already, and begin a use of it.

        With `make`, make the place of the chain before. Where there can be no claim, nothing is
        held. To take it again for the same use does nothing. Raises ``ChainError`` if another
        process holds it, or another claim of this process is used, and does not release it soon.
        """
        if make:
            self._make()
        start = time.monotonic()
        while True:
            try:
                uninterrupted(partial(self._take, use))
                return
            except HeldError as error:
                if time.monotonic() - start > error.seconds:
                    raise ChainError(
                        f"{self._place}: {error} is saving to this chain, which has one writer at a time;"
                        " wait until it ends, or save to another directory"
                    ) from None
                pause = error.pause
            time.sleep(pause)

    def release(self) -> None:
        """Release the claim. Releasing it again does nothing."""
        uninterrupted(self._release)

    def _make(self) -> None:
        """Make the place of the chain, if the claim lies there."""
        return

    @abstractmethod
    def _take(self, use: Use) -> None:
        """Take the claim once; raise `HeldError` if somebody else has it."""

    @abstractmethod
    def _release(self) -> None:
        """Release what is taken, if anything is."""

    @property
    @abstractmethod
    def is_held(self) -> bool:
        """Whether it is held."""

    @contextmanager
    def around_save(self) -> Iterator[None]:
        """Take the claim before a save, or after it if it has made the place of the chain."""
        use = Use()
        try:
            self.take(use)
            yield
            if not self.is_held:
                with suppress(ChainError):  # somebody else came first; the save stands
                    self.take(use)
        finally:
            use.end()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the claim, and release it afterwards if it was not held before. Raise as `take`."""
        use, before = Use(), self.is_held
        try:
            self.take(use)
            yield
        finally:
            use.end()
            if not before:
                self.release()


class DirectoryClaim(Claim):
    """A claim on a directory, by a lock on a file in it."""

    def __init__(self, directory: Path, system: System = SYSTEM) -> None:
        super().__init__(str(directory))
        self._path, self._system = directory / WRITER_NAME, system
        self._locks: list[_Lock] = []  # more than one if the directory was replaced by another

    def __del__(self) -> None:
        if self._locks and _changing is not None:  # which is gone at the end of a program
            self._release()

    @property
    def descriptors(self) -> Sequence[int]:  # type: ignore[override]  # a property is enough
        """The descriptors of the lock, for a worker that saves for this process."""
        return [lock.descriptor for lock in self._locks if _held.get(lock.identity) is lock]

    def _make(self) -> None:
        """Make the directory. Without one, nothing is held."""
        if not self.is_held:
            with suppress(OSError):  # the save will say so
                make_directory(self._path.parent, self._system)

    def _take(self, use: Use) -> None:
        """Begin to use the lock of the file; raise `HeldError` if somebody else does."""
        with _changing:
            known = _held.get(_identity(self._path))
            if known is not None and any(other.uses for other in set(known.claims) - {self}):
                raise HeldError(OTHERS, _SECONDS_TO_WAIT, _SECONDS_BETWEEN_ATTEMPTS)
            if not WINDOWS and not self.is_held:  # Windows has no such locks
                try:
                    found = _lock_of(self._path, self._system)
                except BlockingIOError:
                    holder = _holder(self._path)
                    raise HeldError(holder, _SECONDS_TO_WAIT, _SECONDS_BETWEEN_ATTEMPTS) from None
                if found is not None:
                    found.claims.add(self)
                    self._locks.append(found)
            self.uses.begin(use)

    def _release(self) -> None:
        """Release all locks that no other claim of this process shares."""
        with _changing:
            for lock in self._locks:
                lock.claims.discard(self)
                if not lock.claims and _held.get(lock.identity) is lock:
                    _give_up(lock, self._system)
            self._locks = []

    @property
    def is_held(self) -> bool:
        """Whether it has the lock of the file that is there now.

        Where it has another one, that stays: a worker has it, too, and the file may come back.
        """
        identity = _identity(self._path)
        return any(lock.identity == identity and _held.get(identity) is lock for lock in self._locks)


def _lock_of(path: Path, system: System) -> _Lock | None:
    """Return a lock; ``None`` if there can be none. Raise BlockingIOError if another has it."""
    with _changing:
        for _ in range(_MAX_ATTEMPTS):
            known = _held.get(_identity(path))
            if known is not None:
                return known
            descriptor = _opened(path, system)
            if descriptor < 0:
                return None
            try:
                system.lock(descriptor, False)
                if _identity(path) == (identity := _identity_of(status := os.fstat(descriptor))):
                    if status.st_nlink > 1:  # of a file elsewhere, which must stay as it is
                        system.unlink(path)
                        warn(f"{path} was a second name of a file elsewhere, and is made anew")
                        continue
                    _sign(descriptor)
                    lock = _held[identity] = _Lock(path, descriptor, identity)
                    descriptor = -1
                    return lock
                # Another process has removed it between the two calls.
            except BlockingIOError:
                raise
            except OSError:  # there are no locks
                with suppress(OSError):
                    if os.fstat(descriptor).st_size == 0:  # nobody has signed it
                        system.unlink(path)
                return None
            finally:
                if descriptor >= 0:
                    with suppress(OSError):
                        system.close(descriptor)
    return None


def _opened(path: Path, system: System) -> int:
    """Open the file to lock, and make it if it is not there; -1 if that is not possible.

    Raises ``ChainError`` if it is not a file of its own: a claim on it would not keep others away.
    """
    try:
        status = path.lstat()
    except OSError:
        status = None
    if status is None or stat.S_ISREG(status.st_mode):
        try:
            descriptor = system.open(path, _FLAGS, 0o666)
        except OSError as error:  # nothing can be written there: the save says so
            if error.errno != errno.ELOOP and (status is None or status.st_nlink == 1):
                return -1
        else:
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                return descriptor
            system.close(descriptor)
    raise ChainError(
        f"{path} is a link, a directory or another file that lccodec did not make, so that it cannot say"
        " who saves to the chain; remove it"
    )


def _give_up(lock: _Lock, system: System) -> None:
    """Remove the file of a lock that is held, and release the lock."""
    del _held[lock.identity]
    with suppress(OSError):
        if _identity(lock.path) == lock.identity:
            system.unlink(lock.path)
    with suppress(OSError):
        system.close(lock.descriptor)


def _sign(descriptor: int) -> None:
    """Write into a file who locks it."""
    with suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"process {os.getpid()} on {platform.node()}\n".encode())


def _holder(path: Path) -> str:
    """Return who has signed a file."""
    text = ""
    with suppress(OSError):
        descriptor = os.open(path, _READ_FLAGS)
        try:
            text = os.read(descriptor, _MAX_HOLDER_BYTES).decode(errors="replace").strip()
        finally:
            os.close(descriptor)
    return text if text.isprintable() and text else "another process"


def _identity(path: Path) -> _Identity | None:
    try:
        return _identity_of(path.lstat())
    except OSError:
        return None


def _identity_of(status: os.stat_result) -> _Identity:
    return status.st_dev, status.st_ino


@atexit.register
def _at_exit() -> None:
    """Remove the files of all locks. Saves in the background are done: their end comes first."""
    with _changing:
        for lock in list(_held.values()):
            _give_up(lock, SYSTEM)


def _after_fork() -> None:
    """Close the copies of the locks in a child; they are the parent's."""
    global _changing  # noqa: PLW0603 - a thread of the parent may have held it
    _changing = threading.RLock()
    for lock in _held.values():
        with suppress(OSError):
            os.close(lock.descriptor)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
