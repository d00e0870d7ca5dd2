"""Writing one weight version: a delta, or a full one.

A version is written under a temporary name and gets its own by one rename, so it is there whole or
not at all.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from ...byteorder import stored_view
from ...chain.read.follow.watch import Patch, Update, Watch, Way
from ...chain.read.links import Link
from ...chain.read.replay import DecodedArray
from ...container.disk.folder import Folder, is_temporary, temporary_name
from ...container.disk.source import FileSource
from ...container.disk.system import Bytes, System, storage_errors
from ...container.disk.whole_file import WholeFile
from ...element_types import Array, components
from ...errors import ArgumentError, warn
from ..files.header import DTYPE_NAMES, FLOAT8_NAMES
from ..tree.plain import read_types
from .layout import SINGLE_NAME, tensor_file
from .versions import (
    Checksum,
    Encoding,
    Entry,
    Form,
    VersionIndex,
    changed_adler32,
    compressed,
    digest_of,
    encoded,
)

_Made: TypeAlias = tuple[bytes, str, tuple[int, ...], int]  # a difference, of what type, shape and bytes
_TYPE_NAMES: Final = {name: key for key, name in (*DTYPE_NAMES.items(), *FLOAT8_NAMES.items())}


@dataclass(frozen=True)
class ChainShare:
    """What one chain brings to a version: some of the tensors."""

    watch: Watch  # it holds what the engines have
    way: Way | None  # to the step of the version; None if that is held
    link: Link  # the checkpoint of that step
    names: Mapping[str, str]  # of its tensors, by their paths in the state

    @property
    def update(self) -> Update | None:
        """What is new, if anything is."""
        return None if self.way is None else self.way.update

    @property
    def patches(self) -> list[Patch]:
        """What is new of each tensor."""
        patches = () if self.update is None else self.update.patches("bits")
        return [patch for patch in patches if patch.name in self.names]

    def types(self) -> dict[str, str]:
        """Return the types of tensors that NumPy lacks."""
        types = read_types(self.link.manifest.metadata)
        return {name: types[path] for path, name in self.names.items() if path in types}

    def commit(self) -> None:
        """Let the watch hold the step of the version."""
        if self.way is not None:
            self.watch.commit(self.way)


@dataclass(frozen=True)
class Target:
    """The version to be written, and what its metadata name."""

    directory: Path
    version: int
    metadata: Mapping[str, str]
    system: System
    form: Form

    def write(self, files: Mapping[str, Iterable[Bytes]], more: Iterable[Path] = ()) -> int:
        """Write the files of the version, and give it its name; return the bytes of the files."""
        nbytes = 0
        with storage_errors("cannot write to", self.directory), Folder(self.directory, self.system) as folder:
            temporary = temporary_name()
            folder.system.mkdir(folder / temporary)
            with folder.inner(temporary) as inner:
                for path in more:
                    with closing(FileSource(path)) as source, WholeFile(path.name, folder=inner) as file:
                        file.copy(source)
                        file.commit()
                for name, pieces in files.items():
                    with WholeFile(name, folder=inner) as file:
                        for piece in pieces:
                            file.write(piece)
                        file.commit()
                        nbytes += file.size
            folder.rename(temporary, self.form.version_name(self.version))
            folder.sync()
        return nbytes


def is_delta(parts: Sequence[ChainShare]) -> bool:
    """Return whether the version has the tensors of the one before."""
    for part in parts:
        if part.update is not None and part.update.removed:
            return False
        for patch in part.patches:
            old = part.watch.array(patch.name)
            if old is None or (old.kind.name, old.shape) != (patch.dtype, patch.shape):
                return False
    return True


class Differ:
    """Writes deltas, and knows the digests of the tensors that the engines have."""

    def __init__(self, encoding: Encoding, checksum: Checksum) -> None:
        self._encoding, self._checksum = encoding, checksum
        self._digests: dict[str, str] = {}  # by the names of tensors
        self._zeros = np.zeros(0, np.uint8)  # whenever no difference is made in them

    def forget(self) -> None:
        """Forget the digests: the engines get other tensors."""
        self._digests, self._zeros = {}, self._zeros[:0]

    def write(self, target: Target, parts: Sequence[ChainShare]) -> int:
        """Write a delta, each part in a file of its own; return the bytes of the files."""
        ranks, known = list[dict[str, _Made]](), dict[str, str]()
        for part in parts:
            tensors, types = dict[str, _Made](), part.types()
            for patch in part.patches:
                before, name = part.watch.array(patch.name), part.names[patch.name]
                if before is None:  # `is_delta` would have found it
                    continue
                change = _Bytes.of(before, patch)
                digest = self._digest(name, change)
                if name not in known:
                    dtype = types.get(name, patch.dtype)
                    tensors[name] = self._encoded(change), dtype, patch.shape, before.bits.nbytes
                elif known[name] != digest:
                    raise _differ(name)
                known[name] = digest
            if tensors:
                ranks.append(tensors)
        form, files, entries = target.form, dict[str, Iterable[Bytes]](), dict[str, Entry]()
        for number, tensors in enumerate(ranks):
            file = form.file.format(number, len(ranks))
            digests = {name: known[name] for name in tensors} if form.has_full else {}
            stored = [(name, "U8", (len(data),), data) for name, (data, *_) in tensors.items()]
            files[file] = tensor_file(stored, digests)
            for name, (data, dtype, shape, whole) in tensors.items():
                entries[name] = Entry(file, name, known[name], dtype, shape, whole, len(data))
        numbers = target.version, target.version - 1
        index = VersionIndex(*numbers, self._encoding, self._checksum, entries, target.metadata)
        nbytes = target.write({**files, form.index: [index.to_json(form)]})
        self._digests.update(known)
        return nbytes

    def _digest(self, name: str, change: _Bytes) -> str:
        """Return the digest of a tensor after a change."""
        before = self._digests.get(name)
        if self._checksum == "adler32" and before is not None and change.places is not None:
            return changed_adler32(before, change.bits.nbytes, change.places, change.old, change.new)
        return digest_of(self._checksum, stored_view(change.after()))

    def _encoded(self, change: _Bytes) -> bytes:
        nbytes = change.bits.nbytes
        if self._encoding != "xor":
            return encoded(stored_view(change.bits), stored_view(change.after()), self._encoding)
        if self._zeros.size < nbytes:
            self._zeros = np.zeros(nbytes, np.uint8)
        zeros = self._zeros[:nbytes]
        if change.places is None:
            try:
                np.bitwise_xor(stored_view(change.bits), stored_view(change.new), out=zeros)
                return compressed(zeros)
            finally:
                zeros[:] = 0
        # Where little differs, the difference is written into zeros: no pass over both tensors.
        differences = zeros.view(change.new.dtype.newbyteorder("<"))
        try:
            differences[change.places] = change.old ^ change.new
            return compressed(zeros)
        finally:
            differences[change.places] = 0


class _Bytes(NamedTuple):
    """The bits of a tensor, and what is new in them; without places, all of it."""

    bits: Array
    places: Array | None
    old: Array
    new: Array

    @classmethod
    def of(cls, before: DecodedArray, patch: Patch) -> _Bytes:
        new = components(patch.values)[1]
        if patch.places is None:
            return cls(before.bits, None, before.bits, new)
        return cls(before.bits, patch.places, before.bits.take(patch.places, mode="clip"), new)

    def after(self) -> Array:
        """Return the bits of all of the tensor as it is now."""
        if self.places is None:
            return self.new
        bits = self.bits.copy()
        bits[self.places] = self.new
        return bits


def _differ(name: str) -> ArgumentError:
    return ArgumentError(f"tensor {name!r}: two ranks have it with other values")


def write_full(target: Target, parts: Sequence[ChainShare], others: Iterable[Path]) -> int:
    """Write a full version from what is held, with other files beside it; return its bytes."""
    stored = dict[str, tuple[str, tuple[int, ...], Array]]()
    for part in parts:
        types = read_types(part.link.manifest.metadata)
        for path, name in part.names.items():
            array = part.watch.array(path)
            if array is None:
                continue
            dtype = _TYPE_NAMES.get(types.get(path, ""), _TYPE_NAMES.get(array.kind.name))
            if dtype is None:
                raise ArgumentError(f"array {path!r}: {array.kind.name} cannot be in a .safetensors file")
            data = stored_view(array.bits)
            if name in stored and stored[name][2].tobytes() != data.tobytes():
                raise _differ(name)
            stored.setdefault(name, (dtype, array.shape, data))
    tensors = [(name, dtype, shape, data.data) for name, (dtype, shape, data) in stored.items()]
    metadata = {"format": "pt", **target.metadata}
    return target.write({SINGLE_NAME: tensor_file(tensors, metadata)}, others)


def other_files(model: Path) -> list[Path]:
    """Return the files of a model that are not its weights."""
    with storage_errors("cannot list", model):
        files = sorted(path for path in model.iterdir() if path.is_file() and path.name[0] != ".")
    return [path for path in files if ".safetensors" not in path.name]


def remove_leftovers(directory: Path, system: System) -> None:
    """Remove versions that a kill has left without a name. Links and files of such names stay."""
    with storage_errors("cannot look at", directory), Folder(directory, system) as folder:
        for name in filter(is_temporary, folder.names()):
            if not stat.S_ISDIR((folder / name).lstat().st_mode):
                continue
            with folder.inner(name) as inner:
                files = [each for each in inner.names() if stat.S_ISREG((inner / each).lstat().st_mode)]
                inner.remove(files)
            if not folder.remove_empty(name):
                warn(f"{directory / name} stays: it has files that lccodec did not make")
