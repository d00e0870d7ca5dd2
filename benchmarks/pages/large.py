"""A report as large as they get: 200 steps of 300 arrays, of numbers that hardly compress."""

from __future__ import annotations

from typing import Any

import numpy as np

from lccodec.inspect.report import FIGURES, ArrayRow, Checkpoint, Histogram, Report, Run, document

__all__ = ["large"]

ROLES = {"model": "weight", "optimizer/mu": "first_moment", "optimizer/nu": "second_moment"}
KEYFRAME_EVERY = 33  # checkpoints
ARRAY_BYTES = 1 << 20


def large(steps: int = 200, arrays: int = 300, bins: int = 32) -> dict[str, Any]:
    """Return the document of a made-up run."""
    rng = np.random.default_rng(0)
    trend = np.exp(-np.arange(steps) / 50)

    def figure() -> list[list[float]]:
        scales, noise = rng.lognormal(-5, 1, (arrays, 1)), rng.lognormal(0, 0.2, (arrays, steps))
        return (scales * trend * noise).tolist()

    figures: dict[str, Any] = {name: figure() for name in FIGURES}
    figures["not_finite"] = np.zeros((arrays, steps), int).tolist()
    bell = np.exp(-(np.linspace(-3, 3, bins) ** 2) / 2)
    counts = rng.poisson(ARRAY_BYTES // 4 * bell / bell.sum(), (arrays, steps, bins))
    run = Run(
        "runs/large",
        "chain",
        [],
        [_checkpoint(index, ARRAY_BYTES * arrays, trend[index]) for index in range(steps)],
        [_row(index, steps) for index in range(arrays)],
        [100 * index for index in range(steps)],
        figures,
        [Histogram(-0.5, 0.5, each.tolist()) for each in counts],
        {"container": 4 * 10**5, "manifest": 10**6, "codebook": 6 * 10**8, "planes": 3 * 10**7},
    )
    return document(Report("1.0", [], [run]))


def _row(index: int, steps: int) -> ArrayRow:
    prefix = list(ROLES)[index % len(ROLES)]
    name = f"{prefix}/blocks/{index // len(ROLES)}/attention/qkv/kernel"
    role: Any = ROLES[prefix]
    kept = ARRAY_BYTES * steps
    return ArrayRow(name, role, "by its name", "float32", (512, 512), 2**18, "-", kept // 90, kept)


def _checkpoint(index: int, nbytes: int, loss: float) -> Checkpoint:
    depth = index % KEYFRAME_EVERY
    return Checkpoint(
        100 * index,
        "delta" if depth else "keyframe",
        100 * (index - 1) if depth else None,
        depth,
        nbytes // 100 if depth else nbytes // 10,
        nbytes,
        "balanced",
        {"loss": f"{loss:.4f}"},
        roles={"weight": nbytes // 300, "first_moment": nbytes // 300, "second_moment": nbytes // 300},
    )
