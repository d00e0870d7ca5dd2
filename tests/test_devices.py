"""States on every device of PyTorch and JAX on this machine: the CPU, and accelerators if any."""

import contextlib
import warnings
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from torch.distributed import checkpoint as dcp

import lccodec
from lccodec.adapters import jax as jax_adapter
from lccodec.adapters import torch as torch_adapter
from lccodec.adapters.dcp import LCStorageReader, LCStorageWriter
from lccodec.adapters.torch.states import copy_out
from lccodec.workers.process import Arena

TORCH_DEVICES = ["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]
JAX_DEVICES = {str(device): device for device in [*jax.devices("cpu"), *jax.devices()]}


def torch_run(device: str) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Tanh(), torch.nn.Linear(256, 1)).to(device)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)


def torch_train(model: torch.nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> float:
    device = next(model.parameters()).device
    for step in steps:
        x = torch.randn(128, 64, generator=torch.Generator().manual_seed(step)).to(device)
        optimizer.zero_grad()
        loss = (model(x) - x.sin().sum(1, keepdim=True)).square().mean()
        loss.backward()
        optimizer.step()
    return loss.item()


def tensors(state: Any) -> list[torch.Tensor]:
    children = state.values() if isinstance(state, dict) else state if isinstance(state, list) else []
    return [state] if isinstance(state, torch.Tensor) else [t for child in children for t in tensors(child)]


@pytest.mark.parametrize("device", TORCH_DEVICES)
def test_a_torch_run_goes_on_where_its_device_was(tmp_path, device):
    model, optimizer = torch_run(device)
    adapter = torch_adapter.OnDevice(device)
    with lccodec.Chain(tmp_path, policy="lossless", adapter=adapter) as chain:
        for step in range(3):
            torch_train(model, optimizer, range(5 * step, 5 * step + 5))
            chain.save(step, {"model": model.state_dict(), "optimizer": optimizer.state_dict()})
        loss = torch_train(model, optimizer, range(15, 25))
        back = chain.restore()
    assert {t.device for t in tensors(back["model"])} == {torch.device(device)}
    resumed, again = torch_run(device)
    torch_adapter.load_into({"model": resumed, "optimizer": again}, back)
    moments = [t for t in tensors(again.state_dict()) if t.ndim]
    assert {t.device for t in [*resumed.parameters(), *moments]} == {torch.device(device)}
    assert torch_train(resumed, again, range(15, 25)) == loss


@pytest.mark.parametrize("device", TORCH_DEVICES)
def test_a_lossy_chain_is_the_same_from_every_device(tmp_path, device):
    model, optimizer = torch_run("cpu")
    states = []
    for step in range(3):
        torch_train(model, optimizer, range(5 * step, 5 * step + 5))
        states.append({name: value.clone() for name, value in model.state_dict().items()})
    restored = []
    for number, place in enumerate(("cpu", device)):
        with lccodec.Chain(tmp_path / str(number), policy="balanced", adapter=torch_adapter) as chain:
            for step, state in enumerate(states):
                chain.save(step, {name: value.to(place) for name, value in state.items()})
            restored.append([t for step in chain.steps for t in tensors(chain.restore(step))])
    for left, right in zip(*restored, strict=True):
        assert torch.equal(left, right)


@pytest.mark.parametrize("device", TORCH_DEVICES)
def test_a_save_in_the_background_stores_the_state_at_the_call(tmp_path, device):
    model, optimizer = torch_run(device)
    saved = []
    with lccodec.Chain(tmp_path, policy="lossless", adapter=torch_adapter) as chain:
        for step in range(3):
            torch_train(model, optimizer, range(5 * step, 5 * step + 5))
            state = {"model": model.state_dict(), "turned": model[0].weight.detach().t(), "n": torch.ones(())}
            saved.append([t.cpu().clone() for t in tensors(state)])
            chain.save_async(step, {**state, "optimizer": optimizer.state_dict()})
        torch_train(model, optimizer, range(15, 20))
        chain.wait()
        for step, expected in enumerate(saved):
            for want, got in zip(expected, tensors(chain.restore(step)), strict=False):
                assert torch.equal(want, got)


@pytest.mark.parametrize("device", TORCH_DEVICES)
def test_memory_that_copies_go_to_is_pinned_until_it_is_given_up(device):
    tensor = torch.arange(2**20, device=device)
    for fill in (0, 1):
        arena = Arena()
        for _ in range(2):
            arena.clear()
            [copy] = copy_out([tensor + fill], arena)
            assert torch.equal(torch.from_numpy(copy).view(torch.int64), tensor.cpu() + fill)
            assert torch.from_numpy(copy).is_pinned() == tensor.is_cuda
        address = copy.__array_interface__["data"][0]
        del copy, arena
        if tensor.is_cuda:  # memory that is not registered cannot be given up
            assert torch.cuda.cudart().cudaHostUnregister(address) != torch.cuda.cudart().cudaError.success
            with contextlib.suppress(RuntimeError):
                torch.zeros((), device=device)  # takes that error


@pytest.mark.parametrize("device", TORCH_DEVICES)
def test_shared_memory_that_cannot_be_pinned_is_copied_to(monkeypatch, device):
    tensor, other = torch.arange(2**20, device=device), np.empty(2**16, np.uint8)
    place = (other.__array_interface__["data"][0] + 4095) & -4096, 4096, 0

    def refused(*_):
        error = cuda.cudaHostRegister(*place)
        assert error != cuda.cudaError.success
        return error

    if tensor.is_cuda:
        cuda = torch.cuda.cudart()
        assert cuda.cudaHostRegister(*place) == cuda.cudaError.success  # so it can't be pinned again
        here = SimpleNamespace(cudaHostRegister=refused, cudaError=cuda.cudaError)
        monkeypatch.setattr(torch.cuda, "cudart", lambda: here)
    [copy] = copy_out([tensor], Arena())
    assert torch.equal(torch.from_numpy(copy).view(torch.int64), tensor.cpu())
    assert torch.equal(tensor + 1, torch.arange(1, 2**20 + 1, device=device))  # no error is left behind
    assert not torch.from_numpy(copy).is_pinned()
    if tensor.is_cuda:
        assert cuda.cudaHostUnregister(place[0]) == cuda.cudaError.success


@pytest.mark.parametrize("device", TORCH_DEVICES)
def test_an_update_is_staged_by_one_thread_and_applied_on_another_stream(tmp_path, device):
    weight, served = torch.zeros(1 << 20), torch.zeros(1 << 20, device=device)
    stream = torch.cuda.Stream(device) if served.is_cuda else None
    with (
        lccodec.Chain(tmp_path, "lossless", adapter=torch_adapter) as chain,
        lccodec.follow(tmp_path, timeout=0) as follower,
        ThreadPoolExecutor(1) as other,
    ):
        for step in range(4):
            weight[step * 1000 : step * 1000 + 100] = step + 1
            chain.save(step, {"w": weight})
            for update in follower:
                if stream is not None:  # what is queued on the thread's stream is late
                    torch.cuda._sleep(10**9)
                staged = other.submit(torch_adapter.stage, {"w": served}, update).result()
                with torch.cuda.stream(stream):
                    staged.apply()
                    copy = served.clone()
                if stream is not None:
                    stream.synchronize()
                assert torch.equal(copy.cpu(), weight)


@pytest.mark.parametrize("name", JAX_DEVICES)
def test_arrays_of_a_jax_device_are_copied_side_by_side(name):
    device = JAX_DEVICES[name]
    state = {str(i): jax.device_put(np.arange(9.0, dtype=np.float32) + i, device) for i in range(3)}
    plain, _ = jax_adapter.to_numpy({**state, "tied": state["1"], "step": 4})
    assert (plain["step"], plain["tied"] is plain["1"]) == (4, True)
    for key, array in state.items():
        np.testing.assert_array_equal(plain[key], array)


@pytest.mark.parametrize("device", TORCH_DEVICES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float8_e4m3fn", "int64", "complex64"])
def test_views_on_a_device_come_back_bit_for_bit(device, dtype):
    base = torch.arange(48, dtype=torch.float32).reshape(6, 8).to(getattr(torch, dtype)).to(device)
    state = {"whole": base, "turned": base.t(), "every other": base[::2, 1::3], "tied": base}
    back = torch_adapter.load(torch_adapter.save(state), device=device)
    for name, value in state.items():
        assert (back[name].device, back[name].dtype) == (value.device, value.dtype)
        assert torch.equal(back[name].contiguous().view(torch.uint8), value.contiguous().view(torch.uint8))


@pytest.mark.parametrize("device", TORCH_DEVICES)
def test_dcp_loads_into_tensors_of_a_device(tmp_path, device):
    model, optimizer = torch_run(device)
    torch_train(model, optimizer, range(5))
    saved = {"model": model.state_dict(), "moments": optimizer.state_dict()["state"]}
    with warnings.catch_warnings(action="ignore"):  # PyTorch's own, of a single process
        dcp.save(saved, storage_writer=LCStorageWriter(tmp_path))
        blank = torch_run(device)
        torch_train(*blank, range(100, 101))
        found = {"model": blank[0].state_dict(), "moments": blank[1].state_dict()["state"]}
        dcp.load(found, storage_reader=LCStorageReader(tmp_path))
    for want, got in zip(tensors(saved["model"]), tensors(found["model"]), strict=True):
        assert got.device == want.device
        assert torch.equal(got, want)
    for number, moments in saved["moments"].items():
        assert torch.equal(found["moments"][number]["exp_avg_sq"], moments["exp_avg_sq"])


@pytest.mark.parametrize("name", JAX_DEVICES)
def test_a_jax_run_goes_on_where_its_device_was(tmp_path, name):
    device = JAX_DEVICES[name]
    optimizer = optax.adamw(1e-2)

    def loss(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
        return jnp.mean((jnp.tanh(x @ params["in"]) @ params["out"] - jnp.sin(x).sum(1)) ** 2)

    @jax.jit
    def update(params: Any, moments: Any, x: jax.Array) -> tuple[Any, Any]:
        changes, moments = optimizer.update(jax.grad(loss)(params, x), moments, params)
        return optax.apply_updates(params, changes), moments

    def train(params: Any, moments: Any, steps: range) -> tuple[Any, Any]:
        for step in steps:
            x = jax.device_put(np.random.default_rng(step).standard_normal((64, 32), np.float32), device)
            params, moments = update(params, moments, x)
        return params, moments

    rng = np.random.default_rng(0)
    weights = {"in": rng.standard_normal((32, 128), np.float32), "out": rng.standard_normal(128, np.float32)}
    params = jax.device_put(weights, device)
    moments = jax.device_put(optimizer.init(params), device)
    with lccodec.Chain(tmp_path, policy="lossless", adapter=jax_adapter) as chain:
        for step in range(3):
            params, moments = train(params, moments, range(5 * step, 5 * step + 5))
            chain.save(step, {"params": params, "moments": moments})
        back = jax_adapter.load_into({"params": params, "moments": moments}, chain.restore())
    assert {leaf.device for leaf in jax.tree.leaves(back)} == {device}
    want, got = (train(s["params"], s["moments"], range(15, 20)) for s in
                 ({"params": params, "moments": moments}, back))  # fmt: skip
    for left, right in zip(jax.tree.leaves(want), jax.tree.leaves(got), strict=True):
        np.testing.assert_array_equal(left, right)
