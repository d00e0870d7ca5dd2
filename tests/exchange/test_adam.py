"""Adam's moments find their parameters and containers on both sides; errors name all others."""

import numpy as np
import optax
import pytest
import torch
from flax import nnx

from lccodec.errors import ArgumentError
from lccodec.exchange import Rule, adam_to_flax, adam_to_torch

from ..support.networks import LEARNING_RATE, bits, torch_state

RULES = [Rule("**.weight", "**/kernel", "linear")]
NAMES = ["fc.weight", "fc.bias"]


def entry(*shape, step=3.0):
    rng = np.random.default_rng(len(shape))
    return {"step": np.float32(step), "exp_avg": rng.normal(size=shape), "exp_avg_sq": rng.random(shape)}


def optimizer(**changes):
    state = {0: entry(2, 3), 1: entry(2)}
    group = {"lr": 0.1, "params": [0, 1], "param_names": NAMES}
    return {"state": state, "param_groups": [group], **changes}


def test_without_a_target_and_back():
    made = adam_to_flax(optimizer(), NAMES, RULES)
    assert (made["count"], made["count"].dtype) == (3, np.int32)
    assert np.array_equal(made["mu"]["fc"]["kernel"], entry(2, 3)["exp_avg"].T)
    assert np.array_equal(made["nu"]["fc"]["bias"], entry(2)["exp_avg_sq"])
    back = adam_to_torch(made, NAMES, RULES, optimizer())
    assert bits(back["state"]) == bits(optimizer()["state"])
    assert back["param_groups"] == optimizer()["param_groups"]
    assert "param_groups" not in adam_to_torch(made, NAMES, RULES)
    assert not np.shares_memory(back["state"][0]["step"], back["state"][1]["step"])


def test_the_names_come_from_the_optimizer_or_the_caller():
    by_text = {str(number): value for number, value in optimizer()["state"].items()}  # as in a file
    expected = bits(adam_to_flax(optimizer(), NAMES, RULES))
    assert bits(adam_to_flax(optimizer(), None, RULES)) == expected
    assert bits(adam_to_flax(optimizer(state=by_text), None, RULES)) == expected
    groups = [{"params": [1], "param_names": NAMES[1:]}, {"params": [0], "param_names": NAMES[:1]}]
    assert bits(adam_to_flax(optimizer(param_groups=groups), None, RULES)) == expected
    for groups in ([], [{"params": [0, 1]}], [5], [{"params": 5, "param_names": NAMES}]):
        with pytest.raises(ArgumentError, match="has no names of parameters"):
            adam_to_flax(optimizer(param_groups=groups), None, RULES)


@pytest.mark.parametrize(
    "transformation",
    [
        optax.adam(LEARNING_RATE),
        optax.adamw(LEARNING_RATE),
        optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(optax.linear_schedule(0.1, 0.0, 9))),
        optax.inject_hyperparams(optax.adam)(learning_rate=0.1),
    ],
)
def test_the_place_of_adam_in_a_real_optax_state(transformation):
    parameters = {"fc": {"kernel": np.zeros((3, 2)), "bias": np.zeros(2)}}
    like = transformation.init(parameters)
    state = {
        number: {key: np.float32(value) for key, value in each.items()}
        for number, each in optimizer()["state"].items()
    }
    made = adam_to_flax(optimizer(state=state), NAMES, RULES, like)
    gradient = {"fc": {"kernel": np.ones((3, 2), np.float32), "bias": np.ones(2, np.float32)}}
    _, after = transformation.update(gradient, made, parameters)  # optax takes it as its own
    assert type(after) is type(like)
    back = adam_to_torch(made, NAMES, RULES)
    assert bits(back["state"]) == bits(state)


