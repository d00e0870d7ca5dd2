"""Following weight versions, of whoever publishes them: the counterpart of :func:`publish`.

What a version changes is found, and the digest of each tensor is compared, before anything of the
held state changes. So a damaged version, or one for another base, leaves the state as it was. A
tensor is made in memory of its own, unless few of its values change and its digest before, which
was verified, tells that after.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...byteorder import read_numbers, stored_view
from ...chain.read.followed_state import SPARSE_RATIO, ArrayChange, CancelledError, change_of, difference
from ...chain.read.follower import POLL_SECONDS, Follower, Lag, Update, checked_waits
from ...chain.read.replay import DecodedArray
from ...container.system import checked_path, storage_errors
from ...container.tree import leaf_name
from ...element_types import Array, components
from ...errors import (
    ArgumentError,
    ChainError,
    ChecksumError,
    DataError,
    FormatError,
    LccodecError,
    StorageError,
    warn,
)
from ..files.disk import regular_file
from ..files.header import FLOAT8_NAMES, Tensor, read_header
from ..tree import names_by_type, with_types
from .layout import SINGLE_NAME, Layout, Prefix, read_layout
from .versions import (
    RULE,
    Changed,
    VersionIndex,
    change_by,
    changed_adler32,
    find_form,
    make,
    read_index_of,
)


def follow(
    versions: str | os.PathLike[str],
    base: str | os.PathLike[str] | None = None,
    *,
    poll: float = POLL_SECONDS,
    timeout: float | None = None,
) -> Follower:
    """Follow weight versions, as :func:`lccodec.follow` follows a chain; a step is a version.

    Parameters
    ----------
    versions
        The directory of the versions, which need not exist yet.
    base
        The model that is version 0, in Hugging Face's layout. It is needed unless there is a full
        version.
    poll, timeout
        As for :func:`lccodec.follow`.

    Raises
    ------
    ArgumentError
        For paths and seconds that cannot be any.
    """
    pause, wait = checked_waits(poll, timeout)
    watch = _Versions(checked_path(versions), None if base is None else checked_path(base))
    return Follower(watch, once=False, poll=pause, timeout=wait)


@dataclass
class _State:
    """The tensors of a version, as bits; the types that NumPy lacks; digests that were verified.

    The version is -1 before any is read.
    """

    version: int = -1
    arrays: dict[str, DecodedArray] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)
    adler32: dict[str, str] = field(default_factory=dict)


class _Prepared(NamedTuple):
    update: Update | None
    state: _State
    changes: Mapping[str, ArrayChange]


class _Delta(NamedTuple):
    """The delta of a tensor in a version, and the noted digest of the tensor after it."""

    name: str
    version: VersionIndex
    path: Path
    tensor: Tensor
    digest: object

    @property
    def where(self) -> str:
        """What errors call it."""
        return f"{self.path}: {self.name!r}"

    @property
    def adler32(self) -> str:
        """The digest, if it tells that of a tensor of which few values change; else empty."""
        return str(self.digest) if self.version.checksum == "adler32" else ""

    def make(self, before: Array, out: Array) -> None:
        """Write what it makes of the bytes of the tensor before, which may be `out`."""
        version = self.version
        self._check(make(self._read(), before, out, version.encoding, version.checksum, self.where))

    def change(self, before: DecodedArray, digest: str | None) -> Changed | None:
        """Return what it changes; None if `make` takes less time.

        The digest of the tensor before, which was verified, tells that of the tensor after.
        """
        bits = before.bits
        if not digest or not self.adler32 or before.kind.components > 1:
            return None
        most = bits.size // SPARSE_RATIO
        changed = change_by(self._read(), bits, self.version.encoding, self.where, most)
        if changed is not None:
            self._check(changed_adler32(digest, bits.nbytes, *changed))
        return changed

    def _read(self) -> bytes:
        with regular_file(self.path) as stream:
            stream.seek(self.tensor.offset)
            return stream.read(self.tensor.nbytes)

    def _check(self, found: str) -> None:
        if found != self.digest:
            noted = f"the tensor has the digest {found} after the delta, and {self.digest!r:.80} is noted"
            raise ChecksumError(RULE, self.where, noted)


class _Versions:
    """The held version, and what comes after it."""

    def __init__(self, directory: Path, base: Path | None) -> None:
        self.place: object = directory
        self._directory, self._base, self._form = directory, base, find_form(())
        self._held = _State()
        self._refused: dict[int, tuple[tuple[int, ...], str]] = {}
        self._unread: set[int] = set()  # of those, the ones that may be read later
        self._indices: dict[int, VersionIndex | None] = {}  # that were read for one update

    @property
    def step(self) -> int | None:
        """The held version."""
        return self._held.version if self._held.version >= 0 else None

    def next(self, wanted: Callable[[], bool]) -> _Prepared | None:
        """Prepare the way to the newest version that can be read."""
        there, held = self._there(), self._held
        if max(there, default=-1) < held.version:  # the trainer has begun again
            held = _State()
        self._indices = {}
        for version in reversed([number for number in there if number > held.version]):
            seen = self._look_at(version)
            if self._refused.get(version, ((), ""))[0] == seen and version not in self._unread:
                continue
            try:
                return self._prepare(version, held, wanted)
            except CancelledError:
                return None
            except (DataError, ChainError, StorageError) as error:
                self._refuse(version, seen, error)
        return None

    def commit(self, way: _Prepared) -> None:
        """Go a way that was prepared. Doing it again does nothing."""
        for name, change in way.changes.items():
            if change.places is not None and way.state.arrays[name] is self._held.arrays.get(name):
                change.write(way.state.arrays[name].bits)
        self._held = way.state
        self._refused = {v: why for v, why in self._refused.items() if v > way.state.version}
        self._unread = set(self._refused)  # they may have needed what could not be read before

    def refused(self) -> Mapping[int, str]:
        """Return why newer versions cannot be read."""
        return {version: reason for version, (_, reason) in self._refused.items()}

    def lag(self) -> Lag:
        """Return the versions after the held one, and the bytes of their files."""
        later = [version for version in self._there() if version > self._held.version]
        return Lag(len(later), sum(map(self._size, later)))

    def state(self, dtype: str | None) -> dict[str, Array]:
        """Return copies of the tensors by name."""
        return {name: array.array(dtype).copy() for name, array in self._held.arrays.items()}

    def names(self) -> list[str]:
        """Return the names of the tensors of the held version."""
        return [leaf_name((name,)) for name in self._held.arrays]

    def array(self, path: str) -> DecodedArray | None:
        """Return a tensor of the held version; it must not be changed."""
        return self._held.arrays.get(Prefix("").name(path))

    def close(self) -> None:
        """Release the memory."""
        self._held = _State()

    def _there(self) -> list[int]:
        if not self._directory.is_dir():
            return []
        with storage_errors("cannot list", self._directory):
            names = os.listdir(self._directory)  # noqa: PTH208
        self._form = find_form(names)
        return [version for version in self._form.versions_in(names) if self._is_complete(version)]

    def _is_complete(self, version: int) -> bool:
        """Return whether a version has its index, which is written last, or its one file."""
        if (self._path(version) / self._form.index).is_file():
            return True
        names = [path.name for path in self._path(version).glob("*.safetensors")]
        return self._form.has_full and names == [SINGLE_NAME]

    def _path(self, version: int) -> Path:
        return self._directory / self._form.version_name(version)

    def _size(self, version: int) -> int:
        with storage_errors("cannot look at", self._path(version)):
            return sum(path.lstat().st_size for path in self._path(version).iterdir())

    def _look_at(self, version: int) -> tuple[int, ...]:
        with storage_errors("cannot look at", self._path(version)):
            files = sorted(self._path(version).iterdir())
            statuses = [path.lstat() for path in files]
        return tuple(number for status in statuses for number in (status.st_size, status.st_mtime_ns))

    def _refuse(self, version: int, seen: tuple[int, ...], error: LccodecError) -> None:
        said, self._refused[version] = self._refused.get(version), (seen, str(error))
        self._unread.discard(version)
        if isinstance(error, StorageError):  # what the system cannot read is tried again
            self._unread.add(version)
        if said == self._refused[version]:
            return
        stays = "there is no state yet" if self.step is None else f"the state stays at version {self.step}"
        warn(f"{self._directory}: version {version} cannot be read, and {stays}: {error}")

    def _prepare(self, version: int, held: _State, wanted: Callable[[], bool]) -> _Prepared:
        """Prepare the way to a version, from the newest full one, the held one, or the base."""
        deltas = list[VersionIndex]()
        number, full = version, None
        while number > max(held.version, 0):
            if number not in self._indices:
                self._indices[number] = read_index_of(self._path(number))
            if (index := self._indices[number]) is None:
                full = self._path(number)
                break
            if index.version != number or index.base_version != number - 1:
                message = f"says that it is version {index.version} on {index.base_version}"
                raise FormatError(RULE, str(self._path(number)), message)
            deltas.append(index)
            number -= 1
        if full is None and held.version < 0:
            if self._base is None:
                raise ChainError(f"{self._directory}: there is no full version, and no base was given")
            full = self._base
        state = _State(version, dict(held.arrays), held.types, dict(held.adler32))
        if full is not None:
            layout = read_layout(full)
            noted = ((name, FLOAT8_NAMES.get(tensor.dtype)) for name, tensor in layout.tensors.items())
            state.types = {name: kind for name, kind in noted if kind is not None}
            state.arrays, state.adler32 = _loaded(layout), {}
        read = [index.version for index in deltas]
        changes = self._changes(state, deltas[::-1], owns=full is not None, wanted=wanted)
        return self._way(state, changes, read if full in (None, self._base) else [*read, number])

    def _changes(
        self, state: _State, deltas: Sequence[VersionIndex], *, owns: bool, wanted: Callable[[], bool]
    ) -> dict[str, ArrayChange]:
        """Return what deltas change of the held state; `state` gets the arrays that are new whole.

        It may change the arrays of `state` if it `owns` them. Else a tensor is made in memory that
        the next one uses again, since mostly few values differ; or it is not made at all.
        """
        held, sources = self._held.arrays, self._by_name(deltas, state.arrays)
        buffer, changes = np.empty(0, np.uint8), dict[str, ArrayChange]()
        for name in state.arrays if owns else sources:
            if not wanted():
                raise CancelledError
            read, before = sources.get(name, []), state.arrays[name]
            sparse = read[0].change(before, state.adler32.get(name)) if len(read) == 1 and not owns else None
            if sparse is not None:
                change = change_of(before, sparse.places, sparse.new)
            else:
                old = stored_view(before.bits)
                if not owns and buffer.size < old.size:
                    buffer = np.empty(old.size, np.uint8)
                new = old if owns else buffer[: old.size]
                for number, delta in enumerate(read):
                    delta.make(new if number else old, new)
                bits = read_numbers(new, before.bits.dtype)
                after = DecodedArray(before.kind, before.shape, bits)
                change = difference(held.get(name), after)
                if change is not None and change.places is None and not owns:
                    buffer = np.empty(0, np.uint8)  # the array keeps the memory
                if owns or (change is not None and change.places is None):
                    state.arrays[name] = after
            if change is not None:
                changes[name] = change
            if read:
                state.adler32[name] = read[-1].adler32
        return changes

    def _by_name(
        self, indices: Sequence[VersionIndex], arrays: Mapping[str, DecodedArray]
    ) -> dict[str, list[_Delta]]:
        """Return the deltas of each tensor, in the order of their versions."""
        deltas: dict[str, list[_Delta]] = {}
        for index in indices:
            for delta in self._deltas_of(index):
                deltas.setdefault(delta.name, []).append(delta)
        if unknown := sorted(deltas.keys() - arrays.keys()):
            raise FormatError(RULE, deltas[unknown[0]][0].where, "the version before has no such tensor")
        return deltas

    def _deltas_of(self, index: VersionIndex) -> Iterator[_Delta]:
        """Yield the deltas of the tensors of a version."""
        files = dict[str, list[str]]()
        for name, entry in index.tensors.items():
            files.setdefault(entry.file, []).append(name)
        for file, names in sorted(files.items()):
            path = self._path(index.version) / file
            tensors, digests = read_header(path)
            keys = {index.tensors[name].key: name for name in names}
            if differing := sorted(keys.keys() ^ tensors.keys()):
                raise FormatError(RULE, str(path), f"only one of index and file has {', '.join(differing)}")
            for key, name in keys.items():
                noted = index.tensors[name].digest
                yield _Delta(name, index, path, tensors[key], digests.get(key) if noted is None else noted)

    def _way(self, state: _State, changed: Mapping[str, ArrayChange], read: Sequence[int]) -> _Prepared:
        before = self._held.arrays
        changes = {leaf_name((name,)): change for name, change in changed.items()}
        newest = self._path(state.version)
        index = read_index_of(newest)
        metadata = dict(index.metadata) if index is not None else {}
        types = names_by_type((leaf_name((name,)), kind) for name, kind in state.types.items())
        update = Update(
            step=state.version,
            base=self.step,
            names=tuple(changes),
            removed=tuple(leaf_name((name,)) for name in before if name not in state.arrays),
            metadata=with_types(metadata, types),
            steps=len(read),
            bytes_read=sum(map(self._size, read)),
            root="",
            base_root=None if self.step is None else "",
            _changes=changes,
        )
        return _Prepared(update, state, changed)


def _loaded(layout: Layout) -> dict[str, DecodedArray]:
    arrays = {}
    for name, array in layout.arrays().items():
        kind, bits = components(array)
        arrays[name] = DecodedArray(kind, array.shape, np.array(bits))
    missing = [name for name, tensor in layout.tensors.items() if tensor.kind is None]
    if missing:
        raise ArgumentError(f"{layout.directory}: tensor {missing[0]!r} is of a type that is not known")
    return arrays
