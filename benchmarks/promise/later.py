"""Kinds of runs that came when the presets were chosen: nothing was chosen with a look at them."""

from __future__ import annotations

import copy

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from .batches import Data, characters, classified, digits
from .kinds import Kind
from .models import Attended, Experts, Residual
from .training import TorchTraining, Training

__all__ = ["LATER"]

CYCLE = 700  # iterations


def cycle(data: Data, seed: int) -> Training:
    """A small ResNet with BatchNorm: SGD with Nesterov momentum, a rate that rises, then falls."""
    torch.manual_seed(seed)
    batch, test = digits(data)
    stem = [nn.Conv2d(1, 12, 5, stride=4, padding=2, bias=False), nn.BatchNorm2d(12), nn.ReLU()]
    model = nn.Sequential(*stem, Residual(12), Residual(12), nn.Flatten(), nn.Linear(12 * 49, 10))
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)

    def once(iteration: int) -> float:
        part = iteration / CYCLE
        return 0.04 + 0.96 * part / 0.3 if part < 0.3 else max(0.01, 1 - (part - 0.3) / 0.7)

    return TorchTraining(model, {"optimizer": optimizer}, batch, classified, test, once)


def experts(data: Data, seed: int) -> Training:
    """Four experts that share characters among them, the two best for each: AdamW, a warmup."""
    torch.manual_seed(seed)
    batch, test = characters(data, 16, 24)
    model = Experts()
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3, betas=(0.9, 0.95), weight_decay=0.1)
    return TorchTraining(
        model, {"optimizer": optimizer}, batch, classified, test, lambda iteration: min(1.0, iteration / 100)
    )


def proximal(data: Data, seed: int) -> Training:
    """A policy that names digits for a reward, and a critic, by clipped ratios (PPO): Adam."""
    torch.manual_seed(seed)
    batch, (images, labels) = digits(data)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 96), nn.Tanh(), nn.Linear(96, 11))
    before = copy.deepcopy(model).requires_grad_(False)  # follows at each iteration: it is no state

    def act(generator: np.random.Generator) -> tuple[torch.Tensor, ...]:
        shown, named = batch(generator)
        before.load_state_dict(model.state_dict())
        chances = functional.log_softmax(before(shown)[:, :10], 1)
        noise = torch.from_numpy(generator.gumbel(size=chances.shape).astype(np.float32))
        actions = (chances + noise).argmax(1, keepdim=True)
        return shown, actions, chances.gather(1, actions)[:, 0], (actions[:, 0] == named).float()

    def clipped(
        model: nn.Module,
        shown: torch.Tensor,
        actions: torch.Tensor,
        chances: torch.Tensor,
        reward: torch.Tensor,
    ) -> torch.Tensor:
        found = model(shown)
        logs, value = functional.log_softmax(found[:, :10], 1), found[:, 10]
        ratio = (logs.gather(1, actions)[:, 0] - chances).exp()
        gain = (reward - value).detach()
        surrogate = torch.minimum(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()
        doubt = -(logs.exp() * logs).sum(1).mean()
        return functional.mse_loss(value, reward) / 2 - surrogate - 0.01 * doubt

    def missed(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return 1 - functional.softmax(model(images)[:, :10], 1).gather(1, labels[:, None]).mean()

    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    return TorchTraining(model, {"optimizer": optimizer}, act, clipped, (images, labels), score=missed)


def attended(data: Data, seed: int) -> Training:
    """A net over graphs that weighs neighbours, and counts triangles: Adamax, a rate that falls."""
    del data
    torch.manual_seed(seed)
    model = Attended()

    def draw(generator: np.random.Generator, size: int = 64) -> tuple[torch.Tensor, ...]:
        edges = np.triu(generator.random((size, 14, 14)) < generator.uniform(0.1, 0.5, (size, 1, 1)), 1)
        edges = (edges | edges.transpose(0, 2, 1)).astype(np.float32)
        triangles = np.einsum("bij,bjk,bki->b", edges, edges, edges) / 100
        nodes = np.stack([edges.sum(2) / 7, generator.standard_normal((size, 14))], 2)
        return tuple(torch.from_numpy(a.astype(np.float32)) for a in (nodes, edges, triangles))

    return TorchTraining(
        model,
        {"optimizer": torch.optim.Adamax(model.parameters(), 5e-4)},
        draw,
        lambda m, nodes, edges, triangles: functional.mse_loss(m(nodes, edges), triangles),
        draw(np.random.default_rng(0), 1_000),
        lambda iteration: 0.998**iteration,
    )


#: By name.
LATER = {
    make.__name__: Kind(make.__name__, make, every=(10, 50), points=(200, 600))
    for make in (cycle, experts, proximal, attended)
}
