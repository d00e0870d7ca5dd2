"""Mirrors: second stores of the files of a chain, brought up to date, and read where it is damaged.

Two listings are compared, file by file, by their roots. Files of one name and of different roots
are the same step, if one of them replaces the other (LCC-CHN-10), or if both name the same exact
file (LCC-EXA-06). Otherwise a mirror is that of another chain, or of what was rolled back here.

A file is copied when all that it needs is there, so a mirror is a chain of its own at any moment.
The exact file comes first, as in each save. What is copied is read again where it arrived, and only
then has its name there. Nothing is removed from one place because the other has removed it.

Behind the saves, a thread for each mirror copies what was committed. The listing of the chain is
what is still to be copied: there is no other queue, so whoever begins anew goes on with what is
missing. A mirror that cannot be reached is asked again, later and later, each wait drawn at random
(full jitter), so that many writers do not come back at the same moment.

A `StandIn` is a chain whose damaged and missing files are read from mirrors. Its own file is
verified in full when it is opened, and that of a mirror as it is read, by its root and its digests.
It must have the root of the file that is damaged, if only its payload is, and the roots that others
name: its parents, its children, and of an exact file the checkpoint of its step.
"""

from __future__ import annotations

import errno
import os
import random
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Final, NamedTuple, TypeAlias, TypeVar

from ...constants import EXACT_NAME
from ...container.checkpoint import CheckpointReader
from ...container.source import Source
from ...container.system import Place, StrPath, checked_place
from ...errors import (
    ArgumentError,
    ChainError,
    DataError,
    LccodecError,
    StorageError,
    is_loss,
    reason_of,
    warn,
)
from ..behind import Change, Rounds
from ..read.checkpoint import open_name
from ..store.claim import Use
from ..store.directory import writable_store
from ..store.lineage import Lineage
from ..store.store import Store, WritableStore, checkpoint_name, checkpoints_among, files_among

#: Root and bytes of files, by name.
Roots: TypeAlias = dict[str, tuple[bytes, int]]


@dataclass(frozen=True)
class Files:
    """The checkpoints and the exact file of a store at one moment, with their declared roots.

    Nothing is verified. `listed` is the store as it was listed; `unreadable` says what is wrong
    with the others.
    """

    listed: Store
    roots: Roots
    unreadable: Mapping[str, str] = field(default_factory=dict)

    @property
    def checkpoints(self) -> dict[int, str]:
        """The names of the checkpoints that have a root, by rising step."""
        return checkpoints_among(self.roots)

    @property
    def newest(self) -> int:
        """The newest step, also of the exact file alone, or of a damaged file; -1 without any."""
        exact = self.listed.exact_step() if EXACT_NAME in self.roots else None
        steps = checkpoints_among([*self.roots, *self.unreadable])
        return max([*steps, -1 if exact is None else exact], default=-1)

    def later(self, step: int) -> frozenset[bytes]:
        """Return the roots of the files of later steps."""
        steps = {root: step_of(self.listed, name) for name, (root, _) in self.roots.items()}
        return frozenset(root for root, found in steps.items() if found is not None and found > step)


