"""Kinds of runs that came last: they are unlike all others, and presets are judged by them."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from ..networks.models import GPT
from . import kinds
from .batches import TEXT_TRAINED, Data, characters, classified, digits
from .kinds import Kind
from .models import Scaled, Scan, Towers
from .training import TorchTraining, Training

__all__ = ["LATEST"]


def scan(data: Data, seed: int) -> Training:
    """A state-space model of text: Adam with weight decay, gradients clipped."""
    torch.manual_seed(seed)
    batch, test = characters(data, 48, 16)
    model = Scan()
    optimizer = torch.optim.Adam(model.parameters(), 2e-3, weight_decay=1e-4)
    optimizer.register_step_pre_hook(lambda *_: nn.utils.clip_grad_norm_(model.parameters(), 0.5) and None)
    return TorchTraining(model, {"optimizer": optimizer}, batch, classified, test)


def towers(data: Data, seed: int) -> Training:
    """Two towers that find the lower half of a digit by its upper one: AdamW, a temperature."""
    torch.manual_seed(seed)
    batch, (images, _) = digits(data)
    model = Towers()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, weight_decay=0.1)
    return TorchTraining(
        model,
        {"optimizer": optimizer},
        lambda generator: batch(generator)[:1],
        lambda m, images: m(images),
        (images[:256],),
        lambda iteration: min(1.0, iteration / 50) * 0.998**iteration,
    )


def distilled(data: Data, seed: int) -> Training:
    """A small perceptron that learns what a larger one says, at a temperature: NAdam."""
    torch.manual_seed(0)  # the same teacher for each seed
    batch, test = digits(data)
    teacher = nn.Sequential(nn.Flatten(), nn.Linear(784, 300), nn.ReLU(), nn.Linear(300, 10))
    before = torch.optim.Adam(teacher.parameters(), 1e-3)
    TorchTraining(teacher, {"optimizer": before}, batch, classified, test).advance(kinds.BEFORE, 0)
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 48), nn.Tanh(), nn.Linear(48, 10))

    def told(model: nn.Module, images: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            wanted = functional.softmax(teacher(images) / 3, 1)
        return functional.cross_entropy(model(images) / 3, wanted)

    optimizer = torch.optim.NAdam(model.parameters(), 1e-3)
    return TorchTraining(model, {"optimizer": optimizer}, batch, told, test)


def preferred(data: Data, seed: int) -> Training:
    """A trained GPT that prefers true text to mixed up text (DPO), at a small rate: AdamW."""
    del seed  # all begin with the same net
    torch.manual_seed(0)
    half = int(TEXT_TRAINED * len(data.text)) // 2
    batch, (test, _) = characters(data, 32, 16, slice(half, None))
    before, tested = characters(data, 32, 16, slice(half))
    model = GPT(64, 2, heads=4, context=32)
    first = torch.optim.AdamW(model.parameters(), 3e-3)
    TorchTraining(model, {"optimizer": first}, before, classified, tested).advance(kinds.BEFORE, 0)
    base = copy.deepcopy(model).requires_grad_(False)

    def pairs(text: torch.Tensor, generator: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        other = text.clone()
        for row in other:  # a stretch of each is turned around
            start = int(generator.integers(12, 24))
            row[start : start + 8] = row[start : start + 8].flip(0)
        return text, other

    def chance(model: nn.Module, text: torch.Tensor) -> torch.Tensor:
        logs = functional.log_softmax(model(text[:, :-1]), -1)
        return logs.gather(-1, text[:, 1:, None])[..., 0].sum(1)

    def preference(model: nn.Module, text: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            known = chance(base, text) - chance(base, other)
        return -functional.logsigmoid(0.1 * (chance(model, text) - chance(model, other) - known)).mean()

    optimizer = torch.optim.AdamW(model.parameters(), 5e-5)
    return TorchTraining(
        model,
        {"optimizer": optimizer},
        lambda generator: pairs(batch(generator)[0], generator),
        preference,
        pairs(test, np.random.default_rng(0)),
        lambda iteration: min(1.0, iteration / 50),
    )


def mixture(data: Data, seed: int) -> Training:
    """A net that tells a mixture of normal densities of a number with several answers: Adam."""
    del data
    torch.manual_seed(seed)
    hidden = nn.Linear(2, 96), nn.Tanh(), nn.Linear(96, 96), nn.Tanh()
    model = nn.Sequential(*hidden, nn.Linear(96, 18))

    def draw(generator: np.random.Generator, size: int = 256) -> tuple[torch.Tensor, torch.Tensor]:
        y = generator.uniform(-1, 1, (size, 1))
        shown = y + 0.3 * np.sin(7 * y) + 0.05 * generator.standard_normal((size, 1))
        turned = np.concatenate([shown, np.cos(5 * shown)], 1)
        return torch.from_numpy(turned.astype(np.float32)), torch.from_numpy(y.astype(np.float32))

    def unlikely(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        shares, means, widths = model(x).chunk(3, -1)
        far = (y - means) / (widths.exp() + 0.02)
        logs = functional.log_softmax(shares, -1) - far.square() / 2 - (widths.exp() + 0.02).log()
        return -torch.logsumexp(logs, -1).mean()

    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    test = draw(np.random.default_rng(0), 2_000)
    return TorchTraining(
        model, {"optimizer": optimizer}, draw, unlikely, test, lambda iteration: 0.997**iteration
    )


def unnormalized(data: Data, seed: int) -> Training:
    """Convolutions of scaled weights, without a norm, and large batches: SGD, Nesterov momentum."""
    torch.manual_seed(seed)
    batch, test = digits(data)
    model = Scaled()

    def large(generator: np.random.Generator) -> tuple[torch.Tensor, ...]:
        parts = [batch(generator) for _ in range(4)]
        return tuple(torch.cat(each) for each in zip(*parts, strict=True))

    optimizer: Any = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9, nesterov=True, weight_decay=1e-4)
    return TorchTraining(model, {"optimizer": optimizer}, large, classified, test)


#: By name.
LATEST = {
    make.__name__: Kind(make.__name__, make, every=(10, 50), points=(200, 600))
    for make in (scan, towers, distilled, preferred, mixture, unnormalized)
}
