"""What the next delta is taken against: the latest checkpoint of a chain, decoded or as hashes.

If the files of the reference have changed since, a delta to it could never be restored. So before
each delta, the roots and the sizes of these files are compared with what they were. That takes one
small read of each file. A checkpoint that took the place of the latest, with the same state, is as
good. Any other change makes the next checkpoint a keyframe. They are compared again right before
the delta gets its name, while nobody may remove them.

Samples of the state before say how far arrays moved. After a restart they come from the exact file,
if it is of that save; or else from the checkpoint as decoded, where its figures say that nothing
was lost. `HashReference` keeps hashes alone (:mod:`lccodec.chain.save.hash_reference`).

Source: SPEC 9 (LCC-CHN-02, LCC-CHN-10).
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np

from ...constants import EXACT_NAME
from ...container.manifest import Manifest
from ...element_types import Array
from ...entropy.stream_writer import Piece
from ...errors import ArgumentError, ChainError, DataError, LccodecError, StorageError, warn
from ...frame.content import MAX_SHARED_COMPONENTS
from ...frame.encode import Effort
from ...frame.header import FrameHeader
from ...parallel import slices
from ...policy.policy import Candidate
from ...policy.values import mark_copies, mark_followers, mark_trained
from ...workers.crew import Crew
from ..read.checkpoint import OpenCheckpoint, open_name
from ..read.replay import DecodedArray, Decoding, Ranges, replay
from ..store.store import LockedStore, Store, WritableStore, checkpoint_name
from .encode import decoded_copies, encode_plan
from .measurement import PIECE, Drawn, Samples, Sampling, add_past
from .plan import SavePlan

#: Returns the arrays of an open checkpoint by name, as `Latest` holds them.
ReadArrays: TypeAlias = Callable[[OpenCheckpoint], dict[str, DecodedArray]]

#: After this, a save goes on without the lock: a prune that rewrites may hold it for minutes. Such
#: a prune looks again what is needed before it removes anything.
_SECONDS_TO_WAIT: Final = 1.0
_SECONDS_BETWEEN_ATTEMPTS: Final = 0.01


class Reference(ABC):
    """What a saver keeps of the newest checkpoint, and how a save is coded against it."""

    #: Whether the arrays of `Latest` have the values, not only hashes of them.
    has_values: bool

    @abstractmethod
    def read(self, file: OpenCheckpoint) -> dict[str, DecodedArray]:
        """Return the arrays of a checkpoint by name, as `Latest` holds them.

        Raises ``DataError``, ``ChainError`` or ``StorageError`` if the checkpoint cannot be
        restored.
        """

    @abstractmethod
    def compare(self, arrays: Sequence[Candidate], before: Latest | None, is_keyframe: bool) -> None:
        """Find which arrays are trained or copies of others, and how far they moved.

        `before` is the checkpoint that has their references.
        """

    def look_back(  # noqa: B027 - what loses nothing does not ask how its arrays moved before
        self, latest: Latest, arrays: Sequence[Candidate], sampling: Sampling
    ) -> None:
        """Give arrays a sample of what they were at the save before."""

    def check(self, plan: SavePlan) -> None:  # noqa: B027 - nothing, as a rule
        """Raise ``ArgumentError`` if a plan cannot be coded against this reference."""

    @abstractmethod
    def encode(
        self, plan: SavePlan, latest: Latest | None, effort: Effort
    ) -> Iterator[tuple[Iterable[Piece], dict[str, DecodedArray]]]:
        """Yield the chunks of each frame, and its arrays by name as they are restored."""

    def copies(self, plan: SavePlan, arrays: Mapping[str, DecodedArray]) -> dict[str, DecodedArray]:  # noqa: ARG002
        """Return the copies of a plan by name; `arrays` has their sources as they are restored.

        Nothing is returned where `keep` has the copies with the others.
        """
        return {}

    @abstractmethod
    def keep(
        self, step: int, root: bytes, arrays: Mapping[str, DecodedArray], names: Sequence[str]
    ) -> dict[str, DecodedArray]:
        """Return the arrays of a step that is committed, in the order of `names`."""

    def planning(self) -> AbstractContextManager[None]:
        """Write nothing meanwhile: no save follows."""
        return nullcontext()

    def makes_room(self, error: Exception) -> bool:  # noqa: ARG002
        """Return whether a save that failed for want of room may have it now."""
        return False

    def warn(self) -> None:  # noqa: B027 - nothing, as a rule
        """Warn of what could not be kept: once."""

    def forget(self) -> None:  # noqa: B027 - nothing, as a rule
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
    """The latest checkpoint of a chain, decoded."""

    links: tuple[NeededFile, ...]  # the files of the checkpoint and its parents, the keyframe first
    manifest: Manifest  # that of the checkpoint, with the tree of the state
    arrays: dict[str, DecodedArray]  # the decoded arrays by name
    # Samples of the state that was saved; ``None`` if it was saved by another process.
    originals: Samples | None = None

    @property
    def step(self) -> int:
        """The step of the checkpoint."""
        return self.links[-1].step

    @property
    def deltas(self) -> int:
        """Number of deltas that a restore of the checkpoint replays."""
        return len(self.links) - 1

    def copied(self) -> Latest:
        """Return it with arrays of its own: deltas overwrite those of the latest checkpoint."""
        own = {name: replace(array, bits=array.bits.copy(), start=0) for name, array in self.arrays.items()}
        return replace(self, arrays=own)

    def is_unchanged(self, store: Store) -> bool:
        """Return whether the files of the checkpoint are those that they were."""
        try:
            listed = store.snapshot()
            for link in self.links:
                if listed.root(checkpoint_name(link.step)) != (link.root, link.size):
                    return False
        except LccodecError:
            return False
        return True


def read_latest(store: Store, step: int, read: ReadArrays) -> Latest:
    """Return the checkpoint of a step from its files, with the arrays that `read` returns.

    Raises ``DataError``, ``ChainError`` or ``StorageError`` if the checkpoint cannot be restored.
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

    Parameters are those of `find_latest`. Raises ``ArgumentError`` if there is no checkpoint.
    Raises ``LostParentError`` if the newest cannot be restored.
    """
    if not steps:
        raise ArgumentError(f"{store.path} has no step that only= could add to: save all arrays first")

    if latest is not None and latest.step == steps[-1] and latest.is_unchanged(store):
        return latest
    try:
        return _or_mended(partial(read_latest, store, steps[-1], read), steps[-1], read, mended)
    except (DataError, ChainError, StorageError) as error:
        message = f"only= adds to step {steps[-1]}, which cannot be restored: save all arrays: {error}"
        raise LostParentError(message) from error


def find_latest(
    latest: Latest | None,
    store: Store,
    steps: Sequence[int],
    read: ReadArrays,
    mended: Callable[[], Store | None] = lambda: None,
    *,
    is_needed: bool = False,
) -> Latest | None:
    """Return the reference of a delta: the checkpoint in memory, or else the newest one.

    `steps` are those of the history, rising. `read` is as for `read_latest`. `mended` is called if
    the newest checkpoint cannot be read, and returns the store once it can. Returns ``None`` if
    there is no checkpoint; or if the newest cannot be restored or is not the one in memory. Then an
    `LccodecWarning` names it. If it `is_needed`, returns and raises as `find_parent` instead.
    """
    if is_needed:
        return find_parent(latest, store, steps, read, mended)
    if latest is None and not steps:
        return None
    try:
        if latest is None:
            return _or_mended(partial(read_latest, store, steps[-1], read), steps[-1], read, mended)
        if not steps or steps[-1] < latest.step:
            raise OtherLatestError(f"step {latest.step}, which was saved last, is missing")
        if steps[-1] > latest.step:
            raise OtherLatestError(f"step {steps[-1]} was saved by another writer")
        if latest.is_unchanged(store):
            return latest
        return _or_mended(partial(_same_state, latest, store), steps[-1], read, mended)
    except (DataError, ChainError, StorageError) as error:
        why = str(error) if latest is not None else f"step {steps[-1]} cannot be restored: {error}"
        warn(f"{store.path}: this save writes a keyframe instead of a delta: {why}")
        return None


def _or_mended(
    first: Callable[[], Latest], newest: int, read: ReadArrays, mended: Callable[[], Store | None]
) -> Latest:
    """Return what a function returns; if it cannot read its files, the newest step once mended."""
    try:
        return first()
    except OtherLatestError:
        raise
    except (DataError, ChainError, StorageError):
        if (again := mended()) is None:
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

    The lock of the store keeps others from removing them, if it is free within a second. Raises
    ``ChainError`` if a delta to it could not be restored any more.
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


#: Returns a 1-D array with undefined values, as `lccodec.workers.crew.Crew.empty`.
Empty: TypeAlias = Callable[[int, np.dtype[Any]], Array]

#: Arrays of fewer bytes are copied to where all workers see them.
_MIN_OWN_BYTES: Final = 1 << 20


class ValueReference(Reference):
    """The newest checkpoint decoded, in memory. Coding overwrites it with the new checkpoint."""

    has_values = True

    def __init__(self, store: Store, crew: Crew) -> None:
        self._store, self._crew = store, crew

    def read(self, file: OpenCheckpoint) -> dict[str, DecodedArray]:
        """Return the arrays of a checkpoint by name, decoded to where all workers see them."""
        return read_values(self._crew.empty, file)

    def compare(self, arrays: Sequence[Candidate], before: Latest | None, is_keyframe: bool) -> None:  # noqa: ARG002
        """Find which arrays are trained, follow others, are equal to them, or their roundings."""
        mark_trained(arrays)
        mark_copies(arrays)
        if before is None or before.manifest.figures is None:
            mark_followers(arrays)
        else:
            errors = before.manifest.figures.read("error", len(before.arrays))
            mark_followers(arrays, dict(zip(before.arrays, errors.tolist(), strict=True)))

    def look_back(self, latest: Latest, arrays: Sequence[Candidate], sampling: Sampling) -> None:
        """Give the weights of the next state a sample of what they were at the save before."""
        known = latest.originals
        if known is not None and known.sampling is sampling:
            add_past(arrays, sampling, known)
            return
        # Of another process, or sampled elsewhere: from the files, which are not yet replaced.
        if known is None or (latest.manifest.exact is not None and _are_elsewhere(known, arrays, sampling)):
            known = _originals(self._store, latest, arrays, sampling)
        else:  # an array may have had another form at the save before an end of a group
            forms = {c.name: (c.kind, c.shape) for c in arrays if c.reference is not None}
            if others := {n for n, a in latest.arrays.items() if forms.get(n, a.form) != a.form}:
                known = known.of(latest.arrays.keys() - others)
        latest.originals = known
        add_past(arrays, sampling, known)

    def encode(
        self, plan: SavePlan, latest: Latest | None, effort: Effort
    ) -> Iterator[tuple[Iterable[Piece], dict[str, DecodedArray]]]:
        """Yield the chunks of each frame, and its decoded arrays by name.

        They take the memory of the arrays before.
        """
        return encode_plan(plan, {} if latest is None else latest.arrays, effort, self._crew)

    def copies(self, plan: SavePlan, arrays: Mapping[str, DecodedArray]) -> dict[str, DecodedArray]:
        """Return the copies of a plan as decoded, by name."""
        return decoded_copies(plan, arrays)

    def keep(
        self,
        step: int,  # noqa: ARG002
        root: bytes,  # noqa: ARG002
        arrays: Mapping[str, DecodedArray],
        names: Sequence[str],
    ) -> dict[str, DecodedArray]:
        """Return the arrays of a step that is committed, in the order of `names`."""
        return {name: arrays[name] for name in names}


def read_values(empty: Empty, file: OpenCheckpoint) -> dict[str, DecodedArray]:
    """Return the arrays of a checkpoint by name, decoded into memory that `empty` returns."""

    def decode(file: OpenCheckpoint, indices: list[int]) -> Decoding:
        # Large arrays are decoded to where they stay: with a copy there would be two references.
        heads, names, into = file.heads(), file.links[-1].index_names, {}
        for index in indices:
            header = heads[names[index]].header
            if not header.run and header.nbytes >= _MIN_OWN_BYTES:
                into[index] = empty(header.components, header.kind.bits)
        return replay(file.links, indices, file.together, into)

    file.decode_by(decode)
    return dict(zip(file.links[-1].index_names, file.decoded(), strict=True))


def _are_elsewhere(before: Samples, arrays: Sequence[Candidate], sampling: Sampling) -> bool:
    """Return whether samples lie elsewhere now, as the state has got or lost large arrays."""
    for c, distance in zip(arrays, sampling.distances, strict=True):
        own = before.even.get(c.name) if c.reference is not None and not c.inherited else None
        if own is not None and own.size != -(-c.bits.size // distance):
            return True
    return False


def _originals(store: Store, latest: Latest, arrays: Sequence[Candidate], sampling: Sampling) -> Samples:
    """Return samples of the state that the latest checkpoint was made of.

    An array that is not known has no sample.
    """
    # Those with a reference have its type and shape.
    wanted = {c.name: i for i, c in enumerate(arrays) if c.kind.is_float and c.reference is not None}
    try:
        with store.open(checkpoint_name(latest.step)) as reader:
            manifest = reader.manifest
        if manifest.exact is not None:
            with OpenCheckpoint(store.open(EXACT_NAME), None) as file:
                if file.links[-1].reader.root == manifest.exact:
                    return _collected(_of_exact_file(file, arrays, wanted, sampling))
    except LccodecError:  # missing or damaged: a restore says so
        return Samples()
    if manifest.figures is None or len(manifest.arrays) != len(latest.arrays):
        return Samples()
    errors = manifest.figures.read("error", len(latest.arrays)).tolist()
    lossless = [
        name for name, error in zip(latest.arrays, errors, strict=True) if error == 0 and name in wanted
    ]
    return _collected((n, *sampling.taken(wanted[n], latest.arrays[n])) for n in lossless)


def _collected(found: Iterable[tuple[str, Array, Drawn | None]]) -> Samples:
    even: list[tuple[str, Array]] = []
    drawn: dict[str, Drawn] = {}
    for name, bits, own in found:
        even.append((name, bits))
        if own is not None:
            drawn[name] = own
    return Samples.of_arrays(even, drawn)


def _of_exact_file(
    file: OpenCheckpoint, arrays: Sequence[Candidate], wanted: Mapping[str, int], sampling: Sampling
) -> Iterator[tuple[str, Array, Drawn | None]]:
    """Yield samples of arrays. A large array is read piece by piece, not held whole."""
    link, together = file.links[-1], []
    for name, index in wanted.items():
        c, place = arrays[index], link.names.get(name)
        ranges = (
            Ranges.of(file.links, name) if place is not None and c.bits.size > MAX_SHARED_COMPONENTS else None
        )
        if ranges is not None and (ranges.header.kind, ranges.header.shapes) == (c.kind, (c.shape,)):
            ranges.verify()
            yield name, *_sampled(sampling, index, partial(_parts, ranges), ranges.header)
        elif place is not None:
            together.append(place)
    for place, array in file.decode_each(together):
        name = link.index_names[place]
        c = arrays[wanted[name]]
        if (array.kind, array.shape) == (c.kind, c.shape):
            yield name, *sampling.taken(wanted[name], array)


def _parts(ranges: Ranges) -> Iterator[Array]:
    """Yield the components of an array, part by part."""
    size, most = ranges.header.components, max(ranges.block, PIECE)
    for part in slices(size, most):
        piece = np.empty(min(most, size - part.start), ranges.header.kind.bits)
        ranges.decode(slice(part.start, part.start + piece.size), piece, ())
        yield piece


def _sampled(
    sampling: Sampling, index: int, parts: Callable[[], Iterator[Array]], header: FrameHeader
) -> tuple[Array, Drawn | None]:
    """Return all that is sampled of an array that comes in parts."""
    distance, start = sampling.distances[index], 0
    found = []
    for bits in parts():
        found.append(bits[-start % distance :: distance].copy())
        start += bits.size
    even = np.concatenate(found)
    if index not in sampling.drawn:
        return even, None
    return even, Drawn.of_parts(even, parts(), header.components, header.kind, distance)
