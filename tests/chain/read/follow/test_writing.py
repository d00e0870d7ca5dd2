"""New values go to their places, whoever writes them, and each of them once."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lccodec.chain.read.follow.crew import Write, shares, write_all
from lccodec.workers.process import Arena

from ....support.tuning import tuned

ARENA = Arena()


def a_write(size: int, seen: bool, value: int) -> Write:
    """Write a value to the first places, in memory that can be shown to workers or not."""
    held, places, new = np.zeros(50, np.uint16), np.arange(size), np.full(size, value, np.uint16)
    if not seen:
        return Write(held, places, new)
    shown = [ARENA.empty(array.size, array.dtype) for array in (held, places, new)]
    for own, array in zip(shown, (held, places, new), strict=True):
        own[:] = array
    return Write(*shown)


@given(st.lists(st.tuples(st.integers(0, 50), st.booleans())), st.integers(0, 5))
def test_each_value_is_written_once(kinds: list[tuple[int, bool]], workers: int) -> None:
    ARENA.clear()
    writes = [a_write(size, seen, number + 1) for number, (size, seen) in enumerate(kinds)]
    with tuned(follower_min_places=1):
        tasks, own = shares(writes, workers)
    assert len(tasks) <= workers
    share = -(-sum(size for size, _ in kinds) // (workers + 1))
    assert all(sum(places.size for places in task.places) <= share for task in tasks)
    given_away = sum(places.size for task in tasks for places in task.places)
    assert given_away == min(workers * share, sum(size for size, seen in kinds if seen))
    assert given_away + sum(write.places.size for write in own) == sum(size for size, _ in kinds)
    write_all(own)
    for task in tasks:
        task.run({})
    for number, (write, (size, _)) in enumerate(zip(writes, kinds, strict=True)):
        assert write.held.tolist() == [number + 1] * size + [0] * (50 - size)


def test_few_values_are_not_worth_a_message() -> None:
    ARENA.clear()
    write = a_write(50, True, 1)
    assert shares([write], 3) == ([], [write])
