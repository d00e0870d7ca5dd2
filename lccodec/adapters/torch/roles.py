"""Roles from PyTorch's structures: types of tensors, modules, and states of optimizers.

What an optimizer keeps of each parameter must be one of the families of
`lccodec.policy.vocabulary`, which say what of it are moments. All else there is exact. The
parameters of the optimizers are the weights of the model beside it, and nothing else is a weight.
If an optimizer keeps something else, there are none. The parameters are found

- by name, if the optimizer has the names: ``state_dict`` of DCP and FSDP, and ``param_names``;
- by shape, if the optimizer has numbers; by their order, if it has parameters that are not trained,
  too (:mod:`lccodec.policy.optimizer`).

Without an optimizer, names decide (:mod:`lccodec.policy.roles`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import torch

from ...container.tree import leaf_name
from ...policy.optimizer import as_many, find_numbered
from ...policy.roles import (
    CENTER,
    KEPT,
    PARAMETER,
    PERHAPS,
    UNKNOWN,
    UNSAFE,
    UNTRAINED,
    Assignment,
    Role,
    called_weight,
    is_exact,
)
from ...policy.vocabulary import FAMILIES, MODELS, meaning
from ..tree.matching import unwrapped
from ..tree.plain import below
from .matching import together
from .wrappers import inner_tensors, is_wrapper

#: Why an array of an optimizer is kept exactly, and one of a wrapper such as a low-bit weight.
_INSIDE: Final = "inside a torch optimizer"
_WRAPPED: Final = "inside a wrapper of tensors"

_Keys = tuple[str, ...]


def roles(state: Any) -> dict[str, Assignment]:
    """Return by name the roles of floating point tensors that follow from a state's structure.

    The state holds those of modules and optimizers, nested as you save them. One that was made with
    ``module.state_dict(keep_vars=True)`` shows by its types what is trained.

    Examples
    --------
    >>> model = torch.nn.Linear(2, 1, bias=False)
    >>> optimizer = torch.optim.Adam(model.parameters())
    >>> model(torch.ones(1, 2)).backward()
    >>> optimizer.step()
    >>> assignments = roles({"model": model.state_dict(), "adam": optimizer.state_dict()})
    >>> for name, assignment in assignments.items():
    ...     print(f"{name:23} {assignment.role:14} {assignment.why}")
    adam/state/0/step       other          inside a torch optimizer
    adam/state/0/exp_avg    first_moment   torch optimizer: exp_avg
    adam/state/0/exp_avg_sq second_moment  torch optimizer: exp_avg_sq
    model/weight            weight         a parameter of the optimizer
    """
    search = _Search()
    search.visit(state, ())
    search.find_parameters()
    return search.assignments


def roles_of(module: torch.nn.Module, prefix: str = "") -> dict[str, Role]:
    """Return the role of every tensor of a module: parameters are weights, buffers are exact.

    Use it for ``roles=`` of a chain, where types say more than names. `prefix` is the name of the
    module's state in the saved state, as ``"model"``.

    Examples
    --------
    >>> roles_of(torch.nn.BatchNorm1d(3), "model/norm")  # doctest: +NORMALIZE_WHITESPACE
    {'model/norm/weight': 'weight', 'model/norm/bias': 'weight', 'model/norm/running_mean': 'other',
     'model/norm/running_var': 'other', 'model/norm/num_batches_tracked': 'other'}
    """
    assignments = module_roles(module)
    return {"/".join(filter(None, [prefix, leaf_name((name,))])): a.role for name, a in assignments.items()}


def module_roles(module: torch.nn.Module) -> dict[str, Assignment]:
    """Return role and reason by the names that the module gives its tensors; not of wrappers."""
    kept: dict[object, tuple[str, torch.Tensor]] = {}
    for name, value in module.state_dict(keep_vars=True).items():
        if isinstance(value, torch.Tensor) and not is_wrapper(value):
            kept.setdefault(_memory(value), (name, value))  # tied tensors are stored under their first name
    buffer = Assignment("other", "a buffer of a torch module")
    return {name: _typed(value, name) or buffer for name, value in kept.values()}


def _typed(value: torch.Tensor, name: str) -> Assignment | None:
    """Return the role that follows from the type of a tensor, or None."""
    if isinstance(value, torch.nn.Parameter):
        if not value.requires_grad:
            return Assignment("other", "a torch.nn.Parameter without gradient")
        if is_exact(name):  # some statistics are parameters without influence on the loss
            return Assignment("other", "a torch.nn.Parameter with the name of a statistic")
        return Assignment("weight", "torch.nn.Parameter")
    return Assignment("other", "torch.nn.Buffer") if isinstance(value, torch.nn.Buffer) else None


def _memory(tensor: torch.Tensor) -> object:
    """Return a key that is equal for tied tensors."""
    if is_wrapper(tensor):
        return tuple(map(_memory, inner_tensors(tensor).values()))
    return (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()) if tensor.numel() else object()


def _is_inexact(value: Any) -> bool:
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided or value.is_nested:
        return False  # these are refused elsewhere, or have no shape
    return value.is_floating_point() or value.is_complex()


class _Search:
    """Walks through a state and collects roles."""

    def __init__(self) -> None:
        self.assignments: dict[str, Assignment] = {}
        self._optimizers = False
        self._known = True  # whether all optimizers are of the families
        self._names: Counter[str] = Counter()  # of the optimizers' parameters
        # Of groups of parameters that have numbers alone: shapes, None for what is not trained.
        self._groups: list[list[tuple[int, ...] | None]] = []
        self._hidden = 0  # trained ones, of which no shape is known
        self._tensors: dict[object, tuple[_Keys, torch.Tensor]] = {}  # outside optimizers

    def visit(self, value: Any, keys: _Keys) -> None:
        if isinstance(value, dict) and isinstance(value.get("state"), dict) and "param_groups" in value:
            self._optimizer(value, keys)
        elif isinstance(value, dict):
            typed = any(isinstance(child, torch.nn.Parameter) for child in value.values())
            for key, child in value.items():
                inner = below(keys, str(key))
                if typed and _is_inexact(child):
                    self._wrapped(child, inner)
                    buffer = Assignment("other", "a buffer beside torch.nn.Parameter")
                    self.assignments[leaf_name(inner)] = _typed(child, leaf_name(inner)) or buffer
                else:
                    self.visit(child, inner)
        elif isinstance(value, list | tuple):
            for position, child in enumerate(value):
                self.visit(child, below(keys, str(position)))
        elif _is_inexact(value):
            self._wrapped(value, keys)
            if (assignment := _typed(value, leaf_name(keys))) is not None:
                self.assignments[leaf_name(keys)] = assignment
            else:
                self._tensors.setdefault(_memory(value), (keys, value))

    def _optimizer(self, value: dict[str, Any], keys: _Keys) -> None:
        self._optimizers = True
        shapes: dict[Any, torch.Size | None] = {}  # by the index of a parameter
        for index, stored in value["state"].items():
            inner = (*keys, "state", str(index))
            entries = stored if isinstance(stored, dict) else {"": stored}
            kept = {entry: child for entry, child in entries.items() if _is_kept(child)}
            kinds = {child.shape if isinstance(child, torch.Tensor) else None for child in kept.values()}
            if kept:
                shapes[index] = kinds.pop() if len(kinds) == 1 else None
            known = {entry: child for entry, child in kept.items() if not meaning(str(entry)).master}
            families = [f for f in FAMILIES if f.fits(known, named=True, counted=False)]
            roles = families[0].roles if families and shapes[index] is not None else {}
            self._known &= bool(families) or not known
            for entry, child in entries.items():
                assignment = Assignment("other", UNSAFE if entry in kept else _INSIDE)
                role = roles.get(entry, "other")
                if role != "other":
                    why = CENTER if families[0].is_center(entry) else f"torch optimizer: {entry}"
                    assignment = Assignment(role, KEPT if role == "weight" else why)
                self._assign(child, below(inner, str(entry)) if entry else inner, assignment)
        for group in _groups(value["param_groups"]):
            self._groups.append([])
            for index, name in group:
                trained = not shapes or index in shapes  # if others have moments, this one is not
                if name is not None:
                    self._names[unwrapped(name)] += trained
                elif (shape := shapes.get(index)) is None and trained:
                    self._hidden += 1
                else:
                    self._groups[-1].append(None if shape is None else tuple(shape))
        groups = Assignment("other", _INSIDE)
        self._assign(value["param_groups"], below(keys, "param_groups"), groups)

    def _assign(self, value: Any, keys: _Keys, assignment: Assignment) -> None:
        for inside, child, _ in together(value, value, keys):
            if _is_inexact(child):
                self._wrapped(child, inside)
                self.assignments[leaf_name(inside)] = assignment

    def _wrapped(self, value: torch.Tensor, keys: _Keys) -> None:
        """What is inside a wrapper is exact: its scales, and values yet to be rounded."""
        if is_wrapper(value):
            for name, tensor in inner_tensors(value).items():
                inner = below(keys, name)
                self.assignments[leaf_name(inner)] = Assignment("other", _WRAPPED)
                self._wrapped(tensor, inner)

    def find_parameters(self) -> None:
        """Assign roles to the tensors outside optimizers: weights are their parameters."""
        if not self._optimizers:
            return
        exact, shapes = [], {}
        named: dict[str, list[str]] = {}
        for keys, tensor in self._tensors.values():
            name = leaf_name(keys)
            if is_exact(name):
                exact.append(tensor.shape)
                continue
            shapes[name] = tensor.shape
            if (end := next((end for end in _ends(keys) if end in self._names), None)) is not None:
                named.setdefault(end, []).append(name)
        weights = []
        for end, names in named.items():
            weights += as_many(names, self._names[end], called_weight)
        left = {name: shape for name, shape in shapes.items() if name not in weights}
        certain, perhaps = find_numbered(self._groups, self._hidden, left, exact, called_weight)
        weights += certain
        if not self._known:
            weights, perhaps = [], set()
        other = Assignment("other", UNTRAINED if self._known else UNKNOWN)
        self.assignments.update(dict.fromkeys(shapes, other))
        self.assignments.update(dict.fromkeys(perhaps, Assignment("other", PERHAPS)))
        self.assignments.update(dict.fromkeys(weights, Assignment("weight", PARAMETER)))


def _is_kept(value: Any) -> bool:
    """Return whether an entry is more than a number: has a tensor of several elements."""
    parts = (part for _, part, _ in together(value, value))
    return any(isinstance(part, torch.Tensor) and part.numel() != 1 for part in parts)


def _groups(groups: Any) -> Iterator[list[tuple[Any, str | None]]]:
    """Yield index and name, if it is known, of each parameter of each group of an optimizer."""
    for group in groups if isinstance(groups, list | tuple) else ():
        indices = group.get("params") if isinstance(group, dict) else None
        if not isinstance(indices, list | tuple):
            continue
        names = group.get("param_names")
        names = names if isinstance(names, list | tuple) and len(names) == len(indices) else indices
        pairs = zip(indices, names, strict=True)
        yield [(index, name if isinstance(name, str) else None) for index, name in pairs]


def _ends(keys: _Keys) -> Iterator[str]:
    """Yield the possible names of a tensor in its module."""
    for start in range(len(keys)):
        yield unwrapped(".".join(keys[start:]))
    if len(keys) == 1:  # as DCP flattens states
        parts = keys[0].split(".")
        for start in range(1, len(parts)):
            if start == 1 or parts[start - 1] in MODELS:
                yield unwrapped(".".join(parts[start:]))
