"""An HDF5 file without its numbers, and the numbers: apart, and put together again.

The skeleton of a file are its bytes without those of its arrays. Names, attributes, strings,
compounds, references, links, chunks, filters and all else that HDF5 has are in it, and come back as
they were. An array is a dataset of numbers that this module can write again without loss.

A state has the entry `ENTRY` for it: ``skeleton`` (uint8, the bytes that are kept), ``runs``
(int64, how many bytes are kept, cut, kept, and so on), and ``arrays`` (how many arrays there are).

Hostile files: links are never followed, nor is data outside of the file. Before memory is taken,
sizes are compared with that of the file. What is too large stays in the skeleton.
"""

from __future__ import annotations

import itertools
import math
import os
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal

import h5py
import numpy as np

from ...constants import MAX_ARRAYS, MAX_DIMENSIONS, MAX_NESTING
from ...container.scalars import is_unicode
from ...container.tree import Keys
from ...element_types import BFLOAT16_BITS, Array, element_type, in_host_order
from ...errors import ArgumentError
from ...policy.declared import ENTRY
from .disk import MAX_FILE_EXPANSION

_ALL: Final = h5py.h5s.ALL
#: Chunks that are not stored, of all arrays of a file: HDF5 takes memory and time for each.
_MAX_EMPTY_CHUNKS: Final = 1 << 14
#: Filters that give back what they got: deflate, shuffle, fletcher32 and h5py's LZF.
_FILTERS: Final = frozenset((1, 2, 3, 32000))
#: Those of hdf5plugin: bzip2, blosc, LZ4, bitshuffle, zstd, blosc2. They are used if it is
#: imported: no plugin is loaded for a file.
_MORE_FILTERS: Final = frozenset((307, 32001, 32004, 32008, 32015, 32026))
_TOO_LARGE: Final = "is far larger than its file"
_SCALES: Final = "DIMENSION_LIST"


def _bfloat16(float32: h5py.h5t.TypeFloatID) -> h5py.h5t.TypeFloatID:
    """Return the type of bfloat16 in the byte order of another type; h5py has no dtype for it."""
    kind = float32.copy()
    kind.set_fields(15, 7, 8, 0, 7)  # sign, exponent and mantissa
    kind.set_size(2)
    kind.set_ebias(127)
    return kind


_BFLOAT16: Final[dict[Literal["<", ">"], h5py.h5t.TypeFloatID]] = {
    "<": _bfloat16(h5py.h5t.IEEE_F32LE),
    ">": _bfloat16(h5py.h5t.IEEE_F32BE),
}


@dataclass
class Parts:
    """A file taken apart.

    Parameters
    ----------
    entry
        The entry of a state.
    arrays
        The arrays by path; each dataset once, under its first name.
    left
        Datasets of numbers that are no arrays, by path, and why.
    fills
        What HDF5 fills arrays with where nothing was written, by path, if somebody chose it, or if
        not all was written.
    """

    entry: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, Array] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)
    fills: dict[str, float] = field(default_factory=dict)


def objects(
    group: h5py.Group, keys: Keys = (), names: dict[int, str] | None = None
) -> Iterator[tuple[str, Any, str]]:
    """Yield groups and datasets with their paths, by hard links only, in a fixed order.

    A group is yielded once, a dataset under each of its paths, with the first one. What lies deeper
    than a state may nest, or has a name that no state can have, is left out.
    """
    names = {} if names is None else names
    path = names[_address(group)] = "/".join(keys)
    yield path, group, path
    if len(keys) >= MAX_NESTING - 1:
        return
    for key in group:
        if isinstance(key, bytes) or not is_unicode(key):
            continue
        if group.id.links.get_info(key.encode()).type != h5py.h5l.TYPE_HARD:  # `get` would follow others
            continue
        child, place = group[key], "/".join((*keys, key))
        if isinstance(child, h5py.Dataset):
            yield place, child, names.setdefault(_address(child), place)
        elif isinstance(child, h5py.Group) and _address(child) not in names:
            yield from objects(child, (*keys, key), names)


def _address(item: h5py.Group | h5py.Dataset) -> int:
    return int(h5py.h5o.get_info(item.id).addr)  # objects would stay open


