"""All that the HDF5 library shows of a file, to compare two of them."""

from pathlib import Path
from typing import Any

import h5py
import numpy as np

_MOST = 1 << 20  # values of a vector that are compared: some files declare far more than they have


def contents(path: Path) -> dict[str, Any]:
    """Links, types, shapes, chunks, filters, attributes with the bytes of their types, and values.

    By the path of each link. Of an object with several names, the others say which the first is.
    """
    found: dict[str, Any] = {}
    with h5py.File(path) as file:
        _add(found, file, "", {})
    return found


def without_values(found: dict[str, Any], names: set[str]) -> dict[str, Any]:
    """The same without the values of some datasets."""
    return {
        path: {key: part for key, part in each.items() if key != "values"} if path in names else each
        for path, each in found.items()
    }


def _add(found: dict[str, Any], item: Any, path: str, first: dict[int, str]) -> None:
    address = h5py.h5o.get_info(item.id).addr
    if address in first:
        found[path] = {"same as": first[address]}
        return
    first[address] = path
    about = found[path] = {"attributes": _attributes(item)}
    if isinstance(item, h5py.Datatype):
        about["type"] = item.id.encode()
    elif isinstance(item, h5py.Dataset):
        about.update(_dataset(item))
    else:
        about["names"] = list(item)
        for name in item:
            if isinstance(name, bytes):  # h5py cannot open it
                continue
            link, place = item.get(name, getlink=True), f"{path}/{name}"
            if isinstance(link, h5py.HardLink):
                _add(found, item[name], place, first)
            else:
                found[place] = vars(link)


def _attributes(item: Any) -> dict[bytes, Any]:
    found = {}
    for number in range(h5py.h5a.get_num_attrs(item.id)):
        each = h5py.h5a.open(item.id, index=number)
        space = each.get_space()
        name = each.name.decode("utf-8", "surrogateescape")
        value = _value(lambda name=name: item.attrs[name])
        found[each.name] = each.get_type().encode(), space.get_simple_extent_type(), space.shape, value
    return found


def _dataset(item: h5py.Dataset) -> dict[str, Any]:
    how = item.id.get_create_plist()
    return {
        "type": item.id.get_type().encode(),
        "shapes": (item.shape, item.maxshape, item.chunks),
        "layout": (how.get_layout(), how.get_fill_time(), how.get_alloc_time()),
        "filters": [how.get_filter(number) for number in range(how.get_nfilters())],
        "stored": item.id.get_num_chunks() if item.chunks else None,
        "values": _value(lambda: item[:_MOST] if item.shape and item.ndim == 1 else item[()]),
    }


def _value(read: Any) -> Any:
    try:
        value = read()
    except (OSError, TypeError, ValueError) as error:  # a filter or a type that h5py does not know
        return type(error).__name__
    if isinstance(value, np.ndarray | np.generic) and not value.dtype.hasobject:
        return value.tobytes()
    return repr(value.tolist() if isinstance(value, np.ndarray) else value)
