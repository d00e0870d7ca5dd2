"""What was taken out of a chain by rollbacks: each time a directory that is a chain of its own.

It lies in ``.rolled-back``, and holds the later steps, what these need, their pins, and the exact
file if it was of a later step. Its files are second names of the chain's (or copies, without hard
links). It is complete before anything leaves the chain.

Source: SPEC 9 (LCC-CHN-08).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ...constants import EXACT_NAME, ROLLED_BACK_NAME
from ...container.disk.duplicate import duplicate
from ...container.disk.folder import Folder, is_temporary, locked_folder, temporary_name
from ...container.disk.system import SYSTEM, System, storage_errors
from ...container.reader import open_checkpoint
from ...errors import ArgumentError, ChainError, DataError, StorageError, warn
from ..store.claim import Claim
from ..store.directory import chain_steps, checkpoint_path, directory_steps, steps_of, unfinished_step
from ..store.parents import waves
from .pins import add_pin, pinned_among, pinned_steps

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
    pins
        The steps that are pinned.
    """

    name: str
    step: int
    steps: tuple[int, ...]
    exact: bool
    bytes: int
    pins: tuple[int, ...] = ()


def list_rolled_back(directory: Path) -> list[RolledBack]:
    """Return what was rolled back and is still there, the oldest first.

    Raises
    ------
    StorageError
        If ``.rolled-back`` is a link, or cannot be read.
    """
    base = directory / ROLLED_BACK_NAME
    if not os.path.lexists(base):
        return []
    with (
        storage_errors("cannot list", base),
        Folder(directory) as folder,
        folder.inner(ROLLED_BACK_NAME) as opened,
    ):
        names = sorted((int(m[1]), m[0], int(m[2])) for n in opened.names() if (m := _NAME.fullmatch(n)))
        return [_describe(base / name, step) for _, name, step in names if _is_folder(opened, name)]


def _is_folder(base: Folder, name: str) -> bool:
    """Return whether something is a directory and no link; warn if not. It stays in any case."""
    try:
        with base.inner(name):
            return True
    except StorageError as error:
        warn(f"{error.filename} is left alone: {error.strerror}")
        return False


def _describe(aside: Path, step: int) -> RolledBack:
    files = {later: path for later, path in directory_steps(aside).items() if later > step}
    exact = aside / EXACT_NAME
    paths = [*files.values(), *([exact] if os.path.lexists(exact) else [])]
    with storage_errors("cannot look at", aside):
        size = sum(path.lstat().st_size for path in paths)
    steps = tuple(later for later in chain_steps(aside) if later > step)
    return RolledBack(aside.name, step, steps, len(paths) > len(files), size, tuple(pinned_steps(aside)))


def cut_short(directory: Path, step: int, later: Mapping[int, Path], exact: bool) -> RolledBack | None:
    """Return what the last rollback set aside, if it went back to this step and was cut short.

    Then it has all that is to go now: the `later` steps and, with `exact`, the exact file.
    """
    there = list_rolled_back(directory)
    if not there or there[-1].step != step:
        return None
    last = there[-1]
    aside = directory / ROLLED_BACK_NAME / last.name
    files = directory_steps(aside)
    pairs = [(files.get(other), path) for other, path in later.items()]
    pairs += [(aside / EXACT_NAME if last.exact else None, directory / EXACT_NAME)] if exact else []
    try:
        return last if all(_is_same(*pair) for pair in pairs) else None
    except (DataError, StorageError):  # nobody knows
        return None


def add_pins(folder: Folder, name: str, pins: Iterable[int]) -> None:
    """Pin steps that were set aside under a name, and bring that to stable storage."""
    with folder.inner(ROLLED_BACK_NAME) as base, base.inner(name) as aside:
        for pin in pins:
            add_pin(aside, pin)
        aside.sync()


def set_aside(folder: Folder, step: int, steps: Iterable[int], exact: bool, pins: Iterable[int]) -> str:
    """Make a directory of steps and other files of a chain; return its name when it is durable.

    The caller holds the lock of `folder`, so that what an earlier process left unfinished can go.
    """
    directory = folder.path
    files = [checkpoint_path(directory, each) for each in steps]
    files += [directory / EXACT_NAME] if exact else []
    with storage_errors("cannot set aside in", directory / ROLLED_BACK_NAME):
        folder.make(ROLLED_BACK_NAME)
        folder.sync()
        with folder.inner(ROLLED_BACK_NAME) as base:
            _clear_temporaries(base)
            made = temporary_name()
            base.system.mkdir(base / made)
            try:
                with base.inner(made) as inner:
                    for path in files:
                        duplicate(path, inner, path.name)
                    for pin in pins:
                        add_pin(inner, pin)
                    inner.sync()
                found = [m for name in base.names() if (m := _NAME.fullmatch(name))]
                aside = f"{max((int(m[1]) for m in found), default=0) + 1:04d}-to-{step}"
                base.rename(made, aside)
            except BaseException:
                with suppress(OSError):  # otherwise the next rollback does it
                    _clear(base, made)
                    folder.remove_empty(ROLLED_BACK_NAME)
                raise
            base.sync()
    return aside


