"""HDF5 files, those of netCDF-4 and Keras among them: arrays by name, and all else as it was.

A file of another program becomes a nested dict of its arrays, and an entry with the rest of its
bytes, its skeleton, and with what it declares (:mod:`lccodec.policy.declared`). Such a state is
written as the file that it was. Attributes are its metadata, too, as far as they are text or
numbers: to be read, and for files of other formats. The attribute ``units`` of an object ``a/b``
has the name ``a/b@units`` there. A value that is not a string becomes its JSON text, and the entry
``lccodec.attributes`` says its type.

A state from elsewhere is written as plain HDF5, which h5py, h5web, MATLAB and Julia read. An array
is a dataset, a dict, list or tuple is a group. An int, float or bool is a dataset without
dimensions, a str is a string, bytes are opaque, None is an empty dataset. bfloat16 is a floating
point type of two bytes, which HDF5 converts to float32 for programs that do not know it. Metadata
are attributes of the root group; the attribute ``lccodec.state`` says what names do not, such as
which group was a list.

Unlike the reader of checkpoints, this one hands stored bytes to the HDF5 library. A damaged file
can make that library loop without end: read files from strangers in a process that can be ended.

The skeleton of a file is its bytes without those of its arrays. Names, attributes, strings,
compounds, references, links, chunks, filters and all else that HDF5 has are in it, and come back as
they were. An array is a dataset of numbers that this module can write again without loss.

A state has the entry `ENTRY` for it: ``skeleton`` (uint8, the bytes that are kept), ``runs``
(int64, how many bytes are kept, cut, kept, and so on), and ``arrays`` (how many arrays there are).

Hostile files: links are never followed, nor is data outside of the file. Before memory is taken,
sizes are compared with that of the file. What is too large stays in the skeleton.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import re
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal

import h5py
import numpy as np

from ..constants import MAX_ARRAYS, MAX_DIMENSIONS, MAX_NESTING
from ..container.folder import replacing
from ..container.tree import Keys, is_unicode, leaf_name, metadata_strings
from ..element_types import BFLOAT16_BITS, Array, element_type, in_host_order
from ..errors import ArgumentError, FormatError, LccodecError, LimitError, StorageError, warn
from ..exchange.mapping import nested
from ..policy.declared import DECLARED, ENTRY, declarations, write
from .files.structure import STATE, named_leaves, rebuild, with_structure
from .files.zip_archive import MAX_FILE_EXPANSION
from .seals import sealed_file

__all__ = ["load_metadata", "load_state", "save_file"]

_RULE: Final = "hdf5"
_ERRNO: Final = re.compile(r"errno = (\d+)")
_MAX_SHOWN: Final = 8  # names in a warning
#: The entry of the metadata with the types of attributes that are numbers.
_TYPES: Final = "lccodec.attributes"
_DTYPE: Final = re.compile(r"[<>|][biuf][1248]")
_OF_SCALES: Final = ("CLASS", "NAME", "REFERENCE_LIST", "DIMENSION_LIST")  # HDF5 writes these itself
_NETCDF: Final = ("_Netcdf4", "_NC")  # what netCDF-4 says of the file alone
_MAX_ELEMENTS: Final = 1 << 10  # of an attribute that is read
_MAX_STRINGS: Final = 1 << 5  # of variable length: each may be as long as the file


def load_state(path: str | os.PathLike[str]) -> tuple[Any, dict[str, str]]:
    """Return the state in an HDF5 file, and its attributes as metadata.

    The attribute ``units`` of an object ``a/b`` has the name ``a/b@units`` in the metadata. Numbers
    become their JSON text. Datasets of numbers that stay in the skeleton are named in a warning.

    Raises
    ------
    FormatError
        If it is not an HDF5 file, or is damaged.
    LimitError
        If it is plain HDF5 of lccodec and declares more than a file of its size may.
    StorageError
        If the operating system cannot read it.
    """
    with _opened(path) as (file, stream, size):
        parts = cut(file, stream, size)
        attributes = _attributes(file, size)
        if STATE in file.attrs:
            return _plain_state(file, str(path), parts, _metadata(attributes))
    if parts.left:
        shown = [f"{name!r} {why}" for name, why in list(parts.left.items())[:_MAX_SHOWN]]
        more = f", and {len(parts.left) - _MAX_SHOWN} more" if len(parts.left) > _MAX_SHOWN else ""
        warn(f"{path}: kept as stored, and no arrays: {', '.join(shown)}{more}")
    filled = {path: {**attributes.get(path, {}), "fill_value": fill} for path, fill in parts.fills.items()}
    if declared := declarations({**attributes, **filled}, list(parts.arrays)):
        by_name = {leaf_name(tuple(path.split("/"))): declaration for path, declaration in declared.items()}
        parts.entry[DECLARED[-1]] = write(by_name)
    return {**nested(parts.arrays, "/"), ENTRY: parts.entry}, _metadata(attributes)


def load_metadata(path: str | os.PathLike[str]) -> dict[str, str]:
    """Return the attributes of the root group as metadata; errors as `load_state`."""
    with _opened(path) as (file, _, size):
        metadata = _metadata({"": _attributes(file, size)[""]})
    return {key: text for key, text in metadata.items() if key != STATE}


@contextmanager
def _opened(path: str | os.PathLike[str]) -> Iterator[tuple[h5py.File, BinaryIO, int]]:
    """Open a file; yield it, its bytes and its size. HDF5's errors become those of the package."""
    with sealed_file(path) as stream:
        try:
            with h5py.File(os.fspath(path), "r") as file:
                yield file, stream, os.fstat(stream.fileno()).st_size
        except LccodecError:
            raise
        except MemoryError as error:
            raise LimitError(_RULE, str(path), "asks for more memory than there is") from error
        except Exception as error:
            if (code := _errno(error)) is not None:
                raise StorageError(code, f"cannot read: {os.strerror(code)}", str(path)) from error
            text = str(error) or type(error).__name__
            raise FormatError(_RULE, str(path), f"not an HDF5 file, or a damaged one: {text}") from error


