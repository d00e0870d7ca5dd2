"""What a frame is decoded into: an array of the other byte order gets the same values."""

from __future__ import annotations

import numpy as np
import pytest

import lccodec


@pytest.mark.parametrize("dtype", ["float32", "float64", "int16", "complex64"])
def test_an_array_of_the_other_byte_order_gets_the_values(dtype: str) -> None:
    array = np.random.default_rng(0).integers(-99, 99, (7, 5)).astype(dtype)
    frame = lccodec.encode(array, lccodec.Lossless())
    out = np.empty(array.shape, array.dtype.newbyteorder("S"))
    assert lccodec.decode(frame, out=out) is out
    assert np.array_equal(out, array)
    assert not out.dtype.isnative


@pytest.mark.parametrize("quantizer", [lccodec.UniformDeadzone(step=0.5, absolute=True), lccodec.Lossless()])
def test_a_frame_without_a_reference_replaces_the_array_that_is_given_as_one(
    quantizer: lccodec.Quantizer,
) -> None:
    array = np.random.default_rng(0).standard_normal(500)
    frame = lccodec.encode(array, quantizer)
    out = np.full(500, 7.0)
    lccodec.decode(frame, reference=out, out=out)
    np.testing.assert_array_equal(out, lccodec.decode(frame))
