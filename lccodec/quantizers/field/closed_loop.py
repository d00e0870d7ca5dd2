"""A block of a field to numbers of steps, and back, with predictions from decoded neighbours.

The encoder predicts from what the decoder will have, so that errors do not grow. What an encoder
chooses is a step, the part of it that each level takes, and the predictor of each pass.

Source: SPEC 7.8.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from ...element_types import Array
from ...entropy.numbers import signed, unsigned
from .lattice import LINEAR, PREDICTORS, Pass, Predictor, Shape, levels

#: Steps of a level are so many 256ths of the step of the block (LCC-SMO-04).
FULL_STEP: Final = 256

# All of these are an encoder's choice.
_MAX_STEPS: Final = 2.0**50  # from the prediction; an element that is farther away is an escape
_SAMPLE: Final = 1 << 13  # elements of a pass that its predictor is chosen by
_MIN_SAMPLED: Final = 64  # fewer are interpolated without a choice
_LEAST_COST_STEPS: Final = 0.75  # what differs by less than this many steps costs about the same,
_BITS_OF_A_STEP: Final = 1  # but for this, if it is not within the bound
# Where nearly all elements of the finest level are predicted within the bound, coarser levels take
# finer steps: they cost little, and every finer level is predicted better.
_SPARSE_SHARE: Final = 0.15
_REFINEMENT: Final = 1.25  # from a level to the next coarser one
_MAX_REFINEMENT: Final = 2.0


@dataclass(frozen=True, eq=False)
class Coded:
    """A block as it is stored.

    Parameters
    ----------
    step, origin
        As in `decode_block`.
    refinements
        The steps of each level in 256ths of `step`, 1 to 256.
    predictors
        The predictor of each pass.
    numbers
        The zigzag of the numbers of steps: of the first element, and of each level, in pass order.
    """

    step: float
    origin: float
    refinements: list[int]
    predictors: list[int] = field(default_factory=list)
    numbers: list[Array] = field(default_factory=list)


def encode_block(
    values: Array, step: float, masked: Array | None, *, refines: bool = True
) -> tuple[Coded, Array]:
    """Code a block of finite numbers.

    Parameters
    ----------
    values
        The block (float64). What is masked may have any finite value.
    step
        Twice the error that is allowed before rounding.
    masked
        Elements that are stored apart, bool: they take the predicted value.
    refines
        Whether coarse levels may have finer steps.

    Returns
    -------
    tuple
        What is stored, and the block as decoded (float64).
    """
    shape = values.shape
    sample = values.reshape(-1)[:: max(values.size // _SAMPLE, 1)]
    if masked is not None:
        seen = ~masked.reshape(-1)[:: max(values.size // _SAMPLE, 1)]
        sample = sample[seen] if seen.any() else sample
    origin = float(np.sort(sample)[sample.size // 2])
    passes = levels(shape)
    refined = refines and _is_sparse(values, passes, origin, step)
    coarseness = reversed(range(len(passes)))
    coded = Coded(step, origin, [_refinement(each) if refined else FULL_STEP for each in coarseness])
    decoded = np.empty(shape)
    first = (0,) * len(shape)
    number = float(np.rint((values[first] - origin) / step)) + 0.0
    if not abs(number) < _MAX_STEPS or (masked is not None and masked[first]):
        number = 0.0
    decoded[first] = origin + number * step
    coded.numbers.append(unsigned(np.array([number]).astype(np.int64)))
    predictor = Predictor(decoded, origin)
    for level, refinement in zip(passes, coded.refinements, strict=True):
        coded.numbers.append(
            _encode_level(level, values, decoded, masked, predictor, level_step(step, refinement), coded)
        )
    return coded, decoded


def level_step(step: float, refinement: int) -> float:
    """Return the step of a level (LCC-SMO-04)."""
    return step * (refinement / FULL_STEP)


def _encode_level(
    level: Sequence[Pass],
    values: Array,
    decoded: Array,
    masked: Array | None,
    predictor: Predictor,
    step: float,
    coded: Coded,
) -> Array:
    numbers = np.empty(sum(each.size for each in level), np.int8)
    inverse, start = 1 / step, 0
    for each in level:
        original, target = values[each.targets], decoded[each.targets]
        hidden = None if masked is None else masked[each.targets]
        kind = _choose(each, original, predictor, inverse)
        coded.predictors.append(kind)
        for index, predicted in predictor.pieces(each, kind):
            counts = predictor.room("counts", predicted.shape)
            np.subtract(original[index], predicted, out=counts)
            counts *= inverse
            np.rint(counts, out=counts)
            counts += 0.0  # a decoder has no -0.0
            if hidden is not None:
                counts[hidden[index]] = 0
            largest = max(float(counts.max()), -float(counts.min()))
            if not largest < _MAX_STEPS:  # infinite or NaN too
                counts[~(np.abs(counts) < _MAX_STEPS)] = 0
                largest = max(float(counts.max()), -float(counts.min()))
            if largest > 127 and numbers.dtype == np.int8:
                numbers = numbers.astype(np.int64)
            own = numbers[start : start + each.size].reshape(each.shape)[index]
            np.copyto(own, counts, casting="unsafe")
            counts *= step
            counts += predicted
            target[index] = counts
        start += each.size
    return unsigned(numbers)


def _choose(each: Pass, original: Array, predictor: Predictor, inverse: float) -> int:
    """Return the predictor whose residuals take the fewest bits in a sample of a pass."""
    if each.size < _MIN_SAMPLED:
        return LINEAR
    costs = []
    for kind in reversed(PREDICTORS):
        pieces = predictor.sample(each, kind, _SAMPLE)
        costs.append((sum(_cost(original[index], found, inverse) for index, found in pieces), -kind))
    return -min(costs)[1]


def _cost(original: Array, predicted: Array, inverse: float) -> float:
    """Return about the bits of residuals, rounded as machines differ in a logarithm's last bit."""
    np.subtract(original, predicted, out=predicted)
    predicted *= inverse
    np.abs(predicted, out=predicted)
    steps = _BITS_OF_A_STEP * np.count_nonzero(predicted > 0.5)
    np.maximum(predicted, _LEAST_COST_STEPS, out=predicted)
    return float(np.rint(np.log2(predicted, out=predicted).sum())) + steps


