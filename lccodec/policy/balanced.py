"""Balanced policies: the steps of all arrays of a delta are chosen together for one target.

Source: :mod:`lccodec.policy.rate_distortion`. The measurements are in
``spec/decisions/0006-balanced-policies.md``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from ..arguments import as_number
from ..element_types import Array, ElementType
from ..errors import ArgumentError
from ..frame.content import MAX_SHARED_COMPONENTS
from ..quantizers.base import Quantizer
from ..quantizers.keyframe import KeyframeSteps
from ..quantizers.logarithmic import LogSteps, logarithms
from ..quantizers.uniform import UniformDeadzone
from ..quantizers.weighted import weighted
from .policy import Candidate, Policy
from .rate_distortion import SAMPLE, entropy, left, sample
from .roles import Role, find_curvatures

#: Quantizer of each role for a factor of 1. First moments are coded as values, not as differences,
#: because they forget their past in about ten steps.
STEPS: Final[dict[Role, Quantizer]] = {
    "weight": UniformDeadzone(share=0.3),
    "first_moment": UniformDeadzone(relative_step=1.6, absolute=True),
    "second_moment": LogSteps(1.0),
}

#: Quantizer of each role in keyframes: the errors are not larger than those of deltas.
KEYFRAMES: Final[dict[Role, Quantizer]] = {**STEPS, "weight": KeyframeSteps()}

#: The targets. At most one is given.
TARGETS: Final = ("ratio", "max_bytes", "error")

#: The factors of steps that are tried. They are rounded to be the same on every machine.
_STEP_FACTORS: Final = [round(2.0 ** (place / 8), 3) for place in range(-48, 25)]

_POOL_SAMPLES: Final = 1 << 20  # about how many differences of all those arrays are kept
_MIN_FINITE_SHARE: Final = 0.75  # of an array's differences: with fewer, its step is not chosen
_FRAME_OVERHEAD_RATIO: Final = 1.03  # bytes of a frame over the entropy of its symbols
_FILE_OVERHEAD_BYTES: Final = 1000  # metadata, trailer, and the manifest without entries of frames
_FRAME_OVERHEAD_BYTES: Final = 64  # header, codebook and sums of a frame, and its entry in the manifest
_MAX_STEP_RATIO: Final = 4.0  # of an array's step to its step without regard to other arrays


@dataclass(frozen=True)
class Balanced(Policy):
    """Chooses the steps of all arrays of a delta together, for one target.

    The target sets one factor for the relative steps of all roles. The step of each weight is also
    multiplied by a factor of its own, so that bytes go where they lower the expected damage most.
    The damage is the squared error times the root of the second moment, divided by the movement.
    This lies halfway between an error relative to the movement, and one weighted by the curvature
    that a second moment estimates. Without second moments, the damage is relative to the movement.

    At most one of `ratio`, `max_bytes` and `error` may be given. Without a target, the factor is 1.

    Parameters
    ----------
    name, patterns, smallest, effort
        As in `Policy`.
    roles
        As in `Policy`. Only the `relative_step` or `share` of a `UniformDeadzone` is changed. The
        width of `LogSteps` stays: a narrower dead zone would code at once all that waited in a
        wider one. `Triggered` arrays that wait take no bytes, and their error is not counted.
    keyframes
        As in `Policy`; lossy unless it is ``"exact"``.
    ratio
        Bytes of all arrays over the bytes of a delta's file, at least. This is an estimate: within
        about a tenth for files of 100,000 bytes or more, and less exact for smaller files. If a
        target (this one or another) cannot be met, the nearest steps are used.
    max_bytes
        Bytes of a delta's file, at most; estimated in the same way.
    error
        Error of the weights relative to their movement since the parent: the root of the mean
        squares, weighted as the damage is.
    joint
        Whether second moments also set the dead zone of every weight of a large array. The zone is
        wider where the moment is small compared with others of the array, and narrower where it is
        large. The estimates above do not take this into account.

    Raises
    ------
    ArgumentError
        Unless at most one target is given, positive and finite, and `joint` is True or False.

    Examples
    --------
    >>> print(Balanced(ratio=50))
    balanced, ratio=50
      below 256 values          Lossless()
      weight                    UniformDeadzone(share=0.3)
      first_moment              UniformDeadzone(relative_step=1.6, absolute=True)
      second_moment             LogSteps()
      all else                  Lossless()
      keyframes: weight         KeyframeSteps()
      keyframes: first_moment   UniformDeadzone(relative_step=1.6, absolute=True)
      keyframes: second_moment  LogSteps()
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
    joint: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self._given) > 1:
            raise ArgumentError(f"policy {self.name!r}: give at most one of ratio, max_bytes and error")
        for target, value in self._given.items():
            number = as_number(value)
            if number is None or not math.isfinite(number) or number <= 0:
                raise ArgumentError(
                    f"policy {self.name!r}: {target} is a positive finite number, not {value!r}"
                )
            object.__setattr__(self, target, number)
        if not isinstance(self.joint, bool):
            raise ArgumentError(f"policy {self.name!r}: joint is True or False, not {self.joint!r}")

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
        return {**super().to_json(), **self._given, **told}

    def settle(self, candidates: Iterable[Candidate], width: float = 1.0) -> Policy:
        """Return the policy with the steps chosen for the arrays of one delta.

        Without a target, all steps are multiplied by `width`. If a target cannot be met, the policy
        has the nearest steps, and its `shortfall` says so.
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
            return _FILE_OVERHEAD_BYTES + exact + sum(part.nbytes(factor) for part in parts)

        if not self._given:
            factor, met, nearest = width, True, 0.0
        elif self.error is not None:
            bound = self.error
            low, high = 0, len(_STEP_FACTORS)  # the last factor that meets it is in low - 1 .. high - 1
            while low < high:
                middle = (low + high) // 2
                meets = _error(judged, _STEP_FACTORS[middle]) <= bound
                low, high = (middle + 1, high) if meets else (low, middle)
            factor, met = _STEP_FACTORS[max(low - 1, 0)], low > 0
            nearest = _error(judged, _STEP_FACTORS[0])
        else:
            most = self.max_bytes if self.max_bytes is not None else total / (self.ratio or 1.0)
            low, high = 0, len(_STEP_FACTORS)  # the first factor that meets it is in low .. high
            while low < high:
                middle = (low + high) // 2
                low, high = (low, middle) if bytes_of(_STEP_FACTORS[middle]) <= most else (middle + 1, high)
            factor, met = _STEP_FACTORS[min(low, len(_STEP_FACTORS) - 1)], low < len(_STEP_FACTORS)
            least = bytes_of(_STEP_FACTORS[-1])
            nearest = least if self.max_bytes is not None else total / least
        shortfall = None
        if parts and not met:
            ((target, value),) = self._given.items()
            shortfall = f"{target}={value} cannot be met: about {_figure(nearest)} is the nearest"
        factors = {name: part.scale * factor for part in parts for name in part.names}
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
        )

    def _waits(self, c: Candidate) -> bool:
        quantizer = self.choose(c.name, c.role, c.kind, c.bits.size)
        return c.reference is not None and quantizer.waits(c.bits, c.reference, c.kind)

    def _parts(self, candidates: list[Candidate], waiting: set[str]) -> list[_Part]:
        """Return the arrays whose steps are chosen; arrays that share a step are one part."""
        moments = find_curvatures({c.name: c.role for c in candidates}, {c.name: c.shape for c in candidates})
        by_name = {c.name: c for c in candidates}
        pools: dict[object, list[tuple[Candidate, Array, float]]] = {}
        small = [c.bits.size for c in candidates if c.bits.size <= MAX_SHARED_COMPONENTS]
        thin = max(sum(min(size, SAMPLE) for size in small) // _POOL_SAMPLES, 1)
        weighing: dict[str, _Moment] = {}
        for c in candidates:
            quantizer = self.choose(c.name, c.role, c.kind, c.bits.size).awake
            if c.name in waiting or c.reference is None or c.bits.size == 0:
                continue
            if not quantizer.lossy:
                continue
            d, finite = sample(c.bits, None if quantizer.absolute else c.reference, c.kind, quantizer.ordered)
            if finite < _MIN_FINITE_SHARE and quantizer.ordered and c.bits.size > MAX_SHARED_COMPONENTS:
                # The array will be coded without its reference, as only a large one can be.
                d = logarithms(np.abs(sample(c.bits, None, c.kind, ordered=False)[0]))
            elif finite < _MIN_FINITE_SHARE:
                continue
            if d.size == 0:
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
            pooled = c.bits.size <= MAX_SHARED_COMPONENTS
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
            if quantizer.bin_width(d) is None:
                continue
            count = sum(c.bits.size for c, _, _ in pool)
            moment_of = weighing.get(first.name) if first.bits.size > MAX_SHARED_COMPONENTS else None
            parts.append(
                _Part([c.name for c, _, _ in pool], first.role, count, d, quantizer, harm, moment_of)
            )
        return parts


#: Second moments of all elements of a weight: components, element type, and a typical value.
_Moment: TypeAlias = tuple[Array, ElementType, float]


@dataclass(frozen=True)
class _Part:
    """Arrays that share a step: one large array, or all small arrays of one quantizer and type."""

    names: list[str]
    role: Role
    count: int
    d: Array  # a sample of the differences, in the unit of relative steps
    quantizer: Quantizer  # of the role
    harm: float  # of a squared error, relative to the mean of all arrays
    moment: _Moment | None  # only of a large array

    @property
    def scale(self) -> float:
        """The factor of the step that balances it with the steps of other arrays."""
        return round(min(max(1 / math.sqrt(self.harm), 1 / _MAX_STEP_RATIO), _MAX_STEP_RATIO), 2)

    def step(self, factor: float) -> float:
        """Return the step for a factor of all steps."""
        return self.quantizer.scaled(self.scale * factor).bin_width(self.d) or 1.0

    def nbytes(self, factor: float) -> float:
        """Return about how many bytes the arrays take."""
        bits = self.count * entropy(self.d, self.step(factor))
        return _FRAME_OVERHEAD_RATIO * bits / 8 + _FRAME_OVERHEAD_BYTES * (1 + len(self.names) / 8)


def _error(parts: list[_Part], factor: float) -> float:
    """Return the error relative to the movement that a closed loop settles at."""
    remaining = sum(p.count * p.harm * left(p.d, p.step(factor)) for p in parts)
    whole = sum(p.count * p.harm * float(np.add.reduce(np.square(p.d))) / p.d.size for p in parts if p.d.size)
    share = remaining / whole if whole else 0.0
    return math.sqrt(share / max(1 - share, 1e-9))


@dataclass(frozen=True)
class _Settled(Policy):
    """The choice of `Balanced` for one delta: factors of steps, and moments for dead zones."""

    factors: Mapping[str, float] = field(default_factory=dict)
    moments: Mapping[str, _Moment] = field(default_factory=dict)
    shortfall: str | None = None

    def choose(self, name: str, role: Role, kind: ElementType, size: int) -> Quantizer:
        """Return the quantizer for an array of `size` elements, with its step multiplied."""
        quantizer = super().choose(name, role, kind, size)
        if name not in self.factors:
            return quantizer
        scaled = quantizer.awake.scaled(self.factors[name])  # an array that waits has no factor
        return weighted(scaled, *self.moments[name]) if name in self.moments else scaled


def _figure(value: float) -> str:
    """Return an estimate as text: two digits, or all digits of a number from 100 on."""
    return f"{value:.0f}" if value >= 100 else f"{value:.2g}"


def _mean(values: list[tuple[float, int]]) -> float:
    """Return the weighted mean of the finite values; 0 if there are none."""
    finite = [(value, weight) for value, weight in values if math.isfinite(value)]
    total = sum(weight for _, weight in finite)
    return sum(value * weight for value, weight in finite) / total if total else 0.0
