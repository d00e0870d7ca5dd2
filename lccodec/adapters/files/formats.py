"""Files of every format, chosen by suffix: a state and its metadata are read and written.

A ``.lcc.h5`` file is a checkpoint; it is written lossless. A ``.safetensors.index.json`` file is
only read: its shards are one state. An ``.npz`` file has no place for metadata.
"""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any, Final

from ...chain.checkpoint import open_file
from ...chain.single_file import save_file as save_checkpoint
from ...constants import CHECKPOINT_SUFFIX
from ...container.scalars import metadata_strings
from ...container.system import StrPath, checked_path
from ...errors import ArgumentError
from .shards import INDEX_SUFFIX

__all__ = ["check_suffix", "load_file", "save_file"]

_NPZ: Final = ".npz"
_SAFETENSORS: Final = ".safetensors"


def check_suffix(path: StrPath, write: bool = False) -> Path:
    """Return the path of a file; raise ArgumentError if its format cannot be read, or written.

    Examples
    --------
    >>> check_suffix("w.pt", write=True)
    Traceback (most recent call last):
    lccodec.errors.ArgumentError: w.pt: not one of .npz, .safetensors, .lcc.h5
    """
    path = checked_path(path)
    suffixes = [_NPZ, _SAFETENSORS, CHECKPOINT_SUFFIX, *([] if write else [_SAFETENSORS + INDEX_SUFFIX])]
    if not path.name.endswith(tuple(suffixes)):
        raise ArgumentError(f"{path}: not one of {', '.join(suffixes)}")
    return path


def load_file(path: StrPath) -> tuple[Any, dict[str, str]]:
    """Return the state in a file and its metadata; bfloat16 may be `lccodec.BFLOAT16_BITS`.

    Raises
    ------
    ArgumentError
        For another suffix, or a tensor of a dtype that lccodec cannot hold.
    DataError, ChainError, StorageError
        If the file is damaged, lacks a parent or a shard, or cannot be read.
    """
    path = check_suffix(path)
    if path.name.endswith(CHECKPOINT_SUFFIX):
        with open_file(path) as file:
            return file.state(dtype="bits"), file.metadata()
    adapter = _adapter(path)
    state: tuple[Any, dict[str, str]] = (
        adapter.load_state(path) if hasattr(adapter, "load_state") else (adapter.load_file(path), {})
    )
    return state


def save_file(state: Any, path: StrPath, metadata: dict[str, str]) -> dict[str, str]:
    """Write a state to a file, replacing it; return the metadata that the format could store.

    Raises
    ------
    ArgumentError
        For another suffix, or something that the format cannot hold. The message names it.
    StorageError
        If the operating system refuses. An existing file is unchanged.
    """
    path = check_suffix(path, write=True)
    metadata = metadata_strings(metadata)
    if path.name.endswith(CHECKPOINT_SUFFIX):
        save_checkpoint(state, path, metadata)
        return metadata
    adapter = _adapter(path)
    kept = metadata if hasattr(adapter, "load_metadata") else {}
    adapter.save_file(state, path, kept)
    return kept


def _adapter(path: Path) -> ModuleType:
    if path.suffix == _NPZ:
        from .. import npz

        return npz
    from .. import safetensors

    return safetensors