def _refinement(level: int) -> int:
    """Return the steps of a level, which is so many levels above the finest, in 256ths."""
    return round(FULL_STEP / min(_REFINEMENT**level, _MAX_REFINEMENT))


def _is_sparse(values: Array, passes: Sequence[Sequence[Pass]], origin: float, step: float) -> bool:
    """Return whether few elements of the finest level differ from their prediction by the bound."""
    if not passes or passes[-1][-1].size < _MIN_SAMPLED:
        return False
    last = passes[-1][-1]
    predictor = Predictor(values, origin)
    shares = []
    for kind in reversed(PREDICTORS):
        far = [
            np.abs(values[last.targets][index] - predicted) > step / 2
            for index, predicted in predictor.sample(last, kind, _SAMPLE)
        ]
        shares.append(sum(map(np.count_nonzero, far)) / sum(each.size for each in far))
    return bool(min(shares) < _SPARSE_SHARE)


def decode_block(shape: Shape, coded: Coded, out: Array) -> None:
    """Write a block (float64) into `out` (LCC-SMO-06).

    Parameters
    ----------
    coded
        `step` is the unit of the numbers, and `origin` what the constant predictor predicts.
    """
    first = (0,) * len(shape)
    with np.errstate(all="ignore"):
        out[first] = coded.origin + int(signed(coded.numbers[0])[0]) * coded.step
        predictor, kinds = Predictor(out, coded.origin), iter(coded.predictors)
        for level, refinement, numbers in zip(
            levels(shape), coded.refinements, coded.numbers[1:], strict=True
        ):
            step, start = level_step(coded.step, refinement), 0
            for each in level:
                own = numbers[start : start + each.size].reshape(each.shape)
                target = out[each.targets]
                for index, predicted in predictor.pieces(each, next(kinds)):
                    found = predictor.room("found", predicted.shape)
                    np.copyto(found, signed(own[index]))
                    found *= step
                    np.add(predicted, found, out=target[index])
                start += each.size
