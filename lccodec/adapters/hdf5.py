"""Plain HDF5 files (``.h5``, ``.hdf5``): decoded datasets under their names, through h5py.

h5py, h5web, MATLAB and Julia read what is written. An array is a dataset, a dict, list or tuple is
a group. An int, float or bool is a dataset without dimensions, a str is a string, bytes are opaque,
None is an empty dataset. bfloat16 is a floating point type of two bytes, which HDF5 converts to
float32 for programs that do not know it. Metadata are attributes of the root group; the attribute
``lccodec.state`` says what names do not, such as which group was a list.

Files of other programs are read too, Keras' ``.weights.h5`` among them: groups become dicts. Soft
and external links, external storage and virtual datasets are refused, because they lead to other
files. Datasets may be 4,096 times as large as the file at most, all together; they may have one
chunk for each byte of the file, or one dimension scale for each 32.

Unlike the reader of checkpoints, this one hands stored bytes to the HDF5 library. A damaged file
can make that library loop without end: read files from strangers in a process that can be ended.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import h5py
import numpy as np

from ..constants import MAX_ARRAYS, MAX_NESTING
from ..container.scalars import metadata_strings, scalar_json
from ..element_types import BFLOAT16_BITS, Array, element_type, in_host_order
from ..errors import ArgumentError, FormatError, LccodecError, LimitError, StorageError
from .files.attributes import TYPES, read_attribute, read_types, write_attributes
from .files.disk import MAX_FILE_EXPANSION, replacing
from .files.named_arrays import named_leaves
from .files.structure import STATE, rebuild, with_structure
from .seals.reading import sealed_file

__all__ = ["load_metadata", "load_state", "save_file"]

_RULE: Final = "hdf5"
_MAX_VARYING: Final = MAX_FILE_EXPANSION  # elements of variable length, read together: each may be the file
_SCALE_BYTES: Final = 32  # of a file, that a dimension scale takes at the least; to open one is slow
_ALL: Final = h5py.h5s.ALL
_BFLOAT16_FIELDS: Final = ((15, 7, 8, 0, 7), 127)  # sign, exponent and mantissa; the bias
_ERRNO: Final = re.compile(r"errno = (\d+)")


def load_state(path: str | os.PathLike[str]) -> tuple[Any, dict[str, str]]:
    """Return the state in an HDF5 file, and its attributes as metadata.

    The attribute ``units`` of an object ``a/b`` has the name ``a/b@units`` in the metadata. A value
    that is not a string becomes its JSON text (:mod:`lccodec.adapters.files.attributes`).

    Raises
    ------
    ArgumentError
        For a dataset of a type that lccodec cannot hold. The message names it.
    FormatError
        If it is not an HDF5 file, is damaged, or leads to other files by links or storage.
    LimitError
        If it declares more than a file of its size may.
    StorageError
        If the operating system cannot read it.
    """
    with _opened(path) as (file, size):
        walk = _Walk(str(path), size)
        state = walk.group(file, ())
        walk.note_types()
    if STATE not in walk.metadata:
        return state, walk.metadata
    scalars = {name: value for name, value in walk.leaves.items() if not isinstance(value, np.ndarray)}
    arrays = {name: value for name, value in walk.leaves.items() if isinstance(value, np.ndarray)}
    return rebuild(arrays, _with_scalars(walk.metadata, scalars))


def load_metadata(path: str | os.PathLike[str]) -> dict[str, str]:
    """Return the attributes of the root group as metadata; errors as `load_state`."""
    with _opened(path) as (file, size):
        walk = _Walk(str(path), size)
        walk.attributes(file, "")
        walk.note_types()
    return {key: text for key, text in walk.metadata.items() if key != STATE}


@contextmanager
def _opened(path: str | os.PathLike[str]) -> Iterator[tuple[h5py.File, int]]:
    """Open a file; yield it and its size. HDF5's errors become those of the package."""
    with sealed_file(path) as opened:
        try:
            with h5py.File(os.fspath(path), "r") as file:
                yield file, os.fstat(opened.fileno()).st_size
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


