"""How far a long restore is: told to a function, or shown as a bar on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterator
from typing import Any, TypeAlias, TypeVar

from ..errors import ArgumentError

Item = TypeVar("Item")

#: ``True`` for a bar, or a function that is called with the numbers of items done and in all.
Progress: TypeAlias = bool | Callable[[int, int], object]


def check_progress(progress: Progress) -> Progress:
    """Return progress unchanged; raise ``ArgumentError`` for what is neither bool nor function."""
    if isinstance(progress, bool) or callable(progress):
        return progress
    raise ArgumentError(f"progress is True, False or a function of two numbers, not {progress!r}")


def watched(items: Iterator[Item], total: int, progress: Progress) -> Generator[Item, None, None]:
    """Yield items, and tell after each how many there were.

    A bar needs the package `tqdm`, and a terminal as standard error. Without them nothing is shown.
    """
    bar = _bar(total) if progress is True else None
    try:
        for done, item in enumerate(items, 1):
            if callable(progress):
                progress(done, total)
            elif bar is not None:
                bar.update()
            yield item
    finally:
        if bar is not None:
            bar.close()
        if isinstance(items, Generator):  # it may hold workers
            items.close()


def _bar(total: int) -> Any:
    if not sys.stderr.isatty():
        return None
    try:
        from tqdm import tqdm
    except ImportError:
        return None
    return tqdm(total=total, desc="restore", unit=" arrays", delay=1)  # a short restore shows nothing
