"""What a state of PyTorch tells about its tensors: which are trained, which are moments."""

import dataclasses
from typing import Any

import pytest
import torch

import lccodec
from lccodec.adapters import torch as adapter
from lccodec.policy.roles import assign_roles, check_matches

from ...support.torch_states import assert_same, network, train


def role_of(state: Any) -> dict[str, str]:
    return {name: assignment.role for name, assignment in adapter.roles(state).items()}


def every_role(state: Any) -> dict[str, str]:
    """Roles by structure, and by names and shapes where that does not tell."""
    shapes = shapes_of(state)
    return {name: found.role for name, found in assign_roles(shapes, None, adapter.roles(state)).items()}


def shapes_of(state: Any) -> dict[str, tuple[int, ...]]:
    flat = lccodec.container.tree.flatten(adapter.to_numpy(state)[0])
    return {name: array.shape for name, array in zip(flat.names, flat.arrays, strict=True)}


def test_roles_come_from_the_structure_whatever_the_names_are(tmp_path):
    model = torch.nn.Linear(40, 40)
    optimizer = torch.optim.Adagrad(model.parameters())
    train_state = {"net": model.state_dict(), "trainer": {"inner": optimizer.state_dict()}}
    assert role_of(train_state) == {
        "trainer/inner/state/0/step": "other", "trainer/inner/state/0/sum": "second_moment",
        "trainer/inner/state/1/step": "other", "trainer/inner/state/1/sum": "second_moment",
        "net/weight": "weight", "net/bias": "weight",
    }  # fmt: skip
    exact = {}
    policy = lccodec.Policy("p", {"weight": lccodec.ExponentBuckets(bits=2)})
    with lccodec.Chain(tmp_path, policy=policy, adapter=adapter) as chain:
        for step in range(2):
            chain.save(step, train_state)
            with torch.no_grad():
                for state in optimizer.state.values():
                    state["sum"] += torch.rand_like(state["sum"])
                model.weight += torch.rand_like(model.weight)
            exact = {name: t.clone() for name, t in optimizer.state[model.weight].items()}
        chain.save(2, train_state)
        back = chain.restore(exact=False)
    assert_same(back["trainer"]["inner"]["state"][0], exact)
    assert not torch.equal(back["net"]["weight"], model.weight)


