"""What fields take with each coder at the same largest error, alone and in chains; and the time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import exp, log

import numpy as np

from .coders import CODERS, Coded, code, missing
from .simulation import State

__all__ = ["BOUNDS", "Case", "Sizes", "bound_of", "mean", "measure_alone", "measure_deltas"]

BOUNDS = (1e-3, 1e-5, 1e-7)  # of the range of each array
DELTA_CODERS = ("Smooth", "UniformDeadzone", "SZ3")


@dataclass(frozen=True)
class Case:
    """Fields that are coded together.

    Parameters
    ----------
    name
        Of what they are of.
    states
        One after the other in time; the last one is coded alone.
    counted
        Whether the means have it.
    """

    name: str
    states: Sequence[State]
    counted: bool = True


@dataclass
class Sizes:
    """What the arrays of a case take at one bound, by coder, deltas or not.

    Parameters
    ----------
    case, bound
        What was coded; the bound is a share of the range.
    raw
        Bytes of the arrays.
    found
        Of each coder, all that it coded.
    violations
        How many arrays have an error above their bound, by coder.
    """

    case: Case
    bound: float
    raw: int = 0
    found: dict[str, list[Coded]] = field(default_factory=dict)
    violations: dict[str, int] = field(default_factory=dict)

    def add(self, coder: str, coded: Coded, bound: float) -> None:
        """Note what a coder made of an array."""
        self.found.setdefault(coder, []).append(coded)
        self.violations[coder] = self.violations.get(coder, 0) + (coded.error > bound)

    def bytes(self, coder: str) -> int:
        """Return the bytes of all arrays."""
        return sum(each.bytes for each in self.found[coder])

    def seconds(self, coder: str) -> tuple[float, float]:
        """Return the seconds of encoding and of decoding all arrays."""
        return sum(each.encode for each in self.found[coder]), sum(each.decode for each in self.found[coder])

    def gain(self, other: str) -> float:
        """Return how many times the bytes of `Smooth` another coder takes."""
        return self.bytes(other) / self.bytes("Smooth")


def bound_of(values: np.ndarray, share: float) -> float:
    """Return a share of the range of a field, missing values left out."""
    return share * float(np.ptp(values[~missing(values)].astype(np.float64)))


def measure_alone(case: Case, share: float) -> Sizes:
    """Code the last state of a case by all coders, at the error that `Smooth` makes of it."""
    sizes = Sizes(case, share)
    for values in case.states[-1].values():
        bound = bound_of(values, share)
        sizes.raw += values.nbytes
        ours = code("Smooth", values, bound)
        sizes.add("Smooth", ours, bound)
        for coder in list(CODERS)[1:]:
            same = bound if coder == "UniformDeadzone" or ours.error == 0 else ours.error
            sizes.add(coder, code(coder, values, same), bound)
    return sizes


def measure_deltas(case: Case, share: float) -> Sizes:
    """Code every state but the first against the one before as that coder has decoded it."""
    sizes = Sizes(case, share)
    for name in case.states[0]:
        for coder in DELTA_CODERS:
            reference = case.states[0][name]
            for state in case.states[1:]:
                bound = bound_of(state[name], share)
                coded = code(coder, state[name], bound, reference)
                sizes.add(coder, coded, bound)
                reference = coded.decoded
                if coder == "Smooth":
                    sizes.raw += state[name].nbytes
    return sizes


def mean(values: Sequence[float]) -> float:
    """Return the geometric mean."""
    return exp(sum(map(log, values)) / len(values))
