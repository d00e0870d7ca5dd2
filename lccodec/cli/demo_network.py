"""What the demo trains: a small network in NumPy, and the handwritten digits in the package."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from importlib import resources
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

import lccodec

LAYER_SIZES: Final = (64, 416, 416, 10)
TRAIN_IMAGES: Final = 320  # of 400; the others are test images
BATCH_IMAGES: Final = 64
LEARNING_RATE: Final = 0.02  # so small that the loss falls at every iteration, and rework is not luck
SEED: Final = 2009_13003

Floats: TypeAlias = NDArray[np.float32]


class Network:
    """A multilayer perceptron. Weight and bias of each layer are views of one vector."""

    def __init__(self, vector: Floats) -> None:
        self.vector = vector
        self.parameters: dict[str, Floats] = {}
        at = 0
        for number, (inputs, outputs) in enumerate(itertools.pairwise(LAYER_SIZES), 1):
            for name, shape in (("weight", (inputs, outputs)), ("bias", (outputs,))):
                size = int(np.prod(shape))
                self.parameters[f"layer{number}.{name}"] = vector[at : at + size].reshape(shape)
                at += size

    @classmethod
    def initial(cls) -> Network:
        """Return the network that every run starts from: He's weights, biases of zero."""
        random = np.random.default_rng(SEED)
        size = sum(inputs * outputs + outputs for inputs, outputs in itertools.pairwise(LAYER_SIZES))
        network = cls(np.zeros(size, "f4"))
        for weight, _ in network.layers():
            weight[:] = random.normal(0, np.sqrt(2 / len(weight)), weight.shape)
        return network

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Network:
        """Return the network of a restored state."""
        network = cls(np.empty(sum(array.size for array in state["parameters"].values()), "f4"))
        for name, parameter in network.parameters.items():
            parameter[:] = state["parameters"][name]
        return network

    def to_state(self, iteration: int) -> dict[str, Any]:
        """Return the state to save: the parameters by name, and the iteration."""
        return {"iteration": iteration, "parameters": self.parameters}

    def layers(self) -> Iterator[tuple[Floats, Floats]]:
        """Yield the weight and the bias of each layer."""
        arrays = iter(self.parameters.values())
        return zip(arrays, arrays, strict=True)

    def activations(self, images: Floats) -> list[Floats]:
        """Return the input of every layer (with ReLU between layers), then the logits."""
        *hidden, (last_weight, last_bias) = self.layers()
        values = [images]
        for weight, bias in hidden:
            values.append(np.maximum(values[-1] @ weight + bias, 0))
        values.append(values[-1] @ last_weight + last_bias)
        return values


class Task:
    """The digits, split into training and test images, with training, loss and accuracy."""

    def __init__(self) -> None:
        digits = resources.files("lccodec.cli") / "data" / "digits.lcc.h5"
        data: Any = lccodec.load(digits.read_bytes())
        images, labels = data["images"], data["labels"]
        order = np.random.default_rng(SEED).permutation(len(labels))
        scaled = (images[order].reshape(len(order), -1) / 16 - 0.3).astype(np.float32)
        labels = labels[order].astype(np.intp)
        self.images, self.test_images = scaled[:TRAIN_IMAGES], scaled[TRAIN_IMAGES:]
        self.labels, self.test_labels = labels[:TRAIN_IMAGES], labels[TRAIN_IMAGES:]

    def train(self, network: Network, iteration: int) -> None:
        """Do iteration number `iteration` (from 1) of plain SGD, in place.

        The batch depends only on that number, so a resumed run gets the same batches.
        """
        epoch, batch = divmod(iteration - 1, TRAIN_IMAGES // BATCH_IMAGES)
        order = np.random.default_rng((SEED, epoch)).permutation(TRAIN_IMAGES)
        chosen = order[batch * BATCH_IMAGES : (batch + 1) * BATCH_IMAGES]
        *inputs, logits = network.activations(self.images[chosen])
        gradient = np.exp(_log_softmax(logits))
        gradient[np.arange(BATCH_IMAGES), self.labels[chosen]] -= 1
        gradient *= LEARNING_RATE / BATCH_IMAGES
        for (weight, bias), values in zip(reversed(list(network.layers())), reversed(inputs), strict=True):
            # Computed before the weight changes. The first layer does not need it, but it is cheap.
            below = (gradient @ weight.T) * (values > 0)
            weight[:] -= values.T @ gradient
            bias[:] -= gradient.sum(axis=0)
            gradient = below

    def loss(self, network: Network) -> float:
        """Return the mean cross entropy over the whole training split."""
        logits = network.activations(self.images)[-1]
        return -float(_log_softmax(logits)[np.arange(TRAIN_IMAGES), self.labels].mean(dtype=np.float64))

    def accuracy(self, network: Network) -> float:
        """Return the fraction of test images that `network` classifies correctly."""
        guesses = network.activations(self.test_images)[-1].argmax(axis=1)
        return float(np.mean(guesses == self.test_labels))


def _log_softmax(logits: Floats) -> Floats:
    """Return the logarithm of the softmax of each row."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    result: Floats = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return result
