"""Balanced policies: the steps of all arrays of a delta, chosen together for one target.

Source: :mod:`lccodec.policy.rate_distortion`; ``spec/decisions/0006-balanced-policies.md`` for what
was measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np

from ..arguments import as_number
from ..element_types import Array, ElementType
from ..errors import ArgumentError
from ..quantizers.base import Quantizer
from ..quantizers.logarithmic import LogSteps, logarithms
from ..quantizers.uniform import UniformDeadzone
from ..quantizers.weighted import weighted
from .policy import Candidate, Policy
from .rate_distortion import SAMPLE, entropy, left, sample
from .roles import Role, find_curvatures

__all__ = ["STEPS", "TARGETS", "Balanced"]

#: Steps of the roles, for a factor of 1. A first moment forgets its past in some ten steps.
STEPS: Final[dict[Role, Quantizer]] = {
    "weight": UniformDeadzone(relative_step=2.0),
    "first_moment": UniformDeadzone(relative_step=5.0, absolute=True),
    "second_moment": LogSteps(2.0),
}

#: What can be asked of a policy, one of them.
TARGETS: Final = ("ratio", "max_bytes", "error")

#: Factors that are tried, rounded so that they are the same on every machine.
_FACTORS: Final = [round(2.0 ** (place / 8), 3) for place in range(-24, 25)]

_POOLED: Final = 1 << 14  # arrays of at most so many elements lie in one run, and share a factor
_POOL: Final = 1 << 20  # samples that are kept of all those arrays, about
_LEAST_FINITE: Final = 0.75  # share of differences: arrays with fewer are not looked at
_OVERHEAD: Final = 1.03  # of a frame over the entropy of its symbols
_FILE: Final = 2400  # bytes of a file beside its frames: its metadata, trailer and the rest of its manifest
_FRAME: Final = 64  # bytes of a frame's header, codebook and sums, and of its entry in the manifest
_SPREAD: Final = 4.0  # most that one array's step may differ from what it would be without the others


@dataclass(frozen=True)
class Balanced(Policy):
    """Chooses the steps of all arrays of a delta together, for one target.

    The relative steps of the roles are multiplied by one factor, which the target sets; those of
    weights by another one for each array, so that the next byte goes where it lowers the expected
    damage most. Damage is the squared error times the root of the second moment over the movement:
    halfway between the movement alone and the curvature that a second moment stands for. Without
    second moments it is relative to the movement.

    Give exactly one of `ratio`, `max_bytes` and `error`.

    Parameters
    ----------
    name, patterns, smallest, effort
        As in `Policy`.
    roles
        As in `Policy`. The `relative_step` of a `UniformDeadzone` is multiplied. Nothing else is:
        `LogSteps` of a changing width would code at once all that had waited in a wider dead zone.
        `Triggered` arrays that wait take no bytes, and their error is not counted.
    ratio
        Bytes of all arrays over those of a delta's file, at least; estimated, within about a tenth
        where that file has some 100,000 bytes or more, and less well below. A target out of reach,
        this one or another, gives the steps that come nearest.
    max_bytes
        Of a delta's file, at most; estimated in the same way.
    error
        Error of the weights relative to their movement since the parent (the root of the mean
        squares, weighted as the damage is); at about 1 a resumed run loses what one more interval
        costs.
    joint
        Whether second moments also set the dead zone of every weight of a large array: wider where
        the moment is small beside others of the array, narrower where it is large. The estimates
        above are those without it.

    Raises
    ------
    ArgumentError
        Unless exactly one target is given, positive and finite, and `joint` is True or False.

    Examples
    --------
    >>> print(Balanced(ratio=50))
    balanced, ratio=50
      below 256 values  Lossless()
      weight            UniformDeadzone(relative_step=2.0)
      first_moment      UniformDeadzone(relative_step=5.0, absolute=True)
      second_moment     LogSteps(step=2.0)
      all else          Lossless()
    """

    name: str = "balanced"
    roles: Mapping[Role, Quantizer] = field(default_factory=lambda: dict(STEPS))
    smallest: int = 256
    ratio: float | None = field(default=None, kw_only=True)
    max_bytes: float | None = field(default=None, kw_only=True)
    error: float | None = field(default=None, kw_only=True)
    joint: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self._given) != 1:
            raise ArgumentError(f"policy {self.name!r}: give exactly one of ratio, max_bytes and error")
        ((target, value),) = self._given.items()
        number = as_number(value)
        if number is None or not math.isfinite(number) or number <= 0:
            raise ArgumentError(f"policy {self.name!r}: {target} is a positive finite number, not {value!r}")
        object.__setattr__(self, target, number)
        if not isinstance(self.joint, bool):
            raise ArgumentError(f"policy {self.name!r}: joint is True or False, not {self.joint!r}")

    @property
    def _given(self) -> dict[str, float]:
        targets = {name: getattr(self, name) for name in TARGETS}
        return {name: value for name, value in targets.items() if value is not None}

    def __str__(self) -> str:
        ((target, value),) = self._given.items()
        first, *rest = super().__str__().splitlines()
        joint = ", joint" if self.joint else ""
        return "\n".join([f"{first}, {target}={value}{joint}", *rest])

    def to_json(self) -> Any:
        """Return the policy as a JSON object that says all."""
        return {**super().to_json(), **self._given, **({"joint": True} if self.joint else {})}

    def settle(self, candidates: Iterable[Candidate]) -> Policy:
        """Return the policy with the steps chosen for the arrays of one delta.

        Where the target cannot be met, they are those that come nearest, and `shortfall` tells.
        """
        everything = list(candidates)
        waiting = {c.name for c in everything if self._waits(c)}
        parts = self._parts(everything, waiting)
        total = sum(c.bits.nbytes for c in everything)
        inexact = waiting.union(*(part.names for part in parts))
        exact = sum(c.bits.nbytes for c in everything if c.name not in inexact)
        scaled = [part for part in parts if part.quantizer.scaled(2.0) is not part.quantizer]
        judged = [part for part in scaled if part.role == "weight"] or scaled

        def bytes_of(factor: float) -> float:
            return _FILE + exact + sum(part.nbytes(factor) for part in parts)

        if self.error is not None:
            bound = self.error
            low, high = 0, len(_FACTORS)  # the last that meets it lies in low - 1 .. high - 1
            while low < high:
                middle = (low + high) // 2
                low, high = (middle + 1, high) if _error(judged, _FACTORS[middle]) <= bound else (low, middle)
            place, met = max(low - 1, 0), low > 0
            nearest = _error(judged, _FACTORS[0])
        else:
            most = self.max_bytes if self.max_bytes is not None else total / (self.ratio or 1.0)
            low, high = 0, len(_FACTORS)  # the first that meets it lies in low .. high
            while low < high:
                middle = (low + high) // 2
                low, high = (low, middle) if bytes_of(_FACTORS[middle]) <= most else (middle + 1, high)
            place, met = min(low, len(_FACTORS) - 1), low < len(_FACTORS)
            least = bytes_of(_FACTORS[-1])
            nearest = least if self.max_bytes is not None else total / least
        shortfall = None
        if parts and not met:
            ((target, value),) = self._given.items()
            shortfall = f"{target}={value} cannot be met: about {_figure(nearest)} is the nearest"
        factors = {name: part.scale * _FACTORS[place] for part in parts for name in part.names}
        moments = {part.names[0]: part.moment for part in parts if self.joint and part.moment is not None}
        return _Settled(self.name, self.roles, self.patterns, self.smallest, factors, moments, shortfall)

    def _waits(self, c: Candidate) -> bool:
        quantizer = self.choose(c.name, c.role, c.kind, c.bits.size)
        return c.reference is not None and quantizer.waits(c.bits, c.reference, c.kind)

    def _parts(self, candidates: list[Candidate], waiting: set[str]) -> list[_Part]:
        """Return the arrays whose steps are chosen, those together that share one."""
        moments = find_curvatures({c.name: c.role for c in candidates}, {c.name: c.shape for c in candidates})
        by_name = {c.name: c for c in candidates}
        pools: dict[object, list[tuple[Candidate, Array, float]]] = {}
        thin = max(sum(min(c.bits.size, SAMPLE) for c in candidates if c.bits.size <= _POOLED) // _POOL, 1)
        weighing: dict[str, _Moment] = {}
        for c in candidates:
            quantizer = self.choose(c.name, c.role, c.kind, c.bits.size).awake
            if c.name in waiting or c.reference is None or c.bits.size == 0:
                continue
            if quantizer.bin_width is None:
                continue
            d, finite = sample(c.bits, None if quantizer.absolute else c.reference, c.kind, quantizer.ordered)
            if finite < _LEAST_FINITE and quantizer.ordered and c.bits.size > _POOLED:
                # It will be coded without its reference, as only large arrays are.
                d = logarithms(np.abs(sample(c.bits, None, c.kind, ordered=False)[0]))
            elif finite < _LEAST_FINITE:
                continue
            unit = 1.0 if quantizer.ordered else math.sqrt(np.add.reduce(np.square(d)) / d.size)
            moment = by_name.get(moments.get(c.name, ""))
            curvature = math.nan
            if moment is not None and moment.kind.is_float:
                v, _ = sample(moment.bits, None, moment.kind, ordered=False)
                curvature = unit * math.sqrt(max(float(v.mean()) if v.size else math.nan, 0.0))
                typical = float(np.mean(np.maximum(v, 0) ** 0.25)) ** 4 if v.size else 0.0
                if typical > 0 and c.bits.size == moment.bits.size and not quantizer.absolute:
                    weighing[c.name] = moment.bits, moment.kind, typical
            pooled = c.bits.size <= _POOLED
            key = (quantizer, c.kind) if pooled else c.name
            pools.setdefault(key, []).append((c, d[:: thin if pooled else 1] / (unit or 1.0), curvature))
        mean = _mean([(curvature, c.bits.size) for pool in pools.values() for c, _, curvature in pool])
        parts = []
        for pool in pools.values():
            first = pool[0][0]
            curvature = _mean([(curvature, c.bits.size) for c, _, curvature in pool])
            harm = curvature / mean if mean > 0 and curvature > 0 else 1.0
            quantizer = self.choose(first.name, first.role, first.kind, first.bits.size).awake
            d = np.concatenate([d for _, d, _ in pool])
            count = sum(c.bits.size for c, _, _ in pool)
            moment_of = weighing.get(first.name) if first.bits.size > _POOLED else None
            parts.append(
                _Part([c.name for c, _, _ in pool], first.role, count, d, quantizer, harm, moment_of)
            )
        return parts


#: Second moments of all elements of a weight: components, their type, and what is typical of them.
_Moment: TypeAlias = tuple[Array, ElementType, float]


@dataclass(frozen=True)
class _Part:
    """Arrays that share a step: a large one, or all small ones of a role and type."""

    names: list[str]
    role: Role
    count: int
    d: Array  # a sample of the differences, in what steps are multiples of
    quantizer: Quantizer  # of the role
    harm: float  # of a squared error, beside that of the mean array
    moment: _Moment | None  # of a large array

    @property
    def scale(self) -> float:
        """What the step is multiplied by for the sake of the other arrays."""
        return round(min(max(1 / math.sqrt(self.harm), 1 / _SPREAD), _SPREAD), 2)

    def step(self, factor: float) -> float:
        """Return the step at a factor."""
        return self.quantizer.scaled(self.scale * factor).bin_width or 1.0

    def nbytes(self, factor: float) -> float:
        """Return about how many bytes it takes."""
        bits = self.count * entropy(self.d, self.step(factor))
        return _OVERHEAD * bits / 8 + _FRAME * (1 + len(self.names) / 8)


def _error(parts: list[_Part], factor: float) -> float:
    """Return where the error relative to the movement settles."""
    remaining = sum(p.count * p.harm * left(p.d, p.step(factor)) for p in parts)
    whole = sum(p.count * p.harm * float(np.add.reduce(np.square(p.d))) / p.d.size for p in parts if p.d.size)
    share = remaining / whole if whole else 0.0
    return math.sqrt(share / max(1 - share, 1e-9))


@dataclass(frozen=True)
class _Settled(Policy):
    """What `Balanced` has settled on for one delta: factors of steps, and moments to weigh with."""

    factors: Mapping[str, float] = field(default_factory=dict)
    moments: Mapping[str, _Moment] = field(default_factory=dict)
    shortfall: str | None = None

    def choose(self, name: str, role: Role, kind: ElementType, size: int) -> Quantizer:
        """Return the quantizer for an array of `size` elements, its step multiplied."""
        quantizer = super().choose(name, role, kind, size)
        if name not in self.factors:
            return quantizer
        scaled = quantizer.awake.scaled(self.factors[name])  # what waits has no factor
        return weighted(scaled, *self.moments[name]) if name in self.moments else scaled


def _figure(value: float) -> str:
    """Return an estimate as a text of two digits, or of all digits of a large number."""
    return f"{value:.0f}" if value >= 100 else f"{value:.2g}"


def _mean(values: list[tuple[float, int]]) -> float:
    """Return the mean of the finite values with their weights; 0 of none."""
    finite = [(value, weight) for value, weight in values if math.isfinite(value)]
    total = sum(weight for _, weight in finite)
    return sum(value * weight for value, weight in finite) / total if total else 0.0
