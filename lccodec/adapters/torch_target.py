"""A state into modules, optimizers and tensors: all of it or, if anything differs, nothing."""

from __future__ import annotations

from typing import Any, TypeVar

import torch

from ..state import leaf_name
from .plain import below, check_same
from .torch_optimizer import describe, misfits

__all__ = ["load_into"]

Target = TypeVar("Target")


def load_into(target: Target, state: Any) -> Target:
    """Load a state into modules, optimizers, schedulers and tensors, after a check of all of it.

    Parameters
    ----------
    target
        A module, an optimizer, anything else with ``state_dict`` and ``load_state_dict``, a tensor, or a
        nested dict, list or tuple of such and of plain values, as ``{"model": model, "optimizer": optimizer,
        "step": 0}``. Tensors are overwritten where they are; those on the meta device are replaced.
    state
        What was saved of the same.

    Returns
    -------
    object
        `target`; its dicts and lists have the state's plain values.

    Raises
    ------
    ArgumentError
        Lists every entry that is missing, not expected, or of another shape or dtype; `target` is untouched.
    """
    check = _Check()
    check.compare(target, state, ())
    check_same(check.wanted, check.found, check.more)
    filled: Target = _fill(target, state)
    return filled


class _Check:
    """The leaves of a target and of a state, by name and in words."""

    def __init__(self) -> None:
        self.wanted: dict[str, str] = {}
        self.found: dict[str, str] = {}
        self.more: list[str] = []

    def compare(self, target: Any, state: Any, keys: tuple[str, ...]) -> None:
        if isinstance(target, torch.optim.Optimizer):
            self.more += misfits(target, state, keys)
        elif _is_stateful(target):
            # What a module or scheduler holds beside tensors is its own business.
            self._compare_items(target.state_dict(), state, keys, whole=True)
        elif isinstance(target, dict):
            self._compare_items(target, state, keys)
        elif isinstance(target, list | tuple):
            items = dict(enumerate(state)) if isinstance(state, list | tuple) else state
            self._compare_items(dict(enumerate(target)), items, keys)
        else:
            self._leaf(target, state, keys)

    def _compare_items(
        self, target: dict[Any, Any], state: Any, keys: tuple[str, ...], whole: bool = False
    ) -> None:
        if not isinstance(state, dict):
            self.more.append(
                f"{leaf_name(keys) or 'the state'}: {describe(state)}, where the target has several"
            )
            return
        for key in [*target, *(key for key in state if key not in target)]:
            inner = below(keys, str(key))
            if key not in state:
                self.wanted[leaf_name(inner)] = _words(target[key])
            elif key not in target:
                self.found[leaf_name(inner)] = _words(state[key])
            elif whole:
                self._leaf(target[key], state[key], inner)
            else:
                self.compare(target[key], state[key], inner)

    def _leaf(self, target: Any, state: Any, keys: tuple[str, ...]) -> None:
        self.wanted[leaf_name(keys)] = describe(target)
        self.found[leaf_name(keys)] = describe(state)


def _words(value: Any) -> str:
    return describe(value) if isinstance(value, torch.Tensor) else type(value).__name__


def _is_stateful(target: Any) -> bool:
    return hasattr(target, "state_dict") and hasattr(target, "load_state_dict")


def _fill(target: Any, state: Any) -> Any:
    if isinstance(target, torch.nn.Module):
        values = target.state_dict().values()
        target.load_state_dict(state, assign=any(isinstance(v, torch.Tensor) and v.is_meta for v in values))
    elif _is_stateful(target):
        target.load_state_dict(state)
    elif isinstance(target, dict):
        target.update({key: _fill(child, state[key]) for key, child in target.items()})
    elif isinstance(target, list):
        target[:] = [_fill(child, state[i]) for i, child in enumerate(target)]
    elif isinstance(target, tuple):
        return tuple(_fill(child, state[i]) for i, child in enumerate(target))
    elif isinstance(target, torch.Tensor) and not target.is_meta:
        with torch.no_grad():
            target.copy_(state)
    else:
        return state
    return target
