"""Every optimizer of torch.optim goes on from any lossy state with updates of the right size."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lccodec.adapters import torch as adapter

from ...support.resumed import (
    PRESETS,
    SAVED,
    Arrays,
    further_updates,
    gradients,
    parameters,
    problems,
    restored,
    saved_chain,
)

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
    run, states, wanted = Run(kind, **settings), {}, {}
    for step in range(max(SAVED) + 1):
        if step in SAVED:
            states[step] = copy.deepcopy(run.state())
        run.advance(step)
    for step, state in states.items():
        run.load(copy.deepcopy(state))
        wanted[step] = further_updates(run.advance, step)
    for preset in PRESETS:
        with saved_chain(tmp_path / preset, preset, states, adapter) as chain:
            for step, state in restored(chain):
                run.load(state)
                found = further_updates(run.advance, step)
                bad = problems(found, wanted[step])
                assert bad == [], f"{preset}, {step}: {bad}"
