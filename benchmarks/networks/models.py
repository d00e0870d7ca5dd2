"""The networks: logistic regression, LeNet-5, one with BatchNorm, a character GPT."""

from __future__ import annotations

import itertools

import torch
from torch import nn
from torch.nn import functional

__all__ = ["GPT", "BatchNormNet", "LeNet5", "logistic_regression"]

CHARACTERS = 65  # of tinyshakespeare


def logistic_regression() -> nn.Module:
    """Return multinomial logistic regression: 7,850 parameters for 28 x 28 images."""
    return nn.Sequential(nn.Flatten(), nn.Linear(28 * 28, 10))


class LeNet5(nn.Module):
    """LeNet-5 with ReLU and max pooling: 61,706 parameters for 28 x 28 images."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5, padding=2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the ten logits of every image."""
        x = functional.max_pool2d(functional.relu(self.conv1(images)), 2)
        x = functional.max_pool2d(functional.relu(self.conv2(x)), 2)
        x = functional.relu(self.fc1(x.flatten(1)))
        return self.fc3(functional.relu(self.fc2(x)))


class BatchNormNet(nn.Module):
    """Three strided convolutions, each with BatchNorm, and a linear layer: 74,874 parameters.

    BatchNorm's buffers (means, variances and counts of what passed) are part of the state. They
    move by whole units where weights move by thousandths: with one set of buckets for all arrays
    they take all that are promoted.
    """

    def __init__(self) -> None:
        super().__init__()
        sizes = (1, 16, 32, 64)
        layers: list[nn.Module] = []
        for inputs, outputs in itertools.pairwise(sizes):
            layers += [
                nn.Conv2d(inputs, outputs, 5, stride=2, padding=2, bias=False),
                nn.BatchNorm2d(outputs),
                nn.ReLU(),
            ]
        self.features = nn.Sequential(*layers)
        self.classify = nn.Linear(64 * 4 * 4, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the ten logits of every image."""
        return self.classify(self.features(images).flatten(1))


class GPT(nn.Module):
    """A decoder-only transformer over characters, arranged as GPT-2 (norms first), no dropout.

    Parameters
    ----------
    width, layers, heads
        Of the residual stream, number of blocks, attention heads in each.
    context
        Most characters it looks at.
    """

    def __init__(self, width: int, layers: int, heads: int, context: int) -> None:
        super().__init__()
        self.characters = nn.Embedding(CHARACTERS, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, CHARACTERS, bias=False)
        # GPT-2's: every matrix starts small, those that write to the residual stream smaller.
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                writes = name.endswith(("project.weight", "down.weight"))
                nn.init.normal_(parameter, std=0.02 / (2 * layers) ** 0.5 if writes else 0.02)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """Return the logits of the next character at every position of `text`, batch x length."""
        x = self.characters(text) + self.positions.weight[: text.shape[1]]
        return self.head(self.norm(self.blocks(x)))


class Block(nn.Module):
    """Attention and a multilayer perceptron, both residual."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the residual stream behind the block, batch x length x width."""
        batch, length, width = x.shape
        parts = self.attend(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.project(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))
