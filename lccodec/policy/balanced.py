"""Balanced policies: the steps of all arrays of a delta are chosen together for one target.

Source: :mod:`lccodec.policy.parts`. The measurements are in
``spec/decisions/0006-balanced-policies.md``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from ..arguments import check_bool, positive
from ..element_table import ElementType
from ..errors import ArgumentError
from ..quantizers.base import Quantizer
from ..quantizers.keyframe import KeyframeSteps
from ..quantizers.logarithmic import LogSteps
from ..quantizers.uniform import UniformDeadzone
from ..quantizers.weighted import weighted
from .parts import Moment, find_parts, moment_width, settled_error
from .policy import Candidate, Policy
from .roles import ROLES, Role

#: Quantizer of each role for a factor of 1. First moments are coded as values, not as differences,
#: because they forget their past in about ten steps.
STEPS: Final[dict[Role, Quantizer]] = {
    "weight": UniformDeadzone(share=0.43),
    "first_moment": UniformDeadzone(relative_step=4.3, absolute=True, dead_zone=0.25),
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
    checkpoints are a few iterations apart (:mod:`lccodec.policy.parts`).

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
      first_moment              UniformDeadzone(relative_step=4.3, absolute=True, dead_zone=0.25)
      second_moment             LogSteps()
      all else                  Lossless()
      keyframes: weight         KeyframeSteps(first=0.03125)
      keyframes: first_moment   UniformDeadzone(relative_step=4.3, absolute=True, dead_zone=0.25)
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
        quantizer = self.choose(c.name, c.role, c.kind, c.bits.size)
        return c.reference is not None and quantizer.waits(c.bits, c.reference, c.kind)


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
        scaled = quantizer.awake.scaled(self.factors[name])  # an array that waits has no factor
        if isinstance(scaled, LogSteps):
            return replace(scaled, step=max(scaled.step * self.factors[name], _FINEST_LOG_STEP))
        return weighted(scaled, *self.moments[name]) if name in self.moments else scaled


def _figure(value: float) -> str:
    """Return an estimate as text: two digits, or all digits of a number from 100 on."""
    return f"{value:.0f}" if value >= 100 else f"{value:.2g}"
