"""Conversion of states of tensors to states of NumPy arrays, and back."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch

from ...chain.adapter import Room, Wanted, left_out
from ...chain.read.checkpoint import Arrivals
from ...container.tree import flatten, leaf_name
from ...element_types import Array, element_type
from ...errors import ArgumentError
from ..tree.plain import Keys, from_outline, from_plain, read_types, to_plain
from .arrays import array_of_bytes, as_tensor, copy_out, host_array, is_elsewhere, why_unfit
from .roles import roles
from .wrappers import (
    INSTANCE,
    WRAPPER,
    Apart,
    Instance,
    is_wrapper,
    make_instance,
    put_together,
    take_apart,
)

__all__ = [
    "Device",
    "OnDevice",
    "arrived",
    "check",
    "from_numpy",
    "has_wrappers",
    "hollow",
    "to_numpy",
    "usable_device",
]

Device = str | torch.device


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
    metadata
        Your own strings.
    room
        Where tensors of other devices are copied to, all at a time. A chain gives it for a save in
        the background.
    wanted
        Says of a name whether the tensor is needed. Of others nothing is copied; an empty array
        stands in their place. A chain gives it for a save of some arrays.

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
    found = to_plain(state, metadata, _inside, leaf)
    if room is None or not leaf.waiting:
        return found
    leaf.fetch(room)
    return to_plain(state, metadata, _inside, leaf)


class _ToNumpy:
    """Converts leaves to arrays. Tensors with the same memory become one array, stored once.

    Parameters
    ----------
    wanted
        As for `to_numpy`.
    waits
        Whether tensors of other devices are left out until `fetch` copies them all.
    """

    def __init__(self, wanted: Wanted | None = None, *, waits: bool = False) -> None:
        self.waiting: dict[object, torch.Tensor] = {}
        self._wanted, self._waits = wanted, waits
        self._seen: dict[object, tuple[Array, str | None]] = {}
        self._alive: list[torch.Tensor] = []  # their addresses cannot be used again meanwhile

    def __call__(self, value: Any, keys: Keys) -> tuple[Any, str | None]:
        if not isinstance(value, torch.Tensor) or is_wrapper(value):
            return _other_leaf(value)
        if reason := why_unfit(value):
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


class _Again:
    """A wrapper that was not made, on its way to the disk once more."""

    def __init__(self, apart: Apart) -> None:
        self.apart = apart


def _inside(value: Any) -> Any:
    return _Again(value) if isinstance(value, Apart) else value


def _other_leaf(value: Any) -> tuple[Any, str | None]:
    if is_wrapper(value):
        return take_apart(value), WRAPPER
    if isinstance(value, Instance):
        return value.stored(), INSTANCE
    if isinstance(value, _Again):
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

    def leaf(value: Any, _: Keys) -> tuple[Any, str | None]:
        if not isinstance(value, torch.Tensor) or is_wrapper(value):
            return _other_leaf(value)
        if reason := why_unfit(value):
            raise ArgumentError(reason)
        return None, None

    flat = flatten(to_plain(state, None, _inside, leaf)[0])
    for array, name in zip(flat.arrays, flat.names, strict=True):
        try:
            element_type(array.dtype)
        except ArgumentError as error:
            raise ArgumentError(f"array {name!r}: {error}") from None


def from_numpy(state: Any, metadata: Mapping[str, str], name: str = "", *, device: Device = "cpu") -> Any:
    """Return a state of NumPy arrays as a state of tensors: the inverse of `to_numpy`.

    Parameters
    ----------
    state
        As `Chain.restore`, `lccodec.load_file` or `lccodec.open` returns it with ``dtype="bits"``.
        Another framework may have saved it.
    metadata
        The metadata of the checkpoint.
    name
        The name of `state` in the saved state; empty if `state` is the whole.
    device
        The device of the tensors.

    Returns
    -------
    object
        The state. Tensors on the CPU share the memory of the arrays.

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
    """Return the state that the leaves of a chain form, before any is decoded.

    Returns
    -------
    tuple
        The state, with tensors on the meta device; and what stands there for each array, by name
        (see `from_outline`).
    """
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
        """Return a state of NumPy arrays as tensors on the device, as the function does."""
        return from_numpy(state, metadata, name, device=self.device)


def _leaf(array: Array, kind: str | None, name: str, device: torch.device) -> Any:
    if kind in ("numpy", "scalar"):  # bfloat16 is passed as bits
        found = array.view(element_type(array.dtype).native)
        return found[()] if kind == "scalar" else found
    return as_tensor(array, kind, name).to(device)


def usable_device(device: Device) -> torch.device:
    """Return a device; raise ArgumentError if it cannot be used."""
    try:
        return torch.empty(0, device=device).device
    except (RuntimeError, AssertionError, TypeError) as error:  # PyTorch has no error class for this
        raise ArgumentError(f"device {device!r} is not available: {error}") from None
