"""Steps of the values themselves: their width, and what is kept whatever they are."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec import ArgumentError, Lossless, UniformDeadzone, decode, encode
from lccodec.element_types import components
from lccodec.frame.decode import decode_components
from lccodec.parallel import PIECE
from lccodec.quantizers.base import Quantizer
from lccodec.quantizers.uniform import KeyframeSteps

from ..support.frames import encode_components
from ..support.strategies import REALS, arrays, bits_of, dtype_of, installed, random_array

FLOATS = installed(REALS)


def settled(quantizer: Quantizer, array: np.ndarray, before: np.ndarray | None) -> Quantizer:
    kind, bits = components(array)
    return quantizer.settled(bits, None if before is None else components(before)[1], kind)


def power(length: float) -> float:
    return 2.0 ** np.round(np.log2(length))


def check(array: np.ndarray, restored: np.ndarray, step: float) -> None:
    """Every element is within a step, and what is not a number of ordinary size is kept."""
    with np.errstate(invalid="ignore"):
        wide, back = array.astype(np.longdouble), restored.astype(np.longdouble)
    finite = np.isfinite(wide)
    rounding = np.abs(wide) * 2.0 ** -components(array)[0].mantissa
    with np.errstate(invalid="ignore"):
        assert (np.abs(back - wide) <= step * (1 + 1e-3) + rounding)[finite].all()
    np.testing.assert_array_equal(bits_of(restored[~finite]), bits_of(array[~finite]))
    assert (back[wide == 0] == 0).all()
    assert (back * wide >= 0)[finite].all()
    if not (wide < 0).any():
        assert (back != 0)[finite & (wide != 0) & (wide > step)].all()


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("first", [1 / 256, 1 / 64, 1 / 4])
def test_a_first_keyframe_has_steps_of_the_spread(name: str, first: float) -> None:
    rng = np.random.default_rng(0)
    array = (0.3 * rng.standard_normal(50_000)).astype(dtype_of(name))
    step = power(first * float(np.std(array.astype(np.float64))))
    restored = decode(encode(array, KeyframeSteps(first=first)))
    check(array, restored, step)
    if name not in ("float16", "bfloat16"):
        error = np.sqrt(np.mean(np.square(restored.astype(float) - array)))
        assert error == pytest.approx(step / np.sqrt(12), rel=0.1)


@given(arrays(FLOATS))
def test_the_error_is_at_most_a_step(array: np.ndarray) -> None:
    """Arrays of any shape, with any share of NaN, infinities, subnormals and zeros."""
    with np.errstate(all="ignore"):
        finite = np.isfinite(array)
        values = array[finite].astype(np.longdouble)
        spread = np.sqrt(np.square(values - values.mean()).sum() / array.size) if values.size else 0.0
        size = np.sqrt(np.square(values).sum() / array.size) if values.size else 0.0
    restored = decode(encode(array, KeyframeSteps()))
    assert (restored.dtype, restored.shape) == (array.dtype, array.shape)
    # A step is the nearest power of two; without a spread it is that of the size, or the type's.
    widest = 1.5 * max(float(spread), float(size) if spread < 1e-6 * size else 0.0) / 64
    check(array.reshape(-1), restored.reshape(-1), widest or 0.0)


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("movements", [0.5, 1.0, 4.0])
def test_later_keyframes_have_steps_of_the_movement(name: str, movements: float) -> None:
    rng = np.random.default_rng(0)
    before = (0.3 * rng.standard_normal(50_000)).astype(dtype_of(name))
    array = (before.astype(float) + 0.01 * rng.standard_normal(before.size)).astype(before.dtype)
    moved = np.sqrt(np.mean(np.square(array.astype(float) - before.astype(float))))
    found = settled(KeyframeSteps(movements), array, before)
    assert found == UniformDeadzone(step=power(movements * moved), absolute=True)
    check(array, decode(encode(array, found)), power(movements * moved))


@given(arrays(FLOATS), arrays(FLOATS))
def test_after_any_checkpoint(array: np.ndarray, other: np.ndarray) -> None:
    with np.errstate(all="ignore"):
        before = np.resize(other.astype(array.dtype) if other.size else array, array.shape)
    found = settled(KeyframeSteps(), array, before)
    restored = decode(encode(array, found))
    if isinstance(found, UniformDeadzone):
        check(array.reshape(-1), restored.reshape(-1), found.step or 0.0)
    else:
        assert found == Lossless()
        np.testing.assert_array_equal(bits_of(restored), bits_of(array))


def test_weights_are_not_enlarged_for_those_in_the_zone() -> None:
    """Unlike first moments: the coded ones keep their mean size."""
    rng = np.random.default_rng(0)
    array = (100 * rng.standard_t(2, 5000)).astype(np.float32)
    found = settled(KeyframeSteps(movements=4.0), array, array + rng.normal(0, 100, 5000).astype(np.float32))
    restored = decode(encode(array, found))
    coded = restored != 0
    assert np.abs(restored[coded]).sum() == pytest.approx(np.abs(array[coded]).sum(), rel=1e-4)


@pytest.mark.parametrize("before", [1e6, 1e-6])
def test_an_array_in_the_place_of_another_keeps_its_values(before: float) -> None:
    """As after a run that diverged: what it moved says nothing of what matters now."""
    rng = np.random.default_rng(0)
    array, other = (rng.standard_normal(5000).astype(np.float32) for _ in range(2))
    found = settled(KeyframeSteps(), array, np.float32(before) * other)
    assert np.std(decode(encode(array, found)) - array) < 0.1


def test_what_did_not_move_is_exact() -> None:
    array = np.random.default_rng(0).standard_normal(5000)
    assert settled(KeyframeSteps(), array, array) == Lossless()
    assert settled(KeyframeSteps(), array[:0], array[:0]) == Lossless()
    assert settled(KeyframeSteps(), array, None) == KeyframeSteps()
    assert settled(Lossless(), array, array + 1) == Lossless()


@pytest.mark.parametrize("size", [50, 5000])
def test_values_around_1_keep_what_tells_them_apart(size: int) -> None:
    """As the scales of a normalization layer: a step of 1/64 would leave nothing of them."""
    rng = np.random.default_rng(0)
    array = (1 + 1e-3 * rng.standard_normal(size)).astype(np.float32)
    error = decode(encode(array, KeyframeSteps())) - array
    assert np.std(error) < 0.01 * np.std(array)
    for same in (np.ones(size, np.float32), np.full(size, np.float32(0.1)), np.zeros(size)):
        np.testing.assert_array_equal(decode(encode(same, KeyframeSteps())), same)


def test_each_array_of_a_run_has_its_own_step() -> None:
    rng = np.random.default_rng(0)
    parts = [scale * rng.standard_normal(2000) for scale in (1e-4, 1.0, 1e4)]
    kind, bits = components(np.concatenate(parts).astype(np.float32))
    frame = b"".join(encode_components(bits, kind, [(2000,)] * 3, KeyframeSteps(), None, run=True))
    restored = decode_components(frame, None).view(np.float32)
    for part, back in zip(parts, np.split(restored, 3), strict=True):
        check(part.astype(np.float32), back, 1.5 / 64 * float(np.std(part)))


def test_one_outlier_does_not_set_the_step_of_all() -> None:
    array = np.random.default_rng(0).standard_normal(3 * PIECE).astype(np.float32)
    array[5] = 1e30
    restored = decode(encode(array, KeyframeSteps()))
    assert restored[5] == array[5]
    assert np.abs(np.delete(restored - array, 5)).max() < 1 / 32


@given(st.sampled_from(FLOATS), st.integers(0, 2**32))
def test_a_first_keyframe_takes_about_8_bits_an_element(name: str, seed: int) -> None:
    array = random_array(name, (20_000,), seed, special=0)
    most = array.size * 9 / 8 + 800 * array.itemsize  # symbols and codebook
    assert len(encode(array, KeyframeSteps())) < most


@pytest.mark.parametrize("bad", [0, -1, float("nan"), float("inf"), "1", None])
def test_parameters_are_checked(bad: Any) -> None:
    with pytest.raises(ArgumentError, match="KeyframeSteps: movements"):
        KeyframeSteps(bad)
    with pytest.raises(ArgumentError, match="KeyframeSteps: first"):
        KeyframeSteps(first=bad)


def foreseen(array: np.ndarray, following: np.ndarray) -> Quantizer:
    kind, bits = components(array)
    return KeyframeSteps().foreseen(bits, components(following)[1], kind)


def test_what_follows_makes_steps_finer_and_never_wider() -> None:
    rng = np.random.default_rng(0)
    array, noise = rng.standard_normal((2, 5000))
    assert foreseen(array, array + 1e-4 * noise) == UniformDeadzone(step=power(1e-4), absolute=True)
    assert foreseen(array, array + noise) == KeyframeSteps()
    assert foreseen(array, array) == Lossless()
    assert foreseen(np.ones(9), np.full(9, 2.0)) == KeyframeSteps()
    kind, bits = components(array)
    assert Lossless().foreseen(bits, bits, kind) == Lossless()
