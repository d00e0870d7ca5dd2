from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec import ArgumentError, Chain, LogSteps, Lossless, Policy, UnsupportedError, decode, encode
from lccodec.element_types import components, octaves
from lccodec.frame.content import MAX_SHARED_COMPONENTS
from lccodec.frame.decode import decode_components
from lccodec.frame.header import parse_header

from ..support.frames import encode_components, sealed
from ..support.strategies import REALS, Pair, array_and_reference, bits_of, dtype_of, random_array

steps = st.sampled_from([0.01, 0.3, 1.0, 3.0, 10.0])


def round_trip(array: np.ndarray, step: float, reference: np.ndarray | None) -> np.ndarray:
    return decode(encode(array, LogSteps(step), reference), reference)


def check_bound(array: np.ndarray, restored: np.ndarray, step: float) -> None:
    """Positive normal numbers keep their size; all else is bit for bit what it was."""
    tiny = np.finfo(array.dtype).tiny if array.dtype.kind == "f" else np.float32(2.0**-126)
    wide, back = array.astype(np.longdouble), restored.astype(np.longdouble)
    with np.errstate(invalid="ignore"):
        normal = (wide >= tiny) & np.isfinite(wide)
    ratio = back[normal] / wide[normal]
    assert (ratio <= LogSteps(step).max_ratio).all()
    assert (1 / ratio <= LogSteps(step).max_ratio).all()
    np.testing.assert_array_equal(bits_of(restored[~normal]), bits_of(array[~normal]))


@given(array_and_reference(REALS), steps, st.booleans())
def test_the_ratio_is_bounded_for_every_element(pair: Pair, step: float, positive: bool) -> None:
    array, reference = pair
    with np.errstate(invalid="ignore"):
        if positive:
            array, reference = np.abs(array), None if reference is None else np.abs(reference)
        check_bound(array, round_trip(array, step, reference), step)


