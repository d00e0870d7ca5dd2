"""Pins: empty files that say which checkpoints must not be removed, by this process or another.

A pin is made and looked for while the lock of the directory is held. So a checkpoint is pinned
before a prune looks, or it is already gone, and then the pin is refused.

Source: SPEC 9 (LCC-CHN-07).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from ...constants import CHECKPOINT_SUFFIX, PIN_SUFFIX
from ...container.disk.folder import Folder, locked_folder
from ...container.disk.system import OPEN_FLAGS, SYSTEM, System, storage_errors
from ..read.checkpoint import open_step
from ..store.directory import checkpoint_path, directory_names, step_index

_PIN_NAME: Final = re.compile(r"([0-9]{12}|[1-9][0-9]{12,15})" + re.escape(PIN_SUFFIX))


def pin_path(directory: Path, step: int) -> Path:
    """Return the pin of a step in a chain's directory."""
    name = checkpoint_path(directory, step).name
    return directory / f"{name.removesuffix(CHECKPOINT_SUFFIX)}{PIN_SUFFIX}"


def pinned_among(names: Iterable[str]) -> list[int]:
    """Return the pinned steps by the names in a directory, in rising order."""
    return sorted(int(match[1]) for name in names if (match := _PIN_NAME.fullmatch(name)))


def pinned_steps(directory: Path) -> list[int]:
    """Return the pinned steps of a chain, in rising order."""
    return pinned_among(directory_names(directory))


def pin(directory: Path, step: int, system: System = SYSTEM) -> None:
    """Pin a step: no prune and no rollback removes it, nor what it needs.

    Raises
    ------
    ChainError
        If there is no such step, or a parent is missing.
    DataError, StorageError
        If it cannot be read, or the operating system refuses.
    """
    step = step_index(step)
    open_step(directory, step).close()  # without such a directory there is nothing to lock
    with storage_errors("cannot pin", pin_path(directory, step)), locked_folder(directory, system) as folder:
        open_step(directory, step).close()
        add_pin(folder, step)
        folder.sync()


def add_pin(folder: Folder, step: int) -> None:
    """Make the pin of a step in a directory, if it is not there."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | OPEN_FLAGS
    with suppress(FileExistsError):
        folder.system.close(folder.system.open(folder / pin_path(folder.path, step).name, flags, 0o666))


def unpin(directory: Path, step: int, system: System = SYSTEM) -> bool:
    """Remove the pin of a step; return whether there was one."""
    path = pin_path(directory, step_index(step))
    with storage_errors("cannot unpin", path):
        try:
            with Folder(directory, system) as folder:
                system.unlink(folder / path.name)
                folder.sync()
        except FileNotFoundError:
            return False
    return True