def _of_numbers(file: h5py.File) -> Iterator[tuple[str, h5py.Dataset, str]]:
    """Yield datasets of numbers under their first names, and why one is no array, or nothing."""
    for path, dataset, first in objects(file):
        if path == first and isinstance(dataset, h5py.Dataset) and _dtype(dataset) is not None:
            yield path, dataset, _unfit(dataset)


def _dtype(dataset: h5py.Dataset) -> np.dtype[Any] | None:
    """Return the dtype whose numbers have the bytes that the file has; None for other values."""
    kind = dataset.id.get_type()
    if dataset.shape is None or len(dataset.shape) > MAX_DIMENSIONS:
        return None
    for order, bfloat16 in _BFLOAT16.items():
        if kind == bfloat16:
            return BFLOAT16_BITS.newbyteorder(order)
    try:
        dtype = dataset.dtype
        if dtype == "V2":
            return BFLOAT16_BITS.newbyteorder("<") if _says_bfloat16(dataset) else None
        element_type(dtype)
        same = kind == h5py.h5t.py_create(dtype, logical=True)
    except (TypeError, ValueError, ArgumentError):
        return None
    return dtype if same and h5py.check_enum_dtype(dtype) is None else None


def _says_bfloat16(dataset: h5py.Dataset) -> bool:
    """Return whether opaque values are bfloat16, as Keras writes them."""
    if "dtype" not in dataset.attrs or dataset.attrs.get_id("dtype").shape != ():
        return False
    return dataset.attrs["dtype"] in ("bfloat16", b"bfloat16")


def _unfit(dataset: h5py.Dataset) -> str:
    """Return why numbers cannot be read, or the empty string."""
    if dataset.external or dataset.is_virtual:
        return "has its values in another file"
    plist = dataset.id.get_create_plist()
    usable = _FILTERS | (_MORE_FILTERS if "hdf5plugin" in sys.modules else frozenset())
    for number in range(plist.get_nfilters()):
        code, *_, name = plist.get_filter(number)
        if code not in usable:
            return f"has the filter {name.decode('ascii', 'replace') or code}"
    return ""


