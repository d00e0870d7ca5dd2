"""Rows of a field between rows that are known: their prediction, and the steps from it.

Arrays are of float64. Each operation is rounded once, in the order of SPEC 7.8 (LCC-SMO-05,
LCC-SMO-06), so that encoder and decoder agree to the bit.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ..element_types import Array
from . import kernel

# The predictors (LCC-SMO-05). `CONSTANT` is for noise, which no neighbour predicts.
CONSTANT: Final = 0
LINEAR: Final = 1
FOUR_POINTS: Final = 2
SIX_POINTS: Final = 3
PREDICTORS: Final = (CONSTANT, LINEAR, FOUR_POINTS, SIX_POINTS)

#: Steps from a prediction are fewer; an element that is farther away is an escape.
MOST_STEPS: Final = 2.0**50

# Known elements around a place in the middle between two, and their weights, nearest pair first.
_INNER: Final = {
    LINEAR: (0.5,),
    FOUR_POINTS: (0.5625, -0.0625),
    SIX_POINTS: (0.5859375, -0.09765625, 0.01171875),
}
# Weights of the known elements from an end on: beside the first or last one, and behind the last.
_BESIDE: Final = (0.3125, 0.9375, -0.3125, 0.0625)
_BEHIND: Final = (1.875, -1.25, 0.375)
_BEHIND_LINEAR: Final = (1.5, -0.5)


def predict(
    known: Array, first: int, knots: int, start: int, stop: int, predictor: int, origin: float
) -> Array:
    """Return the rows from `start` to `stop`: row j is between the known rows j and j + 1.

    Parameters
    ----------
    known
        Known rows, along the second of three axes, contiguous. All are here that are needed.
    first, knots
        Which row is the first of them, and how many rows are known in all.
    predictor, origin
        One of `PREDICTORS`, and what `CONSTANT` predicts.

    Returns
    -------
    ndarray
        Of three axes, as `known`.
    """
    if knots < 4:
        predictor = min(predictor, LINEAR)
    elif knots < 6:
        predictor = min(predictor, FOUR_POINTS)
    blocks, _, apart = known.shape
    out = np.empty((blocks, stop - start, apart))
    if predictor == CONSTANT:
        out[...] = origin
    else:
        sizes = blocks, known.shape[1], apart, first, knots, start, stop
        _predict(known.reshape(-1), *sizes, predictor, out.reshape(-1))
    return out


def _predict_numpy(
    known: Array,
    blocks: int,
    length: int,
    apart: int,
    first: int,
    knots: int,
    start: int,
    stop: int,
    predictor: int,
    out: Array,
) -> None:
    rows = known.reshape(blocks, length, apart)
    result = target = out.reshape(blocks, stop - start, apart)
    if blocks > 1 and target.shape != rows.shape:
        target = np.empty(rows.shape)
    # All rows that have all neighbours are one vector: short loops take longer. Between blocks
    # there are numbers without a meaning, until other rows are predicted.
    weights = _INNER[predictor]
    reach = len(weights) - 1
    low, high = max(start, reach), min(stop, knots - 1 - reach)
    if low < high:
        count, begin = (known.size // apart - length + high - low) * apart, (low - first) * apart
        total = target.reshape(-1)[(low - start) * apart :][:count]
        for distance, weight in enumerate(weights):
            left, right = begin - distance * apart, begin + (distance + 1) * apart
            pair = np.add(
                known[left : left + count], known[right : right + count], out=None if distance else total
            )
            pair *= weight
            if distance:
                total += pair
    ends = {0, 1, knots - 3, knots - 2, knots - 1}
    for row in (each for each in ends if start <= each < stop):
        at, here = row - first, target[:, row - start]
        if row == knots - 1:
            behind = _BEHIND if predictor != LINEAR else _BEHIND_LINEAR if knots > 1 else (1.0,)
            pairs = [(weight, rows[:, at - k]) for k, weight in enumerate(behind)]
        elif predictor != LINEAR and row in (0, knots - 2):
            side, way = (at, 1) if row == 0 else (at + 1, -1)
            pairs = [(weight, rows[:, side + way * k]) for k, weight in enumerate(_BESIDE)]
        elif predictor == SIX_POINTS:
            pairs = [
                (weight, rows[:, at - k] + rows[:, at + 1 + k])
                for k, weight in enumerate(_INNER[FOUR_POINTS])
            ]
        else:
            continue
        np.multiply(pairs[0][1], pairs[0][0], out=here)
        for weight, neighbours in pairs[1:]:
            here += neighbours * weight
    if target is not result:
        result[...] = target[:, : stop - start]


def _predict_loop(  # the compiler is told each formula
    known: Array,
    blocks: int,
    length: int,
    apart: int,
    first: int,
    knots: int,
    start: int,
    stop: int,
    predictor: int,
    out: Array,
) -> None:
    one = np.uint64(apart)  # a signed place would be looked at
    two, target = one + one, np.uint64(0)
    for block in range(blocks):
        row = start
        while row < stop:
            # Elements that are predicted by one formula at a time: of a row, or of a line.
            form, rows = predictor, 1
            if row == knots - 1:
                form = -1
            elif predictor > 1 and row in (0, knots - 2):
                form = -2
            elif predictor == 3 and row in (1, knots - 3):
                form = 2
            elif apart == 1:
                rows = min(stop, knots - predictor) - row
            at, count = np.uint64((block * length + row - first) * apart), np.uint64(rows * apart)
            if form == 1:
                for i in range(at, at + count):
                    out[target + i - at] = (known[i] + known[i + one]) * 0.5
            elif form == 2:
                for i in range(at, at + count):
                    near = (known[i] + known[i + one]) * 0.5625
                    out[target + i - at] = near + (known[i - one] + known[i + two]) * -0.0625
            elif form == 3:
                for i in range(at, at + count):
                    near = (known[i] + known[i + one]) * 0.5859375
                    near += (known[i - one] + known[i + two]) * -0.09765625
                    out[target + i - at] = near + (known[i - two] + known[i + two + one]) * 0.01171875
            elif form == -2:
                side, way = at, one
                if row:
                    side, way = at + one, np.uint64(0) - one
                for i in range(side, side + count):
                    near = known[i] * 0.3125 + known[i + way] * 0.9375
                    near += known[i + way + way] * -0.3125
                    out[target + i - side] = near + known[i + way + way + way] * 0.0625
            elif predictor > 1:
                for i in range(at, at + count):
                    near = known[i] * 1.875 + known[i - one] * -1.25
                    out[target + i - at] = near + known[i - two] * 0.375
            elif knots > 1:
                for i in range(at, at + count):
                    out[target + i - at] = known[i] * 1.5 + known[i - one] * -0.5
            else:
                for i in range(at, at + count):
                    out[target + i - at] = known[i]
            target += count
            row += rows


_predict = kernel(_predict_numpy, _predict_loop, "in f8, i8, i8, i8, i8, i8, i8, i8, i8, out f8")


def quantize(exact: Array, predicted: Array, step: float, numbers: Array) -> bool:
    """Write the zigzags of the steps from the prediction; return whether there is room for all.

    Parameters
    ----------
    exact
        Numbers, or NaN for what takes the predicted value.
    predicted
        The prediction. It becomes what a decoder has.
    step
        What a number counts.
    numbers
        Zigzags: uint8, uint32 or uint64. Only the last have room for all.
    """
    most = (MOST_STEPS if numbers.itemsize == 8 else 2.0 ** (8 * numbers.itemsize - 1)) - 1
    return bool(_quantize(exact, predicted, 1 / step, step, most, numbers))


def _quantize_numpy(
    exact: Array, predicted: Array, inverse: float, step: float, most: float, numbers: Array
) -> bool:
    counts = np.subtract(exact, predicted)
    counts *= inverse
    np.rint(counts, out=counts)
    counts += 0.0  # a decoder has no -0.0
    if not max(np.maximum.reduce(counts), -np.minimum.reduce(counts)) <= most:  # infinite or NaN too
        far = ~(np.abs(counts) < MOST_STEPS)
        counts[far] = 0
        if not max(np.maximum.reduce(counts), -np.minimum.reduce(counts)) <= most:
            return False
    signed = numbers.view(f"i{numbers.itemsize}")
    np.copyto(signed, counts, casting="unsafe")
    np.bitwise_xor(signed << 1, signed >> (8 * numbers.itemsize - 1), out=signed)
    counts *= step
    predicted += counts
    return True


def _quantize_loop(
    exact: Array, predicted: Array, inverse: float, step: float, most: float, numbers: Array
) -> bool:
    full = False
    for i in range(exact.size):
        number = np.rint((exact[i] - predicted[i]) * inverse) + 0.0  # a decoder has no -0.0
        size = abs(number)
        full |= (size > most) & (size < MOST_STEPS)
        number = number if size <= most else 0.0
        code = np.int64(number)
        numbers[i] = code << 1 ^ code >> 63
        predicted[i] = number * step + predicted[i]
    return not full


_quantize = kernel(
    _quantize_numpy, _quantize_loop, *(f"in f8, out f8, f8, f8, f8, out u{n}" for n in (1, 4, 8))
)


def _dequantize(numbers: Array, step: float, predicted: Array) -> None:
    """Add steps to a prediction, given the zigzags of their numbers: unsigned integers."""
    signed: Any = numbers >> 1
    signed ^= np.negative(numbers & 1)
    steps = signed.view(f"i{numbers.itemsize}").astype(np.float64)
    steps *= step
    predicted += steps


def _dequantize_loop(numbers: Array, step: float, predicted: Array) -> None:
    for i in range(numbers.size):
        code = np.int64(numbers[i])
        predicted[i] = np.float64(code >> 1 ^ -(code & 1)) * step + predicted[i]


dequantize = kernel(_dequantize, _dequantize_loop, *(f"in u{n}, f8, out f8" for n in (1, 2, 4, 8)))


def weave(known: Array, skipped: int, predicted: Array, out: Array) -> None:
    """Write known rows and the predicted ones behind them into a flat array; both have three axes.

    Of each block `skipped` known rows are left out. There may be one more of them at the end.
    """
    blocks, length, apart = known.shape
    made = out.size // (blocks * apart)
    _weave(known.reshape(-1), length, apart, skipped, predicted.reshape(-1), made, out)


def _weave_numpy(
    known: Array, length: int, apart: int, skipped: int, predicted: Array, made: int, out: Array
) -> None:
    rows = out.reshape(-1, made, apart)
    rows[:, ::2] = known.reshape(-1, length, apart)[:, skipped : skipped + made - made // 2]
    rows[:, 1::2] = predicted.reshape(-1, made // 2, apart)


def _weave_loop(
    known: Array, length: int, apart: int, skipped: int, predicted: Array, made: int, out: Array
) -> None:
    one, rows = np.uint64(apart), made // 2
    for block in range(out.size // (made * apart)):
        target = np.uint64(block * made * apart)
        first = np.uint64((block * length + skipped) * apart)
        second = np.uint64(block * rows * apart)
        if apart == 1:
            for k in range(np.uint64(rows)):
                out[target + k + k] = known[first + k]
                out[target + k + k + one] = predicted[second + k]
        else:
            for row in range(rows):
                at = np.uint64(row) * one
                for k in range(one):
                    out[target + at + at + k] = known[first + at + k]
                for k in range(one):
                    out[target + at + at + one + k] = predicted[second + at + k]
        if made % 2:
            at = np.uint64(rows) * one
            for k in range(one):
                out[target + at + at + k] = known[first + at + k]


_weave = kernel(_weave_numpy, _weave_loop, "in f8, i8, i8, i8, in f8, i8, out f8")
