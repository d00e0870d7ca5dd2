"""The run of LeNet-5 on MNIST whose states are measured: plain SGD, no optimizer state."""

from __future__ import annotations

import numpy as np
import torch
from torch.nn import functional

from .datasets import Split
from .models import LeNet5

__all__ = ["BATCH", "LEARNING_RATE", "State", "train"]

BATCH = 64
LEARNING_RATE = 0.1

State = dict[str, np.ndarray]


def train(split: Split, checkpoints: int, every: int, seed: int) -> list[State]:
    """Train with plain SGD and return the state after every `every` iterations."""
    torch.manual_seed(seed)
    network = LeNet5()
    optimizer = torch.optim.SGD(network.parameters(), lr=LEARNING_RATE)
    images, labels = torch.from_numpy(split.images), torch.from_numpy(split.labels)
    order = np.random.default_rng(seed)
    states: list[State] = []
    queue = np.empty(0, np.int64)
    for iteration in range(1, checkpoints * every + 1):
        if queue.size < BATCH:
            queue = order.permutation(len(labels))
        batch, queue = torch.from_numpy(queue[:BATCH]), queue[BATCH:]
        optimizer.zero_grad()
        functional.cross_entropy(network(images[batch]), labels[batch]).backward()
        optimizer.step()
        if iteration % every == 0:
            states.append({name: t.detach().numpy().copy() for name, t in network.state_dict().items()})
    return states
