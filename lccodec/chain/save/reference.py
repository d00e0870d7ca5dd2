"""The latest checkpoint of a chain as decoded: the reference of the next delta.

If the files of the reference have changed since, a delta to it could never be restored. So before
each delta, the roots and the sizes of these files are compared with what they were. That takes one
small read of each file. A checkpoint that took the place of the latest, with the same state, is as
good. Any other change makes the next checkpoint a keyframe. They are compared again right before
the delta gets its name, while nobody may remove them.

Source: SPEC 9 (LCC-CHN-02, LCC-CHN-10).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Final, Protocol, TypeAlias

from ...container.manifest import Manifest
from ...errors import ArgumentError, ChainError, DataError, LccodecError, StorageError, warn
from ...frame.encode import Effort
from ...policy.policy import Candidate
from ...policy.record import Record, read_record
from ..read.checkpoint import OpenCheckpoint, open_name
from ..read.replay import DecodedArray
from ..store.names import checkpoint_name
from ..store.store import LockedStore, Store, WritableStore
from .plan import SavePlan
from .sampling import Samples, Sampling

#: Returns the arrays of an open checkpoint by name, as `Latest` holds them.
ReadArrays: TypeAlias = Callable[[OpenCheckpoint], dict[str, DecodedArray]]

#: After this, a save goes on without the lock: a prune that rewrites may hold it for minutes. Such
#: a prune looks again what is needed before it removes anything.
_SECONDS_TO_WAIT: Final = 1.0
_SECONDS_BETWEEN_ATTEMPTS: Final = 0.01


class Reference(Protocol):
    """What a saver keeps of the newest checkpoint, and how a save is coded against it."""

    #: Whether the arrays of `Latest` have the values, not only hashes of them.
    has_values: bool

    def read(self, file: OpenCheckpoint) -> dict[str, DecodedArray]:
        """Return the arrays of a checkpoint by name, as `Latest` holds them.

        Raises
        ------
        DataError, ChainError, StorageError
            If the checkpoint cannot be restored.
        """

    def compare(self, arrays: Sequence[Candidate], is_keyframe: bool) -> None:
        """Find which arrays are trained or copies of others, and how far they moved."""

    def look_back(self, latest: Latest, arrays: Sequence[Candidate], sampling: Sampling) -> None:
        """Give arrays a sample of what they were at the save before."""

    def check(self, plan: SavePlan) -> None:
        """Raise ``ArgumentError`` if a plan cannot be coded against this reference."""

    def encode(
        self, plan: SavePlan, latest: Latest | None, effort: Effort
    ) -> Iterator[tuple[Iterable[bytes], dict[str, DecodedArray]]]:
        """Yield the chunks of each frame, and its arrays by name as they are restored."""

    def copies(self, plan: SavePlan, arrays: Mapping[str, DecodedArray]) -> dict[str, DecodedArray]:
        """Return the copies of a plan by name; `arrays` has their sources as they are restored."""

    def keep(
        self, step: int, root: bytes, arrays: Mapping[str, DecodedArray], names: Sequence[str]
    ) -> dict[str, DecodedArray]:
        """Return the arrays of a step that is committed, in the order of `names`."""

    def planning(self) -> AbstractContextManager[None]:
        """Write nothing meanwhile: no save follows."""

    def makes_room(self, error: Exception) -> bool:
        """Return whether a save that failed for want of room may have it now."""

    def warn(self) -> None:
        """Warn of what could not be kept: once."""

    def forget(self) -> None:
        """Release what is held."""


class LostParentError(ChainError):
    """There is nothing that a save of some arrays could add to."""


class OtherLatestError(ChainError):
    """The newest checkpoint is not the one in memory; nothing is wrong with its bytes."""


@dataclass(frozen=True)
class NeededFile:
    """A file that a restore of the latest checkpoint reads: its step, root and size in bytes."""

    step: int
    root: bytes
    size: int


@dataclass
class Latest:
    """The latest checkpoint of a chain, decoded.

    Parameters
    ----------
    links
        The files of the checkpoint and its parents, the keyframe first.
    manifest
        That of the checkpoint, with the tree of the state.
    arrays
        The decoded arrays by name.
    originals
        Samples of the state that was saved; ``None`` if it was saved by another process.
    """

    links: tuple[NeededFile, ...]
    manifest: Manifest
    arrays: dict[str, DecodedArray]
    originals: Samples | None = None

    @property
    def step(self) -> int:
        """The step of the checkpoint."""
        return self.links[-1].step

    @property
    def deltas(self) -> int:
        """Number of deltas that a restore of the checkpoint replays."""
        return len(self.links) - 1

    def is_unchanged(self, store: Store) -> bool:
        """Return whether the files of the checkpoint are those that they were."""
        try:
            listed = store.snapshot()
            found = [listed.root(checkpoint_name(link.step)) for link in self.links]
        except LccodecError:
            return False
        return found == [(link.root, link.size) for link in self.links]


def read_latest(store: Store, step: int, read: ReadArrays) -> Latest:
    """Return the checkpoint of a step from its files, with the arrays that `read` returns.

    Raises
    ------
    DataError, ChainError, StorageError
        If the checkpoint cannot be restored.
    """
    with open_name(store, checkpoint_name(step)) as file:
        file.check_name()
        return Latest(links_of(file), file.links[-1].manifest, read(file))


def find_parent(
    latest: Latest | None,
    store: Store,
    steps: Sequence[int],
    read: ReadArrays,
    mended: Callable[[], Store | None] = lambda: None,
) -> Latest:
    """Return the newest checkpoint, which a save of some arrays adds to.

    Parameters are those of `find_latest`.

    Raises
    ------
    ArgumentError
        If there is no checkpoint.
    LostParentError
        If the newest cannot be restored.
    """
    if not steps:
        raise ArgumentError(f"{store.path} has no step that only= could add to: save all arrays first")

    def parent() -> Latest:
        if latest is not None and latest.step == steps[-1] and latest.is_unchanged(store):
            return latest
        return read_latest(store, steps[-1], read)

    try:
        return _first_or_mended(parent, steps[-1], read, mended)
    except (DataError, ChainError, StorageError) as error:
        message = f"only= adds to step {steps[-1]}, which cannot be restored: save all arrays: {error}"
        raise LostParentError(message) from error


def find_latest(
    latest: Latest | None,
    store: Store,
    steps: Sequence[int],
    read: ReadArrays,
    mended: Callable[[], Store | None] = lambda: None,
) -> Latest | None:
    """Return the reference of a delta: the checkpoint in memory, or else the newest one.

    `steps` are those of the history, rising. `read` is as for `read_latest`. `mended` is called if
    the newest checkpoint cannot be read, and returns the store once it can.

    Returns
    -------
    Latest or None
        ``None`` if there is no checkpoint; or if the newest cannot be restored or is not the one in
        memory. Then an `LccodecWarning` names it.
    """

    def reference() -> Latest:
        if latest is None:
            return read_latest(store, steps[-1], read)
        if not steps or steps[-1] < latest.step:
            raise OtherLatestError(f"step {latest.step}, which was saved last, is missing")
        if steps[-1] > latest.step:
            raise OtherLatestError(f"step {steps[-1]} was saved by another writer")
        return latest if latest.is_unchanged(store) else _same_state(latest, store)

    if latest is None and not steps:
        return None
    try:
        return _first_or_mended(reference, steps[-1] if steps else None, read, mended)
    except (DataError, ChainError, StorageError) as error:
        step = steps[-1] if steps and latest is None else None
        why = str(error) if step is None else f"step {step} cannot be restored: {error}"
        warn(f"{store.path}: this save writes a keyframe instead of a delta: {why}")
        return None


def _first_or_mended(
    first: Callable[[], Latest],
    newest: int | None,
    read: ReadArrays,
    mended: Callable[[], Store | None],
) -> Latest:
    """Return what a function returns; if it cannot read its files, the newest step once mended."""
    try:
        return first()
    except OtherLatestError:
        raise
    except (DataError, ChainError, StorageError):
        if newest is None or (again := mended()) is None:
            raise
        return read_latest(again, newest, read)


@contextmanager
def locked_soon(store: WritableStore) -> Iterator[LockedStore | None]:
    """Hold the lock of a store, if it is free within a second; else ``None``."""
    with ExitStack() as lock:
        end = time.monotonic() + _SECONDS_TO_WAIT
        while (held := lock.enter_context(store.locked_if_free())) is None and time.monotonic() < end:
            lock.close()
            time.sleep(_SECONDS_BETWEEN_ATTEMPTS)
        yield held


@contextmanager
def held_together(latest: Latest, store: WritableStore) -> Iterator[None]:
    """Keep the files of a checkpoint where they are while a delta to it gets its name.

    The lock of the store keeps others from removing them, if it is free within a second.

    Raises
    ------
    ChainError
        If a delta to it could not be restored any more.
    """
    with locked_soon(store):
        try:
            if not latest.is_unchanged(store):
                _same_state(latest, store)
        except LccodecError as error:
            raise ChainError(f"step {latest.step} was taken away meanwhile: {error}") from error
        yield


def _same_state(latest: Latest, store: Store) -> Latest:
    """Return a checkpoint with the files that its step has now, if they have its state."""
    name = checkpoint_name(latest.step)
    with open_name(store, name) as file:
        file.check_name()
        if latest.links[-1].root not in file.links[-1].reader.roots:
            message = f"{name} is not the checkpoint that was saved last, but another one"
            raise OtherLatestError(f"step {latest.step} was replaced: {message}")
        return replace(latest, links=links_of(file))


def links_of(file: OpenCheckpoint) -> tuple[NeededFile, ...]:
    """Return the files that a checkpoint needs, its own last."""
    return tuple(
        NeededFile(link.manifest.step or 0, link.reader.root, link.reader.file_size) for link in file.links
    )


def latest_record(store: Store) -> tuple[Record | None, str | None]:
    """Return the record of the newest readable checkpoint, or what is wrong with the newest.

    Returns
    -------
    tuple
        The record and ``None``. If no checkpoint can be read, ``None`` and what is wrong. If there
        is no checkpoint, ``None`` twice.
    """
    problem = None
    for name in reversed(store.steps().values()):
        try:
            with store.open(name) as reader:
                return read_record(reader.manifest.policy), None
        except (DataError, StorageError) as error:
            problem = problem or str(error)
        except ArgumentError as error:
            return None, f"{name}: {error}"
    return None, problem
