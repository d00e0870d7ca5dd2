"""`Smooth`: every bound holds for every element of every array, and smooth arrays are small."""

import math
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec import ArgumentError, Smooth, UniformDeadzone, decode, encode
from lccodec.element_types import components
from lccodec.frame.header import parse_header
from lccodec.quantizers.base import Quantizer
from lccodec.quantizers.field import wide

from ..support.frames import encode_components
from ..support.profiles import examples
from ..support.strategies import (
    REALS,
    Pair,
    array_and_reference,
    bits_of,
    dtype_of,
    ends_of,
    installed,
    random_array,
    wave,
)

TYPES = installed(REALS)


def numbers(array: np.ndarray) -> np.ndarray:
    kind, bits = components(array)
    return wide(bits, kind).reshape(array.shape)


def bound_of(quantizer: Smooth, array: np.ndarray) -> float:
    """The bound that holds, computed without the package; fill values are not looked for."""
    values = numbers(array)
    values = values[np.isfinite(values)]
    bounds = [math.inf if quantizer.max_error is None else quantizer.max_error]
    if quantizer.relative_error is not None and values.size:
        with np.errstate(over="ignore"):
            bounds.append(quantizer.relative_error * float(values.max() - values.min()))
    return min(bounds)


def assert_holds(quantizer: Smooth, array: np.ndarray, reference: np.ndarray | None = None) -> bytes:
    """Every element is within the bound, as exact numbers; what is not finite is what it was."""
    frame = encode(array, quantizer, reference)
    restored = decode(frame, reference)
    assert (restored.dtype, restored.shape) == (array.dtype, array.shape)
    before, after = numbers(array), numbers(restored)
    finite = np.isfinite(before)
    assert restored[~finite].tobytes() == array[~finite].tobytes()
    with np.errstate(over="ignore"):
        error = np.abs(after[finite] - before[finite])
    bound = bound_of(quantizer, array)
    assert not error.size or error.max() <= bound
    near = np.flatnonzero(error >= bound * (1 - 1e-9))[:50]  # where rounding could hide an excess
    for a, b in zip(before[finite][near].tolist(), after[finite][near].tolist(), strict=True):
        assert abs(Fraction(a) - Fraction(b)) <= Fraction(bound)
    if finite.any() and before[finite].min() >= 0:
        assert after[finite].min() >= 0
    return frame


@given(array_and_reference(TYPES), st.integers(-12, 2), st.booleans(), st.booleans())
def test_any_array(pair: Pair, power: int, relative: bool, keeps_sum: bool) -> None:
    array, reference = pair
    bound: dict[str, Any] = {"relative_error" if relative else "max_error": 10.0**power}
    with np.errstate(over="ignore"):
        assert_holds(Smooth(**bound, conserve="sum" if keeps_sum else None), array, reference)


@given(
    st.sampled_from(TYPES),
    st.lists(st.integers(1, 9), max_size=5).map(tuple),
    st.integers(-4, 40),
    st.integers(0, 2**32),
)
def test_at_the_edges_of_rounding(name: str, shape: tuple[int, ...], places: int, seed: int) -> None:
    """Bounds of a few distances of neighbouring numbers, and numbers half a bound from steps."""
    kind, _ = components(np.zeros(1, dtype_of(name)))
    rng = np.random.default_rng(seed)
    unit = 2.0**-kind.mantissa
    bound = unit * (places / 8 if places > 0 else 2.0**places)
    steps = rng.integers(0, 50, shape) * bound + rng.choice([0, 0.5, 1, 1.5], shape) * unit
    array = (1 + steps + rng.choice([-1, 0, 1], shape) * 2.0**-52).astype(dtype_of(name))
    assert_holds(Smooth(max_error=bound), array)
    assert_holds(Smooth(max_error=bound), array, (array * 3).astype(dtype_of(name)))


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("power", [-300, -40, -8, 0, 8, 300])
def test_the_ends_of_the_range(name: str, power: int) -> None:
    most, tiny = ends_of(name)
    x, bound = wave(40, 50), 10.0**power
    with np.errstate(all="ignore"):
        steps = np.where(x > 0, most, -most), np.where(x > 0, tiny, most)
        for array in (x / 4 * most, x * tiny * 1000, *steps):
            fitted = np.clip(array, -most, most).astype(dtype_of(name))
            assert_holds(Smooth(max_error=bound), fitted)
            if power <= 8:
                assert_holds(Smooth(relative_error=bound), fitted)


