"""Programs that are resumed in another form: moments, rates and weights go by name."""

import copy
import random
from pathlib import Path
from typing import Any

import pytest
import torch

from lccodec import Chain
from lccodec.adapters import torch as adapter
from lccodec.chain.read.checkpoint import Arrivals, open_data
from lccodec.errors import ArgumentError, LccodecWarning

from ...support.profiles import LONG
from ...support.resumptions import (
    LAYERS,
    OPTIMIZERS,
    RATES,
    SCHEDULERS,
    Compiled,
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
    "compiled before": {"before": Compiled},
    "compiled now": {"after": Compiled},
    "DDP before": {"before": torch.nn.DataParallel},  # has the same names as DDP
    "DDP now": {"after": torch.nn.DataParallel},
    "both": {"before": lambda m: torch.nn.DataParallel(Compiled(m)), "after": Compiled},
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
        pytest.param(kind, schedule, form, arriving, id=f"{kind}, {schedule}, {form}, {arriving}")
        for kind, schedule in runs
        for form in (FORMS if LONG else chosen.sample(list(FORMS), 4))
        for arriving in ((False, True) if LONG else [chosen.random() < 0.5])  # layer by layer
    ]


@pytest.mark.parametrize(("kind", "schedule", "form", "arriving"), cases())
def test_moments_and_rates_are_those_of_the_name(
    kind: str, schedule: str | None, form: str, arriving: bool
) -> None:
    changes = FORMS[form]
    then, now = changes.get("then", LAYERS), changes.get("now", LAYERS)
    saved = Program(kind, schedule, then, changes.get("before"))
    saved.train(3)
    data = adapter.save(saved.state())

    def state() -> Any:
        return Arrivals(open_data(data), dtype="bits") if arriving else adapter.load(data)

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
            adapter.load_into(resumed.parts(), state())
        assert_same(resumed.state(), before)
        with pytest.warns(LccodecWarning, match="optimizer/"):
            adapter.load_into(resumed.parts(), state(), strict=False, report=reports.append)
    else:
        adapter.load_into(resumed.parts(), state(), report=reports.append)
    found = moments(resumed.model, resumed.optimizer)
    assert resumed.model.state_dict().keys() == weights.keys()
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
        wanted_rates = [float(settings[name]["lr"]) for name in known]
        assert [float(got[name]["lr"]) for name in known] == pytest.approx(wanted_rates)


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


def saved_run(names: bool = True) -> tuple[Program, dict[str, Any]]:
    """A program after three steps, and its state."""
    run = Program("adamw", None, LAYERS, None)
    if not names:
        groups = [{"params": g["params"], "lr": g["lr"]} for g in run.optimizer.param_groups]
        run.optimizer = torch.optim.AdamW(groups)
    run.train(3)
    return run, adapter.load(adapter.save(run.state()))


def unchanged(target: dict[str, Any], state: Any, match: str, **options: Any) -> str:
    """The message of an error that leaves the target as it was."""
    before = {key: copy.deepcopy(part.state_dict()) for key, part in target.items()}
    with pytest.raises(ArgumentError, match=match) as caught:
        adapter.load_into(target, state, **options)
    assert_same({key: part.state_dict() for key, part in target.items()}, before)
    return str(caught.value)


@pytest.mark.parametrize("arriving", [False, True])
def test_a_model_on_meta_and_its_optimizer(tmp_path: Path, arriving: bool) -> None:
    run, _ = saved_run()
    chain = Chain(tmp_path, "lossless", adapter=adapter)
    chain.save(0, run.state())
    resumed = Program("adamw", None, LAYERS, None, meta=True)
    adapter.load_into(resumed.parts(), chain.restore_iter() if arriving else chain.restore())
    own = {p for group in resumed.optimizer.param_groups for p in group["params"]}
    assert own == set(resumed.model.parameters()) == set(resumed.optimizer.state)
    run.train(2)
    resumed.train(2)
    assert_same(dict(resumed.model.state_dict()), dict(run.model.state_dict()))


class Tied(torch.nn.Module):
    def __init__(self, tied: bool = True) -> None:
        super().__init__()
        self.inner = torch.nn.Embedding(5, 4)
        self.head = torch.nn.Linear(4, 5, bias=False)
        if tied:
            self.head.weight = self.inner.weight


