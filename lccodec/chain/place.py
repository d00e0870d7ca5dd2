"""Where the checkpoints of a chain lie: in a directory, or in a bundle.

Source: SPEC 9.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TypeAlias

from ..container.bundle import Bundle
from ..container.reader import CheckpointReader, open_checkpoint, peek_parent
from ..errors import StorageError
from .directory import chain_steps, step_path

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
