"""Rows between known ones: predictions as the text has them, steps, and both forms."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec.loops import prediction
from lccodec.loops.prediction import (
    CONSTANT,
    FOUR_POINTS,
    LINEAR,
    PREDICTORS,
    SIX_POINTS,
    dequantize,
    predict,
    quantize,
    weave,
)

ORIGIN = 0.375


def by_hand(known: list[float], j: int, predictor: int) -> float:
    """What SPEC 7.8 says, for one element."""
    c = len(known)
    if predictor == CONSTANT:
        return ORIGIN
    if c < 4 or predictor == LINEAR:
        if j < c - 1:
            return (known[j] + known[j + 1]) * 0.5
        return known[j] * 1.5 + known[j - 1] * -0.5 if j else known[0]
    if j == c - 1:
        return known[j] * 1.875 + known[j - 1] * -1.25 + known[j - 2] * 0.375
    if j in (0, c - 2):
        ends = known[:4] if j == 0 else known[::-1][:4]
        return ends[0] * 0.3125 + ends[1] * 0.9375 + ends[2] * -0.3125 + ends[3] * 0.0625
    inner, outer = known[j] + known[j + 1], known[j - 1] + known[j + 2]
    if predictor == SIX_POINTS and c >= 6 and 1 < j < c - 3:
        return inner * 0.5859375 + outer * -0.09765625 + (known[j - 2] + known[j + 3]) * 0.01171875
    return inner * 0.5625 + outer * -0.0625


@given(
    st.integers(1, 4),
    st.integers(1, 12),
    st.booleans(),
    st.integers(1, 4),
    st.sampled_from(PREDICTORS),
    st.sampled_from(["", "_numpy", "_loop"]),
    st.integers(0, 2**32),
)
def test_predictions_are_those_of_the_text(
    blocks: int, knots: int, odd: bool, apart: int, predictor: int, form: str, seed: int
) -> None:
    """To the bit, of all rows or of some of one block, which are woven between the known ones."""
    rng = np.random.default_rng(seed)
    rows = max(knots - odd, 1)
    known = rng.standard_normal((blocks, knots, apart))
    start, stop, first, last = 0, rows, 0, knots
    if blocks == 1:
        start, stop = sorted(rng.choice(rows + 1, 2, replace=False).tolist())
        first, last = max(min(start - 2, knots - 4), 0), min(max(stop + 3, 4), knots)
    near = np.ascontiguousarray(known[:, first:last])
    with pytest.MonkeyPatch.context() as patch, np.errstate(over="ignore"):  # places wrap around
        for name in ("_predict", "_weave") if form else ():
            patch.setattr(prediction, name, getattr(prediction, name + form))
        found = predict(near, first, knots, start, stop, predictor, ORIGIN)
        lines = np.moveaxis(known, 1, -1).reshape(-1, knots).tolist()
        expected = [[by_hand(line, j, predictor) for j in range(start, stop)] for line in lines]
        np.testing.assert_array_equal(np.moveaxis(found, 1, -1).reshape(len(lines), -1), expected)
        end = knots if stop == rows else stop
        out = np.empty(blocks * (end + stop - 2 * start) * apart)
        weave(near, start - first, found, out)
    woven = out.reshape(blocks, -1, apart)
    np.testing.assert_array_equal(woven[:, ::2], known[:, start:end])
    np.testing.assert_array_equal(woven[:, 1::2], found)


@pytest.mark.parametrize(("predictor", "degree"), [(LINEAR, 1), (FOUR_POINTS, 2), (SIX_POINTS, 2)])
def test_polynomials_are_predicted(predictor: int, degree: int) -> None:
    """Quadratic ones at the end behind the last element too; cubic ones elsewhere."""
    x = np.arange(64.0) / 8
    for power, most in ((degree, 64), (degree + 1, 62 if predictor != LINEAR else 0)):
        values = x**power
        found = predict(values[::2].copy().reshape(1, 32, 1), 0, 32, 0, 32, predictor, 0.0).reshape(-1)
        error = np.abs(found - values[1::2])[: most // 2]
        assert error.max(initial=0) < 1e-9 * values.max()


@given(
    st.lists(st.floats(width=64) | st.integers(-200, 200).map(float), min_size=1, max_size=30),
    st.sampled_from([1e-3, 1.0, 1e30]),
    st.sampled_from([1, 4, 8]),
    st.sampled_from(["", "_numpy", "_loop"]),
)
def test_steps(numbers: list[float], step: float, width: int, form: str) -> None:
    """A decoder has what the encoder had; what is too far away takes the prediction."""
    exact, predicted = np.array(numbers, np.float64), np.linspace(-1, 1, len(numbers))
    codes, own = np.empty(exact.size, f"u{width}"), predicted.copy()
    with np.errstate(all="ignore"), pytest.MonkeyPatch.context() as patch:
        counts = np.rint((exact - predicted) * (1 / step))
        counts[~(np.abs(counts) < 2.0**50)] = 0
        if form:
            patch.setattr(prediction, "_quantize", getattr(prediction, f"_quantize{form}"))
        assert quantize(exact, own, step, codes) == bool(
            (np.abs(counts) < 2.0 ** min(8 * width - 1, 50)).all()
        )
        if (np.abs(counts) < 2.0 ** min(8 * width - 1, 50)).all():
            assert codes.tolist() == [2 * n if n >= 0 else -2 * n - 1 for n in map(int, counts)]
            np.testing.assert_array_equal(own, predicted + counts * step)
            for decode in (dequantize, prediction._dequantize, prediction._dequantize_loop):
                again = predicted.copy()
                decode(codes, step, again)
                np.testing.assert_array_equal(again.view(np.uint64), own.view(np.uint64))
