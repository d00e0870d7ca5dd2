"""The network of the demo: how it starts, learns and is stored."""

import numpy as np
import pytest

from lccodec.cli import demonstration as digits


def test_gradient_is_the_slope_of_the_loss(monkeypatch):
    # With one batch of all images, a small step along the gradient lowers the loss by rate * |g|^2.
    monkeypatch.setattr(digits, "BATCH_IMAGES", digits.TRAIN_IMAGES)
    monkeypatch.setattr(digits, "LEARNING_RATE", 1e-3)
    task, network = digits.Task(), digits.Network.initial()
    start, before = network.vector.copy(), task.loss(network)
    task.train(network, 1)
    step = network.vector - start
    expected = float(step.astype(np.float64) @ step) / digits.LEARNING_RATE
    assert before - task.loss(network) == pytest.approx(expected, rel=0.05)
