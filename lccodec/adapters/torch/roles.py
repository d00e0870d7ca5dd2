"""Roles from PyTorch's structures: types of tensors, modules, and states of optimizers.

In the state of an optimizer, the name of an entry gives its role (`_ENTRY_ROLES`); all else there
is exact. The parameters of the optimizer are the weights of the model beside it. They are found

- by name, if the optimizer has the names: ``state_dict`` of DCP and FSDP, and ``param_names``;
- by shape, if the optimizer has numbers: if the model has as many tensors of a shape as the
  optimizer has parameters of that shape, those tensors are its parameters.

If the counts differ, the names of the tensors decide (`lccodec.policy.vocabulary`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Final

import torch

from ...container.tree import leaf_name
from ...policy.roles import Assignment, Role, is_exact
from ...policy.vocabulary import MODELS, meaning
from ..tree.plain import below
from .optimizer import ELEMENTWISE

__all__ = ["module_roles", "roles", "roles_of", "unwrapped"]

_ENTRY_ROLES: Final[dict[str, Role]] = {
    **ELEMENTWISE,
    "row_var": "second_moment",
    "col_var": "second_moment",
    "variance": "second_moment",
}  # Adafactor
_FLAT_ENTRY: Final = re.compile(rf"(?:(.*)\.)?state\.(.+)\.({'|'.join(_ENTRY_ROLES)})")
#: What wrappers put in front of the name of a parameter.
_WRAPPER_PREFIXES: Final = re.compile(r"(?:^|(?<=\.))(module|_orig_mod|_fsdp_wrapped_module)\.")

_Keys = tuple[str, ...]


def roles(state: Any) -> dict[str, Assignment]:
    """Return by name the roles of floating point tensors that follow from a state's structure.

    Parameters
    ----------
    state
        States of modules and optimizers, nested as you save them. A state that was made with
        ``module.state_dict(keep_vars=True)`` shows by its types what is trained.

    Examples
    --------
    >>> model = torch.nn.Linear(2, 1, bias=False)
    >>> optimizer = torch.optim.Adam(model.parameters())
    >>> model(torch.ones(1, 2)).backward()
    >>> optimizer.step()
    >>> found = roles({"model": model.state_dict(), "adam": optimizer.state_dict()})
    >>> for name, assignment in found.items():
    ...     print(f"{name:23} {assignment.role:14} {assignment.why}")
    adam/state/0/step       other          inside a torch optimizer
    adam/state/0/exp_avg    first_moment   torch optimizer: exp_avg
    adam/state/0/exp_avg_sq second_moment  torch optimizer: exp_avg_sq
    model/weight            weight         a parameter of the optimizer, by shape
    """
    search = _Search()
    search.visit(state, ())
    search.find_parameters()
    return search.found


def roles_of(module: torch.nn.Module, prefix: str = "") -> dict[str, Role]:
    """Return the role of every tensor of a module: parameters are weights, buffers are exact.

    Use it for ``roles=`` of a chain, where types say more than names.

    Parameters
    ----------
    prefix
        The name of the module's state in the saved state, as ``"model"``.

    Examples
    --------
    >>> roles_of(torch.nn.BatchNorm1d(3), "model/norm")  # doctest: +NORMALIZE_WHITESPACE
    {'model/norm/weight': 'weight', 'model/norm/bias': 'weight', 'model/norm/running_mean': 'other',
     'model/norm/running_var': 'other', 'model/norm/num_batches_tracked': 'other'}
    """
    found = module_roles(module)
    return {"/".join(filter(None, [prefix, leaf_name((name,))])): a.role for name, a in found.items()}


def module_roles(module: torch.nn.Module) -> dict[str, Assignment]:
    """Return role and reason by the names that the module gives its tensors."""
    kept: dict[object, tuple[str, torch.Tensor]] = {}
    for name, value in module.state_dict(keep_vars=True).items():
        if isinstance(value, torch.Tensor):
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
    return (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()) if tensor.numel() else object()


def _is_inexact(value: Any) -> bool:
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided or value.is_nested:
        return False  # these are refused elsewhere, or have no shape
    return value.is_floating_point() or value.is_complex()


class _Search:
    """Walks through a state and collects roles."""

    def __init__(self) -> None:
        self.found: dict[str, Assignment] = {}
        self._names: set[str] = set()  # of the optimizers' parameters
        self._shapes: Counter[torch.Size] = Counter()  # of the optimizers' parameters that have numbers
        self._tensors: dict[object, tuple[_Keys, torch.Tensor]] = {}  # outside optimizers

    def visit(self, value: Any, keys: _Keys) -> None:
        if isinstance(value, dict) and isinstance(value.get("state"), dict) and "param_groups" in value:
            self._optimizer(value, keys)
        elif isinstance(value, dict):
            typed = any(isinstance(child, torch.nn.Parameter) for child in value.values())
            for key, child in value.items():
                inner = below(keys, str(key))
                if typed and _is_inexact(child):
                    buffer = Assignment("other", "a buffer beside torch.nn.Parameter")
                    self.found[leaf_name(inner)] = _typed(child, str(key)) or buffer
                else:
                    self.visit(child, inner)
        elif isinstance(value, list | tuple):
            for position, child in enumerate(value):
                self.visit(child, below(keys, str(position)))
        elif _is_inexact(value):
            if (assignment := self._entry(keys) or _typed(value, leaf_name(keys))) is not None:
                self.found[leaf_name(keys)] = assignment
            else:
                self._tensors.setdefault(_memory(value), (keys, value))

    def _optimizer(self, value: dict[str, Any], keys: _Keys) -> None:
        for index, found in value["state"].items():
            inner = (*keys, "state", str(index))
            if isinstance(index, str):
                self._names.add(unwrapped(index))
            entries = found if isinstance(found, dict) else {"": found}
            for entry, child in entries.items():
                role = _ENTRY_ROLES.get(entry, "other")
                why = f"torch optimizer: {entry}" if entry in _ENTRY_ROLES else "inside a torch optimizer"
                self._assign(child, below(inner, str(entry)) if entry else inner, Assignment(role, why))
            shapes = [
                entries[entry].shape for entry in ELEMENTWISE if isinstance(entries.get(entry), torch.Tensor)
            ]
            if shapes and not isinstance(index, str):
                self._shapes[shapes[0]] += 1
        for group in value["param_groups"] if isinstance(value["param_groups"], list) else ():
            for names in (group.get("params"), group.get("param_names")) if isinstance(group, dict) else ():
                strings = names if isinstance(names, list | tuple) else ()
                self._names.update(unwrapped(name) for name in strings if isinstance(name, str))
        groups = Assignment("other", "inside a torch optimizer")
        self._assign(value["param_groups"], below(keys, "param_groups"), groups)

    def _assign(self, value: Any, keys: _Keys, assignment: Assignment) -> None:
        if isinstance(value, dict | list | tuple):
            children: Iterable[tuple[Any, Any]]
            children = value.items() if isinstance(value, dict) else enumerate(value)
            for key, child in children:
                self._assign(child, below(keys, str(key)), assignment)
        elif _is_inexact(value):
            self.found[leaf_name(keys)] = assignment

    def _entry(self, keys: _Keys) -> Assignment | None:
        """Return the role of an entry in a flat optimizer state: ``state.fc.weight.exp_avg``."""
        match = _FLAT_ENTRY.fullmatch(".".join(keys))
        if match is None:
            return None
        before, parameter, entry = match.groups()
        known = meaning(entry).moment is not None  # ``sum`` has other meanings too
        if not known and not any(meaning(part).optimizer for part in (before or "").split(".")):
            return None
        if not parameter.isdecimal():
            self._names.add(unwrapped(parameter))
        return Assignment(_ENTRY_ROLES[entry], f"torch optimizer: {entry}")

    def find_parameters(self) -> None:
        """Assign roles to the tensors outside optimizers that are their parameters."""
        left: dict[torch.Size, list[str]] = {}
        exact: Counter[torch.Size] = Counter()
        for keys, tensor in self._tensors.values():
            name = leaf_name(keys)
            if is_exact(name):
                exact[tensor.shape] += 1
            elif any(end in self._names for end in _ends(keys)):
                self.found[name] = Assignment("weight", "a parameter of the optimizer, by name")
            else:
                left.setdefault(tensor.shape, []).append(name)
        # If some parameters are not in the state, buffers of their shape could be mistaken for
        # them.
        if any(len(left.get(shape, ())) + exact[shape] < n for shape, n in self._shapes.items()):
            return
        for shape, count in self._shapes.items():
            if len(left.get(shape, ())) == count:
                why = Assignment("weight", "a parameter of the optimizer, by shape")
                self.found.update((name, why) for name in left[shape])


def unwrapped(name: str) -> str:
    """Return the name of a tensor without the prefixes of wrappers (DDP, FSDP, `compile`)."""
    return _WRAPPER_PREFIXES.sub("", name)


def _ends(keys: _Keys) -> Iterator[str]:
    """Yield the possible names of a tensor in its module."""
    for start in range(len(keys)):
        yield unwrapped(".".join(keys[start:]))
    if len(keys) == 1:  # as DCP flattens states
        parts = keys[0].split(".")
        for start in range(1, len(parts)):
            if start == 1 or parts[start - 1] in MODELS:
                yield unwrapped(".".join(parts[start:]))
