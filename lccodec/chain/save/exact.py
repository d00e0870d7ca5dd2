"""Writing the exact file: when it is due, and how it gets to the disk.

It is committed first, then the history's checkpoint, whose manifest names the root of the exact
file. So a run that was killed goes on from the newest state that is on the disk, bit for bit, and a
save that cannot be kept in one of the two is kept in the other.

Source: SPEC 9 (LCC-EXA-04, LCC-EXA-05).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from ...arguments import as_integer
from ...constants import EXACT_NAME
from ...container.disk.address import Place
from ...container.disk.system import OPEN_FLAGS, WINDOWS, flag
from ...container.manifest import Manifest
from ...container.tree import Flat
from ...errors import ArgumentError, DataError, LccodecError, StorageError, reason_of, warn
from ...parallel import thread_count
from ...policy.presets import POLICIES
from ...policy.record import KEPT, Kept
from ..store.store import OvertakenError, WritableStore
from .encode import plan_manifest, raw_frames
from .plan import SavePlan, make_plan

_MAX_THREADS: Final = 4  # that hash and write: more are faster than disks
_MIN_BYTES_OF_THREADS: Final = 1 << 23  # of a file that several threads write


class ExactRoot(NamedTuple):
    """The root of an exact file that was committed, and its size in bytes."""

    root: bytes
    size: int


def write_exact(store: WritableStore, plan: SavePlan, flat: Flat, checkpoint: Manifest) -> ExactRoot:
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
    path = store.path / EXACT_NAME
    with _freed_beside(path), store.writer(EXACT_NAME, overwrite=True) as writer:
        root = writer.commit(replace(manifest, frames=writer.write_frames(frames, threads)))
    return ExactRoot(root, writer.size)


@contextmanager
def _freed_beside(path: Place) -> Iterator[None]:
    """Let a thread free the disk space of a file that is replaced: of a large one that takes long.

    The space is free when the last descriptor of the file is closed.
    """
    descriptor = -1
    if not WINDOWS and isinstance(path, Path):  # which does not replace an open file
        with suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY | flag("O_NONBLOCK") | OPEN_FLAGS)
    try:
        yield
    finally:
        if descriptor >= 0:
            threading.Thread(target=os.close, args=(descriptor,), daemon=True).start()


def check_newest(newest: Kept | None) -> Kept | None:
    """Return the parameter `newest` of a chain; raise ``ArgumentError`` if it is unknown."""
    if newest is not None and (not isinstance(newest, str) or newest not in KEPT):
        raise ArgumentError(f"newest must be 'exact', 'history' or None; got {newest!r}")
    return newest


def check_exact_every(every: object) -> int:
    """Return the parameter `exact_every` of a chain; raise ``ArgumentError`` for another value."""
    count = as_integer(every)
    if count is None or count < 1:
        raise ArgumentError(f"exact_every must be a positive integer; got {every!r}")
    return count


class Newest:
    """The exact file of a chain, as its saves write it.

    Parameters
    ----------
    store
        Where the chain is kept.
    asked
        Whether the user has asked for the file. Otherwise it is written where something may be
        lost, and where it is there already.
    every
        Every how many saves it is written.
    """

    def __init__(self, store: WritableStore, asked: bool, every: int) -> None:
        self._store = store
        self._asked = asked
        self._every = every
        self._checked = False  # whether the file to replace is an exact file

    def write(self, plan: SavePlan, flat: Flat, checkpoint: Manifest) -> tuple[ExactRoot | None, str | None]:
        """Write the exact file of a checkpoint that is to come, if it is needed.

        Returns
        -------
        tuple
            What was committed, or ``None`` if nothing was; and what went wrong, or ``None``.
        """
        foreign = not self._checked and self._is_foreign()
        there = self._store.has(EXACT_NAME) and not foreign
        if not (self._asked or there or any(quantizer.lossy for quantizer in plan.quantizers)):
            return None, None
        if foreign:
            path = self._store.path / EXACT_NAME
            return None, f"{path} is not an exact file, and stays: no exact file is written"
        self._checked = True
        if there and not self._is_due(checkpoint.step):
            return None, None
        try:
            return write_exact(self._store, plan, flat, checkpoint), None
        except OvertakenError:
            raise
        except (LccodecError, OSError, MemoryError) as error:
            return None, f"writing its exact file failed: {reason_of(error)}"

    def _is_due(self, step: int | None) -> bool:
        """Return whether a save writes the file, counted by the steps since the last.

        A step that only the file has is saved anew: its checkpoint must name what is there.
        """
        if self._every == 1:
            return True
        exact = self._store.exact_step()
        if exact is None or exact == step:
            return True
        return sum(later > exact for later in self._store.checkpoints()) >= self._every - 1

    def remove(self, step: int) -> None:
        """Remove an exact file of an earlier step than the one that was saved without it."""
        if not self._store.has(EXACT_NAME) or self._is_foreign():
            return
        try:
            self._store.remove([EXACT_NAME])
        except StorageError as error:
            warn(f"step {step} is saved, but removing an older exact file failed: {reason_of(error)}")

    def _is_foreign(self) -> bool:
        """Return whether a file that has the name is a sound file of another kind."""
        if not self._store.has(EXACT_NAME):
            return False
        try:
            with self._store.open(EXACT_NAME) as reader:
                return not reader.manifest.is_exact
        except (DataError, StorageError):
            return False
