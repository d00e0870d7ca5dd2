"""Loading into modules, optimizers and schedulers of PyTorch: everything is loaded, or nothing.

A chain's leaves go into modules layer by layer: the same as the whole state at once.

Updates of a follower go into modules and tensors in place: every type, or not at all.
"""

import copy
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import lccodec
from lccodec import Chain, DataError, follow
from lccodec.adapters import torch as adapter
from lccodec.adapters.torch.target import SET, Layers
from lccodec.chain.read import replay
from lccodec.errors import ArgumentError, LccodecWarning

from ...support.damage import flip
from ...support.torch_states import DTYPES, assert_same, network, random_tensor, trained


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


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD])
def test_a_state_is_loaded_twice_as_it_was(device: str, kind: Any) -> None:
    """The first optimizer takes its tensors, and changes them."""
    options = {"momentum": 0.9} if kind is torch.optim.SGD else {}

    def made() -> dict[str, Any]:
        model = torch.nn.Linear(4, 3, device=device)
        return {"model": model, "optimizer": kind(model.named_parameters(), 0.1, **options)}

    def train(run: dict[str, Any]) -> list[torch.Tensor]:
        for _ in range(3):
            run["optimizer"].zero_grad()
            run["model"](torch.ones(2, 4)).square().sum().backward()
            run["optimizer"].step()
        return [parameter.detach().clone() for parameter in run["model"].parameters()]

    first = torch.nn.Linear(4, 3)
    run = {"model": first, "optimizer": kind(first.named_parameters(), 0.1, **options)}
    train(run)
    state = adapter.load(adapter.save({name: part.state_dict() for name, part in run.items()}))
    fresh = copy.deepcopy(state)
    one, two = (adapter.load_into(made(), state) for _ in range(2))
    expected = train(adapter.load_into(made(), fresh))
    for loaded in (one, two):
        assert all(map(torch.equal, train(loaded), expected))
    target = made()
    before = copy.deepcopy(target["optimizer"].state_dict())
    with pytest.raises(ArgumentError, match="loaded before"):
        adapter.load_into(target, state)
    assert target["optimizer"].state_dict() == before
    live = {name: part.state_dict() for name, part in one.items()}  # shares nothing with `state` but memory
    adapter.load_into(made(), live)


def test_a_module_on_the_meta_device_takes_the_tensors():
    model, _, state = trained()
    with torch.device("meta"):
        empty = network()
    adapter.load_into(empty, state["model"])
    assert_same(dict(empty.state_dict()), dict(model.state_dict()))


@pytest.fixture(name="chain")
def _chain(tmp_path: Path) -> Chain:
    """Two steps of a training state, with the model's tensors in frames of their own."""
    _, _, state = trained()
    chain = Chain(tmp_path, "lossless", adapter=adapter)
    chain.save(0, {**state, "model": network(3).state_dict()})
    chain.save(1, state)
    return chain


def resumed(model: torch.nn.Module) -> dict[str, Any]:
    return {"model": model, "optimizer": torch.optim.AdamW(model.parameters()), "step": 0}


def test_the_same_as_the_whole_state(chain: Chain) -> None:
    whole, arriving = resumed(network(1)), resumed(network(2))
    adapter.load_into(whole, chain.restore())
    assert adapter.load_into(arriving, chain.restore_iter()) is arriving
    assert arriving["step"] == whole["step"] == 2
    for part in ("model", "optimizer"):
        assert_same(dict(whole[part].state_dict()), dict(arriving[part].state_dict()))


@pytest.mark.parametrize(("keys", "prefix"), [(None, "model"), ("model", "model"), (["model"], "model")])
def test_a_part_of_the_state(chain: Chain, keys: Any, prefix: str) -> None:
    target = network(1)
    assert adapter.load_into(target, chain.restore_iter(keys=keys), prefix=prefix) is target
    assert_same(dict(target.state_dict()), chain.restore()["model"])
    with pytest.raises(ArgumentError, match="prefix"):
        adapter.load_into(target, chain.restore_iter(keys=keys), prefix="other")