@st.composite
def moments(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """m and v of Adam over many powers of two, some never touched; and a reference of v."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    size = draw(st.integers(1, 3000))
    v = 2.0 ** rng.uniform(draw(st.integers(-160, -20)), 0, size)
    reference = v * 2.0 ** rng.normal(0, draw(st.sampled_from([0.01, 0.5, 3.0])), size)
    m = np.sqrt(v) * rng.normal(0, 1, size)
    for array, share in ((v, 0.1), (reference, 0.1), (m, 0.2)):
        array[rng.random(size) < share] = 0
    with np.errstate(under="ignore"):
        return m.astype(np.float32), v.astype(np.float32), reference.astype(np.float32)


@given(moments(), steps, st.sampled_from([1e-8, 1e-15, 0.0]))
def test_an_update_of_adam_grows_by_a_bounded_factor(
    moments: tuple[np.ndarray, np.ndarray, np.ndarray], step: float, eps: float
) -> None:
    m, v, reference = moments
    restored = round_trip(v, step, reference)
    assert (restored >= 0).all()
    np.testing.assert_array_equal(restored == 0, v == 0)
    with np.errstate(all="ignore"):
        before, after = (np.abs(m / (np.sqrt(x.astype(np.float64)) + eps)) for x in (v, restored))
    moving = np.isfinite(before)
    np.testing.assert_array_equal(moving, np.isfinite(after))
    assert (after[moving] <= before[moving] * (1 + 1e-12) * LogSteps(step).max_ratio ** 0.5).all()


@pytest.mark.parametrize("size", [1000, MAX_SHARED_COMPONENTS + 1])
def test_a_chain_keeps_the_bound_and_zeros(tmp_path: object, size: int) -> None:
    """In runs and in frames of one array; the error does not add up."""
    rng = np.random.default_rng(0)
    v = {f"v{i}": np.float32(2.0) ** rng.uniform(-60, 0, size).astype(np.float32) for i in range(3)}
    v["v1"][::7] = 0
    policy = Policy("v", {"second_moment": LogSteps(1.0)})
    with Chain(str(tmp_path), policy, roles={"v*": "second_moment"}, keyframe_every=100) as chain:
        for step in range(12):
            written = chain.save(step, v)
            for name, restored in chain.restore(step).items():
                check_bound(v[name], restored, 1.0)
                v[name] = v[name] * np.float32(2.0) ** rng.normal(0, 0.2, size).astype(np.float32)
            v["v1"][step] = 1e-10  # touched for the first time
    assert written < 3 * 4 * size / 4


@pytest.mark.parametrize("name", REALS)
def test_symbols_are_steps_of_the_patterns(name: str) -> None:
    """Reconstruction worked out with Python's integers (LCC-REC-04)."""
    dtype = dtype_of(name)
    rng = np.random.default_rng(1)
    reference = (2.0 ** rng.uniform(-8, 8, 500)).astype(dtype)
    array = (reference * 2.0 ** np.tile([-2, 0, 2, 0], 125)).astype(dtype)
    frame = encode(array, LogSteps(1.0), reference)
    header = parse_header(frame)
    assert (header.ordered, header.relative, header.method_name) == (True, True, "codebook")
    kind, before = components(reference)
    step = 2 << kind.mantissa  # two powers of two
    restored = [int(x) for x in components(decode(frame, reference))[1]]
    assert {after - int(r) for after, r in zip(restored, before, strict=True)} == {-step, 0, step}


def test_octaves() -> None:
    kind, x = components(np.array([1, 2, 3, 4, 1.5, 0, -1, np.nan, 1e-40, 1, 1, -1, 0], np.float32))
    _, r = components(np.array([1, 1, 1, 1, 3, 0, -1, np.nan, 1e-40, 0, -1, 1, 1e-40], np.float32))
    np.testing.assert_array_equal(octaves(x, r, kind), [0, 1, 1.5, 2, -1, 0, 0, 0, 0] + [np.nan] * 4)


def test_after_a_first_step_from_zero_an_array_is_lossless() -> None:
    after = np.abs(random_array("float32", (50_000,), 0, special=0)) + np.float32(1e-9)
    before = np.zeros_like(after)
    frame = encode(after, LogSteps(3.0), before)
    assert parse_header(frame).method_name != "codebook"
    np.testing.assert_array_equal(decode(frame, before), after)


@pytest.mark.parametrize("step", [0, -1, 65, float("nan"), "1", None])
def test_the_step_is_checked(step: object) -> None:
    with pytest.raises(ArgumentError, match="LogSteps: the step"):
        LogSteps(step)


@pytest.mark.parametrize(("method", "flags"), [(0, 4), (1, 4), (1, 5), (2, 4), (2, 6), (2, 8)])
def test_the_flag_is_for_codebooks_with_a_reference(method: int, flags: int) -> None:
    frame = bytearray(encode(np.ones(4, np.float32), LogSteps(), np.full(4, 2, np.float32)))
    frame[3], frame[5] = method, flags
    with pytest.raises(UnsupportedError, match="LCC-FRM-04" if flags == 8 else "LCC-FRM-12"):
        decode(sealed(bytes(frame)), np.ones(4, np.float32))


@pytest.mark.parametrize("run", [False, True])
@pytest.mark.parametrize("drift", [0.2, -0.2])
def test_a_drift_leaves_little_bias(run: bool, drift: float) -> None:
    """Steps lead ahead of numbers that all go one way, so that the error is of either sign."""
    rng = np.random.default_rng(0)
    kind, decoded = components(np.ones(4000, np.float32))
    v = 2.0 ** rng.uniform(-1.2, 1.2, 4000)
    biases = []
    for _ in range(60):
        v *= 2.0 ** (drift + rng.normal(0, 0.2, 4000))
        bits = components(v.astype(np.float32))[1]
        shapes = [(1000,), (3000,)] if run else [(4000,)]
        frame = b"".join(encode_components(bits, kind, shapes, LogSteps(2.0), decoded, run=run))
        decoded = decode_components(frame, decoded)
        error = np.log2(decoded.view(np.float32) / v)
        assert np.abs(error).max() <= np.log2(LogSteps(2.0).max_ratio)
        biases.append(error.mean())
    assert abs(np.mean(biases[20:])) < 0.05  # -0.12 with -0.2, without the lead


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("step", [0.05, 1.0, 3.0, 10.0])
def test_numbers_without_a_reference_fall_into_bins_of_the_logarithm(dtype: str, step: float) -> None:
    rng = np.random.default_rng(0)
    least = {"float16": -14, "bfloat16": -100, "float32": -120, "float64": -1000}[dtype]
    array = (2.0 ** rng.uniform(least, 4, 40_000)).astype(dtype_of(dtype))
    array[::7] = 0
    hard = [-0.0, -1, np.nan, np.inf, np.finfo(np.float16).smallest_subnormal]
    array[100:105] = np.array(hard).astype(array.dtype)
    frame = encode(array, LogSteps(step))
    check_bound(array, decode(frame), step)
    if step >= 1:
        assert len(frame) < 0.6 * len(encode(array, Lossless()))


@pytest.mark.parametrize("policy", ["lc-3", "balanced", "small"])
def test_second_moments_that_start_from_zero_are_small_and_bounded(policy: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    shape = (200, 300)
    scale = 2.0 ** rng.uniform(-40, -10, shape)
    states = [
        {"exp_avg_sq": {"w": (scale * n * rng.uniform(0.5, 1, shape)).astype(np.float32)}} for n in range(4)
    ]
    with Chain(tmp_path, policy, roles={"exp_avg_sq/w": "second_moment"}, newest="history") as chain:
        sizes = [chain.save(step, state) for step, state in enumerate(states)]
        assert sizes[1] < 0.3 * 4 * scale.size
        arrays = chain.info(1).arrays
        assert not arrays[0].relative
        for step, state in enumerate(states):
            v, restored = state["exp_avg_sq"]["w"], chain.restore(step)["exp_avg_sq"]["w"]
            assert ((restored == 0) == (v == 0)).all()
            moved = v > 0
            ratio = restored[moved] / v[moved]
            assert (np.maximum(ratio, 1 / ratio) <= LogSteps(3.0).max_ratio).all()


def test_logarithms_of_float64_have_few_bits_behind_the_point() -> None:
    """At the edge of a bin, the bound held but for the rounding of the logarithm."""
    for seed in range(60):
        rng = np.random.default_rng(seed)
        array = 2.0 ** (rng.uniform(-1000, 900) + rng.uniform(0, 9, 400))
        coder = LogSteps(float(rng.uniform(0.3, 1.5)))
        kind, original = components(array)
        assert not coder.guarantee.broken(components(decode(encode(array, coder)))[1], original, kind).any()
