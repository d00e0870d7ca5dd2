"""The states of PyTorch's optimizers and schedulers: whose moments they are, and what fits.

The state of an optimizer is ``{"state": {index: {entry: value}}, "param_groups": [{"params":
[index]}]}``: the indices number the parameters, group by group. A group also has settings. PyTorch
goes by the numbers alone. Here moments go by name: the saved numbers have names if the groups have
``param_names``, and the parameters of the target are looked up, by identity, in the modules of the
same call. Without names the order decides, unless something speaks against it. The groups of a
scheduler are those of its optimizer. Source: torch.optim of torch 2.13.

`Matching` puts a state into the terms of a target: names of modules and dicts, numbers and groups
of optimizers. All is matched together. The names of modules come first: they also say which
parameter is meant in the state of an optimizer. The groups of an optimizer say which values of a
scheduler are whose.
"""

from __future__ import annotations

import itertools
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, Final

import torch
from torch.nn.parameter import is_lazy
from torch.utils.weak import WeakIdKeyDictionary

from ...container.tree import leaf_name
from ...errors import ArgumentError
from ..matching import LoadReport, Renaming, paired, unwrapped
from ..tree import Keys, below
from .wrappers import TENSOR_TYPES, Apart, is_wrapper, put_together_like

#: Entries with the shape of their parameter.
ELEMENTWISE: Final = frozenset(
    [
        *("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "exp_inf", "momentum_buffer", "grad_avg"),
        *("square_avg", "acc_delta", "sum", "ax", "prev"),
    ]
)


def describe(value: Any) -> str:
    """Return the type and shape of a tensor, and the class of a wrapper, in words."""
    return _values(value) + (f" in {type(value).__name__}" if is_wrapper(value) else "")


def _values(value: Any) -> str:
    if is_lazy(value):
        return "a tensor without a shape yet"
    if not isinstance(value, torch.Tensor):
        return "no tensor"
    kind = type(value)
    whose = f" in {kind.__name__}" if kind.__module__.startswith("torch.distributed.") else ""
    return _words(value.dtype, value.shape) + whose


@lru_cache(maxsize=1 << 12)
def _words(dtype: torch.dtype, shape: torch.Size) -> str:
    return f"{str(dtype).removeprefix('torch.')} {tuple(shape)}"


#: Settings that only some optimizers have. A state with one that the target lacks is of another
#: kind.
_DISTINCTIVE: Final = frozenset(
    [
        *("betas", "momentum", "dampening", "nesterov", "alpha", "centered", "rho", "lr_decay"),
        *("lambd", "t0", "etas", "step_sizes", "amsgrad", "momentum_decay", "beta2_decay"),
        *("ns_steps", "history_size"),
    ]
)


#: Settings of a group that need entries of the state, which PyTorch makes only at the first step.
_WITH_ENTRIES: Final = ("amsgrad", "centered")
#: Entries of schedulers that have a value for each group of the optimizer.
_PER_GROUP: Final = frozenset(
    ["base_lrs", "_last_lr", "min_lrs", "max_lrs", "lr_lambdas", "base_momentums", "max_momentums"]
)
#: Entries of schedulers that say how training went, not what was asked for.
_OBSERVED: Final = ("best", "num_bad_epochs", "cooldown_counter", "last_epoch")

_NAMES: Final = "make optimizers from model.named_parameters(), so that their states have names"


def is_optimizer_state(state: Any) -> bool:
    """Return whether a value has the form of an optimizer's state."""
    return (
        isinstance(state, dict)
        and isinstance(state.get("state"), dict)
        and isinstance(state.get("param_groups"), list)
        and all(isinstance(g, dict) and isinstance(g.get("params"), list) for g in state["param_groups"])
    )


@dataclass
class Parameters:
    """The parameters in the modules of a call, by identity, and what a state calls them."""

    #: Whether there are modules.
    modules: bool = False
    #: Place and name of each parameter, by its id: several if it is tied.
    owners: dict[int, list[tuple[str, str]]] = field(default_factory=lambda: defaultdict(list))
    #: Ids by the names that the states of the modules have.
    saved: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    #: Of each module, for each id: its position in the module, and the one in the saved state.
    ranks: list[dict[int, tuple[int, int]]] = field(default_factory=list)

    def name(self, parameter: torch.Tensor, other: str) -> str:
        """Return the name of a parameter in its module, or `other`."""
        return self.owners[id(parameter)][0][1] if id(parameter) in self.owners else other

    def label(self, parameter: torch.Tensor) -> str:
        """Return place and name of a parameter."""
        return "/".join(filter(None, next(iter(self.owners.get(id(parameter), [])), ("a parameter", ""))))


class OptimizerMatch:
    """What belongs to what in an optimizer and a saved `state`, which is put into its terms."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        state: dict[str, Any],
        parameters: Parameters,
        renaming: Renaming,
    ) -> None:
        self.state, self.report = state, LoadReport()
        # For each group the saved group whose settings it has, or None if it is new.
        self.sources = list[int | None](range(len(state["param_groups"])))
        # What cannot be matched, in words; and the settings that nobody knows, unless the target's
        # stay.
        self.problems, self.conflicts = list[str](), list[str]()
        self.reordered = False  # whether values move within tensors: a hollow state is not enough
        self._groups, self._parameters, self._renaming = optimizer.param_groups, parameters, renaming
        self._saved: list[dict[str, Any]] = state["param_groups"]
        self._own = [parameter for group in self._groups for parameter in group["params"]]
        self._numbers = [number for group in self._saved for number in group["params"]]
        self._own_names = _names_of(self._groups)
        places = iter(range(len(self._own)))
        self._places = [[*itertools.islice(places, len(group["params"]))] for group in self._groups]
        if self._is_foreign():
            return
        names = _names_of(self._saved)
        if names is None and any("param_names" in group for group in self._saved):
            self.problems.append("its groups have 'param_names' for some of their parameters only")
            return
        chosen = None if names is None else self._by_name(names)
        if chosen is None:
            if [len(g["params"]) for g in self._saved] != [len(g["params"]) for g in self._groups]:
                if parameters.modules:
                    self.problems.append(
                        "its state has no names, so nobody knows whose moments are there: put 'param_names'"
                        f" into the saved groups, in their order; from now on, {_NAMES}"
                    )
                return
            chosen = self._by_order()
        if self.problems:
            return
        self.sources = self._sources(chosen)
        self._renumber(chosen, names, isinstance(optimizer, torch.optim.LBFGS))

    def _is_foreign(self) -> bool:
        """Return whether parameters are not those of the modules; note why."""
        owners = self._parameters.owners
        if self._own and self._parameters.modules and not any(id(p) in owners for p in self._own):
            self.problems.append(
                f"none of its {len(self._own)} parameters belongs to a module of this call: make it from the"
                " parameters that the modules have now, or leave the modules out of the call"
            )
        elif lost := [i for i, p in enumerate(self._own) if p.is_meta and id(p) not in owners]:
            self.problems.append(
                f"{len(lost)} of its parameters, of them first number {lost[0]}, are on the meta device and"
                " belong to no module of this call: load the module in the same call, or make the optimizer"
                " when the module has its values"
            )
        known = {name for names in owners.values() for _, name in names}
        for parameter, name in zip(self._own, self._own_names or [], strict=False):
            if not self.problems and id(parameter) not in owners and unwrapped(name) in known:
                self.problems.append(
                    f"its {name!r} is not the parameter of this name that the module has now"
                )
        return bool(self.problems)

    def _name(self, name: str) -> str:
        return unwrapped(self._renaming(unwrapped(name)))

    def _by_name(self, names: list[str]) -> list[int | None] | None:
        """Return the place of each saved parameter among the own; None if names say nothing."""
        if self._own_names and [*map(self._name, names)] == [*map(unwrapped, self._own_names)]:
            return list(range(len(self._own)))  # names may be there twice, of two modules
        places = {id(parameter): i for i, parameter in enumerate(self._own)}
        own, inner, outer = (defaultdict[str, set[int]](set) for _ in range(3))
        for parameter, name in zip(self._own, self._own_names or [], strict=False):
            own[unwrapped(name)].add(id(parameter))
        for owned, labels in self._parameters.owners.items():
            for place, name in labels:
                inner[name].add(owned)
                outer[f"{place}.{name}".replace("/", ".")].add(owned)
        chosen: list[int | None] = []
        taken: dict[int, str] = {}
        for name in names:
            text = self._name(name)
            hits = (
                own.get(text)
                or self._parameters.saved.get(unwrapped(name))
                or inner.get(text)
                or outer.get(text)
            )
            inside = sorted(places[hit] for hit in hits or () if hit in places)
            if len(inside) > 1:
                fitting = " or ".join(repr(self._parameters.label(self._own[i])) for i in inside)
                self.problems.append(f"{name!r} could be {fitting}")
            at = inside[0] if inside else None
            if at is not None and (first := taken.setdefault(at, name)) is not name:
                label = self._parameters.label(self._own[at])
                self.problems.append(f"{first!r} and {name!r} would both be {label!r}")
            chosen.append(at)
        if not self._own_names and len(names) == len(self._own) and set(chosen) == {None}:
            return None
        return chosen

    def _by_order(self) -> list[int | None]:
        """Return the places of saved parameters without names: their numbers, unless doubtful."""
        usual = list(range(len(self._own)))
        if _regrouped(self._groups, self._saved):
            self.problems.append(
                "the groups have the settings of the saved groups in another order, and no names: put"
                f" 'param_names' into the saved groups; from now on, {_NAMES}"
            )
        other, sure = self._order_of_modules()
        if other == usual:
            return [*usual]
        fits = [self._shapes_fit(order) for order in (usual, other)]
        if fits[1] and (fits[0] or not sure):
            self.problems.append(
                "the module has its parameters in another order than the saved one, and there are no names,"
                " so nobody knows whose moments these are: put 'param_names' into the saved groups, in their"
                f" order; from now on, {_NAMES}"
            )
        return [*other] if fits == [False, True] else [*usual]

    def _order_of_modules(self) -> tuple[list[int], bool]:
        """Return the places if each group was made of a module's parameters in the saved order.

        Also whether that is so of the groups and the order that the modules have now.
        """
        places = {id(parameter): i for i, parameter in enumerate(self._own)}
        order, sure = list(range(len(self._own))), True
        for group in self._groups:
            for ranks in self._parameters.ranks:
                ids = [id(parameter) for parameter in group["params"] if id(parameter) in ranks]
                sure &= ids == sorted(ids, key=lambda number: ranks[number][0])
                saved = sorted(ids, key=lambda number: ranks[number][1])
                now = sorted(ids, key=lambda number: ranks[number][0])
                if saved != now:
                    for number, before in zip(ids, saved, strict=True):
                        order[places[number]] = places[before]
        return order, sure

    def _shapes_fit(self, order: Sequence[int]) -> bool:
        for number, at in zip(self._numbers, order, strict=True):
            entries = self.state["state"].get(number)
            kept = entries.items() if isinstance(entries, dict) else ()
            moments = [value for entry, value in kept if entry in ELEMENTWISE]
            if any(isinstance(v, torch.Tensor) and v.shape != self._own[at].shape for v in moments):
                return False
        return True

    def _sources(self, chosen: Sequence[int | None]) -> list[int | None]:
        """Return for each group the saved one that its parameters come from."""
        flat = [i for i, group in enumerate(self._saved) for _ in group["params"]]
        source_of = dict(zip(chosen, flat, strict=True))
        empty = [i for i, group in enumerate(self._saved) if not group["params"]]
        origins: list[int | None] = []
        for places in self._places:
            sources = list(dict.fromkeys(source_of[at] for at in places if at in source_of))
            if not places and empty:
                sources = [empty.pop(0)]
            origins.append(sources[0] if sources else None)
            for other in sources[1:]:
                if differing := _differing(self._saved[sources[0]], self._saved[other]):
                    self.conflicts.append(
                        f"group {len(origins) - 1} has parameters of the saved groups {sources[0]} and"
                        f" {other}, whose {', '.join(differing)} differ: settings='target' keeps those of"
                        " the target"
                    )
        return origins

    def _renumber(self, chosen: Sequence[int | None], names: list[str] | None, flat: bool) -> None:
        """Make the state with the numbers and groups of the optimizer."""
        saved = self.state["state"]
        entries = {
            at: saved[number]
            for number, at in zip(self._numbers, chosen, strict=True)
            if at is not None and number in saved
        }
        labels = names or [str(number) for number in self._numbers]
        if flat and chosen != list(range(len(self._own))) and entries:
            entries = self._flat(saved.get(self._numbers[0], {}), chosen)
        known = set(self._numbers)
        unknown = {f"{number}": child for number, child in saved.items() if number not in known}
        groups: list[dict[str, Any]] = []
        label_of = dict(zip(chosen, labels, strict=True))
        for group, source, places in zip(self._groups, self.sources, self._places, strict=True):
            settings = dict(group if source is None else self._saved[source])
            for key in _differing(settings, group):
                self.report.settings[f"param_groups/{len(groups)}/{key}"] = settings[key], group[key]
            if "param_names" in group:  # in the place that it had in the saved group
                settings["param_names"] = list(group["param_names"])
            elif names is not None and all(at in label_of for at in places):
                settings["param_names"] = [label_of[at] for at in places]
            else:
                settings.pop("param_names", None)
            groups.append({**settings, "params": places})
        self.state = {**self.state, "state": {**entries, **unknown}, "param_groups": groups}
        for at, parameter in enumerate(self._own):
            name = self._own_names[at] if self._own_names else self._parameters.name(parameter, str(at))
            (self.report.loaded if at in label_of else self.report.missing).append(name)
        self.report.left_over += [label for label, at in zip(labels, chosen, strict=True) if at is None]

    def _flat(self, entry: dict[str, Any], chosen: Sequence[int | None]) -> dict[int, Any]:
        """Return the state of LBFGS reordered: it has vectors of all parameters end to end."""
        sizes = [0 if at is None else self._own[at].numel() for at in chosen]
        if sorted(at for at in chosen if at is not None) != list(range(len(self._own))) or None in chosen:
            self.report.left_over.append("the state of LBFGS, which is of all parameters together")
            return {}
        self.reordered = True
        order = sorted(range(len(chosen)), key=lambda i: chosen[i] or 0)

        def moved(value: Any) -> Any:
            if isinstance(value, list):
                return [moved(child) for child in value]
            if isinstance(value, torch.Tensor) and value.shape == (sum(sizes),) and len(sizes) > 1:
                parts = torch.split(value, sizes)
                return torch.cat([parts[i] for i in order])
            return value

        return {0: {key: moved(value) for key, value in entry.items()}}


def _names_of(groups: Sequence[Mapping[str, Any]]) -> list[str] | None:
    """Return the names of all parameters of some groups; None if they do not all have names."""
    names: list[str] = []
    for group in groups:
        listed = group.get("param_names", group["params"])
        if not isinstance(listed, list | tuple) or len(listed) != len(group["params"]):
            return None
        if not all(isinstance(name, str) for name in listed):  # DCP has names in the place of numbers
            return None
        names += listed
    return names or None


def _settings(group: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in group.items() if key not in ("params", "param_names")}


def _differing(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[str]:
    """Return the settings in which two groups differ; tensors are not compared."""
    first, second = (
        {
            k: tuple(v) if isinstance(v, list) else v
            for k, v in _settings(group).items()
            if not torch.is_tensor(v)
        }
        for group in (first, second)
    )
    return [key for key in first if key in second and first[key] != second[key]]


def _regrouped(groups: Sequence[Mapping[str, Any]], saved: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether groups have the settings of saved groups in another order.

    Learning rates change while one trains, so what they were at first is compared if it is known.
    """
    rates = "initial_lr" if all("initial_lr" in group for group in (*groups, *saved)) else "lr"
    keys = [(group.get(rates), group.get("weight_decay")) for group in groups]
    others = [(group.get(rates), group.get("weight_decay")) for group in saved]
    if any(isinstance(value, torch.Tensor) for pair in (*keys, *others) for value in pair):
        return False
    return keys != others and sorted(map(repr, keys)) == sorted(map(repr, others))


def of_groups(own: Any, state: dict[str, Any], sources: Sequence[int | None]) -> dict[str, Any]:
    """Return the state of a scheduler with its values for the groups that the optimizer has now.

    `own` is the state that it has itself, and `sources` are those of an `OptimizerMatch`.
    """
    made, known = dict(state), [source for source in sources if source is not None]
    for key in _PER_GROUP & state.keys() & own.keys():
        saved, kept = state[key], own[key]
        fits = isinstance(saved, list | tuple) and len(saved) > max(known, default=0)
        if fits and len(kept) == len(sources):
            made[key] = type(saved)(kept[i] if at is None else saved[at] for i, at in enumerate(sources))
    if isinstance(inner := state.get("_schedulers"), list | tuple):
        pairs = zip(own["_schedulers"], inner, strict=False)
        made["_schedulers"] = [of_groups(*pair, sources) for pair in pairs]
    return made


def uneven(own: Mapping[str, Any], state: Mapping[str, Any], place: str) -> Iterator[str]:
    """Yield the entries of a scheduler that have values for another number of groups."""
    for key in sorted(_PER_GROUP & state.keys() & own.keys()):
        if (length := len(state[key])) != (wanted := len(own[key])):
            yield f"{place}{key}: of {length} groups, where the target has {wanted}"
    if isinstance(inner := state.get("_schedulers"), list | tuple):
        for i, pair in enumerate(zip(own.get("_schedulers", ()), inner, strict=False)):
            yield from uneven(*pair, f"{place}_schedulers/{i}/")


#: Tensors of states whose memory an optimizer or a module has taken, and their versions then.
_TAKEN: Final[Any] = WeakIdKeyDictionary()


def taken(state: Any) -> Any:
    """Return a state, or tensors in dicts and lists, that an optimizer or a module may change.

    The first one takes the memory of the tensors, as in PyTorch; a later one gets copies.
    """
    if type(state) in (dict, list, tuple):
        items = state.items() if isinstance(state, dict) else enumerate(state)
        made = {key: taken(value) for key, value in items}
        return made if isinstance(state, dict) else type(state)(made.values())
    if type(state) is not torch.Tensor or state.is_inference():
        return state
    if state in _TAKEN:
        return state.clone()
    _TAKEN[state] = state._version
    return state.detach()  # another object, so that the state of its new owner is not taken for this one


def is_used_up(state: Any) -> bool:
    """Return whether what has taken the tensors of a state has changed them since."""
    if isinstance(state, dict | list | tuple):
        return any(map(is_used_up, state.values() if isinstance(state, dict) else state))
    return isinstance(state, torch.Tensor) and state in _TAKEN and state._version != _TAKEN[state]


def load_optimizer(optimizer: torch.optim.Optimizer, state: Any, settings: str = "saved") -> None:
    """Load a state that fits; with `settings` ``"target"`` its groups keep their own settings.

    Settings that the state lacks stay, after PyTorch has filled in the former behaviour of options
    that it added. Entries of parameters that the optimizer does not have are left out.
    """
    own = [dict(group) for group in optimizer.param_groups]
    known = {index for group in state["param_groups"] for index in group["params"]}
    entries = {index: taken(child) for index, child in state["state"].items() if index in known}
    groups = state["param_groups"]
    if settings == "target":
        groups = [{**saved, **_settings(group)} for saved, group in zip(groups, own, strict=True)]
    optimizer.load_state_dict({**state, "state": entries, "param_groups": groups})
    for group, before in zip(optimizer.param_groups, own, strict=True):
        for key, value in before.items():
            group.setdefault(key, value)


def load_schedule(schedulers: Sequence[tuple[Any, dict[str, Any]]]) -> None:
    """Bring schedulers of one optimizer, with their own settings, to the steps of their states.

    They are stepped, together, as the program would have done from the start. What is observed,
    such as the best loss, is loaded. A scheduler that is further than its state is an error.
    """
    left = []
    for scheduler, state in schedulers:
        if isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
            vars(scheduler).update({key: state[key] for key in _OBSERVED if key in state})
            continue
        steps = _position(state) - _position(scheduler.state_dict())
        if steps < 0:
            raise ArgumentError(
                f"a {type(scheduler).__name__} is {-steps} steps further than its state:"
                " settings='target' needs a new one"
            )
        left.append((scheduler, steps))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the optimizer does not step meanwhile
        for step in range(max((steps for _, steps in left), default=0)):
            for scheduler, steps in left:
                if step < steps:
                    scheduler.step()


def _position(state: Mapping[str, Any]) -> int:
    """Return how often a scheduler was stepped; one that is made of others may not say it."""
    if "last_epoch" not in state and state.get("_schedulers"):
        return _position(state["_schedulers"][0])
    return int(state.get("last_epoch", 0))


def misfits(
    optimizer: torch.optim.Optimizer,
    state: Any,
    keys: tuple[str, ...],
    strict: bool = True,
    settings: str = "saved",
) -> Iterator[str]:
    """Yield everything in a state that does not fit this optimizer with these parameters.

    PyTorch only checks the number of parameters, and casts moments. Missing and unexpected entries
    are misfits if `strict`, a missing setting if others show another kind of optimizer. With the
    settings of the target, what these need must have been saved.
    """
    where = leaf_name(keys) or "the state"
    groups = optimizer.param_groups
    if not is_optimizer_state(state):
        yield f"{where}: not the state of an optimizer"
        return
    counts = [len(group["params"]) for group in groups]
    sizes = [len(group["params"]) for group in state["param_groups"]]
    if sizes != counts:
        yield f"{where}: groups of {sizes} parameters, where the target has groups of {counts}"
        return
    parameters: dict[Any, torch.Tensor] = {}
    for position, (group, saved) in enumerate(zip(groups, state["param_groups"], strict=True)):
        place = leaf_name((*keys, "param_groups", str(position)))
        if (saved.keys() - group.keys()) & _DISTINCTIVE:
            yield from (f"missing: {place}/{key}" for key in group if key not in saved)
        with_entries = [*_WITH_ENTRIES, *(["momentum"] if "alpha" in group else [])]  # RMSprop's
        for key in with_entries if settings == "target" and state["state"] else ():
            if group.get(key) and not saved.get(key, True):
                yield f"{place}/{key}: was off, so its moments were not saved: turn it off"
        parameters.update(zip(saved["params"], group["params"], strict=True))
    for index, entries in state["state"].items():
        if index in parameters and isinstance(entries, dict):
            own = optimizer.state.get(parameters[index], {})
            for kind, text in _entry_misfits(parameters[index], own, entries, strict):
                yield f"{kind}{leaf_name((*keys, 'state', str(index)))}/{text}"
        elif strict or index in parameters:
            yield f"unexpected: {leaf_name((*keys, 'state', str(index)))}"


def _entry_misfits(
    parameter: torch.Tensor, own: Mapping[str, Any], entries: Mapping[str, Any], strict: bool
) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with the entries of a parameter: what goes before and after its name."""
    if own and strict:
        yield from (("missing: ", entry) for entry in own if entry not in entries)
        yield from (("unexpected: ", entry) for entry in entries if entry not in own)
    for entry, value in entries.items():
        kept = own.get(entry)
        shaped = entry in ELEMENTWISE and value is not None  # SGD without momentum has None
        if (not shaped or alike(value, parameter)) and (kept is None or alike(value, kept)):
            continue
        pairs = []
        if shaped:
            # One of the two may be a wrapper: of low-bit moments, or of a low-bit weight.
            pairs.append((_values(value), _values(parameter)))
        if isinstance(kept, torch.Tensor) and (not pairs or is_wrapper(kept) or is_wrapper(value)):
            pairs.append((describe(value), describe(kept)))
        for saved, wanted in pairs:
            if saved != wanted:
                yield "", f"{entry}: {saved}, where the target has {wanted}"
                break


def alike(first: Any, second: Any) -> bool:
    """Return whether two values are tensors, and no wrappers, of one type and shape."""
    plain = type(first) in TENSOR_TYPES and type(second) in TENSOR_TYPES
    return plain and first.dtype == second.dtype and first.shape == second.shape


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

    `ABSENT` stands for what one of them lacks; a container of the target alone is yielded.
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
    """Return a state with what `change` makes of its parts; `entries` renames dicts before."""
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
