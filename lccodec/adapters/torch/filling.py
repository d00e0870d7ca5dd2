"""A state that fits is loaded into a target: all of it, or the target stays as it was.

What may refuse a state comes first, and can be undone: modules that load in a way of their own,
optimizers, schedulers, and what else has a ``load_state_dict``. What cannot fail comes last, and is
not copied before: all other modules and tensors.

A module on the meta device gets new parameters. Whatever knows the old ones then gets the new ones:
names that are tied, and optimizers.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Final, NamedTuple

import torch
from torch.nn.parameter import is_lazy

from ...container.tree import leaf_name
from ...errors import ArgumentError, LccodecError
from ..tree.plain import below
from .layers import SET, is_special
from .matching import inner, is_stateful
from .optimizer import load_optimizer, load_schedule
from .wrappers import copy_into, is_wrapper

__all__ = ["Filling"]

Keys = tuple[str, ...]

#: Characters of what others say that an error repeats: PyTorch lists every name.
_MAX_WORDS: Final = 500


class Filling:
    """Loads a state into a target.

    Parameters
    ----------
    target
        As in `load_into`, before anything is loaded.

    Attributes
    ----------
    meta
        Ids of the modules that are on the meta device.
    told
        What ``load_state_dict`` of the modules that were asked has returned, by id.
    refused
        The id of what has refused its state.
    """

    def __init__(self, target: Any) -> None:
        self._target = target
        self.told: dict[int, Any] = {}
        self.refused: int | None = None
        parts = [part for _, part in inner(target)]
        self._optimizers = [part for part in parts if isinstance(part, torch.optim.Optimizer)]
        meta = [part for part in parts if isinstance(part, torch.nn.Module) and _on_meta(part)]
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

        Parameters
        ----------
        settings, strict
            As in `load_into`.
        asked
            Ids of the modules of which only they themselves know what fits.
        done
            Ids of the tensors that are set already.

        Raises
        ------
        ArgumentError
            If something refuses its state. The target is unchanged.
        """
        parts = [part for part in _together(self._target, state, ()) if part[2] is not SET]
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
                        self.told[id(module)] = told or _Told([], [])
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


class _Told(NamedTuple):
    missing_keys: list[str]
    unexpected_keys: list[str]


def _on_meta(module: torch.nn.Module) -> bool:
    return any(tensor.is_meta for tensor in (*module.parameters(), *module.buffers()))


def _together(target: Any, state: Any, keys: Keys) -> Iterator[tuple[Keys, Any, Any]]:
    """Yield all that loads a state in a way of its own, with its place and its state."""
    if is_stateful(target):
        yield keys, target, state
    elif isinstance(target, dict):
        for key, child in target.items():
            if key in state:
                yield from _together(child, state[key], below(keys, str(key)))
    elif isinstance(target, list | tuple):
        for i, (child, part) in enumerate(zip(target, state, strict=False)):
            yield from _together(child, part, below(keys, str(i)))


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


class _Undo:
    """Notes how things were. At the end of the block, after an error, they are so again."""

    def __init__(self) -> None:
        self._steps: list[Callable[[], object]] = []

    def __enter__(self) -> _Undo:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for step in reversed(self._steps) if error is not None else ():
            step()

    def _attributes(self, thing: Any) -> None:
        before, inside = dict(vars(thing)), [(v, dict(v)) for v in vars(thing).values() if type(v) is dict]

        def again() -> None:
            vars(thing).clear()
            vars(thing).update(before)
            for value, items in inside:
                value.clear()
                value.update(items)

        self._steps.append(again)

    def module(self, module: torch.nn.Module, *, contents: bool) -> None:
        """Note a module, and the values of its tensors if these may be overwritten."""
        for part in module.modules():
            if type(part).set_extra_state is not torch.nn.Module.set_extra_state:
                with suppress(Exception):
                    state = copy.deepcopy(part.get_extra_state())
                    self._steps.append(lambda part=part, state=state: part.set_extra_state(state))  # type: ignore[misc]
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

        self._steps.append(again)

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

        self._steps.append(again)
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
            self._steps.append(lambda: thing.load_state_dict(state))
