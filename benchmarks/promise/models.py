"""Networks of the runs, and an optimizer that torch does not have."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from ..networks.models import CHARACTERS

__all__ = [
    "Adversaries",
    "Autoencoder",
    "Coupled",
    "Encoder",
    "Gated",
    "Lion",
    "Mixer",
    "Recurrent",
    "Residual",
    "Sines",
    "Skipgram",
]


class Recurrent(nn.Module):
    """An LSTM over characters."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(CHARACTERS, 64)
        self.lstm = nn.LSTM(64, 160, batch_first=True)
        self.head = nn.Linear(160, CHARACTERS)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """Return the logits of the next character at every position."""
        return self.head(self.lstm(self.embed(text))[0])


class Gated(nn.Module):
    """A GRU over characters."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.embed = nn.Embedding(CHARACTERS, 48)
        self.gru = nn.GRU(48, width, batch_first=True)
        self.head = nn.Linear(width, CHARACTERS)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """Return the logits of the next character at every position."""
        return self.head(self.gru(self.embed(text))[0])


class Autoencoder(nn.Module):
    """A variational autoencoder of images (Kingma and Welling, 2014); it returns its loss."""

    def __init__(self, width: int = 192, code: int = 12) -> None:
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(784, width), nn.ReLU(), nn.Linear(width, 2 * code))
        self.decode = nn.Sequential(nn.Linear(code, width), nn.ReLU(), nn.Linear(width, 784))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the negative evidence bound of an image, by one draw."""
        images = images.flatten(1).clamp(0, 1)
        mean, log = self.encode(images).chunk(2, -1)
        drawn = mean + torch.randn_like(mean) * (log / 2).exp()
        missed = functional.binary_cross_entropy_with_logits(self.decode(drawn), images, reduction="none")
        return (missed.sum(-1) + (mean.square() + log.exp() - 1 - log).sum(-1) / 2).mean()


class Adversaries(nn.Module):
    """A generator of images and its critic (Goodfellow et al., 2014)."""

    def __init__(
        self, code: int = 16, made: tuple[int, int] = (128, 128), judged: tuple[int, int] = (128, 128)
    ) -> None:
        super().__init__()
        self.code = code
        self.generator = self._perceptron(code, *made, 784)
        self.critic = self._perceptron(784, *judged, 1)

    @staticmethod
    def _perceptron(inputs: int, first: int, second: int, outputs: int) -> nn.Sequential:
        return nn.Sequential(
            nn.Linear(inputs, first), nn.LeakyReLU(0.2), nn.Linear(first, second), nn.LeakyReLU(0.2),
            nn.Linear(second, outputs),
        )  # fmt: skip

    def made(self, count: int) -> torch.Tensor:
        """Return images that the generator makes."""
        return self.generator(torch.randn(count, self.code))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the sum of both losses; each has gradients for its own net alone."""
        made, images = self.made(len(images)), images.flatten(1)
        told = functional.softplus(-self.critic(images)) + functional.softplus(self.critic(made.detach()))
        frozen = {name: p.detach() for name, p in self.critic.named_parameters()}
        fooled = functional.softplus(-torch.func.functional_call(self.critic, frozen, (made,)))
        return (told + fooled).mean()

    def distance(self, images: torch.Tensor) -> torch.Tensor:
        """Return how far made images are from others: the energy distance."""
        images, made = images.flatten(1), self.made(len(images))
        own = torch.cdist(made, made).mean() + torch.cdist(images, images).mean()
        return 2 * torch.cdist(made, images).mean() - own


class Sines(nn.Module):
    """A net of sines over places in the plane (Sitzmann et al., 2020)."""

    FREQUENCY = 20.0

    def __init__(self, width: int = 96) -> None:
        super().__init__()
        self.hidden = nn.ModuleList(nn.Linear(inputs, width) for inputs in (2, width, width))
        self.head = nn.Linear(width, 1)
        for number, layer in enumerate(self.hidden):
            most = math.sqrt(6 / layer.in_features) / (self.FREQUENCY if number else 1.0)
            nn.init.uniform_(layer.weight, -most, most)

    def forward(self, places: torch.Tensor) -> torch.Tensor:
        """Return the value at every place."""
        x = places
        for layer in self.hidden:
            x = torch.sin(self.FREQUENCY * layer(x))
        return self.head(x)


class Coupled(nn.Module):
    """A normalizing flow of affine couplings (Dinh et al., 2017) over eight numbers."""

    def __init__(self, couplings: int = 4, width: int = 64) -> None:
        super().__init__()
        self.nets = nn.ModuleList(
            nn.Sequential(
                nn.Linear(4, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 8),
            )
            for _ in range(couplings)
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the mean negative logarithm of the density, but for a constant."""
        volume = x.new_zeros(len(x))
        for net in self.nets:
            kept, moved = x.chunk(2, 1)
            scale, shift = net(kept).chunk(2, 1)
            scale = torch.tanh(scale)
            x = torch.cat([moved * scale.exp() + shift, kept], 1)
            volume = volume + scale.sum(1)
        return (x.square().sum(1) / 2 - volume).mean()


