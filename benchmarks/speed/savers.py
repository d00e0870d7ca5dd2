"""Writers and readers of whole states that are measured beside Chain.save and Chain.restore.

Rules: what was written is synced to the disk before a save ends, as `Chain.save` does; one that is
not installed is named, not left out.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

__all__ = ["Saver", "savers", "sync"]

State = dict[str, np.ndarray]


@dataclass(frozen=True)
class Saver:
    """One way to put a state on the disk.

    Parameters
    ----------
    name
        Of its row.
    save
        Writes a state under a path that does not exist.
    load
        Reads it back whole.
    """

    name: str
    save: Callable[[State, Path], object]
    load: Callable[[Path], object]

    def save_durably(self, state: State, path: Path) -> None:
        """Save, and sync all that was written."""
        self.save(state, path)
        sync(path)


def sync(path: Path) -> None:
    """Bring a file, or all files below a directory, to the disk."""
    for file in [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]:
        descriptor = os.open(file, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def remove(path: Path) -> None:
    """Remove a file or a directory, or nothing."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def savers() -> tuple[list[Saver], list[str]]:
    """Return the savers that can be imported, and the names of the others."""
    makers: Mapping[str, Callable[[], Saver]] = {
        "np.save": _npy,
        "np.savez": _npz,
        "safetensors": _safetensors,
        "torch.save": _torch,
        "Orbax": _orbax,
    }
    found, absent = [], []
    for name, make in makers.items():
        try:
            found.append(make())
        except ImportError:
            absent.append(name)
    return found, absent


def _npy() -> Saver:
    """One file an array, without their names."""

    def save(state: State, path: Path) -> None:
        path.mkdir()
        for number, array in enumerate(state.values()):
            np.save(path / f"{number:05}.npy", array)

    return Saver("np.save", save, lambda path: [np.load(file) for file in sorted(path.iterdir())])


def _npz() -> Saver:
    def save(state: State, path: Path) -> None:
        with path.open("wb") as file:
            np.savez(file, **state)

    def load(path: Path) -> State:
        with np.load(path) as data:
            return dict(data.items())

    return Saver("np.savez", save, load)


def _safetensors() -> Saver:
    from safetensors.numpy import load_file, save_file

    return Saver("safetensors", save_file, load_file)


def _torch() -> Saver:
    import torch

    torch.set_num_threads(1)

    def save(state: State, path: Path) -> None:
        torch.save({name: torch.from_numpy(array) for name, array in state.items()}, path)

    return Saver("torch.save", save, torch.load)


def _orbax() -> Saver:
    """Orbax writes with as many threads as it likes."""
    from orbax.checkpoint import StandardCheckpointer

    checkpointer = StandardCheckpointer()

    def save(state: State, path: Path) -> None:
        checkpointer.save(path.absolute(), state)
        checkpointer.wait_until_finished()

    return Saver("Orbax", save, lambda path: checkpointer.restore(path.absolute()))
