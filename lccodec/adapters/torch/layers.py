"""Layers of modules and single tensors that are set before the rest of a state has arrived.

A layer is a module without its children. It is set when all of its own entries have arrived. A
module that loads a state in a way of its own, by a hook or an override, is not taken apart. Nor are
optimizers and schedulers.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import torch
from torch.nn.modules.batchnorm import _NormBase

__all__ = ["SET", "Layers", "is_special", "loads_otherwise"]

#: What `Layers.rest` has in the place of the state of a module that is set already.
SET: Final = object()

#: Ways to load the entries of one module that take what has the names and shapes of its own. That
#: of norms also counts batches from 0 if the state does not say how many there were.
_USUAL: Final = (torch.nn.Module._load_from_state_dict, _NormBase._load_from_state_dict)
_HOOKS: Final = ("_load_state_dict_pre_hooks", "_load_state_dict_post_hooks", "_state_dict_hooks")


@dataclass
class _Layer:
    entries: dict[str, Any]  # what stands for each entry until it arrives
    missing: int  # entries that have not arrived
    load: Callable[[dict[str, Any]], object]


class Layers:
    """The layers of a target that fit a hollow state, each set as soon as it has arrived.

    Parameters
    ----------
    target, state
        As in `load_into`; tensors of the state are on the meta device and have no values.
    hollow
        What stands in the state for an array.

    Attributes
    ----------
    tensors
        Ids of the tensors of the target that are set here.
    """

    def __init__(self, target: Any, state: Any, hollow: Mapping[str, Any]) -> None:
        self.tensors: set[int] = set()
        self._state = state
        self._hollow = {id(value) for value in hollow.values()}
        self._waiting: dict[int, list[_Layer]] = {}  # layers, by the id of what they wait for
        self._uses: Counter[int] = Counter()  # layers that are not set, by the id of what they need
        self._found: dict[int, Any] = {}  # the value of what has arrived, by the id of what stood for it
        self._collect(target, state)
        # A copy of the state notes all that it meets: what is needed beside the layers.
        met = self._found | {id(value): value for value in hollow.values() if isinstance(value, np.ndarray)}
        copy.deepcopy(state, met)
        self._uses.update(self._hollow.intersection(met))

    def arrived(self, hollow: Any, value: Any) -> None:
        """Put a value in the place of what stands for it; set the layers that it completes."""
        self._found[id(hollow)] = value
        for layer in self._waiting.pop(id(hollow), ()):
            layer.missing -= 1
            if layer.missing:
                continue
            layer.load({name: self._found[id(entry)] for name, entry in layer.entries.items()})
            for entry in {id(entry) for entry in layer.entries.values()}:
                self._uses[entry] -= 1
                if not self._uses[entry]:
                    del self._found[entry]

    def rest(self) -> Any:
        """Return the state with its values, and with `SET` in the place of what is set."""
        return copy.deepcopy(self._state, self._found)

    def _collect(self, target: Any, state: Any) -> None:
        """Find the layers of a target."""
        if isinstance(target, torch.nn.Module):
            hollow = isinstance(state, dict) and all(id(value) in self._hollow for value in state.values())
            layers = _layers_of(target, state) if hollow else None
            if layers is not None:
                self._found[id(state)] = SET
                for layer in layers:
                    self._wait(layer)
        elif hasattr(target, "load_state_dict"):
            return  # it gets its state as a whole
        elif isinstance(target, dict):
            for key in [key for key in target if key in state]:
                self._collect(target[key], state[key])
        elif isinstance(target, list | tuple) and isinstance(state, list | tuple):
            for child, part in zip(target, state, strict=False):
                self._collect(child, part)
        elif isinstance(target, torch.Tensor) and not target.is_meta and id(state) in self._hollow:
            self.tensors.add(id(target))
            self._wait(_Layer({"": state}, 0, lambda entries: _copy(target, entries[""])))

    def _wait(self, layer: _Layer) -> None:
        different = {id(entry) for entry in layer.entries.values()}
        layer.missing = len(different)
        for entry in different:
            self._waiting.setdefault(entry, []).append(layer)
            self._uses[entry] += 1


def _copy(target: torch.Tensor, value: torch.Tensor) -> None:
    with torch.no_grad():
        target.copy_(value)


def _layers_of(target: torch.nn.Module, state: Mapping[str, Any]) -> list[_Layer] | None:
    """Return the layers of a module; ``None`` if the module must load its state as a whole."""
    modules = dict(target.named_modules(remove_duplicate=False))
    if any(map(is_special, modules.values())):
        return None
    wanted = target.state_dict()
    assign = any(isinstance(value, torch.Tensor) and value.is_meta for value in wanted.values())
    own: dict[str, dict[str, Any]] = {}
    for key, value in state.items():
        if key in wanted:
            place, _, name = key.rpartition(".")
            own.setdefault(place, {})[name] = value
    if not own.keys() <= modules.keys():
        return None
    return [
        _Layer(entries, 0, partial(modules[place].load_state_dict, strict=False, assign=assign))
        for place, entries in own.items()
    ]


def loads_otherwise(module: torch.nn.Module) -> bool:
    """Return whether a module may take a state whose names and shapes are not those of its own."""
    return any(
        is_special(part)
        or type(part)._load_from_state_dict not in _USUAL
        or type(part).set_extra_state is not torch.nn.Module.set_extra_state
        for part in module.modules()
    )


def is_special(module: torch.nn.Module) -> bool:
    """Return whether a module loads more than its own entries in a way of its own."""
    kind, usual = type(module), torch.nn.Module
    overridden = kind.load_state_dict is not usual.load_state_dict or (
        kind._load_from_state_dict is not usual._load_from_state_dict and any(module.children())
    )
    return overridden or any(getattr(module, name, None) for name in _HOOKS)
