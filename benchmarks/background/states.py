"""States of any size: weights and Adam's moments of the GPT, from a real run.

A state holds the network again and again. Every repeat has its rows in another order, and another
scale: an equally real network, in which no compressor finds the first one again.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np

__all__ = ["Adam", "State", "small_arrays", "train", "views"]

State = dict[str, np.ndarray]

EVERY = 20  # iterations between two states
ROLES = {"model": 1, "exp_avg": 1, "exp_avg_sq": 2}  # power of a repeat's scale
SMALL = 1_000  # values of each of many arrays


class Adam:
    """The states of a run, repeated.

    Parameters
    ----------
    run
        States of one network, in order, with names such as ``exp_avg.blocks.0.up.weight``.
    values
        Of a state, about: the last repeat has as many parameters as it takes.
    """

    def __init__(self, run: list[State], values: int) -> None:
        self.run = run
        names = [name.removeprefix("model.") for name in run[0] if name.startswith("model.")]
        self.places: dict[str, tuple[str, int, int]] = {}  # name, repeat, power of its scale
        size = repeat = 0
        while size < values:
            for name in names:
                if size >= values:
                    break
                for role, power in ROLES.items():
                    self.places[f"{role}.{repeat:03}.{name}"] = f"{role}.{name}", repeat, power
                size += 3 * run[0][f"model.{name}"].size
            repeat += 1
        self.values = size

    def __len__(self) -> int:
        return len(self.run)

    def state(self, step: int) -> State:
        """Return the state of a step."""
        state = {name: np.empty_like(self.run[step][source]) for name, (source, _, _) in self.places.items()}
        self.fill(step, state)
        return state

    def fill(self, step: int, state: State) -> None:
        """Write the values of a step over a state."""
        for name, (source, repeat, power) in self.places.items():
            array, target = self.run[step][source], state[name]
            if repeat == 0:  # the first is the network itself
                np.copyto(target, array)
                continue
            order, scale = _order(repeat, len(array))
            np.take(array, order, axis=0, out=target)
            target *= scale**power


@cache
def _order(repeat: int, rows: int) -> tuple[np.ndarray, np.float32]:
    """Return the order of the rows of a repeat, and its scale."""
    scale = np.float32(np.random.default_rng(repeat).uniform(0.8, 1.25))
    return np.random.default_rng((repeat, rows)).permutation(rows), scale


def views(run: object) -> State:
    """Return the state of a training run as it lies in memory: the next step changes it."""
    network, optimizer = run.network, run.optimizer  # type: ignore[attr-defined]
    found = {f"model.{name}": parameter for name, parameter in network.named_parameters()}
    for name, parameter in network.named_parameters():
        for role in ("exp_avg", "exp_avg_sq"):
            found[f"{role}.{name}"] = optimizer.state[parameter][role]
    return {name: tensor.detach().numpy() for name, tensor in found.items()}


def train(data: Path, count: int, *, quick: bool) -> Iterator[State]:
    """Train the GPT, and yield so many states."""
    import torch

    from ..networks.tasks import Run, task

    torch.set_num_threads(1)
    run = Run(task("gpt", data, quick=quick))
    for _ in range(count):
        run.advance(EVERY, seed=0)
        yield {name: array.copy() for name, array in views(run).items()}


def small_arrays(state: State, count: int) -> State:
    """Return a state of `count` arrays of `SMALL` values, from the weights of another one."""
    weights = [array.reshape(-1) for name, array in state.items() if name.startswith("model.")]
    values = np.concatenate(weights)
    values = np.resize(values, count * SMALL).reshape(count, SMALL)
    return {f"layer{number:05}.weight": row.copy() for number, row in enumerate(values)}
