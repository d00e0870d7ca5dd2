"""Loading into modules, optimizers and schedulers of PyTorch: everything is loaded, or nothing."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import pytest
import torch

import lccodec
from lccodec.adapters import torch as adapter
from lccodec.errors import ArgumentError, LccodecWarning

from ...support.torch_states import assert_same, network, trained


def test_more_entries_of_a_scheduler_are_kept_and_fewer_are_the_targets():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3)
    state = scheduler.state_dict()
    del state["verbose" if "verbose" in state else "_is_initial"]
    state |= {"gamma": 0.25, "of_a_newer_version": [1]}
    adapter.load_into({"scheduler": scheduler}, {"scheduler": state})
    assert scheduler.of_a_newer_version == [1]
    assert scheduler.gamma == 0.25
    lambdas = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5**step)
    partial = lambdas.state_dict()
    del partial["lr_lambdas"]  # PyTorch fails on it, halfway
    with pytest.raises(ArgumentError, match="missing: lr_lambdas"):
        adapter.load_into(lambdas, partial)


class Counting:
    """Something with a state that is its own business."""

    def __init__(self):
        self.state = {"n": 0}

    def state_dict(self):
        return dict(self.state)

    def load_state_dict(self, state):
        self.state = dict(state)


def test_what_else_has_a_state_may_hold_more_of_it():
    thing = Counting()
    adapter.load_into([thing], [{"n": 3, "seen": [1, 2]}])
    assert thing.state == {"n": 3, "seen": [1, 2]}


def test_not_strict_takes_what_is_there():
    model, _, state = trained()
    target = network(1)
    target.append(torch.nn.Linear(3, 1))
    own = target[4].weight.clone()
    optimizer = torch.optim.AdamW(target[:4].parameters())
    parts = {"model": target, "optimizer": optimizer, "epoch": 7, "list": [1, 2]}
    with pytest.raises(ArgumentError):
        adapter.load_into(parts, state)
    with pytest.warns(LccodecWarning, match=r"4 that the state lacks .*, 1 that the target lacks \(step\)"):
        adapter.load_into(parts, {**state, "list": [5]}, strict=False)  # no epoch
    assert parts["epoch"] == 7
    assert parts["list"] == [5, 2]
    assert "step" not in parts
    assert_same(dict(network(1)[0].state_dict()).keys(), dict(target[0].state_dict()).keys())
    assert torch.equal(target[0].weight, model[0].weight)
    assert torch.equal(target[4].weight, own)
    assert len(optimizer.state) == 6
    tensors = (torch.zeros(2), torch.zeros(3))
    with pytest.warns(LccodecWarning, match="1 entries loaded, 1 that the state lacks"):
        adapter.load_into(tensors, (torch.ones(2),), strict=False)
    assert [t.sum().item() for t in tensors] == [2, 0]


def test_not_strict_is_all_or_nothing_too():
    _, _, state = trained()
    target = network(1)
    target[0] = torch.nn.Linear(6, 9)
    before = {key: t.clone() for key, t in target.state_dict().items()}
    with pytest.raises(ArgumentError) as caught:
        adapter.load_into({"model": target, "n": torch.ones(2)}, {**state, "n": torch.ones(3)}, strict=False)
    assert str(caught.value).splitlines()[1:] == [
        "  model/0.weight: float32 (8, 6), where the target has float32 (9, 6)",
        "  model/0.bias: float32 (8,), where the target has float32 (9,)",
        "  n: float32 (3,), where the target has float32 (2,)",
    ]
    assert_same(dict(target.state_dict()), before)
    with pytest.raises(ArgumentError, match="groups of"):
        adapter.load_into(torch.optim.SGD(network()[:1].parameters()), state["optimizer"], strict=False)


def test_the_weights_alone_out_of_a_training_state(tmp_path):
    model, optimizer, state = trained()
    for found, prefix in [
        (state, "model"),
        ({"run": state}, "run/model"),
        ({f"model.{key}": value for key, value in state["model"].items()}, "model."),
        ({"state_dict": {f"model.{key}": v for key, v in state["model"].items()}}, "state_dict/model."),
        ({f"module.{key}": value for key, value in state["model"].items()} | {"x": 1}, "module."),
        ({f"model/{key}": value for key, value in state["model"].items()}, "model"),
        (state["model"], ""),
    ]:
        target = network(1)
        assert adapter.load_into(target, found, prefix=prefix) is target
        assert_same(dict(target.state_dict()), dict(model.state_dict()))
    with lccodec.Chain(tmp_path, adapter=adapter, policy="lossless") as chain:
        chain.save(0, {"model": model.state_dict(), "optimizer": optimizer.state_dict()})
        target = network(1)
        adapter.load_into(target, chain.restore(keys=["model"]), prefix="model")  # nothing else is read
    assert_same(dict(target.state_dict()), dict(model.state_dict()))


@pytest.mark.parametrize("prefix", ["mode", "model/x", "mode.", "optimizer/state/9", "model/0", None, 3])
def test_a_prefix_that_is_not_there(prefix):
    _, _, state = trained()
    target = network(1)
    before = {key: t.clone() for key, t in target.state_dict().items()}
    with pytest.raises(ArgumentError, match="prefix"):
        adapter.load_into(target, state, prefix=prefix)
    assert_same(dict(target.state_dict()), before)


def test_names_in_errors_are_those_of_the_state():
    _, _, state = trained()
    target = network(1)
    target[0] = torch.nn.Linear(6, 9)
    with pytest.raises(ArgumentError, match=r"\n  model/0\.weight: float32"):
        adapter.load_into(target, state, prefix="model")


def test_a_scalar_of_numpy_is_no_tensor():
    with pytest.raises(ArgumentError):
        adapter.load_into({"x": torch.ones(())}, {"x": np.float32(1)})


def test_all_mismatches_are_listed_and_the_target_is_untouched():
    _, _, state = trained()
    model = network(1)
    model.append(torch.nn.Linear(3, 1))
    model[0] = torch.nn.Linear(6, 9)
    model[1].half()
    model[3] = torch.nn.Linear(8, 3, bias=False)
    optimizer = torch.optim.AdamW(model.parameters())
    before = {key: t.clone() for key, t in model.state_dict().items()}
    with pytest.raises(ArgumentError) as caught:
        adapter.load_into({"model": model, "optimizer": optimizer, "epoch": 1}, state)
    message = str(caught.value)
    for line in (
        "missing: model/4.weight (float32 (1, 3))",
        "missing: epoch (int)",
        "unexpected: model/3.bias (float32 (3,))",
        "unexpected: step (int)",
        "model/0.weight: float32 (8, 6), where the target has float32 (9, 6)",
        "model/1.running_var: float32 (8,), where the target has float16 (8,)",
        "optimizer: groups of [6] parameters, where the target has groups of [7]",
    ):
        assert f"  {line}" in message.splitlines()
    assert message.splitlines()[0].endswith(": strict=False skips what only one of the two has")
    assert_same(dict(model.state_dict()), before)
    assert not optimizer.state


def test_what_strict_would_not_help_against_is_not_advised():
    for strict, state in ((True, {"w": torch.ones(2)}), (False, {"w": torch.ones(2), "x": 1})):
        with pytest.raises(ArgumentError) as caught:
            adapter.load_into({"w": torch.ones(3)}, state, strict=strict)
        assert str(caught.value).splitlines()[0] == "the state does not fit the target"


def test_loading_into_tensors_and_containers():
    weight, pair = torch.zeros(3), (torch.zeros(1), 5)
    target = OrderedDict(w=weight, items=[torch.zeros(2), "a"], pair=pair, meta=torch.empty(2, device="meta"))
    state = {
        "w": torch.ones(3),
        "items": [torch.ones(2), "b"],
        "pair": (torch.ones(1), 6),
        "meta": torch.ones(2),
    }
    assert adapter.load_into(target, state) is target
    assert target["w"] is weight
    assert_same(dict(target), state)
    for wrong in ({**state, "items": [1]}, {**state, "items": 3}, {**state, "w": 1}, [1]):
        with pytest.raises(ArgumentError):
            adapter.load_into(target, wrong)


def test_a_module_on_the_meta_device_takes_the_tensors():
    model, _, state = trained()
    with torch.device("meta"):
        empty = network()
    adapter.load_into(empty, state["model"])
    assert_same(dict(empty.state_dict()), dict(model.state_dict()))
