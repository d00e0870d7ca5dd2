"""Attributes of HDF5 objects as metadata, and back.

The attribute ``units`` of an object ``a/b`` has the name ``a/b@units`` in the metadata, which hold
strings. A value that is not a string becomes its JSON text, and the entry `TYPES` says its type, so
that a file gets its numbers back. The scales of dimensions, which netCDF-4 has for every dimension,
become the names of the scales for each axis. What is neither text nor numbers is left out: it is in
the skeleton of its file (:mod:`lccodec.adapters.files.skeleton`).

Metadata may be edited, or be of another state. An entry that does not fit is written as a string;
scales that do not fit are not attached.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, Final

import h5py
import numpy as np

from ...container.scalars import is_unicode
from .disk import MAX_FILE_EXPANSION
from .skeleton import objects

__all__ = ["TYPES", "attributes_text", "read_attributes", "write_attributes"]

#: The entry of the metadata with the types of attributes that are no strings.
TYPES: Final = "lccodec.attributes"

_AT: Final = "@"  # between the name of an object and that of its attribute
_OF_SCALES: Final = ("CLASS", "NAME", "REFERENCE_LIST", "DIMENSION_LIST")  # HDF5 writes these itself
_NETCDF: Final = ("_Netcdf4", "_NC")  # what netCDF-4 says of the file alone
_DTYPE: Final = re.compile(r"[<>|][biuf][1248]")
_MAX_ELEMENTS: Final = 1 << 10  # of an attribute that is read
_MAX_STRINGS: Final = 1 << 5  # of variable length: each may be as long as the file


def read_attributes(file: h5py.File, size: int) -> dict[str, dict[str, Any]]:
    """Return the attributes of each group and dataset by path: those that are text or numbers.

    A value is a str, a list of str, or an array. Text that is not UTF-8 is taken for Latin-1.
    `size` is that of the file. What asks for more memory than such a file may is left out.
    """
    memory = MAX_FILE_EXPANSION * size
    seen: set[int] = set()
    found: dict[str, dict[str, Any]] = {}
    for keys, item in objects(file):
        address = h5py.h5o.get_info(item.id).addr
        if address in seen:
            continue
        seen.add(address)
        values = found["/".join(keys)] = {}
        for key in item.attrs:
            if (
                isinstance(key, str)
                and is_unicode(key)
                and memory > 0
                and (value := _read(item, key)) is not None
            ):
                memory -= value.nbytes if isinstance(value, np.ndarray) else len(str(value))
                values[key] = value
    return found


def _read(item: h5py.Group | h5py.Dataset, key: str) -> Any:
    """Return a value, or None for what is neither text nor numbers, and for what is long."""
    try:
        return _value_of(item, key)
    except (TypeError, ValueError, OSError):  # a type that h5py does not know: the skeleton has it
        return None


def _value_of(item: h5py.Group | h5py.Dataset, key: str) -> Any:
    found = item.attrs.get_id(key)
    text = h5py.check_string_dtype(found.dtype)
    most = _MAX_STRINGS if text is not None and text.length is None else _MAX_ELEMENTS
    if found.shape is None or math.prod(found.shape) > most:
        return None
    if text is None:
        is_number = _DTYPE.fullmatch(found.dtype.str) and h5py.check_enum_dtype(found.dtype) is None
        return np.asarray(item.attrs[key]) if is_number else None
    texts = [_text(each) for each in np.ravel(item.attrs[key]).tolist()]
    return texts if found.shape else texts[0]


def _text(value: str | bytes) -> str:
    data = value if isinstance(value, bytes) else value.encode("utf-8", "surrogateescape")
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")


def attributes_text(attributes: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return attributes, as `read_attributes` does, as metadata."""
    metadata, types = {}, {}
    for path, values in attributes.items():
        for key, value in values.items():
            if key.startswith(_NETCDF):
                continue
            place = f"{path}{_AT}{key}" if path else key
            if isinstance(value, np.ndarray):
                types[place] = value.dtype.str
            plain = value.tolist() if isinstance(value, np.ndarray) else value
            metadata[place] = plain if isinstance(plain, str) else json.dumps(plain)
    return {**metadata, TYPES: json.dumps(types)} if types else metadata


def write_attributes(file: h5py.File, metadata: Mapping[str, str]) -> None:
    """Write metadata as attributes of the objects that they name, the others of the root group."""
    types = _object(metadata.get(TYPES, "{}"))
    for key, text in metadata.items():
        place, _, attribute = key.rpartition(_AT)
        if not place or not attribute or place not in file:
            place, attribute = "/", key
        elif attribute in _OF_SCALES:
            continue
        if key != TYPES:
            file[place].attrs[attribute] = _value(text, types.get(key))


def _value(text: str, dtype: Any) -> Any:
    """Return the value of an attribute: a number or several if a type says so, else the text."""
    if isinstance(dtype, str) and _DTYPE.fullmatch(dtype):
        try:
            return np.asarray(json.loads(text), np.dtype(dtype))
        except (ValueError, TypeError, OverflowError, RecursionError):
            return text
    return text


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
