"""Tensors of every type, a network of PyTorch that learns, and when two states are the same."""

from typing import Any

import numpy as np
import torch

from lccodec.adapters import torch as adapter

from .walks import assert_same, pattern  # noqa: F401 - the same, with tensors

torch.set_num_threads(1)

FLOAT8 = ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"]
INTEGERS = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "bfloat16", "float32", "float64", "complex32", "complex64", "complex128"]
DTYPES = [*INTEGERS, *FLOATS, *FLOAT8, "float4_e2m1fn_x2"]


def random_tensor(name: str, shape: tuple[int, ...], seed: int = 0) -> torch.Tensor:
    """A tensor of arbitrary bit patterns: NaN payloads, -0.0 and subnormals among them."""
    dtype = getattr(torch, name)
    rng = np.random.default_rng(seed)
    if name == "bool":
        return torch.from_numpy(np.asarray(rng.random(shape) < 0.5))
    size = int(np.prod(shape))
    patterns = rng.integers(0, 256, max(size, 1) * dtype.itemsize, np.uint8)
    return torch.from_numpy(patterns).view(dtype)[:size].reshape(shape)


def bits(tensor: torch.Tensor) -> bytes:
    tensor = torch.view_as_real(tensor) if tensor.dtype == torch.complex32 else tensor.resolve_neg()
    return tensor.reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


@pattern.register
def _(leaf: torch.Tensor) -> Any:
    return leaf.dtype, leaf.shape, leaf.device, bits(leaf)


def network(seed: int = 0) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Linear(8, 3)
    )


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> None:
    for step in steps:
        generator = torch.Generator().manual_seed(step)
        x = torch.randn(16, 6, generator=generator)
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()


def trained() -> tuple[torch.nn.Module, torch.optim.Optimizer, dict[str, Any]]:
    model = network()
    optimizer = torch.optim.AdamW(model.parameters())
    train(model, optimizer, range(2))
    return (
        model,
        optimizer,
        adapter.load(
            adapter.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 2})
        ),
    )
