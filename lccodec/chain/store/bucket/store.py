"""A prefix of a bucket as the store of a chain.

A save writes a file whole on the disk, uploads it as data under a name of its own, and puts the
commit if there is none. A lost answer looks as if another writer had come first: if the commit
names the same data, it is this one. What there is stands in the names of objects (:mod:`.keys`).

What is removed loses its commit first, so that readers do not find it any more. Data goes only when
it is older than `MIN_AGE_SECONDS`: a writer may be about to commit it, or a reader has just found
it. Younger data is removed by a later save or prune.

What rollbacks have set aside are commits in ``.rolled-back``, which name the same data, and a
marker: an empty object that is put last and removed first. Without it, the commits are left by a
rollback that was cut short, and go with the next one.

Source: SPEC 9 (LCC-BKT).
"""

from __future__ import annotations

import errno
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Self

from ....constants import CHECKPOINT_SUFFIX, EXACT_NAME, PAYLOAD_OFFSET, ROLLED_BACK_NAME
from ....container.checkpoint import CheckpointReader, CheckpointWriter, open_checkpoint
from ....container.folder import WholeFile
from ....container.manifest import Manifest
from ....container.scratch import TemporaryFolder, clear_abandoned
from ....container.source import Source, Verify
from ....container.system import Address, Place, System
from ....errors import ArgumentError, ChainError, DependencyError, FormatError, StorageError
from ..store import (
    LockedStore,
    OvertakenError,
    Store,
    WritableStore,
    checkpoints_among,
    in_order,
    next_name,
    pin_name,
)
from .backend import (
    Backend,
    ExistsError,
    FsspecBackend,
    MissingError,
    ObstoreBackend,
    Patience,
    PatientBackend,
    WebBackend,
)
from .claim import BucketClaim, Lease, LeasedError
from .keys import (
    MAX_COMMIT_BYTES,
    SHELF_MARKER,
    Data,
    Entry,
    Listing,
    commit_bytes,
    commit_key,
    is_of_shelf,
    named_by,
    read_listing,
)
from .source import BucketSource, Disk, Reading, ends


class BucketShelf:
    """What rollbacks have set aside of a chain in a bucket.

    `chain` returns what was set aside under a name, `listing` what there is in a folder of the
    chain.
    """

    def __init__(
        self,
        backend: PatientBackend,
        store: WritableStore,
        chain: Callable[[str], WritableStore],
        listing: Callable[[str], Listing],
    ) -> None:
        self._backend, self._store, self._chain, self._listing = backend, store, chain, listing

    def _objects(self) -> dict[str, list[str]]:
        """Return the keys of what rollbacks have put here, by name; other objects stay."""
        found: dict[str, list[str]] = {}
        for each in self._backend.objects(ROLLED_BACK_NAME):
            if is_of_shelf(each.key):
                found.setdefault(each.key.split("/")[1], []).append(each.key)
        return found

    def names(self) -> list[tuple[str, int]]:
        """Return the names of what is complete."""
        found = self._objects()
        return in_order(name for name, keys in found.items() if _key(name, SHELF_MARKER) in keys)

    def chain(self, name: str) -> WritableStore:
        """Return the chain that was set aside under a name."""
        return self._chain(name)

    def add(self, step: int, files: Sequence[str], pins: Iterable[int]) -> str:
        """Put commits of files, pins, and then the marker."""
        there = self._objects()
        self._clear({name: keys for name, keys in there.items() if _key(name, SHELF_MARKER) not in keys})
        entries, made = self._listing("").entries, next_name(there, step)
        for file in files:
            entry = entries[file]
            key = _key(made, commit_key(file, entry.data.generation))
            self._backend.put_if_absent(key, commit_bytes(entry.object.key))
        self.pin(made, pins)
        self._put(_key(made, SHELF_MARKER), b"")
        return made

    def pin(self, name: str, pins: Iterable[int]) -> None:
        """Pin steps that were set aside."""
        for pin in pins:
            self._put(_key(name, pin_name(pin)), b"")

    def is_same(self, name: str, file: str) -> bool:
        """Return whether a file of the chain has the state of the one that was set aside."""
        aside = self.chain(name)
        if not aside.has(file):
            return False
        with aside.open(file) as left, self._store.open(file) as right:
            return bool(left.roots & right.roots)

    def put_back(self, name: str, file: str, *, overwrite: bool = False) -> None:  # noqa: ARG002 - as below
        """Put a commit with a number that no other commit has, and no data."""
        entry: Entry = self._listing(_key(name, "")).entries[file]
        numbers = [self._listing("").next_generation(file)]
        for each in self._backend.objects(file):
            number = each.key.rpartition("/")[2].partition(".")[0]
            numbers += [int(number) + 1] if number.isdecimal() else []
        commit = commit_bytes(entry.object.key)
        self._put(commit_key(file, 0), commit)  # it keeps the place
        self._backend.put_if_absent(commit_key(file, max(numbers)), commit)

    def remove(self, names: Iterable[str]) -> None:
        """Remove markers, and then all that lies behind them."""
        gone, there = set(names), self._objects()
        self._backend.delete(_key(name, SHELF_MARKER) for name in there if name in gone)
        self._clear({name: keys for name, keys in there.items() if name in gone})

    def _clear(self, found: dict[str, list[str]]) -> None:
        self._backend.delete(key for keys in found.values() for key in keys)

    def _put(self, key: str, data: bytes) -> None:
        with suppress(ExistsError):
            self._backend.put_if_absent(key, data)


