"""What kind of file a file is, told by its bytes: its first and last ones, and nothing more.

A suffix may be wrong: Lightning gives the files of every plugin the suffix ``.ckpt``, and a
checkpoint of lccodec is an HDF5 file.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import BinaryIO, Final

from ...constants import BUNDLE_MAGIC, MANIFEST_DATASET, PAYLOAD_DATASET, TRAILER_MAGIC, TRAILER_SIZE
from ...errors import DataError
from .disk import regular_file
from .zip_archive import member_names


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
# torch.save before version 1.6: a pickle (protocol 2) of an integer of ten bytes.
_OLD_TORCH: Final = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."
_PICKLE_PROTOCOLS: Final = tuple(bytes([0x80, protocol]) for protocol in (2, 3, 4, 5))
_MAX_SAFETENSORS_HEADER: Final = 100_000_000


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
    if head.startswith(BUNDLE_MAGIC):
        return "bundle"
    if any(head[place : place + 8] == _HDF5_SIGNATURE for place in _HDF5_PLACES):  # behind a user block
        return "hdf5"
    if head.startswith((b"CDF\1", b"CDF\2", b"CDF\5")):
        return "netcdf3"
    if head.startswith(b"\x93NUMPY"):
        return "npy"
    if head.startswith(_OLD_TORCH):
        return "torch"
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
