"""A state of tensors in one checkpoint file: save, save_file, load, load_file."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

from ..tree import single_file
from ..tree.single_file import FromNumpy
from .states import Device, from_numpy, to_numpy, usable_device

__all__ = ["load", "load_file", "save", "save_file"]


def save(state: Any, metadata: dict[str, str] | None = None) -> bytes:
    """Return a state of tensors as bytes of a lossless checkpoint file; errors as `to_numpy`."""
    return single_file.save(to_numpy, state, metadata)


def save_file(state: Any, path: str | os.PathLike[str], metadata: dict[str, str] | None = None) -> None:
    """Write a state of tensors to a lossless checkpoint file, atomically.

    The errors are those of `to_numpy` and `lccodec.save_file`.
    """
    single_file.save_file(to_numpy, state, path, metadata)


def load(data: bytes, device: Device = "cpu") -> Any:
    """Return the state in the bytes of a checkpoint file as tensors; errors as `load_file`."""
    return single_file.load(_to_device(device), data)


def load_file(path: str | os.PathLike[str], device: Device = "cpu") -> Any:
    """Return the state in a checkpoint file as tensors; any framework may have written it.

    Parameters
    ----------
    path
        The file.
    device
        The device of the tensors.

    Returns
    -------
    object
        The state. Its tensors do not share memory with anything else, so ``load_state_dict(state,
        assign=True)`` may keep them.

    Raises
    ------
    ArgumentError
        As `from_numpy`.
    DataError, ChainError, StorageError
        As `lccodec.load_file`.
    """
    return single_file.load_file(_to_device(device), path)


def _to_device(device: Device) -> FromNumpy:
    return partial(from_numpy, device=usable_device(device))  # the device is checked before any work
