"""A worker of a crew, as the process that gives it tasks sees it."""

from __future__ import annotations

import queue
import threading
from collections import deque

from ..errors import WorkerError
from .memory import Arena
from .process import Worker
from .task import Done, Task, Writes


class _Given:
    """A task that a worker has, and the place for its result.

    What it writes goes into an arena, and is copied when it is done. The arena is used again by
    later tasks: to copy from warm memory takes a fraction of what it takes to map new one.
    """

    def __init__(self, task: Task, arenas: list[Arena]) -> None:
        self.place: list[Done] = []
        self.sent: Task = task
        self._task = task
        self._arenas = arenas
        if isinstance(task, Writes):
            self._arena = arenas.pop() if arenas else Arena()
            self.sent = task.staged(self._arena)

    def take(self, done: Done) -> None:
        """Put the result into its place."""
        if isinstance(self._task, Writes):
            if done.error is None:
                self._task.take(self.sent)
            self._arena.clear()
            self._arenas.append(self._arena)
        self.place.append(done)


class Peer:
    """A worker of a crew. A thread receives its results, so that the worker does not wait.

    `bell` is released when the worker has begun, with each of its results, and when it is gone.
    """

    def __init__(self, worker: Worker, bell: threading.Semaphore) -> None:
        self.worker = worker
        self.begun = False
        self.waiting: deque[_Given] = deque()  # tasks whose results are to come
        self._arenas: list[Arena] = []  # that no task has
        self.results: queue.SimpleQueue[Done | None] = queue.SimpleQueue()
        self._bell = bell
        threading.Thread(target=self._receive, daemon=True).start()

    def give(self, task: Task) -> list[Done]:
        """Send a task, and return the place of its result.

        Raises
        ------
        EOFError
            If the worker is gone.
        StorageError
            If there is no shared memory for what the task writes.
        """
        given = _Given(task, self._arenas)
        self.worker.channel.send(given.sent)
        self.waiting.append(given)
        return given.place

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
                self.results.put(self.worker.channel.receive())
                self._bell.release()
        except (EOFError, OSError, ValueError, WorkerError):
            self.results.put(None)
        self._bell.release()
