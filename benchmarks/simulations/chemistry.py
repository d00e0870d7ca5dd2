"""Quantum chemistry by PySCF: Hartree-Fock, density functional theory and coupled clusters.

A state is what these programs keep in their checkpoints: orbitals, a density matrix, amplitudes;
and the density on a grid. A run goes on from it until it has converged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .simulation import State

__all__ = ["Outcome", "Restart", "chemistry", "density"]

ETHANOL = """
C -0.748 -0.015 0.024; C 0.558 0.420 -0.278; O 1.293 -0.202 -1.302; H -1.293 -0.202 0.901
H -1.263 0.754 -0.600; H -0.699 -0.934 -0.609; H 0.716 1.404 0.137; H 1.108 -0.312 0.552
H 1.260 -1.165 -1.164
"""
WATER = "O 0 0 0.1173; H 0 0.7572 -0.4692; H 0 -0.7572 -0.4692"
CONVERGED = 1e-10  # hartree, from an iteration to the next


@dataclass(frozen=True)
class Outcome:
    """How a run that goes on from a state ends."""

    energy: float  # hartree
    iterations: int
    converged: bool


@dataclass(frozen=True)
class Restart:
    """A method and a molecule: `states` are of iterations, early ones first."""

    name: str
    states: list[State]
    run: Any  # of a state, to an `Outcome`


def chemistry(*, small: bool) -> list[Restart]:
    """Return the three methods; raise ``ImportError`` without PySCF."""
    from pyscf import cc, dft, gto, lib, scf

    lib.num_threads(1)
    molecule = gto.M(atom=WATER if small else ETHANOL, basis="sto-3g" if small else "6-31g*", verbose=0)
    hartree_fock = scf.RHF(molecule)
    functional = dft.RKS(molecule)
    functional.xc = "b3lyp"
    functional.grids.level = 0 if small else 1
    fields = [_self_consistent("RHF", hartree_fock), _self_consistent("B3LYP", functional)]
    clusters = cc.CCSD(hartree_fock)
    clusters.conv_tol = CONVERGED
    clusters.conv_tol_normt = 1e-7
    clusters.max_cycle = 100

    def go_on(state: State | None) -> tuple[Outcome, list[State]]:
        seen: list[State] = []

        def note(local: dict[str, Any]) -> None:
            seen.append({name: np.array(local[name + "new"]) for name in ("t1", "t2")})

        clusters.callback = note
        given = {} if state is None else {name: state[name] for name in ("t1", "t2")}
        clusters.kernel(**given)
        return Outcome(float(clusters.e_tot), len(seen), bool(clusters.converged)), seen

    seen = go_on(None)[1]
    states = _middle(seen)
    return [*fields, Restart("CCSD amplitudes", states, lambda state: go_on(state)[0])]


def density(*, small: bool) -> State:
    """Return the density of the electrons on a grid of points, and the highest orbital."""
    from pyscf import dft, gto, scf

    molecule = gto.M(atom=WATER if small else ETHANOL, basis="sto-3g" if small else "6-31g*", verbose=0)
    solver = scf.RHF(molecule).run()
    place = molecule.atom_coords()
    count = 16 if small else 64
    axes = [
        np.linspace(low - 4, high + 4, count) for low, high in zip(place.min(0), place.max(0), strict=True)
    ]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 3)
    orbitals = np.concatenate([dft.numint.eval_ao(molecule, part) for part in np.array_split(points, 64)])
    matrix = solver.make_rdm1()
    highest = solver.mo_coeff[:, molecule.nelectron // 2 - 1]
    shape = (count,) * 3
    return {
        "density": np.einsum("pi,pi->p", orbitals @ matrix, orbitals).reshape(shape),
        "orbital": (orbitals @ highest).reshape(shape),
    }


def _self_consistent(name: str, solver: Any) -> Restart:
    solver.conv_tol = CONVERGED

    def go_on(state: State | None) -> tuple[Outcome, list[State]]:
        seen: list[State] = []

        def note(local: dict[str, Any]) -> None:
            kept = {"orbitals": "mo_coeff", "density": "dm"}
            seen.append({ours: np.array(local[theirs]) for ours, theirs in kept.items()})

        solver.callback = note
        solver.kernel(dm0=None if state is None else state["density"])
        return Outcome(float(solver.e_tot), len(seen), bool(solver.converged)), seen

    states = _middle(go_on(None)[1])
    return Restart(f"{name} density matrix and orbitals", states, lambda state: go_on(state)[0])


def _middle(states: list[State]) -> list[State]:
    """Return up to four states of iterations that end halfway."""
    half = len(states) // 2
    return states[max(half - 3, 0) : half + 1]
