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
from typing import Any, BinaryIO, Final

import h5py
import numpy as np

from ...constants import MAX_ARRAYS, MAX_DIMENSIONS, MAX_NESTING
from ...container.scalars import is_unicode
from ...container.tree import Keys
from ...element_types import BFLOAT16_BITS, Array, element_type, in_host_order
from ...errors import ArgumentError
from ...policy.declared import ENTRY
from .disk import MAX_FILE_EXPANSION

__all__ = ["Parts", "cut", "join", "objects", "write_bfloat16"]

_ALL: Final = h5py.h5s.ALL
_BFLOAT16_FIELDS: Final = ((15, 7, 8, 0, 7), 127)  # sign, exponent and mantissa; the bias
#: Chunks that are not stored, of all arrays of a file: HDF5 takes memory and time for each.
_MAX_EMPTY_CHUNKS: Final = 1 << 14
#: Filters that give back what they got: deflate, shuffle, fletcher32 and h5py's LZF.
_FILTERS: Final = frozenset((1, 2, 3, 32000))
#: Those of hdf5plugin: bzip2, blosc, LZ4, bitshuffle, zstd, blosc2. They are used if it is
#: imported: no plugin is loaded for a file.
_MORE_FILTERS: Final = frozenset((307, 32001, 32004, 32008, 32015, 32026))


@dataclass
class Parts:
    """A file taken apart.

    Parameters
    ----------
    arrays
        The arrays by the keys of their paths; each dataset once, under its first name.
    skeleton, runs
        As in the entry of a state.
    left
        Datasets of numbers that are no arrays, by path, and why.
    fills
        What HDF5 fills arrays with where nothing was written, by path, if somebody chose it, or if
        not all was written.
    """

    arrays: dict[Keys, Array] = field(default_factory=dict)
    skeleton: Array = field(default_factory=lambda: np.empty(0, np.uint8))
    runs: Array = field(default_factory=lambda: np.empty(0, np.int64))
    left: dict[str, str] = field(default_factory=dict)
    fills: dict[str, float] = field(default_factory=dict)


def objects(group: h5py.Group, keys: Keys = (), seen: set[int] | None = None) -> Iterator[tuple[Keys, Any]]:
    """Yield groups and datasets with the keys of their paths, by hard links only, in a fixed order.

    A group is yielded once, a dataset under each of its names. What lies deeper than a state may
    nest, or has a name that no state can have, is left out.
    """
    seen = set() if seen is None else seen
    seen.add(h5py.h5o.get_info(group.id).addr)
    yield keys, group
    if len(keys) >= MAX_NESTING - 1:
        return
    for key in group:
        if isinstance(key, bytes) or not is_unicode(key):
            continue
        if group.id.links.get_info(key.encode()).type != h5py.h5l.TYPE_HARD:  # `get` would follow others
            continue
        child = group[key]
        if isinstance(child, h5py.Dataset):
            yield (*keys, key), child
        elif isinstance(child, h5py.Group) and h5py.h5o.get_info(child.id).addr not in seen:
            yield from objects(child, (*keys, key), seen)


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
    memory = MAX_FILE_EXPANSION * size
    empty = _MAX_EMPTY_CHUNKS
    seen: set[int] = set()
    holes: list[tuple[int, int, Keys]] = []
    for keys, dataset in objects(file):
        path = "/".join(keys)
        if not isinstance(dataset, h5py.Dataset) or (address := _address(dataset)) in seen:
            continue
        seen.add(address)
        if keys[0] == ENTRY or (reason := _unfit(dataset)) == _NO_NUMBERS:
            continue
        places: list[tuple[int, int]] = []
        if not reason and dataset.nbytes <= memory:
            places, reason = _places(dataset, stream)
        if not reason and (dataset.nbytes > memory or _empty_chunks(dataset, len(places)) > empty):
            reason = "is far larger than its file"
        if reason or len(parts.arrays) == MAX_ARRAYS:
            parts.left[path] = reason or f"is beyond {MAX_ARRAYS:,} arrays"
            continue
        memory -= dataset.nbytes
        empty -= _empty_chunks(dataset, len(places))
        array = parts.arrays[keys] = _read_array(dataset)
        chosen = dataset.id.get_create_plist().fill_value_defined() == h5py.h5d.FILL_VALUE_USER_DEFINED
        if array.dtype.kind == "f" and (chosen or _empty_chunks(dataset, len(places))):
            parts.fills[path] = float(dataset.fillvalue)
        holes += ((start, start + nbytes, keys) for start, nbytes in places)
    holes.sort()
    mixed: set[Keys] = set()  # datasets that share bytes: of a damaged file, or of a clever one
    end = 0
    last: Keys = ()
    for start, stop, keys in holes:
        if start < end:
            mixed |= {keys, last}
        end, last = max((end, last), (stop, keys))
    for keys in sorted(mixed):
        del parts.arrays[keys]
        parts.left["/".join(keys)] = "lies where another dataset does"
    apart = [(start, stop) for start, stop, keys in holes if keys not in mixed]
    parts.skeleton, parts.runs = _without(apart, stream, size)
    return parts


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


