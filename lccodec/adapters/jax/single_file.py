"""A pytree in one checkpoint file: save, save_file, load, load_file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ...chain.read.checkpoint import Arrivals, open_file
from ...chain.save import single_file
from ...policy.policy import Policy
from ...policy.roles import Role
from .roles import roles as known_roles
from .states import from_numpy, to_numpy
from .target import load_into

__all__ = ["load", "load_file", "save", "save_file"]


def save(
    state: Any,
    metadata: dict[str, str] | None = None,
    *,
    policy: str | Policy = "lossless",
    roles: Mapping[str, Role] = MappingProxyType({}),
    reference: Any = None,
) -> bytes:
    """Return a pytree as the bytes of a checkpoint file, lossless by default.

    Parameters
    ----------
    policy, roles, reference
        As for `lccodec.save`. Roles that the structure of the state says need not be given. The
        reference is a pytree, too.

    Raises
    ------
    ArgumentError
        As `to_numpy` and `lccodec.save`.
    """
    before = None if reference is None else to_numpy(reference)[0]
    return single_file.coded(*to_numpy(state, metadata), policy, roles, before, known_roles(state))


def save_file(state: Any, path: str | os.PathLike[str], metadata: dict[str, str] | None = None) -> None:
    """Write a pytree to a lossless checkpoint file, atomically.

    The errors are those of `to_numpy` and `lccodec.save_file`.
    """
    plain, kept = to_numpy(state, metadata)
    single_file.save_file(plain, path, kept)


def load(data: bytes, target: Any = None, *, reference: Any = None) -> Any:
    """Return the pytree in the bytes of a checkpoint file.

    `target` is as in `load_file`, and `reference` as for `lccodec.load`, a pytree. The errors are
    those of `load_file`, and of `lccodec.load`.
    """
    file = single_file.opened(data, None if reference is None else to_numpy(reference)[0])
    if target is not None:
        return load_into(target, Arrivals(file, dtype="bits"))
    with file:
        return file.restored(from_numpy)


def load_file(path: str | os.PathLike[str], target: Any = None) -> Any:
    """Return the pytree in a checkpoint file; any framework may have written it.

    Parameters
    ----------
    path
        The file.
    target
        As in `load_into`: arrays go straight to the devices of its shardings, each as soon as it is
        decoded. None gives plain containers.

    Raises
    ------
    ArgumentError
        As `from_numpy` and `load_into`.
    DataError, ChainError, StorageError
        As `lccodec.load_file`.
    """
    if target is None:
        with open_file(path) as file:
            return file.restored(from_numpy)
    return load_into(target, Arrivals(open_file(path), dtype="bits"))
