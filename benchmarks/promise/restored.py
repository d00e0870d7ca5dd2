"""A run is saved with several policies, and goes on from what each restored: losses and sizes.

Protocol
--------
At each point of a run, a chain of its own for each policy and interval has saved the last
`CHECKPOINTS` states before it, all roles as the policy says and nothing exact beside them. Then the
run goes on from the restored state, from the exact one, and from the exact state of one interval
before, which is put back as if it were of the point itself: with the same batches, for several
seeds of them. The test losses after `MARKS` further iterations are averaged.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

import lccodec
from lccodec.container.tree import flatten
from lccodec.element_types import components, work
from lccodec.policy.presets import resolve_policy

from .kinds import Data, Kind
from .training import State, Training

__all__ = [
    "EXACT",
    "LOOK",
    "MARKS",
    "PARAMETERS",
    "STALE",
    "Outcome",
    "array_bytes",
    "error_and_lag",
    "gone_on",
    "measure",
    "outcomes",
    "trained",
]

EXACT, STALE = "exact", "exact, one interval older"
CHECKPOINTS = 24
MARKS = (40, 50, 60)
WEIGHTS = {"model", "params"}  # first words of their names
LOOK = 10  # iterations between two losses of the curve of the run
PARAMETERS = 0  # seed of the initial parameters; those of batches begin with 1


@dataclass(frozen=True)
class Outcome:
    """What came of one state at one point.

    Parameters
    ----------
    kind, every, point
        Of the run: its interval and its iteration.
    policy
        What it was saved with, `EXACT` or `STALE`.
    losses
        Test loss of each seed of the batches after it went on.
    delta_ratio, chain_ratio
        Bytes of the state's arrays over those of a delta on the disk, and over the mean of all
        files of the chain, keyframe included.
    error, lag
        Of the weights, in movements of the last interval: the root mean square error, and how far
        the state lies behind.
    curve
        Of `EXACT`: iterations and test losses of the run itself.
    untrained
        Test loss of the state itself, before the run went on; NaN if it was not computed.
    """

    kind: str
    every: int
    point: int
    policy: str
    losses: tuple[float, ...]
    delta_ratio: float = 1.0
    chain_ratio: float = 1.0
    error: float = 0.0
    lag: float = 0.0
    curve: tuple[tuple[int, float], ...] = ()
    untrained: float = math.nan


def file_of(cache: Path, kind: str, every: int, point: int, policy: str, seeds: int) -> Path:
    """Return where an outcome is kept."""
    return cache / "promise" / f"{kind}-{every}-{point}-{policy}-{seeds}.json".replace(" ", "_")


def outcomes(cache: Path, kind: Kind, policies: Mapping[str, Any], seeds: int) -> Iterator[Outcome]:
    """Yield what was measured of a kind."""
    for every, point in kind.places:
        for policy in (EXACT, STALE, *policies):
            path = file_of(cache, kind.name, every, point, policy, seeds)
            if path.exists():
                found = json.loads(path.read_text())
                yield Outcome(**{**found, "curve": tuple(map(tuple, found["curve"]))})


def measure(kind: Kind, data: Data, cache: Path, policies: Mapping[str, Any], seeds: int) -> None:
    """Train a run of a kind, and measure at its points what is not measured yet."""
    missing = [
        (every, point, policy)
        for every, point in kind.places
        for policy in (EXACT, STALE, *policies)
        if not file_of(cache, kind.name, every, point, policy, seeds).exists()
    ]
    if not missing:
        return
    run, other = kind.make(data, PARAMETERS), kind.make(data, PARAMETERS)
    last = max(kind.points) + max(MARKS)
    wanted = {i for every, point, _ in missing for i in _saved(every, point)}
    states, curve = trained(run, wanted, last)
    exact: dict[int, tuple[float, ...]] = {}
    for every, point, policy in missing:
        before, now = states[point - every], states[point]
        if policy == EXACT:
            if point not in exact:
                exact[point] = gone_on(other, now, point, seeds)
            found = Outcome(kind.name, every, point, policy, exact[point], curve=tuple(curve))
        elif policy == STALE:
            found = Outcome(kind.name, every, point, policy, gone_on(other, before, point, seeds))
        else:
            saved = {i: states[i] for i in _saved(every, point)}
            sizes, restored = _through_a_chain(run, saved, _judged(policies[policy], other))
            figures = dict(zip(("error", "lag"), error_and_lag(run, restored, now, before), strict=True))
            losses = gone_on(other, restored, point, seeds)
            found = Outcome(kind.name, every, point, policy, losses, *sizes, **figures)
        path = file_of(cache, kind.name, every, point, policy, seeds)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(found)) + "\n")


def trained(
    run: Training, wanted: Collection[int], last: int
) -> tuple[dict[int, State], list[tuple[int, float]]]:
    """Train a run; return its states at 0 and where they are wanted, and its curve of losses."""
    states, curve = {0: run.state()}, []
    for iteration in sorted({*wanted, *range(0, last + 1, LOOK)}):
        run.advance(iteration, PARAMETERS)
        if iteration in wanted:
            states[iteration] = run.state()
        if iteration % LOOK == 0:
            curve.append((iteration, run.loss()))
    return states, curve


def _saved(every: int, point: int) -> list[int]:
    return [i for i in range(point % every, point + 1, every) if i > 0][-CHECKPOINTS:]


def gone_on(run: Training, state: State, point: int, seeds: int) -> tuple[float, ...]:
    """Return the test loss of each seed after the run went on from a state."""
    losses = []
    for seed in range(1, seeds + 1):
        run.put_back(state, point)
        found = []
        for mark in MARKS:
            run.advance(point + mark, seed)
            found.append(run.loss())
        losses.append(fmean(found))
    return tuple(losses)


def _judged(policy: Any, run: Training) -> Any:
    """Return a policy that promises intervals with the test loss as its judge; else itself."""
    resolved = resolve_policy(policy)
    if not isinstance(resolved, lccodec.Balanced) or resolved.intervals is None:
        return policy

    def loss(state: State) -> float:
        run.put_back(state, run.iteration)
        return run.loss()

    return replace(resolved, loss=loss)


def _through_a_chain(
    run: Training, states: Mapping[int, State], policy: Any
) -> tuple[tuple[float, float], State]:
    """Return the ratios of deltas and of the whole chain, and the last state as restored."""
    with tempfile.TemporaryDirectory() as name:
        with lccodec.Chain(name, policy, newest="history", adapter=run.adapter) as chain:
            for iteration, state in states.items():
                chain.save(iteration, state)
        with lccodec.Chain(name, adapter=run.adapter) as chain:  # opened anew: nothing from memory
            infos = [chain.info(step) for step in chain.steps]
            restored = chain.restore()
    whole = float(array_bytes(run, restored))
    deltas = [info.file_bytes for info in infos if info.parent is not None]
    return (whole / fmean(deltas), whole / fmean(info.file_bytes for info in infos)), restored


def array_bytes(run: Training, state: State) -> int:
    """Return the bytes of all arrays of a state."""
    return sum(array.nbytes for array in _arrays(run, state).values())


def _arrays(run: Training, state: State) -> dict[str, np.ndarray]:
    """Return the arrays of a state by name."""
    flat = flatten(run.adapter.to_numpy(state)[0])
    return {name: np.asarray(array) for name, array in zip(flat.names, flat.arrays, strict=True)}


def error_and_lag(run: Training, restored: State, now: State, before: State) -> tuple[float, float]:
    """Return error and lag of the weights, in movements."""
    got, exact, old = (
        {n: work(bits, kind) for n, a in _arrays(run, state).items() for kind, bits in [components(a)]}
        for state in (restored, now, before)
    )
    weights = [n for n, a in exact.items() if n.split("/")[0] in WEIGHTS and a.dtype.kind == "f"]
    errors = np.concatenate([(got[n].astype(float) - exact[n]).ravel() for n in weights])
    moved = np.concatenate([(exact[n].astype(float) - old[n]).ravel() for n in weights])
    square = float(moved @ moved)
    return (float(errors @ errors) / square) ** 0.5, -float(errors @ moved) / square
