"""Adam's moments from torch to optax and back, in the layouts of their parameters.

torch keeps ``exp_avg``, ``exp_avg_sq`` and ``step`` for each parameter, by its number. optax keeps
one ``ScaleByAdamState``: a ``count`` and two trees, ``mu`` and ``nu``. Both do the same computation
(if optax's ``eps_root`` is 0, the default), so training can continue. Learning rates, betas, weight
decay and the counts of optax's schedules come from the new optimizer.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from ..errors import ArgumentError
from .mapping import exchange
from .rules import SEPARATORS, Rule
from .trees import children, leaves, nested, rebuilt, replaced

#: The names of the moments in torch and in optax.
_MOMENT_NAMES: Final = {"exp_avg": "mu", "exp_avg_sq": "nu"}
_FLAX_SEPARATOR: Final = SEPARATORS["flax"]


def adam_to_flax(
    optimizer: Any, names: Sequence[str] | None = None, rules: Iterable[Rule] = (), like: Any = None
) -> Any:
    """Return the moments of a torch Adam or AdamW as the state of optax's Adam.

    Parameters
    ----------
    optimizer
        The optimizer's ``state_dict``, with NumPy arrays.
    names
        The names of the parameters in the optimizer's order: ``[name for name, _ in
        module.named_parameters()]``. None if the state of the optimizer holds the names.
    rules
        Rules that come before `RULES`, as for the weights.
    like
        The target: an optax state that contains Adam's state. The result has its structure, and its
        values for everything else. It is needed whenever `to_flax` needs one.

    Returns
    -------
    nested containers
        The structure of `like`, with its named tuples; without `like`, a dict of ``count``, ``mu``
        and ``nu``.

    Raises
    ------
    ArgumentError
        If a parameter has no moments, or the steps differ; for AMSGrad, because torch takes the
        maximum before bias correction and optax after it; and as `to_flax`.
    """
    entries = _entries(optimizer, _names(optimizer, names))
    steps = {_count(entry["step"], f"the step of {name!r}") for name, entry in entries.items()}
    if len(steps) != 1:
        raise ArgumentError(
            f"all parameters must have the same step, because optax has one; got {sorted(steps)}"
        )
    adam: dict[str, Any] = {"count": np.array(steps.pop(), np.int32)}
    template = None if like is None else _adam(like)
    for ours, theirs in _MOMENT_NAMES.items():
        source = {name: entry[ours] for name, entry in entries.items()}
        target = None if template is None else leaves(template[theirs], _FLAX_SEPARATOR)
        made = exchange(source, target, tuple(rules), "torch", moments=True)
        adam[theirs] = (
            nested(made, _FLAX_SEPARATOR)
            if template is None
            else replaced(template[theirs], _FLAX_SEPARATOR, made)
        )
    return adam if like is None else _with_adam(like, adam)


def adam_to_torch(
    state: Any, names: Sequence[str] | None = None, rules: Iterable[Rule] = (), like: Any = None
) -> dict[str, Any]:
    """Return optax's Adam state as the state of a torch Adam or AdamW: inverse of `adam_to_flax`.

    Parameters
    ----------
    state
        An optax state of NumPy arrays that contains Adam's state.
    names
        The names of the parameters in the optimizer's order; None if `like` has them.
    rules
        Rules that come before `RULES`, as for the weights.
    like
        The target: the ``state_dict`` of the torch optimizer. The result has its ``param_groups``,
        without which torch cannot load it. If the optimizer has taken a step, shapes are checked.

    Returns
    -------
    dict
        ``state`` by parameter number, and the ``param_groups`` of `like`.

    Raises
    ------
    ArgumentError
        As `to_torch`.
    """
    adam = _adam(state)
    names = _names(like, names)
    known = {} if like is None else _field(like, "state")
    target = {name: _by_number(known, number).get("exp_avg") for number, name in enumerate(names)}
    step = np.array(_count(adam["count"], "optax's count"), np.float32)
    entries = {name: {"step": step.copy()} for name in names}
    for ours, theirs in _MOMENT_NAMES.items():
        made = exchange(leaves(adam[theirs], _FLAX_SEPARATOR), target, tuple(rules), "flax", moments=True)
        for name in names:
            entries[name][ours] = made[name]
    groups = {} if like is None else {"param_groups": _field(like, "param_groups")}
    return {"state": dict(enumerate(entries.values())), **groups}


def _names(optimizer: Any, names: Sequence[str] | None) -> list[str]:
    if names is not None:
        return list(names)
    known: dict[int, str] = {}
    for group in _field(optimizer, "param_groups"):
        numbers, labels = (_items(group, key) for key in ("params", "param_names"))
        known |= {
            n: name for n, name in zip(numbers, labels, strict=False) if type(n) is int and type(name) is str
        }
    if not known:
        raise ArgumentError(
            "the optimizer's state has no names of parameters: give them, or make the optimizer with"
            " module.named_parameters()"
        )
    return [known[number] for number in sorted(known)]


def _items(group: Any, key: str) -> Sequence[Any]:
    items = group.get(key) if isinstance(group, Mapping) else None
    return items if isinstance(items, list | tuple) else ()


def _entries(optimizer: Any, names: Sequence[str]) -> dict[str, Any]:
    """Return the entries of a torch optimizer for each parameter, by its name."""
    state = _field(optimizer, "state")
    wanted = {"step", *_MOMENT_NAMES}
    entries = {name: _by_number(state, number) for number, name in enumerate(names)}
    problems = [
        f"parameter {name!r} has {', '.join(sorted(map(str, entry))) or 'no state'}"
        for name, entry in entries.items()
        if set(entry) != wanted
    ]
    if len(state) > len(names):
        problems.append(f"there are {len(state)} parameters but {len(names)} names")
    if problems:
        keys = ", ".join(sorted(wanted))
        raise ArgumentError(f"each parameter must have exactly {keys}, as in Adam: {'; '.join(problems)}")
    return entries


def _field(optimizer: Any, name: str) -> Any:
    field = optimizer.get(name) if isinstance(optimizer, Mapping) else None
    if not isinstance(field, Mapping if name == "state" else list):
        raise ArgumentError(f"the state of the optimizer must be a torch state_dict; it has no {name}")
    return field


def _by_number(state: Mapping[Any, Any], number: int) -> Any:
    """Return a parameter's entry. Files that allow only string keys have its number as a string."""
    entry = state.get(number, state.get(str(number)))
    return entry if isinstance(entry, Mapping) else {}


