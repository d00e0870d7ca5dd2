"""Parity behind the saves of all ranks: a thread of each rank takes part, and no save waits for it.

The ranks talk by the collectives of a process group. The thread waits until the checkpoint is
committed. Only the coordinator knows that, and tells the others. Each rank begins with every save,
also if its own part has failed: so the ranks agree about what they do next.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from weakref import WeakKeyDictionary

import numpy as np
import torch
import torch.distributed as dist

from ..chain.mend.protect import Redundancy, protect
from ..chain.mend.ranks import Alone, Peers, Written, files_of, protect_together
from ..chain.store.directory import DirectoryStore
from ..errors import ArgumentError, LccodecError, reason_of, warn
from ..parallel import Line
from ..parity import Block

_LOOK_SECONDS: Final = 0.5  # between looks whether the program is at its end

#: Of each default group, the one for parity.
_own: WeakKeyDictionary[dist.ProcessGroup, dist.ProcessGroup] = WeakKeyDictionary()
#: Of each group, its thread: ranks that talk about two saves at a time would not understand each
#: other.
_lines: WeakKeyDictionary[dist.ProcessGroup, Line] = WeakKeyDictionary()


class TorchPeers:
    """The ranks of a process group. Nobody else uses it at the same time."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._group = group
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)

    def gather(self, value: Any, /) -> list[Any]:
        """Return the values of all ranks."""
        gathered: list[Any] = [None] * self.size
        dist.all_gather_object(gathered, value, group=self._group)
        return gathered

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


@dataclass
class Save:
    """A save of one rank."""

    ranks: int | None  # how many ranks save; None if nobody knows, and then it is all
    base: Path  # the directory of the ranks' chains
    records: Path | None  # the directory of the record, for the coordinator; it protects that, too
    written: Written | None  # what this rank has written; None if it has failed
    _end: threading.Event = field(default_factory=threading.Event)
    _is_committed: bool = False

    def end(self, *, is_committed: bool) -> None:
        """Tell how the save has ended; on the coordinator. Only the first call counts."""
        if not self._end.is_set():
            self._is_committed = is_committed
            self._end.set()

    def is_committed(self) -> bool:
        """Wait until the save has ended; on the coordinator."""
        while not self._end.wait(_LOOK_SECONDS):
            if not threading.main_thread().is_alive():  # nobody will tell
                return False
        return self._is_committed


def written_by(base: Path, rank: int, name: str | None) -> Written:
    """Return what a rank has written: the file of this save, and what was there before."""
    folder, files = f"rank-{rank}", [] if name is None else [name]
    with suppress(LccodecError):  # the next save finds the others
        files = files_of(DirectoryStore(base), folder)
    return Written(folder, name, tuple(files))


class ParityOfRanks:
    """Makes parity of the ranks' files of each save; `redundancy` is how many ranks may be lost."""

    def __init__(self, redundancy: Redundancy, group: dist.ProcessGroup | None) -> None:
        self._redundancy, self._group = redundancy, group
        self._alone = self._line = Line()
        self._last: Save | None = None
        self._failures: list[str] = []

    def __reduce__(self) -> tuple[Any, ...]:
        return ParityOfRanks, (self._redundancy, None)  # a process of `dcp.async_save` has its own ranks

    def begin(self, save: Save) -> None:
        """Make parity of a save when it is committed; on all ranks, an error is only a warning."""
        self.give_up()
        self._warn()
        try:
            peers, line = self._peers(save.ranks)
        except Exception as error:  # torch's own
            warn(f"{save.base}: the ranks' files are not protected: {reason_of(error)}")
            return
        self._last, self._line = save, line
        line.add(lambda: self._make(save, peers))

    def end(self, *, is_committed: bool) -> None:
        """Tell how the save has ended; on the coordinator."""
        if self._last is not None:
            self._last.end(is_committed=is_committed)

    def give_up(self) -> None:
        """Make no parity of a save that has not ended. It never will: the next one has begun."""
        self.end(is_committed=False)

    def wait(self) -> None:
        """Wait until all parity is made; an error is only a warning."""
        self.give_up()
        self._line.wait()
        self._warn()

    def _peers(self, ranks: int | None) -> tuple[Peers, Line]:
        if ranks is None:
            ranks = dist.get_world_size() if dist.is_initialized() else 1
        if ranks == 1:
            return Alone(), self._alone
        group = group_of_all() if self._group is None else self._group
        if dist.get_world_size(group) != ranks:
            raise ArgumentError(
                f"{ranks} ranks save, and the process group has {dist.get_world_size(group)}:"
                " give process_group= the ranks that save"
            )
        return TorchPeers(group), _lines.setdefault(group, Line())

    def _make(self, save: Save, peers: Peers) -> None:
        """Make the parity of a save; in the thread."""
        try:
            if any(peers.gather(save.written is None)) or save.written is None:
                return
            is_coordinator = save.records is not None
            if not any(peers.gather(is_coordinator and save.is_committed())):
                return
            store = DirectoryStore(save.base)
            wrong = protect_together(store, peers, save.written, self._redundancy)
            if peers.rank == 0:
                self._failures += [
                    f"{save.base}: not protected: {name}: {text}" for name, text in wrong.items()
                ][:1]
            if save.records is not None:
                protect(DirectoryStore(save.records), self._redundancy)
        except Exception as error:  # torch's own, if a rank has died; the save is whole
            self._failures.append(f"{save.base}: the ranks' files are not protected: {reason_of(error)}")

    def _warn(self) -> None:
        while self._failures:
            warn(self._failures.pop(0))
