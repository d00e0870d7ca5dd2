"""Low-bit weights and optimizer states of torchao come back in the same class, bits and layout."""

from typing import Any

import pytest
import torch

import lccodec
from lccodec.adapters import torch as adapter
from lccodec.errors import ArgumentError, LccodecWarning

from ...support.low_bit import OPTIMIZERS, UNLISTED, WEIGHTS, AdamW8bit, AdamWFp8, quantization, values
from ...support.programs import run_program
from ...support.torch_states import bits
from ...support.walks import save_all

SMALL = "ignore:.*is lossy for"  # the note of a chain about its policy


@pytest.fixture(autouse=True)
def eager():
    """Optimizers of torchao compile their step, which takes a compiler and a minute."""
    torch.compiler.set_stance("force_eager")
    yield
    torch.compiler.set_stance("default")


def strides(tensor: torch.Tensor) -> list[int]:
    """The strides that mean something: a single row or column may have any."""
    return [tensor.stride(axis) for axis, size in enumerate(tensor.shape) if size > 1]


def assert_same_tensor(left: torch.Tensor, right: torch.Tensor) -> None:
    assert type(left) is type(right)
    assert (left.shape, left.dtype, strides(left)) == (right.shape, right.dtype, strides(right))
    if type(left) is torch.Tensor:
        assert bits(left.contiguous()) == bits(right.contiguous())
        return
    (names, context), (others, other_context) = left.__tensor_flatten__(), right.__tensor_flatten__()
    assert list(names) == list(others)
    assert context == other_context
    for name in names:
        assert_same_tensor(getattr(left, name), getattr(right, name))


@pytest.mark.parametrize("name", WEIGHTS)
def test_a_weight_keeps_class_bits_and_layout(tmp_path, name):
    tensor = WEIGHTS[name]()
    with torch.serialization.safe_globals(UNLISTED), lccodec.Chain(tmp_path, adapter=adapter) as chain:
        chain.save(0, {"w": tensor})
        found = chain.restore()["w"]
    assert_same_tensor(found, tensor)


@pytest.mark.parametrize("name", ["int8 in training", "bitnet", "int8, mixed precision"])
def test_a_class_that_is_not_listed_comes_back_as_its_tensors_or_by_the_target(name):
    tensor = WEIGHTS[name]()
    with pytest.warns(LccodecWarning, match=rf"torchao\S*{type(tensor).__name__} is no class"):
        state = adapter.load(adapter.save({"w": tensor}))
    inner = {key: child for key, child in state["w"].items() if key != ".wrapper"}
    for key, child in inner.items():
        assert_same_tensor(child, getattr(tensor, key))
    assert state["w"][".wrapper"]["class"].endswith(type(tensor).__name__)
    zeros, context = (
        {key: torch.zeros_like(child) for key, child in inner.items()},
        tensor.__tensor_flatten__()[1],
    )
    target = {"w": type(tensor).__tensor_unflatten__(zeros, context, None, None)}
    adapter.load_into(target, state)
    assert_same_tensor(target["w"], tensor)
    with torch.serialization.safe_globals(UNLISTED):  # it was saved as what it was
        assert_same_tensor(adapter.load(adapter.save(state))["w"], tensor)


def trainer(kind: Any, seed: int = 0) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 64))
    return model, kind(model.parameters(), lr=torch.tensor(1e-3), weight_decay=0.01)


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> None:
    for step in steps:
        inputs = torch.randn(8, 64, generator=torch.Generator().manual_seed(step))
        (model(inputs) - inputs).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def assert_same_training(one: Any, other: Any) -> None:
    for left, right in zip(one[0].parameters(), other[0].parameters(), strict=True):
        assert_same_tensor(left.detach(), right.detach())
        for entry, value in one[1].state[left].items():
            assert_same_tensor(value, other[1].state[right][entry])


@pytest.mark.parametrize("leaves", [False, True], ids=["whole", "leaves"])
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_a_resumed_low_bit_optimizer_goes_on_bit_for_bit(tmp_path, kind, leaves):
    run, resumed = trainer(kind), trainer(kind, seed=1)
    with lccodec.Chain(tmp_path, policy="lossless", adapter=adapter) as chain:
        for step in range(3):
            train(*run, range(step, step + 1))
            chain.save(step, {"model": run[0].state_dict(), "adam": run[1].state_dict()})
        assert type(run[1].state[run[0][0].weight]["exp_avg"]) is not torch.Tensor
        train(*run, range(3, 6))
        target = dict(zip(("model", "adam"), resumed, strict=True))
        adapter.load_into(target, chain.restore_iter() if leaves else chain.restore())
    train(*resumed, range(3, 6))
    assert_same_training(resumed, run)


