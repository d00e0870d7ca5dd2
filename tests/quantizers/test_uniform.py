"""Equal steps of differences and of values: their width, and what is kept whatever they are."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec import (
    ArgumentError,
    Balanced,
    ExponentBuckets,
    Lossless,
    Triggered,
    UniformDeadzone,
    decode,
    encode,
)
from lccodec.element_types import components
from lccodec.frame.content import Content
from lccodec.frame.decode import decode_components
from lccodec.frame.encode import encode_content
from lccodec.parallel import PIECE
from lccodec.policy import balanced
from lccodec.policy.presets import resolve_policy
from lccodec.quantizers import grid
from lccodec.quantizers.base import Quantizer
from lccodec.quantizers.uniform import KeyframeSteps, Weighted

from ..support.adam import adam_states
from ..support.chains import HistoryChain
from ..support.frames import encode_components
from ..support.oracle import lc_reconstruct
from ..support.strategies import (
    REALS,
    Pair,
    array_and_reference,
    arrays,
    bits_of,
    dtype_of,
    ends_of,
    installed,
    random_array,
)
from ..support.tuning import tune
from ..support.walks import save_all


def round_trip(array: np.ndarray, quantizer: object, reference: np.ndarray | None = None) -> np.ndarray:
    return decode(encode(array, quantizer, reference), reference)


@given(array_and_reference(REALS), st.integers(1, 8))
def test_exponent_buckets_are_the_papers_bit_for_bit(pair: Pair, bits: int) -> None:
    """But for arrays without negative numbers, which the paper does not know (SPEC 7.7)."""
    array, reference = pair
    narrow = array.dtype.name == "bfloat16"
    plain = array.view(np.uint16) if narrow else array
    base = reference if reference is None else reference.view(np.uint16) if narrow else reference
    expected = lc_reconstruct(plain, base, bits, "bfloat16" if narrow else array.dtype.name)
    expected = expected.view(array.dtype)
    with np.errstate(invalid="ignore"):
        if not (array < 0).any():  # then no number may become negative, and zeros stay zeros
            expected = np.where((expected < 0) | (array == 0) & (expected != 0), array, expected)
    restored = round_trip(array, ExponentBuckets(bits=bits), reference)
    np.testing.assert_array_equal(bits_of(restored), bits_of(expected))


@pytest.mark.slow
@pytest.mark.parametrize("bits", [2, 3])
def test_exponent_buckets_across_pieces(bits: int) -> None:
    rng = np.random.default_rng(0)
    before = rng.standard_normal(2 * PIECE + 77).astype(np.float32)
    after = before + (rng.standard_normal(before.size) * 0.01).astype(np.float32)
    expected = lc_reconstruct(after, before, bits, "float32")
    np.testing.assert_array_equal(
        bits_of(round_trip(after, ExponentBuckets(bits), before)), bits_of(expected)
    )


def test_mean_representatives_are_the_mean_of_the_bucket() -> None:
    array = np.array([1.0, 1.25, 1.9, -4.0, -5.0, 1e-40], np.float32)
    restored = round_trip(array, ExponentBuckets(bits=2, representative="mean"))
    mean = np.float32(np.mean(array[:3].astype(np.float64)))
    assert restored.tolist() == [mean, mean, mean, -4.5, -4.5, 0.0]


def test_the_midpoint_of_the_largest_numbers_does_not_overflow() -> None:
    largest = np.finfo(np.float64).max
    restored = round_trip(np.array([largest, largest / 1.5]), ExponentBuckets(bits=1))
    assert np.isfinite(restored).all()
    assert (restored == largest / 2 + largest / 1.5 / 2).all()


@given(array_and_reference(["float16", "bfloat16", "float32", "float64", "complex64"]), st.floats(1e-6, 10))
def test_the_error_bound_holds_for_every_element(pair: Pair, bound: float) -> None:
    array, reference = pair
    restored = round_trip(array, UniformDeadzone(max_error=bound), reference)
    parts = [array, restored]
    if array.dtype.kind == "c":
        parts = [a.reshape(-1).view(np.float32) for a in parts]
    with np.errstate(invalid="ignore"):
        wide, back = (a.astype(np.longdouble) for a in parts)
    finite = np.isfinite(wide)
    assert (np.abs(wide[finite] - back[finite]) <= bound).all()
    np.testing.assert_array_equal(bits_of(parts[1][~finite]), bits_of(parts[0][~finite]))


@pytest.mark.parametrize("name", REALS)
@pytest.mark.parametrize("bound", [1e-5, 1e-3, 0.1])
def test_the_error_bound_holds_on_a_walk(name: str, bound: float) -> None:
    rng = np.random.default_rng(0)
    before = random_array(name, (40_000,), 0, special=0)
    after = (before.astype(np.float64) + rng.standard_t(3, 40_000) * 0.01).astype(before.dtype)
    frame = encode(after, UniformDeadzone(max_error=bound), before)
    error = np.abs(decode(frame, before).astype(np.longdouble) - after.astype(np.longdouble))
    assert error.max() <= bound
    if bound == 0.1:
        assert len(frame) < after.nbytes / 8


def test_many_bins_take_two_bytes() -> None:
    array = np.random.default_rng(0).standard_normal(100_000).astype(np.float32)
    frame = encode(array, UniformDeadzone(max_error=1e-3))
    assert np.abs(decode(frame) - array).max() <= 1e-3
    assert len(frame) < array.nbytes / 2.4  # 11.3 bits is the entropy, 1 more the codebook of 5,700 bins


def test_representatives_are_centroids() -> None:
    array = np.array([0.5, 1.0, 1.1, 1.2, -1.0, 100.0], np.float32)
    restored = round_trip(np.tile(array, 100), UniformDeadzone(step=1.0))[:6]
    np.testing.assert_allclose(restored, [0, 1.1, 1.1, 1.1, -1.0, 100.0], rtol=1e-6)


def test_outliers_of_a_fine_step_are_exact() -> None:
    array = np.concatenate([np.linspace(-1, 1, 200_000, dtype=np.float32), [np.float32(5.0)]])
    restored = round_trip(array, UniformDeadzone(step=1e-4))
    assert restored[-1] == 5.0
    assert np.abs(restored - array).max() < 1e-4


def test_relative_step_follows_the_scale_of_the_differences() -> None:
    rng = np.random.default_rng(0)
    before = rng.standard_normal(50_000).astype(np.float32)
    move = rng.standard_normal(50_000).astype(np.float32)
    errors = []
    for scale in (np.float32(1e-2), np.float32(1e-1)):
        after = before + move * scale
        errors.append(np.std(round_trip(after, UniformDeadzone(relative_step=1), before) - after) / scale)
    assert errors[0] == pytest.approx(errors[1], rel=0.02)
    assert errors[0] < 0.4


@pytest.mark.parametrize(
    "quantizer", [ExponentBuckets(2), UniformDeadzone(step=0.1), UniformDeadzone(max_error=0.01)]
)
@pytest.mark.parametrize("name", REALS)
def test_what_is_not_finite_is_exact(quantizer: object, name: str) -> None:
    kind, _ = components(np.zeros(0, dtype_of(name)))
    infinity = ((1 << (8 * kind.size - 1 - kind.mantissa)) - 1) << kind.mantissa
    sign = 1 << (8 * kind.size - 1)
    patterns = [infinity | more for more in (0, sign, 1, sign | 5, 1 << (kind.mantissa - 1))]
    array, reference = (random_array(name, (200,), seed, special=0) for seed in (3, 4))
    array[:5] = reference[3:8] = np.array(patterns, kind.bits).view(array.dtype)
    for base in (None, reference):
        restored = round_trip(array, quantizer, base)
        exact = 5 if base is None else 8  # the reference is not finite at 3 to 7
        np.testing.assert_array_equal(bits_of(restored[:exact]), bits_of(array[:exact]))


@pytest.mark.parametrize("name", ["float16", "float32", "float64"])
def test_subnormals_and_negative_zero(name: str) -> None:
    """SPEC 7.7: both differences are in the zero bucket; the reference's zero keeps its sign."""
    tiny = np.finfo(name).smallest_subnormal
    array = np.array([tiny, -tiny, -0.0, 1.0], name)
    restored = round_trip(array, ExponentBuckets(3))
    np.testing.assert_array_equal(bits_of(restored), bits_of(np.array([0.0, 0.0, 0.0, 1.0], name)))
    reference = np.array([-0.0, 0.0, -0.0, 0.5], name)
    restored = round_trip(array, ExponentBuckets(3), reference)
    np.testing.assert_array_equal(bits_of(restored), bits_of(np.array([-0.0, 0.0, -0.0, 1.0], name)))


