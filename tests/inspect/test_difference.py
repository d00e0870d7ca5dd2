"""Figures of an array agree with NumPy's, for every dtype and at the edges of the number range.

Figures of arrays without any type of ml_dtypes: what the core shows by itself.

How two states differ: which leaves, and by how much.
"""

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lccodec
from lccodec.chain.read.checkpoint import open_path
from lccodec.errors import ArgumentError
from lccodec.inspect.difference import Bin, Leaves, Replacement, ScalarChange, compare_states, summarize
from lccodec.parallel import PIECE

from ..support.strategies import arrays
from ..support.tuning import tune


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


def change(old, new):
    difference = compare_states({"x": old}, {"x": new})
    assert len(difference.changed) == 1
    return difference.changed[0]


def test_what_came_and_went_and_became_something_else():
    old = {"gone": 1, "a": np.zeros(2), "b": np.zeros(2), "c": 1, "d": None, "same": np.ones(1)}
    new = {"a": np.zeros(3), "b": np.zeros(2, "f4"), "c": np.ones(1), "d": 2, "same": np.ones(1), "new": "x"}
    difference = compare_states(old, new)
    assert difference.appeared == ("new",)
    assert difference.disappeared == ("gone",)
    assert difference.replaced == (
        Replacement("a", "float64 (2,)", "float64 (3,)"),
        Replacement("b", "float64 (2,)", "float32 (2,)"),
        Replacement("c", "scalar int", "float64 (1,)"),
        Replacement("d", "None", "scalar int"),
    )
    assert (difference.unchanged, difference.changed, difference.scalars) == (1, (), ())


def test_scalars():
    old = {"lr": 0.1, "nan": math.nan, "zero": 0.0, "name": "a", "none": None}
    new = {"lr": 0.2, "nan": math.nan, "zero": -0.0, "name": "a", "none": None}
    difference = compare_states(old, new)
    assert difference.scalars == (ScalarChange("lr", 0.1, 0.2), ScalarChange("zero", 0.0, -0.0))
    assert difference.unchanged_scalars == 3


def test_figures_over_several_pieces():
    rng = np.random.default_rng(1)
    old = rng.normal(size=2 * PIECE + 5).astype(np.float32)
    new = np.where(rng.random(old.size) < 0.25, old + np.float32(0.5), old)
    found = change(old, new)
    gap = new.astype(float) - old
    assert found.changed == (gap != 0).sum()
    assert found.share == found.changed / old.size
    assert found.max_abs == np.abs(gap).max()
    assert found.rms == pytest.approx(np.sqrt(np.mean(gap**2)))
    assert found.relative_rms == pytest.approx(found.rms / np.sqrt(np.mean(old.astype(float) ** 2)))
    lengths = np.linalg.norm(old.astype(float)) * np.linalg.norm(new.astype(float))
    assert found.cosine == pytest.approx(np.sum(old.astype(float) * new) / lengths)


@given(arrays(), st.randoms())
def test_every_dtype_differs_from_itself_with_one_element_changed(array, random):
    array = np.asarray(array)
    assert compare_states({"x": array}, {"x": array.copy()}).unchanged == 1
    if array.size:
        other = array.copy()
        patterns = other.reshape(-1).view(np.uint8)
        patterns[random.randrange(patterns.size)] ^= 1
        other = patterns.view(array.dtype).reshape(array.shape)
        found = change(array, other)
        assert (found.changed, found.dtype, found.shape) == (1, array.dtype.name, array.shape)
        assert found.max_abs is None or found.max_abs >= 0


