"""The saves of an adapter that keeps links: at once, or in the background.

In the background a call copies the state, and workers do the rest (`Chain.save_async`). The link is
written when its checkpoint is on the disk, and so is everything done that must wait for it.
"""

from __future__ import annotations

import atexit
import os
import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from concurrent.futures import wait as wait_for
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from ...chain.adapter import Adapter, from_framework
from ...chain.chain import Chain
from ...chain.life.prune import thin_out
from ...chain.save.settings import LOG
from ...chain.store.opening import writable_store
from ...chain.store.parents import Ancestry
from ...container.tree import array_names
from ...errors import ArgumentError
from ...parallel import Line
from ...policy.roles import Assignment
from ...printable import printable
from ..link import chain_step, save_linked, write_link
from .options import ChainOptions

__all__ = ["Begun", "LinkSaver"]

_open: weakref.WeakSet[LinkSaver] = weakref.WeakSet()


class Begun:
    """A save in the background whose link is still to be written.

    Parameters
    ----------
    chain, step
        Where the checkpoint is going to be.
    future
        What `Chain.save_async` returned.
    """

    def __init__(self, chain: Chain, step: int, future: Future[int | None]) -> None:
        self.chain, self.step, self.future = chain, step, future

    def link(self, path: Path) -> None:
        """Wait for the checkpoint, then write its link. The failure of the save is raised here."""
        try:
            self.future.result()
        except BaseException as error:
            if self.chain.failure is error:
                with suppress(type(error)):  # so that no later call raises it again
                    self.chain.wait(0)
            raise
        write_link(self.chain, self.step, path)


