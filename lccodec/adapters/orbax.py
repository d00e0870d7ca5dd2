"""Orbax: handlers for its `CheckpointManager` and for the checkpointables of its v1 API.

>>> import tempfile, jax, jax.numpy as jnp
>>> import orbax.checkpoint as ocp
>>> from lccodec.adapters.orbax import LCRestore, LCSave
>>> state = {"params": {"w": jnp.ones((3, 2))}, "key": jax.random.key(0), "epoch": 1}
>>> options = ocp.CheckpointManagerOptions(max_to_keep=2)
>>> with ocp.CheckpointManager(tempfile.mkdtemp(), options=options) as manager:
...     for step in range(3):
...         _ = manager.save(step, args=LCSave(state))
...     manager.wait_until_finished()
...     restored = manager.restore(manager.latest_step(), args=LCRestore(state))
...     manager.all_steps(), restored["params"]["w"].shape, restored["epoch"]
([1, 2], (3, 2), 1)

Each process writes its own file; Orbax makes the step visible when all have finished. A save copies
the tree, and encodes and writes it in the background. Each step stands alone, so Orbax can delete
any step. For deltas, give the manager ``item_handlers=LCCheckpointHandler(chain=...)``. Then the
states lie in the chain, where Orbax deletes nothing, and each step holds links to it
(`lccodec.adapters.chains`).

With ``background=True``, worker processes encode and write, in place of a thread of this process,
and the copy of the tree lies in memory that they read. Orbax makes a step visible when the workers
have finished, and raises what failed.

In the v1 API, register the handler under the name of a checkpointable (Orbax uses the name
``state`` itself)::

    registry = ocp.handlers.local_registry().add(LCHandler, checkpointable_name="training")

A pytree is stored as parts, one per process, and read on any number of processes and devices.
A process stores the shards on its own devices; of replicas, the first is stored. Process 0 stores
what every process has as a whole. The part of process 0 holds the table of leaves as JSON: the path
and the entry of each leaf. The entry of a plain value is empty; the value lies beside the table.
The entry of an array has its dtype, shape and shards; a shard is offsets, sizes, and the process
whose part holds it. Random keys (`jax.random`) have the dtype and shape of their data, and the name
of their implementation.

Needs the extra ``orbax``.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple, Self, TypeAlias, Unpack

import numpy as np

from ..chain.read.checkpoint import OpenCheckpoint
from ..chain.read.links import PYTREE_KIND
from ..container.system import StrPath, checked_path
from ..container.tree import leaf_name, unescaped
from ..element_types import Array, element_type, in_host_order
from ..errors import (
    ArgumentError,
    ChainError,
    DependencyError,
    FormatError,
    LccodecError,
    StorageError,
    UnsupportedError,
)
from ..policy.policy import Policy
from ..policy.roles import Assignment, assign_roles
from .chains import ChainOptions, LinkSaver, OtherOptions, open_linked
from .files.formats import number_files
from .matching import check_same
from .tree import listed, make_up, nested

try:
    import jax
    import ml_dtypes
    import orbax.checkpoint as ocp
except ImportError:
    raise DependencyError("needs Orbax: pip install 'lccodec[orbax]'") from None

from .jax import described, leaves, roles

__all__ = ["LCCheckpointHandler", "LCHandler", "LCRestore", "LCSave"]

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
        if (
            head["kind"] != PYTREE_KIND
            or type(head["processes"]) is not int
            or type(head["table"]) is not str
        ):
            raise FormatError(_RULE, where, "not a part of a pytree")
        if head["version"] != VERSION:
            raise UnsupportedError(_RULE, where, f"a pytree of version {head['version']}")
        self._processes = self._processes or head["processes"]
        if (head["process"], head["processes"]) != (process, self._processes):
            raise ChainError(f"{where} is the part of another process or checkpoint")
        self._files[process] = file
        return head

    def tree(self, leaf: Callable[[KeyPath, Entry], Any]) -> Any:
        """Return what `leaf` makes of all entries, in nested dicts and lists."""
        made = [(path, leaf(path, entry)) for path, entry in self.table]
        return (
            made[0][1] if len(made) == 1 and not made[0][0] else listed(nested(made, _RULE, self._place(0)))
        )

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
                arrays = self._files[process].state(list(wanted))
            except ArgumentError as error:
                raise FormatError(
                    _RULE, self._place(process), f"does not match the table: {error}"
                ) from error
            for leaf, (key, entry, sizes) in wanted.items():
                array, dtype = arrays[leaf], _dtype(entry["dtype"])
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
        if "impl" not in entry:
            return whole
        return jax.random.wrap_key_data(jax.numpy.asarray(whole), impl=entry["impl"])

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
            sound = entry.get("empty", "dict") in EMPTY_CONTAINERS
            sound &= all(type(key) in (str, int) for key in path)
            sound &= bool(entry) or leaf_name((path_name(path),)) in values
            if "shards" in entry:
                _dtype(entry["dtype"])
                if "impl" in entry:
                    jax.random.key(0, impl=entry["impl"])
                boxes = [(offsets, sizes) for offsets, sizes, _ in entry["shards"]]
                numbers = [*entry["shape"], *(n for box in boxes for side in box for n in side)]
                owners = [process for *_, process in entry["shards"]]
                sound &= all(type(n) is int and n >= 0 for n in (*numbers, *owners))
                sound &= max(owners, default=0) < processes and make_up(entry["shape"], boxes)
            if not sound:
                raise ValueError(f"{path}: {entry}")
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        if isinstance(error, LccodecError):
            raise
        raise FormatError(_RULE, where, f"an inconsistent table of leaves: {error}") from error
    return table


def _dtype(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, name, name))


_UNKNOWN_NAME: Final = Assignment("other", "of another name in the tree")


def take_part(tree: Any, *, copy: bool = True) -> dict[str, Any]:
    """Return the part of a tree that this process stores, copied by default, as a state."""
    process = jax.process_index()
    table: list[tuple[KeyPath, Entry]] = []
    values: dict[str, Any] = {}
    own: dict[str, tuple[Any, str]] = {}  # a shard, and the name of its leaf
    names: set[str] = set()
    for keys, leaf in jax.tree_util.tree_flatten_with_path(tree, is_leaf=_is_leaf)[0]:
        name = path_name(path := _path(keys))
        if name in names:
            raise ArgumentError(f"two leaves of the tree would both be named {name!r}")
        names.add(name)
        if isinstance(leaf, jax.Array | np.ndarray | np.generic):
            entry, shards = _shards(leaf)
            for (offsets, _, owner), shard in zip(entry["shards"], shards, strict=True):
                if owner == process:
                    if isinstance(shard, jax.Array):
                        shard.copy_to_host_async()
                    own[shard_key(name, offsets, entry)] = shard, name
        elif kind := _empty(leaf):
            entry = {"empty": kind}
        else:
            entry = {}
            if leaf is not None and type(leaf) not in (bool, int, float, str, bytes):
                class_path = f"{type(leaf).__module__}.{type(leaf).__qualname__}"
                raise ArgumentError(f"leaf {name!r} is a {class_path}: not an array and not a plain value")
            values[name] = leaf
        table.append((path, entry))
    first = process == 0
    take = np.array if copy else np.asarray
    arrays = {key: _storable(take(shard), name) for key, (shard, name) in own.items()}
    return {
        "kind": PYTREE_KIND,
        "version": VERSION,
        "process": process,
        "processes": jax.process_count(),
        "table": json.dumps(table) if first else "[]",
        "values": values if first else {},
        "arrays": arrays,
    }


def part_roles(tree: Any, part: dict[str, Any]) -> dict[str, Assignment]:
    """Return the role of every array in the part that `take_part` made of a tree, by name."""
    structural = roles(tree)
    shapes = {name: leaf.shape for name, leaf in leaves(tree) if hasattr(leaf, "shape")}
    assignments = assign_roles(shapes, None, structural)
    by_path = {unescaped(name): assignment for name, assignment in assignments.items()}
    kept: dict[str, Assignment] = {}
    for key in part["arrays"]:
        ends = (key, key.rpartition("/")[0])  # with and without the offsets of a shard
        # The value of an NNX Variable has its own name here.
        name = next((n for end in ends for n in (end, end.removesuffix("/value")) if n in by_path), None)
        kept[leaf_name(("arrays", key))] = by_path[name] if name is not None else _UNKNOWN_NAME
    return kept


def read_tree(directory: Path, target: Any = None) -> Any:
    """Return the tree whose parts are in a directory.

    Its leaves have the shardings and kinds of the target, a tree with the same names; without one
    they are NumPy arrays, random keys and plain values in dicts and lists.
    """
    with Parts(directory) as parts:
        if target is None:
            parts.fetch([(path_name(path), entry, [WHOLE_ARRAY]) for path, entry in parts.table])
            return parts.tree(parts.leaf)
        flat, structure = jax.tree_util.tree_flatten_with_path(target, is_leaf=_is_leaf)
        wanted = {path_name(_path(keys)): leaf for keys, leaf in flat}
        stored = {path_name(path): (path, entry) for path, entry in parts.table}
        check_same(
            {name: _words(leaf) for name, leaf in wanted.items()},
            {name: _words(parts.abstract(path, entry)) for name, (path, entry) in stored.items()},
        )
        parts.fetch(
            [(name, stored[name][1], _regions(leaf, stored[name][1])) for name, leaf in wanted.items()]
        )
        leaves = [_make(leaf, *stored[name], parts) for name, leaf in wanted.items()]
        return jax.tree_util.tree_unflatten(structure, leaves)


def abstract_tree(directory: Path) -> Any:
    """Return what `read_tree` returns without a target, with `jax.ShapeDtypeStruct` for arrays."""
    with Parts(directory) as parts:
        return parts.tree(parts.abstract)


def _regions(leaf: Any, entry: Entry) -> list[Index]:
    """Return the regions of an array that this process needs for a leaf of the target."""
    sharding = getattr(leaf, "sharding", None)
    if sharding is None or "impl" in entry:
        return [WHOLE_ARRAY]
    return list(sharding.addressable_devices_indices_map(tuple(entry["shape"])).values())


def _is_leaf(value: Any) -> bool:
    """Whether a value counts as a leaf although JAX sees none in it: None, empty containers."""
    return value is None or bool(_empty(value))


def _empty(value: Any) -> str | None:
    """Return the kind of an empty container, or None; optax has empty named tuples."""
    for name, kind in EMPTY_CONTAINERS.items():
        if isinstance(value, kind) and not value:
            return name
    return None


def _path(keys: tuple[Any, ...]) -> KeyPath:
    """Return the path of a leaf: positions as integers, keys and attributes as strings."""
    path: KeyPath = []
    for key in keys:
        if isinstance(key, jax.tree_util.SequenceKey):
            path.append(key.idx)
        else:
            path.append(str(key.name if isinstance(key, jax.tree_util.GetAttrKey) else key.key))
    return path


def _shards(leaf: Any) -> tuple[Entry, list[Any]]:
    """Return the table's entry of an array, and its shards."""
    entry: Entry = {}
    if jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        entry["impl"] = str(jax.random.key_impl(leaf))
        leaf = jax.random.key_data(leaf)
    if isinstance(leaf, np.ndarray):
        leaf = in_host_order(leaf)
    entry |= {"dtype": str(leaf.dtype), "shape": list(leaf.shape), "shards": []}
    if not isinstance(leaf, jax.Array) or leaf.is_fully_addressable:
        entry["shards"].append(([0] * leaf.ndim, list(leaf.shape), 0))
        return entry, [leaf]
    shards = []
    for shard in leaf.global_shards:
        if shard.replica_id == 0:
            starts, stops, _ = zip(*map(slice.indices, shard.index, leaf.shape), strict=True)
            sizes = [stop - start for start, stop in zip(starts, stops, strict=True)]
            entry["shards"].append((list(starts), sizes, shard.device.process_index))
            # Elsewhere, the data are another process's.
            shards.append(shard.data)
    return entry, shards


