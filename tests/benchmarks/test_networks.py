"""A run can be stopped and put back, and its batches depend on seed and iteration."""

from __future__ import annotations

import numpy as np

from benchmarks.networks import tasks

from ..support.tiny_tasks import tiny_task


def test_a_run_goes_on_as_if_nothing_had_happened() -> None:
    for task in map(tiny_task, ("gpt", "logistic")):
        one = tasks.Run(task)
        one.advance(3, 5)
        state = one.state()
        other = tasks.Run(task, seed=9)
        other.put_back(state, 3)
        for run in (one, other):
            run.advance(2, 6)
        assert all(np.array_equal(a, other.state()[n]) for n, a in one.state().items())
        assert one.quality() == other.quality()


def test_batches_depend_on_seed_and_iteration() -> None:
    task = tiny_task("logistic")
    epoch = np.concatenate([task.batch_of(1, i)[0].numpy() for i in range(1, 7)])
    assert np.unique(epoch.reshape(96, -1), axis=0).shape[0] == 96
    assert np.array_equal(task.batch_of(1, 2)[0], task.batch_of(1, 2)[0])
    assert not np.array_equal(task.batch_of(1, 2)[0], task.batch_of(2, 2)[0])
