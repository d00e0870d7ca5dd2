"""How far a long call is: told to a function, or shown as a bar on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias, TypeVar

from ..errors import ArgumentError, warn

Item = TypeVar("Item")

#: Is called with how many arrays, checkpoints or files are done, and of how many.
OnProgress: TypeAlias = Callable[[int, int], object]

#: ``True`` for a bar, or a function that is told.
Progress: TypeAlias = bool | OnProgress


def check_progress(progress: Progress) -> Progress:
    """Return progress unchanged; raise ``ArgumentError`` for what is neither bool nor function.

    Where a bar is asked for and cannot be drawn, an `LccodecWarning` says what to install.
    """
    if not (isinstance(progress, bool) or callable(progress)):
        raise ArgumentError(f"progress must be True, False or a function of two numbers; got {progress!r}")
    if progress is True and _tqdm() is None:
        warn("progress=True shows no bar, because tqdm is not installed: pip install 'lccodec[progress]'")
    return progress


def no_progress(done: int, total: int) -> None:
    """Tell nobody."""


@contextmanager
def telling(progress: Progress, doing: str, unit: str = "arrays") -> Iterator[OnProgress]:
    """Yield what is to be told how many of a unit are done, and of how many.

    A bar needs the package `tqdm`, and a terminal as standard error. Without them nothing is shown.
    """
    tqdm = _tqdm() if progress is True else None
    if tqdm is None or not sys.stderr.isatty():
        yield progress if callable(progress) else no_progress
        return
    bar = tqdm(desc=doing, total=0, unit=f" {unit}", delay=1)  # what is done soon shows nothing

    def show(done: int, total: int) -> None:
        bar.total = total
        bar.update(done - bar.n)

    try:
        yield show
    finally:
        bar.close()


@contextmanager
def telling_of_save(progress: Progress, warned: Callable[[str], object]) -> Iterator[OnProgress]:
    """Yield as `telling`. An error of who is told is a warning, once: it stops no save."""
    if progress is False:
        yield no_progress
        return
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
        with telling(progress if total else False, "restore") as tell:  # no bar for nothing
            for done, item in enumerate(items, 1):
                tell(done, total)
                yield item
    finally:
        if isinstance(items, Generator):  # it may hold workers
            items.close()


def counted(items: Collection[Item], tell: OnProgress, total: int | None = None) -> Iterator[Item]:
    """Yield items, and tell after each is done how many were; `total` may count more than them."""
    total = len(items) if total is None else total
    for done, item in enumerate(items, 1):
        yield item
        tell(done, total)


def _tqdm() -> Any:
    try:
        from tqdm import tqdm
    except ImportError:
        return None
    return tqdm
