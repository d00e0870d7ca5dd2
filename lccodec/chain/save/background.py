"""Saves in the background: a call copies the state, and all else happens beside the caller.

The copy is in memory that workers share. What an adapter copies there itself is not copied again.

One thread of this process asks the workers and waits for them. Where there can be no workers, the
same thread saves by itself.

A signal handler may raise an error between any two lines of the caller, and it may save as well. So
each thing has one owner. Memory is taken from those that are free by one call, and a save that is
cut short drops it. A save changes hands, with its memory, its future and its use of the claim, when
it is added to the line of saves. From then on they are the thread's, which alone talks to the
workers, and which settles the future last.

A chain's client starts the leader of the workers, asks, and waits for the answer. A request has a
number, which all that is said to it carries. A leader whose answer is not heard to its end, for
whatever reason, is given up: what it says next would be taken for another answer.

`main` is the program of a worker: it saves for a chain in another process, or does tasks for a
leader. The first worker of a chain, its leader, has the chain's reference in its memory. It plans,
writes and commits. It divides the tasks of a save among itself and the workers that it starts.
Between two tasks it looks whether its client is still there. If it is not, it gives up what it does
and ends. So it leaves nothing behind, and what is committed is a whole checkpoint.
"""

from __future__ import annotations

import atexit
import itertools
import logging
import math
import os
import socket
import sys
import time
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from concurrent.futures import wait as wait_for
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from ... import errors
from ...constants import ELEMENT_TYPES, ElementType
from ...container.system import checked_place
from ...container.tree import Flat, Json
from ...element_types import Array, components, element_type, from_components, in_host_order
from ...errors import ArgumentError, StorageError, WorkerError, keeping_warnings, warn
from ...frame.checked import Checked
from ...parallel import Line, SideThread, has_lock
from ...policy.policy import Policy
from ...policy.presets import resolve_policy
from ...policy.record import NewestMode
from ...policy.roles import Assignment, Role
from ...quantizers.base import Quantizer
from ...quantizers.registry import QUANTIZERS
from ...quantizers.uniform import Weighted
from ...table import printable
from ...workers.crew import Bench, Crew, Done, Processes, Request, Threads
from ...workers.process import Arena, Channel, PrivateArena, Worker, address_of, connect, place_of
from ..behind import Behind, Change
from ..overview import OnProgress, Progress, no_progress, telling_aside
from ..read.crew import TASKS as DECODING_TASKS
from ..read.crew import Restorers
from ..store.claim import Claim, Use
from ..store.directory import writable_store
from ..store.store import WritableStore, checkpoint_name
from .encode import TASKS as ENCODING_TASKS
from .plan import ArrayPlan, Estimate, SavedState
from .saver import Saver
from .settings import LOG, Cadence, ReferenceKind, Settings, WhenBusy, WorkerOptions, log

_MIN_BYTES_OF_TWO_THREADS: Final = 1 << 24  # that are copied
_MAX_SMALL_BYTES: Final = 1 << 12  # of arrays that are copied by one call for all

