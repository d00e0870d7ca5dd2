"""``.safetensors`` files: tensors by name and strings of metadata, by the library's own reader and writer.

bfloat16 is native here, with or without ml_dtypes: where that is missing, an array of it has the dtype
:data:`lccodec.BFLOAT16_BITS`. Needs the extra ``safetensors``, no framework.
"""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any, Final

import numpy as np

from ..errors import ArgumentError, DependencyError, FormatError, StorageError
from ..floats import ELEMENT_TYPES, Array, components, from_components
from .formats import named_arrays, replacing, storage

try:
    import safetensors as library
except ImportError:
    raise DependencyError("needs safetensors: pip install 'lccodec[safetensors]'") from None

__all__ = ["load_file", "load_metadata", "save_file"]

_RULE: Final = "safetensors"
_KINDS: Final = {
    kind.name: kind for kind in ELEMENT_TYPES if kind.name != "complex128"
}  # it has no such type
_NAMES: Final = {
    "BOOL": "bool", "I8": "int8", "I16": "int16", "I32": "int32", "I64": "int64",
    "U8": "uint8", "U16": "uint16", "U32": "uint32", "U64": "uint64",
    "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64", "C64": "complex64",
}  # fmt: skip


def load_file(path: str | os.PathLike[str]) -> dict[str, Array]:
    """Return the tensors of a ``.safetensors`` file by name, in the order of its header.

    Raises
    ------
    ArgumentError
        For a tensor of a dtype that lccodec cannot hold, as float8; names both.
    FormatError
        If the file is not one, or damaged.
    StorageError
        If the operating system cannot read it.
    """
    with storage("cannot read", path):
        data = Path(path).read_bytes()
    try:
        tensors: dict[str, Any] = dict(library.deserialize(data))  # type: ignore[no-untyped-call]
    except library.SafetensorError as error:
        raise _format_error(path, error) from None
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])  # the library has checked it
    del data
    return {name: _array(path, name, tensors.pop(name)) for name in header if name in tensors}


def _array(path: str | os.PathLike[str], name: str, tensor: dict[str, Any]) -> Array:
    kind = _KINDS.get(_NAMES.get(tensor["dtype"], ""))
    if kind is None:
        raise ArgumentError(f"{path}: array {name!r}: dtype {tensor['dtype']} cannot be stored")
    bits = np.frombuffer(tensor["data"], kind.bits.newbyteorder("<")).astype(kind.bits, copy=False)
    try:
        return from_components(bits, kind, tuple(tensor["shape"]), None)
    except DependencyError:
        return from_components(bits, kind, tuple(tensor["shape"]), "bits")


def load_metadata(path: str | os.PathLike[str]) -> dict[str, str]:
    """Return the metadata of a ``.safetensors`` file, empty if it has none; errors as `load_file`."""
    with storage("cannot read", path):
        try:
            with library.safe_open(str(path), framework="np") as file:
                return dict(file.metadata() or {})
        except library.SafetensorError as error:
            raise _format_error(path, error) from None


def save_file(state: Any, path: str | os.PathLike[str], metadata: dict[str, str] | None = None) -> None:
    """Write the arrays of a state to a ``.safetensors`` file, atomically; a file of that name is replaced.

    Parameters
    ----------
    state
        A nested dict, list or tuple, flattened to names such as ``"optimizer/0/m"``. An int, float or bool
        becomes a tensor without dimensions.
    metadata
        Strings to keep with it.

    Raises
    ------
    ArgumentError
        For a complex128 array, a str, bytes or None in the state, two entries of one name, or an entry
        named ``__metadata__``.
    StorageError
        If the operating system refuses; what was there stays.
    """
    arrays = named_arrays(state, "a .safetensors")
    kept = []  # the library takes addresses: what they point to must live until it is written
    tensors = {}
    for name, array in arrays.items():
        kind, bits = components(array)
        if kind.name not in _KINDS or name == "__metadata__":
            reason = "the name is reserved" if kind.name in _KINDS else f"dtype {kind.name} is unknown"
            raise ArgumentError(f"array {name!r}: {reason} in a .safetensors file")
        kept.append(bits := bits.astype(bits.dtype.newbyteorder("<"), copy=False))
        tensors[name] = _tensor(kind.name, array.shape, bits)
    with replacing(path) as temporary:
        try:
            library.serialize_file(tensors, str(temporary), metadata=dict(metadata or {}) or None)
        except library.SafetensorError as error:
            if "I/O" in str(error) or "IoError" in str(error):  # it does not hand on the system's error
                raise StorageError(errno.EIO, f"cannot write: {error}", str(path)) from error
            raise ArgumentError(f"{path}: {error}") from error  # complex64, in an old version


def _tensor(dtype: str, shape: tuple[int, ...], bits: Array) -> Any:
    """Return a tensor as the library wants it: by its address, before version 0.8 by its bytes."""
    if hasattr(library, "TensorSpec"):
        return library.TensorSpec(dtype=dtype, shape=shape, data_ptr=bits.ctypes.data, data_len=bits.nbytes)
    return {"dtype": dtype, "shape": list(shape), "data": bits.tobytes()}


def _format_error(path: str | os.PathLike[str], error: Exception) -> FormatError:
    return FormatError(_RULE, str(path), str(error).removeprefix("Error while deserializing: "))
