"""Buckets of equal sign and exponent: both forms."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lccodec.loops import buckets

from ..support.strategies import random_array

TYPES = {"float16": ("u2", 10, 5), "float32": ("u4", 23, 8), "float64": ("u8", 52, 11)}


@given(st.sampled_from(sorted(TYPES)), st.integers(0, 40), st.integers(0, 2**32))
def test_forms(name: str, size: int, seed: int) -> None:
    code, shift, exponents = TYPES[name]
    patterns = random_array(name, (size,), seed).view(code)
    extremes = []
    for form in (buckets._widen_numpy, buckets._widen_loop, buckets.widen):
        least = np.full(2 << exponents, np.iinfo(code).max, code)
        most = np.zeros(2 << exponents, code)
        form(patterns, shift, least, most)
        form(patterns[:0], shift, least, most)
        extremes.append((least, most))
    for number in set((patterns >> shift).tolist()):
        own = patterns[patterns >> shift == number]
        assert (extremes[0][0][number], extremes[0][1][number]) == (own.min(), own.max())
    table = np.random.default_rng(seed).integers(0, 9, 2 << exponents).astype(np.uint8)
    expected = table[patterns >> shift]
    for pair in extremes[1:]:
        np.testing.assert_array_equal(pair, extremes[0])
    forms = buckets._bucket_symbols_numpy, buckets._bucket_symbols_loop, buckets.bucket_symbols
    for form in forms:
        np.testing.assert_array_equal(form(patterns, shift, table), expected)