#: What is asked of whoever is given a state: to save it, or what a save would do with it.
Question: TypeAlias = Literal["save", "plan", "estimates"]


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A state to save, or to plan a save of. All of its arrays are components, in shared memory."""

    step: int
    # `tree`, `scalars`, `names`: as in `lccodec.container.tree.Flat`.
    tree: Json
    scalars: list[Json]
    names: list[str]
    # `codes`, `ranks`, `sizes`: of each array the number of its element type and its number of
    # dimensions; and the dimensions of all, one array after the other. As arrays: there may be
    # thousands, and lists take long to make and to send.
    codes: Array
    ranks: Array
    sizes: Array
    # `memory`, `places`: the bytes that arrays lie in; and of each array the number of its memory,
    # and its place there in bytes, int64 of shape ``(arrays, 2)``.
    memory: list[Array]
    places: Array
    metadata: dict[str, str]  # as for `Chain.save`
    known: dict[str, tuple[Role, str]]  # roles by name, and why
    resumed: bool  # whether the run goes on from a lossy state that it has restored
    # Quantizers of a first keyframe by name, where it is known what follows.
    first: Mapping[str, Quantizer] = field(default_factory=dict)
    judged: float | None = None  # factor of the steps of weights, once a loss has judged them
    watched: bool = False  # whether the client wants to know how far the save is
    question: Question = "save"  # what is to be done with it
    is_selection: bool = False  # whether it has some arrays of a state, to be saved over the parent's
    number: int = 0  # the number of the request

    def flat(self) -> Flat:
        """Return the arrays and scalars."""
        arrays, left = [], iter(self.sizes.tolist())
        about = zip(
            self.codes.tolist(), self.ranks.tolist(), self.places.reshape(-1, 2).tolist(), strict=True
        )
        for code, rank, (number, start) in about:
            kind, shape = ELEMENT_TYPES[code], tuple(itertools.islice(left, rank))
            nbytes = math.prod(shape) * kind.itemsize
            bits = self.memory[number][start : start + nbytes].view(kind.bits)
            arrays.append(from_components(bits, kind, shape, "bits"))
        return Flat(self.tree, arrays, self.scalars, self.names)

    def state(self) -> SavedState:
        """Return what is saved, as a saver takes it."""
        known = {name: Assignment(role, why) for name, (role, why) in self.known.items()}
        told: dict[str, Any] = {"is_selection": self.is_selection, "first": self.first}
        return SavedState(self.flat(), self.metadata, known, **told)


class Staging:
    """An arena, and what an adapter copies there itself: that is not copied again."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        self._given: dict[int, Array] = {}  # by address; kept, as an address can be used again

    def empty(self, count: int, dtype: np.dtype[Any], more: int = 0) -> Array:
        """Return a 1-D array of the arena; see `Arena.empty`."""
        array = self._arena.empty(count, dtype, more)
        if array.nbytes:
            self._given[address_of(array)] = array
        return array

    def _has(self, bits: Array) -> bool:
        """Whether components are the whole of an array that was given here."""
        given = self._given.get(address_of(bits))
        return given is not None and given.nbytes == bits.nbytes

    def snapshot(self, flat: Flat, *, known: Mapping[str, Assignment], **told: Any) -> Snapshot:
        """Copy a state into the arena, but for what is there; each value is read once.

        `told` are the parameters of `Snapshot` that are not of the arrays.
        """
        codes, places = np.empty(len(flat.arrays), np.uint8), np.empty((len(flat.arrays), 2), np.int64)
        dtypes = [array.dtype for array in flat.arrays]
        numbers = {dtype: number for number, dtype in enumerate(dict.fromkeys(dtypes))}
        number = np.fromiter(map(numbers.__getitem__, dtypes), np.int64, len(dtypes))
        nbytes = np.fromiter((array.nbytes for array in flat.arrays), np.int64, len(dtypes))
        small = (nbytes <= _MAX_SMALL_BYTES) & (not self._given)
        for dtype, own in numbers.items():
            chosen = np.flatnonzero(small & (number == own))
            if not chosen.size:
                continue
            try:
                kind = element_type(dtype)
            except ArgumentError as error:
                raise type(error)(f"array {flat.names[chosen[0]]!r}: {error}") from None
            codes[chosen] = kind.code
            places[chosen] = self._joined(
                [flat.arrays[index] for index in chosen.tolist()], nbytes[chosen], kind
            )
        self._apart(flat, np.flatnonzero(~small).tolist(), codes, places)
        shapes = [array.shape for array in flat.arrays]
        return Snapshot(
            tree=flat.tree,
            scalars=flat.scalars,
            names=flat.names,
            codes=codes,
            ranks=np.fromiter(map(len, shapes), np.uint8, len(shapes)),
            sizes=np.array(list(itertools.chain.from_iterable(shapes)), np.int64),
            memory=self._arena.memory(),
            places=places.reshape(-1),
            known={name: (assigned.role, assigned.why) for name, assigned in known.items()},
            **told,
        )

    def _joined(self, arrays: Sequence[Array], nbytes: Array, kind: ElementType) -> Array:
        """Copy small arrays of a dtype end to end; return their places."""
        ends = np.cumsum(nbytes)
        target = self._arena.empty(int(ends[-1]) // kind.size, kind.bits)
        dtype = arrays[0].dtype
        if kind.kind == "b":  # as in NumPy, every byte but 0 is true
            target[:] = np.concatenate(arrays, axis=None).view(np.uint8) != 0
        elif dtype.isnative:
            np.concatenate(arrays, axis=None, out=target.view(dtype))
        else:
            target[:] = in_host_order(np.concatenate(arrays, axis=None)).view(kind.bits)
        number, first = self._arena.place
        found = np.empty((len(arrays), 2), np.int64)
        found[:, 0], found[:, 1] = number, first + ends - nbytes
        return found

    def _apart(self, flat: Flat, indices: Sequence[int], codes: Array, places: Array) -> None:
        """Copy arrays one by one, but for those in the arena; set their codes and places."""
        arena = self._arena
        found: list[tuple[ElementType, Any]] = []
        for index in indices:
            try:
                found.append(components(flat.arrays[index]))
            except ArgumentError as error:
                raise type(error)(f"array {flat.names[index]!r}: {error}") from None
        staged = [self._has(bits) for _, bits in found]
        more = sum(
            bits.nbytes + arena.ALIGNMENT_BYTES
            for (_, bits), there in zip(found, staged, strict=True)
            if not there
        )
        copies = []
        for index, (kind, bits), there in zip(indices, found, staged, strict=True):
            codes[index] = kind.code
            if there and (place := place_of(bits)) is not None:
                places[index] = arena.segments.index(place[0]), place[1]
                continue
            copies.append((arena.empty(bits.size, bits.dtype, more), bits))
            places[index] = arena.place
            more -= bits.nbytes + arena.ALIGNMENT_BYTES
        _copy(copies)


def _copy(pairs: Sequence[tuple[Array, Array]]) -> None:
    """Copy arrays to others; two threads copy many bytes, as the caller waits for it."""
    nbytes = np.cumsum([source.nbytes for _, source in pairs])
    if not pairs or nbytes[-1] < _MIN_BYTES_OF_TWO_THREADS:
        _copy_each(pairs)
        return
    half = int(np.searchsorted(nbytes, nbytes[-1] // 2)) + 1
    with SideThread() as side:
        beside = side.call(_copy_each, pairs[half:])
        _copy_each(pairs[:half])
        beside.result()


def _copy_each(pairs: Sequence[tuple[Array, Array]]) -> None:
    for target, source in pairs:
        target[:] = source


_SECONDS_BETWEEN_BEATS: Final = 0.5
_SECONDS_BETWEEN_NEWS: Final = 0.05  # for eyes


@dataclass(frozen=True)
class Opening:
    """What a leader must know of its chain; as for `Chain`. The policy is JSON."""

    directory: str
    policy: Json
    roles: Mapping[str, Role] | None
    newest: NewestMode | None
    every: Cadence
    members: int
    worker_timeout: float
    reference: ReferenceKind = "values"


@dataclass(frozen=True)
class Heartbeat:
    """A sign of life between two tasks; or, of so many arrays, how many are coded."""

    number: int  # of the request; 0 while the leader begins
    done: int = 0
    total: int = 0


@dataclass
class Report:
    """How a request went."""

    done: Done  # the result, or the error
    number: int = 0  # the number of the request
    # `warnings`, `records`: texts of the warnings, and the log records: level and message.
    warnings: list[str] = field(default_factory=list)
    records: list[tuple[int, str]] = field(default_factory=list)


@dataclass(frozen=True)
class GivesBackQuestion:
    """A question of the leader: whether what acts behind the saves gives a checkpoint back."""

    number: int  # of the request
    name: str


@dataclass(frozen=True)
class GivesBackAnswer:
    """The answer to a `GivesBackQuestion`."""

    number: int  # of the request
    gives_back: bool


class Abandoned(Exception):  # noqa: N818 - nothing went wrong
    """The client is gone."""


class Leader:
    """Saves for one chain, and says what a save would do."""

    def __init__(self, channel: Channel, opening: Opening) -> None:
        self._channel = channel
        self._beaten = time.monotonic()
        self._number = 0  # of the request
        self._crew = make_crew(opening.members, self._heartbeat, opening.worker_timeout)
        store = writable_store(checked_place(opening.directory))
        store.call_between(self._heartbeat)
        policy = None if opening.policy is None else resolve_policy(opening.policy)
        asked = policy, opening.roles, opening.newest, opening.reference, opening.every
        self._settings = Settings(store, *asked)
        self._saver = Saver(store, self._settings, self._crew, self._gives_back)

    def close(self) -> None:
        """End the other workers."""
        self._crew.close()

    def answer(self, snapshot: Snapshot) -> Any:
        """Save a state, and return the bytes of its file; or return what a save would do."""
        self._number = snapshot.number
        if snapshot.resumed:
            self._settings.restored()
        self._settings.judged = snapshot.judged
        if snapshot.question == "save":
            tell = self._tell if snapshot.watched else no_progress
            return self._saver.save(snapshot.step, snapshot.state(), tell)
        plan = self._saver.plan(snapshot.state())
        if snapshot.question == "estimates":
            return plan.estimates()
        return plan.told()

    def _gives_back(self, name: str) -> bool:
        """Ask the client, which knows of parity and mirrors."""
        self._channel.send(GivesBackQuestion(self._number, name))
        try:
            told = self._channel.receive()
        except EOFError:
            raise Abandoned from None
        if not isinstance(told, GivesBackAnswer) or told.number != self._number:
            raise Abandoned
        return told.gives_back

    def _tell(self, done: int, total: int) -> None:
        """Tell the client how many arrays are coded: not after each, as there may be thousands."""
        if done == total or time.monotonic() - self._beaten > _SECONDS_BETWEEN_NEWS:
            self._beat(Heartbeat(self._number, done, total))

    def _heartbeat(self) -> None:
        """Tell the client that work goes on; give it up if the client is gone."""
        if self._channel.is_ended():
            raise Abandoned
        if time.monotonic() - self._beaten > _SECONDS_BETWEEN_BEATS:
            self._beat(Heartbeat(self._number))

    def _beat(self, beat: Heartbeat) -> None:
        self._beaten = time.monotonic()
        self._channel.send(beat)


def make_crew(members: int, heartbeat: Callable[[], None], worker_timeout: float) -> Crew:
    """Return a crew of this process and, for more than one member, of workers that are started.

    A worker that cannot be started is left out. The others do its share.
    """
    workers: list[Worker] = []
    with suppress(WorkerError):
        workers.extend(start_worker() for _ in range(members - 1))
    return Processes(workers, heartbeat, worker_timeout) if workers else Threads(heartbeat=heartbeat)


def start_worker(inherited: Iterable[int] = ()) -> Worker:
    """Start this program; `inherited` are descriptors that it keeps open."""
    return Worker(__name__, TYPES, ERRORS, inherited)


class _Recorder(logging.Handler):
    """Keeps the records of a request."""

    def __init__(self, records: list[tuple[int, str]]) -> None:
        super().__init__()
        self._records = records

    def emit(self, record: logging.LogRecord) -> None:
        self._records.append((record.levelno, record.getMessage()))


def answer(request: Callable[[], Any], number: int) -> Report:
    """Return how a request of some number went, with all that it told."""
    report = Report(Done(), number)
    handler = _Recorder(report.records)
    LOG.addHandler(handler)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                report.done = Done(request())
            except Exception as error:
                if isinstance(error, Abandoned):
                    raise
                report.done = Done(error=error)
    finally:
        LOG.removeHandler(handler)
    report.warnings.extend(str(warning.message) for warning in caught)
    return report


def serve(channel: Channel) -> None:
    """Do what the other side of a channel asks for, until it is gone."""
    LOG.setLevel(logging.INFO)
    LOG.propagate = False
    bench: Bench = {}
    leader: Leader | None = None
    try:
        while True:
            message = channel.receive()
            if isinstance(message, Opening):
                channel.passes_on = True
                leader = Leader(channel, message)
            elif leader is not None and isinstance(message, Snapshot):
                report = answer(partial(leader.answer, message), message.number)
                channel.send(report)
                if isinstance(report.done.error, errors.WorkerError):
                    return  # the next request finds fresh workers
            else:
                channel.send(message.done(bench))
            del message  # or its arrays would stay
    except (EOFError, Abandoned):
        pass
    finally:
        channel.close()
        if leader is not None:
            leader.close()


#: What messages may have.
TYPES: Final = (
    *(Opening, Cadence, Snapshot, Heartbeat, GivesBackQuestion, GivesBackAnswer, Report),
    *(Request, Done, ArrayPlan, Estimate, Weighted),
    *ENCODING_TASKS,
    *DECODING_TASKS,
    *QUANTIZERS.values(),
)
ERRORS: Final = (
    *(e for e in vars(errors).values() if isinstance(e, type) and issubclass(e, errors.LccodecError)),
    MemoryError,
)


def main() -> None:
    """Serve the socket whose descriptor is the argument."""
    serve(connect(int(sys.argv[1]), TYPES, ERRORS))


_open: weakref.WeakSet[Background] = weakref.WeakSet()


#: Seconds after which who waits looks itself.
_LONGEST_WAIT: Final = 1.0

#: Copies a state into an arena.
Copier: TypeAlias = Callable[[Arena], Snapshot]


class _Promise(Future[Any]):
    """The future of a save, as users have it. It says without a lock that it was cancelled."""

    is_cancelled = False

    def cancel(self) -> bool:
        """Cancel the save, if it has not begun."""
        self.is_cancelled = super().cancel() or self.is_cancelled
        return self.is_cancelled


class Job:
    """What the thread does with a state: it saves it, or asks the workers a question about it.

    Who waits in this process waits here, not at the future: that has a lock, which the thread needs
    when it settles it, and which a caller that is interrupted by a handler would keep. `work` does
    it, and settles it. The state and the memory that it lies in are given up when they are not
    needed any more. The use of the claim ends with the job. What it warns of is added to `kept`.
    """

    def __init__(
        self,
        work: Callable[[Job], None],
        snapshot: Snapshot,
        arena: Arena,
        kept: deque[str],
        use: Use | None = None,
    ) -> None:
        self.snapshot: Snapshot | None = snapshot
        self.arena: Arena | None = arena
        self.step, self.is_save, self.use = snapshot.step, snapshot.question == "save", use
        self.future = _Promise()
        self._work, self._kept = work, kept
        self._is_over = False
        self._outcome: Done = Done()
        self._end: SimpleQueue[None] = SimpleQueue()

    def __call__(self) -> None:
        """Do it; the thread's call."""
        try:
            with keeping_warnings(self._kept):
                self._work(self)
        except BaseException as error:  # or somebody would wait for ever
            self.settle(Done(error=error))

    @property
    def is_pending(self) -> bool:
        """Whether it runs, or is to run."""
        return not self._is_over and not self.future.is_cancelled

    def settle(self, outcome: Done) -> None:
        """End the use of the claim, and settle the future; the thread's call."""
        if self._is_over:
            return
        if self.use is not None:
            self.use.end()
        self._outcome = outcome
        if self.future.is_cancelled:
            pass
        elif outcome.error is None:
            self.future.set_result(outcome.result)
        else:
            self.future.set_exception(outcome.error)
        self._is_over = True
        self._end.put(None)

    def wait(self, end: float | None = None) -> bool:
        """Wait until it is over, until some time of `time.monotonic`; return whether it is."""
        while self.is_pending:
            left = _LONGEST_WAIT if end is None else min(_LONGEST_WAIT, end - time.monotonic())
            if left <= 0:
                return False
            with suppress(Empty):
                self._end.get(timeout=left)
                self._end.put(None)  # for others that wait; who is interrupted here holds them up
        return True

    def value(self) -> Any:
        """Wait, and return the result or raise the error."""
        self.wait()
        if self.future.is_cancelled:
            raise CancelledError
        return self._outcome.value()


class Background:
    """The saves of one chain in the background, one after the other, in the order of the calls.

    Without a `client`, or where its workers cannot be started, the `saver` saves in this process.
    Each save that runs or waits has a copy of its state. The thread that waits for a save lets what
    acts `behind` it begin.
    """

    def __init__(
        self,
        store: WritableStore,
        client: Client | None,
        saver: Saver,
        max_concurrent_saves: int,
        behind: Behind,
    ) -> None:
        self.process = os.getpid()
        self._store = store
        self._client = client  # the thread's, but for `abort`
        self._is_alone = client is None  # whether saves go without workers from now on
        self._saver = saver
        self._max_concurrent_saves = max_concurrent_saves
        self._behind = behind
        self._free: deque[Arena] = deque()  # memory that no save has; it is warm
        self._failed: deque[BaseException] = deque()  # not told yet
        self._warnings: deque[str] = deque()  # not given yet
        self._aborting = False
        self._line = Line()
        _open.add(self)

    @property
    def failure(self) -> BaseException | None:
        """The error of the first save that failed, if it was not raised yet."""
        failed = list(self._failed)
        return failed[0] if failed else None

    def _jobs(self) -> list[Job]:
        """Return what is not done, in its order. What an interrupt has left asleep is woken."""
        self._line.wake()
        return [job for job in self._line.waiting if isinstance(job, Job) and job.is_pending]

    @property
    def steps(self) -> list[int]:
        """The steps of the saves that run or wait."""
        return [job.step for job in self._jobs() if job.is_save]

    def ask(self, make: Copier) -> Any:
        """Return what the workers answer to a question about a state, once no save runs.

        Without workers it is ``None``. Their errors are raised, and their warnings given. Failures
        of saves are raised by later calls. If the wait is interrupted, the answer is for nobody.
        """
        for running in self._jobs():
            running.wait()
        if self._is_alone:
            return None
        arena = self._arena()
        job = Job(self._answer, make(arena), arena, self._warnings)
        self._line.add(job)
        found = job.value()
        self.give_warnings()
        return found

    def _answer(self, job: Job) -> None:
        """Ask the workers a question, in the thread."""
        client, done = self._current_client(), Done()
        try:
            if client is not None and job.snapshot is not None:
                report = client.request(job.snapshot, no_progress)
                self._note(report)
                done = report.done
        finally:
            self._give_up_memory(job)
        job.settle(done)

    def _note(self, report: Report) -> None:
        """Log what workers have logged, and keep their warnings."""
        for level, text in report.records:
            log(level, "%s", text)
        self._warnings.extend(report.warnings)

    def submit(  # what to save, and what to do beside it
        self,
        make: Copier,
        when_busy: WhenBusy,
        use: Use,
        *,
        failed: Callable[[], object],
        progress: Progress = False,
        raises: bool = True,
    ) -> Job | None:
        """Start a save; return what becomes the bytes of its file. ``None`` if it is skipped as
        others run.

        `make` copies the state into an arena. The use of the claim ends with the save. The thread
        calls `failed` if the save fails, and tells `progress` how many arrays are coded. With
        `raises`, the next call raises a failure: nobody may ask the future. Raises the failure of
        an earlier save; then nothing is saved. After an interrupt, the save is started with all of
        its state, or it is not.
        """
        self.raise_failure()
        while len(running := self._jobs()) >= self._max_concurrent_saves:
            if when_busy == "skip":
                return None
            running[0].wait()
            self.raise_failure()
        arena = self._arena()
        try:
            snapshot = make(arena)
        except StorageError as error:
            self._go_on_alone(f"{error}; saves go on in a thread of this process")
            arena = self._arena()
            snapshot = make(arena)

        def work(job: Job) -> None:
            self._save(job, progress, raises, failed)

        job = Job(work, snapshot, arena, self._warnings, use)
        self._line.add(job)
        self.give_warnings()
        return job

    def give_up(self, use: Use) -> None:
        """End the use of a claim of a save that was not started."""
        if all(job.use is not use for job in self._jobs()):
            use.end()

    def _arena(self) -> Arena:
        """Return memory that is the caller's: it is no other's, and is not given out again."""
        try:
            return self._free.pop()
        except IndexError:
            return PrivateArena() if self._is_alone else Arena()

    def _give_up_memory(self, job: Job) -> None:
        """Let other saves have the memory of a job."""
        arena, job.arena, job.snapshot = job.arena, None, None
        is_usable = self._is_alone == isinstance(arena, PrivateArena)
        if arena is not None and is_usable and len(self._free) < self._max_concurrent_saves:
            arena.clear()
            self._free.append(arena)

    def _save(self, job: Job, progress: Progress, raises: bool, failed: Callable[[], object]) -> None:
        """Save in the thread, and settle the future last."""
        snapshot, step = job.snapshot, job.step
        if snapshot is None or not job.future.set_running_or_notify_cancel():
            self._give_up_memory(job)
            failed()
            job.settle(Done())
            return
        before = None if self._store.far else self._stored(step)  # nobody waits for what is not needed
        try:
            with telling_aside(progress, self._warnings.append) as tell:
                report = self._ask(snapshot, tell)
        except BaseException as error:
            report = Report(Done(error=error))
        del snapshot
        self._give_up_memory(job)
        self._note(report)
        failure, result = report.done.error, report.done.result
        if isinstance(failure, WorkerError) and (result := self._kept(step, before)) is not None:
            self._warnings.append(f"step {step} is on the disk, but its save did not end: {failure}")
            failure = None
        if failure is None:
            try:
                self._behind.after(Change((step,)))
            except Exception as error:  # the future must be settled in any case
                self._warnings.append(f"step {step} is saved, but what follows a save failed: {error!r}")
        else:
            failed()
            if raises and not self._aborting:
                failure.add_note(f"step {step} was not saved, by a save in the background")
                self._failed.append(failure)
        job.settle(Done(result, failure))

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

    def _ask(self, snapshot: Snapshot, tell: OnProgress) -> Report:
        if (client := self._current_client()) is not None:
            try:
                return client.request(snapshot, tell)
            except WorkerError as error:
                if client.started:
                    raise
                self._go_on_alone(f"{error}; saves go on in a thread of this process")
                self._current_client()
        self._store.call_between(lambda: None)  # so that this thread is patient
        return Report(Done(self._saver.save(snapshot.step, snapshot.state(), tell)))

    def _current_client(self) -> Client | None:
        """Return the client, in the thread; end its workers if saves go on without."""
        if self._is_alone and self._client is not None:
            self._client.close()
            self._client = None
        return self._client

    def _go_on_alone(self, warning: str) -> None:
        """Save without workers from now on, in the memory of this process."""
        if not self._is_alone:
            self._warnings.append(warning)
        self._is_alone = True
        self._free.clear()

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
        end = None if timeout is None else time.monotonic() + timeout
        done = all(job.wait(end) for job in self._jobs())
        self.raise_failure()
        self.give_warnings()
        return done

    def abort(self) -> None:
        """Give up all saves that are not done."""
        self._aborting = True
        try:
            futures = [job.future for job in self._jobs()]
            for future in futures:
                future.cancel()
            while not all(future.done() for future in futures):
                if (client := self._client) is not None:
                    client.kill()
                wait_for(futures, 0.1)
        finally:
            self._aborting = False

    def end(self) -> None:
        """Wait for all saves, and end the workers; a later save starts fresh ones.

        The thread does it: if the wait is interrupted, it goes on.
        """
        self._line.add(self._end)
        self._line.wait()
        _open.discard(self)

    def _end(self) -> None:
        if self._client is not None:
            with suppress(OSError):  # it is gone
                self._client.close()

    def then(self, call: Callable[[], object]) -> None:
        """Let the thread make a call when all is done that was begun; do not wait for it."""
        self._line.add(call)


def open_background(
    store: WritableStore,
    settings: Settings,
    options: WorkerOptions,
    claim: Claim,
    saver: Saver,
    behind: Behind,
) -> Background:
    """Return the saves of a chain in the background; warn if there can be no workers.

    Parameters are those of `lccodec.chain.save.writer.Writer`. `saver` saves without workers.
    """
    obstacle = find_obstacle(settings.record.policy)
    if not store.shared:
        obstacle = "no other process has this store"
    elif obstacle is not None and has_lock():
        warn(f"{store.path}: workers cannot save; a thread of this process saves instead: {obstacle}")
    client = None
    if obstacle is None:
        policy, roles, newest = settings.given
        written = None if policy is None else policy.to_json()
        told = str(store.path), written, roles, newest, settings.every, options.members
        opening = Opening(*told, float(options.worker_timeout), settings.reference)
        client = Client(store, opening, claim, behind.gives_back)
        saver.forget()  # the workers have the reference from now on
    return Background(store, client, saver, options.max_concurrent_saves, behind)


@atexit.register
def _at_exit() -> None:
    """Wait for all saves at the end of the program, and tell what went wrong."""
    for background in list(_open):
        if background.process != os.getpid():
            continue
        try:
            background.end()
            background.raise_failure()
            background.give_warnings()
        except Exception as error:
            lines = f"lccodec: {error}", *getattr(error, "__notes__", ())
            print(printable("\n  ".join(lines), indented=True), file=sys.stderr)


def crew_of(options: WorkerOptions) -> Crew:
    """Return the crew for restores in this process: threads only help without a global lock."""
    if not has_lock():
        return Threads(options.members)
    return make_crew(options.members, lambda: None, options.worker_timeout)


def restorers_of(options: WorkerOptions) -> Restorers:
    """Return who decodes for a chain with workers."""
    return Restorers(options.members, partial(crew_of, options))


class Client:
    """The workers of a chain, started when they are needed, for one thread. Any may `kill` them.

    The leader shares the `claim` on the chain.
    """

    def __init__(
        self, store: WritableStore, opening: Opening, claim: Claim, gives_back: Callable[[str], bool]
    ) -> None:
        self._store = store
        self._opening = opening
        self._claim = claim
        self._gives_back = gives_back
        self._worker: Worker | None = None
        self._process = os.getpid()
        self._number = 0  # of the last request
        self.started = False  # whether a leader could be started

    def request(self, message: Snapshot, tell: OnProgress) -> Report:
        """Return the leader's report on a request; raise ``WorkerError`` if it is gone.

        `tell` is told how many arrays are coded. If it is interrupted, so is the leader.
        """
        self._number += 1
        try:
            reply = self._reply(replace(message, number=self._number))
            while not isinstance(reply, Report):
                told = None
                if isinstance(reply, GivesBackQuestion):
                    told = GivesBackAnswer(self._number, self._gives_back(reply.name))
                elif reply.total:
                    tell(reply.done, reply.total)
                reply = self._reply(told)
        except WorkerError:
            raise
        except BaseException:
            self._lost("")
            raise
        if isinstance(reply.done.error, WorkerError):
            self._lost("")
        return reply

    def _reply(
        self, message: Snapshot | GivesBackAnswer | None = None
    ) -> Heartbeat | GivesBackQuestion | Report:
        """Return what the leader says next, after sending it a message, if any."""
        try:
            worker = self._leader()
            if message is not None:
                worker.channel.send(message)
            reply: Heartbeat | GivesBackQuestion | Report = worker.channel.receive()
        except TimeoutError:
            seconds = self._opening.worker_timeout
            raise self._lost(f"a worker has not answered for {seconds:g} seconds") from None
        except (EOFError, OSError, ValueError):
            raise self._lost("a worker is gone") from None
        is_early = isinstance(reply, Heartbeat) and not reply.number  # it begins
        if reply.number != self._number and not is_early:
            self._lost("")
            raise self._lost(f"a worker has answered request {reply.number}, not {self._number}")
        return reply

    def close(self) -> None:
        """Let the workers end; the next request starts fresh ones."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.end()

    def kill(self) -> None:
        """End the workers at once, whatever they do, and remove what they leave."""
        if (worker := self._worker) is not None:
            worker.kill()
            self._tidy()

    def _leader(self) -> Worker:
        if self._process != os.getpid():  # after a fork, the workers are the parent's
            self._worker, self._process = None, os.getpid()
        if self._worker is None:
            worker = start_worker(self._claim.descriptors)
            worker.ready()
            self._worker, self.started = worker, True
            self._worker.channel.limit(self._opening.worker_timeout)
            self._worker.channel.send(self._opening)
        return self._worker

    def _lost(self, message: str) -> WorkerError:
        worker, self._worker = self._worker, None
        if worker is not None:
            if message:
                message = f"{message}: it {worker.state()}"
            worker.kill()
        self._tidy()
        return WorkerError(f"{self._store.path}: {message}; the next save starts a fresh one")

    def _tidy(self) -> None:
        try:
            self._store.remove_stale()
        except StorageError as error:
            log(logging.WARNING, "%s", error)


def find_obstacle(policy: Policy) -> str | None:
    """Return why workers cannot save with a policy, in words; ``None`` if they can."""
    if not has_lock():
        return "threads do it, as the interpreter has no global lock"
    if not hasattr(socket, "send_fds"):
        return "this system does not pass memory from process to process"
    chosen = [*policy.roles.values(), *policy.patterns.values()]
    chosen += [] if isinstance(policy.keyframes, str) else policy.keyframes.values()
    if any(map(_has_check, chosen)):
        return "the check of `Checked` is a function of this process"
    own = [name for name in _quantizers(policy.to_json()) if not _is_ours(QUANTIZERS[name])]
    return f"they do not know the quantizer {own[0]}, which is your own" if own else None


def _has_check(quantizer: Quantizer) -> bool:
    """Return whether a quantizer, or the one in it, calls a function of the user."""
    then = getattr(quantizer, "then", None)
    own = isinstance(quantizer, Checked) and quantizer.check is not None
    return own or (isinstance(then, Quantizer) and _has_check(then))


def _quantizers(value: Any) -> Iterator[str]:
    """Yield the names of all quantizers in the JSON of a policy."""
    if isinstance(value, dict):
        if isinstance(name := value.get("quantizer"), str):
            yield name
        for item in value.values():
            yield from _quantizers(item)


def _is_ours(quantizer: type) -> bool:
    return quantizer.__module__.split(".")[0] == __name__.split(".")[0]
