"""Balanced policies: the steps of all arrays of a delta are chosen together for one target.

A *part* of a delta is arrays whose steps are chosen together, with a sample of their values.

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

What a layer is given mostly has one sign. So errors of one side in a row add up, for all examples
alike, and a score that is not trained feels them to the first order. Quantizers by `share` keep the
sums of rows.

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
``spec/decisions/0006-balanced-policies.md`` and ``0015-presets-by-promise.md``.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np

from ..constants import ElementType
from ..element_types import Array, stretches
from ..errors import ArgumentError, check_bool, positive
from ..frame.content import MAX_SHARED_COMPONENTS
from ..quantizers.base import DEAD_ZONE, Quantizer
from ..quantizers.grid import lead
from ..quantizers.logarithmic import LogSteps, logarithms
from ..quantizers.residual import difference, root_mean_square
from ..quantizers.uniform import KeyframeSteps, UniformDeadzone, weighted
from .policy import Candidate, Past, Policy
from .roles import AVERAGE, CENTER, FOLLOWER, KEPT, ROLES, Role, find_moments

_SAMPLE_STRETCHES: Final = 16  # of one array, one in each part of it
_STRETCH_COMPONENTS: Final = 256  # of each
SAMPLE: Final = _SAMPLE_STRETCHES * _STRETCH_COMPONENTS  # about how many components of an array are sampled


def sample(bits: Array, reference: Array | None, kind: ElementType, ordered: bool) -> tuple[Array, float]:
    """Return a sample of an array's finite differences; without a reference, of its values.

    These are `SAMPLE` numbers or up to twice as many, float64, and the share that was finite.
    """
    if bits.size <= 2 * SAMPLE:
        d = difference(bits.copy(), reference, kind, ordered)  # the caller's array may change
    else:
        parts = []
        for part in stretches(bits.size, _SAMPLE_STRETCHES, _STRETCH_COMPONENTS):
            base = None if reference is None else reference[part]
            parts.append(difference(bits[part], base, kind, ordered))
        d = np.concatenate(parts)
    finite = d[np.isfinite(d)].astype(np.float64)
    return finite, finite.size / max(d.size, 1)


def entropy(d: Array, step: float, dead_zone: float = DEAD_ZONE) -> float:
    """Return the bits per element for differences like `d`: the entropy of their bins."""
    # A float64 beyond all int64 would be another integer on each machine.
    bins = np.minimum(np.abs(d) / step + max(1 - dead_zone, 0.0), 2.0**62).astype(np.int64)
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
    """Return what codes an array that does not wait."""
    quantizer = policy.choose(c.name, c.role, c.kind, c.bits.size)
    return quantizer if quantizer.trigger is None else quantizer.trigger.then


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


#: Quantizer of each role for a factor of 1. First moments are coded as values, not as differences,
#: because they forget their past in about ten steps.
STEPS: Final[dict[Role, Quantizer]] = {
    "weight": UniformDeadzone(share=0.43),
    "first_moment": UniformDeadzone(relative_step=2.8, absolute=True, dead_zone=0.39),
    "second_moment": LogSteps(1.0),
}

#: Quantizer of each role in keyframes: the errors are not larger than those of deltas.
KEYFRAMES: Final[dict[Role, Quantizer]] = {
    **STEPS,
    "weight": KeyframeSteps(first=1 / 32),
    "second_moment": LogSteps(0.4),
}

#: The least and the largest step of weights, in movements of an interval.
MOVEMENTS: Final = (1.35, 3.0)

#: A promise of more than half an interval has larger steps at most, in proportion.
_LARGE_PROMISE: Final = 2.0

#: The targets. At most one is given.
TARGETS: Final = ("ratio", "max_bytes", "error", "intervals")

#: The factors of steps that are tried. They are rounded to be the same on every machine.
_STEP_FACTORS: Final = [round(2.0 ** (place / 8), 3) for place in range(-48, 25)]

_FINEST_LOG_STEP: Final = 1e-3  # that there is

_FILE_OVERHEAD_BYTES: Final = 1000  # metadata, trailer, and the manifest without entries of frames


@dataclass(frozen=True)
class Balanced(Policy):
    """Policy that chooses the steps of all arrays of a delta together, for at most one target.

    The target (`ratio`, `max_bytes`, `error` or `intervals`) sets one factor for the relative steps
    of all roles; without a target it is 1. The step of each weight is also multiplied by a factor
    of its own, so that bytes are spent where they reduce the expected damage most. The damage is
    the squared error times the square root of the second moment, divided by the movement. This lies
    halfway between an error relative to the movement and one weighted by the curvature that a
    second moment estimates. Without second moments, the damage is relative to the movement.

    The step of a first moment follows from how much of the movement it explains: it is finer where
    checkpoints are a few iterations apart (:mod:`lccodec.policy.balanced`).

    Parameters
    ----------
    name, patterns, smallest, effort
        As in `Policy`.
    roles
        As in `Policy`. The factors change only the `relative_step` or `share` of a
        `UniformDeadzone`. The width of `LogSteps` is less where second moments move slowly,
        unless the target is one of bytes. `Triggered` arrays that wait take no bytes, and
        their error is not counted.
    keyframes
        As in `Policy`; lossy unless it is ``"exact"``.
    ratio
        Minimum ratio of the bytes of all arrays that are saved to those of a delta's file. It is
        met to within about a tenth for files of 100,000 bytes or more, and less exactly for smaller
        files. If any target cannot be met, the nearest possible steps are used.
    max_bytes
        Maximum number of bytes of a delta's file, met as exactly as `ratio`.
    error
        Error of the weights relative to their movement since the parent: the root mean square,
        weighted like the damage.
    intervals
        What resuming from a restored state may cost, in intervals between checkpoints: 1 is the
        cost of resuming from the exact checkpoint before. It sets the steps of first moments. The
        steps of weights are adjusted by `loss` during the run (:mod:`lccodec.chain.save.judge`);
        without it they are those without a target.
    loss
        A function that takes a state, in the form that `Chain.save` takes, and returns its loss,
        ideally always on the same data. `Chain` calls it at the first few saves, then for at most
        1 % of the time. A chain does not record it: pass it again when a run resumes.
    width
        Factor for the steps of weights that `loss` has led to so far. A chain records it.
    movements
        The least and the largest step of weights without a target of bytes or error, in root mean
        squares of what an array moved since the save before. They limit only steps that follow from
        a `share`. Below the least, most of what is coded is smaller than the error that other
        arrays have; above the largest, a run that resumes feels single elements. No such step is
        more than a quarter of the spread of the array's values.
    joint
        Whether second moments also set the dead zone of every weight in a large array: wider where
        the moment is small compared with the others, and narrower where it is large. `ratio` and
        `max_bytes` do not take this into account.

    Raises
    ------
    ArgumentError
        If more than one target is given, or one that is not positive and finite; if `joint` is not
        True or False; for `movements` that are not two positive numbers, rising; or for a `loss`
        without `intervals`.

    Examples
    --------
    >>> print(Balanced(ratio=50))
    balanced, ratio=50
      below 256 values          Lossless()
      weight                    UniformDeadzone(share=0.43)
      first_moment              UniformDeadzone(relative_step=2.8, absolute=True, dead_zone=0.39)
      second_moment             LogSteps()
      all else                  Lossless()
      keyframes: weight         KeyframeSteps(first=0.03125)
      keyframes: first_moment   UniformDeadzone(relative_step=2.8, absolute=True, dead_zone=0.39)
      keyframes: second_moment  LogSteps(step=0.4)
    """

    name: str = "balanced"
    roles: Mapping[Role, Quantizer] = field(default_factory=lambda: dict(STEPS))
    smallest: int = 256
    keyframes: Literal["exact"] | Mapping[Role, Quantizer] = field(
        default_factory=lambda: dict(KEYFRAMES), kw_only=True
    )
    ratio: float | None = field(default=None, kw_only=True)
    max_bytes: float | None = field(default=None, kw_only=True)
    error: float | None = field(default=None, kw_only=True)
    intervals: float | None = field(default=None, kw_only=True)
    loss: Callable[[Any], Any] | None = field(default=None, kw_only=True, compare=False, repr=False)
    width: float = field(default=1.0, kw_only=True, compare=False)
    movements: tuple[float, float] = field(default=MOVEMENTS, kw_only=True)
    joint: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self._given) > 1:
            raise ArgumentError(f"policy {self.name!r}: give at most one of {', '.join(TARGETS)}")
        for target, value in {**self._given, "width": self.width}.items():
            object.__setattr__(self, target, positive(f"policy {self.name!r}: {target}", value))
        check_bool(f"policy {self.name!r}: joint", self.joint)
        object.__setattr__(self, "movements", self._checked_movements())
        if self.loss is not None and self.intervals is None:
            raise ArgumentError(f"policy {self.name!r}: loss= needs intervals=")
        if self.loss is not None and not callable(self.loss):
            raise ArgumentError(
                f"policy {self.name!r}: loss must be a function of a state; got {self.loss!r}"
            )

    def _checked_movements(self) -> tuple[float, float]:
        where = f"policy {self.name!r}: movements"
        found: object = self.movements
        if not isinstance(found, list | tuple) or len(found) != 2:  # a list in JSON
            raise ArgumentError(f"{where} must be the least and the largest step; got {found!r:.100}")
        least, most = (positive(where, number) for number in found)
        if least > most:
            raise ArgumentError(f"{where} must rise; got {found!r}")
        return least, most

    @property
    def _given(self) -> dict[str, float]:
        targets = {name: getattr(self, name) for name in TARGETS}
        return {name: value for name, value in targets.items() if value is not None}

    def __str__(self) -> str:
        first, *rest = super().__str__().splitlines()
        target = "".join(f", {target}={value}" for target, value in self._given.items())
        return "\n".join([f"{first}{target}{', joint' if self.joint else ''}", *rest])

    def to_json(self) -> Any:
        """Return the policy as a JSON object."""
        told = {} if self._given and not self.joint else {"joint": self.joint}  # it tells what class this is
        judged = {} if self.width == 1 else {"width": self.width}
        steps = {} if self.movements == MOVEMENTS else {"movements": list(self.movements)}
        return {**super().to_json(), **self._given, **judged, **steps, **told}

    @property
    def promise(self) -> tuple[Callable[[Any], Any], float] | None:
        """The `loss`, and the `intervals`."""
        return None if self.loss is None or self.intervals is None else (self.loss, self.intervals)

    def widened(self, width: float | None) -> Policy:
        """Return the policy with another `width`, unless that is None."""
        return self if width is None else replace(self, width=width)

    def settle(self, candidates: Iterable[Candidate], width: float = 1.0, spared: int = 0) -> Policy:
        """Return the policy with the steps chosen for the arrays of one delta.

        Without a target, all steps are multiplied by `width`. If a target cannot be met, the policy
        has the nearest steps, and its `shortfall` says so. `spared` are the bytes of other arrays,
        which take none.
        """
        everything = list(candidates)
        waiting = {c.name for c in everything if self._waits(c)}
        with np.errstate(all="ignore"):  # what is not finite, or overflows, is left out
            parts = find_parts(self, everything, waiting)
        total = spared + sum(c.bits.nbytes for c in everything if not c.inherited)
        inexact = waiting.union(*(part.names for part in parts))
        exact = sum(c.bits.nbytes for c in everything if c.name not in inexact)
        scaled = [part for part in parts if part.quantizer.scaled(2.0) is not part.quantizer]
        judged = [part for part in scaled if part.role == "weight"] or scaled

        def bytes_of(factor: float) -> float:
            return _FILE_OVERHEAD_BYTES + exact + sum(part.nbytes(factor) for part in parts)

        own = dict.fromkeys(ROLES, 1.0)
        if not self._given:
            factor, met, nearest = width, True, 0.0
        elif self.intervals is not None:
            factor, met, nearest = width, True, 0.0
            own |= {"weight": self.width, "first_moment": moment_width(self.intervals)}
        elif self.error is not None:
            bound = self.error
            past = bisect_left(_STEP_FACTORS, True, key=lambda f: settled_error(judged, f) > bound)
            factor, met = _STEP_FACTORS[max(past - 1, 0)], past > 0
            nearest = settled_error(judged, _STEP_FACTORS[0])
        else:
            most = self.max_bytes if self.max_bytes is not None else total / (self.ratio or 1.0)
            first = bisect_left(_STEP_FACTORS, True, key=lambda f: bytes_of(f) <= most)
            factor, met = _STEP_FACTORS[min(first, len(_STEP_FACTORS) - 1)], first < len(_STEP_FACTORS)
            least = bytes_of(_STEP_FACTORS[-1])
            nearest = least if self.max_bytes is not None else total / least
        shortfall = None
        if parts and not met:
            ((target, value),) = self._given.items()
            shortfall = f"{target}={value} cannot be met: about {_figure(nearest)} is the nearest"
        by_size = self.ratio is not None or self.max_bytes is not None
        factors: dict[str, float] = {}
        for part in parts:
            chosen = part.scale * factor * own[part.role]
            if not by_size and (self.error is None or part.role != "weight"):
                # What a loss has judged, or a resumed run narrows, moves the least step. The most
                # is for the next jump of the rate, of which a loss knows nothing yet.
                least, most = part.limits(self.movements)
                if part.role == "weight":
                    most *= max(_LARGE_PROMISE * (self.intervals or 0.0), 1.0)
                unjudged = min(max(part.scale * factor, least * factor), most)
                chosen = min(max(chosen, least * factor * own[part.role]), most)
                if part.role == "weight" and chosen > unjudged:
                    chosen = part.held(chosen, unjudged)
            if part.role == "second_moment":
                chosen = 1.0 if by_size else part.narrowing()
            factors |= dict.fromkeys(part.names, chosen)
        moments = {part.names[0]: part.moment for part in parts if self.joint and part.moment is not None}
        return _Settled(
            self.name,
            self.roles,
            self.patterns,
            self.smallest,
            factors,
            moments,
            shortfall,
            keyframes=self.keyframes,
            arrays=self.arrays,
        )

    def _waits(self, c: Candidate) -> bool:
        if c.inherited:
            return True
        trigger = self.choose(c.name, c.role, c.kind, c.bits.size).trigger
        return c.reference is not None and trigger is not None and trigger.waits(c.bits, c.reference, c.kind)


@dataclass(frozen=True)
class _Settled(Policy):
    """The choice of `Balanced` for one delta: factors of steps, and moments for dead zones."""

    factors: Mapping[str, float] = field(default_factory=dict)
    moments: Mapping[str, Moment] = field(default_factory=dict)
    shortfall: str | None = None

    def choose(self, name: str, role: Role, kind: ElementType, size: int) -> Quantizer:
        """Return the quantizer for an array of `size` elements, with its step multiplied."""
        quantizer = super().choose(name, role, kind, size)
        if name not in self.factors:
            return quantizer
        # An array that waits has no factor.
        coder = quantizer if quantizer.trigger is None else quantizer.trigger.then
        scaled = coder.scaled(self.factors[name])
        if isinstance(scaled, LogSteps):
            return replace(scaled, step=max(scaled.step * self.factors[name], _FINEST_LOG_STEP))
        return weighted(scaled, *self.moments[name]) if name in self.moments else scaled


def _figure(value: float) -> str:
    """Return an estimate as text: two digits, or all digits of a number from 100 on."""
    return f"{value:.0f}" if value >= 100 else f"{value:.2g}"
