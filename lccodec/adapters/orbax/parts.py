"""The parts of a pytree in a directory, one file per process, and the table of its leaves.

The part of process 0 holds the table as JSON: the path and the entry of each leaf. The entry of a
plain value is empty; the value lies beside the table. The entry of an array has its dtype, shape
and shards; a shard is offsets, sizes, and the process whose part holds it. Random keys
(`jax.random`) have the dtype and shape of their data, and the name of their implementation.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple, Self, TypeAlias

import jax
import ml_dtypes
import numpy as np

from ...chain.read.checkpoint import OpenCheckpoint
from ...chain.read.pointer import PYTREE_KIND as KIND
from ...container.tree import leaf_name
from ...element_types import Array
from ...errors import ArgumentError, ChainError, FormatError, LccodecError, StorageError, UnsupportedError
from ..link import open_linked

__all__ = [
    "EMPTY_CONTAINERS",
    "KIND",
    "VERSION",
    "WHOLE_ARRAY",
    "Entry",
    "Index",
    "KeyPath",
    "Parts",
    "part_path",
    "path_name",
    "shard_key",
]

Entry: TypeAlias = dict[str, Any]  # of the table
KeyPath: TypeAlias = list[str | int]
Index: TypeAlias = tuple[slice, ...]

VERSION: Final = 1
WHOLE_ARRAY: Final = (slice(None),) * 64  # as many dimensions as an array can have
EMPTY_CONTAINERS: Final = {"dict": dict, "list": list, "tuple": tuple}

_RULE: Final = "jax"


def part_path(directory: Path, process: int) -> Path:
    """Return the file of a process."""
    return directory / f"process-{process}.lcc.h5"


def path_name(path: KeyPath) -> str:
    """Return the name of a leaf."""
    return "/".join(map(str, path))


def shard_key(name: str, offsets: list[int], entry: Entry) -> str:
    """Return the key of a shard in its part: the leaf's name, and the offsets of one of several."""
    return name if len(entry["shards"]) == 1 else f"{name}/{','.join(map(str, offsets))}"


