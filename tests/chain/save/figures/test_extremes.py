"""Extremes are those of all elements, as NumPy finds them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from lccodec.chain.save.figures import extremes as module
from lccodec.chain.save.figures.extremes import extremes
from lccodec.element_types import components


@given(
    st.sampled_from([np.float16, np.float32, np.float64]).flatmap(
        lambda dtype: arrays.arrays(dtype, st.integers(1, 40), elements=arrays.from_dtype(np.dtype(dtype)))
    ),
    st.integers(1, 9),
)
def test_as_numpy_finds_them(x: np.ndarray, piece: int) -> None:
    kind, bits = components(x)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_PIECE", piece)
        low, high, bad = extremes(bits, kind)
    finite = x[np.isfinite(x)]
    assert bad == x.size - finite.size
    if finite.size:
        assert (low, high) == (float(finite.min()), float(finite.max()))
    else:
        assert math.isnan(low) and math.isnan(high)