class _Walk:
    """Reads the objects of a file. A dataset with two names is one array in two places."""

    def __init__(self, where: str, size: int) -> None:
        self.metadata: dict[str, str] = {}
        self.types: dict[str, str] = {}  # of attributes that are numbers
        self.leaves: dict[str, Any] = {}
        self._where, self._left = where, MAX_FILE_EXPANSION * size
        self._parts = size  # bytes that chunks and scales take at the least, and may still take
        self._arrays: dict[int, Any] = {}
        self._groups: set[int] = set()

    def group(self, group: h5py.Group, keys: tuple[str, ...]) -> dict[str, Any]:
        """Return a group as a dict."""
        address = h5py.h5o.get_info(group.id).addr
        if address in self._groups or len(keys) > MAX_NESTING:
            what = "is linked twice" if address in self._groups else f"nests deeper than {MAX_NESTING}"
            raise LimitError(_RULE, f"{self._where}: {'/'.join(keys)!r}", what)
        self._groups.add(address)
        self.attributes(group, "/".join(keys))
        found: dict[str, Any] = {}
        for key in group:
            name = "/".join((*keys, key))
            link = group.get(key, getlink=True)
            if not isinstance(link, h5py.HardLink):
                raise FormatError(
                    _RULE, f"{self._where}: {name!r}", "leads elsewhere by a soft or external link"
                )
            child = group[key]
            if isinstance(child, h5py.Group):
                found[key] = self.group(child, (*keys, key))
            elif isinstance(child, h5py.Dataset):
                found[key] = self.leaves[name] = self._dataset(child, name)
            # A named type holds no values.
            if len(self.leaves) > MAX_ARRAYS:
                raise LimitError(_RULE, self._where, f"has more than {MAX_ARRAYS} datasets")
        return found

    def _dataset(self, dataset: h5py.Dataset, name: str) -> Any:
        address = h5py.h5o.get_info(dataset.id).addr
        if address not in self._arrays:
            if dataset.external or dataset.is_virtual:
                raise FormatError(_RULE, f"{self._where}: {name!r}", "has its values in another file")
            for axis in dataset.dims:
                self._part(_SCALE_BYTES * len(axis), "dimension scales", name)
            self.attributes(dataset, name)
            if dataset.shape is not None:
                self._spend(dataset.size, dataset.id.get_type(), name)
            if dataset.chunks is not None:  # HDF5 takes memory and time for each, stored or not
                sides = zip(dataset.shape, dataset.chunks, strict=True)
                self._part(math.prod(-(-length // side) for length, side in sides), "chunks", name)
            value = _value(dataset, f"{self._where}: dataset {name!r}")
            if isinstance(value, str | bytes):
                self._take(len(value), name)
            self._arrays[address] = value
        return self._arrays[address]

    def _spend(self, count: int, kind: h5py.h5t.TypeID, name: str) -> None:
        """Take the bytes of some elements from what the file may still ask for.

        Many elements of variable length may name the same bytes. So few are read together, and what
        they have is taken when it is known.
        """
        varying = kind.get_class() == h5py.h5t.VLEN or (
            kind.get_class() == h5py.h5t.STRING and kind.is_variable_str()
        )
        if varying and count > _MAX_VARYING:
            message = f"there are more than {_MAX_VARYING} strings or sequences together"
            raise LimitError(_RULE, f"{self._where}: {name!r}", message)
        self._take(0 if varying else count * kind.get_size(), name)

    def _take(self, nbytes: int, name: str) -> None:
        self._left -= nbytes
        if self._left < 0:
            message = f"asks for more than {MAX_FILE_EXPANSION} times the bytes of the file"
            raise LimitError(_RULE, f"{self._where}: {name!r}", message)

    def _part(self, count: int, what: str, name: str) -> None:
        self._parts -= count
        if self._parts < 0:
            message = f"there are more {what} than a file of its size can have"
            raise LimitError(_RULE, f"{self._where}: {name!r}", message)

    def note_types(self) -> None:
        """Add the types of attributes to the metadata, once all are known."""
        if self.types:
            self.metadata[TYPES] = json.dumps(self.types)

    def attributes(self, item: h5py.Group | h5py.Dataset, name: str) -> None:
        """Add the attributes of an object to the metadata."""
        for key in item.attrs:
            attribute = item.attrs.get_id(key)
            self._spend(math.prod(attribute.shape or ()), attribute.get_type(), f"{name}@{key}")
            found = dict(read_attribute(item, name, key))
            self._take(sum(map(len, found.values())), f"{name}@{key}")
            self.metadata.update(found)
        self.types.update(read_types(item, name))


def _value(dataset: h5py.Dataset, where: str) -> Any:
    """Return an array, or a scalar that is not a number: str, bytes or None."""
    if dataset.shape is None:
        return None
    kind, dtype = dataset.id.get_type(), dataset.dtype
    if _is_bfloat16(kind):
        bits = np.empty(dataset.shape, BFLOAT16_BITS)
        dataset.id.read(_ALL, _ALL, bits.view(np.uint16), mtype=_bfloat16_type())
        return bits
    if dtype.kind == "V" and dtype.itemsize == 2 and dataset.attrs.get("dtype") == "bfloat16":  # Keras
        opaque = np.empty(dataset.shape, dtype)
        dataset.read_direct(opaque)
        return in_host_order(opaque.view("<u2")).view(BFLOAT16_BITS)  # Keras writes no order with it
    if h5py.check_string_dtype(dtype) is not None and dataset.shape == ():
        value = dataset[()]
        return value.decode() if isinstance(value, bytes) else str(value)
    if dtype.kind == "V" and dtype.names is None and dataset.shape == ():
        return bytes(dataset[()])
    if dtype.kind not in "biufc" or h5py.check_enum_dtype(dtype) is not None:
        raise ArgumentError(f"{where} is of the type {dtype}: only numbers and booleans can be stored")
    try:
        element_type(dtype)
    except ArgumentError as error:
        raise ArgumentError(f"{where}: {error}") from None
    array = np.empty(dataset.shape, dtype)
    if array.size:
        dataset.read_direct(array)
    return in_host_order(array)


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


def _with_scalars(metadata: Mapping[str, str], found: Mapping[str, Any]) -> dict[str, str]:
    """Return metadata whose note has the scalars that are datasets of their own."""
    try:
        note = json.loads(metadata[STATE])
        scalars = {n: scalar_json(v) if isinstance(v, bytes) else v for n, v in found.items()}
        note["scalars"] = {**scalars, **note["scalars"]}
        return {**metadata, STATE: json.dumps(note)}
    except (ValueError, TypeError, KeyError, RecursionError):
        return dict(metadata)  # `rebuild` says what is wrong with it


def save_file(state: Any, path: str | os.PathLike[str], metadata: dict[str, str] | None = None) -> None:
    """Write a state to an HDF5 file atomically; an existing file is replaced.

    Parameters
    ----------
    state
        A nested dict, list or tuple.
    metadata
        Strings, which become attributes of the root group; ``a/b@units`` of the object ``a/b``.

    Raises
    ------
    ArgumentError
        For an entry whose name HDF5 cannot have, and for two entries of which one would be a
        dataset and a group.
    StorageError
        If the operating system refuses. An existing file is unchanged.
    """
    metadata = metadata_strings(metadata)
    arrays, scalars = named_leaves(state)
    leaves = {**arrays, **scalars}
    _check_names(leaves)
    whole = {name: value for name, value in scalars.items() if _is_odd(value)}
    noted = with_structure(state, whole, metadata, always=True)
    with replacing(path) as temporary:
        try:
            with h5py.File(temporary, "w") as file:
                _write_all(file, leaves, noted)
        except (ValueError, TypeError, RuntimeError) as error:
            if (code := _errno(error)) is not None:
                raise StorageError(code, f"cannot write: {os.strerror(code)}", str(path)) from error
            raise ArgumentError(f"{path}: {error}") from error


def _write_all(file: h5py.File, leaves: Mapping[str, Any], attributes: Mapping[str, str]) -> None:
    first: dict[int, str] = {}  # an array in two places is one dataset
    for name, value in leaves.items():
        if isinstance(value, np.ndarray) and id(value) in first:
            file[name] = file[first[id(value)]]
            continue
        first[id(value)] = name
        _write(file, name, value)
    write_attributes(file, attributes)


def _is_odd(value: Any) -> bool:
    """Return whether a dataset cannot hold a scalar as it is; the note holds it then."""
    return isinstance(value, int) or value == b"" or (isinstance(value, str) and "\0" in value)


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
        _write_bfloat16(file, name, value)
    else:
        file.create_dataset(name, data=value, track_times=False)


def _write_bfloat16(file: h5py.File, name: str, array: Array) -> None:
    group, _, key = name.rpartition("/")
    parent = file.require_group(group) if group else file
    space = h5py.h5s.create_simple(array.shape) if array.shape else h5py.h5s.create(h5py.h5s.SCALAR)
    kind = _bfloat16_type()
    dataset = h5py.h5d.create(parent.id, key.encode(), kind, space)
    if array.size:
        bits = np.ascontiguousarray(in_host_order(array)).view(np.uint16)
        dataset.write(_ALL, _ALL, bits, mtype=kind)
