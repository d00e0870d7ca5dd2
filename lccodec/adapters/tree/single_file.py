"""A framework's state in one checkpoint file: save, save_file, load, load_file.

The adapter of the framework passes its `to_numpy` or `from_numpy`, and documents the verbs for its
users.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from ...chain.read.checkpoint import OpenCheckpoint, open_data, open_file
from ...chain.save import single_file

__all__ = ["load", "load_file", "restored", "save", "save_file"]

ToNumpy: TypeAlias = Callable[[Any, Mapping[str, str] | None], tuple[Any, dict[str, str]]]
FromNumpy: TypeAlias = Callable[[Any, dict[str, str]], Any]


def save(to_numpy: ToNumpy, state: Any, metadata: Mapping[str, str] | None) -> bytes:
    """Return a state as the bytes of a lossless checkpoint file."""
    return single_file.save(*to_numpy(state, metadata))


def save_file(
    to_numpy: ToNumpy, state: Any, path: str | os.PathLike[str], metadata: Mapping[str, str] | None
) -> None:
    """Write a state to a lossless checkpoint file, atomically."""
    plain, kept = to_numpy(state, metadata)
    single_file.save_file(plain, path, kept)


def load(from_numpy: FromNumpy, data: bytes) -> Any:
    """Return the state in the bytes of a checkpoint file."""
    with open_data(data) as file:
        return restored(from_numpy, file)


def load_file(from_numpy: FromNumpy, path: str | os.PathLike[str]) -> Any:
    """Return the state in a checkpoint file."""
    with open_file(path) as file:
        return restored(from_numpy, file)


def restored(from_numpy: FromNumpy, file: OpenCheckpoint) -> Any:
    """Return the state in an open checkpoint."""
    return from_numpy(file.state(dtype="bits"), file.metadata())