def _read(stream: BinaryIO, start: int, count: int) -> bytes:
    stream.seek(start)
    return stream.read(count)


_NO_NUMBERS: Final = "no numbers"
_SCALES: Final = "DIMENSION_LIST"


def _unfit(dataset: h5py.Dataset) -> str:
    """Return why a dataset is no array; the empty string if it is one."""
    if _memory_type(dataset) is None:
        return _NO_NUMBERS
    if dataset.external or dataset.is_virtual:
        return "has its values in another file"
    plist = dataset.id.get_create_plist()
    usable = _FILTERS | (_MORE_FILTERS if "hdf5plugin" in sys.modules else frozenset())
    for number in range(plist.get_nfilters()):
        code, *_, name = plist.get_filter(number)
        if code not in usable:
            return f"has the filter {name.decode('ascii', 'replace') or code}"
    return ""


def _memory_type(dataset: h5py.Dataset) -> np.dtype[Any] | None:
    """Return the dtype in which numbers are read and written without a change; None for others."""
    kind = dataset.id.get_type()
    if dataset.shape is None or len(dataset.shape) > MAX_DIMENSIONS:
        return None
    if _is_bfloat16(kind):
        return BFLOAT16_BITS
    try:
        dtype = dataset.dtype
        if dtype.kind == "V" and dtype.itemsize == 2 and dtype.names is None:
            return BFLOAT16_BITS if _says_bfloat16(dataset) else None
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


def _address(dataset: h5py.Dataset) -> int:
    return int(h5py.h5o.get_info(dataset.id).addr)


