"""A prefix of a bucket as the store of a chain.

A save uploads a file as data under a name of its own, and puts the commit if there is none
(:mod:`.writer`). What there is stands in the names of objects (:mod:`.keys`).

What is removed loses its commit first, so that readers do not find it any more. Data goes only when
it is older than `MIN_AGE_SECONDS`: a writer may be about to commit it, or a reader has just found
it. Younger data is removed by a later save or prune.

Source: SPEC 9 (LCC-BKT).
"""

from __future__ import annotations

import errno
import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from copy import copy
from typing import Final, Self

from ....constants import CHECKPOINT_SUFFIX, EXACT_NAME, ROLLED_BACK_NAME
from ....container.disk.address import Address, Place
from ....container.disk.source import Source
from ....container.reader import CheckpointReader
from ....container.writer import CheckpointWriter
from ....errors import ChainError, FormatError, StorageError
from ..names import checkpoints_among
from ..store import Held, Store, WritableStore
from .backend import ExistsError, MissingError
from .cache import Disk
from .claim import BucketClaim
from .keys import (
    MAX_COMMIT_BYTES,
    Entry,
    Listing,
    Object,
    commit_key,
    named_by,
    read_listing,
)
from .lease import Lease, LeasedError
from .patience import PatientBackend
from .shelf import BucketShelf
from .source import BucketSource, Reading, ends
from .writer import ObjectWriter, send

#: Seconds that data without a commit is left alone.
MIN_AGE_SECONDS: Final = 3600.0

_SECONDS_BETWEEN_SWEEPS: Final = 600.0
_MAX_ATTEMPTS: Final = 3  # to list, while others remove

LOCK_FOLDER: Final = ".lock"
_SECONDS_BETWEEN_ATTEMPTS: Final = 0.2
_MAX_SECONDS_TO_WAIT: Final = 600.0


class _Reader:
    """What a store and its snapshots share."""

    def __init__(self, backend: PatientBackend, disk: Disk) -> None:
        self.backend = backend
        self.reading = Reading(backend, disk)
        self.swept = -math.inf  # when data without a commit was looked for
        self._commits: dict[tuple[str, float], bytes] = {}

    def listing(self, below: str, folder: str = "") -> Listing:
        """Return what there is now: of all files, or of one alone."""
        for _ in range(_MAX_ATTEMPTS - 1):
            with suppress(MissingError):  # a commit was removed before it could be read
                return self._listing(below, folder)
        return self._listing(below, folder)

    def _listing(self, below: str, folder: str) -> Listing:
        objects = self.backend.objects(folder)
        modified = {each.key: each.modified for each in objects}

        def read(keys: list[str]) -> list[bytes]:
            found = {
                key: self._commits[key, modified[key]]
                for key in keys
                if (key, modified[key]) in self._commits
            }
            for _ in range(2):  # a commit has no hash: what names no data is asked for again
                left = [key for key in keys if key not in found or not names_data(found[key])]
                found |= zip(left, self.backend.read_small(left, MAX_COMMIT_BYTES), strict=True)
            self._commits.update(
                ((key, modified[key]), data) for key, data in found.items() if names_data(data)
            )
            return [found[key] for key in keys]

        def names_data(commit: bytes) -> bool:
            with suppress(FormatError):
                return named_by(commit, "") in modified
            return False

        return read_listing(objects, read, below)