class Encoder(nn.Module):
    """A transformer over characters, some of which are hidden: it sees both sides of each."""

    def __init__(self, width: int = 64, layers: int = 2, context: int = 32) -> None:
        super().__init__()
        self.embed = nn.Embedding(CHARACTERS + 1, width)  # the last: a hidden one
        self.places = nn.Parameter(0.02 * torch.randn(context, width))
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, 0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, CHARACTERS)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """Return the logits of the character at every position."""
        return self.head(self.layers(self.embed(text) + self.places[: text.shape[1]]))


class Residual(nn.Module):
    """A block of two convolutions with BatchNorm around which its input passes."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the block's output."""
        return functional.relu(x + self.body(x))


class Lion(torch.optim.Optimizer):
    """Lion (Chen et al., 2023): steps of one size, by the sign of an interpolated momentum."""

    def __init__(self, parameters: Any, lr: float, betas: tuple[float, float] = (0.9, 0.99)) -> None:
        super().__init__(parameters, {"lr": lr, "betas": betas})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # noqa: ARG002 - an optimizer has it
        """Do one step."""
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                m = self.state[p].setdefault("exp_avg", torch.zeros_like(p))
                p.sub_((beta1 * m + (1 - beta1) * p.grad).sign(), alpha=group["lr"])
                m.mul_(beta2).add_(p.grad, alpha=1 - beta2)


class Mixer(nn.Module):
    """An MLP-Mixer (Tolstikhin et al., 2021) over 49 patches of 4 x 4."""

    def __init__(self, width: int = 32, layers: int = 2) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, width, 4, stride=4)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * layers))
        self.tokens = nn.ModuleList(
            nn.Sequential(nn.Linear(49, 98), nn.GELU(), nn.Linear(98, 49)) for _ in range(layers)
        )
        self.channels = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
            for _ in range(layers)
        )
        self.head = nn.Linear(width, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the ten logits of every image."""
        x = self.patches(images).flatten(2).transpose(1, 2)
        for number, (tokens, channels) in enumerate(zip(self.tokens, self.channels, strict=True)):
            x = x + tokens(self.norms[2 * number](x).transpose(1, 2)).transpose(1, 2)
            x = x + channels(self.norms[2 * number + 1](x))
        return self.head(x.mean(1))


class Skipgram(nn.Module):
    """Two embedding tables; a group of three characters predicts another one near it."""

    def __init__(self, rows: int, width: int) -> None:
        super().__init__()
        self.inner = nn.Embedding(rows, width, sparse=True)
        self.outer = nn.Embedding(rows, width, sparse=True)
        nn.init.normal_(self.inner.weight, std=0.1)
        nn.init.normal_(self.outer.weight, std=0.1)

    def forward(self, centre: torch.Tensor, near: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
        """Return the loss of negative sampling."""
        vector = self.inner(centre)
        right = (vector * self.outer(near)).sum(-1)
        wrong = torch.einsum("bw,bnw->bn", vector, self.outer(others))
        return -(functional.logsigmoid(right) + functional.logsigmoid(-wrong).sum(-1)).mean()
