"""Pins: empty files that say which checkpoints must not be removed, by this process or another.

A pin is made and looked for while the lock of the store is held. So a checkpoint is pinned
before a prune looks, or it is already gone, and then the pin is refused.

Source: SPEC 9 (LCC-CHN-07).
"""

from __future__ import annotations

from ...container.disk.system import storage_errors
from ..read.checkpoint import open_step
from ..store.names import pin_name, step_index
from ..store.store import WritableStore


def pin(store: WritableStore, step: int) -> None:
    """Pin a step: no prune and no rollback removes it, nor what it needs.

    Raises
    ------
    ChainError
        If there is no such step, or a parent is missing.
    DataError, StorageError
        If it cannot be read, or the operating system refuses.
    """
    step = step_index(step)
    open_step(store, step).close()  # without such a store there is nothing to lock
    with storage_errors("cannot pin", store.path / pin_name(step)), store.locked() as held:
        open_step(store, step).close()
        held.add(pin_name(step))
        held.sync()


def unpin(store: WritableStore, step: int) -> bool:
    """Remove the pin of a step; return whether there was one."""
    name = pin_name(step_index(step))
    pinned = store.has(name)
    if pinned:
        store.remove([name])
    return pinned