NAN = float("nan")


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        *((ExponentBuckets, {"bits": bits}) for bits in (0, 9, 2.5)),
        (ExponentBuckets, {"bits": 2, "representative": "median"}),
        (UniformDeadzone, {}),
        (UniformDeadzone, {"step": 1.0, "max_error": 1.0}),
        *((UniformDeadzone, {"step": step}) for step in (0.0, -1.0)),
        (UniformDeadzone, {"max_error": NAN}),
        (UniformDeadzone, {"relative_step": float("inf")}),
        *((UniformDeadzone, {"share": share}) for share in (0, 1, 1.5, -0.1, NAN, "1")),
        (UniformDeadzone, {"share": 0.5, "step": 1.0}),
    ],
)
def test_parameters_are_checked(kind: Any, arguments: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError):
        kind(**arguments)


def test_a_step_out_of_the_range_of_the_type_is_lossless() -> None:
    array = random_array("float32", (100,), 0, special=0.2)
    for step in (1e-300, 1e-44, 1e300):
        restored = round_trip(array, UniformDeadzone(step=step))
        if step < 1:
            np.testing.assert_array_equal(bits_of(restored), bits_of(array))


@pytest.mark.parametrize("size", [5_000, 400_000])
@pytest.mark.parametrize("kind", ["normal", "laplace", "sparse"])
def test_absolute_values_reach_as_far_as_the_original(kind: str, size: int) -> None:
    """What is lost in the zone is carried by the rest, as far as a factor of 2 does it."""
    rng = np.random.default_rng(3)
    array = (rng.laplace(size=size) if kind == "laplace" else rng.normal(size=size)).astype(np.float32)
    if kind == "sparse":
        array *= np.exp(2 * rng.normal(size=size)).astype(np.float32)
    for step in (1.0, 2.0, 3.0):
        quantizer = UniformDeadzone(relative_step=step, absolute=True)
        restored = decode(encode(array, quantizer)).astype(np.float64)
        squares = np.square(array, dtype=np.float64)
        along = float(restored @ array) / float(squares.sum())
        kept = np.abs(array) > 0.6 * step * np.sqrt(np.mean(squares))
        lost = float(squares[~kept].sum() / squares.sum())
        assert along == pytest.approx(min(1, 2 * (1 - lost)), abs=0.07), step


