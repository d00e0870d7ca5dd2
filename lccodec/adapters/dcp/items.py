"""The items of DCP's plans: their names and roles, and the bytes of plain values."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch.distributed.checkpoint.metadata import MetadataIndex

from ...container.tree import leaf_name
from ...element_types import Array
from ...policy.roles import Assignment, assign_roles
from .. import torch as adapter
from .record import Value, is_plain

__all__ = ["item_name", "item_roles", "plain_value", "torch_bytes"]


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


def plain_value(data: io.BytesIO) -> Value | None:
    """Return the value in a planner's bytes, or None if only a pickle can express it."""
    data.seek(0)
    try:
        value = torch.load(data, weights_only=True)
    except Exception:  # a class that is not plain, or bytes in a planner's own format
        return None
    return Value(value) if is_plain(value) else None


def torch_bytes(value: Any) -> io.BytesIO:
    """Return a plain value as the bytes that planners read."""
    data = io.BytesIO()
    torch.save(value, data)
    data.seek(0)
    return data
