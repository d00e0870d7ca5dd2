from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec import ArgumentError, ExponentBuckets, Lossless, UniformDeadzone, decode, encode
from lccodec.element_types import components
from lccodec.frame.decode import decode_components
from lccodec.parallel import PIECE

from ..support.frames import encode_components
from ..support.oracle import lc_reconstruct
from ..support.strategies import array_and_reference, bits_of, dtype_of, random_array


def round_trip(array: np.ndarray, quantizer: object, reference: np.ndarray | None = None) -> np.ndarray:
    return decode(encode(array, quantizer, reference), reference)  # type: ignore[arg-type]


@given(array_and_reference(["float16", "bfloat16", "float32", "float64"]), st.integers(1, 8))
def test_exponent_buckets_are_the_papers_bit_for_bit(
    pair: tuple[np.ndarray, np.ndarray | None], bits: int
) -> None:
    array, reference = pair
    narrow = array.dtype.name == "bfloat16"
    plain = array.view(np.uint16) if narrow else array
    base = reference if reference is None else reference.view(np.uint16) if narrow else reference
    expected = lc_reconstruct(plain, base, bits, "bfloat16" if narrow else array.dtype.name)
    restored = round_trip(array, ExponentBuckets(bits=bits), reference)
    np.testing.assert_array_equal(bits_of(restored), bits_of(expected))


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
def test_the_error_bound_holds_for_every_element(
    pair: tuple[np.ndarray, np.ndarray | None], bound: float
) -> None:
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


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
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
@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_what_is_not_finite_is_exact(quantizer: object, name: str) -> None:
    kind, _ = components(np.zeros(0, dtype_of(name)))
    infinity = ((1 << (8 * kind.size - 1 - kind.mantissa)) - 1) << kind.mantissa
    sign = 1 << (8 * kind.size - 1)
    patterns = [
        infinity,
        infinity | sign,
        infinity | 1,
        infinity | sign | 5,
        infinity | 1 << (kind.mantissa - 1),
    ]
    array = random_array(name, (200,), 3, special=0)
    array[:5] = np.array(patterns, kind.bits).view(array.dtype)
    reference = random_array(name, (200,), 4, special=0)
    reference[3:8] = np.array(patterns, kind.bits).view(array.dtype)
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


@pytest.mark.parametrize(
    "make",
    [
        lambda: ExponentBuckets(0),
        lambda: ExponentBuckets(9),
        lambda: ExponentBuckets(2.5),  # type: ignore[arg-type]
        lambda: ExponentBuckets(2, representative="median"),  # type: ignore[arg-type]
        UniformDeadzone,
        lambda: UniformDeadzone(step=1.0, max_error=1.0),
        lambda: UniformDeadzone(step=0.0),
        lambda: UniformDeadzone(step=-1.0),
        lambda: UniformDeadzone(max_error=float("nan")),
        lambda: UniformDeadzone(relative_step=float("inf")),
    ],
)
def test_parameters_are_checked(make: object) -> None:
    with pytest.raises(ArgumentError):
        make()  # type: ignore[operator]


def test_a_step_out_of_the_range_of_the_type_is_lossless() -> None:
    array = random_array("float32", (100,), 0, special=0.2)
    for step in (1e-300, 1e-44, 1e300):
        restored = round_trip(array, UniformDeadzone(step=step))
        if step < 1:
            np.testing.assert_array_equal(bits_of(restored), bits_of(array))


def test_quantizers_are_values() -> None:
    assert ExponentBuckets(3) == ExponentBuckets(bits=3)
    assert len({Lossless(), Lossless(), UniformDeadzone(step=1)}) == 2


@given(array_and_reference(["float16", "bfloat16", "float32"]), st.sampled_from([0.1, 4.0]))
def test_absolute_values_keep_their_sign_and_grow_by_a_bounded_factor(
    pair: tuple[np.ndarray, np.ndarray | None], step: float
) -> None:
    array, reference = pair
    quantizer = UniformDeadzone(relative_step=step, absolute=True)
    frame = encode(array, quantizer, reference)
    restored = decode(frame)  # needs no reference
    with np.errstate(invalid="ignore"):
        finite = np.isfinite(array)
    before, after = array[finite].astype(np.longdouble), restored[finite].astype(np.longdouble)
    assert (after * before >= 0).all()
    assert (np.abs(after) <= np.abs(before) * 2.69).all()  # 8/3 and a rounding to bfloat16
    np.testing.assert_array_equal(bits_of(restored[~finite]), bits_of(array[~finite]))


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_the_bins_next_to_the_largest_number_have_finite_representatives(name: str) -> None:
    """The middle of a bin without elements can lie past the largest number."""
    kind, _ = components(np.zeros(0, dtype_of(name)))
    largest = np.array([(1 << (8 * kind.size - 1)) - (1 << kind.mantissa) - 1], kind.bits).view(
        dtype_of(name)
    )
    array = np.concatenate([largest, np.zeros(40, largest.dtype), largest / 3])
    for step in (0.1, 0.7, 1.0):
        round_trip(array, UniformDeadzone(relative_step=step))
        frame = b"".join(
            encode_components(
                components(array)[1], kind, [(2,), (40,)], UniformDeadzone(relative_step=step), None, run=True
            )
        )
        decode_components(frame, None)
