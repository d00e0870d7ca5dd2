"""PyTorch: states of modules, optimizers and schedulers, with tensors in and tensors out.

>>> import tempfile, torch, lccodec
>>> import lccodec.adapters.torch as adapter
>>> model = torch.nn.Linear(3, 2)
>>> optimizer = torch.optim.AdamW(model.parameters())
>>> model(torch.ones(1, 3)).sum().backward()
>>> optimizer.step()
>>> with lccodec.Chain(tempfile.mkdtemp(), policy="lossless", adapter=adapter) as chain:
...     _ = chain.save(1, {"model": model.state_dict(), "optimizer": optimizer.state_dict()})
...     state = chain.restore()
>>> resumed = torch.nn.Linear(3, 2)
>>> target = {"model": resumed, "optimizer": torch.optim.AdamW(resumed.parameters())}
>>> _ = adapter.load_into(target, state)  # all of it or, with an error that lists what does not fit, nothing
>>> torch.equal(resumed.weight, model.weight)
True

There is no pickle anywhere. The memory of a CPU tensor is read where it is; tensors of other devices are
copied to the CPU. Tensors that share all their memory, as tied weights do, are stored once and restored as
one. A tensor comes back contiguous and without its gradient. Needs the extra ``torch``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ...chain.checkpoint import CheckpointFile, open_data, open_file
from ...chain.single_file import save as save_plain
from ...chain.single_file import save_file as save_plain_file
from ...container.tree import flatten
from ...element_types import BFLOAT16_BITS, ELEMENT_TYPES, Array, element_type
from ...errors import ArgumentError, DependencyError, FormatError
from ..tree.plain import BYTE_TYPES, TYPES, from_plain, to_plain

try:
    import torch
except ImportError:
    raise DependencyError("needs PyTorch: pip install 'lccodec[torch]'") from None

from .roles import roles, roles_of
from .target import load_into

__all__ = [
    "OnDevice",
    "check",
    "from_numpy",
    "load",
    "load_file",
    "load_into",
    "roles",
    "roles_of",
    "save",
    "save_file",
    "to_numpy",
]

Device = str | torch.device

#: The types of tensors; any other subclass stands for more than its values (a shard, a quantization).
_TENSORS: Final = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
#: Types of one byte by their names; torch.int4 and its like have no values yet.
_BYTES: Final = {
    getattr(torch, name): name
    for name in sorted(BYTE_TYPES)
    if name.startswith("float") and hasattr(torch, name)
}
_VIEWS: Final = (torch.bfloat16, torch.complex32)
_NUMPY: Final = frozenset(
    getattr(torch, name) for name in (kind.name for kind in ELEMENT_TYPES) if name != "bfloat16"
)


def to_numpy(state: Any, metadata: Mapping[str, str] | None = None) -> tuple[Any, dict[str, str]]:
    """Return a state of tensors as one of NumPy arrays, and the metadata to keep with it.

    Parameters
    ----------
    state
        A nested dict, list or tuple of tensors, NumPy arrays, of int, float, bool, str, bytes and None, and
        of the values that :mod:`lccodec.adapters.tree.values` lists. A dict subclass that is not listed there
        becomes `dict`.
    metadata
        Strings of your own.

    Returns
    -------
    tuple
        The state, whose arrays share the memory of tensors on the CPU, bfloat16 as `lccodec.BFLOAT16_BITS`;
        and `metadata` with a note of what NumPy does not have (see `lccodec.adapters.tree.plain`).

    Raises
    ------
    ArgumentError
        Names the place of a tensor without values (on the meta device), of a sparse, quantized or nested one,
        of a subclass such as DTensor, and of values and keys of other types.
    """
    return to_plain(state, metadata, lambda value: value, _ToNumpy())


class _ToNumpy:
    """Leaves to arrays: tensors of the same memory to the same array, so that it is stored once."""

    def __init__(self) -> None:
        self._seen: dict[object, tuple[Array, str | None]] = {}

    def __call__(self, value: Any) -> tuple[Any, str | None]:
        if not isinstance(value, torch.Tensor):
            return _other(value)
        if reason := _unfit(value):
            raise ArgumentError(reason)
        if not value.numel():
            return _array(value)
        # No memory is used twice here: the state holds on to all of its tensors.
        key = (value.data_ptr(), value.device, value.dtype, value.shape, value.stride(),
               value.is_conj(), value.is_neg())  # fmt: skip
        if key not in self._seen:
            self._seen[key] = _array(value)
        return self._seen[key]


def _other(value: Any) -> tuple[Any, str | None]:
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


_OWN: Final[dict[str, Callable[[Any], Any]]] = {
    "torch.Size": torch.Size,
    "torch.dtype": _dtype,
    "torch.device": torch.device,
}


def _unfit(tensor: torch.Tensor) -> str | None:
    """Say why a tensor cannot be stored."""
    if type(tensor) not in _TENSORS:
        kind = f"{type(tensor).__module__}.{type(tensor).__qualname__}"
        return f"is a {kind}, which is more than its values (lccodec.adapters.dcp saves sharded ones)"
    if tensor.device.type == "meta":
        return "is on the meta device and has no values"
    if tensor.is_nested:
        return "is a nested tensor: save the tensors in it (unbind)"
    if tensor.is_quantized:
        return "is quantized: save its int_repr and its scale"
    if tensor.layout is not torch.strided:
        return f"has the layout {tensor.layout}: save its indices and values"
    if tensor.dtype not in _NUMPY and tensor.dtype not in _BYTES and tensor.dtype not in _VIEWS:
        return f"has dtype {tensor.dtype}, which cannot be stored"
    return None


def _array(tensor: torch.Tensor) -> tuple[Array, str | None]:
    host = tensor.detach().cpu().resolve_conj().resolve_neg()
    if host.dtype in _BYTES:
        return host.view(torch.uint8).numpy(), _BYTES[host.dtype]
    if host.dtype == torch.bfloat16:
        return host.view(torch.int16).numpy().view(BFLOAT16_BITS), None
    if host.dtype == torch.complex32:
        return torch.view_as_real(host).numpy(), "complex32"
    return host.numpy(), None


def check(state: Any) -> None:
    """Raise what `to_numpy` and saving would for a state, without a copy of its tensors.

    Raises
    ------
    ArgumentError
        Names the place of what cannot be stored.
    """

    def leaf(value: Any) -> tuple[Any, str | None]:
        if not isinstance(value, torch.Tensor):
            return _other(value)
        if reason := _unfit(value):
            raise ArgumentError(reason)
        return None, None

    flat = flatten(to_plain(state, None, lambda value: value, leaf)[0])
    for array, name in zip(flat.arrays, flat.names, strict=True):
        try:
            element_type(array.dtype)
        except ArgumentError as error:
            raise ArgumentError(f"array {name!r}: {error}") from None


def from_numpy(state: Any, metadata: Mapping[str, str], name: str = "", *, device: Device = "cpu") -> Any:
    """Return a state of NumPy arrays as one of tensors: the inverse of `to_numpy`.

    Parameters
    ----------
    state
        As `Chain.restore`, `lccodec.load_file` or `lccodec.open` give it with ``dtype="bits"``; it may be
        of another framework.
    metadata
        What was kept with it.
    name
        Of `state` in what was saved; empty for the whole.
    device
        Where to put the tensors.

    Returns
    -------
    object
        The state; tensors on the CPU share the memory of the arrays.

    Raises
    ------
    ArgumentError
        For an array of a type that PyTorch does not have, or a device that cannot be used.
    FormatError
        If the note in the metadata does not fit the state.
    """
    device = _usable(device)

    def leaf(array: Array, kind: str | None, name: str) -> Any:
        if kind in ("numpy", "scalar"):  # bfloat16 came as bits
            found = array.view(element_type(array.dtype).native)
            return found[()] if kind == "scalar" else found
        return _tensor(array, kind, name).to(device)

    return from_plain(state, metadata, name, leaf, _OWN)


@dataclass(frozen=True)
class OnDevice:
    """This adapter, but what a chain restores is on a device.

    Parameters
    ----------
    device
        As for `load_file`.

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
    roles = staticmethod(roles)

    def from_numpy(self, state: Any, metadata: Mapping[str, str], name: str = "", /) -> Any:
        """Return a state of NumPy arrays as one of tensors on the device; as the function of that name."""
        return from_numpy(state, metadata, name, device=self.device)


