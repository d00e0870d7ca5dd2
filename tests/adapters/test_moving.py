"""A thread trains tensors while adapters save them: files may mix moments, and can be read."""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import jax
import numcodecs
import numpy as np
import orbax.checkpoint as ocp
import pytest
import torch
import torch.distributed.checkpoint as dcp
import zarr
from lightning.pytorch.plugins.io import AsyncCheckpointIO

import lccodec
from lccodec import Chain, ExponentBuckets, Lossless, UniformDeadzone
from lccodec.adapters import jax as jax_adapter
from lccodec.adapters import npz, safetensors
from lccodec.adapters import torch as torch_adapter
from lccodec.adapters.dcp import LCStorageReader, LCStorageWriter
from lccodec.adapters.lightning import LCCheckpointIO
from lccodec.adapters.numcodecs import LCCodec
from lccodec.adapters.orbax import LCCheckpointHandler, LCRestore, LCSave
from lccodec.adapters.zarr import LCCodec as ZarrCodec
from lccodec.quantizers.clusters import Clusters

from ..support.background import repeated

SAVES = 5
POLICIES = ["lossless", "lc-3", "balanced"]


def training(*arrays: Any) -> AbstractContextManager[None]:
    """Add to the arrays in a loop, in the background."""

    def train() -> None:
        for array in arrays:
            np.add(array, 0.01, out=array) if isinstance(array, np.ndarray) else array.add_(0.01)

    return repeated(train)


def tensors() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        "fc.weight": torch.randn(400, 1000, generator=generator),
        "fc.bias": torch.randn(1000, generator=generator),
        "half.weight": torch.randn(300, 1000, generator=generator).to(torch.bfloat16),
    }


def moved(before: dict[str, Any], after: dict[str, Any]) -> None:
    """Hold what was restored: of the same form, and not farther away than training leads."""
    assert set(before) == set(after)
    for name, tensor in before.items():
        found = after[name]
        assert (found.dtype, found.shape) == (tensor.dtype, tensor.shape)
        assert bool((abs(np.asarray(found, np.float32)) < 1e4).all())


@pytest.mark.parametrize("policy", POLICIES)
def test_torch(tmp_path: Path, policy: str) -> None:
    state = tensors()
    with Chain(tmp_path, policy, adapter=torch_adapter) as chain, training(*state.values()):
        for step in range(SAVES):
            chain.save(step, {"model": state})
    for step in range(SAVES):
        restored = Chain(tmp_path, adapter=torch_adapter).restore(step)["model"]
        assert {name: t.dtype for name, t in restored.items()} == {name: t.dtype for name, t in state.items()}
    path = tmp_path / "alone.lcc.h5"
    with training(*state.values()):
        torch_adapter.save_file(state, path)
    torch_adapter.load_file(path)


@pytest.mark.parametrize("policy", POLICIES)
def test_jax(tmp_path: Path, policy: str) -> None:
    """JAX's own arrays do not change, but a tree may hold NumPy's."""
    state = {"params": {"w": np.random.default_rng(0).standard_normal((400, 1000), np.float32)}, "step": 1}
    with Chain(tmp_path, policy, adapter=jax_adapter) as chain, training(state["params"]["w"]):
        for step in range(SAVES):
            chain.save(step, state)
    for step in range(SAVES):
        moved(state["params"], Chain(tmp_path, adapter=jax_adapter).restore(step)["params"])


@pytest.mark.parametrize("policy", POLICIES)
def test_distributed_checkpoints(tmp_path: Path, policy: str) -> None:
    state = tensors()
    writer = LCStorageWriter(tmp_path / "0", chain=tmp_path / "chain", policy=policy)
    with training(*state.values()):
        for step in range(SAVES):
            dcp.save(
                {"model": state}, checkpoint_id=tmp_path / f"{step}", storage_writer=writer, no_dist=True
            )
    for step in range(SAVES):
        target = {"model": tensors()}
        reader = LCStorageReader(tmp_path)
        dcp.load(target, checkpoint_id=tmp_path / f"{step}", storage_reader=reader, no_dist=True)
    assert not torch.equal(target["model"]["fc.bias"], tensors()["fc.bias"])  # the target before


@pytest.mark.parametrize("policy", POLICIES)
def test_lightning_in_the_background(tmp_path: Path, policy: str) -> None:
    """As AsyncCheckpointIO has it: training goes on while the checkpoint is written."""
    state = tensors()
    plugin = AsyncCheckpointIO(LCCheckpointIO(chain=tmp_path / "chain", policy=policy))
    with training(*state.values()):
        for step in range(SAVES):
            plugin.save_checkpoint({"epoch": step, "state_dict": state}, tmp_path / f"{step}.ckpt")
        plugin.teardown()
    reader = LCCheckpointIO(chain=tmp_path / "chain", policy=policy)
    for step in range(SAVES):
        assert reader.load_checkpoint(tmp_path / f"{step}.ckpt")["epoch"] == step


def test_orbax(tmp_path: Path) -> None:
    weight = np.random.default_rng(0).standard_normal((400, 1000), np.float32)
    handler = LCCheckpointHandler(chain=tmp_path / "chain", policy="lc-3")
    state = {"params": {"w": weight, "b": jax.numpy.ones(3)}}
    with ocp.CheckpointManager(tmp_path / "run", item_handlers=handler) as manager:
        with training(weight):
            for step in range(SAVES):
                manager.save(step, args=LCSave(state))
            manager.wait_until_finished()
        for step in range(SAVES):
            moved(state["params"], manager.restore(step, args=LCRestore(state))["params"])


@pytest.mark.parametrize(
    "quantizer", [Lossless(), UniformDeadzone(max_error=1e-3), ExponentBuckets(3), Clusters()], ids=str
)
def test_numcodecs(quantizer: Any) -> None:
    values = np.random.default_rng(0).standard_normal(300_000, np.float32)
    codec = LCCodec(quantizer)
    assert numcodecs.get_codec(codec.get_config()) == codec
    with training(values):
        chunks = [codec.encode(values) for _ in range(SAVES)]
    for chunk in chunks:
        assert lccodec.decode(bytes(chunk)).shape == values.shape


@pytest.mark.parametrize("quantizer", [Lossless(), UniformDeadzone(max_error=1e-3)], ids=str)
def test_zarr(tmp_path: Path, quantizer: Any) -> None:
    values = np.random.default_rng(0).standard_normal((300, 1000), np.float32)
    array = zarr.create_array(
        tmp_path,
        shape=values.shape,
        dtype="f4",
        chunks=(100, 500),
        serializer=ZarrCodec(quantizer),
        compressors=None,
    )
    with training(values):
        for _ in range(SAVES):
            array[...] = values
    assert abs(np.asarray(zarr.open_array(tmp_path, mode="r")[...])).max() < 1e4


@pytest.mark.parametrize("form", [npz, safetensors], ids=lambda form: form.__name__.rpartition(".")[2])
def test_other_files(tmp_path: Path, form: Any) -> None:
    state = {"w": np.random.default_rng(0).standard_normal((300, 1000), np.float32)}
    with training(state["w"]):
        for step in range(SAVES):
            form.save_file(state, tmp_path / f"{step}")
    for step in range(SAVES):
        moved(state, form.load_file(tmp_path / f"{step}"))
