"""What a field is: its extent, what stands for nothing in it, and whether it is smooth."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec.element_types import components
from lccodec.quantizers.field import Extent, find_extent, is_smooth, usable_step

WINDS = np.linspace(-20, 30, 1000)


def extent_or_none(array: np.ndarray) -> Extent | None:
    kind, bits = components(array)
    return find_extent(bits, kind)


def extent_of(array: np.ndarray) -> Extent:
    found = extent_or_none(array)
    assert found is not None
    return found


@pytest.mark.parametrize("fill", [1e20, -9999.0, 9.96921e36])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_fill_values_are_found(fill: float, dtype: type) -> None:
    array = WINDS.astype(dtype)
    array[100:140] = fill
    found = extent_of(array)
    assert found.fills == (float(dtype(fill)),)
    assert (found.low, found.high) == (-20, 30)


def test_one_on_either_side() -> None:
    array = WINDS.copy()
    array[:20], array[50:90] = 1e20, -1e15
    found = extent_of(array)
    assert set(found.fills) == {1e20, -1e15}
    assert found.range == 50 - (WINDS[20] - WINDS[0])


@pytest.mark.parametrize("few", [1, 15])
def test_outliers_are_numbers(few: int) -> None:
    array = WINDS.copy()
    array[10 : 10 + few] = 1e20
    found = extent_of(array)
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
    assert (found.low, found.high) == (WINDS[1], WINDS[999])
    assert extent_or_none(np.full(9, np.nan)) is None
    assert extent_or_none(np.zeros(0)) is None
    assert extent_of(np.array([-1.7e308, 1.7e308])) == Extent(-1.7e308, 1.7e308)
    assert math.isinf(Extent(-1.7e308, 1.7e308).range)


def step_for(bound: float, array: np.ndarray) -> float | None:
    kind, bits = components(array)
    return usable_step(bound, bits, kind, extent_of(array))


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


X = np.linspace(0, 6, 60)
RNG = np.random.default_rng(0)
FIELD = np.sin(X)[:, None] * np.cos(2 * X)


def smooth(array: np.ndarray) -> bool:
    kind, bits = components(np.ascontiguousarray(array))
    return is_smooth(bits, array.shape, kind)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_field_is_smooth_along_any_axis(dtype: type) -> None:
    assert smooth(FIELD.astype(dtype))
    layers = np.stack([FIELD * 10.0**k for k in (0, -2, 1)])
    assert smooth(layers.astype(dtype))  # along its rows and columns
    assert smooth(np.moveaxis(layers, 0, -1).astype(dtype))  # what lies together is not alike


@pytest.mark.parametrize(
    "array",
    [
        *(RNG.standard_normal((100, 100)), RNG.standard_normal((50, 20, 3, 3)) ** 3, RNG.random((5000, 3))),
        np.where(RNG.random(5000) < 0.01, 1.5, 0.0),
        np.arange(5000.0),  # whole numbers: names
        *(np.full(5000, 0.5), np.full(5000, np.nan), np.zeros((0, 5)), np.array(0.5), np.array([0.5, 0.75])),
        *(np.linspace(0, 1, 5000) * 1j, np.arange(5000)),
    ],
)
def test_what_is_not_smooth(array: np.ndarray) -> None:
    assert not smooth(array)


def test_a_field_with_gaps_is_smooth() -> None:
    field = FIELD.copy()
    field[10:20, 5:40] = 1e20
    field[30, 30] = np.nan
    field[31, 31] = np.inf
    assert smooth(field)


@given(st.integers(0, 2**32 - 1), st.integers(20, 70), st.integers(20, 70))
def test_noise_is_never_smooth(seed: int, rows: int, columns: int) -> None:
    assert not smooth(np.random.default_rng(seed).standard_normal((rows, columns)))


@given(st.sampled_from([np.sin, np.exp, np.square]), st.integers(30, 5000), st.floats(1e-5, 1e5))
def test_functions_are_smooth_at_any_scale(f: Callable[..., np.ndarray], size: int, scale: float) -> None:
    assert smooth(scale * f(np.linspace(0, 3, size)))
