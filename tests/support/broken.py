"""A small network that learns, and that is broken on purpose at one step."""

from collections.abc import Iterator
from typing import Any

import numpy as np

#: What may be broken.
FAULTS = ("dead layer", "exploding rate", "data in order", "other optimizer")


def trained(
    fault: str | None = None, *, at: int = 200, steps: int = 320, every: int = 20, seed: int = 0
) -> Iterator[tuple[int, dict[str, Any], dict[str, float]]]:
    """Yield steps, states and metrics of a run with Adam; from the step `at` on it has a fault."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(5, 16))
    labels = np.repeat(np.arange(5), 400)
    inputs = centres[labels] + rng.normal(size=(2000, 16))
    tests = slice(None, None, 4)
    weights = {
        "in.weight": rng.normal(size=(16, 32)) / 4,
        "in.bias": np.zeros(32),
        "hidden.weight": rng.normal(size=(32, 32)) / 6,
        "hidden.bias": np.zeros(32),
        "out.weight": rng.normal(size=(32, 5)) / 6,
        "out.bias": np.zeros(5),
    }
    first = {name: np.zeros_like(array) for name, array in weights.items()}
    second = {name: np.zeros_like(array) for name, array in weights.items()}
    for step in range(steps):
        broken = step >= at
        if step % every == 0:
            loss, _ = _gradients(weights, inputs[tests], labels[tests])
            other = broken and fault == "other optimizer"
            moments = {"momentum_buffer": first} if other else {"exp_avg": first, "exp_avg_sq": second}
            yield step, _state(weights, moments), {"test_loss": loss}
        if step == at and fault == "dead layer":
            weights["hidden.bias"] -= 1000
        batch = rng.integers(0, 2000, 64)
        if broken and fault == "data in order":
            batch = np.arange(64) + 64 * (step - at) % 1900
        _, gradients = _gradients(weights, inputs[batch], labels[batch])
        for name, gradient in gradients.items():
            first[name] += 0.1 * (gradient - first[name])
            second[name] += 0.01 * (gradient**2 - second[name])
            rate = 0.2 if broken and fault == "exploding rate" else 0.002
            if broken and fault == "other optimizer":
                weights[name] = weights[name] - 0.05 * first[name]
            else:
                weights[name] = weights[name] - rate * first[name] / (np.sqrt(second[name]) + 1e-8)


def _state(weights: dict[str, Any], moments: dict[str, dict[str, Any]]) -> dict[str, Any]:
    def single(arrays: dict[str, Any]) -> dict[str, Any]:
        return {name: array.astype(np.float32) for name, array in arrays.items()}

    return {"model": single(weights), "optimizer": {name: single(each) for name, each in moments.items()}}


def _gradients(weights: dict[str, Any], inputs: Any, labels: Any) -> tuple[float, dict[str, Any]]:
    """Return the mean cross entropy of a network of two layers of ReLU, and its gradients."""
    one = np.maximum(inputs @ weights["in.weight"] + weights["in.bias"], 0)
    two = np.maximum(one @ weights["hidden.weight"] + weights["hidden.bias"], 0)
    logits = two @ weights["out.weight"] + weights["out.bias"]
    logits -= logits.max(axis=1, keepdims=True)
    rows = np.arange(len(labels))
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    loss = float(-np.log(shares[rows, labels] + 1e-30).mean())
    shares[rows, labels] -= 1
    shares /= len(labels)
    back_two = (shares @ weights["out.weight"].T) * (two > 0)
    back_one = (back_two @ weights["hidden.weight"].T) * (one > 0)
    return loss, {
        "in.weight": inputs.T @ back_one,
        "in.bias": back_one.sum(axis=0),
        "hidden.weight": one.T @ back_two,
        "hidden.bias": back_two.sum(axis=0),
        "out.weight": two.T @ shares,
        "out.bias": shares.sum(axis=0),
    }
