"""Figures of arrays without any type of ml_dtypes: what the core shows by itself."""

from __future__ import annotations

import numpy as np
import pytest

from lccodec.inspect.difference import summarize


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float16", "float32", "float64", "complex64"])
def test_counts_and_moments_are_numpys(dtype: str) -> None:
    values = np.random.default_rng(1).integers(0, 2 if dtype == "bool" else 90, 5_000)
    array = values.astype(dtype).reshape(50, 100)
    found = summarize(array, bins=8)
    assert (found.dtype, found.shape, found.size, found.nans) == (dtype, (50, 100), 5_000, 0)
    assert found.zeros == np.count_nonzero(array == 0)
    spread = found.distribution
    assert spread is not None
    assert (spread.minimum, spread.maximum) == (values.min(), values.max())
    assert (spread.mean, spread.std) == (pytest.approx(values.mean()), pytest.approx(values.std()))
    assert sum(bar.count for bar in spread.histogram) == values.size


def test_each_integer_of_a_narrow_range_has_its_bar() -> None:
    spread = summarize(np.array([3, 5, 5, 4, 5], np.int16), bins=30).distribution
    assert spread is not None
    assert [(bar.low, bar.high, bar.count) for bar in spread.histogram] == [(3, 3, 1), (4, 4, 1), (5, 5, 3)]


def test_what_is_not_finite_is_counted_and_left_out() -> None:
    found = summarize(np.array([np.nan, np.inf, -np.inf, 0.0, 2.0], np.float32), bins=2)
    assert (found.nans, found.infinities, found.finite, found.zeros) == (1, 2, 2, 1)
    assert found.distribution is not None
    assert (found.distribution.minimum, found.distribution.maximum) == (0.0, 2.0)
    assert summarize(np.array([np.nan])).distribution is None


def test_a_magnitude_beyond_float64_counts_as_its_largest_number() -> None:
    largest = np.finfo(np.float64).max
    spread = summarize(np.array([complex(largest, largest), 0])).distribution
    assert spread is not None
    assert spread.maximum == largest
