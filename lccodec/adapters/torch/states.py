"""States of tensors as NumPy arrays, and back: by values, or by bits where NumPy lacks the type.

Tensors of other devices are copied straight to where a chain's workers read them. All copies are
begun before the first is waited for. There is no other copy in this process: CUDA writes to the
shared memory itself, which is pinned for it.

Roles from PyTorch's structures: types of tensors, modules, and states of optimizers.

What an optimizer keeps of each parameter must be one of the families of
`lccodec.policy.vocabulary`, which say what of it are moments. All else there is exact. The
parameters of the optimizers are the weights of the model beside it, and nothing else is a weight.
If an optimizer keeps something else, there are none. The parameters are found

- by name, if the optimizer has the names: ``state_dict`` of DCP and FSDP, and ``param_names``;
- by shape, if the optimizer has numbers; by their order, if it has parameters that are not trained,
  too (:mod:`lccodec.policy.optimizer`).

Without an optimizer, names decide (:mod:`lccodec.policy.roles`).
"""

from __future__ import annotations

import os
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import torch
from torch.nn.parameter import is_lazy

from ...chain.read.checkpoint import Arrivals, open_file
from ...chain.save import single_file
from ...constants import ELEMENT_TYPES
from ...container.tree import TYPES, Room, Wanted, flatten, leaf_name, left_out
from ...element_types import BFLOAT16_BITS, Array, element_type
from ...errors import ArgumentError, FormatError
from ...policy.optimizer import as_many, find_numbered
from ...policy.policy import Policy
from ...policy.roles import (
    CENTER,
    KEPT,
    PARAMETER,
    PERHAPS,
    UNKNOWN,
    UNSAFE,
    UNTRAINED,
    Assignment,
    Role,
    called_weight,
    is_exact,
)
from ...policy.vocabulary import FAMILIES, MODELS, meaning
from ...workers.process import Arena, Segment, place_of
from ..matching import unwrapped
from ..tree import (
    BYTE_TYPES,
    Keys,
    below,
    check_bits,
    from_outline,
    from_plain,
    host_value,
    read_types,
    to_plain,
)
from .optimizer import together
from .wrappers import (
    INSTANCE,
    TENSOR_TYPES,
    WRAPPER,
    Apart,
    Instance,
    class_name,
    inner_tensors,
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


#: Why an array of an optimizer is kept exactly, and one of a wrapper such as a low-bit weight.
_INSIDE: Final = "inside a torch optimizer"
_WRAPPED: Final = "inside a wrapper of tensors"

_Keys = tuple[str, ...]


def roles(state: Any) -> dict[str, Assignment]:
    """Return by name the roles of floating point tensors that follow from a state's structure.

    The state holds those of modules and optimizers, nested as you save them. One that was made with
    ``module.state_dict(keep_vars=True)`` shows by its types what is trained.

    Examples
    --------
    >>> model = torch.nn.Linear(2, 1, bias=False)
    >>> optimizer = torch.optim.Adam(model.parameters())
    >>> model(torch.ones(1, 2)).backward()
    >>> optimizer.step()
    >>> assignments = roles({"model": model.state_dict(), "adam": optimizer.state_dict()})
    >>> for name, assignment in assignments.items():
    ...     print(f"{name:23} {assignment.role:14} {assignment.why}")
    adam/state/0/step       other          inside a torch optimizer
    adam/state/0/exp_avg    first_moment   torch optimizer: exp_avg
    adam/state/0/exp_avg_sq second_moment  torch optimizer: exp_avg_sq
    model/weight            weight         a parameter of the optimizer
    """
    search = _Search()
    search.visit(state, ())
    search.find_parameters()
    return search.assignments


def roles_of(module: torch.nn.Module, prefix: str = "") -> dict[str, Role]:
    """Return the role of every tensor of a module: parameters are weights, buffers are exact.

    Use it for ``roles=`` of a chain, where types say more than names. `prefix` is the name of the
    module's state in the saved state, as ``"model"``.

    Examples
    --------
    >>> roles_of(torch.nn.BatchNorm1d(3), "model/norm")  # doctest: +NORMALIZE_WHITESPACE
    {'model/norm/weight': 'weight', 'model/norm/bias': 'weight', 'model/norm/running_mean': 'other',
     'model/norm/running_var': 'other', 'model/norm/num_batches_tracked': 'other'}
    """
    assignments = module_roles(module)
    return {"/".join(filter(None, [prefix, leaf_name((name,))])): a.role for name, a in assignments.items()}


def module_roles(module: torch.nn.Module) -> dict[str, Assignment]:
    """Return role and reason by the names that the module gives its tensors; not of wrappers."""
    kept: dict[object, tuple[str, torch.Tensor]] = {}
    for name, value in module.state_dict(keep_vars=True).items():
        if isinstance(value, torch.Tensor) and not is_wrapper(value):
            kept.setdefault(_memory(value), (name, value))  # tied tensors are stored under their first name
    buffer = Assignment("other", "a buffer of a torch module")
    return {name: _typed(value, name) or buffer for name, value in kept.values()}


def _typed(value: torch.Tensor, name: str) -> Assignment | None:
    """Return the role that follows from the type of a tensor, or None."""
    if isinstance(value, torch.nn.Parameter):
        if not value.requires_grad:
            return Assignment("other", "a torch.nn.Parameter without gradient")
        if is_exact(name):  # some statistics are parameters without influence on the loss
            return Assignment("other", "a torch.nn.Parameter with the name of a statistic")
        return Assignment("weight", "torch.nn.Parameter")
    return Assignment("other", "torch.nn.Buffer") if isinstance(value, torch.nn.Buffer) else None


def _memory(tensor: torch.Tensor) -> object:
    """Return a key that is equal for tied tensors."""
    if is_wrapper(tensor):
        return tuple(map(_memory, inner_tensors(tensor).values()))
    return (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()) if tensor.numel() else object()


def _is_inexact(value: Any) -> bool:
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided or value.is_nested:
        return False  # these are refused elsewhere, or have no shape
    return value.is_floating_point() or value.is_complex()


class _Search:
    """Walks through a state and collects roles."""

    def __init__(self) -> None:
        self.assignments: dict[str, Assignment] = {}
        self._optimizers = False
        self._known = True  # whether all optimizers are of the families
        self._names: Counter[str] = Counter()  # of the optimizers' parameters
        # Of groups of parameters that have numbers alone: shapes, None for what is not trained.
        self._groups: list[list[tuple[int, ...] | None]] = []
        self._hidden = 0  # trained ones, of which no shape is known
        self._tensors: dict[object, tuple[_Keys, torch.Tensor]] = {}  # outside optimizers

    def visit(self, value: Any, keys: _Keys) -> None:
        if isinstance(value, dict) and isinstance(value.get("state"), dict) and "param_groups" in value:
            self._optimizer(value, keys)
        elif isinstance(value, dict):
            typed = any(isinstance(child, torch.nn.Parameter) for child in value.values())
            for key, child in value.items():
                inner = below(keys, str(key))
                if typed and _is_inexact(child):
                    self._wrapped(child, inner)
                    buffer = Assignment("other", "a buffer beside torch.nn.Parameter")
                    self.assignments[leaf_name(inner)] = _typed(child, leaf_name(inner)) or buffer
                else:
                    self.visit(child, inner)
        elif isinstance(value, list | tuple):
            for position, child in enumerate(value):
                self.visit(child, below(keys, str(position)))
        elif _is_inexact(value):
            self._wrapped(value, keys)
            if (assignment := _typed(value, leaf_name(keys))) is not None:
                self.assignments[leaf_name(keys)] = assignment
            else:
                self._tensors.setdefault(_memory(value), (keys, value))

    def _optimizer(self, value: dict[str, Any], keys: _Keys) -> None:
        self._optimizers = True
        shapes: dict[Any, torch.Size | None] = {}  # by the index of a parameter
        for index, stored in value["state"].items():
            inner = (*keys, "state", str(index))
            entries = stored if isinstance(stored, dict) else {"": stored}
            kept = {  # what is more than a number: has a tensor of several elements
                entry: child
                for entry, child in entries.items()
                if any(isinstance(p, torch.Tensor) and p.numel() != 1 for _, p, _ in together(child, child))
            }
            kinds = {child.shape if isinstance(child, torch.Tensor) else None for child in kept.values()}
            if kept:
                shapes[index] = kinds.pop() if len(kinds) == 1 else None
            known = {entry: child for entry, child in kept.items() if not meaning(str(entry)).master}
            families = [f for f in FAMILIES if f.fits(known, named=True, counted=False)]
            roles = families[0].roles if families and shapes[index] is not None else {}
            self._known &= bool(families) or not known
            for entry, child in entries.items():
                assignment = Assignment("other", UNSAFE if entry in kept else _INSIDE)
                role = roles.get(entry, "other")
                if role != "other":
                    why = CENTER if families[0].is_center(entry) else f"torch optimizer: {entry}"
                    assignment = Assignment(role, KEPT if role == "weight" else why)
                self._assign(child, below(inner, str(entry)) if entry else inner, assignment)
        for group in _groups(value["param_groups"]):
            self._groups.append([])
            for index, name in group:
                trained = not shapes or index in shapes  # if others have moments, this one is not
                if name is not None:
                    self._names[unwrapped(name)] += trained
                elif (shape := shapes.get(index)) is None and trained:
                    self._hidden += 1
                else:
                    self._groups[-1].append(None if shape is None else tuple(shape))
        groups = Assignment("other", _INSIDE)
        self._assign(value["param_groups"], below(keys, "param_groups"), groups)

    def _assign(self, value: Any, keys: _Keys, assignment: Assignment) -> None:
        for inside, child, _ in together(value, value, keys):
            if _is_inexact(child):
                self._wrapped(child, inside)
                self.assignments[leaf_name(inside)] = assignment

    def _wrapped(self, value: torch.Tensor, keys: _Keys) -> None:
        """What is inside a wrapper is exact: its scales, and values yet to be rounded."""
        if is_wrapper(value):
            for name, tensor in inner_tensors(value).items():
                inner = below(keys, name)
                self.assignments[leaf_name(inner)] = Assignment("other", _WRAPPED)
                self._wrapped(tensor, inner)

    def find_parameters(self) -> None:
        """Assign roles to the tensors outside optimizers: weights are their parameters."""
        if not self._optimizers:
            return
        exact, shapes = [], {}
        named: dict[str, list[str]] = {}
        for keys, tensor in self._tensors.values():
            name = leaf_name(keys)
            if is_exact(name):
                exact.append(tensor.shape)
                continue
            shapes[name] = tensor.shape
            if (end := next((end for end in _ends(keys) if end in self._names), None)) is not None:
                named.setdefault(end, []).append(name)
        weights = []
        for end, names in named.items():
            weights += as_many(names, self._names[end], called_weight)
        left = {name: shape for name, shape in shapes.items() if name not in weights}
        certain, perhaps = find_numbered(self._groups, self._hidden, left, exact, called_weight)
        weights += certain
        if not self._known:
            weights, perhaps = [], set()
        other = Assignment("other", UNTRAINED if self._known else UNKNOWN)
        self.assignments.update(dict.fromkeys(shapes, other))
        self.assignments.update(dict.fromkeys(perhaps, Assignment("other", PERHAPS)))
        self.assignments.update(dict.fromkeys(weights, Assignment("weight", PARAMETER)))


def _groups(groups: Any) -> Iterator[list[tuple[Any, str | None]]]:
    """Yield index and name, if it is known, of each parameter of each group of an optimizer."""
    for group in groups if isinstance(groups, list | tuple) else ():
        indices = group.get("params") if isinstance(group, dict) else None
        if not isinstance(indices, list | tuple):
            continue
        names = group.get("param_names")
        names = names if isinstance(names, list | tuple) and len(names) == len(indices) else indices
        pairs = zip(indices, names, strict=True)
        yield [(index, name if isinstance(name, str) else None) for index, name in pairs]


def _ends(keys: _Keys) -> Iterator[str]:
    """Yield the possible names of a tensor in its module."""
    for start in range(len(keys)):
        yield unwrapped(".".join(keys[start:]))
    if len(keys) == 1:  # as DCP flattens states
        parts = keys[0].split(".")
        for start in range(1, len(parts)):
            if start == 1 or parts[start - 1] in MODELS:
                yield unwrapped(".".join(parts[start:]))


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
        bytes, None, and the values that :mod:`lccodec.adapters.tree` lists. A dict subclass
        that is not listed there becomes a `dict`.
    metadata, room, wanted
        As for `lccodec.Adapter`. Tensors of other devices are copied to the room all at a time.

    Returns
    -------
    tuple
        The state and the metadata. The arrays share the memory of tensors on the CPU; bfloat16 has
        the dtype `lccodec.BFLOAT16_BITS`. A wrapper of tensors, such as an optimizer state of
        torchao, becomes a dict of them (see `lccodec.adapters.torch.wrappers`). The metadata are
        `metadata` and a note of what NumPy does not have (see `lccodec.adapters.tree`).

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
    roles = staticmethod(roles)

    def from_numpy(self, state: Any, metadata: Mapping[str, str], name: str = "", /) -> Any:
        """Return a state of NumPy arrays as tensors on the device, as the function does."""
        return from_numpy(state, metadata, name, device=self.device)


def _leaf(array: Array, kind: str | None, name: str, device: torch.device) -> Any:
    if kind in ("numpy", "scalar"):
        return host_value(array, kind)
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
    """Return a tensor as an array of its memory, and its type in the note unless NumPy has it."""
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
    """Return the tensor of an array with a type of the note, sharing memory.

    It is the inverse of `host_array`. An ``ArgumentError`` says that PyTorch lacks the type.
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
    check_bits(array, kind, where, _ONE_BYTE_TYPES.values(), "PyTorch")
    dtype: torch.dtype = getattr(torch, kind)
    return torch.from_numpy(array).view(dtype)


#: Shared memory that was pinned, or cannot be.
_asked: weakref.WeakSet[Segment] = weakref.WeakSet()


def is_elsewhere(tensor: torch.Tensor) -> bool:
    """Return whether a tensor's values lie in the memory of another device."""
    return tensor.device.type != "cpu"


def copy_out(tensors: Sequence[torch.Tensor], room: Room) -> list[Array]:
    """Copy tensors to arrays of their bytes from `room`, in C order; those of CUDA side by side."""
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

    Copies to unpinned memory take four to five times as long (``benchmarks/devices.py``).
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


_known_roles: Final = roles  # `save` has a parameter of this name


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
    return single_file.coded(*to_numpy(state, metadata), policy, roles, before, _known_roles(state))


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
