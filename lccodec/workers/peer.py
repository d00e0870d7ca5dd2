"""A worker of a crew, as the process that gives it tasks sees it."""

from __future__ import annotations

import itertools
import threading
from collections import deque

from ..errors import WorkerError
from ..parallel import start_thread
from .memory import Arena
from .process import Worker
from .task import Done, Request, Task, Writes


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

        After another error than that there is no memory, the worker cannot be used any more.

        Raises
        ------
        EOFError
            If the worker is gone.
        StorageError
            If there is no shared memory for what the task writes. Nothing is sent.
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
