"""Networks of the runs."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional

from ..networks.models import CHARACTERS

__all__ = [
    "Adapted",
    "Adversaries",
    "Attended",
    "Autoencoder",
    "Coupled",
    "Encoder",
    "Experts",
    "Gated",
    "Graphs",
    "Mixer",
    "Recurrent",
    "Residual",
    "Sines",
    "Skipgram",
    "Targeted",
    "UNet",
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


class UNet(nn.Module):
    """A U-Net of two scales over images of 14 x 14, told how strong their noise is."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.first = nn.Conv2d(2, width, 3, padding=1)
        self.down = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.middle = nn.Conv2d(2 * width, 2 * width, 3, padding=1)
        self.up = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.last = nn.Conv2d(2 * width, width, 3, padding=1)
        self.head = nn.Conv2d(width, 1, 1)

    def forward(self, images: torch.Tensor, level: torch.Tensor) -> torch.Tensor:
        """Return the noise in images of noise levels from 0 to 1."""
        wide = functional.silu(self.first(torch.cat([images, level.expand_as(images)], 1)))
        deep = functional.silu(self.middle(functional.silu(self.down(wide))))
        return self.head(functional.silu(self.last(torch.cat([wide, self.up(deep)], 1))))


class Targeted(nn.Module):
    """Values of ten actions, and a copy that they are learned from (Mnih et al., 2015)."""

    EVERY, LATER = 50, 0.5  # updates between two copies; what a reward counts one step later

    def __init__(self) -> None:
        super().__init__()
        self.net, self.target_net = (
            nn.Sequential(nn.Flatten(), nn.Linear(784, 96), nn.ReLU(), nn.Linear(96, 10)) for _ in range(2)
        )
        self.target_net.load_state_dict(self.net.state_dict())
        self.target_net.requires_grad_(False)
        self.register_buffer("updates", torch.tensor(0))

    def forward(
        self, now: torch.Tensor, actions: torch.Tensor, rewards: torch.Tensor, following: torch.Tensor
    ) -> torch.Tensor:
        """Return the loss of one step."""
        wanted = rewards + self.LATER * self.target_net(following).amax(1)
        return functional.smooth_l1_loss(self.net(now).gather(1, actions[:, None])[:, 0], wanted)

    def follow(self) -> None:
        """Copy the net now and then; it is called at each update."""
        self.updates += 1
        if int(self.updates) % self.EVERY == 0:
            self.target_net.load_state_dict(self.net.state_dict())


class Graphs(nn.Module):
    """A net over graphs: each node hears the sum of its neighbours, three times."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.enter = nn.Linear(4, width)
        self.own = nn.ModuleList(nn.Linear(width, width) for _ in range(3))
        self.heard = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(3))
        self.head = nn.Linear(width, 1)

    def forward(self, nodes: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        """Return a number for each graph."""
        x = functional.silu(self.enter(nodes))
        for own, heard in zip(self.own, self.heard, strict=True):
            x = x + functional.silu(own(x) + heard(edges @ x / 3))
        return self.head(x).mean((1, 2))


class Attended(nn.Module):
    """A net over graphs: each node hears its neighbours, weighed by what both are, twice."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.enter = nn.Linear(2, width)
        self.parts = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(2))
        self.head = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, nodes: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        """Return a number for each graph."""
        x = functional.relu(self.enter(nodes))
        for part in self.parts:
            asks, tells, says = part(x).chunk(3, -1)
            weights = torch.sigmoid(asks @ tells.transpose(1, 2) / math.sqrt(x.shape[-1]))
            x = x + functional.relu((weights * edges) @ says / 3)
        return self.head(x).sum((1, 2)) / 14


