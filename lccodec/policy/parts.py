"""The parts of a delta: arrays whose steps are chosen together, each with a sample of its values.

With uniform bins, one more bit for an array lowers its squared error in proportion to the square of
its step. So bytes are spent best if the product of the step and the root of the weight in the
damage is the same for all arrays. Then only one factor for all steps remains to be chosen. What a
step costs and what it leaves is found on a sample, before anything is coded.

In a closed loop, the error of a delta joins the next difference. If a share f of the squared
difference remains, the error settles at f / (1 - f) of the squared movement.

After a jump of the rate, steps by a share of the differences are wide for as long as errors of the
jump are among them. So the step of a weight is at most a few times what its array moved since the
save before. A young run, or one that is rarely saved, moves by a large part of its weights between
two saves. A loss is no parabola over such distances, and an error of a part of that movement can
cost more than the interval gained. So a step is also at most a part of the spread of the weights.

A first moment is a step that the optimizer has yet to take. A run that resumes without it falls
behind by what it would have coasted: about the square of the correlation of the last movement with
the update that the moment stands for. That is half an interval where saves are some iterations
apart, and next to nothing where an interval is many times as long as the memory of the moment. At a
large rate weights swing, and a moment explains little of the movement; what is learned is still a
part of the moment. So where an optimizer counts few iterations between two saves, its moments are
kept as if they explained more. Some optimizers take the sign of a moment. There the movement
follows the signs better than the sizes, and what is small, and would be in the zone, moves weights
as far as all else.

A second moment sets the length of all updates to come. A run late in training, which lives at the
edge of what its rate allows, loses half an interval of ten iterations by updates that are 3 % too
long. Second moments move slowly then, and errors of one side stay in the zone. So their steps are
narrower where they move slowly.

Sources: Shoham & Gersho, "Efficient bit allocation for an arbitrary set of quantizers", IEEE Trans.
ASSP 36 (1988); SPEC 7.7 (the bins); the measurements in
``spec/decisions/0015-presets-by-promise.md``.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from ..element_table import ElementType
from ..element_types import Array
from ..frame.content import MAX_SHARED_COMPONENTS
from ..quantizers.base import Quantizer
from ..quantizers.grid import DEAD_ZONE, lead
from ..quantizers.logarithmic import logarithms
from ..quantizers.residual import difference, root_mean_square
from .policy import Candidate, Past, Policy
from .roles import AVERAGE, CENTER, FOLLOWER, KEPT, Role, find_moments

_SAMPLE_STRETCHES: Final = 16  # of one array, evenly spread
_STRETCH_COMPONENTS: Final = 256  # of each
SAMPLE: Final = _SAMPLE_STRETCHES * _STRETCH_COMPONENTS  # about how many components of an array are sampled


def sample(bits: Array, reference: Array | None, kind: ElementType, ordered: bool) -> tuple[Array, float]:
    """Return a sample of an array's finite differences; without a reference, of its values.

    These are about `SAMPLE` numbers, float64, and the share of the sample that was finite.
    """
    if bits.size <= SAMPLE:
        d = difference(bits.copy(), reference, kind, ordered)  # the caller's array may change
    else:
        parts = []
        for start in range(0, bits.size, bits.size // _SAMPLE_STRETCHES):
            part = slice(start, start + _STRETCH_COMPONENTS)
            base = None if reference is None else reference[part]
            parts.append(difference(bits[part], base, kind, ordered))
        d = np.concatenate(parts)
    finite = d[np.isfinite(d)].astype(np.float64)
    return finite, finite.size / max(d.size, 1)


def entropy(d: Array, step: float, dead_zone: float = DEAD_ZONE) -> float:
    """Return the bits per element for differences like `d`: the entropy of their bins."""
    bins = (np.abs(d) / step + max(1 - dead_zone, 0.0)).astype(np.int64)
    counts = np.unique(np.where(d < 0, -bins, bins), return_counts=True)[1]
    shares = counts / max(d.size, 1)
    return float(-(shares * np.log2(shares)).sum())


def left(d: Array, step: float) -> float:
    """Return the mean squared error of a step: all in the zone; in a bin, its width and lead."""
    if d.size == 0:
        return 0.0
    dropped = d[np.abs(d) < DEAD_ZONE * step]
    kept = d.size - dropped.size
    share = np.array(kept / d.size)
    in_bin = step**2 * (1 / 12 + float(lead(share)) ** 2)
    return float(np.add.reduce(np.square(dropped)) + kept * in_bin) / d.size


def widest(d: Array, share: float) -> float:
    """Return about the widest zone that leaves a share of the sum of squares outside."""
    sizes = np.sort(np.abs(d))
    inside = np.add.accumulate(np.square(sizes))
    if d.size == 0 or inside[-1] == 0:
        return math.inf
    return float(sizes[np.searchsorted(inside, (1 - share) * inside[-1])])


#: Why arrays have their roles of which no optimizer has moments, or that say nothing of a movement.
_APART: Final = frozenset([AVERAGE, FOLLOWER, KEPT, CENTER])

_EPSILON: Final = 1e-8  # of Adam: second moments far below its square divide nothing


_MIN_MOVED: Final = 64  # elements of a sample that moved: fewer say nothing

_TYPICAL_CORRELATION: Final = 0.5  # where the step of a first moment is that of its role
_MIN_MOMENT_RATIO: Final = 0.4  # of its step to that of its role
_MAX_MOMENT_RATIO: Final = 1.75

#: Where few iterations lie between two saves, a moment counts at least as if its correlation were
#: this over their number: it reaches about ten iterations, however little of the last it explains.
_COASTED_ITERATIONS: Final = 7.6
_COUNTERS: Final = frozenset(["step", "count", "iterations"])  # of optimizers: names of scalars

#: Of a promise in intervals, first moments may cost this part. Without a promise, they cost this.
_SHARE_OF_PROMISE: Final = 1 / 3
_COST_BY_DEFAULT: Final = 0.08


def moment_scale(correlation: float) -> float:
    """Return the factor of a first moment's step for its correlation with the movement.

    What a run loses goes with the square of the correlation; so does the step.
    """
    wanted = (_TYPICAL_CORRELATION / max(abs(correlation), 1e-3)) ** 2
    return round(min(max(wanted, _MIN_MOMENT_RATIO), _MAX_MOMENT_RATIO), 2)


def moment_width(intervals: float) -> float:
    """Return the factor of all first moments' steps for a promise in intervals."""
    return math.sqrt(_SHARE_OF_PROMISE * intervals / _COST_BY_DEFAULT)


