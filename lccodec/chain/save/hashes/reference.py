"""The reference of a saver that keeps hashes of the newest step, not its values.

A save first hashes the state. What has the hashes of the parent is the parent's, and is not looked
at again. Of the rest, the parent's values are read where they are needed (`parent`).

Such a chain loses nothing: what a restore returns is what was hashed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import cast

from ....container.disk.scratch import NO_ROOM, Scratch
from ....element_types import Array
from ....errors import ArgumentError, StorageError
from ....parallel import thread_count
from ....policy.copies import mark_equal
from ....policy.policy import Candidate
from ...read.checkpoint import OpenCheckpoint
from ...read.links import form_of
from ...read.replay import DecodedArray
from ...store.directory import DirectoryStore
from ...store.store import WritableStore
from ..plan import SavePlan
from ..reference import Tail
from .anew import hash_checkpoint
from .encode import Stored
from .kept import Kept
from .parent import Parent, ParentBits
from .places import Places
from .segments import MAX_THREADS, changed_segments, segment_size


class HashReference:
    """Hashes of the newest step of a chain, and what a save does with them.

    Parameters
    ----------
    store
        Where the chain is kept. In a directory, hashes and values are kept beside it.
    between
        Called again and again while a call takes long.

    Attributes
    ----------
    keeps
        Whether what is made of the files of a checkpoint is kept: not if nothing is to be written.
    """

    def __init__(self, store: WritableStore, between: Callable[[], None] = lambda: None) -> None:
        self._store, self._between = store, between
        self.keeps = True
        self._kept = Kept(store) if isinstance(store, DirectoryStore) else None
        self._stored: Stored | None = None  # by the save that runs
        self._changes: dict[str, Array] = {}  # of the state that is saved, by name

    @property
    def _values(self) -> Scratch | None:
        return None if self._kept is None else self._kept.values

    def forget(self) -> None:
        """Close what is open."""
        self._stored, self._changes = None, {}
        if self._kept is not None:
            self._kept.values.close()

    def read(self, file: OpenCheckpoint) -> dict[str, DecodedArray]:
        """Return the arrays of a checkpoint with their hashes: kept ones, or made of its files.

        Raises
        ------
        DataError, ChainError, StorageError
            If the checkpoint cannot be restored.
        """
        last = file.links[-1]
        forms = {name: form_of(last, name) for name in last.index_names}
        found = None if self._kept is None else self._kept.read(last.reader.roots, forms)
        if found is not None:
            self._verify(file)
        else:
            found = hash_checkpoint(file, self._values if self.keeps else None, self._between)
            if self._kept is not None and self.keeps:
                self._kept.write(last.reader.root, *found)
        step = last.manifest.step or 0
        return _held(Parent(self._store, step, *found, self._values, self._distrust))

    def _verify(self, file: OpenCheckpoint) -> None:
        """Raise ``DataError`` if a stored byte is damaged. Kept hashes do not tell that."""
        threads = min(thread_count(0), MAX_THREADS)
        for link in file.links:
            for number in range(len(link.manifest.frames)):
                self._between()
                link.reader.frame(number, threads=threads)

    def look(self, arrays: Sequence[Candidate], is_keyframe: bool) -> None:
        """Find which arrays are equal; of a delta, first which differ from the parent's."""
        self._changes = {}
        if not is_keyframe:
            self._compare(arrays)
        mark_equal(arrays)

    def _compare(self, arrays: Sequence[Candidate]) -> None:
        """Find which segments of arrays differ from the parent's."""
        known = [(c, c.reference) for c in arrays if c.reference is not None]
        references = [cast(ParentBits, reference) for _, reference in known]
        if not references:
            return
        pairs = ((c.bits, r.hashed.hashes) for (c, _), r in zip(known, references, strict=True))
        changes = changed_segments(pairs, references[0].parent.segment, self._between)
        for (c, _), differ in zip(known, changes, strict=True):
            c.changed = float(differ.mean()) if differ.size else 0.0
            self._changes[c.name] = differ

    def check(self, plan: SavePlan) -> None:
        """Raise ``ArgumentError`` if a plan may lose something: then hashes say nothing of it."""
        for index, c in enumerate(plan.candidates):
            if plan.may_lose(index):
                raise ArgumentError(
                    f"reference='hashes' needs a chain that loses nothing, such as with policy='lossless';"
                    f" {plan.policy.name!r} may lose something of {c.name!r}"
                )

    def encode(
        self, plan: SavePlan, tail: Tail | None
    ) -> Iterator[tuple[Iterator[bytes], dict[str, DecodedArray]]]:
        """Yield the chunks of each frame, and its arrays by name: nothing is lost of them."""
        parent = None if tail is None or plan.parent is None else _parent_of(tail)
        segment = segment_size(sum(c.bits.nbytes for c in plan.candidates))
        stored = Stored(segment, self._values, between=self._between)
        if parent is not None:
            stay = [cast(ParentBits, c.reference).hashed for c in plan.candidates if c.reference is not None]
            places = Places((a.offset, a.offset + len(a.hashes) * parent.segment) for a in stay)
            known = parent, self._changes, dict(parent.arrays), places, self._between
            stored = Stored(parent.segment, self._values, *known)
        self._stored = stored
        try:
            for chunks, arrays in stored.encode(plan):
                yield chunks, {c.name: DecodedArray(c.kind, c.shape, c.bits) for c in arrays}
        finally:
            if parent is not None:
                parent.close()

    def saved(self, step: int, root: bytes, names: Sequence[str]) -> dict[str, DecodedArray]:
        """Return the arrays of a step that is committed, for its tail; keep their hashes."""
        stored, self._stored, self._changes = self._stored, None, {}
        if stored is None:
            raise ValueError("nothing was coded")
        arrays = {name: stored.arrays[name] for name in names}
        if self._kept is not None:
            self._kept.write(root, stored.segment, arrays)
        parent = Parent(self._store, step, stored.segment, arrays, self._values, self._distrust)
        return _held(parent)

    def warn(self) -> None:
        """Warn if the file of values cannot be written: once."""
        if self._kept is not None:
            self._kept.warn()

    def makes_room(self, error: Exception) -> bool:
        """Return whether a save that failed for want of room may have it now.

        The file of values goes for it: a checkpoint is worth more.
        """
        is_full = isinstance(error, StorageError) and error.errno in NO_ROOM
        return is_full and self._kept is not None and self._kept.values.give_up()

    def _distrust(self) -> None:
        """Let the next attempt hash the newest step anew."""
        if self._kept is not None:
            self._kept.remove()


def _held(parent: Parent) -> dict[str, DecodedArray]:
    """Return the arrays of a checkpoint for its tail. Their components are read when needed."""
    return {
        name: DecodedArray(array.kind, array.shape, cast(Array, ParentBits(parent, name)))
        for name, array in parent.arrays.items()
    }


def _parent_of(tail: Tail) -> Parent | None:
    """Return what the arrays of a tail are read from; ``None`` if it has none."""
    return next((cast(ParentBits, array.bits).parent for array in tail.arrays.values()), None)
