"""A pytree of JAX in parts, one file for each process, and back on any number of processes and devices.

The part of process 0 has the table of leaves, in JSON: the path of each and, unless it is a plain value,
which lies beside the table, the dtype, shape and shards of its array: offsets, sizes, and the process whose
part has it. A process stores the shards on its own devices, of replicas the first; what every process has as
a whole is stored by process 0. Keys of `jax.random` are stored as their data.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, Self, TypeAlias

import jax
import ml_dtypes
import numpy as np

from ..checkpoint import CheckpointFile
from ..errors import ArgumentError, ChainError, FormatError, LccodecError, StorageError, UnsupportedError
from ..floats import Array, element_type
from ..state import leaf_name
from .link import open_linked
from .plain import check_same

__all__ = ["abstract_tree", "part_path", "read_tree", "take_part"]

Entry: TypeAlias = dict[str, Any]  # of the table
KeyPath: TypeAlias = list[str | int]
Index: TypeAlias = tuple[slice, ...]

_RULE: Final = "jax"
_KIND: Final = "jax.pytree"
_VERSION: Final = 1
_WHOLE: Final = (slice(None),) * 64  # more dimensions than an array has
_EMPTY: Final = {"dict": dict, "list": list, "tuple": tuple}


def part_path(directory: Path, process: int) -> Path:
    """Return the file of a process."""
    return directory / f"process-{process}.lcc.h5"


def take_part(tree: Any) -> dict[str, Any]:
    """Return what this process stores of a tree, as a state; copied, so that its buffers may be donated.

    Raises
    ------
    ArgumentError
        For a leaf that is neither an array, a number, a bool, a str nor bytes, or two leaves of one name.
    """
    process = jax.process_index()
    table: list[tuple[KeyPath, Entry]] = []
    values: dict[str, Any] = {}
    arrays: dict[str, Array] = {}
    names: set[str] = set()
    for path, leaf in _leaves(tree):
        name = _name(path)
        if name in names:
            raise ArgumentError(f"two leaves of the tree would both be named {name!r}")
        names.add(name)
        if isinstance(leaf, jax.Array | np.ndarray | np.generic):
            entry, shards = _shards(leaf)
            for (offsets, _, owner), shard in zip(entry["shards"], shards, strict=True):
                if owner == process:
                    arrays[_key(name, offsets, entry)] = _storable(shard(), name)
        elif kind := _empty(leaf):
            entry = {"empty": kind}
        else:
            entry = {}
            if leaf is not None and type(leaf) not in (bool, int, float, str, bytes):
                found = f"{type(leaf).__module__}.{type(leaf).__qualname__}"
                raise ArgumentError(f"leaf {name!r} is a {found}, neither an array nor a plain value")
            values[name] = leaf
        table.append((path, entry))
    first = process == 0
    return {
        "kind": _KIND,
        "version": _VERSION,
        "process": process,
        "processes": jax.process_count(),
        "table": json.dumps(table) if first else "[]",
        "values": values if first else {},
        "arrays": arrays,
    }


def read_tree(directory: Path, target: Any = None, threads: int = 1) -> Any:
    """Return the tree whose parts are in a directory.

    Parameters
    ----------
    target
        A tree of the same names, whose leaves say what to make: `jax.Array` and `jax.ShapeDtypeStruct` arrays
        of their sharding, NumPy arrays such, all else plain values. Without it, NumPy arrays (and keys) in
        dicts and lists.
    threads
        How many to decode with, 0 for one each core.

    Raises
    ------
    ArgumentError
        Lists all leaves that are missing, not expected, or of another shape or dtype.
    ChainError
        If the part of a process is missing, or of another checkpoint.
    DataError
        If stored bytes break a rule.
    """
    with _Parts(directory, threads) as parts:
        if target is None:
            parts.fetch([(_name(path), entry, [_WHOLE]) for path, entry in parts.table])
            return _containers([(path, parts.leaf(path, entry)) for path, entry in parts.table])
        flat, structure = jax.tree_util.tree_flatten_with_path(target, is_leaf=_is_leaf)
        wanted = {_name(_path(keys)): leaf for keys, leaf in flat}
        stored = {_name(path): (path, entry) for path, entry in parts.table}
        check_same(
            {name: _words(leaf) for name, leaf in wanted.items()},
            {name: parts.words(path, entry) for name, (path, entry) in stored.items()},
        )
        parts.fetch(
            [(name, stored[name][1], _regions(leaf, stored[name][1])) for name, leaf in wanted.items()]
        )
        leaves = [_make(leaf, *stored[name], parts) for name, leaf in wanted.items()]
        return jax.tree_util.tree_unflatten(structure, leaves)


def abstract_tree(directory: Path) -> Any:
    """Return what `read_tree` would without a target, arrays as `jax.ShapeDtypeStruct`."""
    with _Parts(directory) as parts:
        return _containers([(path, parts.abstract(path, entry)) for path, entry in parts.table])


class _Parts:
    """The parts of a tree, opened as they are needed; a context manager."""

    def __init__(self, directory: Path, threads: int = 1) -> None:
        self._directory = directory
        self._threads = threads
        self._files: dict[int, CheckpointFile] = {}
        self._arrays: dict[str, Array] = {}
        self._processes = 0
        with ExitStack() as stack:
            self._stack = stack
            file = self._part(0)
            found = file.state(["table", "values"])
            self._values = {key.removeprefix("values/"): value for key, value in found.items()}
            self.table = _parse_table(found["table"], self._processes, self._place(0))
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _place(self, process: int) -> str:
        return str(part_path(self._directory, process))

    def _part(self, process: int) -> CheckpointFile:
        if process in self._files:
            return self._files[process]
        where = self._place(process)
        try:
            file = self._stack.enter_context(open_linked(where, self._threads))
        except StorageError as error:
            if Path(where).exists():
                raise
            raise ChainError(f"{self._directory}: the part of process {process} is missing") from error
        try:
            head = file.state(["kind", "version", "process", "processes", "table"])
        except ArgumentError:
            head = {"kind": None}
        if head["kind"] != _KIND or type(head["processes"]) is not int or type(head["table"]) is not str:
            raise FormatError(_RULE, where, "not a part of a pytree")
        if head["version"] != _VERSION:
            raise UnsupportedError(_RULE, where, f"a pytree of version {head['version']}")
        self._processes = self._processes or head["processes"]
        if (head["process"], head["processes"]) != (process, self._processes):
            raise ChainError(f"{where} is the part of another process or checkpoint")
        self._files[process] = file
        return file

    def words(self, path: KeyPath, entry: Entry) -> str:
        """Describe a leaf as `_words` does."""
        return _words(self.abstract(path, entry))

    def abstract(self, path: KeyPath, entry: Entry) -> Any:
        """Return a plain value, or the shape and dtype of an array."""
        if "shards" not in entry:
            return self.leaf(path, entry)
        if "impl" in entry:
            dtype = jax.random.key(0, impl=entry["impl"]).dtype
            return jax.ShapeDtypeStruct(tuple(entry["shape"][:-1]), dtype)  # type: ignore[no-untyped-call]
        return jax.ShapeDtypeStruct(tuple(entry["shape"]), _dtype(entry["dtype"]))  # type: ignore[no-untyped-call]

    def fetch(self, requests: list[tuple[str, Entry, list[Index]]]) -> None:
        """Read the shards that regions need: all of a part at once, as small arrays share frames."""
        keys: dict[int, dict[str, tuple[str, Entry, list[int]]]] = {}
        for name, entry, regions in requests:
            for region in regions if "shards" in entry else []:
                for shard in _overlaps(entry, region):
                    key = _key(name, shard.offsets, entry)
                    keys.setdefault(shard.process, {})[leaf_name(("arrays", key))] = key, entry, shard.sizes
        for process, wanted in keys.items():
            found = self._part(process).state(wanted)
            for leaf, (key, entry, sizes) in wanted.items():
                array, dtype = found[leaf], _dtype(entry["dtype"])
                if array.dtype == np.uint8 and dtype.itemsize == 1 and dtype.kind == "V":
                    array = array.view(dtype)
                if array.dtype != dtype or list(array.shape) != sizes:
                    raise FormatError(_RULE, f"{self._place(process)}: {key!r}", "not what the table says")
                self._arrays[key] = array

    def leaf(self, path: KeyPath, entry: Entry) -> Any:
        """Return a plain value, or an array with all of its shards, which have been fetched."""
        if "empty" in entry:
            return _EMPTY[entry["empty"]]()
        if "shards" not in entry:
            return self._values[leaf_name((_name(path),))]
        whole = self.region(_name(path), entry, _WHOLE)
        return (
            jax.random.wrap_key_data(jax.numpy.asarray(whole), impl=entry["impl"])
            if "impl" in entry
            else whole
        )

    def region(self, name: str, entry: Entry, index: Index) -> Array:
        """Return a region of an array, put together of the shards that it overlaps."""
        starts, sizes = _box(index, entry["shape"])
        out: Array | None = None
        for shard in _overlaps(entry, index):
            array = self._arrays[_key(name, shard.offsets, entry)]
            if (starts, sizes) == (shard.offsets, shard.sizes):
                return array
            if out is None:
                out = np.empty(sizes, array.dtype)
            out[_slices(shard.low, shard.high, starts)] = array[_slices(shard.low, shard.high, shard.offsets)]
        return np.empty(sizes, _dtype(entry["dtype"])) if out is None else out


class _Shard(NamedTuple):
    """A shard, and the corners of what a region has of it."""

    offsets: list[int]
    sizes: list[int]
    process: int
    low: list[int]
    high: list[int]


def _box(index: Index, shape: list[int]) -> tuple[list[int], list[int]]:
    """Return offsets and sizes of a region."""
    bounds = [part.indices(size) for part, size in zip(index, shape, strict=False)]
    return [start for start, _, _ in bounds], [stop - start for start, stop, _ in bounds]


def _overlaps(entry: Entry, index: Index) -> Iterator[_Shard]:
    starts, extent = _box(index, entry["shape"])
    for offsets, sizes, process in entry["shards"]:
        low = list(map(max, starts, offsets))
        high = [min(a + n, b + m) for a, n, b, m in zip(starts, extent, offsets, sizes, strict=True)]
        if all(a < b for a, b in zip(low, high, strict=True)):
            yield _Shard(offsets, sizes, process, low, high)


def _regions(leaf: Any, entry: Entry) -> list[Index]:
    """Return the regions of an array that this process needs to make a leaf of a target."""
    sharding = getattr(leaf, "sharding", None)
    if sharding is None or "impl" in entry:
        return [_WHOLE]
    return list(sharding.addressable_devices_indices_map(tuple(entry["shape"])).values())


def _slices(low: list[int], high: list[int], origin: Any) -> tuple[slice, ...]:
    return tuple(slice(a - o, b - o) for a, b, o in zip(low, high, origin, strict=True))


def _parse_table(text: str, processes: int, where: str) -> list[tuple[KeyPath, Entry]]:
    """Check an untrusted table and return it."""
    try:
        table = [(list(path), dict(entry)) for path, entry in json.loads(text)]
        for path, entry in table:
            sound = all(type(key) in (str, int) for key in path) and entry.get("empty", "dict") in _EMPTY
            if "shards" in entry:
                _dtype(entry["dtype"])
                if "impl" in entry:
                    jax.random.key(0, impl=entry["impl"])
                rank = len(entry["shape"])
                for offsets, sizes, process in entry["shards"]:
                    numbers = [*offsets, *sizes, *entry["shape"], process]
                    sound &= all(type(n) is int and n >= 0 for n in numbers) and process < processes
                    sound &= len(offsets) == len(sizes) == rank
            if not sound:
                raise ValueError(f"{path}: {entry}")
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        if isinstance(error, LccodecError):
            raise
        raise FormatError(_RULE, where, f"a table that does not hold together: {error}") from error
    return table


def _leaves(tree: Any) -> Iterator[tuple[KeyPath, Any]]:
    for keys, leaf in jax.tree_util.tree_flatten_with_path(tree, is_leaf=_is_leaf)[0]:
        yield _path(keys), leaf


def _is_leaf(value: Any) -> bool:
    """None and empty containers are no leaves to JAX, but what a target has in their place must fit."""
    return value is None or bool(_empty(value))


def _empty(value: Any) -> str | None:
    """Return the kind of an empty container; optax has empty named tuples."""
    for name, kind in _EMPTY.items():
        if isinstance(value, kind) and not value:
            return name
    return None


def _path(keys: tuple[Any, ...]) -> KeyPath:
    """Return the way to a leaf: positions as integers, keys and attributes as strings."""
    path: KeyPath = []
    for key in keys:
        if isinstance(key, jax.tree_util.SequenceKey):
            path.append(key.idx)
        else:
            path.append(str(key.name if isinstance(key, jax.tree_util.GetAttrKey) else key.key))
    return path


def _name(path: KeyPath) -> str:
    return "/".join(map(str, path))


def _key(name: str, offsets: list[int], entry: Entry) -> str:
    return name if len(entry["shards"]) == 1 else f"{name}/{','.join(map(str, offsets))}"


def _shards(leaf: Any) -> tuple[Entry, list[Callable[[], Array]]]:
    """Return the entry of an array in the table, and for each shard what copies it from its device."""
    entry: Entry = {}
    if jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        entry["impl"] = str(jax.random.key_impl(leaf))
        leaf = jax.random.key_data(leaf)
    entry |= {"dtype": str(leaf.dtype), "shape": list(leaf.shape), "shards": []}
    if not isinstance(leaf, jax.Array) or leaf.is_fully_addressable:
        entry["shards"].append(([0] * leaf.ndim, list(leaf.shape), 0))
        return entry, [partial(np.array, leaf)]
    copies: list[Callable[[], Array]] = []
    for shard in leaf.global_shards:
        if shard.replica_id == 0:
            starts, stops, _ = zip(*map(slice.indices, shard.index, leaf.shape), strict=True)
            sizes = [stop - start for start, stop in zip(starts, stops, strict=True)]
            entry["shards"].append((list(starts), sizes, shard.device.process_index))
            copies.append(partial(np.array, shard.data))
    return entry, copies


def _storable(array: Array, name: str) -> Array:
    """Return an array of a type of the format: float8 and its like as their bits."""
    if array.dtype.kind == "V" and array.dtype.itemsize == 1:
        return array.view(np.uint8)
    try:
        element_type(array.dtype)
    except ArgumentError as error:
        raise ArgumentError(f"leaf {name!r}: {error}") from None
    return array


def _dtype(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, name, name))


def _words(leaf: Any) -> str:
    """Describe a leaf, so that leaves that fit each other are described alike."""
    if hasattr(leaf, "dtype") and hasattr(leaf, "shape"):
        return f"{leaf.dtype} {tuple(leaf.shape)}"
    return _empty(leaf) or ("a plain value" if _is_plain(leaf) else type(leaf).__name__)


def _is_plain(leaf: Any) -> bool:
    return leaf is None or isinstance(leaf, bool | int | float | str | bytes)


def _make(leaf: Any, path: KeyPath, entry: Entry, parts: _Parts) -> Any:
    """Return a leaf as the target has it."""
    if "shards" not in entry:
        return leaf if "empty" in entry else parts.leaf(path, entry)
    if isinstance(leaf, np.ndarray | np.generic):
        return parts.leaf(path, entry)
    if "impl" not in entry and jax.dtypes.canonicalize_dtype(leaf.dtype) != leaf.dtype:
        raise ArgumentError(f"leaf {_name(path)!r}: {leaf.dtype} needs the option jax_enable_x64")
    sharding = getattr(leaf, "sharding", None)
    if sharding is None or "impl" in entry:
        return jax.device_put(parts.leaf(path, entry), sharding)
    name = _name(path)
    return jax.make_array_from_callback(
        tuple(entry["shape"]), sharding, lambda index: parts.region(name, entry, index or _WHOLE)
    )


def _containers(leaves: list[tuple[KeyPath, Any]]) -> Any:
    """Return leaves in dicts and lists by their paths."""
    if len(leaves) == 1 and not leaves[0][0]:
        return leaves[0][1]
    groups: dict[str | int, list[tuple[KeyPath, Any]]] = {}
    for path, leaf in leaves:
        groups.setdefault(path[0], []).append((path[1:], leaf))
    made = {key: _containers(group) for key, group in groups.items()}
    return list(made.values()) if list(made) == list(range(len(made))) and made else made