@given(array_and_reference(["float16", "bfloat16", "float32"]), st.sampled_from([0.1, 4.0]))
def test_absolute_values_keep_their_sign_and_grow_by_a_bounded_factor(pair: Pair, step: float) -> None:
    array, reference = pair
    quantizer = UniformDeadzone(relative_step=step, absolute=True)
    frame = encode(array, quantizer, reference)
    restored = decode(frame)  # needs no reference
    with np.errstate(invalid="ignore"):
        finite = np.isfinite(array)
    before, after = array[finite].astype(np.longdouble), restored[finite].astype(np.longdouble)
    assert (after * before >= 0).all()
    assert (np.abs(after) <= np.abs(before) * 5.38).all()  # 16/3 and a rounding to bfloat16
    np.testing.assert_array_equal(bits_of(restored[~finite]), bits_of(array[~finite]))


@pytest.mark.parametrize("name", REALS)
def test_the_bins_next_to_the_largest_number_have_finite_representatives(name: str) -> None:
    """The middle of a bin without elements can lie past the largest number."""
    largest = np.array([ends_of(name)[0]]).astype(dtype_of(name))
    array = np.concatenate([largest, np.zeros(40, largest.dtype), largest / 3])
    kind, bits = components(array)
    for step in (0.1, 0.7, 1.0):
        quantizer = UniformDeadzone(relative_step=step)
        round_trip(array, quantizer)
        frame = b"".join(encode_components(bits, kind, [(2,), (40,)], quantizer, None, run=True))
        decode_components(frame, None)


