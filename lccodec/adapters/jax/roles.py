"""Roles from JAX's structures: types of Flax NNX, collections of Linen, and states of optax.

- An NNX ``Param`` is a weight. Every other ``Variable`` is exact: a ``BatchStat`` is a running
  variance. The types of an optimizer's variables do not give their roles; their names do
  (`lccodec.policy.optimizer`).
- Of the variables of a Linen module, ``params`` are weights, and every other collection is exact.
  The ``params`` of a Flax ``TrainState`` are weights too.
- With an optimizer in the tree, only its parameters are weights: the arrays with the structure and
  shapes of a field of its state.
- The named tuples of optax that are listed here hold moments. All else in a state of optax is
  exact. If there is a named tuple with arrays that is not listed, there are no weights.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import jax
import numpy as np

from ...container.tree import leaf_name
from ...policy.optimizer import as_many, find_optimizers, path_of
from ...policy.roles import PARAMETER, UNKNOWN, UNTRAINED, Assignment, Role, called_weight, is_exact
from ...policy.vocabulary import MODELS
from ..tree.plain import below
from .states import children_of, inside, leaves

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

    def visit(self, value: Any, keys: _Keys, assigned: Assignment | None, optax: bool = False) -> None:
        """Visit a node; `assigned` is the role its place has, `optax` says that optax holds it."""
        node = inside(value)
        if _is_optax(value):
            kind = type(value).__name__
            for key, child in children_of(node):
                role = _MOMENTS.get(kind, {}).get(key, "other")
                assignment = Assignment(role, f"{kind}.{key} of optax")
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
            for key, child in children_of(node):
                self.visit(child, below(keys, key), collections.get(key, assigned), optax)
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