class Inventory:
    """The roots of the files of a store; each is read once, as long as its file is the same."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, tuple[tuple[int, ...], tuple[bytes, int]]] = {}

    def read(self, *, partly: bool = False) -> Files:
        """Return what there is now; raise ``StorageError`` if it cannot be listed or read.

        With `partly`, a file that cannot be read is one of the unreadable.
        """
        listed = self._store.afresh().snapshot()
        known, unreadable = dict[str, tuple[tuple[int, ...], tuple[bytes, int]]](), dict[str, str]()
        for name in files_among(listed.names()):
            try:
                identity = listed.identity(name)
                found = self._known.get(name)
                same = found is not None and found[0] == identity
                known[name] = found if found is not None and same else (identity, listed.root(name))
            except DataError as error:
                unreadable[name] = str(error)
            except StorageError as error:
                if error.errno == errno.ENOENT:
                    continue  # it was removed after it was listed
                if not partly:
                    raise
                unreadable[name] = str(error)
        self._known = known
        return Files(listed, {name: found for name, (_, found) in known.items()}, unreadable)


@dataclass(frozen=True)
class Difference:
    """What a mirror lacks: the files to copy, each after all that it needs.

    It must be rolled back to the step `set_aside` before, as the chain was, if there is one.
    """

    names: tuple[str, ...]
    set_aside: int | None = None


def compare(
    here: Files,
    there: Files,
    *,
    known: bool = False,
    rolled_back: Callable[[], Iterable[tuple[int, Collection[bytes]]]] = tuple,
    sparse: bool = False,
) -> Difference:
    """Return what a mirror lacks of a chain.

    It may be `known` to be one of this chain, though they share no file. `rolled_back` returns the
    steps that the chain went back to, each with the roots that were set aside. A `sparse` mirror
    may have removed checkpoints, which then do not come back. Raises ``ChainError`` if the mirror
    has another chain, or a newer one.
    """
    replaced, kin, others = _related(here, there)
    newest, places = here.newest, (here.listed.path, there.listed.path)
    alone = [
        step for step in there.checkpoints if checkpoint_name(step) not in {*here.roots, *here.unreadable}
    ]
    newer = [step for step in alone if step > newest]
    exact = there.listed.exact_step() if EXACT_NAME in there.roots else None
    newer += [exact] if exact is not None and exact > newest else []
    if others or alone or newer:
        own = {root for name, (root, _) in there.roots.items() if here.roots.get(name, (b"",))[0] != root}
        steps = [step for step, roots in rolled_back() if not own.isdisjoint(roots)]
        if steps and (kin or known) and there.newest > min(steps):
            return Difference((), min(steps))
    if others:
        message = f"step {others[0]} is another one there"
        raise ChainError(
            f"{places[1]} is a mirror of another chain than {places[0]}: {message}; nothing was copied"
        )
    if here.roots and there.roots and not (kin or known):
        raise ChainError(
            f"{places[1]} is a mirror of another chain: it shares no file with {places[0]}; nothing was"
            " copied"
        )
    if newer:
        raise ChainError(
            f"{places[1]} is a mirror of {places[0]} and newer: it has step {max(newer)}, and the chain"
            f" {f'ends at {newest}' if newest >= 0 else 'is empty'}; nothing was copied. To bring its"
            " steps here, use lccodec repair --mirror; to go on without them, roll the mirror back"
        )
    lacking = {name for name in here.roots if name not in there.roots or name in replaced}
    if sparse:
        last = max(there.checkpoints, default=-1)
        gone = {name for step, name in here.checkpoints.items() if step <= last and name not in there.roots}
        lacking -= gone - set(there.unreadable)
    return Difference(tuple(_in_order(here, there, lacking)))


def _related(here: Files, there: Files) -> tuple[set[str], bool, list[int]]:
    """Return which files take the place of those of a mirror, and how the two are related.

    That is whether they share a file, and the steps that are another one there.
    """
    replaced, others, kin = set[str](), list[int](), False
    for name, (root, _) in here.roots.items():
        other = there.roots.get(name)
        if other is None:
            continue
        if other[0] == root:
            kin = True
        elif name == EXACT_NAME:
            replaced.add(name)
        elif (relation := _relation(here, there, name)) is None:
            others += checkpoints_among([name])
        else:
            kin = kin or relation != "damaged"
            replaced |= {name} if relation in ("newer", "damaged") else set()
    return replaced, kin or _names_exact(here, there), others


def _names_exact(here: Files, there: Files) -> bool:
    """Return whether a checkpoint names the exact file of a mirror, which may come alone."""
    if EXACT_NAME not in there.roots or (step := there.listed.exact_step()) is None:
        return False
    name = checkpoint_name(step)
    try:
        with here.listed.open(name) as reader:
            return reader.manifest.exact == there.roots[EXACT_NAME][0]
    except (DataError, StorageError):
        return False


def _relation(here: Files, there: Files, name: str) -> str | None:
    """Return how a file is related to that of its name in a mirror.

    It is ``"newer"`` if it takes the place of that, ``"older"`` if that takes its place, or needs
    to stay; ``"damaged"`` if that is; and ``None`` if they are different steps.
    """
    theirs, ours = _roots_of(there, name), _roots_of(here, name)
    if ours is None:  # what is damaged here says nothing
        return "older"
    if theirs is None:
        return "damaged"
    replaces = there.roots[name][0] in ours.roots
    is_anew = not replaces and ours.exact is not None and ours.exact == theirs.exact
    if replaces or (is_anew and here.roots[name][0] not in theirs.roots):
        has_other_values = ours.is_interpolated or is_anew
        return "older" if has_other_values and _is_needed(here, there, name) else "newer"
    return "older" if here.roots[name][0] in theirs.roots else None


class _Identity(NamedTuple):
    """The roots that a file stands for, that of its exact file, and whether it is interpolated."""

    roots: frozenset[bytes]
    exact: bytes | None
    is_interpolated: bool


def _roots_of(files: Files, name: str) -> _Identity | None:
    """Return what a file is; ``None`` if it is damaged."""
    try:
        with files.listed.open(name) as reader:
            manifest = reader.manifest
            return _Identity(reader.roots, manifest.exact, manifest.later is not None)
    except DataError:
        return None


def _is_needed(here: Files, there: Files, name: str) -> bool:
    """Return whether a file of a mirror alone is a delta to a step: its values must stay.

    A checkpoint that was settled has other values (LCC-INT-06). Nothing here needs the old ones,
    but a mirror may have kept what was removed here.
    """
    [step] = checkpoints_among([name])
    alone = [other for other in there.checkpoints.values() if other not in here.roots]
    return bool(list(Lineage.named(there.listed, checkpoints_among(alone)).children(step)))


def _in_order(here: Files, there: Files, lacking: Collection[str]) -> list[str]:
    """Return files to copy: the exact file, as each save does, and then parents before children.

    Parents that the mirror lacks come too.
    """
    steps = [step for step, name in here.checkpoints.items() if name in lacking]
    to_copy = checkpoints_among(name for name in here.roots if name in lacking or name not in there.roots)
    ordered = Lineage.named(here.listed, here.checkpoints).parents_first(steps, to_copy)
    return [*([EXACT_NAME] if EXACT_NAME in lacking else []), *map(checkpoint_name, ordered)]


def step_of(store: Store, name: str) -> int | None:
    """Return the step of a checkpoint or the exact file; ``None`` if that cannot be read."""
    return store.exact_step() if name == EXACT_NAME else next(iter(checkpoints_among([name])), None)


def set_aside_of(store: WritableStore) -> list[tuple[int, frozenset[bytes]]]:
    """Return what was rolled back in a chain: steps, each with the roots that were set aside."""
    shelf, found = store.shelf(), []
    for name, step in shelf.names():
        aside = shelf.chain(name)
        files = Inventory(aside).read()
        found.append((step, files.later(step)))
    return found


def check_kin(here: Files, there: Files) -> None:
    """Raise ``ChainError`` if a mirror is one of another chain; newer steps do not matter."""
    _, kin, others = _related(here, there)
    if others or (here.roots and there.roots and not kin):
        raise ChainError(f"{there.listed.path} is a mirror of another chain than {here.listed.path}")


_MAX_LOOKS: Final = 3  # at a mirror that was rolled back, which is compared again


@dataclass(frozen=True)
class MirrorState:
    """How far a mirror is behind its chain.

    Parameters
    ----------
    place
        The mirror.
    files, bytes
        What it lacks.
    error
        What went wrong last, until something succeeds; or ``None``.
    skipped
        The files that cannot be copied, each with the reason.
    """

    place: str
    files: int
    bytes: int
    error: str | None = None
    skipped: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        lag = f"{self.files:,} files, {self.bytes:,} bytes behind" if self.files else "up to date"
        return f"{self.place}: {lag}" + (f" ({self.error})" if self.error else "")


@dataclass(frozen=True)
class MirrorUpkeep:
    """What is done to a mirror besides copying.

    `set_aside` rolls it back: it is given the mirror, a step, and `claim`, which is held.
    `thin_out` removes what it is not to keep, after all was copied; ``None`` if it keeps
    everything.
    """

    set_aside: Callable[..., object]
    thin_out: Callable[[WritableStore], object] | None = None


class Mirror:
    """A mirror of a chain; for one thread at a time, but for `state` and `rolled_back`."""

    def __init__(self, store: WritableStore, mirror: WritableStore, upkeep: MirrorUpkeep) -> None:
        if str(store.path) == str(mirror.path):
            raise ArgumentError(f"{mirror.path}: a mirror must be another place than its chain")
        self.mirror = mirror
        self.error: str | None = None
        self.is_to_follow = False  # a rollback
        self._store, self._upkeep = store, upkeep
        self._here, self._there, self._shown = Inventory(store), Inventory(mirror), Inventory(store)
        self._arrived: dict[str, bytes] = {}  # the roots of the files that are known to be there
        self._skipped: dict[str, str] = {}
        self._is_known = False  # whether the mirror is known to be one of this chain
        self._noting = threading.Lock()
        self._rolled_back: int | None = None
        self.rollbacks = 0  # how often that was noted
        self._claim = mirror.claim()

    def state(self) -> MirrorState:
        """Return how far the mirror is behind, as far as is known: nothing is asked of it."""
        try:
            here = self._shown.read(partly=True).roots
        except LccodecError as error:
            return MirrorState(str(self.mirror.path), 0, 0, str(error))
        left = [size for name, (root, size) in here.items() if self._arrived.get(name) != root]
        return MirrorState(str(self.mirror.path), len(left), sum(left), self.error, dict(self._skipped))

    def rolled_back(self, step: int) -> None:
        """Take note that the chain was rolled back to a step, and the mirror has to follow.

        Any thread may call this.
        """
        with self._noting:
            self._rolled_back = step if self._rolled_back is None else min(step, self._rolled_back)
            self.rollbacks += 1

    @property
    def newest_arrived(self) -> int | None:
        """The newest step that is known to be there; ``None`` without any."""
        return max(checkpoints_among(self._arrived), default=None)

    def look(self) -> tuple[Files, Files, Difference]:
        """Compare the two, and note what is there; raise as `compare`."""
        here, there = self._here.read(partly=True), self._there.read()
        sparse = self._upkeep.thin_out is not None
        known = self._is_known
        found = compare(here, there, known=known, rolled_back=self._set_aside, sparse=sparse)
        self._is_known = True
        self.is_to_follow = found.set_aside is not None
        if self.is_to_follow:
            return here, there, found
        lacking = set(found.names)
        self._arrived = {name: root for name, (root, _) in here.roots.items() if name not in lacking}
        return here, there, found

    def _set_aside(self) -> list[tuple[int, frozenset[bytes]]]:
        found = set_aside_of(self._store)
        if self._rolled_back is not None:  # what was removed at once has left no trace here
            step, there = self._rolled_back, self._there.read()
            found.append((step, there.later(step)))
        return found

    def bring(self, go_on: Callable[[], object] = lambda: None) -> MirrorState:
        """Copy what the mirror lacks. `go_on` is called before each file, and may end this.

        Raises ``ChainError`` as `look`, or if another process saves to the mirror. After a
        ``StorageError``, what has arrived stays.
        """
        self.mirror.make()
        use = Use()
        try:
            self._claim.take(use, make=True)
            self.mirror.remove_stale()
            here, there, found = self._followed()
            self._skipped = dict(here.unreadable)
            for name in found.names:
                go_on()
                self._bring(name, there)
            if self._upkeep.thin_out is not None:
                self._upkeep.thin_out(self.mirror)
        finally:
            use.end()
        return self.state()

    def _followed(self) -> tuple[Files, Files, Difference]:
        """Compare the two, and roll the mirror back as the chain was."""
        for _ in range(_MAX_LOOKS):
            noted = self.rollbacks
            here, there, found = self.look()
            if found.set_aside is None:
                with self._noting:
                    if self.rollbacks == noted:  # or it was rolled back after it was listed
                        self._rolled_back = None
                return here, there, found
            steps = [step for step in there.checkpoints if step <= found.set_aside]
            if not steps:
                break
            self._upkeep.set_aside(self.mirror, steps[-1], claim=self._claim)
        raise ChainError(f"{self.mirror.path}: the chain was rolled back, and the mirror cannot follow")

    def release(self) -> None:
        """Let others write to the mirror."""
        self._claim.release()

    def _bring(self, name: str, there: Files) -> None:
        try:
            reader = self._store.afresh().open(name)
        except DataError as error:
            self._skipped[name] = str(error)
            return
        except StorageError as error:
            if error.errno != errno.ENOENT:
                raise
            return  # it was removed here
        with reader:
            if name != EXACT_NAME and (problem := self._lacks_parent(reader)) is not None:
                self._skipped[name] = problem
                return
            try:
                copy(reader, self.mirror, name, overwrite=name in there.listed.names())
            except (DataError, StorageError) as error:
                try:
                    reader.verify()
                except (DataError, StorageError) as own:  # what is damaged here is not copied
                    self._skipped[name] = str(own)
                    return
                if isinstance(error, StorageError):
                    raise
                message = f"what arrived is not what was sent: {error}"
                raise StorageError(errno.EIO, message, self.mirror.place(name)) from error
            self._arrived[name] = reader.root

    def _lacks_parent(self, reader: CheckpointReader) -> str | None:
        for parent in reader.manifest.parents:
            name = checkpoint_name(parent.step)
            if self._arrived.get(name) == parent.root:
                continue
            try:
                with self.mirror.afresh().open(name) as above:
                    if parent.root in above.roots:
                        continue
            except DataError:
                pass
            except StorageError as error:
                if error.errno != errno.ENOENT:
                    raise
            return f"step {parent.step}, which it needs, is not in the mirror"
        return None


def copy(reader: CheckpointReader, target: WritableStore, name: str, *, overwrite: bool) -> None:
    """Copy an open file to another store, and verify it there before it has its name.

    Raises ``DataError`` if what arrived is not what the root stands for.
    """

    def check(arrived: CheckpointReader) -> None:
        if arrived.root != reader.root:
            raise ChainError(f"{name} was replaced while it was copied")
        arrived.verify()

    target.receive(name, reader.source, check, overwrite=overwrite)


def bring_newest(source: Store, target: WritableStore) -> list[int]:
    """Copy the newest step of a mirror, and what it needs, to an empty store; return the steps.

    Errors are those of `copy`.
    """
    listed = source.afresh().snapshot()
    newest = max(listed.steps())
    needed = [] if listed.name_of(newest) == EXACT_NAME else Lineage.named(listed).reached([newest])
    exact = [EXACT_NAME] if listed.has(EXACT_NAME) else []
    target.make()
    for name in [*exact, *map(checkpoint_name, reversed(needed))]:  # deltas in a row
        with listed.open(name) as reader:
            copy(reader, target, name, overwrite=False)
    return sorted(target.steps())


Found = TypeVar("Found")


class StandIn(Store):
    """The files of a chain, and those of mirrors in the place of what is lost.

    A mirror that cannot be listed, or that is of another chain, is left out; if none is left, this
    raises ``ChainError``. Warnings `tell` which files come from which mirror, and why.
    """

    def __init__(self, store: Store, mirrors: Sequence[Store], *, tell: bool = True) -> None:
        super().__init__(store.path)
        self.far = store.far
        self._store, self._tell = store, tell
        here, problems = Inventory(store).read(partly=True), []
        self._newest = here.newest
        self._mirrors = dict[Store, list[str]]()
        for mirror in mirrors:
            try:
                there = Inventory(mirror).read()
                check_kin(here, there)
                self._mirrors[mirror] = [*there.roots, *there.unreadable]
            except LccodecError as error:
                problems.append(str(error))
        if not self._mirrors:
            raise ChainError("; ".join(problems))
        self.chosen: dict[str, Store] = {}  # which files are read from which store

    def names(self) -> list[str]:
        """Return the names of all files, also of those of earlier steps that only a mirror has."""
        own = self._store.names()
        found = dict.fromkeys(own)
        for mirror, names in self._mirrors.items():
            found |= dict.fromkeys(name for name in names if name in found or self._is_ours(mirror, name))
        return list(found)

    def _is_ours(self, mirror: Store, name: str) -> bool:
        """Return whether a file that only a mirror has is one that the chain may have had."""
        step = step_of(mirror, name)
        return step is not None and (step <= self._newest or self._newest < 0)

    def has(self, name: str) -> bool:
        """Return whether there is a file of that name."""
        return self._store.has(name) or any(
            name in names and self._is_ours(mirror, name) for mirror, names in self._mirrors.items()
        )

    def source(self, name: str) -> Source:
        """Open a file for reads of ranges."""
        return self.of(name).source(name)

    def open(self, name: str) -> CheckpointReader:
        """Open a file; errors are those of the chain's own, if no mirror has it whole."""
        return self.of(name).open(name)

    def size(self, names: Iterable[str]) -> int:
        """Return the bytes that files take together."""
        return sum(self.of(name).size([name]) for name in names)

    def identity(self, name: str) -> tuple[int, ...]:
        """Return what tells a file from another that takes its name."""
        return self.of(name).identity(name)

    @property
    def mirrors(self) -> list[Store]:
        """The mirrors that can be read."""
        return list(self._mirrors)

    def of(self, name: str) -> Store:
        """Return the store that a file is read from."""
        if name not in self.chosen:
            self.chosen[name] = self._choose(name)
        return self.chosen[name]

    def _choose(self, name: str) -> Store:
        root: bytes | None = None  # that the file must have
        try:
            with self._store.open(name) as reader:
                root = reader.root
                reader.verify()
            return self._store
        except (DataError, StorageError) as error:
            why = str(error)
        if not self._store.has(name):
            why = "it is missing"
        for mirror, names in self._mirrors.items():
            if name in names and self._fits(mirror, name, root):
                if self._tell:
                    warn(f"{self.path}: {name} is read from the mirror {mirror.path}: {why}")
                return mirror
        return self._store

    def _fits(self, mirror: Store, name: str, root: bytes | None) -> bool:
        """Return whether a mirror's file is the one that is lost here, as far as one can tell."""
        try:
            with mirror.open(name) as reader:
                if root is not None:
                    return reader.root == root
                if name == EXACT_NAME:
                    return self._fits_exact(reader)
                step = reader.manifest.step
                return checkpoint_name(step or 0) == name and self._is_linked(reader, step or 0)
        except (DataError, StorageError):
            return False

    def _fits_exact(self, exact: CheckpointReader) -> bool:
        """Return whether an exact file is the one that a checkpoint names last."""
        for step, name in reversed(self._store.checkpoints().items()):
            try:
                with self._store.open(name) as reader:
                    named = reader.manifest.exact
            except (DataError, StorageError) as error:
                if not is_loss(error):
                    return False
                if step == exact.manifest.step:
                    return True
                continue
            if named is not None:
                return named == exact.root
        return self._newest < 0

    def _is_linked(self, file: CheckpointReader, step: int) -> bool:
        """Return whether the parents of a file that are here are those it names; and children."""
        for parent in file.manifest.parents:
            try:
                with self._store.open(checkpoint_name(parent.step)) as above:
                    if parent.root not in above.roots:
                        return False
            except (DataError, StorageError):
                continue  # that is lost as well
        for other in Lineage.named(self._store).children(step):
            try:
                with self._store.open(checkpoint_name(other)) as child:
                    named = {parent.step: parent.root for parent in child.manifest.parents}
            except (DataError, StorageError):
                continue
            if named.get(step) not in (None, *file.roots):
                return False
        return True


