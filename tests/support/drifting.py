"""Runs that drift and walk, with moments, counters, and what must be exact."""

from typing import Any

import numpy as np

ROLES = {"w": "weight", "m": "first_moment", "v": "second_moment"}


def run_of(
    steps: int = 20, shape: tuple[int, ...] = (50, 60), jump: int | None = None
) -> list[dict[str, Any]]:
    """The states of a run; before step `jump` the weights jump by 50 movements."""
    rng = np.random.default_rng(3)
    w, drift = rng.standard_normal(shape), 0.004 * rng.standard_normal(shape)
    found = []
    for step in range(steps):
        g = rng.standard_normal(shape)
        w = w + drift + 0.01 * g + (0.5 * rng.standard_normal(shape) if step == jump else 0)
        found.append(
            {
                "w": w.astype(np.float32),
                "m": (0.1 * g).astype(np.float32),
                "v": np.exp(0.1 * rng.standard_normal(shape) - 3).astype(np.float32),
                "mean": rng.standard_normal(300).astype(np.float32),
                "count": np.full(3, step),
                "loss": 1 / (step + 1),
            }
        )
    return found


def error(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.sqrt(np.mean((one.astype(float) - other) ** 2)))
