"""How often byte values occur: both forms."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec.loops.counts import _histogram, _histogram_loop, histogram


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
