"""JAX: any pytree of parameters, NNX and optax states, random keys; JAX arrays go in and come out.

>>> import tempfile, jax, jax.numpy as jnp, optax, lccodec
>>> import lccodec.adapters.jax as adapter
>>> params = {"w": jnp.ones((3, 2)), "b": jnp.zeros(2, jnp.bfloat16)}
>>> tree = {"params": params, "opt": optax.adamw(1e-3).init(params), "step": 7}
>>> tree["key"] = jax.random.key(0)
>>> with lccodec.Chain(tempfile.mkdtemp(), policy="lossless", adapter=adapter) as chain:
...     _ = chain.save(7, tree)
...     state = chain.restore()  # plain containers: a named tuple becomes a dict
>>> abstract = {**jax.eval_shape(lambda: {**tree, "step": 0}), "step": 0}
>>> restored = adapter.load_into(abstract, state)  # with the target's types, or an error
>>> type(restored["opt"][0]).__name__, restored["params"]["b"].dtype, restored["step"]
('ScaleByAdamState', dtype(bfloat16), 7)

`Chain.save_async` copies the tree, so that its buffers may be donated.

The names in a checkpoint are the key paths of `jax.tree_util`. The value of an NNX Variable has the
name of the Variable, as in ``nnx.to_pure_dict``. The types of nodes are not stored, and no module
is imported because a file names it: a tree comes back as dicts, lists and tuples, or with the types
of a target. What a node holds beside its children (static fields) also comes from the target.

A tree is seen one level at a time: the children of a node are those that `jax.tree_util` knows.

Roles come from JAX's structures:

- An NNX ``Param`` is a weight. Every other ``Variable`` is exact: a ``BatchStat`` is a running
  variance. The types of an optimizer's variables do not give their roles; their names do
  (`lccodec.policy.optimizer`).
- Of the variables of a Linen module, ``params`` are weights, and every other collection is exact.
  The ``params`` of a Flax ``TrainState`` are weights too.
- With an optimizer in the tree, only its parameters are weights: the arrays with the structure and
  shapes of a field of its state.
- The named tuples of optax that are listed here hold moments. All else in a state of optax is
  exact. If there is a named tuple with arrays that is not listed, there are no weights.
- An ``EmaState`` is a mean of updates in the chain of an optimizer. Alone it is one of parameters,
  and no moment: names and values say what it is.

Needs the extra ``jax``.
"""

from __future__ import annotations

import copy
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from ..chain.read.checkpoint import Arrivals, OpenCheckpoint, open_file
from ..chain.save import single_file
from ..container.tree import TYPES, Room, Wanted, leaf_name, left_out
from ..element_types import Array, in_host_order
from ..errors import ArgumentError, DependencyError, FormatError
from ..policy.optimizer import as_many, find_optimizers, path_of
from ..policy.policy import Policy
from ..policy.roles import KEPT, PARAMETER, UNKNOWN, UNTRAINED, Assignment, Role, called_weight, is_exact
from ..policy.vocabulary import MODELS
from .matching import LoadReport, Renaming, check_report, check_same, checked_prefix, paired
from .tree import (
    BYTE_TYPES,
    WITHOUT_ADAPTER,
    Keys,
    below,
    check_bits,
    from_outline,
    from_plain,
    host_value,
    to_plain,
)

try:
    import jax
    import ml_dtypes
    from jax.tree_util import DictKey, GetAttrKey, tree_flatten_with_path
except ImportError:
    raise DependencyError("needs JAX: pip install 'lccodec[jax]'") from None

__all__ = [
    "LoadReport",
    "from_numpy",
    "load",
    "load_file",
    "load_into",
    "roles",
    "save",
    "save_file",
    "to_numpy",
]


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
        bytes, None, and the values that :mod:`lccodec.adapters.tree` lists. An array on
        several devices is gathered.
    metadata, room, wanted
        As for `lccodec.Adapter`. The room is not used: JAX copies to memory of its own only.

    Returns
    -------
    tuple
        The state and the metadata. An array that is on one CPU device is not copied. Arrays on
        other devices are copied to the CPU side by side. The metadata are `metadata` and a note of
        what NumPy does not have (see `lccodec.adapters.tree`).

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
    if kind in (None, "numpy", "scalar"):
        return host_value(array, kind)
    where = f"array {name!r}"
    if matched := _KEY_TYPE.fullmatch(kind):
        if array.dtype != np.uint32 or not array.ndim:
            raise FormatError(TYPES, where, f"{array.dtype} {array.shape} is noted as {kind}")
        try:
            return jax.random.wrap_key_data(jax.numpy.asarray(array), impl=matched[1])
        except (TypeError, ValueError) as error:
            raise ArgumentError(f"{where} of type {kind}: {error}") from None
    check_bits(array, kind, where, _ONE_BYTE_TYPES.values(), "JAX")
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