def correlations(candidates: Sequence[Candidate], quantizers: Mapping[str, Quantizer]) -> dict[str, float]:
    """Return the correlation of each first moment's update with the movement of its weight.

    The movement is that of the originals since the save before. Elements that did not move are left
    out: an update of a few rows leaves the moments of all others as they are. Without a second
    moment, the update is the moment or its sign, whichever the movement follows.

    Parameters
    ----------
    candidates
        All arrays of a delta.
    quantizers
        Those of first moments, by name. A moment that is not lossy is left out.

    Returns
    -------
    dict
        By the name of the moment, -1 to 1; without moments whose weight did not move, or whose
        originals are not known.
    """
    by_name = {c.name: c for c in candidates}
    roles = {c.name: c.role for c in candidates if c.why not in _APART}
    shapes = {c.name: c.shape for c in candidates}
    second = find_moments(roles, shapes, "second_moment")
    found = {}
    for weight, moment in find_moments(roles, shapes, "first_moment").items():
        if moment not in quantizers or not quantizers[moment].lossy:
            continue
        w, m, v = by_name[weight], by_name[moment], by_name.get(second.get(weight, ""))
        if w.past is None or not (w.kind.is_float and m.kind.is_float) or w.bits.size != m.bits.size:
            continue
        d = difference(w.past.of(w.bits), w.past.bits, w.kind, ordered=False).astype(np.float64)
        update = _values(m, w.past)
        if v is not None and v.bits.size == m.bits.size and v.kind.is_float:
            update /= np.sqrt(np.maximum(_values(v, w.past), 0)) + _EPSILON
        known = np.isfinite(d) & np.isfinite(update) & (d != 0)
        d, update = d[known], update[known]
        product = math.sqrt(float(d @ d) * float(update @ update))
        if d.size >= _MIN_MOVED and product > 0:
            explained = [float(d @ update) / product]
            if v is None:
                signs = np.sign(update)
                explained.append(float(d @ signs) / math.sqrt(float(d @ d) * float(signs @ signs)))
            found[moment] = max(explained, key=abs)
    return found