class Experts(nn.Module):
    """Characters by their last eight, each told by the two best of four experts (Shazeer, 2017)."""

    LAST = 8

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.embed = nn.Embedding(CHARACTERS + 1, width)
        self.gate = nn.Linear(self.LAST * width, 4, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(self.LAST * width, 96), nn.SiLU(), nn.Linear(96, CHARACTERS))
            for _ in range(4)
        )

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """Return the logits of the next character at every position."""
        shown = functional.pad(text, (self.LAST - 1, 0), value=CHARACTERS).unfold(1, self.LAST, 1)
        x = self.embed(shown).flatten(-2)
        best, which = self.gate(x).topk(2, -1)
        shares = torch.zeros(*x.shape[:-1], 4).scatter(-1, which, best.softmax(-1))
        told = torch.stack([expert(x) for expert in self.experts], -1)
        return (told * shares[..., None, :]).sum(-1)


class Adapted(nn.Module):
    """A frozen linear layer with an adapter of low rank beside it (Hu et al., 2021)."""

    def __init__(self, base: nn.Linear, rank: int = 8) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.lora_A = nn.Parameter(torch.randn(rank, base.in_features) / math.sqrt(base.in_features))
        self.lora_B = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the layer's output."""
        return self.base(x) + functional.linear(functional.linear(x, self.lora_A), self.lora_B)

    @classmethod
    def put_into(cls, model: nn.Module) -> nn.Module:
        """Freeze a model, and put adapters beside all linear layers in it but at its top."""
        model.requires_grad_(False)
        for part in list(model.modules()):
            if part is not model:
                for name, layer in list(part.named_children()):
                    if isinstance(layer, nn.Linear):
                        setattr(part, name, cls(layer))
        return model


class Scan(nn.Module):
    """Text through two layers of linear recurrences, each with decays and gates of its own."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.embed = nn.Embedding(CHARACTERS, width)
        self.enter = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(2))
        self.decays = nn.ParameterList(nn.Parameter(torch.linspace(-1, 4, width)) for _ in range(2))
        self.leave = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.head = nn.Linear(width, CHARACTERS)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """Return the logits of the next character at every position."""
        x = self.embed(text)
        for norm, enter, decay, leave in zip(self.norms, self.enter, self.decays, self.leave, strict=True):
            told, opened, gate = enter(norm(x)).chunk(3, -1)
            kept = torch.sigmoid(decay + opened)
            state, states = torch.zeros_like(told[:, 0]), []
            for now, keep in zip(told.unbind(1), kept.unbind(1), strict=True):
                state = keep * state + (1 - keep) * now
                states.append(state)
            x = x + leave(torch.stack(states, 1) * functional.silu(gate))
        return self.head(x)


class Towers(nn.Module):
    """Two perceptrons, for the upper and the lower half of an image, and a temperature."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.upper, self.lower = (
            nn.Sequential(nn.Linear(392, width), nn.GELU(), nn.LayerNorm(width), nn.Linear(width, 32))
            for _ in range(2)
        )
        self.temperature = nn.Parameter(torch.tensor(2.0))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the loss of both halves finding each other."""
        upper, lower = images.flatten(1).split(392, 1)
        one, other = (
            functional.normalize(self.upper(upper), dim=1),
            functional.normalize(self.lower(lower), dim=1),
        )
        found, right = one @ other.T * self.temperature.exp(), torch.arange(len(images))
        return (functional.cross_entropy(found, right) + functional.cross_entropy(found.T, right)) / 2


class Scaled(nn.Module):
    """Convolutions of standardized weights, in blocks that are scaled (Brock et al., 2021)."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, width, 5, stride=4, padding=2)
        self.blocks = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(3))
        self.gains = nn.ParameterList(nn.Parameter(torch.ones(width, 1, 1, 1)) for _ in range(3))
        self.head = nn.Linear(width * 49, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the logits of classes."""
        x = self.stem(images)
        for conv, gain in zip(self.blocks, self.gains, strict=True):
            weight = conv.weight - conv.weight.mean((1, 2, 3), keepdim=True)
            weight = gain * weight / (weight.square().sum((1, 2, 3), keepdim=True) + 1e-4).sqrt()
            x = x + 0.3 * functional.conv2d(1.7 * functional.relu(x), weight, conv.bias, padding=1)
        return self.head(functional.relu(x).flatten(1))