def _key(name: str, leaf: str) -> str:
    return f"{ROLLED_BACK_NAME}/{name}/{leaf}"


#: Bytes of an object that are read together, in parts side by side.
_WINDOW_BYTES: Final = 32 << 20


class _Volatile(System):
    """The system, for files that need not outlast a loss of power: they are uploaded at once."""

    @staticmethod
    def fsync(fd: Any) -> None:
        """Do nothing."""


class ObjectWriter(CheckpointWriter):
    """Writes a file to a temporary directory, and commits it to the bucket as a generation.

    `replaced` is called after a commit that takes the place of others.
    """

    def __init__(
        self,
        backend: PatientBackend,
        place: Place,
        name: str,
        generation: int,
        replaced: Callable[[str, int], None],
    ) -> None:
        self._folder = TemporaryFolder()
        self._path = self._folder.path / name
        super().__init__(self._path, system=_Volatile())
        self._backend, self._place, self._replaced = backend, place, replaced
        self._name, self._generation = name, generation

    def __exit__(self, *args: object) -> None:
        super().__exit__(*args)
        self._folder.close()

    def commit(self, manifest: Manifest, check: Callable[[Path], object] | None = None) -> bytes:
        """Write the rest, upload the file, call `check`, and put the commit that names it.

        Raises ``ChainError`` if another writer has committed a file of that name.
        """
        root = super().commit(manifest)
        self.root = None  # until it is in the bucket
        data = _data_of(manifest, root, self.size, self._generation)
        key = f"{self._name}/{data.name()}"
        self._backend.upload(key, self._path)
        if check is not None:
            check(self._path)
        _put_commit(self._backend, self._place, self._name, data)
        self.root = root
        if self._generation:
            with suppress(StorageError):  # a later one does it
                self._replaced(self._name, self._generation)
        return root


def _data_of(manifest: Manifest, root: bytes, size: int, generation: int) -> Data:
    """Return what the name of the data of a file is to say."""
    tail = size - PAYLOAD_OFFSET - manifest.payload_length
    parents = tuple(parent.step for parent in manifest.parents)
    return Data(generation, manifest.step or 0, root, parents, tail)


def _put_commit(backend: PatientBackend, place: Place, name: str, data: Data) -> None:
    """Put the commit of data that was uploaded; raise `OvertakenError` if another came first."""
    commit, key = commit_key(name, data.generation), f"{name}/{data.name()}"
    try:
        backend.put_if_absent(commit, commit_bytes(key))
    except ExistsError:
        try:
            found = named_by(backend.read_small([commit], MAX_COMMIT_BYTES)[0], commit)
        except MissingError:
            found = ""  # another's, which is removed already
        other = Data.parse(found.rpartition("/")[2])
        if other is None or other.root != data.root:
            raise OvertakenError(
                f"{place}: another process is saving to this chain, which has one writer"
                f" at a time, and has committed {name} first; save to another directory"
            ) from None


