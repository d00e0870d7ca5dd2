"""The exact file: the newest state bit for bit, beside the checkpoint of its step.

It is committed first, then the history's checkpoint, whose manifest names the root of the exact
file. So a run that was killed goes on from the newest state that is on the disk, bit for bit, and a
save that cannot be kept in one of the two is kept in the other.

Its frames are the values as they are, written by threads.

The exact file and the checkpoint of its step hold the same step. If the checkpoint is damaged or
lost, it becomes a keyframe of the exact state. If the exact file is, it comes back bit for bit from
a checkpoint that lost nothing.

Source: SPEC 9 (LCC-EXA-04, LCC-EXA-05, LCC-EXA-06).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from ...constants import EXACT_NAME
from ...container.checkpoint import CheckpointReader, root_of_file
from ...container.manifest import Manifest
from ...container.piece_table import hashed
from ...container.system import OPEN_FLAGS, WINDOWS, Bytes, Place, flag
from ...container.tree import Flat, flatten
from ...cursor import Cursor
from ...element_types import Array
from ...errors import ChainError, DataError, LccodecError, StorageError, is_loss, reason_of, warn
from ...frame.encode import RawFrame
from ...parallel import start_thread, thread_count
from ...policy.policy import Candidate
from ...policy.presets import POLICIES
from ...policy.values import mark_copies, mark_equal
from ..read.checkpoint import ExactFile, OpenCheckpoint, kept, open_exact, open_name
from ..read.links import UNBOUNDED, Bounds
from ..store.directory import check_exact, link_problem
from ..store.lineage import Lineage
from ..store.store import OvertakenError, Store, WritableStore, checkpoint_name
from .encode import plan_manifest, raw_frames
from .plan import SavePlan, candidates, make_plan
from .reference import Latest


class Newest:
    """The exact file of a chain, as its saves write it.

    `asked`: whether the user has asked for the file. Otherwise it is written where something may be
    lost, and where it is there already. `every`: every how many saves it is written.
    """

    def __init__(self, store: WritableStore, asked: bool, every: int) -> None:
        self._store = store
        self._asked = asked
        self._every = every
        self._checked = False  # whether the file to replace is an exact file

    def write(
        self,
        plan: SavePlan,
        flat: Flat,
        checkpoint: Manifest,
        parent: Latest | None,
        check: Callable[[Path], object],
    ) -> tuple[ExactRoot | None, str | None]:
        """Write the exact file of a checkpoint that is to come, if it is needed.

        `check` is called before it gets its name; an `OvertakenError` of it is raised.

        What a save of some arrays leaves out is in the exact file of its `parent`. Without that
        file nothing is written: the parent may have lost something. If it is not written at each
        save, it waits for a save of all arrays. Returns what was committed, or ``None`` if nothing
        was; and what went wrong, or ``None``.
        """
        foreign = not self._checked and self._is_foreign()
        there = self._store.has(EXACT_NAME) and not foreign
        if not (self._asked or there or any(quantizer.lossy for quantizer in plan.quantizers)):
            return None, None
        if foreign:
            path = self._store.path / EXACT_NAME
            return None, f"{path} is not an exact file, and stays: no exact file is written"
        self._checked = True
        some = parent is not None and any(c.inherited for c in plan.candidates)
        if there and self._every > 1 and (some or not self._is_due(checkpoint.step)):
            return None, None
        try:
            with ExitStack() as opened:
                before = None
                if parent is not None and some:
                    before = opened.enter_context(self._exact_of(parent))
                laid_out = lay_out(plan.candidates, flat, checkpoint, before)
                return commit_exact(self._store, *laid_out, check), None
        except OvertakenError:
            raise
        except (LccodecError, OSError, MemoryError) as error:
            return None, f"writing its exact file failed: {reason_of(error)}"

    def _exact_of(self, parent: Latest) -> ExactFile:
        """Open the exact file of a checkpoint; raise ``ChainError`` if it is not there."""
        if parent.manifest.exact is not None and self._store.has(EXACT_NAME):
            file = open_exact(self._store, strict=True)
            if file.links[-1].reader.root == parent.manifest.exact:
                return file
            file.close()
        raise ChainError(f"step {parent.step}, which has the arrays that only= leaves out, has no exact file")

    def _is_due(self, step: int | None) -> bool:
        """Return whether a save writes the file, counted by the steps since the last.

        A step that only the file has is saved anew: its checkpoint must name what is there.
        """
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


_MAX_THREADS: Final = 4  # that hash and write: more are faster than disks
_MIN_BYTES_OF_THREADS: Final = 1 << 23  # of a file that several threads write
_MIN_FREED_BYTES: Final = 1 << 20  # of a file whose disk space a thread frees


class ExactRoot(NamedTuple):
    """The root of an exact file that was committed, and its size in bytes."""

    root: bytes
    size: int


def lay_out(
    arrays: Sequence[Candidate],
    flat: Flat,
    checkpoint: Manifest,
    before: OpenCheckpoint | None = None,
    equal: bool = True,
) -> tuple[list[RawFrame], Manifest]:
    """Return the frames of an exact file, and its manifest without their entries.

    Equal arrays are stored once if `equal` says so, and no array is left out. Which of them has the
    values follows from the state alone, so that the file can be written anew from a checkpoint.
    """
    kinds, own, sources = {c.name: c.kind for c in arrays}, list[Candidate](), set[str]()
    for c in arrays:  # `dataclasses.replace` takes ten times as long
        own.append(Candidate(c.name, c.role, c.why, c.kind, c.shape, c.bits, None, inherited=c.inherited))
        if c.source and kinds[c.source] is not c.kind:
            own[-1].source = c.source
            sources.add(c.source)
        equal = equal and not c.inherited
    if equal:
        mark_equal(own, sources)
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
    """Write an exact file, a large one by several threads, in the place of the one before it.

    `check` is called before the file gets its name; it may raise an error. After an error, the file
    before is unchanged, unless the message says that its durability is unknown (LCC-EXA-05).
    """
    # SHA-256, checksums and system calls release the interpreter's lock.
    nbytes = sum(frame.length for frame in frames)
    threads = min(thread_count(0), _MAX_THREADS) if nbytes >= _MIN_BYTES_OF_THREADS else 1
    freed = _freed_beside(store.path / EXACT_NAME) if nbytes >= _MIN_FREED_BYTES else nullcontext()
    with freed, store.writer(EXACT_NAME, overwrite=True) as writer:
        root = writer.commit(replace(manifest, frames=writer.write_frames(frames, threads)), check)
    return ExactRoot(root, writer.size)


def _values_of(before: OpenCheckpoint, turn: threading.Lock, names: Sequence[str]) -> list[Array]:
    """Return the components of arrays in the exact file of the parent. Any thread may ask."""
    with turn:
        places = [before.links[-1].names[name] for name in names]
        found = before.decode_some(places)
    return [found[place].bits for place in places]


@contextmanager
def _freed_beside(path: Place) -> Iterator[None]:
    """Let a thread free the disk space of a large file that is replaced: that takes long.

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


