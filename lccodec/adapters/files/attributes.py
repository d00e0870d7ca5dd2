"""Attributes of HDF5 objects as metadata, and back.

The attribute ``units`` of an object ``a/b`` has the name ``a/b@units`` in the metadata, which hold
strings. A value that is not a string becomes its JSON text, and the entry `TYPES` says its type, so
that a file gets its numbers back. References lead to objects of their own file. Those of dimension
scales, which netCDF-4 has for every dimension, become the names of the scales for each axis; others
say nothing outside of their file, and are left out.

Metadata may be edited, or be of another state. An entry that does not fit is written as a string;
scales that do not fit are not attached.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import h5py
import numpy as np

__all__ = ["TYPES", "read_attribute", "read_types", "write_attributes"]

#: The entry of the metadata with the types of attributes that are no strings.
TYPES: Final = "lccodec.attributes"

_AT: Final = "@"  # between the name of an object and that of its attribute
_SCALES: Final = "DIMENSION_LIST"
_CLASS, _LABEL, _BACK = "CLASS", "NAME", "REFERENCE_LIST"  # of a scale
_IS_SCALE: Final = "DIMENSION_SCALE"
_DTYPE: Final = re.compile(r"[<>|][biuf][1248]")


def read_attribute(item: h5py.Group | h5py.Dataset, name: str, key: str) -> Iterator[tuple[str, str]]:
    """Yield the entry of the metadata for an attribute of an object; nothing for references."""
    place = f"{name}{_AT}{key}" if name else key
    if key == _SCALES and isinstance(item, h5py.Dataset):
        axes = [[scale.name.strip("/") for scale in axis.values() if scale.name] for axis in item.dims]
        yield place, json.dumps(axes)
    elif (text := _text(item.attrs[key])) is not None:
        yield place, text


def read_types(item: h5py.Group | h5py.Dataset, name: str) -> dict[str, str]:
    """Return the types of attributes that are numbers, by the names of their entries."""
    found = {}
    for key in item.attrs:
        dtype = item.attrs.get_id(key).dtype
        if _DTYPE.fullmatch(dtype.str) and h5py.check_enum_dtype(dtype) is None:
            found[f"{name}{_AT}{key}" if name else key] = dtype.str
    return found


def _text(value: Any) -> str | None:
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, np.ndarray | np.generic):
        items = [
            v.decode("utf-8", "replace") if isinstance(v, bytes) else v for v in np.ravel(value).tolist()
        ]
        if all(isinstance(item, str | int | float) for item in items):
            return json.dumps(items if np.ndim(value) else items[0])
    return None


def write_attributes(file: h5py.File, metadata: Mapping[str, str]) -> None:
    """Write metadata as attributes of the objects that they name, the others of the root group."""
    types = _object(metadata.get(TYPES, "{}"))
    labels: dict[str, str] = {}
    scales: dict[str, Any] = {}
    for key, text in metadata.items():
        place, _, attribute = key.rpartition(_AT)
        if not place or not attribute or place not in file:
            if key != TYPES:
                file.attrs[key] = _value(text, types.get(key))
        elif isinstance(file[place], h5py.Dataset) and attribute == _SCALES:
            scales[place] = text
        elif isinstance(file[place], h5py.Dataset) and attribute in (_CLASS, _LABEL, _BACK):
            if (attribute, text) == (_CLASS, _IS_SCALE):
                labels[place] = metadata.get(f"{place}{_AT}{_LABEL}", "")
        else:
            file[place].attrs[attribute] = _value(text, types.get(key))
    for place, label in labels.items():
        file[place].make_scale(label)
    for place, text in scales.items():
        if place not in labels:  # a scale has none itself
            _attach(file, file[place], text)


def _attach(file: h5py.File, dataset: h5py.Dataset, text: str) -> None:
    try:
        axes = json.loads(text)
    except (ValueError, RecursionError):
        return
    if not isinstance(axes, list) or len(axes) != dataset.ndim:
        return
    for axis, names in zip(dataset.dims, axes, strict=True):
        for name in names if isinstance(names, list) else ():
            scale = file.get(name) if isinstance(name, str) and name else None
            if isinstance(scale, h5py.Dataset) and scale.is_scale:
                axis.attach_scale(scale)


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
