"""Files that nothing else could mend, from the one copy that each chain has itself.

The exact file and the checkpoint of its step hold the same step. A checkpoint that is lost is
written anew as a keyframe of the exact state. An exact file that is lost is written anew from a
checkpoint that has lost nothing. What only cannot be read now (the disk refuses, a newer version)
is not lost, and stays.

Source: SPEC 9 (LCC-EXA-06).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ...constants import EXACT_NAME
from ...errors import LccodecError, LimitError, is_loss, reason_of
from ..bounds import UNBOUNDED, Bounds, is_bound
from ..save.exact import checkpoint_from_exact, exact_from_checkpoint, lost_checkpoint
from ..store.names import checkpoint_name
from ..store.store import Store, WritableStore


def mend_from_exact(
    store: WritableStore,
    lost: Mapping[str, str],
    mended: Collection[str] = (),
    *,
    dry_run: bool,
    bounds: Bounds = UNBOUNDED,
) -> tuple[dict[str, str], dict[str, str]]:
    """Write anew what is lost of the newest step, from the other of its two files.

    Parameters
    ----------
    lost
        The files that are damaged, each with the reason.
    mended
        The files that are, or would be, mended in another way.
    bounds
        What a checkpoint may ask for. One that asks for more is not decoded.

    Returns
    -------
    tuple
        The files that were written anew, each with what was done, and those that are lost still.
    """
    made, left = dict[str, str](), dict(lost)
    if EXACT_NAME in lost:
        found = _lost_exact(store)
    else:  # all of a step is read for that
        found = lost_checkpoint(store, bounds) if lost or _lacks_parent(store, mended) else None
    if found is None or (dry_run and not _needs_lost(store, found[0], lost, mended)):
        return made, left
    name, problem = found
    if name not in lost and isinstance(problem, LimitError) and is_bound(problem):
        return made, left  # its bytes are as they were, and what they decode to was not asked
    try:
        if not is_loss(problem):
            raise problem
        if name == EXACT_NAME:
            exact_from_checkpoint(store, dry_run=dry_run, bounds=bounds)
            made[name] = "bit for bit, from the checkpoint of its step"
        else:
            checkpoint_from_exact(store, dry_run=dry_run)
            made[name] = "as a keyframe, from the exact file"
        left.pop(name, None)
    except LccodecError as error:
        why, text = left.get(name, "it needs what is lost"), reason_of(error)
        left[name] = why if text == why else f"{why}; {text}"
    return made, left


def _lost_exact(store: Store) -> tuple[str, LccodecError] | None:
    """Return the exact file and its error; ``None`` if it is whole by now."""
    try:
        with store.open(EXACT_NAME) as reader:
            reader.verify()
    except LccodecError as error:
        return EXACT_NAME, error
    return None


def _lacks_parent(store: Store, mended: Collection[str]) -> bool:
    """Return whether the checkpoint of the exact file's step needs a file that is not there."""
    step = store.exact_step()
    name = None if step is None else checkpoint_name(step)
    return name is not None and store.has(name) and _needs_lost(store, name, (), mended)


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
