"""The files of a chain: their names, and the step of each, in a directory or in a bundle.

The name of a checkpoint is its step in at least twelve digits, and a suffix (LCC-CHN-01). The
exact file has a step, too: a crash may leave it as the only file of that step. Other files are
never touched.

Source: SPEC 9.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeAlias

from ...arguments import as_integer
from ...constants import CHECKPOINT_SUFFIX, EXACT_NAME, MAX_STEP
from ...container.bundle.bundle import Bundle
from ...container.disk.system import storage_errors
from ...container.reader import CheckpointReader, open_checkpoint, peek_exact, peek_parent
from ...errors import ArgumentError, FormatError, StorageError

_MAX_NAMES_SHOWN: Final = 5  # in one message
_FILE_NAME: Final = re.compile(r"([0-9]{12}|[1-9][0-9]{12,15})" + re.escape(CHECKPOINT_SUFFIX))


def checkpoint_path(directory: Path, step: int) -> Path:
    """Return the file of a step in a chain's directory (LCC-CHN-01)."""
    return directory / f"{step:012d}{CHECKPOINT_SUFFIX}"


def check_name(name: str, step: int | None) -> None:
    """Raise ``FormatError`` if a chain's file is not named after the step it holds (LCC-CHN-01)."""
    if (match := _FILE_NAME.fullmatch(name)) and int(match[1]) != step:
        raise FormatError("LCC-CHN-01", name, f"holds step {step}")


def step_index(step: object) -> int:
    """Return a step as an int; raise ``ArgumentError`` if it is no integer, NumPy's or other."""
    index = as_integer(step)
    if index is None:
        raise ArgumentError(f"a step must be an integer; got {step!r}")
    return index


def next_step(step: object, steps: Sequence[int], directory: Path) -> int:
    """Return a step as an int; raise ``ArgumentError`` if it does not come after `steps`."""
    index = step_index(step)
    if not 0 <= index <= MAX_STEP:
        raise ArgumentError(f"a step must be an integer from 0 to {MAX_STEP}; got {index}")
    if index in steps:
        raise ArgumentError(f"a step must be new; step {index} exists already in {directory}")
    if steps and index < steps[-1]:
        raise ArgumentError(
            f"a step must be above the latest, {steps[-1]} in {directory}; got {index}: roll back first"
        )
    return index


def directory_names(directory: Path) -> list[str]:
    """Return the names in a directory; raise ``StorageError`` if it cannot be listed."""
    with storage_errors("cannot list", directory):
        return os.listdir(directory)  # noqa: PTH208 - ten thousand paths take long to make


def steps_of(directory: Path, names: Sequence[str]) -> dict[int, Path]:
    """Return the checkpoint files among the names in a directory, by rising step (LCC-CHN-01)."""
    found = {int(match[1]): directory / name for name in names if (match := _FILE_NAME.fullmatch(name))}
    return dict(sorted(found.items()))


def directory_steps(directory: Path) -> dict[int, Path]:
    """Return the checkpoint files of a directory; raise ``StorageError`` if it cannot be listed."""
    return steps_of(directory, directory_names(directory))


def inner_directories(directory: Path) -> list[Path]:
    """Return the subdirectories of a directory. Links are left out: they may lead to any chain."""
    with storage_errors("cannot list", directory):
        return sorted(path for path in directory.iterdir() if path.is_dir() and not path.is_symlink())


def chains_in(directory: Path) -> list[Path]:
    """Return the subdirectories of a directory that are chains, such as those of ranks.

    Raises
    ------
    StorageError
        If the directory or one of its subdirectories cannot be listed.
    """
    return [path for path in _visible(directory) if directory_steps(path)]


def readable_chains_in(directory: Path) -> list[Path]:
    """Return what `chains_in` does, as a hint: without what cannot be listed."""
    found = []
    with suppress(StorageError):
        for path in _visible(directory):
            with suppress(StorageError):
                found += [path] if directory_steps(path) else []
    return found


def _visible(directory: Path) -> list[Path]:
    return [path for path in inner_directories(directory) if path.name[0] != "."]


def no_checkpoint(directory: Path) -> str:
    """Return that a directory holds no checkpoint, and which chains are below it."""
    names = [path.name for path in readable_chains_in(directory)]
    shown = ", ".join(names[:_MAX_NAMES_SHOWN]) + (", ..." if names[_MAX_NAMES_SHOWN:] else "")
    return f"{directory} holds no checkpoint" + (f", but these chains: {shown}" if names else "")


