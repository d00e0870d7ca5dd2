"""The same networks in torch and Flax: equal outputs, equal steps of Adam, and equal bits."""

import numpy as np
import pytest
from flax import nnx

from lccodec.exchange import adam_to_flax, adam_to_torch, to_flax, to_torch

from ..support.networks import (
    NETWORKS,
    WIDTH,
    bits,
    flax_adam,
    flax_output,
    flax_state,
    flax_step,
    load_torch,
    torch_adam,
    torch_output,
    torch_state,
    torch_step,
)

STEPS = 3


def trained(name, side):
    """Return a trained network, its copy in the other framework, their optimizers, and a batch."""
    network = NETWORKS[name]
    ours, theirs = network.both()
    adam, optax = torch_adam(ours), flax_adam(theirs)
    parameters = [name for name, _ in ours.named_parameters()]
    *batches, batch = (network.batch(np.random.default_rng(seed)) for seed in range(STEPS + 1))
    if side == "torch":
        for each in batches:
            torch_step(ours, adam, each)
        nnx.update(theirs, to_flax(torch_state(ours), network.rules, flax_state(theirs)))
        nnx.update(optax, adam_to_flax(torch_state(adam), None, network.rules, flax_state(optax)))
    else:
        for each in batches:
            flax_step(theirs, optax, each)
        load_torch(ours, to_torch(flax_state(theirs), network.rules, torch_state(ours)))
        load_torch(adam, adam_to_torch(flax_state(optax), parameters, network.rules, torch_state(adam)))
    return ours, adam, theirs, optax, batch


def without_noise(name, weights):
    """Leave out the bias of attention's keys: its gradient is rounding, which Adam scales up."""
    return np.delete(weights, np.s_[WIDTH : 2 * WIDTH]) if name.endswith("in_proj_bias") else weights


@pytest.mark.slow
@pytest.mark.parametrize("side", ["torch", "flax"])
@pytest.mark.parametrize("name", NETWORKS)
def test_outputs_and_the_next_step_agree_and_all_comes_back(name, side):
    rules = NETWORKS[name].rules
    ours, adam, theirs, optax, batch = trained(name, side)
    parameters = [name for name, _ in ours.named_parameters()]

    torch_side, flax_side = torch_state(ours), flax_state(theirs)
    assert bits(to_torch(flax_side, rules, torch_side)) == bits(torch_side)
    assert bits(to_flax(torch_side, rules, flax_side)) == bits(flax_side)
    torch_moments, flax_moments = torch_state(adam), flax_state(optax)
    assert bits(adam_to_torch(flax_moments, parameters, rules, torch_moments)) == bits(torch_moments)
    back = adam_to_flax(torch_moments, parameters, rules, flax_moments)
    assert bits(back) == bits(flax_moments)
    assert back["opt_state"][0]["count"] == STEPS

    expected, found = torch_output(ours, batch[0]), np.asarray(flax_output(theirs, batch[0]))
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()

    torch_step(ours, adam, batch)
    flax_step(theirs, optax, batch)
    after = torch_state(ours)
    exchanged = to_torch(flax_state(theirs), rules, after)
    for parameter in parameters:
        expected, found = (without_noise(parameter, state[parameter]) for state in (after, exchanged))
        assert np.abs(found - expected).max() <= 1e-4 * np.abs(expected).max(), parameter
        moved = without_noise(parameter, torch_side[parameter]) != expected
        assert moved.mean() > 0.5, parameter  # the step was one
    expected, found = torch_output(ours, batch[0]), np.asarray(flax_output(theirs, batch[0]))
    assert np.abs(found - expected).max() <= 1e-4 * np.abs(expected).max()
