"""Files of every format, told by their suffixes: a state and its metadata in, and out again.

``.lcc.h5`` is a checkpoint, lossless when it is written. ``.safetensors.index.json`` is read only: its shards
are one state. ``.npz`` has no place for metadata.
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
    """Return the path of a file; raise ArgumentError if it is of no format that can be read, or written.

    Examples
    --------
    >>> check_suffix(Path("weights.pt"))
    Traceback (most recent call last):
    lccodec.errors.ArgumentError: weights.pt: not one of .npz, .safetensors, .lcc.h5, .safetensors.index.json
    """
    path = checked_path(path)
    suffixes = [_NPZ, _SAFETENSORS, CHECKPOINT_SUFFIX, *([] if write else [_SAFETENSORS + INDEX_SUFFIX])]
    if not path.name.endswith(tuple(suffixes)):
        raise ArgumentError(f"{path}: not one of {', '.join(suffixes)}")
    return path


def load_file(path: StrPath) -> tuple[Any, dict[str, str]]:
    """Return the state in a file and its metadata; bfloat16 may be as `lccodec.BFLOAT16_BITS`.

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
    """Write a state to a file, which is replaced, and return the metadata that have a place in it.

    Raises
    ------
    ArgumentError
        For another suffix, or what the format cannot hold; names it.
    StorageError
        If the operating system refuses; what was there stays.
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
