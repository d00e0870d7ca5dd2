"""A mirror is brought up to date: what it lacks is copied, and is verified where it arrived.

Two listings are compared, file by file, by their roots. Files of one name and of different roots
are the same step, if one of them replaces the other (LCC-CHN-10), or if both name the same exact
file (LCC-EXA-06). Otherwise a mirror is that of another chain, or of what was rolled back here.

A file is copied when all that it needs is there, so a mirror is a chain of its own at any moment.
The exact file comes first, as in each save. The listing of the chain is what is still to be copied:
there is no other queue, so whoever begins anew goes on with what is missing.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from ...constants import EXACT_NAME
from ...container.checkpoint import CheckpointReader
from ...errors import ArgumentError, ChainError, DataError, LccodecError, StorageError
from ..store.claim import Use
from ..store.lineage import Lineage
from ..store.names import checkpoint_name, checkpoints_among
from ..store.store import Store, WritableStore

#: Root and bytes of files, by name.
Roots: TypeAlias = dict[str, tuple[bytes, int]]


@dataclass(frozen=True)
class Files:
    """The checkpoints and the exact file of a store at one moment.

    Attributes
    ----------
    listed
        The store as it was listed.
    roots
        The files by name, with the roots that they declare. Nothing is verified.
    unreadable
        What is wrong with the others.
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
        names = listed.names()
        known, unreadable = dict[str, tuple[tuple[int, ...], tuple[bytes, int]]](), dict[str, str]()
        for name in [*checkpoints_among(names).values(), *([EXACT_NAME] if EXACT_NAME in names else [])]:
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
    """What a mirror lacks.

    Parameters
    ----------
    names
        The files to copy, each after all that it needs.
    set_aside
        The step that the mirror must be rolled back to before, as the chain was; or ``None``.
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

    Parameters
    ----------
    known
        Whether the mirror is known to be one of this chain, though they may share no file.
    rolled_back
        Returns what was rolled back here: steps that the chain went back to, each with the roots
        that were set aside.
    sparse
        Whether the mirror may have removed checkpoints, which then do not come back.

    Raises
    ------
    ChainError
        If the mirror has another chain, or a newer one.
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

    Parameters
    ----------
    set_aside
        Rolls it back: is given the mirror, a step, and `claim`, which is held.
    thin_out
        Removes what it is not to keep, after all was copied; ``None`` if it keeps everything.
    """

    set_aside: Callable[..., object]
    thin_out: Callable[[WritableStore], object] | None = None


class Mirror:
    """A mirror of a chain; for one thread at a time, but for `state` and `rolled_back`.

    Parameters
    ----------
    store
        The chain.
    mirror
        Where its files are copied to.
    """

    def __init__(self, store: WritableStore, mirror: WritableStore, care: MirrorUpkeep) -> None:
        if str(store.path) == str(mirror.path):
            raise ArgumentError(f"{mirror.path}: a mirror must be another place than its chain")
        self.mirror = mirror
        self.error: str | None = None
        self.is_to_follow = False  # a rollback
        self._store, self._care = store, care
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
        arrived = Files(self._store, {name: (root, 0) for name, root in self._arrived.items()})
        return max(arrived.checkpoints, default=None)

    def look(self) -> tuple[Files, Files, Difference]:
        """Compare the two, and note what is there.

        Raises
        ------
        ChainError
            If the mirror has another chain, or a newer one.
        StorageError
            If one of the two cannot be read.
        """
        here, there = self._here.read(partly=True), self._there.read()
        sparse = self._care.thin_out is not None
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

        Raises
        ------
        ChainError
            As `look`; or if another process saves to the mirror.
        StorageError
            If a file cannot be copied. What has arrived stays.
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
            if self._care.thin_out is not None:
                self._care.thin_out(self.mirror)
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
            self._care.set_aside(self.mirror, steps[-1], claim=self._claim)
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

    Raises
    ------
    DataError
        If what arrived is not what the root stands for.
    StorageError, ChainError, ArgumentError
        If it cannot be copied.
    """

    def check(arrived: CheckpointReader) -> None:
        if arrived.root != reader.root:
            raise ChainError(f"{name} was replaced while it was copied")
        arrived.verify()

    target.receive(name, reader.source, check, overwrite=overwrite)


def bring_newest(source: Store, target: WritableStore) -> list[int]:
    """Copy the newest step of a mirror, with all that it needs, to an empty store.

    Returns the steps of that.

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
