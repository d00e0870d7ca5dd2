"""One tensor as an array, and back: by its values, or by its bits where NumPy lacks the type.

Tensors of other devices are copied straight to where a chain's workers read them. All copies are
begun before the first is waited for. There is no other copy in this process: CUDA writes to the
shared memory itself, which is pinned for it.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Final

import numpy as np
import torch
from torch.nn.parameter import is_lazy

from ...chain.adapter import Room
from ...element_table import ELEMENT_TYPES
from ...element_types import BFLOAT16_BITS, Array, element_type
from ...errors import ArgumentError, FormatError
from ...workers.memory import Arena, Segment, place_of
from ..tree.plain import BYTE_TYPES, TYPES, WITHOUT_ADAPTER
from .wrappers import TENSOR_TYPES, class_name

__all__ = ["array_of_bytes", "as_tensor", "copy_out", "host_array", "is_elsewhere", "wait_for", "why_unfit"]


#: The names of the one-byte types. torch.int4 and similar types are left out: torch cannot make
#: values of them yet.
_ONE_BYTE_TYPES: Final = {
    getattr(torch, name): name
    for name in sorted(BYTE_TYPES)
    if name.startswith("float") and hasattr(torch, name)
}
#: Types that NumPy lacks and that are stored as a view of another type.
_VIEWED_TYPES: Final = (torch.bfloat16, torch.complex32)
#: Types that NumPy has too.
_NUMPY_TYPES: Final = frozenset(
    getattr(torch, name) for name in (kind.name for kind in ELEMENT_TYPES) if name != "bfloat16"
)


def why_unfit(tensor: torch.Tensor) -> str | None:
    """Return why a tensor cannot be stored, or None."""
    if type(tensor) not in TENSOR_TYPES:
        return f"is a {class_name(type(tensor))}, {_why_other(tensor)}"
    if tensor.device.type == "meta":
        return "is on the meta device and has no values: load a state into its module, or leave it out"
    if tensor.is_nested:
        return "is a nested tensor: save the tensors in it (unbind)"
    if tensor.is_quantized:
        return "is quantized: save its int_repr and its scale"
    if tensor.layout is not torch.strided:
        return f"has the layout {tensor.layout}: save its indices and values"
    if (
        tensor.dtype not in _NUMPY_TYPES
        and tensor.dtype not in _ONE_BYTE_TYPES
        and tensor.dtype not in _VIEWED_TYPES
    ):
        return f"has dtype {tensor.dtype}, which cannot be stored"
    return None


def _why_other(tensor: torch.Tensor) -> str:
    """Return what to do with a tensor of another class."""
    if is_lazy(tensor):
        return "which has no values before its module has run: run the module once, or load a state into it"
    if tensor.is_nested:
        return "a jagged tensor: save its values() and offsets(), or the tensors in it (unbind)"
    if class_name(type(tensor)).startswith(("torch.distributed.", "torch.testing._internal.distributed.")):
        return "which means more than its values: lccodec.adapters.dcp saves sharded tensors"
    if class_name(type(tensor)).startswith("torch._subclasses."):
        return "which has no values"
    return "which means more than its values: save the tensors that it is made of"


def host_array(tensor: torch.Tensor) -> tuple[Array, str | None]:
    """Return a tensor as an array, and what the note calls its type; None if NumPy has that.

    Memory of the CPU is shared.
    """
    host = tensor.detach().cpu().resolve_conj().resolve_neg()
    if host.dtype in _ONE_BYTE_TYPES:
        return host.view(torch.uint8).numpy(), _ONE_BYTE_TYPES[host.dtype]
    if host.dtype == torch.bfloat16:
        return host.view(torch.int16).numpy().view(BFLOAT16_BITS), None
    if host.dtype == torch.complex32:
        return torch.view_as_real(host).numpy(), "complex32"
    return host.numpy(), None


def array_of_bytes(copy: Array, tensor: torch.Tensor) -> tuple[Array, str | None]:
    """Return copied bytes (uint8) of a tensor in the form that `host_array` gives its values."""
    name = str(tensor.dtype).removeprefix("torch.")
    if tensor.dtype in _ONE_BYTE_TYPES:
        return copy.reshape(tensor.shape), _ONE_BYTE_TYPES[tensor.dtype]
    if tensor.dtype == torch.complex32:
        return copy.view(np.float16).reshape(*tensor.shape, 2), "complex32"
    dtype = BFLOAT16_BITS if tensor.dtype == torch.bfloat16 else np.dtype(name)
    return copy.view(dtype).reshape(tensor.shape), None


def as_tensor(array: Array, kind: str | None, name: str) -> torch.Tensor:
    """Return the tensor of an array with a type of the note: the inverse of `host_array`.

    Memory is shared. An ``ArgumentError`` says that PyTorch lacks the type, a ``FormatError`` that
    the note does not fit the array, which is called `name`.
    """
    where = f"array {name!r}"
    if kind is None:
        if element_type(array.dtype).name == "bfloat16":
            return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(array)
    if kind == "complex32":
        if array.dtype != np.float16 or array.shape[-1:] != (2,):
            raise FormatError(TYPES, where, f"{array.dtype} {array.shape} is noted as complex32")
        return torch.view_as_complex(torch.from_numpy(array))
    if kind not in _ONE_BYTE_TYPES.values():
        raise ArgumentError(f"{where} is of type {kind}, which PyTorch does not have: {WITHOUT_ADAPTER}")
    if array.dtype != np.uint8:
        raise FormatError(TYPES, where, f"{array.dtype} is noted as {kind}")
    dtype: torch.dtype = getattr(torch, kind)
    return torch.from_numpy(array).view(dtype)


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
