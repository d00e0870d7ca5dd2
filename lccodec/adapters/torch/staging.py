"""Tensors of other devices, copied straight to where a chain's workers read them.

All copies are begun before the first is waited for. There is no other copy in this process.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from ...chain.adapter import Room
from ...element_types import Array
from ...workers.memory import Arena

__all__ = ["copy_out", "is_elsewhere"]


def is_elsewhere(tensor: torch.Tensor) -> bool:
    """Return whether a tensor's values lie in the memory of another device."""
    return tensor.device.type != "cpu"


def copy_out(tensors: Sequence[torch.Tensor], room: Room) -> list[Array]:
    """Copy tensors to arrays of their bytes, in C order. The arrays are from `room`.

    Tensors on CUDA devices are copied side by side; those on other devices one after the other.
    """
    sizes = [tensor.numel() * tensor.element_size() for tensor in tensors]
    more = sum(size + Arena.ALIGNMENT_BYTES for size in sizes)
    found = []
    try:
        for tensor, size in zip(tensors, sizes, strict=True):
            copy = room.empty(size, np.dtype(np.uint8), more)
            more -= size + Arena.ALIGNMENT_BYTES
            target = torch.from_numpy(copy).view(tensor.dtype).view(tensor.shape)
            # Of other devices, PyTorch does not say what to wait for.
            target.copy_(tensor.detach(), non_blocking=tensor.is_cuda)
            found.append(copy)
    finally:  # also after an error: nothing may still be written to the room then
        for device in {tensor.device for tensor in tensors if tensor.is_cuda}:
            torch.cuda.current_stream(device).synchronize()
    return found
