"""The state of an optimizer comes back as it is, and only into an optimizer that it fits.

Every optimizer of torch.optim goes on from any lossy state with updates of the right size.
"""

import copy
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lccodec.adapters import torch as adapter
from lccodec.errors import ArgumentError

from ...support.resumed import Arrays, check_updates, gradients, parameters
from ...support.resumptions import OPTIMIZERS
from ...support.torch_states import assert_same, network, train, trained


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
    adapter.load_into(fresh, copy.deepcopy(state["optimizer"]))
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


torch.set_num_threads(1)


class Run:
    """A model that an optimizer trains with the gradients of the task."""

    def __init__(self, kind: type[torch.optim.Optimizer], **settings: Any) -> None:
        values = parameters()
        if kind.__name__ == "Muon":
            del values["bias"]  # it takes matrices only
        self.model = torch.nn.ParameterDict({name: torch.from_numpy(v) for name, v in values.items()})
        self.sparse = kind.__name__ == "SparseAdam"
        self.optimizer = kind(self.model.parameters(), **settings)

    def arrays(self) -> Arrays:
        return {name: p.detach().numpy().copy() for name, p in self.model.items()}

    def advance(self, step: int) -> Arrays:
        def closure() -> float:
            found = gradients(self.arrays(), step)
            for name, p in self.model.items():
                g = torch.from_numpy(found[name])
                p.grad = g.to_sparse() if self.sparse else g
            return sum(float(np.sum(g.astype(float) ** 2)) for g in found.values())

        before = self.arrays()
        self.optimizer.step(closure)
        return before

    def state(self) -> dict[str, Any]:
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])


def variants(kind: type[torch.optim.Optimizer]) -> Iterator[dict[str, Any]]:
    """Yield settings: the defaults, each flag alone, and with momentum where there is one."""
    known = inspect.signature(kind).parameters
    base = {"lr": 0.01} if known["lr"].default is inspect.Parameter.empty else {}
    if "max_iter" in known:  # LBFGS: gradients with noise are none that it could go far with
        base = {"lr": 0.001, "max_iter": 2}
    flags = [name for name, p in known.items() if p.default in (False, None) and "bool" in str(p.annotation)]
    momenta: list[dict[str, Any]] = [{}]
    if "momentum" in known and known["momentum"].default == 0:
        momenta.append({"momentum": 0.9})
    for momentum in momenta:
        for flag in [{}, *({name: True} for name in flags)]:
            settings = {**base, **momentum, **flag}
            try:
                run = Run(kind, **settings)
                run.advance(0)
            except (RuntimeError, ValueError, AssertionError):  # only on other devices, or only together
                continue
            yield settings


KINDS = [
    kind
    for kind in vars(torch.optim).values()
    if isinstance(kind, type)
    and issubclass(kind, torch.optim.Optimizer)
    and kind is not torch.optim.Optimizer
]
CASES = [
    pytest.param(kind, settings, id="-".join([kind.__name__, *(k for k in settings if k != "lr")]))
    for kind in KINDS
    for settings in variants(kind)
]


def test_all_optimizers_are_tried() -> None:
    assert {case.values[0] for case in CASES} == set(KINDS)
    assert "RMSprop-momentum-centered" in {case.id for case in CASES}


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "settings"), CASES)
def test_updates_after_a_restore(tmp_path: Path, kind: type[torch.optim.Optimizer], settings: Any) -> None:
    check_updates(Run(kind, **settings), tmp_path, adapter)
