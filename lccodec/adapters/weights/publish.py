"""Publishing the steps of a chain as weight versions, for engines that read these.

Each new step becomes the next version: a delta to the version before, or a full one. Its metadata
name the step and the root of the checkpoint. So publishing goes on after a crash where it was,
whatever was missed.

A version is written under a temporary name and gets its own by one rename, so it is there whole or
not at all.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import closing, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, Self, TypeAlias, TypedDict, Unpack

import numpy as np

from ...chain.chain import Chain
from ...chain.read.follower import AtHand, Patch, Update, Watch, Way, glance
from ...chain.read.links import Link
from ...chain.read.replay import DecodedArray
from ...chain.store.directory import open_store
from ...chain.store.store import Store, step_index
from ...container.folder import Folder, WholeFile, is_temporary, make_directory, temporary_name
from ...container.source import FileSource
from ...container.system import (
    SYSTEM,
    Address,
    Bytes,
    StrPath,
    System,
    checked_path,
    checked_place,
    storage_errors,
)
from ...element_types import Array, components, stored_view
from ...errors import ArgumentError, ChainError, DataError, StorageError, warn
from ..files.header import DTYPE_NAMES, FLOAT8_NAMES, read_header
from ..matching import first_of
from ..tree import read_types
from .layout import SINGLE_NAME, Layout, Prefix, check_types, locked, read_layout, tensor_file
from .versions import (
    FORMS,
    Checksum,
    Encoding,
    Entry,
    Form,
    FormName,
    VersionIndex,
    changed_adler32,
    compressed,
    digest_of,
    encoded,
    read_index_of,
)

#: A chain, or those of ranks.
Runs: TypeAlias = StrPath | Chain | Sequence[StrPath]

#: Members of the metadata of a version that name what it was made of.
_STEP_KEY: Final = "lccodec_step"
_ROOT_KEY: Final = "lccodec_root"
_STEP: Final = re.compile(r"[0-9]{1,16}")


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


def publish(
    run: Runs,
    output: StrPath,
    *,
    full: bool = False,
    **options: Unpack[PublishOptions],
) -> Published | None:
    """Publish the newest step of a chain as the next weight version.

    It reads what the engines have from the chain first: from the keyframe on. Who publishes again
    and again keeps a `Publisher`.

    Parameters
    ----------
    run, output, options
        As for `Publisher`, also for errors.
    full
        As for `Publisher.publish`, also for what is returned.
    """
    with Publisher(run, output, **options) as publisher:
        return publisher.publish(full=full)


class PublishOptions(TypedDict, total=False):
    """The options of a `Publisher`."""

    prefix: str
    rename: Mapping[str, str] | None
    start: int | None
    form: FormName
    encoding: Encoding
    checksum: Checksum | None
    like: StrPath | None
    exact: bool
    system: System


class Publisher:
    """Publishes the steps of a chain as weight versions, and holds the state of the last one.

    So each call reads only the deltas since then; where the chain has not changed, it reads
    nothing. Another process may publish to the same directory. After a fork, the child reads what
    the engines have from the chain. It is a context manager.

    Parameters
    ----------
    run
        The directory of a chain, or a bundle; or the `Chain` itself, in the process that saves:
        what it saved last is in memory, and is not read. Or several: the chains of ranks, each of
        which saves some of the tensors. Then the newest step that all of them have is published,
        the tensors of each rank in a file of its own, and one index names them all.
    output
        The directory of the versions. The first call makes it if it does not exist.
    prefix
        The entry of the state that has the weights, as ``"model"``. Its keys are the names of the
        tensors.
    rename
        New names for tensors of the state, by name or pattern (as of :mod:`fnmatch`).
    start
        The step that the engines have already, as their version 0: the base model that the run
        began with. Then the first version is a delta to it; by default it is a full one.
    form
        ``"weight-versions"`` for slime, miles and SGLang; ``"skyrl"`` for SkyRL, which has no full
        versions, so that `start` is needed.
    encoding
        ``"xor"``, or ``"overwrite"``, which is larger, may be applied twice, and is not of SkyRL.
    checksum
        Of each tensor: ``"adler32"``, ``"xxh3-128"`` or ``"blake3"``; for SkyRL ``"xxh3-128"`` or
        ``"sha256"``. The first is the default. ``xxh3-128`` and ``blake3`` need packages.
    like
        The model that the engines began with. Its other files, such as ``config.json``, go into
        full versions: engines that take one have no other files left. By default they are those of
        the full version before. Its names are those of the tensors: without prefixes of wrappers
        (DDP, FSDP, ``torch.compile``), and of tied weights those that it has. With `start` and tied
        weights it is needed.
    exact
        As for :func:`lccodec.follow`.

    Raises
    ------
    ArgumentError
        For an unknown form, encoding or checksum, for a form without full versions and no `start`,
        or a path that cannot be any.
    """

    def __init__(  # what, and in which form, by keyword
        self,
        run: Runs,
        output: StrPath,
        *,
        prefix: str = "",
        rename: Mapping[str, str] | None = None,
        start: int | None = None,
        form: FormName = "weight-versions",
        encoding: Encoding = "xor",
        checksum: Checksum | None = None,
        like: StrPath | None = None,
        exact: bool = True,
        system: System = SYSTEM,
    ) -> None:
        if form not in FORMS:
            raise ArgumentError(f"form must be one of {', '.join(FORMS)}; got {form!r}")
        self._form = FORMS[form]
        checksum = self._form.checksums[0] if checksum is None else checksum
        if encoding not in self._form.encodings or checksum not in self._form.checksums:
            raise ArgumentError(f"no such encoding or checksum of {form}: {encoding!r}, {checksum!r}")
        if start is None and not self._form.has_full:
            raise ArgumentError(f"{form} has no full versions: start must say which step engines have")
        self._output, self._prefix = checked_path(output), Prefix(prefix, rename)
        self._like = None if like is None else checked_path(like)
        self._chain = run if isinstance(run, Chain) else None
        one = run.directory if isinstance(run, Chain) else run
        runs = [one] if isinstance(one, str | os.PathLike | Address) else one
        self._places = [checked_place(place) for place in runs]
        self._start = None if start is None else step_index(start)
        self._differ = Differ(encoding, checksum)
        self._exact, self._system = exact, system
        self._ranks: list[Watch] = []
        self._stores: list[Store] = []
        self._held: _Last | None = None  # the version that the watches hold
        self._idle: object = None  # what a look saw when the newest step was published

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the memory of the state, and the stores."""
        for watch in self._ranks:
            watch.close()
        for store in self._stores:
            store.close()
        self._ranks, self._stores, self._held, self._idle = [], [], None, None
        self._differ.forget()

    def publish(self, *, full: bool = False) -> Published | None:
        """Publish the newest step, if it is not published yet.

        Parameters
        ----------
        full
            Whether to publish a full version, so that engines that join later need no older one.

        Returns
        -------
        Published or None
            ``None`` if the newest step is published already.

        Raises
        ------
        ArgumentError
            For a tensor that the format lacks, one that two ranks have with other values, or a full
            version that would take the other files of the model from engines that have them. For
            the first delta, if `like` has tensors of other types, as bfloat16 for float32, or with
            other values than the step `start`, as that of a lossy chain. For
            names that fit several tensors, and for tied weights if nobody knows which of their
            names the engines have.
        ChainError, DataError, StorageError
            If the chain has no step, or a file is damaged, or the operating system refuses.
        """
        with storage_errors("cannot make the directory", self._output):
            make_directory(self._output, self._system)
        seen = self._look()
        if not full and seen is not None and seen == self._idle:
            return None
        try:
            with locked(self._output, self._system):
                remove_leftovers(self._output, self._system)
                with nullcontext() if self._chain is None else self._chain._writer.newest_held() as latest:
                    at_hand = None if latest is None else (latest.links[-1].root, latest.arrays)
                    done = self._publish(full, at_hand)
            self._idle = seen if done is None else None
            return done
        except BaseException:  # what the watches hold may be half of one version and half of another
            self.close()
            raise

    def _look(self) -> object:
        """Return what changes with the chains and the versions; ``None`` if that is not known."""
        glances = [glance(store) for store in self._stores]
        with storage_errors("cannot list", self._output):
            return None if not glances or None in glances else (glances, os.listdir(self._output))  # noqa: PTH208

    def _publish(self, full: bool, at_hand: AtHand | None) -> Published | None:
        last = _last_version(self._output, self._form)
        known = self._hold(last)
        newest = _newest_step(self._stores)
        like = None
        with suppress(DataError, StorageError):  # then only its other files are used
            like = None if self._like is None else read_layout(self._like)
        names = None if like is None else like.tensors.keys()
        self._ranks[0].at_hand = at_hand
        try:
            parts = [self._next(w, newest if len(self._ranks) > 1 else None, names) for w in self._ranks]
        finally:
            self._ranks[0].at_hand = None  # the next save changes it
        if known and not full and all(part.update is None for part in parts):
            return None
        if names is not None and not any(name in names for part in parts for name in part.names.values()):
            example = next(iter(parts[0].names.values()), "")
            told = f"{self._like} has no tensor of the state, such as {example!r}"
            raise ArgumentError(f"{told}: prefix=, or --model, names the entry that has the weights")
        step, roots = parts[0].link.manifest.step or 0, [part.link.reader.root.hex() for part in parts]
        metadata = {_STEP_KEY: str(step), _ROOT_KEY: ",".join(roots)}
        target = Target(self._output, last.version + 1, metadata, self._system, self._form)
        base = None
        if known and not full and is_delta(parts):
            if like is None and self._newest_full(last) is None:
                _check_untied(parts)
            if like is not None and not last.version:
                for part in parts:
                    new = {part.names[patch.name]: patch for patch in part.patches}
                    there = {name: patch for name, patch in new.items() if name in like.tensors}
                    check_types(like, there, part.types())
                _check_begun(like, parts)
            base, nbytes = last.version, self._differ.write(target, parts)
            for part in parts:
                part.commit()
        else:
            if not self._form.has_full:
                why = "it was asked for" if full else "no delta leads there from the last version"
                raise ArgumentError(
                    f"{self._output}: {why}, and this form has no full versions: go on in a new directory"
                )
            others = self._other_files(last)
            for part in parts:
                part.commit()
            self._differ.forget()
            nbytes = write_full(target, parts, others)
        self._held = _Last(target.version, step, tuple(roots))
        return Published(target.version, step, base, nbytes)

    def _hold(self, last: _Last) -> bool:
        """Let the watches hold what the engines have; return whether that is known."""
        for place in self._places[len(self._stores) :]:  # one that is opened is closed, whatever fails
            self._stores.append(open_store(place))
        held = self._held
        if held is not None and held == last and all(watch.step == held.step for watch in self._ranks):
            return True  # a fork has no steps
        self._differ.forget()
        starts = [self._ranks] if self._ranks else []  # from what is held, or anew
        for ranks in (*starts, self._new_watches()):
            self._ranks = ranks
            resumed = (_resume(watch, last, number, self._start) for number, watch in enumerate(ranks))
            if all(resumed):
                return True
        self._ranks = self._new_watches()
        return False

    def _new_watches(self) -> list[Watch]:
        keys, exact = self._prefix.keys, self._exact
        return [Watch(store, None, keys, exact) for store in self._stores]

    def _other_files(self, last: _Last) -> list[Path]:
        """Return the files of a full version that are not its weights."""
        if self._like is not None:
            return other_files(self._like)
        if (place := self._newest_full(last)) is not None:
            return other_files(place)
        if last.version or self._start is not None:
            raise ArgumentError(
                f"{self._output}: engines that take a full version keep no other files of their model, "
                "such as config.json: give the model that they have as like=. A full version is written "
                "if it is asked for, or if no delta leads from the last version to the newest step"
            )
        return []

    def _newest_full(self, last: _Last) -> Path | None:
        """Return the newest full version, if there is one."""
        if not self._form.has_full:
            return None
        versions = range(last.version, 0, -1)
        places = (self._output / self._form.version_name(version) for version in versions)
        return next((p for p in places if p.is_dir() and read_index_of(p) is None), None)

    def _next(self, watch: Watch, step: int | None, there: Collection[str] | None) -> ChainShare:
        """Return what a rank brings to the next version: the newest step, or a given one."""
        watch.pinned = step
        way: Way | None = watch.next()
        link = watch.link if way is None else way.prepared.link
        if link is None:
            raise ChainError(f"{watch.place} has no step to publish")
        return ChainShare(
            watch, way, link, self._prefix.tensors(link.paths, there, self._output, strict=False)
        )


