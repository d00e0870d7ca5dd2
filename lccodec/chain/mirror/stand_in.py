"""A chain whose damaged and missing files are read from a mirror.

A file of the chain is verified in full when it is opened, and where it is not whole, a mirror's is
read in its place. That is verified as it is read, by its root and its digests. It must have the
root of the file that is damaged, if only its payload is, and the roots that others name: its
parents, its children, and of an exact file the checkpoint of its step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from ...constants import EXACT_NAME
from ...container.checkpoint import CheckpointReader
from ...container.source import Source
from ...errors import ChainError, DataError, LccodecError, StorageError, is_loss, warn
from ..store.lineage import Lineage
from ..store.names import checkpoint_name
from ..store.store import Store
from .transfer import Inventory, check_kin, step_of

Found = TypeVar("Found")


class StandIn(Store):
    """The files of a chain, and those of mirrors in the place of what is lost.

    Parameters
    ----------
    store
        The chain.
    mirrors
        Its mirrors. One that cannot be listed, or that is of another chain, is left out.
    tell
        Is told, by name, which files come from which mirror, and why.

    Raises
    ------
    ChainError
        If no mirror is left.
    """

    def __init__(
        self, store: Store, mirrors: Sequence[Store], tell: Callable[[str, Store, str], object] | None = None
    ) -> None:
        super().__init__(store.path)
        self.far = store.far
        self._store = store
        self._tell = tell or self._warn
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
        self._chosen: dict[str, Store] = {}

    def _warn(self, name: str, mirror: Store, why: str) -> None:
        warn(f"{self.path}: {name} is read from the mirror {mirror.path}: {why}")

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

    def admit(self, mirror: Store, names: Iterable[str]) -> None:
        """Take files from a mirror though they are of steps that the chain does not have yet."""
        self._chosen |= dict.fromkeys(names, mirror)

    def of(self, name: str) -> Store:
        """Return the store that a file is read from."""
        if name not in self._chosen:
            self._chosen[name] = self._choose(name)
        return self._chosen[name]

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
                self._tell(name, mirror, why)
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

    Parameters
    ----------
    read
        Reads from a store, and is told whether everything must be whole there. Otherwise it may
        make do with less.
    mirrors
        Returns the mirrors of the chain.
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
