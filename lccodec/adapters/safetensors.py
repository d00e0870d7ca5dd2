"""``.safetensors`` files: tensors by name, and metadata; read and written by the library itself.

The format has bfloat16. Without ml_dtypes, a bfloat16 array has the dtype
:data:`lccodec.BFLOAT16_BITS`. A float8 tensor becomes an array of its bit patterns (uint8) and a
note in the metadata, which the adapters of frameworks understand (see
:mod:`lccodec.adapters.tree`). An array with such a note is written as float8. The index of a
sharded state (``model.safetensors.index.json``) is read as one file, and written with its shards.
Needs the extra ``safetensors``, but no framework.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from ..constants import ELEMENT_TYPES
from ..container.folder import replacing
from ..container.system import checked_path
from ..container.tree import TYPES, leaf_name, metadata_strings
from ..element_types import Array, components, from_components, little_endian, read_numbers, stored_bytes
from ..errors import ArgumentError, DependencyError, FormatError, StorageError
from .files.header import DTYPE_NAMES, FLOAT8_NAMES, is_index
from .files.shards import SHARD_BYTES, load_shards, read_index, save_shards
from .files.structure import STATE, named_leaves, plain_names, rebuild, with_structure
from .seals import read_sealed, sealed_file
from .tree import names_by_type, read_types, with_types

try:
    import safetensors as library
except ImportError:
    raise DependencyError("needs safetensors: pip install 'lccodec[safetensors]'") from None

__all__ = ["load_file", "load_metadata", "load_state", "save_file"]

_RULE: Final = "safetensors"
#: The format lacks the last one.
_ELEMENT_TYPES: Final = {kind.name: kind for kind in ELEMENT_TYPES if kind.name != "complex128"}


def load_file(path: str | os.PathLike[str]) -> dict[str, Array]:
    """Return the tensors of a ``.safetensors`` file or an index by name, in header order.

    A ``ChecksumError`` names the tensors that are not as they were sealed
    (`lccodec.adapters.seals`), an ``ArgumentError`` one of a dtype that lccodec cannot hold, such
    as F4. A ``FormatError`` says that a file is damaged or another one, or that an index and its
    shards do not fit.
    """
    if is_index(path):
        return load_shards(path, load_file)
    return _read(path)[0]


def _read(path: str | os.PathLike[str]) -> tuple[dict[str, Array], dict[str, str], dict[str, str]]:
    """Return the tensors of a file that is no index, its metadata, and the types of its tensors."""
    data = read_sealed(path)
    try:
        tensors: dict[str, Any] = dict(library.deserialize(data))  # type: ignore[no-untyped-call]
    except library.SafetensorError as error:
        raise _format_error(path, error) from None
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])  # the library has checked it
    del data
    metadata = header.pop("__metadata__", None) or {}
    dtypes = {name: entry["dtype"] for name, entry in header.items()}
    arrays = {name: _array(path, name, tensors.pop(name)) for name in header}
    return arrays, metadata, dtypes


def _array(path: str | os.PathLike[str], name: str, tensor: dict[str, Any]) -> Array:
    dtype, shape = tensor["dtype"], tuple(tensor["shape"])
    kind = _ELEMENT_TYPES.get(DTYPE_NAMES.get(dtype, "uint8" if dtype in FLOAT8_NAMES else ""))
    if kind is None:
        raise ArgumentError(f"{path}: array {name!r}: dtype {dtype} cannot be stored")
    bits = read_numbers(tensor["data"], kind.bits)
    try:
        with suppress(DependencyError):
            return from_components(bits, kind, shape, None)
        return from_components(bits, kind, shape, "bits")
    except (ValueError, OverflowError) as error:  # more or longer dimensions than NumPy allows
        raise FormatError(_RULE, f"{path}: array {name!r}", str(error)) from error


def load_state(path: str | os.PathLike[str]) -> tuple[Any, dict[str, str]]:
    """Return the state that `save_file` wrote, with its structure and scalars, and its metadata.

    Errors are those of `load_file`, also if the note of the structure is malformed.
    """
    of_files: list[dict[str, str]] = []

    def load(file: str | os.PathLike[str]) -> dict[str, Array]:
        tensors, metadata, dtypes = _read(file)
        of_files.append(_with_float8(metadata, dtypes))
        return tensors

    if is_index(path):
        return rebuild(load_shards(path, load), _together(of_files, read_index(path)[1]))
    return rebuild(load(path), *of_files)


def load_metadata(path: str | os.PathLike[str]) -> dict[str, str]:
    """Return the metadata of a file or an index, with the note of float8; errors as `load_file`."""
    if is_index(path):
        files, metadata = read_index(path)
        return _together([load_metadata(file) for file in files], metadata)
    with sealed_file(path):
        try:
            with library.safe_open(str(path), framework="np") as file:
                metadata = dict(file.metadata() or {})
                dtypes = {name: file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118
        except library.SafetensorError as error:
            raise _format_error(path, error) from None
    return _with_float8(metadata, dtypes)


def _together(shards: Sequence[dict[str, str]], metadata: dict[str, str]) -> dict[str, str]:
    """Return the metadata of an index and its shards."""
    # The note of a shard would describe only that shard.
    of_shards = {key: text for shard in shards for key, text in shard.items() if key != STATE}
    types = names_by_type(pair for shard in shards for pair in read_types(shard).items())
    return with_types({**of_shards, **metadata}, types)


def _with_float8(metadata: dict[str, str], dtypes: Mapping[str, str]) -> dict[str, str]:
    """Return the metadata of a file with a note of its float8 tensors."""
    native = {name: FLOAT8_NAMES[dtype] for name, dtype in dtypes.items() if dtype in FLOAT8_NAMES}
    # In a flat state the whole name is one key.
    pairs = [*read_types(metadata).items(), *native.items()]
    return with_types(metadata, names_by_type((leaf_name((name,)), kind) for name, kind in pairs))


def save_file(
    state: Any,
    path: str | os.PathLike[str],
    metadata: dict[str, str] | None = None,
    max_shard_bytes: int = SHARD_BYTES,
) -> None:
    """Write a state to a ``.safetensors`` file atomically; an existing file is replaced.

    Parameters
    ----------
    state
        A nested dict, list or tuple. It is flattened to names such as ``"optimizer/0/m"``. An int,
        float or bool becomes a tensor without dimensions. The metadata hold the structure, and
        scalars that no tensor can hold, under ``lccodec.state``.
    metadata
        Strings to store with it. Arrays that its note calls float8 become float8 tensors.
    max_shard_bytes
        If `path` is an index: the bytes of the tensors of one shard. A larger tensor has one alone.

    Raises
    ------
    ArgumentError
        For a complex128 array, two entries with the same name, or an entry named ``__metadata__``.
    """
    metadata = metadata_strings(metadata)
    arrays, scalars = named_leaves(state)
    metadata = with_structure(state, scalars, metadata)
    if not is_index(path):
        with replacing(path) as temporary:
            _write(temporary, arrays, metadata, str(path))
        return
    # Hugging Face wants the format in every shard.
    of_shards = {key: text for key, text in metadata.items() if key != STATE}

    def write(shard: Path, group: dict[str, Array]) -> None:
        _write(shard, group, {"format": "pt", **of_shards}, str(path))

    of_index = {key: text for key, text in metadata.items() if key != TYPES}
    save_shards(checked_path(path), arrays, of_index, max_shard_bytes, write)


def _write(file: Path, arrays: dict[str, Array], metadata: dict[str, str], where: str) -> None:
    """Write arrays and metadata; the note of types is for these arrays."""
    types = plain_names(read_types(metadata))
    kept = []  # the library takes addresses: the memory must live until the file is written
    tensors = {}
    for name, array in arrays.items():
        kind, bits = components(array)
        if kind.name not in _ELEMENT_TYPES:
            raise ArgumentError(f"array {name!r}: dtype {kind.name} is unknown in a .safetensors file")
        if name == "__metadata__":
            raise ArgumentError(f"array {name!r}: the name is reserved in a .safetensors file")
        kept.append(bits := little_endian(bits))
        native = kind.name == "uint8" and types.get(name) in FLOAT8_NAMES.values()
        tensors[name] = _tensor(types.pop(name) if native else kind.name, array.shape, bits)
    left = {name: kind for name, kind in types.items() if name in arrays}  # containers have no tensors
    metadata = with_types(metadata, names_by_type(left.items()))
    try:
        library.serialize_file(tensors, str(file), metadata=metadata or None)
    except library.SafetensorError as error:
        if "I/O" in str(error) or "IoError" in str(error):  # the library hides the system's error
            raise StorageError(errno.EIO, f"cannot write: {error}", where) from error
        raise ArgumentError(f"{where}: {error}") from error  # complex64, in an old version


def _tensor(dtype: str, shape: tuple[int, ...], bits: Array) -> Any:
    """Return a tensor as the library wants it: its address, or its bytes before version 0.8."""
    if hasattr(library, "TensorSpec"):
        return library.TensorSpec(dtype=dtype, shape=shape, data_ptr=bits.ctypes.data, data_len=bits.nbytes)
    return {"dtype": dtype, "shape": list(shape), "data": stored_bytes(bits)}


def _format_error(path: str | os.PathLike[str], error: Exception) -> FormatError:
    return FormatError(_RULE, str(path), str(error).removeprefix("Error while deserializing: "))
