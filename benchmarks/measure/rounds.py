"""Interleaved rounds: every job is timed beside np.copyto of the same bytes; noise meets both.

Rules: the best round counts; the garbage collector rests while a job runs; a job shorter than a
millisecond is repeated until it is not, one that has taken its share of the time sits out later
rounds; what `prepare` does is not timed.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Job", "Timing", "measure"]

SHORTEST_SECONDS = 1e-3
MOST_REPEATS = 10_000
MOST_SECONDS = 15.0  # of one job in all rounds; each is timed twice at least
COPIES_A_ROUND = 5  # the copy is the shortest job, and so the noisiest


@dataclass
class Job:
    """Something to time.

    Parameters
    ----------
    run
        What is timed.
    prepare
        Called before every call of `run`, not timed.
    """

    run: Callable[[], object]
    prepare: Callable[[], object] | None = None
    repeats: int = field(default=1, init=False)
    seconds: list[float] = field(default_factory=list, init=False)

    @property
    def is_done(self) -> bool:
        """Whether it has been timed twice and has taken its share of the time."""
        return len(self.seconds) > 1 and sum(self.seconds) * self.repeats > MOST_SECONDS

    def time(self) -> None:
        """Run once, or as often as it takes, and note the seconds of one run."""
        if self.prepare is not None:
            self.prepare()
        start = time.perf_counter()
        for _ in range(self.repeats):
            self.run()
        self.seconds.append((time.perf_counter() - start) / self.repeats)

    def calibrate(self) -> None:
        """Find how often to run; what is too short to be timed alone starts anew."""
        self.time()
        if self.prepare is None and self.seconds[0] < SHORTEST_SECONDS:
            self.repeats = min(MOST_REPEATS, int(SHORTEST_SECONDS / self.seconds.pop()) + 1)


@dataclass(frozen=True)
class Timing:
    """One job: its best seconds, and its time as a multiple of the copy's.

    Parameters
    ----------
    seconds
        Of the best round.
    ratio
        Best round to best copy.
    typical
        Median round to median copy: far from `ratio` where the machine was noisy.
    """

    seconds: float
    ratio: float
    typical: float


def measure(jobs: Mapping[Any, Job], copy: Callable[[], object], rounds: int) -> dict[Any, Timing]:
    """Time all jobs and the copy in turn, `rounds` times after a first one that warms up.

    Returns
    -------
    dict
        The timing of every job, and of the copy itself under ``"np.copyto"``.
    """
    reference = Job(copy)
    every = [reference, *jobs.values()]
    collecting = gc.isenabled()
    gc.disable()
    try:
        for job in every:
            job.calibrate()
        for _ in range(rounds):
            copy()  # the reference is a warm copy
            for job in every:
                for _ in range(COPIES_A_ROUND if job is reference else 1):
                    if not job.is_done:
                        job.time()
            gc.collect()
    finally:
        if collecting:
            gc.enable()
    best, middle = min(reference.seconds), statistics.median(reference.seconds)
    timings = {
        name: Timing(min(job.seconds), min(job.seconds) / best, statistics.median(job.seconds) / middle)
        for name, job in jobs.items()
    }
    # How far the copy's own median lies above its best says how noisy the machine was.
    return {"np.copyto": Timing(best, 1.0, middle / best), **timings}
