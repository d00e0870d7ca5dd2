"""A state goes into modules, optimizers and tensors as a whole; if anything differs, not at all.

What may refuse a state comes first, and can be undone: modules that load in a way of their own,
optimizers, schedulers, and what else has a ``load_state_dict``. What cannot fail comes last, and is
not copied before: all other modules and tensors. While a chain is decoded, layers of these are set
as soon as all of their own entries have arrived; a layer is a module without its children.

A module on the meta device gets new parameters. Whatever knows the old ones then gets the new ones:
names that are tied, and optimizers.

An update of a follower goes into modules and tensors in place: only the values that differ.
It has two steps. `stage` checks all of it and copies the new values to the devices, while the model
is in use. `Staged.apply` is the short step during which nobody may use the model: it writes a few
places of each tensor, on its device. Tensors keep their memory, so captured graphs stay valid.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal, TypeVar

import numpy as np
import torch
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.module import _IncompatibleKeys
from torch.nn.parameter import is_lazy

from ...chain.read.checkpoint import Arrivals
from ...chain.read.follower import Update
from ...container.tree import leaf_name
from ...errors import ArgumentError, LccodecError, warn
from ..matching import (
    LoadReport,
    Renaming,
    check_report,
    check_same,
    checked_prefix,
    part_of,
    some,
    unwrapped,
)
from ..tree import BYTE_TYPES, Keys, below, read_types
from .optimizer import (
    ABSENT,
    Matching,
    alike,
    assembled,
    describe,
    is_stateful,
    is_used_up,
    load_optimizer,
    load_schedule,
    misfits,
    taken,
    together,
    uneven,
)
from .states import OnDevice, arrived, as_tensor, has_wrappers, hollow, wait_for
from .wrappers import Apart, copy_into, inner_tensors, is_wrapper

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
        (see `lccodec.adapters.matching.Renaming`).
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
        dtype, or of which nobody knows what they belong to. Also if not one array fits, and if the
        state was loaded before: optimizers, and modules on the meta device, take its tensors, and
        may have changed them.
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
    check_report(report)
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

        All is decoded first if values decide what fits, and for wrappers, made of several leaves.
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
        """Return the part that the prefix names, in terms of the target, if it fits; else raise."""
        part, keys = part_of(state, self._prefix)
        if is_used_up(part):
            raise ArgumentError(
                "this state was loaded before, and what took its tensors has changed them since: restore it"
                " again, or load copy.deepcopy(state) each time"
            )
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
        left = [
            leaf_name((*keys, name))
            for keys, part, _ in (together(self._target, self._target) if self._filling.meta else ())
            if isinstance(part, torch.nn.Module)
            for name, tensor in (*part.named_parameters(), *part.named_buffers())
            if tensor.is_meta
        ]
        if left:
            warn(f"{len(left)} tensors of the target are still on the meta device: {some(left)}")
        return filled


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


#: Characters of what others say that an error repeats: PyTorch lists every name.
_MAX_WORDS: Final = 500
#: What `Layers.rest` has in the place of the state of a module that is set already.
SET: Final = object()

#: Ways to load the entries of one module that take what has the names and shapes of its own. That
#: of norms also counts batches from 0 if the state does not say how many there were.
_USUAL: Final = (torch.nn.Module._load_from_state_dict, _NormBase._load_from_state_dict)
_HOOKS: Final = ("_load_state_dict_pre_hooks", "_load_state_dict_post_hooks", "_state_dict_hooks")


class Filling:
    """Loads a state into a target, which is looked at before anything is loaded."""

    def __init__(self, target: Any) -> None:
        self._target = target
        self.told: dict[int, Any] = {}  # what the modules that were asked have returned, by id
        self.refused: int | None = None  # the id of what has refused its state
        parts = [part for _, part, _ in together(target, target)]
        self._optimizers = [part for part in parts if isinstance(part, torch.optim.Optimizer)]
        modules = [part for part in parts if isinstance(part, torch.nn.Module)]
        meta = [m for m in modules if any(tensor.is_meta for tensor in (*m.parameters(), *m.buffers()))]
        self.meta = {id(module) for module in meta}
        self._slots = [
            (place, name, parameter)
            for module in meta
            for place in module.modules()
            for name, parameter in place._parameters.items()
            if parameter is not None
        ]

    def fill(
        self, state: Any, settings: str, strict: bool, asked: Collection[int], done: Collection[int]
    ) -> Any:
        """Load a state that fits, and return the target with the plain values of the state.

        `asked` has ids of modules of which only they know what fits, `done` those of tensors that
        are set. After an ``ArgumentError``, that something refuses its state, the target is
        unchanged.
        """
        both = together(self._target, state)
        parts = [
            part for part in both if is_stateful(part[1]) and part[2] is not SET and part[2] is not ABSENT
        ]
        modules = [part for part in parts if isinstance(part[1], torch.nn.Module)]
        others = [part for part in parts if not isinstance(part[1], torch.nn.Module)]
        first = [
            p
            for p in modules
            if id(p[1]) in asked or id(p[1]) in self.meta or any(map(is_special, p[1].modules()))
        ]
        with _Undo() as undo:
            for keys, module, part in first:
                meta = id(module) in self.meta
                undo.module(module, contents=not meta or id(module) in asked)
                with self._asking(keys, module):
                    told = _load_module(module, part, strict, assign=meta)
                    if id(module) in asked:
                        self.told[id(module)] = told or _IncompatibleKeys([], [])
                        if {*self.told[id(module)].missing_keys} >= {*module.state_dict()}:
                            raise ValueError("not one of its entries is there")
            self._rebind(undo)
            for keys, optimizer, part in others:
                if isinstance(optimizer, torch.optim.Optimizer):
                    undo.optimizer(optimizer)
                    with self._asking(keys, optimizer):
                        load_optimizer(optimizer, part, settings)
            self._load_schedulers(others, settings, undo)
            for keys, thing, part in others:
                if not isinstance(thing, torch.optim.Optimizer | torch.optim.lr_scheduler.LRScheduler):
                    undo.other(thing)
                    with self._asking(keys, thing):
                        thing.load_state_dict(part)
            for _, module, part in modules:
                if not any(module is before for _, before, _ in first):
                    _load_module(module, part, strict, assign=False)
            undo.pop_all()
        return _contained(self._target, state, done)

    @contextmanager
    def _asking(self, keys: Keys, target: Any) -> Iterator[None]:
        """Raise what the code of others raises as an error of ours."""
        try:
            yield
        except (LccodecError, MemoryError):
            raise
        except Exception as error:
            self.refused = id(target)
            words = " ".join(str(error).split())
            words = words if len(words) <= _MAX_WORDS else f"{words[:_MAX_WORDS]}..."
            where = leaf_name(keys) or "the target"
            raise ArgumentError(f"{where}: {type(target).__name__} refuses the state: {words}") from error

    def _load_schedulers(self, others: list[tuple[Keys, Any, Any]], settings: str, undo: _Undo) -> None:
        by_optimizer: dict[int, list[tuple[Any, Any]]] = {}
        for keys, scheduler, part in others:
            if not isinstance(scheduler, torch.optim.lr_scheduler.LRScheduler):
                continue
            undo.scheduler(scheduler)
            if settings == "target":
                by_optimizer.setdefault(id(scheduler.optimizer), []).append((scheduler, part))
                continue
            with self._asking(keys, scheduler):
                scheduler.load_state_dict(part)
        for schedulers in by_optimizer.values():
            with self._asking((), schedulers[0][0]):
                load_schedule(schedulers)

    def _rebind(self, undo: _Undo) -> None:
        """Give all that knew a parameter on the meta device the one that its module has now."""
        made: dict[int, torch.nn.Parameter] = {}
        memory: dict[int, int] = {}
        for place, name, before in self._slots:
            now = place._parameters.get(name)
            if now is None or now is before:
                continue
            if id(before) in made:
                place._parameters[name] = made[id(before)]
                continue
            made[id(before)] = now
            if is_wrapper(now) or now.is_meta or not now.numel():
                continue
            if memory.setdefault(now.data_ptr(), id(before)) != id(before):
                now.data = now.data.clone()  # tied in the state, but not here
        for optimizer in self._optimizers if made else ():
            undo.optimizer(optimizer)
            for group in optimizer.param_groups:
                group["params"][:] = [made.get(id(parameter), parameter) for parameter in group["params"]]
            for parameter in [parameter for parameter in optimizer.state if id(parameter) in made]:
                optimizer.state[made[id(parameter)]] = optimizer.state.pop(parameter)


def _contained(target: Any, state: Any, done: Collection[int]) -> Any:
    """Put the values of a state into tensors and containers; return what is there then."""
    if is_stateful(target) or state is SET or id(target) in done:
        return target
    if isinstance(target, dict):
        fitting = {key: child for key, child in target.items() if key in state}
        target.update({key: _contained(child, state[key], done) for key, child in fitting.items()})
    elif isinstance(target, list | tuple):
        length = len(state)  # may be fewer than the target has, if not strict
        items = [_contained(child, state[i], done) for i, child in enumerate(target[:length])]
        if isinstance(target, tuple):
            return (*items, *target[length:])
        target[:length] = items
    elif isinstance(target, torch.Tensor) and not target.is_meta:
        copy_into(target, state)
    else:
        return state
    return target


def _load_module(module: torch.nn.Module, state: Any, strict: bool, *, assign: bool) -> Any:
    # Modules with a way of their own may not know all options.
    options = ({} if strict else {"strict": False}) | ({"assign": True} if assign else {})
    told = module.load_state_dict(taken(state) if assign else state, **options)
    if not assign:
        # Inner tensors of wrappers are copied once more: their classes may round when they copy.
        wrapped = any(map(is_wrapper, state.values()))
        for name, tensor in module.state_dict().items() if wrapped else ():
            if is_wrapper(tensor) and type(state.get(name)) is type(tensor):
                copy_into(tensor, state[name])
    return told


class _Undo(ExitStack):
    """Notes how things were. At the end of the block they are so again, unless all is dropped."""

    def _attributes(self, thing: Any) -> None:
        before, inside = dict(vars(thing)), [(v, dict(v)) for v in vars(thing).values() if type(v) is dict]

        def again() -> None:
            vars(thing).clear()
            vars(thing).update(before)
            for value, items in inside:
                value.clear()
                value.update(items)

        self.callback(again)

    def module(self, module: torch.nn.Module, *, contents: bool) -> None:
        """Note a module, and the values of its tensors if these may be overwritten."""
        for part in module.modules():
            if type(part).set_extra_state is not torch.nn.Module.set_extra_state:
                with suppress(Exception):
                    state = copy.deepcopy(part.get_extra_state())
                    self.callback(part.set_extra_state, state)
            self._attributes(part)
        for tensor in {*module.parameters(), *module.buffers()} if contents else ():
            if not tensor.is_meta:
                self._tensor(tensor)

    def _tensor(self, tensor: torch.Tensor) -> None:
        kind, values = type(tensor), None if is_lazy(tensor) else tensor.detach().clone()
        alias = tensor.data

        def again() -> None:
            tensor.data = alias  # it may have another shape now
            tensor.__class__ = kind
            if values is not None:
                copy_into(tensor.detach(), values)

        self.callback(again)

    def optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Note an optimizer: which parameters it has, and the objects of its state."""
        groups = [(group, dict(group), [*group["params"]]) for group in optimizer.param_groups]
        kept = dict(optimizer.state)

        def again() -> None:
            for group, settings, parameters in groups:
                group.clear()
                group.update(settings)
                group["params"][:] = parameters
            optimizer.state.clear()
            optimizer.state.update(kept)

        self.callback(again)
        self._attributes(optimizer)

    def scheduler(self, scheduler: Any) -> None:
        """Note a scheduler, those that it is made of, and the settings of its optimizer."""
        self._attributes(scheduler)
        self.optimizer(scheduler.optimizer)
        for part in vars(scheduler).get("_schedulers", ()):
            self.scheduler(part)

    def other(self, thing: Any) -> None:
        """Note what has a state that is its own business."""
        with suppress(Exception):
            state = copy.deepcopy(thing.state_dict())
            self.callback(thing.load_state_dict, state)


