"""Updates of a follower go into modules and tensors in place: every type, or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from lccodec import ArgumentError, Chain, follow
from lccodec.adapters import torch as adapter

from ...support.torch_states import DTYPES, assert_same, network, random_tensor

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
            adapter.apply_update(there, update, prefix=3)  # type: ignore[arg-type]
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
