"""The state of an optimizer comes back as it is, and only into an optimizer that it fits."""

from __future__ import annotations

import pytest
import torch

from lccodec.adapters import torch as adapter
from lccodec.errors import ArgumentError

from ...support.torch_states import assert_same, network, train, trained

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "adamw": lambda p: torch.optim.AdamW(p, amsgrad=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, centered=True, momentum=0.9),
    "adagrad": torch.optim.Adagrad,
    "adadelta": torch.optim.Adadelta,
    "adamax": torch.optim.Adamax,
    "asgd": torch.optim.ASGD,
    "rprop": torch.optim.Rprop,
    "adafactor": torch.optim.Adafactor,
    "lbfgs": torch.optim.LBFGS,
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_state_of_an_optimizer_comes_back_as_it_is(name):
    model = network()
    optimizer = OPTIMIZERS[name](model.parameters())
    if name == "lbfgs":
        optimizer.step(
            lambda: (optimizer.zero_grad(), loss := model(torch.ones(4, 6)).sum(), loss.backward())[1]
        )
    else:
        train(model, optimizer, range(3))
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    back = adapter.load(adapter.save(state))
    assert_same(back, state)
    resumed = network(1)
    again = OPTIMIZERS[name](resumed.parameters())
    adapter.load_into({"model": resumed, "optimizer": again}, back)
    assert_same({"model": resumed.state_dict(), "optimizer": again.state_dict()}, state)


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (lambda m: torch.optim.SGD(m.parameters(), 0.1), "missing: param_groups/0/momentum"),
        (
            lambda m: torch.optim.AdamW([{"params": m[0].parameters()}, {"params": m[1:].parameters()}]),
            "the state: groups of [6] parameters, where the target has groups of [2, 4]",
        ),
        (
            lambda m: torch.optim.AdamW(list(m.parameters())[::-1]),
            "state/0/exp_avg: float32 (8, 6), where the target has float32 (3,)",
        ),
        (
            lambda m: torch.optim.AdamW(m.bfloat16().parameters()),
            "state/1/exp_avg_sq: float32 (8,), where the target has bfloat16 (8,)",
        ),
    ],
)
def test_the_state_of_another_optimizer(make, line):
    _, _, state = trained()
    optimizer = make(network())
    with pytest.raises(ArgumentError) as caught:
        adapter.load_into(optimizer, state["optimizer"])
    assert f"  {line}" in str(caught.value).splitlines()
    assert not optimizer.state


def test_an_optimizer_that_has_a_state_wants_the_same_entries():
    _, optimizer, state = trained()
    entries = state["optimizer"]["state"]
    del entries[0]["exp_avg"]
    entries[1]["extra"] = torch.ones(1)
    entries[2]["step"] = 3
    entries[17] = {}
    with pytest.raises(ArgumentError) as caught:
        adapter.load_into(optimizer, state["optimizer"])
    assert str(caught.value).splitlines()[1:] == [
        "  missing: state/0/exp_avg",
        "  unexpected: state/1/extra",
        "  state/2/step: no tensor, where the target has float32 ()",
        "  unexpected: state/17",
    ]
    for wrong in (None, {}, {"state": [], "param_groups": []}, {"state": {}, "param_groups": [1]}):
        with pytest.raises(ArgumentError, match="not the state of an optimizer"):
            adapter.load_into(optimizer, wrong)


def test_settings_that_a_saved_group_lacks_are_the_targets():
    model, optimizer, state = trained()
    group = state["optimizer"]["param_groups"][0]
    for key in ("amsgrad", "decoupled_weight_decay", "fused", "eps"):
        del group[key]
    fresh = torch.optim.AdamW(model.parameters(), eps=1e-5)
    adapter.load_into(fresh, state["optimizer"])
    found = fresh.param_groups[0]
    assert found["eps"] == 1e-5  # PyTorch itself would fail at the next step
    assert found["amsgrad"] is False
    assert found["decoupled_weight_decay"] is True
    assert set(found) >= set(optimizer.param_groups[0])
    train(model, fresh, range(2))
    group["own"] = "kept"
    adapter.load_into(fresh, state["optimizer"])
    assert fresh.param_groups[0]["own"] == "kept"


def test_entries_of_an_optimizer_that_is_not_strict():
    _, optimizer, state = trained()
    entries = state["optimizer"]["state"]
    del entries[0]["exp_avg"]
    entries[17] = {"exp_avg": torch.ones(1)}
    adapter.load_into(optimizer, state["optimizer"], strict=False)
    assert len(optimizer.state) == 6  # the parameter that is not there has no state
    entries[1]["exp_avg"] = torch.ones(1)
    with pytest.raises(ArgumentError, match="state/1/exp_avg"):
        adapter.load_into(optimizer, state["optimizer"], strict=False)