def stored_steps(directory: Path) -> list[int]:
    """Return the steps of the history, rising; none if there is no such directory."""
    names = directory_names(directory) if os.path.lexists(directory) else []
    return sorted(int(match[1]) for name in names if (match := _FILE_NAME.fullmatch(name)))


def exact_step(directory: Path) -> int | None:
    """Return the step of a directory's exact file; ``None`` without one. Nothing is verified.

    It is asked for at every save, so only the start of the manifest is read.
    """
    return peek_exact(directory / EXACT_NAME)


def chain_steps(directory: Path) -> dict[int, Path]:
    """Return the file of every step of a chain, by rising step; none without such a directory.

    That is the checkpoint, or the exact file of a step that the history does not have.
    """
    names = directory_names(directory) if os.path.lexists(directory) else []
    found = steps_of(directory, names)
    if EXACT_NAME in names and (step := exact_step(directory)) is not None and step not in found:
        found[step] = directory / EXACT_NAME
    return dict(sorted(found.items()))


def step_path(directory: Path, step: int) -> Path:
    """Return the file of a step as `chain_steps`; the name of its checkpoint if there is none."""
    path = checkpoint_path(directory, step)
    if not os.path.lexists(path) and exact_step(directory) == step:
        return directory / EXACT_NAME
    return path


def unfinished_step(directory: Path) -> int | None:
    """Return the newest step of a chain if only the exact file has it; ``None`` otherwise.

    The save of that step was cut short, or its checkpoint could not be written.
    """
    newest, exact = max(stored_steps(directory), default=-1), exact_step(directory)
    return exact if exact is not None and exact > newest else None


def in_chain(path: Path) -> bool:
    """Return whether a path is in a chain, or would be taken for a part of it.

    That is a path with the name of a checkpoint or of the exact file, in a directory that has
    checkpoints.
    """
    if not _FILE_NAME.fullmatch(path.name) and path.name != EXACT_NAME:
        return False
    try:
        return bool(directory_steps(path.parent))
    except StorageError:
        return False


#: A directory of checkpoints, or an open bundle.
Place: TypeAlias = Path | Bundle


def place_steps(place: Place) -> dict[int, Path]:
    """Return the steps of a place, rising, and what errors call their files."""
    if isinstance(place, Bundle):
        return {step: place.path_of(step) for step in place.steps}
    return chain_steps(place)


def place_path(place: Place, step: int) -> Path:
    """Return the file of a step; in a bundle, what errors call it."""
    return place.path_of(step) if isinstance(place, Bundle) else step_path(place, step)


def open_at(place: Place, step: int) -> CheckpointReader:
    """Open the checkpoint of a step.

    Raises
    ------
    StorageError
        If the operating system cannot open or read it. If there is no such step, the number of the
        error is ENOENT.
    DataError
        If the file breaks a rule.
    """
    if not isinstance(place, Bundle):
        return open_checkpoint(step_path(place, step))
    if step not in place.index.checkpoints:
        raise StorageError(errno.ENOENT, f"the bundle has no step {step}", str(place.path_of(step)))
    return place.open(step)


def peek_at(place: Place, step: int) -> int | None:
    """Return the step that a checkpoint names as its parent's, or None. Nothing is verified."""
    return place.peek_parent(step) if isinstance(place, Bundle) else peek_parent(step_path(place, step))


def is_gone(place: Place, step: int) -> bool:
    """Return whether there is no file of a step any more. A bundle does not change."""
    return not isinstance(place, Bundle) and not os.path.lexists(step_path(place, step))


def next_of(directory: Path, step: object, running: Iterable[int] = ()) -> int:
    """Return a step as an int; raise ``ArgumentError`` if it does not come after all of a chain.

    `running` are the steps of saves that are not done. A step that only the exact file has, because
    its save was cut short, may be saved again.
    """
    there, begun = list(chain_steps(directory)), list(running)
    unfinished = unfinished_step(directory)
    if unfinished is not None and unfinished not in begun and step_index(step) == unfinished:
        there.remove(unfinished)
    return next_step(step, [*there, *begun], directory)
