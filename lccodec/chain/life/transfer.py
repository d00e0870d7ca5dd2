"""The files of a chain elsewhere, as they are: a fork, and a bundle and back.

A fork is a new chain that begins with a step of another, which is not touched. A new directory gets
second names of the files that the step needs, or copies of them where there are no hard links, or
where one of the chains is in a bucket. Parents come first. So a fork that was cut short is finished
by forking again.

A bundle is one file with the files of a chain, so its steps have the same roots. A delta in a
bundle has its parent in the bundle.

Source: SPEC 9 (LCC-BUN).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple, Self

from ...constants import EXACT_NAME
from ...container.bundle import BundledFile, BundleIndex, BundleWriter, check_index_size
from ...container.checkpoint import CheckpointReader
from ...container.folder import remove_stale_temporaries
from ...container.manifest import Parent
from ...container.source import read_ahead
from ...container.system import checked_path, checked_place, storage_errors
from ...errors import ArgumentError, ChainError, LccodecError, warn
from ..mend.mirror import copy
from ..overview import OnProgress, Progress, check_progress, counted, no_progress, telling
from ..read.checkpoint import is_newest_exact, open_step
from ..read.links import check_own, check_step, decoding_order
from ..store.directory import BundleStore, in_chain, link_problem, writable_store
from ..store.lineage import Lineage, remove_steps
from ..store.store import (
    Store,
    WritableStore,
    check_name,
    checkpoint_name,
    checkpoints_among,
    files_among,
    step_index,
)
from .compact import end_at


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
    """Give all checkpoints of a chain and its exact file second names elsewhere, or copy them."""
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
        if target.is_at(store.path):  # steps that the fork does not need would go
            raise ArgumentError(f"a fork needs a new directory; {target.path} holds the chain itself")
        target.make()
        target.remove_stale()
        there = target.names()
        for name in there:
            is_same = False
            with suppress(LccodecError):
                root = store.root(EXACT_NAME)[0] if exact and name == EXACT_NAME else names.get(name)
                if root is not None:
                    with target.open(name) as reader:  # or it took the place of a file with that root
                        is_same = root in reader.roots
            if not is_same:
                held = "a chain" if checkpoints_among(there) else repr(name)
                raise ArgumentError(f"a fork needs a new directory; {target.path} holds {held}")
        missing = [name for name in (*names, *([EXACT_NAME] if exact else [])) if name not in there]
        for name in target.adopt(store, missing):
            receive_copy(target, store, name)


def receive_copy(target: WritableStore, store: Store, name: str) -> None:
    """Copy a file of a store into another as it is, whole or not at all, and verify it there."""
    with store.open(name) as reader:
        copy(reader, target, name, overwrite=False)


def has_exact(store: Store, step: int | None) -> bool:
    """Return whether the exact file of a chain is sound as a link, and of a step."""
    if step is None or store.exact_step() != step:
        return False
    try:
        with store.open(EXACT_NAME) as reader:
            return reader.manifest.step == step and link_problem(reader, store) == (True, None)
    except LccodecError:
        return False


def bundle(
    directory: str | os.PathLike[str],
    path: str | os.PathLike[str],
    steps: Iterable[int] | None = None,
    *,
    progress: Progress = False,
) -> int:
    """Copy the checkpoints of a chain into one file, atomically; an existing file is replaced.

    The files are copied as they are, with the exact file of the newest step, if it has one. Their
    roots and the links between them are verified, not their frames: `lccodec.validate` does that.

    Parameters
    ----------
    directory
        The directory of the chain.
    path
        The bundle.
    steps
        Steps to take, and with them the parents that they need. By default all.
    progress
        As for `Chain.restore`, counted in files.

    Returns
    -------
    int
        The size of the bundle in bytes.

    Raises
    ------
    ArgumentError
        If `path` is a checkpoint of a chain, or a step is not an integer; for unknown `progress`.
        For the record of a distributed checkpoint, whose tensors lie in other chains.
    ChainError
        If there is no such step, or no checkpoint at all, or a parent is missing or another.
    DataError, StorageError
        If a file is damaged, or the operating system refuses. An existing bundle is unchanged.
    """
    target = checked_path(path)
    with (
        closing(writable_store(checked_place(directory))) as store,
        telling(check_progress(progress), "bundle", "files") as tell,
    ):
        return write_bundle(store, target, steps, tell)


def write_bundle(
    store: WritableStore, target: Path, steps: Iterable[int] | None = None, tell: OnProgress = no_progress
) -> int:
    """Copy the checkpoints of a store into one file; see `bundle`."""
    if in_chain(target):
        raise ArgumentError(f"{target} is a checkpoint of a chain: choose another name or directory")
    listed = store.snapshot()
    found = listed.checkpoints()
    if not found:
        raise ChainError(store.nothing())
    chosen = sorted(found) if steps is None else _with_parents(listed, found, steps)
    check_index_size(len(chosen) + 1)
    with_exact = chosen[-1] == max(found) and listed.has(EXACT_NAME)
    total = len(chosen) + with_exact
    entries: dict[int, BundledFile] = {}
    links: dict[int, _Link] = {}
    named: bytes | None = None  # the exact file of the last
    if target.parent.is_dir():
        remove_stale_temporaries(target.parent, store.system)
    with BundleWriter(target, system=store.system) as writer:
        for step in counted(chosen, tell, total):
            with listed.open(found[step]) as reader:
                check_name(found[step], reader.manifest.step)
                check_own(reader.manifest.metadata, listed.path)  # a bundle would lack what it names
                links[step], named = _Link.of(reader), reader.manifest.exact
                _fetch(reader)
                entries[step] = writer.add(reader.source, reader.root)
        for link in links.values():
            link.check(links)
        exact = _add_exact(writer, listed, chosen[-1], named) if with_exact else None
        writer.commit_index(BundleIndex(entries, exact))
    if with_exact:
        tell(total, total)
    return writer.size


def _fetch(reader: CheckpointReader) -> None:
    """Fetch a file of a store that is far, whole and verified: it is copied as it arrives."""
    if reader.source.far:
        read_ahead([(reader.source, 0, reader.file_size)])
        reader.verify()


def _with_parents(store: Store, found: dict[int, str], steps: Iterable[int]) -> list[int]:
    """Return steps and all that they need, rising."""
    try:
        wanted = [step_index(step) for step in iter(steps)]
    except TypeError:
        raise ArgumentError(f"steps must be an iterable of steps; got {steps!r}") from None
    if not wanted:
        raise ArgumentError("a bundle needs at least one step; got none")

    def parents(step: int) -> list[int]:
        if step not in found:
            raise ChainError(f"{store.path} has no step {step}")
        with store.open(found[step]) as reader:
            check_step(reader)
            return [parent.step for parent in reader.manifest.parents]

    return sorted(Lineage(found, parents).reached(wanted))


class _Link(NamedTuple):
    """What is kept of a checkpoint to check what names it as a parent."""

    name: str
    roots: frozenset[bytes]
    parents: tuple[Parent, ...]
    order: tuple[int, int]  # parents come before their children

    @classmethod
    def of(cls, reader: CheckpointReader) -> Self:
        """Return the link of an open file."""
        check_step(reader)
        return cls(reader.name, reader.roots, reader.manifest.parents, decoding_order(reader))

    def check(self, links: Mapping[int, _Link]) -> None:
        """Raise ``ChainError`` if a parent is missing among others, or is another."""
        for parent in self.parents:
            name = checkpoint_name(parent.step)
            if parent.step not in links:
                raise ChainError(f"{self.name}: its parent, step {parent.step}, is missing ({name})")
            if parent.root not in links[parent.step].roots:
                raise ChainError(f"{self.name}: {name} is not the parent it was taken against")


def _add_exact(writer: BundleWriter, store: Store, newest: int, named: bytes | None) -> BundledFile | None:
    """Add the exact file if it is that of the newest step; warn if it is of no use.

    `named` is the root that the newest checkpoint names. A newer file stands for itself.
    """
    try:
        reader = store.open(EXACT_NAME)
    except LccodecError as error:
        problem = str(error)
    else:
        with reader:
            if is_newest_exact(reader, newest, named):
                _fetch(reader)
                return writer.add(reader.source, reader.root)
        problem = f"not that of step {newest}"
    warn(f"{store.path / EXACT_NAME} is left out: {problem}")
    return None


def unbundle(
    path: str | os.PathLike[str], directory: str | os.PathLike[str], *, progress: Progress = False
) -> list[int]:
    """Write the files of a bundle into a directory or a bucket, as they were, each atomically.

    Parents come before their children. So what is there after a crash is a chain, and a further
    call goes on: files that are there already are left as they are.

    Parameters
    ----------
    path
        The bundle.
    directory
        A new directory or address, or one that has some of these files and no other checkpoints.
    progress
        As for `Chain.restore`, counted in files.

    Returns
    -------
    list of int
        The steps.

    Raises
    ------
    ArgumentError
        If the directory has another checkpoint, or for unknown `progress`. Nothing is written.
    ChainError
        If a parent is missing in the bundle, or is another. Earlier steps are written.
    DataError, StorageError
        If the bundle is damaged, or the operating system refuses. Earlier steps are written.
    """
    check_progress(progress)
    with (
        BundleStore(checked_path(path)) as store,
        closing(writable_store(checked_place(directory))) as target,
        telling(progress, "unbundle", "files") as tell,
    ):
        return take_apart(store, target, tell)


def take_apart(store: BundleStore, target: WritableStore, tell: OnProgress = no_progress) -> list[int]:
    """Write the files of a bundle into a store; see `unbundle`."""
    target.make()
    target.remove_stale()
    there = _files_there(store, target)
    steps = store.checkpoints()
    links: dict[int, _Link] = {}
    for step, name in steps.items():
        with store.open(name) as reader:
            links[step] = _Link.of(reader)
    with_exact = store.has(EXACT_NAME)
    total = len(links) + with_exact
    for step in counted(sorted(links, key=lambda step: links[step].order), tell, total):
        links[step].check(links)
        if steps[step] not in there:
            _copy(store, steps[step], target)
    if not with_exact:
        return list(steps)
    if EXACT_NAME not in there:
        if (problem := _exact_problem(store, max(steps))) is None:
            _copy(store, EXACT_NAME, target)
        else:
            warn(f"{store.path}: the exact file is left out: {problem}")
    tell(total, total)
    return list(steps)


def _exact_problem(store: BundleStore, newest: int) -> str | None:
    """Return why the exact file of a bundle is of no use, or ``None``."""
    try:
        with store.open(EXACT_NAME) as exact:
            older = (exact.manifest.step or 0) < newest
            usable, problem = link_problem(exact, store)
    except LccodecError as error:
        return str(error)
    return f"it is not that of step {newest}" if older else None if usable else problem


def _files_there(store: BundleStore, target: WritableStore) -> set[str]:
    """Return the names of the files of a bundle that are in a store already."""
    there = files_among(target.names())
    for name in there:
        try:
            same = store.has(name) and target.root(name) == store.root(name)
        except LccodecError:
            same = False
        if not same:
            raise ArgumentError(f"{target.path / name} is not of this bundle: choose a new directory")
    return {*there}


def _copy(store: BundleStore, name: str, target: WritableStore) -> None:
    """Copy a file of a bundle; what does not go far is verified when it is read."""
    if target.far:
        receive_copy(target, store, name)
    else:
        target.receive(name, store.source(name), lambda _: None, overwrite=False)