_ADAM: Final[dict[str, Role]] = {"mu": "first_moment", "nu": "second_moment"}
#: The named tuples of optax in which errors are known to be harmless, and the roles of their
#: fields. Each was tried as the families of `lccodec.policy.vocabulary` were (optax 0.2).
_MOMENTS: Final[dict[str, dict[str, Role]]] = {
    "ScaleByAdamState": _ADAM,
    "ScaleByAmsgradState": {**_ADAM, "nu_max": "second_moment"},
    "ScaleByLionState": {"mu": "first_moment"},
    "MuonState": {"mu": "first_moment"},
    "TraceState": {"trace": "first_moment"},
    "EmaState": {"ema": "first_moment"},
    "ScaleByRmsState": {"nu": "second_moment"},
    "ScaleByRmsWithCountState": {"nu": "second_moment"},
    "ScaleByRssState": {"sum_of_squares": "second_moment"},
    "ScaleByAdaDeltaState": {"e_g": "second_moment", "e_x": "second_moment"},
    "ScheduleFreeState": {"z": "weight"},
}
#: Named tuples of optax of which errors in the parameters are known to be harmless, but not errors
#: in what they hold.
_EXACT: Final = frozenset(
    [
        *("ScaleByRStdDevState", "ScaleByRStdDevWithCountState", "ScaleByBeliefState", "ScaleByAdanState"),
        *("ScaleByNovogradState", "ScaleBySM3State", "ScaleByRpropState", "FactoredState", "SophiaState"),
        *("ScaleByOptimisticGradientState", "ScaleByAdemamixState", "ScaleBySimplifiedAdEMAMixState"),
        *("ApplyEvery", "MultiStepsState"),
    ]
)
#: Fields that have the structure of the parameters, but not their shapes.
_FACTORED_FIELDS: Final = frozenset(["v", "v_row", "v_col"])

#: Names of the collections of a Flax module's variables.
_COLLECTIONS: Final = frozenset(
    [
        *("params", "batch_stats", "cache", "intermediates", "perturbations", "spectral_stats", "state"),
        *("stats", "statistics", "constants", "buffers", "metrics", "losses", "lora", "quant", "aqt", "ema"),
        *("params_axes", "fp8_params", "_overwrite_with_gradient"),
    ]
)
#: Names of the statistics of Flax's normalization layers.
_STATISTICS: Final = frozenset(["mean", "var", "count", "ra_mean", "ra_var"])

_Keys = tuple[str, ...]
_Shape = tuple[int, ...]
_PARAM: Final = Assignment("weight", "nnx.Param")
_PARAMETER: Final = Assignment("weight", PARAMETER)
_NO_PARAMETER: Final = Assignment("other", UNTRAINED)


def roles(tree: Any) -> dict[str, Assignment]:
    """Return by name the roles of floating point arrays that follow from a tree's structure.

    Examples
    --------
    >>> import optax, jax.numpy as jnp
    >>> params = {"table": jnp.ones(2)}
    >>> optimizer = optax.sgd(0.1, momentum=0.9)
    >>> for name, assignment in roles({"net": params, "run": optimizer.init(params)}).items():
    ...     print(f"{name:17} {assignment.role:12} {assignment.why}")
    run/0/trace/table first_moment TraceState.trace of optax
    net/table         weight       a parameter of the optimizer
    """
    search = _Search()
    search.visit(tree, (), None)
    search.find_parameters()
    search.find_named({name: leaf.shape for name, leaf in leaves(tree) if hasattr(leaf, "shape")})
    return {leaf_name(keys): assignment for keys, assignment in search.assignments.items()}


