"""Arrays between two known ones: both forms."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lccodec import element_types
from lccodec.element_table import ELEMENT_TYPES
from lccodec.loops.interpolation import _interpolate_loop, interpolate
from lccodec.loops.representatives import is_native

from ..support.strategies import REALS, random_array

KINDS = {kind.name: kind for kind in ELEMENT_TYPES}


@given(
    st.sampled_from(REALS),
    st.integers(0, 40),
    st.integers(0, 2**32),
    st.integers(1, 255),
    st.sampled_from([0, 0.2, 1.0]),
    st.sampled_from(["low", "high", "new"]),
)
def test_forms(name: str, size: int, seed: int, weight: int, share: float, into: str) -> None:
    kind = KINDS[name]
    other = "uint16" if name == "bfloat16" else name
    low, high = (random_array(other, (size,), seed + each, share).view(kind.bits) for each in range(2))
    expected = np.empty_like(low)
    element_types.interpolate(low, high, weight / 256, kind, expected)
    memory = {"low": low.copy(), "high": high.copy(), "new": np.empty_like(low)}
    interpolate(
        memory["low"] if into == "low" else low,
        memory["high"] if into == "high" else high,
        weight / 256,
        kind,
        memory[into],
    )
    np.testing.assert_array_equal(memory[into], expected)
    if is_native(kind):
        with np.errstate(all="ignore"):
            _interpolate_loop(low, high, kind.work.type(weight / 256), kind.code, memory["new"])
        np.testing.assert_array_equal(memory["new"], expected)
