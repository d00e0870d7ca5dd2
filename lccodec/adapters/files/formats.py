"""Files of every format: a state and its metadata are read and written.

The suffix gives the format. HDF5 files have many suffixes: a file of another suffix is read if its
first bytes say that it is one, and the suffixes of `HDF5` are written.

A ``.lcc.h5`` file is a checkpoint; it is written lossless. A ``.safetensors.index.json`` file comes
with its shards, which are one state. A ``.pt`` or ``.pth`` file is one of ``torch.save``. It has no
place for metadata, nor has an ``.npz`` file. A ``.ckpt``, ``.h5`` or ``.hdf5`` file may also be a
checkpoint: Lightning gives every checkpoint the first suffix.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from ...chain.adapter import TYPES
from ...chain.progress import Progress
from ...chain.save.single_file import save_file as save_checkpoint
from ...constants import CHECKPOINT_SUFFIX
from ...container.disk.system import StrPath, checked_path
from ...container.scalars import metadata_strings
from ...errors import ArgumentError, warn
from ...policy.declared import ENTRY
from ...policy.roles import Assignment
from ..whole import open_whole
from .shards import INDEX_SUFFIX, SHARD_BYTES, is_index
from .signature import Kind, recognize

__all__ = [
    "HDF5",
    "READ",
    "SHOWN",
    "check_suffix",
    "is_checkpoint",
    "is_state",
    "load_file",
    "load_with_roles",
    "save_file",
]

_NPZ: Final = ".npz"
_SAFETENSORS: Final = ".safetensors"
_INDEX: Final = _SAFETENSORS + INDEX_SUFFIX
#: Suffixes of HDF5 files: of netCDF-4, NeXus, CXI, anndata, PySCF, MATLAB and others.
HDF5: Final = (
    *(".h5", ".hdf5", ".nc", ".nc4", ".chk", ".nxs", ".nx", ".nx5", ".nxspe", ".cxi", ".emd", ".hspy"),
    *(".hdf", ".he5", ".cdf", ".h5ad", ".h5mu", ".loom", ".cool", ".mcool", ".nwb", ".fast5", ".mat"),
    *(".cgns", ".exo", ".med", ".silo", ".ims", ".h5m", ".h5oina", ".jld2", ".dream3d"),
)
_TORCH: Final = (".pt", ".pth", ".ckpt")
#: Lightning's .ckpt files hold more than a state.
_WRITTEN_BY_TORCH: Final = (".pt", ".pth")
_WRITTEN: Final = (_NPZ, _SAFETENSORS, _INDEX, CHECKPOINT_SUFFIX, *HDF5, *_WRITTEN_BY_TORCH)
#: The suffixes that errors name.
SHOWN: Final = (_NPZ, _SAFETENSORS, _INDEX, CHECKPOINT_SUFFIX, *HDF5[:3], *_WRITTEN_BY_TORCH)
#: Suffixes of the files that can be read; HDF5 files are read under any suffix.
READ: Final = tuple(dict.fromkeys((*_WRITTEN, *_TORCH)))


def check_suffix(path: StrPath, write: bool = False) -> Path:
    """Return the path of a file; raise ArgumentError if its format cannot be read, or written.

    Examples
    --------
    >>> check_suffix("w.ckpt", write=True)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    lccodec.errors.ArgumentError: ...w.ckpt: is only read, as ...: not one of .npz, ..., .pt, .pth
    """
    path = checked_path(path)
    if path.name.endswith(_WRITTEN if write else READ) or (not write and _is_hdf5(path)):
        return path
    if not write and (kind := _kind(path)) is not None and kind.name != "empty":
        advice = f"give it the suffix {kind.suffixes[0]}" if kind.suffixes else kind.advice
        raise ArgumentError(f"{path} is {kind.title}: {advice}")
    only = "is only read, as it holds more than a state; write .pt for torch.load: "
    why = only if write and path.name.endswith(READ) else ""
    shown = SHOWN if write else (*SHOWN, *_TORCH[len(_WRITTEN_BY_TORCH) :])
    raise ArgumentError(f"{path}: {why}not one of {', '.join(shown)}")


def is_state(path: Path) -> bool:
    """Return whether a file in a folder is one of a state, by its suffix or as an HDF5 file."""
    if path.name.endswith(HDF5[2:]):  # some are suffixes of other formats, too
        return _is_hdf5(path)
    return path.is_file() and (path.name.endswith(READ) or _is_hdf5(path))


def _is_hdf5(path: Path) -> bool:
    return (kind := _kind(path)) is not None and kind.name == "hdf5"


def _kind(path: Path) -> Kind | None:
    """Return the kind of a file; ``None`` if it is not known, or there is no such file."""
    with suppress(OSError, ValueError):  # there is no such path
        return recognize(path) if path.is_file() else None
    return None


def load_file(path: StrPath, progress: Progress = False) -> tuple[Any, dict[str, str]]:
    """Return the state in a file and its metadata; bfloat16 may be `lccodec.BFLOAT16_BITS`.

    `progress` is as for `lccodec.load_file`; files of other formats tell nothing.

    Raises
    ------
    ArgumentError
        For another suffix, for a tensor of a dtype that lccodec cannot hold, and for an object in a
        file of ``torch.save`` that is not loaded.
    DataError, ChainError, StorageError
        If the file is damaged, lacks a parent or a shard, or cannot be read.
    """
    state, metadata, _ = load_with_roles(path, progress)
    return state, metadata


def load_with_roles(
    path: StrPath, progress: Progress = False
) -> tuple[Any, dict[str, str], Mapping[str, Assignment]]:
    """Return the state in a file, its metadata, and the roles that its structure says.

    Only files of ``torch.save`` say more than names do: which tensor is the moment of which
    parameter. Parameters and errors are those of `load_file`.
    """
    path = check_suffix(path)
    if is_checkpoint(path):
        with open_whole(path) as file:
            file.show(progress)
            return file.state(dtype="bits"), file.metadata(), getattr(file, "roles", {})
    kind = recognize(path)
    if kind is not None and kind.name == "netcdf3":
        raise ArgumentError(f"{path} is {kind.title}: {kind.advice}")
    is_hdf5 = kind is not None and kind.name == "hdf5"
    if path.suffix in _TORCH and not is_hdf5:
        from .. import torch
        from ..torch.archive import load_archive

        state = load_archive(path)
        return *torch.to_numpy(state), torch.roles(state)
    if path.absolute().parent.name.startswith("weight_v") and _is_delta(path):
        raise ArgumentError(
            f"{path} is of a delta between weight versions, and no model:"
            " lccodec.adapters.weights.follow reads versions"
        )
    adapter = _adapter(path, is_hdf5)
    if not hasattr(adapter, "load_state"):
        return adapter.load_file(path), {}, {}
    return *adapter.load_state(path), {}


def _is_delta(path: Path) -> bool:
    """Return whether a file is of a weight version that only has differences to another."""
    from ..weights.versions import read_index_of

    return path.name.endswith((_SAFETENSORS, _INDEX)) and read_index_of(path.parent) is not None


def is_checkpoint(path: Path) -> bool:
    """Return whether `load_file` reads a file as a checkpoint: by its suffix, or what is in it."""
    if path.name.endswith(CHECKPOINT_SUFFIX):
        return True
    if path.name.endswith(READ) and path.suffix not in (*HDF5, *_TORCH):
        return False
    kind = recognize(path)
    return kind is not None and kind.name == "checkpoint"


def save_file(
    state: Any,
    path: StrPath,
    metadata: dict[str, str],
    max_shard_bytes: int = SHARD_BYTES,
    progress: Progress = False,
) -> dict[str, str]:
    """Write a state to a file, replacing it; return the metadata that the format could store.

    `max_shard_bytes` are the bytes of the tensors of a shard, if the file is an index.
    `progress` is as for `lccodec.save_file`; files of other formats tell nothing.

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
        save_checkpoint(state, path, metadata, progress=progress)
        return metadata
    if path.suffix not in HDF5 and isinstance(state, Mapping) and ENTRY in state:
        state = {key: value for key, value in state.items() if key != ENTRY}
        warn(f"{path}: left out what an HDF5 file has besides arrays; .h5 and .lcc.h5 files keep it")
    if path.suffix in _WRITTEN_BY_TORCH:
        from ..torch.archive import save_archive

        save_archive(state, path, metadata)
        return {key: text for key, text in metadata.items() if key == TYPES}  # the state has these
    adapter = _adapter(path)
    kept = metadata if hasattr(adapter, "load_metadata") else {}
    if is_index(path):
        adapter.save_file(state, path, kept, max_shard_bytes)
    else:
        adapter.save_file(state, path, kept)
    return kept


def _adapter(path: Path, is_hdf5: bool = False) -> ModuleType:
    if is_hdf5 or path.suffix in HDF5:
        from .. import hdf5

        return hdf5
    if path.suffix == _NPZ:
        from .. import npz

        return npz
    from .. import safetensors

    return safetensors
