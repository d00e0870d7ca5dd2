"""How an exact file gets to the disk: its frames are the values as they are, written by threads.

Source: SPEC 9 (LCC-EXA-05).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from ....constants import EXACT_NAME
from ....container.disk.address import Place
from ....container.disk.system import OPEN_FLAGS, WINDOWS, flag
from ....container.manifest import Manifest
from ....container.tree import Flat
from ....element_types import Array
from ....frame.raw import RawFrame
from ....parallel import start_thread, thread_count
from ....policy.copies import mark_equal
from ....policy.policy import Candidate
from ....policy.presets import POLICIES
from ...read.newest import ExactFile
from ...store.store import WritableStore
from ..encode import plan_manifest, raw_frames
from ..plan import SavePlan, make_plan

_MAX_THREADS: Final = 4  # that hash and write: more are faster than disks
_MIN_BYTES_OF_THREADS: Final = 1 << 23  # of a file that several threads write


class ExactRoot(NamedTuple):
    """The root of an exact file that was committed, and its size in bytes."""

    root: bytes
    size: int


def write_exact(
    store: WritableStore,
    plan: SavePlan,
    flat: Flat,
    checkpoint: Manifest,
    before: ExactFile | None = None,
    check: Callable[[Path], object] | None = None,
) -> ExactRoot:
    """Write the exact file, and replace the one before it (LCC-EXA-05).

    Parameters
    ----------
    plan
        What is saved. Each value of its arrays is read once.
    flat
        The state.
    checkpoint
        Manifest of the checkpoint that is to come, without its frames.
    before
        The exact file of the parent, which has the arrays that the save leaves out.
    check
        Called before the file gets its name; it may raise an error.

    Raises
    ------
    ArgumentError, DataError, StorageError
        If it cannot be written. The exact file before it is unchanged, unless the message says that
        its durability is unknown.
    """
    return commit_exact(store, *lay_out(plan.candidates, flat, checkpoint, before), check)


def lay_out(
    arrays: Sequence[Candidate],
    flat: Flat,
    checkpoint: Manifest,
    before: ExactFile | None = None,
    equal: bool = True,
) -> tuple[list[RawFrame], Manifest]:
    """Return the frames of an exact file, and its manifest without their entries.

    Equal arrays are stored once if `equal` says so, and no array is left out. Which of them has the
    values follows from the state alone, so that the file can be written anew from a checkpoint.
    """
    kinds = {c.name: c.kind for c in arrays}
    own = [replace(c, reference=None, changed=None) for c in arrays]
    for c in own:
        c.source = c.source if c.source and kinds[c.source] is not c.kind else None
    if equal and not any(c.inherited for c in own):
        mark_equal(own, {c.source for c in own if c.source})
    raw = make_plan(own, POLICIES["lossless"], None)
    step, policy, metadata = checkpoint.step, checkpoint.policy, checkpoint.metadata
    manifest = plan_manifest(raw, flat, step=step, policy=policy, metadata=metadata)
    read = None if before is None else partial(_values_of, before, threading.Lock())
    # A file that is written anew has the version that it had, or its root would be another.
    return raw_frames(raw, read), replace(manifest, is_exact=True, minor=checkpoint.minor)


def commit_exact(
    store: WritableStore,
    frames: Sequence[RawFrame],
    manifest: Manifest,
    check: Callable[[Path], object] | None = None,
) -> ExactRoot:
    """Write an exact file, a large one by several threads, in the place of the one before it."""
    # SHA-256, checksums and system calls release the interpreter's lock.
    many = sum(frame.length for frame in frames) >= _MIN_BYTES_OF_THREADS
    threads = min(thread_count(0), _MAX_THREADS) if many else 1
    path = store.path / EXACT_NAME
    with _freed_beside(path), store.writer(EXACT_NAME, overwrite=True) as writer:
        root = writer.commit(replace(manifest, frames=writer.write_frames(frames, threads)), check)
    return ExactRoot(root, writer.size)


def _values_of(before: ExactFile, turn: threading.Lock, names: Sequence[str]) -> list[Array]:
    """Return the components of arrays in the exact file of the parent. Any thread may ask."""
    with turn:
        places = [before.links[-1].names[name] for name in names]
        found = before.decode_some(places)
    return [found[place].bits for place in places]


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
            close = partial(os.close, descriptor)
            if not start_thread(close):
                close()