def iterations(candidates: Sequence[Candidate]) -> float:
    """Return how many iterations optimizers counted since the parent; infinite if none counts."""
    counted = []
    for c in candidates:
        is_counter = c.bits.size == 1 and c.name.replace(".", "/").split("/")[-1] in _COUNTERS
        if is_counter and c.reference is not None and c.kind.name != "bfloat16" and c.kind.kind in "iuf":
            now, before = (float(bits.view(c.kind.native)[0]) for bits in (c.bits, c.reference))
            counted.append(now - before)
    return min((count for count in counted if count >= 1), default=math.inf)


def _values(c: Candidate, past: Past) -> Array:
    return difference(past.of(c.bits), None, c.kind, ordered=False).astype(np.float64)


_POOL_SAMPLES: Final = 1 << 20  # about how many differences of all those arrays are kept
_MIN_FINITE_SHARE: Final = 0.75  # of an array's differences: with fewer, its step is not chosen
_FRAME_OVERHEAD_RATIO: Final = 1.03  # bytes of a frame over the entropy of its symbols
_FRAME_OVERHEAD_BYTES: Final = 64  # header, codebook and sums of a frame, and its entry in the manifest
_MAX_STEP_RATIO: Final = 4.0  # of an array's step to its step without regard to other arrays
_MAX_SPREADS: Final = 1 / 4  # of a weight's step: in units of the spread of the array
_NARROWEST: Final = 0.4  # step of second moments, over that of their role
_MOMENT_MOVEMENTS: Final = 5.0  # in the step of their role: from there on, no harm is known
_ERRORS: Final = 3.75  # in a step of weights, of the errors that such steps lead to: a little more
_LEAST_REACH: Final = 0.1  # of a first moment's sum of squares: outside its zone, so that a gain can help

#: Second moments of all elements of a weight: components, element type, and a typical value.
Moment: TypeAlias = tuple[Array, ElementType, float]


class _Sampled(NamedTuple):
    """An array, and what is known of it; lengths are in units of its rms difference."""

    c: Candidate
    d: Array  # a sample of its differences
    curvature: float  # as far as its second moment tells
    moved: float  # since the save before
    spread: float  # of its values
    lost: float  # by the reference


@dataclass(frozen=True)
class Part:
    """Arrays that share a step: one large array, or all small arrays of one quantizer and type."""

    names: list[str]
    role: Role
    count: int
    d: Array  # a sample of the differences, in the unit of relative steps
    quantizer: Quantizer  # of the role
    harm: float  # of a squared error, relative to the mean of all arrays
    momentum: float  # how much of the movement a first moment explains, at least; 0 if it is not known
    moment: Moment | None  # only of a large array
    moved: float  # root mean square since the save before, in the same unit; 0 if it is not known
    spread: float  # of the values, in the same unit; infinite if it is not known
    lost: float  # root mean square error of the reference, in the same unit; 0 if it is not known
    widest: float  # factor of the step of a first moment, but for a target of bytes

    @property
    def scale(self) -> float:
        """The factor of the step that balances it with the steps of other arrays."""
        if self.momentum and self.quantizer.absolute:
            return moment_scale(self.momentum)
        return round(min(max(1 / math.sqrt(self.harm), 1 / _MAX_STEP_RATIO), _MAX_STEP_RATIO), 2)

    def limits(self, movements: tuple[float, float]) -> tuple[float, float]:
        """Return the least and the largest factor of a step, given those of a weight in movements.

        A step that is balanced with others is as much wider at least, and no wider at most.
        """
        if self.role != "weight":
            return 0.0, self.widest
        lengths = movements[0] * self.moved, min(movements[1] * self.moved, _MAX_SPREADS * self.spread)
        least, most = (self.quantizer.widest_factor(self.d, length) for length in lengths)
        return (0.0 if least == math.inf else least * self.scale), most

    def held(self, factor: float, unjudged: float) -> float:
        """Return the factor of a weight's step that is wider than without a judge: `unjudged`.

        A loss has judged errors of the length that the reference has. So the step may be little
        longer than that of the save before, but for one that needs no judge.
        """
        if not self.lost:
            return factor
        return min(factor, max(self.quantizer.widest_factor(self.d, _ERRORS * self.lost), unjudged))

    def narrowing(self) -> float:
        """Return the factor of the step of second moments: less where they move slowly."""
        wanted = _MOMENT_MOVEMENTS * self.moved / (self.quantizer.bin_width(self.d) or math.inf)
        return round(min(max(wanted, _NARROWEST), 1.0), 2)

    def step(self, factor: float) -> float:
        """Return the step for a factor of all steps."""
        return self.quantizer.scaled(self.scale * factor).bin_width(self.d) or 1.0

    def nbytes(self, factor: float) -> float:
        """Return about how many bytes the arrays take."""
        bits = self.count * entropy(self.d, self.step(factor), self.quantizer.dead_zone)
        return _FRAME_OVERHEAD_RATIO * bits / 8 + _FRAME_OVERHEAD_BYTES * (1 + len(self.names) / 8)


