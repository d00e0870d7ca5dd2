"""Files that parity could not mend, or that are gone, from a mirror.

What is missing is what something here needs: parents of deltas, the exact file that the newest
checkpoint names. And it is what follows the newest step here, unless that was rolled back. Earlier
steps that nothing needs may have been pruned, and stay away.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ...constants import EXACT_NAME
from ...errors import DataError, LccodecError, StorageError, reason_of
from ..mirror.bring import copy
from ..mirror.compare import parents_first, set_aside_of
from ..mirror.stand_in import StandIn
from ..read.exact import may_be_replaced
from ..store.names import checkpoint_name
from ..store.store import Store, WritableStore


def mend_from_mirrors(
    store: WritableStore,
    mirrors: Sequence[Store],
    lost: Mapping[str, str],
    mended: Collection[str] = (),
    *,
    dry_run: bool,
) -> tuple[dict[str, str], dict[str, str]]:
    """Bring files from mirrors, each verified where it arrives; parents come before children.

    Parameters
    ----------
    lost
        The files that are damaged, each with the reason.
    mended
        The files that are, or would be, mended in another way.

    Returns
    -------
    tuple
        The files that were brought, each with its mirror, and those that are lost still.

    Raises
    ------
    ChainError
        If no mirror can be read, or all are of other chains.
    """
    view = StandIn(store, mirrors, lambda *_: None)
    brought, left = dict[str, str](), dict(lost)
    wanted = [*lost, *_missing(store, view), *_later(store, view)]
    todo = sorted({*wanted} - {*mended}, key=lambda name: (name != EXACT_NAME, name))
    for name in parents_first(view, todo, todo):
        source = view.of(name)
        if source is store:
            left.setdefault(name, f"it is missing, and no mirror has it ({', '.join(map(_place, mirrors))})")
            continue
        try:
            with source.open(name) as reader:
                if name in lost and not may_be_replaced(store, name, reader.root):
                    continue
                if dry_run:
                    reader.verify()
                else:
                    store.make()
                    copy(reader, store, name, overwrite=store.has(name))
        except LccodecError as error:
            left[name] = f"{lost.get(name, 'it is missing')}; {source.path}: {reason_of(error)}"
            continue
        left.pop(name, None)
        brought[name] = str(source.path)
    return brought, left


def _place(mirror: Store) -> str:
    return str(mirror.path)


def _missing(store: Store, view: StandIn) -> list[str]:
    """Return the files that others need, and that are not there."""
    found = dict[str, None]()
    left = list(store.checkpoints().values())
    for name in reversed(left):
        try:
            with store.open(name) as reader:
                named = reader.manifest.exact
        except (DataError, StorageError):
            continue
        if named is not None and not store.has(EXACT_NAME):
            found[EXACT_NAME] = None
        break
    while left:
        for step in view.parents_of(left.pop()):
            above = checkpoint_name(step)
            if not store.has(above) and above not in found:
                found[above] = None
                left.append(above)
    return list(found)


def _later(store: WritableStore, view: StandIn) -> list[str]:
    """Return the files of mirrors that go on from the newest step; all, if there is none."""
    newest = max(store.steps(), default=-1)
    gone = {root for _, roots in set_aside_of(store) for root in roots}
    found = dict[str, None]()
    for mirror in view.mirrors:
        files = {step: name for step, name in mirror.steps().items() if step > newest}
        if mirror.has(EXACT_NAME) and (mirror.exact_step() or 0) >= max(files, default=newest + 1):
            files[-1] = EXACT_NAME
        if files and all(mirror.root(name)[0] not in gone for name in files.values()):
            found |= dict.fromkeys(files.values())
            view.admit(mirror, files.values())
            break
    return list(found)
