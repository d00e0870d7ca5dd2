"""What a checkpoint does to the run that resumes from it.

Protocols
---------
- *Restored*: test loss and accuracy of the restored state itself.
- *Rework*: the iterations that the exact run needed to come down by as much as the restored state's test
  loss lies above the exact one's, read off its own losses (made falling, straight lines between). The
  demo counts iterations until the loss is back; this is the same without the noise of single iterations.
- *Resumed*: training goes on from the restored state and from the exact one with the same batches, for
  several seeds of the batches; the gap is the difference of the two test losses.
- *Ten restores* (Inshrinkerator): in the last ten intervals of the run every checkpoint is restored as soon
  as it is written, and training goes on from what came back.
- *Impossible moments*: a first moment beyond what any gradients can make of its second one, most often a
  second moment that became 0 or negative. The next update would throw the weight away, so the second moment
  is raised to the least possible value before a run resumes, and such elements are counted.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from schemes import Scheme
from tasks import BETAS, FIRST_MOMENT, SECOND_MOMENT, Quality, Run, State, Task
from trajectories import SEED, Trajectory

__all__ = ["mended", "resumed", "rework", "ten_restores"]

RESTORES = 10

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


def rework(trajectory: Trajectory, loss: float) -> float:
    """Return how many iterations lie between the last state and one of the exact run with such a loss.

    At least 0; at most all iterations of the trajectory.
    """
    excess = loss - trajectory.losses[-1]
    if excess <= 0:
        return 0.0
    # The nearest falling sequence (pooling neighbours that are out of order).
    blocks: list[list[float]] = []  # mean loss, mean iteration, count
    for iteration, value in zip(trajectory.iterations, trajectory.losses, strict=True):
        blocks.append([value, float(iteration), 1])
        while len(blocks) > 1 and blocks[-2][0] <= blocks[-1][0]:
            value2, iteration2, count2 = blocks.pop()
            value1, iteration1, count1 = blocks.pop()
            count = count1 + count2
            blocks.append(
                [
                    (value1 * count1 + value2 * count2) / count,
                    (iteration1 * count1 + iteration2 * count2) / count,
                    count,
                ]
            )
    if len(blocks) == 1:
        return float(trajectory.iterations[-1])
    losses, iterations = np.array(blocks)[::-1, :2].T
    # From the last block on backwards in time: as far above its loss as the restored state's.
    back = np.interp(losses[0] + excess, losses, iterations[0] - iterations)
    return float(back) if losses[0] + excess <= losses[-1] else float(trajectory.iterations[-1])


def ten_restores(trajectory: Trajectory, scheme: Scheme) -> tuple[float, int]:
    """Return the test loss of the run that is restored ten times, and how many moments were mended."""
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
            state, count = mended(session.restore())
            total += count
            run.put_back(state, run.iteration)
            run.advance(later - run.iteration, SEED)
        return run.quality().loss, total
    finally:
        session.close()
