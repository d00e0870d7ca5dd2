"""Which components are sampled: evenly, and not too many."""

from __future__ import annotations

import numpy as np
import pytest

from lccodec.chain.read.replay import DecodedArray
from lccodec.chain.save.figures.sampling import Sampling, _distance
from lccodec.chain.save.plan import candidates
from lccodec.container.tree import flatten
from lccodec.policy.policy import Candidate


def sampling(*arrays: np.ndarray) -> Sampling:
    return Sampling(candidates(flatten(list(arrays)), {}))


def test_a_small_state_is_sampled_whole() -> None:
    arrays = np.zeros((30, 50), np.float32), np.zeros(7, np.complex64), np.zeros(9, np.int8), np.zeros(0)
    found = sampling(*arrays)
    assert found.distances == [1, 1, 1, 1]
    batches = [(group.indices, group.sizes.tolist()) for group in found.groups]
    assert batches == [([0], [1500]), ([1], [14])]


@pytest.mark.parametrize("shape", [(1000, 1000), (900, 9), (40_000,), (300, 50, 3, 3), ()])
def test_the_sample_takes_a_sixteenth_of_a_large_state(shape: tuple[int, ...]) -> None:
    arrays = [np.zeros(shape, np.float32)] * 3 + [np.zeros((2000, 2000), np.float32)]
    found = sampling(*(array.copy() for array in arrays))
    total = 0
    for group in found.groups:
        for index, size in zip(group.indices, group.sizes.tolist(), strict=True):
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
    assert 1 < len(found.groups) < 40
    assert [index for group in found.groups for index in group.indices] == list(range(100))


def after(state: dict[str, np.ndarray], before: dict[str, np.ndarray]) -> list[Candidate]:
    """The arrays of a state that follows on another one."""
    parents = {c.name: DecodedArray(c.kind, c.shape, c.bits) for c in candidates(flatten(before), {})}
    return candidates(flatten(state), parents)


def test_a_state_is_sampled_as_the_one_before_only_if_it_has_the_same_arrays() -> None:
    large, small = np.zeros((1000, 300), np.float32), np.zeros(5, np.float32)
    before = {"large": large, "small": small}
    found = Sampling(after(before, {}))
    assert found.fits(after(before, before), before)
    assert not found.fits(after(before, {}), before)  # they may have other types
    assert not found.fits(after({"small": small, "large": large}, before), before)
    assert not found.fits(after({"large": large}, before), before)
    assert not found.fits(after({**before, "small": np.zeros(6, np.float32)}, before), before)
    drawn, left = after(before, before), after(before, before)
    drawn[0].role, left[1].inherited = "second_moment", True
    assert not found.fits(drawn, before) and Sampling(drawn).fits(drawn, before)
    assert not found.fits(left, before)