# --- shares ---------------------------------------------------------------------------------------


@pytest.fixture
def _any_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps by share alone: the values of these tests are no larger than their differences."""
    tune(monkeypatch, max_step_spreads=1e9)


MOVES = {
    "normal": lambda rng, size: rng.standard_normal(size),
    "heavy tails": lambda rng, size: rng.standard_t(2, size),
    "heaviest tails": lambda rng, size: rng.standard_cauchy(size).clip(-1e4, 1e4),
    "uniform": lambda rng, size: rng.uniform(-1, 1, size),
    "of many sizes": lambda rng, size: 2.0 ** rng.uniform(-12, 0, size),
    "mostly zeros": lambda rng, size: rng.standard_normal(size) * (rng.random(size) < 0.02),
    "one outlier": lambda rng, size: np.where(np.arange(size) == size // 3, 6e4, rng.standard_normal(size)),
    "tiny beside outliers": lambda rng, size: np.where(
        np.arange(size) % 997 == 5, 1e4, 2e-3 * rng.standard_normal(size)
    ),
}


def share_coded(array: np.ndarray, reference: np.ndarray, quantizer: object) -> float:
    """The share of the differences other than 0 that a delta does not leave as they were."""
    moved = array != reference
    return float(np.mean((round_trip(array, quantizer, reference) != reference)[moved]))


@pytest.mark.usefixtures("_any_step")
@pytest.mark.parametrize("name", REALS)
@pytest.mark.parametrize("moves", MOVES)
@pytest.mark.parametrize("share", [0.01, 0.06, 0.5])
def test_the_share_that_is_coded(name: str, moves: str, share: float) -> None:
    reference = np.zeros(60_000, dtype_of(name))
    array = MOVES[moves](np.random.default_rng(0), reference.size).astype(reference.dtype)
    coded = share_coded(array, reference, UniformDeadzone(share=share))
    few = np.count_nonzero(array) < 10_000
    assert coded == pytest.approx(share, rel=0.4 if few or array.itemsize == 2 else 0.05)


@pytest.mark.usefixtures("_any_step")
def test_the_share_of_a_large_array_is_that_of_a_sample() -> None:
    rng = np.random.default_rng(0)
    reference = np.zeros(20 * PIECE + 7, np.float32)
    array = rng.standard_t(3, reference.size).astype(np.float32)
    assert share_coded(array, reference, UniformDeadzone(share=0.06)) == pytest.approx(0.06, rel=0.05)


@pytest.mark.usefixtures("_any_step")
@pytest.mark.parametrize("size", [1, 2, 3, 17, 300])
def test_the_share_of_small_arrays(size: int) -> None:
    """Each array of a run has a zone of its own, and at least one element outside."""
    rng = np.random.default_rng(0)
    scales = 10.0 ** rng.uniform(-4, 4, 50)
    parts = np.concatenate([scale * rng.standard_normal(size) for scale in scales]).astype(np.float32)
    reference = np.zeros_like(parts)
    (kind, bits), (_, base) = components(parts), components(reference)
    quantizer = UniformDeadzone(share=0.06)
    frame = b"".join(encode_components(bits, kind, [(size,)] * 50, quantizer, base, run=True))
    restored = decode_components(frame, base).view(np.float32).reshape(50, size)
    assert (np.count_nonzero(restored, axis=1) == max(int(0.06 * size), 1)).all()


@pytest.mark.parametrize("name", REALS)
@pytest.mark.parametrize("size", [0.01, 0.5, 1.0, 0.7])
def test_steps_of_one_size_do_not_wait_for_ever(name: str, size: float) -> None:
    """As those of an optimizer that goes by signs alone: none is larger than the others."""
    sign = np.where(np.random.default_rng(0).random(5000) < 0.5, -1, 1)
    reference = np.zeros(5000, dtype_of(name))
    array = (size * sign).astype(reference.dtype)
    assert share_coded(array, reference, UniformDeadzone(share=0.06)) == 1
    restored = round_trip(array, UniformDeadzone(share=0.06), reference)
    np.testing.assert_allclose(restored.astype(float), array.astype(float), rtol=1e-6)


@pytest.mark.usefixtures("_any_step")
def test_of_a_few_sizes_the_next_is_taken() -> None:
    """Where the edge of the zone falls on many of one size, they all wait or are all coded."""
    reference = np.zeros(10_000, np.float32)
    for ones, coded in ((3000, 0.05), (80, 0.058)):
        array = np.full(10_000, 0.25, np.float32)
        array[: 500 + ones] = 1
        array[:500] = 2
        assert share_coded(array, reference, UniformDeadzone(share=0.06)) == pytest.approx(coded)


def test_no_share_of_what_rests() -> None:
    reference = np.random.default_rng(0).standard_normal(5000)
    np.testing.assert_array_equal(round_trip(reference, UniformDeadzone(share=0.06), reference), reference)
    assert UniformDeadzone(share=0.06).bin_width(np.zeros(9)) == 0
    assert UniformDeadzone(relative_step=2).bin_width(np.zeros(9)) == 0


@given(array_and_reference(REALS), st.floats(0.001, 0.9))
def test_any_share_of_any_array(pair: Pair, share: float) -> None:
    array, reference = pair
    restored = round_trip(array, UniformDeadzone(share=share), reference)
    with np.errstate(invalid="ignore"):
        special = ~np.isfinite(array)
    np.testing.assert_array_equal(bits_of(restored[special]), bits_of(array[special]))


def test_a_share_for_steps_of_a_factor() -> None:
    """The share of a random walk that leaves a zone goes by the square of its width."""
    quantizer = UniformDeadzone(share=0.06)
    assert quantizer.scaled(1.0).share == pytest.approx(0.06)
    assert quantizer.scaled(2.0).share == pytest.approx(0.0157, rel=0.01)
    assert quantizer.scaled(0.001).share < 1
    assert UniformDeadzone(step=1.0).scaled(2.0) == UniformDeadzone(step=1.0)
    d = np.random.default_rng(0).standard_normal(10_000)
    assert quantizer.bin_width(d) == pytest.approx(1.88 / 0.6, rel=0.03)
    assert UniformDeadzone(relative_step=2.0).bin_width(d) == pytest.approx(2.0, rel=0.03)


# --- bias -----------------------------------------------------------------------------------------


def lag(quantizer: UniformDeadzone, drift: float) -> tuple[float, float]:
    """How many intervals a chain's last state trails, and its error in intervals (rms).

    The lag is what the error has in common with the movement, over what the drift and the walk have
    in an interval.
    """
    rng = np.random.default_rng(0)
    size = 40_000
    direction = drift * rng.standard_normal(size)
    exact, kept, lags, errors = np.zeros(size), np.zeros(size, np.float32), [], []
    for step in range(60):
        exact = exact + direction + rng.standard_normal(size)
        array = exact.astype(np.float32)
        kept = decode(encode(array, quantizer, kept), kept)
        if step >= 20:
            error = kept - array
            lags.append(-float(np.mean(error * direction)) / float(np.mean(direction**2)))
            errors.append(float(np.sqrt(np.mean(error**2))))
    return float(np.mean(lags)), float(np.mean(errors))


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.1, 0.06, 0.03])
@pytest.mark.parametrize("drift", [0.05, 0.3])
def test_a_chain_does_not_trail(share: float, drift: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a random walk with drift, over 40 deltas; with means it trails by several intervals."""
    trails, error = lag(UniformDeadzone(share=share), drift)
    monkeypatch.setattr(grid, "lead", lambda share, _: np.zeros_like(share))
    with_means, error_of_means = lag(UniformDeadzone(share=share), drift)
    assert with_means > 1
    assert abs(trails) < 0.35 * with_means
    assert error < 1.5 * error_of_means


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
@pytest.mark.parametrize("outputs", ["first axis", "last axis"])
@pytest.mark.parametrize("shape", [(30, 200), pytest.param((300, 4000), marks=pytest.mark.slow)])
def test_rows_of_a_matrix_keep_their_sums(outputs: str, dtype: str, shape: tuple[int, int]) -> None:
    """Of outputs, which move as a whole, in about as many bytes as an array without rows takes.

    Their movements are small enough to have no square in float16, and matrices may be large.
    """
    rng, unit = np.random.default_rng(0), 2.0**-12
    before = unit * rng.standard_normal(shape)
    after = before + 0.1 * unit * (rng.standard_normal((shape[0], 1)) + rng.standard_normal(shape))
    axis = 1 if outputs == "first axis" else 0
    pair = [x if axis else np.ascontiguousarray(x.T) for x in (before, after)]
    before, after = (x.astype(dtype_of(dtype)) for x in pair)
    quantizer = UniformDeadzone(share=0.3)
    frames = encode(after, quantizer, before), encode(after.ravel(), quantizer, before.ravel())
    assert len(frames[0]) < 1.1 * len(frames[1])
    with_rows, without = (
        decode(frame, reference).reshape(after.shape).astype(float) - after.astype(float)
        for frame, reference in zip(frames, (before, before.ravel()), strict=True)
    )
    assert np.square(with_rows.mean(axis)).mean() < 0.2 * np.square(without.mean(axis)).mean()
    assert np.square(with_rows).mean() < 1.1 * np.square(without).mean()


