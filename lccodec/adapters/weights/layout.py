"""Models on the disk: where their tensors lie, their names in a state, and in which types.

Names are the keys of an entry of the state, such as ``"model"``. A model on the disk may have other
names than the state: without the prefixes of wrappers, under those of ``rename=``, and of tied
weights only one. A tensor that has several names in the state is stored once; the names that the
model lacks are left out, as long as it has one of them.

The tensors of a Hugging Face directory lie in ``model.safetensors``, or in its shards. Only headers
are read, and nothing in them is trusted: a tensor must lie in its file.

A lock lets one process of a host at a time work in a directory. That may be a stranger's, with
anything in it: links and other files in the places of the lock and of its folder are refused.

`Rounding` makes weights of the types that engines compute with, for a trainer with float32.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from ...chain.read.follower import Patch
from ...container.folder import Folder
from ...container.system import (
    OPEN_FLAGS,
    SYSTEM,
    Bytes,
    StrPath,
    System,
    checked_path,
    flag,
    storage_errors,
)
from ...container.tree import Adapter, Room, Wanted, array_names, check_adapter, flatten, unescaped, unflatten
from ...element_types import BFLOAT16_BITS, Array, element_type, from_components, in_host_order, narrow, work
from ...element_types import components as components_of
from ...errors import ArgumentError, FormatError, StorageError
from ...parallel import slices
from ...policy.roles import Assignment
from ..files.header import INDEX_SUFFIX, LENGTH_BYTES, Tensor, read_header
from ..files.shards import MAX_INDEX_BYTES, parse_index
from ..matching import Renaming, checked_prefix, first_of, paired
from ..seals import read_sealed
from ..tree import BYTE_TYPES


class Prefix:
    """The entry of a state whose keys are the names of tensors, and new names for these.

    Examples
    --------
    >>> model = Prefix("run/model", {"a/*": "*"})
    >>> model.name("run/model/a~1b")
    'a/b'
    >>> paths = {"run/model/a~1b": 0, "run/model/_orig_mod.c": 1, "run/model/tied": 1, "step": 2}
    >>> model.tensors(paths, ["b", "c"], "local")
    {'run/model/a~1b': 'b', 'run/model/_orig_mod.c': 'c'}
    """

    def __init__(self, prefix: str, rename: Mapping[str, str] | None = None) -> None:
        Renaming(rename)  # refuses what is not one
        self._start, self._rename = f"{prefix}/" if checked_prefix(prefix) else "", rename
        self.keys = [prefix] if prefix else None  # what is followed

    def name(self, path: str) -> str:
        """Return the name of the tensor at a place."""
        return unescaped(path.removeprefix(self._start))

    def tensors(
        self, paths: Mapping[str, int], there: Collection[str] | None, where: object, *, strict: bool = True
    ) -> dict[str, str]:
        """Return what a model calls the arrays of a state, by their paths.

        `paths` has the index of each array; a tied one has several. `there` has the names of the
        model `where`, or ``None`` for any. If it is not `strict`, the model may lack tensors.
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

    A ``StorageError`` says that it has no model or lacks a shard, a ``DataError`` that an index or
    a header is damaged, or that they do not fit.
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


#: Where the lock and notes are, in a directory.
NOTE_FOLDER: Final = ".lccodec"
_LOCK_NAME: Final = "lock"
_FLAGS: Final = os.O_RDWR | os.O_CREAT | flag("O_NOFOLLOW") | flag("O_NONBLOCK") | OPEN_FLAGS


@contextmanager
def locked(directory: Path, system: System = SYSTEM) -> Iterator[Folder]:
    """Wait for the lock of a directory, and hold it. The kernel releases that of a killed process.

    Yield the folder of the lock and the notes. Where the file system has no locks, nothing is held.
    A ``StorageError`` says that the lock or its folder is a link or another file than a lock.
    """
    with storage_errors("cannot lock", directory), Folder(directory, system) as folder:
        folder.make(NOTE_FOLDER)
        inner = folder.inner(NOTE_FOLDER)
    with inner:
        with storage_errors("cannot lock", directory):
            descriptor = _opened(inner)
        try:
            with storage_errors("cannot lock", directory):
                try:
                    system.lock(descriptor, True)
                except OSError as error:
                    if error.errno not in (errno.ENOTSUP, errno.ENOLCK, errno.ENOSYS):
                        raise
            yield inner
        finally:
            system.close(descriptor)


def _opened(folder: Folder) -> int:
    """Open the file to lock, and make it if it is not there."""
    entry = folder / _LOCK_NAME
    try:
        descriptor = folder.system.open(entry, _FLAGS, 0o666)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            raise
    else:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return descriptor
        folder.system.close(descriptor)
    message = "it is a link, or another file that lccodec did not make: remove or rename it"
    raise StorageError(errno.EEXIST, message, str(entry))


#: The types that are rounded to each other.
FLOATS: Final = {
    "bfloat16": BFLOAT16_BITS,
    **{name: np.dtype(name) for name in ("float64", "float32", "float16")},
}
#: What to do if a chain and a model have the same tensors in two of these types.
_ADVICE: Final = (
    "give the trainer a second chain, Chain(..., 'lossless', adapter=Rounding(adapter)) of "
    "lccodec.adapters.weights, and the engines that one; or pull with cast=True, or --cast"
)
_PIECE: Final = 1 << 16  # elements that are rounded at a time: they stay in the cache