class _Windows:
    """An object that is read once from its beginning to its end, in large pieces.

    Nothing that was read before answers for the bucket, and memory holds one piece. As pieces are
    large, there is no need to ask for all at once (`far`).
    """

    far = False

    def __init__(self, backend: PatientBackend, key: str, size: int) -> None:
        self._backend, self._key, self.size = backend, key, size
        self._start, self._piece = 0, b""

    def read(self, offset: int, size: int) -> bytes:
        """Return `size` bytes from `offset` on."""
        if not self._start <= offset <= offset + size <= self._start + len(self._piece):
            length = max(size, min(_WINDOW_BYTES, self.size - offset))
            self._start, self._piece = offset, self._backend.read(self._key, offset, length)
        return self._piece[offset - self._start : offset - self._start + size]

    def ahead(self, wanted: Iterable[tuple[Source, int, int]]) -> None:
        """Do nothing."""

    def opened(self, root: bytes, verify: Verify) -> None:
        """Do nothing: nothing is kept but the piece."""

    def forget(self, offset: int, size: int) -> bool:  # noqa: ARG002 - the piece goes whole
        """Release the piece; the store may send other bytes next time."""
        self._piece = b""
        return True

    def rest(self, root: bytes) -> None:
        """Do nothing: nothing is open."""

    def close(self) -> None:
        """Release the piece."""
        self._piece = b""


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
    """The files of a chain in a bucket, below an address; `disk` is what is kept of them here."""

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
        with TemporaryFolder() as folder:
            path = folder / name
            with WholeFile(path, system=_Volatile()) as file:
                file.copy(source)
                file.commit()
            with open_checkpoint(path) as reader:
                size = reader.file_size
                data = _data_of(reader.manifest, reader.root, size, generation)
            key = f"{name}/{data.name()}"
            self._backend.upload(key, path)
        with CheckpointReader(_Windows(self._backend, key, size), str(self.path / name)) as reader:
            check(reader)
        _put_commit(self._backend, self.path, name, data)
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
    def locked(self) -> Iterator[LockedStore]:
        """Hold the lease for pins and removals, after waiting for it."""
        with self._leased(_MAX_SECONDS_TO_WAIT) as other:
            if other is not None:
                raise ChainError(f"{self.path}: {other} pins or removes steps, and does not end")
            yield self

    @contextmanager
    def locked_if_free(self) -> Iterator[LockedStore | None]:
        """Hold the lease; yield ``None`` if another process has it."""
        with self._leased(0) as other:
            yield self if other is None else None

    @contextmanager
    def _leased(self, seconds: float) -> Iterator[LeasedError | None]:
        """Hold the lease; yield who has it if that is another process, still after some seconds."""
        lease, end = Lease(self._backend, LOCK_FOLDER), time.monotonic() + seconds
        other: LeasedError | None = None
        while True:
            try:
                lease.try_take()
                other = None
            except LeasedError as error:
                other = error
            if other is None or time.monotonic() >= end:
                break
            time.sleep(_SECONDS_BETWEEN_ATTEMPTS)
        try:
            yield other
        finally:
            if other is None:
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
        oldest = time.time() - MIN_AGE_SECONDS
        self._backend.delete(each.key for each in self._reader.listing("").loose if each.modified < oldest)

    def claim(self) -> BucketClaim:
        """Return a claim on the chain, not yet taken."""
        return BucketClaim(self._backend, str(self.path))

    def sync(self) -> None:
        """Do nothing: what a store has accepted is durable."""


_OBSTORE_SCHEMES: Final = frozenset(("s3", "s3a", "gs", "az", "azure", "abfs", "abfss"))
_HELP: Final = "an address needs the extra remote: pip install 'lccodec[remote]'"


def connect(address: Address, patience: Patience | None = None) -> BucketStore:
    """Return the chain at an address. Nothing is requested yet.

    What killed saves to buckets have left in the system's folder for temporaries is removed. Raises
    ``DependencyError``, with the command that installs what is missing, or ``ArgumentError`` if
    there is no store of that kind.
    """
    backend: Backend
    if address.scheme in _OBSTORE_SCHEMES:
        _need("obstore", address)
        backend = ObstoreBackend(address)
    elif address.scheme == "file":
        raise ArgumentError(f"{address}: give a local directory as a path, without file://")
    else:
        _need("fsspec", address)
        backend = WebBackend(address) if address.scheme in ("http", "https") else FsspecBackend(address)
    clear_abandoned()
    patient = PatientBackend(backend, str(address), patience or Patience())
    return BucketStore(address, patient)


def _need(package: str, address: Address) -> None:
    if find_spec(package) is None:
        raise DependencyError(f"{address}: {_HELP}; {package} is not installed")
