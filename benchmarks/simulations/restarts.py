"""Solvers that go on from what was decoded, beside going on from the exact state.

A grid solver goes on as from the exact state if what it differs by in the end is less than a tenth
of its own error: what half its time step changes. A quantum chemistry program does if it takes the
same iterations to the same energy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

import lccodec

from .chemistry import Restart
from .simulation import Simulation, State
from .sizes import bound_of

__all__ = ["RESTART_BOUNDS", "Run", "restart_chemistry", "restart_simulation"]

RESTART_BOUNDS = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8)  # of the range of each array
INTERVALS = 3  # between checkpoints, that a solver goes on for
OWN_ERROR_SHARE = 0.1
SAME_ENERGY = 1e-8  # hartree


@dataclass(frozen=True)
class Run:
    """One restart.

    Parameters
    ----------
    bound
        A share of the range of each array.
    ratio
        Raw bytes over those of the frames.
    cells
        What else a table shows, by column.
    is_as_exact
        Whether it goes on as from the exact state.
    """

    bound: float
    ratio: float
    cells: dict[str, str]
    is_as_exact: bool


def restart_simulation(
    simulation: Simulation, bounds: Sequence[float] = RESTART_BOUNDS
) -> tuple[float, list[Run]]:
    """Return the solver's own error, and a run for each bound."""
    (state,) = simulation.checkpoints(1)
    duration = simulation.interval * INTERVALS
    exact = simulation.advance(state, duration, 1)
    own = _distance(simulation.advance(state, duration, 2), exact)
    runs = []
    for bound in bounds:
        keep = "sum" if simulation.conserved else None
        decoded, ratio = _through(state, bound, keep)
        plain, plain_ratio = _through(state, bound, None)
        ended = simulation.advance(decoded, duration, 1)
        found = _distance(ended, exact)
        cells = {"error after the restart": f"{_distance(decoded, state):.1e}", "in the end": f"{found:.1e}"}
        is_as_exact = bool(np.isfinite(found)) and found <= OWN_ERROR_SHARE * own
        if simulation.conserved:
            drift = _drift(ended, state, simulation.conserved)
            cells["drift of sums"] = f"{drift:.1e}"
            cells["without `conserve`"] = f"{_drift(plain, state, simulation.conserved):.1e}"
            cells["and its ratio"] = f"{plain_ratio:.1f}x"
            is_as_exact = is_as_exact and drift < 1e-12
        runs.append(Run(bound, ratio, cells, is_as_exact))
    return own, runs


def restart_chemistry(restart: Restart, bounds: Sequence[float] = RESTART_BOUNDS) -> list[Run]:
    """Return a run for each bound, of the exact state first (bound 0)."""
    exact = restart.run(restart.states[-1])
    runs = [Run(0.0, 1.0, {"iterations": str(exact.iterations), "energy": f"{exact.energy:.9f}"}, True)]
    for bound in bounds:
        decoded, ratio = _through(restart.states[-1], bound, None)
        found = restart.run(decoded)
        off = abs(found.energy - exact.energy)
        cells = {"iterations": str(found.iterations), "energy": f"off by {off:.1e}"}
        same = found.converged and found.iterations <= exact.iterations and off <= SAME_ENERGY
        runs.append(Run(bound, ratio, cells, same))
    return runs


def _through(state: State, share: float, conserve: str | None) -> tuple[State, float]:
    """Return a state after coding, and how many times less it took."""
    decoded, coded = {}, 0
    for name, values in state.items():
        quantizer = lccodec.Smooth(max_error=bound_of(values, share), conserve=conserve)  # type: ignore[arg-type]
        frame = lccodec.encode(values, quantizer)
        decoded[name], coded = lccodec.decode(frame), coded + len(frame)
    return decoded, sum(values.nbytes for values in state.values()) / coded


def _distance(one: State, other: State) -> float:
    """Return the largest difference of two states, as a share of the range of each array."""
    return max(float(np.abs(one[name] - other[name]).max()) / bound_of(other[name], 1) for name in other)


def _drift(one: State, other: State, names: Sequence[str]) -> float:
    """Return the largest change of a sum, relative to the sum of magnitudes."""
    return max(
        abs(float(one[name].sum() - other[name].sum())) / float(np.abs(other[name]).sum()) for name in names
    )