def _storable(array: Array, name: str) -> Array:
    """Return an array of a type that the format has: float8 and similar types as bits."""
    if array.dtype.kind == "V" and array.dtype.itemsize == 1:
        return array.view(np.uint8)
    try:
        element_type(array.dtype)
    except ArgumentError as error:
        raise ArgumentError(f"leaf {name!r}: {error}") from None
    return array


def _words(leaf: Any) -> str:
    """Describe a leaf; leaves that fit each other have the same description."""
    plain = isinstance(leaf, bool | int | float | str | bytes | None)
    return described(leaf) or _empty(leaf) or ("a plain value" if plain else type(leaf).__name__)


def _make(leaf: Any, path: KeyPath, entry: Entry, parts: Parts) -> Any:
    """Return a leaf in the form that the target has."""
    if "shards" not in entry:
        return leaf if "empty" in entry else parts.leaf(path, entry)
    if isinstance(leaf, np.ndarray | np.generic):
        return parts.leaf(path, entry)
    if "impl" not in entry and jax.dtypes.canonicalize_dtype(leaf.dtype) != leaf.dtype:
        raise ArgumentError(f"leaf {path_name(path)!r}: {leaf.dtype} needs the option jax_enable_x64")
    sharding = getattr(leaf, "sharding", None)
    if sharding is None or "impl" in entry:
        return jax.device_put(parts.leaf(path, entry), sharding)
    name = path_name(path)
    return jax.make_array_from_callback(
        tuple(entry["shape"]), sharding, lambda index: parts.region(name, entry, index or WHOLE_ARRAY)
    )


