"""JAX: any pytree, of parameters, NNX and optax states and random keys, with JAX arrays in and out.

>>> import tempfile, jax, jax.numpy as jnp, optax, lccodec
>>> import lccodec.adapters.jax as adapter
>>> params = {"w": jnp.ones((3, 2)), "b": jnp.zeros(2, jnp.bfloat16)}
>>> tree = {"params": params, "opt": optax.adamw(1e-3).init(params), "key": jax.random.key(0), "step": 7}
>>> with lccodec.Chain(tempfile.mkdtemp(), policy="lossless", adapter=adapter) as chain:
...     _ = chain.save(7, tree)
...     state = chain.restore()  # plain containers: a named tuple is a dict
>>> abstract = {**jax.eval_shape(lambda: {**tree, "step": 0}), "step": 0}
>>> restored = adapter.load_into(abstract, state)  # the target's types; an error lists all that does not fit
>>> type(restored["opt"][0]).__name__, restored["params"]["b"].dtype, restored["step"]
('ScaleByAdamState', dtype(bfloat16), 7)

The names of a checkpoint are the key paths of `jax.tree_util`; an NNX Variable has the name of its value, as
in ``nnx.to_pure_dict``. The types of nodes are not stored, and nothing is imported by a name that a file
gives: a tree comes back as dicts, lists and tuples, or with the types of a target. What a node keeps beside
its children (static fields) is the target's too. Needs the extra ``jax``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from ...chain.checkpoint import CheckpointFile, open_data, open_file
from ...chain.single_file import save as save_plain
from ...chain.single_file import save_file as save_plain_file
from ...element_types import Array, element_type, in_host_order
from ...errors import ArgumentError, DependencyError, FormatError
from ..tree.plain import BYTE_TYPES, TYPES, check_same, from_plain, to_plain

try:
    import jax
    import ml_dtypes
except ImportError:
    raise DependencyError("needs JAX: pip install 'lccodec[jax]'") from None

from .roles import roles
from .tree import described, inside, leaves, rebuild

__all__ = ["from_numpy", "load", "load_file", "load_into", "roles", "save", "save_file", "to_numpy"]

_KEY: Final = re.compile(r"key<(\w+)>")
_KINDS: Final[dict[Any, Any]] = {bool: np.bool_, int: np.integer, float: np.floating}
_BYTES: Final = {np.dtype(getattr(ml_dtypes, name)): name for name in BYTE_TYPES if hasattr(ml_dtypes, name)}


def to_numpy(state: Any, metadata: Mapping[str, str] | None = None) -> tuple[Any, dict[str, str]]:
    """Return a pytree as a state of NumPy arrays in plain containers, and the metadata to keep with it.

    Parameters
    ----------
    state
        A pytree whose leaves are JAX arrays (random keys too), NumPy arrays, int, float, bool, str, bytes,
        None, and the values that :mod:`lccodec.adapters.tree.values` lists. An array on several devices is
        gathered.
    metadata
        Strings of your own.

    Returns
    -------
    tuple
        The state, whose arrays share the memory of JAX's where they are on one CPU device; and `metadata`
        with a note of what NumPy does not have (see `lccodec.adapters.tree.plain`).

    Raises
    ------
    ArgumentError
        Names the place of an array that is traced, abstract or deleted, or that this process does not have
        all of, and of a leaf or key of another type.
    """
    return to_plain(state, metadata, inside, _ToNumpy())


class _ToNumpy:
    """Leaves to arrays: one object to one array, so that it is stored once."""

    def __init__(self) -> None:
        # The leaf is kept beside its array: an id can be used again once its object is gone.
        self._seen: dict[int, tuple[Any, tuple[Any, str | None]]] = {}

    def __call__(self, value: Any) -> tuple[Any, str | None]:
        if isinstance(value, jax.ShapeDtypeStruct):
            raise ArgumentError("is abstract and has no values")
        if not isinstance(value, jax.Array | np.ndarray | np.generic):
            return value, None
        if id(value) not in self._seen:
            self._seen[id(value)] = value, _array(value)
        return self._seen[id(value)][1]


def _array(value: Any) -> tuple[Any, str | None]:
    if not isinstance(value, jax.Array):
        return _bytes(value, "numpy" if isinstance(value, np.ndarray) else "scalar")
    if isinstance(value, jax.core.Tracer):
        raise ArgumentError("is traced and has no values: save outside of jit")
    if value.is_deleted():
        raise ArgumentError("has been deleted, as by donation to a jitted function: save before")
    if jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key):
        data, _ = _array(jax.random.key_data(value))
        return data, f"key<{jax.random.key_impl(value)}>"
    if not value.is_fully_addressable:
        if not value.is_fully_replicated:
            raise ArgumentError(
                f"is an array of several processes, {value.sharding}: gather it first (process_allgather), "
                "or save what each process has (addressable_shards)"
            )
        value = value.addressable_data(0)
    return _bytes(np.asarray(value), None)


def _bytes(array: Any, kind: str | None) -> tuple[Any, str | None]:
    return (array.view(np.uint8), _BYTES[array.dtype]) if array.dtype in _BYTES else (array, kind)


def from_numpy(state: Any, metadata: Mapping[str, str], name: str = "") -> Any:
    """Return a state of NumPy arrays as one of JAX arrays, in plain containers; it takes their memory over.

    Parameters
    ----------
    state
        As `Chain.restore`, `lccodec.load_file` or `lccodec.open` give it with ``dtype="bits"``; it may be of
        another framework.
    metadata
        What was kept with it.
    name
        Of `state` in what was saved; empty for the whole.

    Raises
    ------
    ArgumentError
        For an array of a type that JAX does not have, or has only with ``jax_enable_x64``.
    FormatError
        If the note in the metadata does not fit the state.
    """

    def leaf(array: Array, kind: str | None, name: str) -> Any:
        host = _host(array, kind, name)
        return host if kind in ("numpy", "scalar") else _placed(host, None, name)

    return from_plain(state, metadata, name, leaf)


def _host(array: Array, kind: str | None, name: str) -> Any:
    """Return an array as stored as what JAX would make an array or keys of."""
    where = f"array {name!r}"
    if kind in (None, "numpy", "scalar"):
        native = array.view(element_type(array.dtype).native)  # bfloat16 came as bits
        return native[()] if kind == "scalar" else native
    if found := _KEY.fullmatch(kind):
        if array.dtype != np.uint32 or not array.ndim:
            raise FormatError(TYPES, where, f"{array.dtype} {array.shape} is noted as {kind}")
        try:
            return jax.random.wrap_key_data(jax.numpy.asarray(array), impl=found[1])
        except (TypeError, ValueError) as error:
            raise ArgumentError(f"{where} of type {kind}: {error}") from None
    if kind not in _BYTES.values():
        raise ArgumentError(f"{where} is of type {kind}, which JAX does not have")
    if array.dtype != np.uint8:
        raise FormatError(TYPES, where, f"{array.dtype} is noted as {kind}")
    return array.view(getattr(ml_dtypes, kind))


def _placed(value: Any, sharding: Any, name: str) -> Any:
    """Return a leaf on the way in as a JAX array, of this sharding or on the default device.

    On a CPU that can be the memory of the array itself, which nobody else writes to.
    """
    if isinstance(value, jax.Array):
        return value if sharding in (None, value.sharding) else jax.device_put(value, sharding)
    if jax.dtypes.canonicalize_dtype(value.dtype) != value.dtype:
        raise ArgumentError(f"array {name!r} is {value.dtype}, which JAX has only with jax_enable_x64")
    if sharding is None:
        return jax.device_put(value)
    # Every process, and every device, takes its own part only.
    return jax.make_array_from_callback(value.shape, sharding, lambda index: value[index])


def load_into(target: Any, state: Any) -> Any:
    """Return a state in the structure and with the types of a target, after a check of all of it.

    Parameters
    ----------
    target
        A pytree of `jax.ShapeDtypeStruct` (as `jax.eval_shape` makes), of arrays, whose values do not count,
        or of plain values. An array goes where the target's sharding says; where it has none, to the default
        device. NumPy arrays stay such. A number takes an array without dimensions, and such an array a
        number, if the value stays the same.
    state
        What was saved of the same: a pytree of any nodes with the same names.

    Returns
    -------
    object
        A new tree; `target` is not changed.

    Raises
    ------
    ArgumentError
        Lists every leaf that is missing, not expected, of another shape or dtype, or of a shape that the
        target's sharding cannot divide.
    """
    wanted = dict(leaves(target))
    found = {name: _fitted(leaf, wanted.get(name)) for name, leaf in leaves(state)}
    check_same(
        {name: _describe(leaf) for name, leaf in wanted.items()},
        {name: _describe(leaf) for name, leaf in found.items()},
        [problem for name, leaf in wanted.items() for problem in _indivisible(name, leaf)],
    )

    def leaf(name: str, like: Any) -> Any:
        value = in_host_order(found[name]) if isinstance(found[name], np.ndarray) else found[name]
        if isinstance(like, jax.Array | jax.ShapeDtypeStruct):
            return _placed(value, like.sharding, name)
        if isinstance(like, np.ndarray | np.generic):
            return np.asarray(value) if isinstance(like, np.ndarray) else np.asarray(value)[()]
        return value

    return rebuild(target, leaf)


def _fitted(value: Any, like: Any) -> Any:
    """Return a number as an array without dimensions, or that as a number, if the target has it so.

    The step of Linen's `TrainState` is an int until a jitted function has returned it. A value that would
    not be the same is returned as it is.
    """
    number, array = (value, like) if type(value) in _KINDS else (like, value)
    if type(number) not in _KINDS or not hasattr(array, "dtype") or getattr(array, "shape", None) != ():
        return value
    if not jax.numpy.issubdtype(array.dtype, _KINDS[type(number)]):
        return value
    if array is value:
        return type(number)(np.asarray(value))
    try:
        made = np.asarray(value, array.dtype)
    except OverflowError:
        return value
    return made if type(value)(made) == value or value != value else value  # noqa: PLR0124 - NaN


def _describe(value: Any) -> str:
    """Return the type and shape of an array, in words."""
    if not hasattr(value, "dtype") or not hasattr(value, "shape"):
        return "no array"
    return described(value)


def _indivisible(name: str, value: Any) -> list[str]:
    sharding = getattr(value, "sharding", None)
    try:
        if sharding is not None:
            sharding.shard_shape(value.shape)
    except ValueError as error:
        return [f"{name}: {error}"]
    return []


def save(state: Any, metadata: dict[str, str] | None = None) -> bytes:
    """Return a pytree as the bytes of a checkpoint file, lossless; as `lccodec.save`."""
    return save_plain(*to_numpy(state, metadata))


def save_file(state: Any, path: str | os.PathLike[str], metadata: dict[str, str] | None = None) -> None:
    """Write a pytree to a checkpoint file, lossless and atomically; as `lccodec.save_file`.

    Raises
    ------
    ArgumentError
        As `to_numpy`.
    StorageError
        If the operating system refuses; what was there stays.
    """
    plain, kept = to_numpy(state, metadata)
    save_plain_file(plain, path, kept)


def load(data: bytes, target: Any = None) -> Any:
    """Return the pytree in the bytes of a checkpoint file; as `load_file`."""
    with open_data(data) as file:
        return _load(file, target)


def load_file(path: str | os.PathLike[str], target: Any = None) -> Any:
    """Return the pytree in a checkpoint file; whatever wrote it.

    Parameters
    ----------
    path
        The file.
    target
        As for `load_into`: arrays go straight to the devices of its shardings. None for plain containers.

    Raises
    ------
    ArgumentError
        As `from_numpy` and `load_into`.
    DataError, ChainError, StorageError
        As `lccodec.load_file`.
    """
    with open_file(path) as file:
        return _load(file, target)


def _load(file: CheckpointFile, target: Any) -> Any:
    state, metadata = file.state(dtype="bits"), file.metadata()
    if target is None:
        return from_numpy(state, metadata)
    return load_into(target, from_plain(state, metadata, "", _host))