def _is_inexact(value: Any) -> bool:
    return isinstance(value, jax.Array | np.ndarray) and jax.numpy.issubdtype(value.dtype, np.inexact)


def _variable(value: Any) -> Assignment | None:
    """Return the role that follows from the type of an NNX Variable, or None."""
    names = [kind.__name__ for kind in type(value).__mro__ if kind.__module__.startswith("flax.nnx")]
    if "Variable" not in names or "OptState" in names:
        return None
    return _PARAM if "Param" in names else Assignment("other", f"nnx.{type(value).__name__}")


@dataclass(frozen=True)
class _Field:
    """A field of a named tuple of optax that holds arrays."""

    what: str
    keys: _Keys
    shapes: dict[_Keys, _Shape]
    role: Role
    known: bool  # whether the named tuple is listed
    factored: bool  # whether the arrays do not have the shapes of the parameters


class _Search:
    """Walks through a tree and collects roles."""

    def __init__(self) -> None:
        self.assignments: dict[_Keys, Assignment] = {}
        self._fields: list[_Field] = []
        self._arrays: dict[_Keys, _Shape] = {}  # outside optax, of no other role

    def visit(
        self,
        value: Any,
        keys: _Keys,
        assigned: Assignment | None,
        optax: bool = False,
        chained: bool = False,
    ) -> None:
        """Visit a node; `assigned` is the role its place has, `optax` says that optax holds it.

        `chained` says that it is one of several states of a chain of optax.
        """
        node = inside(value)
        if _is_optax(value) and (optax or chained or type(value).__name__ != "EmaState"):
            kind = type(value).__name__
            for key, child in children_of(node):
                role = _MOMENTS.get(kind, {}).get(key, "other")
                assignment = Assignment(role, KEPT if role == "weight" else f"{kind}.{key} of optax")
                self.visit(child, below(keys, key), assignment, optax=True)
                shapes = {inner: array.shape for inner, array in _arrays(child, ()) if _is_inexact(array)}
                mirrors = key in _MOMENTS[kind] if kind in _MOMENTS else True
                if mirrors and any(math.prod(shape) > 1 for shape in shapes.values()):
                    known, factored = kind in _MOMENTS or kind in _EXACT, key in _FACTORED_FIELDS
                    field = _Field(f"{kind}.{key}", below(keys, key), shapes, role, known, factored)
                    self._fields.append(field)
            return
        if not optax:
            assigned = _variable(value) or assigned
        if isinstance(node, dict | list | tuple):
            collections = _collections(value, node) if not assigned and isinstance(node, dict) else {}
            chained = _is_chain(value) and len(node) > 1
            for key, child in children_of(node):
                self.visit(child, below(keys, key), collections.get(key, assigned), optax, chained)
        elif _is_inexact(node):
            name = leaf_name(keys)
            if assigned and not (assigned.role == "weight" and is_exact(name)):
                self.assignments[keys] = assigned
            if not optax and (assigned is None or assigned.role == "weight"):
                self._arrays[keys] = node.shape

    def find_parameters(self) -> None:
        """Make weights of the arrays that optax mirrors, and of no others."""
        if not self._fields:
            return
        alone = not self._arrays  # a state of optax alone has nothing to mirror
        known = all(field.known for field in self._fields)
        other = _NO_PARAMETER if known else Assignment("other", UNKNOWN)
        self.assignments.update((keys, other) for keys in self._arrays if not is_exact(leaf_name(keys)))
        groups: dict[object, list[_Field]] = {}
        for field in self._fields:  # those of the same parameters have one structure
            shapes = frozenset((k, None if field.factored else shape) for k, shape in field.shapes.items())
            groups.setdefault(shapes, []).append(field)
        for fields in groups.values():
            starts = {leaf_name(start): start for start in self._starts(fields[0])}
            count = min(Counter(field.what for field in fields).values())
            for name in as_many(starts, count if known else 0, lambda name: path_of(name)[-1] in MODELS):
                own = (starts[name] + keys for keys in fields[0].shapes)
                self.assignments.update((keys, _PARAMETER) for keys in own if not is_exact(leaf_name(keys)))
            for field in fields if not starts and not alone else ():
                if field.role != "other":
                    exact = Assignment("other", f"{field.what} of optax, not of the shape of parameters")
                    self.assignments.update((field.keys + keys, exact) for keys in field.shapes)

    def _starts(self, field: _Field) -> list[_Keys]:
        """Return the places of all trees that a field mirrors."""
        first = next(iter(field.shapes))
        ends = (keys for keys in self._arrays if keys[len(keys) - len(first) :] == first)
        starts = (keys[: len(keys) - len(first)] for keys in ends)
        return [
            start
            for start in starts
            if not is_exact(leaf_name(start))
            and all(
                start + keys in self._arrays and (field.factored or self._arrays[start + keys] == shape)
                for keys, shape in field.shapes.items()
            )
        ]

    def find_named(self, shapes: Mapping[str, _Shape]) -> None:
        """Make others of NNX's parameters that an optimizer, known by its names, does not have."""
        if self._fields or not any(assigned is _PARAM for assigned in self.assignments.values()):
            return
        optimizers = find_optimizers(shapes, called_weight, is_exact)
        if optimizers.present:
            for keys, assigned in self.assignments.items():
                if assigned is _PARAM and leaf_name(keys) not in optimizers.parameters:
                    self.assignments[keys] = _NO_PARAMETER