def _places(dataset: h5py.Dataset) -> tuple[dict[tuple[int, ...], tuple[int, int]], int]:
    """Return offset and bytes of what is stored outside of headers, by where each chunk begins.

    The second number is how many chunks are not stored.
    """
    if dataset.chunks is None:
        start, size = dataset.id.get_offset(), dataset.id.get_storage_size()
        return {} if start is None else {(0,) * dataset.ndim: (start, size)}, 0
    chunks: list[Any] = []
    dataset.id.chunk_iter(chunks.append)
    sides = zip(dataset.shape, dataset.chunks, strict=True)
    count = math.prod(-(-int(length) // int(side)) for length, side in sides)
    stored = {chunk.chunk_offset: (chunk.byte_offset, chunk.size) for chunk in chunks}
    return stored, max(count - len(stored), 0)


def _read(stream: BinaryIO, start: int, count: int) -> bytes:
    stream.seek(start)
    return stream.read(count)


def cut(file: h5py.File, stream: BinaryIO, size: int) -> Parts:
    """Take a file apart.

    Parameters
    ----------
    stream
        The bytes of the file; its position is moved.
    size
        How many these are.
    """
    parts = Parts()
    memory, empty = MAX_FILE_EXPANSION * size, _MAX_EMPTY_CHUNKS
    holes: list[tuple[int, int, str]] = []
    for path, dataset, unfit in _of_numbers(file):
        if path.partition("/")[0] == ENTRY:
            continue
        reason = unfit or (_TOO_LARGE if dataset.nbytes > memory else "")
        places, unstored = ({}, 0) if reason else _places(dataset)
        reason = reason or _doubt(dataset, places, stream) or (_TOO_LARGE if unstored > empty else "")
        if reason or len(parts.arrays) == MAX_ARRAYS:
            parts.left[path] = reason or f"is beyond {MAX_ARRAYS:,} arrays"
            continue
        memory -= dataset.nbytes
        empty -= unstored
        array = parts.arrays[path] = _read_array(dataset)
        chosen = dataset.id.get_create_plist().fill_value_defined() == h5py.h5d.FILL_VALUE_USER_DEFINED
        if array.dtype.kind == "f" and (chosen or unstored):
            parts.fills[path] = float(dataset.fillvalue)
        holes += ((start, start + nbytes, path) for start, nbytes in places.values())
    holes.sort()
    mixed: set[str] = set()  # datasets that share bytes: of a damaged file, or of a clever one
    end, last = 0, ""
    for start, stop, path in holes:
        if start < end:
            mixed |= {path, last}
        end, last = max((end, last), (stop, path))
    for path in sorted(mixed):
        del parts.arrays[path]
        parts.left[path] = "lies where another dataset does"
    apart = [(start, stop) for start, stop, path in holes if path not in mixed]
    skeleton, runs = _without(apart, stream, size)
    parts.entry.update(arrays=len(parts.arrays), runs=runs, skeleton=skeleton)
    return parts


def _doubt(dataset: h5py.Dataset, places: Mapping[Any, tuple[int, int]], stream: BinaryIO) -> str:
    """Return why the values of a dataset may lie elsewhere, or the empty string."""
    if dataset.chunks and places:  # HDF5 before 2.0 counts from the end of a user block
        chunk, place = next(iter(places.items()))
        if dataset.id.read_direct_chunk(chunk)[1] != _read(stream, *place):
            return "is stored where lccodec does not find it"
    if sum(nbytes for _, nbytes in places.values()) > MAX_FILE_EXPANSION * dataset.nbytes:
        return "has chunks that are far larger than it is"
    return ""


def _without(holes: list[tuple[int, int]], stream: BinaryIO, size: int) -> tuple[Array, Array]:
    """Return the bytes outside of holes that lie apart and in order, and the runs of both."""
    runs: list[int] = []
    kept: list[bytes] = []
    at = 0
    for start, stop in holes:
        if start > at or not runs:
            runs += [start - at, 0]
            kept.append(_read(stream, at, start - at))
        runs[-1] += stop - start
        at = stop
    kept.append(_read(stream, at, size - at))
    return np.frombuffer(b"".join(kept), np.uint8), np.array([*runs, size - at], np.int64)


def _read_array(dataset: h5py.Dataset) -> Array:
    """Return the values of an array in the byte order of this machine."""
    array = np.zeros(dataset.shape, _dtype(dataset))  # HDF5 may leave alone what is not stored
    if array.size:
        dataset.id.read(_ALL, _ALL, array, mtype=dataset.id.get_type())
    return in_host_order(array)


def join(path: Path, entry: Any, arrays: Mapping[str, Array]) -> tuple[str, list[str]]:
    """Write a file from its parts.

    Parameters
    ----------
    path
        An empty file.
    entry
        The entry `ENTRY` of a state. It is not trusted.
    arrays
        The arrays by path. The file is left without those that lack.

    Returns
    -------
    tuple
        Why the parts do not fit, or the empty string; and the paths of the arrays that lack.
    """
    if not _is_sound(entry):
        return "the skeleton is damaged", []
    skeleton, lengths = memoryview(entry["skeleton"]), entry["runs"].tolist()
    if sum(lengths) > MAX_FILE_EXPANSION * (len(skeleton) + sum(array.nbytes for array in arrays.values())):
        return "it is far larger than the arrays", []
    at = 0
    with path.open("r+b") as stream:
        for kept, skipped in zip(lengths[::2], [*lengths[1::2], 0], strict=True):
            stream.write(skeleton[at : at + kept])
            stream.seek(skipped, os.SEEK_CUR)
            at += kept
        stream.truncate()
    with h5py.File(path, "r+") as file:
        datasets, lacking, others = _datasets(file, arrays, np.cumsum(lengths))
        for name, array in arrays.items():
            if reason := _misfit(*datasets.get(name, (None, "is no dataset of it")), array):
                return f"{name!r} {reason}", []
        if not 0 <= entry["arrays"] - len(datasets) - len(lacking) <= others:
            return f"it has {entry['arrays']} arrays, the state {len(arrays)}", []
        if sum(_places(dataset)[1] for dataset, _ in datasets.values()) > _MAX_EMPTY_CHUNKS:
            return "it has far more chunks than are stored", []
        for name, (dataset, _) in datasets.items():
            _fill(dataset, arrays[name])
        return "", _leave_out(file, lacking) if lacking else []


def _datasets(
    file: h5py.File, arrays: Collection[str], ends: Array
) -> tuple[dict[str, tuple[h5py.Dataset, str]], set[int], int]:
    """Return the datasets of arrays, each with why it is none, and addresses of those that lack.

    Those were cut out; `ends` are those of the runs. The last of the three is how many other
    datasets may have been arrays: no value of theirs was cut out.
    """
    datasets: dict[str, tuple[h5py.Dataset, str]] = {}
    lacking: set[int] = set()
    others = 0
    for path, dataset, reason in _of_numbers(file):
        if path in arrays:
            datasets[path] = dataset, reason
        elif not reason:
            start, _ = next(iter(_places(dataset)[0].values()), (None, 0))
            if start is None:
                others += 1
            elif np.searchsorted(ends, start, "right") % 2:
                lacking.add(_address(dataset))
    return datasets, lacking, others


def _leave_out(file: h5py.File, lacking: set[int]) -> list[str]:
    """Remove datasets and their places among scales; return the names that they had."""
    names = []
    for path, dataset, _ in list(objects(file)):
        if not isinstance(dataset, h5py.Dataset):
            continue
        for axis in dataset.dims if _SCALES in dataset.attrs else ():
            for scale in axis.values():
                if not lacking.isdisjoint(map(_address, (dataset, scale))):
                    axis.detach_scale(scale)
        if _address(dataset) in lacking:
            names.append(path)
    for name in names:
        del file[name]
    return names


def _is_sound(entry: Any) -> bool:
    """Return whether the bytes of a skeleton are those that its runs ask for."""
    if not isinstance(entry, Mapping) or not isinstance(entry.get("arrays"), int):
        return False
    skeleton: Any = entry.get("skeleton")
    runs: Any = entry.get("runs")
    for array, dtype in ((skeleton, np.uint8), (runs, np.int64)):
        if not isinstance(array, np.ndarray) or array.dtype != dtype or array.ndim != 1:
            return False
    lengths = runs.tolist()  # of any size in Python: their sum cannot overflow
    return len(lengths) % 2 == 1 and min(lengths) >= 0 and sum(lengths[::2]) == skeleton.size


def _misfit(dataset: h5py.Dataset | None, reason: str, array: Array) -> str:
    """Return why an array cannot be written to a dataset; the empty string if it can."""
    if dataset is None or reason:
        return reason
    kind = element_type(_dtype(dataset))
    if kind != element_type(array.dtype) or dataset.shape != array.shape:
        return f"is {dataset.dtype} {dataset.shape} in it, and {array.dtype} {array.shape} in the state"
    return ""


def _fill(dataset: h5py.Dataset, array: Array) -> None:
    """Write an array to a dataset whose bytes were cut out.

    Nothing of what lies there is read. What was not stored is not stored again, unless it has other
    values than those that HDF5 fills it with.
    """
    if not array.size:
        return
    values = np.ascontiguousarray(in_host_order(array))
    if element_type(array.dtype).name == "bfloat16":
        values = values.view(BFLOAT16_BITS)
    values = values.astype(_dtype(dataset), copy=False)
    mtype, (stored, _) = dataset.id.get_type(), _places(dataset)
    if dataset.id.get_create_plist().get_nfilters():  # HDF5 would decode what is left of a chunk on the edge
        dataset.id.set_extent((0,) * dataset.ndim)
        dataset.id.set_extent(array.shape)
    sides = dataset.chunks or array.shape
    grid = [range(0, length, side) for length, side in zip(array.shape, sides, strict=True)]
    if len(stored) == math.prod(map(len, grid)):
        dataset.id.write(_ALL, _ALL, values, mtype=mtype)
        return
    for start in itertools.product(*grid):
        place = tuple(slice(at, at + side) for at, side in zip(start, sides, strict=True))
        block = np.ascontiguousarray(values[place])
        space, memory = dataset.id.get_space(), h5py.h5s.create_simple(block.shape)
        if start:
            space.select_hyperslab(start, block.shape)
        if start not in stored:
            filled = np.zeros_like(block)
            dataset.id.read(memory, space, filled, mtype=mtype)
            if filled.tobytes() == block.tobytes():
                continue
        dataset.id.write(memory, space, block, mtype=mtype)


def write_bfloat16(file: h5py.File, name: str, array: Array) -> None:
    """Write a new dataset of bfloat16, in the byte order of this machine."""
    kind = h5py.Datatype(_BFLOAT16["<" if np.little_endian else ">"])
    _fill(file.create_dataset(name, array.shape, kind, track_times=False), array)
