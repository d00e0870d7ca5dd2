"""Kinds of runs that the presets as they are were judged by.

Rule: as in :mod:`.held_out`. `CHOSEN_BY` says which of them the presets were chosen with a look at;
the others were run when all was chosen.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from ..networks.models import GPT, LeNet5
from . import kinds
from .batches import TEXT_TRAINED, Data, characters, classified, digits
from .kinds import Kind
from .models import Adapted, Graphs, Mixer, Targeted, UNet
from .optimizers import ScheduleFree, Tiger
from .training import TorchTraining, Training

__all__ = ["CHOSEN_BY", "UNSEEN"]


def physics(data: Data, seed: int) -> Training:
    """A net that solves a Poisson equation by its residual: Adam, a rate that falls."""
    del data
    torch.manual_seed(seed)
    layers = nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh()
    model = nn.Sequential(*layers, nn.Linear(64, 1))

    def solution(x: torch.Tensor) -> torch.Tensor:
        return torch.sin(math.pi * x[:, :1]) * torch.sin(2 * math.pi * x[:, 1:])

    def draw(generator: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        inside, edge = (generator.random((size, 2), dtype=np.float32) for size in (256, 128))
        sides = np.arange(128)
        edge[sides, sides % 2] = sides // 2 % 2
        return torch.from_numpy(inside), torch.from_numpy(edge)

    def residual(model: nn.Module, inside: torch.Tensor, edge: torch.Tensor) -> torch.Tensor:
        x = inside.requires_grad_()
        (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        curved = sum(
            torch.autograd.grad(slope[:, axis].sum(), x, create_graph=True)[0][:, axis] for axis in (0, 1)
        )
        missed = curved / (5 * math.pi**2) + solution(inside)[:, 0]
        return missed.square().mean() + model(edge).square().mean()

    places = torch.from_numpy(np.random.default_rng(0).random((2_000, 2), dtype=np.float32))
    return TorchTraining(
        model,
        {"optimizer": torch.optim.Adam(model.parameters(), 2e-3)},
        draw,
        residual,
        (places,),
        lambda iteration: 0.998**iteration,
        score=lambda m, x: functional.mse_loss(m(x), solution(x)),
    )


def diffusion(data: Data, seed: int) -> Training:
    """A U-Net that removes noise of any strength; its average is tested: AdamW."""
    torch.manual_seed(seed)
    batch, (test, _) = digits(data)
    noise = np.random.default_rng(0)

    def noisy(images: torch.Tensor, generator: np.random.Generator) -> tuple[torch.Tensor, ...]:
        small = functional.avg_pool2d(images, 2)
        level = torch.from_numpy(generator.random((len(small), 1, 1, 1), dtype=np.float32))
        added = torch.from_numpy(generator.standard_normal(small.shape, dtype=np.float32))
        return (1 - level) * small + level * added, level, added

    net = UNet()
    average = torch.optim.swa_utils.AveragedModel(
        net, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.98)
    )
    optimizer = torch.optim.AdamW(net.parameters(), 2e-3)
    optimizer.register_step_post_hook(lambda *_: average.update_parameters(net))
    return TorchTraining(
        nn.ModuleDict({"net": net, "ema": average}),
        {"optimizer": optimizer},
        lambda generator: noisy(batch(generator)[0][:32], generator),
        lambda m, shown, level, added: functional.mse_loss(m["net"](shown, level), added),
        noisy(test[:200], noise),
        score=lambda m, shown, level, added: functional.mse_loss(m["ema"](shown, level), added),
    )


def values(data: Data, seed: int) -> Training:
    """Values of ten actions, of which a digit names the right one, with a target net: Adam."""
    torch.manual_seed(seed)
    batch, (images, labels) = digits(data)
    model = Targeted()
    optimizer = torch.optim.Adam(model.net.parameters(), 5e-4)
    optimizer.register_step_post_hook(lambda *_: model.follow())

    def step(generator: np.random.Generator) -> tuple[torch.Tensor, ...]:
        now, named = batch(generator)
        actions = torch.from_numpy(generator.integers(10, size=len(now)))
        return now, actions, (actions == named).float(), batch(generator)[0]

    right = functional.one_hot(labels, 10).float() + 1  # half of what a right action brings is next
    return TorchTraining(
        model,
        {"optimizer": optimizer},
        step,
        lambda m, *tensors: m(*tensors),
        (images, right),
        score=lambda m, images, right: functional.mse_loss(m.net(images), right),
    )


def graphs(data: Data, seed: int) -> Training:
    """A graph net that sums over paths: NAdam."""
    del data
    torch.manual_seed(seed)
    model = Graphs()

    def draw(generator: np.random.Generator, size: int = 64) -> tuple[torch.Tensor, ...]:
        edges = np.triu(generator.random((size, 12, 12)) < 0.25, 1)
        edges = (edges | edges.transpose(0, 2, 1)).astype(np.float32)
        nodes = generator.standard_normal((size, 12, 4)).astype(np.float32)
        paths = (edges @ edges @ np.tanh(nodes[..., :1] * nodes[..., 1:2])).sum((1, 2)) / 12
        return tuple(torch.from_numpy(a) for a in (nodes, edges, paths))

    return TorchTraining(
        model,
        {"optimizer": torch.optim.NAdam(model.parameters(), 2e-3)},
        draw,
        lambda m, nodes, edges, paths: functional.mse_loss(m(nodes, edges), paths),
        draw(np.random.default_rng(0), 1_000),
    )


def adapters(data: Data, seed: int) -> Training:
    """Adapters of low rank beside a frozen GPT, all in bfloat16: AdamW."""
    torch.manual_seed(seed)
    half = int(TEXT_TRAINED * len(data.text)) // 2
    batch, test = characters(data, 32, 8, slice(half, None))
    before, _ = characters(data, 32, 16, slice(half))
    base = GPT(64, 2, heads=4, context=32)
    optimizer = torch.optim.AdamW(base.parameters(), 3e-3)
    TorchTraining(base, {"optimizer": optimizer}, before, classified, test).advance(kinds.BEFORE, 0)
    model = Adapted.put_into(base).bfloat16()
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, 2e-3)

    def loss(model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(model(inputs).float().flatten(0, -2), targets.flatten())

    return TorchTraining(model, {"optimizer": optimizer}, batch, loss, test)


def centered(data: Data, seed: int) -> Training:
    """LeNet-5: RMSprop, centered."""
    torch.manual_seed(seed)
    batch, test = digits(data)
    model = LeNet5()
    optimizer = torch.optim.RMSprop(model.parameters(), 2e-4, centered=True)
    return TorchTraining(model, {"optimizer": optimizer}, batch, classified, test)


def schedule_free(data: Data, seed: int) -> Training:
    """A vision mixer: AdamW without a schedule."""
    torch.manual_seed(seed)
    batch, test = digits(data)
    model = Mixer()
    optimizer = ScheduleFree(model.parameters(), 2e-3)

    def averaged(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        with optimizer.averages():
            return classified(model, images, labels)

    return TorchTraining(model, {"optimizer": optimizer}, batch, classified, test, score=averaged)


def heavy(data: Data, seed: int) -> Training:
    """A perceptron that sharpens images: SGD with a momentum of 0.99."""
    torch.manual_seed(seed)
    batch, (test, _) = digits(data)
    model = nn.Sequential(nn.Linear(49, 128), nn.GELU(), nn.Linear(128, 784))

    def blurred(images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return functional.avg_pool2d(images, 4).flatten(1), images.flatten(1)

    return TorchTraining(
        model,
        {"optimizer": torch.optim.SGD(model.parameters(), 2e-5, momentum=0.99)},
        lambda generator: blurred(batch(generator)[0]),
        lambda m, inputs, images: (m(inputs) - images).square().sum(1).mean(),
        blurred(test),
    )


def adafactor(data: Data, seed: int) -> Training:
    """A character GPT of 0.1 M parameters: Adafactor."""
    torch.manual_seed(seed)
    batch, test = characters(data, 32, 16)
    model = GPT(64, 2, heads=4, context=32)
    optimizer = torch.optim.Adafactor(model.parameters(), 1e-2)
    return TorchTraining(model, {"optimizer": optimizer}, batch, classified, test)


def tiger(data: Data, seed: int) -> Training:
    """LeNet-5 that tells by how many quarters an image is turned: Tiger."""
    torch.manual_seed(seed)
    batch, (images, _) = digits(data)
    model = LeNet5()

    def turned(images: torch.Tensor, turns: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        each = [torch.rot90(image, int(turn), (1, 2)) for image, turn in zip(images, turns, strict=True)]
        return torch.stack(each), torch.from_numpy(turns)

    return TorchTraining(
        model,
        {"optimizer": Tiger(model.parameters(), 3e-4)},
        lambda generator: turned(batch(generator)[0], generator.integers(4, size=64)),
        classified,
        turned(images, np.random.default_rng(0).integers(4, size=len(images))),
        lambda iteration: 0.1 + 0.9 * max(0.0, 1 - iteration / 700),
    )


#: By name.
UNSEEN = {
    kind.name: kind
    for kind in (
        Kind(make.__name__, make, every=(10, 50), points=(200, 600))
        for make in (
            physics, values, adapters, centered, heavy, diffusion, graphs, schedule_free, adafactor, tiger,
        )
    )
}  # fmt: skip
#: Those that the presets were chosen with a look at.
CHOSEN_BY = ("physics", "values", "adapters", "centered", "heavy")
