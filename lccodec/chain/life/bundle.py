"""Bundles: a chain's checkpoint files in one file, and back.

A bundle holds the files as they are, so its steps have the same roots. A delta in a bundle has its
parent in the bundle.

Source: SPEC 9 (LCC-BUN).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from ...constants import EXACT_NAME
from ...container.bundle.bundle import Bundle
from ...container.bundle.index import BundledFile, BundleIndex
from ...container.bundle.writer import BundleWriter, check_index_size
from ...container.disk.system import SYSTEM, checked_path, storage_errors
from ...container.disk.whole_file import WholeFile, remove_stale_temporaries
from ...container.reader import CheckpointReader, open_checkpoint, read_root
from ...errors import ArgumentError, ChainError, LccodecError, warn
from ..read.bundle import is_newest_exact, open_exact_in
from ..read.links import check_step
from ..store.directory import (
    check_name,
    checkpoint_path,
    directory_steps,
    in_chain,
    no_checkpoint,
    step_index,
)


def bundle(
    directory: str | os.PathLike[str], path: str | os.PathLike[str], steps: Iterable[int] | None = None
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

    Returns
    -------
    int
        The size of the bundle in bytes.

    Raises
    ------
    ArgumentError
        If `path` is a checkpoint of a chain, or a step is not an integer.
    ChainError
        If there is no such step, or no checkpoint at all, or a parent is missing or another.
    DataError, StorageError
        If a file is damaged, or the operating system refuses. An existing bundle is unchanged.
    """
    source, target = checked_path(directory), checked_path(path)
    if in_chain(target):
        raise ArgumentError(f"{target} is a checkpoint of a chain: choose another name or directory")
    found = directory_steps(source)
    if not found:
        raise ChainError(no_checkpoint(source))
    chosen = sorted(found) if steps is None else _with_parents(source, found, steps)
    check_index_size(len(chosen) + 1)
    entries: dict[int, BundledFile] = {}
    roots: dict[int, frozenset[bytes]] = {}
    named: bytes | None = None  # the exact file of the last
    if target.parent.is_dir():
        remove_stale_temporaries(target.parent, SYSTEM)
    with BundleWriter(target, system=SYSTEM) as writer:
        for step in chosen:
            with open_checkpoint(found[step]) as reader:
                check_name(found[step].name, reader.manifest.step)
                _check_link(reader, source, roots)
                roots[step], named = reader.roots, reader.manifest.exact
                entries[step] = writer.add(reader.source, reader.root)
        exact = _add_exact(writer, source, chosen[-1], named) if chosen[-1] == max(found) else None
        writer.commit_index(BundleIndex(entries, exact))
    return writer.size


def _with_parents(directory: Path, found: dict[int, Path], steps: Iterable[int]) -> list[int]:
    """Return steps and all that they need, rising."""
    try:
        wanted = [step_index(step) for step in iter(steps)]
    except TypeError:
        raise ArgumentError(f"steps must be an iterable of steps; got {steps!r}") from None
    if not wanted:
        raise ArgumentError("a bundle needs at least one step; got none")
    chosen: set[int] = set()
    while wanted:
        step = wanted.pop()
        if step in chosen:
            continue
        if step not in found:
            raise ChainError(f"{directory} has no step {step}")
        chosen.add(step)
        with open_checkpoint(found[step]) as reader:
            if (parent := reader.manifest.parent) is not None:
                check_step(reader, parent)
                wanted.append(parent.step)
    return sorted(chosen)


def _check_link(reader: CheckpointReader, directory: Path, roots: Mapping[int, frozenset[bytes]]) -> None:
    """Raise ``ChainError`` if the parent of a checkpoint is missing among others, or is another."""
    parent = reader.manifest.parent
    if parent is None:
        return
    check_step(reader, parent)
    path = checkpoint_path(directory, parent.step)
    if parent.step not in roots:
        raise ChainError(f"{reader.name}: its parent, step {parent.step}, is missing ({path.name})")
    if parent.root not in roots[parent.step]:
        raise ChainError(f"{reader.name}: {path.name} is not the parent it was taken against")


def _add_exact(writer: BundleWriter, directory: Path, newest: int, named: bytes | None) -> BundledFile | None:
    """Add the exact file if there is one of the newest step; warn if it is of no use.

    `named` is the root that the newest checkpoint names. A newer file stands for itself.
    """
    path = directory / EXACT_NAME
    if not os.path.lexists(path):
        return None
    try:
        reader = open_checkpoint(path)
    except LccodecError as error:
        problem = str(error)
    else:
        with reader:
            if is_newest_exact(reader, newest, named):
                return writer.add(reader.source, reader.root)
        problem = f"not that of step {newest}"
    warn(f"{path} is left out: {problem}")
    return None


def unbundle(path: str | os.PathLike[str], directory: str | os.PathLike[str]) -> list[int]:
    """Write the files of a bundle into a directory, as they were, each atomically.

    Parents come before their children. So what is there after a crash is a chain, and a further
    call goes on: files that are there already are left as they are.

    Parameters
    ----------
    path
        The bundle.
    directory
        A new directory, or one that has some of these files and no other checkpoints.

    Returns
    -------
    list of int
        The steps.

    Raises
    ------
    ArgumentError
        If the directory has another checkpoint. Nothing is written.
    ChainError
        If a parent is missing in the bundle, or is another. Earlier steps are written.
    DataError, StorageError
        If the bundle is damaged, or the operating system refuses. Earlier steps are written.
    """
    target = checked_path(directory)
    with Bundle(checked_path(path)) as opened:
        with storage_errors("cannot make the directory", target):
            target.mkdir(parents=True, exist_ok=True)
        remove_stale_temporaries(target)
        there = _files_there(opened, target)
        roots: dict[int, frozenset[bytes]] = {}
        for step in opened.steps:
            with opened.open(step) as reader:
                _check_link(reader, target, roots)
                roots[step] = reader.roots
            if step not in there:
                _write(opened, step, checkpoint_path(target, step))
        if opened.index.exact is not None and None not in there:
            exact, problem = open_exact_in(opened)
            if exact is None:
                warn(f"{opened.path}: the exact file is left out: {problem}")
            else:
                exact.close()
                _write(opened, None, target / EXACT_NAME)
        return opened.steps


def _files_there(opened: Bundle, directory: Path) -> set[int | None]:
    """Return the steps that are in a directory already, None for the exact file."""
    there: set[int | None] = set()
    files: dict[int | None, Path] = dict(directory_steps(directory).items())
    if os.path.lexists(directory / EXACT_NAME):
        files[None] = directory / EXACT_NAME
    for step, path in files.items():
        entry = opened.index.exact if step is None else opened.index.checkpoints.get(step)
        try:
            same = entry is not None and read_root(path) == (entry.root, entry.length)
        except LccodecError:
            same = False
        if not same:
            raise ArgumentError(f"{path} is not of this bundle: choose a new directory")
        there.add(step)
    return there


def _write(opened: Bundle, step: int | None, path: Path) -> None:
    with WholeFile(path, system=SYSTEM) as file:
        file.copy(opened.file(step))
        file.commit()