def test_amsgrad_and_other_optimizers_are_refused_by_name():
    module = torch.nn.Linear(3, 2)
    for kind, options in ((torch.optim.Adam, {"amsgrad": True}), (torch.optim.SGD, {"momentum": 0.9})):
        torch_optimizer = kind(module.parameters(), lr=0.1, **options)
        module(torch.ones(1, 3)).sum().backward()
        torch_optimizer.step()
        with pytest.raises(
            ArgumentError, match=r"parameter 'fc\.weight' has .*(max_exp_avg_sq|momentum_buffer)"
        ):
            adam_to_flax(torch_state(torch_optimizer), NAMES, RULES)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({}, "parameter 'fc.weight' has no state; parameter 'fc.bias' has no state"),
        ({0: entry(2, 3)}, "parameter 'fc.bias' has no state"),
        ({0: entry(2, 3), 1: entry(2, step=4)}, r"because optax has one; got \[3, 4\]"),
        ({0: entry(2, 3), 1: entry(2), 2: entry(2)}, "there are 3 parameters but 2 names"),
        ({0: entry(2, 3), 1: 5}, "parameter 'fc.bias' has no state"),
        (
            {0: entry(2, 3), 1: {**entry(2), "step": "x"}},
            "the step of 'fc.bias' must be a number of steps; got 'x'",
        ),
        (
            {0: entry(2, 3), 1: {**entry(2), "step": np.float32("nan")}},
            "the step of 'fc.bias' must be a number",
        ),
        (
            {0: entry(2, 3), 1: {**entry(2), "step": np.float32(2.5)}},
            "the step of 'fc.bias' must be a number",
        ),
        (None, "must be a torch state_dict; it has no state"),
    ],
)
def test_states_that_are_not_adams(state, message):
    with pytest.raises(ArgumentError, match=message):
        adam_to_flax(optimizer(state=state), NAMES, RULES)


def test_more_shapes_and_names_that_do_not_fit():
    adam = adam_to_flax(optimizer(), NAMES, RULES)
    with pytest.raises(ArgumentError, match=r"the target has float64 \[5\]"):
        adam_to_torch(adam, NAMES, RULES, optimizer(state={0: entry(2, 3), 1: entry(5)}))
    with pytest.raises(ArgumentError, match="nothing would become 'other', which the target has"):
        adam_to_torch(adam, [*NAMES, "other"], RULES)
    with pytest.raises(ArgumentError, match=r"'fc/bias' .* would become 'fc\.bias'.*does not have"):
        adam_to_torch(adam, NAMES[:1], RULES)


@pytest.mark.parametrize("state", [{}, {"count": np.int32(1)}, 5, ({"count": 1, "mu": {}, "nu": {}},) * 2])
def test_optax_states_without_the_one_adam(state):
    with pytest.raises(ArgumentError, match=r"one Adam state \(count, mu and nu\); got"):
        adam_to_torch(state, NAMES)
    with pytest.raises(ArgumentError, match="one Adam state"):
        adam_to_flax(optimizer(), NAMES, RULES, like=state)


@pytest.mark.parametrize("count", ["x", 1.5, -1, 2**31, np.arange(2), None])
def test_counts_that_are_none(count):
    adam = {**adam_to_flax(optimizer(), NAMES, RULES), "count": count}
    with pytest.raises(ArgumentError, match="optax's count must be a number of steps"):
        adam_to_torch(adam, NAMES, RULES)


def test_moments_of_summed_biases_are_refused():
    names = [name for name, _ in torch.nn.LSTM(2, 2).named_parameters()]
    state = dict(enumerate([entry(8, 2), entry(8, 2), entry(8), entry(8)]))
    like = {
        "count": 0,
        "mu": nnx.to_pure_dict(nnx.state(nnx.RNN(nnx.OptimizedLSTMCell(2, 2, rngs=nnx.Rngs(0))), nnx.Param)),
    }
    like["nu"] = like["mu"]
    with pytest.raises(
        ArgumentError, match=r"'bias_ih_l0', 'bias_hh_l0'.*layout 'summed' cannot convert moments"
    ):
        adam_to_flax({"state": state}, names, like=like)


def test_names_and_groups_of_a_torch_target():
    adam = adam_to_flax(optimizer(), NAMES, RULES)
    assert bits(adam_to_torch(adam, None, RULES, optimizer(state={}))) == bits(optimizer())
    with pytest.raises(ArgumentError, match="it has no param_groups"):
        adam_to_torch(adam, NAMES, RULES, {"state": {}})
    for like in (None, 5, {"param_groups": []}):
        with pytest.raises(ArgumentError, match=r"names|it has no"):
            adam_to_torch(adam, None, RULES, like)
