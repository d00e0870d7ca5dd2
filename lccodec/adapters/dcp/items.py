"""The items of DCP's plans: their names and roles, and their values that are not tensors."""

from __future__ import annotations

import io
import pickle
import weakref
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import torch
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.metadata import MetadataIndex
from torch.distributed.checkpoint.planner import SavePlanner, WriteItem

from ...container.tree import leaf_name
from ...element_types import Array
from ...errors import ArgumentError
from ...policy.roles import Assignment, assign_roles
from .. import torch as adapter
from .record import Value, check_storable

__all__ = ["item_name", "item_roles", "stored_value", "torch_bytes"]


def item_name(index: MetadataIndex) -> str:
    """Return the key of an item in its rank's state: its name, and the offset of a shard."""
    offset = index.offset or ()
    return f"{index.fqn}/{','.join(map(str, offset))}" if any(offset) else index.fqn


def item_roles(
    indices: Iterable[MetadataIndex], state: Mapping[str, torch.Tensor | Array]
) -> dict[str, Assignment]:
    """Return the roles of a rank's items. A shard has the role of its tensor."""
    tensors = {index.fqn: state[item_name(index)] for index in indices if item_name(index) in state}
    structural = {name.replace("~1", "/").replace("~0", "~"): a for name, a in adapter.roles(tensors).items()}
    found = assign_roles({name: tensor.shape for name, tensor in tensors.items()}, None, structural)
    items = ((item_name(index), index.fqn) for index in indices if index.fqn in found)
    return {leaf_name((item,)): found[name] for item, name in items}


def stored_value(planner: SavePlanner, item: WriteItem) -> Value:
    """Return what a planner saves as an item that is not a tensor, to be stored in the record.

    DCP's own planner has the object. What another one makes is read by torch's weights-only loader.

    Raises
    ------
    ArgumentError
        If only a pickle can express it. The message says why.
    """
    methods = "resolve_data", "transform_object"
    if isinstance(planner, DefaultSavePlanner) and all(
        getattr(type(planner), name) is getattr(DefaultSavePlanner, name) for name in methods
    ):
        value = planner.lookup_object(item.index)
    else:
        value = _loaded(planner.resolve_data(item))
    check_storable(value)
    return Value(value)


def _loaded(data: Any) -> Any:
    """Return the value in a planner's bytes."""
    try:
        data.seek(0)
        return torch.load(data, weights_only=True)
    except Exception as error:  # a class that is not plain, or bytes in a planner's own format
        raise ArgumentError("is bytes that a planner makes, with classes that are not loaded") from error


def torch_bytes(value: Any) -> io.BytesIO:
    """Return a value as the bytes that planners read. They are not stored anywhere.

    A class that was made when the value was loaded has no name to which a pickle could refer: then
    the bytes only name a value of this process.
    """
    data: io.BytesIO = io.BytesIO()
    try:
        torch.save(value, data)
    except (pickle.PicklingError, AttributeError, TypeError):
        data = _Handed(value)
    data.seek(0)
    return data


class _Handed(io.BytesIO):
    """A pickle that names a value of this process, as long as it is alive."""

    alive: ClassVar[weakref.WeakValueDictionary[int, _Handed]] = weakref.WeakValueDictionary()

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value
        self.alive[id(self)] = self
        torch.save(_Reference(id(self)), self)


class _Reference:
    def __init__(self, number: int) -> None:
        self._number = number

    def __reduce__(self) -> tuple[Any, ...]:
        return _named, (self._number,)


def _named(number: int) -> Any:
    return _Handed.alive[number].value
