"""The states of a training run, made once and kept, so that all schemes meet the same ones."""

from __future__ import annotations

import hashlib
import inspect
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from . import models, tasks
from .tasks import Run, State, Task

__all__ = ["Trajectory", "trajectory"]

SEED = 0  # of the initial parameters and of the batches


@dataclass(frozen=True)
class Trajectory:
    """The states of a run after every so many iterations, in a folder, one ``.npz`` each.

    Parameters
    ----------
    task
        What was trained.
    directory
        Of the files.
    iterations
        Those that were saved, rising.
    losses
        Test loss at each of them.
    """

    task: Task
    directory: Path
    iterations: tuple[int, ...]
    losses: tuple[float, ...]

    def state(self, iteration: int) -> State:
        """Return the state after so many iterations."""
        with np.load(self.directory / f"{iteration}.npz") as file:
            return {name: file[name] for name in file.files}

    def states(self) -> Iterator[tuple[int, State]]:
        """Yield iterations and states."""
        for iteration in self.iterations:
            yield iteration, self.state(iteration)

    def part(self, every: int, until: int) -> Trajectory:
        """Return what a run has that saves every `every` iterations and ends with `until`."""
        kept = [i for i, n in enumerate(self.iterations) if n % every == 0 and n <= until]
        pick = tuple(self.iterations[i] for i in kept), tuple(self.losses[i] for i in kept)
        return Trajectory(self.task, self.directory, *pick)


def trajectory(
    task: Task, cache: Path, checkpoints: int, every: int, *, start: State | None = None
) -> Trajectory:
    """Return the trajectory of a task, from the cache where it is there.

    Parameters
    ----------
    task
        What is trained.
    cache
        Folder; the trajectory has a folder of its own in it, whose name tells everything that made
        it.
    checkpoints, every
        How many states, how many iterations apart; the first after `every` iterations, or at 0
        where there is a `start`.
    start
        State whose weights training starts from, with moments of zero; as initialised by default.
    """
    made_of = [task.name, checkpoints, every, task.batch, task.learning_rate, torch.__version__]
    made_of += [inspect.getsource(models), inspect.getsource(tasks), len(_inputs(task)), start is None]
    if start is not None:
        made_of += [array.tobytes() for name, array in sorted(start.items())]
    key = hashlib.sha256(repr(made_of).encode()).hexdigest()[:12]
    directory = cache / f"{task.name}-every-{every}-{key}"
    index = directory / "index.json"
    if not index.exists():
        _train(task, directory, checkpoints, every, start)
    found = json.loads(index.read_text())
    return Trajectory(task, directory, tuple(found["iterations"]), tuple(found["losses"]))


def _inputs(task: Task) -> np.ndarray:
    return task.train.labels if isinstance(task.train, tasks.Split) else task.train


def _train(task: Task, directory: Path, checkpoints: int, every: int, start: State | None) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    run = Run(task, SEED)
    if start is not None:
        run.put_back(
            {n: a if tasks.role(n) == tasks.WEIGHT else np.zeros_like(a) for n, a in start.items()}, 0
        )
    iterations, losses = [], []
    for number in range(checkpoints):
        if number or start is None:
            run.advance(every, SEED)
        np.savez(directory / f"{run.iteration}.npz", **run.state())
        iterations.append(run.iteration)
        losses.append(run.quality().loss)
    # Written last: a folder without it was cut short and is made anew.
    (directory / "index.json").write_text(json.dumps({"iterations": iterations, "losses": losses}) + "\n")
