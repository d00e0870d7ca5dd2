"""The Gray-Scott reaction of two substances in three dimensions, as in tutorials of ADIOS2.

Explicit Euler steps, seven-point diffusion, a periodic box.

Source: Pearson, "Complex patterns in a simple system", Science 261, 1993.
"""

from __future__ import annotations

import numpy as np

from .simulation import Simulation, State

__all__ = ["gray_scott"]

DIFFUSION = {"u": 0.2, "v": 0.1}
FEED, KILL = 0.02, 0.048
STEP = 1.0


def gray_scott(cells: int) -> Simulation:
    """Return a reaction that starts from a few cubes in a box of `cells` in each direction."""

    def start() -> State:
        rng = np.random.default_rng(0)
        u, v = np.ones((cells,) * 3), np.zeros((cells,) * 3)
        size = max(cells // 12, 2)
        for _ in range(6):
            cube = tuple(slice(at, at + size) for at in rng.integers(0, cells - size, 3))
            u[cube], v[cube] = 0.25, 0.33
        return {"u": u, "v": v}

    return Simulation(f"Gray-Scott, {cells}^3", start, _advance, 600.0, 40.0)


def _advance(state: State, duration: float, refine: int) -> State:
    u, v = state["u"].copy(), state["v"].copy()
    step = STEP / refine
    for _ in range(round(duration / step)):
        reaction = u * v * v
        change_u = DIFFUSION["u"] * _laplacian(u) - reaction + FEED * (1 - u)
        change_v = DIFFUSION["v"] * _laplacian(v) + reaction - (FEED + KILL) * v
        u += step * change_u
        v += step * change_v
    return {"u": u, "v": v}


def _laplacian(field: np.ndarray) -> np.ndarray:
    """Return the mean of the six neighbours less the field itself, as ADIOS2 has it."""
    around = np.pad(field, 1, mode="wrap")
    inner = slice(1, -1)
    total = -6 * field
    for axis in range(3):
        for side in (slice(None, -2), slice(2, None)):
            index = [inner] * 3
            index[axis] = side
            total += around[tuple(index)]
    return total / 6
