"""Programs that are resumed in another form: moments, rates and weights go by name, or are refused."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest
import torch

from lccodec.adapters import torch as adapter
from lccodec.errors import ArgumentError, LccodecWarning

from ...support.profiles import LONG
from ...support.resumptions import (
    LAYERS,
    OPTIMIZERS,
    RATES,
    SCHEDULERS,
    Model,
    make_optimizer,
    moments,
    rates,
    train,
)
from ...support.torch_states import assert_same

torch.set_num_threads(1)

#: How the program that is resumed differs: how it was and is wrapped, and the layers that were and
#: are trained, in the order of their groups.
FORMS: dict[str, dict[str, Any]] = {
    "the same": {},
    "reordered": {"now": LAYERS[::-1], "order": LAYERS[::-1]},
    "added": {"then": LAYERS[:2]},
    "added in front": {"then": LAYERS[1:]},
    "removed": {"now": (LAYERS[0], LAYERS[2])},
    "compiled before": {"before": torch.compile},
    "compiled now": {"after": torch.compile},
    "DDP before": {"before": torch.nn.DataParallel},  # has the same names as DDP
    "DDP now": {"after": torch.nn.DataParallel},
    "both": {"before": lambda m: torch.nn.DataParallel(torch.compile(m)), "after": torch.compile},
    "from meta": {"meta": True},
    "from meta, reordered": {"meta": True, "now": LAYERS[::-1], "order": LAYERS[::-1]},
}
WHOLE = [name for name, form in FORMS.items() if "then" not in form and len(form.get("now", LAYERS)) == 3]


class Program:
    """A model that an optimizer trains, with a scheduler."""

    def __init__(
        self,
        kind: str,
        schedule: str | None,
        trained: Any,
        wrap: Any,
        order: Any = LAYERS,
        meta: bool = False,
    ) -> None:
        with torch.device("meta" if meta else "cpu"):
            self.model = Model(order, seed=7 if wrap is None else 0)
        self.wrapped = self.model if wrap is None else wrap(self.model)
        self.optimizer = make_optimizer(kind, self.wrapped, trained)
        self.scheduler = None if schedule is None else SCHEDULERS[schedule](self.optimizer)

    def parts(self) -> dict[str, Any]:
        parts = {"model": self.wrapped, "optimizer": self.optimizer}
        return parts if self.scheduler is None else {**parts, "scheduler": self.scheduler}

    def state(self) -> dict[str, Any]:
        return {name: part.state_dict() for name, part in self.parts().items()}

    def train(self, steps: int) -> None:
        train(self.model, self.optimizer, self.scheduler, steps)


def cases() -> list[Any]:
    """Every optimizer without, and every scheduler with AdamW; of each, some forms or all."""
    runs = [(kind, None) for kind in OPTIMIZERS] + [("adamw", name) for name in SCHEDULERS]
    chosen = random.Random(0)
    return [
        pytest.param(kind, schedule, form, id=f"{kind}, {schedule}, {form}")
        for kind, schedule in runs
        for form in (FORMS if LONG else chosen.sample(list(FORMS), 4))
    ]


@pytest.mark.parametrize(("kind", "schedule", "form"), cases())
def test_moments_and_rates_are_those_of_the_name(kind: str, schedule: str | None, form: str) -> None:
    changes = FORMS[form]
    then, now = changes.get("then", LAYERS), changes.get("now", LAYERS)
    saved = Program(kind, schedule, then, changes.get("before"))
    saved.train(3)
    state = adapter.load(adapter.save(saved.state()))
    kept, weights = moments(saved.model, saved.optimizer), copy.deepcopy(saved.model.state_dict())
    settings = rates(saved.optimizer, saved.model)
    resumed = Program(
        kind, schedule, now, changes.get("after"), changes.get("order", LAYERS), changes.get("meta", False)
    )
    whole = form in WHOLE
    reports: list[Any] = []
    if not whole:
        before = copy.deepcopy(resumed.state())
        with pytest.raises(ArgumentError, match=r"strict=False skips(.|\n)*(parameter|LBFGS)"):
            adapter.load_into(resumed.parts(), state)
        assert_same(resumed.state(), before)
        with pytest.warns(LccodecWarning, match="optimizer/"):
            adapter.load_into(resumed.parts(), state, strict=False, report=reports.append)
    else:
        adapter.load_into(resumed.parts(), state, report=reports.append)
    found = moments(resumed.model, resumed.optimizer)
    assert {name: tensor for name, tensor in resumed.model.state_dict().items()}.keys() == weights.keys()
    for name, tensor in resumed.model.state_dict().items():
        assert torch.equal(tensor, weights[name])
    known = [name for name in LAYERS if name in then and name in now]
    if kind == "lbfgs" and not whole:
        assert not found  # it is of all parameters together
        assert "LBFGS" in str(reports[0].left_over)
    elif kind == "lbfgs":
        assert_reordered(found, kept, list(now) if now != LAYERS else None)
    else:
        wanted = {name: entries for name, entries in kept.items() if name.partition(".")[0] in known}
        assert_same(dict(sorted(found.items())), dict(sorted(wanted.items())))
    got = rates(resumed.optimizer, resumed.model)
    assert {name: got[name] for name in known} == {name: settings[name] for name in known}
    for name in set(now) - set(then):
        if kind not in ("lbfgs", "tensor lr") and schedule is None:
            assert got[name]["lr"] == RATES[name]
        assert [f"optimizer/{name}.{entry}" in reports[0].missing for entry in ("weight", "bias")] == [
            True
        ] * 2
    saved.train(2)
    resumed.train(2)
    for name in known if whole else ():
        again, other = saved.model.get_submodule(name), resumed.model.get_submodule(name)
        torch.testing.assert_close(other.weight, again.weight, rtol=1e-4 if kind == "lbfgs" else 0, atol=1e-6)
    got, settings = rates(resumed.optimizer, resumed.model), rates(saved.optimizer, saved.model)
    if schedule != "plateau" or whole:  # what it sees depends on the weights
        assert [got[name]["lr"] for name in known] == pytest.approx([settings[name]["lr"] for name in known])


def assert_reordered(found: dict[str, Any], kept: dict[str, Any], order: list[str] | None) -> None:
    """What LBFGS keeps is of all parameters, end to end, in their order."""
    (entries,), (wanted,) = found.values(), kept.values()
    if order is None:
        assert_same(entries, wanted)
        return
    sizes = [4 * 4, 4] * len(LAYERS)
    parts = dict(zip(LAYERS, zip(*[iter(wanted["d"].split(sizes))] * 2, strict=True), strict=True))
    assert torch.equal(entries["d"], torch.cat([part for name in order for part in parts[name]]))
    assert not torch.equal(entries["d"], wanted["d"])
