"""Ways to save a state while a run goes on: lccodec's, and those of others.

A way has a call, which the loop waits for, and ends later: when what was saved is on the disk. All
files are synced before a save counts as durable.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from pathlib import Path
from typing import Any

import lccodec

from ..speed.savers import remove, sync
from .states import State

__all__ = ["OWN", "PEERS", "Async", "Blocking", "Nothing", "Thread", "TwoWorkers", "Way", "opened"]

POLICY = "balanced"
ONE_CHAIN = 1_000_000  # deltas without a keyframe: all saves cost the same


class Way:
    """A way to save, and how long its saves took.

    Parameters
    ----------
    directory
        A folder of its own; it is made.

    Attributes
    ----------
    calls, durable
        Seconds of each call, and from its start until the state was on the disk.
    """

    name = ""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        self.directory = directory
        self.calls: list[float] = []
        self.durable: list[float] = []
        self._futures: list[Future[Any]] = []

    def save(self, step: int, state: State) -> None:
        """Save a state."""
        start = time.perf_counter()
        future = self.begin(step, state)
        self.calls.append(time.perf_counter() - start)
        if future is None:
            self.durable.append(self.calls[-1])
        else:
            ended: Future[None] = Future()  # or the time might be noted after `settle`

            def note(_: object) -> None:
                self.durable.append(time.perf_counter() - start)
                ended.set_result(None)

            future.add_done_callback(note)
            self._futures += [future, ended]

    def begin(self, step: int, state: State) -> Future[Any] | None:
        """Do what the loop waits for; return the future of the rest, if there is a rest."""
        raise NotImplementedError

    @property
    def busy(self) -> bool:
        """Whether a save runs."""
        return any(not future.done() for future in self._futures)

    def settle(self) -> None:
        """Wait for all saves; raise what went wrong."""
        wait_for(self._futures)
        for future in self._futures:
            future.result()
        self._futures.clear()
        self.tidy()

    def tidy(self) -> None:
        """Remove what was written, if it is of no further use."""

    def forget(self) -> None:
        """Forget the times so far."""
        self.calls.clear()
        self.durable.clear()

    def close(self) -> None:
        """Settle, and release everything."""
        self.settle()


class Nothing(Way):
    """No saving."""

    name = "no saving"

    def begin(self, step: int, state: State) -> None:
        """Do nothing."""


class Blocking(Way):
    """`Chain.save`."""

    name = "Chain.save"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.chain = self.open()

    def open(self) -> lccodec.Chain:
        """Return the chain."""
        return lccodec.Chain(self.directory, POLICY, keyframe_every=ONE_CHAIN, newest="history")

    def begin(self, step: int, state: State) -> Future[Any] | None:
        """Save."""
        self.chain.save(step, state)
        return None

    def close(self) -> None:
        """Close the chain."""
        super().close()
        self.chain.close()


class Thread(Blocking):
    """A thread that saves a copy; at most one save at a time."""

    name = "Chain.save in a thread"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.pool = ThreadPoolExecutor(1)

    def begin(self, step: int, state: State) -> Future[Any]:
        """Wait for the save before, copy, and let the thread save."""
        wait_for(self._futures)
        copy = {name: array.copy() for name, array in state.items()}
        return self.pool.submit(self.chain.save, step, copy)

    def close(self) -> None:
        """End the thread."""
        super().close()
        self.pool.shutdown()


class Async(Blocking):
    """`Chain.save_async`, with one worker."""

    name = "Chain.save_async"
    workers = 1

    def open(self) -> lccodec.Chain:
        """Return the chain."""
        return lccodec.Chain(
            self.directory, POLICY, keyframe_every=ONE_CHAIN, workers=self.workers, newest="history"
        )

    def begin(self, step: int, state: State) -> Future[Any]:
        """Save in the background."""
        return self.chain.save_async(step, state)


class TwoWorkers(Async):
    """`Chain.save_async`, with two workers."""

    name = "Chain.save_async, 2 workers"
    workers = 2


class TorchSave(Way):
    """torch.save, and sync."""

    name = "torch.save"

    def __init__(self, directory: Path) -> None:
        import torch

        super().__init__(directory)
        self.torch = torch

    def tensors(self, state: State) -> dict[str, Any]:
        """Return a state as tensors, without a copy."""
        return {name: self.torch.from_numpy(array) for name, array in state.items()}

    def begin(self, step: int, state: State) -> Future[Any] | None:
        """Save."""
        path = self.directory / f"{step}.pt"
        self.torch.save(self.tensors(state), path)
        sync(path)
        return None

    def tidy(self) -> None:
        """Remove what was written."""
        for path in self.directory.iterdir():
            remove(path)


class Dcp(TorchSave):
    """DCP's async_save, with a thread; its writer syncs."""

    name = "DCP async_save, thread"
    kind = "THREAD"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        import torch.distributed as dist
        import torch.distributed.checkpoint as dcp
        from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

        self.dcp, self.type = dcp, AsyncCheckpointerType[self.kind]
        self._dist = None if dist.is_initialized() else dist
        if self._dist is not None:  # it wants a group, of this process alone
            dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)

    def begin(self, step: int, state: State) -> Future[Any]:
        """Wait for the save before, and save in the background."""
        wait_for(self._futures)
        path = self.directory / str(step)
        future: Future[Any] = self.dcp.async_save(
            self.tensors(state), checkpoint_id=path, async_checkpointer_type=self.type
        )
        return future

    def close(self) -> None:
        """End the group, too."""
        super().close()
        if self._dist is not None:
            self._dist.destroy_process_group()


class DcpProcess(Dcp):
    """DCP's async_save, with a process."""

    name = "DCP async_save, process"
    kind = "PROCESS"


class Orbax(TorchSave):
    """Orbax's async saver, and sync; it takes as many threads as it likes."""

    name = "Orbax, async"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        from orbax.checkpoint import StandardCheckpointer

        self.checkpointer = StandardCheckpointer()
        self.pool = ThreadPoolExecutor(1)

    def begin(self, step: int, state: State) -> Future[Any]:
        """Save in the background; a thread waits for the end, and syncs."""
        wait_for(self._futures)
        path = self.directory.absolute() / str(step)
        self.checkpointer.save(path, state)
        return self.pool.submit(self._finish, path)

    def _finish(self, path: Path) -> None:
        self.checkpointer.wait_until_finished()
        sync(path)

    def close(self) -> None:
        """End the threads."""
        super().close()
        self.pool.shutdown()
        self.checkpointer.close()


OWN: tuple[type[Way], ...] = (Blocking, Thread, Async)
PEERS: tuple[type[Way], ...] = (TorchSave, Dcp, DcpProcess, Orbax)


def opened(kinds: Sequence[type[Way]], root: Path) -> tuple[list[Way], list[str]]:
    """Return the ways that can be imported, in their folders, and the names of the others."""
    found, absent = [], []
    for kind in kinds:
        try:
            found.append(kind(root / kind.__name__.lower()))
        except ImportError:
            absent.append(kind.name)
    return found, absent