class Parts:
    """The parts of a tree, opened when they are needed; a context manager."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._files: dict[int, OpenCheckpoint] = {}
        self._arrays: dict[str, Array] = {}
        self._processes = 0
        with ExitStack() as stack:
            self._stack = stack
            head = self._open(0)
            self._values = {key.removeprefix("values/"): value for key, value in head.items()}
            self.table = _parse_table(head["table"], self._processes, self._values, self._place(0))
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _place(self, process: int) -> str:
        return str(part_path(self._directory, process))

    def _open(self, process: int) -> dict[str, Any]:
        """Open a part and return all of it but the arrays."""
        where = self._place(process)
        try:
            file = self._stack.enter_context(open_linked(where))
        except StorageError as error:
            if os.path.exists(where):  # noqa: PTH110 - Path.exists raises for a name that is too long
                raise
            raise ChainError(f"{self._directory}: the part of process {process} is missing") from error
        try:
            head: dict[str, Any] = file.state(["kind", "version", "process", "processes", "table", "values"])
        except ArgumentError:
            head = {"kind": None}
        if head["kind"] != KIND or type(head["processes"]) is not int or type(head["table"]) is not str:
            raise FormatError(_RULE, where, "not a part of a pytree")
        if head["version"] != VERSION:
            raise UnsupportedError(_RULE, where, f"a pytree of version {head['version']}")
        self._processes = self._processes or head["processes"]
        if (head["process"], head["processes"]) != (process, self._processes):
            raise ChainError(f"{where} is the part of another process or checkpoint")
        self._files[process] = file
        return head

    def abstract(self, path: KeyPath, entry: Entry) -> Any:
        """Return a plain value, or the shape and dtype of an array."""
        if "shards" not in entry:
            return self.leaf(path, entry)
        if "impl" in entry:
            dtype = jax.random.key(0, impl=entry["impl"]).dtype
            return jax.ShapeDtypeStruct(tuple(entry["shape"][:-1]), dtype)  # type: ignore[no-untyped-call]
        return jax.ShapeDtypeStruct(tuple(entry["shape"]), _dtype(entry["dtype"]))  # type: ignore[no-untyped-call]

    def fetch(self, requests: list[tuple[str, Entry, list[Index]]]) -> None:
        """Read the shards that regions need, part by part, because small arrays share frames."""
        keys: dict[int, dict[str, tuple[str, Entry, list[int]]]] = {}
        for name, entry, regions in requests:
            for region in regions if "shards" in entry else []:
                for shard in _overlaps(entry, region):
                    key = shard_key(name, shard.offsets, entry)
                    keys.setdefault(shard.process, {})[leaf_name(("arrays", key))] = key, entry, shard.sizes
        for process, wanted in keys.items():
            if process not in self._files:
                self._open(process)
            try:
                found = self._files[process].state(list(wanted))
            except ArgumentError as error:
                raise FormatError(
                    _RULE, self._place(process), f"does not match the table: {error}"
                ) from error
            for leaf, (key, entry, sizes) in wanted.items():
                array, dtype = found[leaf], _dtype(entry["dtype"])
                if array.dtype == np.uint8 and dtype.itemsize == 1 and dtype.kind == "V":
                    array = array.view(dtype)
                if array.dtype != dtype or list(array.shape) != sizes:
                    raise FormatError(_RULE, f"{self._place(process)}: {key!r}", "does not match the table")
                self._arrays[key] = array

    def leaf(self, path: KeyPath, entry: Entry) -> Any:
        """Return a plain value, or a whole array, whose shards have been fetched."""
        if "empty" in entry:
            return EMPTY_CONTAINERS[entry["empty"]]()
        if "shards" not in entry:
            return self._values[leaf_name((path_name(path),))]
        whole = self.region(path_name(path), entry, WHOLE_ARRAY)
        return (
            jax.random.wrap_key_data(jax.numpy.asarray(whole), impl=entry["impl"])
            if "impl" in entry
            else whole
        )

    def region(self, name: str, entry: Entry, index: Index) -> Array:
        """Return a region of an array, assembled from the shards that it overlaps."""
        starts, sizes = _box(index, entry["shape"])
        out: Array | None = None
        for shard in _overlaps(entry, index):
            array = self._arrays[shard_key(name, shard.offsets, entry)]
            if (starts, sizes) == (shard.offsets, shard.sizes):
                return array
            if out is None:
                out = np.zeros(sizes, array.dtype)
            out[_slices(shard.low, shard.high, starts)] = array[_slices(shard.low, shard.high, shard.offsets)]
        return np.zeros(sizes, _dtype(entry["dtype"])) if out is None else out


class _Shard(NamedTuple):
    """A shard, and the corners of its overlap with a region."""

    offsets: list[int]
    sizes: list[int]
    process: int
    low: list[int]
    high: list[int]


def _box(index: Index, shape: list[int]) -> tuple[list[int], list[int]]:
    """Return the offsets and sizes of a region."""
    bounds = [part.indices(size) for part, size in zip(index, shape, strict=False)]
    return [start for start, _, _ in bounds], [stop - start for start, stop, _ in bounds]


def _overlaps(entry: Entry, index: Index) -> Iterator[_Shard]:
    starts, extent = _box(index, entry["shape"])
    for offsets, sizes, process in entry["shards"]:
        low = list(map(max, starts, offsets))
        high = [min(a + n, b + m) for a, n, b, m in zip(starts, extent, offsets, sizes, strict=True)]
        if all(a < b for a, b in zip(low, high, strict=True)):
            yield _Shard(offsets, sizes, process, low, high)


def _slices(low: list[int], high: list[int], origin: Any) -> tuple[slice, ...]:
    return tuple(slice(a - o, b - o) for a, b, o in zip(low, high, origin, strict=True))


def _parse_table(
    text: str, processes: int, values: Mapping[str, Any], where: str
) -> list[tuple[KeyPath, Entry]]:
    """Check an untrusted table and return it."""
    try:
        table = [(list(path), dict(entry)) for path, entry in json.loads(text)]
        for path, entry in table:
            sound = (
                all(type(key) in (str, int) for key in path)
                and entry.get("empty", "dict") in EMPTY_CONTAINERS
            )
            if not entry:
                sound &= leaf_name((path_name(path),)) in values
            if "shards" in entry:
                _dtype(entry["dtype"])
                if "impl" in entry:
                    jax.random.key(0, impl=entry["impl"])
                # Distinct shards add up to the array: no memory is allocated without stored bytes
                # for it.
                sound &= len({tuple(offsets) for offsets, _, _ in entry["shards"]}) == len(entry["shards"])
                sound &= sum(math.prod(sizes) for _, sizes, _ in entry["shards"]) == math.prod(entry["shape"])
                for offsets, sizes, process in entry["shards"]:
                    numbers = [*offsets, *sizes, *entry["shape"], process]
                    sound &= all(type(n) is int and n >= 0 for n in numbers) and process < processes
                    bounds = zip(offsets, sizes, entry["shape"], strict=True)
                    sound &= all(offset + size <= length for offset, size, length in bounds)
            if not sound:
                raise ValueError(f"{path}: {entry}")
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        if isinstance(error, LccodecError):
            raise
        raise FormatError(_RULE, where, f"an inconsistent table of leaves: {error}") from error
    return table


def _dtype(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, name, name))
