"""The fused pass gives what a plain computation gives."""

import math

import numpy as np
import pytest
from hypothesis import given, settings

from lccodec.element_types import components
from lccodec.inspect.trajectory import Bins, measure
from lccodec.parallel import PIECE

from ...support.strategies import array_and_reference


def measured(array, before=None, bins=None):
    kind, bits = components(array)
    return measure(bits, None if before is None else components(before)[1], kind, bins)


def plain(array):
    """Numbers to compute with, wide enough that no square of a narrower type is lost."""
    if array.dtype.kind == "c":
        return np.hypot(array.real.astype(np.longdouble), array.imag.astype(np.longdouble))
    return array.astype(np.longdouble)


def expected(array, before):
    """The figures, each by one expression of NumPy."""
    array = array.reshape(-1)
    finite = np.isfinite(array.astype(np.complex128) if array.dtype.kind == "c" else array.astype(np.float64))
    values = plain(array[finite])
    found = {
        "size": array.size,
        "not_finite": int((~finite).sum()),
        "zeros": float((values == 0).sum() / array.size) if array.size else 0.0,
        "minimum": float(values.min()) if values.size else None,
        "maximum": float(values.max()) if values.size else None,
        "rms": float(np.sqrt(np.mean(values**2))) if values.size else None,
        "movement": None,
    }
    if before is not None:
        before = before.reshape(-1)
        wide = np.clongdouble if array.dtype.kind == "c" else np.longdouble
        old, new = before.astype(wide), array.astype(wide)
        both = np.isfinite(old) & np.isfinite(new)
        top = np.sqrt(np.sum(np.abs(new[both] - old[both]) ** 2))
        bottom = np.sqrt(np.sum(np.abs(old[both]) ** 2))
        found["movement"] = float(top / bottom) if bottom else None
    return found


@settings(deadline=None)
@given(array_and_reference())
def test_figures_are_those_of_a_plain_computation(pair):
    array, before = pair
    with np.errstate(all="ignore"):
        want = expected(array, before)
        found = vars(measured(array, before))
    for name, value in want.items():
        if value is None or not math.isfinite(value) or found[name] is None:
            assert found[name] is None or not math.isfinite(value or 0), name
        else:
            assert found[name] == pytest.approx(value, rel=1e-9, abs=5e-324), name


def test_several_pieces_and_their_histogram():
    rng = np.random.default_rng(0)
    before = rng.normal(size=3 * PIECE + 7).astype(np.float32)
    array = before + rng.normal(size=before.size).astype(np.float32) / 64
    array[[1, PIECE, 2 * PIECE]] = np.nan, np.inf, 0
    bins = Bins()
    bins.begin()
    found = measured(array, before, bins)
    kept = array[np.isfinite(array)].astype(np.float64)
    both = np.isfinite(array)
    gaps = array[both].astype(np.float64) - before[both]
    assert (found.not_finite, found.zeros) == (2, 1 / array.size)
    assert (found.minimum, found.maximum) == (kept.min(), kept.max())
    assert found.rms == pytest.approx(np.sqrt(np.mean(kept**2)), rel=1e-12)
    old = before[both].astype(np.float64)
    assert found.movement == pytest.approx(np.linalg.norm(gaps) / np.linalg.norm(old), rel=1e-12)
    spread = bins.histogram()
    edges = np.linspace(spread.low, spread.high, len(spread.counts[0]) + 1)
    assert spread.counts == [np.histogram(kept, edges)[0].tolist()]


@pytest.mark.parametrize("scale", [1e-300, 1e300])
def test_squares_out_of_range(scale):
    before, array = np.array([1.0, 2.0, 0.0]) * scale, np.array([1.0, 3.0, np.nan]) * scale
    found = measured(array, before)
    assert found.rms == pytest.approx(np.sqrt(5) * scale)
    assert found.movement == pytest.approx(1 / np.sqrt(5))


def test_a_movement_that_is_no_number():
    assert measured(np.array([1e300]), np.array([1e-300])).movement is None


def test_the_largest_complex_number():
    array = np.full(2, complex(1.7e308, 1.7e308))
    assert measured(array).maximum == np.finfo(np.float64).max


def test_nothing_to_measure():
    found = measured(np.zeros((0, 3), np.float32))
    assert (found.rms, found.movement, found.not_finite, found.zeros) == (None, None, 0, 0.0)
    found = measured(np.full(3, np.nan), np.ones(3))
    assert (found.rms, found.movement, found.not_finite) == (None, None, 3)
    assert measured(np.ones(3), np.zeros(3)).movement is None
