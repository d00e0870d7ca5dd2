"""How often byte values occur, and sums by symbol: both forms."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec.loops.counts import _histogram, _histogram_loop, _tally_loop, _tally_numpy, histogram, tally


@pytest.mark.parametrize("size", [0, 1, 1000, 1 << 17, (1 << 17) + 1])
def test_pairs_are_counted_as_single_symbols(size: int) -> None:
    data = np.random.default_rng(size).integers(0, 256, size).astype(np.uint8)
    np.testing.assert_array_equal(histogram(data), np.bincount(data, minlength=256))


@given(st.binary(max_size=50))
def test_both_forms_count_the_same(data: bytes) -> None:
    symbols = np.frombuffer(data, np.uint8)
    expected = np.bincount(symbols, minlength=256)
    for form in (_histogram, _histogram_loop, histogram):
        np.testing.assert_array_equal(form(symbols), expected)


@given(st.lists(st.integers(0, 4), max_size=30), st.sampled_from("fd"), st.sampled_from([1.0, 2.0**-64]))
def test_both_forms_add_the_same(symbols: list[int], kind: str, unit: float) -> None:
    places = np.array(symbols, np.uint8)
    numbers = np.random.default_rng(len(symbols)).standard_normal(places.size).astype(kind)
    counts, sums = tally(places, numbers, unit, 5)
    for symbol in range(5):
        its_own = (numbers * numbers.dtype.type(unit))[places == symbol].astype(float)
        assert counts[symbol] == its_own.size
        assert sums[symbol] == sum(its_own.tolist())
    for form in (_tally_numpy, _tally_loop):
        number, total = np.zeros(5, np.int64), np.zeros(5)
        form(places, numbers, numbers.dtype.type(unit), number, total)
        np.testing.assert_array_equal(number, counts)
        np.testing.assert_array_equal(total, sums)
