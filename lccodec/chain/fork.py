"""Forking a chain: a new chain that begins with a step of another, which is not touched.

The new directory gets second names of the files that the step needs, or copies of them where there
are no hard links. Parents come first. So a fork that was cut short is finished by forking again.

Source: SPEC 9.
"""

from __future__ import annotations

from pathlib import Path

from ..constants import EXACT_NAME
from ..container.duplicate import duplicate
from ..container.reader import read_root
from ..container.system import SYSTEM, System, checked_path, storage_errors, sync_directory
from ..container.writer import remove_stale_temporaries
from ..errors import ArgumentError, LccodecError
from .checkpoint import open_step
from .directory import checkpoint_path, directory_names, step_index, steps_of
from .exact_file import link_problem
from .newest import exact_manifest


def fork(directory: Path, target: Path, step: int, system: System = SYSTEM) -> list[int]:
    """Start a new chain from a step, and return the steps of the new chain.

    These are the step and all that it needs. If it is the newest step, and the exact file belongs
    to it, the new chain has that too.

    Raises
    ------
    ChainError
        If there is no such step, or a parent of it is missing.
    ArgumentError
        If `target` holds anything but the beginning of the same fork.
    DataError, StorageError
        If the step cannot be read, or the operating system refuses.
    """
    target, step = checked_path(target), step_index(step)
    with open_step(directory, step) as file:
        roots = {link.manifest.step or 0: link.reader.root for link in file.links}
    names = {checkpoint_path(target, each).name: each for each in roots}
    exact = _has_exact(directory, step)
    with storage_errors("cannot fork to", target):
        _make(target, system)
        remove_stale_temporaries(target, system)
        there = directory_names(target)
        for name in there:
            if not (name in names and _is_root(target / name, roots[names[name]])) and not (
                exact and name == EXACT_NAME and _is_copy(directory / name, target / name)
            ):
                held = "a chain" if steps_of(target, there) else repr(name)
                raise ArgumentError(f"{target} holds {held}: a fork needs a directory of its own")
        for each in roots:
            if (path := checkpoint_path(target, each)).name not in there:
                duplicate(checkpoint_path(directory, each), path, system)
                sync_directory(target, system)  # a child never comes without its parent
        if exact and EXACT_NAME not in there:
            duplicate(directory / EXACT_NAME, target / EXACT_NAME, system)
            sync_directory(target, system)
    return list(roots)


def _make(target: Path, system: System) -> None:
    """Make a directory and those above it, each durable."""
    if not target.is_dir():
        _make(target.parent, system)
        system.mkdir(target)
        sync_directory(target.parent, system)


def _has_exact(directory: Path, step: int) -> bool:
    """Return whether the exact file of a chain is sound as a link, and of a step."""
    manifest = exact_manifest(directory)
    if manifest is None or manifest.step != step:
        return False
    newest = max(steps_of(directory, directory_names(directory)), default=None)
    return link_problem(manifest, directory, newest) == (True, None)


def _is_root(path: Path, root: bytes) -> bool:
    try:
        return read_root(path)[0] == root
    except LccodecError:
        return False


def _is_copy(source: Path, target: Path) -> bool:
    try:
        return read_root(source) == read_root(target)
    except LccodecError:
        return False
