"""Saves in the background: a call copies the state, and all else happens beside the caller.

One thread of this process asks the workers and waits for them. Where there can be no workers, the
same thread saves by itself.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from contextlib import suppress
from typing import Any

from ....errors import StorageError, WorkerError, warn
from ....parallel import has_lock
from ....policy.policy import Policy
from ....printable import printable
from ....workers.memory import Arena, PrivateArena
from ....workers.task import Done
from ...progress import Progress, Tell, telling_of_save, untold
from ...store.claim import Claim
from ...store.names import checkpoint_name
from ...store.store import WritableStore
from ..options import WhenBusy
from ..saver import Saver
from ..settings import LOG
from .client import Client, find_obstacle
from .state_copy import Snapshot
from .worker import Opening, Report

_open: weakref.WeakSet[Background] = weakref.WeakSet()


class Background:
    """The saves of one chain in the background, one after the other, in the order of the calls.

    Parameters
    ----------
    store
        Where the chain is kept.
    client
        The workers; ``None`` if there can be none.
    saver
        Saves in this process where workers cannot be started.
    max_concurrent_saves
        The most saves that may run or wait at a time. Each has a copy of its state.
    after
        A call that is made after each save, by the thread that waits for it.
    """

    def __init__(
        self,
        store: WritableStore,
        client: Client | None,
        saver: Saver,
        max_concurrent_saves: int,
        after: Callable[[], None] = lambda: None,
    ) -> None:
        self.process = os.getpid()
        self._store = store
        self._client = client
        self._saver = saver
        self._max_concurrent_saves = max_concurrent_saves
        self._after = after
        self._free = [PrivateArena() if client is None else Arena() for _ in range(max_concurrent_saves)]
        self._running: deque[tuple[int, Future[int | None]]] = deque()
        self._failed: deque[BaseException] = deque()  # not told yet
        self._warnings: deque[str] = deque()  # not given yet
        self._aborting = False
        self._changing = threading.Lock()
        self._pool = ThreadPoolExecutor(1, "lccodec-save")
        _open.add(self)

    @property
    def failure(self) -> BaseException | None:
        """The error of the first save that failed, if it was not raised yet."""
        return self._failed[0] if self._failed else None

    @property
    def steps(self) -> list[int]:
        """The steps of the saves that run or wait."""
        return [step for step, future in list(self._running) if not future.done()]

    def ask(self, make: Callable[[Arena], Snapshot]) -> Any:
        """Return what the workers answer to a question about a state, once no save runs.

        Without workers it is ``None``. Their errors are raised, and their warnings given. Failures
        of saves are raised by later calls.
        """
        wait_for([future for _, future in list(self._running)])
        if self._client is None:
            return None
        arena = self._free.pop()
        try:
            report = self._client.request(make(arena), untold)
        finally:
            self._release(arena)
        self._note(report)
        self.give_warnings()
        return report.done.value()

    def _note(self, report: Report) -> None:
        """Log what workers have logged, and keep their warnings."""
        for level, text in report.records:
            LOG.log(level, "%s", text)
        self._warnings.extend(report.warnings)

    def submit(  # what to save, and what to do beside it
        self,
        make: Callable[[Arena], Snapshot],
        step: int,
        when_busy: WhenBusy,
        *,
        progress: Progress = False,
        raises: bool = True,
    ) -> Future[int | None]:
        """Start a save; return the future of the bytes of its file.

        Parameters
        ----------
        make
            Copies the state into an arena.
        step
            Its step.
        when_busy
            What to do if no more saves may run: with ``"skip"``, the result is ``None``.
        progress
            Who is told how many arrays are coded, by the thread of the saves.
        raises
            Whether a failure is raised by the next call, as nobody may ask the future.

        Raises the failure of an earlier save; then nothing is saved.
        """
        self.raise_failure()
        while (oldest := self._oldest_running()) is not None:
            if when_busy == "skip":
                skipped: Future[int | None] = Future()
                skipped.set_result(None)
                return skipped
            wait_for([oldest])
            self.raise_failure()
        arena = self._free.pop()
        future: Future[int | None] = Future()
        try:
            try:
                snapshot = make(arena)
            except StorageError as error:
                arena = self._go_on_alone(f"{error}; saves go on in a thread of this process")
                snapshot = make(arena)
            self._running.append((step, future))
            self._pool.submit(self._run, snapshot, arena, future, progress, raises)
        except BaseException:
            self._release(arena)
            raise
        self.give_warnings()
        return future

    def _oldest_running(self) -> Future[int | None] | None:
        """Return the future to wait for before another save may start; ``None`` if it may now."""
        while self._running and self._running[0][1].done():
            self._running.popleft()
        return self._running[0][1] if len(self._running) >= self._max_concurrent_saves else None

    def _run(
        self, snapshot: Snapshot, arena: Arena, future: Future[int | None], progress: Progress, raises: bool
    ) -> None:
        """Save in the pool's thread, and settle the future last."""
        if not future.set_running_or_notify_cancel():
            self._release(arena)
            return
        step = snapshot.step
        before = None if self._store.far else self._stored(step)  # nobody waits for what is not needed
        try:
            with telling_of_save(progress, self._warnings.append) as tell:
                report = self._ask(snapshot, tell)
        except BaseException as error:
            report = Report(Done(error=error))
        del snapshot
        self._release(arena)
        self._note(report)
        failure, result = report.done.error, report.done.result
        if isinstance(failure, WorkerError) and (result := self._kept(step, before)) is not None:
            self._warnings.append(f"step {step} is on the disk, but its save did not end: {failure}")
            failure = None
        if failure is None:
            try:
                self._after()
            except Exception as error:  # the future must be settled in any case
                self._warnings.append(f"step {step} is saved, but what follows a save failed: {error!r}")
            future.set_result(result)
            return
        if raises and not self._aborting:
            failure.add_note(f"step {step} was not saved, by a save in the background")
            self._failed.append(failure)
        future.set_exception(failure)

    def _stored(self, step: int) -> tuple[int, ...] | None:
        """Return what tells the file of a step from another; ``None`` if there is none."""
        try:
            return self._store.identity(self._name_of(step))
        except StorageError:
            return None

    def _name_of(self, step: int) -> str:
        """Return the file of a step: the checkpoint, where nobody has looked before the save."""
        return checkpoint_name(step) if self._store.far else self._store.name_of(step)

    def _kept(self, step: int, before: tuple[int, ...] | None) -> int | None:
        """Return the bytes of the file of a step whose worker is gone, if it was committed.

        An exact file may have had the step before: then its save was cut short, too.
        """
        stored = self._stored(step)
        if stored is None or stored == before:
            return None
        try:
            self._store.sync()  # the worker may not have come to that
            return self._store.size([self._name_of(step)])
        except StorageError:
            return None

    def _ask(self, snapshot: Snapshot, tell: Tell) -> Report:
        if self._client is not None:
            try:
                return self._client.request(snapshot, tell)
            except WorkerError as error:
                if self._client.started:
                    raise
                self._go_on_alone(f"{error}; saves go on in a thread of this process")
        self._store.call_between(lambda: None)  # so that this thread is patient
        flat, known = snapshot.flat(), snapshot.assignments()
        return Report(Done(self._saver.save(snapshot.step, flat, snapshot.metadata, known, tell)))

    def _go_on_alone(self, warning: str) -> Arena:
        """Save without workers from now on; return an arena in the memory of this process."""
        client, self._client = self._client, None
        if client is not None:
            client.close()
            self._warnings.append(warning)
        self._free = [PrivateArena() for _ in self._free]
        return PrivateArena()

    def _release(self, arena: Arena) -> None:
        arena.clear()
        self._free.append(arena)

    def raise_failure(self) -> None:
        """Raise the error of a save that failed, once."""
        with suppress(IndexError):
            raise self._failed.popleft()

    def give_warnings(self) -> None:
        """Give the warnings of saves that are done, at the line of the user."""
        while self._warnings:
            warn(self._warnings.popleft())

    def wait(self, timeout: float | None = None) -> bool:
        """Return whether no save runs, after waiting for that. Failures are raised."""
        done = not wait_for([future for _, future in list(self._running)], timeout).not_done
        self.raise_failure()
        self.give_warnings()
        return done

    def abort(self) -> None:
        """Give up all saves that are not done."""
        self._aborting = True
        try:
            futures = [future for _, future in list(self._running)]
            for future in futures:
                future.cancel()
            while not all(future.done() for future in futures):
                if self._client is not None:
                    self._client.kill()
                wait_for(futures, 0.1)
        finally:
            self._aborting = False

    def close(self) -> None:
        """Wait for all saves, and end the workers. A failure is raised."""
        self._pool.shutdown()
        if self._client is not None:
            self._client.close()
        _open.discard(self)
        self.raise_failure()
        self.give_warnings()


def open_background(
    store: WritableStore,
    opening: Opening,
    claim: Claim,
    policy: Policy,
    saver: Saver,
    max_concurrent_saves: int,
    after: Callable[[], None],
    comes_back: Callable[[str], bool],
) -> Background:
    """Return the saves of a chain in the background; warn if there can be no workers.

    `comes_back` is as for `Saver`; the others are as for `Background`.
    """
    obstacle = find_obstacle(policy)
    if not store.shared:
        obstacle = "no other process has this store"
    elif obstacle is not None and has_lock():
        warn(f"{store.path}: workers cannot save; a thread of this process saves instead: {obstacle}")
    client = None if obstacle else Client(store, opening, claim, comes_back)
    if client is not None:
        saver.forget()  # the workers have the reference from now on
    return Background(store, client, saver, max_concurrent_saves, after)


@atexit.register
def _at_exit() -> None:
    """Wait for all saves at the end of the program, and tell what went wrong."""
    for background in list(_open):
        if background.process != os.getpid():
            continue
        try:
            background.close()
        except Exception as error:
            lines = f"lccodec: {error}", *getattr(error, "__notes__", ())
            print(printable("\n  ".join(lines), lines=True), file=sys.stderr)