@dataclass
class _Layer:
    entries: dict[str, Any]  # what stands for each entry until it arrives
    missing: int  # entries that have not arrived
    load: Callable[[dict[str, Any]], object]


class Layers:
    """The layers of a target that fit a hollow state, each set as soon as it has arrived.

    `hollow` has what stands for arrays. `tensors` are the ids of tensors that are set here.
    """

    def __init__(self, target: Any, state: Any, hollow: Mapping[str, Any]) -> None:
        self.tensors: set[int] = set()
        self._state = state
        self._hollow = {id(value) for value in hollow.values()}
        self._waiting: dict[int, list[_Layer]] = {}  # layers, by the id of what they wait for
        self._uses: Counter[int] = Counter()  # layers that are not set, by the id of what they need
        self._arrived: dict[int, Any] = {}  # the value of what has arrived, by the id of what stood for it
        self._collect(target, state)
        # A copy of the state notes all that it meets: what is needed beside the layers.
        met = self._arrived | {id(value): value for value in hollow.values() if isinstance(value, np.ndarray)}
        copy.deepcopy(state, met)
        self._uses.update(self._hollow.intersection(met))

    def arrived(self, hollow: Any, value: Any) -> None:
        """Put a value in the place of what stands for it; set the layers that it completes."""
        self._arrived[id(hollow)] = value
        for layer in self._waiting.pop(id(hollow), ()):
            layer.missing -= 1
            if layer.missing:
                continue
            layer.load({name: self._arrived[id(entry)] for name, entry in layer.entries.items()})
            for entry in {id(entry) for entry in layer.entries.values()}:
                self._uses[entry] -= 1
                if not self._uses[entry]:
                    del self._arrived[entry]

    def rest(self) -> Any:
        """Return the state with its values, and with `SET` in the place of what is set."""
        return copy.deepcopy(self._state, self._arrived)

    def _collect(self, target: Any, state: Any) -> None:
        """Find the layers of a target."""
        for _, part, own in together(target, state):
            if isinstance(part, torch.nn.Module):
                hollow = isinstance(own, dict) and all(id(value) in self._hollow for value in own.values())
                layers = _layers_of(part, own) if hollow else None
                if layers is not None:
                    self._arrived[id(own)] = SET
                    for layer in layers:
                        self._wait(layer)
            elif isinstance(part, torch.Tensor) and not part.is_meta and id(own) in self._hollow:
                self.tensors.add(id(part))
                self._wait(_Layer({"": own}, 0, partial(_set, part)))

    def _wait(self, layer: _Layer) -> None:
        different = {id(entry) for entry in layer.entries.values()}
        layer.missing = len(different)
        for entry in different:
            self._waiting.setdefault(entry, []).append(layer)
            self._uses[entry] += 1


