"""Bins that grow count as NumPy does over the range that they have in the end."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lccodec.inspect.trajectory import MAX_BINS, Bins

numbers = (
    st.floats(allow_nan=False, allow_infinity=False) | st.floats(-4, 4) | st.sampled_from([0.0, -0.0, 1.0])
)
rows = st.lists(st.lists(st.lists(numbers, min_size=1, max_size=20), max_size=3), min_size=1, max_size=12)


def counted(rows):
    bins = Bins()
    for pieces in rows:
        bins.begin()
        for piece in pieces:
            values = np.array(piece, np.float64)
            bins.add(values, float(values.min()), float(values.max()))
    return bins.histogram()


@pytest.mark.slow
@given(rows)
@example([[[2.6976711110360728e188, -2.3666914865698747e-137]]])
def test_every_value_is_counted_once_in_its_bin(rows):
    found = counted(rows)
    if not any(map(any, rows)):
        assert found is None
        return
    assert 1 <= max(map(len, found.counts)) <= MAX_BINS
    assert found.low < found.high
    for pieces, counts in zip(rows, found.counts, strict=True):
        values = [value for piece in pieces for value in piece]
        assert sum(counts) == len(values)
        assert all(found.low <= value <= found.high for value in values)


@pytest.mark.parametrize("scale", [1e-200, 1e-3, 1.0, 3e7])
@pytest.mark.parametrize("shift", [0.0, 5.0, -1e6])
def test_counts_are_those_of_numpy(scale, shift):
    rng = np.random.default_rng(3)
    steps = [[rng.normal(shift, 1.5**step, 5000) * scale for _ in range(2)] for step in range(9)]
    found = counted(steps)
    used = max(map(len, found.counts))
    assert MAX_BINS // 2 <= used <= MAX_BINS
    edges = np.linspace(found.low, found.high, used + 1)
    expected = [np.histogram(np.concatenate(pieces), edges)[0].tolist() for pieces in steps]
    assert [list(row) for row in found.counts] == expected


def test_equal_values_need_one_bin():
    found = counted([[[0.0] * 5], [[0.0]]])
    assert found.counts == [[5], [1]]
    found = counted([[[3.0] * 5], [], [[3.0]]])
    assert (found.low, found.counts) == (3.0, [[5], [], [1]])


def test_the_largest_numbers():
    most = np.finfo(np.float64).max
    found = counted([[[-most, most]], [[0.0, 5e-324]]])
    assert (found.low, found.high) == (-most, most)
    assert [sum(row) for row in found.counts] == [2, 2]


def test_the_smallest_numbers():
    found = counted([[[5e-324, 1e-323, 0.0]]])
    assert found.low == 0.0
    assert found.counts == [[1, 1, 1]]
