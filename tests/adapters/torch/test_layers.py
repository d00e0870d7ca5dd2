"""A chain's leaves go into modules layer by layer: the same as the whole state at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import lccodec
from lccodec import Chain, DataError
from lccodec.adapters import torch as adapter
from lccodec.adapters.torch.target import SET, Layers
from lccodec.chain.read import replay
from lccodec.errors import ArgumentError, LccodecWarning

from ...support.torch_states import DTYPES, assert_same, network, random_tensor, trained


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


def test_not_strict_takes_what_is_there(chain: Chain) -> None:
    target = network(1)
    target.append(torch.nn.Linear(3, 1))
    own = target[4].weight.clone()
    with pytest.warns(LccodecWarning, match="3 that the state lacks"):
        adapter.load_into({"model": target, "more": 1}, chain.restore_iter(), strict=False)
    assert torch.equal(target[4].weight, own)
    assert_same(dict(target[:4].state_dict()), chain.restore()["model"])


def test_a_damaged_chain_is_an_error_of_ours(chain: Chain) -> None:
    path = chain.directory / "000000000000.lcc.h5"
    data = bytearray(path.read_bytes())
    data[3000] ^= 1
    path.write_bytes(data)
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