@pytest.mark.parametrize("name", TYPES)
def test_a_smooth_array_is_small(name: str) -> None:
    array = wave(60, 50, 40, dtype=name)
    frame = assert_holds(Smooth(relative_error=1e-2), array)
    assert parse_header(frame).method_name == "smooth"
    assert array.nbytes > (100 if array.itemsize == 8 else 25) * len(frame)


def test_both_bounds_hold() -> None:
    array = wave(100, 100)
    assert_holds(Smooth(max_error=1e-3, relative_error=1e-6), array)
    assert_holds(Smooth(max_error=1e-6, relative_error=1e-3), array)


@pytest.mark.parametrize("shape", [(0,), (3, 0, 2), (), (1,), (1, 1), (1, 50), (50, 1), (2,) * 9, (1,) * 30])
def test_shapes(shape: tuple[int, ...]) -> None:
    array = np.random.default_rng(0).standard_normal(shape)
    assert_holds(Smooth(max_error=1e-3), array)


@pytest.mark.parametrize("value", [0.0, -0.0, 3.25, 1e300, np.nan, np.inf])
def test_constant_arrays(value: float) -> None:
    array = np.full((30, 40), value)
    for quantizer in (Smooth(max_error=1e-3), Smooth(relative_error=0.5)):
        restored = decode(encode(array, quantizer))
        np.testing.assert_allclose(restored, array, rtol=0, atol=1e-3)


def test_fill_values_are_exact_and_cost_little() -> None:
    array = wave(100, 100)
    plain = len(encode(array, Smooth(relative_error=1e-4)))
    land = array.copy()
    land[20:60, 30:70] = 1e20
    restored = decode(frame := encode(land, Smooth(relative_error=1e-4)))
    np.testing.assert_array_equal(restored == 1e20, land == 1e20)
    sea = land != 1e20
    assert np.abs(restored - land)[sea].max() <= 1e-4 * np.ptp(land[sea])
    assert len(frame) < 2 * plain + 800
    land[land == 1e20] = np.nan
    assert len(assert_holds(Smooth(relative_error=1e-4), land)) < 2 * plain + 800


def test_limits_hold() -> None:
    array = np.clip(wave(80, 80) / 2, 0, 1)
    quantizer = Smooth(max_error=0.05, minimum=0.0, maximum=1.0)
    restored = decode(encode(array, quantizer))
    assert restored.min() == 0
    assert 0.95 <= restored.max() <= 1
    beyond = array.copy()
    beyond[3, 4] = 1.5
    restored = decode(encode(beyond, quantizer))
    assert restored[3, 4] == 1.5
    assert np.delete(restored, 3 * 80 + 4).max() <= 1


@pytest.mark.parametrize("name", TYPES)
def test_the_sum_is_kept(name: str) -> None:
    array = wave(60, 70, dtype=name) + dtype_of(name).type(1)
    kind, _ = components(array)
    values = numbers(array)
    bound = 2e-2

    def gap(quantizer: Smooth) -> float:
        return abs(math.fsum((numbers(decode(encode(array, quantizer))) - values).reshape(-1).tolist()))

    keeping = Smooth(max_error=bound, conserve="sum")
    assert_holds(keeping, array)
    assert gap(keeping) <= 2.0 ** -(kind.mantissa + 1) * np.abs(values).sum()
    if array.itemsize > 2:
        assert gap(Smooth(max_error=bound)) > 10 * gap(keeping)


