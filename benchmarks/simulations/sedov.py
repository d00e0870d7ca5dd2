"""A Sedov blast in two dimensions: energy at a point, and a shock that runs into still gas.

The solver has finite volumes, slopes of the primitive variables limited by minmod, HLL fluxes, and
two stages a time step (Heun). The box is periodic, so that mass, momentum and energy are conserved.

Sources: Sedov, "Similarity and Dimensional Methods in Mechanics", 1959; Toro, "Riemann Solvers and
Numerical Methods for Fluid Dynamics", 2009, chapters 10 and 14.
"""

from __future__ import annotations

import numpy as np

from .simulation import Simulation, State

__all__ = ["sedov"]

NAMES = ("density", "momentum_x", "momentum_y", "energy")
GAMMA = 1.4
AMBIENT_PRESSURE = 1e-5
LEAST_PRESSURE = 1e-12  # what rounding makes negative is this
BLAST_RADIUS_CELLS = 3.5
COURANT = 0.4


def sedov(cells: int) -> Simulation:
    """Return a blast of energy 1 in a unit square of `cells` x `cells`."""

    def start() -> State:
        place = (np.arange(cells) + 0.5) / cells - 0.5
        hot = np.hypot(place[:, None], place) < BLAST_RADIUS_CELLS / cells
        gas = np.zeros((4, cells, cells))
        gas[0] = 1.0
        gas[3] = AMBIENT_PRESSURE / (GAMMA - 1)
        gas[3][hot] = cells**2 / np.count_nonzero(hot)
        return dict(zip(NAMES, gas, strict=True))

    return Simulation(f"Sedov blast, {cells}^2", start, _advance, 0.06, 0.01, NAMES)


def _advance(state: State, duration: float, refine: int) -> State:
    gas = np.stack([state[name] for name in NAMES])
    width, left = 1 / gas.shape[1], duration
    while left > 0:
        primitive = _primitive(gas)
        speed = np.hypot(primitive[1], primitive[2]) + np.sqrt(GAMMA * primitive[3] / primitive[0])
        step = min(COURANT / refine * width / float(speed.max()), left)
        first = gas - step / width * _outflow(primitive)
        gas = (gas + first - step / width * _outflow(_primitive(first))) / 2
        left = left - step if step < left else 0.0
    return dict(zip(NAMES, gas, strict=True))


def _primitive(gas: np.ndarray) -> np.ndarray:
    """Return density, both velocities and pressure."""
    found = np.empty_like(gas)
    found[0] = gas[0]
    found[1:3] = gas[1:3] / gas[0]
    kinetic = (gas[1] * found[1] + gas[2] * found[2]) / 2
    found[3] = np.maximum((GAMMA - 1) * (gas[3] - kinetic), LEAST_PRESSURE)
    return found


def _outflow(primitive: np.ndarray) -> np.ndarray:
    """Return what leaves each cell, in units of its width."""
    total = np.zeros_like(primitive)
    for axis in (1, 2):
        ahead = np.roll(primitive, -1, axis) - primitive
        behind = np.roll(ahead, 1, axis)
        slope = np.where(np.abs(ahead) < np.abs(behind), ahead, behind) * (ahead * behind > 0)
        flux = _flux(primitive + slope / 2, np.roll(primitive - slope / 2, -1, axis), axis)
        total += flux - np.roll(flux, 1, axis)
    return total


def _flux(left: np.ndarray, right: np.ndarray, axis: int) -> np.ndarray:
    """Return the HLL flux through the faces between two states."""
    sides = []
    for side in (left, right):
        density, pressure, velocity = side[0], side[3], side[axis]
        energy = pressure / (GAMMA - 1) + density * (side[1] ** 2 + side[2] ** 2) / 2
        gas = np.stack([density, density * side[1], density * side[2], energy])
        flux = gas * velocity
        flux[axis] += pressure
        flux[3] += pressure * velocity
        sides.append((gas, flux, velocity, np.sqrt(GAMMA * pressure / density)))
    (gas_left, flux_left, v_left, c_left), (gas_right, flux_right, v_right, c_right) = sides
    slow = np.minimum(np.minimum(v_left - c_left, v_right - c_right), 0.0)
    fast = np.maximum(np.maximum(v_left + c_left, v_right + c_right), 0.0)
    mixed = fast * flux_left - slow * flux_right + fast * slow * (gas_right - gas_left)
    return mixed / (fast - slow)