def read_whole(
    store: Store, read: Callable[[Store, bool], Found], mirrors: Callable[[], Sequence[Store]]
) -> Found:
    """Return what a function reads from a chain; with files of its mirrors where that fails.

    `read` is told whether everything must be whole there. Otherwise it may make do with less.
    """
    others = mirrors()
    if not others:
        return read(store, False)
    try:
        return read(store, True)
    except (DataError, ChainError, StorageError):
        return read(stand_in(store, others), False)


def stand_in(store: Store, mirrors: Sequence[Store]) -> Store:
    """Return a chain with the files of mirrors; the chain itself, with a warning, if none helps."""
    try:
        return StandIn(store.afresh(), [mirror.afresh() for mirror in mirrors])
    except LccodecError as failure:
        warn(f"{store.path}: no mirror can help: {failure}")
        return store


_FIRST_WAIT: Final = 1.0  # seconds after the first failure, at most
_LONGEST_WAIT: Final = 60.0
_LONGEST_WAIT_OF_CLOSE: Final = 2.0
_SECONDS_TO_STOP: Final = 5.0  # within a call to a store
_SECONDS_OF_ONE_CALL: Final = 5.0  # that a store is asked again, within one attempt

#: How long closing a chain waits for its mirrors, unless it is told otherwise.
SECONDS_TO_CLOSE: Final = 60.0


