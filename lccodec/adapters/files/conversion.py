"""Conversion of the state of a file for another framework, with `lccodec.exchange`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from ...errors import ArgumentError, warn
from ...exchange import Rule, adam_to_flax, adam_to_torch, to_flax, to_torch
from ...exchange.rules import SEPARATORS
from ...exchange.trees import leaves
from ..tree.plain import BYTE_TYPES, from_plain, to_plain
from .formats import load_file

#: The last parts of names in a module's state that are no parameters.
_BUFFERS: Final = ("running_mean", "running_var", "num_batches_tracked")
#: Entries that only the state of an optimizer has: torch's, and that of NNX.
_OPTIMIZER: Final = frozenset(["param_groups", "opt_state"])
#: Types that are stored as arrays with other elements: no layout applies to these.
_TYPES_AS_BITS: Final = BYTE_TYPES | {"complex32"}


@dataclass(frozen=True)
class Exchange:
    """How to convert a state from one framework to the other.

    `model` and `optimizer` are the entry of the state that holds the module's state and, for Adam's
    moments, the entry of the optimizer's state; `like` has the same entries. Without `model` the
    whole state is the module's. If torch's optimizer has no names of parameters, they are those of
    the model in its order, and a warning says so.
    """

    source: str  # the framework of the state: torch or flax
    rules: tuple[Rule, ...] = ()  # that come before the common rules
    like: Path | None = None  # a file of the other framework, whose structure the result gets
    model: str | None = None
    optimizer: str | None = None

    def __post_init__(self) -> None:
        if self.optimizer is not None and self.model is None:
            raise ArgumentError("an optimizer's entry needs the model's entry; got no model")


def convert(
    state: Any, metadata: Mapping[str, str], exchange: Exchange
) -> tuple[Any, dict[str, str], list[str]]:
    """Return the state of a file as a state of the other framework.

    With it come the metadata to store with it, and the entries of the old state that were left out.

    Raises
    ------
    ArgumentError
        As `lccodec.exchange`; for missing entries, and for arrays of a type that is stored as bits.
    FormatError
        If the metadata do not fit the state.
    DataError, StorageError
        If the file `like` is damaged or cannot be read.
    """
    state, kinds = _typed(state, metadata)
    if unfit := sorted(set(kinds.values()) & _TYPES_AS_BITS):
        raise ArgumentError(f"arrays of {', '.join(unfit)} are stored as bits, which no rule can lay out")
    like, kinds = (None, {}) if exchange.like is None else _typed(*load_file(exchange.like))
    to_other, adam_to_other = (
        (to_flax, adam_to_flax) if exchange.source == "torch" else (to_torch, adam_to_torch)
    )
    rules, model, optimizer = exchange.rules, exchange.model, exchange.optimizer
    left_out: list[str] = []
    if model is None:
        _check_module(state)
        made = to_other(state, rules, like)
    else:
        made = {model: to_other(_entry(state, model), rules, _entry(like, model))}
        if optimizer is not None:
            torch_state = state if exchange.source == "torch" else like
            names = _names(_entry(torch_state, model), _entry(torch_state, optimizer), model, optimizer)
            made[optimizer] = adam_to_other(_entry(state, optimizer), names, rules, _entry(like, optimizer))
        left_out = [key for key in state if key not in made]
    plain, kept = to_plain(made, metadata, lambda value: value, lambda leaf, _: (leaf, kinds.get(id(leaf))))
    return plain, kept, left_out


def _check_module(state: Any) -> None:
    """Raise ``ArgumentError`` if a state is a training state: no rule maps all of its entries."""
    entries = state if isinstance(state, Mapping) else {}
    for name, entry in entries.items():
        if isinstance(entry, Mapping) and not _OPTIMIZER.isdisjoint(entry):
            others = ", ".join(repr(other) for other in entries if other != name) or "none"
            raise ArgumentError(
                f"entry {name!r} is the state of an optimizer: name the module's entry with --model (the"
                f" others are {others}), and this one with --optimizer"
            )


def _typed(state: Any, metadata: Mapping[str, str]) -> tuple[Any, dict[int, str]]:
    """Return a state with its integer keys, and by identity the types of arrays in its note."""
    kinds: dict[int, str] = {}

    def leaf(array: Any, kind: str | None, _: str) -> Any:
        if kind is not None:
            kinds[id(array)] = kind
        return array

    return from_plain(state, metadata, "", leaf), kinds


def _entry(state: Any, name: str) -> Any:
    if state is None:
        return None
    if not isinstance(state, Mapping) or name not in state:
        raise ArgumentError(f"the state has no entry {name!r}")
    return state[name]


def _names(model: Any, optimizer: Any, model_name: str, optimizer_name: str) -> list[str] | None:
    """Return the names of the parameters of a torch optimizer; None if it has them itself.

    An optimizer of ``module.parameters()`` has numbers, in the order of the module's state. That
    its parameters have the shapes of the module's is checked.
    """
    if not isinstance(optimizer, Mapping) or not isinstance(model, Mapping):
        return None
    groups, state = optimizer.get("param_groups"), optimizer.get("state")
    if not isinstance(groups, list) or not isinstance(state, Mapping):
        return None  # adam's error says what it is not
    if len(groups) != 1 or not isinstance(groups[0], Mapping) or "param_names" in groups[0]:
        return None
    numbers = groups[0].get("params")
    shapes = {name: np.shape(leaf) for name, leaf in leaves(model, SEPARATORS["torch"]).items()}
    names = [name for name in shapes if name.rpartition(".")[2] not in _BUFFERS]
    where = f"the parameters of {optimizer_name!r}, which have no names, are not those of {model_name!r}"
    advice = "make the optimizer with module.named_parameters()"
    if not isinstance(numbers, list) or len(numbers) != len(names):
        count = len(numbers) if isinstance(numbers, list) else 0
        raise ArgumentError(f"{where} in order: {count} and {len(names)}; {advice}")
    for number, name in zip(numbers, names, strict=True):
        entry = state.get(number, state.get(str(number)))
        moment = entry.get("exp_avg") if isinstance(entry, Mapping) else None
        if moment is not None and np.shape(moment) != shapes[name]:
            raise ArgumentError(f"{where}: {number} is {np.shape(moment)}, {name!r} {shapes[name]}; {advice}")
    warn(
        f"{optimizer_name!r} has no names of parameters: they are taken to be those of {model_name!r}, in"
        " its order; their shapes agree"
    )
    return names
