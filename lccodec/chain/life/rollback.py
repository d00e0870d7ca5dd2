"""Rolling a chain back: later steps go, and the chain goes on from an earlier one.

They are set aside whole (:mod:`lccodec.chain.life.set_aside`), or removed at once. The exact file
and the pins of later steps go with them. What stays and is interpolated from a later step is
rewritten first, with the same state. After a crash, the chain still has some of the later
steps, each of which can be restored. Rolling back to the same step again finishes it: what was set
aside stays together.

Source: SPEC 9 (LCC-CHN-08, LCC-CHN-09).
"""

from __future__ import annotations

from ...constants import EXACT_NAME
from ...container.disk.system import storage_errors
from ...errors import ArgumentError, DataError, StorageError
from ..mend.upkeep import forget, renew
from ..read.checkpoint import open_step
from ..store.claim import Claim
from ..store.names import pin_name, step_index
from ..store.parents import Ancestry, remove_steps
from ..store.store import WritableStore
from .pins import linked_steps
from .set_aside import RolledBack, cut_short, list_rolled_back, verified_exact_step


def rollback(
    store: WritableStore,
    step: int,
    *,
    delete: bool = False,
    claim: Claim | None = None,
) -> RolledBack:
    """Take all steps after a step out of a chain.

    Parameters
    ----------
    delete
        Whether to remove them at once. Otherwise they are set aside in ``.rolled-back``.
    claim
        The claim of a `Chain`, which may be held already.

    Returns
    -------
    RolledBack
        What was taken out; with what the last rollback had set aside, if that went to the same step
        and was cut short. Its name is empty if it was removed, or if there was nothing.

    Raises
    ------
    ChainError
        If there is no such step, a parent of it is missing, or another writer saves to the chain.
        Nothing has been done then.
    ArgumentError
        If a step is not an integer, or a pinned step would be removed.
    DataError, StorageError
        If the step cannot be read, or the operating system refuses. What is there can be restored.
    """
    from .rewrite_step import end_at  # here, as every chain loads this module, and few roll back

    step = step_index(step)
    open_step(store, step).close()
    with (
        (claim or store.claim()).held(),
        storage_errors("cannot roll back", store.path),
        store.locked() as held,
    ):
        open_step(store, step).close()  # nobody removes it from here on
        steps = store.checkpoints()
        later = {other: name for other, name in steps.items() if other > step}
        pinned = [other for other in store.pins() if other > step]
        linked = sorted(other for other in linked_steps(store) if other > step)
        if delete and (pinned or linked):
            why = (
                f"{pinned[0]} of {store.path} is pinned: unpin it"
                if pinned
                else (f"{linked[0]} of {store.path} is named by a link: delete that")
            )
            raise ArgumentError(f"step {why}, or roll back without delete")
        exact = _is_of_later(store, step)
        names = [*later.values(), *([EXACT_NAME] if exact else [])]
        gone = tuple(other for other in store.steps() if other > step)  # also of the exact file
        found = RolledBack("", step, gone, exact, store.size(names), tuple(pinned))
        if not names and not pinned:
            return found
        if not delete:
            if (before := cut_short(store, step, later, exact)) is not None:
                name = before.name
                store.shelf().pin(name, pinned)
            else:
                above = Ancestry(store).needed(later, steps)
                name = store.shelf().add(step, [*(steps[each] for each in above), *names], pinned)
            found = next(each for each in list_rolled_back(store) if each.name == name)
        redundancy = forget(store, names)
        end_at(store, step)
        remove_steps(store, held, later)
        # Until here the exact file belongs to the newest step that is there.
        with storage_errors("cannot remove files of", store.path):
            held.remove([*map(pin_name, pinned), *([EXACT_NAME] if exact else [])])
    renew(store, redundancy)
    return found


def _is_of_later(store: WritableStore, step: int) -> bool:
    """Return whether the exact file is of a later step; also if it is damaged, and of none."""
    try:
        found = verified_exact_step(store)
    except (DataError, StorageError):
        return True
    return found is not None and found > step