@dataclass(frozen=True)
class _Last:
    """The newest version, the step and the roots that it holds; version 0 without one."""

    version: int = 0
    step: int | None = None
    roots: tuple[str, ...] = ()


def _last_version(directory: Path, form: Form) -> _Last:
    with storage_errors("cannot list", directory):
        versions = form.versions_in([path.name for path in directory.iterdir()])
    if not versions:
        return _Last()
    newest = directory / form.version_name(versions[-1])
    index = read_index_of(newest)
    metadata: Mapping[str, str] = {}
    if index is not None:
        metadata = index.metadata
    elif (newest / SINGLE_NAME).exists():
        metadata = read_header(newest / SINGLE_NAME)[1]
    step, roots = metadata.get(_STEP_KEY, ""), tuple(metadata.get(_ROOT_KEY, "").split(","))
    return _Last(versions[-1], int(step) if _STEP.fullmatch(step) else None, roots)


def _newest_step(stores: Sequence[Store]) -> int:
    """Return the newest step that all stores have."""
    common = set[int].intersection(*(set(store.steps()) for store in stores))
    if not common:
        places = ", ".join(str(store.path) for store in stores)
        raise ChainError(
            f"{places} has no step to publish" if len(stores) == 1 else f"{places} share no step"
        )
    return max(common)


