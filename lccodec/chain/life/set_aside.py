"""What was taken out of a chain by rollbacks: each time a directory that is a chain of its own.

It lies in ``.rolled-back``, and holds the later steps, what these need, their pins, and the exact
file if it was of a later step. Its files are second names of the chain's (or copies, without hard
links). It is complete before anything leaves the chain.

Source: SPEC 9 (LCC-CHN-08).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from ...constants import EXACT_NAME, ROLLED_BACK_NAME
from ...container.disk.duplicate import duplicate
from ...container.disk.folder import Folder, is_temporary, temporary_name
from ...container.disk.system import storage_errors
from ...errors import ArgumentError, ChainError, DataError, StorageError, warn
from ..store.claim import Claim
from ..store.directory import DirectoryStore
from ..store.names import is_of_chain, pin_name
from ..store.parents import waves

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


def list_rolled_back(store: DirectoryStore) -> list[RolledBack]:
    """Return what was rolled back and is still there, the oldest first.

    Raises
    ------
    StorageError
        If ``.rolled-back`` is a link, or cannot be read.
    """
    base = store.path / ROLLED_BACK_NAME
    if not store.has(ROLLED_BACK_NAME):
        return []
    with (
        storage_errors("cannot list", base),
        Folder(store.path) as folder,
        folder.inner(ROLLED_BACK_NAME) as opened,
    ):
        names = sorted((int(m[1]), m[0], int(m[2])) for n in opened.names() if (m := _NAME.fullmatch(n)))
        return [_describe(_aside(store, name), step) for _, name, step in names if _is_folder(opened, name)]


def _is_folder(base: Folder, name: str) -> bool:
    """Return whether something is a directory and no link; warn if not. It stays in any case."""
    try:
        with base.inner(name):
            return True
    except StorageError as error:
        warn(f"{error.filename} is left alone: {error.strerror}")
        return False


def _aside(store: DirectoryStore, name: str) -> DirectoryStore:
    """Return the chain that a rollback has set aside under a name."""
    return DirectoryStore(store.path / ROLLED_BACK_NAME / name, store.system)


def _describe(aside: DirectoryStore, step: int) -> RolledBack:
    files = [name for later, name in aside.checkpoints().items() if later > step]
    exact = aside.has(EXACT_NAME)
    size = aside.size([*files, *([EXACT_NAME] if exact else [])])
    steps = tuple(later for later in aside.steps() if later > step)
    return RolledBack(aside.path.name, step, steps, exact, size, tuple(aside.pins()))


def cut_short(store: DirectoryStore, step: int, later: Mapping[int, str], exact: bool) -> RolledBack | None:
    """Return what the last rollback set aside, if it went back to this step and was cut short.

    Then it has all that is to go now: the `later` steps and, with `exact`, the exact file.
    """
    there = list_rolled_back(store)
    if not there or there[-1].step != step:
        return None
    last = there[-1]
    aside, names = _aside(store, last.name), [*later.values(), *([EXACT_NAME] if exact else [])]
    try:
        return last if all(_is_same(aside, store, name) for name in names) else None
    except (DataError, StorageError):  # nobody knows
        return None


def add_pins(folder: Folder, name: str, pins: Iterable[int]) -> None:
    """Pin steps that were set aside under a name, and bring that to stable storage."""
    with folder.inner(ROLLED_BACK_NAME) as base, base.inner(name) as aside:
        for pin in pins:
            aside.add(pin_name(pin))
        aside.sync()


def set_aside(folder: Folder, step: int, files: Sequence[str], pins: Iterable[int]) -> str:
    """Make a directory of files and pins of a chain; return its name when it is durable.

    The caller holds the lock of `folder`, so that what an earlier process left unfinished can go.
    """
    with storage_errors("cannot set aside in", folder.path / ROLLED_BACK_NAME):
        folder.make(ROLLED_BACK_NAME)
        folder.sync()
        with folder.inner(ROLLED_BACK_NAME) as base:
            _clear_temporaries(base)
            made = temporary_name()
            base.system.mkdir(base / made)
            try:
                with base.inner(made) as inner:
                    for file in files:
                        duplicate(folder.path / file, inner, file)
                    for pin in pins:
                        inner.add(pin_name(pin))
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
    store: DirectoryStore, name: str | None = None, *, claim: Claim | None = None
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
    found = _find(store, name)
    aside = _aside(store, found.name)
    with (
        (claim or store.claim()).held(),
        storage_errors("cannot undo a rollback in", store.path),
        store.locked() as folder,
    ):
        files, there = aside.checkpoints(), store.checkpoints()
        for step in there:
            if step > found.step and not _is_same(aside, store, there[step]):
                raise ArgumentError(
                    f"{store.path} has other steps now: its step {step} is not the one that was rolled back; "
                    f"roll back to step {found.step} first"
                )
        alone = store.unfinished_step()
        if alone is not None and alone > found.step and not _is_same(aside, store, EXACT_NAME):
            raise ArgumentError(
                f"{store.path} has other steps now: the exact file alone has step {alone}, which would"
                f" be lost; roll back to step {found.step} first"
            )
        missing = {step: name for step, name in files.items() if step not in there}
        for group in reversed(waves(aside, missing)):  # parents first: what is in a chain can be restored
            for step in group:
                duplicate(aside.path / files[step], folder, files[step])
            folder.sync()
        for step in aside.pins():
            folder.add(pin_name(step))
        if found.exact:
            duplicate(aside.path / EXACT_NAME, folder, EXACT_NAME, overwrite=True)
        folder.sync()
        _delete(folder, [found.name])
    return found


def delete_rolled_back(
    store: DirectoryStore, name: str | None = None, *, pinned: bool = False
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
    found = list_rolled_back(store) if name is None else [_find(store, name)]
    for each in found:
        if each.pins and not pinned:
            raise ArgumentError(
                f"step {each.pins[0]} of {store.path}, rolled back as {each.name}, is pinned:"
                " undo the rollback, or delete pinned steps too (pinned=True)"
            )
    if store.has(ROLLED_BACK_NAME):
        with storage_errors("cannot delete from", store.path), store.locked() as folder:
            _delete(folder, [each.name for each in found])
    return found


def _find(store: DirectoryStore, name: str | None) -> RolledBack:
    there = list_rolled_back(store)
    found = [each for each in there if name in (None, each.name)]
    if not found:
        names = ", ".join(each.name for each in there) or "nothing"
        raise ChainError(
            f"{store.path} has nothing rolled back{'' if name is None else f' as {name!r}'}; {names}"
        )
    return found[-1]


def _is_same(aside: DirectoryStore, store: DirectoryStore, name: str) -> bool:
    """Return whether a file of the chain is the one that was set aside."""
    if not aside.has(name):
        return False
    if os.path.samestat((aside.path / name).lstat(), (store.path / name).lstat()):  # two names of one file
        return True
    with aside.open(name) as left, store.open(name) as right:
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
        gone.remove(filter(is_of_chain, gone.names()))
    if not base.remove_empty(name):
        warn(f"{base.path / name} stays: it has files that lccodec did not make")


def verified_exact_step(store: DirectoryStore) -> int | None:
    """Return the step of the exact file, which is verified; ``None`` if there is no exact file."""
    if not store.has(EXACT_NAME):
        return None
    with store.open(EXACT_NAME) as reader:
        return reader.manifest.step if reader.manifest.is_exact else None