def _is_optax(value: Any) -> bool:
    return hasattr(value, "_fields") and type(value).__module__.partition(".")[0] == "optax"


def _is_chain(value: Any) -> bool:
    """Return whether a value is a tuple of states of optax, or of such tuples."""
    return type(value) is tuple and all(_is_optax(child) or _is_chain(child) for child in value)


def _arrays(value: Any, keys: _Keys) -> Iterator[tuple[_Keys, Any]]:
    node = inside(value)
    if _is_optax(value):
        return  # it has its own
    if isinstance(node, dict | list | tuple):
        for key, child in children_of(node):
            yield from _arrays(child, below(keys, key))
    else:
        yield keys, node


def _collections(value: Any, node: Mapping[Any, Any]) -> Mapping[str, Assignment]:
    """Return the roles of a node's children, if they are collections of Linen."""
    if "params" not in node:
        return {}
    if any(kind.__name__ == "TrainState" for kind in type(value).__mro__):
        return {"params": Assignment("weight", "TrainState.params")}
    if not node.keys() <= _COLLECTIONS:
        return {}
    # Alone, ``params`` could be a pure dict of NNX, where statistics lie among the parameters.
    if len(node) == 1 and any(keys[-1:] and keys[-1] in _STATISTICS for keys, _ in _arrays(node, ())):
        return {}
    return {
        key: Assignment("weight" if key == "params" else "other", f"in the collection {key!r}")
        for key in node
    }


_NO_ARRAY: Final = "no array"
_NUMBER_KINDS: Final[dict[Any, Any]] = {bool: np.bool_, int: np.integer, float: np.floating}


def load_into(
    target: Any,
    state: Any,
    *,
    strict: bool = True,
    prefix: str = "",
    rename: Mapping[str, str] | None = None,
    report: Callable[[LoadReport], object] | None = None,
) -> Any:
    """Check all of a state, then return it in the structure and with the types of a target.

    Parameters
    ----------
    target
        A pytree of `jax.ShapeDtypeStruct` (as `jax.eval_shape` makes), of arrays, or of plain
        values. An array gets the sharding of the target; without one it goes to the default device.
        Where the target has NumPy arrays, the result has too. A number and an array without
        dimensions fit each other if the value stays the same. A function of the target stays where
        the state has None, as `equinox.filter` leaves it.
    state
        The saved state: a pytree with the same names, of any nodes. Or the leaves of a chain as
        ``chain.restore_iter()`` yields them: then each array goes straight to the devices of the
        target while the rest is decoded.
    strict
        If False, leaves that only one of the two has are skipped, and an `LccodecWarning` says
        which: the result has the values of the target there. Shapes and types must still fit.
    prefix
        The part of the state that belongs to the target, as ``"params"`` or ``"run/params"``.
    rename
        New names for leaves of the state, by name or pattern, as ``{"params/enc/*":
        "params/encoder/*"}`` (see `lccodec.adapters.matching.Renaming`).
    report
        Is called with a `LoadReport` of what was loaded, renamed, missing and left over.

    Returns
    -------
    object
        A new tree; `target` is not changed.

    Raises
    ------
    ArgumentError
        Lists up to ten leaves of each kind that are missing, unexpected, of another shape or dtype,
        of a shape that the sharding of the target cannot divide, of a name that fits two, or that
        have a value nowhere. Also if not one array fits.
    DataError, ChainError, StorageError
        If leaves of a chain cannot be decoded.
    """
    check_report(report)
    wanted = dict(leaves(target))
    matched = partial(_Matched, wanted, strict=strict, prefix=prefix, renaming=Renaming(rename))
    if isinstance(state, Arrivals):
        with state:
            match, leaf = _arriving(matched, state)
    else:
        match = matched(leaves(state))
        values = match.shared

        def leaf(name: str, like: Any) -> Any:
            return _placed(values[name], like, name)

    made = rebuild(target, lambda name, like: leaf(name, like) if name in match.shared else like)
    match.report.tell(report, strict=strict)
    return made


