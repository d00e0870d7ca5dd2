"""Levels, passes and predictors of a field, and blocks that come back as they were decoded."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec.entropy.lanes import entropy_bits
from lccodec.loops.prediction import CONSTANT, LINEAR, PREDICTORS, SIX_POINTS
from lccodec.quantizers import lattice
from lccodec.quantizers.lattice import FULL_STEP, Coded, decode_block, encode_block, levels

from ..support.strategies import wave
from ..support.tuning import tuned

SHAPES = st.lists(st.integers(1, 9), min_size=1, max_size=5).map(tuple) | st.tuples(st.integers(1, 300))


def passes(shape: tuple[int, ...]) -> list[Any]:
    return [each for level in levels(shape) for each in level]


def encoded(values: np.ndarray, step: float, masked: np.ndarray | None = None) -> tuple[Coded, np.ndarray]:
    """What is stored of a block, and what it is decoded to."""
    pieces: list[np.ndarray] = []
    coded = encode_block(values, step, masked, pieces.append)
    return coded, np.concatenate(pieces).reshape(values.shape)


def decoded(shape: tuple[int, ...], coded: Coded) -> np.ndarray:
    return np.concatenate(list(decode_block(shape, coded))).reshape(shape)


@given(SHAPES)
def test_every_element_is_predicted_once(shape: tuple[int, ...]) -> None:
    known = (1,) * len(shape)
    for level in levels(shape):
        for each in level:
            assert each.known_shape == known
            seen = np.zeros(
                [a + b * (k == each.axis) for k, (a, b) in enumerate(zip(known, each.shape, strict=True))]
            )
            known = seen.shape
        lattice_of_level = np.zeros(known)
        for each in level:
            lattice_of_level[each.targets] += 1
            assert lattice_of_level[each.targets].shape == each.shape
            assert lattice_of_level[each.known].shape == each.known_shape
        lattice_of_level[(slice(None, None, 2),) * len(shape)] += 1
        assert (lattice_of_level == 1).all()
    assert known == shape


@given(SHAPES, st.integers(1, 5000))
def test_a_sample_is_a_part_of_the_pass(shape: tuple[int, ...], elements: int) -> None:
    values = np.random.default_rng(0).standard_normal(shape)
    for each in levels(shape)[-1] if max(shape) > 1 else []:
        exact = values[each.targets]
        whole = [np.abs(exact.reshape(-1) - by_pass(each, values, kind)) for kind in PREDICTORS]
        with tuned(prediction_sample=elements):
            found = lattice._residuals(each, exact, values[each.known], 0.375)
        assert found.shape[0] == len(PREDICTORS)
        for one, all_of_it in zip(found, whole, strict=True):
            assert np.isin(one, all_of_it).all()


def by_pass(each: Any, values: np.ndarray, kind: int) -> np.ndarray:
    """The predictions of a whole pass."""
    found: list[np.ndarray] = []

    def code(_blocks: slice, _rows: slice, predicted: np.ndarray) -> bool:
        found.append(predicted.reshape(-1).copy())
        return True

    known = np.ascontiguousarray(values[each.known])
    list(lattice._pieces(each, known, slice(0, each.shape[each.axis]), (kind, 0.375), code))
    return np.concatenate(found)


def test_samples_are_small() -> None:
    """A shape of many short axes, or of one long one, does not make a sample of all elements."""
    for shape in ((2,) * 20, (2, 1 << 19), (1 << 20,), (1 << 19, 2), (3, 5, 7, 9999)):
        for each in passes(shape):
            assert math.prod(lattice._piece_lengths(each, 1 << 13)) <= 1 << 14


BLOCK_SHAPES = st.lists(st.integers(1, 12), min_size=1, max_size=4).map(tuple)
BLOCK_SHAPES |= st.tuples(st.integers(1, 3000))


def bits(numbers: list[np.ndarray]) -> float:
    found = [np.unique(part, return_counts=True)[1] for part in numbers]
    return float(sum(entropy_bits(counts) for counts in found))


@given(
    BLOCK_SHAPES,
    st.integers(-30, 30),
    st.sampled_from([0.0, 0.1, 1.0]),
    st.sampled_from([1, 7, 64, lattice.PIECE]),
    st.integers(0, 2**32),
)
def test_what_is_decoded_is_what_the_encoder_had(
    shape: tuple[int, ...], power: int, share: float, piece: int, seed: int
) -> None:
    """However a pass is cut into pieces."""
    rng = np.random.default_rng(seed)
    values = wave(*shape) + 0.1 * rng.standard_normal(shape)
    masked = rng.random(shape) < share if share else None
    step = 2.0**power
    coded, own = encoded(values, step, masked)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lattice, "PIECE", piece)
        again, other = encoded(values, step, masked)
        out = decoded(shape, coded)
    np.testing.assert_array_equal(out.view(np.uint64), own.view(np.uint64))
    np.testing.assert_array_equal(other.view(np.uint64), own.view(np.uint64))
    for one, two in zip(again.numbers, coded.numbers, strict=True):
        np.testing.assert_array_equal(one, two)
    error = np.abs(own - values)[... if masked is None else ~masked]
    assert error.max(initial=0) <= step / 2 * (1 + 1e-6)


def test_what_is_far_away_is_left_out() -> None:
    values = np.zeros((40, 40))
    values[7, 9] = 1e300
    coded, own = encoded(values, 1e-3)
    assert abs(own[7, 9]) < 1
    assert sum(np.count_nonzero(part) for part in coded.numbers) == 0


def test_numbers_are_as_wide_as_they_need() -> None:
    values = wave(50, 60)
    widths = [encoded(values, step)[0].numbers[-1].itemsize for step in (1e-2, 1e-6, 1e-13)]
    assert widths == [1, 4, 8]


def test_masked_elements_do_not_spoil_their_neighbours() -> None:
    values = wave(100, 100)
    masked = np.zeros(values.shape, bool)
    masked[30:60, 20:50] = True
    spoiled = np.where(masked, 1e6, values)
    with_mask, without = (bits(encoded(spoiled, 1e-4, mask)[0].numbers) for mask in (masked, None))
    clean = bits(encoded(values, 1e-4)[0].numbers)
    assert with_mask < 2.5 * clean
    assert without > 1.2 * with_mask


def test_predictors_are_chosen_by_what_they_leave() -> None:
    smooth, noise = wave(80, 80), np.random.default_rng(0).standard_normal((80, 80))
    assert encoded(smooth, 1e-7)[0].predictors[-1] == SIX_POINTS
    assert encoded(noise, 1e-3)[0].predictors[-2:] == [CONSTANT, CONSTANT]
    rough = np.cumsum(np.random.default_rng(0).standard_normal(5000))
    assert encoded(rough, 1e-3)[0].predictors[-1] == LINEAR


@pytest.mark.parametrize(("step", "finer"), [(1e-1, True), (1e-9, False)])
def test_coarse_levels_have_finer_steps_where_the_finest_is_nearly_empty(step: float, finer: bool) -> None:
    refinements = encoded(wave(100, 100), step)[0].refinements
    assert refinements[-1] == FULL_STEP
    assert (refinements[0] < FULL_STEP) == finer
    assert refinements == sorted(refinements)


def test_single_numbers_are_coded_as_double_ones() -> None:
    values = wave(30, 40).astype(np.float32)
    one, two = (encoded(each, 1e-6) for each in (values, values.astype(np.float64)))
    np.testing.assert_array_equal(one[1], two[1])
    for a, b in zip(one[0].numbers, two[0].numbers, strict=True):
        np.testing.assert_array_equal(a, b)
