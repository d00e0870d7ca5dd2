"""Who saves to a chain: one owner of the claim, of the settings, and of the reference.

The reference of the next delta is in one place. That is this process; or, once something is saved
in the background, the leader of the workers. What a save would do is asked of whoever has it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ...container.tree import Adapter, Room, from_framework
from ...errors import ArgumentError, ChainError, LccodecError, warn
from ...parallel import cached_property, has_lock
from ...policy.roles import Assignment, Role
from ...quantizers.base import Quantizer
from ..behind import Behind, Change
from ..overview import Progress, telling_of_save
from ..store.claim import Claim, Use
from ..store.store import WritableStore, check_next
from .judge import Judge
from .partial import select, wanted_by
from .plan import Estimate, Plan, SavedState, SavePlan, foresee
from .settings import Settings, WhenBusy, WorkerOptions

if TYPE_CHECKING:
    from ...workers.process import Arena
    from .background import Background, Job, Question, Snapshot
    from .reference import Latest
    from .saver import Saver


@dataclass(frozen=True, eq=False)
class SaveRequest:
    """What a save is given; as for `Chain.save`."""

    state: Any
    metadata: Mapping[str, Any] | None = None
    known: Mapping[str, Assignment | Role] | None = None
    only: Sequence[str] | None = None
    # `first`, `again`, `closes`: as for `SavedState`.
    first: Mapping[str, Quantizer] = field(default_factory=dict)
    again: Mapping[str, Quantizer] | None = None
    closes: bool = False

    def taken(self, adapter: Adapter | None, room: Room | None = None) -> SavedState:
        """Return what is saved with NumPy arrays, its metadata, and all known roles."""
        wanted = None if self.only is None else wanted_by(self.only)
        flat, strings, roles = from_framework(adapter, self.state, self.metadata, self.known, room, wanted)
        if self.only is not None:
            return SavedState(select(flat, self.only), strings, roles, is_selection=True)
        return SavedState(flat, strings, roles, first=self.first, again=self.again, closes=self.closes)


class Writer:
    """Saves states to a store, one after the other. Several threads may use it."""

    def __init__(  # what a chain is given
        self,
        store: WritableStore,
        adapter: Adapter | None,
        settings: Settings,
        options: WorkerOptions,
        behind: Behind,
    ) -> None:
        self.settings = settings
        self.turn = threading.RLock()  # held by whoever saves, or keeps others from it
        self._store, self._adapter, self._options = store, adapter, options
        self._behind = behind
        policy = settings.given.policy
        self._judge = Judge(store, adapter, policy, settings) if policy and policy.promise else None
        self._background: Background | None = None
        self._claim = store.claim()
        self._closed = self._is_resting = False
        self._saved_in: int | None = None  # the process
        self._last: int | None = None  # the step that was saved last in the background

    @cached_property
    def _saver(self) -> Saver:
        """Who saves in this process, made when something is saved: many chains are only read."""
        from ...workers.crew import Threads
        from .saver import Saver

        threads = Threads(1 if has_lock() else self._options.members)
        return Saver(self._store, self.settings, threads, self._behind.gives_back)

    def save(  # what `Chain.save` is given
        self, step: int, given: SaveRequest, progress: Progress, following: Any
    ) -> int:
        """Save a state; return the bytes of its file. See `Chain.save`."""
        with self.turn:
            self._begin(step, given)
            background = self._own_background()
            if following is not None and background is None and not self._store.checkpoints():
                record = self.settings.record.of_state(given.metadata or {})
                first = foresee((given.state, following), self._adapter, given.known, record)
                given = replace(given, first=first)
            if self._options.workers is None and background is None:  # by this thread, without a copy
                state = given.taken(self._adapter)
                with self._claim.around_save() as claim, telling_of_save(progress, warn) as tell:
                    size = self._saver.save(step, state, tell, claim)
                self._behind.after(Change((step,)))
                return size
            background = self._in_background()
            job = self._submit(background, step, given, progress, raises=False)
            try:
                return (0 if job is None else job.value()) or 0
            finally:
                background.give_warnings()

    def save_async(  # what `Chain.save_async` is given
        self, step: int, given: SaveRequest, progress: Progress, when_busy: WhenBusy
    ) -> Future[int | None]:
        """Save a copy of a state in the background. See `Chain.save_async`."""
        with self.turn:
            self._begin(step, given)
            background = self._in_background()
            job = self._submit(background, step, given, progress, when_busy)
        if job is not None:
            return job.future
        skipped: Future[int | None] = Future()
        skipped.set_result(None)
        return skipped

    def plan(self, given: SaveRequest) -> Plan:
        """Return what the save after all that run would do. See `Chain.plan`."""
        with self.turn:
            if (told := self._told(given, "plan")) is not None:
                parent, arrays, shortfall, group, advice = told
                return Plan(parent, arrays, shortfall, group, advice, partial(self._estimates, given))
            plan = self._planned_here(given)
            return Plan(*plan.told(), plan.estimates)

    def _estimates(self, given: SaveRequest) -> list[Estimate]:
        """Return the estimates of a plan that workers have made."""
        with self.turn:
            told: list[Estimate] | None = self._told(given, "estimates")
            return self._planned_here(given).estimates() if told is None else told

    def _told(self, given: SaveRequest, question: Question) -> Any:
        """Return what the workers say to a state; ``None`` if the reference is not theirs."""
        if (background := self._own_background()) is None:
            return None
        return background.ask(partial(self._copied, 0, given, question=question))

    def _planned_here(self, given: SaveRequest) -> SavePlan:
        return self._saver.plan(given.taken(self._adapter))

    def _in_background(self) -> Background:
        """Return what saves in the background; its workers have the reference from now on."""
        if (found := self._own_background()) is not None:
            return found
        from .background import open_background

        self._background = open_background(
            self._store, self.settings, self._options, self._claim, self._saver, self._behind
        )
        return self._background

    def _submit(  # what is saved, and how
        self,
        background: Background,
        step: int,
        given: SaveRequest,
        progress: Progress,
        when_busy: WhenBusy = "wait",
        *,
        raises: bool = True,
    ) -> Job | None:
        """Start a save in the background; return ``None`` if it is skipped."""
        index = self._next_step(step, background)
        copy = partial(self._copied, index, given, watched=progress is not False)
        use, before, job = Use(), self._last, None
        try:
            self._claim.take(use, make=True)
            self._last = index  # before the thread may say that the save has failed
            job = background.submit(
                *(copy, when_busy, use), failed=self._ask_again, progress=progress, raises=raises
            )
        finally:
            background.give_up(use)  # unless the save has it
            if job is None:
                self._last = before
        return job

    def _next_step(self, step: object, background: Background) -> int:
        """Return a step as an int; raise ``ArgumentError`` if it does not come after all others.

        A store that is far is not asked again after a save: a loop must not wait for it.
        """
        begun = [*background.steps, *([] if self._last is None else [self._last])]
        if self._store.far and begun:
            return check_next(step, begun[-1:], self._store.path)
        return self._store.next_step(step, background.steps)[0]

    def _ask_again(self) -> None:
        """Ask the store again after a save that failed."""
        self._last = None

    def _copied(self, step: int, given: SaveRequest, arena: Arena, **how: Any) -> Snapshot:
        """Copy a state into an arena, as workers take it."""
        from .background import Staging

        staging = Staging(arena)
        state = given.taken(self._adapter, staging)
        told = {**self.settings.for_workers(), **how}
        told |= {"metadata": state.metadata, "is_selection": state.is_selection, "first": state.first}
        return staging.snapshot(state.flat, step=step, known=state.known, **told)

    def _own_background(self) -> Background | None:
        """Return what saves in the background; what a fork has copied runs in the parent alone."""
        is_own = self._background is not None and self._background.process == os.getpid()
        return self._background if is_own else None

    def _begin(self, step: object, given: SaveRequest) -> None:
        """Refuse to save to a closed chain, note that this process saves, and let a loss judge.

        A loss is a function of a whole state.
        """
        self._saved_in = os.getpid()
        if self._is_resting:  # only a signal handler comes here then: other threads wait for their turn
            raise ChainError(
                f"{self._store.path}: the signal came while the chain's files are changed, or its newest"
                " state is published; save afterwards"
            )
        if self._closed:
            raise ArgumentError(f"{self._store.path}: the chain is closed; open it again to save")
        if self._judge is not None and given.only is None:
            self._judge.look(step, given.state)

    def wait(self, timeout: float | None) -> bool:
        """Return whether no save runs, after waiting for that. See `Chain.wait`."""
        return (background := self._own_background()) is None or background.wait(timeout)

    @property
    def pending(self) -> list[int]:
        """The steps of the saves in the background that are not done."""
        return [] if (background := self._own_background()) is None else background.steps

    @property
    def failure(self) -> BaseException | None:
        """The error of a save in the background that failed, until a call raises it."""
        return None if (background := self._own_background()) is None else background.failure

    def abort(self) -> None:
        """Give up all saves in the background that are not done."""
        if (background := self._own_background()) is not None:
            background.abort()

    @contextmanager
    def at_rest(self) -> Iterator[Claim]:
        """Let nothing be saved meanwhile, and release the reference: its files may change.

        It waits for saves in the background. The error of one that failed is raised.
        """
        with self.turn:
            self._release()
            try:
                self._is_resting = True
                yield self._claim
            finally:
                self._is_resting = False

    @contextmanager
    def newest_held(self) -> Iterator[Latest | None]:
        """Let nothing be saved meanwhile; yield the newest state, if it is in this process."""
        with self.turn:
            is_here = "_saver" in vars(self) and self._own_background() is None
            before = self._is_resting
            try:
                self._is_resting = before or is_here  # a signal handler's save would change its arrays
                yield self._saver.latest if is_here else None
            finally:
                self._is_resting = before

    def _release(self) -> None:
        """Wait for all saves, and release the reference. Raise the failure of a save."""
        self._last = None
        if "_saver" in vars(self):  # else nothing was saved, and it is not loaded to forget that
            self._saver.forget()
        background = self._own_background()
        if background is not None:
            background.end()  # until then no other may begin
            self._background = None
            background.raise_failure()
            background.give_warnings()

    def release_lock(self) -> None:
        """Let another process save, until the next save. See `Chain.release_lock`."""
        with self.turn:
            if self._background is not None:
                self._release()
            self._claim.release()

    def close(self, settle: bool = True) -> None:
        """Wait for all saves, and release all that saving needs. See `Chain.close`.

        `settle` says whether to settle the groups of the history that are complete.
        """
        with self.turn:
            try:
                try:
                    self._release()
                except LccodecError:  # the failure of a save
                    self._closed = True
                    raise
                self._closed = True  # until then a signal handler may still save
                if settle and self._saved_in == os.getpid():
                    with suppress(ChainError), self._claim.held():  # or another process saves now
                        self._saver.settle()
            finally:
                try:
                    self._let_go()
                finally:
                    self._let_go()  # the first call may have been interrupted

    def _let_go(self) -> None:
        """Release the claim; if an interrupt has left saves that run, when these are done."""
        background = self._own_background()
        if background is None or not background.steps:
            self._claim.release()
        else:
            background.then(self._claim.release)