def _resume(watch: Watch, last: _Last, rank: int, start: int | None) -> bool:
    """Let a watch hold what the engines have of a rank; return whether that is known."""
    step = last.step if last.version else start
    if step is None:
        return False
    watch.pinned = step
    try:
        way = watch.next()
    except (ChainError, DataError):
        way = None
    finally:
        watch.pinned = None
    if way is not None:
        watch.commit(way)
    if watch.link is None or watch.step != step:
        if last.version:
            return False  # it was pruned
        raise ChainError(f"{watch.place} has no step {step} to start from")
    # Another checkpoint of the step may have other values.
    return not last.version or watch.link.reader.root.hex() in last.roots[rank : rank + 1]


def _check_begun(like: Layout, parts: Sequence[ChainShare]) -> None:
    """Raise ``ArgumentError`` if a model has other values than the step that engines begin with."""
    arrays, problems = like.arrays(), []
    for part in parts:
        for path, name in part.names.items():
            held, there = part.watch.array(path), arrays.get(name)
            if held is not None and there is not None and not np.array_equal(held.bits, components(there)[1]):
                problems.append(f"{name!r} differs")
    if problems:
        told = f"{like.directory}: these are not the tensors of step {parts[0].watch.step}"
        raise ArgumentError("\n  ".join([told, *first_of(problems)]))


def _check_untied(parts: Sequence[ChainShare]) -> None:
    """Raise ``ArgumentError`` for tied weights: nobody knows which of their names engines have."""
    problems = []
    for part in parts:
        tied: dict[int, list[str]] = {}
        for path, name in part.names.items():
            tied.setdefault(part.link.paths[path], []).append(name)
        problems += [" and ".join(map(repr, names)) for names in tied.values() if len(names) > 1]
    if problems:
        told = "tied weights: name the model that the engines have by like=, for its names"
        raise ArgumentError("\n  ".join([told, *first_of(problems)]))


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
                files = [file for file in inner.names() if stat.S_ISREG((inner / file).lstat().st_mode)]
                inner.remove(files)
            if not folder.remove_empty(name):
                warn(f"{directory / name} stays: it has files that lccodec did not make")