#: What Orbax writes behind the name of a directory until it is complete.
_TEMPORARY: Final = ".orbax-checkpoint-tmp"


class LCCheckpointHandler(ocp.AsyncCheckpointHandler):  # type: ignore[misc]
    """Saves and restores a pytree; for `orbax.checkpoint.CheckpointManager` and the checkpointers.

    Parameters
    ----------
    chain, policy, keyframe_every, workers, newest, background, keep, hindsight, only
        See `lccodec.adapters.chains.ChainOptions`, also for errors. Each process has its
        own chain in the directory.
    """

    def __init__(
        self, chain: StrPath | None = None, policy: str | Policy = "lossless", **options: Unpack[OtherOptions]
    ) -> None:
        self._options = ChainOptions(chain, policy, **options)
        self._saver: LinkSaver | None = None

    async def async_save(self, directory: Any, args: LCSave) -> list[ocp.future.Future]:
        """Copy the tree; return a future that waits until it is written."""
        write = self._begin(args.item, _step(directory))

        async def finish() -> None:
            await asyncio.to_thread(write, checked_path(directory))

        return [ocp.future.CommitFutureAwaitingContractedSignals(finish(), name="lccodec_save")]

    def save(self, directory: Any, args: LCSave) -> None:
        """Write the tree."""
        self._begin(args.item, _step(directory))(checked_path(directory))

    def close(self) -> None:
        """Wait for the saves in the background, and end the workers."""
        if self._saver is not None:
            self._saver.close()

    def _begin(self, tree: Any, step: int | None) -> Callable[[Path], None]:
        """Copy a tree; return the function that writes it, or its link, to a directory."""
        state = take_part(tree, copy=not self._options.background)
        roles, process = part_roles(tree, state), state["process"]
        if self._saver is None:
            self._saver = LinkSaver(self._options, part=f"process-{process}")
        if self._options.background:
            # The directory may not exist yet, and Orbax asks for the result: no failure is lost.
            begun = self._saver.begin(state, {}, roles, step, _names(state))
            return lambda directory: begun.link(part_path(directory, process))
        save = partial(self._saver.save, state, metadata={}, roles=roles, step=step, names=_names(state))
        return lambda directory: save(part_path(directory, process))

    def restore(self, directory: Any, args: LCRestore | None = None) -> Any:
        """Return the tree; an ``ArgumentError`` lists every misfit with the target."""
        return read_tree(checked_path(directory), args and args.item)

    def metadata(self, directory: Any) -> Any:
        """Return the tree with `jax.ShapeDtypeStruct` in the place of arrays."""
        return abstract_tree(checked_path(directory))