def lost_checkpoint(store: Store, bounds: Bounds = UNBOUNDED) -> tuple[str, LccodecError] | None:
    """Return the checkpoint of the exact file's step and its error, if it cannot be restored.

    ``None`` if it can be, or is not there. Whether the error means that something is lost, says
    `lccodec.errors.is_loss`. If it asks for more than `bounds`, it is not decoded, and that is the
    error.
    """
    step = store.exact_step()
    if step is None or not store.has(name := checkpoint_name(step)):
        return None
    try:
        _verify(store, name, bounds)
    except ChainError:  # or a prune has removed a parent while it was read
        try:
            _verify(store, name, bounds)
        except LccodecError as error:
            return name, error
    except LccodecError as error:
        return name, error
    return None


def _verify(store: Store, name: str, bounds: Bounds) -> None:
    with open_name(store, name) as file:
        for link in file.links:  # first: headers of damaged bytes may be of any version
            link.reader.verify()
        kept(file, bounds).verify()


def renew_newest(store: WritableStore, gives_back: Callable[[str], bool]) -> Store | None:
    """Write the newest checkpoint anew, if it is lost and does not come back by other means.

    Whether the file of that name can be given back as it was is asked only if it is lost. Returns
    the store as it is listed now; ``None`` if nothing was written.
    """
    step = store.exact_step()
    if step is None or step != max(store.checkpoints(), default=None):
        return None
    if (found := lost_checkpoint(store)) is None:
        return None
    name, error = found
    if not is_loss(error) or gives_back(name):
        return None
    try:
        checkpoint_from_exact(store)
    except (LccodecError, OSError, MemoryError):
        return None
    warn(f"{store.path}: step {step} was written anew from the exact file: {error}")
    return store.snapshot()


