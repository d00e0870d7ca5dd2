"""One worker and two: saves of deltas, restores of a keyframe and of the deepest delta."""

from __future__ import annotations

import itertools
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import lccodec

from ..measure.figures import Figure
from ..measure.rounds import Job, measure
from ..speed.chains import About, copier, state_figures
from ..speed.savers import remove, savers
from .plan import Plan
from .states import Adam, State, small_arrays

__all__ = [
    "DEEPEST",
    "KEYFRAME",
    "POLICIES",
    "SAVE",
    "SECTION",
    "SMALL",
    "WORKERS",
    "Jobs",
    "Missing",
    "count",
    "crews",
    "restore",
    "row",
    "small",
    "write_deep",
]

SECTION, SMALL = "workers", "small arrays"
SAVE, KEYFRAME, DEEPEST = "save a delta", "restore a keyframe", "restore the deepest delta"
RESUME = "open, and restore a keyframe"  # workers start meanwhile
POLICIES = ("balanced", "lc-3", "lossless")
PEERS = ("torch.save", "Orbax")
WORKERS = (1, 2)
ONE_CHAIN = 1_000_000  # deltas without a keyframe

Missing = list[str]
Jobs = dict[tuple[str, str], Job]


def row(policy: str, workers: int | None) -> str:
    """Return the name of a row."""
    if workers is None:
        return f"{policy}, no workers"
    return f"{policy}, {count(workers)}"


def count(workers: int) -> str:
    """Return a number of workers in words."""
    return f"{workers} worker{'s' if workers > 1 else ''}"


class Saves:
    """A chain that alternates between two states: every save after the first is a delta."""

    def __init__(self, directory: Path, policy: str, workers: int | None, states: list[State]) -> None:
        self.chain = lccodec.Chain(
            directory, policy, workers=workers, keyframe_every=ONE_CHAIN, newest="history"
        )
        self.states = itertools.cycle(states)
        self.steps = itertools.count()
        self.save()
        self.save()

    def save(self) -> None:
        """Save the next step."""
        self.chain.save(next(self.steps), next(self.states))


def restore(directory: Path, step: int, workers: int | None) -> object:
    """Restore a step of a chain opened anew, workers too."""
    with lccodec.Chain(directory, workers=workers) as chain:
        return chain.restore(step)


def write_deep(directory: Path, policy: str, adam: Adam, depth: int) -> None:
    """Write a chain of a keyframe and so many deltas, with two workers."""
    state = adam.state(0)
    with lccodec.Chain(directory, policy, workers=2, keyframe_every=depth, newest="history") as chain:
        for step in range(depth + 1):
            adam.fill(step % len(adam), state)
            chain.save(step, state)
        if chain.info(depth).deltas != depth:
            raise SystemExit(f"{policy}: the deepest checkpoint is {chain.info(depth).deltas} deltas deep")


def crews(plan: Plan, adam: Adam) -> tuple[list[Figure], Missing]:
    """Measure each policy with one worker and with two, in the same rounds; torch and Orbax."""
    states = [adam.state(0), adam.state(1)]
    figures: list[Figure] = []
    depth = f"deepest of {plan.depth} deltas"
    case = f"{4 * adam.values / 1e6:,.0f} MB in {len(states[0]):,} float32 arrays, Adam of the GPT"
    for policy in POLICIES:
        with TemporaryDirectory(dir=plan.directory) as name:
            root = Path(name)
            saves = {n: Saves(root / str(n), policy, n, states) for n in WORKERS}
            jobs: Jobs = {(row(policy, n), SAVE): Job(saves[n].save) for n in WORKERS}
            timings = measure(jobs, copier(states[0]), plan.rounds)
            for one in saves.values():
                one.chain.close()
                remove(one.chain.directory)
            deep = root / "deep"
            write_deep(deep, policy, adam, plan.depth)
            places = ((KEYFRAME, 0), (DEEPEST, plan.depth))
            chains = {n: lccodec.Chain(deep, workers=n) for n in WORKERS}
            jobs = {
                (row(policy, n), action): Job(partial(chain.restore, step))
                for action, step in places
                for n, chain in chains.items()
            }
            for chain in chains.values():
                chain.restore(0)  # starts the workers
            timings |= measure(jobs, copier(states[0]), plan.rounds)
            jobs = {(row(policy, n), RESUME): Job(partial(restore, deep, 0, n)) for n in WORKERS}
            timings |= measure(jobs, copier(states[0]), plan.rounds)
            for chain in chains.values():
                chain.close()
        figures += state_figures(SECTION, f"{policy}, {depth}; {case}", states[0], timings, About())
    peers, absent = _peers(plan, case, states[0])
    return figures + peers, absent


def _peers(plan: Plan, case: str, state: State) -> tuple[list[Figure], Missing]:
    every, absent = savers()
    found = [saver for saver in every if saver.name in PEERS]
    with TemporaryDirectory(dir=plan.directory) as name:
        jobs: Jobs = {}
        for saver in found:
            path, kept = Path(name) / f"{saver.name}-save", Path(name) / f"{saver.name}-kept"
            saver.save_durably(state, kept)
            jobs[saver.name, "save"] = Job(partial(saver.save_durably, state, path), partial(remove, path))
            jobs[saver.name, KEYFRAME] = Job(partial(saver.load, kept))
        timings = measure(jobs, copier(state), plan.rounds)
    about = About(peers=tuple(saver.name for saver in found))
    figures = state_figures(SECTION, f"others, {case}", state, timings, about)
    return figures, [name for name in absent if name in PEERS]


def small(plan: Plan, adam: Adam) -> tuple[list[Figure], Missing]:
    """Save many small arrays without workers, with one, and with two."""
    states = [small_arrays(adam.run[step], plan.many) for step in (0, 1)]
    with TemporaryDirectory(dir=plan.directory) as name:
        saves = {n: Saves(Path(name) / str(n), "balanced", n, states) for n in (None, *WORKERS)}
        jobs: Jobs = {(row("balanced", n), SAVE): Job(one.save) for n, one in saves.items()}
        timings = measure(jobs, copier(states[0]), 4 * plan.rounds)
        for one in saves.values():
            one.chain.close()
    case = f"{plan.many:,} arrays of 1,000 float32"
    return state_figures(SMALL, case, states[0], timings, About()), []
