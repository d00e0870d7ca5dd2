"""The kinds of runs. Each function makes one, from the data sets and a seed for its parameters.

Rule: a kind is here for what it does to a lossy state, not for its task. They differ in the
optimizer, in how fast the loss falls beside its curvature, in how much of a weight moves in an
interval, and in how many elements move at all.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from ..networks.models import CHARACTERS, GPT, BatchNormNet, LeNet5
from .batches import TEXT_TRAINED, Data, characters, classified, cosine, digits
from .models import Adversaries, Autoencoder, Gated, Mixer, Recurrent, Residual, Skipgram
from .optimizers import Lion
from .training import FlaxTraining, TorchTraining, Training

__all__ = ["KINDS", "QUICK", "Data", "Kind"]

BEFORE = 400  # iterations before a run is tuned further
RESTART_EVERY = 200  # iterations between two jumps of a rate


@dataclass(frozen=True)
class Kind:
    """A kind of run and where it is saved.

    Parameters
    ----------
    name, make
        Of its rows, and the function that makes one.
    every
        Intervals between checkpoints, in iterations.
    points
        Iterations at which states are restored: early, in the middle, late.
    only
        An interval and an iteration, if only that place is measured.
    """

    name: str
    make: Callable[[Data, int], Training]
    every: tuple[int, ...] = (5, 20, 100)
    points: tuple[int, ...] = (200, 500, 1000)
    only: tuple[int, int] | None = None

    @property
    def places(self) -> list[tuple[int, int]]:
        """Intervals and iterations that are measured."""
        every = [(interval, point) for interval in self.every for point in self.points]
        return [place for place in every if self.only in (None, place)]


def gpt(data: Data, seed: int) -> Training:
    """A character GPT of 0.8 M parameters: AdamW."""
    torch.manual_seed(seed)
    batch, test = characters(data, 32, 8)
    model = GPT(128, 4, heads=4, context=32)
    optimizer = torch.optim.AdamW(model.parameters(), 5e-4, fused=True)
    return TorchTraining(model, {"optimizer": optimizer}, batch, classified, test, lambda i: min(1.0, i / 50))


def lstm(data: Data, seed: int) -> Training:
    """An LSTM of 0.16 M parameters: Adam, a high rate."""
    torch.manual_seed(seed)
    batch, test = characters(data, 32, 16)
    model = Recurrent()
    return TorchTraining(
        model, {"optimizer": torch.optim.Adam(model.parameters(), 2e-3)}, batch, classified, test
    )


def resnet(data: Data, seed: int) -> Training:
    """A small ResNet with BatchNorm: SGD with momentum."""
    torch.manual_seed(seed)
    batch, test = digits(data)
    stem = [nn.Conv2d(1, 16, 3, stride=4, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    model = nn.Sequential(
        *stem, Residual(16), nn.Conv2d(16, 32, 3, stride=2, padding=1), Residual(32), nn.Flatten(),
        nn.Linear(32 * 16, 10),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), 0.02, momentum=0.9, weight_decay=1e-4)
    return TorchTraining(model, {"optimizer": optimizer}, batch, classified, test)


def lenet(data: Data, seed: int) -> Training:
    """LeNet-5: plain SGD."""
    torch.manual_seed(seed)
    batch, test = digits(data)
    model = LeNet5()
    return TorchTraining(
        model, {"optimizer": torch.optim.SGD(model.parameters(), 0.05)}, batch, classified, test
    )


def lion(data: Data, seed: int) -> Training:
    """Strided convolutions with BatchNorm: Lion, a cosine schedule."""
    torch.manual_seed(seed)
    batch, test = digits(data)
    model = BatchNormNet()
    return TorchTraining(
        model, {"optimizer": Lion(model.parameters(), 3e-4)}, batch, classified, test, cosine(1200)
    )


def mixer(data: Data, seed: int) -> Training:
    """A vision mixer: AdamW with a cosine schedule."""
    torch.manual_seed(seed)
    batch, test = digits(data)
    model = Mixer()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, weight_decay=0.05)
    return TorchTraining(model, {"optimizer": optimizer}, batch, classified, test, cosine(1200))


def muon(data: Data, seed: int) -> Training:
    """The same mixer: Muon for its matrices, AdamW for all else."""
    torch.manual_seed(seed)
    batch, test = digits(data)
    model = Mixer()
    matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and not n.startswith("head")]
    others = [p for p in model.parameters() if not any(p is m for m in matrices)]
    both = {"muon": torch.optim.Muon(matrices, 5e-3), "adam": torch.optim.AdamW(others, 1e-3)}
    return TorchTraining(model, both, batch, classified, test)


def embeddings(data: Data, seed: int) -> Training:
    """Embedding tables of which a batch touches some hundred rows: SparseAdam."""
    torch.manual_seed(seed)
    text = data.text
    triples = text[:-2] * CHARACTERS**2 + text[1:-1] * CHARACTERS + text[2:]
    groups, numbers = np.unique(triples, return_inverse=True)
    end = int(TEXT_TRAINED * len(numbers))

    def draw(generator: np.random.Generator, first: int, last: int, size: int) -> tuple[torch.Tensor, ...]:
        places = generator.integers(first + 8, last - 8, size=size)
        near = places + generator.choice([-6, -5, -4, -3, 3, 4, 5, 6], size=size)
        others = generator.integers(first, last, size=(size, 5))
        return tuple(torch.from_numpy(numbers[found]) for found in (places, near, others))

    model = Skipgram(len(groups), 24)
    test = draw(np.random.default_rng(0), end, len(numbers), 4_000)
    return TorchTraining(
        model,
        {"optimizer": torch.optim.SparseAdam(list(model.parameters()), 5e-3)},
        lambda generator: draw(generator, 0, end, 512),
        lambda m, *tensors: m(*tensors),
        test,
    )


def flax_net(data: Data, seed: int) -> Training:
    """A multilayer perceptron in Flax: optax's AdamW."""
    import flax.linen
    import jax.numpy as jnp
    import optax

    batch, (images, labels) = digits(data)
    module = flax.linen.Sequential(
        [flax.linen.Dense(256), flax.linen.gelu, flax.linen.Dense(256), flax.linen.gelu, flax.linen.Dense(10)]
    )

    def flat(images: torch.Tensor, labels: torch.Tensor) -> tuple[Any, Any]:
        return images.flatten(1).numpy(), labels.numpy()

    return FlaxTraining(
        module,
        optax.adamw(5e-4),
        lambda generator: flat(*batch(generator)),
        lambda logits, targets: jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, targets)),
        flat(images, labels),
        seed,
    )


