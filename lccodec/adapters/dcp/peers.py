"""The ranks of torch.distributed, as those who make parity together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
import torch.distributed as dist

from ...errors import ArgumentError
from ...parity.code import Block

__all__ = ["TorchPeers", "checked_group", "group_of_all"]

#: Of each default group, the one for parity.
_own: WeakKeyDictionary[dist.ProcessGroup, dist.ProcessGroup] = WeakKeyDictionary()


class TorchPeers:
    """The ranks of a process group, which talk by its collectives over the CPU.

    Parameters
    ----------
    group
        The group. Nobody else uses it at the same time.
    """

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._group = group
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)

    def gather(self, value: Any, /) -> list[Any]:
        """Return the values of all ranks."""
        found: list[Any] = [None] * self.size
        dist.all_gather_object(found, value, group=self._group)
        return found

    def exchange(self, pieces: Sequence[Block], sizes: Sequence[int], /) -> list[Block]:
        """Send a piece to each rank; return those of all ranks for this one, of these sizes."""
        sent = torch.from_numpy(np.concatenate(pieces))
        received = torch.empty(sum(sizes), dtype=torch.uint8)
        dist.all_to_all_single(
            received, sent, list(sizes), [len(piece) for piece in pieces], group=self._group
        )
        return np.split(received.numpy(), np.cumsum(sizes)[:-1])


def checked_group(group: dist.ProcessGroup | None) -> dist.ProcessGroup | None:
    """Return a group that can talk over the CPU; raise ``ArgumentError`` for another one."""
    if group is not None and torch.device("cpu") not in group._device_types:
        raise ArgumentError("process_group must have a backend for the CPU, such as gloo")
    return group


def group_of_all() -> dist.ProcessGroup:
    """Return a group of all ranks for parity alone. The first call makes it, on all ranks."""
    default = dist.group.WORLD
    if default is None:
        raise ArgumentError("torch.distributed is not initialized")
    if default not in _own:
        ranks = list(range(dist.get_world_size()))
        # Made among these ranks, so that it does not matter which groups others make meanwhile.
        _own[default] = dist.new_group(ranks, backend="gloo", use_local_synchronization=True)
    return _own[default]
