"""The header of a ``.safetensors`` file: where its tensors lie. Nothing in it is trusted."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO, Final

from ...constants import ELEMENT_TYPES, MAX_ELEMENTS, ElementType
from ...container.folder import regular_file
from ...errors import FormatError

#: The element type of each type that the format of checkpoints has too.
DTYPE_NAMES: Final = {
    "BOOL": "bool", "I8": "int8", "I16": "int16", "I32": "int32", "I64": "int64",
    "U8": "uint8", "U16": "uint16", "U32": "uint32", "U64": "uint64",
    "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64", "C64": "complex64",
}  # fmt: skip

#: The types of one byte that are stored as bit patterns, with a note of their name.
FLOAT8_NAMES: Final = {
    "F8_E4M3": "float8_e4m3fn", "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2": "float8_e5m2",
    "F8_E5M2FNUZ": "float8_e5m2fnuz", "F8_E8M0": "float8_e8m0fnu",
}  # fmt: skip


#: The end of the name of an index of shards.
INDEX_SUFFIX: Final = ".index.json"
LENGTH_BYTES: Final = 8  # of the number in front of a header
_RULE: Final = "safetensors"
_MAX_HEADER_BYTES: Final = 100_000_000  # as in the library: more would only take memory
_MAX_DIMENSIONS: Final = 64  # as in NumPy and torch: the time of a product grows with its square
_KINDS: Final = {kind.name: kind for kind in ELEMENT_TYPES}


def is_index(path: str | os.PathLike[str]) -> bool:
    """Whether a path has the name of an index of shards."""
    return str(path).endswith(INDEX_SUFFIX)


@dataclass(frozen=True)
class Tensor:
    """Where a tensor lies, and what it is."""

    file: str  # the name of its file
    offset: int
    nbytes: int
    dtype: str  # as the header names it
    shape: tuple[int, ...]

    @property
    def kind(self) -> ElementType | None:
        """The element type of its values, those of float8 as bits; ``None`` for an unknown type."""
        return _KINDS.get(DTYPE_NAMES.get(self.dtype, "uint8" if self.dtype in FLOAT8_NAMES else ""))

    @property
    def type_name(self) -> str:
        """The name of its type in a state; as in the header for an unknown one."""
        return FLOAT8_NAMES.get(self.dtype) or DTYPE_NAMES.get(self.dtype, self.dtype)


def read_header(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors of a ``.safetensors`` file, in the order of bytes, and its metadata."""
    with regular_file(path) as stream:
        return header_of(stream, path)


def header_of(stream: BinaryIO, path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the same of an open file."""
    size = stream.seek(0, 2)
    stream.seek(0)
    length = int.from_bytes(stream.read(LENGTH_BYTES), "little")
    if size < LENGTH_BYTES or length > min(size - LENGTH_BYTES, _MAX_HEADER_BYTES):
        raise FormatError(_RULE, str(path), f"a header of {length} bytes in a file of {size}")
    text = stream.read(length)
    start = LENGTH_BYTES + length
    try:
        header = json.loads(text)
        metadata = header.pop("__metadata__", None) or {}
        tensors = {
            name: Tensor(
                path.name,
                start + entry["data_offsets"][0],
                entry["data_offsets"][1] - entry["data_offsets"][0],
                entry["dtype"],
                tuple(entry["shape"]),
            )
            for name, entry in header.items()
        }
        sound = all(_is_sound(tensor, start, size) for tensor in tensors.values())
        sound = sound and type(metadata) is dict and all(type(value) is str for value in metadata.values())
        tensors = dict(sorted(tensors.items(), key=lambda item: (item[1].offset, item[1].nbytes)))
        places = list(tensors.values())
        sound = sound and all(a.offset + a.nbytes <= b.offset for a, b in pairwise(places))
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        sound = False
    if not sound:
        raise FormatError(_RULE, str(path), "the header is damaged, or a tensor is not where it may be")
    return tensors, metadata


def _is_sound(tensor: Tensor, start: int, size: int) -> bool:
    numbers = (tensor.offset, tensor.nbytes, *tensor.shape)
    if len(tensor.shape) > _MAX_DIMENSIONS or type(tensor.dtype) is not str:
        return False
    if not all(type(number) is int and 0 <= number <= MAX_ELEMENTS for number in numbers):
        return False
    kind = tensor.kind
    fits = kind is None or math.prod(tensor.shape) * kind.itemsize == tensor.nbytes
    return fits and start <= tensor.offset and tensor.offset + tensor.nbytes <= size
