"""Pytrees of JAX arrays as states of NumPy arrays, and back.

A tree is seen one level at a time: the children of a node are those that `jax.tree_util` knows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import jax
import ml_dtypes
import numpy as np
from jax.tree_util import DictKey, GetAttrKey, tree_flatten_with_path

from ...chain.caller import TYPES, Room, Wanted, left_out
from ...container.tree import leaf_name
from ...element_types import Array, element_type
from ...errors import ArgumentError, FormatError
from ..tree.plain import BYTE_TYPES, WITHOUT_ADAPTER, Keys, below, from_plain, to_plain

_KEY_TYPE: Final = re.compile(r"key<(\w+)>")
_ONE_BYTE_TYPES: Final = {
    np.dtype(getattr(ml_dtypes, name)): name for name in BYTE_TYPES if hasattr(ml_dtypes, name)
}
#: Those of NumPy arrays alone: JAX 0.10 has names for them and makes no arrays of them.
_NUMPY_ONLY: Final = frozenset(["float6_e2m3fn", "float6_e3m2fn", "int1", "uint1"])


def _flatten(node: Any) -> tuple[list[tuple[Any, Any]] | None, Any]:
    """Return the keyed children of a node (None for a leaf), and its structure."""
    children, structure = tree_flatten_with_path(node, is_leaf=lambda child: child is not node)
    if node is None or any(not path for path, _ in children):
        return None, structure
    return [(path[0], child) for path, child in children], structure


def described(leaf: Any) -> str | None:
    """Return the type and shape of an array in words, without its byte order; else None."""
    if not hasattr(leaf, "dtype") or not hasattr(leaf, "shape"):
        return None
    dtype = leaf.dtype.newbyteorder("=") if isinstance(leaf.dtype, np.dtype) else leaf.dtype
    return f"{dtype} {tuple(leaf.shape)}"


def _is_wrapper(children: list[tuple[Any, Any]]) -> bool:
    """Whether a node only wraps a value, as an NNX Variable: its value has the name of the node."""
    return len(children) == 1 and children[0][0] == GetAttrKey("value")


def _key(key: Any) -> Any:
    return key.key if isinstance(key, DictKey) else getattr(key, "name", getattr(key, "idx", None))


def inside(value: Any) -> Any:
    """Return a node as a dict, list or tuple of its children, a wrapper as its value."""
    if isinstance(value, dict) or type(value) in (list, tuple):
        return value
    children, _ = _flatten(value)
    if children is None:
        return value
    if _is_wrapper(children):
        return inside(children[0][1])
    if not all(isinstance(key, DictKey | GetAttrKey) for key, _ in children):
        return tuple(child for _, child in children)
    inner = {_key(key): child for key, child in children}
    if len(inner) != len(children):
        raise ArgumentError(f"is a {type(value).__qualname__} with several children of one name")
    return inner


def children_of(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the children of a dict, list or tuple with their keys in a checkpoint."""
    if isinstance(value, dict):
        return ((str(key), child) for key, child in value.items())
    return ((str(i), child) for i, child in enumerate(value))


def leaves(tree: Any, keys: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield the leaves of a tree with their names in a checkpoint; None is a leaf."""
    tree = inside(tree)
    if not isinstance(tree, dict | list | tuple):
        yield leaf_name(keys), tree
        return
    for key, child in children_of(tree):
        yield from leaves(child, below(keys, key))


def rebuild(tree: Any, leaf: Callable[[str, Any], Any], keys: tuple[str, ...] = ()) -> Any:
    """Return a tree of the same structure; `leaf` makes each leaf of its name and the old one."""
    children, structure = _flatten(tree)
    if children is None:
        return leaf(leaf_name(keys), tree)
    if _is_wrapper(children):
        return structure.unflatten([rebuild(children[0][1], leaf, keys)])
    # Children without names are named by position, as in `inside`.
    named = all(isinstance(key, DictKey | GetAttrKey) for key, _ in children)
    return structure.unflatten(
        rebuild(child, leaf, (*keys, str(_key(key) if named else position)))
        for position, (key, child) in enumerate(children)
    )


def to_numpy(
    state: Any,
    metadata: Mapping[str, str] | None = None,
    room: Room | None = None,  # noqa: ARG001 - a chain passes it
    wanted: Wanted | None = None,
) -> tuple[Any, dict[str, str]]:
    """Return a pytree as NumPy arrays in plain containers, and the metadata to store with it.

    Parameters
    ----------
    state
        A pytree. Its leaves are JAX arrays (also random keys), NumPy arrays, int, float, bool, str,
        bytes, None, and the values that :mod:`lccodec.adapters.tree.values` lists. An array on
        several devices is gathered.
    metadata, room, wanted
        As for `lccodec.Adapter`. The room is not used: JAX copies to memory of its own only.

    Returns
    -------
    tuple
        The state and the metadata. An array that is on one CPU device is not copied. Arrays on
        other devices are copied to the CPU side by side. The metadata are `metadata` and a note of
        what NumPy does not have (see `lccodec.adapters.tree.plain`).

    Raises
    ------
    ArgumentError
        For an array that is traced, abstract or deleted, an array of which this process has only a
        part, and a leaf or key of another type. The message names its place.
    """
    leaf = _ToNumpy(wanted)
    stored = to_plain(state, metadata, inside, leaf)
    if not leaf.begun:
        return stored
    leaf.begins = False
    return to_plain(state, metadata, inside, leaf)


def is_elsewhere(array: jax.Array) -> bool:
    """Return whether an array's values lie in the memory of another device."""
    return any(device.platform != "cpu" for device in array.devices())


class _ToNumpy:
    """Converts leaves to arrays. One object becomes one array, stored once."""

    def __init__(self, wanted: Wanted | None = None) -> None:
        # Whether copies of arrays of other devices are only begun; and whether there was one.
        self.begins, self.begun = True, False
        self._wanted = wanted
        # The leaf is kept beside its array: an id can be used again after its object is deleted.
        self._seen: dict[int, tuple[Any, tuple[Any, str | None]]] = {}

    def __call__(self, value: Any, keys: Keys) -> tuple[Any, str | None]:
        if isinstance(value, jax.ShapeDtypeStruct):
            raise ArgumentError("is abstract and has no values")
        if not isinstance(value, jax.Array | np.ndarray | np.generic):
            return value, None
        if self._wanted is not None and not self._wanted(leaf_name(keys)):
            return left_out(), None
        if id(value) not in self._seen:
            if self.begins and _has_begun(value):
                self.begun = True
                return None, None
            self._seen[id(value)] = value, to_host(value)
        return self._seen[id(value)][1]


def _has_begun(value: Any) -> bool:
    """Begin to copy an array of another device; return whether it is one."""
    if not isinstance(value, jax.Array) or isinstance(value, jax.core.Tracer) or value.is_deleted():
        return False
    if not value.is_fully_addressable or not is_elsewhere(value):
        return False
    if jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key):
        return False
    value.copy_to_host_async()
    return True