def find_parts(policy: Policy, candidates: list[Candidate], waiting: Collection[str]) -> list[Part]:
    """Return the arrays of a delta whose steps are chosen, but for those that are `waiting`.

    All small arrays of one quantizer and type share a step, and so are one part.
    """
    roles = {c.name: c.role for c in candidates if c.why not in _APART}
    shapes = {c.name: c.shape for c in candidates}
    moments = find_moments(roles, shapes, "second_moment")
    firsts = [c for c in candidates if c.role == "first_moment"]
    least = min(_COASTED_ITERATIONS / iterations(candidates), 1.0)
    explained = {
        name: max(abs(correlation), least)
        for name, correlation in correlations(candidates, {c.name: _coder(policy, c) for c in firsts}).items()
    }
    by_name = {c.name: c for c in candidates}
    pools: dict[object, list[_Sampled]] = {}
    small = [c.bits.size for c in candidates if c.bits.size <= MAX_SHARED_COMPONENTS]
    thin = max(sum(min(size, SAMPLE) for size in small) // _POOL_SAMPLES, 1)
    weighing: dict[str, Moment] = {}
    for c in candidates:
        quantizer = _coder(policy, c)
        if c.name in waiting or c.reference is None or c.bits.size == 0 or not quantizer.lossy:
            continue
        d = _differences(c, quantizer)
        if d.size == 0:
            continue
        pooled = c.bits.size <= MAX_SHARED_COMPONENTS
        unit = 1.0 if quantizer.ordered else root_mean_square(d)
        moment = by_name.get(moments.get(c.name, ""))
        curvature = math.nan
        if moment is not None and moment.kind.is_float:
            v, _ = sample(moment.bits, None, moment.kind, ordered=False)
            curvature = unit * math.sqrt(max(np.add.reduce(v) / v.size if v.size else math.nan, 0.0))
            if not pooled and v.size and c.bits.size == moment.bits.size and not quantizer.absolute:
                typical = float(np.mean(np.maximum(v, 0) ** 0.25)) ** 4
                if typical > 0:
                    weighing[c.name] = moment.bits, moment.kind, typical
        key = (quantizer, c.kind) if pooled else c.name
        unit, d = unit or 1.0, d[:: thin if pooled else 1]
        pools.setdefault(key, []).append(
            _Sampled(
                *(c, d / unit, curvature),
                *(length / unit for length in (_movement(c, quantizer.ordered), _spread(c), _lost(c))),
            )
        )
    mean = _mean([(own.curvature, own.c.bits.size) for pool in pools.values() for own in pool])
    parts = []
    for pool in pools.values():
        first, sizes = pool[0].c, [own.c.bits.size for own in pool]
        curvature = _mean(list(zip([own.curvature for own in pool], sizes, strict=True)))
        harm = curvature / mean if mean > 0 and curvature > 0 else 1.0
        quantizer = _coder(policy, first)
        d = np.concatenate([own.d for own in pool])
        if quantizer.bin_width(d) is None:
            continue
        names = [own.c.name for own in pool]
        momentum = _mean([(explained.get(own.c.name, math.nan), own.c.bits.size) for own in pool])
        moved = math.sqrt(_mean([(own.moved**2, own.c.bits.size) for own in pool]))
        spread = _mean([(own.spread, own.c.bits.size) for own in pool]) or math.inf
        lost = math.sqrt(_mean([(own.lost**2, own.c.bits.size) for own in pool]))
        most = _widest(quantizer, [own.d for own in pool])
        moment_of = weighing.get(first.name)
        parts.append(
            Part(
                *(names, first.role, sum(sizes), d, quantizer, harm, momentum, moment_of),
                *(moved, spread, lost, most),
            )
        )
    return parts


def _coder(policy: Policy, c: Candidate) -> Quantizer:
    return policy.choose(c.name, c.role, c.kind, c.bits.size).awake


def _differences(c: Candidate, quantizer: Quantizer) -> Array:
    """Return a sample of what the quantizer codes of an array; nothing if too little is finite."""
    d, finite = sample(c.bits, None if quantizer.absolute else c.reference, c.kind, quantizer.ordered)
    if finite >= _MIN_FINITE_SHARE:
        return d
    if quantizer.ordered and c.bits.size > MAX_SHARED_COMPONENTS:
        # The array will be coded without its reference, as only a large one can be.
        return logarithms(np.abs(sample(c.bits, None, c.kind, ordered=False)[0]))
    return d[:0]


def _widest(quantizer: Quantizer, pool: list[Array]) -> float:
    """Return the factor of a step up to which each first moment has values outside the zone."""
    step = quantizer.bin_width(np.concatenate(pool)) if quantizer.absolute else None
    if not step:
        return math.inf
    # Elements that all have one size lie at the edge: a little less, and they are outside.
    zone = quantizer.dead_zone * step
    return round(0.97 * min(widest(d, _LEAST_REACH) for d in pool) / zone, 2)


def _movement(c: Candidate, ordered: bool) -> float:
    """Return how far those elements of an array moved that did, since the save before; or NaN."""
    if c.past is None or not c.kind.is_float:
        return math.nan
    d = difference(c.past.of(c.bits), c.past.bits, c.kind, ordered).astype(np.float64)
    moved = d[np.isfinite(d) & (d != 0)]
    return root_mean_square(moved) if moved.size >= _MIN_MOVED else math.nan


def _lost(c: Candidate) -> float:
    """Return the root mean square error of a weight's reference; NaN if it is not known."""
    if c.role != "weight" or c.past is None or c.reference is None or not c.kind.is_float:
        return math.nan
    d = difference(c.past.of(c.reference), c.past.bits, c.kind, ordered=False)
    return root_mean_square(d[np.isfinite(d)].astype(np.float64))


def _spread(c: Candidate) -> float:
    """Return the root mean square of a weight's distances from its mean; NaN for other arrays."""
    if c.role != "weight":
        return math.nan
    values, _ = sample(c.bits, None, c.kind, ordered=False)
    return float(np.std(values)) if values.size else math.nan


def settled_error(parts: list[Part], factor: float) -> float:
    """Return the error relative to the movement that a closed loop settles at."""
    remaining = sum(p.count * p.harm * left(p.d, p.step(factor)) for p in parts)
    whole = sum(p.count * p.harm * float(np.add.reduce(np.square(p.d))) / p.d.size for p in parts if p.d.size)
    share = remaining / whole if whole else 0.0
    return math.sqrt(share / max(1 - share, 1e-9))


def _mean(values: list[tuple[float, int]]) -> float:
    """Return the weighted mean of the finite values; 0 if there are none."""
    finite = [(value, weight) for value, weight in values if math.isfinite(value)]
    total = sum(weight for _, weight in finite)
    return sum(value * weight for value, weight in finite) / total if total else 0.0
