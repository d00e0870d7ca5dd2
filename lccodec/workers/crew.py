"""Tasks divided among the members of a crew: this process alone, threads, or worker processes.

A task is an object with a method `run`. It gets the member's bench: a dict that lives as long as
the member, where a task may leave something for later ones. Results come in the order of the tasks,
so what is made of them does not depend on the number of members.
"""

from __future__ import annotations

import itertools
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, runtime_checkable

import numpy as np

from ..element_types import Array
from ..errors import StorageError, WorkerError
from ..parallel import ordered, start_thread
from .process import Arena, Worker, place_of, shared_empty

#: What a member has at hand: a task may leave something there for later ones.
Bench = dict[str, Any]


class Task(Protocol):
    """Something that any member of a crew can do."""

    def run(self, bench: Bench, /) -> Any:
        """Do it, and return the result."""


@runtime_checkable
class Writes(Task, Protocol):
    """A task that writes into arrays of this process, which workers do not see."""

    def staged(self, arena: Arena) -> Any:
        """Return the same task for a worker: it writes into shared memory, an arena."""

    def take(self, staged: Any, /) -> None:
        """Copy what a worker has written."""


@dataclass(frozen=True)
class Done:
    """The result of a task, or the error that it has raised; with the number of its request."""

    result: Any = None
    error: BaseException | None = None
    number: int = 0

    @classmethod
    def of(cls, task: Task, bench: Bench, number: int = 0) -> Done:
        """Do a task."""
        try:
            return cls(task.run(bench), number=number)
        except Exception as error:
            return cls(error=error, number=number)

    def value(self) -> Any:
        """Return the result, or raise the error."""
        if self.error is not None:
            raise self.error
        return self.result


@dataclass(frozen=True)
class Request:
    """A task for a worker; its result has the same number."""

    number: int
    task: Any

    def done(self, bench: Bench) -> Done:
        """Do the task, at the worker."""
        return Done.of(self.task, bench, self.number)


class _Given:
    """A task that a worker has, and the place for its result.

    What it writes goes into an arena, and is copied when it is done. The arena is used again by
    later tasks: to copy from warm memory takes a fraction of what it takes to map new one.
    """

    def __init__(self, task: Task, number: int, arenas: list[Arena]) -> None:
        self.number = number
        self.place: list[Done] = []
        self.sent: Task = task
        self.done: Done | None = None  # what the worker has said, and nobody has taken yet
        self._task = task
        self._arenas = arenas
        self._arena: Arena | None = None
        if isinstance(task, Writes):
            self._arena = arenas.pop() if arenas else Arena()
            self.sent = task.staged(self._arena)

    def take(self, done: Done) -> None:
        """Put the result into its place. To do it again, after an interrupt, changes nothing."""
        if not self.place:
            if isinstance(self._task, Writes) and done.error is None:
                self._task.take(self.sent)
            self.place.append(done)
        arena, self._arena = self._arena, None
        if arena is not None:
            arena.clear()
            self._arenas.append(arena)


class Peer:
    """A worker of a crew. A thread receives its results, so that the worker does not wait.

    `bell` is released when the worker has begun, with each of its results, and when it is gone. The
    thread gives each result to the task that has its number: an interrupt cannot come between.
    """

    def __init__(self, worker: Worker, bell: threading.Semaphore) -> None:
        self.worker = worker
        self.begun = self.gone = False
        self.waiting: deque[_Given] = deque()  # tasks whose results are to come, or to be taken
        self._asked: deque[_Given] = deque()  # those whose results are to come
        self._numbers = itertools.count(1)
        self._arenas: list[Arena] = []  # that no task has
        self._bell = bell
        if not start_thread(self._receive):
            self.gone = True
            bell.release()

    def give(self, task: Task) -> list[Done]:
        """Send a task, and return the place of its result.

        After another error than that there is no memory, the worker cannot be used any more. Raises
        ``EOFError`` if the worker is gone. Raises ``StorageError`` if there is no shared memory for
        what the task writes. Nothing is sent.
        """
        given = _Given(task, next(self._numbers), self._arenas)
        self._asked.append(given)
        self.waiting.append(given)
        self.worker.channel.send(Request(given.number, given.sent))
        return given.place

    def collect(self) -> None:
        """Put the results that have come into their places."""
        while self.waiting and (done := self.waiting[0].done) is not None:
            self.waiting[0].take(done)
            self.waiting.popleft()

    def release(self) -> None:
        """Give up the arenas; the worker unmaps them with the next message."""
        for arena in self._arenas:
            for segment in arena.segments:
                self.worker.channel.drop(segment.identity)
        self._arenas.clear()

    def _receive(self) -> None:
        try:
            self.worker.ready()
            self.begun = True
            self._bell.release()
            while True:
                done = self.worker.channel.receive()
                given = self._asked.popleft()
                if done.number != given.number:
                    raise WorkerError(f"a worker has answered request {done.number}, not {given.number}")
                given.done = done
                self._bell.release()
                del given, done  # or their memory would stay
        except (EOFError, OSError, ValueError, IndexError, WorkerError):
            self.gone = True
        self._bell.release()