class _StoppedError(Exception):
    """The chain is closed, and does not wait any longer."""


class _Copier:
    """Keeps one mirror up to date, in a thread that runs while there is something to do."""

    def __init__(self, mirror: Mirror) -> None:
        self.mirror = mirror
        self.rounds = Rounds(self._bring, daemon=True)
        self._hurry: SimpleQueue[None] = SimpleQueue()  # each entry ends one wait
        self._wait = _FIRST_WAIT
        self._is_closing = self._is_over = False
        self._is_told = False  # of an error, since the mirror worked last
        self.is_rolling_back = False  # the chain: what differs then is no error

    def look(self) -> bool:
        """Compare the mirror with its chain; return whether it lacks something, or may do so.

        Raises ``ChainError`` if it has another chain, or a newer one.
        """
        try:
            return bool(self.mirror.look()[2].names) or self.mirror.is_to_follow
        except (StorageError, DataError) as error:
            self.mirror.error = reason_of(error)
            return True

    def hurry(self) -> None:
        """Let the thread wait no longer; it ends when nothing is left."""
        self._is_closing = True
        self._hurry.put(None)

    def close(self, end: float) -> None:
        """Wait until nothing is left, until some time of `time.monotonic`, and end the thread."""
        if not self.rounds.wait(max(0.0, end - time.monotonic())):
            self._is_over = True
            self._hurry.put(None)
            self.rounds.wait(_SECONDS_TO_STOP)
        self.mirror.release()
        self._is_closing = self._is_over = False

    def news(self) -> str | None:
        """Return the error, if the mirror worked when this was called before."""
        error = self.mirror.error
        is_new = error is not None and not self._is_told
        self._is_told = error is not None
        return error if is_new else None

    def _bring(self) -> None:
        """Copy what there is, in the thread; after a failure once more, later."""
        if self._is_over:
            return
        noted = self.mirror.rollbacks
        self.mirror.mirror.call_between(self._go_on)
        try:
            self.mirror.bring(self._go_on)
            self.mirror.error, self._wait = None, _FIRST_WAIT
            return
        except _StoppedError:
            return
        except ChainError as error:  # which does not pass by itself
            if not self.is_rolling_back and self.mirror.rollbacks == noted:
                self.mirror.error = reason_of(error)
            return
        except (LccodecError, OSError, RuntimeError, MemoryError) as error:
            self.mirror.error = reason_of(error)
        self.rounds.again()
        longest = _LONGEST_WAIT_OF_CLOSE if self._is_closing else _LONGEST_WAIT
        with suppress(Empty):
            self._hurry.get(timeout=random.uniform(0, min(self._wait, longest)))  # noqa: S311 - no secret
        self._wait = min(2 * self._wait, _LONGEST_WAIT)

    def _go_on(self) -> None:
        if self._is_over:
            raise _StoppedError