def test_a_layer_is_set_before_the_next_is_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers too large to share a frame: each is there when the next frame is decoded."""
    layers = [torch.nn.Linear(200, 200) for _ in range(4)]
    state = {
        f"{i}.{key}": value for i, layer in enumerate(layers) for key, value in layer.state_dict().items()
    }
    with Chain(tmp_path, "lossless", adapter=adapter) as chain:
        chain.save(0, state)
    target = torch.nn.Sequential(*(torch.nn.Linear(200, 200) for _ in range(4)))
    seen, decode = [], replay.decode_components

    def noted(*arguments: Any, **options: Any) -> Any:
        seen.append(
            [torch.equal(a.weight, b.weight) for a, b in zip(target, layers, strict=True)].count(True)
        )
        return decode(*arguments, **options)

    monkeypatch.setattr(replay, "decode_components", noted)
    adapter.load_into(target, chain.restore_iter())
    assert sorted(set(seen)) == [0, 1, 2, 3]
    assert_same(dict(target.state_dict()), state)


def test_what_does_not_fit_is_refused_before_anything_is_decoded(
    chain: Chain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "decode_components", None)
    target = resumed(network(1))
    target["model"][0] = torch.nn.Linear(6, 9)
    before = {key: value.clone() for key, value in target["model"].state_dict().items()}
    with pytest.raises(ArgumentError) as caught:
        adapter.load_into({**target, "epoch": 1}, chain.restore_iter())
    assert "missing: epoch (int)" in str(caught.value)
    assert "model/0.weight: float32 (8, 6), where the target has float32 (9, 6)" in str(caught.value)
    assert_same(dict(target["model"].state_dict()), before)


def test_not_strict_takes_the_layers_that_are_there(chain: Chain) -> None:
    target = network(1)
    target.append(torch.nn.Linear(3, 1))
    own = target[4].weight.clone()
    with pytest.warns(LccodecWarning, match="3 that the state lacks"):
        adapter.load_into({"model": target, "more": 1}, chain.restore_iter(), strict=False)
    assert torch.equal(target[4].weight, own)
    assert_same(dict(target[:4].state_dict()), chain.restore()["model"])


def test_a_damaged_chain_is_an_error_of_ours(chain: Chain) -> None:
    path = chain.directory / "000000000000.lcc.h5"
    flip(path, 3000)
    with pytest.raises(DataError):
        adapter.load_into(resumed(network(1)), chain.restore_iter())


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
def test_every_type_and_container(tmp_path: Path) -> None:
    tied = torch.ones(5)
    state = {
        **{name: random_tensor(name, (4, 6), 3) for name in DTYPES if hasattr(torch, name)},
        "nested": [(torch.ones(2), "a"), {3: torch.zeros(()), "x": None}],
        "numpy": np.arange(6.0).reshape(2, 3),
        "scalar": np.float32(2.5),
        "tied": [tied, {"again": tied}],
        "empty": [{}, [], torch.ones(0, 3)],
        "size": torch.Size([2, 3]),
    }
    with Chain(tmp_path, "lossless", adapter=adapter) as chain:
        chain.save(0, state)
    zeros = torch.utils._pytree.tree_map_only(torch.Tensor, torch.empty_like, state)
    whole = torch.utils._pytree.tree_map_only(torch.Tensor, torch.empty_like, state)
    adapter.load_into(whole, chain.restore())
    found = adapter.load_into(zeros, chain.restore_iter())
    assert_same(found, whole)
    assert_same(found, state)


def test_modules_that_load_in_a_way_of_their_own(tmp_path: Path) -> None:
    class Renamed(torch.nn.Linear):
        def load_state_dict(self, state: Any, *arguments: Any, **options: Any) -> Any:
            self.loaded = dict(state)
            return super().load_state_dict(state, *arguments, **options)

    calls = []
    hooked = network(1)
    hooked.register_load_state_dict_post_hook(lambda _, keys: calls.append(keys))
    with Chain(tmp_path, "lossless", adapter=adapter) as chain:
        chain.save(0, {"renamed": torch.nn.Linear(3, 2).state_dict(), "hooked": network().state_dict()})
    target = {"renamed": Renamed(3, 2), "hooked": hooked}
    adapter.load_into(target, chain.restore_iter())
    assert list(target["renamed"].loaded) == ["weight", "bias"]
    assert [keys.missing_keys for keys in calls] == [[]]
    assert_same(dict(hooked.state_dict()), dict(network().state_dict()))


def test_tied_weights_own_parameters_and_meta(tmp_path: Path) -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.token = torch.nn.Parameter(torch.randn(4))
            self.inner = torch.nn.Embedding(7, 4)
            self.head = torch.nn.Linear(4, 7, bias=False)
            self.head.weight = self.inner.weight

    model = Model()
    with Chain(tmp_path, "lossless", adapter=adapter) as chain:
        chain.save(0, {"model": model.state_dict(), "ema": {"head": model.head.weight.detach()}})
    target = {"model": Model(), "ema": {"head": torch.zeros(7, 4)}}
    adapter.load_into(target, chain.restore_iter())
    assert_same(dict(target["model"].state_dict()), dict(model.state_dict()))
    assert target["model"].head.weight is target["model"].inner.weight
    assert torch.equal(target["ema"]["head"], model.head.weight)
    with torch.device("meta"):
        empty = Model()
    adapter.load_into(empty, chain.restore_iter(), prefix="model")
    assert_same(dict(empty.state_dict()), dict(model.state_dict()))


def test_values_are_dropped_when_their_layers_are_set() -> None:
    """A value that is needed elsewhere too is kept."""
    with torch.device("meta"):
        a, b = torch.ones(2), torch.ones(3)
    model = torch.nn.ParameterDict({"a": torch.zeros(2), "b": torch.zeros(3)})
    state = {"model": {"a": a, "b": b}, "again": a}
    layers = Layers({"model": model}, state, {"a": a, "b": b})
    layers.arrived(b, torch.ones(3))
    assert not model["b"].any()  # not yet: it is one layer
    layers.arrived(a, torch.ones(2))
    assert model["b"].all()
    assert model["a"].all()
    rest = layers.rest()
    assert rest["model"] is SET
    assert torch.equal(rest["again"], torch.ones(2))
    assert id(b) not in layers._arrived


def test_a_chain_of_arrays(tmp_path: Path) -> None:
    with Chain(tmp_path, "lossless") as chain:
        chain.save(0, {"w": np.ones((2, 3), np.float32), "h": np.zeros(4, lccodec.BFLOAT16_BITS)})
    target = {"w": torch.zeros(2, 3), "h": torch.ones(4, dtype=torch.bfloat16)}
    adapter.load_into(target, chain.restore_iter(dtype="bits"))
    assert target["w"].all()
    assert not target["h"].any()


DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


def changed(tensor: torch.Tensor, name: str, count: int, seed: int) -> torch.Tensor:
    """A tensor with a few elements of other bits."""
    bits, other = (
        torch.view_as_real(each).clone() if name == "complex32" else each.clone().view(torch.uint8)
        for each in (tensor, random_tensor(name, tuple(tensor.shape), seed))
    )
    bits.reshape(-1)[:count] = other.reshape(-1)[:count]
    return torch.view_as_complex(bits) if name == "complex32" else bits.view(tensor.dtype)


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("count", [3, 4000])
def test_every_type(tmp_path: Path, device: str, count: int) -> None:
    state = {name: random_tensor(name, (60, 50), 1) for name in DTYPES}
    served = {name: random_tensor(name, (60, 50), 9).to(device) for name in DTYPES}
    memory = {name: tensor.data_ptr() for name, tensor in served.items()}
    with Chain(tmp_path, "lossless", adapter=adapter) as chain, follow(tmp_path, timeout=0) as follower:
        for step in range(2):
            chain.save(step, {"model": state})
            for update in follower:
                adapter.apply_update(served, update, prefix="model")
            assert_same({name: tensor.cpu() for name, tensor in served.items()}, state)
            state = {name: changed(tensor, name, count, 2) for name, tensor in state.items()}
    assert memory == {name: tensor.data_ptr() for name, tensor in served.items()}


@pytest.mark.parametrize("device", DEVICES)
def test_a_module_that_is_trained_elsewhere(tmp_path: Path, device: str) -> None:
    trained, served = network(1), network(2).to(device)
    optimizer = torch.optim.AdamW(trained.parameters())
    inputs = torch.ones(4, next(trained.parameters()).shape[1])
    with (
        Chain(tmp_path, "lossless", adapter=adapter) as chain,
        follow(tmp_path, keys="run/model", timeout=0) as follower,
    ):
        for step in range(4):
            trained(inputs).square().sum().backward()
            optimizer.step()
            state = {"model": trained.state_dict(), "optimizer": optimizer.state_dict()}
            chain.save(step, {"run": state})
            for update in follower:
                staged = adapter.stage(served, update, prefix="run/model")
                staged.apply()
                staged.apply()  # again is no harm
                assert staged.step == step
            assert_same(dict(served.cpu().state_dict()), dict(trained.state_dict()))
            served.to(device)


def test_only_what_differs_is_written(tmp_path: Path) -> None:
    weight = torch.zeros(100, 100, dtype=torch.bfloat16)
    served = torch.zeros(100, 200, dtype=torch.bfloat16)[:, ::2]  # places count its own elements
    with Chain(tmp_path, "lossless", adapter=adapter) as chain, follow(tmp_path, timeout=0) as follower:
        chain.save(0, {"w": [weight]})
        for update in follower:
            adapter.apply_update({"w": [served]}, update)
        served[5, 5] = 3  # is of the user, and stays
        weight[1, 2] = weight[99, 99] = -1
        chain.save(1, {"w": [weight]})
        for update in follower:
            adapter.apply_update(served, update, prefix="w/0")
    assert (served[1, 2], served[99, 99], served[5, 5], served.sum()) == (-1, -1, 3, 1)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (lambda: {"b": torch.zeros(2)}, "unexpected: a"),
        (lambda: {"a": torch.zeros(3), "b": torch.zeros(2)}, r"a: float32 \(2,\), where .* float32 \(3,\)"),
        (lambda: {"a": torch.zeros(2).double(), "b": torch.zeros(2)}, "where the target has float64"),
        (lambda: None, "unexpected: b"),
    ],
)
def test_what_does_not_fit_changes_nothing(tmp_path: Path, target: Any, message: str) -> None:
    with Chain(tmp_path, "lossless", adapter=adapter) as chain, follow(tmp_path) as follower:
        chain.save(0, {"a": torch.ones(2), "b": torch.ones(2)})
        update, there = follower.prepare(0), target()
        assert update is not None
        with pytest.raises(ArgumentError, match=message):
            adapter.apply_update(there, update)
        with pytest.raises(ArgumentError, match="prefix must be a string"):
            adapter.apply_update(there, update, prefix=3)
    assert there is None or not there["b"].any()


def test_only_one_of_the_two_models_is_wrapped(tmp_path: Path) -> None:
    trained, served = network(1), network(2)
    with Chain(tmp_path, "lossless", adapter=adapter) as chain, follow(tmp_path, timeout=0) as follower:
        wrapped = {f"_orig_mod.module.{name}": value for name, value in trained.state_dict().items()}
        chain.save(0, {"run": {"model": wrapped}})
        for update in follower:
            adapter.apply_update({"run": {"model": torch.nn.DataParallel(served)}}, update)
    assert_same(dict(served.state_dict()), dict(trained.state_dict()))


def test_a_chain_in_float32_and_a_model_in_bfloat16(tmp_path: Path) -> None:
    with Chain(tmp_path, "lossless", adapter=adapter) as chain:
        chain.save(0, torch.nn.Linear(3, 2).state_dict())
    with follow(tmp_path, timeout=0) as follower:
        (update,) = follower
        with pytest.raises(ArgumentError, match=r"has bfloat16 \(2, 3\)\n(.*\n)*.*Rounding\(adapter\)"):
            adapter.apply_update(torch.nn.Linear(3, 2).bfloat16(), update)
