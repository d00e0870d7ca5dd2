"""The two files of the newest step, each written anew from the other.

The exact file and the checkpoint of its step hold the same step. If the checkpoint is damaged or
lost, it becomes a keyframe of the exact state. If the exact file is, it comes back bit for bit from
a checkpoint that lost nothing.

Source: SPEC 9 (LCC-EXA-04, LCC-EXA-06).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace

from ....constants import EXACT_NAME
from ....container.frame_entry import Bytes
from ....container.manifest import Manifest
from ....container.piece_table import hashed
from ....container.reader import CheckpointReader
from ....container.tree import Flat, flatten
from ....container.writer import root_of_file
from ....cursor import Cursor
from ....errors import ChainError, DataError, LccodecError, StorageError, is_loss, warn
from ....frame.raw import RawFrame
from ....policy.copies import mark_copies
from ...bounds import UNBOUNDED, Bounds
from ...read.checkpoint import open_name
from ...read.newest import kept
from ...store.directory import check_exact, link_problem
from ...store.lineage import Lineage
from ...store.names import checkpoint_name
from ...store.store import Store, WritableStore
from ..plan import candidates
from .write import commit_exact, lay_out


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


def renew_newest(store: WritableStore, comes_back: Callable[[str], bool]) -> Store | None:
    """Write the newest checkpoint anew, if it is lost and does not come back by other means.

    Parameters
    ----------
    comes_back
        Whether the file of that name can be given back as it was; asked only if it is lost.

    Returns
    -------
    Store or None
        The store as it is listed now; ``None`` if nothing was written.
    """
    step = store.exact_step()
    if step is None or step != max(store.checkpoints(), default=None):
        return None
    if (found := lost_checkpoint(store)) is None:
        return None
    name, error = found
    if not is_loss(error) or comes_back(name):
        return None
    try:
        checkpoint_from_exact(store)
    except (LccodecError, OSError, MemoryError):
        return None
    warn(f"{store.path}: step {step} was written anew from the exact file: {error}")
    return store.snapshot()


def checkpoint_from_exact(store: WritableStore, *, dry_run: bool = False) -> str:
    """Write the checkpoint of the exact file's step anew: a keyframe with the frames of that file.

    The caller knows that the checkpoint cannot be restored. It had the values of the history, and
    now has those of the state; so no other checkpoint may need it (LCC-EXA-06).

    Returns
    -------
    str
        The name of the checkpoint.

    Raises
    ------
    ChainError
        If the exact file is not that of the checkpoint, or another checkpoint needs this one.
    DataError, StorageError
        If the exact file is damaged or missing, or the operating system refuses. The checkpoint
        is as it was.
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

    Raises
    ------
    ChainError
        If no checkpoint names an exact file, or the one that does has other values than that had.
    DataError, StorageError
        If the checkpoint cannot be restored, asks for more than `bounds`, or the operating system
        refuses. The exact file is as it was.
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
