"""What was taken out of a chain by rollbacks: each time a directory that is a chain of its own.

It lies in ``.rolled-back``, and holds the later steps, what these need, their pins, and the exact
file if it was of a later step. Its files are second names of the chain's (or copies, without hard
links). It is complete before anything leaves the chain.

Source: SPEC 9 (LCC-CHN-08).
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..constants import EXACT_NAME, ROLLED_BACK_NAME, TEMPORARY_PREFIX
from ..container.duplicate import duplicate
from ..container.reader import open_checkpoint
from ..container.system import SYSTEM, System, directory_lock, storage_errors, sync_directory
from ..errors import ArgumentError, ChainError
from .claim import claimed
from .directory import checkpoint_path, directory_steps
from .pins import pin_path, pinned_steps
from .removal import remove_files, waves

_NAME: Final = re.compile(r"([0-9]{4,})-to-([0-9]{1,16})")


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
    """

    name: str
    step: int
    steps: tuple[int, ...]
    exact: bool
    bytes: int


def list_rolled_back(directory: Path) -> list[RolledBack]:
    """Return what was rolled back and is still there, the oldest first."""
    base = directory / ROLLED_BACK_NAME
    if not base.is_dir():
        return []
    with storage_errors("cannot list", base):
        names = sorted((int(m[1]), m[0], int(m[2])) for p in base.iterdir() if (m := _NAME.fullmatch(p.name)))
    return [_describe(base / name, step) for _, name, step in names]


def _describe(aside: Path, step: int) -> RolledBack:
    files = {later: path for later, path in directory_steps(aside).items() if later > step}
    exact = aside / EXACT_NAME
    paths = [*files.values(), *([exact] if exact.exists() else [])]
    with storage_errors("cannot look at", aside):
        size = sum(path.stat().st_size for path in paths)
    return RolledBack(aside.name, step, tuple(files), len(paths) > len(files), size)


def set_aside(
    directory: Path, step: int, steps: Iterable[int], others: Iterable[Path], system: System = SYSTEM
) -> Path:
    """Make a directory of steps and of other files of a chain, and return it when it is durable.

    The caller holds the directory's lock, so that what an earlier process left unfinished can go.
    """
    base = directory / ROLLED_BACK_NAME
    with storage_errors("cannot set aside in", base):
        with suppress(FileExistsError):
            system.mkdir(base)
        sync_directory(directory, system)
        for name in system.listdir(base):
            if name.startswith(TEMPORARY_PREFIX):
                _clear(base / name, system)
        made = base / f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}"
        system.mkdir(made)
        try:
            for path in (*(checkpoint_path(directory, each) for each in steps), *others):
                duplicate(path, made / path.name, system)
            sync_directory(made, system)
            names = [m for name in system.listdir(base) if (m := _NAME.fullmatch(name))]
            aside = base / f"{max((int(m[1]) for m in names), default=0) + 1:04d}-to-{step}"
            system.replace(made, aside)
        except BaseException:
            with suppress(OSError):  # otherwise the next rollback does it
                _clear(made, system)
                system.rmdir(base)
            raise
        sync_directory(base, system)
    return aside


def bring_back(directory: Path, name: str | None = None, system: System = SYSTEM) -> RolledBack:
    """Put what was rolled back into the chain again, by default what was rolled back last.

    Raises
    ------
    ChainError
        If there is nothing of that name, or another process saves to the chain.
    ArgumentError
        If the chain has gone on meanwhile: roll it back to the same step first.
    """
    found = _find(directory, name)
    aside = directory / ROLLED_BACK_NAME / found.name
    with (
        claimed(directory, system),
        storage_errors("cannot bring back to", directory),
        directory_lock(directory, system),
    ):
        files, there = directory_steps(aside), directory_steps(directory)
        for step in there:
            if step > found.step and not _is_same(files.get(step), there[step]):
                raise ArgumentError(
                    f"{directory} has gone on: its step {step} is not the one that was rolled back; "
                    f"roll back to step {found.step} first"
                )
        missing = {step: path for step, path in files.items() if step not in there}
        for group in reversed(waves(missing)):  # parents first: what is in a chain can be restored
            for step in group:
                duplicate(files[step], checkpoint_path(directory, step), system)
            sync_directory(directory, system)
        for step in pinned_steps(aside):
            with suppress(FileExistsError):
                duplicate(pin_path(aside, step), pin_path(directory, step), system)
        if found.exact:
            duplicate(aside / EXACT_NAME, directory / EXACT_NAME, system, overwrite=True)
        sync_directory(directory, system)
        _purge(directory, [aside], system)
    return found


def purge_rolled_back(directory: Path, name: str | None = None, system: System = SYSTEM) -> list[RolledBack]:
    """Remove what was rolled back: under one name, or all of it.

    Raises
    ------
    ChainError
        If there is nothing of that name.
    """
    found = list_rolled_back(directory) if name is None else [_find(directory, name)]
    base = directory / ROLLED_BACK_NAME
    if base.is_dir():
        with storage_errors("cannot purge", base), directory_lock(directory, system):
            _purge(directory, [base / each.name for each in found], system)
    return found


def _find(directory: Path, name: str | None) -> RolledBack:
    there = list_rolled_back(directory)
    found = [each for each in there if name in (None, each.name)]
    if not found:
        names = ", ".join(each.name for each in there) or "nothing"
        raise ChainError(
            f"{directory} has nothing rolled back{'' if name is None else f' as {name!r}'}; {names}"
        )
    return found[-1]


def _is_same(aside: Path | None, path: Path) -> bool:
    """Return whether a step of the chain is the one that was set aside."""
    if aside is None:
        return False
    with open_checkpoint(aside) as left, open_checkpoint(path) as right:
        return bool(left.roots & right.roots)


def _purge(directory: Path, asides: Iterable[Path], system: System) -> None:
    base = directory / ROLLED_BACK_NAME
    for aside in asides:
        gone = base / f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}"
        system.replace(aside, gone)  # whole until here, and then no more
        sync_directory(base, system)
        _clear(gone, system)
    for name in system.listdir(base):
        if name.startswith(TEMPORARY_PREFIX):
            _clear(base / name, system)
    with suppress(OSError):  # it is not empty
        system.rmdir(base)
    sync_directory(directory, system)


def _clear(gone: Path, system: System) -> None:
    """Remove a directory under a temporary name, with all of its files."""
    remove_files([gone / name for name in system.listdir(gone)], gone, system)
    system.rmdir(gone)


def exact_step(directory: Path) -> int | None:
    """Return the step of a directory's exact file; ``None`` if there is none that can be read."""
    path = directory / EXACT_NAME
    if not path.exists():
        return None
    with open_checkpoint(path) as reader:
        return reader.manifest.step if reader.manifest.is_exact else None