class Quantized(torch.nn.Module):
    """A codebook that is a running mean, as VQ-VAEs have, with names of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.theta = torch.nn.Parameter(torch.randn(8, 40))
        self.norm = torch.nn.BatchNorm1d(40)
        self.register_buffer("embed", torch.randn(16, 40))
        self.register_buffer("embed_avg", self.embed.clone())
        self.register_buffer("cluster_size", torch.ones(16))
        self.usage = torch.nn.Parameter(torch.ones(300), requires_grad=False)

    def forward(self, x):
        x = self.norm(x @ self.theta)
        with torch.no_grad():
            chosen = torch.nn.functional.one_hot(torch.cdist(x, self.embed).argmin(1), 16).float()
            self.cluster_size.lerp_(chosen.sum(0), 0.1)
            self.embed_avg.lerp_(chosen.T @ x, 0.1)
            self.embed.copy_(self.embed_avg / (self.cluster_size + 1e-5)[:, None])
            self.usage += chosen.sum()
        return (x - self.embed[chosen.argmax(1)]).square().mean()


def quantized_states(optimizer_of, keep_vars: bool = False):
    torch.manual_seed(0)
    model = Quantized()
    optimizer = optimizer_of([p for p in model.parameters() if p.requires_grad])
    for step in range(9):
        optimizer.zero_grad()
        model(torch.randn(32, 8, generator=torch.Generator().manual_seed(step))).backward()
        optimizer.step()
        if step % 3 == 2:
            state = {"net": model.state_dict(keep_vars=keep_vars), "optimizer": optimizer.state_dict()}
            yield model, state


@pytest.mark.parametrize("policy", ["balanced", "lc-3"])
@pytest.mark.parametrize("keep_vars", [False, True])
def test_statistics_and_codebooks_are_exact(tmp_path, policy, keep_vars):
    policy = dataclasses.replace(lccodec.POLICIES[policy], smallest=0)
    with lccodec.Chain(tmp_path, policy, adapter=adapter) as chain:
        for step, (_, state) in enumerate(quantized_states(torch.optim.AdamW, keep_vars)):
            chain.save(step, state)
        back = chain.restore(exact=False)
    differ = {name for name, tensor in state["net"].items() if not torch.equal(tensor, back["net"][name])}
    assert {"theta"} <= differ <= {"theta", "norm.weight", "norm.bias"}  # a few may fall on a bin's mean
    assert not torch.equal(
        back["optimizer"]["state"][0]["exp_avg"], state["optimizer"]["state"][0]["exp_avg"]
    )


def test_parameters_are_told_by_their_shapes_only_where_the_numbers_are_the_same():
    *_, (_, state) = quantized_states(torch.optim.Adam)
    assert role_of(state)["net/theta"] == "weight"
    assert role_of(state)["net/embed"] == "other"
    assert adapter.roles(state)["net/theta"].why == "a parameter of the optimizer"
    more = {**state, "spare": torch.ones(8, 40)}  # two of the shape, and one parameter
    assert every_role(more)["net/theta"] == every_role(more)["spare"] == "other"
    assert every_role(more)["net/norm.weight"] == "weight"  # by its name
    two = {**state, "net_ema": {"theta": state["net"]["theta"] + 1}}
    assert (every_role(two)["net/theta"], every_role(two)["net_ema/theta"]) == ("weight", "other")
    # A parameter that is not in the state: buffers of its shape could be taken for it.
    del state["net"]["theta"]
    state["net"]["other"] = torch.ones(40)
    assert set(role_of(state).values()) == {"first_moment", "second_moment", "other"}


def test_parameters_are_told_by_the_names_that_an_optimizer_has():
    torch.manual_seed(0)
    model = Quantized()
    trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=0.1)  # without momentum there is no entry of any shape
    wrapped = {f"module.{name}": tensor for name, tensor in model.state_dict().items()}
    for net in (model.state_dict(), wrapped):
        found = role_of({"a": {"b": net}, "sgd": optimizer.state_dict()})
        weights = [name for name, role in found.items() if role == "weight"]
        names = [name.removeprefix("a/b/").removeprefix("module.") for name in weights]
        assert names == [name for name, _ in trained]


def test_a_state_of_parameters_tells_their_types():
    found = {
        name: (a.role, a.why) for name, a in adapter.roles(Quantized().state_dict(keep_vars=True)).items()
    }
    buffer = ("other", "a buffer beside torch.nn.Parameter")
    assert found == {
        "theta": ("weight", "torch.nn.Parameter"),
        "norm.weight": ("weight", "torch.nn.Parameter"),
        "norm.bias": ("weight", "torch.nn.Parameter"),
        "usage": ("other", "a torch.nn.Parameter without gradient"),
        **dict.fromkeys(["embed", "embed_avg", "cluster_size"], buffer),
        **dict.fromkeys(["norm.running_mean", "norm.running_var"], buffer),
    }
    state = {"a": torch.nn.Parameter(torch.ones(2)), "b": torch.nn.Buffer(torch.ones(2))}
    assert role_of(state) == {"a": "weight", "b": "other"}
    assert role_of([state["b"], torch.nn.Parameter(torch.ones(2))]) == {"0": "other", "1": "weight"}
    named = torch.nn.ParameterDict({"cluster_size": torch.ones(3), "w": torch.ones(3)})
    assert role_of(named.state_dict(keep_vars=True)) == {"cluster_size": "other", "w": "weight"}


def test_a_module_tells_the_roles_for_a_chain(tmp_path):
    *_, (model, state) = quantized_states(torch.optim.SGD)
    roles = adapter.roles_of(model, "net")
    assert roles["net/theta"] == "weight"
    assert {roles[f"net/{name}"] for name in ("embed", "usage", "norm.running_var")} == {"other"}
    check_matches("roles", roles, lccodec.container.tree.flatten(adapter.to_numpy(state)[0]).names)
    policy = dataclasses.replace(lccodec.POLICIES["lc-3"], smallest=0)
    with lccodec.Chain(tmp_path, policy, roles=roles, adapter=adapter) as chain:
        for step in range(2):
            state["net"] = {name: tensor * (1 + step) for name, tensor in state["net"].items()}
            chain.save(step, state)
        back = chain.restore(exact=False)["net"]
    assert {n for n, t in state["net"].items() if not torch.equal(t, back[n])} == {
        "theta", "norm.weight", "norm.bias",
    }  # fmt: skip


def test_tied_tensors_have_one_role():
    model = torch.nn.Sequential(torch.nn.Linear(4, 4, bias=False), torch.nn.Linear(4, 4, bias=False))
    model[1].weight = model[0].weight
    assert adapter.roles_of(model) == {"0.weight": "weight"}
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    state = {"net": {"x": model[0].weight.data, "y": model[0].weight.data}, "adam": optimizer.state_dict()}
    assert role_of(state)["net/x"] == "weight"


def optimized(kind: Any, **settings: Any) -> dict[str, Any]:
    model = network()
    optimizer = kind(model.parameters(), **settings)
    train(model, optimizer, range(2))
    return {"net": model.state_dict(), "optimizer": optimizer.state_dict()}


@pytest.mark.parametrize(
    ("kind", "settings"),
    [(torch.optim.Adafactor, {}), (torch.optim.ASGD, {})],
)
def test_what_must_not_have_errors_is_exact_and_the_parameters_are_weights(kind, settings):
    found = role_of(optimized(kind, **settings))
    weights = {name for name, role in found.items() if role == "weight"}
    assert weights == {f"net/{name}" for name, _ in network().named_parameters()}
    assert {role for name, role in found.items() if name not in weights} == {"other"}


def test_of_an_optimizer_that_is_not_known_all_is_exact():
    model = network()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(torch.ones(5, 6)).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    found = every_role({"net": model.state_dict(), "optimizer": optimizer.state_dict()})
    assert set(found.values()) == {"other"}
    state = optimized(torch.optim.Adam)
    for entries in state["optimizer"]["state"].values():
        entries["p0"] = entries["exp_avg"].clone()
    assert set(every_role(state).values()) == {"other"}
    state = optimized(torch.optim.Adam)
    for entries in state["optimizer"]["state"].values():
        entries["GG"] = [torch.eye(3)]
    assert set(every_role(state).values()) == {"other"}


def test_what_an_optimizer_does_not_train_is_exact():
    """Frozen layers, a criterion with weights, a teacher, averages, and buffers called weights."""
    model = network()
    frozen = {f"base.{name}": tensor + 1 for name, tensor in model.state_dict().items()}
    more = {
        "criterion.weight": torch.rand(77),
        "norm.kernel": torch.rand(55, 3),
        "sampler.weights": torch.rand(99),
        "error_feedback.weight": torch.rand(88, 3),
    }
    for beside in ({"model_2": frozen}, {"teacher": frozen, "ema": frozen, **more}, {"net": more}, more):
        for kind in (torch.optim.Adam, torch.optim.SGD):
            state = optimized(kind, lr=0.01)
            weights = {f"model/{name}" for name, _ in model.named_parameters()}
            state["model"] = state.pop("net")
            found = every_role({**state, **beside})
            lossy = {name for name, role in found.items() if role != "other" and "optimizer" not in name}
            # SGD without momentum says how many parameters it has, but not of which shapes.
            assert lossy == weights or (kind is torch.optim.SGD and "net" in beside and not lossy)


def test_an_averaged_model_has_the_weights_of_its_model():
    for kind in (torch.optim.Adam, torch.optim.SGD):
        model = network()
        optimizer = kind(
            model.parameters(), lr=0.01, **({"momentum": 0.9} if kind is torch.optim.SGD else {})
        )
        average = torch.optim.swa_utils.AveragedModel(model, use_buffers=True)
        train(model, optimizer, range(2))
        average.update_parameters(model)
        state = {"net": model.state_dict(), "optimizer": optimizer.state_dict()}
        alone = every_role(state)
        for place in ("ema", "best"):
            found = every_role({**state, place: average.state_dict()})
            assert {name: found[name] for name in alone} == alone
            for name in model.state_dict():
                assert found[f"{place}/module.{name}"] == alone[f"net/{name}"]


def test_parameters_that_an_optimizer_has_but_does_not_train_are_exact():
    model = torch.nn.ModuleDict({"base": torch.nn.Linear(8, 9), "lora_a": torch.nn.Linear(8, 2, bias=False)})
    model["base"].requires_grad_(False)
    for parameters in (list(model.parameters()), list(model.named_parameters())):
        optimizer = torch.optim.AdamW(parameters)
        model["lora_a"](torch.ones(1, 8)).sum().backward()
        optimizer.step()
        found = role_of({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
        assert {name for name, role in found.items() if role == "weight"} == {"model/lora_a.weight"}


class Adapted(torch.nn.Module):
    """A frozen layer and what LoRA trains beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.base_layer = torch.nn.Linear(16, 16).requires_grad_(False)
        self.lora_A = torch.nn.Parameter(torch.randn(4, 16))
        self.lora_B = torch.nn.Parameter(torch.randn(16, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base_layer(x) + x @ self.lora_A.T @ self.lora_B.T


def half_frozen() -> torch.nn.Module:
    layers = [torch.nn.Linear(16, 16).requires_grad_(number in (0, 3)) for number in range(4)]
    return torch.nn.Sequential(*layers, torch.nn.BatchNorm1d(16), torch.nn.Linear(16, 3))


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("all_given", [False, True])
@pytest.mark.parametrize("make", [half_frozen, lambda: torch.nn.Sequential(*[Adapted() for _ in range(3)])])
def test_what_is_trained_of_a_partly_frozen_model(make: Any, all_given: bool, named: bool) -> None:
    """Also by the names and shapes alone, as of a state that another framework reads."""
    model = make()
    given = [(name, p) for name, p in model.named_parameters() if all_given or p.requires_grad]
    optimizer = torch.optim.AdamW(given if named else [p for _, p in given])
    model(torch.randn(8, 16)).square().mean().backward()
    optimizer.step()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    if not named and not all_given and make is half_frozen:  # which of four layers, nobody can say
        for found in (adapter.roles(state), assign_roles(shapes_of(state))):
            assert found["model/5.weight"].role == "weight"
            assert {found[f"model/{n}.{e}"].why for n in range(4) for e in ("weight", "bias")} == {
                "perhaps a parameter of the optimizer"
            }
        return
    trained = {f"model/{name}" for name, p in model.named_parameters() if p.requires_grad}
    for found in (adapter.roles(state), assign_roles(shapes_of(state), known=adapter.roles(state))):
        assert {name for name, assigned in found.items() if assigned.role == "weight"} == trained
    if all_given or make is not half_frozen:
        found = assign_roles(shapes_of(state))
        assert {name for name, assigned in found.items() if assigned.role == "weight"} == trained


def test_what_has_moved_is_trained(tmp_path) -> None:
    """From the second save on; an average beside it leaves nothing to say."""
    model = half_frozen()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
    with lccodec.Chain(tmp_path, "balanced", adapter=adapter) as chain:
        found = []
        for step in range(3):
            model(torch.randn(8, 16)).square().mean().backward()
            optimizer.step()
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            found.append({array.name: (array.role, array.why) for array in chain.plan(state)})
            chain.save(step, state)
        copy = {name: value + step for name, value in model.state_dict().items()}
        optimizer.step()
        more = {array.name: array.role for array in chain.plan({**state, "copy": copy})}
    for number in range(4):
        name, trained = f"model/{number}.weight", number in (0, 3)
        assert found[0][name] == ("other", "perhaps a parameter of the optimizer")
        for later in found[1:]:
            assert (later[name] == ("weight", "a parameter of the optimizer")) == trained
        assert more[name] == ("weight" if trained else "other")
        assert more[f"copy/{number}.weight"] == "other"


def test_groups_that_are_not_in_the_order_of_the_model() -> None:
    """As of weights with decay, and biases without: by their order, others would be taken."""
    model = torch.nn.Sequential(*[torch.nn.Linear(16, 16).requires_grad_(n > 1) for n in range(4)])
    weights, biases = ([p for n, p in model.named_parameters() if end in n] for end in ("weight", "bias"))
    optimizer = torch.optim.AdamW([{"params": weights}, {"params": biases[::-1], "weight_decay": 0}])
    model(torch.randn(8, 16)).square().mean().backward()
    optimizer.step()
    found = adapter.roles({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    assert {name for name, assigned in found.items() if assigned.role == "weight"} == set()
    assert found["model/2.weight"].why.startswith("perhaps")


def test_the_optimizers_of_a_gan():
    parts, state = {}, {}
    for name in ("G", "D"):
        model = parts[name] = network()
        optimizer = torch.optim.Adam(model.parameters())
        train(model, optimizer, range(2))
        state[f"net_{name}"] = model.state_dict()
        state[f"optimizer_{name}"] = optimizer.state_dict()
    found = every_role(state)
    for name, role in found.items():
        assert name.startswith("optimizer_") or "running" in name or "num_b" in name or role == "weight", name
    assert found["optimizer_G/state/0/exp_avg"] == "first_moment"
    assert found["optimizer_D/state/0/step"] == "other"
    # The same without what is known of states: names alone.
    assert {name: a.role for name, a in assign_roles(shapes_of(state)).items()} == found


def test_states_that_only_look_like_an_optimizers():
    odd = {"state": {0: torch.ones(3), 1: {"exp_avg": None, "x": [torch.ones(2)]}}, "param_groups": 3}
    assert role_of(odd) == {"state/0": "other", "state/1/x/0": "other"}
    assert role_of({"state": {"sum": torch.ones(2)}, "model.state.fc.sum": torch.ones(2)}) == {}
    flat = {"optimizer.state.fc.table.sum": torch.ones(2), "model.fc.table": torch.ones(2)}
    assert every_role(flat) == {"optimizer.state.fc.table.sum": "second_moment", "model.fc.table": "weight"}


def test_both_means_of_a_centered_optimizer_are_moments():
    found = role_of(optimized(torch.optim.RMSprop, centered=True, momentum=0.9))
    roles = {name.rpartition("/")[2]: role for name, role in found.items() if "/state/0/" in name}
    assert roles.pop("step") == "other"
    assert roles.pop("square_avg") == "second_moment"
    assert set(roles) == {"grad_avg", "momentum_buffer"}
    assert set(roles.values()) == {"first_moment"}


def with_entries(change: Any) -> dict[str, str]:
    state = optimized(torch.optim.Adam)
    for number, entries in state["optimizer"]["state"].items():
        state["optimizer"]["state"][number] = change(entries)
    return role_of(state)


def test_the_weights_of_a_schedule_free_optimizer():
    found = with_entries(lambda own: {"z": own["exp_avg"], "exp_avg_sq": own["exp_avg_sq"]})
    assert {found[name] for name in found if name.endswith("/z")} == {"weight"}
    assert {found[name] for name in found if name.endswith("/exp_avg_sq")} == {"second_moment"}
    assert {found[f"net/{name}"] for name, _ in network().named_parameters()} == {"weight"}


def test_float32_weights_inside_an_optimizer_do_not_hide_its_moments():
    found = with_entries(lambda own: {**own, "master_param": own["exp_avg"]})
    assert {found[name] for name in found if name.endswith("/exp_avg")} == {"first_moment"}
    assert {found[name] for name in found if name.endswith("/master_param")} == {"other"}  # until values tell
    assert {found[f"net/{name}"] for name, _ in network().named_parameters()} == {"weight"}
