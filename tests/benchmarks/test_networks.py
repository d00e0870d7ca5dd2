"""A run can be stopped and put back, and its batches depend on seed and iteration."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.networks import tasks

from ..support.tiny_tasks import tiny_task


def test_a_run_goes_on_as_if_nothing_had_happened() -> None:
    for task in map(tiny_task, ("gpt", "logistic", "momentum")):
        one = tasks.Run(task)
        one.advance(3, 5)
        state = one.state()
        other = tasks.Run(task, seed=9)
        other.put_back(state, 3)
        for run in (one, other):
            run.advance(2, 6)
        assert all(np.array_equal(a, other.state()[n]) for n, a in one.state().items())
        assert one.quality() == other.quality()


def test_a_learning_rate_has_a_warm_up_or_a_spike() -> None:
    rates = [tiny_task("gpt").rate(i) for i in (1, tasks.WARM_UP, 1000)]
    assert rates == pytest.approx([1e-3 / tasks.WARM_UP, 1e-3, 1e-3])
    plain, spiked = tiny_task("logistic"), replace(tiny_task("logistic"), spikes=True)
    assert plain.rate(tasks.SPIKE_FIRST) == spiked.rate(tasks.SPIKE_LAST + 1) == 0.02
    assert spiked.rate(tasks.SPIKE_FIRST) == spiked.rate(tasks.SPIKE_LAST) == 0.02 * tasks.SPIKE_FACTOR


def test_batches_depend_on_seed_and_iteration() -> None:
    task = tiny_task("logistic")
    epoch = np.concatenate([task.batch_of(1, i)[0].numpy() for i in range(1, 7)])
    assert np.unique(epoch.reshape(96, -1), axis=0).shape[0] == 96
    assert np.array_equal(task.batch_of(1, 2)[0], task.batch_of(1, 2)[0])
    assert not np.array_equal(task.batch_of(1, 2)[0], task.batch_of(2, 2)[0])
