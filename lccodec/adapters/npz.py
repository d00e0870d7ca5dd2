"""NumPy's ``.npz`` files: arrays by name, never a pickle.

An array keeps every bit if NumPy's own header can express its dtype. It cannot express bfloat16
(NumPy would store it as two nameless bytes), so bfloat16 is refused. The format has no place for
metadata.
"""

from __future__ import annotations

import math
import os
import re
import zipfile
from itertools import chain
from typing import Any, BinaryIO, Final

import numpy as np

from ..constants import MAX_DIMENSIONS, MAX_ELEMENTS
from ..container.folder import replacing
from ..container.tree import metadata_strings
from ..element_types import Array, element_type
from ..errors import ArgumentError, FormatError, LimitError
from .files.structure import named_leaves
from .files.zip_archive import Member, read_members
from .seals import sealed_file

__all__ = ["load_file", "save_file"]

_MEMBER_SUFFIX: Final = ".npy"  # of every member of the archive
_RULE: Final = "npz"
_MAGIC: Final = b"\x93NUMPY"
_HEADER_STARTS: Final = {b"\x01\x00": 10, b"\x02\x00": 12, b"\x03\x00": 12}  # by version
_MAX_HEADER_BYTES: Final = 10_000  # as NumPy has it
_MAX_SHOWN: Final = 80  # characters of a header
# A header is a Python dict. It is matched and not evaluated: evaluating can take any memory.
_HEADER: Final = re.compile(
    r"""\{(?:(?:["']descr["']:["']([<>|=]?[biufcmMOSUV?]\d{0,9}(?:\[\w+\])?)["']"""
    r"""|["']fortran_order["']:(True|False)"""
    r"""|["']shape["']:\(((?:\d{1,18}(?:,\d{1,18})*,?)?)\)),?){3}\}"""
)
# An archive stores the length of a member's name in 16 bits.
_MAX_NAME_BYTES: Final = 0xFFFF - len(_MEMBER_SUFFIX)


def load_file(path: str | os.PathLike[str]) -> dict[str, Array]:
    """Return the arrays of an ``.npz`` file by name, in file order.

    A ``DataError`` says that it is not as it was sealed (`lccodec.adapters.seals`), is not an
    archive of arrays, is damaged, holds Python objects, or declares more than its stored bytes can
    hold or than fits in memory: an archive has at most 1,032 times the bytes of its file.
    """
    arrays: dict[str, Array] = {}
    with sealed_file(path) as file:
        for member in read_members(file, _RULE, str(path)):
            name = member.name.removesuffix(_MEMBER_SUFFIX)
            where = f"{path}: array {name!r}"
            if name == member.name:
                raise FormatError(_RULE, where, "not a NumPy array")
            arrays[name] = _array(member, file, where)
    return arrays


def _array(member: Member, file: BinaryIO, where: str) -> Array:
    """Return the array of a member. Memory is taken if the member has the bytes for it."""
    pieces = member.read(file, _RULE, where)
    head = b""
    while len(head) < _MAX_HEADER_BYTES and (piece := next(pieces, b"")):
        head += piece
    dtype, shape, fortran, size = _header(head, where)
    count = math.prod(shape)
    needed, there = count * dtype.itemsize, member.size - size
    if needed != there:
        kind = LimitError if needed > there else FormatError
        raise kind(_RULE, where, f"declares {needed:,} bytes of values, and has {there:,}")
    try:
        array = np.empty(count, dtype)
    except (MemoryError, ValueError) as error:
        raise LimitError(_RULE, where, "declares an array larger than memory") from error
    values, at = array.view(np.uint8), 0
    for piece in chain([head[size:]], pieces):
        values[at : at + len(piece)] = np.frombuffer(piece, np.uint8)
        at += len(piece)
    return array.reshape(shape[::-1]).T if fortran else array.reshape(shape)


def _header(head: bytes, where: str) -> tuple[np.dtype[Any], tuple[int, ...], bool, int]:
    """Return dtype, shape, whether the order is Fortran's, and the bytes of the header.

    Source: ``numpy.lib.format``.
    """
    start = _HEADER_STARTS.get(head[6:8], 0)
    if not head.startswith(_MAGIC) or not start:
        raise FormatError(_RULE, where, "not a NumPy array, or one of an unknown version")
    size = start + int.from_bytes(head[8:start], "little")
    if not start <= size <= min(len(head), _MAX_HEADER_BYTES):
        raise FormatError(_RULE, where, f"a header of {size:,} bytes, which is cut off or not of numbers")
    text = "".join(head[start:size].decode("latin-1").split())
    match = _HEADER.fullmatch(text)
    try:
        if match is None or None in match.groups():  # one of them stands there twice
            raise ValueError
        dtype, shape = np.dtype(match[1]), tuple(map(int, re.findall(r"\d+", match[3])))
        if not dtype.itemsize or len(shape) > MAX_DIMENSIONS:
            raise ValueError
    except (TypeError, ValueError):
        message = f"its header is not one of an array of numbers: {text[:_MAX_SHOWN]!r}"
        raise FormatError(_RULE, where, message) from None
    if dtype.hasobject:
        raise FormatError(_RULE, where, "holds Python objects (a pickle), which are never loaded")
    if math.prod(filter(None, shape)) > MAX_ELEMENTS:
        raise LimitError(_RULE, where, f"declares more than {MAX_ELEMENTS:,} elements")
    return dtype, shape, match[2] == "True", size


def save_file(state: Any, path: str | os.PathLike[str], metadata: dict[str, str] | None = None) -> None:
    """Write the arrays of a state to an ``.npz`` file atomically; an existing file is replaced.

    A nested dict, list or tuple is flattened to names such as ``"optimizer/0/m"``. An int, float or
    bool becomes an array without dimensions. An ``ArgumentError`` is for metadata, for which the
    format has no place, a bfloat16 array, a str, bytes or None in the state, or two entries of one
    name.
    """
    if metadata_strings(metadata):
        raise ArgumentError("an .npz file has no place for metadata; write a .safetensors file")
    arrays, others = named_leaves(state)
    for name, value in others.items():
        kind = "int of more than 64 bits" if isinstance(value, int) else type(value).__name__
        raise ArgumentError(
            f"state entry {name!r} is a {kind}: an .npz file holds arrays and numbers; "
            "write a .safetensors or .lcc.h5 file, or choose arrays by --key"
        )
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
