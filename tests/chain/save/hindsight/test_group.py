"""What is coded of a step between two ends: what the line between them misses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import lccodec
from lccodec.chain.store.directory import DirectoryStore

from ....support.drifting import ROLES, error, run_of
from ....support.settled import kinds, settle_all, waiting


@pytest.mark.slow
def test_a_jump_is_coded_where_it_is(tmp_path: Path) -> None:
    states = run_of(9, (30, 40), jump=3)
    chain = waiting(tmp_path, states, 8)
    sizes = [chain.info(step).file_bytes for step in chain.steps]
    before = [error(chain.restore(step)["w"], state["w"]) for step, state in enumerate(states)]
    settle_all(DirectoryStore(tmp_path))
    for step, state in enumerate(states):  # movements are 0.011, the jump is 0.5
        assert error(chain.restore(step)["w"], state["w"]) < before[step] + 0.03
    assert any(a.method == "codebook" for a in chain.info(3).arrays if a.name == "w")
    assert sum(chain.info(step).file_bytes for step in chain.steps) < sum(sizes)


@pytest.mark.parametrize("change", ["gone", "new", "shape", "dtype"])
def test_arrays_that_come_change_and_go(tmp_path: Path, change: str) -> None:
    """A group whose arrays have other names stays; other shapes and types are coded."""
    states = run_of(9, (20, 15))
    for step, state in enumerate(states):
        if change == "gone" and step > 1:
            del state["mean"]
        if change == "new" and step == 2:
            state["lora"] = np.ones((20, 20), np.float32)
        if change == "shape" and step > 1:
            state["w"] = state["w"][:, :5]
        if change == "dtype" and step == 2:
            state["w"] = state["w"].astype(np.float64)
    chain = waiting(tmp_path, states)
    settle_all(DirectoryStore(tmp_path))
    assert kinds(chain) == ("kiiid" if change in ("shape", "dtype") else "kdddd") + "iiid"
    assert lccodec.validate(tmp_path, deep=True) == []
    for step, state in enumerate(states):
        restored = chain.restore(step)
        assert restored.keys() == state.keys()
        assert (restored["w"].dtype, restored["w"].shape) == (state["w"].dtype, state["w"].shape)
        assert error(restored["w"], state["w"]) < 0.03


def test_what_is_not_finite_stays(tmp_path: Path) -> None:
    states = run_of(9, (20, 15))
    states[2]["w"][3, 3] = np.nan
    states[3]["v"][1, 1] = np.inf
    states[1]["m"][2, 2] = -np.inf
    chain = waiting(tmp_path, states)
    settle_all(DirectoryStore(tmp_path))
    assert kinds(chain) == "kiiidiiid"
    for step, state in enumerate(states):
        for name in ROLES:
            assert np.array_equal(np.isfinite(chain.restore(step)[name]), np.isfinite(state[name]))


@pytest.mark.slow
def test_a_weight_that_shares_a_frame_with_others(tmp_path: Path) -> None:
    states = run_of(9, (30, 40))
    for step, state in enumerate(states):
        state["bias"] = np.full(5, step, np.float32)
        state["seen"] = np.full(3, 64 * step, np.float32)
    roles = {"w": "weight", "bias": "weight"}
    with lccodec.Chain(tmp_path, "balanced", hindsight=4, roles=roles) as chain:
        for step, state in enumerate(states):
            chain.save(step, state)
    assert kinds(chain) == "kiiidiiid"
    for step, state in enumerate(states):
        restored = chain.restore(step)
        assert all(np.array_equal(restored[name], state[name]) for name in ("bias", "seen"))
