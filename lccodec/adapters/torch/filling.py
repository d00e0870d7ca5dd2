"""A state that fits is loaded into a target: all of it, or the target stays as it was.

What may refuse a state comes first, and can be undone: modules that load in a way of their own,
optimizers, schedulers, and what else has a ``load_state_dict``. What cannot fail comes last, and is
not copied before: all other modules and tensors. While a chain is decoded, layers of these are set
as soon as all of their own entries have arrived; a layer is a module without its children.

A module on the meta device gets new parameters. Whatever knows the old ones then gets the new ones:
names that are tied, and optimizers.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import torch
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.module import _IncompatibleKeys
from torch.nn.parameter import is_lazy

from ...container.tree import leaf_name
from ...errors import ArgumentError, LccodecError
from ..tree.plain import Keys
from .matching import ABSENT, is_stateful, together
from .optimizer import load_optimizer, load_schedule
from .wrappers import copy_into, is_wrapper

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

        `asked` has the ids of the modules of which only they themselves know what fits, and `done`
        those of the tensors that are set already. If something refuses its state, an
        ``ArgumentError`` says so, and the target is unchanged.
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
    told = module.load_state_dict(state, **options)
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

    `hollow` has what stands in the state for arrays. `tensors` are the ids of the tensors of the
    target that are set here.
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