def test_what_did_not_move_stays_beside_rows_that_did() -> None:
    rng = np.random.default_rng(0)
    before = rng.standard_normal((30, 200), np.float32)
    after = before + 0.1 * rng.standard_normal((30, 1), np.float32) * (rng.random((30, 200)) < 0.5)
    restored = round_trip(after, UniformDeadzone(share=0.3), before)
    np.testing.assert_array_equal(restored[before == after], before[before == after])


def test_a_run_of_matrices_keeps_the_sums_of_their_rows() -> None:
    rng = np.random.default_rng(0)
    shapes = [(8, 40), (400,), (20, 3, 10), (1, 300), (5, 5, 20)]
    sizes = [int(np.prod(shape)) for shape in shapes]
    states = [rng.standard_normal(sum(sizes), np.float32)]
    states.append(states[0] + 0.1 * rng.standard_normal(sum(sizes), np.float32))
    before, x = (state.view(np.uint32) for state in states)
    ends, quantizer = np.cumsum(sizes)[:-1], UniformDeadzone(share=0.3)
    kind, _ = components(states[0])
    out = before.copy()
    content = Content(x, kind, tuple(shapes), before.copy(), run=True)
    b"".join(encode_content(content, quantizer, out))
    errors = np.split(states[1] - out.view(np.float32), ends)
    alone = [
        after.reshape(shape) - round_trip(after.reshape(shape), quantizer, was.reshape(shape))
        for after, was, shape in zip(*(np.split(state, ends) for state in states[::-1]), shapes, strict=True)
    ]
    for error, same in zip(errors, alone, strict=True):
        np.testing.assert_allclose(error, same.ravel(), atol=1e-6)
    assert np.abs(errors[0].reshape(8, 40).mean(1)).max() < 0.01


