"""A state goes into modules, optimizers and tensors as a whole; if anything differs, not at all."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, Literal, TypeVar

import torch

from ...chain.read.checkpoint import Arrivals
from ...container.tree import leaf_name
from ...errors import ArgumentError, warn
from ..tree.matching import LoadReport, Renaming, check_same, part_of, some
from ..tree.plain import Keys, below
from .filling import Filling, Layers, loads_otherwise
from .matching import ABSENT, Matching, assembled, is_stateful, together
from .optimizer import alike, describe, misfits, uneven
from .states import OnDevice, arrived, has_wrappers, hollow
from .wrappers import Apart

Target = TypeVar("Target")

_CONTAINERS: Final = (dict, list, tuple)
_WITH_ARRAYS: Final = (torch.Tensor, torch.nn.Module, torch.optim.Optimizer)
#: Entries that ``load_state_dict`` of a scheduler needs. All others may be missing.
_NEEDED_OF_SCHEDULERS: Final = ("lr_lambdas", "_schedulers")


def load_into(
    target: Target,
    state: Any,
    *,
    strict: bool = True,
    prefix: str = "",
    rename: Mapping[str, str] | None = None,
    settings: Literal["saved", "target"] = "saved",
    report: Callable[[LoadReport], object] | None = None,
) -> Target:
    """Check all of a state, then load it into modules, optimizers, schedulers and tensors.

    All is matched together, by name; docs/resuming.md says how. If anything does not fit, `target`
    is unchanged.

    Parameters
    ----------
    target
        A module, an optimizer, anything else with ``state_dict`` and ``load_state_dict``, a tensor,
        or a nested dict, list or tuple of these and of plain values, as ``{"model": model,
        "optimizer": optimizer, "step": 0}``. Tensors are overwritten in place. Tensors on the meta
        device are replaced, also in the optimizers of the call.
    state
        The saved state of the same things, or the leaves of a chain as ``chain.restore_iter()``
        yields them: then modules are set layer by layer while the rest is decoded. Settings of an
        optimizer's groups and attributes of a scheduler may be missing, or be more.
    strict
        If False, entries that only one of the two has are skipped, parameters and groups of an
        optimizer too, and an `LccodecWarning` says which. Shapes and types must still fit.
    prefix
        The part of the state that belongs to the target: the path of an entry, as ``"run/model"``.
        One that ends in a dot, as ``"module."``, stands for all keys that begin with it.
    rename
        New names for entries of the state, by name or pattern, as ``{"encoder.*": "backbone.*"}``
        (see `lccodec.adapters.tree.matching.Renaming`).
    settings
        ``"saved"``: settings of optimizers and schedulers are those of the state. ``"target"``:
        those of the target stay, and its schedulers are stepped as often as the saved ones were.
    report
        Is called with a `LoadReport` of what was loaded, renamed, missing and left over.

    Returns
    -------
    object
        `target`. Its dicts and lists now hold the plain values of the state.

    Raises
    ------
    ArgumentError
        Lists up to ten entries of each kind that are missing, unexpected, of another shape or
        dtype, or of which nobody knows what they belong to. Also if not one array fits.
    DataError, ChainError, StorageError
        If leaves of a chain cannot be decoded. Then a part of `target` may be set.

    Examples
    --------
    >>> training = {"model": torch.nn.Linear(2, 1).state_dict(), "step": 3}
    >>> load_into(torch.nn.Linear(2, 1), training, prefix="model")
    Linear(in_features=2, out_features=1, bias=True)
    >>> compiled = {f"_orig_mod.{name}": value for name, value in training["model"].items()}
    >>> _ = load_into(torch.nn.Linear(2, 1), compiled, report=lambda loaded: print(loaded.renamed))
    {'_orig_mod.weight': 'weight', '_orig_mod.bias': 'bias'}
    """
    if settings not in ("saved", "target"):
        raise ArgumentError(f"settings must be 'saved' or 'target'; got {settings!r}")
    if not (report is None or callable(report)):
        raise ArgumentError(f"report must be a function such as print; got {report!r}")
    load = _Load(target, strict, prefix, rename, settings)
    if isinstance(state, Arrivals):
        with state:
            filled: Target = load.arriving(state)
    else:
        filled = load.whole(state)
    load.report.tell(report, strict=strict)
    return filled


class _Load:
    """One call of `load_into`."""

    def __init__(self, target: Any, strict: bool, prefix: Any, rename: Any, settings: str) -> None:
        self._target, self._strict, self._prefix = target, strict, prefix
        self._rename, self._settings = rename, settings
        self._filling = Filling(target)

    def whole(self, state: Any) -> Any:
        """Load a state."""
        return self._fill(self._fitting(state))

    def arriving(self, arrivals: Arrivals) -> Any:
        """Check what a chain holds, then load it as it arrives.

        All leaves are decoded first if their values decide what fits, and if there is a wrapper: it
        is made of several leaves.
        """
        own = arrivals.adapter if isinstance(arrivals.adapter, OnDevice) else OnDevice("cpu")
        if has_wrappers(arrivals.metadata):
            return self.whole(arrived(arrivals, own.device))
        state, expected = hollow(arrivals)
        part = self._fitting(state)
        if self._match.needs_values or self._check.asked:
            return self.whole(arrived(arrivals, own.device))
        layers = Layers(self._target, part, expected)
        for name, value in arrivals.arrays:
            if name in expected:
                layers.arrived(expected[name], own.from_numpy(value, arrivals.metadata, name))
        return self._fill(layers.rest(), layers.tensors)

    def _fitting(self, state: Any) -> Any:
        """Return the part of a state that the prefix names, in the terms of the target.

        Raises an ``ArgumentError`` if it does not fit.
        """
        part, keys = part_of(state, self._prefix)
        renaming = Renaming(self._rename)
        self._match = match = Matching(self._target, renaming, self._settings)
        part = match.in_terms_of(self._target, part, keys)
        renaming.check_used()
        if isinstance(part, _CONTAINERS) and _has_apart(part):
            part = assembled(self._target, part, keys)
        self._check = check = _Check(self._strict, self._settings)
        check.compare(self._target, part, keys)
        check.raise_problems(match)
        return part

    def _fill(self, part: Any, done: Collection[int] = ()) -> Any:
        asked = self._check.asked
        try:
            filled = self._filling.fill(part, self._settings, self._strict, asked, done)
        except ArgumentError as refusal:
            if self._filling.refused in asked:
                asked[self._filling.refused][1].raise_problems(self._match, str(refusal))
            raise
        self.report = report = self._check.report
        for number, told in self._filling.told.items():
            keys, inside = asked[number]
            report.missing += (lacking := [leaf_name((*keys, key)) for key in told.missing_keys])
            report.left_over += [leaf_name((*keys, key)) for key in told.unexpected_keys]
            both = dict.fromkeys([*inside.report.loaded, *inside.wanted])
            report.loaded += [name for name in both if name not in lacking]
        report.add(self._match.report)
        if self._filling.meta:
            self._tell_meta()
        return filled

    def _tell_meta(self) -> None:
        left = [
            leaf_name((*keys, name))
            for keys, part, _ in together(self._target, self._target)
            if isinstance(part, torch.nn.Module)
            for name, tensor in (*part.named_parameters(), *part.named_buffers())
            if tensor.is_meta
        ]
        if left:
            warn(f"{len(left)} tensors of the target are still on the meta device: {some(left)}")


def _has_apart(state: Any) -> bool:
    """Return whether a state has wrappers whose class is not allowed."""
    items: Any = state.values() if isinstance(state, dict) else state
    return isinstance(state, Apart) or any(_has_apart(v) for v in items if isinstance(v, _CONTAINERS))


class _Check:
    """The leaves of a target and of a state by name, each described in words."""

    def __init__(self, strict: bool, settings: str) -> None:
        self.report = LoadReport()  # without optimizers
        # Of modules that may take what does not fit, place and what that is, by id.
        self.asked: dict[int, tuple[Keys, _Check]] = {}
        self.wanted, self.saved = dict[str, str](), dict[str, str]()
        self._more = list[str]()
        self._arrays, self._common = 0, 0  # tensors of the target, and those that the state has too
        self._strict, self._settings = strict, settings

    def raise_problems(self, match: Matching, refusal: str | None = None) -> None:
        """Raise an ArgumentError if anything does not fit."""
        more = [*match.problems, *self._more]
        if refusal is not None:
            more.append(refusal)
        elif self.asked and (more or self.wanted != self.saved):
            for _, check in self.asked.values():  # it is refused in any case, so nobody is asked
                both = check.wanted.keys() & check.saved.keys()
                for own, theirs in ((self.wanted, check.wanted), (self.saved, check.saved)):
                    own |= {name: words for name, words in theirs.items() if self._strict or name in both}
        if self._strict:
            self.wanted |= dict.fromkeys(match.report.missing, "a parameter that the saved optimizer lacks")
            self.saved |= dict.fromkeys(match.report.left_over, "a parameter of the saved optimizer")
        elif self._arrays and not self._common and not match.report.loaded and not self.asked:
            more.append("not one array of the state fits the target")
            self.wanted |= dict.fromkeys(self.report.missing, "not in the state")
            self.saved |= dict.fromkeys(self.report.left_over, "not in the target")
        advice = "strict=False skips what only one of the two has" if self._strict else ""
        check_same(self.wanted, self.saved, more, advice)

    def compare(self, target: Any, state: Any, keys: Keys) -> None:
        """Compare all of a target with a state in its terms."""
        for place, part, other in together(target, state, keys):
            if part is ABSENT or other is ABSENT:
                self._alone(part, other, leaf_name(place))
            elif isinstance(part, torch.optim.Optimizer):
                self._more += misfits(part, other, place, self._strict, self._settings)
            elif isinstance(part, torch.nn.Module):
                self._module(part, other, place)
            elif is_stateful(part):
                self._other(part, other, place)
            elif isinstance(part, _CONTAINERS):
                self._more.append(_several_wanted(other, place))
            else:
                self._leaf(part, other, place)

    def _module(self, module: torch.nn.Module, state: Any, keys: Keys) -> None:
        wanted, check = module.state_dict(), _Check(True, self._settings)
        check._items(wanted, state, keys)
        lacking = loads_otherwise(module) or check._lacks_counts()
        if isinstance(state, dict) and check.wanted != check.saved and lacking:
            check._strict = self._strict
            self.asked[id(module)] = keys, check
            for name in check.wanted.keys() & check.saved.keys():  # modules cast; here that is refused
                own, theirs = check.wanted[name], check.saved[name]
                if own != theirs and own.partition(" ")[2] == theirs.partition(" ")[2] != "tensor":
                    self.wanted[name], self.saved[name] = own, theirs
            return
        arrays, common = self._arrays, self._common
        self._items(wanted, state, keys)
        if state and not self._strict and self._arrays > arrays and self._common == common:
            place, count = leaf_name(keys) or "the state", self._arrays - arrays
            self._more.append(f"{place}: not one of the {count} tensors of the module is there")

    def _lacks_counts(self) -> bool:
        """Return whether all that does not fit are counts of batches that the state lacks."""
        both = {**self.wanted, **self.saved}
        differing = [name for name in both if self.wanted.get(name) != self.saved.get(name)]
        return all(n.endswith("num_batches_tracked") and n not in self.saved for n in differing)

    def _other(self, target: Any, state: Any, keys: Keys) -> None:
        """Compare the tensors in what has a state of its own. The state may have more entries."""
        wanted = target.state_dict()
        if isinstance(target, torch.optim.lr_scheduler.LRScheduler) and isinstance(state, dict):
            if self._settings == "target":
                return  # it keeps its own
            self._more += uneven(wanted, state, f"{leaf_name(keys)}/" if keys else "")
            wanted = {key: wanted[key] for key in wanted if key in state or key in _NEEDED_OF_SCHEDULERS}
        if isinstance(state, dict):
            state = {key: state[key] for key in state if key in wanted}
        self._items(wanted, state, keys)

    def _items(self, target: dict[Any, Any], state: Any, keys: Keys) -> None:
        """Compare the entries of what loads them itself."""
        if not isinstance(state, dict):
            self._more.append(_several_wanted(state, keys))
            return
        for key in {**target, **state}:
            place = below(keys, str(key))
            if key in target and key in state:
                self._leaf(target[key], state[key], place)
            else:
                self._alone(target.get(key, ABSENT), state.get(key, ABSENT), leaf_name(place))

    def _alone(self, target: Any, state: Any, name: str) -> None:
        """Note what only one of the two has."""
        if target is not ABSENT:
            parts = (part for _, part, _ in together(target, target))
            self._arrays += any(isinstance(part, _WITH_ARRAYS) for part in parts)
        if self._strict:
            own, words = (self.saved, state) if target is ABSENT else (self.wanted, target)
            own[name] = describe(words) if isinstance(words, torch.Tensor) else type(words).__name__
        else:
            (self.report.left_over if target is ABSENT else self.report.missing).append(name)

    def _leaf(self, target: Any, state: Any, keys: Keys) -> None:
        name = leaf_name(keys)
        self.report.loaded.append(name)
        self._arrays += isinstance(target, torch.Tensor)
        self._common += isinstance(target, torch.Tensor)
        if not alike(target, state):
            self.wanted[name], self.saved[name] = describe(target), describe(state)


def _several_wanted(state: Any, keys: Keys) -> str:
    return f"{leaf_name(keys) or 'the state'}: {describe(state)}, where the target has several"