def _errno(error: Exception) -> int | None:
    """Return the number of the operating system's error that HDF5 tells in its own, or None."""
    match = _ERRNO.search(str(error))
    return int(match[1]) if match else None


def _plain_state(
    file: h5py.File, where: str, parts: Parts, metadata: dict[str, str]
) -> tuple[Any, dict[str, str]]:
    """Return the state of a file that `save_file` wrote as plain HDF5."""
    for name, why in parts.left.items():
        raise LimitError(_RULE, f"{where}: {name!r}", why)
    arrays: dict[str, Array] = {}
    scalars: dict[str, Any] = {}
    for name, item, first in objects(file):
        if first in parts.arrays:  # an array in two places is one dataset with two names
            arrays[name] = parts.arrays[first]
        elif isinstance(item, h5py.Dataset):
            scalars[name] = _scalar(item)
    return rebuild(arrays, metadata, scalars)


def _scalar(dataset: h5py.Dataset) -> str | bytes | None:
    """Return a scalar that is not a number."""
    if dataset.shape != ():
        return None
    value: Any = dataset[()]
    if isinstance(value, np.void):
        return value.tobytes()
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _attributes(file: h5py.File, size: int) -> dict[str, dict[str, Any]]:
    """Return the attributes of each group and dataset by path: text and numbers.

    A value is a str, a list of str, or an array. What asks for more memory than a file of `size`
    may is left out; the skeleton has it.
    """
    memory = MAX_FILE_EXPANSION * size
    by_item: dict[str, dict[str, Any]] = {}
    for path, item, first in objects(file):
        values = by_item.setdefault(first, {})
        for key in item.attrs if path == first else ():
            if memory > 0 and isinstance(key, str) and is_unicode(key):
                with suppress(TypeError, ValueError, OSError):  # a type that h5py does not know
                    value = _attribute(item, key)
                    if value is not None:
                        memory -= value.nbytes if isinstance(value, np.ndarray) else len(str(value))
                        values[key] = value
    return by_item


def _attribute(item: h5py.Group | h5py.Dataset, key: str) -> Any:
    """Return a value, or None for what is neither text nor numbers, and for what is long."""
    attribute = item.attrs.get_id(key)
    text = h5py.check_string_dtype(attribute.dtype)
    most = _MAX_STRINGS if text is not None and text.length is None else _MAX_ELEMENTS
    if attribute.shape is None or math.prod(attribute.shape) > most:
        return None
    if text is None:
        is_number = _DTYPE.fullmatch(attribute.dtype.str) and h5py.check_enum_dtype(attribute.dtype) is None
        return np.asarray(item.attrs[key]) if is_number else None
    texts = [_text(element) for element in np.ravel(item.attrs[key]).tolist()]
    return texts if attribute.shape else texts[0]


