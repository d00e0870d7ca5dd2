"""How work is cut and done beside the caller: pieces, calls of threads.

Threads help because NumPy releases the interpreter's lock during its calls. They also help because
Python runs signal handlers in the main thread only, between any two of its lines: what another
thread does comes to its end, whatever a handler raises. So memory, futures and locks change hands
there, or by one call that a handler cannot split. A handler may also save. So no thread is started
by `threading.Thread` or by an executor: these hold locks meanwhile, which a handler would wait for.
"""

from __future__ import annotations

import _thread
import atexit
import functools
import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias, TypeVar

from .errors import integer, keeping_warnings, warn

if TYPE_CHECKING:  # loaded where threads are started: it takes a tenth of the start of a command
    from concurrent.futures import Future

#: Components handled at a time, so that they and all that is made of them stay in the cache.
PIECE: Final = 1 << 17
#: The same where all is computed in float64.
WIDE_PIECE: Final = 1 << 16

#: Calls that wait for a `SideThread`. It bounds the memory of their arguments.
_MAX_WAITING_CALLS: Final = 4

#: How long a call waits that may need a lock of the caller's caller.
_MAX_SECONDS_ASIDE: Final = 0.25

Item = TypeVar("Item")
Result = TypeVar("Result")


if TYPE_CHECKING or sys.version_info >= (3, 12):
    cached_property = functools.cached_property
else:

    class cached_property(functools.cached_property):  # noqa: N801 - as it is called elsewhere
        """`functools.cached_property` without the lock that all instances share before Python 3.12.

        A signal handler that saves would wait for ever: for another thread, which waits for the
        lock that the handler's own thread has. Without it, a value may be computed twice.
        """

        def __get__(self, instance, owner=None):
            """Return the value, which is in the instance from then on."""
            if instance is None:
                return self
            values = instance.__dict__
            value = values.get(self.attrname, self)
            if value is self:
                value = values[self.attrname] = self.func(instance)
            return value


def thread_count(threads: int) -> int:
    """Return the number of threads to use: `threads` itself, or one for each core if it is 0."""
    return integer("threads", threads) or os.cpu_count() or 1


def member_count(workers: int) -> int:
    """Return the number of workers to use: `workers`, or for 0 the cores but one, at least one."""
    count = integer("workers", workers)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return count or max(cores - 1, 1)


def has_lock() -> bool:
    """Return whether the interpreter has a global lock, so that threads do not help."""
    return bool(getattr(sys, "_is_gil_enabled", lambda: True)())


def slices(size: int, length: int = PIECE) -> Iterator[slice]:
    """Yield the slices that cut an array into pieces; only the last one may be shorter."""
    for start in range(0, size, length):
        yield slice(start, start + length)


def batches(items: Iterable[Item], size: Callable[[Item], int], least: int) -> Iterator[list[Item]]:
    """Yield lists of consecutive items, each of at least a size together, but for the last ones.

    An item of that size is alone.
    """
    batch: list[Item] = []
    together = 0
    for item in items:
        own = size(item)
        if batch and (own >= least or together >= least):
            yield batch
            batch, together = [], 0
        batch.append(item)
        together += own
    if batch:
        yield batch


def start_thread(call: Callable[[], object]) -> bool:
    """Let a new thread make a call; return whether there is one. The program does not wait for it.

    It is under way at once, or not at all: there is nothing to wait for that a signal may split.
    """

    def run() -> None:
        if trace := threading.gettrace():  # as a debugger asks for, or who measures coverage
            sys.settrace(trace)
        if profile := threading.getprofile():
            sys.setprofile(profile)
        call()

    try:
        _thread.start_new_thread(run, ())
    except RuntimeError:  # the system has no more, or the program ends
        return False
    return True


#: What a call returned, or what it raised.
Outcome: TypeAlias = "tuple[Result, None] | tuple[None, BaseException]"


def _outcome(call: Callable[[], Result]) -> Outcome[Result]:
    try:
        return call(), None
    except BaseException as error:
        return None, error


def _value(outcome: Outcome[Result]) -> Result:
    if outcome[1] is not None:
        raise outcome[1]
    return outcome[0]


def ordered(
    function: Callable[[Item], Result], items: Iterable[Item], threads: int, *, waits: bool = True
) -> Iterator[Result]:
    """Yield the results of `function` for each item, in order, computed by that many threads.

    At most ``threads + 1`` results are held, whatever the number of items. With one thread, each
    result is computed when it is asked for. When this ends, also by an error, no thread computes;
    or, without `waits`, none begins with another item.
    """
    if threads == 1:
        yield from map(function, items)
        return
    tasks: SimpleQueue[tuple[Item, SimpleQueue[Outcome[Result]]] | None] = SimpleQueue()
    ended: SimpleQueue[None] = SimpleQueue()

    def work() -> None:
        while (task := tasks.get()) is not None:
            item, place = task
            place.put(_outcome(lambda item=item: function(item)))  # type: ignore[misc]
            del task, item, place
        ended.put(None)

    started = 0
    pending: deque[SimpleQueue[Outcome[Result]]] = deque()
    try:
        for item in items:
            pending.append(SimpleQueue())
            tasks.put((item, pending[-1]))
            started += started < threads and start_thread(work)
            if not started:
                tasks.put(None)
                work()
                ended.get()
            if len(pending) > threads:
                yield _value(pending.popleft().get())
        while pending:
            yield _value(pending.popleft().get())
    finally:
        with suppress(Empty):
            while True:
                tasks.get_nowait()
        for _ in range(started):
            tasks.put(None)
        for _ in range(started if waits else 0):
            ended.get()