def _tensor(array: Array, kind: str | None, name: str) -> torch.Tensor:
    where = f"array {name!r}"
    if kind is None:
        if element_type(array.dtype).name == "bfloat16":
            return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(array)
    if kind == "complex32":
        if array.dtype != np.float16 or array.shape[-1:] != (2,):
            raise FormatError(TYPES, where, f"{array.dtype} {array.shape} is noted as complex32")
        return torch.view_as_complex(torch.from_numpy(array))
    if kind not in _BYTES.values():
        raise ArgumentError(f"{where} is of type {kind}, which PyTorch does not have")
    if array.dtype != np.uint8:
        raise FormatError(TYPES, where, f"{array.dtype} is noted as {kind}")
    dtype: torch.dtype = getattr(torch, kind)
    return torch.from_numpy(array).view(dtype)


def _usable(device: Device) -> torch.device:
    try:
        return torch.empty(0, device=device).device
    except (RuntimeError, AssertionError, TypeError) as error:  # PyTorch has no error of its own for it
        raise ArgumentError(f"device {device!r} cannot be used: {error}") from None


def save(state: Any, metadata: dict[str, str] | None = None) -> bytes:
    """Return a state of tensors as the bytes of a checkpoint file, lossless; as `lccodec.save`."""
    return save_plain(*to_numpy(state, metadata))


def save_file(state: Any, path: str | os.PathLike[str], metadata: dict[str, str] | None = None) -> None:
    """Write a state of tensors to a checkpoint file, lossless and atomically; as `lccodec.save_file`.

    Raises
    ------
    ArgumentError
        As `to_numpy`.
    StorageError
        If the operating system refuses; what was there stays.
    """
    plain, kept = to_numpy(state, metadata)
    save_plain_file(plain, path, kept)


def load(data: bytes, device: Device = "cpu") -> Any:
    """Return the state in the bytes of a checkpoint file, as tensors; errors as `load_file`."""
    with open_data(data) as file:
        return _load(file, device)


def load_file(path: str | os.PathLike[str], device: Device = "cpu") -> Any:
    """Return the state in a checkpoint file, as tensors; whatever wrote it.

    Parameters
    ----------
    path
        The file.
    device
        Where to put the tensors.

    Returns
    -------
    object
        The state. Its tensors have memory of their own, which ``load_state_dict(state, assign=True)`` may
        keep.

    Raises
    ------
    ArgumentError
        As `from_numpy`.
    DataError, ChainError, StorageError
        As `lccodec.load_file`.
    """
    with open_file(path) as file:
        return _load(file, device)


def _load(file: CheckpointFile, device: Device) -> Any:
    device = _usable(device)  # before all the work
    return from_numpy(file.state(dtype="bits"), file.metadata(), device=device)
