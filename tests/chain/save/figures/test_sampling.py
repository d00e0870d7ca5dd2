"""Which components are sampled: evenly, and not too many."""

from __future__ import annotations

import numpy as np
import pytest

from lccodec.chain.save.figures.sampling import Sampling, _distance
from lccodec.chain.save.plan import candidates
from lccodec.container.tree import flatten


def sampling(*arrays: np.ndarray) -> Sampling:
    return Sampling(candidates(flatten(list(arrays)), {}))


def test_a_small_state_is_sampled_whole() -> None:
    arrays = np.zeros((30, 50), np.float32), np.zeros(7, np.complex64), np.zeros(9, np.int8), np.zeros(0)
    found = sampling(*arrays)
    assert found.distances == [1, 1, 1, 1]
    batches = [(indices, sizes.tolist()) for indices, sizes in found.batches()]
    assert batches == [([0], [1500]), ([1], [14])]


@pytest.mark.parametrize("shape", [(1000, 1000), (900, 9), (40_000,), (300, 50, 3, 3), ()])
def test_the_sample_takes_a_sixteenth_of_a_large_state(shape: tuple[int, ...]) -> None:
    arrays = [np.zeros(shape, np.float32)] * 3 + [np.zeros((2000, 2000), np.float32)]
    found = sampling(*(array.copy() for array in arrays))
    total = 0
    for indices, sizes in found.batches():
        for index, size in zip(indices, sizes.tolist(), strict=True):
            assert found.of(index, arrays[index].reshape(-1)).size == size
            assert min(64, arrays[index].size) <= size <= 8192
            total += size
    assert total <= max(sum(array.size for array in arrays) / 16, 1 << 18)


@pytest.mark.parametrize("row", [1, 64, 75, 4608, 257, 50_000])
def test_every_column_is_in_the_sample(row: int) -> None:
    size = row * 8192
    columns = np.arange(0, size, _distance(size, 8192, row)) % row
    counts = np.bincount(columns, minlength=row)
    assert counts.max() - counts.min() <= 1 + 8192 // size


def test_many_arrays_are_measured_in_batches() -> None:
    found = sampling(*(np.zeros(3000, np.float32) for _ in range(100)))
    batches = list(found.batches())
    assert 1 < len(batches) < 20
    assert [index for indices, _ in batches for index in indices] == list(range(100))
