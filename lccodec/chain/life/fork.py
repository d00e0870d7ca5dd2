"""Forking a chain: a new chain that begins with a step of another, which is not touched.

A new directory gets second names of the files that the step needs, or copies of them where there
are no hard links, or where one of the chains is in a bucket. Parents come first. So a fork that was
cut short is finished by forking again.

Source: SPEC 9.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...constants import EXACT_NAME
from ...container.folder import Folder, duplicate
from ...container.system import storage_errors
from ...errors import ArgumentError, ChainError, LccodecError
from ..mirror.transfer import copy
from ..read.checkpoint import open_step
from ..store.directory import DirectoryStore, link_problem
from ..store.lineage import remove_steps
from ..store.names import checkpoint_name, checkpoints_among, step_index
from ..store.store import Store, WritableStore
from .rewrite_step import end_at


def fork(store: Store, target: WritableStore, step: int) -> list[int]:
    """Start a new chain from a step, and return the steps of the new chain.

    These are the step and the earlier ones that it needs. What is interpolated from a later step is
    rewritten in the new chain. If the exact file is of the step, the new chain has that too, or
    that alone if no checkpoint has the step.

    Raises
    ------
    ChainError
        If there is no such step, or a parent of it is missing.
    ArgumentError
        If `target` holds anything but the beginning of the same fork.
    DataError, StorageError
        If the step cannot be read, or the operating system refuses.
    """
    step = step_index(step)
    with open_step(store, step) as file:
        links = [] if file.links[-1].manifest.is_exact else file.links
        roots = {link.manifest.step or 0: link.reader.root for link in links}
    _duplicate_all(store, target, roots, has_exact(store, step))
    later = {each: name for each, name in target.checkpoints().items() if each > step}
    if later:  # the step is interpolated
        with target.locked() as folder:
            end_at(target, step)
            remove_steps(target, folder, later)
    return [each for each in roots if each <= step] or [step]


def duplicate_chain(store: Store, target: WritableStore) -> None:
    """Give all checkpoints of a chain, and its exact file, a second name elsewhere, or copy them.

    Errors are those of `fork`.
    """
    steps = store.checkpoints()
    if not steps:
        raise ChainError(store.nothing())
    roots = {step: store.root(name)[0] for step, name in steps.items()}
    _duplicate_all(store, target, roots, has_exact(store, store.exact_step()))


def _duplicate_all(store: Store, target: WritableStore, roots: Mapping[int, bytes], exact: bool) -> None:
    """Give checkpoints, parents first, and the exact file to a store that has no others.

    `roots` are those of the steps, which are rising.
    """
    names = {checkpoint_name(step): root for step, root in roots.items()}
    with storage_errors("cannot fork to", target.path):
        if _is_same_place(store, target):  # steps that the fork does not need would go
            raise ArgumentError(f"a fork needs a new directory; {target.path} holds the chain itself")
        target.make()
        target.remove_stale()
        there = target.names()
        for name in there:
            root = names.get(name) or (_root(store) if exact and name == EXACT_NAME else None)
            if root is None or not _is_of_root(target, name, root):
                held = "a chain" if checkpoints_among(there) else repr(name)
                raise ArgumentError(f"a fork needs a new directory; {target.path} holds {held}")
        missing = [name for name in (*names, *([EXACT_NAME] if exact else [])) if name not in there]
        if isinstance(store, DirectoryStore) and isinstance(target, DirectoryStore):
            with Folder(target.path, target.system) as folder:
                for name in missing:
                    duplicate(store.path / name, folder, name)
                    folder.sync()  # a child never comes without its parent
            return
        for name in missing:
            receive_copy(target, store, name)


def receive_copy(target: WritableStore, store: Store, name: str) -> None:
    """Copy a file of a store into another as it is, whole or not at all, and verify it there.

    Errors are those of `lccodec.chain.mirror.transfer.copy`.
    """
    with store.open(name) as reader:
        copy(reader, target, name, overwrite=False)


def _is_same_place(store: Store, target: WritableStore) -> bool:
    if isinstance(store, DirectoryStore) and isinstance(target, DirectoryStore):
        return target.path.exists() and target.path.samefile(store.path)
    return store.path == target.path


def has_exact(store: Store, step: int | None) -> bool:
    """Return whether the exact file of a chain is sound as a link, and of a step."""
    if step is None or store.exact_step() != step:
        return False
    try:
        with store.open(EXACT_NAME) as reader:
            return reader.manifest.step == step and link_problem(reader, store) == (True, None)
    except LccodecError:
        return False


def _root(store: Store) -> bytes | None:
    """Return the root of the exact file; ``None`` if it cannot be read."""
    try:
        return store.root(EXACT_NAME)[0]
    except LccodecError:
        return None


def _is_of_root(store: Store, name: str, root: bytes) -> bool:
    """Return whether a file has a root, or took the place of a file that had it."""
    try:
        with store.open(name) as reader:
            return root in reader.roots
    except LccodecError:
        return False