#: Tasks that a worker has at a time: it need not wait for the next one when it is done with one.
_TASKS_AT_A_TIME: Final = 3
#: Results per member that wait for an earlier one at the most: each is memory.
_RESULTS_AHEAD: Final = 4

#: While workers begin, the call between tasks is made so often.
_BEAT_SECONDS: Final = 1.0


class Crew(ABC):
    """Members that do tasks; this process is one of them.

    `heartbeat` is called between two tasks; it may raise an error to end the work. `bench` is that
    of this process. A crew is `broken` if a member is gone; then nothing works any more.
    """

    def __init__(self, members: int = 1, heartbeat: Callable[[], None] = lambda: None) -> None:
        self.members = members
        self.heartbeat = heartbeat
        self.bench: Bench = {}
        self.broken = False

    @abstractmethod
    def everywhere(self, task: Task, *, begun: bool = False) -> None:
        """Let every member do a task; of a crew that still begins, only those that have `begun`."""

    @abstractmethod
    def ordered(self, tasks: Iterable[Task]) -> Generator[Any, None, None]:
        """Yield the results of tasks in their order; each task is done by one member."""

    @property
    def begun(self) -> int:
        """How many workers there are that have begun."""
        return 0

    def beside(self, tasks: Sequence[Task], own: Callable[[], None]) -> None:
        """Let workers that have begun do a task each; this process does `own`, and the rest."""
        own()
        for task in tasks:
            task.run(self.bench)

    def empty(self, count: int, dtype: np.dtype[Any]) -> Array:
        """Return a 1-D array with undefined values, in memory that all members see."""
        return np.empty(count, dtype)

    def shared(self, array: Array) -> Array:
        """Return an array in memory that all members see: the array itself, or a copy."""
        return array

    def close(self) -> None:  # noqa: B027 - of threads, none is left
        """End what is not this process."""


class Threads(Crew):
    """A crew of threads of this process; of one thread by default.

    More than one makes sense only where the interpreter has no global lock.
    """

    def everywhere(self, task: Task, *, begun: bool = False) -> None:  # noqa: ARG002 - all have
        """Do a task: the bench is the same for all threads."""
        task.run(self.bench)
        self.heartbeat()

    def ordered(self, tasks: Iterable[Task]) -> Generator[Any, None, None]:
        """Yield the results of tasks in their order."""
        for result in ordered(lambda task: task.run(self.bench), tasks, self.members):
            self.heartbeat()
            yield result


