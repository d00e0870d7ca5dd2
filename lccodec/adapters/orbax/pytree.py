"""A pytree of JAX as parts, one per process, and back on any number of processes and devices.

A process stores the shards on its own devices; of replicas, the first is stored. Process 0 stores
what every process has as a whole. :mod:`lccodec.adapters.orbax.parts` says what the files hold.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import jax
import numpy as np

from ...container.tree import leaf_name
from ...element_types import Array, element_type, in_host_order
from ...errors import ArgumentError
from ...policy.roles import Assignment, assign_roles
from ..jax.roles import roles
from ..jax.tree import described, leaves
from ..tree.matching import check_same
from .parts import (
    EMPTY_CONTAINERS,
    KIND,
    VERSION,
    WHOLE_ARRAY,
    Entry,
    Index,
    KeyPath,
    Parts,
    path_name,
    shard_key,
)

__all__ = ["abstract_tree", "part_roles", "read_tree", "take_part"]

_UNKNOWN_NAME: Final = Assignment("other", "of another name in the tree")


def take_part(tree: Any, *, copy: bool = True) -> dict[str, Any]:
    """Return the part of a tree that this process stores, as a state.

    Parameters
    ----------
    copy
        Whether it is a copy, so that the buffers of the tree may be donated.

    Raises
    ------
    ArgumentError
        For a leaf that is not an array, number, bool, str, bytes or None, or two leaves with the
        same name.
    """
    process = jax.process_index()
    table: list[tuple[KeyPath, Entry]] = []
    values: dict[str, Any] = {}
    own: dict[str, tuple[Any, str]] = {}  # a shard, and the name of its leaf
    names: set[str] = set()
    for path, leaf in _leaves(tree):
        name = path_name(path)
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
                found = f"{type(leaf).__module__}.{type(leaf).__qualname__}"
                raise ArgumentError(f"leaf {name!r} is a {found}: not an array and not a plain value")
            values[name] = leaf
        table.append((path, entry))
    first = process == 0
    take = np.array if copy else np.asarray
    arrays = {key: _storable(take(shard), name) for key, (shard, name) in own.items()}
    return {
        "kind": KIND,
        "version": VERSION,
        "process": process,
        "processes": jax.process_count(),
        "table": json.dumps(table) if first else "[]",
        "values": values if first else {},
        "arrays": arrays,
    }


def part_roles(tree: Any, part: dict[str, Any]) -> dict[str, Assignment]:
    """Return the role of every array in the part that `take_part` made of a tree, by name.

    A name in the part is the path of a leaf and the offsets of a shard. The roles come from the
    tree.
    """
    structural = roles(tree)
    shapes = {name: leaf.shape for name, leaf in leaves(tree) if hasattr(leaf, "shape")}
    found = assign_roles(shapes, None, structural)
    by_path = {name.replace("~1", "/").replace("~0", "~"): assignment for name, assignment in found.items()}
    kept: dict[str, Assignment] = {}
    for key in part["arrays"]:
        ends = (key, key.rpartition("/")[0])  # with and without the offsets of a shard
        # The value of an NNX Variable has its own name here.
        name = next((n for end in ends for n in (end, end.removesuffix("/value")) if n in by_path), None)
        kept[leaf_name(("arrays", key))] = by_path[name] if name is not None else _UNKNOWN_NAME
    return kept


def read_tree(directory: Path, target: Any = None) -> Any:
    """Return the tree whose parts are in a directory.

    Parameters
    ----------
    target
        A tree with the same names. Where it has a `jax.Array` or `jax.ShapeDtypeStruct`, the result
        has an array with its sharding; where it has a NumPy array, a NumPy array; elsewhere a plain
        value. Without a target, the result is NumPy arrays (and random keys) in dicts and lists.

    Raises
    ------
    ArgumentError
        Lists all leaves that are missing, unexpected, or of another shape or dtype.
    ChainError
        If the part of a process is missing or belongs to another checkpoint.
    DataError
        If stored bytes break a rule.
    """
    with Parts(directory) as parts:
        if target is None:
            parts.fetch([(path_name(path), entry, [WHOLE_ARRAY]) for path, entry in parts.table])
            return _containers([(path, parts.leaf(path, entry)) for path, entry in parts.table])
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
        return _containers([(path, parts.abstract(path, entry)) for path, entry in parts.table])


def _regions(leaf: Any, entry: Entry) -> list[Index]:
    """Return the regions of an array that this process needs for a leaf of the target."""
    sharding = getattr(leaf, "sharding", None)
    if sharding is None or "impl" in entry:
        return [WHOLE_ARRAY]
    return list(sharding.addressable_devices_indices_map(tuple(entry["shape"])).values())


def _leaves(tree: Any) -> Iterator[tuple[KeyPath, Any]]:
    for keys, leaf in jax.tree_util.tree_flatten_with_path(tree, is_leaf=_is_leaf)[0]:
        yield _path(keys), leaf


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
    if hasattr(leaf, "dtype") and hasattr(leaf, "shape"):
        return described(leaf)
    return _empty(leaf) or ("a plain value" if _is_plain(leaf) else type(leaf).__name__)


def _is_plain(leaf: Any) -> bool:
    return leaf is None or isinstance(leaf, bool | int | float | str | bytes)


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


def _containers(leaves: list[tuple[KeyPath, Any]]) -> Any:
    """Return leaves in nested dicts and lists, by their paths."""
    if len(leaves) == 1 and not leaves[0][0]:
        return leaves[0][1]
    groups: dict[str | int, list[tuple[KeyPath, Any]]] = {}
    for path, leaf in leaves:
        groups.setdefault(path[0], []).append((path[1:], leaf))
    made = {key: _containers(group) for key, group in groups.items()}
    return list(made.values()) if list(made) == list(range(len(made))) and made else made