def _arriving(
    matched: Callable[[Iterable[tuple[str, Any]]], _Matched], arrivals: Arrivals
) -> tuple[_Matched, Callable[[str, Any], Any]]:
    """Check what a chain holds, then place each array when it arrives."""
    state, hollow = from_outline(arrivals, host_leaf)
    match = matched(leaves(state) if arrivals.whole else state.items())
    wanted, shared = match.wanted, match.shared
    made: dict[str, Any] = {}
    inner: dict[int, Any] = {}  # arrays inside leaves, such as a deque, by the id of what stands for them
    for saved, value in arrivals.arrays:
        if not isinstance(value, np.ndarray):
            continue
        host = from_plain(value, arrivals.metadata, saved, host_leaf)
        name = match.names.get(saved)
        if name in wanted:
            made[name] = _placed(_fitted(host, wanted[name]), wanted[name], name)
        elif saved in hollow:
            inner[id(hollow[saved])] = host

    def leaf(name: str, like: Any) -> Any:
        return made[name] if name in made else _placed(copy.deepcopy(shared[name], inner), like, name)

    return match, leaf


class _Matched:
    """The leaves of a state by the names of the target, checked against its leaves, `wanted`.

    `shared` are those that both have; `names` has the target's name of each leaf of the state.
    """

    def __init__(
        self,
        wanted: dict[str, Any],
        state: Iterable[tuple[str, Any]],
        *,
        strict: bool,
        prefix: str,
        renaming: Renaming,
    ) -> None:
        items = dict(state)
        start = _start(prefix, items)
        called = {name: name.removeprefix(start) for name in items if name.startswith(start)}
        pairs, problems = paired(wanted, called.values(), renaming)
        renaming.check_used()
        self.wanted = wanted
        self.names = {name: pairs[short] for name, short in called.items()}
        theirs_by_name = {
            self.names[name]: _fitted(items[name], wanted.get(self.names[name])) for name in called
        }
        # `equinox.filter` leaves None in the place of a function: that is the target's.
        self.shared = {
            name: value
            for name, value in theirs_by_name.items()
            if name in wanted and not (value is None and callable(wanted[name]))
        }
        self.report = LoadReport(
            list(self.shared),
            {name: new for name, new in self.names.items() if new in wanted and new != called[name]},
            [name for name in wanted if name not in theirs_by_name],
            [name for name in theirs_by_name if name not in wanted],
        )
        problems += [problem for name, leaf in wanted.items() for problem in _indivisible(name, leaf)]
        own = {name: described(leaf) or _NO_ARRAY for name, leaf in wanted.items()}
        theirs = {name: described(leaf) or _NO_ARRAY for name, leaf in theirs_by_name.items()}
        fits = any(own[name] == theirs[name] != _NO_ARRAY for name in self.shared)
        if not strict and (fits or set(own.values()) <= {_NO_ARRAY}):
            problems += [
                f"{name}: is not in the state, and has no value in the target (jax.ShapeDtypeStruct)"
                for name in self.report.missing
                if isinstance(wanted[name], jax.ShapeDtypeStruct)
            ]
            own, theirs = ({name: words[name] for name in self.shared} for words in (own, theirs))
        elif not strict:
            problems.append("not one array of the state fits the target")
        check_same(own, theirs, problems, "strict=False skips what only one of the two has" if strict else "")


