"""Runs that are broken on purpose at one step, each in one way.

Every fault keeps what a run's state says of itself: no learning rate is stored that would tell.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import nn

import lccodec

from ..networks.datasets import Split
from ..networks.tasks import Run, Task, nested, task

__all__ = ["FAULTS", "RUNS", "BrokenRun", "save_run"]

#: What is broken, by the networks that can have it. Text has no classes to put in order.
FAULTS = {
    "dead layer": ("momentum", "batchnorm", "gpt"),
    "exploding rate": ("momentum", "batchnorm", "gpt"),
    "data in order": ("momentum", "batchnorm"),
    "other optimizer": ("momentum", "batchnorm", "gpt"),
}
#: The networks, as tables name them.
RUNS = {
    "momentum": "LeNet-5, SGD with momentum",
    "batchnorm": "BatchNorm, SGD",
    "gpt": "GPT of two blocks, AdamW",
}
EXPLODED = 30  # times the learning rate
DEAD = -50.0  # a bias that no input gets past


class InOrder(Task):
    """A task whose images come class by class."""

    def batch_of(self, seed: int, iteration: int) -> tuple[torch.Tensor, torch.Tensor]:  # noqa: ARG002
        """Return the next images of those that are sorted by their labels, whatever the seed."""
        assert isinstance(self.train, Split)
        order = np.argsort(self.train.labels, kind="stable")
        chosen = order[(np.arange(self.batch) + iteration * self.batch) % len(order)]
        return torch.from_numpy(self.train.images[chosen]), torch.from_numpy(self.train.labels[chosen])


class BrokenRun(Run):
    """A run that can be broken.

    Parameters
    ----------
    task, seed
        As for `Run`.
    """

    def break_(self, fault: str) -> None:
        """Have a fault, one of `FAULTS`, from here on."""
        if fault == "dead layer":
            with torch.no_grad():
                _bias(self.network).fill_(DEAD)
        elif fault == "exploding rate":
            self.task = dataclasses.replace(self.task, learning_rate=EXPLODED * self.task.learning_rate)
        elif fault == "data in order":
            self.task = InOrder(**vars(self.task))
        elif self.task.adam:
            self.task = dataclasses.replace(self.task, adam=False, momentum=0.9, learning_rate=0.02)
            self.optimizer = torch.optim.SGD(self.parameters.values(), lr=0.02, momentum=0.9)
        else:
            self.task = dataclasses.replace(self.task, adam=True, momentum=0.0, learning_rate=1e-3)
            self.optimizer = torch.optim.AdamW(self.parameters.values(), 1e-3)


def _bias(network: nn.Module) -> torch.Tensor:
    """Return a bias in front of a ReLU or GELU in the middle of a network."""
    layers = dict(network.named_modules())
    layer = next(layers[name] for name in ("fc1", "features.4", "blocks.1.up") if name in layers)
    return layer.bias  # type: ignore[return-value]


def save_run(
    directory: Path,
    data: Path,
    name: str,
    fault: str | None,
    *,
    seed: int,
    at: int,
    saves: int,
    every: int,
    policy: str = "balanced",
) -> None:
    """Train a network of `RUNS`, break it after `at` saves, and keep it as a chain.

    The mean loss of the batches since the save before goes along as a metric.
    """
    run = BrokenRun(task(name, data, quick=name == "gpt"), seed)
    with lccodec.Chain(directory, policy=policy) as chain:
        for number, metrics in enumerate(_trained(run, fault, seed=seed, at=at, saves=saves, every=every)):
            chain.save(number * every, nested(run.state()), metrics=metrics)


def _trained(
    run: BrokenRun, fault: str | None, *, seed: int, at: int, saves: int, every: int
) -> Iterator[dict[str, float]]:
    for number in range(saves):
        yield {"train_loss": run.loss} if number else {}
        if fault and number == at:
            run.break_(fault)
        run.advance(every, seed)
