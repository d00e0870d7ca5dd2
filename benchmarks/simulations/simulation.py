"""What a solver is to the benchmark: it starts, it goes on from any state, it conserves sums."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

__all__ = ["Simulation", "State"]

State = dict[str, np.ndarray]


@dataclass(frozen=True)
class Simulation:
    """A solver on a grid.

    Parameters
    ----------
    name
        Of the problem, and its size.
    start
        Returns the state at time 0.
    advance
        Returns the state that lies a duration after another one; time steps are divided by
        `refine`.
    before
        The time of the first checkpoint.
    interval
        The time between two checkpoints.
    conserved
        Names of the arrays whose sums stay as they are.
    """

    name: str
    start: Callable[[], State]
    advance: Callable[[State, float, int], State]
    before: float
    interval: float
    conserved: tuple[str, ...] = ()

    def checkpoints(self, count: int) -> list[State]:
        """Return the states of the first checkpoints."""
        states = [self.advance(self.start(), self.before, 1)]
        while len(states) < count:
            states.append(self.advance(states[-1], self.interval, 1))
        return states