def rounded(array: Array, dtype: np.dtype[Any]) -> Array:
    """Return floating-point numbers rounded to the nearest of another type, as PyTorch does."""
    (kind, bits), wanted = components_of(array), element_type(dtype)
    nearest = np.empty(bits.size, wanted.bits)
    with np.errstate(over="ignore"):  # to infinity
        for part in slices(bits.size, _PIECE):
            values = work(bits[part], kind)
            made = narrow(values) if wanted.name == "bfloat16" else values.astype(wanted.native)
            nearest[part] = made.view(wanted.bits)
    return from_components(nearest, wanted, array.shape, "bits")


def check_types(layout: Layout, patches: Mapping[str, Patch], types: Mapping[str, str]) -> None:
    """Raise ``ArgumentError`` for new values that a model has no place for.

    `types` are those that NumPy lacks, by the names of the tensors.
    """
    problems, floats = [], False
    for name, patch in patches.items():
        tensor, kind = layout.tensors[name], types.get(name)
        wanted = kind if kind in BYTE_TYPES else patch.dtype
        if (tensor.type_name, tensor.shape) != (wanted, patch.shape):
            there, new = f"{tensor.type_name} {tensor.shape}", f"{wanted} {patch.shape}"
            problems.append(f"{name!r} is {there}, and {new} in the chain")
            floats |= {tensor.type_name, wanted} <= FLOATS.keys()
    if problems:
        told = [f"{layout.directory}: the tensors do not fit", *first_of(problems), *([_ADVICE] * floats)]
        raise ArgumentError("\n  ".join(told))


class Rounding:
    """An adapter that rounds the floating-point arrays of a state to the types of an engine.

    A chain with it has what the engines have, bit for bit, so its deltas are as small as those of a
    trainer in these types. The trainer keeps its own chain for resuming.

    Parameters
    ----------
    adapter
        The adapter of the states' framework, such as ``lccodec.adapters.torch``.
    dtype
        The type of what is wider: ``"bfloat16"`` or ``"float16"``.
    like
        The model that the engines begin with, in Hugging Face's layout. What it has gets the type
        that it has there, such as a bias that stays in float32.
    prefix, rename
        With `like`: what its names are in the state, as for :func:`pull`.

    Raises
    ------
    ArgumentError
        For another `dtype`, and for an adapter that is none.
    DataError, StorageError
        If `like` cannot be read.

    Examples
    --------
    >>> import tempfile, numpy as np, lccodec
    >>> with lccodec.Chain(tempfile.mkdtemp(), "lossless", adapter=Rounding()) as chain:
    ...     _ = chain.save(0, {"weight": np.array([1.0, 1.001], np.float32), "step": 7})
    ...     chain.restore()["weight"].dtype
    dtype([('bfloat16', '<u2')])
    """

    def __init__(
        self,
        adapter: Adapter | None = None,
        dtype: str = "bfloat16",
        *,
        like: StrPath | None = None,
        prefix: str = "",
        rename: Mapping[str, str] | None = None,
    ) -> None:
        if dtype not in ("bfloat16", "float16"):
            raise ArgumentError(f"dtype must be 'bfloat16' or 'float16'; got {dtype!r}")
        self._adapter, self._dtype = check_adapter(adapter), FLOATS[dtype]
        self._prefix = Prefix(prefix, rename)
        self._like, self._types = like, dict[str, np.dtype[Any]]()
        if like is not None:
            tensors = read_layout(checked_path(like)).tensors
            kinds = ((name, tensor.kind) for name, tensor in tensors.items())
            self._types = {name: FLOATS[kind.name] for name, kind in kinds if kind and kind.name in FLOATS}

    def to_numpy(
        self,
        state: Any,
        metadata: Mapping[str, str] | None = None,
        room: Room | None = None,
        wanted: Wanted | None = None,
    ) -> tuple[Any, dict[str, str]]:
        """Return a state of NumPy arrays, rounded, and its metadata."""
        arrays, strings = state, dict(metadata or {})
        if self._adapter is not None:
            more = (room,) if wanted is None else (room, wanted)
            arrays, strings = self._adapter.to_numpy(state, metadata, *more)
        flat = flatten(arrays)
        paths, types = array_names(flat.tree), dict[int, np.dtype[Any]]()
        if self._types:
            names = self._prefix.tensors(paths, self._types, self._like, strict=False)
            types = {paths[path]: self._types[name] for path, name in names.items() if name in self._types}
        rounded_arrays = [self._rounded(array, types.get(index)) for index, array in enumerate(flat.arrays)]
        return unflatten(flat.tree, rounded_arrays, flat.scalars), strings

    def _rounded(self, array: Array, wanted: np.dtype[Any] | None) -> Array:
        """Return an array in its type of the model; without one, no wider than `dtype`."""
        kind = element_type(array.dtype)
        if kind.name not in FLOATS or (wanted is None and kind.itemsize <= self._dtype.itemsize):
            return array
        dtype = self._dtype if wanted is None else wanted
        return array if kind == element_type(dtype) else rounded(array, dtype)

    def from_numpy(self, state: Any, metadata: Mapping[str, str], name: str = "") -> Any:
        """Return a state, or a part of it, as the framework has it; it stays rounded."""
        return state if self._adapter is None else self._adapter.from_numpy(state, metadata, name)

    def roles(self, state: Any) -> Mapping[str, Assignment]:
        """Return what the framework's adapter says."""
        return {} if self._adapter is None else self._adapter.roles(state)
