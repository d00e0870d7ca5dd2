"""A mirror is brought up to date: what it lacks is copied, and is verified where it arrived.

A file is copied when all that it needs is there, so a mirror is a chain of its own at any moment.
The exact file comes first, as in each save. The listing of the chain is what is still to be copied:
there is no other queue, so whoever begins anew goes on with what is missing.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from ...constants import EXACT_NAME
from ...container.reader import CheckpointReader
from ...errors import ArgumentError, ChainError, DataError, LccodecError, StorageError
from ..store.claim import Use
from ..store.names import checkpoint_name
from ..store.store import Store, WritableStore
from .compare import Difference, Files, Inventory, compare, set_aside_of

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
class Care:
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

    def __init__(self, store: WritableStore, mirror: WritableStore, care: Care) -> None:
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
    names = [listed.name_of(max(listed.steps()))]
    while names[-1] != EXACT_NAME and (above := listed.parents_of(names[-1])):  # deltas in a row
        if (name := checkpoint_name(above[0])) in names:
            break  # a circle, which a restore refuses
        names.append(name)
    exact = [EXACT_NAME] if listed.has(EXACT_NAME) else []
    target.make()
    for name in [*exact, *(name for name in reversed(names) if name != EXACT_NAME)]:
        with listed.open(name) as reader:
            copy(reader, target, name, overwrite=False)
    return sorted(target.steps())
