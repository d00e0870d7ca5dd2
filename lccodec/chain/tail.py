"""The latest checkpoint of a chain as decoded: the reference of the next delta.

If the files of the reference have changed since, a delta to it could never be restored. So before
each delta, the root and the size of these files are compared with what they were. That takes one
small read of each file.

Source: SPEC 9 (LCC-CHN-02).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..container.reader import open_checkpoint, read_root
from ..container.scalars import Json
from ..errors import ArgumentError, ChainError, DataError, LccodecError, StorageError, warn
from ..policy.record import Record, read_record
from .checkpoint import open_file
from .decoded import DecodedArray
from .directory import checkpoint_path, directory_steps


@dataclass(frozen=True)
class TailFile:
    """A file that a restore of the latest checkpoint reads: its step, root and size in bytes."""

    step: int
    root: bytes
    size: int


@dataclass
class Tail:
    """The latest checkpoint of a chain, decoded.

    Parameters
    ----------
    links
        The files of the checkpoint and its parents, the keyframe first.
    tree
        Structure of the state, as :func:`lccodec.container.tree.flatten` makes it.
    arrays
        The decoded arrays by name.
    """

    links: tuple[TailFile, ...]
    tree: Json
    arrays: dict[str, DecodedArray]

    @property
    def step(self) -> int:
        """The step of the checkpoint."""
        return self.links[-1].step

    @property
    def deltas(self) -> int:
        """Number of deltas that a restore of the checkpoint replays."""
        return len(self.links) - 1

    def find_change(self, directory: Path) -> str | None:
        """Return what is wrong with the files of the tail; ``None`` if they did not change."""
        for link in self.links:
            path = checkpoint_path(directory, link.step)
            try:
                if read_root(path) != (link.root, link.size):
                    return f"{path.name} was replaced by another file"
            except LccodecError as error:
                return str(error)
        return None


def read_tail(directory: Path, step: int) -> Tail:
    """Return the checkpoint of a step, decoded from its files.

    Raises
    ------
    DataError, ChainError, StorageError
        If the checkpoint cannot be restored.
    """
    with open_file(checkpoint_path(directory, step)) as file:
        file.check_name()
        links = tuple(
            TailFile(link.manifest.step or 0, link.reader.root, link.reader.file_size) for link in file.links
        )
        last = file.links[-1]
        arrays = dict(zip(last.index_names, file.decoded(), strict=True))
        return Tail(links, last.manifest.tree, arrays)


def find_tail(tail: Tail | None, directory: Path, step: int) -> Tail | None:
    """Return the reference of a delta: the tail in memory, or the files if these have changed.

    Returns
    -------
    Tail or None
        ``None`` if the step cannot be restored. An `LccodecWarning` says what is wrong.
    """
    changed = tail.find_change(directory) if tail is not None and tail.step == step else None
    if tail is not None and tail.step == step and changed is None:
        return tail
    try:
        found = read_tail(directory, step)
    except (DataError, ChainError, StorageError) as error:
        warn(f"{directory} goes on with a keyframe, because step {step} cannot be restored: {error}")
        return None
    if changed is not None:
        warn(f"{directory} goes on from the file of step {step} in the directory: {changed}")
    return found


def latest_record(directory: Path) -> tuple[Record | None, str | None]:
    """Return the record of the newest readable checkpoint, or what is wrong with the newest.

    Returns
    -------
    tuple
        The record and ``None``. If no checkpoint can be read, ``None`` and what is wrong. If there
        is no checkpoint, ``None`` twice.
    """
    problem = None
    steps = directory_steps(directory) if directory.is_dir() else {}
    for path in reversed(steps.values()):
        try:
            with open_checkpoint(path) as reader:
                return read_record(reader.manifest.policy), None
        except (DataError, StorageError) as error:
            problem = problem or str(error)
        except ArgumentError as error:
            return None, f"{path.name}: {error}"
    return None, problem
