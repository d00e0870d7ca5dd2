from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from lccodec.element_types import components
from lccodec.entropy.zigzag import unzigzag, zigzag

from ..support.strategies import ALL_DTYPES, array_and_reference, dtype_of, random_array


@given(array_and_reference())
def test_zigzag_is_undone(pair: tuple[np.ndarray, np.ndarray | None]) -> None:
    array, reference = pair
    kind, x = components(array)
    r = None if reference is None else components(reference)[1]
    out = np.empty_like(x)
    unzigzag(zigzag(x, r, kind), r, kind, out)
    np.testing.assert_array_equal(out, x)
    if r is not None:  # in place of the reference
        unzigzag(zigzag(x, r.copy(), kind), r, kind, r)
        np.testing.assert_array_equal(r, x)


@pytest.mark.parametrize("name", ALL_DTYPES)
def test_no_reference_is_a_reference_of_zeros(name: str) -> None:
    kind, x = components(random_array(name, (500,), 3, special=0.5))
    np.testing.assert_array_equal(zigzag(x, None, kind), zigzag(x, np.zeros_like(x), kind))


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_neighbours_differ_by_one(name: str) -> None:
    dtype = dtype_of(name)
    kind, _ = components(np.zeros(1, dtype))
    one = np.ones(1, dtype).view(kind.bits)
    for pattern in (one, one | kind.bits.type(1 << (8 * kind.size - 1))):  # 1.0 and -1.0
        steps = zigzag(np.concatenate([pattern + 1, pattern - 1]), np.concatenate([pattern, pattern]), kind)
        assert sorted(steps.tolist()) == [1, 2]
    zeros = np.array([0.0, -0.0], dtype).view(kind.bits)
    assert zigzag(zeros[1:], zeros[:1], kind).tolist() == [1]  # -0.0 comes right before +0.0