def _start(prefix: object, names: Iterable[str]) -> str:
    """Return what the names of the leaves begin with that a prefix stands for."""
    prefix = checked_prefix(prefix, "params")
    start = prefix if prefix.endswith(".") or not prefix else f"{prefix}/"
    if not any(name.startswith(start) for name in names) and prefix:
        raise ArgumentError(f"the state has nothing under the prefix {prefix!r}")
    return start


def _placed(value: Any, like: Any, name: str) -> Any:
    """Return a leaf that fits as the target has it: on its devices, of NumPy, or plain."""
    value = in_host_order(value) if isinstance(value, np.ndarray) else value
    if isinstance(like, jax.Array | jax.ShapeDtypeStruct):
        return placed(value, like.sharding, name)
    if isinstance(like, np.ndarray | np.generic):
        return np.asarray(value) if isinstance(like, np.ndarray) else np.asarray(value)[()]
    return value


def _fitted(value: Any, like: Any) -> Any:
    """Turn a number into an array without dimensions, or back, as the target has it.

    The step of Linen's `TrainState` is an int until a jitted function has returned it. What would
    change stays as it is.
    """
    number, array = (value, like) if type(value) in _NUMBER_KINDS else (like, value)
    kind, dtype = _NUMBER_KINDS.get(type(number)), getattr(array, "dtype", None)
    if kind is None or dtype is None or getattr(array, "shape", None) != ():
        return value
    if not jax.numpy.issubdtype(dtype, kind):
        return value
    if array is value:
        return type(number)(np.asarray(value))
    try:
        made = np.asarray(value, array.dtype)
    except OverflowError:
        return value
    return made if type(value)(made) == value or value != value else value  # noqa: PLR0124 - NaN


def _indivisible(name: str, value: Any) -> list[str]:
    sharding = getattr(value, "sharding", None)
    try:
        if sharding is not None:
            sharding.shard_shape(value.shape)
    except ValueError as error:
        return [f"{name}: {error}"]
    return []


_known_roles: Final = roles  # `save` has a parameter of this name


def save(
    state: Any,
    metadata: dict[str, str] | None = None,
    *,
    policy: str | Policy = "lossless",
    roles: Mapping[str, Role] = MappingProxyType({}),
    reference: Any = None,
) -> bytes:
    """Return a pytree as the bytes of a checkpoint file, as `lccodec.save` does.

    Roles that the structure of the state says need not be given. The reference is a pytree, too.
    Errors are also those of `to_numpy`.
    """
    before = None if reference is None else to_numpy(reference)[0]
    return single_file.coded(*to_numpy(state, metadata), policy, roles, before, _known_roles(state))


def save_file(state: Any, path: str | os.PathLike[str], metadata: dict[str, str] | None = None) -> None:
    """Write a pytree to a lossless checkpoint file, atomically.

    The errors are those of `to_numpy` and `lccodec.save_file`.
    """
    plain, kept = to_numpy(state, metadata)
    single_file.save_file(plain, path, kept)


def load(data: bytes, target: Any = None, *, reference: Any = None) -> Any:
    """Return the pytree in the bytes of a checkpoint file.

    `target` is as in `load_file`, and `reference` as for `lccodec.load`, a pytree. The errors are
    those of `load_file`, and of `lccodec.load`.
    """
    before = None if reference is None else to_numpy(reference)[0]
    return _loaded(single_file.opened(data, before), target)


def load_file(path: str | os.PathLike[str], target: Any = None) -> Any:
    """Return the pytree in a checkpoint file; any framework may have written it.

    With a target, arrays go straight to the devices of its shardings, each as soon as it is
    decoded. None gives plain containers. The errors are those of `from_numpy`, `load_into` and
    `lccodec.load_file`.
    """
    return _loaded(open_file(path), target)


def _loaded(file: OpenCheckpoint, target: Any) -> Any:
    if target is not None:
        return load_into(target, Arrivals(file, dtype="bits"))
    with file:
        return file.restored(from_numpy)
