"""Pins: empty files that say which checkpoints must not be removed, by this process or another.

A pin is made and looked for while the lock of the store is held. So a checkpoint is pinned
before a prune looks, or it is already gone, and then the pin is refused.

A *link* is a small file elsewhere that names a step (:mod:`lccodec.adapters.chains`). It pins the
step as long as it lives: it has a second name in ``.links`` in the directory of the chain, and
where that is the only one left, the link is gone. So nobody has to tell when a link is deleted,
and a link may be renamed or moved.

A path may be a second name of the exact file. A save replaces the exact file and never changes it
(LCC-EXA-05). So a file that has another name stays as it is, whatever becomes of the chain, and
takes no bytes while it is the newest. A Reader of one file does not need its name.

Every chain loads this module, so what pins and names seldom need is imported where it is used.

Source: SPEC 9 (LCC-CHN-07, LCC-EXA).
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from ...constants import EXACT_NAME
from ...container.checkpoint import CheckpointWriter
from ...container.folder import Folder, duplicate
from ...container.system import storage_errors
from ...container.tree import Flat
from ...errors import ArgumentError, ChainError
from ..mend.protect import forget, renew
from ..read.checkpoint import open_exact, open_step
from ..save.settings import LOG
from ..store.claim import Claim
from ..store.directory import DirectoryStore, as_directory, in_chain
from ..store.store import Store, WritableStore, checkpoint_name, pin_name, step_index

#: The directory of the second names of links, in that of the chain.
LINKS_NAME: Final = ".links"


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


def pin_exact(store: WritableStore, step: int, claim: Claim | None = None) -> None:
    """Pin a step that is stored without loss, or make it so from the exact file, which has it.

    Parameters
    ----------
    claim
        The claim of a `Chain`, which may be held already.

    Raises
    ------
    ChainError
        If the exact state is gone, as a later step was saved; or as for `pin`; or if another writer
        saves to the chain. Nothing has changed.
    DataError, StorageError
        As `pin`. The step can be restored.
    """
    from ..save.exact import checkpoint_from_exact
    from .compact import end_at
    from .transfer import has_exact

    step = step_index(step)
    with (claim or store.claim()).held():
        with open_step(store, step) as file:
            lossy = any(array.lossy for array in file.info().arrays) or not store.has(checkpoint_name(step))
        if lossy and not has_exact(store, step):
            raise ChainError(
                f"{store.path}: the exact state of step {step} is gone: it can be kept while the step is the"
                " newest, or by save(..., exact=True)"
            )
        pin(store, step)
        if lossy:
            with storage_errors("cannot write", store.path), store.locked():
                redundancy = forget(store, [checkpoint_name(step)])
                end_at(store, step - 1)  # what is interpolated from the step needs its values as they were
                checkpoint_from_exact(store)
            renew(store, redundancy)


def unpin(store: WritableStore, step: int) -> bool:
    """Remove the pin of a step; return whether there was one."""
    name = pin_name(step_index(step))
    pinned = store.has(name)
    if pinned:
        store.remove([name])
    return pinned


def add_link(store: DirectoryStore, step: int, path: Path, metadata: Mapping[str, str]) -> None:
    """Write a link, which pins a step until its file is gone. An existing file is replaced.

    Where the file can have no second name in the chain, as on another file system, the step is
    pinned for good.
    """
    from ..save.single_file import save_file  # here, as every chain loads this module

    with storage_errors("cannot link to", path), store.locked() as held:
        held.make(LINKS_NAME)
        with held.inner(LINKS_NAME) as links, Folder(path.parent, store.system) as folder:
            links.remove(name for name in links.names() if not _lives(links, name))
            name = f"{step:012d}-{secrets.token_hex(8)}"
            save_file(None, links.path / name, metadata)
            duplicate(links.path / name, folder, path.name, overwrite=True)
            folder.sync()
            if not _lives(links, name):
                held.add(pin_name(step))
                held.sync()
                links.remove([name])
                LOG.warning(
                    "%s: step %s is pinned: it cannot be known how long %s lives", store.path, step, path
                )


def linked_steps(store: Store) -> set[int]:
    """Return the steps that links name which are still there."""
    if not store.has_folder(LINKS_NAME):
        return set()
    with (
        storage_errors("cannot list", store.path),
        Folder(as_directory(store, "a link").path, store.system) as folder,
        folder.inner(LINKS_NAME) as links,
    ):
        alive = [name.partition("-")[0] for name in links.names() if _lives(links, name)]
    return {int(step) for step in alive if step.isdecimal()}


def _lives(links: Folder, name: str) -> bool:
    """Return whether a link has a name elsewhere, too."""
    with suppress(FileNotFoundError):
        return (links.path / name).stat().st_nlink > 1
    return False


def name_exact(store: DirectoryStore, step: int, path: Path) -> bool:
    """Give the exact file of a chain a name at a path, if it is of that step; return whether it is.

    Where there are no hard links, as on another file system, the file is copied. Raises
    ``ArgumentError`` if the path is that of a file of a chain. After an error, an existing file is
    unchanged.
    """
    from .transfer import has_exact

    if in_chain(path):
        raise ArgumentError(f"{path} is a checkpoint of a chain: choose another name or directory")
    if not has_exact(store, step):
        return False
    with storage_errors("cannot write", path), Folder(path.parent, store.system) as folder:
        duplicate(store.path / EXACT_NAME, folder, path.name, overwrite=True)
        folder.sync()
    return True


def name_again(store: DirectoryStore, step: int, path: Path, flat: Flat, metadata: Mapping[str, str]) -> bool:
    """Give a state that the newest step of a chain has a name at a path; return whether it has it.

    The arrays must be the same, bit for bit. Where scalars differ, as in what trainers note of
    their callbacks, the file is one of its own, with these.

    Errors are those of `name_exact`.
    """
    from ..save.exact import chunks_of
    from ..save.plan import candidates
    from .transfer import has_exact

    if not has_exact(store, step):
        return False
    with open_exact(store, strict=True) as file:
        link = file.links[-1]
        if link.index_names != flat.names:
            return False
        for array, c in zip(file.decoded(), candidates(flat, {}), strict=True):
            if (array.kind, array.shape) != (c.kind, c.shape) or not np.array_equal(array.bits, c.bits):
                return False
        manifest = replace(link.manifest, tree=flat.tree, scalars=flat.scalars, metadata=dict(metadata))
        if repr(manifest) == repr(link.manifest):
            return name_exact(store, step, path)
        with CheckpointWriter(path, overwrite=True) as writer:
            for index in range(len(manifest.frames)):
                writer.write_frame(chunks_of(link.reader, index))
            writer.commit(manifest)
    return True
