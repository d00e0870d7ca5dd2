"""Roles from JAX's structures: types of Flax NNX, collections of Linen, and states of optax.

- An NNX ``Param`` is a weight. Every other ``Variable`` is exact: a ``BatchStat`` is a running
  variance. The types of an optimizer's variables do not give their roles; their names do
  (`lccodec.policy.vocabulary`).
- Of the variables of a Linen module, ``params`` are weights, and every other collection is exact.
  The ``params`` of a Flax ``TrainState`` are weights too.
- A named tuple of optax holds moments in fields with known names; all else in it is exact. Arrays
  with the structure and shapes of such a field are the optimizer's parameters: they are weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import jax
import numpy as np

from ...container.tree import leaf_name
from ...policy.roles import Assignment, Role, is_exact
from ..tree.plain import below
from .tree import children_of, inside

__all__ = ["roles"]

#: Roles of the fields of optax's named tuples that have the structure of the parameters (optax
#: 0.2).
_FIELD_ROLES: Final[dict[str, Role]] = {
    "mu": "first_moment",
    "trace": "first_moment",
    "ema": "first_moment",
    "nu": "second_moment",
    "nu_max": "second_moment",
    "sum_of_squares": "second_moment",
    "e_g": "second_moment",  # Adadelta
    "e_x": "second_moment",
    "v": "second_moment",  # Adafactor
    "v_row": "second_moment",
    "v_col": "second_moment",
}
#: Classes that name these fields differently.
_CLASS_FIELD_ROLES: Final[dict[str, dict[str, Role]]] = {
    "ScaleByAdanState": {"m": "first_moment", "v": "first_moment", "n": "second_moment"},
    "ScaleBySM3State": {"mu": "second_moment", "nu": "first_moment"},
}
#: Fields that do not hold one moment for each element of each parameter.
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
_PARAM: Final = Assignment("weight", "nnx.Param")


def roles(tree: Any) -> dict[str, Assignment]:
    """Return by name the roles of floating point arrays that follow from a tree's structure.

    Parameters
    ----------
    tree
        The tree that you save.

    Examples
    --------
    >>> import optax, jax.numpy as jnp
    >>> params = {"table": jnp.ones(2)}
    >>> optimizer = optax.sgd(0.1, momentum=0.9)
    >>> for name, found in roles({"net": params, "run": optimizer.init(params)}).items():
    ...     print(f"{name:17} {found.role:12} {found.why}")
    run/0/trace/table first_moment TraceState.trace of optax
    net/table         weight       a parameter of the optimizer, by structure
    """
    search = _Search()
    search.visit(tree, (), None)
    search.find_parameters()
    return {leaf_name(keys): assignment for keys, assignment in search.found.items()}


def _is_inexact(value: Any) -> bool:
    return isinstance(value, jax.Array | np.ndarray) and jax.numpy.issubdtype(value.dtype, np.inexact)


def _variable(value: Any) -> Assignment | None:
    """Return the role that follows from the type of an NNX Variable, or None."""
    names = [kind.__name__ for kind in type(value).__mro__ if kind.__module__.startswith("flax.nnx")]
    if "Variable" not in names or "OptState" in names:
        return None
    return _PARAM if "Param" in names else Assignment("other", f"nnx.{type(value).__name__}")


class _Search:
    """Walks through a tree and collects roles."""

    def __init__(self) -> None:
        self.found: dict[_Keys, Assignment] = {}
        self._moments: dict[_Keys, dict[_Keys, tuple[int, ...]]] = {}  # by field of optax
        self._arrays: dict[_Keys, tuple[int, ...]] = {}  # whose role is not known yet

    def visit(self, value: Any, keys: _Keys, place: Assignment | None, optax: bool = False) -> None:
        """Visit a node; `place` is the role of its place, `optax` says that optax holds it."""
        node = inside(value)
        if fields := _fields(value):
            for key, child in children_of(node):
                role = fields.get(key, "other")
                why = f"{type(value).__name__}.{key} of optax"
                self.visit(child, below(keys, key), Assignment(role, why), optax=True)
                if key in fields and key not in _FACTORED_FIELDS:
                    shapes = {inner: array.shape for inner, array in _arrays(child, ()) if _is_inexact(array)}
                    self._moments[(*keys, key)] = shapes
            return
        if not optax:
            place = _variable(value) or place
        if isinstance(node, dict | list | tuple):
            collections = _collections(value, node) if not place and isinstance(node, dict) else {}
            for key, child in children_of(node):
                self.visit(child, below(keys, key), collections.get(key, place), optax)
        elif _is_inexact(node):
            if place and not (place.role == "weight" and is_exact(leaf_name(keys))):
                self.found[keys] = place
            else:
                self._arrays[keys] = node.shape

    def find_parameters(self) -> None:
        """Assign roles to the arrays that are the parameters of moments."""
        seen = set()
        for moment in self._moments.values():
            if not moment or (shape := frozenset(moment.items())) in seen:
                continue
            seen.add(shape)
            first = next(iter(moment))
            starts = [
                keys[: len(keys) - len(first)]
                for keys in self._arrays
                if keys[len(keys) - len(first) :] == first and not is_exact(leaf_name(keys))
            ]
            for start in starts:
                if all(self._arrays.get(start + inner) == shape for inner, shape in moment.items()):
                    for inner in moment:
                        why = "a parameter of the optimizer, by structure"
                        self.found[start + inner] = Assignment("weight", why)


def _arrays(value: Any, keys: _Keys) -> Iterator[tuple[_Keys, Any]]:
    node = inside(value)
    if isinstance(node, dict | list | tuple):
        for key, child in children_of(node):
            yield from _arrays(child, below(keys, key))
    else:
        yield keys, node


def _fields(value: Any) -> Mapping[str, Role] | None:
    """Return the roles of the fields of a named tuple of optax."""
    if hasattr(value, "_fields") and type(value).__module__.partition(".")[0] == "optax":
        return _CLASS_FIELD_ROLES.get(type(value).__name__, _FIELD_ROLES)
    return None


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
