"""A state in the terms of a target: names of modules and dicts, numbers and groups of optimizers.

All is matched together. The names of modules come first: they also say which parameter is meant in
the state of an optimizer. The groups of an optimizer say which values of a scheduler are whose.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import torch

from ...container.tree import leaf_name
from ..tree.matching import LoadReport, Renaming, paired, unwrapped
from ..tree.plain import Keys, below
from .optimizer import OptimizerMatch, Parameters, is_optimizer_state, of_groups
from .wrappers import Apart, is_wrapper, put_together_like

_Scheduler = torch.optim.lr_scheduler.LRScheduler
#: The order in which the parts of a target are matched; None is all else.
_STAGES: Final = (None, torch.optim.Optimizer, _Scheduler)
#: Stands for what only one of a target and a state has.
ABSENT: Final = object()

Change = Callable[[Any, Any, Keys], Any]


def is_stateful(target: Any) -> bool:
    """Return whether something loads a state in a way of its own."""
    return hasattr(target, "state_dict") and hasattr(target, "load_state_dict")


def together(target: Any, state: Any, keys: Keys = ()) -> Iterator[tuple[Keys, Any, Any]]:
    """Yield what a target and a state have in one place: leaves, and what is stateful.

    `ABSENT` is in the place of what one of them lacks. If only the target has a container, the two
    are yielded.
    """
    wanted, saved = target, state
    if isinstance(target, list | tuple) and isinstance(state, list | tuple):
        wanted, saved = dict(enumerate(target)), dict(enumerate(state))
    if is_stateful(target) or not (isinstance(wanted, dict) and isinstance(saved, dict)):
        yield keys, target, state
        return
    for key in {**wanted, **saved}:
        inside = below(keys, str(key))
        if key in wanted and key in saved:
            yield from together(wanted[key], saved[key], inside)
        else:
            yield inside, wanted.get(key, ABSENT), saved.get(key, ABSENT)


def changed(target: Any, state: Any, change: Change, keys: Keys = (), entries: Change | None = None) -> Any:
    """Return a state with what `change` makes of it in the places of a target's parts.

    `entries` returns a dict of the state with the names of the target's.
    """
    if isinstance(state, Apart) or is_stateful(target):
        return change(target, state, keys)
    if isinstance(target, dict) and isinstance(state, dict):
        named = state if entries is None else entries(target, state, keys)
        return {
            key: changed(target[key], child, change, below(keys, str(key)), entries)
            if key in target
            else child
            for key, child in named.items()
        }
    if isinstance(target, list | tuple) and type(state) in (list, tuple):
        pairs = enumerate(zip(target, state, strict=False))
        items = [changed(*pair, change, below(keys, str(i)), entries) for i, pair in pairs]
        return type(state)([*items, *state[len(items) :]])
    return state


def assembled(target: Any, state: Any, keys: Keys) -> Any:
    """Return a state with its wrappers made where the target has one of their class."""
    if isinstance(state, Apart):
        return (
            put_together_like(target, state, leaf_name(keys) or "the state") if is_wrapper(target) else state
        )
    return changed(target.state_dict() if is_stateful(target) else target, state, assembled, keys)


class Matching:
    """What belongs to what in a target and a state."""

    def __init__(self, target: Any, renaming: Renaming, settings: str) -> None:
        self.report = LoadReport()  # what is renamed, and the parameters of optimizers
        self.problems: list[str] = []  # what cannot be matched, in words
        self.needs_values = False  # to compare or to move them, so that a hollow state is not enough
        self._renaming, self._settings = renaming, settings
        self._parameters = Parameters()
        self._optimizers: dict[int, OptimizerMatch] = {}
        # Path and value of each tensor of the target, by id; and itself, so that ids stay its own.
        self._values: dict[int, tuple[Keys, Any, Any]] = {}
        for keys, part, _ in together(target, target):
            if isinstance(part, torch.nn.Module):
                for name, parameter in part.named_parameters(remove_duplicate=False):
                    self._parameters.modules = True
                    self._parameters.owners[id(parameter)].append((leaf_name(keys), unwrapped(name)))
            elif isinstance(part, torch.Tensor):
                self._parameters.owners[id(part)].append((leaf_name(keys[:-1]), "".join(keys[-1:])))

    def in_terms_of(self, target: Any, state: Any, keys: Keys) -> Any:
        """Return a state with the names, numbers and groups of the target."""
        for stage in _STAGES:
            state = self._walk(target, state, keys, stage)
        return state

    def _walk(self, target: Any, state: Any, keys: Keys, stage: type | None) -> Any:
        entries = self._entries if stage is None else None
        return changed(target, state, partial(self._part, stage), keys, entries)

    def _part(self, stage: type | None, target: Any, state: Any, keys: Keys) -> Any:
        """Return the state of what is stateful in its terms, if it is its turn."""
        kind = next((kind for kind in _STAGES[1:] if isinstance(target, kind)), None)
        if isinstance(state, Apart) or kind is not stage or not isinstance(state, dict):
            return state
        if isinstance(target, torch.nn.Module):
            return self._module(target, state, keys)
        if isinstance(target, torch.optim.Optimizer):
            return self._optimizer(target, state, keys)
        if isinstance(target, _Scheduler):
            match = self._optimizers.get(id(target.optimizer))
            return state if match is None else of_groups(target.state_dict(), state, match.sources)
        own = target.state_dict()  # as of an average of weights
        return self._walk(own, state, keys, stage) if isinstance(own, dict) else state

    def _entries(self, target: dict[Any, Any], state: dict[Any, Any], keys: Keys) -> dict[Any, Any]:
        """Return the entries of a dict under the names that the target has for them."""
        if not all(isinstance(key, str) for items in (target, state) for key in items):
            return state
        place = leaf_name(keys)

        def renamed(name: str) -> str:
            new = self._renaming(name, place)
            return new if new != name else self._renaming(f"{name}/", place).removesuffix("/")

        names = self._named(target, state, renamed, keys)
        return {names[key] if names[key] in target else renamed(key): child for key, child in state.items()}

    def _named(self, target: Any, state: Any, renamed: Callable[[str], str], keys: Keys) -> dict[str, str]:
        names, problems = paired(target.keys(), state.keys(), renamed)
        self._note(problems, keys)
        for saved, wanted in names.items():
            if saved != wanted and wanted in target:
                self.report.renamed[leaf_name((*keys, saved))] = leaf_name((*keys, wanted))
        return names

    def _note(self, problems: list[str], keys: Keys) -> None:
        self.problems += [f"{leaf_name(keys) or 'the state'}: {problem}" for problem in problems]

    def _module(self, module: torch.nn.Module, state: dict[str, Any], keys: Keys) -> dict[str, Any]:
        wanted, place = module.state_dict(keep_vars=True), leaf_name(keys)
        names = self._named(wanted, state, lambda name: self._renaming(name, place), keys)
        part = {names[name]: value for name, value in state.items()}
        self._tie(wanted, part, keys)
        order = {id(parameter): i for i, parameter in enumerate(module.parameters())}
        ranks: dict[int, tuple[int, int]] = {}
        for rank, (name, new) in enumerate(names.items()):
            if (identity := id(wanted.get(new))) in order:
                self._parameters.saved[unwrapped(name)].add(identity)
                ranks.setdefault(identity, (order[identity], rank))
        self._parameters.ranks.append(ranks)
        return part

    def _tie(self, wanted: dict[str, Any], part: dict[str, Any], keys: Keys) -> None:
        """Give the names of tied tensors one value; note a problem if the state has several."""
        tied = defaultdict(list)
        for name, value in wanted.items():
            if isinstance(value, torch.Tensor):
                tied[id(value)].append(name)
        for number, names in tied.items():
            present = [name for name in names if isinstance(part.get(name), torch.Tensor)]
            for name in names if present else ():
                other = part.setdefault(name, part[present[0]])
                where, first, _ = self._values.setdefault(number, ((*keys, name), other, wanted[name]))
                if first is other or not isinstance(other, torch.Tensor):
                    continue
                if first.is_meta or other.is_meta:
                    self.needs_values = True
                elif not _same(first, other):
                    self.problems.append(
                        f"{leaf_name(where)} and {leaf_name((*keys, name))} differ, but are one tensor"
                        " of the target: take one of them out of the state, or do not tie them"
                    )

    def _optimizer(self, optimizer: torch.optim.Optimizer, state: dict[str, Any], keys: Keys) -> Any:
        if not is_optimizer_state(state):
            return state
        match = OptimizerMatch(optimizer, state, self._parameters, self._renaming)
        self._optimizers[id(optimizer)] = match
        self.needs_values |= match.reordered
        self._note(match.problems + (match.conflicts if self._settings == "saved" else []), keys)
        self.report.add(match.report, leaf_name(keys))
        return match.state


def _same(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Return whether two tensors have the same bits; wrappers count as the same."""
    if is_wrapper(first) or is_wrapper(second):
        return True
    if (first.shape, first.dtype) != (second.shape, second.dtype):
        return False
    values = (value.detach().cpu().reshape(-1).contiguous().view(torch.uint8) for value in (first, second))
    return not first.numel() or torch.equal(*values)
