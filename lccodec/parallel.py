"""Work shared among threads, with results in order. NumPy lets go of the interpreter in its calls."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from .arguments import as_integer
from .errors import ArgumentError

__all__ = ["ordered", "thread_count"]

Item = TypeVar("Item")
Result = TypeVar("Result")


def thread_count(threads: int) -> int:
    """Return how many threads to use: what was asked for, or for 0 one for each core.

    Raises
    ------
    ArgumentError
        For anything but a non-negative integer.
    """
    count = as_integer(threads)
    if count is None or count < 0:
        raise ArgumentError(f"threads must be a non-negative integer, not {threads!r}")
    return count or os.cpu_count() or 1


def ordered(function: Callable[[Item], Result], items: Iterable[Item], threads: int) -> Iterator[Result]:
    """Yield the results of `function` for each item, in order, computed by that many threads.

    No more than ``threads + 1`` results are held, whatever the number of items. One thread computes
    each result when it is asked for.
    """
    if threads == 1:
        yield from map(function, items)
        return
    with ThreadPoolExecutor(threads) as pool:
        pending: deque[Future[Result]] = deque()
        for item in items:
            pending.append(pool.submit(function, item))
            if len(pending) > threads:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
