"""Places of what differs, and of what is small: both forms against plain comparisons."""

from collections.abc import Callable

import numpy as np
import pytest

from lccodec.element_types import Array
from lccodec.loops import differences, sizes

SIZES = [0, 1, 7, 8, 700, (1 << 15) + 3]


def numbers(dtype: str, size: int, top: int | None = None) -> Array:
    most = top or np.iinfo(dtype).max
    return np.random.default_rng(size).integers(0, most, size, dtype=dtype, endpoint=True)


@pytest.mark.parametrize("dtype", ["u1", "u2", "u4", "u8"])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.4, 1.0])
def test_places_that_differ(dtype: str, share: float) -> None:
    for size in SIZES:
        one = numbers(dtype, size)
        changed = np.random.default_rng(1).random(size) < share
        other = one ^ changed.astype(dtype)
        forms = [differences._differing, differences.differing]
        for form in [*forms, differences._differing_loop][: 3 if size < 100 else 2]:
            for found in (form(one, other), form(one ^ other, one[:0])):
                assert found.dtype == np.int64
                np.testing.assert_array_equal(found, np.flatnonzero(changed))


@pytest.mark.parametrize("dtype", ["u1", "u2", "u4", "u8"])
def test_places_of_sizes_between_bounds(dtype: str) -> None:
    full = int(np.iinfo(dtype).max)
    half = full >> 1
    bounds = [(0, 0), (0, 1), (0, half // 9), (half // 3, half), (5, half + 1), (0, full), (half, full)]
    forms: list[Callable[..., Array]] = [sizes._between, sizes.between]
    for size in SIZES:
        bits = numbers(dtype, size)
        bare = bits & bits.dtype.type(half)
        for low, high in bounds:
            for form in [*forms, sizes._between_loop][: 3 if size < 100 else 2]:
                found = form(bits, low, high)
                assert found.dtype == np.int64
                expected = (bare >= bits.dtype.type(low)) & (bare < bits.dtype.type(high))
                np.testing.assert_array_equal(found, np.flatnonzero(expected))
