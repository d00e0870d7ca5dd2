"""States of tensors as NumPy arrays, and back: by values, or by bits where NumPy lacks the type.

Tensors of other devices are copied straight to where a chain's workers read them. All copies are
begun before the first is waited for. There is no other copy in this process: CUDA writes to the
shared memory itself, which is pinned for it.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import torch
from torch.nn.parameter import is_lazy

from ...chain.caller import TYPES, Room, Wanted, left_out
from ...chain.read.checkpoint import Arrivals, open_file
from ...chain.save import single_file
from ...container.tree import flatten, leaf_name
from ...element_table import ELEMENT_TYPES
from ...element_types import BFLOAT16_BITS, Array, element_type
from ...errors import ArgumentError, FormatError
from ...policy.policy import Policy
from ...policy.roles import Role
from ...workers.process import Arena, Segment, place_of
from ..tree.plain import BYTE_TYPES, WITHOUT_ADAPTER, Keys, from_outline, from_plain, read_types, to_plain
from .roles import roles as known_roles
from .wrappers import (
    INSTANCE,
    TENSOR_TYPES,
    WRAPPER,
    Apart,
    Instance,
    class_name,
    is_wrapper,
    make_instance,
    put_together,
    take_apart,
)

Device = str | torch.device

#: The names of the one-byte types. torch.int4 and similar types are left out: torch cannot make
#: values of them yet.
_ONE_BYTE_TYPES: Final = {
    getattr(torch, name): name
    for name in sorted(BYTE_TYPES)
    if name.startswith("float") and hasattr(torch, name)
}
#: What is stored by value or as a view of another type: bfloat16 and complex32.
_STORED_TYPES: Final = frozenset(
    [torch.complex32, *_ONE_BYTE_TYPES, *(getattr(torch, kind.name) for kind in ELEMENT_TYPES)]
)


def to_numpy(
    state: Any,
    metadata: Mapping[str, str] | None = None,
    room: Room | None = None,
    wanted: Wanted | None = None,
) -> tuple[Any, dict[str, str]]:
    """Return a state of tensors as NumPy arrays, and the metadata to store with it.

    Parameters
    ----------
    state
        A nested dict, list or tuple. Its leaves are tensors, NumPy arrays, int, float, bool, str,
        bytes, None, and the values that :mod:`lccodec.adapters.tree.values` lists. A dict subclass
        that is not listed there becomes a `dict`.
    metadata, room, wanted
        As for `lccodec.Adapter`. Tensors of other devices are copied to the room all at a time.

    Returns
    -------
    tuple
        The state and the metadata. The arrays share the memory of tensors on the CPU; bfloat16 has
        the dtype `lccodec.BFLOAT16_BITS`. A wrapper of tensors, such as an optimizer state of
        torchao, becomes a dict of them (see `lccodec.adapters.torch.wrappers`). The metadata are
        `metadata` and a note of what NumPy does not have (see `lccodec.adapters.tree.plain`).

    Raises
    ------
    ArgumentError
        For a tensor without values (on the meta device), a sparse, quantized or nested tensor, a
        subclass such as DTensor, and a value or key of another type. The message names its place.
    """
    leaf = _ToNumpy(wanted, waits=room is not None)
    stored = to_plain(state, metadata, _inside, leaf)
    if room is None or not leaf.waiting:
        return stored
    leaf.fetch(room)
    return to_plain(state, metadata, _inside, leaf)


class _ToNumpy:
    """Converts leaves to arrays. Tensors with the same memory become one array, stored once.

    If it `waits`, tensors of other devices are left out until `fetch` copies them all.
    """

    def __init__(self, wanted: Wanted | None = None, *, waits: bool = False) -> None:
        self.waiting: dict[object, torch.Tensor] = {}
        self._wanted, self._waits = wanted, waits
        self._seen: dict[object, tuple[Array, str | None]] = {}
        self._alive: list[torch.Tensor] = []  # their addresses cannot be used again meanwhile

    def __call__(self, value: Any, keys: Keys) -> tuple[Any, str | None]:
        if not isinstance(value, torch.Tensor) or is_wrapper(value):
            return _other_leaf(value)
        if reason := _why_unfit(value):
            raise ArgumentError(reason)
        if self._wanted is not None and not self._wanted(leaf_name(keys)):
            return left_out(), None
        if not value.numel():
            return host_array(value)
        key = (value.data_ptr(), value.device, value.dtype, value.shape, value.stride(),
               value.is_conj(), value.is_neg())  # fmt: skip
        if key not in self._seen:
            self._alive.append(value)
            if self._waits and is_elsewhere(value):
                self.waiting[key] = value
                return None, None
            self._seen[key] = host_array(value)
        return self._seen[key]

    def fetch(self, room: Room) -> None:
        """Copy the tensors that were left out."""
        tensors = list(self.waiting.values())
        for key, tensor, copy in zip(self.waiting, tensors, copy_out(tensors, room), strict=True):
            self._seen[key] = array_of_bytes(copy, tensor)


class _Unmade:
    """A wrapper that was not made, on its way to the disk once more."""

    def __init__(self, apart: Apart) -> None:
        self.apart = apart


def _inside(value: Any) -> Any:
    return _Unmade(value) if isinstance(value, Apart) else value


def _other_leaf(value: Any) -> tuple[Any, str | None]:
    if is_wrapper(value):
        return take_apart(value), WRAPPER
    if isinstance(value, Instance):
        return value.stored(), INSTANCE
    if isinstance(value, _Unmade):
        return dict(value.apart), value.apart.kind
    if isinstance(value, np.ndarray):
        return value, "numpy"
    if isinstance(value, np.generic):
        return value, "scalar"
    if isinstance(value, torch.Size):
        return tuple(value), "torch.Size"
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch."), "torch.dtype"
    if isinstance(value, torch.device):
        return str(value), "torch.device"
    return value, None


def _dtype(name: str) -> torch.dtype:
    if not isinstance(dtype := vars(torch).get(name), torch.dtype):
        raise TypeError(name)
    return dtype


_CONSTRUCTORS: Final[dict[str, Callable[[Any], Any]]] = {
    "torch.Size": torch.Size,
    "torch.dtype": _dtype,
    "torch.device": torch.device,
    WRAPPER: put_together,
    INSTANCE: make_instance,
}


def check(state: Any) -> None:
    """Check that a state can be saved, without copying its tensors.

    Raises
    ------
    ArgumentError
        As `to_numpy` and saving; the message names the place.
    """
    flat = flatten(to_plain(state, None, _inside, _ToNumpy(lambda _: False))[0])
    for array, name in zip(flat.arrays, flat.names, strict=True):
        try:
            element_type(array.dtype)
        except ArgumentError as error:
            raise ArgumentError(f"array {name!r}: {error}") from None


def from_numpy(state: Any, metadata: Mapping[str, str], name: str = "", *, device: Device = "cpu") -> Any:
    """Return a state of NumPy arrays as a state of tensors: the inverse of `to_numpy`.

    `state` is as `Chain.restore`, `lccodec.load_file` or `lccodec.open` returns it with
    ``dtype="bits"``, and `name` its name in the saved state; empty if it is the whole. Another
    framework may have saved it. Tensors on the CPU share the memory of the arrays.

    Raises
    ------
    ArgumentError
        For an array of a type that PyTorch lacks, or a device that cannot be used.
    FormatError
        If the note in the metadata does not fit the state.
    """
    device = usable_device(device)

    def leaf(array: Array, kind: str | None, name: str) -> Any:
        return _leaf(array, kind, name, device)

    return from_plain(state, metadata, name, leaf, _CONSTRUCTORS)


def hollow(arrivals: Arrivals) -> tuple[Any, dict[str, Any]]:
    """Return what `from_outline` does, with tensors on the meta device."""
    meta = torch.device("meta")
    return from_outline(arrivals, lambda array, kind, name: _leaf(array, kind, name, meta), _CONSTRUCTORS)


def has_wrappers(metadata: Mapping[str, str], names: Collection[str] | None = None) -> bool:
    """Return whether some entries are wrappers of tensors, as the note says; by default any."""
    types = read_types(metadata)
    return WRAPPER in (types.values() if names is None else map(types.get, names))


def arrived(arrivals: Arrivals, device: Device) -> Any:
    """Return the state that the leaves of a chain form, when all are decoded."""
    device, values = usable_device(device), dict[str, Any]()

    def leaf(_: Array, kind: str | None, name: str) -> Any:
        if not values:  # the outline is read: only now may the file be read to its end
            values.update(arrivals.arrays)
        return _leaf(values[name], kind, name, device)

    return from_outline(arrivals, leaf, _CONSTRUCTORS)[0]


@dataclass(frozen=True)
class OnDevice:
    """This adapter for a chain whose restored tensors go to a device.

    Examples
    --------
    >>> import tempfile, lccodec
    >>> with lccodec.Chain(tempfile.mkdtemp(), adapter=OnDevice("meta")) as chain:
    ...     _ = chain.save(0, {"x": torch.ones(2)})
    ...     chain.restore()["x"].device
    device(type='meta')
    """

    device: Device

    to_numpy = staticmethod(to_numpy)
    roles = staticmethod(known_roles)

    def from_numpy(self, state: Any, metadata: Mapping[str, str], name: str = "", /) -> Any:
        """Return a state of NumPy arrays as tensors on the device, as the function does."""
        return from_numpy(state, metadata, name, device=self.device)


def _leaf(array: Array, kind: str | None, name: str, device: torch.device) -> Any:
    if kind in ("numpy", "scalar"):  # bfloat16 is passed as bits
        values = array.view(element_type(array.dtype).native)
        return values[()] if kind == "scalar" else values
    return as_tensor(array, kind, name).to(device)


def usable_device(device: Device) -> torch.device:
    """Return a device; raise ArgumentError if it cannot be used."""
    try:
        return torch.empty(0, device=device).device
    except (RuntimeError, AssertionError, TypeError) as error:  # PyTorch has no error class for this
        raise ArgumentError(f"device {device!r} is not available: {error}") from None


def _why_unfit(tensor: torch.Tensor) -> str | None:
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
    return None if tensor.dtype in _STORED_TYPES else f"has dtype {tensor.dtype}, which cannot be stored"


def _why_other(tensor: torch.Tensor) -> str:
    """Return what to do with a tensor of another class."""
    name = class_name(type(tensor))
    if is_lazy(tensor):
        return "which has no values before its module has run: run the module once, or load a state into it"
    if tensor.is_nested:
        return "a jagged tensor: save its values() and offsets(), or the tensors in it (unbind)"
    if name.startswith(("torch.distributed.", "torch.testing._internal.distributed.")):
        return "which means more than its values: lccodec.adapters.dcp saves sharded tensors"
    if name.startswith("torch._subclasses."):
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
    copies = []
    try:
        for tensor, size in zip(tensors, sizes, strict=True):
            copy = room.empty(size, np.dtype(np.uint8), more)
            more -= size + Arena.ALIGNMENT_BYTES
            if tensor.is_cuda:
                _pin(copy, tensor.device)
            target = torch.from_numpy(copy).view(tensor.dtype).view(tensor.shape)
            # Of other devices, PyTorch does not say what to wait for.
            target.copy_(tensor.detach(), non_blocking=tensor.is_cuda)
            copies.append(copy)
    finally:  # also after an error: nothing may still be written to the room then
        wait_for(tensors)
    return copies


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


def save(
    state: Any,
    metadata: dict[str, str] | None = None,
    *,
    policy: str | Policy = "lossless",
    roles: Mapping[str, Role] = MappingProxyType({}),
    reference: Any = None,
) -> bytes:
    """Return a state of tensors as the bytes of a checkpoint file, as `lccodec.save` does.

    Roles that the structure of the state says need not be given. The reference is a state of
    tensors, too. Errors are also those of `to_numpy`.
    """
    before = None if reference is None else to_numpy(reference)[0]
    return single_file.coded(*to_numpy(state, metadata), policy, roles, before, known_roles(state))


def save_file(state: Any, path: str | os.PathLike[str], metadata: dict[str, str] | None = None) -> None:
    """Write a state of tensors to a lossless checkpoint file, atomically.

    The errors are those of `to_numpy` and `lccodec.save_file`.
    """
    plain, kept = to_numpy(state, metadata)
    single_file.save_file(plain, path, kept)


def load(data: bytes, device: Device = "cpu", *, reference: Any = None) -> Any:
    """Return the state in the bytes of a checkpoint file as tensors.

    `reference` is as for `lccodec.load`, with tensors. The errors are those of `load_file`, and of
    `lccodec.load`.
    """
    device = usable_device(device)  # before any work
    before = None if reference is None else to_numpy(reference)[0]
    with single_file.opened(data, before) as file:
        return file.restored(partial(from_numpy, device=device))


def load_file(path: str | os.PathLike[str], device: Device = "cpu") -> Any:
    """Return the state in a checkpoint file as tensors; any framework may have written it.

    The tensors do not share memory with anything else, so ``load_state_dict(state, assign=True)``
    may keep them. The errors are those of `from_numpy` and `lccodec.load_file`.
    """
    device = usable_device(device)
    with open_file(path) as file:
        return file.restored(partial(from_numpy, device=device))
