"""Where the tensors of a Hugging Face directory lie: in ``model.safetensors``, or in its shards.

Only headers are read, and nothing in them is trusted: a tensor must lie in its file.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from ...container.disk.system import Bytes
from ...element_types import Array, from_components, in_host_order
from ...errors import FormatError, StorageError
from ..files.header import LENGTH_BYTES, Tensor, read_header
from ..files.shards import INDEX_SUFFIX, MAX_INDEX_BYTES, parse_index
from ..seals.reading import read_sealed

SINGLE_NAME: Final = "model.safetensors"
INDEX_NAME: Final = SINGLE_NAME + INDEX_SUFFIX
_RULE: Final = "safetensors"


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
        by_name = {}
        for name, tensor in self.tensors.items():
            if (kind := tensor.kind) is not None:
                data = maps[tensor.file][tensor.offset : tensor.offset + tensor.nbytes]
                bits = in_host_order(data.view(kind.bits.newbyteorder("<")))
                by_name[name] = from_components(bits, kind, tensor.shape, "bits")
        return by_name


def read_layout(directory: Path) -> Layout:
    """Read the headers of a directory.

    Raises
    ------
    StorageError
        If it has no model, a shard is missing, or the operating system cannot read it.
    DataError
        If an index or a header is damaged, or they do not fit.
    """
    if (directory / INDEX_NAME).exists():
        text = read_sealed(directory / INDEX_NAME, MAX_INDEX_BYTES)
        shards, _ = parse_index(directory / INDEX_NAME, text)  # refuses what is not one
        index = json.loads(text)
        tensors: dict[str, Tensor] = {}
        for path, names in shards.items():
            header, _ = read_header(path)
            if differing := sorted(set(names) ^ set(header)):
                told = ", ".join(differing)
                raise FormatError(_RULE, str(path), f"only one of index and shard has {told}")
            tensors.update(header)
        return Layout(directory, tensors, tuple(path.name for path in shards), index)
    if not (directory / SINGLE_NAME).exists():
        message = f"neither {INDEX_NAME} nor {SINGLE_NAME} is there"
        raise StorageError(errno.ENOENT, message, str(directory))
    return Layout(directory, read_header(directory / SINGLE_NAME)[0], (SINGLE_NAME,), None)


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
    text += b" " * (-len(text) % LENGTH_BYTES)
    yield len(text).to_bytes(LENGTH_BYTES, "little") + text
    yield from pieces