class Mirrors:
    """The mirrors of a chain: brought up to date behind its saves, and read where files are lost.

    Several threads may call it. `upkeep` is what is done to them besides copying; `close` waits for
    them for some seconds. As long as the chain is empty, the mirror `instead` is read, if there is
    one.

    Raises ``ChainError`` if a mirror has another chain, or a newer one; ``StorageError`` if the
    chain is empty, and a mirror cannot be reached: it may hold the run.
    """

    def __init__(
        self,
        store: WritableStore,
        places: Sequence[Place],
        upkeep: MirrorUpkeep | None = None,
        seconds: float = SECONDS_TO_CLOSE,
    ) -> None:
        self._store, self._places, self._seconds = store, places, seconds
        self.acts = bool(places)
        self._read: list[Store] | None = None
        self.instead: Store | None = None
        hurried = [writable_store(place, _SECONDS_OF_ONE_CALL) for place in places]
        made = MirrorUpkeep(lambda *_, **__: None) if upkeep is None else upkeep
        self._copiers = [_Copier(Mirror(store, mirror, made)) for mirror in hurried]
        if not places:
            return
        if not store.steps():  # it is read from the first mirror that has a step
            self.instead = next((mirror for mirror in self.to_read() if mirror.steps()), None)
        if self.instead is not None:
            warn(f"{store.path} is empty: it is read from the mirror {self.instead.path}")
            return
        for copier in self._copiers:
            if copier.look():
                copier.rounds.ask()

    def to_read(self) -> list[Store]:
        """Return the mirrors, to be read by the thread of a restore."""
        if self._read is None:
            self._read = self.opened()
        return self._read

    def opened(self) -> list[Store]:
        """Return the mirrors, opened anew, to be read by the thread that calls this."""
        return [writable_store(place) for place in self._places]

    def before_save(self) -> bool:
        """Bring the newest step of a mirror to a chain that is empty; return whether that was done.

        Errors are those of `bring_newest`.
        """
        source, self.instead = self.instead, None
        if source is None or self._store.steps():
            return False
        try:
            steps = bring_newest(source, self._store)
        except BaseException:
            self.instead = source
            raise
        warn(f"{self._store.path}: step {steps[-1]} was brought back from the mirror {source.path}")
        self.after(Change())
        return True

    def after(self, change: Change) -> None:
        """Begin to copy what there is now. A mirror that failed is told of once, by a warning."""
        for copier in self._copiers:
            if (error := copier.news()) is not None:
                state = copier.mirror.state()
                warn(f"{self._store.path}: the mirror {state.place} is {state.files:,} files behind: {error}")
            if change.rolled_back is not None and not change.added:
                copier.mirror.rolled_back(change.rolled_back)
            copier.rounds.ask()

    def gives_back(self, name: str) -> bool:
        """Return whether mirrors have a checkpoint and all that it needs, as is verified there."""
        with suppress(LccodecError):
            if others := [mirror.afresh() for mirror in self.opened()]:
                with open_name(StandIn(self._store.afresh(), others, tell=False), name) as file:
                    file.verify()
                return True
        return False

    @contextmanager
    def rolling_back(self) -> Iterator[None]:
        """Complain of no difference, as long as the chain is rolled back."""
        for copier in self._copiers:
            copier.is_rolling_back = True
        try:
            yield
        finally:
            for copier in self._copiers:
                copier.is_rolling_back = False

    def states(self) -> list[MirrorState]:
        """Return how far each mirror is behind."""
        return [copier.mirror.state() for copier in self._copiers]

    def needed_steps(self) -> set[int]:
        """Return the newest step that each mirror has: it shows that the two are of one chain."""
        return {step for each in self._copiers if (step := each.mirror.newest_arrived) is not None}

    def close(self) -> None:
        """Wait for the mirrors within the limit, and warn of what is left."""
        end = time.monotonic() + self._seconds
        for copier in self._copiers if self.instead is None else ():
            if copier.mirror.state().files:  # as after groups were coded again
                copier.rounds.ask()
            copier.hurry()
        for copier in self._copiers:
            copier.close(end)
        for state in self.states() if self.instead is None else ():
            if state.files or state.error:
                skipped = "".join(f"; {name}: {text}" for name, text in state.skipped.items())
                warn(f"{self._store.path}: the mirror {state}{skipped}; the next process goes on")


def checked_mirrors(mirror: StrPath | Sequence[StrPath] | None) -> list[Place]:
    """Return the places of mirrors: one, several, or none for ``None``."""
    if mirror is None:
        return []
    return [checked_place(each) for each in ([mirror] if isinstance(mirror, str | os.PathLike) else mirror)]
