"""The claim of a process on a chain that it saves to: no other process saves there meanwhile.

A writer holds a lock on the file ``.tmp-writer`` of the directory as long as it may save. Its
worker holds the same lock, since it may finish a save after the writer was killed. The kernel
releases the lock when both are gone. Whoever locks the file then may remove it: it is a temporary.

All `Chain` objects of a process share the lock, and one of them uses it at a time. While it saves,
another is refused, as another process would be. Between their saves, the two are told apart by
roots (:mod:`lccodec.chain.save.reference`). A forked process is another process: it closes its copy
of the lock, which would otherwise stay after the writer's end.

An interrupt leaves no use and no half of a lock behind: a use ends with whoever has it, and a lock
is taken and released by a thread of its own (`lccodec.parallel.uninterrupted`). A lock that is held
already is used without that thread: a use is added by one call, which a handler that saves cannot
split. Lists of claims are replaced by others, and never changed, so that reading them needs no
lock.

Source: SPEC 9 (LCC-CHN-05, LCC-CHN-11).
"""

from __future__ import annotations

import atexit
import errno
import itertools
import os
import platform
import stat
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
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


@dataclass(eq=False)
class Use:
    """One use of a claim: a save. It lasts until it ends, or until nobody has the object any more.

    So a save that is interrupted before it could end its use does not keep others away.
    """

    _process: int = field(default_factory=os.getpid)
    _is_ended: bool = False

    def end(self) -> None:
        """End it: what was taken is kept, and others of this process may use it."""
        self._is_ended = True

    @property
    def lasts(self) -> bool:
        """Whether it has not ended; one of the parent of a forked process does not count."""
        return not self._is_ended and self._process == os.getpid()


class Hold(ABC):
    """What this process holds to keep others away, under a key, and the claims that share it."""

    #: What a worker that saves for this process keeps open, if anything.
    descriptor: int | None = None
    #: Whether it is held still, as far as this process knows.
    is_held = True

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.claims: Sequence[weakref.ref[Claim]] = ()

    @abstractmethod
    def give_up(self) -> None:
        """Let others have it."""

    def forget(self) -> None:
        """Let go of a copy in a forked child; it is the parent's."""
        return


#: All that this process holds, by its key. Whoever changes it has the lock.
HOLDS: Final = dict[Hashable, Hold]()
_changing = threading.RLock()

OTHERS: Final = "another Chain of this process"  # that holds a claim


class HeldError(Exception):
    """Somebody else holds a claim, as the text says, and may release it within some seconds."""

    def __init__(self, holder: str, seconds: float, pause: float) -> None:
        super().__init__(holder)
        self.seconds, self.pause = seconds, pause


class ClaimedError(ChainError):
    """Another one saves to the chain."""