@pytest.mark.parametrize(
    ("dtype", "old", "new", "gap"),
    [
        ("int8", -128, 127, 255),
        ("int64", 2**62, 2**62 + 1, 1),
        ("int64", -(2**63), 2**63 - 1, 2.0**64),
        ("uint64", 2**64 - 1, 0, 2.0**64),
        ("bool", True, False, 1),
        ("complex64", 3j, 4, 5),
        ("float64", 1e-320, 2e-320, 1e-320),
        ("float64", 0, 1e300, 1e300),
    ],
)
def test_differences_do_not_wrap_overflow_or_vanish(dtype, old, new, gap):
    found = change(np.array([old], dtype), np.array([new], dtype))
    assert found.max_abs == found.rms == pytest.approx(gap)


def test_a_difference_beyond_the_largest_number_is_infinite():
    largest = np.finfo(np.float64).max
    assert change(np.array([-largest]), np.array([largest])).max_abs == math.inf


def test_elements_that_are_not_finite_are_counted_apart():
    found = change(np.array([np.nan, np.inf, 1, 2]), np.array([np.nan, 0, np.nan, 3]))
    assert (found.changed, found.not_finite, found.max_abs) == (3, 2, 1)
    assert found.relative_rms == 0.5
    found = change(np.array([np.nan]), np.array([1.0]))
    assert (found.max_abs, found.rms, found.relative_rms) == (None, None, None)


def test_signs_of_zero_differ_and_a_zero_array_has_no_relative_error():
    found = change(np.zeros(2), -np.zeros(2))
    assert (found.changed, found.max_abs, found.relative_rms) == (2, 0, None)


def test_the_cosine_of_an_angle():
    assert change(np.array([1e300, 0]), np.array([-1e-300, 0])).cosine == pytest.approx(-1)
    assert change(np.array([1, 0]), np.array([0, 5])).cosine == 0
    assert change(np.array([1j]), np.array([1 + 1j])).cosine == pytest.approx(np.sqrt(0.5))
    assert change(np.zeros(2), np.ones(2)).cosine is None
    assert change(np.full(1, np.nan), np.ones(1)).cosine is None


def test_leaves_of_a_checkpoint(tmp_path, monkeypatch):
    weight = np.ones(3, ml_dtypes.bfloat16)
    lccodec.save_file({"": {"w": weight, "tied": weight}, "n": [1, "x"], "e/f": 2}, tmp_path / "a.lcc.h5")
    monkeypatch.setitem(__import__("sys").modules, "ml_dtypes", None)
    with open_path(tmp_path / "a.lcc.h5") as file:
        leaves = Leaves(file)
        assert list(leaves) == ["/w", "/tied", "n/0", "n/1", "e~1f"]
        assert len(leaves) == 5
        assert leaves["/w"].dtype == lccodec.BFLOAT16_BITS
        assert leaves["n/1"] == "x"
        assert compare_states(leaves, leaves).unchanged == 2
    lccodec.save_file(np.ones(3), tmp_path / "b.lcc.h5")
    with open_path(tmp_path / "b.lcc.h5") as file:
        assert list(Leaves(file)) == [""]


@pytest.mark.parametrize("most", [1 << 26, 1])
def test_what_is_decoded_together_is_not_kept_for_long(tmp_path, monkeypatch, most):
    """Copies of large arrays would be in memory until all are compared."""
    tune(monkeypatch, difference_max_kept_bytes=most)
    weights = np.arange(30_000, dtype=np.float32)  # in a frame of its own
    state = {"a": weights, "b": weights.copy(), "half": weights.astype(np.float16), "c": weights + 1}
    lccodec.save_file(state, tmp_path / "a.lcc.h5")
    with open_path(tmp_path / "a.lcc.h5") as file:
        leaves = Leaves(file)
        assert len(file.together[0]) == 3
        for number, (name, array) in enumerate(state.items(), 1):
            np.testing.assert_array_equal(leaves[name], array)
            assert len(leaves._kept) == max(3 - number, 0) * (most > 1)
        for name, array in state.items():
            np.testing.assert_array_equal(leaves[name], array)


def test_progress_is_told():
    calls = []
    compare_states({}, {"a": 1, "b": 2}, lambda *call: calls.append(call))
    assert calls == [(1, 2), (2, 2)]
