"""An update of a follower goes into modules and tensors in place: only the values that differ.

It has two steps. `stage` checks all of it and copies the new values to the devices, while the model
is in use. `Staged.apply` is the short step during which nobody may use the model: it writes a few
places of each tensor, on its device. Tensors keep their memory, so captured graphs stay valid.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import torch

from ...chain.read.follower import Patch, Update
from ...container.tree import leaf_name
from ...errors import ArgumentError
from ..tree.matching import check_same, unwrapped
from ..tree.plain import BYTE_TYPES, Keys, read_types
from .matching import together
from .optimizer import describe
from .states import as_tensor, wait_for
from .wrappers import inner_tensors, is_wrapper

#: Integers of as many bytes, in which the bits of values are written.
_INTEGERS: Final = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

_ADVICE: Final = "save a chain for engines with adapter=lccodec.adapters.weights.Rounding(adapter)"


@dataclass(frozen=True)
class _Write:
    """New values of a tensor: at flat places, or all of them if there are no places."""

    target: torch.Tensor
    places: torch.Tensor | None
    values: torch.Tensor


@dataclass(frozen=True)
class Staged:
    """An update that was checked, and whose values are on the devices of a target."""

    step: int
    _writes: tuple[_Write, ...]

    def apply(self) -> None:
        """Write the new values. It may be repeated.

        On CUDA devices the writes are queued on the current stream, as work of the model is.
        """
        with torch.no_grad():
            for write in self._writes:
                target, values = _as_integers(write.target), _as_integers(write.values)
                if write.places is None:
                    target.copy_(values, non_blocking=True)
                else:
                    target.put_(write.places, values)


def _as_integers(tensor: torch.Tensor) -> torch.Tensor:
    """Return a view in which bits are copied as they are; not every operation knows every type."""
    integers = _INTEGERS.get(tensor.element_size())
    return tensor if integers is None else tensor.view(integers)


def apply_update(target: Any, update: Update, *, prefix: str = "") -> None:
    """Write the new values of an update into modules and tensors in place: `stage`, then `apply`.

    Parameters and errors are those of `stage`.

    Examples
    --------
    >>> import tempfile, lccodec
    >>> import lccodec.adapters.torch as adapter
    >>> run, trained, served = tempfile.mkdtemp(), torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
    >>> with lccodec.Chain(run, "lossless", adapter=adapter) as chain:
    ...     _ = chain.save(0, {"model": trained.state_dict()})
    >>> with lccodec.follow(run, timeout=0) as follower:
    ...     for update in follower:
    ...         apply_update(served, update, prefix="model")
    >>> torch.equal(served.weight, trained.weight)
    True
    """
    stage(target, update, prefix=prefix).apply()


def stage(target: Any, update: Update, *, prefix: str = "") -> Staged:
    """Check an update, and copy its values to the devices of what it is to be written into.

    Parameters
    ----------
    target
        A module, a tensor, or a nested dict, list or tuple of these, that holds the state before.
        It may have more than the update. Prefixes of wrappers (DDP, FSDP, ``torch.compile``) in
        names are ignored.
    update
        What :func:`lccodec.follow` yields.
    prefix
        The entry of the state that belongs to the target, as ``"model"`` or ``"run/model"``. All
        else in the update is left out.

    Raises
    ------
    ArgumentError
        Lists every new array that the target has not, or has with another shape or type. The target
        is unchanged.
    """
    if not isinstance(prefix, str):
        raise ArgumentError(f"prefix must be a string such as 'model'; got {prefix!r}")
    tensors, types = dict(_tensors(target)), read_types(update.metadata)
    plain: dict[str, list[str]] = {}
    for own in tensors:
        plain.setdefault(unwrapped(own), []).append(own)
    start = f"{prefix}/" if prefix else ""
    writes, wanted, held = list[_Write](), dict[str, str](), dict[str, str]()
    for patch in update.patches("bits"):
        if not patch.name.startswith(start) and patch.name != prefix:
            continue
        name = patch.name.removeprefix(start) if patch.name != prefix else ""
        if name not in tensors and len(alike := plain.get(unwrapped(name), [])) == 1:
            name = alike[0]  # only one of the two is compiled, or in a wrapper such as DDP
        kind, tensor = types.get(patch.name), tensors.get(name)
        values = as_tensor(patch.values, kind if kind in BYTE_TYPES else None, patch.name)
        if kind == "complex32" and tensor is not None:  # stored as pairs of float16
            tensor = torch.view_as_real(tensor)
        held[name] = f"{str(values.dtype).removeprefix('torch.')} {patch.shape}"
        if tensor is not None:
            wanted[name] = describe(tensor)
            writes.append(_staged(tensor, patch, values))
    wide = any(held.get(name, "").startswith("float32") and "float16" in wanted[name] for name in wanted)
    check_same(wanted, held, [_ADVICE] if wide else [])
    wait_for(write.target for write in writes)  # it may be applied by another thread, on another stream
    return Staged(update.step, tuple(writes))


def _staged(tensor: torch.Tensor, patch: Patch, values: torch.Tensor) -> _Write:
    here = values.to(tensor.device, non_blocking=True)
    if patch.places is None:
        return _Write(tensor, None, here.reshape(patch.shape))
    return _Write(tensor, torch.from_numpy(patch.places).to(tensor.device, non_blocking=True), here)


def _tensors(target: Any, keys: Keys = ()) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors of a target by their names in a state, in the memory of its modules."""
    for inside, part, _ in together(target, target, keys):
        if isinstance(part, torch.nn.Module):
            yield from _tensors(part.state_dict(), inside)
        elif is_wrapper(part):
            yield from _tensors(inner_tensors(part), inside)
        elif isinstance(part, torch.Tensor):
            yield leaf_name(inside), part