class Claim(ABC):
    """A claim on a chain, which is taken before a save and kept; messages call it by its place."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._taken: list[Hold] = []  # more than one if the place was replaced by another
        self._uses: dict[int, weakref.ref[Use]] = {}  # by number; each is added or removed by one call
        self._numbers = itertools.count()

    def __del__(self) -> None:
        if getattr(self, "_taken", ()) and _changing is not None:  # which is gone at the end of a program
            self._release()  # not by a thread: none runs any more then

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
                if not self.is_held:
                    uninterrupted(self._take)
                # First: of two that begin at once, each sees the other.
                for number, known in list(self._uses.items()):
                    if known() is None:
                        self._uses.pop(number, None)
                number = next(self._numbers)
                self._uses[number] = weakref.ref(use)
                self._check_others()
                return
            except HeldError as error:
                for number, known in list(self._uses.items()):
                    if known() is use:
                        self._uses.pop(number, None)
                if time.monotonic() - start > error.seconds:
                    raise ClaimedError(
                        f"{self._place}: {error} is saving to this chain, which has one writer at a time;"
                        " wait until it ends, or save to another directory"
                    ) from None
                pause = error.pause
            time.sleep(pause)

    @property
    def is_used(self) -> bool:
        """Whether somebody of this process saves by it."""
        uses = [known() for known in list(self._uses.values())]
        return any(use is not None and use.lasts for use in uses)

    def release(self) -> None:
        """Release the claim. Releasing it again does nothing."""
        uninterrupted(self._release)

    def _make(self) -> None:
        """Make the place of the chain, if the claim lies there."""
        return

    @property
    @abstractmethod
    def _key(self) -> Hashable:
        """What tells what is to be held from all else that this process holds."""

    @abstractmethod
    def _hold(self) -> Hold | None:
        """Return what this process holds now; ``None`` if there can be no claim.

        Raises `HeldError` if another process has it. What is held stands in `HOLDS`.
        """

    @abstractmethod
    def _used(self) -> HeldError:
        """Return the error for a claim that another `Chain` of this process uses."""

    def _check_others(self) -> None:
        """Raise `HeldError` if another claim of this process is used."""
        known = HOLDS.get(self._key)
        others = () if known is None else [claim() for claim in known.claims]
        if any(other.is_used for other in others if other is not None and other is not self):
            raise self._used()

    def _take(self) -> None:
        """Take what is to be held, once; raise `HeldError` if somebody else has it."""
        with _changing:
            self._check_others()
            if (hold := self._hold()) is not None:
                hold.claims = [*hold.claims, weakref.ref(self)]
                self._taken.append(hold)

    def _release(self) -> None:
        """Release all that no other claim of this process shares."""
        with _changing:
            for hold in self._taken:
                hold.claims = [each for each in hold.claims if each() not in (None, self)]
                if not hold.claims and HOLDS.get(hold.key) is hold:
                    del HOLDS[hold.key]
                    hold.give_up()
            self._taken = []

    @property
    def descriptors(self) -> list[int]:
        """What a worker that saves for this process keeps open."""
        holds = [hold for hold in self._taken if HOLDS.get(hold.key) is hold]
        return [hold.descriptor for hold in holds if hold.descriptor is not None]

    @property
    def is_held(self) -> bool:
        """Whether it is held at the place that is there now.

        What is held of another one stays: a worker has it, too, and it may come back.
        """
        hold = HOLDS.get(self._key)
        return hold is not None and hold in self._taken and hold.is_held

    @contextmanager
    def around_save(self) -> Iterator[Callable[[], None]]:
        """Take the claim for a save, and keep it.

        What is yielded takes it again, for a save that has made the place of the chain: before,
        there was nothing to claim.
        """
        use = Use()
        try:
            self.take(use)
            yield partial(self.take, use)
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


class _Lock(Hold):
    """A lock on a file."""

    def __init__(self, path: Path, descriptor: int, identity: _Identity, system: System) -> None:
        super().__init__(identity)
        self.descriptor: int = descriptor
        self._path, self._system = path, system

    def give_up(self) -> None:
        """Remove the file, and release the lock."""
        with suppress(OSError):
            if _identity(self._path) == self.key:
                self._system.unlink(self._path)
        with suppress(OSError):
            self._system.close(self.descriptor)

    def forget(self) -> None:
        """Close the copy."""
        with suppress(OSError):
            os.close(self.descriptor)


class DirectoryClaim(Claim):
    """A claim on a directory, by a lock on a file in it."""

    def __init__(self, directory: Path, system: System = SYSTEM) -> None:
        super().__init__(str(directory))
        self._path, self._system = directory / WRITER_NAME, system

    def _make(self) -> None:
        """Make the directory. Without one, nothing is held."""
        if not self.is_held:
            with suppress(OSError):  # the save will say so
                make_directory(self._path.parent, self._system)

    @property
    def _key(self) -> _Identity | None:
        return _identity(self._path)

    def _hold(self) -> Hold | None:
        if WINDOWS:  # it has no such locks
            return None
        try:
            return _lock_of(self._path, self._system)
        except BlockingIOError:
            raise HeldError(_holder(self._path), _SECONDS_TO_WAIT, _SECONDS_BETWEEN_ATTEMPTS) from None

    def _used(self) -> HeldError:
        return HeldError(OTHERS, _SECONDS_TO_WAIT, _SECONDS_BETWEEN_ATTEMPTS)


def _lock_of(path: Path, system: System) -> Hold | None:
    """Return a lock; ``None`` if there can be none. Raise BlockingIOError if another has it."""
    with _changing:
        for _ in range(_MAX_ATTEMPTS):
            known = HOLDS.get(_identity(path))
            if known is not None:
                return known
            descriptor = _opened(path, system)
            if descriptor < 0:
                return None
            try:
                system.lock(descriptor, False)
                status = os.fstat(descriptor)
                identity = status.st_dev, status.st_ino
                if _identity(path) == identity:
                    if status.st_nlink > 1:  # of a file elsewhere, which must stay as it is
                        system.unlink(path)
                        warn(f"{path} was a second name of a file elsewhere, and is made anew")
                        continue
                    _sign(descriptor)
                    lock = HOLDS[identity] = _Lock(path, descriptor, identity, system)
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
        status = path.lstat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


@atexit.register
def _at_exit() -> None:
    """Give up all that is held. Saves in the background are done: their end comes first."""
    with _changing:
        while HOLDS:
            HOLDS.popitem()[1].give_up()


def _after_fork() -> None:
    """Let go of the copies in a child; they are the parent's."""
    global _changing  # noqa: PLW0603 - a thread of the parent may have held it
    _changing = threading.RLock()
    while HOLDS:
        HOLDS.popitem()[1].forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
