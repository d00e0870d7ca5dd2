"""The parts of a delta: arrays whose steps are chosen together, each with a sample of its values.

Source: :mod:`lccodec.policy.rate_distortion`.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from ..element_table import ElementType
from ..element_types import Array
from ..frame.content import MAX_SHARED_COMPONENTS
from ..quantizers.base import Quantizer
from ..quantizers.bins.residual import root_mean_square
from ..quantizers.logarithmic import logarithms
from .momentum import correlations, moment_scale
from .policy import Candidate, Policy
from .rate_distortion import SAMPLE, entropy, left, sample, widest
from .roles import AVERAGE, Role, find_moments

_POOL_SAMPLES: Final = 1 << 20  # about how many differences of all those arrays are kept
_MIN_FINITE_SHARE: Final = 0.75  # of an array's differences: with fewer, its step is not chosen
_FRAME_OVERHEAD_RATIO: Final = 1.03  # bytes of a frame over the entropy of its symbols
_FRAME_OVERHEAD_BYTES: Final = 64  # header, codebook and sums of a frame, and its entry in the manifest
_MAX_STEP_RATIO: Final = 4.0  # of an array's step to its step without regard to other arrays
_LEAST_REACH: Final = 0.1  # of a first moment's sum of squares: outside its zone, so that a gain can help

#: Second moments of all elements of a weight: components, element type, and a typical value.
Moment: TypeAlias = tuple[Array, ElementType, float]


@dataclass(frozen=True)
class Part:
    """Arrays that share a step: one large array, or all small arrays of one quantizer and type."""

    names: list[str]
    role: Role
    count: int
    d: Array  # a sample of the differences, in the unit of relative steps
    quantizer: Quantizer  # of the role
    harm: float  # of a squared error, relative to the mean of all arrays
    momentum: float  # correlation of a first moment's update with the movement; 0 if it is not known
    moment: Moment | None  # only of a large array
    widest: float  # factor of the step of a first moment, but for a target of bytes

    @property
    def scale(self) -> float:
        """The factor of the step that balances it with the steps of other arrays."""
        if self.momentum and self.quantizer.absolute:
            return moment_scale(self.momentum)
        return round(min(max(1 / math.sqrt(self.harm), 1 / _MAX_STEP_RATIO), _MAX_STEP_RATIO), 2)

    def step(self, factor: float) -> float:
        """Return the step for a factor of all steps."""
        return self.quantizer.scaled(self.scale * factor).bin_width(self.d) or 1.0

    def nbytes(self, factor: float) -> float:
        """Return about how many bytes the arrays take."""
        bits = self.count * entropy(self.d, self.step(factor))
        return _FRAME_OVERHEAD_RATIO * bits / 8 + _FRAME_OVERHEAD_BYTES * (1 + len(self.names) / 8)


def find_parts(policy: Policy, candidates: list[Candidate], waiting: Collection[str]) -> list[Part]:
    """Return the arrays of a delta whose steps are chosen, but for those that are `waiting`.

    All small arrays of one quantizer and type share a step, and so are one part.
    """
    # No optimizer has moments of averages.
    roles = {c.name: c.role for c in candidates if c.why != AVERAGE}
    shapes = {c.name: c.shape for c in candidates}
    moments = find_moments(roles, shapes, "second_moment")
    firsts = [c for c in candidates if c.role == "first_moment"]
    explained = correlations(candidates, {c.name: _coder(policy, c) for c in firsts})
    by_name = {c.name: c for c in candidates}
    pools: dict[object, list[tuple[Candidate, Array, float]]] = {}
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
        pools.setdefault(key, []).append((c, d[:: thin if pooled else 1] / (unit or 1.0), curvature))
    mean = _mean([(curvature, c.bits.size) for pool in pools.values() for c, _, curvature in pool])
    parts = []
    for pool in pools.values():
        first = pool[0][0]
        curvature = _mean([(curvature, c.bits.size) for c, _, curvature in pool])
        harm = curvature / mean if mean > 0 and curvature > 0 else 1.0
        quantizer = _coder(policy, first)
        d = np.concatenate([d for _, d, _ in pool])
        if quantizer.bin_width(d) is None:
            continue
        count = sum(c.bits.size for c, _, _ in pool)
        names = [c.name for c, _, _ in pool]
        momentum = _mean([(explained.get(c.name, math.nan), c.bits.size) for c, _, _ in pool])
        most = _widest(quantizer, [each for _, each, _ in pool])
        moment_of = weighing.get(first.name)
        parts.append(Part(names, first.role, count, d, quantizer, harm, abs(momentum), moment_of, most))
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
    return round(0.97 * min(widest(d, _LEAST_REACH) for d in pool) / step, 2)


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
