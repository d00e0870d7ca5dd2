"""The parts of a delta: what is sampled, and what shares a step."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lccodec import Balanced
from lccodec.element_types import components
from lccodec.policy import parts
from lccodec.policy.policy import Candidate

from ..support.chains import deltas


def test_a_few_of_many_samples_tell_as_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    start = {f"w{i}": rng.standard_normal(900).astype(np.float32) for i in range(30)}
    moved = {name: array + np.float32(0.01) * rng.standard_t(4, 900) for name, array in start.items()}
    states = [{"model": start}, {"model": {name: array.astype(np.float32) for name, array in moved.items()}}]
    (all_of_them,), whole = deltas(Balanced(error=0.8), tmp_path / "all", states)
    monkeypatch.setattr(parts, "_POOL_SAMPLES", 3000)
    (few,), restored = deltas(Balanced(error=0.8), tmp_path / "few", states)
    assert abs(few / all_of_them - 1) < 0.15
    for name, array in states[1]["model"].items():
        error, least = (np.std(state["model"][name] - array) for state in (restored, whole))
        assert error < 1.2 * least


def test_small_arrays_are_one_part() -> None:
    rng = np.random.default_rng(0)
    arrays = []
    for name, size in (("model/a", 900), ("model/b", 700), ("model/large", 1 << 17), ("model/still", 900)):
        before = rng.standard_normal(size).astype(np.float32)
        after = before if name == "model/still" else before + np.float32(0.01) * rng.standard_normal(size)
        kind, bits = components(after.astype(np.float32))
        arrays.append(Candidate(name, "weight", "", kind, (size,), bits, components(before)[1]))
    found = parts.find_parts(Balanced(), arrays, waiting={"model/b"})
    assert [part.names for part in found] == [["model/a", "model/still"], ["model/large"]]
    assert found[0].count == 1800
    assert found[1].nbytes(2.0) < found[1].nbytes(1.0)
