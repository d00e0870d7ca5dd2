"""States of a run by role, their arrays as vectors, and the streams that a codec makes of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

__all__ = ["State", "Streams", "join", "named", "roles", "split"]

State = dict[str, np.ndarray]
Streams = dict[str, bytes]  # of each role


def join(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Return arrays as one vector."""
    return np.concatenate([a.reshape(-1) for a in arrays])


def split(vector: np.ndarray, like: State, names: Sequence[str]) -> State:
    """Return the parts of a vector by name, in the shapes of `like`."""
    ends = np.cumsum([like[name].size for name in names])
    parts = np.split(vector, ends[:-1])
    return {name: part.reshape(like[name].shape) for name, part in zip(names, parts, strict=True)}


def named(state: State, role: str) -> list[str]:
    """Return the names of the float32 arrays of a role."""
    return [n for n, a in state.items() if n.startswith(f"{role}/") and a.dtype == np.float32]


def roles(state: State) -> list[str]:
    """Return the roles of the float32 arrays of a state."""
    return list(dict.fromkeys(n.split("/", 1)[0] for n, a in state.items() if a.dtype == np.float32))
