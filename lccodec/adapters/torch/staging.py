"""Tensors of other devices, copied straight to where a chain's workers read them.

All copies are begun before the first is waited for. There is no other copy in this process: CUDA
writes to the shared memory itself, which is pinned for it.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import torch

from ...chain.adapter import Room
from ...element_types import Array
from ...workers.memory import Arena, Segment, place_of

__all__ = ["copy_out", "is_elsewhere", "wait_for"]

#: Shared memory that was pinned, or cannot be.
_asked: weakref.WeakSet[Segment] = weakref.WeakSet()


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
            if tensor.is_cuda:
                _pin(copy, tensor.device)
            target = torch.from_numpy(copy).view(tensor.dtype).view(tensor.shape)
            # Of other devices, PyTorch does not say what to wait for.
            target.copy_(tensor.detach(), non_blocking=tensor.is_cuda)
            found.append(copy)
    finally:  # also after an error: nothing may still be written to the room then
        wait_for(tensors)
    return found


def wait_for(tensors: Iterable[torch.Tensor]) -> None:
    """Wait until what was queued on the current streams of the tensors' CUDA devices is done."""
    for device in {tensor.device for tensor in tensors if tensor.is_cuda}:
        torch.cuda.current_stream(device).synchronize()


def _pin(copy: Array, device: torch.device) -> None:
    """Pin the shared memory that an array lies in, for as long as it is mapped.

    A chain uses it again for every save. Memory that is not pinned is copied to through buffers of
    the driver, which takes four to five times as long (``benchmarks/devices.py``).
    """
    place = place_of(copy)
    if place is None or place[0] in _asked:
        return
    segment, _ = place
    _asked.add(segment)
    cuda: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    if cuda.cudaHostRegister(segment.address, len(segment), 0) == cuda.cudaError.success:
        weakref.finalize(segment, cuda.cudaHostUnregister, segment.address).atexit = False
    else:  # the runtime keeps this error, and gives it to the operation that asks next
        with suppress(RuntimeError):
            torch.empty(1, device=device).fill_(1)
