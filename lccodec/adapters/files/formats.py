"""Which format a file is of: by its suffix, and by its first and last bytes.

The suffix gives the format. It may be wrong: Lightning gives the files of every plugin the suffix
``.ckpt``, and a checkpoint of lccodec is an HDF5 file. `recognize` tells what a file is by its
first and last bytes, and nothing more. HDF5 files have many suffixes: a file of another suffix is
read if its first bytes say that it is one, and the suffixes of `HDF5` are written. A ``.ckpt``,
``.h5`` or ``.hdf5`` file may also be a checkpoint.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from ...constants import (
    BUNDLE_MAGIC,
    CHECKPOINT_SUFFIX,
    MANIFEST_DATASET,
    PAYLOAD_DATASET,
    TRAILER_MAGIC,
    TRAILER_SIZE,
)
from ...container.disk.system import StrPath, checked_path
from ...errors import ArgumentError, DataError
from .disk import regular_file
from .header import INDEX_SUFFIX
from .zip_archive import member_names

NPZ: Final = ".npz"
SAFETENSORS: Final = ".safetensors"
INDEX: Final = SAFETENSORS + INDEX_SUFFIX
#: Suffixes of HDF5 files: of netCDF-4, NeXus, CXI, anndata, PySCF, MATLAB and others.
HDF5: Final = (
    *(".h5", ".hdf5", ".nc", ".nc4", ".chk", ".nxs", ".nx", ".nx5", ".nxspe", ".cxi", ".emd", ".hspy"),
    *(".hdf", ".he5", ".cdf", ".h5ad", ".h5mu", ".loom", ".cool", ".mcool", ".nwb", ".fast5", ".mat"),
    *(".cgns", ".exo", ".med", ".silo", ".ims", ".h5m", ".h5oina", ".jld2", ".dream3d"),
)
TORCH: Final = (".pt", ".pth", ".ckpt")
#: Lightning's .ckpt files hold more than a state.
WRITTEN_BY_TORCH: Final = (".pt", ".pth")
_WRITTEN: Final = (NPZ, SAFETENSORS, INDEX, CHECKPOINT_SUFFIX, *HDF5, *WRITTEN_BY_TORCH)
#: The suffixes that errors name.
SHOWN: Final = (NPZ, SAFETENSORS, INDEX, CHECKPOINT_SUFFIX, *HDF5[:3], *WRITTEN_BY_TORCH)
#: Suffixes of the files that can be read; HDF5 files are read under any suffix.
READ: Final = tuple(dict.fromkeys((*_WRITTEN, *TORCH)))


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
    shown = SHOWN if write else (*SHOWN, *TORCH[len(WRITTEN_BY_TORCH) :])
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


def is_checkpoint(path: Path) -> bool:
    """Return whether `load_file` reads a file as a checkpoint: by its suffix, or what is in it."""
    if path.name.endswith(CHECKPOINT_SUFFIX):
        return True
    if path.name.endswith(READ) and path.suffix not in (*HDF5, *TORCH):
        return False
    return recognize(path) is KINDS["checkpoint"]


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