def _count(value: Any, what: str) -> int:
    number = np.asarray(value)
    if number.shape or number.dtype.kind not in "uif" or not 0 <= number < 2**31 or number % 1:
        raise ArgumentError(f"{what} must be a number of steps; got {reprlib.repr(value)}")
    return int(number)


def _is_adam(node: Any) -> bool:
    return {name for name, _ in children(node) or ()} == {"count", *_MOMENT_NAMES.values()}


def _adam(tree: Any) -> dict[str, Any]:
    """Return the fields of the single Adam state in nested containers."""
    adams = list(_adams(tree))
    if len(adams) != 1:
        raise ArgumentError(f"the optax state must hold one Adam state (count, mu and nu); got {len(adams)}")
    return dict(children(adams[0]) or ())


def _adams(node: Any) -> Iterator[Any]:
    if _is_adam(node):
        yield node
    else:
        for _, child in children(node) or ():
            yield from _adams(child)


def _with_adam(node: Any, adam: dict[str, Any]) -> Any:
    """Return nested containers with new fields in their Adam state."""
    inner = children(node)
    if inner is None:
        return node
    if _is_adam(node):
        return rebuilt(node, [adam[name] for name, _ in inner])
    return rebuilt(node, [_with_adam(child, adam) for _, child in inner])
