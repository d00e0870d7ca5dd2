"""Guarantees: words that are not too good, sums of two losses, and a check of every element."""

from __future__ import annotations

import re

import numpy as np
import pytest

from lccodec import LogSteps, Lossless, Smooth, UniformDeadzone
from lccodec.element_types import components
from lccodec.quantizers.guarantee import EXACT, Guarantee


def broken(guarantee: Guarantee, decoded: list[float], original: list[float]) -> list[bool]:
    kind, was = components(np.array(original, np.float32))
    found: list[bool] = guarantee.broken(components(np.array(decoded, np.float32))[1], was, kind).tolist()
    return found


@pytest.mark.parametrize("step", [0.001, 0.1, 0.25, 1 / 3, 1.0, 1.7, 64.0])
def test_words_are_not_better_than_what_holds(step: float) -> None:
    for guarantee, number in (
        (LogSteps(step).guarantee, LogSteps(step).max_ratio),
        (UniformDeadzone(max_error=step / 7).guarantee, step / 7),
        (Smooth(relative_error=step / 7).guarantee, step / 7),
    ):
        (told,) = re.findall(r"at most ([0-9.e+-]+)", str(guarantee))
        assert number <= float(told) <= 1.01 * number


def test_words() -> None:
    assert str(EXACT) == str(Lossless().guarantee) == "exact"
    assert str(Guarantee()) == str(UniformDeadzone(share=0.3).guarantee) == ""
    smooth = Smooth(0.5, minimum=0.0, maximum=2.0, conserve="sum")
    assert str(smooth.guarantee) == "error at most 0.5, at least 0.0, at most 2.0, and the sum is kept"
    signed = UniformDeadzone(relative_step=1.0, absolute=True)
    assert str(signed.guarantee) == "0, or of the same sign and at most 5.34 times as large"


def test_two_losses_add_up() -> None:
    bound, wider = Guarantee(max_error=1.0), Guarantee(max_error=2.0)
    assert bound.after(wider) == Guarantee(max_error=3.0)
    assert bound.after(EXACT) == EXACT.after(bound) == bound.either(EXACT) == bound
    assert bound.either(wider) == wider
    assert bound.after(LogSteps().guarantee) == Guarantee()
    shares = Guarantee(range_share=0.25).after(Guarantee(range_share=0.5))
    assert shares == Guarantee(range_share=0.5 + 0.25 * 2)
    assert LogSteps(1.0).guarantee.after(LogSteps(2.0).guarantee).max_ratio == LogSteps(3.0).max_ratio
    assert wider.follows_from(bound)
    assert wider.follows_from(EXACT)
    assert not bound.follows_from(wider)
    assert not EXACT.follows_from(bound)


def test_every_element_is_checked() -> None:
    x = [1.0, -1.0, 0.0, 2.0]
    assert broken(EXACT, [1.0, -1.0, -0.0, 2.0], x) == [False, False, True, False]
    assert broken(Guarantee(max_error=0.5), [1.5, -1.75, 0.0, 2.0], x) == [False, True, False, False]
    assert broken(Guarantee(range_share=0.25), [1.75, -1.8, 0.0, 2.0], x) == [False, True, False, False]
    assert broken(Guarantee(max_growth=2.0), [-0.5, -2.0, 0.1, 0.0], x) == [True, False, True, False]
    assert broken(LogSteps(1.0).guarantee, [1.5, 1.0, 1e-9, 4.0], [1, 1, 0, 2]) == [False, False, True, True]
    assert broken(Guarantee(minimum=0.5), [0.4, 0.4], [0.5, 0.4]) == [True, False]
    assert broken(Guarantee(), [-1.0, 0.5], [1.0, 0.0]) == [True, True]  # no number of it is negative
    assert broken(Guarantee(keeps_zeros=False), [-1.0, 0.5], [1.0, 0.0]) == [True, False]
    assert broken(Guarantee(), [np.nan, 1.0], [1.0, np.inf]) == [True, True]
