"""How the elements of a field are predicted: level by level, from neighbours that are known.

The first element is known. At each level the known elements are a lattice of twice the stride. One
pass along each axis predicts every other element between them. Encoder and decoder run the same
expressions, in binary64, so that they agree to the bit.

The lattice of a level is an array of its own, without gaps. A pass takes one that is known, and
makes one with twice the rows. The finest is made piece by piece, while it is in the cache.

A block becomes numbers of steps. The encoder predicts from what the decoder will have, so that
errors do not grow. What it chooses is a step, the part of it that each level takes, and the
predictor of each pass.

Sources: SPEC 6.4 and 7.8; Zhao et al., "Optimizing error-bounded lossy compression for scientific
data by dynamic spline interpolation", ICDE 2021 (SZ3).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import Final

import numpy as np

from ..element_types import Array
from ..loops.prediction import CONSTANT, LINEAR, MOST_STEPS, PREDICTORS, dequantize, predict, quantize, weave

Shape = tuple[int, ...]
Index = tuple[slice, ...]

#: Elements predicted at a time, so that they and what is made of them stay in the cache.
PIECE: Final = 1 << 16

#: Where pieces of a sample begin, in 256ths of the way.
_SAMPLED_PLACES: Final = (0, 77, 179, 256)


@dataclass(frozen=True)
class Pass:
    """One pass along an axis of a level.

    Parameters
    ----------
    axis
        The axis along which elements are predicted.
    shape
        Shape of the elements that are predicted.
    knots
        Number of known elements along the axis.
    """

    axis: int
    shape: Shape
    knots: int

    @property
    def size(self) -> int:
        """Number of elements that are predicted."""
        return math.prod(self.shape)

    @property
    def known_shape(self) -> Shape:
        """Shape of the elements that are known."""
        return (*self.shape[: self.axis], self.knots, *self.shape[self.axis + 1 :])

    @property
    def known(self) -> Index:
        """Index of the known elements in the lattice of the level."""
        return self._index(slice(None, None, 2))

    @property
    def targets(self) -> Index:
        """Index of the elements that are predicted in the lattice of the level."""
        return self._index(slice(1, None, 2))

    def _index(self, own: slice) -> Index:
        behind = len(self.shape) - self.axis - 1
        return (*[slice(None)] * self.axis, own, *[slice(None, None, 2)] * behind)

    @property
    def rows(self) -> tuple[int, int, int]:
        """The shape with three axes: the own one, and all before and behind it joined."""
        before, behind = self.shape[: self.axis], self.shape[self.axis + 1 :]
        return math.prod(before), self.shape[self.axis], math.prod(behind)

    def filled(self, some: slice) -> int:
        """Return the number of rows that some become, with the known ones."""
        known: int = (self.knots if some.stop == self.shape[self.axis] else some.stop) - some.start
        return known + len(range(some.start, some.stop))


def levels(shape: Shape) -> list[list[Pass]]:
    """Return the passes of each level of a block, coarsest level first (LCC-SMO-03)."""
    top = (max(shape, default=1) - 1).bit_length()
    return [_level(shape, 1 << power) for power in reversed(range(top))]


def _level(shape: Shape, stride: int) -> list[Pass]:
    fine, known = (tuple(-(-extent // each) for extent in shape) for each in (stride, 2 * stride))
    return [
        Pass(axis, (*fine[:axis], fine[axis] - knots, *known[axis + 1 :]), knots)
        for axis, knots in enumerate(known)
        if fine[axis] > knots
    ]


#: Given the blocks and the rows of a pass whose prediction follows, of three axes: it changes that
#: into what is decoded, and returns whether it did.
_Coding = Callable[[slice, slice, Array], bool]


def _pieces(
    step: Pass, known: Array, rows: slice, kind: tuple[int, float], code: _Coding, out: Array | None = None
) -> Iterator[Array]:
    """Yield some rows of a pass, known and decoded ones, piece by piece.

    `known` are all known elements, contiguous; each of `rows` is predicted behind its known one, as
    `kind` says. The pieces are written into `out`, one after the other, if it is given.
    """
    blocks, _, apart = step.rows
    known = known.reshape(blocks, step.knots, apart)
    per_block, at = (rows.stop - rows.start) * apart, 0
    for block in range(0, blocks, at_a_time := max(PIECE // per_block, 1)):
        part = slice(block, block + at_a_time)
        for start in range(rows.start, rows.stop, length := max(PIECE // apart, 1)):
            some = slice(start, min(start + length, rows.stop))
            first, last = _neighbours(some.start, some.stop, step.knots)
            near, coded = known[part, first:last], False
            while not coded:
                predicted = predict(near, first, step.knots, some.start, some.stop, *kind)
                coded = code(part, some, predicted)
            end = at + len(near) * apart * step.filled(some)
            piece = np.empty(end - at) if out is None else out[at:end]
            weave(near, start - first, predicted, piece)
            yield piece
            at = end


def _whole(step: Pass, known: Array, rows: slice, kind: tuple[int, float], code: _Coding) -> Array:
    """Return some rows of a pass, known and decoded ones."""
    blocks, _, apart = step.rows
    out = np.empty(blocks * apart * step.filled(rows))
    for _ in _pieces(step, known, rows, kind, code, out):
        pass
    return out


def _neighbours(start: int, stop: int, knots: int) -> tuple[int, int]:
    """Return the first and the end of the known rows that some rows are predicted from."""
    return max(min(start - 2, knots - 4), 0), min(max(stop + 3, 4), knots)


#: Steps of a level are so many 256ths of the step of the block (LCC-SMO-04).
FULL_STEP: Final = 256

# All of these are an encoder's choice.
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
    """A block as it is stored; `step` and `origin` are as in `decode_block`."""

    step: float
    origin: float
    refinements: list[int]  # the steps of each level in 256ths of `step`, 1 to 256
    predictors: list[int] = field(default_factory=list)  # of each pass
    # The zigzag of the numbers of steps: of the first element, and of each level, in pass order.
    numbers: list[Array] = field(default_factory=list)


def encode_block(
    values: Array,
    step: float,
    masked: Array | None,
    use: Callable[[Array], object],
    *,
    refines: bool = True,
) -> Coded:
    """Code a block of finite numbers (float32 or float64).

    `use` gets the block as decoded (float64), flat, piece by piece. `step` is twice the error that
    is allowed before rounding. Elements that are `masked` are stored apart and take the predicted
    value. With `refines`, coarse levels may have finer steps.
    """
    sample = values.reshape(-1)[:: max(values.size // _SAMPLE, 1)]
    if masked is not None:
        seen = ~masked.reshape(-1)[:: max(values.size // _SAMPLE, 1)]
        sample = sample[seen] if seen.any() else sample
    origin = float(np.sort(sample)[sample.size // 2])
    passes = levels(values.shape)
    refined = refines and _is_sparse(values, passes, origin, step)
    coarseness = reversed(range(len(passes)))
    coded = Coded(step, origin, [_refinement(each) if refined else FULL_STEP for each in coarseness])
    first = (0,) * values.ndim
    steps = float(np.rint((float(values[first]) - origin) / step))
    number = int(steps) if abs(steps) < MOST_STEPS and (masked is None or not masked[first]) else 0
    coded.numbers.append(np.array([number << 1 ^ number >> 63], np.uint64))
    known = np.array([origin + number * step])
    lattices = zip(
        passes,
        coded.refinements,
        _lattices(values, len(passes)),
        repeat(None) if masked is None else _lattices(masked, len(passes)),
        strict=False,
    )
    for level, refinement, exact, hidden in lattices:
        writer = _Writer(exact, hidden, level_step(step, refinement), sum(each.size for each in level))
        for each in level:
            kind = _choose(
                each, exact[each.targets], known.reshape(each.known_shape), origin, 1 / writer.step
            )
            coded.predictors.append(kind)
            work = each, known, slice(0, each.shape[each.axis]), (kind, origin), writer.of(each)
            if each is passes[-1][-1]:
                for piece in _pieces(*work):
                    use(piece)
            else:
                known = _whole(*work)
        coded.numbers.append(writer.numbers)
    if not passes:
        use(known)
    return coded


def _lattices(block: Array, count: int) -> list[Array]:
    """Return the lattices of all levels, the coarsest first."""
    found = [block]
    while len(found) < count:
        found.append(np.ascontiguousarray(found[-1][(slice(None, None, 2),) * block.ndim]))
    return found[::-1]


def level_step(step: float, refinement: int) -> float:
    """Return the step of a level (LCC-SMO-04)."""
    return step * (refinement / FULL_STEP)


class _Writer:
    """Numbers of steps of a level: they become wider when one has no room.

    `exact` is the lattice of the level; elements that are `hidden` take the predicted value.
    """

    def __init__(self, exact: Array, hidden: Array | None, step: float, size: int) -> None:
        self._exact, self._hidden, self.step = exact, hidden, step
        self.numbers = np.empty(size, np.uint8)
        self._start = 0

    def of(self, step: Pass) -> _Coding:
        """Return what codes a pass, which follows those before."""
        start, self._start = self._start, self._start + step.size
        _, rows, apart = step.rows
        behind = self._exact.shape[step.axis :]

        def code(blocks: slice, some: slice, predicted: Array) -> bool:
            place = (blocks, slice(2 * some.start + 1, 2 * some.stop, 2), *step.targets[step.axis + 1 :])
            shape = predicted.shape[:2] + step.shape[step.axis + 1 :]
            original = np.empty(shape)
            np.copyto(original, self._exact.reshape(-1, *behind)[place])
            if self._hidden is not None:
                original[self._hidden.reshape(-1, *behind)[place]] = np.nan
            at = start + (blocks.start * rows + some.start) * apart
            own = self.numbers[at : at + predicted.size]
            if quantize(original.reshape(-1), predicted.reshape(-1), self.step, own):
                return True
            self.numbers = self.numbers.astype(np.uint32 if own.itemsize == 1 else np.uint64)
            return False

        return code


def _choose(each: Pass, original: Array, known: Array, origin: float, inverse: float) -> int:
    """Return the predictor whose residuals take the fewest bits in a sample of a pass.

    The bits are rounded, as machines differ in a logarithm's last bit.
    """
    if each.size < _MIN_SAMPLED:
        return LINEAR
    residuals = _residuals(each, original, known, origin)
    residuals *= inverse
    steps = _BITS_OF_A_STEP * np.count_nonzero(residuals > 0.5, axis=(1, 2))
    np.maximum(residuals, _LEAST_COST_STEPS, out=residuals)
    bits = np.rint(np.log2(residuals, out=residuals).sum(axis=2)).sum(axis=1)
    return min(zip((bits + steps).tolist(), (-kind for kind in PREDICTORS), strict=True))[1] * -1


def _residuals(each: Pass, original: Array, known: Array, origin: float) -> Array:
    """Return by how much predictions are off, for each predictor and each piece of a sample.

    The pieces lie along the diagonal, so that no side of a field stands for all.
    """
    places = _SAMPLED_PLACES if each.size > _SAMPLE else _SAMPLED_PLACES[:1]
    lengths = _piece_lengths(each, _SAMPLE // len(places))
    rows, behind = lengths[each.axis], lengths[each.axis + 1 :]
    exact = np.empty((len(places), *lengths))
    boxes: dict[int, list[Array]] = {}  # of known elements, by the first row
    for own, place in zip(exact, places, strict=True):
        starts = [(extent - length) * place >> 8 for extent, length in zip(each.shape, lengths, strict=True)]
        index = [slice(start, start + length) for start, length in zip(starts, lengths, strict=True)]
        own[...] = original[tuple(index)]
        index[each.axis] = slice(*_neighbours(starts[each.axis], starts[each.axis] + rows, each.knots))
        boxes.setdefault(starts[each.axis], []).append(known[tuple(index)])
    found = np.empty((len(PREDICTORS), *exact.shape))
    found[CONSTANT] = origin
    at = 0
    for start, some in boxes.items():
        first, last = _neighbours(start, start + rows, each.knots)
        near = np.array(some, np.float64).reshape(-1, last - first, math.prod(behind))
        for predictor in PREDICTORS[1:]:
            predicted = predict(near, first, each.knots, start, start + rows, predictor, origin)
            found[predictor, at : at + len(some)] = predicted.reshape(-1, *lengths)
        at += len(some)
    np.subtract(exact, found, out=found)
    return np.abs(found, out=found).reshape(len(PREDICTORS), len(places), -1)


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


def _refinement(level: int) -> int:
    """Return the steps of a level, which is so many levels above the finest, in 256ths."""
    return round(FULL_STEP / min(_REFINEMENT**level, _MAX_REFINEMENT))


def _is_sparse(values: Array, passes: Sequence[Sequence[Pass]], origin: float, step: float) -> bool:
    """Return whether few elements of the finest level differ from their prediction by the bound."""
    if not passes or passes[-1][-1].size < _MIN_SAMPLED:
        return False
    last = passes[-1][-1]
    residuals = _residuals(last, values[last.targets], values[last.known], origin)
    shares = np.count_nonzero(residuals > step / 2, axis=(1, 2)) / residuals[0].size
    return bool(shares.min() < _SPARSE_SHARE)


def decode_block(shape: Shape, coded: Coded) -> Iterator[Array]:
    """Yield a block (float64), flat, piece by piece (LCC-SMO-06).

    The step of `coded` is the unit of its numbers, its origin what the constant predictor predicts.
    """
    first = int(coded.numbers[0][0])
    known = np.array([coded.origin + (first >> 1 ^ -(first & 1)) * coded.step])
    passes, kinds = levels(shape), iter(coded.predictors)
    for level, refinement, numbers in zip(passes, coded.refinements, coded.numbers[1:], strict=True):
        step = level_step(coded.step, refinement)
        pieces = _decoded(level, known, numbers, [next(kinds) for _ in level], coded.origin, step)
        if level is passes[-1]:
            yield from pieces
        else:
            known = np.concatenate(list(pieces))
    if not passes:
        yield known


def _decoded(
    level: list[Pass], known: Array, numbers: Array, kinds: list[int], origin: float, step: float
) -> Iterator[Array]:
    """Yield a level: all passes of some rows of its first axis after those of others."""
    axis, (_, rows, _), knots = level[0].axis, level[0].rows, level[0].knots
    ends = np.cumsum([each.size for each in level]).tolist()
    per_row = numbers.size // rows
    for start in range(0, rows, length := max(2 * PIECE // per_row, 1)):
        stop = min(start + length, rows)
        made = slice(2 * start, 2 * stop if stop < rows else rows + knots)
        part = known
        for each, end, kind in zip(level, ends, kinds, strict=True):
            own, some, narrow = numbers[end - each.size : end], slice(start, stop), each
            if axis != each.axis:
                shape = (*each.shape[:axis], made.stop - made.start, *each.shape[axis + 1 :])
                narrow, apart = replace(each, shape=shape), each.size // (rows + knots)
                own, some = own[made.start * apart : made.stop * apart], slice(0, each.rows[1])
            work = narrow, part, some, (kind, origin), _reading(narrow, own, step)
            if each is level[-1]:
                yield from _pieces(*work)
            else:
                part = _whole(*work)


def _reading(each: Pass, numbers: Array, step: float) -> _Coding:
    """Return what decodes a pass."""
    _, rows, apart = each.rows

    def code(blocks: slice, some: slice, predicted: Array) -> bool:
        at = (blocks.start * rows + some.start) * apart
        with np.errstate(all="ignore"):
            dequantize(numbers[at : at + predicted.size], step, predicted.reshape(-1))
        return True

    return code