@pytest.mark.parametrize("bound", [1e-2, 1e-3, 1e-4])
@pytest.mark.parametrize("power", [1, 8])
def test_a_sum_costs_little(bound: float, power: int) -> None:
    """Still regions are off by one error, and many elements lie at the limit of 0."""
    array = np.maximum(wave(90, 80), 0) ** power
    frame = encode(array, Smooth(relative_error=bound, conserve="sum"))
    restored = decode(frame)
    assert len(frame) <= 1.35 * len(encode(array, Smooth(relative_error=bound)))
    assert np.abs(restored - array).max() <= bound * np.ptp(array)
    assert restored.min() >= 0
    assert abs(math.fsum((restored - array).reshape(-1).tolist())) <= 2.0**-52 * array.sum()


def test_what_cannot_keep_its_sum_is_exact() -> None:
    """The limits take back what the offset gives."""
    array = np.where(wave(50, 50) > 0.5, 1.0, 0.99)
    quantizer = Smooth(max_error=0.02, maximum=1.0, conserve="sum")
    restored = decode(encode(array, quantizer))
    assert abs(restored.sum() - array.sum()) <= 2.0**-53 * array.sum()


def test_a_run_and_complex_numbers_have_uniform_steps() -> None:
    kind, bits = components(wave(30, 10, dtype="float32"))
    frame = b"".join(encode_components(bits, kind, [(100,), (200,)], Smooth(max_error=0.2), None, run=True))
    assert parse_header(frame).method_name == "codebook"
    array = wave(30, 10) + 1j * wave(30, 10)
    frame = encode(array, Smooth(max_error=1e-2))
    restored = decode(frame)
    assert parse_header(frame).method_name == "codebook"
    assert max(np.abs((restored - array).real).max(), np.abs((restored - array).imag).max()) <= 1e-2
    frame = encode(array, Smooth(max_error=1e-2, conserve="sum"))
    assert bits_of(decode(frame)).tobytes() == bits_of(array).tobytes()


@pytest.mark.parametrize("bound", [0.3, 1e-2, 1e-4])
def test_noise_costs_no_more_than_uniform_steps(bound: float) -> None:
    array = random_array("float32", (300, 300), 3, special=0.0)
    array /= np.abs(array).max()
    smooth, steps = (len(encode(array, each(max_error=bound))) for each in (Smooth, UniformDeadzone))
    assert smooth <= 1.03 * steps


def test_time_or_space() -> None:
    """What moved a little is predicted by time, and what moved in a rough way by space."""
    array = np.cumsum(np.random.default_rng(0).standard_normal((200, 300)), axis=1)
    kind, bits = components(array)
    near, far = (components(array + change)[1] for change in (wave(200, 300), 9 * array[::-1]))
    assert not Smooth(max_error=1.0).stands_alone(bits, near, kind)
    assert Smooth(max_error=1.0).stands_alone(bits, far, kind)


@pytest.mark.parametrize(
    "arguments",
    [
        *({}, {"max_error": 0}, {"max_error": -1.0}, {"max_error": math.nan}),
        *({"relative_error": math.inf}, {"max_error": True}, {"max_error": 1.0, "minimum": math.inf}),
        *({"max_error": 1.0, "minimum": 2, "maximum": 1}, {"max_error": 1.0, "conserve": "mean"}),
    ],
)
def test_arguments(arguments: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match="Smooth"):
        Smooth(**arguments)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("low", "high"), [(0.3, 0.7), (1 / 3, 2 / 3), (-2 / 3, -1e-9), (1e-42, 0.7)])
def test_limits_are_rounded_inwards(dtype: str, low: float, high: float) -> None:
    wave = np.sin(np.linspace(0, 60, 5000))
    field = (low + (high - low) * (0.5 + 0.6 * wave).clip(0, 1)).astype(dtype_of(dtype))
    field = field[(field.astype(float) >= low) & (field.astype(float) <= high)]
    decoded = decode(encode(field, Smooth(max_error=0.02, minimum=low, maximum=high))).astype(float)
    assert low <= decoded.min() <= decoded.max() <= high
    assert abs(decoded - field.astype(float)).max() <= 0.02


