"""How the elements of a field are predicted: level by level, from neighbours that are known.

The first element is known. At each level the known elements are a lattice of twice the stride. One
pass along each axis predicts every other element between them. Encoder and decoder run the same
expressions, in binary64, so that they agree to the bit.

Sources: SPEC 6.4 and 7.8; Zhao et al., "Optimizing error-bounded lossy compression for scientific
data by dynamic spline interpolation", ICDE 2021 (SZ3).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

import numpy as np

from ...element_types import Array

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