class Processes(Crew):
    """A crew of this process and some workers.

    Starting a worker takes a fifth to a third of a second. Until then the others do its tasks. A
    worker that does not begin is not missed. One that takes more than `timeout` seconds for a task
    counts as dead. More tasks `at_a_time` keep a worker busy while this process is not here; fewer
    leave the others more where tasks are few.
    """

    def __init__(
        self,
        peers: Sequence[Worker],
        heartbeat: Callable[[], None],
        timeout: float,
        at_a_time: int = _TASKS_AT_A_TIME,
    ) -> None:
        super().__init__(1 + len(peers), heartbeat)
        self._timeout, self._at_a_time = timeout, at_a_time
        self._bell = threading.Semaphore(0)
        self._peers = [Peer(worker, self._bell) for worker in peers]

    def close(self) -> None:
        """End the workers."""
        for peer in self._peers:
            if peer.begun:
                peer.worker.end()
            else:
                peer.worker.kill()

    def everywhere(self, task: Task, *, begun: bool = False) -> None:
        """Let every member do a task."""
        self._collect()
        while not begun and not all(peer.begun for peer in self._peers):
            self._bell.acquire(timeout=_BEAT_SECONDS)
            self.heartbeat()
            self._collect()
        places = [self._give(peer, task) for peer in self._peers if peer.begun]
        task.run(self.bench)
        for place in places:
            self._await(place).value()

    @property
    def begun(self) -> int:
        """How many workers there are that have begun; raise ``WorkerError`` if one is gone."""
        self._collect()
        return sum(peer.begun for peer in self._peers)

    def beside(self, tasks: Sequence[Task], own: Callable[[], None]) -> None:
        """Let workers that have begun do a task each; this process does `own`, and the rest."""
        try:
            peers = [peer for peer in self._peers if peer.begun]
            places = [self._give(peer, task) for peer, task in zip(peers, tasks, strict=False)]
            super().beside(tasks[len(places) :], own)
            for place in places:
                self._await(place).value()
        except BaseException:
            if not self.broken:
                self._drain()
            raise

    def ordered(self, tasks: Iterable[Task]) -> Generator[Any, None, None]:
        """Yield the results of tasks in their order."""
        coming = iter(tasks)
        places: deque[list[Done]] = deque()  # of the results to be yielded, in order
        most = _RESULTS_AHEAD * self.members
        more = True
        try:
            while more or places:
                for peer in filter(lambda peer: peer.begun, self._peers):
                    while more and len(peer.waiting) < self._at_a_time and len(places) < most:
                        if (task := next(coming, None)) is None:
                            more = False
                            break
                        places.append(self._give(peer, task))
                waits = not (places and places[0])  # for the result to be yielded next
                if more and waits and len(places) <= self._at_a_time * self.members:
                    if (task := next(coming, None)) is None:
                        more = False
                        continue
                    self.heartbeat()
                    places.append([Done.of(task, self.bench)])
                    self._collect()
                elif places:
                    yield self._await(places.popleft()).value()
        except BaseException:
            if not self.broken:
                self._drain()
            raise
        finally:
            for peer in self._peers:
                peer.release()

    def _drain(self) -> None:
        """Wait for all results: none of an abandoned round may be taken for one of the next.

        If the wait is cut short, as by a second interrupt, no member may still write what it finds
        into memory that the next round uses: the workers are ended.
        """
        try:
            for peer in self._peers:
                while peer.waiting:
                    self._await(peer.waiting[0].place)
        except BaseException:
            if not self.broken:
                self._lost("a worker was ended")
            raise

    def empty(self, count: int, dtype: np.dtype[Any]) -> Array:
        """Return a 1-D array with undefined values."""
        return shared_empty(count, dtype)

    def shared(self, array: Array) -> Array:
        """Return an array that all members see."""
        place = place_of(array)
        if place is not None and place[0].descriptor >= 0:  # or it cannot be passed on
            return array
        copy = shared_empty(array.size, array.dtype)
        copy[:] = array
        return copy

    def _give(self, peer: Peer, task: Task) -> list[Done]:
        try:
            return peer.give(task)
        except EOFError:
            raise self._lost(f"a worker is gone: it {peer.worker.state()}") from None
        except StorageError:  # there is no memory to share
            return [Done.of(task, self.bench)]
        except BaseException:  # the worker may have half of a message
            self._lost("a worker was ended")
            raise

    def _lost(self, message: str) -> WorkerError:
        self.broken = True
        for peer in self._peers:
            peer.worker.kill()
        return WorkerError(message)

    def _collect(self) -> None:
        """Put the results that have come into their places."""
        for peer in list(self._peers):
            is_gone = peer.gone  # before its last results are taken
            peer.collect()
            if is_gone and not peer.begun:
                self._peers.remove(peer)
                peer.worker.kill()
            elif is_gone:
                raise self._lost(f"a worker is gone: it {peer.worker.state()}")

    def _await(self, place: list[Done]) -> Done:
        self._collect()
        while not place:
            if not self._bell.acquire(timeout=self._timeout):
                self._collect()
                if not place:
                    raise self._lost(f"a worker has not answered for {self._timeout:g} seconds")
            self.heartbeat()
            self._collect()
        return place[0]
