"""Tensors of a model on the disk: where they lie, and their names in a state.

Names are the keys of an entry of the state, such as ``"model"``. A model on the disk may have other
names than the state: without the prefixes of wrappers, under those of ``rename=``, and of tied
weights only one. A tensor that has several names in the state is stored once; the names that the
model lacks are left out, as long as it has one of them.

The tensors of a Hugging Face directory lie in ``model.safetensors``, or in its shards. Only headers
are read, and nothing in them is trusted: a tensor must lie in its file.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from ...container.system import Bytes
from ...container.tree import leaf_name, unescaped
from ...element_types import Array, from_components, in_host_order
from ...errors import ArgumentError, FormatError, StorageError
from ..files.header import LENGTH_BYTES, Tensor, read_header
from ..files.shards import INDEX_SUFFIX, MAX_INDEX_BYTES, parse_index
from ..seals.reading import read_sealed
from ..tree.matching import Renaming, first_of, paired


class Prefix:
    """The entry of a state whose keys are the names of tensors, and new names for these.

    Examples
    --------
    >>> model = Prefix("run/model", {"a/*": "*"})
    >>> model.path("layers.0.weight"), model.name("run/model/a~1b")
    ('run/model/layers.0.weight', 'a/b')
    >>> paths = {"run/model/a~1b": 0, "run/model/_orig_mod.c": 1, "run/model/tied": 1, "step": 2}
    >>> model.tensors(paths, ["b", "c"], "local")
    {'run/model/a~1b': 'b', 'run/model/_orig_mod.c': 'c'}
    """

    def __init__(self, prefix: str, rename: Mapping[str, str] | None = None) -> None:
        if not isinstance(prefix, str):
            raise ArgumentError(f"prefix must be a string such as 'model'; got {prefix!r}")
        Renaming(rename)  # refuses what is not one
        self._start, self._rename = f"{prefix}/" if prefix else "", rename
        self.keys = [prefix] if prefix else None  # what is followed

    def path(self, name: str) -> str:
        """Return where a tensor is in the state."""
        return self._start + leaf_name((name,))

    def name(self, path: str) -> str:
        """Return the name of the tensor at a place."""
        return unescaped(path.removeprefix(self._start))

    def tensors(
        self, paths: Mapping[str, int], there: Collection[str] | None, where: object, *, strict: bool = True
    ) -> dict[str, str]:
        """Return what a model calls the arrays of a state, by their paths.

        `paths` has the index of each array; a tied one has several. `there` has the names of the
        tensors of the model, which errors call `where`; with ``None`` it takes any. If it is not
        `strict`, it may lack tensors.

        Raises
        ------
        ArgumentError
            If the model lacks a tensor, or a name fits several; the message lists up to ten.
        """
        names = {self.name(path): path for path in paths if path.startswith(self._start)}
        renaming = Renaming(self._rename)
        wanted = [renaming(name) for name in names] if there is None else there
        called, problems = paired(wanted, names, renaming)
        renaming.check_used()
        known = set(wanted)
        chosen = {names[name]: new for name, new in called.items() if new in known}
        fitting = {paths[path] for path in chosen}
        lacking = {name: path for name, path in names.items() if paths[path] not in fitting}
        if not strict:
            chosen |= {path: renaming(name) for name, path in lacking.items()}
        elif not problems:
            problems = [f"{name!r} is not there" for name in lacking]
        if problems:
            told = [f"{where}: the tensors do not fit", *first_of(problems)]
            raise ArgumentError("\n  ".join([*told, "rename={pattern: name} gives the state other names"]))
        return chosen


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
