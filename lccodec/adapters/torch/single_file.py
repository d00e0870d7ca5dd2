"""A state of tensors in one checkpoint file: save, save_file, load, load_file."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from ...chain.read.checkpoint import open_file
from ...chain.save import single_file
from ...policy.policy import Policy
from ...policy.roles import Role
from .roles import roles as known_roles
from .states import Device, from_numpy, to_numpy, usable_device

__all__ = ["load", "load_file", "save", "save_file"]


def save(
    state: Any,
    metadata: dict[str, str] | None = None,
    *,
    policy: str | Policy = "lossless",
    roles: Mapping[str, Role] = MappingProxyType({}),
    reference: Any = None,
) -> bytes:
    """Return a state of tensors as the bytes of a checkpoint file, lossless by default.

    Parameters
    ----------
    policy, roles, reference
        As for `lccodec.save`. Roles that the structure of the state says need not be given. The
        reference is a state of tensors, too.

    Raises
    ------
    ArgumentError
        As `to_numpy` and `lccodec.save`.
    """
    before = None if reference is None else to_numpy(reference)[0]
    return single_file.coded(*to_numpy(state, metadata), policy, roles, before, known_roles(state))


def save_file(state: Any, path: str | os.PathLike[str], metadata: dict[str, str] | None = None) -> None:
    """Write a state of tensors to a lossless checkpoint file, atomically.

    The errors are those of `to_numpy` and `lccodec.save_file`.
    """
    plain, kept = to_numpy(state, metadata)
    single_file.save_file(plain, path, kept)


def load(data: bytes, device: Device = "cpu", *, reference: Any = None) -> Any:
    """Return the state in the bytes of a checkpoint file as tensors.

    `reference` is as for `lccodec.load`, with tensors. The errors are those of `load_file`, and of
    `lccodec.load`.
    """
    from_arrays = _to_device(device)
    before = None if reference is None else to_numpy(reference)[0]
    with single_file.opened(data, before) as file:
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
