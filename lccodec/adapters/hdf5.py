"""HDF5 files, those of netCDF-4 and Keras among them: arrays by name, and all else as it was.

A file of another program becomes a nested dict of its arrays, and an entry with the rest of its
bytes (:mod:`lccodec.adapters.files.skeleton`) and with what it declares
(:mod:`lccodec.policy.declared`). Such a state is written as the file that it was. Attributes are
its metadata, too, as far as they are text or numbers: to be read, and for files of other formats.
The attribute ``units`` of an object ``a/b`` has the name ``a/b@units`` there. A value that is not a
string becomes its JSON text, and the entry ``lccodec.attributes`` says its type.

A state from elsewhere is written as plain HDF5, which h5py, h5web, MATLAB and Julia read. An array
is a dataset, a dict, list or tuple is a group. An int, float or bool is a dataset without
dimensions, a str is a string, bytes are opaque, None is an empty dataset. bfloat16 is a floating
point type of two bytes, which HDF5 converts to float32 for programs that do not know it. Metadata
are attributes of the root group; the attribute ``lccodec.state`` says what names do not, such as
which group was a list.

Unlike the reader of checkpoints, this one hands stored bytes to the HDF5 library. A damaged file
can make that library loop without end: read files from strangers in a process that can be ended.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Final

import h5py
import numpy as np

from ..container.scalars import is_unicode, metadata_strings
from ..container.tree import leaf_name
from ..element_types import Array, element_type
from ..errors import ArgumentError, FormatError, LccodecError, LimitError, StorageError, warn
from ..exchange.trees import nested
from ..policy.declared import DECLARED, ENTRY, declarations, write
from .files.disk import MAX_FILE_EXPANSION, replacing
from .files.skeleton import Parts, cut, join, objects, write_bfloat16
from .files.structure import STATE, named_leaves, rebuild, with_structure
from .seals.reading import sealed_file

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
    """Return the attributes of each group and dataset by path: those that are text or numbers.

    A value is a str, a list of str, or an array. `size` is that of the file. What asks for more
    memory than such a file may is left out; the skeleton has it.
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
        write_bfloat16(file, name, value)
    else:
        file.create_dataset(name, data=value, track_times=False)


def _write_attributes(file: h5py.File, metadata: Mapping[str, str]) -> None:
    """Write metadata as attributes of the objects that they name, the others of the root group.

    They may be edited, or be of another state: what does not fit its type is written as a string.
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