def _set(target: torch.Tensor, entries: dict[str, Any]) -> None:
    copy_into(target, entries[""])


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


#: Integers of as many bytes, in which the bits of values are written.
_INTEGERS: Final = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

_ADVICE: Final = "save a chain for engines with adapter=lccodec.adapters.weights.Rounding(adapter)"


@dataclass(frozen=True)
class _Write:
    """New values of a tensor: at flat places, or all of them if there are no places."""

    target: torch.Tensor
    places: torch.Tensor | None
    values: torch.Tensor


@dataclass(frozen=True)
class Staged:
    """An update that was checked, and whose values are on the devices of a target."""

    step: int
    _writes: tuple[_Write, ...]

    def apply(self) -> None:
        """Write the new values. It may be repeated.

        On CUDA devices the writes are queued on the current stream, as work of the model is.
        """
        with torch.no_grad():
            for write in self._writes:
                target, values = _as_integers(write.target), _as_integers(write.values)
                if write.places is None:
                    target.copy_(values, non_blocking=True)
                else:
                    target.put_(write.places, values)


def _as_integers(tensor: torch.Tensor) -> torch.Tensor:
    """Return a view in which bits are copied as they are; not every operation knows every type."""
    integers = _INTEGERS.get(tensor.element_size())
    return tensor if integers is None else tensor.view(integers)


