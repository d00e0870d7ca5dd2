"""The newest state: whether it is kept bit for bit, and what a restore of it returns.

The history's commit comes first, then the exact file. So nothing is lost if the exact file cannot
be written. A restore takes the exact file if it is sound and belongs to the newest checkpoint;
otherwise the history's checkpoint, with a warning that says why.

Source: SPEC 9 (LCC-EXA-04, LCC-EXA-05).
"""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from ..constants import EXACT_NAME
from ..container.manifest import Manifest
from ..container.reader import open_checkpoint
from ..container.tree import Flat
from ..errors import ArgumentError, DataError, LccodecError, StorageError, warn
from .checkpoint import CheckpointFile, open_file, open_step
from .directory import step_index, stored_steps
from .exact_file import ExactFile, exact_root, link_problem, open_exact, write_exact
from .info import CheckpointInfo
from .plan import Plan

#: What is kept of the newest state: the history's checkpoint, and beside it the exact file or not.
Kept: TypeAlias = Literal["exact", "history"]
_KNOWN: Final = ("exact", "history")


def check_newest(newest: Kept | None) -> Kept | None:
    """Return the parameter `newest` of a chain; raise ``ArgumentError`` if it is unknown."""
    if newest is not None and (not isinstance(newest, str) or newest not in _KNOWN):
        raise ArgumentError(f"newest is one of {', '.join(_KNOWN)}, or None to go on; not {newest!r}")
    return newest


class Newest:
    """What the saves of a chain keep of the newest state.

    Parameters
    ----------
    directory
        Directory of the chain.
    newest
        As in `Chain`.
    """

    def __init__(self, directory: Path, newest: Kept | None) -> None:
        self.asked = check_newest(newest)
        self._directory = directory
        self._checked = False  # whether the file to replace is an exact file

    @property
    def kept(self) -> Kept:
        """What is asked for; otherwise ``"exact"`` where there is an exact file, sound or not."""
        return self.asked or ("history" if _is_free(self._directory) else "exact")

    def save(self, plan: Plan, flat: Flat, checkpoint: Manifest, root: bytes) -> None:
        """Write the exact file of a checkpoint that was committed, or take away an older one.

        It warns where that is not possible: the checkpoint is saved all the same.
        """
        path, kept = self._directory / EXACT_NAME, self.kept
        if kept == "exact" and not self._checked and _is_foreign(path):
            warn(f"{path} is not an exact file, and stays: no exact file is written")
            return
        self._checked = True
        try:
            if kept == "exact":
                write_exact(self._directory, plan, flat, checkpoint, root)
            elif not _is_free(self._directory):
                path.unlink()  # it belongs to an older checkpoint
        except (LccodecError, OSError, MemoryError) as error:
            failed = "writing its exact file" if kept == "exact" else "removing an older exact file"
            warn(f"step {checkpoint.step} is saved, but {failed} failed: {str(error) or 'no memory'}")


def _is_free(directory: Path) -> bool:
    """Return whether a directory has no exact file, sound or damaged."""
    path = directory / EXACT_NAME
    return not os.path.lexists(path) or _is_foreign(path)


def _is_foreign(path: Path) -> bool:
    """Return whether a file that has the name of an exact file is a sound file of another kind."""
    try:
        with open_checkpoint(path) as reader:
            return reader.manifest.exact is None
    except (DataError, StorageError):
        return False


def exact_manifest(directory: Path) -> Manifest | None:
    """Return the manifest of the exact file; ``None`` if there is none, or it is damaged."""
    path = directory / EXACT_NAME
    if not os.path.lexists(path):
        return None
    try:
        with open_checkpoint(path) as reader:
            return reader.manifest if reader.manifest.exact is not None else None
    except (DataError, StorageError):
        return None


def with_exact(info: CheckpointInfo, directory: Path) -> CheckpointInfo:
    """Return what is known of a checkpoint; `exact` also for the exact file beside it."""
    manifest = exact_manifest(directory)
    roots = (info.root, *info.replaces)
    found = manifest is not None and manifest.exact is not None and manifest.exact.hex() in roots
    return replace(info, exact=info.exact or found)


def describe_exact(directory: Path) -> dict[str, Any] | None:
    """Return what is known of a directory's exact file without decoding it; ``None`` without one.

    Returns
    -------
    dict or None
        ``step`` and ``bytes`` of the file, and ``problem``: why a restore does not take it, or
        ``None``. Step and bytes are ``None`` if it cannot be opened.
    """
    path = directory / EXACT_NAME
    if not os.path.lexists(path):
        return None
    try:
        with open_checkpoint(path) as reader:
            exact_root(reader)
            _, problem = link_problem(reader.manifest, directory, _newest_step(directory))
            return {"step": reader.manifest.step, "bytes": reader.file_size, "problem": problem}
    except (DataError, StorageError) as error:
        return {"step": None, "bytes": None, "problem": str(error)}


def open_newest(directory: Path, step: int | None = None, *, expected: bool = False) -> CheckpointFile:
    """Open a step of a chain, the latest by default: the exact file if it is of that step.

    An `LccodecWarning` says why an exact file is not used, or what is wrong beside it.

    Parameters
    ----------
    expected
        Whether to warn if there is no exact file.

    Raises
    ------
    ArgumentError, ChainError, DataError, StorageError
        As `open_step`.
    """
    file, problem = _find(directory, step, expected)
    if problem is not None:
        warn(f"{directory}: {problem}" + ("" if file else "; the history's newest is returned"))
    return file or open_step(directory, step)


def open_exact_of(checkpoint: Path, root: str) -> ExactFile | None:
    """Open the exact file of a checkpoint, given by its path and its root in hexadecimal.

    Returns
    -------
    ExactFile or None
        ``None`` if there is none, or it is damaged or of another checkpoint.
    """
    manifest = exact_manifest(checkpoint.parent)
    if manifest is None or manifest.exact is None or manifest.exact.hex() != root:
        return None

    def spare(error: LccodecError) -> CheckpointFile:
        warn(f"{checkpoint}: its exact file is damaged, its own state is returned: {error}")
        return open_file(checkpoint)

    try:
        return open_exact(checkpoint.parent, spare)
    except (DataError, StorageError):  # it was replaced meanwhile
        return None


def _find(directory: Path, step: int | None, expected: bool) -> tuple[ExactFile | None, str | None]:
    """Return the exact file if it is to be used, and what is to be warned of."""
    newest = _newest_step(directory)
    wanted = newest if step is None else step_index(step)
    if wanted != newest and newest is not None:
        return None, None
    if not os.path.lexists(directory / EXACT_NAME):
        return None, "there is no exact file" if expected and newest is not None else None

    def spare(error: LccodecError) -> CheckpointFile:
        warn(f"{directory}: the exact file is damaged, the history's newest is returned: {error}")
        return open_step(directory, wanted)

    try:
        file = open_exact(directory, spare)
    except (DataError, StorageError) as error:
        return None, f"the exact file cannot be used: {error}"
    manifest = file.links[-1].manifest
    # Listed anew: a save may have come in between. It replaces the exact file last.
    usable, problem = link_problem(manifest, directory, _newest_step(directory))
    if usable and (step is None or wanted == manifest.step):
        return file, problem
    file.close()
    return None, None if usable else problem


def _newest_step(directory: Path) -> int | None:
    try:
        return max(stored_steps(directory), default=None)
    except StorageError as error:
        if error.errno != errno.ENOENT:
            raise
        return None