def test_ties_of_the_target_are_kept() -> None:
    model = Tied()
    state = adapter.load(adapter.save(model.state_dict()))
    with torch.device("meta"):
        empty, untied = Tied(), Tied(tied=False)
    optimizer = torch.optim.SGD(empty.parameters(), 0.1)
    adapter.load_into({"m": empty, "o": optimizer}, {"m": state, "o": optimizer.state_dict()})
    assert empty.head.weight is empty.inner.weight is optimizer.param_groups[0]["params"][0]
    adapter.load_into(untied, state)
    with torch.no_grad():
        untied.head.weight.zero_()
    assert torch.equal(untied.inner.weight, model.inner.weight)
    for name in state:
        adapter.load_into(other := Tied(), {name: state[name]})  # one name is enough
        assert torch.equal(other.head.weight, model.head.weight)


def test_ties_that_contradict_each_other(tmp_path: Path) -> None:
    state = Tied(tied=False).state_dict()
    message = unchanged({"m": Tied()}, {"m": state}, "m/inner.weight and m/head.weight differ")
    assert "do not tie them" in message
    with Chain(tmp_path, "lossless", adapter=adapter) as chain:
        chain.save(0, {"m": state})
        chain.save(1, {"m": {name: state["head.weight"].clone() for name in state}})
        unchanged({"m": Tied()}, chain.restore_iter(0), "differ, but are one tensor")
        model = Tied()
        adapter.load_into({"m": model}, chain.restore_iter(1))  # two objects, the same values
    assert torch.equal(model.inner.weight, state["head.weight"])


def test_modules_that_share_a_part() -> None:
    shared = torch.nn.Linear(2, 2)
    target = {name: torch.nn.ModuleDict({"body": shared}) for name in ("actor", "critic")}
    state = {name: {"body.weight": torch.ones(2, 2), "body.bias": torch.zeros(2)} for name in target}
    adapter.load_into(target, state)
    state["critic"]["body.weight"] = torch.zeros(2, 2)
    unchanged(target, state, "actor/body.weight and critic/body.weight differ")


