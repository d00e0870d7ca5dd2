"""``.safetensors`` files: tensors by name and strings of metadata, by the library's own reader and writer.

bfloat16 is native here, with or without ml_dtypes: where that is missing, an array of it has the dtype
:data:`lccodec.BFLOAT16_BITS`. A float8 tensor becomes an array of its bit patterns (uint8) and a note in the
metadata, which frameworks go by (see :mod:`lccodec.adapters.tree.plain`); an array with such a note is
written as float8. The index of a sharded state (``model.safetensors.index.json``) is read as one file. Needs
the extra ``safetensors``, no framework.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterable, Mapping
from typing import Any, Final

from ..byteorder import little_endian, read_numbers, stored_bytes
from ..container.scalars import metadata_strings
from ..container.tree import leaf_name
from ..element_types import ELEMENT_TYPES, Array, components, from_components
from ..errors import ArgumentError, DependencyError, FormatError, StorageError
from .files.disk import regular_file, replacing
from .files.named_arrays import named_leaves, plain_names
from .files.shards import is_index, load_shards, read_index
from .files.structure import STATE, rebuild, with_structure
from .tree.plain import read_types, with_types

try:
    import safetensors as library
except ImportError:
    raise DependencyError("needs safetensors: pip install 'lccodec[safetensors]'") from None

__all__ = ["load_file", "load_metadata", "load_state", "save_file"]

_RULE: Final = "safetensors"
_KINDS: Final = {
    kind.name: kind for kind in ELEMENT_TYPES if kind.name != "complex128"
}  # it has no such type
_NAMES: Final = {
    "BOOL": "bool", "I8": "int8", "I16": "int16", "I32": "int32", "I64": "int64",
    "U8": "uint8", "U16": "uint16", "U32": "uint32", "U64": "uint64",
    "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64", "C64": "complex64",
}  # fmt: skip
_FLOAT8: Final = {
    "F8_E4M3": "float8_e4m3fn", "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2": "float8_e5m2",
    "F8_E5M2FNUZ": "float8_e5m2fnuz", "F8_E8M0": "float8_e8m0fnu",
}  # fmt: skip


def load_file(path: str | os.PathLike[str]) -> dict[str, Array]:
    """Return the tensors of a ``.safetensors`` file, or of an index, by name and in the order of the header.

    Raises
    ------
    ArgumentError
        For a tensor of a dtype that lccodec cannot hold, as F4; names both.
    FormatError
        If the file is not one, or damaged, or an index and its shards do not fit.
    StorageError
        If the operating system cannot read it, or a shard is missing.
    """
    if is_index(path):
        return load_shards(path, load_file)
    with regular_file(path) as stream:
        data = stream.read()
    try:
        tensors: dict[str, Any] = dict(library.deserialize(data))  # type: ignore[no-untyped-call]
    except library.SafetensorError as error:
        raise _format_error(path, error) from None
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])  # the library has checked it
    del data
    return {name: _array(path, name, tensors.pop(name)) for name in header if name in tensors}


def _array(path: str | os.PathLike[str], name: str, tensor: dict[str, Any]) -> Array:
    kind = _KINDS.get(_NAMES.get(tensor["dtype"], "uint8" if tensor["dtype"] in _FLOAT8 else ""))
    if kind is None:
        raise ArgumentError(f"{path}: array {name!r}: dtype {tensor['dtype']} cannot be stored")
    bits = read_numbers(tensor["data"], kind.bits)
    try:
        try:
            return from_components(bits, kind, tuple(tensor["shape"]), None)
        except DependencyError:
            return from_components(bits, kind, tuple(tensor["shape"]), "bits")
    except (ValueError, OverflowError) as error:  # more dimensions, or longer ones, than NumPy's
        raise FormatError(_RULE, f"{path}: array {name!r}", str(error)) from error


def load_state(path: str | os.PathLike[str]) -> tuple[Any, dict[str, str]]:
    """Return the state that `save_file` wrote, with its structure and scalars, and its metadata.

    Raises
    ------
    ArgumentError, FormatError, LimitError, StorageError
        As `load_file`; also if the note of the structure is none.
    """
    tensors, metadata = load_file(path), load_metadata(path)
    if is_index(path):  # a note would be that of one shard
        metadata.pop(STATE, None)
    return rebuild(tensors, metadata)


def load_metadata(path: str | os.PathLike[str]) -> dict[str, str]:
    """Return the metadata of a ``.safetensors`` file, or of an index and its shards; errors as `load_file`.

    Returns
    -------
    dict
        With the note of float8 tensors; empty if there is nothing.
    """
    if is_index(path):
        files, metadata = read_index(path)
        shards = [load_metadata(file) for file in files]
        of_shards = {key: text for shard in shards for key, text in shard.items()}
        return with_types({**of_shards, **metadata}, _by_type(map(read_types, shards)))
    with regular_file(path):
        try:
            with library.safe_open(str(path), framework="np") as file:
                metadata = dict(file.metadata() or {})
                dtypes = {name: file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118
        except library.SafetensorError as error:
            raise _format_error(path, error) from None
    # In a flat state the whole name is one key.
    noted = {leaf_name((name,)): kind for name, kind in read_types(metadata).items()}
    native = {leaf_name((name,)): _FLOAT8[dtype] for name, dtype in dtypes.items() if dtype in _FLOAT8}
    return with_types(metadata, _by_type([noted, native]))


def _by_type(notes: Iterable[Mapping[str, str]]) -> dict[str, list[str]]:
    names: dict[str, list[str]] = {}
    for note in notes:
        for name, kind in note.items():
            names.setdefault(kind, []).append(name)
    return names


def save_file(state: Any, path: str | os.PathLike[str], metadata: dict[str, str] | None = None) -> None:
    """Write the arrays of a state to a ``.safetensors`` file, atomically; a file of that name is replaced.

    Parameters
    ----------
    state
        A nested dict, list or tuple, flattened to names such as ``"optimizer/0/m"``. An int, float or bool
        becomes a tensor without dimensions. The structure, and scalars that no tensor can hold, stand in the
        metadata under ``lccodec.state``.
    metadata
        Strings to keep with it. Arrays that its note says are float8 become such tensors.

    Raises
    ------
    ArgumentError
        For a complex128 array, two entries of one name, or an entry named ``__metadata__``.
    StorageError
        If the operating system refuses; what was there stays.
    """
    metadata = metadata_strings(metadata)
    arrays, scalars = named_leaves(state)
    metadata = with_structure(state, scalars, metadata)
    types = plain_names(read_types(metadata))
    kept = []  # the library takes addresses: what they point to must live until it is written
    tensors = {}
    for name, array in arrays.items():
        kind, bits = components(array)
        if kind.name not in _KINDS or name == "__metadata__":
            reason = "the name is reserved" if kind.name in _KINDS else f"dtype {kind.name} is unknown"
            raise ArgumentError(f"array {name!r}: {reason} in a .safetensors file")
        kept.append(bits := little_endian(bits))
        native = kind.name == "uint8" and types.get(name) in _FLOAT8.values()
        tensors[name] = _tensor(types.pop(name) if native else kind.name, array.shape, bits)
    left = {name: kind for name, kind in types.items() if name in arrays}  # of containers there are none
    metadata = with_types(metadata, _by_type([left]))
    with replacing(path) as temporary:
        try:
            library.serialize_file(tensors, str(temporary), metadata=metadata or None)
        except library.SafetensorError as error:
            if "I/O" in str(error) or "IoError" in str(error):  # it does not hand on the system's error
                raise StorageError(errno.EIO, f"cannot write: {error}", str(path)) from error
            raise ArgumentError(f"{path}: {error}") from error  # complex64, in an old version


def _tensor(dtype: str, shape: tuple[int, ...], bits: Array) -> Any:
    """Return a tensor as the library wants it: by its address, before version 0.8 by its bytes."""
    if hasattr(library, "TensorSpec"):
        return library.TensorSpec(dtype=dtype, shape=shape, data_ptr=bits.ctypes.data, data_len=bits.nbytes)
    return {"dtype": dtype, "shape": list(shape), "data": stored_bytes(bits)}


def _format_error(path: str | os.PathLike[str], error: Exception) -> FormatError:
    return FormatError(_RULE, str(path), str(error).removeprefix("Error while deserializing: "))