def finetune(data: Data, seed: int) -> Training:
    """A GPT of 0.4 M parameters, tuned at a small rate on text that it has not seen: AdamW."""
    torch.manual_seed(seed)
    half = int(TEXT_TRAINED * len(data.text)) // 2
    batch, test = characters(data, 32, 16, slice(half, None))
    before, _ = characters(data, 32, 16, slice(half))
    model = GPT(96, 3, heads=4, context=32)
    trained = TorchTraining(
        model, {"optimizer": torch.optim.AdamW(model.parameters(), 2e-3)}, before, classified, test
    )
    trained.advance(BEFORE, 0)
    optimizer = torch.optim.AdamW(model.parameters(), 5e-5)
    return TorchTraining(model, {"optimizer": optimizer}, batch, classified, test)


def denoiser(data: Data, seed: int) -> Training:
    """A multilayer perceptron that removes noise from images: AdamW with a cosine schedule."""
    torch.manual_seed(seed)
    (batch, (images, _)), noise = digits(data), torch.Generator().manual_seed(1)
    model = nn.Sequential(nn.Linear(784, 256), nn.GELU(), nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 784))

    def noisy(generator: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        clean = batch(generator)[0].flatten(1)
        added = generator.standard_normal(clean.shape, dtype=np.float32)
        return clean + 0.7 * torch.from_numpy(added), clean

    clean = images.flatten(1)
    return TorchTraining(
        model,
        {"optimizer": torch.optim.AdamW(model.parameters(), 1e-3)},
        noisy,
        lambda m, inputs, targets: functional.mse_loss(m(inputs), targets),
        (clean + 0.7 * torch.randn(clean.shape, generator=noise), clean),
        cosine(1200),
    )


def regression(data: Data, seed: int, width: int = 256) -> Training:
    """A smooth function of eight variables, learned without noise: Adam."""
    del data
    torch.manual_seed(seed)
    of = np.random.default_rng(5).standard_normal((8, 16)).astype(np.float32)

    def draw(generator: np.random.Generator, size: int = 128) -> tuple[torch.Tensor, torch.Tensor]:
        x = generator.standard_normal((size, 8), dtype=np.float32)
        y = np.sin(x @ of).sum(1, keepdims=True) / 4
        return torch.from_numpy(x), torch.from_numpy(y)

    layers = nn.Linear(8, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1)
    model = nn.Sequential(*layers)
    return TorchTraining(
        model,
        {"optimizer": torch.optim.Adam(model.parameters(), 1e-3)},
        draw,
        lambda m, inputs, targets: functional.mse_loss(m(inputs), targets),
        draw(np.random.default_rng(0), 2_000),
    )


def policy_gradient(data: Data, seed: int) -> Training:
    """A policy that names digits and is told right or wrong (REINFORCE): Adam."""
    torch.manual_seed(seed)
    batch, test = digits(data)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))

    def reinforce(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        choices = torch.distributions.Categorical(logits=model(images))
        actions = choices.sample()
        rewards = (actions == labels).float()
        return -(choices.log_prob(actions) * (rewards - rewards.mean())).mean()

    def unrewarded(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return 1 - functional.softmax(model(images), -1).gather(1, labels[:, None]).mean()

    return TorchTraining(
        model,
        {"optimizer": torch.optim.Adam(model.parameters(), 1e-3)},
        batch,
        reinforce,
        test,
        score=unrewarded,
    )


def warm_restarts(data: Data, seed: int) -> Training:
    """A GRU of 0.1 M parameters, whose rate falls to 0 and jumps back: AdamW."""
    torch.manual_seed(seed)
    batch, test = characters(data, 32, 16)
    model = Gated()
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)

    def factor(iteration: int) -> float:
        return 0.5 + 0.5 * math.cos(math.pi * (iteration % RESTART_EVERY) / RESTART_EVERY)

    return TorchTraining(model, {"optimizer": optimizer}, batch, classified, test, factor)


def autoencoder(data: Data, seed: int) -> Training:
    """A variational autoencoder of digits: Adam with AMSGrad."""
    torch.manual_seed(seed)
    batch, test = digits(data)
    model = Autoencoder()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3, amsgrad=True)
    return TorchTraining(model, {"optimizer": optimizer}, batch, lambda m, images, _: m(images), test)