def test_a_share_of_a_jump_is_coded_in_steps_of_the_values() -> None:
    """A run that diverged: no element may wait in a zone that is wider than the values."""
    rng = np.random.default_rng(0)
    before, after = (scale * rng.standard_normal(100_000).astype(np.float32) for scale in (50.0, 1.0))
    restored = decode(encode(after, UniformDeadzone(share=0.05), before), before)
    assert np.abs(restored - after).max() < 1.5


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_a_bound_holds_however_often_an_array_is_coded_in_other_company(dtype: str) -> None:
    """A bin decodes as its mean, which moves with what else is in it, and is rounded."""
    for seed in range(30):
        rng = np.random.default_rng(seed)
        bound = rng.uniform(20, 50) * float(np.finfo(dtype).eps)
        original = rng.uniform(1.5, 2, 400).astype(dtype)
        now = original
        for _ in range(6):
            others = np.repeat(rng.uniform(1.5, 2, 8), 100).astype(dtype)
            now = round_trip(np.concatenate([now, others]), UniformDeadzone(max_error=bound))[:400]
        assert np.abs(now.astype(np.float64) - original).max() <= bound


def test_a_narrow_zone_keeps_the_signs_of_small_values() -> None:
    values = np.random.default_rng(0).laplace(size=5000).astype(np.float32)
    quantizer = UniformDeadzone(relative_step=4, absolute=True, dead_zone=0.25)
    restored = decode(encode(values, quantizer))
    rms = np.sqrt(np.square(values.astype(float)).mean())
    outside = np.abs(values) > 1.001 * rms
    assert (restored[outside] * values[outside] > 0).all()
    assert (restored[np.abs(values) < 0.999 * rms] == 0).all()
    assert len(np.unique(restored)) <= 6  # next to nothing is said of sizes
    assert quantizer.guarantee.max_growth == 10


