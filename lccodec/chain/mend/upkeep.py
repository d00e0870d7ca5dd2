"""Parity while files come and go: what it protects, made anew as it was before, and removed.

Source: SPEC 9 (LCC-PAR).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ...errors import LccodecError, warn
from ..store.directory import DirectoryStore
from ..store.store import Store
from .homes import above
from .parity_folder import ParityFolder
from .protect import declared, protect
from .redundancy import Redundancy, redundancy_of


def unprotect(store: DirectoryStore) -> int:
    """Remove all parity of a chain; return the bytes that this frees."""
    folder = ParityFolder(store)
    size = folder.size()
    folder.remove(folder.names())
    return size


def forget(store: Store, names: Iterable[str]) -> Redundancy | None:
    """Remove the parity of groups that name files which are about to go.

    Otherwise a repair would bring them back. The caller holds the lock of the store. If it is the
    chain of a rank, that includes groups of files of ranks. Returns the redundancy that the chain
    itself had; ``None`` if it had no parity of its own.
    """
    gone = set(names)
    if not gone or not isinstance(store, DirectoryStore):
        return None
    if (ranks := above(store)) is not None:
        _forget(ranks, {f"{store.path.resolve().name}/{name}" for name in gone})
    redundancy = recorded(store)
    _forget(store, gone)
    return redundancy


def _forget(store: DirectoryStore, gone: Collection[str]) -> None:
    folder = ParityFolder(store)
    groups, _ = folder.groups(bare=True)
    folder.remove(
        name
        for group in groups
        if any(member.name in gone for member in group.index.layout.members)
        for name in group.names.values()
    )


def renew(store: Store, redundancy: Redundancy | None = None) -> None:
    """Protect what is not protected any more, as it was before; an error is only a warning.

    Where there is no parity, this does nothing.
    """
    if not isinstance(store, DirectoryStore):
        return
    try:
        redundancy = recorded(store) if redundancy is None else redundancy
        if redundancy is not None:
            protect(store, redundancy)
    except (LccodecError, OSError) as error:
        warn(f"{store.path}: parity could not be renewed: {error}")


def recorded(store: DirectoryStore, *, of_ranks: bool = False) -> Redundancy | None:
    """Return the redundancy that a chain is protected with; ``None`` without parity.

    With `of_ranks`, that of the chains of ranks in the folders of the directory.
    """
    layouts = [group.index.layout for group in ParityFolder(store).groups(bare=True)[0]]
    return next((redundancy_of(layout) for layout in layouts if layout.of_ranks == of_ranks), None)


def protected_names(store: DirectoryStore) -> set[str]:
    """Return the names of files whose parity is there and fits. No bytes are verified."""
    groups, _ = ParityFolder(store).groups(bare=True)
    members = [m for group in groups if group.is_complete for m in group.index.layout.members]
    if (ranks := above(store)) is not None:
        groups, _ = ParityFolder(ranks).groups(bare=True)
        folder = f"{store.path.resolve().name}/"
        members += [
            m._replace(name=m.name.removeprefix(folder))
            for group in groups
            if group.is_complete
            for m in group.index.layout.members
            if m.name.startswith(folder)
        ]
    return {m.name for m in members if declared(store, m.name) == (m.root, m.length)}