class Average:
    """An average of weights that is no module, as many programs have one."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.shadow = {name: p.detach().clone() for name, p in model.named_parameters()}

    def state_dict(self) -> dict[str, Any]:
        return {"decay": 0.9, "shadow": self.shadow}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.shadow = dict(state["shadow"])


def test_an_average_that_is_no_module() -> None:
    model, average = Model(), Average(Model(seed=3))
    state = adapter.load(adapter.save({"ema": Average(Compiled(model)).state_dict()}))
    adapter.load_into({"ema": average}, state)
    assert_same(average.shadow, {name: p.detach() for name, p in model.named_parameters()})


def test_an_optimizer_of_other_parameters() -> None:
    run, state = saved_run()
    other = Program("adamw", None, LAYERS, None, meta=True)
    target = {"model": Model(), "optimizer": Program("adamw", None, LAYERS, None).optimizer}
    unchanged(target, state, "none of its 6 parameters belongs to a module")
    with pytest.raises(ArgumentError, match=r"6 of its parameters.* on the meta device"):
        adapter.load_into({"optimizer": other.optimizer}, {"optimizer": state["optimizer"]})
    stale = Program("adamw", None, LAYERS, None)
    stale.model.third = torch.nn.Linear(4, 4)  # after the optimizer was made
    unchanged(stale.parts(), state, "its 'third.weight' is not the parameter of this name")
    adapter.load_into({"optimizer": run.optimizer, "loss": torch.nn.MSELoss()}, {
        "optimizer": state["optimizer"], "loss": {}})  # fmt: skip


def test_names_of_one_side_only() -> None:
    run, state = saved_run()
    unnamed, _ = saved_run(names=False)
    adapter.load_into(unnamed.parts(), state)  # the names are looked up in the model
    assert unnamed.optimizer.param_groups[2]["param_names"] == ["third.weight", "third.bias"]
    assert_same(moments(unnamed.model, unnamed.optimizer), moments(run.model, run.optimizer))
    groups = [{"params": list(getattr(unnamed.model, n).parameters())} for n in ("third", "first")]
    some = torch.optim.AdamW(groups)
    with pytest.warns(LccodecWarning, match=r"2 that the target lacks \(optimizer/second.weight"):
        adapter.load_into({"model": unnamed.model, "optimizer": some}, state, strict=False)
    kept = moments(run.model, run.optimizer)
    assert_same(moments(unnamed.model, some), {n: kept[n] for n in moments(unnamed.model, some)})
    for group in state["optimizer"]["param_groups"]:
        del group["param_names"]
    again = Program("adamw", None, LAYERS, None)
    adapter.load_into(again.parts(), state)  # by order
    assert_same(moments(again.model, again.optimizer), moments(run.model, run.optimizer))
    state["optimizer"]["param_groups"][1]["param_names"] = ["second.weight", "second.bias"]
    unchanged(again.parts(), state, "'param_names' for some of their parameters only")
    del state["optimizer"]["param_groups"][1]["param_names"]
    fewer = Program("adamw", None, LAYERS[:2], None)
    for strict in (True, False):
        assert "'param_names'" in unchanged(fewer.parts(), state, "nobody knows whose moments", strict=strict)


def test_order_without_names_is_refused_where_something_speaks_against_it() -> None:
    _, state = saved_run(names=False)
    moved = Program("adamw", None, LAYERS[::-1], None)  # the groups have their learning rates
    unchanged(moved.parts(), state, "settings of the saved groups in another order")
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters())
    train(model, optimizer)
    state = adapter.load(adapter.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}))
    other = Model(LAYERS[::-1])
    target = {"model": other, "optimizer": torch.optim.AdamW(other.parameters())}
    message = unchanged(target, state, "its parameters in another order than the saved one")
    assert "'param_names'" in message
    state["optimizer"]["param_groups"][0]["param_names"] = [name for name, _ in model.named_parameters()]
    adapter.load_into(target, state)  # what the message says to do
    assert_same(dict(sorted(moments(other, target["optimizer"]).items())),
                dict(sorted(moments(model, optimizer).items())))  # fmt: skip


def test_order_without_names_where_only_one_order_fits_the_shapes() -> None:
    def make(names: str) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
        sizes = {"a": 2, "b": 3}
        model = torch.nn.ParameterDict({name: torch.ones(sizes[name]) for name in names})
        return model, torch.optim.AdamW(model.parameters())

    model, optimizer = make("ab")
    for i, p in enumerate(model.values()):
        p.grad = torch.full_like(p, i + 1.0)
    optimizer.step()
    other, again = make("ba")
    state = {"m": model.state_dict(), "o": optimizer.state_dict()}
    adapter.load_into({"m": other, "o": again}, adapter.load(adapter.save(state)))
    for name in "ab":
        assert_same(dict(again.state[other[name]]), dict(optimizer.state[model[name]]))


def test_names_that_fit_two_parameters() -> None:
    models = {"g": torch.nn.Linear(2, 2), "d": torch.nn.Linear(2, 2)}
    both = [pair for model in models.values() for pair in model.named_parameters()]
    optimizer = torch.optim.AdamW(both)
    for _, p in both:
        p.grad = torch.ones_like(p)
    optimizer.step()
    state = {name: part.state_dict() for name, part in {**models, "o": optimizer}.items()}
    adapter.load_into({**models, "o": optimizer}, state)  # both have them, in the same order
    unnamed = torch.optim.AdamW([p for _, p in both])
    unchanged({**models, "o": unnamed}, state, r"'weight' could be 'g/weight' or 'd/weight'")
    model = torch.nn.ModuleDict({"module": torch.nn.Linear(2, 2), "a": torch.nn.Linear(2, 2)})
    state = {name: torch.ones(2, 2) for name in ("module.a.weight", "_orig_mod.module.a.weight")}
    unchanged({"m": model}, {"m": state}, "could be", strict=False)


def test_a_part_that_is_called_as_a_wrapper() -> None:
    model = torch.nn.ModuleDict({"module": torch.nn.ModuleDict({"module": torch.nn.Linear(2, 2)})})
    model.module.register_parameter("weight", torch.nn.Parameter(torch.zeros(2, 2)))
    state = {name: torch.randn_like(value) for name, value in model.state_dict().items()}
    for start in ("", "module.", "_orig_mod.", "_orig_mod.module."):
        adapter.load_into(model, {start + name: value for name, value in state.items()})
        assert_same(dict(model.state_dict()), state)
        for value in model.parameters():
            value.data.zero_()


def test_averages_and_dicts_of_tensors_of_wrapped_models() -> None:
    model = Model()
    average = torch.optim.swa_utils.AveragedModel(Compiled(model))
    state = {"ema": average.state_dict(), "plain": Compiled(model).state_dict()}
    target = {"ema": torch.optim.swa_utils.AveragedModel(Model(seed=3)), "plain": Model(seed=3).state_dict()}
    adapter.load_into(target, adapter.load(adapter.save(state)))
    for found in (target["ema"].module.state_dict(), target["plain"]):
        assert_same(dict(found), dict(model.state_dict()))


def test_renamed_layers() -> None:
    run, state = saved_run()
    rename = {f"{name}.*": f"net.{name}.*" for name in LAYERS}
    model = torch.nn.ModuleDict({"net": Model(LAYERS[::-1], seed=3)})
    target = {"model": model, "optimizer": torch.optim.AdamW(model.named_parameters())}
    reports: list[Any] = []
    adapter.load_into(target, state, rename=rename, settings="target", report=reports.append)
    assert_same(dict(sorted(moments(model["net"], target["optimizer"]).items())),
                dict(sorted(moments(run.model, run.optimizer).items())))  # fmt: skip
    assert reports[0].renamed["model/first.weight"] == "model/net.first.weight"
    nested = {"run": {"net": state["model"], "optimizer": state["optimizer"]}}
    again = Program("adamw", None, LAYERS, None)
    adapter.load_into({"run": again.parts()}, nested, rename={"run/net/*": "run/model/*"})
    assert_same(dict(again.model.state_dict()), dict(run.model.state_dict()))
    for wrong, match in (
        ({"nothing.*": "a.*"}, "no name of the state fits 'nothing"),
        ({"first.weight": "first.bias"}, "would both be 'first.bias'"),
        ({"first.weight": "a.*"}, "more wildcards"),
        ({"model/first.*": "other/*"}, "at another place"),
        (["a"], "rename must be a dict"),
        ({"a": 3}, "rename must be a dict"),
    ):
        unchanged(again.parts(), state, match, rename=wrong)


@pytest.mark.parametrize("schedule", [None, *SCHEDULERS])
def test_settings_of_the_target(schedule: str | None) -> None:
    """The run goes on with its own rates, as if they had been there from the start."""
    saved = Program("adamw", schedule, LAYERS, None)
    saved.train(4)
    state = adapter.load(adapter.save(saved.state()))

    def other(order: Any = LAYERS) -> Program:
        model = Model(order)
        run = Program("adamw", None, order, None)
        run.model = run.wrapped = model
        groups: list[dict[str, Any]] = [{"params": [*getattr(model, name).parameters()]} for name in order]
        for group, name in zip(groups, order, strict=True):
            names = [f"{name}.weight", f"{name}.bias"]
            group |= {"lr": RATES[name] / 2, "weight_decay": 0.5, "param_names": names}
        run.optimizer = torch.optim.AdamW(groups)
        run.scheduler = None if schedule is None else SCHEDULERS[schedule](run.optimizer)
        return run

    reference, resumed = other(), other(LAYERS[::-1])
    if schedule != "plateau":
        reference.train(4)
    reports: list[Any] = []
    adapter.load_into(resumed.parts(), state, settings="target", report=reports.append)
    assert_same(dict(sorted(moments(resumed.model, resumed.optimizer).items())),
                dict(sorted(moments(saved.model, saved.optimizer).items())))  # fmt: skip
    got, wanted = rates(resumed.optimizer, resumed.model), rates(reference.optimizer, reference.model)
    assert {name: got[name] for name in LAYERS} == {name: wanted[name] for name in LAYERS}
    assert "optimizer/param_groups/0/weight_decay" in reports[0].settings
    if schedule == "plateau":
        assert resumed.scheduler.best == saved.scheduler.best
        assert resumed.scheduler.last_epoch == saved.scheduler.last_epoch
    elif schedule is not None:
        resumed.train(2)
        reference.train(2)
        got, wanted = rates(resumed.optimizer, resumed.model), rates(reference.optimizer, reference.model)
        assert {name: got[name]["lr"] for name in LAYERS} == {name: wanted[name]["lr"] for name in LAYERS}


def test_settings_of_the_target_that_cannot_be() -> None:
    saved = Program("adamw", "one cycle", LAYERS, None)
    saved.train(4)
    state = adapter.load(adapter.save(saved.state()))
    short = Program("adamw", None, LAYERS, None)
    short.scheduler = torch.optim.lr_scheduler.OneCycleLR(short.optimizer, 0.3, total_steps=3)
    before = rates(short.optimizer, short.model)
    unchanged(short.parts(), state, "OneCycleLR refuses", settings="target")
    assert rates(short.optimizer, short.model) == before
    late = Program("adamw", "step", LAYERS, None)
    late.train(9)
    unchanged(late.parts(), {**state, "scheduler": {"last_epoch": 4}}, "5 steps further", settings="target")
    model = Model()
    amsgrad = {"model": model, "optimizer": torch.optim.AdamW(model.named_parameters(), amsgrad=True)}
    unchanged(amsgrad, {k: state[k] for k in amsgrad}, "amsgrad: was off", settings="target")
    plain = Program("rmsprop", None, LAYERS, None)
    plain.train(1)
    momentum = {"model": model, "optimizer": torch.optim.RMSprop(model.named_parameters(), momentum=0.9)}
    unchanged(momentum, plain.state(), "momentum: was off", settings="target")
    other = Program("momentum", None, LAYERS, None)
    for options in ({"settings": "target"}, {"strict": False}):
        unchanged(
            other.parts(), plain.state(), "missing: optimizer/param_groups/0/momentum|dampening", **options
        )
    for wrong in ({"settings": "mine"}, {"report": 3}):
        unchanged(late.parts(), state, "must be", **wrong)


def test_groups_that_were_merged_have_settings_only_if_they_agree() -> None:
    run, state = saved_run()
    model = Model(seed=3)
    one = {"model": model, "optimizer": torch.optim.AdamW(model.named_parameters(), lr=0.5)}
    unchanged(one, state, r"saved groups 0 and 1, whose lr differ: settings='target'")
    adapter.load_into(one, state, settings="target")
    assert one["optimizer"].param_groups[0]["lr"] == 0.5
    assert_same(moments(model, one["optimizer"]), moments(run.model, run.optimizer))
    for group in state["optimizer"]["param_groups"]:
        group["lr"] = 0.25
    adapter.load_into(one, state)
    assert one["optimizer"].param_groups[0]["lr"] == 0.25
    empty = torch.optim.SGD([{"params": []}, {"params": Model().parameters()}], 0.1)
    adapter.load_into(empty, copy.deepcopy(empty.state_dict()))
    assert [len(group["params"]) for group in empty.param_groups] == [0, 6]


def test_a_scheduler_of_another_number_of_groups() -> None:
    run = Program("adamw", "step", LAYERS, None)
    fewer = Program("adamw", "step", LAYERS[:2], None)
    with pytest.raises(ArgumentError, match="base_lrs: of 3 groups, where the target has 2"):
        adapter.load_into(fewer.scheduler, run.scheduler.state_dict())


def test_nothing_fits() -> None:
    _, state = saved_run()
    foreign = {f"backbone.{name}": value for name, value in state["model"].items()}
    target = Program("adamw", None, LAYERS, None).parts()
    match = "not one of the 6 tensors of the module"
    message = unchanged(target, {**state, "model": foreign}, match, strict=False)
    assert len(message.splitlines()) < 40
    for other in ({"model": {}}, {"x": torch.ones(3)}):
        unchanged({"model": Model()}, other, "not one array of the state fits", strict=False)
    many = torch.nn.Sequential(*(torch.nn.Linear(1, 1) for _ in range(20)))
    assert "... and 30 more" in unchanged({"m": many}, {"m": {}}, "missing")


def test_a_name_that_fits_two_entries() -> None:
    twice = {f"{wrapper}.weight": torch.ones(1, 1) for wrapper in ("_orig_mod", "_fsdp_wrapped_module")}
    target = {"m": torch.nn.Linear(1, 1, bias=False)}
    unchanged(target, {"m": twice}, "could be 'weight' of the target")
    rename = {"_orig_mod.*": "*", "_fsdp_wrapped_module.*": "*"}
    unchanged(target, {"m": twice}, "would both be 'weight'", rename=rename)


class Refusing(torch.nn.Module):
    """It takes a state, and then raises an error."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
        self.register_buffer("count", torch.zeros(1))
        self.register_load_state_dict_post_hook(self.refuse)

    @staticmethod
    def refuse(*_: Any) -> None:
        raise KeyError("no such vocabulary")