def to_host(value: Any) -> tuple[Any, str | None]:
    """Return a leaf as NumPy holds it, and the kind of object that it was."""
    if not isinstance(value, jax.Array):
        return _as_bits(value, "numpy" if isinstance(value, np.ndarray) else "scalar")
    if isinstance(value, jax.core.Tracer):
        raise ArgumentError("is traced and has no values: save outside of jit")
    if value.is_deleted():
        raise ArgumentError("has been deleted, as by donation to a jitted function: save before")
    if jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key):
        data, _ = to_host(jax.random.key_data(value))
        return data, f"key<{jax.random.key_impl(value)}>"
    if not value.is_fully_addressable:
        if not value.is_fully_replicated:
            raise ArgumentError(
                f"is an array of several processes, {value.sharding}: gather it first (process_allgather), "
                "or save what each process has (addressable_shards)"
            )
        value = value.addressable_data(0)
    return _as_bits(np.asarray(value), None)


def _as_bits(array: Any, kind: str | None) -> tuple[Any, str | None]:
    if (name := _ONE_BYTE_TYPES.get(array.dtype)) is not None:
        return array.view(np.uint8), name
    return array, kind


def from_numpy(state: Any, metadata: Mapping[str, str], name: str = "") -> Any:
    """Return NumPy arrays as JAX arrays, in plain containers. JAX may keep their memory.

    `state` is as `Chain.restore`, `lccodec.load_file` or `lccodec.open` returns it with
    ``dtype="bits"``, and `name` its name in the saved state; empty if it is the whole. Another
    framework may have saved it.

    Raises
    ------
    ArgumentError
        For an array of a type that JAX lacks, or has only with ``jax_enable_x64``.
    FormatError
        If the note in the metadata does not fit the state.
    """

    def leaf(array: Array, kind: str | None, name: str) -> Any:
        host = host_leaf(array, kind, name)
        return host if kind in ("numpy", "scalar", *_NUMPY_ONLY) else placed(host, None, name)

    return from_plain(state, metadata, name, leaf)


def host_leaf(array: Array, kind: str | None, name: str) -> Any:
    """Return a stored array in the form from which JAX makes an array, or as random keys."""
    where = f"array {name!r}"
    if kind in (None, "numpy", "scalar"):
        native = array.view(element_type(array.dtype).native)  # bfloat16 is passed as bits
        return native[()] if kind == "scalar" else native
    if matched := _KEY_TYPE.fullmatch(kind):
        if array.dtype != np.uint32 or not array.ndim:
            raise FormatError(TYPES, where, f"{array.dtype} {array.shape} is noted as {kind}")
        try:
            return jax.random.wrap_key_data(jax.numpy.asarray(array), impl=matched[1])
        except (TypeError, ValueError) as error:
            raise ArgumentError(f"{where} of type {kind}: {error}") from None
    if kind not in _ONE_BYTE_TYPES.values():
        raise ArgumentError(f"{where} is of type {kind}, which JAX does not have: {WITHOUT_ADAPTER}")
    if array.dtype != np.uint8:
        raise FormatError(TYPES, where, f"{array.dtype} is noted as {kind}")
    return array.view(getattr(ml_dtypes, kind))


def placed(value: Any, sharding: Any, name: str) -> Any:
    """Return a leaf as a JAX array with this sharding, or on the default device.

    On a CPU the JAX array may use the memory of `value`, which nobody else writes to.
    """
    if isinstance(value, jax.Array):
        return value if sharding in (None, value.sharding) else jax.device_put(value, sharding)
    if jax.dtypes.canonicalize_dtype(value.dtype) != value.dtype:
        raise ArgumentError(
            f"array {name!r} is {value.dtype}, which JAX has only with jax_enable_x64: set it, or"
            f" {WITHOUT_ADAPTER}"
        )
    if sharding is None:
        return jax.device_put(value)
    # Every process and every device takes only its own part.
    return jax.make_array_from_callback(value.shape, sharding, lambda index: value[index])
