"""Who saves to a chain: one owner of the claim, of the settings, and of the reference.

The reference of the next delta is in one place. That is this process; or, once something is saved
in the background, the leader of the workers. What a save would do is asked of whoever has it.

*A forecast* is what two states of a run tell. About how many bytes a chain takes: the first state
is estimated as a keyframe and the second as a delta, as `Plan.estimates` does it; all other states
are taken to be like them. And a good first keyframe: its steps follow the movement. Without the
next state, they are parts of the values' spread. In a fine-tuning little moves, so such a step is
many movements wide, and even a hundred deltas do not make up for it.

*A judge* says how wide the steps of weights may be for a promise in intervals. What an error of the
weights does to a run cannot be seen in the state alone: the same error costs nothing in a wide
valley, and intervals of work in a narrow one. So at some saves, and where weights begin to move by
another length, a judge lets the loss of the history's newest state be computed, as it is restored,
beside that of the exact one. The cost that it estimates has two terms. A state that lies behind its
run costs what it lies behind; one that has an error costs a part of the rise of its loss, as most
of such a rise heals in the next iterations. The steps are then widened as far as the promise
allows, or narrowed. They change little at a time: errors take some saves to settle.

Source: ``spec/decisions/0011-lossy-keyframes.md``, and the measurements in
``spec/decisions/0015-presets-by-promise.md``.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from ...container.tree import flatten, unflatten
from ...element_types import Array, components, from_components
from ...errors import ArgumentError, ChainError, LccodecError, reason_of, warn
from ...parallel import has_lock
from ...policy.declared import obeying
from ...policy.policy import Candidate, Policy
from ...policy.presets import POLICIES, resolve_policy
from ...policy.record import Record
from ...policy.roles import Assignment, Role
from ...quantizers.base import Quantizer
from ...quantizers.lossless import Lossless
from ..adapter import Adapter, Room, as_framework, from_framework
from ..behind import Behind, Change
from ..progress import Progress, telling_of_save
from ..read.checkpoint import open_step
from ..read.replay import DecodedArray
from ..store.claim import Claim, Use
from ..store.store import Store, WritableStore, check_next, step_index
from .partial import select, wanted_by
from .plan import Estimate, Plan, SavedState, SavePlan, candidates, make_plan
from .settings import KEYFRAME_EVERY, LOG, Cadence, Settings, WhenBusy, WorkerOptions

if TYPE_CHECKING:
    from ...workers.process import Arena
    from .background import Background, Job
    from .reference import Latest
    from .saver import Saver
    from .state_copy import Question, Snapshot


def foresee(
    pair: tuple[Any, Any],
    adapter: Adapter | None,
    known: Mapping[str, Assignment | Role] | None,
    record: Record,
) -> dict[str, Quantizer]:
    """Return the quantizers of `first_keyframe` for two states, given as to `Chain.save`."""
    if record.policy.keyframes == "exact":
        return {}
    arrays = []
    for state in pair:
        flat, _, roles = from_framework(adapter, state, None, known)
        arrays.append(candidates(flat, {}, record.roles, roles))
    return first_keyframe(arrays[0], arrays[1], record.policy)


def first_keyframe(
    arrays: Sequence[Candidate], following: Sequence[Candidate], policy: Policy
) -> dict[str, Quantizer]:
    """Return the quantizers of a first keyframe by name, where the next state has the array too.

    An array that does not move is exact, and so is one whose steps would take as many bytes.
    Arrays that the policy stores as it always does are left out.
    """
    policy = obeying(policy, arrays)
    later = {c.name: c for c in following}
    found: dict[str, Quantizer] = {}
    for c in arrays:
        quantizer = policy.choose_keyframe(c.name, c.role, c.kind, c.elements)
        other = later.get(c.name)
        if not quantizer.lossy or other is None or (other.kind, other.shape) != (c.kind, c.shape):
            continue
        foreseen = quantizer.foreseen(c.bits, other.bits, c.kind)
        if foreseen is not quantizer:
            found[c.name] = foreseen
    lossy = [c for c in arrays if c.name in found and found[c.name].lossy]
    if not lossy:
        return found
    exact = dict.fromkeys(found, Lossless())
    lossy_bytes, exact_bytes = (
        [estimate.stored_bytes for estimate in make_plan(lossy, policy, None, 1.0, choice).estimates()]
        for choice in (found, exact)
    )
    for c, steps, whole in zip(lossy, lossy_bytes, exact_bytes, strict=True):
        if whole <= steps:
            found[c.name] = Lossless()
    return found


#: Of a checkpoint beside its frames: the HDF5 structure, and the manifest (SPEC 8).
_FILE_BYTES: Final = 800
_ARRAY_BYTES: Final = 60


@dataclass(frozen=True)
class Forecast:
    """About how many bytes a chain takes."""

    policy: str  # name of the policy
    keyframe: int  # bytes of a keyframe
    delta: int  # bytes of a delta
    exact: int  # bytes of the newest state bit for bit
    nbytes: int  # bytes of the arrays of a state

    def chain_bytes(self, states: int, exact: bool = True) -> int:
        """Return the bytes of so many checkpoints, and of the exact file of a lossy chain.

        `exact` says whether there is such a file.
        """
        keyframes = -(-states // (KEYFRAME_EVERY + 1))
        beside = self.exact if exact and self.policy != "lossless" else 0
        return keyframes * self.keyframe + (states - keyframes) * self.delta + beside


def forecast(
    states: Sequence[Any], policy: str | Policy, known: Mapping[str, Assignment | Role] | None = None
) -> Forecast:
    """Return about how many bytes a chain of states like these takes. Nothing is written.

    `states`: one state, or two that follow each other, as given to `Chain.save` without an adapter.
    `policy`: the name of a preset, or a policy. `known`: roles of arrays by full name.

    Examples
    --------
    >>> import numpy as np
    >>> states = [{"weight": np.full(100_000, x, np.float32)} for x in (1, 2)]
    >>> found = forecast(states, "lossless")
    >>> found.keyframe < 2000, found.chain_bytes(10) == found.keyframe + 9 * found.delta
    (True, True)
    """
    chosen, exact = resolve_policy(policy), POLICIES["lossless"]
    flats = [from_framework(None, state, None, known) for state in states[:2]]
    arrays = candidates(flats[0][0], {}, {}, flats[0][2])
    parents = {c.name: DecodedArray(c.kind, c.shape, c.bits) for c in arrays}
    first, delta = {}, None
    if len(flats) > 1:
        after = candidates(flats[1][0], parents, {}, flats[1][2])
        first = first_keyframe(arrays, after, chosen)
        delta = _nbytes(make_plan(after, chosen, 0))
    keyframe = _nbytes(make_plan(arrays, chosen, None, 1.0, first))
    return Forecast(
        chosen.name,
        keyframe,
        keyframe if delta is None else delta,
        keyframe if chosen == exact else _nbytes(make_plan(arrays, exact, None)),
        sum(c.bits.nbytes for c in arrays),
    )


def _nbytes(plan: SavePlan) -> int:
    frames = sum(estimate.stored_bytes for estimate in plan.estimates())
    return frames + _FILE_BYTES + _ARRAY_BYTES * len(plan.candidates)


_COST_OF_LAG: Final = 1.5  # intervals, of a state that lies one interval behind
_COST_OF_RISE: Final = 1 / 12  # intervals, of a loss that is higher by the fall of one interval
_SHARE_OF_PROMISE: Final = 2 / 3  # what weights may cost; the rest is for first moments

_FIRST_SAVES: Final = (1, 2, 4, 6, 8, 12, 16, 24)  # that are judged, whatever the time it takes
_JUMP: Final = 2.0  # of the movement since the last judgement: another one is due
_SAVES_BETWEEN: Final = 4  # two judgements later on, at least: errors take so long to settle
_SHARE_OF_TIME: Final = 0.01
_SHARE_OF_TIME_IN_JUMPS: Final = 0.05
_LOSSES: Final = 8  # of exact states, from which the fall of an interval is estimated

_WIDER, _NARROWER = 1.25, 0.6  # the most that one judgement changes the steps by
_WIDEST, _NARROWEST = 4.0, 1 / 16  # of all


@dataclass(frozen=True)
class Judgement:
    """What came of one look."""

    step: int  # the step that was restored
    rise: float  # its loss less that of the exact state
    fall: float  # by how much the loss of the run falls in an interval; at least by how much it scatters
    lag: float  # of the weights, in intervals; 0 if it is not known, or they lie ahead
    cost: float  # of the weights, in intervals, as estimated
    width: float  # the factor of the steps of weights from now on


class Judge:
    """Judges the states of a chain by the `loss` of its policy, whose steps it widens in the
    settings.

    The policy is the one that was given; without a loss it is never judged.
    """

    def __init__(
        self, store: Store, adapter: Adapter | None, policy: Policy | None, settings: Settings
    ) -> None:
        self._store, self._adapter, self._settings = store, adapter, settings
        self._loss: Callable[[Any], Any] | None
        self._loss, self._promise = (policy and policy.promise) or (None, 0.0)
        self._exact: list[tuple[int, float]] = []  # steps and losses of exact states
        self._saves, self._first, self._judged = 0, 0, 0
        self._began, self._spent = 0.0, 0.0  # in seconds
        self._moved: float | None = None  # the weights in the interval before the last judgement

    def look(self, step: object, state: Any) -> Judgement | None:
        """Judge the newest step of the history, if it is time to, before `state` is saved.

        The loss is given copies; the last is one of the exact state, so that a loss which loads
        what it is given into the model of the run leaves that as it was. An error of the loss is a
        warning, and ends judging.
        """
        index = step_index(step) if self._loss is not None else None
        if index is None:
            return None
        now = time.monotonic()
        if not self._saves or (self._exact and index <= self._exact[-1][0]):  # it begins, or anew
            self._exact, self._saves, self._first, self._judged, self._began = [], 0, index, 0, now
        self._saves += 1
        moved = self._movement()
        self._moved = self._moved or moved
        elapsed = now - self._began
        if not self._is_due(elapsed) and not self._has_jumped(moved, elapsed):
            return None
        self._judged, self._moved = self._saves, moved
        try:
            return self._look(index, state)
        except Exception as error:
            self._loss = None
            warn(f"{self._store.path}: loss= raised an error and is not called again: {reason_of(error)}")
            return None
        finally:
            self._spent += time.monotonic() - now

    def _is_due(self, elapsed: float) -> bool:
        if self._saves <= _FIRST_SAVES[-1]:
            return self._saves in _FIRST_SAVES
        rested = self._saves - self._judged >= _SAVES_BETWEEN
        return rested and self._spent <= _SHARE_OF_TIME * elapsed

    def _has_jumped(self, moved: float | None, elapsed: float) -> bool:
        """Return whether weights move by another length, as after a restart of the rate."""
        if self._spent > _SHARE_OF_TIME_IN_JUMPS * elapsed:
            return False
        return bool(moved and self._moved) and not 1 / _JUMP < (moved or 0) / (self._moved or 1) < _JUMP

    def _movement(self) -> float | None:
        """Return how far the weights moved before the newest step; ``None`` if it is not known."""
        step = max(self._store.steps(), default=None)
        if step is None:
            return None
        try:
            with open_step(self._store, step) as file:
                figures = file.info().figures.get("weight")
        except LccodecError:  # a save says so
            return None
        return None if figures is None else figures.movement

    def _look(self, step: int, state: Any) -> Judgement | None:
        arrays, metadata = (state, {}) if self._adapter is None else self._adapter.to_numpy(state, {})
        flat = flatten(arrays)
        copies = [_copied(array, None if self._adapter is None else "bits") for array in flat.arrays]
        found = None
        try:
            if self._exact and self._exact[-1][0] in self._store.steps():
                found = self._restored(*self._exact[-1])
        finally:
            exact = unflatten(flat.tree, copies, flat.scalars)
            loss = self._evaluated(as_framework(self._adapter, exact, metadata, None))
        if math.isfinite(loss):
            self._exact = [*self._exact, (step, loss)][-_LOSSES:]
        return None if found is None else self._judgement(step, *found)

    def _evaluated(self, state: Any) -> float:
        return math.nan if self._loss is None else float(self._loss(state))

    def _restored(self, step: int, exact: float) -> tuple[int, float, float | None]:
        """Return a step, the rise of its loss as restored, and its lag."""
        with open_step(self._store, step) as file:
            figures = file.info().figures.get("weight")
            lag = None if figures is None else figures.lag
            bits: Literal["bits"] | None = None if self._adapter is None else "bits"
            state = as_framework(self._adapter, file.state(dtype=bits), file.metadata(), None)
        return step, self._evaluated(state) - exact, lag

    def _judgement(self, now: int, step: int, rise: float, lag: float | None) -> Judgement | None:
        """Change the steps of weights for what was found of a step."""
        policy = self._settings.record.policy
        fall = self._fall((now - self._first) / max(self._saves - 1, 1))
        if not math.isfinite(rise) or fall <= 0:
            return None
        behind = max(lag or 0.0, 0.0)
        cost = _COST_OF_LAG * behind + _COST_OF_RISE * max(rise, 0.0) / fall
        allowed = _SHARE_OF_PROMISE * self._promise
        change = math.sqrt(allowed / cost) if cost > 0 else math.inf
        width = policy.width * min(max(change, _NARROWER), _WIDER)
        width = round(min(max(width, _NARROWEST), _WIDEST), 3)
        self._settings.judged = width
        LOG.info(
            "%s: step %s as restored costs %.2g intervals (lag %.2g, rise %.2g of a fall of %.2g); the"
            " steps of weights are those of the policy times %s",
            *(self._store.path, step, cost, behind, rise, fall, width),
        )
        return Judgement(step, rise, fall, behind, cost, width)

    def _fall(self, interval: float) -> float:
        """Return by how much the loss of exact states falls in an interval, or scatters."""
        steps, losses = np.array(self._exact, np.float64).reshape(-1, 2).T
        if steps.size < 2:
            return 0.0
        slope, start = np.polyfit(steps - steps[-1], losses, 1)
        scatter = float(np.std(losses - start - slope * (steps - steps[-1])))
        return max(-float(slope) * interval, scatter)


def _copied(array: Array, dtype: str | None) -> Array:
    """Return a copy of an array, as a restore returns it."""
    kind, bits = components(array)
    return from_components(bits.copy(), kind, array.shape, dtype)


@dataclass(frozen=True, eq=False)
class SaveRequest:
    """What a save is given; as for `Chain.save`."""

    state: Any
    metadata: Mapping[str, Any] | None = None
    known: Mapping[str, Assignment | Role] | None = None
    only: Sequence[str] | None = None

    def taken(self, adapter: Adapter | None, room: Room | None = None) -> SavedState:
        """Return what is saved with NumPy arrays, its metadata, and all known roles."""
        wanted = None if self.only is None else wanted_by(self.only)
        flat, strings, roles = from_framework(adapter, self.state, self.metadata, self.known, room, wanted)
        if self.only is None:
            return SavedState(flat, strings, roles)
        return SavedState(select(flat, self.only), strings, roles, is_selection=True)


class Writer:
    """Saves states to a store, one after the other. Several threads may use it."""

    def __init__(  # what a chain is given
        self,
        store: WritableStore,
        adapter: Adapter | None,
        settings: Settings,
        options: WorkerOptions,
        every: Cadence,
        behind: Behind,
    ) -> None:
        self.settings = settings
        self.turn = threading.RLock()  # held by whoever saves, or keeps others from it
        self._store, self._adapter, self._options = store, adapter, options
        self._every, self._behind = every, behind
        policy = settings.given[0]
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
        return Saver(self._store, self.settings, self._every, threads, self._behind.gives_back)

    def save(  # what `Chain.save` is given
        self, step: int, given: SaveRequest, progress: Progress, following: Any
    ) -> int:
        """Save a state; return the bytes of its file. See `Chain.save`."""
        with self.turn:
            self._begin()
            self._look(step, given)
            try:
                background = self._own_background()
                if following is not None and background is None and not self._store.checkpoints():
                    states, record = (given.state, following), self.settings.record
                    self.settings.first = foresee(states, self._adapter, given.known, record)
                if self._options.workers is None and background is None:
                    return self._save_here(step, given, progress)
                background = self._in_background()
                job = self._submit(background, step, given, progress, raises=False)
                try:
                    return (0 if job is None else job.value()) or 0
                finally:
                    background.give_warnings()
            finally:
                self.settings.first = {}  # whatever became of this save

    def _save_here(self, step: int, given: SaveRequest, progress: Progress) -> int:
        """Save by this thread, without a copy of the state."""
        state = given.taken(self._adapter)
        with self._claim.around_save(), telling_of_save(progress, warn) as tell:
            size = self._saver.save(step, state, tell)
        self._behind.after(Change((step,)))
        return size

    def save_async(  # what `Chain.save_async` is given
        self, step: int, given: SaveRequest, progress: Progress, when_busy: WhenBusy
    ) -> Future[int | None]:
        """Save a copy of a state in the background. See `Chain.save_async`."""
        with self.turn:
            self._begin()
            background = self._in_background()
            self._look(step, given)
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

    def _look(self, step: object, given: SaveRequest) -> None:
        """Let a loss judge the newest step; it is a function of a whole state."""
        if self._judge is not None and given.only is None:
            self._judge.look(step, given.state)

    def _in_background(self) -> Background:
        """Return what saves in the background; its workers have the reference from now on."""
        if (found := self._own_background()) is not None:
            return found
        from .background import open_background

        self._background = open_background(
            *(self._store, self.settings, self._options, self._every, self._claim, self._saver), self._behind
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
        return self._store.next_step(step, background.steps)

    def _ask_again(self) -> None:
        """Ask the store again after a save that failed."""
        self._last = None

    def _copied(self, step: int, given: SaveRequest, arena: Arena, **how: Any) -> Snapshot:
        """Copy a state into an arena, as workers take it."""
        from .state_copy import Staging

        staging = Staging(arena)
        state = given.taken(self._adapter, staging)
        told = {**self.settings.for_workers(), **how}
        told |= {"metadata": state.metadata, "is_selection": state.is_selection}
        return staging.snapshot(state.flat, step=step, known=state.known, **told)

    def _own_background(self) -> Background | None:
        """Return what saves in the background; what a fork has copied runs in the parent alone."""
        is_own = self._background is not None and self._background.process == os.getpid()
        return self._background if is_own else None

    def _begin(self) -> None:
        """Refuse to save to a closed chain, and note that this process saves."""
        self._saved_in = os.getpid()
        if self._is_resting:  # only a signal handler comes here then: other threads wait for their turn
            raise ChainError(
                f"{self._store.path}: the signal came while the chain's files are changed, or its newest"
                " state is published; save afterwards"
            )
        if self._closed:
            raise ArgumentError(f"{self._store.path}: the chain is closed; open it again to save")

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
