"""Mirrors behind the saves: a thread for each copies what was committed, and no save waits for it.

What is to be copied is found by comparing listings, so nothing is kept for a mirror that cannot be
reached. It is asked again, later and later, each wait drawn at random (full jitter), so that many
writers do not come back at the same moment.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import Final

from ...container.system import Place, StrPath, checked_place
from ...errors import ChainError, DataError, LccodecError, StorageError, reason_of, warn
from ..behind import Change, Rounds
from ..read.checkpoint import open_name
from ..store.opening import writable_store
from ..store.store import Store, WritableStore
from .stand_in import StandIn
from .transfer import Mirror, MirrorState, MirrorUpkeep, bring_newest

_FIRST_WAIT: Final = 1.0  # seconds after the first failure, at most
_LONGEST_WAIT: Final = 60.0
_LONGEST_WAIT_OF_CLOSE: Final = 2.0
_SECONDS_TO_STOP: Final = 5.0  # within a call to a store
_SECONDS_OF_ONE_CALL: Final = 5.0  # that a store is asked again, within one attempt

#: How long closing a chain waits for its mirrors, unless it is told otherwise.
SECONDS_TO_CLOSE: Final = 60.0


class _StoppedError(Exception):
    """The chain is closed, and does not wait any longer."""


class _Copier:
    """Keeps one mirror up to date, in a thread that runs while there is something to do."""

    def __init__(self, mirror: Mirror) -> None:
        self.mirror = mirror
        self.rounds = Rounds(self._bring, daemon=True)
        self._hurry: SimpleQueue[None] = SimpleQueue()  # each entry ends one wait
        self._wait = _FIRST_WAIT
        self._is_closing = self._is_over = False
        self._is_told = False  # of an error, since the mirror worked last
        self.is_rolling_back = False  # the chain: what differs then is no error

    def look(self) -> bool:
        """Compare the mirror with its chain; return whether it lacks something, or may do so.

        Raises ``ChainError`` if it has another chain, or a newer one.
        """
        try:
            return bool(self.mirror.look()[2].names) or self.mirror.is_to_follow
        except (StorageError, DataError) as error:
            self.mirror.error = reason_of(error)
            return True

    def begin_to_close(self) -> None:
        """Let the thread hurry; it ends when nothing is left."""
        self._is_closing = True
        self._hurry.put(None)

    def close(self, end: float) -> None:
        """Wait until nothing is left, until some time of `time.monotonic`, and end the thread."""
        if not self.rounds.wait(max(0.0, end - time.monotonic())):
            self._is_over = True
            self._hurry.put(None)
            self.rounds.wait(_SECONDS_TO_STOP)
        self.mirror.release()
        self._is_closing = self._is_over = False

    def news(self) -> str | None:
        """Return the error, if the mirror worked when this was called before."""
        error = self.mirror.error
        is_new = error is not None and not self._is_told
        self._is_told = error is not None
        return error if is_new else None

    def _bring(self) -> None:
        """Copy what there is, in the thread; after a failure once more, later."""
        if self._is_over:
            return
        noted = self.mirror.rollbacks
        self.mirror.mirror.call_between(self._go_on)
        try:
            self.mirror.bring(self._go_on)
            self.mirror.error, self._wait = None, _FIRST_WAIT
            return
        except _StoppedError:
            return
        except ChainError as error:  # which does not pass by itself
            if not self.is_rolling_back and self.mirror.rollbacks == noted:
                self.mirror.error = reason_of(error)
            return
        except (LccodecError, OSError, RuntimeError, MemoryError) as error:
            self.mirror.error = reason_of(error)
        self.rounds.again()
        longest = _LONGEST_WAIT_OF_CLOSE if self._is_closing else _LONGEST_WAIT
        with suppress(Empty):
            self._hurry.get(timeout=random.uniform(0, min(self._wait, longest)))  # noqa: S311 - no secret
        self._wait = min(2 * self._wait, _LONGEST_WAIT)

    def _go_on(self) -> None:
        if self._is_over:
            raise _StoppedError


class Mirrors:
    """The mirrors of a chain: brought up to date behind its saves, and read where files are lost.

    Several threads may call it.

    Parameters
    ----------
    store
        The chain.
    places
        The mirrors.
    care
        What is done to them besides copying.
    seconds
        How long `close` waits for them.

    Attributes
    ----------
    instead
        The mirror that is read as long as the chain is empty; or ``None``.

    Raises
    ------
    ChainError
        If a mirror has another chain, or a newer one.
    StorageError
        If the chain is empty, and a mirror cannot be reached: it may hold the run.
    """

    def __init__(
        self,
        store: WritableStore,
        places: Sequence[Place],
        care: MirrorUpkeep | None = None,
        seconds: float = SECONDS_TO_CLOSE,
    ) -> None:
        self._store, self._places, self._seconds = store, places, seconds
        self.acts = bool(places)
        self._read: list[Store] | None = None
        self.instead: Store | None = None
        hurried = [writable_store(place, _SECONDS_OF_ONE_CALL) for place in places]
        made = MirrorUpkeep(lambda *_, **__: None) if care is None else care
        self._copiers = [_Copier(Mirror(store, mirror, made)) for mirror in hurried]
        if not places:
            return
        if not store.steps():
            self._look_for_chain()
        for copier in self._copiers if self.instead is None else ():
            if copier.look():
                copier.rounds.ask()

    def _look_for_chain(self) -> None:
        """Read from the first mirror that has a step, since the chain has none."""
        for mirror in self.to_read():
            if mirror.steps():
                self.instead = mirror
                warn(f"{self._store.path} is empty: it is read from the mirror {mirror.path}")
                return

    def to_read(self) -> list[Store]:
        """Return the mirrors, to be read by the thread of a restore."""
        if self._read is None:
            self._read = self.opened()
        return self._read

    def opened(self) -> list[Store]:
        """Return the mirrors, opened anew, to be read by the thread that calls this."""
        return [writable_store(place) for place in self._places]

    def before_save(self) -> bool:
        """Bring the newest step of a mirror to a chain that is empty; return whether that was done.

        Errors are those of `lccodec.chain.mirror.transfer.bring_newest`.
        """
        source, self.instead = self.instead, None
        if source is None or self._store.steps():
            return False
        try:
            steps = bring_newest(source, self._store)
        except BaseException:
            self.instead = source
            raise
        warn(f"{self._store.path}: step {steps[-1]} was brought back from the mirror {source.path}")
        self.after(Change())
        return True

    def after(self, change: Change) -> None:
        """Begin to copy what there is now. A mirror that failed is told of once, by a warning."""
        for copier in self._copiers:
            if (error := copier.news()) is not None:
                state = copier.mirror.state()
                warn(f"{self._store.path}: the mirror {state.place} is {state.files:,} files behind: {error}")
            if change.rolled_back is not None and not change.added:
                copier.mirror.rolled_back(change.rolled_back)
            copier.rounds.ask()

    def gives_back(self, name: str) -> bool:
        """Return whether mirrors have a checkpoint and all that it needs, as is verified there."""
        with suppress(LccodecError):
            if others := [mirror.afresh() for mirror in self.opened()]:
                with open_name(StandIn(self._store.afresh(), others, lambda *_: None), name) as file:
                    file.verify()
                return True
        return False

    @contextmanager
    def rolling_back(self) -> Iterator[None]:
        """Complain of no difference, as long as the chain is rolled back."""
        for copier in self._copiers:
            copier.is_rolling_back = True
        try:
            yield
        finally:
            for copier in self._copiers:
                copier.is_rolling_back = False

    def states(self) -> list[MirrorState]:
        """Return how far each mirror is behind."""
        return [copier.mirror.state() for copier in self._copiers]

    def needed_steps(self) -> set[int]:
        """Return the newest step that each mirror has: it shows that the two are of one chain."""
        return {step for each in self._copiers if (step := each.mirror.newest_arrived) is not None}

    def close(self) -> None:
        """Wait for the mirrors within the limit, and warn of what is left."""
        end = time.monotonic() + self._seconds
        for copier in self._copiers if self.instead is None else ():
            if copier.mirror.state().files:  # as after groups were coded again
                copier.rounds.ask()
            copier.begin_to_close()
        for copier in self._copiers:
            copier.close(end)
        for state in self.states() if self.instead is None else ():
            if state.files or state.error:
                skipped = "".join(f"; {name}: {text}" for name, text in state.skipped.items())
                warn(f"{self._store.path}: the mirror {state}{skipped}; the next process goes on")


def checked_mirrors(mirror: StrPath | Sequence[StrPath] | None) -> list[Place]:
    """Return the places of mirrors: one, several, or none for ``None``."""
    if mirror is None:
        return []
    return [checked_place(each) for each in ([mirror] if isinstance(mirror, str | os.PathLike) else mirror)]
