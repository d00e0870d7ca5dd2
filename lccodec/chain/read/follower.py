"""A reader that keeps a state at the newest step of a chain, while others save to it.

`Follower` waits, hands out updates and can be closed by another thread. `Watch` finds which step
comes next, the way to it, and all that differs then. It decides by names, steps and roots:

- The newest step is taken. Deltas since the held state are read in one pass: no state between is
  made. If the chain does not go on from the held state (its checkpoint was pruned, or the chain was
  rolled back), the step is decoded from the nearest keyframe. Either way only the values that
  differ are new.
- A step that was rolled back is followed back, once the newest step is below the held one.
- A checkpoint that was written anew with the same state is not new. One with other values
  (LCC-INT-06), or another one of the same step, is.
- Of a checkpoint that is damaged it is said once that it cannot be read. The held state stays, or
  goes on to the newest step between that can be read.

Source: SPEC 9.
"""

from __future__ import annotations

import errno
import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, Protocol, Self, TypeAlias

import numpy as np

from ...constants import EXACT_NAME
from ...container.checkpoint import CheckpointReader
from ...container.system import checked_place
from ...container.tree import array_names, flatten, select, unflatten
from ...element_types import Array, check_dtype, components
from ...errors import (
    ArgumentError,
    ChainError,
    ChecksumError,
    DataError,
    LccodecError,
    StorageError,
    as_number,
    warn,
)
from ...parallel import member_count
from ...policy.record import read_record
from ..store.directory import open_store
from ..store.store import Store, check_name, checkpoint_name, is_checkpoint, step_index
from .checkpoint import checked_names, find_exact, kept, open_name, tried_again
from .follow_crew import Tellers
from .followed_state import (
    ArrayChange,
    CancelledError,
    FollowedState,
    Prepared,
    check_target,
    held_from,
    write_into,
)
from .links import UNBOUNDED, Bounds, Link, check_own, check_step, open_links, open_parent
from .replay import DecodedArray


class Lag(NamedTuple):
    """How far a follower is behind: the steps after its own, and the bytes of their files."""

    steps: int
    nbytes: int


class Watching(Protocol):
    """What a follower needs of what it follows: the state that is held, and what comes after it."""

    @property
    def place(self) -> object:
        """What messages call it."""

    @property
    def step(self) -> int | None:
        """The held step; ``None`` if there is no state yet."""

    def next(self, wanted: Callable[[], bool]) -> Any:
        """Prepare the way to a new state; it has the `update` that leads there, or ``None``.

        ``None`` if there is no new state. `wanted` is asked from time to time whether to go on.
        """

    def commit(self, way: Any) -> None:
        """Go a way that was prepared. Doing it again does nothing."""

    def refused(self) -> Mapping[int, str]:
        """Return why newer steps cannot be read, by step."""

    def lag(self) -> Lag:
        """Return how far the held state is behind."""

    def state(self, dtype: str | None) -> Any:
        """Return a copy of the held state."""

    def names(self) -> list[str]:
        """Return the paths of the arrays of the held state, in the order of the state."""

    def array(self, path: str) -> DecodedArray | None:
        """Return an array of the held state; it must not be changed."""

    def close(self) -> None:
        """Release what is held."""


def open_since(reader: CheckpointReader, base: Link, store: Store, opened: ExitStack) -> list[Link] | None:
    """Return the links behind one whose state is at hand, up to a checkpoint, parents first.

    Their files are left to `opened`. ``None`` if the checkpoint does not go on from that state;
    then it is to be opened with all that it needs.

    A checkpoint that took the place of `base` has the same state (LCC-CHN-10). But a settled one
    may have other values (LCC-INT-06), and what takes its place has these. So after a policy that
    may lose something, only the root of `base` itself counts.
    """
    readers = [opened.enter_context(reader)]
    while (parent := readers[-1].manifest.parent) is not None:
        child = readers[-1]
        if child.manifest.later is not None or parent.step < (base.manifest.step or 0):
            return None
        check_step(child)
        found = None
        if parent.step != base.manifest.step or parent.root != base.reader.root:
            found = opened.enter_context(open_parent(child, parent, store))
            found.rest()
        if found is None or is_state_of(found, base.reader):
            links = [base]
            for each in reversed(readers):
                links.append(Link(each, links[-1]))
            return links[1:]
        if parent.step == base.manifest.step:
            return None
        readers.append(found)
    return None


