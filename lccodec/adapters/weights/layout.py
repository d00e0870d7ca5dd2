"""Where the tensors of a Hugging Face directory lie: in ``model.safetensors``, or in its shards.

Only headers are read, and nothing in them is trusted: a tensor must lie in its file.
"""

from __future__ import annotations

import errno
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from ...container.frame_entry import Bytes
from ...element_types import ELEMENT_TYPES, Array, ElementType, from_components, in_host_order
from ...errors import FormatError, StorageError
from ..files.disk import regular_file
from ..files.shards import INDEX_SUFFIX, read_index
from ..files.tensor_types import DTYPE_NAMES, FLOAT8_NAMES

__all__ = ["INDEX_NAME", "SINGLE_NAME", "Layout", "Tensor", "read_header", "read_layout", "tensor_file"]

SINGLE_NAME: Final = "model.safetensors"
INDEX_NAME: Final = SINGLE_NAME + INDEX_SUFFIX
_RULE: Final = "safetensors"
_LENGTH_BYTES: Final = 8  # of the number in front of a header
_MAX_HEADER_BYTES: Final = 100_000_000  # as in the library: more would only take memory
_KINDS: Final = {kind.name: kind for kind in ELEMENT_TYPES}


@dataclass(frozen=True)
class Tensor:
    """Where a tensor lies, and what it is.

    Parameters
    ----------
    file
        The name of its file.
    offset, nbytes
        Its bytes in the file.
    dtype, shape
        Its type as the header names it, and its shape.
    """

    file: str
    offset: int
    nbytes: int
    dtype: str
    shape: tuple[int, ...]

    @property
    def kind(self) -> ElementType | None:
        """The element type of its values, those of float8 as bits; ``None`` for an unknown type."""
        return _KINDS.get(DTYPE_NAMES.get(self.dtype, "uint8" if self.dtype in FLOAT8_NAMES else ""))


@dataclass(frozen=True)
class Layout:
    """The tensors of a directory by name, and its files; `index` is the text of its index."""

    directory: Path
    tensors: Mapping[str, Tensor]
    files: tuple[str, ...]
    index: Mapping[str, Any] | None

    def arrays(self) -> dict[str, Array]:
        """Return the tensors of known types as arrays that are read from the files when needed."""
        maps = {
            name: np.memmap(self.directory / name, np.uint8, "r")
            for name in self.files
            if (self.directory / name).stat().st_size
        }
        found = {}
        for name, tensor in self.tensors.items():
            if (kind := tensor.kind) is not None:
                data = maps[tensor.file][tensor.offset : tensor.offset + tensor.nbytes]
                bits = in_host_order(data.view(kind.bits.newbyteorder("<")))
                found[name] = from_components(bits, kind, tensor.shape, "bits")
        return found


def read_layout(directory: Path) -> Layout:
    """Read the headers of a directory.

    Raises
    ------
    StorageError
        If it has no model, a shard is missing, or the operating system cannot read it.
    FormatError
        If an index or a header is damaged, or they do not fit.
    """
    if (directory / INDEX_NAME).exists():
        shards, _ = read_index(directory / INDEX_NAME)  # refuses what is not one
        index = json.loads((directory / INDEX_NAME).read_bytes())
        tensors: dict[str, Tensor] = {}
        for path, names in shards.items():
            found, _ = read_header(path)
            if differing := sorted(set(names) ^ set(found)):
                told = ", ".join(differing)
                raise FormatError(_RULE, str(path), f"only one of index and shard has {told}")
            tensors.update(found)
        return Layout(directory, tensors, tuple(path.name for path in shards), index)
    if not (directory / SINGLE_NAME).exists():
        message = f"neither {INDEX_NAME} nor {SINGLE_NAME} is there"
        raise StorageError(errno.ENOENT, message, str(directory))
    return Layout(directory, read_header(directory / SINGLE_NAME)[0], (SINGLE_NAME,), None)


def read_header(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors of a ``.safetensors`` file in the order of their bytes, and its metadata.

    Raises
    ------
    FormatError
        If the header is damaged, or a tensor does not lie in the file.
    StorageError
        If the operating system cannot read it.
    """
    with regular_file(path) as stream:
        size = stream.seek(0, 2)
        stream.seek(0)
        length = int.from_bytes(stream.read(_LENGTH_BYTES), "little")
        if size < _LENGTH_BYTES or length > min(size - _LENGTH_BYTES, _MAX_HEADER_BYTES):
            raise FormatError(_RULE, str(path), f"a header of {length} bytes in a file of {size}")
        text = stream.read(length)
    start = _LENGTH_BYTES + length
    try:
        header = json.loads(text)
        metadata = dict(header.pop("__metadata__", None) or {})
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
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        sound = False
    if not sound:
        raise FormatError(_RULE, str(path), "the header is damaged, or a tensor does not lie in the file")
    return dict(sorted(tensors.items(), key=lambda item: item[1].offset)), metadata


def tensor_file(
    tensors: Iterable[tuple[str, str, tuple[int, ...], Bytes]], metadata: Mapping[str, str]
) -> Iterator[Bytes]:
    """Yield the pieces of a ``.safetensors`` file: of each tensor name, type, shape and bytes."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    end, pieces = 0, list[Bytes]()
    for name, dtype, shape, data in tensors:
        start, end = end, end + memoryview(data).nbytes
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [start, end]}
        pieces.append(data)
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % _LENGTH_BYTES)
    yield len(text).to_bytes(_LENGTH_BYTES, "little") + text
    yield from pieces


def _is_sound(tensor: Tensor, start: int, size: int) -> bool:
    numbers = (tensor.offset, tensor.nbytes, *tensor.shape)
    if not all(type(number) is int and number >= 0 for number in numbers) or type(tensor.dtype) is not str:
        return False
    kind = tensor.kind
    fits = kind is None or math.prod(tensor.shape) * kind.itemsize == tensor.nbytes
    return fits and start <= tensor.offset and tensor.offset + tensor.nbytes <= size
