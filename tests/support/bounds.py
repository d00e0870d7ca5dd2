"""Bounds of what reading hostile bytes may take."""

import signal
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Overtime(BaseException):
    """It took too long; not an Exception, so that nothing on the way takes it for its own."""


@contextmanager
def bounded(seconds: float, size: int) -> Iterator[None]:
    """Raise where the block takes more CPU than so many seconds, or more bytes of memory."""

    def over(*_: Any) -> None:
        raise Overtime

    timed = hasattr(signal, "setitimer")
    before = signal.signal(signal.SIGPROF, over) if timed else None
    tracemalloc.start()
    try:
        if timed:
            signal.setitimer(signal.ITIMER_PROF, seconds)
        yield
        assert tracemalloc.get_traced_memory()[1] < size
    finally:
        tracemalloc.stop()
        if timed:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, before)