class BucketStore(WritableStore):
    """The files of a chain in a bucket.

    Parameters
    ----------
    address
        The prefix of all its objects.
    backend
        These objects.
    disk
        What is kept of them on the disk.
    """

    path: Address
    far = True

    def __init__(self, address: Address, backend: PatientBackend, disk: Disk | None = None) -> None:
        super().__init__(address)
        self.shared = backend.shared
        self._backend = backend
        self._reader = _Reader(backend, disk or Disk.of_user())
        self._below = ""
        self._listing: Listing | None = None  # of a snapshot

    def call_between(self, between: Callable[[], object]) -> None:
        """Let a function be called while a call to the store takes long."""
        self._backend.call_between(between)

    def afresh(self) -> Self:
        """Return the store without what was read of it before, in memory or on the disk."""
        made = copy(self)
        made._reader = _Reader(self._backend, Disk(None))
        made._reader.swept = self._reader.swept
        if self._listing is not None:
            made._listing = made._reader.listing(self._below)
        return made

    def snapshot(self) -> BucketStore:
        """Return the store as one listing has it now."""
        if self._listing is not None:
            return self
        return self._with(self._below, self._reader.listing(self._below))

    def _set_aside(self, name: str) -> BucketStore:
        """Return the chain that a rollback has set aside under a name."""
        made = self._with(f"{ROLLED_BACK_NAME}/{name}/", None)
        Store.__init__(made, self.path / ROLLED_BACK_NAME / name)
        return made

    def _with(self, below: str, listing: Listing | None) -> BucketStore:
        made = copy(self)
        made._below, made._listing = below, listing
        return made

    def _listed(self) -> Listing:
        return self._listing or self._reader.listing(self._below)

    def _about(self, name: str) -> Listing:
        """Return what there is of one file, without a listing of all others."""
        if self._listing is not None or self._below:
            return self._listed()
        if name.endswith(CHECKPOINT_SUFFIX):
            return self._reader.listing("", name)
        found = self._backend.head(name)
        return Listing(others={} if found is None else {name: found})

    def names(self) -> list[str]:
        """Return the names of all files."""
        return self._listed().names

    def chains(self) -> dict[Place, list[int]]:
        """Return the chains whose prefixes go on from this one."""
        found = sorted(self._listed().chains.items())
        return {self.path / below: list(checkpoints_among(names)) for below, names in found}

    def has(self, name: str) -> bool:
        """Return whether there is a file of that name."""
        return name in self._about(name).names

    def source(self, name: str) -> BucketSource:
        """Open a file for reads of ranges: its ends are fetched, if they are not at hand."""
        entry = self._entry(self._about(name), name)
        self._reader.reading.ahead(ends(entry))
        return BucketSource(self._reader.reading, entry, str(self.path / name))

    def ahead(self, names: Iterable[str]) -> None:
        """Fetch the ends of files, and of all that they need."""
        if self._listing is not None:
            entries = self._needed(self._listing, names)
            self._reader.reading.ahead(span for entry in entries for span in ends(entry))

    @staticmethod
    def _needed(listing: Listing, names: Iterable[str]) -> list[Entry]:
        """Return files with all that they need, as far as they are there."""
        by_step = {e.data.step: e for name, e in listing.entries.items() if name != EXACT_NAME}
        left, found = list(names), dict[str, Entry]()
        while left:
            entry = listing.entries.get(left.pop())
            if entry is not None and entry.name not in found:
                found[entry.name] = entry
                left += [by_step[step].name for step in entry.data.parents if step in by_step]
        return list(found.values())

    def size(self, names: Iterable[str]) -> int:
        """Return the bytes that files take together."""
        listing = self._listed()
        return sum(
            listing.others[name].size if name in listing.others else self._entry(listing, name).object.size
            for name in names
        )

    def identity(self, name: str) -> tuple[int, ...]:
        """Return what tells a file from another that takes its name."""
        entry = self._entry(self._about(name), name)
        return entry.generation, int.from_bytes(entry.data.root, "big")

    def root(self, name: str) -> tuple[bytes, int]:
        """Return the root of a file, and its bytes, as its name says."""
        entry = self._entry(self._about(name), name)
        return entry.data.root, entry.object.size

    def exact_step(self) -> int | None:
        """Return the step of the exact file, as its name says."""
        entry = self._about(EXACT_NAME).entries.get(EXACT_NAME)
        return None if entry is None else entry.data.step

    def parents_of(self, name: str) -> tuple[int, ...]:
        """Return the steps of the parents of a checkpoint, as its name says."""
        entry = self._about(name).entries.get(name)
        return () if entry is None else entry.data.parents

    def _entry(self, listing: Listing, name: str) -> Entry:
        if name in listing.entries:
            return listing.entries[name]
        lost = name in listing.missing
        message = "its data is missing in the bucket" if lost else "there is no such file in the bucket"
        raise StorageError(errno.ENOENT, message, str(self.path / name))

    def make(self) -> None:
        """Do nothing: a prefix is there when there is an object below it."""

    def writer(self, name: str, *, overwrite: bool = False) -> CheckpointWriter:
        """Return the writer of a file that is there whole or not at all."""
        generation = self._about(name).next_generation(name) if overwrite else 0
        return ObjectWriter(self._backend, self.path, name, generation, self.replaced)

    def receive(
        self, name: str, source: Source, check: Callable[[CheckpointReader], object], *, overwrite: bool
    ) -> None:
        """Upload a file, read its data again from the bucket to check it, and put the commit.

        Data that is refused has no commit, and is removed once it is old enough.
        """
        generation = self._about(name).next_generation(name) if overwrite else 0
        send(self._backend, self.path, name, generation, source, check)
        if generation:
            with suppress(StorageError):  # a later one does it
                self.replaced(name, generation)

    def written(self, name: str) -> float:
        """Return when the data of a file was put, by the clock of the store."""
        return self._entry(self._about(name), name).object.modified

    def replaced(self, name: str, generation: int) -> None:
        """Remove the commits that a newer one replaces, but for the first of a checkpoint.

        That one keeps its place from a writer that believes the step to be new.
        """
        entry = self._about(name).entries.get(name)
        older = () if entry is None else [g for g in entry.generations if g < generation]
        self._backend.delete(commit_key(name, g) for g in older if g or name == EXACT_NAME)

    def remove(self, names: Iterable[str]) -> None:
        """Remove files: their commits, and their data if it is old enough."""
        listing, gone, folders = self._reader.listing(self._below), list(names), dict[str, tuple[int, ...]]()
        for name in gone:
            if name in listing.entries or name in listing.missing:
                entry = listing.entries.get(name)
                folders[name] = listing.missing[name] if entry is None else entry.generations
        others = [self._below + name for name in gone if name in listing.others]
        older = [self._below + commit_key(n, g) for n, each in folders.items() for g in each[:-1]]
        newest = [self._below + commit_key(n, each[-1]) for n, each in folders.items()]
        # An older commit must not come back: it goes first.
        self._backend.delete(older)
        self._backend.delete([*newest, *others])
        if newest:
            self._sweep()

    @contextmanager
    def locked(self) -> Iterator[Held]:
        """Hold the lease for pins and removals, after waiting for it."""
        lease, end = Lease(self._backend, LOCK_FOLDER), time.monotonic() + _MAX_SECONDS_TO_WAIT
        while True:
            try:
                lease.try_take()
                break
            except LeasedError as other:
                if time.monotonic() > end:
                    message = f"{self.path}: {other} pins or removes steps, and does not end"
                    raise ChainError(message) from None
            time.sleep(_SECONDS_BETWEEN_ATTEMPTS)
        try:
            yield _HeldBucket(self)
        finally:
            lease.release()

    @contextmanager
    def locked_if_free(self) -> Iterator[Held | None]:
        """Hold the lease; yield ``None`` if another process has it."""
        lease = Lease(self._backend, LOCK_FOLDER)
        try:
            lease.try_take()
        except LeasedError:
            yield None
            return
        try:
            yield _HeldBucket(self)
        finally:
            lease.release()

    def add(self, name: str) -> None:
        """Put an empty object, if there is none of that name."""
        with suppress(ExistsError):
            self._backend.put_if_absent(self._below + name, b"")

    def shelf(self) -> BucketShelf:
        """Return what rollbacks have set aside in the bucket."""
        return BucketShelf(self._backend, self, self._set_aside, self._reader.listing)

    def remove_stale(self) -> None:
        """Remove data that no commit names and that is old enough; look for it now and then."""
        if time.monotonic() - self._reader.swept > _SECONDS_BETWEEN_SWEEPS:
            self._sweep()

    def _sweep(self) -> None:
        self._reader.swept = time.monotonic()
        self._backend.delete(each.key for each in self._reader.listing("").loose if _is_old(each))

    def claim(self) -> BucketClaim:
        """Return a claim on the chain, not yet taken."""
        return BucketClaim(self._backend, str(self.path))

    def sync(self) -> None:
        """Do nothing: what a store has accepted is durable."""


class _HeldBucket:
    """A bucket while its lease for pins and removals is held."""

    def __init__(self, store: BucketStore) -> None:
        self._store = store

    def add(self, name: str) -> None:
        """Put an empty object, if there is none of that name."""
        self._store.add(name)

    def remove(self, names: Iterable[str]) -> None:
        """Remove files."""
        self._store.remove(names)

    def sync(self) -> None:
        """Do nothing."""


def _is_old(each: Object) -> bool:
    return time.time() - each.modified > MIN_AGE_SECONDS
