"""Files that nothing else could mend, from the one copy that each chain has itself.

The exact file and the checkpoint of its step hold the same step. A checkpoint that is lost is
written anew as a keyframe of the exact state. An exact file that is lost is written anew from a
checkpoint that has lost nothing.

Source: SPEC 9 (LCC-EXA-06).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ...constants import EXACT_NAME
from ...errors import LccodecError, reason_of
from ..read.checkpoint import open_name
from ..save.exact import checkpoint_from_exact, exact_from_checkpoint
from ..store.names import checkpoint_name
from ..store.store import Store, WritableStore


def mend_from_exact(
    store: WritableStore, lost: Mapping[str, str], mended: Collection[str] = (), *, dry_run: bool
) -> tuple[dict[str, str], dict[str, str]]:
    """Write anew what is lost of the newest step, from the other of its two files.

    Parameters
    ----------
    lost
        The files that are damaged, each with the reason.
    mended
        The files that are, or would be, mended in another way.

    Returns
    -------
    tuple
        The files that were written anew, each with what was done, and those that are lost still.
    """
    made, left = dict[str, str](), dict(lost)
    name = EXACT_NAME if EXACT_NAME in lost else _without_history(store) if lost else None
    if name is None or (dry_run and not _needs_lost(store, name, lost, mended)):
        return made, left
    try:
        if name == EXACT_NAME:
            exact_from_checkpoint(store, dry_run=dry_run)
            made[name] = "bit for bit, from the checkpoint of its step"
        else:
            checkpoint_from_exact(store, dry_run=dry_run)
            made[name] = "as a keyframe, from the exact file"
        left.pop(name, None)
    except LccodecError as error:
        left[name] = f"{left.get(name, 'it needs what is lost')}; {reason_of(error)}"
    return made, left


def _without_history(store: Store) -> str | None:
    """Return the checkpoint of the exact file's step, if it is there and cannot be restored."""
    step = store.exact_step()
    if step is None or not store.has(name := checkpoint_name(step)):
        return None
    try:
        with open_name(store, name) as file:
            file.verify()
    except LccodecError:
        return name
    return None


def _needs_lost(store: Store, name: str, lost: Collection[str], mended: Collection[str]) -> bool:
    """Return whether a checkpoint needs a lost file, as far as can be told before a repair."""
    todo = [name]
    for each in todo:  # which grows
        if each in mended:  # what it needs is read when it is
            continue
        if each in lost or not store.has(each):
            return True
        todo += [above for step in store.parents_of(each) if (above := checkpoint_name(step)) not in todo]
    return False