def is_state_of(reader: CheckpointReader, known: CheckpointReader) -> bool:
    """Return whether a checkpoint surely has the state of another one: it is it, or replaces it."""
    if known.root not in reader.roots:
        return False
    try:
        return reader.root == known.root or not read_record(reader.manifest.policy).policy.lossy
    except ArgumentError:  # written by another version or program
        return False


class Patch(NamedTuple):
    """What is new in one array.

    Parameters
    ----------
    name
        Its path in the state.
    dtype, shape
        Type and shape of the whole array.
    places
        Flat places of the new values in the array, in C order: int64, rising. ``None`` if `values`
        are those of the whole array.
    values
        The new values, 1-D.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    places: Array | None
    values: Array


@dataclass(eq=False)
class Update:
    """What is new since the last update of a follower. It is valid until the next is asked for.

    Parameters
    ----------
    step
        The step of the new state.
    base
        The step that the follower had before; ``None`` if it had nothing. It is above `step` where
        the chain was rolled back, and equal to it where the step was saved anew.
    names
        The arrays with new values, in the order of the state. An array in two places has two names.
    removed
        Arrays that the state before had, and this one has not.
    metadata
        The strings that were stored with the state.
    steps
        How many checkpoints were read for it: 1 for the next step.
    bytes_read
        Bytes of their files.
    root, base_root
        What identifies the checkpoints of both states, hexadecimal; see `CheckpointInfo.root`.
    """

    step: int
    base: int | None
    names: tuple[str, ...]
    removed: tuple[str, ...]
    metadata: dict[str, str]
    steps: int
    bytes_read: int
    root: str
    base_root: str | None
    _changes: Mapping[str, ArrayChange] | None
    _process: int = field(default_factory=os.getpid)

    def __repr__(self) -> str:
        return f"Update(step={self.step}, base={self.base}, {len(self.names)} arrays)"

    @property
    def nbytes(self) -> int:
        """Bytes of the new values: what `apply_to` copies."""
        return sum(change.nbytes for change in self._valid().values())

    def apply_to(self, arrays: Any) -> None:
        """Write the new values into the memory of arrays that hold the state before.

        It is the one short step during which nobody may read the arrays. All of them are checked
        before the first is written. It may be repeated, for example after an interrupt.

        Parameters
        ----------
        arrays
            NumPy arrays by name, or a nested state of them. It may have more than the update.

        Raises
        ------
        ArgumentError
            If an array is missing, of another type or shape, or cannot be written to, or if the
            follower has gone on. Nothing is written then.
        """
        changes, found = self._valid(), arrays_by_name(arrays)
        missing = [name for name in changes if name not in found]
        if missing:
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            raise ArgumentError(f"the arrays lack {missing[0]!r}{more}, which step {self.step} has anew")
        targets = [(check_target(name, each, found[name]), each) for name, each in changes.items()]
        for array, change in targets:
            write_into(array, change)

    def patches(self, dtype: Literal["float32", "bits"] | None = None) -> Iterator[Patch]:
        """Yield what is new array by array; `dtype` says how bfloat16 is returned.

        The values of a whole array are memory of the follower, and must not be changed.

        Raises
        ------
        ArgumentError
            If the follower has gone on to another step, or is closed.
        """
        for name, each in self._valid().items():
            change = each.kept()
            yield Patch(name, change.kind.name, change.shape, change.places, change.values(dtype))

    def _valid(self) -> Mapping[str, ArrayChange]:
        """Return what is new by name; raise ``ArgumentError`` if the follower has gone on."""
        if self._changes is None:
            raise ArgumentError(f"the update to step {self.step} is not the follower's last one any more")
        if self._process != os.getpid() and any(each.is_shared for each in self._changes.values()):
            told = "is in memory of the process that this one was forked from: ask for the next one"
            raise ArgumentError(f"the update to step {self.step} {told}")
        return self._changes

    def expire(self) -> None:
        """Release the new values: the follower goes on, and its memory gets other ones."""
        self._changes = None


def arrays_by_name(arrays: Any) -> Mapping[str, Any]:
    """Return arrays by their names in the state, each place with a name of its own."""
    flat = flatten(arrays)
    found: dict[str, Any] = {name: flat.arrays[index] for name, index in array_names(flat.tree).items()}
    if isinstance(arrays, Mapping):  # its keys may be names with escapes, as those of `found` are
        found.update((name, value) for name, value in arrays.items() if isinstance(value, np.ndarray))
    return found


#: What a checkpoint is refused for that was made against another state than the one held.
_OF_ANOTHER_REFERENCE: Final = ("LCC-FRM-09", "LCC-STR-09")

#: The root and the arrays of a state that is in memory: nothing of it is decoded. The arrays must
#: not change until the way there is gone.
AtHand: TypeAlias = tuple[bytes, Mapping[str, DecodedArray]]

#: What tells the files of a step from others that take their names.
_Seen: TypeAlias = tuple[int, tuple[int, ...], tuple[int, ...]]


class Way(NamedTuple):
    """The way to another state: an update, unless nothing is new in it, and what leads there."""

    update: Update | None
    prepared: Prepared
    seen: _Seen


def glance(store: Store, step: int | None = None) -> object:
    """Return what changes when a step comes, goes or is saved anew; ``None`` if that is not known.

    Files get their names by renames, so another file of a name has another identity. No byte of a
    file is read. `step` is the one that matters; by default the newest.
    """
    listed = store.snapshot()
    names = listed.names()
    name = None if step is None else checkpoint_name(step)
    if name is None:  # longer names are those of later steps
        name = max(filter(is_checkpoint, names), key=lambda each: (len(each), each), default=None)
    files = [each for each in (name, EXACT_NAME) if each is not None and each in names]
    try:
        return names, [listed.identity(each) for each in files]
    except StorageError:  # taken away meanwhile
        return None


class Watch:
    """The state of a chain that is held, and what comes after it.

    The step `pinned` is the one to be followed, ``None`` for the newest; it may be set to another
    one. `keys` name what is followed, ``None`` all. With `exact` the exact file is preferred. A
    step that asks for more than the `bounds` is refused, as one that is damaged.
    """

    def __init__(
        self,
        store: Store,
        pinned: int | None,
        keys: Sequence[str] | None,
        exact: bool,
        members: int = 1,
        bounds: Bounds = UNBOUNDED,
    ) -> None:
        self._store, self.pinned, self._keys, self._exact = store, pinned, keys, exact
        self._bounds = bounds
        self.at_hand: AtHand | None = None
        self._refused: dict[_Seen, str] = {}  # files that cannot be read, and why
        self._unread: set[_Seen] = set()  # those of them that may be read later
        self._wanted: Callable[[], bool] = lambda: True
        self._held, self._tellers = FollowedState(), Tellers(members)
        self._seen: _Seen | None = None  # the files of the held state
        self._idle: object = None  # what a look saw that found nothing new

    @property
    def place(self) -> object:
        """What messages call the chain."""
        return self._store.path

    @property
    def link(self) -> Link | None:
        """The checkpoint of the held state, closed; ``None`` if there is no state yet."""
        self._leave_copied()
        return self._held.link

    @property
    def step(self) -> int | None:
        """The held step; ``None`` if there is no state yet."""
        return None if self.link is None else self.link.manifest.step

    def start(self, step: int | None, arrays: Mapping[str, Array], root: str | None = None) -> None:
        """Hold arrays at hand; errors and parameters are those of `held_from`.

        If no step is given, the next state is read whole, and still only what differs is new.
        """
        if step is None:
            self._held = FollowedState()
            self._held.arrays = {
                name: DecodedArray(components(array)[0], array.shape, components(array)[1])
                for name, array in arrays.items()
            }
        else:
            self._held = held_from(self._store, step, arrays, self._names, root)
        self._idle = None

    def next(self, wanted: Callable[[], bool] = lambda: True) -> Way | None:
        """Prepare the way to the newest step that can be read, if it is not the held one.

        Raises as :meth:`lccodec.Follower.prepare`. The held state is as before.
        """
        self._wanted = wanted
        self._leave_copied()
        seen = self.pinned, glance(self._store, self.pinned)
        if seen[1] is not None and seen == self._idle:
            return None
        self._idle = None
        way = self._next()
        if way is None and not self._refused and wanted():  # older files may be mended
            self._idle = seen
        return way

    def _next(self) -> Way | None:
        """Do as `next`, whatever the last look saw."""
        steps = self._store.steps()
        for step in self._candidates(list(steps)):
            try:
                seen = self._look_at(step, steps[step])
            except StorageError as error:
                if error.errno != errno.ENOENT:
                    raise
                return None  # it was taken away meanwhile
            if seen == self._seen:
                return None
            if seen in self._refused and seen not in self._unread:
                continue
            try:
                found = self._prepare(step, steps[step])
            except CancelledError:
                return None
            except (DataError, ChainError, StorageError) as error:
                if not self._store.has(steps[step]):
                    return None
                if self.pinned is not None:
                    raise
                self._refuse(seen, error)
                continue
            self._refused = {each: why for each, why in self._refused.items() if each[0] > step}
            self._unread = set(self._refused)  # they may have needed what could not be read before
            if found is not None:
                return Way(*found, seen)
            self._seen = seen
            return None
        return None

    def commit(self, way: Way) -> None:
        """Go a way that was prepared. Doing it again does nothing."""
        self._held.commit(way.prepared, self._tellers)
        if way.update is not None:  # or the one before is still valid
            self._tellers.valid = way.prepared.room
        self._tellers.keep(self._held.arrays)
        self._seen, self._idle = way.seen, None

    def names(self) -> list[str]:
        """Return the paths of the arrays of the held state, in the order of the state."""
        if (link := self.link) is None:
            return []
        followed = self._names(link)
        return [path for path, index in link.paths.items() if link.index_names[index] in followed]

    def array(self, path: str) -> DecodedArray | None:
        """Return an array of the held state by its path; it must not be changed."""
        link = self.link
        index = None if link is None else link.paths.get(path)
        return None if link is None or index is None else self._held.arrays.get(link.index_names[index])

    def refused(self) -> dict[int, str]:
        """Return why newer steps than the held one cannot be read, by step."""
        return {seen[0]: reason for seen, reason in self._refused.items()}

    def lag(self) -> Lag:
        """Return the steps after the held one, and the bytes of their files."""
        own, found = -1 if self.step is None else self.step, 0
        later = [name for step, name in self._store.steps().items() if step > own]
        for name in later:
            try:
                found += self._store.size([name])
            except StorageError as error:
                if error.errno != errno.ENOENT:  # it was pruned meanwhile
                    raise
        return Lag(len(later), found)

    def close(self) -> None:
        """Release the memory of the state, and the store."""
        self._held, self._seen, self._idle = FollowedState(), None, None
        self._tellers.close()
        self._store.close()

    def state(self, dtype: str | None) -> Any:
        """Return a copy of the held state; with keys, a dict of these leaves by name."""
        if (link := self.link) is None:
            return None
        manifest, arrays = link.manifest, self._held.arrays
        if self._keys is None:
            copies = [arrays[name].array(dtype).copy() for name in link.index_names]
            return unflatten(manifest.tree, copies, manifest.scalars)
        chosen, scalars = select(manifest.tree, manifest.scalars, self._keys)
        names = {index: link.index_names[index] for index in chosen.values()}
        by_index = {index: arrays[name].array(dtype).copy() for index, name in names.items()}
        return {**{name: by_index[index] for name, index in chosen.items()}, **scalars}

    def _leave_copied(self) -> None:
        """Forget a state that a fork has copied, if the other process goes on in its memory."""
        if self._tellers.is_copied():
            self._held, self._seen, self._idle = FollowedState(), None, None
            self._tellers.close()

    def _candidates(self, steps: list[int]) -> list[int]:
        """Return the steps to be tried, the best one first."""
        if self.pinned is not None:
            return [step for step in steps if step == self.pinned]
        own = -1 if self.step is None else self.step
        # Only a rollback leads back, not a newest step that is damaged.
        least = own if steps and steps[-1] >= own else 0
        return [step for step in reversed(steps) if step >= least]

    def _look_at(self, step: int, name: str) -> _Seen:
        beside = EXACT_NAME if self._exact and self._store.has(EXACT_NAME) else name
        return step, self._store.identity(name), self._store.identity(beside)

    def _refuse(self, seen: _Seen, error: LccodecError) -> None:
        """Say that a step cannot be read, once. What the system cannot read is tried again."""
        said, self._refused[seen] = self._refused.get(seen), str(error)
        self._unread.discard(seen)
        if isinstance(error, StorageError):
            self._unread.add(seen)
        if said == str(error):
            return
        stays = "there is no state yet" if self.step is None else f"the state stays at step {self.step}"
        warn(f"{self._store.path}: step {seen[0]} cannot be read, and {stays} or goes on without it: {error}")

    def _prepare(self, step: int, name: str) -> tuple[Update | None, Prepared] | None:
        """Prepare the way to a step; ``None`` if its state is the held one."""
        if self._exact:
            file, problem = find_exact(self._store, step)
            if file is not None:
                kept(file, self._bounds)
                try:
                    with file:
                        return self._way(list(file.links), based=False)
                except (DataError, StorageError) as error:
                    problem = f"the exact file is damaged: {error}"
                    if name == EXACT_NAME:
                        raise
            if problem is not None:
                warn(f"{self._store.path}: {problem}; step {step} is followed as the history has it")
        return tried_again(lambda: self._of_history(name))

    def _of_history(self, name: str) -> tuple[Update | None, Prepared] | None:
        if self._bounds != UNBOUNDED:
            kept(open_name(self._store, name), self._bounds).close()
        with ExitStack() as opened:
            reader = opened.enter_context(self._store.open(name))
            check_name(name, reader.manifest.step)
            held = self._held.link
            if held is not None:
                if is_state_of(reader, held.reader) and reader.manifest.step == self.step:
                    held.reader = reader  # later deltas name this root
                    return None
                links = open_since(reader, held, self._store, opened)
                if links is not None and self._held.reaches(links, self._names(links[-1])):
                    try:
                        return self._way(links, based=True)
                    except ChecksumError as error:
                        if error.rule not in _OF_ANOTHER_REFERENCE:
                            raise
            return self._way(open_links(reader, self._store, opened), based=False)

    def _way(self, links: list[Link], *, based: bool) -> tuple[Update | None, Prepared] | None:
        """Prepare the way to the last of some links."""
        last, before = links[-1], self._held.link
        check_own(last.manifest.metadata, self._store.path)
        if before is not None and last.reader.root == before.reader.root:
            return None
        names = self._names(last)
        root, at_hand = (b"", None) if self.at_hand is None else self.at_hand
        known = at_hand if root == last.reader.root else None
        prepared = self._held.prepare(links, names, based, self._wanted, self._tellers, known)
        places = {path: last.index_names[index] for path, index in last.paths.items()}
        changes = {
            path: prepared.changes[name]
            for path, name in places.items()
            if name in names and name in prepared.changes
        }
        removed = () if before is None else tuple(path for path in before.paths if path not in last.paths)
        if before is not None and not changes and _tells(last) == _tells(before):
            return None, prepared  # who has the state before has this one, too
        update = Update(
            step=last.manifest.step or 0,
            base=self.step,
            names=tuple(changes),
            removed=removed,
            metadata=dict(last.manifest.metadata),
            steps=len(links),
            bytes_read=sum(link.reader.file_size for link in links),
            root=last.reader.root.hex(),
            base_root=None if before is None else before.reader.root.hex(),
            _changes=changes,
        )
        return update, prepared

    def _names(self, link: Link) -> set[str]:
        """Return which arrays of a link are followed."""
        if self._keys is None:
            return set(link.index_names)
        chosen, _ = select(link.manifest.tree, link.manifest.scalars, self._keys)
        return {link.index_names[index] for index in chosen.values()}


def _tells(link: Link) -> str:
    """Return all of a state but its arrays."""
    told = link.manifest
    return json.dumps([told.step, told.tree, told.scalars, dict(told.metadata)])


#: Seconds between two looks at the names in a store.
POLL_SECONDS: Final = 0.25


class Follower(Iterator[Update]):
    """A state that is kept at the newest step of a chain; :func:`lccodec.follow` returns it.

    Iterating over it yields updates, and ends when the follower is closed, or when no update came
    within `timeout`. It may then be iterated over again. Another thread may close it. It is a
    context manager.

    Each update goes on from the one before. So all of them are to be applied to the same arrays,
    in their order.
    """

    def __init__(self, watch: Watching, *, once: bool, poll: float, timeout: float | None) -> None:
        self._watch, self._once, self._poll, self._timeout = watch, once, poll, timeout
        self._closed = threading.Event()
        self._ready: Any = None  # the way to the next state
        self._begun: Any = None  # the same while it is gone; an interrupt may leave it half gone
        self._last: Update | None = None
        self._looking, self._committing = threading.Lock(), threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the iteration, in whatever thread it runs, and release the memory of the state.

        An update that is being prepared is given up. Closing again does nothing.
        """
        self._closed.set()
        with self._looking, self._committing:
            self._expire()
            self._watch.close()

    @property
    def step(self) -> int | None:
        """The step of the held state: that of the last update; ``None`` before the first."""
        return self._watch.step

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the arrays of the held state, each of which `get` returns."""
        with self._committing:
            self._check_open()
            self._go_on()
            return tuple(self._watch.names())

    @property
    def refused(self) -> dict[int, str]:
        """Why newer steps than the held one cannot be read, by step; empty if all is well."""
        return dict(self._watch.refused())

    @property
    def lag(self) -> Lag:
        """How far the held state is behind the chain as it is now. It reads names and sizes."""
        self._check_open()
        return self._watch.lag()

    def __next__(self) -> Update:
        if self._closed.is_set() or (self._once and self._last is not None):
            raise StopIteration
        update = self.prepare(self._timeout)
        if update is None:
            raise StopIteration
        return update

    def prepare(self, timeout: float | None = None) -> Update | None:
        """Return the next update as soon as there is one.

        All of it is read, checked and decoded; it only has to be applied. Errors leave the follower
        as it was, and it may be asked again.

        Parameters
        ----------
        timeout
            Seconds to wait for a new step: 0 looks once. By default there is no limit.

        Returns
        -------
        Update or None
            ``None`` if there was none in that time, or the follower was closed meanwhile.

        Raises
        ------
        ArgumentError
            If the follower is closed, or the state has no arrays of its `keys`.
        StorageError
            If the names of the chain cannot be listed.
        DataError, ChainError, StorageError
            If the one step that is followed cannot be read. Other followers warn, and wait.
        """
        self._check_open()
        end = None if (limit := _seconds("timeout", timeout)) is None else time.monotonic() + limit
        while not self._closed.is_set():
            with self._looking:
                update = None if self._closed.is_set() else self._look()
            if update is not None:
                return update
            left = self._poll if end is None else min(self._poll, end - time.monotonic())
            if left <= 0:
                return None
            self._closed.wait(left)
        return None

    def state(self, dtype: Literal["float32", "bits"] | None = None) -> Any:
        """Return a copy of the held state, as :meth:`lccodec.Chain.restore` returns it.

        With `keys`, it is a dict of these leaves by name. The copy is of one step, also while
        another thread prepares an update.

        Raises
        ------
        ArgumentError
            If there is no state yet, or the follower is closed.
        """
        check_dtype(dtype)
        with self._committing:
            self._check_open()
            self._go_on()
            if self.step is None:
                raise ArgumentError(f"{self._watch.place}: no step was read yet by this process")
            return self._watch.state(dtype)

    def get(self, name: str, dtype: Literal["float32", "bits"] | None = None) -> Any:
        """Return a copy of one array of the held state, by its name in it.

        Raises
        ------
        ArgumentError
            If there is no such array, or no state yet, or the follower is closed.
        """
        check_dtype(dtype)
        with self._committing:
            self._check_open()
            self._go_on()
            found = self._watch.array(name)
            if found is None:
                raise ArgumentError(f"{self._watch.place}: no array {name!r} is held")
            return found.array(dtype).copy()

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise ArgumentError(f"{self._watch.place}: this follower is closed")

    def _look(self) -> Update | None:
        """Return the next update if there is one now; the caller has the lock."""
        if self._ready is None:
            self._ready = self._watch.next(lambda: not self._closed.is_set())
        if (way := self._ready) is None:
            return None
        with self._committing:
            if way.update is not None:
                self._expire()
            self._begun = way
            self._go_on()  # after an interrupt, this is done again
            update: Update | None = way.update
            self._last, self._ready = update or self._last, None
        return update

    def _go_on(self) -> None:
        """Go the way that was begun, so that all is of one step. The caller has the lock."""
        if self._begun is not None:
            self._watch.commit(self._begun)
            self._begun = None

    def _expire(self) -> None:
        if self._last is not None:
            self._last.expire()


def follow(  # which state, and how to wait for it, by keyword
    path: str | os.PathLike[str],
    step: int | None = None,
    *,
    keys: Iterable[str] | str | None = None,
    exact: bool = True,
    poll: float = POLL_SECONDS,
    timeout: float | None = None,
    start: tuple[int, Any] | None = None,
    max_bytes: int | None = None,
    max_deltas: int | None = None,
    workers: int = 1,
) -> Follower:
    """Follow a chain: keep a state at its newest step, and say what is new in it.

    An update is prepared while the state before is in use: its files are read, checked and decoded.
    Applying it is one short step, which writes only the values that differ. Nothing is written to
    the chain.

    Parameters
    ----------
    path
        The directory of a chain, which need not exist yet, or a bundle.
    step
        Follow this step only: wait for it, yield it, and end.
    keys
        One or several names of arrays or containers, such as ``"model"``, or patterns of names of
        arrays (:mod:`fnmatch`). Only these are read.
    exact
        Whether to take the newest state from the exact file, if the chain has one. That file is
        read whole at every step. Without it, a lossy chain is followed as its history decodes.
        A lossless chain has no such file, and is followed by its deltas.
    poll
        Seconds between two looks for a new step.
    timeout
        Seconds that an iteration waits for a new step before it ends. By default it does not end.
    start
        A step, and its arrays by name or as a nested state, if they are at hand: then that step is
        not read, and the first update has what differs from it. The arrays are compared with the
        sums of the step, and copied.
    workers
        Processes that share the work of an update, with this one; 0 means one for each core but
        one. Others are started with the first state, and wait for updates until the follower is
        closed. Whole arrays, as those of the first state, are decoded by this process. In a fork,
        the follower of its parent begins anew: the next update has all arrays.

    max_bytes, max_deltas
        As for :func:`lccodec.open`. A step that asks for more is passed over with an
        `LccodecWarning`, as one that is damaged; the `step` that was asked for raises the error.

    Returns
    -------
    Follower
        An iterator over updates. The first has all arrays.

    Raises
    ------
    ArgumentError
        For a path, a step, keys or seconds that cannot be any, or if the arrays of `start` are not
        those of its step.
    StorageError, DataError, ChainError
        If `path` is a file that cannot be read, or is not a bundle, or has no step to start from.

    Examples
    --------
    >>> import tempfile, numpy as np, lccodec
    >>> run, served = tempfile.mkdtemp(), {"w": np.zeros(1000, np.float32)}
    >>> chain, follower = lccodec.Chain(run, "lossless"), lccodec.follow(run, timeout=0)
    >>> weight = np.ones(1000, np.float32)
    >>> for number in range(3):
    ...     weight[number] = 7
    ...     _ = chain.save(number, {"w": weight})
    ...     for update in follower:
    ...         update.apply_to(served)
    ...         print(update.step, update.names, update.nbytes, bool((served["w"] == weight).all()))
    0 ('w',) 4000 True
    1 ('w',) 4 True
    2 ('w',) 4 True
    >>> follower.close(); chain.close()
    """
    pinned = None if step is None else step_index(step)
    between, wait = checked_waits(poll, timeout)
    members, bounds = member_count(workers), Bounds(max_bytes, max_deltas)
    store = open_store(checked_place(path), awaited=True)
    watch = Watch(store, pinned, None if keys is None else checked_names(keys), exact, members, bounds)
    if start is not None:
        watch.start(*_checked_start(start))
    return Follower(watch, once=pinned is not None, poll=between, timeout=wait)


def checked_waits(poll: float, timeout: float | None) -> tuple[float, float | None]:
    """Return seconds between looks and seconds to wait; raise ``ArgumentError`` if they are not."""
    wait, between = _seconds("timeout", timeout), _seconds("poll", poll)
    if not between:
        raise ArgumentError(f"poll must be a number of seconds above 0; got {poll!r}")
    return between, wait


def _checked_start(start: object) -> tuple[int, dict[str, Array]]:
    """Return a step and copies of its arrays by name."""
    if not isinstance(start, tuple) or len(start) != 2:
        raise ArgumentError(f"start must be a pair of a step and its arrays; got {type(start).__name__}")
    step, arrays = step_index(start[0]), arrays_by_name(start[1])
    return step, {name: np.array(array, order="C") for name, array in arrays.items()}


def _seconds(name: str, value: object) -> float | None:
    if value is None:
        return None
    number = as_number(value)
    if number is None or not number >= 0:
        raise ArgumentError(f"{name} must be a number of seconds; got {value!r}")
    return float(number)