def _empty_chunks(dataset: h5py.Dataset, stored: int) -> int:
    """Return how many chunks of a dataset are not stored, if so many are."""
    if dataset.chunks is None:
        return 0
    sides = zip(dataset.shape, dataset.chunks, strict=True)
    return max(math.prod(-(-int(length) // int(side)) for length, side in sides) - stored, 0)


def _places(dataset: h5py.Dataset, stream: BinaryIO) -> tuple[list[tuple[int, int]], str]:
    """Return where in the file the values lie, offsets and bytes, or why that is not sure."""
    if dataset.chunks is None:
        start = dataset.id.get_offset()  # None if they lie in the header, or nowhere
        found = [] if start is None else [(start, dataset.id.get_storage_size())]
        return found, ""
    chunks: list[Any] = []
    dataset.id.chunk_iter(chunks.append)
    found = [(chunk.byte_offset, chunk.size) for chunk in chunks]
    if chunks:  # HDF5 before 2.0 counts from the end of a user block
        stored = dataset.id.read_direct_chunk(chunks[0].chunk_offset)[1]
        if stored != _read(stream, *found[0]):
            return [], "is stored where lccodec does not find it"
    if sum(nbytes for _, nbytes in found) > MAX_FILE_EXPANSION * dataset.nbytes:
        return [], "has chunks that are far larger than it is"
    return found, ""


def _read_array(dataset: h5py.Dataset) -> Array:
    """Return the values of an array in the byte order of this machine."""
    dtype = _memory_type(dataset)
    array = np.zeros(dataset.shape, dtype)  # HDF5 may leave alone what is not stored
    if not array.size:
        return in_host_order(array)
    if dtype is not BFLOAT16_BITS:
        dataset.id.read(_ALL, _ALL, array)
        return in_host_order(array)
    if _is_bfloat16(dataset.id.get_type()):
        dataset.id.read(_ALL, _ALL, array.view(np.uint16), mtype=_bfloat16_type())
        return array
    opaque = np.empty(dataset.shape, "V2")
    dataset.id.read(_ALL, _ALL, opaque)  # Keras writes no order with it
    return in_host_order(opaque.view("<u2")).view(BFLOAT16_BITS)


def _is_bfloat16(kind: h5py.h5t.TypeID) -> bool:
    if kind.get_class() != h5py.h5t.FLOAT or kind.get_size() != 2:
        return False
    return (kind.get_fields(), kind.get_ebias()) == _BFLOAT16_FIELDS


def _bfloat16_type() -> h5py.h5t.TypeFloatID:
    """Return the type of bfloat16 in the byte order of this machine."""
    kind = (h5py.h5t.IEEE_F32LE if np.little_endian else h5py.h5t.IEEE_F32BE).copy()
    fields, bias = _BFLOAT16_FIELDS
    kind.set_fields(*fields)
    kind.set_size(2)
    kind.set_ebias(bias)
    return kind


def join(path: Path, entry: Any, arrays: Mapping[Keys, Array]) -> tuple[str, list[str]]:
    """Write a file from its parts.

    Parameters
    ----------
    path
        An empty file.
    entry
        The entry `ENTRY` of a state. It is not trusted.
    arrays
        The arrays by the keys of their paths. The file is left without those that lack.

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
        found, lacking, elsewhere = _datasets(file, arrays, np.cumsum(lengths))
        for keys, array in arrays.items():
            if reason := _misfit(found.get(keys), array):
                return f"{'/'.join(keys)!r} {reason}", []
        if not 0 <= entry["arrays"] - len(found) - len(lacking) <= elsewhere:
            return f"it has {entry['arrays']} arrays, the state {len(arrays)}", []
        empty = sum(_empty_chunks(dataset, _stored(dataset)) for dataset in found.values())
        if empty > _MAX_EMPTY_CHUNKS:
            return "it has far more chunks than are stored", []
        for keys, dataset in found.items():
            _fill(dataset, arrays[keys])
        return "", _leave_out(file, lacking)


def _datasets(
    file: h5py.File, arrays: Collection[Keys], ends: Array
) -> tuple[dict[Keys, h5py.Dataset], dict[int, h5py.Dataset], int]:
    """Return the datasets of arrays, and by address those whose values were cut out and lack.

    `ends` are those of the runs. The last of the three is how many other datasets may have been
    arrays: no value of theirs was cut out.
    """
    found: dict[Keys, h5py.Dataset] = {}
    lacking: dict[int, h5py.Dataset] = {}
    seen: set[int] = set()
    others = 0
    for keys, dataset in objects(file):
        if not isinstance(dataset, h5py.Dataset) or (address := _address(dataset)) in seen:
            continue
        seen.add(address)
        if keys in arrays:
            found[keys] = dataset
        elif not _unfit(dataset):
            start = _first_byte(dataset)
            if start is not None and np.searchsorted(ends, start, "right") % 2:
                lacking[address] = dataset
            others += start is None
    return found, lacking, others


def _first_byte(dataset: h5py.Dataset) -> int | None:
    """Return where the first value lies that is stored outside of headers; None if none is."""
    if dataset.chunks is None:
        start: int | None = dataset.id.get_offset()
        return start
    places: list[int] = []
    dataset.id.chunk_iter(lambda chunk: places.append(chunk.byte_offset))
    return places[0] if places else None


def _leave_out(file: h5py.File, lacking: Mapping[int, h5py.Dataset]) -> list[str]:
    """Remove datasets and their places among scales; return the names that they had."""
    if not lacking:
        return []
    names = []
    for keys, dataset in list(objects(file)):
        if not isinstance(dataset, h5py.Dataset):
            continue
        lacks = _address(dataset) in lacking
        for axis in dataset.dims if _SCALES in dataset.attrs else ():
            for scale in axis.values():
                if lacks or _address(scale) in lacking:
                    axis.detach_scale(scale)
        names += ["/".join(keys)] * lacks
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


def _misfit(dataset: h5py.Dataset | None, array: Array) -> str:
    """Return why an array cannot be written to a dataset; the empty string if it can."""
    if dataset is None:
        return "is no dataset of it"
    if reason := _unfit(dataset):
        return reason
    dtype = _memory_type(dataset)
    if dtype is None or element_type(dtype) != element_type(array.dtype) or dataset.shape != array.shape:
        return f"is {dataset.dtype} {dataset.shape} in it, and {array.dtype} {array.shape} in the state"
    return ""


def _fill(dataset: h5py.Dataset, array: Array) -> None:
    """Write an array to a dataset whose bytes were cut out.

    Nothing of what lies there is read. What was not stored is not stored again, unless it has other
    values than those that HDF5 fills it with.
    """
    if not array.size:
        return
    values, mtype = _as_stored(dataset, array)
    if dataset.chunks is None:
        if dataset.id.get_offset() is not None or not _same(_read_array(dataset), array):
            dataset.id.write(_ALL, _ALL, values, mtype=mtype)
        return
    stored: set[tuple[int, ...]] = set()
    dataset.id.chunk_iter(lambda chunk: stored.add(chunk.chunk_offset))
    if dataset.id.get_create_plist().get_nfilters():  # HDF5 would decode what is left of a chunk on the edge
        dataset.id.set_extent((0,) * dataset.ndim)
        dataset.id.set_extent(array.shape)
    grid = [range(0, length, side) for length, side in zip(array.shape, dataset.chunks, strict=True)]
    if len(stored) == math.prod(map(len, grid)):
        dataset.id.write(_ALL, _ALL, values, mtype=mtype)
        return
    for start in itertools.product(*grid):
        place = tuple(slice(at, at + side) for at, side in zip(start, dataset.chunks, strict=True))
        block = np.ascontiguousarray(values[place])
        space, memory = dataset.id.get_space(), h5py.h5s.create_simple(block.shape)
        space.select_hyperslab(start, block.shape)
        if start not in stored:
            filled = np.zeros_like(block)
            dataset.id.read(memory, space, filled, mtype=mtype)
            if _same(filled, block):
                continue
        dataset.id.write(memory, space, block, mtype=mtype)


def _stored(dataset: h5py.Dataset) -> int:
    """Return how many chunks of a dataset are stored."""
    return int(dataset.id.get_num_chunks()) if dataset.chunks else 0


def _as_stored(dataset: h5py.Dataset, array: Array) -> tuple[Array, h5py.h5t.TypeID | None]:
    """Return values as HDF5 takes them, and their type; None for the type of their dtype."""
    values = np.ascontiguousarray(in_host_order(array)).reshape(array.shape)
    if element_type(array.dtype).name != "bfloat16":
        return values, None
    bits = values.view(np.uint16)
    kind = dataset.id.get_type()
    return (bits, _bfloat16_type()) if _is_bfloat16(kind) else (bits.astype("<u2").view("V2"), kind)


def _same(one: Array, other: Array) -> bool:
    return one.tobytes() == other.tobytes()


def write_bfloat16(group: h5py.Group, name: str, array: Array) -> None:
    """Write a new dataset of bfloat16, which h5py has no dtype for."""
    space = h5py.h5s.create_simple(array.shape) if array.shape else h5py.h5s.create(h5py.h5s.SCALAR)
    made = h5py.h5d.create(group.id, name.encode(), _bfloat16_type(), space)
    if array.size:
        bits = np.ascontiguousarray(in_host_order(array)).view(np.uint16)
        made.write(_ALL, _ALL, bits, mtype=_bfloat16_type())