def undo_rollback(
    directory: Path, name: str | None = None, *, claim: Claim | None = None, system: System = SYSTEM
) -> RolledBack:
    """Put what was rolled back into the chain again, by default what was rolled back last.

    `claim` is that of a `Chain`, which may be held already.

    Raises
    ------
    ChainError
        If there is nothing of that name, or another writer saves to the chain.
    ArgumentError
        If the chain has gone on meanwhile: roll it back to the same step first.
    """
    found = _find(directory, name)
    aside = directory / ROLLED_BACK_NAME / found.name
    with (
        (claim or Claim(directory, system)).held(),
        storage_errors("cannot undo a rollback in", directory),
        locked_folder(directory, system) as folder,
    ):
        files, there = directory_steps(aside), directory_steps(directory)
        for step in there:
            if step > found.step and not _is_same(files.get(step), there[step]):
                raise ArgumentError(
                    f"{directory} has other steps now: its step {step} is not the one that was rolled back; "
                    f"roll back to step {found.step} first"
                )
        alone = unfinished_step(directory)
        kept = aside / EXACT_NAME if found.exact else None
        if alone is not None and alone > found.step and not _is_same(kept, directory / EXACT_NAME):
            raise ArgumentError(
                f"{directory} has other steps now: the exact file alone has step {alone}, which would"
                f" be lost; roll back to step {found.step} first"
            )
        missing = {step: path for step, path in files.items() if step not in there}
        for group in reversed(waves(missing)):  # parents first: what is in a chain can be restored
            for step in group:
                duplicate(files[step], folder, files[step].name)
            folder.sync()
        for step in pinned_steps(aside):
            add_pin(folder, step)
        if found.exact:
            duplicate(aside / EXACT_NAME, folder, EXACT_NAME, overwrite=True)
        folder.sync()
        _delete(folder, [found.name])
    return found


def delete_rolled_back(
    directory: Path, name: str | None = None, *, pinned: bool = False, system: System = SYSTEM
) -> list[RolledBack]:
    """Remove what was rolled back: under one name, or all of it.

    Parameters
    ----------
    pinned
        Whether to remove pinned steps, too.

    Raises
    ------
    ArgumentError
        If a step is pinned, unless `pinned` is set. Nothing is removed.
    ChainError
        If there is nothing of that name.
    """
    found = list_rolled_back(directory) if name is None else [_find(directory, name)]
    for each in found:
        if each.pins and not pinned:
            raise ArgumentError(
                f"step {each.pins[0]} of {directory}, rolled back as {each.name}, is pinned:"
                " undo the rollback, or delete pinned steps too (pinned=True)"
            )
    if os.path.lexists(directory / ROLLED_BACK_NAME):
        with storage_errors("cannot delete from", directory), locked_folder(directory, system) as folder:
            _delete(folder, [each.name for each in found])
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
    """Return whether a file of the chain is the one that was set aside."""
    if aside is None:
        return False
    if os.path.samestat(aside.lstat(), path.lstat()):  # two names of one file
        return True
    with open_checkpoint(aside) as left, open_checkpoint(path) as right:
        return bool(left.roots & right.roots)


def _delete(folder: Folder, asides: Iterable[str]) -> None:
    with folder.inner(ROLLED_BACK_NAME) as base:
        for aside in asides:
            gone = temporary_name()
            base.rename(aside, gone)  # whole until here, and then no more
            base.sync()
            _clear(base, gone)
        _clear_temporaries(base)
    folder.remove_empty(ROLLED_BACK_NAME)
    folder.sync()


def _clear_temporaries(base: Folder) -> None:
    """Remove what an earlier process left unfinished, or removed in part."""
    for name in filter(is_temporary, base.names()):
        if _is_folder(base, name):
            _clear(base, name)


def _clear(base: Folder, name: str) -> None:
    """Remove a directory with the files of a chain that are in it; warn of others, which stay."""
    with base.inner(name) as gone:
        gone.remove(filter(_is_of_chain, gone.names()))
    if not base.remove_empty(name):
        warn(f"{base.path / name} stays: it has files that lccodec did not make")


def _is_of_chain(name: str) -> bool:
    """Return whether lccodec gives files that name."""
    named = steps_of(Path(), [name]) or pinned_among([name])
    return bool(named) or name == EXACT_NAME or is_temporary(name)


def exact_step(directory: Path) -> int | None:
    """Return the step of a directory's exact file; ``None`` if there is none that can be read."""
    path = directory / EXACT_NAME
    if not os.path.lexists(path):
        return None
    with open_checkpoint(path) as reader:
        return reader.manifest.step if reader.manifest.is_exact else None
