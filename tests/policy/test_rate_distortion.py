"""Estimates on a sample: the entropy of bins, what they leave, and which elements are looked at."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec.element_types import element_type
from lccodec.policy.rate_distortion import SAMPLE, entropy, left, sample, widest
from lccodec.quantizers.bins.representatives import DEAD_ZONE

FLOAT = element_type(np.dtype(np.float32))
differences = st.lists(st.floats(-100, 100), min_size=1, max_size=50).map(np.array)


def test_the_entropy_of_even_bins() -> None:
    assert entropy(np.array([-2.0, -1.0, 0.0, 1.0] * 5), 1.0) == pytest.approx(2)
    assert entropy(np.array([3.0] * 9), 1.0) == 0


@given(differences, st.floats(0.01, 100))
def test_the_entropy_is_at_most_that_of_as_many_bins_as_elements(d: np.ndarray, step: float) -> None:
    assert -1e-9 <= entropy(d, step) <= np.log2(d.size) + 1e-9
    assert entropy(-d, step) == pytest.approx(entropy(d, step))


def test_a_smaller_step_costs_more_and_leaves_less() -> None:
    d = np.random.default_rng(0).standard_normal(4000)
    steps = [0.03, 0.1, 0.3, 1.0, 3.0]
    bits, rest = [entropy(d, step) for step in steps], [left(d, step) for step in steps]
    assert bits == sorted(bits, reverse=True)
    assert rest == sorted(rest)


@given(differences)
def test_a_zone_that_is_wider_than_all_leaves_all(d: np.ndarray) -> None:
    assert left(d, 1e4) == pytest.approx(float(np.mean(d**2)))
    assert entropy(d, 1e4) == 0


def test_what_is_left_in_a_bin_is_that_of_an_even_spread() -> None:
    d = np.linspace(10, 20, 10_000)
    assert left(d, 0.5) == pytest.approx(0.5**2 / 12)


def test_of_nothing_nothing_is_left() -> None:
    assert left(np.empty(0), 1.0) == 0


@pytest.mark.parametrize("size", [0, 1, SAMPLE, SAMPLE + 1, 10 * SAMPLE])
@pytest.mark.parametrize("relative", [False, True])
def test_a_sample_is_of_the_array_and_of_bounded_size(size: int, relative: bool) -> None:
    rng = np.random.default_rng(size)
    after = rng.standard_normal(size).astype(np.float32)
    before = rng.standard_normal(size).astype(np.float32) if relative else None
    all_of_it = after if before is None else after - before
    reference = None if before is None else before.view(np.uint32)
    found, share = sample(after.view(np.uint32), reference, FLOAT, False)
    assert found.dtype == np.float64
    assert share == (1 if size else 0)
    assert min(size, SAMPLE) <= found.size <= 2 * SAMPLE
    if size <= SAMPLE:
        np.testing.assert_array_equal(found, all_of_it)
    else:
        assert set(found) <= set(all_of_it.astype(np.float64))
        assert found[0] == all_of_it[0]
        assert found[-1] in all_of_it[-size // 10 :]  # and so it is of the whole array


def test_what_is_not_finite_is_left_out_and_counted() -> None:
    values = np.array([1, np.nan, np.inf, 2], np.float32)
    found, share = sample(values.view(np.uint32), None, FLOAT, False)
    assert found.tolist() == [1, 2]
    assert share == 0.5


def test_a_sample_does_not_change_with_the_array() -> None:
    values = np.ones(10, np.float32)
    found, _ = sample(values.view(np.uint32), None, FLOAT, False)
    values[:] = 2
    assert found.tolist() == [1] * 10


@given(st.integers(1, 500), st.floats(0.05, 0.9))
def test_the_widest_step_leaves_its_share(size: int, share: float) -> None:
    d = np.random.default_rng(size).standard_t(3, size)
    step = widest(d, share)
    outside = np.square(d[np.abs(d) >= DEAD_ZONE * step * (1 - 1e-12)]).sum()
    further = np.square(d[np.abs(d) >= DEAD_ZONE * step * (1 + 1e-12)]).sum()
    assert further <= share * np.square(d).sum() * (1 + 1e-9) <= outside * (1 + 1e-8)


def test_of_nothing_any_step_leaves_a_share() -> None:
    assert widest(np.zeros(5), 0.1) == widest(np.zeros(0), 0.1) == math.inf
