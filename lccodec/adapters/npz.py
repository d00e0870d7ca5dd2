"""NumPy's ``.npz`` files: arrays by name, never a pickle.

An array keeps every bit if NumPy's own header can express its dtype. It cannot express bfloat16
(NumPy would store it as two nameless bytes), so bfloat16 is refused. The format has no place for
metadata.
"""

from __future__ import annotations

import errno
import os
import zipfile
from typing import Any, Final

import numpy as np

from ..container.scalars import metadata_strings
from ..element_types import Array, element_type
from ..errors import ArgumentError, FormatError
from .files.disk import regular_file, replacing
from .files.named_arrays import named_arrays

__all__ = ["load_file", "save_file"]

_MEMBER_SUFFIX: Final = ".npy"  # of every member of the archive
_RULE: Final = "npz"
_MAX_NAME_BYTES: Final = 0xFFFF - len(
    _MEMBER_SUFFIX
)  # an archive stores the length of a member's name in 16 bits


def load_file(path: str | os.PathLike[str]) -> dict[str, Array]:
    """Return the arrays of an ``.npz`` file by name, in file order.

    Raises
    ------
    FormatError
        If the file is not an archive of arrays, is damaged, or holds Python objects. The message
        names the array.
    StorageError
        If the operating system cannot read the file.
    """
    where = str(path)
    arrays: dict[str, Array] = {}
    with regular_file(path) as file:
        try:
            with zipfile.ZipFile(file) as archive:
                for member in archive.infolist():
                    name = member.filename.removesuffix(_MEMBER_SUFFIX)
                    where = f"{path}: array {name!r}"
                    if name == member.filename or name in arrays:
                        raise ValueError("not a NumPy array" if name not in arrays else "occurs twice")
                    with archive.open(member) as stream:
                        arrays[name] = np.lib.format.read_array(stream, allow_pickle=False)
        # For damaged bytes, zipfile, zlib and NumPy raise a dozen kinds of exceptions.
        except Exception as error:
            if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):  # EINVAL is a bad seek
                raise
            raise FormatError(_RULE, where, _reason(error)) from error
    return arrays


def _reason(error: Exception) -> str:
    if "allow_pickle" in str(error):
        return "holds Python objects (a pickle), which are never loaded"
    if isinstance(error, MemoryError):
        return "declares an array larger than memory"
    return str(error) or type(error).__name__


def save_file(state: Any, path: str | os.PathLike[str], metadata: dict[str, str] | None = None) -> None:
    """Write the arrays of a state to an ``.npz`` file atomically; an existing file is replaced.

    Parameters
    ----------
    state
        A nested dict, list or tuple. It is flattened to names such as ``"optimizer/0/m"``. An int,
        float or bool becomes an array without dimensions.
    metadata
        None or empty: the format has no place for metadata.

    Raises
    ------
    ArgumentError
        For metadata, a bfloat16 array, a str, bytes or None in the state, or two entries with the
        same name.
    StorageError
        If the operating system refuses. An existing file is unchanged.
    """
    if metadata_strings(metadata):
        raise ArgumentError("an .npz file has no place for metadata; write a .safetensors file")
    arrays = named_arrays(state, "an .npz")
    for name, array in arrays.items():
        if len(name.encode()) > _MAX_NAME_BYTES:
            raise ArgumentError(
                f"array {name[:40]!r}...: a name in an .npz file has at most {_MAX_NAME_BYTES:,} bytes"
            )
        if "\0" in name:  # zipfile would cut the name off there
            raise ArgumentError(f"array {name!r}: a name in an .npz file cannot have a null character")
        if element_type(array.dtype).name == "bfloat16":
            raise ArgumentError(
                f"array {name!r} is bfloat16, which an .npz file cannot hold: "
                "write a .safetensors file, or restore it with dtype float32"
            )
    # numpy.savez takes names as keywords and fails for an array named "file".
    with replacing(path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for name, array in arrays.items():
            with archive.open(name + _MEMBER_SUFFIX, "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