@pytest.mark.parametrize(
    "parameters", [{"step": 1.0}, {"share": 0.3}, {"max_error": 0.1}, {"relative_step": 1.0, "zone": 2.0}]
)
def test_another_zone_needs_a_relative_step(parameters: dict[str, float]) -> None:
    dead_zone = parameters.pop("zone", 0.3)
    with pytest.raises(ArgumentError, match="dead_zone"):
        UniformDeadzone(**parameters, dead_zone=dead_zone)


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
def test_parameters_of_keyframes_are_checked(bad: Any) -> None:
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


STEP = UniformDeadzone(relative_step=2.0)


def weighted(moment: np.ndarray, typical: float = 1.0) -> Weighted:
    kind, bits = components(moment)
    return Weighted(STEP, bits, kind, typical)


def case(name: str = "float32", size: int = PIECE + 5000) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """An array, its reference and moments over 2**24, as they are found inside arrays."""
    rng = np.random.default_rng(0)
    before = rng.standard_normal(size)
    after = before + 0.1 * rng.standard_normal(size)
    moment = 2.0 ** rng.normal(0, 4, size)
    return after.astype(dtype_of(name)), before.astype(dtype_of(name)), moment.astype(np.float32)


@pytest.mark.parametrize("name", ["float16", "float32", "float64"])
def test_the_zone_of_each_element(name: str) -> None:
    after, before, moment = case(name)
    coded = decode(encode(after, weighted(moment), before), before) != before
    d = np.abs(after.astype(float) - before)
    edge = 0.6 * 2 * np.sqrt(np.mean(d**2)) * np.clip(moment.astype(float) ** -0.125, 0.7, 4)
    tells = np.abs(d / edge - 1) > 0.02  # not what is within rounding of an edge
    np.testing.assert_array_equal(coded[tells], (d > edge)[tells])


def test_a_flat_moment_changes_nothing() -> None:
    after, before, moment = case()
    assert encode(after, weighted(np.full_like(moment, 3), 3.0), before) == encode(after, STEP, before)


