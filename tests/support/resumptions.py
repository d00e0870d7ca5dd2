"""Programs of PyTorch that are resumed in another form than they were saved.

Each tensor of the model has its own shape or its own gradient, so that what an optimizer keeps of a
parameter shows whose it is.
"""

import copy
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

Optimizer = torch.optim.Optimizer
Make = Callable[[Any], Optimizer]

#: Optimizers by name: every one of torch.optim that takes dense gradients, and its variants.
OPTIMIZERS: dict[str, Make] = {
    "sgd": functools.partial(torch.optim.SGD, lr=0.1),
    "momentum": functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9),
    "nesterov": functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9, nesterov=True),
    "dampened": functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9, dampening=0.1, weight_decay=0.1),
    "foreach": functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9, foreach=True),
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "amsgrad": functools.partial(torch.optim.AdamW, amsgrad=True),
    "fused": functools.partial(torch.optim.AdamW, fused=True),
    "adam foreach": functools.partial(torch.optim.Adam, foreach=True),
    "maximize": functools.partial(torch.optim.Adam, maximize=True),
    "tensor lr": functools.partial(torch.optim.Adam, lr=torch.tensor(0.01)),
    "nadam": torch.optim.NAdam,
    "nadam decoupled": functools.partial(torch.optim.NAdam, decoupled_weight_decay=True),
    "radam": torch.optim.RAdam,
    "rprop": torch.optim.Rprop,
    "asgd": torch.optim.ASGD,
    "adagrad": torch.optim.Adagrad,
    "adadelta": torch.optim.Adadelta,
    "adamax": torch.optim.Adamax,
    "adafactor": torch.optim.Adafactor,
    "rmsprop": torch.optim.RMSprop,
    "rmsprop momentum": functools.partial(torch.optim.RMSprop, momentum=0.9),
    "rmsprop centered": functools.partial(torch.optim.RMSprop, centered=True),
    "lbfgs": torch.optim.LBFGS,
}

_schedulers = torch.optim.lr_scheduler


def _falling(rate: float, step: int) -> float:
    return float(0.9 ** (step * 100 * rate))


def _sequence(optimizer: Optimizer) -> Any:
    warm = _schedulers.LinearLR(optimizer, 0.1, total_iters=2)
    return _schedulers.SequentialLR(optimizer, [warm, _schedulers.StepLR(optimizer, 2, 0.5)], [2])


#: Schedulers by name.
SCHEDULERS: dict[str, Callable[[Optimizer], Any]] = {
    "step": lambda o: _schedulers.StepLR(o, 2, 0.5),
    "milestones": lambda o: _schedulers.MultiStepLR(o, [1, 3]),
    "exponential": lambda o: _schedulers.ExponentialLR(o, 0.9),
    "cosine": lambda o: _schedulers.CosineAnnealingLR(o, 9),
    "restarts": lambda o: _schedulers.CosineAnnealingWarmRestarts(o, 2, 2),
    "one cycle": lambda o: _schedulers.OneCycleLR(o, 0.3, total_steps=20),
    "cyclic": lambda o: _schedulers.CyclicLR(o, 0.01, 0.1, step_size_up=3, cycle_momentum=False),
    "linear": _schedulers.LinearLR,
    "constant": _schedulers.ConstantLR,
    "polynomial": lambda o: _schedulers.PolynomialLR(o, 9),
    "lambda": lambda o: _schedulers.LambdaLR(
        o, [functools.partial(_falling, group["lr"]) for group in o.param_groups]
    ),
    "multiplied": lambda o: _schedulers.MultiplicativeLR(o, lambda _: 0.9),
    "sequence": _sequence,
    "chained": lambda o: _schedulers.ChainedScheduler(
        [_schedulers.ConstantLR(o, 0.5, 2), _schedulers.ExponentialLR(o, 0.9)]
    ),
    "plateau": lambda o: _schedulers.ReduceLROnPlateau(o, factor=0.5, patience=0),
}


class Compiled(torch.nn.Module):
    """A module with the names that ``torch.compile`` gives; importing that takes seconds."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self._orig_mod = module


LAYERS = ("first", "second", "third")
RATES = {"first": 0.01, "second": 0.02, "third": 0.03}


class Model(torch.nn.Module):
    """Layers of one shape, in the order of `names`."""

    def __init__(self, names: tuple[str, ...] = LAYERS, seed: int = 0) -> None:
        super().__init__()
        for name in names:
            torch.manual_seed(seed + LAYERS.index(name))
            self.add_module(name, torch.nn.Linear(4, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return a value in which each layer has a weight of its own."""
        layers = dict(self.named_children())
        return sum(((i + 1) * layers[name](x)).square().sum() for i, name in enumerate(LAYERS))


def groups_of(model: torch.nn.Module, names: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """A group for each layer, with the names that the model has for its parameters."""
    named = list(model.named_parameters())
    for name in names:
        yield {"params": [(n, p) for n, p in named if f".{name}." in f".{n}"], "lr": RATES[name]}


def make_optimizer(kind: str, model: torch.nn.Module, names: tuple[str, ...]) -> Optimizer:
    """An optimizer with a group for each layer; LBFGS has one group."""
    groups = list(groups_of(model, names))
    if kind == "lbfgs":
        return OPTIMIZERS[kind]([pair for group in groups for pair in group["params"]])
    if kind == "tensor lr":
        groups = [{"params": group["params"]} for group in groups]
    return OPTIMIZERS[kind](groups)


def train(model: torch.nn.Module, optimizer: Optimizer, scheduler: Any = None, steps: int = 3) -> None:
    """Take steps with gradients that differ between all layers."""
    x = torch.linspace(-1, 1, 8).reshape(2, 4)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss: torch.Tensor = model(x)
        loss.backward()
        return loss

    for _ in range(steps):
        loss = optimizer.step(closure)
        if isinstance(scheduler, _schedulers.ReduceLROnPlateau):
            scheduler.step(abs(loss.item()))
        elif scheduler is not None:
            scheduler.step()


def moments(model: torch.nn.Module, optimizer: Optimizer) -> dict[str, Any]:
    """What an optimizer keeps, by the plain name of the parameter."""
    names = {p: ".".join(name.split(".")[-2:]) for name, p in model.named_parameters()}
    return {names[p]: copy.deepcopy(dict(entries)) for p, entries in optimizer.state.items()}


def rates(optimizer: Optimizer, model: torch.nn.Module) -> dict[str, Any]:
    """The settings of each layer's group, without those that say how a step is computed."""
    names = {p: name.split(".")[-2] for name, p in model.named_parameters()}
    found = {}
    for group in optimizer.param_groups:
        settings = {k: v for k, v in group.items() if k not in ("params", "param_names")}
        found.update({names[p]: copy.deepcopy(settings) for p in group["params"]})
    return found