class RefusingThing:
    def __init__(self) -> None:
        self.state = {"n": 1}

    def state_dict(self) -> dict[str, Any]:
        return dict(self.state)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state["n"] > 2:
            self.state = {}
            raise RuntimeError("too many")
        self.state = state


def test_whatever_refuses_its_state_leaves_all_as_it_was() -> None:
    _, state = saved_run()
    strange = {"layer.weight": torch.ones(4, 4), "layer.bias": torch.ones(4), "count": torch.ones(1)}
    thing = {"n": 3}
    for parts, more, match in (
        ({"strange": Refusing()}, {"strange": strange}, "strange: Refusing refuses .*no such vocabulary"),
        ({"thing": RefusingThing()}, {"thing": thing}, "thing: RefusingThing refuses the state: too many"),
    ):
        target = {**Program("adamw", "step", LAYERS, None).parts(), **parts}
        scheduler = {"scheduler": {**target["scheduler"].state_dict(), "last_epoch": 7}}
        unchanged(target, {**state, **scheduler, **more}, match)
    empty = Program("adamw", None, LAYERS, None, meta=True)
    before = list(empty.model.parameters())
    with pytest.raises(ArgumentError, match="too many"):
        adapter.load_into({**empty.parts(), "thing": RefusingThing()}, {**state, "thing": thing})
    now = [p for group in empty.optimizer.param_groups for p in group["params"]]
    assert [*map(id, empty.model.parameters())] == [*map(id, before)] == [*map(id, now)]
    assert not empty.optimizer.state


