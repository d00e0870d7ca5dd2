"""Arrays to measure on: states of a real run at any size, and differences of a given zero share.

**Real**: the largest layer of LeNet-5 (``lenet.py``), one checkpoint after the other. An array of
any size holds it again and again. Every repeat has its neurons and its input channels in another
order and a scale of its own: an equally real layer, in which no compressor finds the first one
again.

**Made**: differences of which a quantizer turns a given share to 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

import lccodec

__all__ = [
    "STEP",
    "Walk",
    "as_dtype",
    "bucketed",
    "load_walk",
    "spread",
    "symbols_of_entropy",
    "train_states",
]

LAYER = "fc1.weight"
CHANNEL = 25  # inputs of the layer from one channel, 5 x 5 pixels: they stay side by side
DEPTH = 33  # checkpoints of the deepest chain: a keyframe and 32 deltas
STEP = 0.125  # of the made differences: coarse beside what bfloat16 rounds away of values about 1
DEAD_ZONE = 0.6  # half the width of the dead zone of UniformDeadzone, in steps

Pair = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Walk:
    """A run of checkpoints of one layer.

    Parameters
    ----------
    layer
        float32 of shape ``(checkpoints, neurons, inputs)``.
    source
        What it is.
    """

    layer: np.ndarray
    source: str

    def fill(self, step: int, out: np.ndarray, start: int = 0) -> None:
        """Write a step's values, from repeat `start` on, over `out` (float32, 1-D)."""
        layer = self.layer[step]
        for repeat, at in enumerate(range(0, out.size, layer.size), start):
            part = out[at : at + layer.size]
            values = layer
            if repeat:  # the first is the layer itself
                values = _reordered(layer, np.random.default_rng(repeat))
            part[:] = values.reshape(-1)[: part.size]

    def repeats(self, values: int) -> int:
        """Return how many repeats of the layer that many values take."""
        return -(-values // self.layer[0].size)

    def array(self, step: int, values: int, start: int = 0) -> np.ndarray:
        """Return that many values of a step."""
        out = np.empty(values, np.float32)
        self.fill(step, out, start)
        return out

    def pair(self, values: int) -> Pair:
        """Return an array and its reference, one interval of the run apart."""
        middle = len(self.layer) // 2
        return self.array(middle, values), self.array(middle - 1, values)

    def state(self, step: int, values: int, tensor: int) -> dict[str, np.ndarray]:
        """Return a state of `values` values in arrays of `tensor` (the last may be smaller)."""
        repeats = self.repeats(tensor)
        return {
            f"layer{number:05}.weight": self.array(step, min(tensor, values - at), number * repeats)
            for number, at in enumerate(range(0, values, tensor))
        }


def _reordered(layer: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return a layer with its neurons and channels in another order, and scaled."""
    neurons, inputs = layer.shape
    channel = CHANNEL if inputs % CHANNEL == 0 else 1
    columns = np.arange(inputs).reshape(-1, channel)[rng.permutation(inputs // channel)].reshape(-1)
    return layer[np.ix_(rng.permutation(neurons), columns)] * np.float32(rng.uniform(1, 1.25))


def load_walk(states: Path | None) -> Walk:
    """Return the run in a file of ``lenet.py --states``, or without one a random walk."""
    if states is None:
        return _random_walk()
    with np.load(states) as data:
        steps = sorted({int(name.split("/")[0]) for name in data.files})
        if len(steps) < DEPTH:
            raise SystemExit(f"{states.name}: {len(steps)} checkpoints, {DEPTH} are needed")
        return Walk(np.stack([data[f"{step}/{LAYER}"] for step in steps]), f"LeNet-5 {LAYER}")


def train_states(data: str, path: Path) -> None:
    """Train LeNet-5 on the digits in `data` and write the layer's states for :func:`load_walk`."""
    import torch

    from ..networks.datasets import data_directory, load_mnist
    from ..networks.lenet import train

    torch.set_num_threads(1)
    states = train(load_mnist(data_directory(data))[0], checkpoints=50, every=5, seed=0)
    np.savez(path, **{f"{step}/{LAYER}": state[LAYER] for step, state in enumerate(states, 1)})


def _random_walk() -> Walk:
    rng = np.random.default_rng(0)
    shape = (DEPTH, 120, 400)
    moves = rng.standard_normal(shape, np.float32) * np.exp(rng.standard_normal(shape[1:], np.float32))
    moves *= np.float32(1e-3)
    moves[0] = 0.05 * rng.standard_normal(shape[1:], np.float32)
    return Walk(np.cumsum(moves, axis=0, dtype=np.float32), "random walk")


def as_dtype(array: np.ndarray, dtype: str) -> np.ndarray:
    """Return float32 values as ``"float32"``, ``"bfloat16"`` (`BFLOAT16_BITS`) or ``"float64"``."""
    if dtype == "float32":
        return array
    if dtype == "float64":
        return array.astype(np.float64) * (np.pi / 3)  # or half of each significand would be 0
    bits = array.view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16  # to the nearest, ties to even
    return rounded.astype(np.uint16).view(lccodec.BFLOAT16_BITS)


def spread(share: float, values: int) -> Pair:
    """Return an array and its reference, of which UniformDeadzone finds that share unchanged.

    UniformDeadzone(step=STEP) turns that share of the differences to 0. The differences have a
    Laplace distribution.
    """
    rng = np.random.default_rng(1)
    scale = DEAD_ZONE * STEP / -np.log(1 - share)
    sign = rng.integers(0, 2, values, np.int8) * 2 - 1
    return _beside_reference(rng, rng.standard_exponential(values, np.float32) * sign * np.float32(scale))


def bucketed(share: float, values: int, bits: int) -> Pair:
    """Return an array and its reference, of which ExponentBuckets finds that share unchanged.

    ExponentBuckets(bits) turns that share of the differences to 0. Each of the promoted buckets
    holds twice as many values as the one before it; the promoted ones are the largest exponents,
    and of equal ones the positive bucket (LCC-PRM-01).
    """
    rng = np.random.default_rng(2)
    buckets = np.arange((1 << bits) - 1)
    weights = 2.0**buckets
    small = rng.random(values, np.float32) < share
    bucket = rng.choice(buckets, values, p=weights / weights.sum())
    # At a high share a bucket could stay empty, and one of the dropped ones would be promoted
    # instead.
    bucket[: buckets.size], small[: buckets.size] = buckets, False
    exponent = -1 - bucket // 2
    # What is dropped lies two binades lower, so that no rounding lifts it.
    exponent[small] = -4 - buckets[-1] // 2 - rng.integers(0, 4, int(small.sum()))
    size = np.ldexp(rng.uniform(1.05, 1.95, values), exponent)
    return _beside_reference(rng, np.where(bucket % 2 == 0, size, -size).astype(np.float32))


def _beside_reference(rng: np.random.Generator, differences: np.ndarray) -> Pair:
    reference = rng.standard_normal(differences.size, np.float32)
    return reference + differences, reference


def symbols_of_entropy(entropy: float, alphabet: int, count: int) -> np.ndarray:
    """Return uint8 symbols of that many bits; their shares fall off on both sides of the middle."""
    distance = np.abs(np.arange(alphabet) - alphabet // 2)

    def shares(decay: float) -> np.ndarray:
        weights = np.exp(-decay * distance)
        return weights / weights.sum()

    low, high = 1e-6, 20.0
    for _ in range(60):
        middle = (low + high) / 2
        p = shares(middle)
        if -(p * np.log2(np.maximum(p, 1e-300))).sum() > entropy:
            low = middle
        else:
            high = middle
    return np.random.default_rng(3).choice(alphabet, count, p=shares(low)).astype(np.uint8)