def test_the_weighted_error_is_lower_at_the_same_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the root of the second moment as its weight, and means as representatives."""
    monkeypatch.setattr(grid, "lead", lambda share, _: np.zeros_like(share))
    after, before, moment = case(size=500_000)

    def weigh(quantizer: object) -> tuple[int, float]:
        frame = encode(after, quantizer, before)
        error = decode(frame, before).astype(float) - after
        return len(frame), float(np.sum(error**2 * np.sqrt(moment)))

    size, damage = weigh(weighted(moment, typical=float(np.mean(moment**0.25)) ** 4))
    finer, coarser = (weigh(UniformDeadzone(relative_step=step)) for step in (2.0, 2.2))
    assert size < finer[0]
    assert damage < finer[1] < coarser[1]


@pytest.mark.parametrize("hard", [0.0, -1.0, np.nan, np.inf, 1e-45])
def test_hard_moments(hard: float) -> None:
    """A negative moment or NaN does not change the zone; 0 and infinity give its extremes."""
    after, before, moment = case()
    moment[:] = hard
    after[::1000] = np.nan
    restored = decode(encode(after, weighted(moment), before), before)
    np.testing.assert_array_equal(np.isnan(restored), np.isnan(after))
    rms = 0.1
    assert np.nanmax(np.abs(restored - after)) < 0.6 * 2 * rms * 4 * 1.1
    if hard == -1 or np.isnan(hard):
        np.testing.assert_array_equal(restored, decode(encode(after, STEP, before), before))


@pytest.mark.slow
def test_balanced_weighs_with_moments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With means, the same bytes give less weighted error; files restore the closed loop."""
    monkeypatch.setattr(grid, "lead", lambda share, _: np.zeros_like(share))
    monkeypatch.setattr(balanced, "lead", np.zeros_like)
    states = adam_states(6)
    sizes, damages = [], []
    for policy in (Balanced(error=0.9), Balanced(error=0.83, joint=True)):
        directory = tmp_path / str(policy.joint)
        with HistoryChain(directory, policy, keyframe_every=100) as chain:
            sizes.append(sum([chain.save(step, state) for step, state in enumerate(states)][1:]))
        restored = HistoryChain(directory).restore()["model"]["large"]
        error = restored - states[-1]["model"]["large"].astype(float)
        damages.append(np.sum(error**2 * np.sqrt(states[-1]["exp_avg_sq"]["large"])))
    assert sizes[1] < 1.01 * sizes[0]
    assert damages[1] < 0.95 * damages[0]


@pytest.mark.parametrize("error", [0.1, 3.0])
def test_small_arrays_and_those_without_moments_are_as_before(tmp_path: Path, error: float) -> None:
    states = [{"model": state["model"], "exp_avg_sq": {}} for state in adam_states(3)]
    files = []
    for joint in (False, True):
        policy = Balanced("x", error=error, joint=joint)
        with HistoryChain(tmp_path / str(joint), policy, roles={"model/*": "weight"}) as chain:
            save_all(chain, states)
            files.append(chain.restore()["model"])
    for name, array in files[0].items():
        np.testing.assert_array_equal(array, files[1][name])
    assert not np.array_equal(files[0]["large"], states[-1]["model"]["large"])


def test_a_trigger_goes_first(tmp_path: Path) -> None:
    states = adam_states(2)
    states[1]["model"]["flat"] = states[0]["model"]["flat"] * np.float32(1.0001)
    policy = Balanced(error=0.8, joint=True, roles={"weight": Triggered(STEP, 0.005)}, keyframes="exact")
    with HistoryChain(tmp_path, policy) as chain:
        save_all(chain, states)
        methods = {array.name: array.method for array in chain.info().arrays}
    assert methods["model/flat"] == "unchanged"
    assert methods["model/large"] == "codebook"


def test_what_lies_before_the_first_bin_is_in_it() -> None:
    """Where no difference would reach the zone without moments."""
    before = np.zeros(30_000, np.float32)
    after = np.where(np.arange(before.size) % 2, 1, -1).astype(np.float32)  # half a step: 0.6 do not wait
    restored = decode(encode(after, weighted(np.full_like(after, 1e9)), before), before)
    np.testing.assert_array_equal(restored, after)
    assert not decode(encode(after, STEP, before), before).any()


def test_json_and_text() -> None:
    policy = Balanced("mine", ratio=50, joint=True)
    assert resolve_policy(json.loads(json.dumps(policy.to_json()))) == policy
    assert str(policy).startswith("mine, ratio=50, joint\n")
    assert "joint" not in Balanced(ratio=50).to_json()
    with pytest.raises(ArgumentError, match="joint must be True or False"):
        Balanced(ratio=50, joint=1)


def test_representatives_lead_by_a_part_of_their_own_zone() -> None:
    share = np.array([0.0, 0.2])
    assert grid.lead(share, 0.3) == pytest.approx(grid.lead(share) / 2)
