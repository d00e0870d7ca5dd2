"""Rolling a chain back: later steps go, and the chain goes on from an earlier one.

They are set aside whole, or removed at once. The exact file and the pins of later steps go with
them. What stays and is interpolated from a later step is rewritten first, with the same state.
After a crash, the chain still has some of the later steps, each of which can be restored. Rolling
back to the same step again finishes it: what was set aside stays together.

What was set aside is a chain of its own, beside the chain. It holds the later steps, what these
need, their pins, and the exact file if it was of a later step. It is complete before anything
leaves the chain (:mod:`lccodec.chain.store.directory`).

Source: SPEC 9 (LCC-CHN-08, LCC-CHN-09).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...constants import EXACT_NAME, ROLLED_BACK_NAME
from ...container.system import storage_errors
from ...errors import ArgumentError, ChainError, DataError, StorageError
from ..mend.protect import forget, renew
from ..read.checkpoint import open_step
from ..store.claim import Claim
from ..store.lineage import Ancestry, Lineage, remove_steps
from ..store.store import WritableStore, pin_name, step_index
from .prune import linked_steps


@dataclass(frozen=True)
class RolledBack:
    """What one rollback took out of a chain.

    Parameters
    ----------
    name
        Its directory in ``.rolled-back``.
    step
        The step that the chain went back to.
    steps
        The steps that were taken out.
    exact
        Whether the exact file was taken out with them.
    bytes
        Size of their files.
    pins
        The steps that are pinned.
    """

    name: str
    step: int
    steps: tuple[int, ...]
    exact: bool
    bytes: int
    pins: tuple[int, ...] = ()


def list_rolled_back(store: WritableStore) -> list[RolledBack]:
    """Return what was rolled back and is still there, the oldest first.

    Raises ``StorageError`` if ``.rolled-back`` is a link, or cannot be read.
    """
    shelf = store.shelf()
    return [_describe(shelf.chain(name), name, step) for name, step in shelf.names()]


def _describe(aside: WritableStore, name: str, step: int) -> RolledBack:
    listed = aside.snapshot()
    files = [file for later, file in listed.checkpoints().items() if later > step]
    exact = listed.has(EXACT_NAME)
    size = listed.size([*files, *([EXACT_NAME] if exact else [])])
    steps = tuple(later for later in listed.steps() if later > step)
    return RolledBack(name, step, steps, exact, size, tuple(listed.pins()))


def cut_short(store: WritableStore, step: int, later: Mapping[int, str], exact: bool) -> RolledBack | None:
    """Return what the last rollback set aside, if it went back to this step and was cut short.

    Then it has all that is to go now: the `later` steps and, with `exact`, the exact file.
    """
    there = list_rolled_back(store)
    if not there or there[-1].step != step:
        return None
    last, shelf = there[-1], store.shelf()
    names = [*later.values(), *([EXACT_NAME] if exact else [])]
    try:
        return last if all(shelf.is_same(last.name, name) for name in names) else None
    except (DataError, StorageError):  # nobody knows
        return None


def undo_rollback(store: WritableStore, name: str | None = None, *, claim: Claim | None = None) -> RolledBack:
    """Put what was rolled back into the chain again, by default what was rolled back last.

    `claim` is that of a `Chain`, which may be held already.

    Raises
    ------
    ChainError
        If there is nothing of that name, or another writer saves to the chain.
    ArgumentError
        If the chain has gone on meanwhile: roll it back to the same step first.
    """
    found, shelf = _find(store, name), store.shelf()
    aside = shelf.chain(found.name)
    with (
        (claim or store.claim()).held(),
        storage_errors("cannot undo a rollback in", store.path),
        store.locked() as held,
    ):
        files, there = aside.checkpoints(), store.checkpoints()
        for step in there:
            if step > found.step and not shelf.is_same(found.name, there[step]):
                raise ArgumentError(
                    f"{store.path} has other steps now: its step {step} is not the one that was rolled back; "
                    f"roll back to step {found.step} first"
                )
        alone = store.unfinished_step()
        if alone is not None and alone > found.step and not shelf.is_same(found.name, EXACT_NAME):
            raise ArgumentError(
                f"{store.path} has other steps now: the exact file alone has step {alone}, which would"
                f" be lost; roll back to step {found.step} first"
            )
        missing = {step: name for step, name in files.items() if step not in there}
        waves = Lineage.named(aside, missing).waves()
        for group in reversed(waves):  # parents first: what is in a chain can be restored
            for step in group:
                shelf.put_back(found.name, files[step])
            held.sync()
        for step in aside.pins():
            held.add(pin_name(step))
        if found.exact:
            shelf.put_back(found.name, EXACT_NAME, overwrite=True)
        held.sync()
        shelf.remove([found.name])
    renew(store)
    return found


def delete_rolled_back(
    store: WritableStore, name: str | None = None, *, pinned: bool = False
) -> list[RolledBack]:
    """Remove what was rolled back: under one name, or all of it.

    Raises
    ------
    ArgumentError
        If a step is pinned, unless `pinned` is set. Nothing is removed.
    ChainError
        If there is nothing of that name.
    """
    found = list_rolled_back(store) if name is None else [_find(store, name)]
    for each in found:
        if each.pins and not pinned:
            raise ArgumentError(
                f"step {each.pins[0]} of {store.path}, rolled back as {each.name}, is pinned:"
                " undo the rollback, or delete pinned steps too (pinned=True)"
            )
    if found or store.has(ROLLED_BACK_NAME):  # an earlier call may have left something
        with storage_errors("cannot delete from", store.path), store.locked():
            store.shelf().remove([each.name for each in found])
    return found


def _find(store: WritableStore, name: str | None) -> RolledBack:
    there = list_rolled_back(store)
    found = [each for each in there if name in (None, each.name)]
    if not found:
        names = ", ".join(each.name for each in there) or "nothing"
        raise ChainError(
            f"{store.path} has nothing rolled back{'' if name is None else f' as {name!r}'}; {names}"
        )
    return found[-1]


def verified_exact_step(store: WritableStore) -> int | None:
    """Return the step of the exact file, which is verified; ``None`` if there is no exact file."""
    if not store.has(EXACT_NAME):
        return None
    with store.open(EXACT_NAME) as reader:
        return reader.manifest.step if reader.manifest.is_exact else None


def rollback(
    store: WritableStore,
    step: int,
    *,
    delete: bool = False,
    claim: Claim | None = None,
) -> RolledBack:
    """Take all steps after a step out of a chain, and return what was taken out.

    With `delete` they are removed at once. Otherwise they are set aside in ``.rolled-back``, with
    what the last rollback had set aside, if that went to the same step and was cut short. `claim`
    is that of a `Chain`, which may be held already. The name of the result is empty if all was
    removed, or there was nothing.

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
    from .compact import end_at  # here, as every chain loads this module, and few roll back

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
        try:
            newest = verified_exact_step(store)
            exact = newest is not None and newest > step
        except (DataError, StorageError):  # it is damaged, and of no step
            exact = True
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
                above = Ancestry(store).lineage(steps).needed(later)
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
