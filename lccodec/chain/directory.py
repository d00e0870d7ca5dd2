"""The files of a chain's directory: what they are called, and which step each holds.

A checkpoint of a chain is named after its step in twelve digits or more (LCC-CHN-01). Files of
other names are never touched.

Source: SPEC 9.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ..arguments import as_integer
from ..constants import CHECKPOINT_SUFFIX
from ..errors import ArgumentError, FormatError, StorageError

__all__ = [
    "check_name",
    "checkpoint_path",
    "directory_names",
    "directory_steps",
    "in_chain",
    "step_index",
    "steps_of",
]

_FILE_NAME: Final = re.compile(r"([0-9]{12}|[1-9][0-9]{12,15})" + re.escape(CHECKPOINT_SUFFIX))


def checkpoint_path(directory: Path, step: int) -> Path:
    """Return the file of a step in a chain's directory (LCC-CHN-01)."""
    return directory / f"{step:012d}{CHECKPOINT_SUFFIX}"


def check_name(name: str, step: int | None) -> None:
    """Raise ``FormatError`` if the name of a chain's file is not that of the step it holds (LCC-CHN-01)."""
    if (match := _FILE_NAME.fullmatch(name)) and int(match[1]) != step:
        raise FormatError("LCC-CHN-01", name, f"holds step {step}")


def step_index(step: object) -> int:
    """Return a step as an int: anything that NumPy or a framework counts steps with is one.

    Raises
    ------
    ArgumentError
        For what is no integer.
    """
    index = as_integer(step)
    if index is None:
        raise ArgumentError(f"a step is an integer, not {step!r}")
    return index


def directory_names(directory: Path) -> list[str]:
    """Return the names in a directory.

    Raises
    ------
    StorageError
        If the directory cannot be listed.
    """
    try:
        return [entry.name for entry in directory.iterdir()]
    except OSError as error:
        raise StorageError(error.errno, f"cannot list: {error.strerror}", str(directory)) from error


def steps_of(directory: Path, names: Sequence[str]) -> dict[int, Path]:
    """Return which of the names in a directory are checkpoint files, by step, rising (LCC-CHN-01)."""
    found = {int(match[1]): directory / name for name in names if (match := _FILE_NAME.fullmatch(name))}
    return {step: found[step] for step in sorted(found)}


def directory_steps(directory: Path) -> dict[int, Path]:
    """Return the checkpoint files of a directory by step, rising; other files are left alone (LCC-CHN-01).

    Raises
    ------
    StorageError
        If the directory cannot be listed.
    """
    return steps_of(directory, directory_names(directory))


def in_chain(path: Path) -> bool:
    """Whether a path is a checkpoint of a chain, or would be taken for one: named so, and not alone."""
    if not _FILE_NAME.fullmatch(path.name):
        return False
    try:
        return bool(directory_steps(path.parent))
    except StorageError:
        return False
