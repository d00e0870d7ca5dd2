from __future__ import annotations

from hashlib import sha256
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec.chain.save.hashes.segments import (
    HASH_BYTES,
    MAX_SEGMENT,
    MIN_SEGMENT,
    changed_segments,
    differing,
    hash_segments,
    runs_of,
    segment_size,
)


@pytest.mark.parametrize("size", [0, 1, 1023, 1024, 1025, 5000])
def test_a_hash_for_each_segment(size: int) -> None:
    bits = np.arange(size, dtype=np.uint32)
    data = bits.astype("<u4").tobytes()
    hashes = hash_segments(bits, 4096)
    assert hashes.shape == (-(-size // 1024), HASH_BYTES)
    for number, found in enumerate(hashes):
        assert found.tobytes() == sha256(data[4096 * number : 4096 * (number + 1)]).digest()[:HASH_BYTES]


@given(st.lists(st.integers(0, 3_000_000), max_size=5), st.sets(st.integers(0, 2_999_999), max_size=5))
def test_segments_that_changed_are_found(sizes: list[int], places: set[int]) -> None:
    arrays = [np.zeros(size, np.uint8) for size in sizes]
    hashes = [hash_segments(bits, 4096) for bits in arrays]
    for bits in arrays:
        bits[[place for place in places if place < bits.size]] = 1
    calls: list[int] = []
    pairs = zip(arrays, hashes, strict=True)
    found = list(changed_segments(pairs, 4096, lambda: calls.append(1)))
    for bits, differ in zip(arrays, found, strict=True):
        assert set(np.flatnonzero(differ)) == {place // 4096 for place in places if place < bits.size}
        assert differ.size == -(-bits.size // 4096)
    assert len(found) == len(sizes)
    assert bool(calls) == bool(sizes)


def test_differing() -> None:
    left = np.zeros((3, HASH_BYTES), np.uint8)
    right = left.copy()
    right[1, -1] = 1
    assert differing(left, right).tolist() == [False, True, False]


@given(st.sets(st.integers(0, 40)))
def test_runs(segments: set[int]) -> None:
    runs = list(runs_of(sorted(segments)))
    assert [each for run in runs for each in range(*run)] == sorted(segments)
    assert all(stop < start for (_, stop), (start, _) in pairwise(runs))


@pytest.mark.parametrize("log2", range(10, 50, 3))
def test_hashes_take_at_most_a_thousandth_of_a_state_and_32_mib(log2: int) -> None:
    nbytes = 1 << log2
    size = segment_size(nbytes)
    assert MIN_SEGMENT <= size <= MAX_SEGMENT
    assert nbytes // size * HASH_BYTES <= max(1 << 25, nbytes // 4096)
