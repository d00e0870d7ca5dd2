"""Small runs with weights and both moments of Adam, to examine."""

from pathlib import Path
from typing import Any

import numpy as np

import lccodec

State = dict[str, Any]


def run_states(count: int = 8, seed: int = 0, width: int = 60) -> list[State]:
    """States of a run: weights that walk, their moments, and an integer."""
    rng = np.random.default_rng(seed)
    weights = {
        "fc1.weight": rng.normal(size=(width, 70)),
        "fc1.bias": rng.normal(size=width),
        "fc2.weight": rng.normal(size=(12, width)),
    }
    first = {name: np.zeros_like(array) for name, array in weights.items()}
    second = {name: np.zeros_like(array) for name, array in weights.items()}
    states = []
    for step in range(count):
        for name, weight in list(weights.items()):
            gradient = rng.normal(size=weight.shape)
            first[name] = 0.9 * first[name] + 0.1 * gradient
            second[name] = 0.9 * second[name] + 0.1 * gradient**2
            weights[name] = weight - 0.01 * first[name] / np.sqrt(second[name] + 1e-8)
        states.append(
            {
                "model": {name: weight.astype(np.float32) for name, weight in weights.items()},
                "optimizer": {
                    "exp_avg": {name: array.astype(np.float32) for name, array in first.items()},
                    "exp_avg_sq": {name: array.astype(np.float32) for name, array in second.items()},
                },
                "step": np.array(step),
                "epoch": step // 4,
            }
        )
    return states


def save_run(directory: Path, states: list[State], every: int = 10, **options: Any) -> lccodec.Chain:
    """Save states at steps 0, `every`, ... into a new chain."""
    with lccodec.Chain(directory, **{"newest": "history", **options}) as chain:
        for number, state in enumerate(states):
            chain.save(every * number, state, {"loss": 1 / (1 + number)})
    return lccodec.Chain(directory)


def arrays_of(state: State, prefix: str = "") -> dict[str, np.ndarray]:
    """The arrays of a state by name."""
    found = {}
    for key, value in state.items():
        if isinstance(value, dict):
            found.update(arrays_of(value, f"{prefix}{key}/"))
        elif isinstance(value, np.ndarray):
            found[prefix + key] = value
    return found
