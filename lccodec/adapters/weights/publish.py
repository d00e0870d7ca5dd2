"""Publishing the steps of a chain as weight versions, for engines that read these.

Each new step becomes the next version: a delta to the version before, or a full one. A version is
written under a temporary name and gets its own by one rename, so it is there whole or not at all.
Its metadata name the step and the root of the checkpoint. So publishing goes on after a crash where
it was, whatever was missed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ...byteorder import stored_view
from ...chain.read.follow.update import Patch, Update
from ...chain.read.follow.watch import Watch
from ...chain.store.bundle import open_store
from ...chain.store.names import step_index
from ...container.disk.folder import Folder, is_temporary, temporary_name
from ...container.disk.system import SYSTEM, System, checked_path, storage_errors
from ...container.disk.whole_file import WholeFile
from ...container.frame_entry import Bytes
from ...element_types import Array
from ...errors import ArgumentError, ChainError, DataError
from ..files.tensor_types import DTYPE_NAMES, FLOAT8_NAMES
from ..tree.plain import read_types
from .layout import INDEX_NAME, SINGLE_NAME, read_header, tensor_file
from .lock import locked
from .names import Prefix
from .versions import (
    CHECKSUMS,
    ENCODINGS,
    Checksum,
    Encoding,
    VersionIndex,
    digest,
    encoded,
    read_index_of,
    version_name,
    versions_in,
)

__all__ = ["Published", "publish"]

#: Members of the metadata of a version that name what it was made of.
_STEP_KEY: Final = "lccodec_step"
_ROOT_KEY: Final = "lccodec_root"
_DELTA_FILE: Final = "model-00000-of-00001.safetensors"
_TYPE_NAMES: Final = {name: key for key, name in (*DTYPE_NAMES.items(), *FLOAT8_NAMES.items())}


@dataclass(frozen=True)
class Published:
    """A version that was published.

    Parameters
    ----------
    version
        Its number.
    step
        The step that it holds.
    base
        The version that it is a delta to; ``None`` for a full one.
    nbytes
        Bytes of its files.
    """

    version: int
    step: int
    base: int | None
    nbytes: int


def publish(  # what, and in which form, by keyword
    run: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    prefix: str = "",
    start: int | None = None,
    encoding: Encoding = "xor",
    checksum: Checksum = "adler32",
    full: bool = False,
    like: str | os.PathLike[str] | None = None,
    exact: bool = True,
    system: System = SYSTEM,
) -> Published | None:
    """Publish the newest step of a chain as the next weight version.

    Parameters
    ----------
    run
        The directory of a chain, or a bundle.
    output
        The directory of the versions. It is made if it does not exist.
    prefix
        The entry of the state that has the weights, as ``"model"``. Its keys are the names of the
        tensors.
    start
        The step that the engines have already, as their version 0: the base model that the run
        began with. Then the first version is a delta to it; by default it is a full one.
    encoding
        ``"xor"``, or ``"overwrite"``, which is larger and may be applied twice.
    checksum
        Of each tensor: ``"adler32"``, ``"xxh3-128"`` or ``"blake3"``. The last two need packages.
    full
        Whether to publish a full version, so that engines that join later need no older one.
    like
        A model whose other files, such as ``config.json``, go into full versions: engines that
        take one have no other files left.
    exact
        As for :func:`lccodec.follow`.

    Returns
    -------
    Published or None
        ``None`` if the newest step is published already.

    Raises
    ------
    ArgumentError
        For an unknown encoding or checksum, or a tensor that the format lacks.
    ChainError, DataError, StorageError
        If the chain has no step, or a file is damaged, or the operating system refuses.
    """
    if encoding not in ENCODINGS or checksum not in CHECKSUMS:
        raise ArgumentError(f"no such encoding or checksum: {encoding!r}, {checksum!r}")
    place, part = checked_path(output), Prefix(prefix)
    with storage_errors("cannot make the directory", place):
        place.mkdir(parents=True, exist_ok=True)
    with locked(place, system), open_store(checked_path(run)) as store:
        _remove_leftovers(place, system)
        last = _last_version(place)
        watch = Watch(store, None, part.keys, exact)
        known = _resume(watch, last, None if start is None else step_index(start))
        if not known:
            watch = Watch(store, None, part.keys, exact)
        way = watch.next()
        if way is None and watch.step is None:
            raise ChainError(f"{store.path} has no step to publish")
        update = None if way is None else way.update
        if known and update is None and not full:
            return None
        target = _Target(place, last.version + 1, system)
        if update is not None and known and not full and _is_delta(watch, update):
            return _publish_delta(target, watch, update, part, encoding, checksum)
        if way is not None:
            watch.commit(way)
        return _publish_full(target, watch, part, None if like is None else checked_path(like))


@dataclass(frozen=True)
class _Last:
    """The newest version, and the step and the root that it holds; version 0 without one."""

    version: int = 0
    step: int | None = None
    root: str = ""


@dataclass(frozen=True)
class _Target:
    """The version to be written."""

    directory: Path
    version: int
    system: System

    def write(self, files: Mapping[str, Iterable[Bytes]], more: Iterable[Path] = ()) -> int:
        """Write the files of the version, and give it its name; return the bytes of the files."""
        nbytes = 0
        with storage_errors("cannot write to", self.directory), Folder(self.directory, self.system) as folder:
            temporary = temporary_name()
            folder.make(temporary)
            inner = self.directory / temporary
            for path in more:
                shutil.copyfile(path, inner / path.name)
            for name, pieces in files.items():
                with WholeFile(inner / name, system=self.system) as file:
                    for piece in pieces:
                        file.write(piece)
                    file.commit()
                    nbytes += file.size
            folder.rename(temporary, version_name(self.version))
            folder.sync()
        return nbytes


def _last_version(directory: Path) -> _Last:
    with storage_errors("cannot list", directory):
        versions = versions_in(path.name for path in directory.iterdir())
    if not versions:
        return _Last()
    newest = directory / version_name(versions[-1])
    index = read_index_of(newest)
    metadata: Mapping[str, str] = {}
    if index is not None:
        metadata = index.metadata
    elif (newest / SINGLE_NAME).exists():
        metadata = read_header(newest / SINGLE_NAME)[1]
    step = metadata.get(_STEP_KEY, "")
    return _Last(versions[-1], int(step) if step.isdecimal() else None, metadata.get(_ROOT_KEY, ""))


def _resume(watch: Watch, last: _Last, start: int | None) -> bool:
    """Let a watch hold what the engines have; return whether that is known."""
    step = last.step if last.version else start
    if step is None:
        return False
    watch.pinned = step
    try:
        way = watch.next()
    except (ChainError, DataError):
        way = None
    watch.pinned = None
    if way is None:
        if last.version:
            return False  # it was pruned
        raise ChainError(f"{watch.place} has no step {step} to start from")
    watch.commit(way)
    # Another checkpoint of the step may have other values.
    return not last.version or way.prepared.link.reader.root.hex() == last.root


def _is_delta(watch: Watch, update: Update) -> bool:
    """Return whether both states have the same tensors."""
    for patch in update.patches("bits"):
        old = watch.array(patch.name)
        if old is None or (old.kind.name, old.shape) != (patch.dtype, patch.shape):
            return False
    return not update.removed


def _publish_delta(
    target: _Target, watch: Watch, update: Update, part: Prefix, encoding: Encoding, checksum: Checksum
) -> Published:
    tensors, digests = dict[str, bytes](), dict[str, str]()
    for patch in update.patches("bits"):
        before = watch.array(patch.name)
        if before is not None:  # as `_is_delta` has found
            old = stored_view(before.bits)
            new = stored_view(_patched(before.array("bits"), patch).reshape(-1))
            name = part.name(patch.name)
            tensors[name], digests[name] = encoded(old, new, encoding), digest(checksum, new)
    stored = [(name, "U8", (len(data),), data) for name, data in tensors.items()]
    weights = dict.fromkeys(tensors, _DELTA_FILE)
    metadata = {_STEP_KEY: str(update.step), _ROOT_KEY: update.root}
    base = target.version - 1
    index = VersionIndex(target.version, base, encoding, checksum, weights, metadata)
    files: dict[str, Iterable[Bytes]] = {} if not tensors else {_DELTA_FILE: tensor_file(stored, digests)}
    nbytes = target.write({**files, INDEX_NAME: [index.to_json()]})
    return Published(target.version, update.step, base, nbytes)


def _patched(array: Array, patch: Patch) -> Array:
    """Return a copy of an array with new values."""
    if patch.places is None:
        return patch.values.reshape(patch.shape)
    new = array.copy()
    new.reshape(-1)[patch.places] = patch.values
    return new


def _publish_full(target: _Target, watch: Watch, part: Prefix, like: Path | None) -> Published:
    link = watch.link
    if link is None:  # the caller has committed a state
        raise ChainError(f"{watch.place} has no state")
    types, stored = read_types(link.manifest.metadata), []
    for path in link.paths:
        array = watch.array(path)
        if array is not None and part.holds(path):
            dtype = _TYPE_NAMES.get(types.get(path, ""), _TYPE_NAMES.get(array.kind.name))
            if dtype is None:
                raise ArgumentError(f"array {path!r}: {array.kind.name} cannot be in a .safetensors file")
            stored.append((part.name(path), dtype, array.shape, stored_view(array.bits).data))
    step = link.manifest.step or 0
    metadata = {"format": "pt", _STEP_KEY: str(step), _ROOT_KEY: link.reader.root.hex()}
    nbytes = target.write({SINGLE_NAME: tensor_file(stored, metadata)}, _other_files(like))
    return Published(target.version, step, None, nbytes)


def _other_files(model: Path | None) -> list[Path]:
    """Return the files of a model that are not its weights."""
    if model is None:
        return []
    with storage_errors("cannot list", model):
        files = sorted(path for path in model.iterdir() if path.is_file() and path.name[0] != ".")
    return [path for path in files if ".safetensors" not in path.name]


def _remove_leftovers(directory: Path, system: System) -> None:
    """Remove versions that a kill has left without a name."""
    with storage_errors("cannot look at", directory), Folder(directory, system) as folder:
        for name in filter(is_temporary, folder.names()):
            with folder.inner(name) as inner:
                inner.remove(inner.names())
            folder.remove_empty(name)
