"""Figures of an array agree with NumPy's, for every dtype and at the edges of the number range."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given

import lccodec
from lccodec.errors import ArgumentError
from lccodec.inspect.difference import Bin, summarize
from lccodec.parallel import PIECE

from ..support.strategies import arrays


@given(arrays())
def test_counts_and_extremes_are_numpys(array):
    figures = summarize(array)
    with np.errstate(invalid="ignore"):  # signaling NaN
        wide = array.astype(np.float32) if array.dtype == ml_dtypes.bfloat16 else np.asarray(array)
    assert (figures.dtype, figures.shape, figures.size) == (array.dtype.name, array.shape, array.size)
    assert figures.nans == np.isnan(wide).sum()
    assert figures.infinities == np.isinf(wide).sum()
    finite = wide[np.isfinite(wide)]
    assert figures.zeros == (finite == 0).sum()
    assert figures.finite == finite.size
    if not finite.size:
        assert figures.distribution is None
        return
    with np.errstate(over="ignore"):
        real = np.abs(finite.astype(np.complex128)) if array.dtype.kind == "c" else finite
    spread = figures.distribution
    assert spread.minimum == min(real.min(), np.finfo(float).max)
    assert spread.maximum == min(real.max(), np.finfo(float).max)
    assert spread.minimum <= spread.mean <= spread.maximum or np.isclose(spread.mean, spread.minimum)
    assert sum(bar.count for bar in spread.histogram) == finite.size
    assert spread.histogram[0].low == spread.minimum
    assert spread.histogram[-1].high == spread.maximum
    assert all(bar.low <= bar.high for bar in spread.histogram)


def test_mean_and_deviation_over_several_pieces():
    array = np.random.default_rng(1).normal(3, 2, 3 * PIECE + 17).astype(np.float32)
    spread = summarize(array).distribution
    assert spread.mean == pytest.approx(array.mean(dtype=np.float64))
    assert spread.std == pytest.approx(array.std(dtype=np.float64))
    counts, _ = np.histogram(array, 16)
    assert np.abs(np.array([bar.count for bar in spread.histogram]) - counts).max() <= 2


@pytest.mark.parametrize("scale", [5e-324, 1e-310, 1.0, 1e307])
def test_nothing_overflows_and_nothing_vanishes(scale):
    array = np.array([-10, -5, 0, 5, 10]) * scale
    spread = summarize(array, bins=4).distribution
    assert (spread.minimum, spread.maximum, spread.mean) == (array[0], array[-1], 0)
    assert spread.std == pytest.approx(np.sqrt(50) * scale, abs=5e-324)
    assert [bar.count for bar in spread.histogram] == [1, 1, 1, 2]


def test_the_largest_numbers():
    largest = np.finfo(np.float64).max
    spread = summarize(np.array([-largest, largest])).distribution
    assert (spread.mean, spread.std) == (0, largest)
    assert [bar.count for bar in spread.histogram] == [1, *[0] * 14, 1]


def test_few_integers_have_a_bar_each():
    array = np.array([-1, 2, 2, 2], np.int8)
    assert summarize(array).distribution.histogram == (
        Bin(-1, -1, 1),
        Bin(0, 0, 0),
        Bin(1, 1, 0),
        Bin(2, 2, 3),
    )
    flags = np.array([True, False, True])
    assert summarize(flags).distribution.histogram == (Bin(0, 0, 1), Bin(1, 1, 2))


def test_integers_are_exact():
    array = np.array([0, 2**64 - 1], np.uint64)
    spread = summarize(array).distribution
    assert (spread.minimum, spread.maximum) == (0, 2**64 - 1)
    narrow = np.array([2**62, 2**62 + 1, 2**62 + 1], np.int64)
    assert sum(bar.count for bar in summarize(narrow).distribution.histogram) == 3


def test_one_value_has_one_bar():
    assert summarize(np.full(7, 0.1)).distribution.histogram == (Bin(0.1, 0.1, 7),)
    assert summarize(np.zeros((2, 2), np.float16)).distribution.histogram == (Bin(0, 0, 4),)
    close = np.array([1, np.nextafter(1, 2)])
    assert sum(bar.count for bar in summarize(close).distribution.histogram) == 2


def test_bfloat16_needs_no_package():
    array = np.array([1, 2, np.inf, np.nan], ml_dtypes.bfloat16)
    assert summarize(array.view(np.uint16).view(lccodec.BFLOAT16_BITS)) == summarize(array)


def test_empty_and_not_finite():
    assert summarize(np.empty((0, 3), np.float32)).distribution is None
    figures = summarize(np.array([np.nan, -np.inf, np.inf]))
    assert (figures.nans, figures.infinities, figures.distribution) == (1, 2, None)


def test_another_dtype_is_refused():
    with pytest.raises(ArgumentError, match=r"dtype [<>]U1"):
        summarize(np.array(["a"]))
