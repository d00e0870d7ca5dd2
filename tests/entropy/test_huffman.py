"""Codes of bytes, what they cost, and histograms."""

import heapq
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec.entropy import lanes
from lccodec.entropy.lanes import canonical_codes, choose_lengths, entropy_bits, package_merge
from lccodec.loops.search import histogram

from ..support.oracle import order0_entropy_bits


def counts_of(numbers: st.SearchStrategy[int]) -> st.SearchStrategy[list[int]]:
    """Counts of which at least two are not 0."""
    return st.lists(numbers, min_size=2, max_size=256).filter(lambda counts: sum(map(bool, counts)) > 1)


def padded(counts: list[int]) -> np.ndarray:
    return np.array(counts + [0] * (256 - len(counts)), np.int64)


def huffman_cost(counts: np.ndarray) -> int:
    """Total bits of an unlimited Huffman code: the sum of all merged weights."""
    heap = [int(c) for c in counts if c]
    heapq.heapify(heap)
    cost = 0
    while len(heap) > 1:
        merged = heapq.heappop(heap) + heapq.heappop(heap)
        cost += merged
        heapq.heappush(heap, merged)
    return cost


def limited_cost(counts: list[int], limit: int) -> int:
    """Least total bits over every complete set of lengths up to the limit, by exhaustion."""
    best = 10**12
    for lengths in itertools.product(range(1, limit + 1), repeat=len(counts)):
        if sum(2.0**-b for b in lengths) <= 1:
            best = min(best, sum(c * b for c, b in zip(counts, lengths, strict=True)))
    return best


@given(counts_of(st.integers(0, 10_000)))
def test_lengths_are_optimal_where_the_limit_does_not_bind(counts: list[int]) -> None:
    weights = padded(counts)
    lengths = next(package_merge(weights, [15]))
    used = lengths[weights > 0].astype(int)
    assert (lengths[weights == 0] == 0).all()
    assert (2.0**-used).sum() == 1.0
    if used.max() < 15:
        assert int(weights @ lengths) == huffman_cost(weights)


@given(st.lists(st.integers(1, 50), min_size=2, max_size=5), st.integers(3, 4))
def test_lengths_are_optimal_under_the_limit(counts: list[int], limit: int) -> None:
    (lengths,) = package_merge(padded(counts), [limit])
    assert lengths.max() <= limit
    assert int(padded(counts) @ lengths) == limited_cost(counts, limit)


@pytest.mark.parametrize("limit", [8, 12, 15])
def test_fibonacci_counts_keep_the_limit(limit: int) -> None:
    counts = [1, 1]
    while len(counts) < 40:
        counts.append(counts[-1] + counts[-2])
    (lengths,) = package_merge(padded(counts), [limit])
    assert lengths.max() == limit
    assert (2.0 ** -lengths[:40].astype(int)).sum() == 1.0


def test_canonical_codes_rise_with_length_then_symbol() -> None:
    lengths = np.array([2, 1, 3, 0, 3], np.uint8)
    assert canonical_codes(lengths).tolist() == [0b10, 0b0, 0b110, 0, 0b111]


@given(counts_of(st.integers(0, 3) | st.integers(0, 10**9)))
def test_both_forms_choose_the_same_lengths(counts: list[int]) -> None:
    weights = padded(counts)
    expected = lanes._choose_lengths(weights)
    for form in (lanes._choose_lengths_loop, choose_lengths):
        np.testing.assert_array_equal(form(weights), expected)


def test_both_forms_choose_longer_codes_where_they_save_enough() -> None:
    weights = padded([int(1.7**place) for place in range(30)])
    assert int(choose_lengths(weights).max()) == 15
    np.testing.assert_array_equal(lanes._choose_lengths_loop(weights), choose_lengths(weights))


@pytest.mark.parametrize("alphabet", [1, 2, 7, 256])
def test_entropy_is_that_of_the_oracle(alphabet: int) -> None:
    data = np.random.default_rng(alphabet).integers(0, alphabet, 5000).astype(np.uint8)
    expected = order0_entropy_bits(data.tolist())
    assert float(entropy_bits(histogram(data))) == round(expected)
    # Each row of a table has its own entropy; a row without symbols has none.
    table = np.stack([histogram(data), histogram(data[:0])])
    assert entropy_bits(table.astype(np.float64)).tolist() == [round(expected), 0]
