"""The exact file: the newest state of a chain bit for bit, in one file beside the checkpoints.

It is a checkpoint file of its own: a keyframe whose frames hold the values as they are. Its
manifest names the root of the checkpoint whose state it holds. A save replaces it after its own
commit. So it may be older than the chain for a moment, and for good after a crash.

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
from typing import Final

from ..constants import EXACT_NAME
from ..container.manifest import Manifest
from ..container.reader import CheckpointReader, open_checkpoint, read_root
from ..container.system import OPEN_FLAGS, WINDOWS, flag
from ..container.tree import Flat
from ..container.writer import CheckpointWriter
from ..errors import DataError, FormatError, LccodecError, StorageError
from ..parallel import thread_count
from ..policy.presets import POLICIES
from .checkpoint import CheckpointFile
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
        Opens the history's checkpoint, and warns of the error that made it necessary.
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


def open_exact(directory: Path, spare: Callable[[LccodecError], CheckpointFile]) -> ExactFile:
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
        exact_root(reader)
    except BaseException:
        reader.close()
        raise
    return ExactFile(reader, spare)


def exact_root(reader: CheckpointReader) -> bytes:
    """Return the root of the checkpoint that an exact file belongs to (LCC-EXA-01)."""
    if reader.manifest.exact is None:
        raise FormatError("LCC-EXA-01", reader.name, "has the name of an exact file, and is another file")
    return reader.manifest.exact


def link_problem(manifest: Manifest, directory: Path, newest: int | None) -> tuple[bool, str | None]:
    """Return whether an exact file is that of the newest checkpoint, and what is wrong.

    Parameters
    ----------
    manifest
        Of the exact file.
    newest
        The newest step of the chain; ``None`` without a checkpoint.
    """
    step = manifest.step
    if newest is None:
        return True, f"the chain has no checkpoint, only the exact file of step {step}"
    if step != newest:
        return False, f"the exact file is of step {step}, and the newest checkpoint of step {newest}"
    path = checkpoint_path(directory, newest)
    try:
        root, _ = read_root(path)
        if root != manifest.exact:
            with open_checkpoint(path) as reader:
                belongs = manifest.exact in reader.manifest.replaces
        else:
            belongs = True
    except LccodecError as error:
        return True, f"the checkpoint of step {newest} is damaged, and its exact file is not: {error}"
    if not belongs:
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


def write_exact(directory: Path, plan: Plan, flat: Flat, checkpoint: Manifest, root: bytes) -> int:
    """Write the exact file, and replace the one before it (LCC-EXA-05).

    Parameters
    ----------
    plan
        What was saved. Its arrays are read again, each value once.
    flat
        The state.
    checkpoint, root
        Manifest and root of the checkpoint that was just committed.

    Returns
    -------
    int
        Bytes of the file.

    Raises
    ------
    ArgumentError, StorageError
        If it cannot be written. The exact file before it is unchanged, unless the message says that
        its durability is unknown.
    """
    arrays = [replace(c, reference=None) for c in plan.candidates]
    raw = make_plan(arrays, POLICIES["lossless"], None)
    metadata = checkpoint.metadata
    manifest = plan_manifest(raw, flat, step=checkpoint.step, policy="lossless", metadata=metadata)
    manifest = replace(manifest, exact=root)
    frames = raw_frames(raw)
    # SHA-256, checksums and system calls release the interpreter's lock.
    many = sum(frame.length for frame in frames) >= _MIN_BYTES_OF_THREADS
    threads = min(thread_count(0), _MAX_THREADS) if many else 1
    path = directory / EXACT_NAME
    with _freed_beside(path), CheckpointWriter(path, overwrite=True) as writer:
        writer.commit(replace(manifest, frames=writer.write_frames(frames, threads)))
    return writer.size


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
