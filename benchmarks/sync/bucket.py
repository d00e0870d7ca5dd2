"""A follower of a chain in an object store: how soon its arrays are new, and its reads.

The update is repeated until it has the bytes that the bound is about, since waiting for the next
look does not grow with them. The trainer and the follower are of one process. The follower looks
for a new step as often as by default, and keeps nothing on the disk.
"""

from __future__ import annotations

import secrets
import threading
import time

import numpy as np

import lccodec

from ..measure.goals import Goal
from ..speed.buckets import counting
from .updates import Update

__all__ = ["bucket_goals"]

MAX_SECONDS = 2.0  # for 1 GB
MAX_OTHER_KIB = 64.0  # that are read besides the delta
SECONDS_TO_WAIT = 600.0


def bucket_goals(update: Update, address: str, nbytes: float, workers: int = 1) -> list[Goal]:
    """Save an update, repeated to so many bytes; return how long and how much a follower reads.

    One update comes before: by it the sums of all arrays become known.
    """
    times = max(round(nbytes / update.nbytes), 1)
    old, new, served = (_repeated(each, times) for each in (update.old, update.new, update.old))
    place, ends = f"{address}/{secrets.token_hex(4)}", list[float]()
    with lccodec.Chain(place, "lossless", newest="history") as chain:
        chain.save(0, new)
        with counting() as reads, lccodec.follow(place, workers=workers) as follower:
            for step in (0, 1):
                if step:
                    chain.save(step, old)
                if follower.prepare(SECONDS_TO_WAIT) is None:
                    raise SystemExit("lccodec: the first steps did not come")
            before = reads.received

            def apply_next() -> None:
                if (found := follower.prepare(SECONDS_TO_WAIT)) is not None:
                    found.apply_to(served)
                    ends.append(time.perf_counter())

            engine = threading.Thread(target=apply_next)
            engine.start()
            size = chain.save(2, new)
            start, own = time.perf_counter(), time.process_time()
            engine.join()
            processor = time.process_time() - own
            received = reads.received - before
    for name, array in new.items():
        if served[name].tobytes() != array.tobytes():
            raise SystemExit(f"lccodec: {name} is wrong")
    what = f"{update.kind}, {100 * update.share:.2g} % changed, object store"
    size_gb = sum(array.nbytes for array in new.values()) / 1e9
    if workers > 1:
        what += f", {workers} workers"
    print(f"{what}: {processor:.2f} s of this process's processor time")
    return [
        Goal(f"{what}: one step behind, {size_gb:.2g} GB", ends[0] - start, MAX_SECONDS, unit="s"),
        Goal(f"{what}: bytes beyond the delta's", (received - size) / 1024, MAX_OTHER_KIB, unit="KiB"),
    ]


def _repeated(arrays: dict[str, np.ndarray], times: int) -> dict[str, np.ndarray]:
    """Repeat arrays. Each time they are turned a little: equal arrays are stored once."""
    return {
        f"{number}.{name}": np.roll(array.reshape(-1), number).reshape(array.shape)
        for number in range(times)
        for name, array in arrays.items()
    }
