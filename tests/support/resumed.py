"""Runs that go on from a restored state, beside the run that was never interrupted.

A task has parameters whose elements differ: curvatures and noise over two powers of ten, rows that
get no gradient, and rows whose gradient hardly changes. The gradients of a step are a function of
the parameters and of the number of the step. So two runs differ only by their states.

An update of a run that goes on from a restored state is at least half as large, and at most twice
as large, as that of the uninterrupted run.
"""

import copy
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np

import lccodec

from .profiles import LONG

Arrays = dict[str, np.ndarray]

#: The presets that lose something; by default those that lose most of the two kinds.
PRESETS = [name for name, policy in lccodec.POLICIES.items() if policy.roles] if LONG else ["lc-3", "small"]

SHAPES = {"table": (24, 16), "kernel": (16, 20), "bias": (300,)}
SAVED = range(300, 309, 4)  # a keyframe and two deltas, of moments that have come to rest
FURTHER = 5


def parameters() -> Arrays:
    rng = np.random.default_rng(1)
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in SHAPES.items()}


@cache
def landscape(index: int, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the curvature, the spread of the noise and the lowest point of a parameter's loss."""
    fixed = np.random.default_rng(index)
    return 10 ** fixed.uniform(-2, 0, shape), 10 ** fixed.uniform(-2, 0, shape), fixed.normal(size=shape)


@cache  # every run takes the same steps
def noise(index: int, step: int, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return the noise of a step in all rows, and in those whose gradient hardly changes."""
    rng = np.random.default_rng((index, step))
    return rng.normal(size=shape), rng.normal(size=(shape[0] // 8, *shape[1:]))


def gradients(values: Arrays, step: int) -> Arrays:
    """Return the gradients of a quadratic loss with noise, of parameters at a step."""
    found = {}
    for index, (name, value) in enumerate(values.items()):
        curvature, spread, lowest = landscape(index, value.shape)
        everywhere, little = noise(index, step, value.shape)
        gradient = curvature * (value - lowest) + spread * everywhere
        eighth = len(gradient) // 8
        gradient[:eighth] = 0  # such as words that did not occur
        gradient[eighth : 2 * eighth] = spread[:eighth] * (1 + 0.01 * little)  # nearly the same at every step
        found[name] = gradient.astype(value.dtype)
    return found


def further_updates(advance: Callable[[int], Arrays], first: int) -> list[Arrays]:
    """Return the updates of some steps; `advance` makes a step and returns the parameters."""
    states = [advance(step) for step in range(first, first + FURTHER + 1)]
    return [{n: after[n] - before[n] for n in after} for before, after in pairwise(states)]


def problems(found: list[Arrays], exact: list[Arrays]) -> list[str]:
    """Return which updates are not finite, or too large or too small beside the exact ones."""
    assert all(np.isfinite(update).all() for updates in exact for update in updates.values())
    bad = []
    for number, (updates, expected) in enumerate(zip(found, exact, strict=True)):
        for name, update in updates.items():
            size, wanted = (float(np.linalg.norm(each[name].astype(float))) for each in (updates, expected))
            if not np.isfinite(update).all():
                bad.append(f"{name}, step {number}: {np.count_nonzero(~np.isfinite(update))} not finite")
            elif not wanted / 2 <= size <= wanted * 2:
                bad.append(f"{name}, step {number}: {size:.3g}, not {wanted:.3g}")
    return bad


class Run(Protocol):
    """What trains the parameters of the task."""

    def advance(self, step: int, /) -> Arrays: ...

    def state(self) -> Any: ...

    def load(self, state: Any, /) -> None: ...


def check_updates(run: Run, directory: Path, adapter: Any) -> None:
    """Restore a first keyframe and a last delta, lossy the newest too; go on from each."""
    states, wanted = {}, {}
    for step in range(max(SAVED) + 1):
        if step in SAVED:
            states[step] = copy.deepcopy(run.state())
        run.advance(step)
    for step, state in states.items():
        run.load(copy.deepcopy(state))
        wanted[step] = further_updates(run.advance, step)
    for preset in PRESETS:
        with lccodec.Chain(directory / preset, preset, adapter=adapter, newest="history") as chain:
            for step, state in states.items():
                chain.save(step, state)
            for step in (chain.steps[0], chain.steps[-1]):
                run.load(chain.restore(step))
                bad = problems(further_updates(run.advance, step), wanted[step])
                assert bad == [], f"{preset}, {step}: {bad}"
