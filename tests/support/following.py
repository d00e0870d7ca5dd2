"""A run that is saved step by step, and what a follower applies of it."""

from pathlib import Path
from typing import Any

import numpy as np

import lccodec
from lccodec.container.checkpoint import open_checkpoint
from lccodec.container.tree import array_names, flatten
from lccodec.element_types import narrow

from .walks import NAMES, assert_same


def drift(rng: np.random.Generator, state: dict[str, Any], share: float = 0.01) -> dict[str, Any]:
    """The next state: a share of the values of each float array moves, and "step" counts up."""
    found: dict[str, Any] = {}
    for name, value in state.items():
        if isinstance(value, dict):
            found[name] = drift(rng, value, share)
        elif isinstance(value, np.ndarray) and value.dtype.kind != "f":
            found[name] = value
        elif isinstance(value, np.ndarray):
            mask = rng.random(value.shape) < share
            found[name] = np.where(mask, value + rng.standard_normal(value.shape), value).astype(value.dtype)
        else:
            found[name] = value + 1
    return found


def first_state(rng: np.random.Generator) -> dict[str, Any]:
    """Two large arrays, some small ones that share a frame, one that never changes, a scalar."""
    model = {
        "wide": rng.standard_normal((300, 200)).astype("f4"),
        "half": rng.standard_normal((128, 256)).astype("f2"),
        **{f"bias{n}": rng.standard_normal(40).astype("f4") for n in range(5)},
        "ids": rng.integers(0, 9, 50),
    }
    return {"model": model, "optimizer": {"exp_avg": np.zeros((300, 200), "f4")}, "step": 0}


def rounded(array: Any) -> Any:
    """A float32 array as bfloat16, as bits."""
    return narrow(array).view(lccodec.BFLOAT16_BITS)


def mixed(rng: np.random.Generator) -> dict[str, Any]:
    """Weights in bfloat16, and what they are rounded from."""
    master = rng.standard_normal(30_000).astype("f4")
    return {"model": {"weight": rounded(master)}, "optimizer": {"master": master}}


class Served:
    """Arrays that are changed by updates alone."""

    def __init__(self) -> None:
        self.arrays: dict[str, Any] = {}

    def take(self, update: lccodec.Update) -> None:
        """Apply an update, in memory that is there if it fits."""
        for patch in update.patches("bits"):
            there = self.arrays.get(patch.name)
            if there is None or (there.shape, there.dtype) != (patch.shape, patch.values.dtype):
                assert patch.places is None
                self.arrays[patch.name] = np.empty(patch.shape, patch.values.dtype)
        for name in update.removed:
            del self.arrays[name]
        update.apply_to(self.arrays)

    def check(self, state: Any) -> None:
        """The arrays are those of a state, bit for bit."""
        flat = flatten(state)
        names = array_names(flat.tree)
        assert self.arrays.keys() == names.keys()
        for name, index in names.items():
            assert_same(self.arrays[name], flat.arrays[index])


class Run:
    """A chain of drifting states, each kept for comparison."""

    def __init__(self, directory: Path, policy: str = "lossless", **options: Any) -> None:
        self.rng = np.random.default_rng(0)
        self.state = first_state(self.rng)
        self.states: dict[int, Any] = {}
        self.chain = lccodec.Chain(directory, policy, **options)

    def save(self, *steps: int) -> None:
        for step in steps:
            self.chain.save(step, self.state, {"tag": str(step)})
            self.states[step] = self.state
            self.state = drift(self.rng, self.state)


def taken(follower: lccodec.Follower, served: Served) -> list[lccodec.Update]:
    """All updates that there are now, applied."""
    found = []
    while (update := follower.prepare(0)) is not None:
        served.take(update)
        found.append(update)
    return found


def open_root(directory: Path, step: int) -> bytes:
    with open_checkpoint(directory / NAMES[step]) as reader:
        return reader.root