def _text(value: str | bytes) -> str:
    """Return text; what is not UTF-8 is taken for Latin-1."""
    data = value if isinstance(value, bytes) else value.encode("utf-8", "surrogateescape")
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _metadata(attributes: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return attributes as metadata."""
    metadata, types = {}, {}
    for path, values in attributes.items():
        for key, value in values.items():
            if key.startswith(_NETCDF):
                continue
            place = f"{path}@{key}" if path else key
            if isinstance(value, np.ndarray):
                types[place] = value.dtype.str
            plain = value.tolist() if isinstance(value, np.ndarray) else value
            metadata[place] = plain if isinstance(plain, str) else json.dumps(plain)
    return {**metadata, _TYPES: json.dumps(types)} if types else metadata


def save_file(state: Any, path: str | os.PathLike[str], metadata: dict[str, str] | None = None) -> None:
    """Write a state to an HDF5 file atomically; an existing file is replaced.

    A state from an HDF5 file becomes that file again, with the arrays of the state, and without
    those that the state lacks; what they took of the file is left empty. If they do not fit, plain
    HDF5 is written, and a warning says why.

    Parameters
    ----------
    state
        A nested dict, list or tuple.
    metadata
        Strings, which become attributes of the root group; ``a/b@units`` of the object ``a/b``.
        Those that a file from elsewhere has itself are left as they are.

    Raises
    ------
    ArgumentError
        For an entry whose name HDF5 cannot have, and for two entries of which one would be a
        dataset and a group.
    StorageError
        If the operating system refuses. An existing file is unchanged.
    """
    metadata = metadata_strings(metadata)
    entry: Any = None
    if isinstance(state, Mapping):
        # Of a state of some arrays by name, the parts of the entry have names, too.
        parts = {key: value for key, value in state.items() if str(key).partition("/")[0] == ENTRY}
        if parts:
            state = {key: value for key, value in state.items() if key not in parts}
            entry = parts.get(ENTRY, {key.partition("/")[2]: value for key, value in parts.items()})
    arrays, scalars = named_leaves(state)
    reason = ""
    with replacing(path) as temporary:
        try:
            if entry is not None:
                reason = _join(temporary, entry, arrays, scalars, metadata)
            if entry is None or reason:
                _write_plain(temporary, state, arrays, scalars, metadata)
        except (ValueError, TypeError, RuntimeError) as error:
            if (code := _errno(error)) is not None:
                raise StorageError(code, f"cannot write: {os.strerror(code)}", str(path)) from error
            raise ArgumentError(f"{path}: {error}") from error
    if reason:
        warn(f"{path}: written as plain HDF5, without the rest of the file that the state is from: {reason}")


def _join(
    path: Path, entry: Any, arrays: Mapping[str, Array], scalars: Mapping[str, Any], metadata: dict[str, str]
) -> str:
    """Write the file that a state is from; return why it cannot be, or the empty string."""
    if scalars:
        return f"the state has {next(iter(scalars))!r}, which is no array"
    try:
        reason, gone = join(path, entry, arrays)
        if reason:
            return reason
        with h5py.File(path, "r+") as file:
            there = {_TYPES, *_metadata(_attributes(file, path.stat().st_size))}
            for key, text in metadata.items():
                if key not in there and key.rpartition("@")[0] not in gone:
                    file.attrs.setdefault(key, text)
    except (OSError, ValueError, TypeError, RuntimeError, KeyError) as error:
        if _errno(error) is not None or (isinstance(error, OSError) and error.errno):
            raise
        return f"the skeleton is damaged: {error}"
    return ""


def _write_plain(
    path: Path, state: Any, arrays: Mapping[str, Array], scalars: Mapping[str, Any], metadata: dict[str, str]
) -> None:
    leaves = {**arrays, **scalars}
    _check_names(leaves)
    # The note holds those that a dataset cannot hold as they are.
    odd = {n: v for n, v in scalars.items() if isinstance(v, int) or v == b"" or "\0" in str(v)}
    noted = with_structure(state, odd, metadata, always=True)
    first: dict[int, str] = {}  # an array in two places is one dataset
    with h5py.File(path, "w") as file:
        for name, value in leaves.items():
            if isinstance(value, np.ndarray) and id(value) in first:
                file[name] = file[first[id(value)]]
                continue
            first[id(value)] = name
            _write(file, name, value)
        _write_attributes(file, noted)


def _check_names(leaves: Mapping[str, Any]) -> None:
    groups = set[str]()
    for name in leaves:
        parts = name.split("/")
        if any(part in ("", ".") for part in parts) or "\0" in name:
            raise ArgumentError(f"entry {name!r} cannot have this name in an HDF5 file")
        groups.update("/".join(parts[:count]) for count in range(1, len(parts)))
    if both := sorted(groups & leaves.keys()):
        raise ArgumentError(f"entry {both[0]!r} would be a dataset and a group of an HDF5 file")


def _write(file: h5py.File, name: str, value: Any) -> None:
    if value is None:
        file[name] = h5py.Empty("f4")
    elif isinstance(value, bytes):
        file[name] = np.void(value) if value else h5py.Empty("S1")
    elif not isinstance(value, np.ndarray):
        file[name] = str(value).replace("\0", "\\0")
    elif element_type(value.dtype).name == "bfloat16":
        kind = h5py.Datatype(_BFLOAT16["<" if np.little_endian else ">"])
        _fill(file.create_dataset(name, value.shape, kind, track_times=False), value)
    else:
        file.create_dataset(name, data=value, track_times=False)


def _write_attributes(file: h5py.File, metadata: Mapping[str, str]) -> None:
    """Write metadata as attributes of the objects that they name, the others of the root group.

    They may be edited: what does not fit its type is written as a string.
    """
    try:
        types = dict(json.loads(metadata.get(_TYPES, "{}")))
    except (ValueError, TypeError, RecursionError):
        types = {}
    for key, text in metadata.items():
        place, _, attribute = key.rpartition("@")
        if not place or not attribute or place not in file:
            place, attribute = "/", key
        elif attribute in _OF_SCALES:
            continue
        value: Any = text
        dtype = types.get(key)
        if isinstance(dtype, str) and _DTYPE.fullmatch(dtype):
            with suppress(ValueError, TypeError, OverflowError, RecursionError):
                value = np.asarray(json.loads(text), np.dtype(dtype))
        if key != _TYPES:
            file[place].attrs[attribute] = value


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
    """A file taken apart."""

    entry: dict[str, Any] = field(default_factory=dict)  # of a state
    arrays: dict[str, Array] = field(default_factory=dict)  # by path; each once, under its first name
    left: dict[str, str] = field(default_factory=dict)  # datasets of numbers that are no arrays, and why
    # What is filled in where nothing was written: if somebody chose it, or not all was written.
    fills: dict[str, float] = field(default_factory=dict)


def objects(
    group: h5py.Group, keys: Keys = (), names: dict[int, str] | None = None
) -> Iterator[tuple[str, Any, str]]:
    """Yield groups and datasets with their paths, by hard links only, in a fixed order.

    A group comes once, a dataset under each path, with its first. What no state can hold is left
    out.
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
        if dtype == "V2":  # opaque values, which Keras says are bfloat16
            says = "dtype" in dataset.attrs and dataset.attrs.get_id("dtype").shape == ()
            is_bfloat16 = says and dataset.attrs["dtype"] in ("bfloat16", b"bfloat16")
            return BFLOAT16_BITS.newbyteorder("<") if is_bfloat16 else None
        element_type(dtype)
        same = kind == h5py.h5t.py_create(dtype, logical=True)
    except (TypeError, ValueError, ArgumentError):
        return None
    return dtype if same and h5py.check_enum_dtype(dtype) is None else None


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
    """Return offset and bytes of stored chunks by their start, and how many are not stored."""
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
    """Take a file apart; `stream` has its bytes, which are `size`, and its position is moved."""
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
        array = np.zeros(dataset.shape, _dtype(dataset))  # HDF5 may leave alone what is not stored
        if array.size:
            dataset.id.read(_ALL, _ALL, array, mtype=dataset.id.get_type())
        parts.arrays[path] = in_host_order(array)
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


def join(path: Path, entry: Any, arrays: Mapping[str, Array]) -> tuple[str, list[str]]:
    """Write a file from its parts to an empty one; return why they do not fit, or the empty string.

    Also the paths of the arrays that lack. `entry` is that of a state, and is not trusted.
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
    """Return datasets of arrays with what is unfit in them, addresses of lacking ones, and a count.

    Lacking ones were cut out; `ends` are those of the runs. The count is of others that may have
    been arrays: no value of theirs was cut out.
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
    """Write an array to a dataset whose bytes were cut out; nothing of what lies there is read.

    What was not stored is stored only if it has other values than those that HDF5 fills in.
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
