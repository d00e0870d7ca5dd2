"""A local Hugging Face directory that is brought to steps of a chain, for engines that load it.

It is a valid model at every moment, also after a kill: shards with new values are written whole,
beside the old ones and under names of their own. Then the index is replaced, which is one atomic
rename, and the old shards are removed. A directory with one ``model.safetensors`` has that file
replaced. Shards in which nothing differs stay as they are. Who reads the old files meanwhile goes
on to read them.

The directory's own bytes are what deltas are taken against. Which step they are of is noted in
``.lccodec/state.json``, with the sizes, times and numbers of the files. The note is written before
the index, and then names both steps: the files tell which of them holds. Where they tell nothing,
the step is read whole, and what differs is written.

A lock on ``.lccodec/lock`` lets one process of a host at a time do this. Others find that it is
done.

The directory may be that of a stranger. Links in it lead nowhere: they are replaced or refused.
Besides shards whose place was taken, only files are removed that a note has, by name, size, time
and number: what a kill has left.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self, TypedDict, Unpack

import numpy as np

from ...chain.read.checkpoint import open_step
from ...chain.read.follower import Patch, Update, Watch, glance
from ...chain.read.links import Link
from ...chain.store.directory import open_store
from ...chain.store.store import Store, step_index
from ...constants import EXACT_NAME, MAX_STEP
from ...container.folder import Folder, WholeFile, read_bounded, remove_stale_temporaries
from ...container.source import FileSource
from ...container.system import SYSTEM, System, checked_path, checked_place, storage_errors
from ...element_types import Array, components, element_type
from ...errors import ArgumentError, ChainError, DataError, LccodecError, StorageError
from ...parallel import slices
from ..files.header import Tensor
from ..files.shards import SHARD_NAME, parsed
from ..matching import first_of
from ..tree import read_types
from .layout import INDEX_NAME, NOTE_FOLDER, Layout, Prefix, check_types, locked, read_layout, rounded

_NOTE_NAME: Final = "state.json"
_SUFFIX: Final = re.compile(r"-step[0-9]{12,16}-[0-9a-f]{8}(?=\.safetensors$)")
_SAMPLE: Final = 64  # elements that tell most tensors apart
_PIECE: Final = 1 << 22  # elements that are copied at a time
_MAX_NOTE_BYTES: Final = 1 << 22  # two lists of some thousand files: more would only take memory


@dataclass(frozen=True)
class Pulled:
    """What became of a local directory.

    Parameters
    ----------
    step
        The step that it holds now.
    base
        The step that it held before; ``None`` if that was not known.
    names
        The tensors with new values.
    files
        The files that were written.
    bytes_read
        Bytes of the chain's files that were read for it.
    root
        The root of the step's checkpoint, hexadecimal: two states of a step have two roots.
    """

    step: int
    base: int | None
    names: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    bytes_read: int = 0
    root: str = ""


def pull(
    run: str | os.PathLike[str], model: str | os.PathLike[str], **options: Unpack[PullOptions]
) -> Pulled:
    """Bring a local Hugging Face directory to a step of a chain: once, as `Puller.pull` does."""
    with Puller(run, model, **options) as puller:
        return puller.pull()


class PullOptions(TypedDict, total=False):
    """The options of a `Puller`."""

    prefix: str
    rename: Mapping[str, str] | None
    cast: bool
    step: int | None
    start: int | None
    exact: bool
    system: System


class Puller:
    """Brings a local Hugging Face directory to a step of a chain, again and again.

    The directory is a valid model at every moment. Where nobody has changed it or the chain since
    the last call, no byte is read. A context manager.

    Parameters
    ----------
    run
        The directory of a chain, or a bundle.
    model
        The local directory: ``model.safetensors``, or ``model.safetensors.index.json`` and shards.
    prefix
        The entry of the state that has the weights, as ``"model"``. Its keys are the names of the
        tensors, all of which the directory must have. Prefixes of wrappers (DDP, FSDP,
        ``torch.compile``) are ignored. Of tied weights, which the state has under several names,
        the directory needs one. What else the directory has stays, unless it is tied there to a
        tensor of the state: of the same values, the first of which are not all equal.
    rename
        New names for tensors of the state, by name or pattern (as of :mod:`fnmatch`), as for
        :func:`lccodec.adapters.torch.load_into`.
    cast
        Convert floating-point values to the types that the directory has, rounded to the nearest:
        for a float32 chain and a bfloat16 model. Each step is read whole then; a chain that is
        saved with `Rounding` has deltas.
    step
        The step; by default the newest.
    start
        The step that the directory holds, if `pull` has not changed it before: the base model that
        the run began with. Its tensors are compared with the sums of that step, and only deltas are
        read. Without it, the step is read whole.
    exact
        As for :func:`lccodec.follow`.
    """

    def __init__(  # what, and how, by keyword
        self,
        run: str | os.PathLike[str],
        model: str | os.PathLike[str],
        *,
        prefix: str = "",
        rename: Mapping[str, str] | None = None,
        cast: bool = False,
        step: int | None = None,
        start: int | None = None,
        exact: bool = True,
        system: System = SYSTEM,
    ) -> None:
        self._place, self._model = checked_place(run), checked_path(model)
        self._part, self._cast, self._exact, self._system = Prefix(prefix, rename), cast, exact, system
        self._step = None if step is None else step_index(step)
        self._begin = None if start is None else step_index(start)
        self._store: Store | None = None  # for looks
        self._last: Pulled | None = None
        self._seen: object = None  # of the files, when the last call began

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def pull(self) -> Pulled:
        """Bring the directory to the step.

        Raises
        ------
        ArgumentError
            If the tensors are not those of `start`, or the state has a tensor that the directory
            has not, or has with another shape or type; if a name fits several, or tied weights
            differ in the directory; for `start` with types that are cast. The directory is
            unchanged.
        ChainError, DataError, StorageError
            If the chain has no such step, a file is damaged, or the operating system refuses.
        """
        seen = self._look()
        if self._last is not None and seen is not None and seen == self._seen:
            return Pulled(self._last.step, self._last.step, root=self._last.root)
        self._last = None
        self._last, self._seen = self._pull(), seen
        return self._last

    def close(self) -> None:
        """Release the store."""
        if self._store is not None:
            self._store.close()
            self._store = None

    def _look(self) -> object:
        """Return what tells the files of the step and the directory from others; None without any.

        Files get their names by renames: others have other numbers.
        """
        try:
            if self._store is None:
                self._store = open_store(self._place)
            chain = glance(self._store, self._step)
            files = [self._model / NOTE_FOLDER / _NOTE_NAME]
            files += sorted(path for path in self._model.iterdir() if ".safetensors" in path.name)
            model = [(path.name, identity_of(path.lstat())) for path in files]
            return None if chain is None else (chain, model)
        except (LccodecError, OSError):  # the call tells what is wrong
            return None

    def _pull(self) -> Pulled:
        place, part, pinned = self._model, self._part, self._step
        with locked(place, self._system) as notes:
            layout = read_layout(place)
            _remove_leftovers(layout, notes)
            files = _identities(layout)
            noted = (entry for entry in _noted(notes) if entry["files"] == files)
            held = next((entry for entry in noted if entry["step"] is not None), None)
            with open_store(self._place) as store:
                if held is not None and _is_there(store, pinned, held["root"], self._exact):
                    return Pulled(held["step"], held["step"], root=held["root"])
                watch, arrays = Watch(store, pinned, part.keys, self._exact), layout.arrays()
                link = _first_link(store, pinned if self._begin is None or held is not None else self._begin)
                if link is not None:
                    ties = _Ties(link.paths, part.tensors(link.paths, layout.tensors, place), arrays, place)
                    _start(watch, held, self._begin, ties.given(), cast=self._cast)
                way = watch.next()
                if link is None or (way is None and (watch.step is None or pinned not in (None, watch.step))):
                    raise ChainError(f"{store.path} has no step {'to pull' if pinned is None else pinned}")
                if way is None or way.update is None:  # the state that the directory has
                    link, now = watch.link if way is None else way.prepared.link, watch.step or 0
                    root = "" if link is None else link.reader.root.hex()
                    _note(notes, [_entry(now, root, _identities(layout))])
                    return Pulled(now, now, root=root)
                if (paths := way.prepared.link.paths) != link.paths:  # of another step
                    ties = _Ties(paths, part.tensors(paths, layout.tensors, place), arrays, place)
                patches = ties.patches(way.update)
                if self._cast:
                    patches = dict(_cast(patches, arrays))
                check_types(layout, patches, ties.types(read_types(way.update.metadata)))
                return _write(layout, way.update, patches, held, notes)


def _first_link(store: Store, step: int | None) -> Link | None:
    """Return the link of a step, by default the newest, for its names; None if there is none."""
    steps = store.steps()
    if not steps or (step is not None and step not in steps):
        return None
    with open_step(store, step) as file:
        return file.links[-1]


class _Ties:
    """Which tensors of a directory have the values of which arrays of a state.

    `paths` has the index of each array, a tied one several times; `names` the tensors by some of
    these paths, `arrays` their values.
    """

    def __init__(
        self, paths: Mapping[str, int], names: Mapping[str, str], arrays: Mapping[str, Array], place: Path
    ) -> None:
        self._paths, self._arrays = paths, arrays
        self._names: dict[int, list[str]] = {}
        for path, name in names.items():
            self._names.setdefault(paths[path], []).append(name)
        untied = [
            f"{tied[0]!r} and {name!r} are one tensor of the state, and have different values here"
            for tied in self._names.values()
            for name in tied[1:]
            if not _equal(arrays.get(tied[0]), arrays.get(name))
        ]
        if untied:
            raise ArgumentError("\n  ".join([f"{place}: ties contradict each other", *first_of(untied)]))
        for name in arrays.keys() - set(names.values()):
            first = components(arrays[name])[1][:_SAMPLE]
            if not (first != first[:1]).any():  # as many biases, which are tied to nothing
                continue
            for tied in self._names.values():
                if _equal(arrays.get(tied[0]), arrays[name]):
                    tied.append(name)
                    break

    def given(self) -> dict[str, Array]:
        """Return what the directory has of each array, by path."""
        firsts = {path: self._names[index][0] for path, index in self._paths.items() if index in self._names}
        return {path: self._arrays[name] for path, name in firsts.items() if name in self._arrays}

    def patches(self, update: Update) -> dict[str, Patch]:
        """Return what is new by name."""
        return {
            name: patch
            for patch in update.patches("bits")
            for name in self._names.get(self._paths[patch.name], ())
        }

    def types(self, noted: Mapping[str, str]) -> dict[str, str]:
        """Return the types that NumPy lacks by name."""
        return {
            name: kind
            for path, kind in noted.items()
            for name in self._names.get(self._paths.get(path, -1), ())
        }


def _equal(one: Array | None, other: Array | None) -> bool:
    """Return whether two arrays are the same, bit for bit."""
    if one is None or other is None or (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    first, second = components(one)[1], components(other)[1]
    return bool(np.array_equal(first[:_SAMPLE], second[:_SAMPLE]) and np.array_equal(first, second))


def _cast(patches: Mapping[str, Patch], arrays: Mapping[str, Array]) -> Iterator[tuple[str, Patch]]:
    """Yield new values of the types that the directory has, of the tensors in which they differ."""
    for name, patch in patches.items():
        there = arrays.get(name)
        if there is not None and there.shape == patch.shape and patch.places is None:
            kind, wanted = element_type(patch.values.dtype), element_type(there.dtype)
            if kind.kind == wanted.kind == "f" and kind != wanted:
                new = rounded(patch.values, there.dtype)
                if not _equal(new.reshape(there.shape), there):
                    yield name, Patch(name, wanted.name, patch.shape, None, new)
                continue
        yield name, patch


def _is_there(store: Store, step: int | None, root: str, exact: bool) -> bool:
    """Return whether a step of a chain, by default the newest, has a root; little is read."""
    steps = store.steps()
    name = steps.get(max(steps, default=-1) if step is None else step)
    if name is None or (exact and name != EXACT_NAME and store.has(EXACT_NAME)):
        return False  # the exact file may be newer, or go before
    try:
        return store.root(name)[0].hex() == root
    except (DataError, StorageError):
        return False


def _start(
    watch: Watch, held: Mapping[str, Any] | None, start: int | None, arrays: dict[str, Array], *, cast: bool
) -> None:
    """Let a watch begin with what the directory holds."""
    if held is None:
        if cast and start is not None:
            raise ArgumentError("cast: values that were rounded are no start; leave start out")
        if start is not None:
            try:
                watch.start(step_index(start), arrays)
            except ArgumentError as error:
                told = "without start the step is read whole, and what does not fit is named"
                raise ArgumentError(f"{error}; {told}") from error
            return
        watch.start(None, arrays)
        return
    try:
        watch.start(held["step"], arrays, held["root"])
    except (ChainError, ArgumentError, DataError):  # it was pruned, or another one has its place
        watch.start(None, arrays)


def _write(
    layout: Layout,
    update: Update,
    patches: Mapping[str, Patch],
    held: Mapping[str, Any] | None,
    notes: Folder,
) -> Pulled:
    """Write the files in which something differs, and let them take the place of the old ones."""
    system = notes.system
    changed = sorted({layout.tensors[name].file for name in patches})
    renamed = {name: name if layout.index is None else _new_name(name, update) for name in changed}
    with ExitStack() as stack:
        identities = _identities(layout)
        writers = []
        for name in changed:
            target = layout.directory / renamed[name]
            writer = stack.enter_context(WholeFile(target, overwrite=True, system=system))
            tensors = {n: t for n, t in layout.tensors.items() if t.file == name}
            source = FileSource(layout.directory / name)
            stack.callback(source.close)
            _copy(source, writer, tensors, patches)
            del identities[name]
            with writer.working() as temporary:
                identities[renamed[name]] = _identity(temporary)
            writers.append(writer)
        old = dict(held) if held is not None else _entry(None, "", _identities(layout))
        new = _entry(update.step, update.root, identities)
        _note(notes, [old, new])
        for writer in writers:
            writer.commit()
    if layout.index is not None and changed:
        weights = {name: renamed.get(file, file) for name, file in layout.index["weight_map"].items()}
        text = json.dumps({**layout.index, "weight_map": weights}, indent=2, ensure_ascii=False) + "\n"
        with WholeFile(layout.directory / INDEX_NAME, overwrite=True, system=system) as file:
            file.write(text.encode())
            file.commit()
        gone = [name for name in changed if name != renamed[name]]
        action = "cannot remove old shards of"
        with storage_errors(action, layout.directory), Folder(layout.directory, system) as folder:
            folder.remove(gone)
    _note(notes, [new])
    names, files = tuple(patches), tuple(renamed[name] for name in changed)
    base = None if held is None else held["step"]
    return Pulled(update.step, base, names, files, update.bytes_read, update.root)


def _copy(
    source: FileSource, writer: WholeFile, tensors: Mapping[str, Tensor], patches: Mapping[str, Patch]
) -> None:
    """Copy a file with new values in it, in one pass."""
    done = 0
    for name, tensor in sorted(tensors.items(), key=lambda item: item[1].offset):
        if name not in patches:
            continue
        _copy_bytes(source, writer, done, tensor.offset)
        _copy_tensor(source, writer, tensor, patches[name])
        done = tensor.offset + tensor.nbytes
    _copy_bytes(source, writer, done, source.size)


def _copy_bytes(source: FileSource, writer: WholeFile, start: int, stop: int) -> None:
    for part in slices(stop - start, _PIECE):
        offset = start + part.start
        writer.write(source.read(offset, min(_PIECE, stop - offset)))


def _copy_tensor(source: FileSource, writer: WholeFile, tensor: Tensor, patch: Patch) -> None:
    dtype = patch.values.dtype.newbyteorder("<")
    for part in slices(tensor.nbytes // dtype.itemsize, _PIECE):
        stop = min(part.stop, tensor.nbytes // dtype.itemsize)
        if patch.places is None:
            writer.write(patch.values[part].astype(dtype, copy=False).view("u1").data)
            continue
        data = bytearray(
            source.read(tensor.offset + part.start * dtype.itemsize, (stop - part.start) * dtype.itemsize)
        )
        first, last = patch.places.searchsorted([part.start, stop])
        values = np.frombuffer(data, dtype)
        values[patch.places[first:last] - part.start] = patch.values[first:last]
        writer.write(data)


def _new_name(name: str, update: Update) -> str:
    """Return the name of a shard at another step; none at another one has it."""
    stem = _SUFFIX.sub("", name).removesuffix(".safetensors")
    return f"{stem}-step{update.step:012d}-{update.root[:8]}.safetensors"


def _identity(path: Path) -> list[int]:
    with storage_errors("cannot look at", path):
        return identity_of(path.stat())


def identity_of(status: os.stat_result) -> list[int]:
    """Return what tells a file from all others, and from itself before it was written to."""
    return [status.st_size, status.st_mtime_ns, status.st_ino]


def _identities(layout: Layout) -> dict[str, list[int]]:
    return {name: _identity(layout.directory / name) for name in layout.files}


def _entry(step: int | None, root: str, files: Mapping[str, list[int]]) -> dict[str, Any]:
    """Return a note: these very files hold a step, or an unknown one."""
    return {"step": step, "root": root, "files": dict(files)}


def _noted(notes: Folder) -> list[dict[str, Any]]:
    """Return what is noted of a directory; nothing if that cannot be read, or is not such a note.

    A note is never needed: without one, the step is read whole.
    """
    entry = notes / _NOTE_NAME
    try:
        if not stat.S_ISREG(entry.lstat().st_mode):
            return []
        entries = parsed(read_bounded(entry, _MAX_NOTE_BYTES, _NOTE_NAME), _NOTE_NAME, str(entry))
        noted = [_entry(item["step"], item["root"], item["files"]) for item in entries]
    except (OSError, DataError, ValueError, TypeError, KeyError):
        return []
    return noted if all(map(_is_sound, noted)) else []


def _is_sound(noted: dict[str, Any]) -> bool:
    """Return whether what is noted has the form of a note."""
    step, root, files = noted["step"], noted["root"], noted["files"]
    if not ((step is None or (type(step) is int and 0 <= step <= MAX_STEP)) and type(root) is str):
        return False
    return type(files) is dict and all(
        type(identity) is list and len(identity) == 3 and all(type(number) is int for number in identity)
        for identity in files.values()
    )


def _note(notes: Folder, entries: list[dict[str, Any]]) -> None:
    with WholeFile(_NOTE_NAME, overwrite=True, folder=notes) as file:
        file.write(json.dumps(entries, indent=1).encode())
        file.commit()


def _remove_leftovers(layout: Layout, notes: Folder) -> None:
    """Remove what a kill has left: temporaries, and shards that no index names any more.

    The note may be a stranger's: a shard is known by all that is noted of it, not by its name.
    """
    remove_stale_temporaries(notes)
    with storage_errors("cannot look at", layout.directory), Folder(layout.directory, notes.system) as folder:
        remove_stale_temporaries(folder)
        noted = [(name, identity) for entry in _noted(notes) for name, identity in entry["files"].items()]
        known = {name for name, identity in noted if SHARD_NAME.fullmatch(name) and name not in layout.files}
        statuses = {name: (folder / name).lstat() for name in known.intersection(folder.names())}
        there = {name: identity_of(s) for name, s in statuses.items() if stat.S_ISREG(s.st_mode)}
        if left := {name for name, identity in noted if there.get(name) == identity}:
            folder.remove(left)
