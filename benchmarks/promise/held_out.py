"""Kinds of runs that the first steps by movements were judged by, and not chosen by.

Rule: they have tasks, networks, optimizers or schedules that those of :mod:`.kinds` do not have.
Who chooses a preset by some of them says so, and judges it by others.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from ..networks.models import CHARACTERS
from .batches import Data, characters, classified, digits
from .kinds import Kind
from .models import Adversaries, Autoencoder, Coupled, Encoder, Gated, Sines
from .training import TorchTraining, Training

__all__ = ["HELD_OUT"]


def siren(data: Data, seed: int) -> Training:
    """A net of sines that learns 16 digits, side by side, by their pixels: Adam."""
    torch.manual_seed(seed)
    rows = [np.concatenate(list(data.train.images[first : first + 4, 0]), 1) for first in range(0, 16, 4)]
    picture = torch.from_numpy(np.concatenate(rows))
    side = len(picture)

    def pixels(places: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        at = torch.from_numpy(np.stack(np.divmod(places, side), -1))
        return at.float() / side * 2 - 1, picture.flatten()[torch.from_numpy(places)][:, None]

    model = Sines()
    return TorchTraining(
        model,
        {"optimizer": torch.optim.Adam(model.parameters(), 3e-4)},
        lambda generator: pixels(generator.integers(side**2, size=512)),
        lambda m, places, values: functional.mse_loss(m(places), values),
        pixels(np.arange(0, side**2, 5)),
    )


def flow(data: Data, seed: int) -> Training:
    """A normalizing flow over four pairs of made numbers: Adam, a triangular rate."""
    del data
    torch.manual_seed(seed)
    model = Coupled()

    def draw(generator: np.random.Generator, size: int = 256) -> tuple[torch.Tensor]:
        numbers = generator.standard_normal((size, 8)).astype(np.float32)
        numbers[:, 1::2] += numbers[:, ::2] ** 2
        return (torch.from_numpy(numbers),)

    return TorchTraining(
        model,
        {"optimizer": torch.optim.Adam(model.parameters(), 2e-3)},
        draw,
        lambda m, numbers: m(numbers),
        draw(np.random.default_rng(0), 2_000),
        lambda iteration: 0.1 + 0.9 * abs(iteration % 200 / 100 - 1),
    )


def contrastive(data: Data, seed: int) -> Training:
    """Convolutions that find shifted images again: SGD with Nesterov momentum, one cycle."""
    torch.manual_seed(seed)
    batch, (images, labels) = digits(data)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 5, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 5, stride=2), nn.ReLU(), nn.Flatten(),
        nn.Linear(512, 64),
    )  # fmt: skip

    def loss(model: nn.Module, images: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        shifted = torch.roll(images, 1, -1) * 0.9
        one, other = (functional.normalize(model(inputs), dim=1) for inputs in (images, shifted))
        return functional.cross_entropy(one @ other.T / 0.2, torch.arange(len(images)))

    def cycle(iteration: int) -> float:
        return iteration / 200 if iteration < 200 else max(0.02, 1 - (iteration - 200) / 900)

    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, nesterov=True)
    return TorchTraining(model, {"optimizer": optimizer}, batch, loss, (images[:256], labels[:256]), cycle)


def masked(data: Data, seed: int) -> Training:
    """A transformer of 0.1 M parameters that fills in characters: RAdam."""
    torch.manual_seed(seed)
    batch, (test, _) = characters(data, 32, 16)

    def hidden(text: torch.Tensor, generator: np.random.Generator) -> tuple[torch.Tensor, ...]:
        where = torch.from_numpy(generator.random(text.shape) < 0.15)
        return torch.where(where, CHARACTERS, text), text, where

    model = Encoder()
    return TorchTraining(
        model,
        {"optimizer": torch.optim.RAdam(model.parameters(), 1e-3)},
        lambda generator: hidden(batch(generator)[0], generator),
        lambda m, shown, text, where: functional.cross_entropy(m(shown)[where], text[where]),
        hidden(test, np.random.default_rng(0)),
    )


def bottleneck(data: Data, seed: int) -> Training:
    """An autoencoder of digits with a code of 12 numbers: NAdam."""
    torch.manual_seed(seed)
    batch, (test, _) = digits(data)
    layers = nn.Linear(784, 128), nn.ELU(), nn.Linear(128, 12), nn.Linear(12, 128), nn.ELU()
    model = nn.Sequential(*layers, nn.Linear(128, 784))
    return TorchTraining(
        model,
        {"optimizer": torch.optim.NAdam(model.parameters(), 1e-3)},
        lambda generator: (batch(generator)[0].flatten(1),),
        lambda m, images: functional.mse_loss(m(images), images),
        (test.flatten(1),),
    )


def adamax(data: Data, seed: int) -> Training:
    """A GRU of 0.1 M parameters, whose rate falls to a fiftieth and jumps back: Adamax."""
    torch.manual_seed(seed)
    batch, test = characters(data, 32, 16)
    model = Gated()

    def restarts(iteration: int) -> float:
        return 0.02 + 0.49 * (1 + math.cos(math.pi * (iteration % 150) / 150))

    optimizer = torch.optim.Adamax(model.parameters(), 4e-3)
    return TorchTraining(model, {"optimizer": optimizer}, batch, classified, test, restarts)


def adagrad(data: Data, seed: int) -> Training:
    """A perceptron that names digits: Adagrad."""
    torch.manual_seed(seed)
    batch, test = digits(data)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 10))
    optimizer = torch.optim.Adagrad(model.parameters(), 0.02)
    return TorchTraining(model, {"optimizer": optimizer}, batch, classified, test)


def gan(data: Data, seed: int) -> Training:
    """A generator of digits and its critic, judged by means and spreads of pixels: two Adams."""
    torch.manual_seed(seed)
    batch, test = digits(data)
    model = Adversaries(made=(128, 256), judged=(128, 64))
    both = {
        name: torch.optim.Adam(part.parameters(), 2e-4, betas=(0.5, 0.999))
        for name, part in (("generator", model.generator), ("critic", model.critic))
    }

    def moments(model: Adversaries, images: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        images, made = images.flatten(1), model.made(len(images))
        means = functional.mse_loss(made.mean(0), images.mean(0))
        return means + functional.mse_loss(made.std(0), images.std(0))

    return TorchTraining(model, both, batch, lambda m, images, _: m(images), test, score=moments)


def vae(data: Data, seed: int) -> Training:
    """A variational autoencoder of digits: AdamW with AMSGrad."""
    torch.manual_seed(seed)
    batch, test = digits(data)
    model = Autoencoder(width=200)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, amsgrad=True)
    return TorchTraining(model, {"optimizer": optimizer}, batch, lambda m, images, _: m(images), test)


#: By name. The rate of `adamax` jumps at 450 and 900.
HELD_OUT = {
    kind.name: kind
    for kind in (
        Kind("siren", siren, every=(10, 50)),
        Kind("flow", flow, every=(10, 50)),
        Kind("contrastive", contrastive, every=(10, 50)),
        Kind("masked", masked, every=(10, 50), points=(200, 500)),
        Kind("bottleneck", bottleneck, every=(10, 50)),
        Kind("adamax", adamax, every=(10, 50), points=(200, 460, 910)),
        Kind("adagrad", adagrad, every=(10, 50), points=(200, 500)),
        Kind("gan", gan, every=(10, 50)),
        Kind("vae", vae, every=(10, 50)),
    )
}
