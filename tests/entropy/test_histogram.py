from __future__ import annotations

import numpy as np
import pytest

from lccodec.entropy.histogram import entropy_bits, histogram

from ..support.oracle import order0_entropy_bits


@pytest.mark.parametrize("size", [0, 1, 1000, 1 << 17, (1 << 17) + 1])
def test_pairs_are_counted_as_single_symbols(size: int) -> None:
    data = np.random.default_rng(size).integers(0, 256, size).astype(np.uint8)
    np.testing.assert_array_equal(histogram(data), np.bincount(data, minlength=256))


@pytest.mark.parametrize("alphabet", [1, 2, 7, 256])
def test_entropy_is_that_of_the_oracle(alphabet: int) -> None:
    data = np.random.default_rng(alphabet).integers(0, alphabet, 5000).astype(np.uint8)
    expected = order0_entropy_bits(data.tolist())
    assert float(entropy_bits(histogram(data))) == round(expected)
    # Each row of a table has its own entropy; a row without symbols has none.
    table = np.stack([histogram(data), histogram(data[:0])])
    assert entropy_bits(table.astype(np.float64)).tolist() == [round(expected), 0]
