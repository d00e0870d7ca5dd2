"""Chains in which steps are interpolated: ends, and what lies between them."""

import importlib
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lccodec import Chain
from lccodec.chain.store.directory import DirectoryStore
from lccodec.policy.presets import POLICIES
from lccodec.policy.record import Record
from lccodec.policy.roles import Assignment

from .walks import save_all

KNOWN = {"w": Assignment("weight", "")}


def _states(count: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(1)
    state: dict[str, Any] = {
        "w": rng.standard_normal((30, 40), np.float32),
        "count": np.arange(3),
        "half": rng.standard_normal(300).astype(np.float16),
        "still": np.array([1.5, -0.0, np.nan]),
        "small": [np.zeros(5, np.float32), np.zeros(7, np.float32)],
    }
    found = []
    for step in range(count):
        state = {
            "w": state["w"] + np.float32(0.01) * rng.standard_normal((30, 40), np.float32),
            "count": state["count"] + (step % 3 == 0),
            "half": state["half"] + np.float16(0.125),
            "still": state["still"],
            "small": [a + rng.standard_normal(a.shape, np.float32) for a in state["small"]],
        }
        found.append({**state, "epoch": step})
    return found


STATES = _states(14)


with pytest.MonkeyPatch.context() as _patch:
    _patch.syspath_prepend(Path(__file__).parents[2] / "spec" / "vectors")
    anchors = importlib.import_module("anchors")


def _fill(store: DirectoryStore, policy: str, low: int, high: int) -> None:
    """Save what lies between two checkpoints: the middle, and then on both sides of it."""
    step = (low + high) // 2
    if step == low:
        return
    _save(store, step, policy, low, high)
    _fill(store, policy, low, step)
    _fill(store, policy, step, high)


def _save(store: DirectoryStore, step: int, policy: str, *parents: int) -> None:
    told = {"step": str(step)}
    record = Record(POLICIES[policy], newest="history")
    anchors.save_anchored(store, step, STATES[step], parents, record, known=KNOWN, metadata=told)


def grouped(directory: Path, policy: str = "lossless", ends: tuple[int, ...] = (0, 8, 12)) -> Chain:
    """A chain of ends, and of all steps between them."""
    chain = Chain(directory, policy, newest="history")
    store = DirectoryStore(directory)
    save_all(chain, STATES, ends, roles={"w": "weight"})
    for low, high in pairwise(ends):
        _fill(store, policy, low, high)
    return chain


def partly_grouped(directory: Path) -> Chain:
    """A chain of two ends, two deltas between them, and one step that is interpolated."""
    chain = Chain(directory, "balanced", newest="history")
    store = DirectoryStore(directory)
    chain.save(0, STATES[0], roles={"w": "weight"})
    save_all(chain, STATES, (3, 5), roles={"w": "weight"})
    _save(store, 8, "balanced", 0)
    _save(store, 2, "balanced", 0, 8)
    return chain
