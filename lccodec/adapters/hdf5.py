"""HDF5 files, those of netCDF-4 and Keras among them: arrays by name, and all else as it was.

A file of another program becomes a nested dict of its arrays, and an entry with the rest of its
bytes (:mod:`lccodec.adapters.files.skeleton`) and with what it declares
(:mod:`lccodec.policy.declared`). Such a state is written as the file that it was. Attributes are
its metadata, too, as far as they are text or numbers: to be read, and for files of other formats.

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
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final

import h5py
import numpy as np

from ..container.scalars import metadata_strings, scalar_json
from ..container.tree import Keys, leaf_name
from ..element_types import Array, element_type
from ..errors import ArgumentError, FormatError, LccodecError, LimitError, StorageError, warn
from ..policy.declared import DECLARED, ENTRY, declarations, write
from .files.attributes import TYPES, attributes_text, read_attributes, write_attributes
from .files.disk import replacing
from .files.named_arrays import named_leaves
from .files.skeleton import Parts, cut, join, objects, write_bfloat16
from .files.structure import STATE, rebuild, with_structure
from .seals.reading import sealed_file

__all__ = ["load_metadata", "load_state", "save_file"]

_RULE: Final = "hdf5"
_ERRNO: Final = re.compile(r"errno = (\d+)")
_MAX_SHOWN: Final = 8  # names in a warning


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
        attributes = read_attributes(file, size)
        if STATE in file.attrs:
            return _plain_state(file, str(path), parts, attributes_text(attributes))
    if parts.left:
        shown = [f"{name!r} {why}" for name, why in list(parts.left.items())[:_MAX_SHOWN]]
        more = f", and {len(parts.left) - _MAX_SHOWN} more" if len(parts.left) > _MAX_SHOWN else ""
        warn(f"{path}: kept as stored, and no arrays: {', '.join(shown)}{more}")
    state: dict[str, Any] = {}
    for keys, array in parts.arrays.items():
        group = state
        for key in keys[:-1]:
            group = group.setdefault(key, {})
        group[keys[-1]] = array
    entry = {"arrays": len(parts.arrays), "runs": parts.runs, "skeleton": parts.skeleton}
    filled = {path: {**attributes.get(path, {}), "fill_value": fill} for path, fill in parts.fills.items()}
    if found := declarations({**attributes, **filled}, ["/".join(keys) for keys in parts.arrays]):
        entry[DECLARED[-1]] = write({leaf_name(tuple(path.split("/"))): each for path, each in found.items()})
    state[ENTRY] = entry
    return state, attributes_text(attributes)


def load_metadata(path: str | os.PathLike[str]) -> dict[str, str]:
    """Return the attributes of the root group as metadata; errors as `load_state`."""
    with _opened(path) as (file, _, size):
        metadata = attributes_text({"": read_attributes(file, size)[""]})
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
    file: h5py.File, where: str, parts: Parts, metadata: Mapping[str, str]
) -> tuple[Any, dict[str, str]]:
    """Return the state of a file that `save_file` wrote as plain HDF5."""
    for name, why in parts.left.items():
        raise LimitError(_RULE, f"{where}: {name!r}", why)
    arrays: dict[str, Array] = {}
    scalars: dict[str, Any] = {}
    first: dict[int, Keys] = {}  # an array in two places is one dataset with two names
    for keys, item in objects(file):
        if isinstance(item, h5py.Dataset):
            own = first.setdefault(h5py.h5o.get_info(item.id).addr, keys)
            if own in parts.arrays:
                arrays["/".join(keys)] = parts.arrays[own]
            else:
                scalars["/".join(keys)] = _scalar(item)
    return rebuild(arrays, _with_scalars(metadata, scalars))


def _scalar(dataset: h5py.Dataset) -> str | bytes | None:
    """Return a scalar that is not a number."""
    if dataset.shape != ():
        return None
    value: Any = dataset[()]
    if isinstance(value, np.void):
        return value.tobytes()
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


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
            flat = {key.partition("/")[2]: value for key, value in parts.items()}
            entry = parts.get(ENTRY, flat)
    arrays, scalars = named_leaves(state)
    reason = ""
    with replacing(path) as temporary:
        try:
            if entry is not None:
                reason = _join(temporary, entry, arrays, scalars, metadata)
            if entry is None or reason:
                _write_plain(temporary, state, {**arrays, **scalars}, metadata)
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
    by_keys: dict[Keys, Array] = {tuple(name.split("/")): array for name, array in arrays.items()}
    try:
        reason, gone = join(path, entry, by_keys)
        if reason:
            return reason
        with h5py.File(path, "r+") as file:
            there = attributes_text(read_attributes(file, path.stat().st_size))
            for key, text in metadata.items():
                if key != TYPES and key not in there and key.rpartition("@")[0] not in gone:
                    file.attrs.setdefault(key, text)
    except (OSError, ValueError, TypeError, RuntimeError, KeyError) as error:
        if _errno(error) is not None or (isinstance(error, OSError) and error.errno):
            raise
        return f"the skeleton is damaged: {error}"
    return ""


def _write_plain(path: Path, state: Any, leaves: Mapping[str, Any], metadata: dict[str, str]) -> None:
    _check_names(leaves)
    whole = {name: value for name, value in leaves.items() if _is_odd(value)}
    noted = with_structure(state, whole, metadata, always=True)
    first: dict[int, str] = {}  # an array in two places is one dataset
    with h5py.File(path, "w") as file:
        for name, value in leaves.items():
            if isinstance(value, np.ndarray) and id(value) in first:
                file[name] = file[first[id(value)]]
                continue
            first[id(value)] = name
            _write(file, name, value)
        write_attributes(file, noted)


def _is_odd(value: Any) -> bool:
    """Return whether a dataset cannot hold a scalar as it is; the note holds it then."""
    if isinstance(value, str):
        return "\0" in value
    return isinstance(value, int) or (isinstance(value, bytes) and not value)


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
        group, _, key = name.rpartition("/")
        write_bfloat16(file.require_group(group) if group else file, key, value)
    else:
        file.create_dataset(name, data=value, track_times=False)
