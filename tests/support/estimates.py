"""Estimates of plans beside what the saves then do."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lccodec import Chain

from .runs import arrays_of

#: How far an estimate of the bytes, or of the error, may be off: a factor.
BYTES, ERROR = 1.5, 1.33


def rms(array: np.ndarray) -> float:
    return float(np.sqrt(np.mean(array.astype(np.float64) ** 2)))


def check_estimates(directory: Path, states: list[dict[str, Any]], policy: str) -> set[bool]:
    """Save states; before each, compare the estimates with what the save then does."""
    sampled = set()
    before: dict[str, np.ndarray] = {}
    with Chain(directory, policy) as chain:
        for step, state in enumerate(states):
            plan = chain.plan(state)
            estimates = plan.estimates()
            chain.save(step, state)
            restored, exact = arrays_of(chain.restore(exact=False)), arrays_of(state)
            frames: dict[int | None, list[int]] = {}
            for array, info, estimate in zip(plan, chain.info().arrays, estimates, strict=True):
                sums = frames.setdefault(array.frame, [0, 0])
                sums[0] += estimate.stored_bytes
                sums[1] += info.stored_bytes
                error = restored[array.name].astype(float) - exact[array.name]
                moved = exact[array.name].astype(float) - before.get(array.name, np.zeros(()))
                if estimate.error is not None and rms(moved):
                    assert estimate.error == pytest.approx(rms(error) / rms(moved), rel=ERROR - 1, abs=1e-6)
                sampled.add(estimate.sampled)
            for estimated, stored in frames.values():
                assert stored / BYTES - 100 <= estimated <= stored * BYTES + 100
            before = restored
    return sampled
