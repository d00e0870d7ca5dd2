"""Forking a chain: a new chain that begins with a step of another, which is not touched.

The new directory gets second names of the files that the step needs, or copies of them where there
are no hard links. Parents come first. So a fork that was cut short is finished by forking again.

Source: SPEC 9.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ...constants import EXACT_NAME
from ...container.disk.duplicate import duplicate
from ...container.disk.folder import Folder, sync_directory
from ...container.disk.system import SYSTEM, System, storage_errors
from ...container.disk.whole_file import remove_stale_temporaries
from ...container.reader import open_checkpoint, read_root
from ...errors import ArgumentError, ChainError, LccodecError
from ..read.checkpoint import open_step
from ..read.exact import link_problem
from ..store.directory import (
    checkpoint_path,
    directory_names,
    directory_steps,
    exact_step,
    no_checkpoint,
    step_index,
    steps_of,
)


def fork(directory: Path, target: Path, step: int, system: System = SYSTEM) -> list[int]:
    """Start a new chain from a step, and return the steps of the new chain.

    These are the step and all that it needs. If the exact file is of the step, the new chain has
    that too, or that alone if no checkpoint has the step.

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
    with open_step(directory, step) as file:
        links = [] if file.links[-1].manifest.is_exact else file.links
        roots = {link.manifest.step or 0: link.reader.root for link in links}
    link_all(directory, target, roots, _has_exact(directory, step), system)
    return list(roots) or [step]


def duplicate_chain(directory: Path, target: Path, system: System = SYSTEM) -> None:
    """Give all checkpoints of a chain, and its exact file, a second name in another directory.

    Errors are those of `fork`.
    """
    steps = directory_steps(directory)
    if not steps:
        raise ChainError(no_checkpoint(directory))
    roots = {step: read_root(path)[0] for step, path in steps.items()}
    link_all(directory, target, roots, _has_exact(directory, exact_step(directory)), system)


def link_all(
    directory: Path, target: Path, roots: Mapping[int, bytes], exact: bool, system: System = SYSTEM
) -> None:
    """Give checkpoints, parents first, and the exact file names in a directory that has no others.

    `roots` are those of the steps, which are rising.
    """
    names = {checkpoint_path(target, step).name: root for step, root in roots.items()}
    with storage_errors("cannot fork to", target):
        _make(target, system)
        with Folder(target, system) as folder:
            remove_stale_temporaries(folder)
            there = directory_names(target)
            for name in there:
                root = names.get(name) or (_root(directory / name) if exact and name == EXACT_NAME else None)
                if root is None or not _is_of_root(target / name, root):
                    held = "a chain" if steps_of(target, there) else repr(name)
                    raise ArgumentError(f"a fork needs a new directory; {target} holds {held}")
            for name in (*names, *([EXACT_NAME] if exact else [])):
                if name not in there:
                    duplicate(directory / name, folder, name)
                    folder.sync()  # a child never comes without its parent


def _make(target: Path, system: System) -> None:
    """Make a directory and those above it, each durable."""
    if not target.is_dir():
        _make(target.parent, system)
        system.mkdir(target)
        sync_directory(target.parent, system)


def _has_exact(directory: Path, step: int | None) -> bool:
    """Return whether the exact file of a chain is sound as a link, and of a step."""
    if step is None or exact_step(directory) != step:
        return False
    try:
        with open_checkpoint(directory / EXACT_NAME) as reader:
            return reader.manifest.step == step and link_problem(reader, directory) == (True, None)
    except LccodecError:
        return False


def _root(path: Path) -> bytes | None:
    try:
        return read_root(path)[0]
    except LccodecError:
        return None


def _is_of_root(path: Path, root: bytes) -> bool:
    """Return whether a file has a root, or took the place of a file that had it."""
    try:
        with open_checkpoint(path) as reader:
            return root in reader.roots
    except LccodecError:
        return False