def adversaries(data: Data, seed: int) -> Training:
    """A generator of digits and its critic, each with an Adam of its own."""
    torch.manual_seed(seed)
    batch, test = digits(data)
    model = Adversaries()
    both = {
        name: torch.optim.Adam(part.parameters(), 1e-4, betas=(0.5, 0.999))
        for name, part in (("generator", model.generator), ("critic", model.critic))
    }
    return TorchTraining(
        model,
        both,
        batch,
        lambda m, images, _: m(images),
        test,
        score=lambda m, images, _: m.distance(images),
    )


def valley(data: Data, seed: int) -> Training:
    """A wide perceptron that sharpens images: AdamW, a high rate that falls."""
    torch.manual_seed(seed)
    batch, (images, _) = digits(data)
    model = nn.Sequential(nn.Linear(784, 384), nn.Tanh(), nn.Linear(384, 384), nn.Tanh(), nn.Linear(384, 784))

    def blurred(images: torch.Tensor) -> torch.Tensor:
        return functional.avg_pool2d(images.view(-1, 1, 28, 28), 5, 1, 2).flatten(1)

    def draw(generator: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        clean = batch(generator)[0]
        return blurred(clean), clean.flatten(1)

    return TorchTraining(
        model,
        {"optimizer": torch.optim.AdamW(model.parameters(), 1e-3)},
        draw,
        lambda m, inputs, targets: functional.mse_loss(m(inputs), targets),
        (blurred(images), images.flatten(1)),
        cosine(1200),
    )


KINDS = {
    kind.name: kind
    for kind in (
        Kind("gpt", gpt, points=(200, 400, 1000)),
        Kind("lstm", lstm, every=(10, 40, 120), points=(240, 480, 960)),
        Kind("resnet", resnet),
        Kind("lenet", lenet),
        Kind("lion", lion),
        Kind("mixer", mixer),
        Kind("muon", muon),
        Kind("embeddings", embeddings),
        Kind("flax", flax_net),
        Kind("finetune", finetune),
        Kind("denoiser", denoiser, every=(10, 40, 120), points=(240, 480, 960)),
        Kind("regression", regression),
        Kind("policy gradient", policy_gradient),
        Kind("warm restarts", warm_restarts, every=(10, 50), points=(230, 450, 850)),
        Kind("autoencoder", autoencoder, every=(10, 40), points=(200, 480, 960)),
        Kind("adversaries", adversaries, every=(10, 40), points=(200, 480, 960)),
        Kind("narrow valley", valley, every=(10, 40), points=(240, 480, 960)),
    )
}

#: For daily work: those that broke promises that the others kept.
QUICK = ("lstm", "resnet", "denoiser", "finetune")