def checkpoint_from_exact(store: WritableStore, *, dry_run: bool = False) -> str:
    """Write the checkpoint of the exact file's step anew, with the frames of that file; return its
    name.

    It is a keyframe. The caller knows that the checkpoint cannot be restored. It had the values of
    the history, and now has those of the state; so no other checkpoint may need it (LCC-EXA-06):
    that is a ``ChainError``, as is an exact file that is not that of the checkpoint. After an
    error, the checkpoint is as it was.
    """
    with store.open(EXACT_NAME) as exact:
        check_exact(exact)
        step = exact.manifest.step or 0
        name = checkpoint_name(step)
        usable, problem = link_problem(exact, store)
        if not usable:
            raise ChainError(f"{store.path}: {problem}")
        for child in Lineage.named(store).children(step):
            raise ChainError(
                f"{store.path}: step {child} needs step {step} with the values that it had in the history"
            )
        if dry_run:
            exact.verify()
            return name
        manifest = replace(exact.manifest, is_exact=False, exact=exact.root)
        with store.writer(name, overwrite=True) as writer:
            for index in range(len(manifest.frames)):
                writer.write_frame(chunks_of(exact, index))
            writer.commit(manifest)
    return name


def chunks_of(reader: CheckpointReader, index: int) -> Iterator[Bytes]:
    """Yield a frame that is verified, in chunks."""
    length = reader.manifest.frames[index].length
    return Cursor(reader.frame(index), reader.name).chunks(length, "frame")


def exact_from_checkpoint(store: WritableStore, *, dry_run: bool = False, bounds: Bounds = UNBOUNDED) -> None:
    """Write the exact file anew from the newest checkpoint that names one, bit for bit.

    Raises ``ChainError`` if no checkpoint names an exact file, or the one that does has other
    values than that had. After an error, the exact file is as it was.
    """
    name, named = _named_exact(store)
    with kept(open_name(store, name), bounds) as file:
        flat = flatten(file.state(dtype="bits"))
        checkpoint = file.links[-1].manifest
    for frames, manifest in _layouts(flat, checkpoint):
        entries = tuple(hashed(frame.chunks())[0] for frame in frames)
        if root_of_file(replace(manifest, frames=entries)) == named:
            break
    else:
        raise ChainError(f"{store.path}: {name} has not all bits of the state that its exact file had")
    if not dry_run:
        commit_exact(store, frames, manifest)


def _layouts(flat: Flat, checkpoint: Manifest) -> Iterator[tuple[list[RawFrame], Manifest]]:
    """Yield the frames and the manifest that an exact file may have, the likeliest first.

    Version 1.0 stored equal arrays twice, and so does a save of some arrays. A writer that keeps
    hashes stores roundings.
    """
    marked = candidates(flat, {})
    mark_copies(marked)
    tried = []
    for arrays in (marked, candidates(flat, {})):
        for equal in (True, False):
            frames, manifest = lay_out(arrays, flat, checkpoint, equal=equal)
            if manifest.copies not in tried:
                tried.append(manifest.copies)
                yield frames, manifest


def _named_exact(store: Store) -> tuple[str, bytes]:
    """Return the newest checkpoint that names an exact file, and the root of that."""
    for name in reversed(store.checkpoints().values()):
        with suppress(DataError, StorageError), store.open(name) as reader:
            if reader.manifest.exact is not None:
                return name, reader.manifest.exact
    raise ChainError(f"{store.path}: no checkpoint names an exact file")
