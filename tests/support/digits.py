"""States of a network that learns handwritten digits with Adam: a real run, in a second."""

from functools import cache

import numpy as np

from lccodec.cli.demonstration import LEARNING_RATE, Network, Task

State = dict[str, dict[str, np.ndarray]]


@cache
def adam_digits(count: int, every: int = 4) -> tuple[State, ...]:
    """States after `every` iterations each; the largest array has 173,056 weights."""
    task, network, states = Task(), Network.initial(), []
    m, v = np.zeros_like(network.vector), np.zeros_like(network.vector)
    for iteration in range(1, every * count + 1):
        before = network.vector.copy()
        task.train(network, iteration)
        gradient = (before - network.vector) / LEARNING_RATE
        m, v = 0.9 * m + 0.1 * gradient, 0.99 * v + 0.01 * gradient**2
        scaled = m / (1 - 0.9**iteration), v / (1 - 0.99**iteration)
        network.vector[:] = before - 1e-3 * scaled[0] / (np.sqrt(scaled[1]) + 1e-8)
        if iteration % every == 0:
            vectors = {"model": network.vector, "exp_avg": m, "exp_avg_sq": v}
            states.append(
                {
                    part: {n: a.copy() for n, a in Network(vector.astype(np.float32)).parameters.items()}
                    for part, vector in vectors.items()
                }
            )
    return tuple(states)