def test_a_state_of_another_low_bit_optimizer_is_refused_before_anything_is_set():
    run, other = trainer(AdamW8bit), trainer(AdamWFp8)
    train(*run, range(1))
    train(*other, range(1))
    kept = other[0][0].weight.detach().clone()
    state = adapter.load(adapter.save({"model": run[0].state_dict(), "adam": run[1].state_dict()}))
    message = r"exp_avg: float32 \(128, 64\) in OptimState8bit, where the target has .* in OptimStateFp8"
    with pytest.raises(ArgumentError, match=message):
        adapter.load_into({"model": other[0], "adam": other[1]}, state)
    assert torch.equal(other[0][0].weight, kept)


def layer(seed: int) -> torch.nn.Module:
    made = torch.nn.Linear(128, 64, dtype=torch.bfloat16)
    made.weight.data.copy_(values(seed))
    quantization.quantize_(made, quantization.Int8WeightOnlyConfig())
    return made


def test_a_quantized_module_is_loaded_in_place(tmp_path):
    model, target = layer(1), layer(2)
    weight = target.weight
    with lccodec.Chain(tmp_path, policy="lossless", adapter=adapter) as chain:
        chain.save(0, {"model": model.state_dict()})
        adapter.load_into({"model": target}, chain.restore())
    assert target.weight is weight
    assert_same_tensor(target.weight.detach(), model.weight.detach())
    with pytest.raises(ArgumentError, match=r"weight: bfloat16 .* in Int8Tensor, where the target has"):
        adapter.load_into(
            torch.nn.Linear(128, 64, dtype=torch.bfloat16), adapter.load(adapter.save(model.state_dict()))
        )


def test_a_follower_updates_a_quantized_module_in_place(tmp_path):
    model, served = layer(1), layer(2)
    place = served.weight.qdata.data_ptr()
    with lccodec.Chain(tmp_path, policy="lossless", adapter=adapter) as chain:
        chain.save(0, {"model": model.state_dict()})
        with lccodec.follow(tmp_path, timeout=0) as follower:
            for update in follower:
                adapter.apply_update(served, update, prefix="model")
    assert_same_tensor(served.weight.detach(), model.weight.detach())
    assert served.weight.qdata.data_ptr() == place


@pytest.mark.filterwarnings(SMALL)
def test_what_is_inside_a_wrapper_is_exact_in_lossy_chains(tmp_path):
    states = [{"model": {"w": WEIGHTS["float8 cast by FSDP"](), "v": WEIGHTS["float8 by rows"]()}}]
    states.append({"model": {key: torch.ops.aten.clone(each) for key, each in states[0]["model"].items()}})
    states[1]["model"]["w"]._tensor.add_(0.01)
    states[1]["model"]["v"].scale.mul_(1.01)
    with lccodec.Chain(tmp_path, policy="lc-2", adapter=adapter, newest="history") as chain:
        save_all(chain, states)
        for step, state in enumerate(states):
            for key, tensor in state["model"].items():
                assert_same_tensor(chain.restore(step)["model"][key], tensor)


def test_without_torchao_a_low_bit_state_is_plain_tensors(tmp_path):
    run = trainer(AdamW8bit)
    train(*run, range(1))
    adapter.save_file({"adam": run[1].state_dict()}, path := tmp_path / "adam.lcc.h5")
    state = run[1].state[run[0][0].weight]["exp_avg"]
    code = f"""
import sys, warnings, torch
from lccodec.adapters import torch as adapter
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    found = adapter.load_file({str(path)!r})["adam"]["state"][0]["exp_avg"]
assert "torchao" not in sys.modules
print(type(found).__name__, found["codes"].sum().item(), found["scale"].sum().item())
print(found[".wrapper"]["class"], found[".wrapper"]["context"])
print(said[0].message)
"""
    ran = run_program(code)
    first, second, third, *_ = ran.stdout.splitlines()
    assert first == f"Apart {state.codes.sum().item()} {state.scale.sum().item()}"
    assert second == "torchao.optim.subclass_8bit.OptimState8bit [True, torch.float32]"
    assert "import its module before you load" in third
