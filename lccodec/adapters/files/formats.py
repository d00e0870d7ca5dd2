"""Files of every format: a state and its metadata are read and written.

The suffix gives the format. It may be wrong: Lightning gives the files of every plugin the suffix
``.ckpt``, and a checkpoint of lccodec is an HDF5 file. `recognize` tells what a file is by its
first and last bytes, and nothing more. HDF5 files have many suffixes: a file of another suffix is
read if its first bytes say that it is one, and the suffixes of `HDF5` are written.

A ``.lcc.h5`` file is a checkpoint; it is written lossless. A ``.safetensors.index.json`` file comes
with its shards, which are one state. A ``.pt`` or ``.pth`` file is one of ``torch.save``. It has no
place for metadata, nor has an ``.npz`` file. A ``.ckpt``, ``.h5`` or ``.hdf5`` file may also be a
checkpoint: Lightning gives every checkpoint the first suffix.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO, Final

from ...chain.caller import TYPES, Progress
from ...chain.save.single_file import save_file as save_checkpoint
from ...constants import (
    BUNDLE_MAGIC,
    CHECKPOINT_SUFFIX,
    MANIFEST_DATASET,
    PAYLOAD_DATASET,
    TRAILER_MAGIC,
    TRAILER_SIZE,
)
from ...container.scalars import metadata_strings
from ...container.system import StrPath, checked_path
from ...errors import ArgumentError, DataError, warn
from ...policy.declared import ENTRY
from ...policy.roles import Assignment
from ..whole import open_whole
from .disk import regular_file
from .shards import INDEX_SUFFIX, SHARD_BYTES, is_index
from .zip_archive import member_names

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


@dataclass(frozen=True)
class Kind:
    """A kind of file."""

    name: str  # a word for programs
    title: str  # what it is, in words
    suffixes: tuple[str, ...] = ()  # by which `lccodec.adapters.files` reads it
    advice: str = ""  # if it is not read: what to do instead


_KINDS: Final = (
    Kind("checkpoint", "an lccodec checkpoint", (".lcc.h5",)),
    Kind("bundle", "an lccodec bundle", (), "unbundle writes its files into a directory"),
    Kind("safetensors", "a safetensors file", (".safetensors",)),
    Kind("safetensors-index", "an index of safetensors shards", (".safetensors.index.json",)),
    Kind("npz", "an archive of NumPy arrays", (".npz",)),
    Kind("torch", "a file of torch.save", (".pt", ".pth", ".ckpt")),
    Kind("torchscript", "a TorchScript program", (), "save the state_dict() of its module with torch.save"),
    Kind("keras", "a Keras model archive", (), "unzip it: the .weights.h5 file in it can be read"),
    Kind("hdf5", "an HDF5 file", (".h5", ".hdf5")),
    Kind("netcdf3", "a netCDF-3 file", (), "convert it with nccopy -4: lccodec reads netCDF-4"),
    Kind("npy", "a single NumPy array", (), "write it into an archive with numpy.savez"),
    Kind(
        "pickle", "a Python pickle", (), "if you trust it, load it and save its arrays with lccodec.save_file"
    ),
    Kind("zip", "a zip archive", (), "unzip it"),
    Kind("empty", "an empty file", (), "nothing is in it"),
)

#: The kinds by name.
KINDS: Final = {kind.name: kind for kind in _KINDS}

_HEAD_BYTES: Final = 4096  # the directory of an HDF5 file begins at 0, 512, 1024 or 2048
_HDF5_SIGNATURE: Final = b"\x89HDF\r\n\x1a\n"
_HDF5_PLACES: Final = (512, 1024, 2048)
# Where a checkpoint has the names of its datasets (LCC-H5-05), also if it is cut off.
_DATASETS: Final = (PAYLOAD_DATASET.encode(), MANIFEST_DATASET.encode())
_DATASET_PLACES: Final = slice(94, 101), slice(116, 124)
_ZIP_START: Final = b"PK\x03\x04"
_EMPTY_ZIP: Final = b"PK\x05\x06"
#: torch.save before version 1.6 wrote a pickle (protocol 2) of an integer of ten bytes.
_STARTS: Final[dict[str, bytes | tuple[bytes, ...]]] = {
    "bundle": BUNDLE_MAGIC,
    "netcdf3": (b"CDF\1", b"CDF\2", b"CDF\5"),
    "npy": b"\x93NUMPY",
    "torch": b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.",
}
_PICKLE_PROTOCOLS: Final = tuple(bytes([0x80, protocol]) for protocol in (2, 3, 4, 5))
_MAX_SAFETENSORS_HEADER: Final = 100_000_000


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
    return _kind(path) is KINDS["hdf5"]


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
    if path.suffix in _TORCH and kind is not KINDS["hdf5"]:
        from .. import torch
        from ..torch.archive import load_archive

        state = load_archive(path)
        return *torch.to_numpy(state), torch.roles(state)
    if path.absolute().parent.name.startswith("weight_v") and _is_delta(path):
        raise ArgumentError(
            f"{path} is of a delta between weight versions, and no model:"
            " lccodec.adapters.weights.follow reads versions"
        )
    adapter = _adapter(path, kind)
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
    return recognize(path) is KINDS["checkpoint"]


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
    adapter.save_file(state, path, kept, *([max_shard_bytes] if is_index(path) else []))
    return kept


def _adapter(path: Path, kind: Kind | None = None) -> ModuleType:
    if kind is KINDS["hdf5"] or path.suffix in HDF5:
        from .. import hdf5

        return hdf5
    if path.suffix == _NPZ:
        from .. import npz

        return npz
    from .. import safetensors

    return safetensors


def recognize(path: str | os.PathLike[str]) -> Kind | None:
    """Return the kind of a file, or None if it is not known.

    Nothing is verified: a damaged file has the kind that its first and last bytes say.
    """
    with regular_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        head = file.read(_HEAD_BYTES)
        file.seek(max(0, size - TRAILER_SIZE))
        name = _name(head, file.read(TRAILER_SIZE), size) or _archive_name(head, file)
    return None if name is None else KINDS[name]


def _name(head: bytes, tail: bytes, size: int) -> str | None:
    """Return the name of a kind that first and last bytes show."""
    if not head:
        return "empty"
    if tail.startswith(TRAILER_MAGIC):
        return "checkpoint"
    if head.startswith(_HDF5_SIGNATURE):
        named = tuple(head[place] for place in _DATASET_PLACES)
        return "checkpoint" if named == _DATASETS else "hdf5"
    if any(head[place : place + 8] == _HDF5_SIGNATURE for place in _HDF5_PLACES):  # behind a user block
        return "hdf5"
    for name, starts in _STARTS.items():
        if head.startswith(starts):
            return name
    length = int.from_bytes(head[:8], "little")
    if head[8:9] == b"{" and 2 <= length <= min(size - 8, _MAX_SAFETENSORS_HEADER):
        return "safetensors"
    if head.lstrip().startswith(b"{") and (b'"weight_map"' in head or b'"total_size"' in head):
        return "safetensors-index"
    return "pickle" if head.startswith(_PICKLE_PROTOCOLS) else None


def _archive_name(head: bytes, file: BinaryIO) -> str | None:
    """Return the name of a kind that the members of a zip archive show."""
    if not head.startswith((_ZIP_START, _EMPTY_ZIP)):
        return None
    try:
        names = member_names(file)
    except DataError:
        return "zip"
    ends = {name.rpartition("/")[2] for name in names if name.count("/") <= 1}
    if "data.pkl" in ends:
        return "torchscript" if "constants.pkl" in ends else "torch"
    if "config.json" in ends and any(name.endswith(".weights.h5") for name in names):
        return "keras"
    return "npz" if all(name.endswith(".npy") for name in names) else "zip"