class LinkSaver:
    """Saves states and their links. The first save opens the chain.

    Parameters
    ----------
    options
        Where the chain is, and whether it saves in the background.
    adapter
        The adapter of the states' framework; by default states hold NumPy arrays.
    part
        The subdirectory of the chain, if it is that of one process.
    """

    def __init__(self, options: ChainOptions, adapter: Adapter | None = None, part: str = "") -> None:
        self._options, self._adapter, self._part = options, adapter, part
        self._chain: Chain | None = None
        self._ancestry: Ancestry | None = None  # of the chain, once it is thinned out
        self._last: Begun | None = None
        self._whole: Future[int | None] | None = None  # the save of all arrays, before those of some
        self._line = Line()  # writes links, and does what waits for them
        self._failed: deque[BaseException] = deque()  # failures of these, until they are raised
        self._skips = False  # whether what comes next is left out, as something before it has failed
        self.process = os.getpid()
        _open.add(self)

    def __reduce__(self) -> tuple[Any, ...]:
        """Let a copy, as in a process that a trainer starts, open the chain anew."""
        return LinkSaver, (self._options, self._adapter, self._part)

    def save(
        self,
        state: Any,
        path: Path,
        metadata: Mapping[str, str] | None = None,
        roles: Mapping[str, Assignment] | None = None,
        then: Callable[[], object] | None = None,
        step: int | None = None,
        names: Iterable[str] | None = None,
    ) -> None:
        """Save a state to a step of the chain, and a link to a file.

        Without a chain, the file is the state.

        Parameters
        ----------
        then
            Called when the file is on the disk.
        step
            The trainer's step, if it is known; see `lccodec.adapters.link.chain_step`.
        names
            The names of the arrays in `state`, if other processes save others.

        Raises
        ------
        LccodecError
            As `save_linked`. In the background: the failure of an earlier save; then nothing is
            saved. A failure of this save is raised by the next call.
        """
        if self._options.background:
            self._submit(partial(_link, self.begin(state, metadata, roles, step, names), path, then))
            return
        strings = dict(metadata or {})
        if self._options.chain is None and self._adapter is not None:
            state, strings = self._adapter.to_numpy(state, strings)
        chain = self._opened()
        self._thin_out()
        only, self._whole = self._only(state, names), None  # behind a save that fails, all arrays are saved
        save_linked(state, path, strings, chain, roles, step, only)
        self._whole = Future()
        self._whole.set_result(None)
        if then is not None:
            then()

    def begin(
        self,
        state: Any,
        metadata: Mapping[str, str] | None,
        roles: Mapping[str, Assignment] | None,
        step: int | None = None,
        names: Iterable[str] | None = None,
    ) -> Begun:
        """Save a state in the background. The caller writes the link, by `Begun.link`."""
        chain = self._opened()
        self._raise_failure()
        if chain is None:
            raise ArgumentError("a save in the background needs a chain")
        self._thin_out()
        running = [] if self._last is None or self._last.future.done() else [self._last.step]
        step = chain_step(step, max([*chain.steps, *running], default=None))
        only = self._only(state, names)
        self._last = Begun(chain, step, chain.save_async(step, state, metadata, roles=roles, only=only))
        if only is None and (self._whole is None or _has_failed(self._whole)):  # one that runs is enough
            self._whole = self._last.future
        return self._last

    def _only(self, state: Any, names: Iterable[str] | None) -> Sequence[str] | None:
        """Return which arrays are saved: all, until a save of all has come to the disk.

        So are they behind a save that has failed: the state may have got other arrays. The first
        save of all tells what no array is named, as later ones would.
        """
        whole, last = self._whole, self._last
        if whole is None and names is None and self._options.only is not None:
            flat, *_ = from_framework(self._adapter, state, None, None, wanted=lambda _: False)
            self._options.check_names(array_names(flat.tree))
        if whole is None or not whole.done() or _has_failed(whole):
            return None
        if last is not None and _has_failed(last.future):
            return None
        return self._options.only_of(names or (), alone=names is None)

    def after(self, action: Callable[[], object]) -> None:
        """Call a function when all saves that are begun are on the disk, and not if one fails.

        So what a new checkpoint replaces stays until the new one is there. The function is called
        at once if no save runs. It is not called either while a failure is still to be raised.
        """
        self._leave_parent()
        if self._failed or (self._chain is not None and self._chain.failure is not None):
            return
        if self._line.waiting:
            self._submit(action, skips=True)
        else:
            action()

    def settle(self) -> None:
        """Wait until no save runs. Failures are kept for the next call."""
        self._leave_parent()
        self._line.wait()

    def wait(self) -> None:
        """Wait until no save runs; raise the failure of one that failed."""
        self.settle()
        if self._chain is not None:
            self._chain.wait()
        self._raise_failure()

    def close(self) -> None:
        """Wait until no save runs, and end the workers; raise the failure of a save that failed.

        The next save opens the chain again.
        """
        self.settle()
        self._thin_out()
        try:
            if self._chain is not None:
                self._chain.close()
        finally:
            self._chain, self._whole = None, None
            self._raise_failure()

    def _leave_parent(self) -> None:
        """After a fork, forget all that runs: it is the parent's, and never ends here."""
        if self.process != os.getpid():
            self.process, self._chain, self._last, self._whole = os.getpid(), None, None, None
            self._failed.clear()

    def _opened(self) -> Chain | None:
        self._leave_parent()
        if self._chain is None:
            self._chain = self._options.open(self._part, self._adapter)
        return self._chain

    def _thin_out(self) -> None:
        """Remove what is not kept of what was saved before: its links are on the disk."""
        chain, keep = self._chain, self._options.keep
        if chain is not None and keep is not None and chain.steps:
            store = writable_store(chain.directory)
            self._ancestry = self._ancestry or Ancestry(store)
            thin_out(store, keep, self._ancestry)

    def _submit(self, action: Callable[[], object], *, skips: bool = False) -> None:
        """Do something after all that was submitted; with `skips`, unless that has failed."""

        def act() -> None:
            if skips and self._skips:
                return
            try:
                action()
                self._skips = False
            except BaseException as error:  # it is raised by a later call
                self._skips = True
                self._failed.append(error)

        self._line.add(act)

    def _raise_failure(self) -> None:
        while self._failed:
            error = self._failed.popleft()
            if not isinstance(error, CancelledError):  # the chain raises that of a save
                raise error


def _has_failed(save: Future[int | None]) -> bool:
    return save.done() and (save.cancelled() or save.exception() is not None)


def _link(begun: Begun, path: Path, then: Callable[[], object] | None) -> None:
    """Write the link of a checkpoint when it is saved. The chain keeps the failure of a save."""
    wait_for([begun.future])
    if begun.future.cancelled() or begun.future.exception() is not None:
        raise CancelledError
    if not path.parent.is_dir():  # frameworks delete old checkpoints, folder and all
        LOG.warning("%s: the folder was deleted before its checkpoint was saved", path)
        return
    begun.link(path)
    if then is not None:
        then()


@atexit.register
def _at_exit() -> None:
    """Wait for all saves at the end of the program, and tell what went wrong."""
    for saver in list(_open):
        if saver.process != os.getpid():
            continue
        try:
            saver.close()
        except Exception as error:
            lines = f"lccodec: {error}", *getattr(error, "__notes__", ())
            print(printable("\n  ".join(lines), lines=True), file=sys.stderr)
