"""What a checkpoint does to the run that resumes from it.

Protocols
---------
- *Restored*: test loss and accuracy of the restored state itself.
- *Resumed*: training goes on from the restored state and from the exact one with the same batches,
  for several seeds of the batches; the gap is the difference of the two test losses.
- *Rework*: the gap after the first mark in iterations of the exact run, by the slope of its resumed
  runs. A restored state's own loss does not tell: a state that trails a noisy run averages it, and
  so tests better than the one that was saved, while it has further to go. After some iterations
  that is gone.
- *Ten restores* (Inshrinkerator): in the last ten intervals of the run every checkpoint is restored
  as soon as it is written, and training goes on from what came back.
- *Ten restores apart*: a run is restored ten times, ten checkpoints apart, and goes on for ten more
  checkpoints. Its losses there are compared with those of the exact run on the same batches.
- *Impossible moments*: a first moment beyond what any gradients can make of its second one, most
  often a second moment that became 0 or negative. The next update would throw the weight away, so
  the second moment is raised to the least possible value before a run resumes, and such elements
  are counted.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..networks.tasks import BETAS, FIRST_MOMENT, SECOND_MOMENT, Quality, Run, State, Task
from ..networks.trajectories import SEED, Trajectory
from ..schemes.session import Scheme

__all__ = ["mended", "quality", "resumed", "ten_restores", "ten_restores_apart"]

RESTORES = 10
APART = 10  # checkpoints between two restores

# By Cauchy and Schwarz |m| is at most this many times sqrt(v); the margin is for rounding.
STEEPEST = (1 - BETAS[0]) / np.sqrt((1 - BETAS[1]) * (1 - BETAS[0] ** 2 / BETAS[1])) * 1.001


def mended(state: State) -> tuple[State, int]:
    """Return a state whose second moments are possible ones, and how many were not."""
    state, count = dict(state), 0
    for name, second in state.items():
        if name.startswith(f"{SECOND_MOMENT}/"):
            first = state[f"{FIRST_MOMENT}/{name.split('/', 1)[1]}"]
            least = np.square(first / np.float32(STEEPEST))
            impossible = ~(second >= least)
            found = int(impossible.sum())
            if found:
                count += found
                state[name] = np.where(impossible, least, second)
    return state, count


def quality(task: Task, state: State) -> Quality:
    """Return how well a state does on the test data."""
    run = Run(task)
    run.put_back(state, 0)
    return run.quality()


def resumed(task: Task, state: State, iteration: int, seed: int, marks: Sequence[int]) -> list[float]:
    """Return the test losses after each of `marks` further iterations on the batches of a seed."""
    run = Run(task)
    run.put_back(state, iteration)
    losses = []
    for mark in sorted(marks):
        run.advance(iteration + mark - run.iteration, seed)
        losses.append(run.quality().loss)
    return losses


def ten_restores(trajectory: Trajectory, scheme: Scheme) -> tuple[float, int]:
    """Return the test loss of a run restored ten times, and how many moments were mended."""
    task, iterations = trajectory.task, trajectory.iterations
    first = max(0, len(iterations) - RESTORES - 2)
    session = scheme.open()
    run = Run(task)
    try:
        session.start(trajectory.state(iterations[first]))
        run.put_back(trajectory.state(iterations[first + 1]), iterations[first + 1])
        total = 0
        for later in iterations[first + 2 :]:
            session.save(run.state())
            state, count = mended(session.resume())
            total += count
            run.put_back(state, run.iteration)
            run.advance(later - run.iteration, SEED)
        return run.quality().loss, total
    finally:
        session.close()


def ten_restores_apart(trajectory: Trajectory, scheme: Scheme | None, seed: int) -> tuple[list[float], int]:
    """Return the test loss at each checkpoint after the last of ten restores, and mendings.

    Parameters
    ----------
    trajectory
        Its first state is where the run begins.
    scheme
        Of the checkpoints; ``None`` for the exact run, which is never restored.
    seed
        Of the batches.
    """
    task, (first, second, *_) = trajectory.task, trajectory.iterations
    run = Run(task)
    run.put_back(trajectory.state(first), first)
    session = scheme.open() if scheme else None
    losses, total = [], 0
    try:
        if session:
            session.start(run.state())
        for checkpoint in range(1, APART * (RESTORES + 1) + 1):
            run.advance(second - first, seed)
            if checkpoint > APART * RESTORES:
                losses.append(run.quality().loss)
            if session:
                session.save(run.state())
                if checkpoint % APART == 0 and checkpoint <= APART * RESTORES:
                    state, count = mended(session.resume())
                    total += count
                    run.put_back(state, run.iteration)
        return losses, total
    finally:
        if session:
            session.close()