def test_the_size_of_a_smooth_field_follows_the_bound() -> None:
    """A predictor that is best in the middle, or nearly within the bound, may cost fourfold."""
    field = np.sin(np.linspace(0, 6, 400))[:, None] * np.cos(np.linspace(0, 5, 400))
    bounds = [1e-4 * share for share in (1, 0.8, 0.75, 0.625, 0.55, 0.5)]
    sizes = [len(encode(field, Smooth(max_error=bound))) for bound in bounds]
    assert max(sizes) < 1.3 * sizes[0]


def test_limits_without_a_number_between() -> None:
    field = np.linspace(0, 1, 3000, dtype=np.float16)
    between = Smooth(max_error=0.1, minimum=0.50001, maximum=0.50002)
    assert decode(encode(field, between)).tobytes() == field.tobytes()


@pytest.mark.parametrize("conserve", [None, "sum"])
@pytest.mark.parametrize("hole", [0, 30])
def test_a_fill_value_that_others_have_too(hole: int, conserve: Literal["sum"] | None) -> None:
    """zarr's 0 in a field of both signs is exact, and predicts neighbours where it fits them."""
    x = np.linspace(0, 6, 200)
    field = np.sin(x)[:, None] * np.cos(x)
    field[50 : 50 + hole, 60:90] = 0
    sizes = []
    for fill in ((), (0.0,)):
        frame = encode(field, Smooth(max_error=1e-4, fill=fill, conserve=conserve))
        decoded = decode(frame)
        assert abs(decoded - field).max() <= 1e-4
        sizes.append(len(frame))
    assert not decoded[field == 0].any()
    assert conserve or sizes[1] < (1.1 if not hole else 1.0) * sizes[0]


ASKED = [
    *(Smooth(max_error=1e-2, **more) for more in ({}, {"fill": 0.0}, {"minimum": 0.1, "maximum": 2 / 3})),
    *(Smooth(relative_error=1e-2), Smooth(max_error=1e-2, conserve="sum"), UniformDeadzone(max_error=1e-2)),
]


@given(st.integers(0, 2**32), st.sampled_from(["f2", "f4", "f8"]), st.sampled_from(ASKED))
@examples(0.4)
def test_parts_that_are_written_again_and_again(seed: int, dtype: str, asked: Quantizer) -> None:
    """Nothing that was written moves, however often the array around it is coded again."""
    rng = np.random.default_rng(seed)
    chunk = np.zeros((6, 9, 30), dtype)
    original, coder, widest = chunk.copy(), asked.for_rewriting, 0.0
    for hour in range(12):
        x = rng.uniform(0.5, 2) * np.sin(np.linspace(0, 3, 30) + rng.random((9, 1)) * 0.1) + hour * (hour % 2)
        chunk[hour % 6] = original[hour % 6] = x
        if hour % 5 == 0:
            chunk[hour % 6, 3, 4] = original[hour % 6, 3, 4] = np.nan
        before = chunk.copy()
        chunk = decode(encode(chunk, coder)).copy()
        if isinstance(asked, Smooth) and asked.max_error is not None:
            untouched = np.arange(6) != hour % 6
            assert hour == 0 or np.array_equal(chunk[untouched], before[untouched], equal_nan=True)
            assert decode(encode(chunk, coder)).tobytes() == chunk.tobytes()
        widest = max(widest, float(np.nanmax(original)) - float(np.nanmin(original)))
        off = np.abs(chunk.astype(float) - original.astype(float))
        assert np.nanmax(off) <= 1e-2 * (1.0 if asked.guarantee.max_error else widest)
        assert (chunk[hour + 1 :] == 0).all()  # never written