@ocp.args.register_with_handler(LCCheckpointHandler, for_save=True)
@dataclass
class LCSave(ocp.args.CheckpointArgs):  # type: ignore[misc]
    """The argument of a save: a pytree of arrays and plain values."""

    item: Any


@ocp.args.register_with_handler(LCCheckpointHandler, for_restore=True)
@dataclass
class LCRestore(ocp.args.CheckpointArgs):  # type: ignore[misc]
    """The argument of a restore: a tree like the saved one, of `jax.ShapeDtypeStruct` or arrays.

    Shapes and dtypes must be the same; shardings may differ. Without a tree, the restore returns
    NumPy arrays in dicts and lists.
    """

    item: Any = None


class LCHandler:
    """Saves and loads a pytree in Orbax's v1 API; a `CheckpointableHandler`.

    Orbax makes the object itself, without arguments. A subclass gives the arguments of
    `LCCheckpointHandler` in `options`.
    """

    options: ClassVar[Mapping[str, Any]] = {}
    _handler: LCCheckpointHandler

    def __init__(self) -> None:
        # Orbax makes an object for each save. The chain, with its workers, is for all of them.
        if "_handler" not in vars(type(self)):
            type(self)._handler = LCCheckpointHandler(**self.options)

    async def save(self, directory: Any, checkpointable: Any) -> Awaitable[None]:
        """Copy the tree; return an awaitable that writes it."""
        write = self._handler._begin(checkpointable, _step(getattr(directory, "path", None)))

        async def finish() -> None:
            path = checked_path(await directory.await_creation())
            await asyncio.to_thread(write, path)

        return finish()

    async def load(self, directory: Any, abstract_checkpointable: Any = None) -> Awaitable[Any]:
        """Return an awaitable that reads the tree; errors as `LCCheckpointHandler.restore`."""

        async def read() -> Any:
            return read_tree(checked_path(directory), abstract_checkpointable)

        return read()

    async def metadata(self, directory: Any) -> Any:
        """Return the tree with `jax.ShapeDtypeStruct` in the place of arrays."""
        return abstract_tree(checked_path(directory))

    def is_handleable(self, checkpointable: Any) -> bool:
        """Return whether all leaves are arrays or plain values."""
        kinds = (jax.Array, np.ndarray, np.generic, bool, int, float, str, bytes)
        return all(isinstance(leaf, kinds) for leaf in jax.tree_util.tree_leaves(checkpointable))

    def is_abstract_handleable(self, abstract_checkpointable: Any) -> bool:
        """Return whether all leaves are abstract arrays or plain values."""
        leaves = jax.tree_util.tree_leaves(abstract_checkpointable)
        return all(isinstance(leaf, jax.ShapeDtypeStruct) or self.is_handleable(leaf) for leaf in leaves)


def _names(part: Mapping[str, Any]) -> list[str] | None:
    """Return the names of the arrays of a part; ``None`` if it is the only one."""
    return [leaf_name(("arrays", key)) for key in part["arrays"]] if part["processes"] > 1 else None


def _step(directory: Any) -> int | None:
    """Return the step in the name of a directory of Orbax, or of the one above, if there is one."""
    if directory is None:
        return None
    parts = checked_path(directory).parts
    path = Path(*(part.partition(_TEMPORARY)[0] or part for part in parts))
    try:
        numbering = number_files([path / "state"])
    except ArgumentError:  # it is not clear which number is meant
        return None
    return None if numbering is None else next(iter(numbering.steps))
