"""A block decodes to what the encoder had, within half a step of every element."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec.entropy.histogram import entropy_bits
from lccodec.quantizers.field.closed_loop import FULL_STEP, decode_block, encode_block
from lccodec.quantizers.field.lattice import CONSTANT, LINEAR, SIX_POINTS

SHAPES = st.lists(st.integers(1, 12), min_size=1, max_size=4).map(tuple) | st.tuples(st.integers(1, 3000))


def wave(*shape: int) -> np.ndarray:
    axes = np.meshgrid(*(np.linspace(0, 3, n) for n in shape), indexing="ij", sparse=True)
    return np.asarray(sum(np.sin((k + 1) * axis) for k, axis in enumerate(axes)))


def bits(numbers: list[np.ndarray]) -> float:
    found = [np.unique(part, return_counts=True)[1] for part in numbers]
    return float(sum(entropy_bits(counts) for counts in found))


@given(SHAPES, st.integers(-30, 30), st.sampled_from([0.0, 0.1, 1.0]), st.integers(0, 2**32))
def test_what_is_decoded_is_what_the_encoder_had(
    shape: tuple[int, ...], power: int, share: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    values = wave(*shape) + 0.1 * rng.standard_normal(shape)
    masked = rng.random(shape) < share if share else None
    step = 2.0**power
    coded, decoded = encode_block(values, step, masked)
    out = np.empty(shape)
    decode_block(shape, coded, out)
    np.testing.assert_array_equal(out.view(np.uint64), decoded.view(np.uint64))
    error = np.abs(decoded - values)[... if masked is None else ~masked]
    assert error.max(initial=0) <= step / 2 * (1 + 1e-6)


def test_what_is_far_away_is_left_out() -> None:
    values = np.zeros((40, 40))
    values[7, 9] = 1e300
    coded, decoded = encode_block(values, 1e-3, None)
    assert abs(decoded[7, 9]) < 1
    assert sum(np.count_nonzero(part) for part in coded.numbers) == 0


def test_masked_elements_do_not_spoil_their_neighbours() -> None:
    values = wave(100, 100)
    masked = np.zeros(values.shape, bool)
    masked[30:60, 20:50] = True
    spoiled = np.where(masked, 1e6, values)
    with_mask, without = (bits(encode_block(spoiled, 1e-4, mask)[0].numbers) for mask in (masked, None))
    clean = bits(encode_block(values, 1e-4, None)[0].numbers)
    assert with_mask < 2.5 * clean
    assert without > 1.2 * with_mask


def test_predictors_are_chosen_by_what_they_leave() -> None:
    smooth, noise = wave(80, 80), np.random.default_rng(0).standard_normal((80, 80))
    assert encode_block(smooth, 1e-7, None)[0].predictors[-1] == SIX_POINTS
    assert encode_block(noise, 1e-3, None)[0].predictors[-2:] == [CONSTANT, CONSTANT]
    rough = np.cumsum(np.random.default_rng(0).standard_normal(5000))
    assert encode_block(rough, 1e-3, None)[0].predictors[-1] == LINEAR


@pytest.mark.parametrize(("step", "finer"), [(1e-1, True), (1e-9, False)])
def test_coarse_levels_have_finer_steps_where_the_finest_is_nearly_empty(step: float, finer: bool) -> None:
    refinements = encode_block(wave(100, 100), step, None)[0].refinements
    assert refinements[-1] == FULL_STEP
    assert (refinements[0] < FULL_STEP) == finer
    assert refinements == sorted(refinements)