class Growing(torch.nn.Module):
    """Its buffer has the shape of the state, as those of observers."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.zeros(1))
        self.layer = torch.nn.Linear(2, 2)

    def _load_from_state_dict(self, state: Any, prefix: str, *others: Any) -> None:
        self.scale.resize_(state[f"{prefix}scale"].shape)
        super()._load_from_state_dict(state, prefix, *others)


class Old(torch.nn.Module):
    """Its layer once had another name."""

    def __init__(self, seen: list[Any]) -> None:
        super().__init__()
        self.new = torch.nn.Linear(2, 2)
        self.seen = seen
        self._register_load_state_dict_pre_hook(self.renamed)

    def renamed(self, state: dict[str, Any], prefix: str, *_: Any) -> None:
        self.seen.append(sorted(state))
        for name in [name for name in state if name.startswith(f"{prefix}old.")]:
            state[prefix + "new" + name.removeprefix(f"{prefix}old")] = state.pop(name)


class Counted(torch.nn.Module):
    """It has a state that is no tensor."""

    def __init__(self, seen: int = 0) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)
        self.seen = seen

    def get_extra_state(self) -> Any:
        return torch.arange(self.seen)

    def set_extra_state(self, state: Any) -> None:
        if len(state) > 5:
            raise ValueError("too many")
        self.seen = len(state)


@pytest.mark.parametrize("arriving", [False, True])
def test_what_a_module_accepts_is_accepted(tmp_path: Path, arriving: bool) -> None:
    observed, seen = Growing(), list[Any]()
    observed.scale = torch.ones(3)
    lazy = torch.nn.Sequential(torch.nn.LazyLinear(3), torch.nn.BatchNorm1d(3))
    before = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3)).state_dict()
    del before["1.num_batches_tracked"]
    old = {"_orig_mod.old.weight": torch.ones(2, 2), "_orig_mod.old.bias": torch.ones(2)}
    state = {"a": observed.state_dict(), "b": before, "c": old, "d": Counted(3).state_dict()}
    target = {"a": Growing(), "b": lazy, "c": Old(seen), "d": Counted(), "e": Model()}
    optimizer = torch.optim.SGD([*target["c"].parameters(), *target["e"].parameters()], 0.1)
    with Chain(tmp_path, "lossless", adapter=adapter) as chain:
        chain.save(0, {**state, "e": Model(seed=3).state_dict(), "o": optimizer.state_dict()})
        found = chain.restore_iter() if arriving else chain.restore()
        adapter.load_into({**target, "o": optimizer}, found)
    assert target["a"].scale.tolist() == [1, 1, 1]
    assert lazy[0].weight.shape == (3, 4)
    assert target["c"].new.weight.sum() == 4
    assert target["d"].seen == 3
    assert seen == [["old.bias", "old.weight"]]  # it is asked once, without prefixes of wrappers
    assert_same(dict(target["e"].state_dict()), dict(Model(seed=3).state_dict()))


def grown(weight: torch.Tensor) -> dict[str, Any]:
    return {"scale": torch.ones(3), "layer.weight": weight, "layer.bias": torch.ones(2)}


@pytest.mark.parametrize(
    ("make", "state", "match"),
    [
        (Growing, grown(torch.ones(3, 2)), r"m/layer.weight: float32 \(3, 2\)"),
        (Growing, grown(torch.ones(2, 2).half()), "m/layer.weight: float16"),
        (lambda: Old([]), {"old.weight": torch.ones(2, 2)}, "missing: m/new.bias"),
        (lambda: Counted(2), Counted(7).state_dict(), "Counted refuses the state: too many"),
        (lambda: torch.nn.BatchNorm1d(3), {"weight": torch.ones(3)}, "missing: m/bias"),
    ],
)
def test_what_a_module_refuses_leaves_it_as_it_was(make: Any, state: Any, match: str) -> None:
    target = {"m": make(), "other": Model()}
    unchanged(target, {"m": state, "other": Model(seed=3).state_dict()}, match)


def test_a_lazy_module_is_lazy_again_after_an_error() -> None:
    lazy = torch.nn.Sequential(torch.nn.LazyLinear(3), torch.nn.Linear(3, 3))
    state = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(4, 3)).state_dict()
    with pytest.raises(ArgumentError, match=r"m/1.weight: (.|\n)*Sequential refuses"):
        adapter.load_into({"m": lazy}, {"m": state})
    assert isinstance(lazy[0].weight, torch.nn.UninitializedParameter)
    assert lazy(torch.ones(1, 5)).shape == (1, 3)


class Bare(torch.nn.Linear):
    """It knows no options, and returns nothing."""

    def load_state_dict(self, state: Any) -> None:
        super().load_state_dict(state)


def test_a_module_with_a_plain_way_of_its_own() -> None:
    model = Bare(2, 2)
    adapter.load_into({"m": model}, {"m": torch.nn.Linear(2, 2).state_dict()})
    with pytest.raises(ArgumentError, match="missing: m/bias"):
        adapter.load_into({"m": model}, {"m": {"weight": torch.ones(2, 2)}})


def test_an_optimizer_that_refuses_its_state() -> None:
    _, state = saved_run()
    run = Program("adamw", None, LAYERS, None)
    run.optimizer.register_load_state_dict_pre_hook(lambda *_: 1 / 0)
    unchanged(run.parts(), state, "optimizer: AdamW refuses the state: division by zero")


def test_what_stays_on_the_meta_device_is_said() -> None:
    with torch.device("meta"):
        model = torch.nn.BatchNorm1d(3)
        model.register_buffer("scale", torch.ones(1), persistent=False)
    with pytest.warns(LccodecWarning, match="1 tensors of the target are still on the meta device: m/scale"):
        adapter.load_into({"m": model}, {"m": torch.nn.BatchNorm1d(3).state_dict()})


def test_the_report() -> None:
    _, state = saved_run()
    run = Program("adamw", None, LAYERS[1:], None)
    reports: list[Any] = []
    with pytest.warns(LccodecWarning) as caught:
        adapter.load_into(run.parts(), {**state, "extra": 1}, strict=False, report=reports.append)
    (report,) = reports
    assert report.left_over == ["extra", "optimizer/first.weight", "optimizer/first.bias"]
    assert not report.missing
    assert {"model/first.weight", "optimizer/third.bias"} <= {*report.loaded}
    assert "first" not in str([name for name in report.loaded if name.startswith("optimizer")])
    assert "10 entries loaded, 3 that the target lacks (extra, optimizer/first.weight, ...)" in str(
        caught[0].message
    )
