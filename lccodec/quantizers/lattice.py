"""How the elements of a field are predicted: level by level, from neighbours that are known.

The first element is known. At each level the known elements are a lattice of twice the stride. One
pass along each axis predicts every other element between them. Encoder and decoder run the same
expressions, in binary64, so that they agree to the bit.

A block becomes numbers of steps. The encoder predicts from what the decoder will have, so that
errors do not grow. What it chooses is a step, the part of it that each level takes, and the
predictor of each pass.

Sources: SPEC 6.4 and 7.8; Zhao et al., "Optimizing error-bounded lossy compression for scientific
data by dynamic spline interpolation", ICDE 2021 (SZ3).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Final

import numpy as np

from ..element_types import Array
from ..entropy.numbers import signed, unsigned
from ..loops import is_compiled, kernel

Shape = tuple[int, ...]
Index = tuple[slice, ...]

#: Elements predicted at a time, so that they and what is made of them stay in the cache.
PIECE: Final = 1 << 15

#: Where pieces of a sample begin, in 256ths of the way.
_SAMPLED_PLACES: Final = (0, 77, 179, 256)

# The predictors (LCC-SMO-05). `CONSTANT` is for noise, which no neighbour predicts.
CONSTANT: Final = 0
LINEAR: Final = 1
FOUR_POINTS: Final = 2
SIX_POINTS: Final = 3
PREDICTORS: Final = (CONSTANT, LINEAR, FOUR_POINTS, SIX_POINTS)

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


@dataclass(frozen=True)
class Pass:
    """One pass along an axis of a block.

    Parameters
    ----------
    axis
        The axis along which elements are predicted.
    targets, known
        Index of the elements that are predicted, and of those that predict them.
    shape
        Shape of the targets.
    knots
        Number of known elements along the axis.
    """

    axis: int
    targets: Index
    known: Index
    shape: Shape
    knots: int

    @property
    def size(self) -> int:
        """Number of elements that are predicted."""
        return math.prod(self.shape)


def levels(shape: Shape) -> list[list[Pass]]:
    """Return the passes of each level of a block, coarsest level first (LCC-SMO-03)."""
    top = (max(shape, default=1) - 1).bit_length()
    return [_level(shape, 1 << power) for power in reversed(range(top))]


def _level(shape: Shape, stride: int) -> list[Pass]:
    found = []
    for axis, extent in enumerate(shape):
        if extent <= stride:
            continue
        index = [slice(0, None, stride if k < axis else 2 * stride) for k in range(len(shape))]
        counts = [len(range(0, n, each.step)) for n, each in zip(shape, index, strict=True)]
        known = tuple(index)
        knots, counts[axis] = counts[axis], len(range(stride, extent, 2 * stride))
        index[axis] = slice(stride, None, 2 * stride)
        found.append(Pass(axis, tuple(index), known, tuple(counts), knots))
    return found


class Predictor:
    """Predicts the targets of passes from the known elements of `values` (float64).

    Parameters
    ----------
    values
        The block: its known elements are right, and others are not read.
    origin
        What the predictor `CONSTANT` predicts.
    """

    def __init__(self, values: Array, origin: float) -> None:
        self._values, self._origin = values, origin
        self._memory: dict[str, Array] = {}

    def pieces(self, step: Pass, predictor: int) -> Iterator[tuple[Index, Array]]:
        """Yield the predictions of a pass, piece by piece, and the index of each in its targets.

        The predictions are float64. They may be changed, and are replaced by the next.
        """
        lengths = _piece_lengths(step, PIECE)
        ranges = [range(0, extent, length) for extent, length in zip(step.shape, lengths, strict=True)]
        for starts in product(*ranges):
            yield self.piece(step, predictor, starts, lengths)

    def sample(self, step: Pass, predictor: int, elements: int) -> Iterator[tuple[Index, Array]]:
        """Yield the predictions of pieces of a pass, of about so many elements together.

        They lie along the diagonal, so that no side of a field stands for all.
        """
        places = _SAMPLED_PLACES if step.size > elements else _SAMPLED_PLACES[:1]
        lengths = _piece_lengths(step, elements // len(places))
        for place in places:
            starts = [
                (extent - length) * place >> 8 for extent, length in zip(step.shape, lengths, strict=True)
            ]
            yield self.piece(step, predictor, starts, lengths)

    def piece(
        self, step: Pass, predictor: int, starts: Sequence[int], lengths: Sequence[int]
    ) -> tuple[Index, Array]:
        """Return the index and the predictions of a piece of the targets."""
        ends = [min(at + n, extent) for at, n, extent in zip(starts, lengths, step.shape, strict=True)]
        shape = tuple(end - start for start, end in zip(starts, ends, strict=True))
        index = tuple(map(slice, starts, ends))
        if predictor == CONSTANT:
            predicted = self.room("predicted", shape)
            predicted[...] = self._origin
            return index, predicted
        axis, start, stop = step.axis, starts[step.axis], ends[step.axis]
        first = max(min(start - 2, step.knots - 4), 0)  # of the rows that are needed; and the last
        last = min(max(stop + 3, 4), step.knots)
        known = self._values[step.known][(*index[:axis], slice(first, last), *index[axis + 1 :])]
        near, predicted, scratch = (
            self.room(name, known.shape) for name in ("known", "predicted", "scratch")
        )
        np.copyto(near, known)
        rows = (math.prod(shape[:axis]), last - first, math.prod(shape[axis + 1 :]))
        memory = (each.reshape(rows) for each in (near, predicted, scratch))
        _Rows(*memory, first=first, knots=step.knots).predict(predictor, start, stop)
        return index, predicted[(*[slice(None)] * axis, slice(start - first, stop - first))]

    def room(self, name: str, shape: Shape) -> Array:
        """Return memory (float64) that is in use until it is asked for by this name again."""
        size = math.prod(shape)
        if name not in self._memory or self._memory[name].size < size:
            self._memory[name] = np.empty(size)
        return self._memory[name][:size].reshape(shape)


def _piece_lengths(step: Pass, elements: int) -> list[int]:
    """Return the extents of pieces of a pass that have at most about so many elements.

    A pass is cut along its own axis last: there a piece needs known elements of its neighbours.
    """
    others = [axis for axis in range(len(step.shape)) if axis != step.axis]
    lengths, size = list(step.shape), step.size
    fitting = (axis for axis in others if size // step.shape[axis] <= elements // 2)
    one = next(fitting, None)
    by_extent = sorted(others, key=lambda axis: -step.shape[axis])
    for axis in [one] if one is not None else [*by_extent, step.axis]:
        if size > elements:
            lengths[axis] = max(elements * lengths[axis] // size, 1)
            size = size // step.shape[axis] * lengths[axis]
    return lengths


class _Rows:
    """The known rows of a piece, and predicted ones: row j is between the known rows j and j + 1.

    Parameters
    ----------
    known, predicted, scratch
        Contiguous, with the rows along the second of three axes. What is in `scratch` does not
        matter.
    first
        Which row is the first of all three.
    knots
        How many rows are known.
    """

    def __init__(self, known: Array, predicted: Array, scratch: Array, *, first: int, knots: int) -> None:
        self._known, self._predicted, self._scratch = known, predicted, scratch
        self._first, self._knots = first, knots

    def predict(self, predictor: int, start: int, stop: int) -> None:
        """Predict the rows from `start` to `stop`; other rows get numbers without a meaning."""
        knots = self._knots
        if knots < 4:
            predictor = LINEAR
        elif knots < 6:
            predictor = min(predictor, FOUR_POINTS)
        self._inner(_INNER[predictor])
        if predictor == SIX_POINTS:
            for row in (1, knots - 3):
                if start <= row < stop:
                    self._between(_INNER[FOUR_POINTS], row)
        if predictor != LINEAR:
            self._outer(_BESIDE, 0, 1, start, stop, 0)
            self._outer(_BESIDE, knots - 1, -1, start, stop, knots - 2)
        # Behind the last known row there may be one more.
        behind = _BEHIND if predictor != LINEAR else _BEHIND_LINEAR if knots > 1 else (1.0,)
        self._outer(behind, knots - 1, -1, start, stop, knots - 1)

    def _inner(self, weights: tuple[float, ...]) -> None:
        """Predict all rows that have all neighbours, as one vector: short loops take longer.

        Rows without all neighbours get numbers without a meaning, and are predicted after this.
        """
        apart = self._known.shape[2]  # elements from a row to the next one
        reach = (len(weights) - 1) * apart
        count = self._known.size - 2 * reach - apart
        if count <= 0:
            return
        known, scratch = self._known.reshape(-1), self._scratch.reshape(-1)[:count]
        out = self._predicted.reshape(-1)[reach : reach + count]
        for distance, weight in enumerate(weights):
            total = scratch if distance else out
            left, right = reach - distance * apart, reach + (distance + 1) * apart
            np.add(known[left : left + count], known[right : right + count], out=total)
            total *= weight
            if distance:
                out += scratch

    def _between(self, weights: tuple[float, ...], row: int) -> None:
        """Predict one row that has as many neighbours on both sides as there are weights."""
        at = row - self._first
        out, scratch = self._predicted[:, at], self._scratch[:, 0]
        for distance, weight in enumerate(weights):
            total = scratch if distance else out
            np.add(self._known[:, at - distance], self._known[:, at + 1 + distance], out=total)
            total *= weight
            if distance:
                out += scratch

    def _outer(
        self, weights: tuple[float, ...], knot: int, sign: int, start: int, stop: int, row: int
    ) -> None:
        """Predict one row, if it is asked for, from the known rows on one side."""
        if not start <= row < stop:
            return
        out, scratch = self._predicted[:, row - self._first], self._scratch[:, 0]
        for distance, weight in enumerate(weights):
            known = self._known[:, knot - self._first + sign * distance]
            np.multiply(known, weight, out=scratch if distance else out)
            if distance:
                out += scratch


_ROWS_AT_A_TIME: Final = 1 << 12  # whose predictions stay in the cache


def _run_pass_loop(  # noqa: PLR0912, PLR0915 - the compiler is told each formula
    values: Array,
    decoded: Array,
    hidden: Array,
    outer: Array,
    inner: Array,
    line: int,
    gap: int,
    apart: int,
    knots: int,
    rows: int,
    predictor: int,
    origin: float,
    step: float,
    numbers: Array,
) -> bool:
    """Code a pass, or decode it if there are no values; return whether a number had no room.

    Parameters
    ----------
    values, decoded
        The block, flat.
    hidden
        Which elements are stored apart, uint8; empty if none are.
    outer, inner
        Offsets of the elements that lie before the axis of the pass in the order of elements, and
        of lines that lie behind it, int64.
    line, gap
        Elements of such a line, and how far they are apart; 0 if the axis is the last one.
    apart
        Elements from a row that is known to the row that is predicted behind it.
    rows
        Rows that are predicted.
    numbers
        Zigzags, unsigned.
    """
    used = predictor if knots >= 6 else min(predictor, 2)
    if knots < 4:
        used = min(predictor, 1)
    most = 127.0 if numbers.itemsize == 1 else _MAX_STEPS
    inverse, fits, count, two = 1 / step, True, 0, 2 * apart
    far = gap if line else two  # from an element that is predicted to the next
    room = np.empty(line or min(rows, _ROWS_AT_A_TIME))
    for before in outer:
        row = 0
        while row < rows:
            # Elements that are predicted by one formula at a time: of a line, or some rows.
            terms, size = used, line
            if used and row == knots - 1:
                terms = -1
            elif used > 1 and row in (0, knots - 2):
                terms = -2
            elif used == 3 and row in (1, knots - 3):
                terms = 2
            if not line:
                stop = rows if used == 0 else knots - min(used, 3)
                size = min(stop - row, room.size) if terms == used else 1
            predicted = room[:size]
            for behind in inner:
                first = before + (2 * row + 1) * apart + behind
                known = first - apart
                if terms == 0:
                    predicted[:] = origin
                elif terms > 0:
                    left, right = decoded[known::far], decoded[known + two :: far]
                    if terms == 1:
                        for k in range(size):
                            predicted[k] = (left[k] + right[k]) * 0.5
                    else:
                        left_2, right_2 = decoded[known - two :: far], decoded[known + 2 * two :: far]
                        if terms == 2:
                            for k in range(size):
                                near = (left[k] + right[k]) * 0.5625
                                predicted[k] = near + (left_2[k] + right_2[k]) * -0.0625
                        else:
                            left_3, right_3 = decoded[known - 2 * two :: far], decoded[known + 3 * two :: far]
                            for k in range(size):
                                near = (left[k] + right[k]) * 0.5859375
                                near += (left_2[k] + right_2[k]) * -0.09765625
                                predicted[k] = near + (left_3[k] + right_3[k]) * 0.01171875
                elif terms == -2:
                    side, way = (known, two) if row == 0 else (known + two, -two)
                    for k in range(size):
                        i = side + k * far
                        near = decoded[i] * 0.3125 + decoded[i + way] * 0.9375
                        predicted[k] = near + decoded[i + 2 * way] * -0.3125 + decoded[i + 3 * way] * 0.0625
                else:
                    for k in range(size):
                        i = known + k * far
                        if used > 1:
                            near = decoded[i] * 1.875 + decoded[i - two] * -1.25
                            predicted[k] = near + decoded[i - 2 * two] * 0.375
                        elif knots > 1:
                            predicted[k] = decoded[i] * 1.5 + decoded[i - two] * -0.5
                        else:
                            predicted[k] = decoded[i]
                own, out = numbers[count : count + size], decoded[first::far]
                if values.size:
                    exact = values[first::far]
                    for k in range(size):
                        number = np.rint((exact[k] - predicted[k]) * inverse) + 0.0  # without -0.0
                        if not abs(number) < _MAX_STEPS:
                            number = 0.0
                        if hidden.size and hidden[first + k * far]:
                            number = 0.0
                        if abs(number) > most:
                            number, fits = 0.0, False
                        code = np.int64(number)
                        own[k] = code << 1 ^ code >> 63
                        out[k] = number * step + predicted[k]
                else:
                    for k in range(size):
                        code = np.int64(own[k])
                        out[k] = np.float64(code >> 1 ^ -(code & 1)) * step + predicted[k]
                count += size
            row += 1 if line else size
    return not fits


_NOTHING: Final = np.empty(0), np.empty(0, np.uint8)  # no values, and nothing hidden

#: It runs only once it is compiled.
_run_pass: Final = kernel(
    _run_pass_loop,
    _run_pass_loop,
    *(f"in f8, out f8, in u1, in i8, in i8, i8, i8, i8, i8, i8, i8, f8, f8, out u{n}" for n in (1, 2, 4, 8)),
)


def _lines(step: Pass, shape: Shape) -> tuple[Array, Array, int, int, int]:
    """Return `outer`, `inner`, `line`, `gap` and `apart` of a pass in a block of a shape."""
    distances = [index.step * math.prod(shape[k + 1 :]) for k, index in enumerate(step.targets)]
    found, last = [], len(shape) - 1
    for axes in (range(step.axis), range(step.axis + 1, last)):
        offsets = np.zeros(1, np.int64)
        for axis in axes:
            offsets = np.add.outer(offsets, np.arange(step.shape[axis]) * distances[axis]).reshape(-1)
        found.append(offsets)
    line, gap = (0, 0) if step.axis == last else (step.shape[last], distances[last])
    return found[0], found[1], line, gap, distances[step.axis] // 2


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
    compiled = is_compiled(_run_pass)
    numbers = np.empty(sum(each.size for each in level), np.uint8 if compiled else np.int8)
    inverse, start = 1 / step, 0
    for each in level:
        original, target = values[each.targets], decoded[each.targets]
        hidden = None if masked is None else masked[each.targets]
        kind = _choose(each, original, predictor, inverse)
        coded.predictors.append(kind)
        if compiled:
            flags = _NOTHING[1] if masked is None else masked.reshape(-1).view(np.uint8)
            own = values.reshape(-1), decoded.reshape(-1), flags, *_lines(each, values.shape)
            rest = each.knots, each.shape[each.axis], kind, coded.origin, step
            if _run_pass(*own, *rest, numbers[start : start + each.size]):
                numbers = numbers.astype(np.uint64)
                _run_pass(*own, *rest, numbers[start : start + each.size])
            start += each.size
            continue
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
            own_numbers = numbers[start : start + each.size].reshape(each.shape)[index]
            np.copyto(own_numbers, counts, casting="unsafe")
            counts *= step
            counts += predicted
            target[index] = counts
        start += each.size
    return numbers if compiled else unsigned(numbers)


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
                if is_compiled(_run_pass):
                    own = np.require(numbers[start : start + each.size], requirements="W")
                    rest = each.knots, each.shape[each.axis], next(kinds), coded.origin, step
                    block = _NOTHING[0], out.reshape(-1), _NOTHING[1], *_lines(each, shape)
                    _run_pass(*block, *rest, own)
                    start += each.size
                    continue
                own = numbers[start : start + each.size].reshape(each.shape)
                target = out[each.targets]
                for index, predicted in predictor.pieces(each, next(kinds)):
                    found = predictor.room("found", predicted.shape)
                    np.copyto(found, signed(own[index]))
                    found *= step
                    np.add(predicted, found, out=target[index])
                start += each.size
