"""The newest state: whether it is kept bit for bit, and what a restore of it returns.

The exact file is committed first, then the history's checkpoint. So a run that was killed goes on
from the newest state that is on the disk, bit for bit, and a save that cannot be kept in one of the
two is kept in the other. A restore takes the exact file if it is sound and of the step asked for;
otherwise the history's checkpoint, with a warning that says why.

Source: SPEC 9 (LCC-EXA-04, LCC-EXA-05).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..arguments import as_integer
from ..constants import EXACT_NAME
from ..container.manifest import Manifest
from ..container.reader import open_checkpoint
from ..container.tree import Flat
from ..errors import ArgumentError, DataError, LccodecError, StorageError, reason_of, warn
from ..policy.record import KEPT, Kept, read_record
from .checkpoint import CheckpointFile, open_step
from .directory import chain_steps, exact_step, next_step, step_index, stored_steps, unfinished_step
from .exact_file import ExactFile, ExactRoot, check_exact, link_problem, open_exact, write_exact
from .info import CheckpointInfo
from .plan import Plan


def check_newest(newest: Kept | None) -> Kept | None:
    """Return the parameter `newest` of a chain; raise ``ArgumentError`` if it is unknown."""
    if newest is not None and (not isinstance(newest, str) or newest not in KEPT):
        raise ArgumentError(f"newest is one of {', '.join(KEPT)}, or None to go on; not {newest!r}")
    return newest


def check_exact_every(every: object) -> int:
    """Return the parameter `exact_every` of a chain; raise ``ArgumentError`` for another value."""
    count = as_integer(every)
    if count is None or count < 1:
        raise ArgumentError(f"exact_every must be a positive integer, not {every!r}")
    return count


class Newest:
    """The exact file of a chain, as its saves write it.

    Parameters
    ----------
    directory
        Directory of the chain.
    asked
        Whether the user has asked for the file. Otherwise it is written where something may be
        lost, and where it is there already.
    every
        Every how many saves it is written.
    """

    def __init__(self, directory: Path, asked: bool, every: int) -> None:
        self._directory = directory
        self._asked = asked
        self._every = every
        self._path = directory / EXACT_NAME
        self._checked = False  # whether the file to replace is an exact file

    def write(self, plan: Plan, flat: Flat, checkpoint: Manifest) -> tuple[ExactRoot | None, str | None]:
        """Write the exact file of a checkpoint that is to come, if it is needed.

        Returns
        -------
        tuple
            What was committed, or ``None`` if nothing was; and what went wrong, or ``None``.
        """
        foreign = not self._checked and _is_foreign(self._path)
        there = os.path.lexists(self._path) and not foreign
        if not (self._asked or there or any(quantizer.lossy for quantizer in plan.quantizers)):
            return None, None
        if foreign:
            return None, f"{self._path} is not an exact file, and stays: no exact file is written"
        self._checked = True
        if there and not self._is_due(checkpoint.step):
            return None, None
        try:
            return write_exact(self._directory, plan, flat, checkpoint), None
        except (LccodecError, OSError, MemoryError) as error:
            return None, f"writing its exact file failed: {reason_of(error)}"

    def _is_due(self, step: int | None) -> bool:
        """Return whether a save writes the file, counted by the steps since the last.

        A step that only the file has is saved anew: its checkpoint must name what is there.
        """
        if self._every == 1:
            return True
        exact = exact_step(self._directory)
        if exact is None or exact == step:
            return True
        return sum(later > exact for later in stored_steps(self._directory)) >= self._every - 1

    def remove(self, step: int) -> None:
        """Remove an exact file of an earlier step than the one that was saved without it."""
        if not os.path.lexists(self._path) or _is_foreign(self._path):
            return
        try:
            self._path.unlink()
        except OSError as error:
            warn(f"step {step} is saved, but removing an older exact file failed: {reason_of(error)}")


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


def _is_foreign(path: Path) -> bool:
    """Return whether a file that has the name of an exact file is a sound file of another kind."""
    if not os.path.lexists(path):
        return False
    try:
        with open_checkpoint(path) as reader:
            return not reader.manifest.is_exact
    except (DataError, StorageError):
        return False


def with_exact(info: CheckpointInfo, directory: Path) -> CheckpointInfo:
    """Return what is known of a checkpoint; `exact` also for the exact file beside it."""
    if info.exact_root is None:
        return info
    try:
        with open_checkpoint(directory / EXACT_NAME) as reader:
            found = reader.manifest.is_exact and reader.root.hex() == info.exact_root
    except (DataError, StorageError):
        found = False
    return replace(info, exact=info.exact or found)


def describe_exact(directory: Path) -> dict[str, Any] | None:
    """Return what is known of a directory's exact file without decoding it; ``None`` without one.

    Returns
    -------
    dict or None
        ``step`` and ``bytes`` of the file, and ``problem``: why a restore of the newest state does
        not take it, or ``None``. Step and bytes are ``None`` if it cannot be opened.
    """
    path = directory / EXACT_NAME
    if not os.path.lexists(path):
        return None
    try:
        with open_checkpoint(path) as reader:
            check_exact(reader)
            step, newest = reader.manifest.step or 0, max(stored_steps(directory), default=0)
            problem = _older(step, newest) if step < newest else link_problem(reader, directory)[1]
            return {"step": step, "bytes": reader.file_size, "problem": problem}
    except (DataError, StorageError) as error:
        return {"step": None, "bytes": None, "problem": str(error)}


def open_newest(directory: Path, step: int | None = None) -> CheckpointFile:
    """Open a step of a chain, the latest by default: the exact file if it is of that step.

    An `LccodecWarning` says why an exact file is not used, or what is wrong beside it.

    Raises
    ------
    ArgumentError, ChainError, DataError, StorageError
        As `open_step`.
    """
    file, problem = _find(directory, step)
    if file is not None:
        if problem is not None:
            warn(f"{directory}: {problem}")
        return file
    checkpoint = open_step(directory, step)
    if problem is not None:
        warn(f"{directory}: {problem}; the history's newest is returned")
    elif not os.path.lexists(directory / EXACT_NAME) and _is_missed(checkpoint, directory):
        warn(f"{directory}: there is no exact file; the history's newest, which lost something, is returned")
    return checkpoint


def _is_missed(file: CheckpointFile, directory: Path) -> bool:
    """Return whether the newest checkpoint lost something, and its exact state was to be kept."""
    manifest = file.links[-1].manifest
    if manifest.policy == "lossless":  # as of most chains that have no exact file
        return False
    if manifest.step != max(stored_steps(directory), default=None):
        return False
    try:
        return read_record(manifest.policy).newest == "exact" and file.info().lossy
    except LccodecError:
        return False


def open_exact_of(checkpoint: Path, root: str) -> ExactFile | None:
    """Open the exact file of a checkpoint, given by its path and a root in hexadecimal.

    The root is that of the checkpoint or of the exact file itself.

    Returns
    -------
    ExactFile or None
        ``None`` if there is none, or it is damaged or of another checkpoint.
    """
    try:
        file = open_exact(checkpoint.parent)
        try:
            own = file.links[-1].reader.root
            if root == own.hex():
                return file
            with open_checkpoint(checkpoint) as reader:
                if root in {each.hex() for each in reader.roots} and reader.manifest.exact == own:
                    return file
        except BaseException:
            file.close()
            raise
        file.close()
    except (DataError, StorageError):  # or it was replaced meanwhile
        pass
    return None


def _find(directory: Path, step: int | None) -> tuple[ExactFile | None, str | None]:
    """Return the exact file if it is to be used, and what is to be warned of."""
    wanted = None if step is None else step_index(step)
    # Listed first: a save that comes in between has replaced the exact file by a newer one.
    newest = max(stored_steps(directory), default=None)
    if not os.path.lexists(directory / EXACT_NAME):
        return None, None
    try:
        file = open_exact(directory)
    except (DataError, StorageError) as error:
        return None, f"the exact file cannot be used: {error}" if wanted in (None, newest) else None
    found = file.links[-1].manifest.step or 0
    problem = None
    if newest is not None and found < newest and wanted in (None, newest):
        problem = _older(found, newest)
    elif wanted in (None, found):
        usable, problem = link_problem(file.links[-1].reader, directory)
        if usable:
            return file, problem
    file.close()
    return None, problem


def _older(step: int, newest: int) -> str:
    return f"the exact file is of step {step}, and the newest checkpoint of step {newest}"
