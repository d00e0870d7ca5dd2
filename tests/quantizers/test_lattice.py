"""Levels, passes and predictions of a field, and blocks that come back as they were decoded."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec.entropy.huffman import entropy_bits
from lccodec.quantizers import lattice
from lccodec.quantizers.lattice import (
    CONSTANT,
    FOUR_POINTS,
    FULL_STEP,
    LINEAR,
    PREDICTORS,
    SIX_POINTS,
    Predictor,
    decode_block,
    encode_block,
    levels,
)

from ..support.strategies import wave

SHAPES = st.lists(st.integers(1, 9), min_size=1, max_size=5).map(tuple) | st.tuples(st.integers(1, 300))
ORIGIN = 0.375


def passes(shape: tuple[int, ...]) -> list[Any]:
    return [each for level in levels(shape) for each in level]


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


@given(SHAPES)
def test_every_element_is_predicted_once(shape: tuple[int, ...]) -> None:
    seen = np.zeros(shape, int)
    seen[(0,) * len(shape)] = 1
    for each in passes(shape):
        assert (seen[each.known] == 1).all()
        assert (seen[each.targets] == 0).all()
        assert seen[each.targets].shape == each.shape
        seen[each.targets] += 1
    assert (seen == 1).all()


@given(SHAPES, st.sampled_from(PREDICTORS), st.sampled_from([1, 7, 64, lattice.PIECE]), st.integers(0, 2**32))
def test_predictions_are_those_of_the_text(
    shape: tuple[int, ...], predictor: int, piece: int, seed: int
) -> None:
    """To the bit, however a pass is cut into pieces."""
    values = np.random.default_rng(seed).standard_normal(shape)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lattice, "PIECE", piece)
        for each in passes(shape):
            found = np.full(each.shape, np.nan)
            for index, predicted in Predictor(values, ORIGIN).pieces(each, predictor):
                assert np.isnan(found[index]).all()
                found[index] = predicted
            known, rows = (np.moveaxis(array, each.axis, -1) for array in (values[each.known], found))
            knots = known.reshape(-1, each.knots).tolist()
            expected = [[by_hand(line, j, predictor) for j in range(rows.shape[-1])] for line in knots]
            np.testing.assert_array_equal(rows.reshape(-1, rows.shape[-1]), expected)


@given(SHAPES, st.sampled_from(PREDICTORS), st.integers(1, 5000))
def test_a_sample_is_a_part_of_the_pass(shape: tuple[int, ...], predictor: int, elements: int) -> None:
    values = np.random.default_rng(0).standard_normal(shape)
    for each in passes(shape):
        whole = np.empty(each.shape)
        for place, part in Predictor(values, ORIGIN).pieces(each, predictor):
            whole[place] = part
        for index, predicted in Predictor(values, ORIGIN).sample(each, predictor, elements):
            np.testing.assert_array_equal(whole[index], predicted)


@pytest.mark.parametrize(("predictor", "degree"), [(LINEAR, 1), (FOUR_POINTS, 2), (SIX_POINTS, 2)])
def test_polynomials_are_predicted(predictor: int, degree: int) -> None:
    """Quadratic ones at the end behind the last element too; cubic ones elsewhere."""
    x = np.arange(64.0) / 8
    for power, most in ((degree, 64), (degree + 1, 62 if predictor != LINEAR else 0)):
        values = x**power
        (last,) = levels((64,))[-1]
        (found,) = [part.copy() for _, part in Predictor(values, 0.0).pieces(last, predictor)]
        error = np.abs(found - values[last.targets])[: most // 2]
        assert error.max(initial=0) < 1e-9 * values.max()


def test_pieces_are_small() -> None:
    """A shape of many short axes, or of one long one, does not make a piece of all elements."""
    for shape in ((2,) * 20, (2, 1 << 19), (1 << 20,), (1 << 19, 2), (3, 5, 7, 9999)):
        for each in passes(shape):
            lengths = lattice._piece_lengths(each, lattice.PIECE)
            assert math.prod(lengths) <= 2 * lattice.PIECE


BLOCK_SHAPES = st.lists(st.integers(1, 12), min_size=1, max_size=4).map(tuple)
BLOCK_SHAPES |= st.tuples(st.integers(1, 3000))


def bits(numbers: list[np.ndarray]) -> float:
    found = [np.unique(part, return_counts=True)[1] for part in numbers]
    return float(sum(entropy_bits(counts) for counts in found))


@given(BLOCK_SHAPES, st.integers(-30, 30), st.sampled_from([0.0, 0.1, 1.0]), st.integers(0, 2**32))
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


@given(SHAPES, st.integers(0, 2**32), st.sampled_from([1e-5, 0.01, 0.5]), st.booleans(), st.booleans())
def test_the_loop_makes_the_same(
    shape: tuple[int, ...], seed: int, step: float, masks: bool, predicts: bool
) -> None:
    rng = np.random.default_rng(seed)
    values = np.cumsum(rng.standard_normal(shape), axis=-1) * 10.0 ** rng.integers(-2, 2)
    values[rng.random(shape) < 0.01] = 1e200  # farther than steps can say
    masked = rng.random(shape) < 0.1 if masks else None
    chosen = rng.integers(0, 4)
    found = []
    for compiled in (False, True):
        with pytest.MonkeyPatch.context() as patch, np.errstate(all="ignore"):
            patch.setattr(lattice, "is_compiled", lambda _, it=compiled: it)
            patch.setattr(lattice, "_run_pass", lattice._run_pass_loop)
            if predicts:  # otherwise small passes have one predictor
                patch.setattr(lattice, "_choose", lambda *_: chosen)
            coded, decoded = encode_block(values, step, masked)
            out = np.empty(shape)
            decode_block(shape, coded, out)
        found.append((decoded, out, *coded.numbers))
        np.testing.assert_array_equal(out, decoded)
    for one, two in zip(*found, strict=True):
        np.testing.assert_array_equal(one, two)
