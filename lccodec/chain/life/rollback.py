"""Rolling a chain back: later steps go, and the chain goes on from an earlier one.

They are set aside whole (:mod:`lccodec.chain.life.set_aside`), or removed at once. The exact file
and the pins of later steps go with them. After a crash, the chain still has some of the later
steps, each of which can be restored. Rolling back to the same step again finishes it: what was set
aside stays together.

Source: SPEC 9 (LCC-CHN-08, LCC-CHN-09).
"""

from __future__ import annotations

from pathlib import Path

from ...constants import EXACT_NAME
from ...container.disk.folder import locked_folder
from ...container.disk.system import SYSTEM, System, storage_errors
from ...errors import ArgumentError, DataError, StorageError
from ..read.checkpoint import open_step
from ..store.claim import Claim
from ..store.directory import chain_steps, directory_steps, step_index
from ..store.parents import Ancestry, remove_steps
from .pins import pin_path, pinned_steps
from .set_aside import RolledBack, add_pins, cut_short, exact_step, list_rolled_back, set_aside


def rollback(
    directory: Path,
    step: int,
    *,
    delete: bool = False,
    claim: Claim | None = None,
    system: System = SYSTEM,
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
    step = step_index(step)
    open_step(directory, step).close()
    with (
        (claim or Claim(directory, system)).held(),
        storage_errors("cannot roll back", directory),
        locked_folder(directory, system) as folder,
    ):
        open_step(directory, step).close()  # nobody removes it from here on
        steps = directory_steps(directory)
        later = {other: path for other, path in steps.items() if other > step}
        pinned = [other for other in pinned_steps(directory) if other > step]
        if delete and pinned:
            raise ArgumentError(
                f"step {pinned[0]} of {directory} is pinned: unpin it, or roll back without delete"
            )
        exact = _is_of_later(directory, step)
        paths = [*later.values(), *([directory / EXACT_NAME] if exact else [])]
        with storage_errors("cannot look at", directory):
            size = sum(path.lstat().st_size for path in paths)
        gone = tuple(other for other in chain_steps(directory) if other > step)  # also of the exact file
        found = RolledBack("", step, gone, exact, size, tuple(pinned))
        if not paths and not pinned:
            return found
        if not delete:
            if (before := cut_short(directory, step, later, exact)) is not None:
                name = before.name
                add_pins(folder, name, pinned)
            else:
                name = set_aside(folder, step, [*Ancestry().needed(later, steps), *later], exact, pinned)
            found = next(each for each in list_rolled_back(directory) if each.name == name)
        remove_steps(folder, later)
        # Until here the exact file belongs to the newest step that is there.
        with storage_errors("cannot remove files of", directory):
            others = [pin_path(directory, other).name for other in pinned]
            folder.remove([*others, *([EXACT_NAME] if exact else [])])
    return found


def _is_of_later(directory: Path, step: int) -> bool:
    """Return whether the exact file is of a later step; also if it is damaged, and of none."""
    try:
        found = exact_step(directory)
    except (DataError, StorageError):
        return True
    return found is not None and found > step
