"""What runs have in common: data sets, the batches drawn from them, a loss and a schedule."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from ..networks.datasets import Split, load_mnist
from ..networks.tasks import load_text
from .training import Batch

__all__ = ["TEXT_TRAINED", "Data", "characters", "classified", "cosine", "digits"]

BATCH, TESTED, TEXT_TRAINED = 64, 1_000, 0.8


@dataclass(frozen=True)
class Data:
    """The data sets: digits, and a text as numbers of characters."""

    train: Split
    test: Split
    text: np.ndarray

    @classmethod
    @functools.cache  # they are read once
    def load(cls, directory: Path) -> Data:
        """Read them from a folder."""
        return cls(*load_mnist(directory), load_text(directory))


def digits(data: Data) -> tuple[Batch, tuple[torch.Tensor, torch.Tensor]]:
    """Return batches of images and labels, and those of the test."""

    def batch(generator: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        chosen = generator.integers(len(data.train.labels), size=BATCH)
        return torch.from_numpy(data.train.images[chosen]), torch.from_numpy(data.train.labels[chosen])

    test = torch.from_numpy(data.test.images[:TESTED]), torch.from_numpy(data.test.labels[:TESTED])
    return batch, test


def characters(
    data: Data, context: int, pieces: int, part: slice = slice(None)
) -> tuple[Batch, tuple[torch.Tensor, torch.Tensor]]:
    """Return batches of pieces of the text with what follows each character, and the test's."""
    end = int(TEXT_TRAINED * len(data.text))
    text = data.text[:end][part]

    def cut(source: np.ndarray, starts: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        found = torch.from_numpy(source[starts[:, None] + np.arange(context + 1)])
        return found[:, :-1].contiguous(), found[:, 1:].contiguous()

    def batch(generator: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        return cut(text, generator.integers(len(text) - context - 1, size=pieces))

    starts = np.linspace(end, len(data.text) - context - 2, 4_000 // context).astype(np.int64)
    return batch, cut(data.text, starts)


def classified(model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the cross entropy of classes or of next characters."""
    return functional.cross_entropy(model(inputs).flatten(0, -2), targets.flatten())


def cosine(total: int) -> Callable[[int], float]:
    """Return a schedule that rises for 20 iterations, and falls to a tenth over `total`."""

    def factor(iteration: int) -> float:
        falling = 0.55 + 0.45 * math.cos(math.pi * min(iteration / total, 1.0))
        return min(1.0, iteration / 20) * falling

    return factor