class SideThread:
    """A thread that makes calls in their order, beside the caller's; a context manager.

    It helps with calls that release the interpreter's lock, as hashes and checksums do. A call
    waits if too many others wait already.
    """

    def __init__(self) -> None:
        self._line = Line(daemon=True)
        self._waiting: deque[Future[Any]] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for future in self._waiting:
            future.cancel()
        self._line.wait()

    def call(self, function: Callable[..., Result], *arguments: object) -> Future[Result]:
        """Let the thread call a function; raise what an earlier call has raised."""
        from concurrent.futures import Future

        future: Future[Result] = Future()

        def make() -> None:
            if future.set_running_or_notify_cancel():
                result, error = _outcome(lambda: function(*arguments))
                future.set_result(result) if error is None else future.set_exception(error)  # type: ignore[arg-type]

        self._waiting.append(future)
        self._line.add(make)
        if len(self._waiting) > _MAX_WAITING_CALLS:
            self._waiting.popleft().result()
        return future


def uninterrupted(call: Callable[[], Result]) -> Result:
    """Return what a call returns; an interrupt of the caller leaves the call to come to its end.

    A thread makes the call if this is the main thread, where signal handlers raise errors. So the
    call must not need a lock that the main thread may hold. Its warnings are given by the caller.
    """
    answer: SimpleQueue[Outcome[Result]] = SimpleQueue()
    kept: deque[str] = deque()

    def work() -> None:
        with keeping_warnings(kept):
            outcome = _outcome(call)
        answer.put(outcome)

    in_main = threading.get_ident() == threading.main_thread().ident
    if not (in_main and start_thread(work)):
        return call()
    try:
        return _value(answer.get())
    finally:
        while kept:
            warn(kept.popleft())


def aside(call: Callable[[], object]) -> None:
    """Let a thread make a call that may need a lock of others, as of a log or of a progress bar.

    A signal handler may wait for the caller while its own thread has that lock. So the caller waits
    a quarter of a second at most, and not at all behind a call that is not done. Calls are made in
    their order, before the program ends; their errors are dropped.
    """
    waits = not _aside.waiting
    _aside.add(lambda: _outcome(call))
    if waits:
        _aside.wait(_MAX_SECONDS_ASIDE)


class Line:
    """Does one thing after the other, in the order in which they were added, in a thread.

    The thread runs while there is something to do. A program ends only when all is done, unless it
    is a daemon. In a forked process nothing is left to do: it is the parent's.

    Any thread may add something, and so may a signal handler that has interrupted one that does. An
    interrupt leaves it added or not added; nothing is locked, and nothing waits for ever. `daemon`:
    whether the program may end before all is done.
    """

    def __init__(self, *, daemon: bool = False) -> None:
        self._daemon = daemon
        self._left: deque[Callable[[], object]] = deque()
        self._busy = threading.Lock()  # a flag: held by the thread that does what is left
        self._process = os.getpid()

    @property
    def waiting(self) -> list[Callable[[], object]]:
        """What is not done, in its order; the first of it may be under way."""
        return [] if self._process != os.getpid() else list(self._left)

    def add(self, action: Callable[[], object]) -> None:
        """Do something after all that was added before. It must not raise an error.

        Where the system has no thread, it is done before this returns.
        """
        if self._process != os.getpid():
            self._left, self._busy = deque(), threading.Lock()
            self._process = os.getpid()
        if not self._daemon:
            _finish_before_exit(self)
        try:
            self._left.append(action)  # it changes hands here
        finally:
            self.wake()

    def wake(self) -> None:
        """See that a thread does what is left: an interrupt may have come before its start."""
        if not self._left or self._busy.locked() or self._process != os.getpid():
            return
        if not start_thread(self._work):
            self._work()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until all is done that was added; return whether it is, after `timeout` seconds."""
        if not self.waiting:
            return True
        done: SimpleQueue[None] = SimpleQueue()
        self.add(lambda: done.put(None))
        try:
            done.get(timeout=timeout)
        except Empty:
            return False
        return True

    def _work(self) -> None:
        """Do what is left, unless another thread does."""
        while self._left and self._busy.acquire(blocking=False):
            try:
                while self._left:
                    try:
                        self._left[0]()
                    finally:
                        self._left.popleft()
            finally:
                self._busy.release()
            # Whoever added something just before saw that a thread was busy: so look again.


#: What `aside` is asked for.
_aside: Final = Line()

_lines: weakref.WeakSet[Line] = weakref.WeakSet()
_is_registered = False


def _finish_before_exit(line: Line) -> None:
    """Let what is left in a line be done at the end of a program, before it has no more threads.

    `concurrent.futures`, which what is left may need, ends before all other threads are waited for.
    What was registered after it goes before it.
    """
    global _is_registered  # noqa: PLW0603 - once in a process
    _lines.add(line)
    if not _is_registered:
        import concurrent.futures.thread  # noqa: F401

        with suppress(RuntimeError):  # that moment has passed
            getattr(threading, "_register_atexit", atexit.register)(_finish)
        _is_registered = True


def _finish() -> None:
    for line in list(_lines):
        line.wait()
