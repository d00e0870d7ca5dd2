"""The extent of a field without what stands for nothing, and steps that leave room to round."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lccodec.element_types import components
from lccodec.quantizers.field.plan import Extent, find_extent, usable_step

WINDS = np.linspace(-20, 30, 1000)


def extent_of(array: np.ndarray) -> Extent | None:
    kind, bits = components(array)
    return find_extent(bits, kind)


@pytest.mark.parametrize("fill", [1e20, -9999.0, 9.96921e36])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_fill_values_are_found(fill: float, dtype: type) -> None:
    array = WINDS.astype(dtype)
    array[100:140] = fill
    found = extent_of(array)
    assert found is not None
    assert found.fills == (float(dtype(fill)),)
    assert (found.low, found.high) == (-20, 30)


def test_one_on_either_side() -> None:
    array = WINDS.copy()
    array[:20], array[50:90] = 1e20, -1e15
    found = extent_of(array)
    assert found is not None
    assert set(found.fills) == {1e20, -1e15}
    assert found.range == 50 - (WINDS[20] - WINDS[0])


@pytest.mark.parametrize("few", [1, 15])
def test_outliers_are_numbers(few: int) -> None:
    array = WINDS.copy()
    array[10 : 10 + few] = 1e20
    found = extent_of(array)
    assert found is not None
    assert found.fills == ()
    assert found.high == 1e20


def test_numbers_near_the_others_are_no_fill_values() -> None:
    array = np.maximum(WINDS, 0)
    found = extent_of(array)
    assert found == Extent(0, 30)


def test_what_is_not_finite_has_no_extent() -> None:
    array = WINDS.copy()
    array[::7], array[::11] = np.nan, -np.inf
    found = extent_of(array)
    assert found is not None
    assert (found.low, found.high) == (WINDS[1], WINDS[999])
    assert extent_of(np.full(9, np.nan)) is None
    assert extent_of(np.zeros(0)) is None
    assert extent_of(np.array([-1.7e308, 1.7e308])) == Extent(-1.7e308, 1.7e308)
    assert math.isinf(Extent(-1.7e308, 1.7e308).range)


def step_for(bound: float, array: np.ndarray) -> float | None:
    kind, bits = components(array)
    extent = find_extent(bits, kind)
    assert extent is not None
    return usable_step(bound, bits, kind, extent)


def test_steps_leave_room_for_rounding() -> None:
    array = np.linspace(1, 2, 100, dtype=np.float32)
    unit = 2.0**-22  # of numbers from 2 to 4
    assert step_for(unit / 8, array) is None
    assert step_for(0.0, array) is None
    for bound in (100 * unit, 8 * unit, 2 * unit):
        step = step_for(bound, array)
        assert step is not None
        assert 2 * (bound - unit) <= step <= 2 * (bound - unit / 2)
    assert step_for(unit, array) == pytest.approx(1.5 * unit)


def test_a_few_outliers_do_not_make_an_array_exact() -> None:
    array = np.linspace(1, 2, 1000, dtype=np.float32)
    array[7] = 1e30
    assert step_for(1e-3, array) == pytest.approx(2e-3, rel=1e-3)
