"""The oracle itself against cases worked by hand and against NumPy's own arithmetic."""

import numpy as np
import pytest

from .support.oracle import FORMATS, lc_reconstruct, order0_entropy_bits


def f32(*values):
    return np.array(values, np.float32)


def bf16(*values):
    """Bit patterns of values that bfloat16 holds exactly."""
    patterns = np.array(values, np.float32).view(np.uint32)
    assert not (patterns & 0xFFFF).any()
    return (patterns >> 16).astype(np.uint16)


@pytest.mark.parametrize(
    ("values", "bits", "expected"),
    [
        # One promoted bucket, [4, 8): (4 + 7) / 2; the rest is zero.
        ([4.0, 7.0, 5.0, 1.0, -1.0], 1, [5.5, 5.5, 5.5, 0.0, 0.0]),
        # Of two buckets with one exponent the positive one is promoted.
        ([-7.5, 4.0, 2.0], 1, [0.0, 4.0, 0.0]),
        # A larger exponent goes before the sign.
        ([-8.0, 7.0], 1, [-8.0, 0.0]),
        # Three buckets: (2, +), (2, -), (1, +); the bucket of -2 is the fourth.
        ([4.0, -4.0, -6.0, 2.0, 3.0, -2.0], 2, [4.0, -5.0, -5.0, 2.5, 2.5, 0.0]),
        # Buckets that nothing occupies take no place.
        ([1024.0, 1.0, 0.25, 0.125], 2, [1024.0, 1.0, 0.25, 0.0]),
        # Zeros and subnormals are never promoted, and a -0.0 becomes +0.0.
        ([-0.0, 1e-40, 2.0], 2, [0.0, 0.0, 2.0]),
        # NaN and infinities are exact and do not count as the largest exponent.
        ([np.inf, -np.inf, np.nan, 3.0], 1, [np.inf, -np.inf, np.nan, 3.0]),
        ([], 3, []),
    ],
)
def test_without_reference(values, bits, expected):
    assert lc_reconstruct(f32(*values), None, bits, "float32").tobytes() == f32(*expected).tobytes()


def test_reference_is_kept_where_nothing_is_promoted():
    values = f32(1.5, 1.0, 2.25, -0.0)
    reference = f32(1.0, 1.0, 2.0, -0.0)
    # The differences are 0.5, 0, 0.25, 0: one bucket, [0.5, 1), is promoted.
    expected = f32(1.5, 1.0, 2.0, -0.0)
    assert lc_reconstruct(values, reference, 1, "float32").tobytes() == expected.tobytes()


def test_a_reference_that_is_not_finite_makes_the_element_exact():
    values, reference = f32(1.0, 2.0, 3.0), f32(np.nan, -np.inf, 1.0)
    assert lc_reconstruct(values, reference, 1, "float32").tolist() == [1.0, 2.0, 3.0]


def test_nan_payloads_survive():
    values = np.array([0x7F800001, 0xFFC12345, 0x40000000], np.uint32).view(np.float32)
    assert lc_reconstruct(values, f32(1, 1, 1), 1, "float32").tobytes() == values.tobytes()


def test_a_difference_that_overflows_is_exact():
    largest = np.finfo(np.float32).max
    values, reference = f32(largest, 2.0), f32(-largest, 1.0)
    # Without the first the bucket of 1.0 is the largest.
    assert lc_reconstruct(values, reference, 1, "float32").tolist() == [largest, 2.0]


def test_a_sum_that_overflows_is_exact():
    # In float16 (largest 65504) the differences 16384 and 32736 share a bucket of mean 24560;
    # 32768 + 24560 is fine, 65504 - 16384 + 24560 is not.
    values = np.array([65504, 65504], np.float16)
    reference = np.array([32768, 49120], np.float16)
    assert lc_reconstruct(values, reference, 1, "float16").tolist() == [57344, 65504]


def test_the_representative_is_rounded_once_to_even():
    # bfloat16 keeps 8 significant bits: (128 + 129) / 2 = 128.5 is a tie and goes to 128,
    # (129 + 130) / 2 = 129.5 to 130.
    assert lc_reconstruct(bf16(128, 129), None, 1, "bfloat16").tolist() == bf16(128, 128).tolist()
    assert lc_reconstruct(bf16(129, 130), None, 1, "bfloat16").tolist() == bf16(130, 130).tolist()


def test_the_difference_is_rounded_to_the_dtype():
    # 256 - 0.75 = 255.25 needs 10 bits: bfloat16 rounds it to 255, of exponent 7.
    assert lc_reconstruct(bf16(256), bf16(0.75), 1, "bfloat16").tolist() == bf16(256).tolist()
    # 255.75 rounds up to 256: a bucket above that of 255.
    values, reference = bf16(256, 255), bf16(0.25, 0)
    assert lc_reconstruct(values, reference, 1, "bfloat16").tolist() == bf16(256, 0).tolist()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_rounding_is_that_of_ieee_arithmetic(dtype):
    fmt, rng = FORMATS[dtype], np.random.default_rng(7)
    unsigned = np.dtype(dtype).str.replace("f", "u")
    patterns = rng.integers(0, np.iinfo(unsigned).max, (2, 2_000), unsigned, endpoint=True)
    # Half of the pairs are close to each other, so that bits cancel.
    patterns[1, ::2] = patterns[0, ::2] ^ (patterns[1, ::2] >> 8)
    a, b = patterns.view(dtype)
    finite = np.isfinite(a) & np.isfinite(b)
    with np.errstate(over="ignore"):
        expected = (a[finite] - b[finite]).view(unsigned).tolist()
    got = [
        fmt.round_half_ulps(2 * (fmt.to_ulps(x) - fmt.to_ulps(y))) for x, y in patterns[:, finite].T.tolist()
    ]
    assert got == expected


def test_entropy():
    assert order0_entropy_bits([]) == 0
    assert order0_entropy_bits("aaaa") == 0
    assert order0_entropy_bits("aabb") == 4
    assert order0_entropy_bits([0, 0, 1, 2]) == 6
