"""How far a long save or restore is: told to a function, or shown as a bar on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias, TypeVar

from ..errors import ArgumentError

Item = TypeVar("Item")

#: Is called with the numbers of arrays done and in all.
Tell: TypeAlias = Callable[[int, int], object]

#: ``True`` for a bar, or a function that is told.
Progress: TypeAlias = bool | Tell


def check_progress(progress: Progress) -> Progress:
    """Return progress unchanged; raise ``ArgumentError`` for what is neither bool nor function."""
    if isinstance(progress, bool) or callable(progress):
        return progress
    raise ArgumentError(f"progress must be True, False or a function of two numbers; got {progress!r}")


def untold(done: int, total: int) -> None:
    """Tell nobody."""


@contextmanager
def telling(progress: Progress, doing: str) -> Iterator[Tell]:
    """Yield what is to be told how many arrays are done, and of how many.

    A bar needs the package `tqdm`, and a terminal as standard error. Without them nothing is shown.
    """
    bar = _bar(doing) if progress is True else None
    if bar is None:
        yield progress if callable(progress) else untold
        return

    def show(done: int, total: int) -> None:
        bar.total = total
        bar.update(done - bar.n)

    try:
        yield show
    finally:
        bar.close()


@contextmanager
def telling_of_save(progress: Progress, warned: Callable[[str], object]) -> Iterator[Tell]:
    """Yield as `telling`. An error of who is told is a warning, once: it stops no save."""
    failed = False
    with telling(progress, "save") as tell:

        def told(done: int, total: int) -> None:
            nonlocal failed
            if failed:
                return
            try:
                tell(done, total)
            except Exception as error:
                failed = True
                warned(f"the save goes on, but not its progress: {type(error).__name__}: {error}")

        yield told


def watched(items: Iterator[Item], total: int, progress: Progress) -> Generator[Item, None, None]:
    """Yield items, and tell after each how many there were."""
    try:
        with telling(progress, "restore") as tell:
            for done, item in enumerate(items, 1):
                tell(done, total)
                yield item
    finally:
        if isinstance(items, Generator):  # it may hold workers
            items.close()


def _bar(doing: str) -> Any:
    if not sys.stderr.isatty():
        return None
    try:
        from tqdm import tqdm
    except ImportError:
        return None
    return tqdm(desc=doing, total=0, unit=" arrays", delay=1)  # what is done soon shows nothing
