"""A state of tensors in one checkpoint file: save, save_file, load, load_file."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

from ...chain.read.checkpoint import open_data, open_file
from ...chain.save import single_file
from .states import Device, from_numpy, to_numpy, usable_device

__all__ = ["load", "load_file", "save", "save_file"]


def save(state: Any, metadata: dict[str, str] | None = None) -> bytes:
    """Return a state of tensors as bytes of a lossless checkpoint file; errors as `to_numpy`."""
    return single_file.save(*to_numpy(state, metadata))


def save_file(state: Any, path: str | os.PathLike[str], metadata: dict[str, str] | None = None) -> None:
    """Write a state of tensors to a lossless checkpoint file, atomically.

    The errors are those of `to_numpy` and `lccodec.save_file`.
    """
    plain, kept = to_numpy(state, metadata)
    single_file.save_file(plain, path, kept)


def load(data: bytes, device: Device = "cpu") -> Any:
    """Return the state in the bytes of a checkpoint file as tensors; errors as `load_file`."""
    from_arrays = _to_device(device)
    with open_data(data) as file:
        return file.restored(from_arrays)


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
    from_arrays = _to_device(device)
    with open_file(path) as file:
        return file.restored(from_arrays)


def _to_device(device: Device) -> Callable[..., Any]:
    return partial(from_numpy, device=usable_device(device))  # the device is checked before any work
