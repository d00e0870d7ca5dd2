"""A state goes into modules, optimizers and tensors as a whole; if anything differs, not at all."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final, TypeAlias, TypeVar

import torch

from ...chain.read.arrivals import Arrivals
from ...container.tree import leaf_name
from ...errors import ArgumentError
from ..tree.plain import below, check_same
from .layers import SET, Layers
from .optimizer import describe, load_optimizer, misfits
from .states import OnDevice, arrived, from_numpy, has_wrappers, hollow
from .wrappers import Apart, copy_into, is_wrapper, put_together_like

__all__ = ["load_into"]

Target = TypeVar("Target")

Keys: TypeAlias = tuple[str, ...]

#: Entries that ``load_state_dict`` of a scheduler needs. All others may be missing.
_NEEDED_OF_SCHEDULERS: Final = ("lr_lambdas", "_schedulers")


def load_into(target: Target, state: Any, *, strict: bool = True, prefix: str = "") -> Target:
    """Check all of a state, then load it into modules, optimizers, schedulers and tensors.

    Parameters
    ----------
    target
        A module, an optimizer, anything else with ``state_dict`` and ``load_state_dict``, a tensor,
        or a nested dict, list or tuple of these and of plain values, as ``{"model": model,
        "optimizer": optimizer, "step": 0}``. Tensors are overwritten in place; tensors on the meta
        device are replaced.
    state
        The saved state of the same things, or the leaves of a chain as ``chain.restore_iter()``
        yields them: then modules are set layer by layer while the rest is decoded. Settings of an
        optimizer's groups and attributes of a scheduler may be missing: the target keeps its own.
        The state may also have more of both than the target.
    strict
        If False, entries that only one of the two has are skipped. Shapes and types must still fit.
    prefix
        The part of the state that belongs to the target: an entry or the path of one, as
        ``"model"`` or ``"run/model"``. A prefix that ends in a dot, as ``"module."``, stands for
        all keys that begin with it.

    Returns
    -------
    object
        `target`. Its dicts and lists now hold the plain values of the state.

    Raises
    ------
    ArgumentError
        Lists every entry that is missing, unexpected, or of another shape or dtype. `target` is
        unchanged.
    DataError, ChainError, StorageError
        If leaves of a chain cannot be decoded. Then a part of `target` may be set.

    Examples
    --------
    >>> training = {"model": torch.nn.Linear(2, 1).state_dict(), "step": 3}
    >>> load_into(torch.nn.Linear(2, 1), training, prefix="model")
    Linear(in_features=2, out_features=1, bias=True)
    """
    if isinstance(state, Arrivals):
        with state:
            return _load_arrivals(target, state, strict, prefix)
    filled: Target = _fill(target, _fitting(target, state, strict, prefix), strict)
    return filled


def _load_arrivals(target: Target, arrivals: Arrivals, strict: bool, prefix: str) -> Target:
    """Check what a chain holds, then load it as it arrives.

    A wrapper is made of several leaves. If there is one, all leaves are decoded first.
    """
    own = arrivals.adapter if isinstance(arrivals.adapter, OnDevice) else None
    if has_wrappers(arrivals.metadata):
        return load_into(
            target, arrived(arrivals, own.device if own else "cpu"), strict=strict, prefix=prefix
        )
    state, expected = hollow(arrivals)
    layers = Layers(target, _fitting(target, state, strict, prefix), expected)
    convert = own.from_numpy if own else from_numpy
    for name, value in arrivals.arrays:
        if name in expected:
            layers.arrived(expected[name], convert(value, arrivals.metadata, name))
    filled: Target = _fill(target, layers.rest(), strict, layers.tensors)
    return filled


def _fitting(target: Any, state: Any, strict: bool, prefix: Any) -> Any:
    """Return the part of a state that a prefix names; refuse one that does not fit the target."""
    part, keys = _part(state, prefix)
    if _has_apart(part):
        part = _assembled(target, part, keys)
    check = _Check(strict)
    check.compare(target, part, keys)
    advice = "strict=False skips what only one of the two has" if strict else ""
    check_same(check.wanted, check.found, check.more, advice)
    return part


def _part(state: Any, prefix: Any) -> tuple[Any, Keys]:
    """Return the part of a state that a prefix names, and the path to it."""
    if not isinstance(prefix, str):
        raise ArgumentError(f"prefix must be a string such as 'model'; got {prefix!r}")
    path, dotted = prefix.rpartition("/")[::2] if prefix.endswith(".") else (prefix, "")
    keys: Keys = ()
    names = path.split("/") if path else []
    while names and isinstance(state, dict) and names[0] in state:
        keys, state = (*keys, names[0]), state[names.pop(0)]
    if not names and not dotted:
        return state, keys
    # `Chain.restore(keys=...)` returns a flat dict of paths, in which `/` in a key is ~1.
    start = "".join(f"{name}/" for name in names) + dotted
    items = state.items() if isinstance(state, dict) else ()
    part = {key.removeprefix(start): value for key, value in items if str(key).startswith(start)}
    if not part:
        raise ArgumentError(f"the state has nothing under the prefix {prefix!r}")
    if names:
        part = {key.replace("~1", "/").replace("~0", "~"): value for key, value in part.items()}
    return part, keys


def _has_apart(state: Any) -> bool:
    """Return whether a state has wrappers whose class is not allowed."""
    if isinstance(state, dict):
        return isinstance(state, Apart) or any(map(_has_apart, state.values()))
    return isinstance(state, list | tuple) and any(map(_has_apart, state))


def _assembled(target: Any, state: Any, keys: Keys) -> Any:
    """Return a state with its wrappers made where the target has one of their class."""
    if isinstance(state, Apart) and is_wrapper(target):
        return put_together_like(target, state, leaf_name(keys) or "the state")
    items = target.state_dict() if _is_stateful(target) else target
    if isinstance(state, dict) and isinstance(items, dict) and type(state) is not Apart:
        return {
            key: _assembled(items[key], child, below(keys, str(key))) if key in items else child
            for key, child in state.items()
        }
    if type(state) in (list, tuple) and isinstance(items, list | tuple) and len(items) == len(state):
        pairs = zip(items, state, strict=True)
        return type(state)(_assembled(*pair, below(keys, str(i))) for i, pair in enumerate(pairs))
    return state


class _Check:
    """The leaves of a target and of a state by name, each described in words."""

    def __init__(self, strict: bool) -> None:
        self.wanted: dict[str, str] = {}
        self.found: dict[str, str] = {}
        self.more: list[str] = []
        self._strict = strict

    def compare(self, target: Any, state: Any, keys: Keys) -> None:
        if isinstance(target, torch.optim.Optimizer):
            self.more += misfits(target, state, keys, self._strict)
        elif _is_stateful(target):
            # Only tensors are compared inside modules and schedulers.
            wanted = target.state_dict()
            if isinstance(state, dict) and not isinstance(target, torch.nn.Module):
                state = {key: state[key] for key in state if key in wanted}  # it may have more entries
                if isinstance(target, torch.optim.lr_scheduler.LRScheduler):
                    wanted = {
                        key: wanted[key] for key in wanted if key in state or key in _NEEDED_OF_SCHEDULERS
                    }
            self._compare_items(wanted, state, keys, whole=True)
        elif isinstance(target, dict):
            self._compare_items(target, state, keys)
        elif isinstance(target, list | tuple):
            items = dict(enumerate(state)) if isinstance(state, list | tuple) else state
            self._compare_items(dict(enumerate(target)), items, keys)
        else:
            self._leaf(target, state, keys)

    def _compare_items(self, target: dict[Any, Any], state: Any, keys: Keys, whole: bool = False) -> None:
        if not isinstance(state, dict):
            self.more.append(
                f"{leaf_name(keys) or 'the state'}: {describe(state)}, where the target has several"
            )
            return
        for key in [*target, *(key for key in state if key not in target)]:
            inner = below(keys, str(key))
            if not self._strict and (key not in state or key not in target):
                continue
            if key not in state:
                self.wanted[leaf_name(inner)] = _words(target[key])
            elif key not in target:
                self.found[leaf_name(inner)] = _words(state[key])
            elif whole:
                self._leaf(target[key], state[key], inner)
            else:
                self.compare(target[key], state[key], inner)

    def _leaf(self, target: Any, state: Any, keys: Keys) -> None:
        self.wanted[leaf_name(keys)] = describe(target)
        self.found[leaf_name(keys)] = describe(state)


def _words(value: Any) -> str:
    return describe(value) if isinstance(value, torch.Tensor) else type(value).__name__


def _is_stateful(target: Any) -> bool:
    return hasattr(target, "state_dict") and hasattr(target, "load_state_dict")


def _fill(target: Any, state: Any, strict: bool, tensors: Collection[int] = ()) -> Any:
    """Load a state that fits; `tensors` are the ids of those that are set already."""
    if state is SET or id(target) in tensors:
        return target
    if isinstance(target, torch.nn.Module):
        values = target.state_dict().values()
        assign = any(isinstance(v, torch.Tensor) and v.is_meta for v in values)
        target.load_state_dict(state, strict=strict, assign=assign)
        if not assign:
            _copy_wrappers(target, state)
    elif isinstance(target, torch.optim.Optimizer):
        load_optimizer(target, state)
    elif _is_stateful(target):
        target.load_state_dict(state)
    elif isinstance(target, dict):
        fitting = {key: child for key, child in target.items() if key in state}
        target.update({key: _fill(child, state[key], strict, tensors) for key, child in fitting.items()})
    elif isinstance(target, list | tuple):
        length = len(state)  # may be fewer than the target has, if not strict
        items = [_fill(child, state[i], strict, tensors) for i, child in enumerate(target[:length])]
        if isinstance(target, tuple):
            return (*items, *target[length:])
        target[:length] = items
    elif isinstance(target, torch.Tensor) and not target.is_meta:
        copy_into(target, state)
    else:
        return state
    return target


def _copy_wrappers(target: torch.nn.Module, state: Any) -> None:
    """Copy the inner tensors of wrappers once more: their classes may round when they copy."""
    for name, tensor in target.state_dict().items():
        if is_wrapper(tensor) and type(state.get(name)) is type(tensor):
            copy_into(tensor, state[name])
