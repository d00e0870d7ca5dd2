"""The exact file: the newest state of a chain bit for bit, in one file beside the checkpoints.

It is a checkpoint file of its own: a keyframe whose frames hold the values as they are. A save
commits it first; then it commits the checkpoint, whose manifest names the root of the exact file.
So after a crash, the exact file may be the only file of the newest step.

Source: SPEC 9 (LCC-EXA).
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from ..constants import EXACT_NAME
from ..container.manifest import Manifest
from ..container.reader import CheckpointReader, open_checkpoint
from ..container.system import OPEN_FLAGS, WINDOWS, flag
from ..container.tree import Flat
from ..container.writer import CheckpointWriter
from ..errors import DataError, FormatError, LccodecError, StorageError, warn
from ..parallel import thread_count
from ..policy.presets import POLICIES
from .checkpoint import CheckpointFile, open_file
from .coding import plan_manifest, raw_frames
from .decoded import DecodedArray
from .directory import checkpoint_path
from .info import Head
from .plan import Plan, make_plan
from .replay import Decoding

_MAX_THREADS: Final = 4  # that hash and write: more are faster than disks
_MIN_BYTES_OF_THREADS: Final = 1 << 23  # of a file that several threads write


class ExactFile(CheckpointFile):
    """An open exact file. Where its frames are damaged, the history's checkpoint takes its place.

    Parameters
    ----------
    reader
        The open file.
    spare
        Opens the history's checkpoint, and warns of the error that made it necessary. It raises
        that error if there is no such checkpoint.
    """

    def __init__(self, reader: CheckpointReader, spare: Callable[[LccodecError], CheckpointFile]) -> None:
        super().__init__(reader, None)
        self._spare = spare

    def decode_some(self, indices: Iterable[int]) -> dict[int, DecodedArray]:
        """Return arrays as decoded, by index: all from this file, or all from the history."""
        wanted = self._checked(indices)
        try:
            return dict(super()._replay(wanted))
        except (DataError, StorageError) as error:
            return dict(self._of_history(wanted, error))

    def _replay(self, indices: list[int]) -> Decoding:
        """Yield arrays; from the first one on that is damaged, those of the history."""
        left = dict.fromkeys(indices)
        try:
            for index, array in super()._replay(indices):
                del left[index]
                yield index, array
        except (DataError, StorageError) as error:
            failure = error
        else:
            return
        yield from self._of_history(list(left), failure)

    def heads(self) -> dict[str, Head]:
        """Return what is known of each array before it is decoded, by name."""
        try:
            return super().heads()
        except (DataError, StorageError) as error:
            with self._spare(error) as history:
                return history.heads()

    def _of_history(self, indices: list[int], error: LccodecError) -> Decoding:
        names = [self._links[-1].index_names[index] for index in indices]
        with self._spare(error) as history:
            places = history.links[-1].names
            if not places.keys() >= set(names):
                raise error
            known = {places[name]: index for name, index in zip(names, indices, strict=True)}
            for place, array in history.decode_each(known):
                yield known[place], array


def open_exact(directory: Path) -> ExactFile:
    """Open the exact file of a directory.

    Raises
    ------
    FormatError
        If a file of that name is not an exact file (LCC-EXA-01).
    DataError, StorageError
        If the file is damaged, missing, or cannot be read.
    """
    reader = open_checkpoint(directory / EXACT_NAME)
    try:
        check_exact(reader)
    except BaseException:
        reader.close()
        raise

    def spare(error: LccodecError) -> CheckpointFile:
        path = checkpoint_path(directory, reader.manifest.step or 0)
        if not os.path.lexists(path):
            raise error
        warn(f"{directory}: the exact file is damaged, the history's state is returned: {error}")
        return open_file(path)

    return ExactFile(reader, spare)


def check_exact(reader: CheckpointReader) -> None:
    """Raise ``FormatError`` if a file of that name is not an exact file (LCC-EXA-01)."""
    if not reader.manifest.is_exact:
        raise FormatError("LCC-EXA-01", reader.name, "has the name of an exact file, and is another file")


def link_problem(exact: CheckpointReader, directory: Path) -> tuple[bool, str | None]:
    """Return whether an exact file holds the state of its step, and what is wrong (LCC-EXA-04).

    If the history has a checkpoint of the step, it must name the file.
    """
    step = exact.manifest.step or 0
    path = checkpoint_path(directory, step)
    if not os.path.lexists(path):
        return True, None
    try:
        with open_checkpoint(path) as reader:
            named = reader.manifest.exact
    except LccodecError as error:
        return True, f"the checkpoint of step {step} is damaged, and its exact file is not: {error}"
    if named != exact.root:
        return False, f"the exact file belongs to another checkpoint of step {step}"
    return True, None


def check_state(exact: CheckpointFile, checkpoint: CheckpointFile) -> None:
    """Raise ``FormatError`` if the states of the two differ in more than values (LCC-EXA-03)."""
    for what in ("metadata", "scalars", "tree"):
        ours, theirs = (json.dumps(getattr(f.links[-1].manifest, what)) for f in (exact, checkpoint))
        if ours != theirs:
            raise FormatError("LCC-EXA-03", EXACT_NAME, f"the {what} are not those of the checkpoint")
    for mine, other in zip(exact.info().arrays, checkpoint.info().arrays, strict=True):
        if (mine.dtype, mine.shape) != (other.dtype, other.shape):
            message = "is not of the type and shape that it has in the checkpoint"
            raise FormatError("LCC-EXA-03", f"{EXACT_NAME}: array {mine.name!r}", message)


def check_values(reader: CheckpointReader, lossy: Iterable[str]) -> None:
    """Raise ``FormatError`` if an exact file has lossy arrays, given by name (LCC-EXA-03)."""
    for name in lossy:
        raise FormatError("LCC-EXA-03", f"{reader.name}: array {name!r}", "has representatives, not values")


class ExactRoot(NamedTuple):
    """The root of an exact file that was committed, and its size in bytes."""

    root: bytes
    size: int


def write_exact(directory: Path, plan: Plan, flat: Flat, checkpoint: Manifest) -> ExactRoot:
    """Write the exact file, and replace the one before it (LCC-EXA-05).

    Parameters
    ----------
    plan
        What is saved. Each value of its arrays is read once.
    flat
        The state.
    checkpoint
        Manifest of the checkpoint that is to come, without its frames.

    Raises
    ------
    ArgumentError, StorageError
        If it cannot be written. The exact file before it is unchanged, unless the message says that
        its durability is unknown.
    """
    arrays = [replace(c, reference=None) for c in plan.candidates]
    raw = make_plan(arrays, POLICIES["lossless"], None)
    step, policy, metadata = checkpoint.step, checkpoint.policy, checkpoint.metadata
    manifest = plan_manifest(raw, flat, step=step, policy=policy, metadata=metadata)
    manifest = replace(manifest, is_exact=True)
    frames = raw_frames(raw)
    # SHA-256, checksums and system calls release the interpreter's lock.
    many = sum(frame.length for frame in frames) >= _MIN_BYTES_OF_THREADS
    threads = min(thread_count(0), _MAX_THREADS) if many else 1
    path = directory / EXACT_NAME
    with _freed_beside(path), CheckpointWriter(path, overwrite=True) as writer:
        root = writer.commit(replace(manifest, frames=writer.write_frames(frames, threads)))
    return ExactRoot(root, writer.size)


@contextmanager
def _freed_beside(path: Path) -> Iterator[None]:
    """Let a thread free the disk space of a file that is replaced: of a large one that takes long.

    The space is free when the last descriptor of the file is closed.
    """
    descriptor = -1
    if not WINDOWS:  # which does not replace an open file
        with suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY | flag("O_NONBLOCK") | OPEN_FLAGS)
    try:
        yield
    finally:
        if descriptor >= 0:
            threading.Thread(target=os.close, args=(descriptor,), daemon=True).start()
