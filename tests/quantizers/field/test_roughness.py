"""Whether an array is smooth: fields are, noise and names are not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec.element_types import components
from lccodec.quantizers.field.roughness import is_smooth

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
        RNG.standard_normal((100, 100)),
        RNG.standard_normal((50, 20, 3, 3)) ** 3,
        RNG.random((5000, 3)),
        np.where(RNG.random(5000) < 0.01, 1.5, 0.0),
        np.arange(5000.0),  # whole numbers: names
        np.full(5000, 0.5),
        np.full(5000, np.nan),
        np.zeros((0, 5)),
        np.array(0.5),
        np.array([0.5, 0.75]),
        np.linspace(0, 1, 5000) * 1j,
        np.arange(5000),
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
