from __future__ import annotations

import numpy as np
import pytest

from lccodec.quantizers.promote import promote


@pytest.mark.parametrize("bits", range(1, 9))
def test_as_many_as_the_bits_allow(bits: int) -> None:
    exponents = np.arange(1000)
    assert promote(exponents, np.zeros(1000, bool), bits).tolist() == list(range(999, 999 - 2**bits + 1, -1))


def test_largest_exponent_first_and_of_equals_the_positive() -> None:
    exponents = np.array([3, 7, 7, 5])
    negative = np.array([False, True, False, True])
    assert promote(exponents, negative, 1).tolist() == [2]
    assert promote(exponents, negative, 2).tolist() == [2, 1, 3]


def test_fewer_buckets_than_symbols() -> None:
    assert promote(np.array([4]), np.array([True]), 8).tolist() == [0]
    assert promote(np.array([], int), np.array([], bool), 3).size == 0