def apply_update(target: Any, update: Update, *, prefix: str = "") -> None:
    """Write the new values of an update into modules and tensors in place: `stage`, then `apply`.

    Parameters and errors are those of `stage`.

    Examples
    --------
    >>> import tempfile, lccodec
    >>> import lccodec.adapters.torch as adapter
    >>> run, trained, served = tempfile.mkdtemp(), torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
    >>> with lccodec.Chain(run, "lossless", adapter=adapter) as chain:
    ...     _ = chain.save(0, {"model": trained.state_dict()})
    >>> with lccodec.follow(run, timeout=0) as follower:
    ...     for update in follower:
    ...         apply_update(served, update, prefix="model")
    >>> torch.equal(served.weight, trained.weight)
    True
    """
    stage(target, update, prefix=prefix).apply()


def stage(target: Any, update: Update, *, prefix: str = "") -> Staged:
    """Check an update, and copy its values to the devices of what it is to be written into.

    Parameters
    ----------
    target
        A module, a tensor, or a nested dict, list or tuple of these, that holds the state before.
        It may have more than the update. Prefixes of wrappers (DDP, FSDP, ``torch.compile``) in
        names are ignored.
    update
        What :func:`lccodec.follow` yields.
    prefix
        The entry of the state that belongs to the target, as ``"model"`` or ``"run/model"``. All
        else in the update is left out.

    Raises
    ------
    ArgumentError
        Lists every new array that the target has not, or has with another shape or type. The target
        is unchanged.
    """
    start = f"{prefix}/" if checked_prefix(prefix) else ""
    tensors, types = dict(_tensors(target)), read_types(update.metadata)
    plain: dict[str, list[str]] = {}
    for own in tensors:
        plain.setdefault(unwrapped(own), []).append(own)
    writes, wanted, held = list[_Write](), dict[str, str](), dict[str, str]()
    for patch in update.patches("bits"):
        if not patch.name.startswith(start) and patch.name != prefix:
            continue
        name = patch.name.removeprefix(start) if patch.name != prefix else ""
        if name not in tensors and len(alike := plain.get(unwrapped(name), [])) == 1:
            name = alike[0]  # only one of the two is compiled, or in a wrapper such as DDP
        kind, tensor = types.get(patch.name), tensors.get(name)
        values = as_tensor(patch.values, kind if kind in BYTE_TYPES else None, patch.name)
        if kind == "complex32" and tensor is not None:  # stored as pairs of float16
            tensor = torch.view_as_real(tensor)
        held[name] = f"{str(values.dtype).removeprefix('torch.')} {patch.shape}"
        if tensor is not None:
            wanted[name] = describe(tensor)
            here, places = values.to(tensor.device, non_blocking=True), None
            if patch.places is not None:
                places = torch.from_numpy(patch.places).to(tensor.device, non_blocking=True)
            writes.append(_Write(tensor, places, here.reshape(patch.shape) if places is None else here))
    wide = any(held.get(name, "").startswith("float32") and "float16" in wanted[name] for name in wanted)
    check_same(wanted, held, [_ADVICE] if wide else [])
    wait_for(write.target for write in writes)  # it may be applied by another thread, on another stream
    return Staged(update.step, tuple(writes))


def _tensors(target: Any, keys: Keys = ()) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors of a target by their names in a state, in the memory of its modules."""
    for inside, part, _ in together(target, target, keys):
        if isinstance(part, torch.nn.Module):
            yield from _tensors(part.state_dict(), inside)
        elif is_wrapper(part):
            yield from _tensors(inner_tensors(part), inside)
        elif isinstance(part, torch.Tensor):
            yield leaf_name(inside), part
