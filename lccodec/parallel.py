"""How work is cut: pieces that fit the cache, stretches of a sample, calls for several threads.

Threads help because NumPy releases the interpreter's lock during its calls.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from .arguments import integer

if TYPE_CHECKING:  # loaded where threads are started: it takes a tenth of the start of a command
    from concurrent.futures import Future

#: Components handled at a time, so that they and all that is made of them stay in the cache.
PIECE: Final = 1 << 17
#: The same where all is computed in float64.
WIDE_PIECE: Final = 1 << 16

#: Calls that wait for a `SideThread`. It bounds the memory of their arguments.
_MAX_WAITING_CALLS: Final = 4

Item = TypeVar("Item")
Result = TypeVar("Result")


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
    """Yield the slices that cut an array into pieces; only the last one may be shorter.

    Examples
    --------
    >>> [part.start for part in slices(10, length=4)]
    [0, 4, 8]
    """
    return (slice(start, start + length) for start in range(0, size, length))


def stretches(size: int, count: int, length: int) -> Iterator[slice]:
    """Yield at most `count` evenly spread slices of `length` elements: a sample of a large array.

    All of a small array is in the sample.

    Examples
    --------
    >>> [(part.start, part.stop) for part in stretches(1000, count=2, length=100)]
    [(0, 100), (500, 600)]
    >>> len(list(stretches(200, count=2, length=100)))
    2
    """
    distance = max(-(-size // (count * length)), 1) * length
    return (slice(start, start + length) for start in range(0, size, distance))


def batches(items: Iterable[Item], size: Callable[[Item], int], least: int) -> Iterator[list[Item]]:
    """Yield lists of consecutive items, each of at least a size together, but for the last ones.

    An item of that size is alone.

    Examples
    --------
    >>> list(batches([1, 2, 1, 9, 1], lambda item: item, least=3))
    [[1, 2], [1], [9], [1]]
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


def ordered(function: Callable[[Item], Result], items: Iterable[Item], threads: int) -> Iterator[Result]:
    """Yield the results of `function` for each item, in order, computed by that many threads.

    At most ``threads + 1`` results are held, whatever the number of items. With one thread, each
    result is computed when it is asked for.
    """
    if threads == 1:
        yield from map(function, items)
        return
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(threads) as pool:
        pending: deque[Future[Result]] = deque()
        for item in items:
            pending.append(pool.submit(function, item))
            if len(pending) > threads:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


class SideThread:
    """A thread that makes calls in their order, beside the caller's; a context manager.

    It helps with calls that release the interpreter's lock, as hashes and checksums do. A call
    waits if too many others wait already.
    """

    def __init__(self) -> None:
        from concurrent.futures import ThreadPoolExecutor

        self._pool = ThreadPoolExecutor(1)
        self._waiting: deque[Future[Any]] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def call(self, function: Callable[..., Result], *arguments: object) -> Future[Result]:
        """Let the thread call a function; raise what an earlier call has raised."""
        future = self._pool.submit(function, *arguments)
        self._waiting.append(future)
        if len(self._waiting) > _MAX_WAITING_CALLS:
            self._waiting.popleft().result()
        return future
