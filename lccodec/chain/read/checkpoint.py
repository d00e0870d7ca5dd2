"""An open checkpoint with the parents it needs, and which file of a step that is.

A file is opened by path, by the step of a chain, or from memory. Errors name the file. `Arrivals`
has the leaves of a state, each as soon as it is decoded: what `Chain.restore_iter` returns.

The exact file is a keyframe whose frames hold the values as they are: the newest state bit for bit,
in one file beside the checkpoints. After a crash, it may be the only file of the newest step. A
restore takes it if it is sound and of the step asked for; otherwise the history's checkpoint, with
a warning that says why.

Some checkpoints hold no state of their own: adapters write links to a step of a chain, records of
distributed checkpoints, and parts of one process. By themselves they are sound files. Whoever wants
a state must not take what they hold for one; :mod:`lccodec.adapters.files.states` brings together
what they name.

Source: SPEC 9 (LCC-EXA).
"""

from __future__ import annotations

import json
import os
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal, Self, TypeVar

import numpy as np

from ...constants import EXACT_NAME, ElementType
from ...container.bundle import is_bundle
from ...container.checkpoint import CheckpointReader, open_bytes, sound_root
from ...container.source import read_ahead
from ...container.system import checked_path, checked_place
from ...container.tree import Adapter, Json, leaves_of, scalar_value, select, unflatten
from ...element_types import Array, check_dtype, from_components
from ...errors import (
    ArgumentError,
    ChainError,
    DataError,
    FormatError,
    LccodecError,
    LimitError,
    StorageError,
    UnsupportedError,
    is_loss,
    warn,
)
from ...frame.header import Shape
from ...parallel import cached_property
from ...policy.record import read_record
from ..overview import Progress, watched
from ..store.directory import DirectoryStore, check_exact, is_folder, link_problem, older_problem, open_store
from ..store.store import Store, check_name, checkpoint_name, step_index
from .info import CheckpointInfo, checkpoint_info
from .links import HEADER_BYTES, MEMBER_BYTES, UNBOUNDED, Bounds, Head, Link, array_heads, open_links
from .replay import DecodedArray, Decoding, decoded_bytes, decoded_together, frames_ahead, headers_of, replay
from .rows import Keys, checked_keys, checked_rows, chosen_rows, replay_rows, without_rows

Found = TypeVar("Found")

_MAX_ATTEMPTS: Final = 3  # to open a checkpoint, while others take away what it was to need
_MAX_SPARE_BYTES: Final = 64  # that the memory of an array may have beside its values


class OpenCheckpoint(AbstractContextManager["OpenCheckpoint"]):
    """An open checkpoint with all that it needs; a context manager.

    It decodes only what is asked for. It keeps one file open; the parents' files are opened when
    they are read. `lccodec.CheckpointFile` shows users a part of it.
    """

    def __init__(self, reader: CheckpointReader, store: Store | None) -> None:
        self._decode: Callable[[OpenCheckpoint, list[int]], Decoding] | None = None
        #: How far the decoding of arrays is: shown, or told to a function.
        self.progress: Progress = False
        with ExitStack() as opened:  # all are closed if one of them is refused
            #: All that the checkpoint needs, parents before their children, and itself as the last.
            self.links: Sequence[Link] = open_links(reader, store, opened)
            self._stack = opened.pop_all()
        self._manifest = self.links[-1].manifest
        self._indices = self.links[-1].paths

    def close(self, *_: object) -> None:
        """Close the files. Closing again does nothing."""
        self._stack.close()

    __exit__ = close

    def owns(self, store: Store) -> None:
        """Close a store with the files."""
        self._stack.callback(store.close)

    def keys(self) -> list[str]:
        """Return the names of the arrays, in the order of the state.

        An array in two places has two names.
        """
        return list(self._indices)

    def metadata(self) -> dict[str, str]:
        """Return the strings that were stored with the state."""
        return dict(self._manifest.metadata)

    def get(
        self, name: str, dtype: Literal["float32", "bits"] | None = None, rows: slice | None = None
    ) -> Any:
        """Return one array without reading others, as `lccodec.CheckpointFile.get`."""
        check_dtype(dtype)
        _check_names([name])
        index = self.index_of(name)
        if rows is not None:
            ((_, part),) = self.decode_rows({name: checked_rows(rows)})
            return without_spare(part.array(dtype))
        return without_spare(self.decode(index).array(dtype))

    def index_of(self, name: str) -> int:
        """Return the index of an array; raise ``ArgumentError`` for another name."""
        index = self._indices.get(name)
        if index is None:
            select(self._manifest.tree, self._manifest.scalars, [name])  # its error suggests close names
            raise ArgumentError(f"{name!r} is not an array, but a scalar or a container: use state(keys=...)")
        return index

    def state(self, keys: Keys | None = None, dtype: Literal["float32", "bits"] | None = None) -> Any:
        """Return the state; with `keys`, a dict of these leaves by name (see `Chain.restore`)."""
        check_dtype(dtype)
        tree, scalars = self._manifest.tree, self._manifest.scalars
        if keys is None:
            whole = []
            for array in self.decode_some(range(len(self._manifest.arrays))).values():
                whole.append(without_spare(array.array(dtype)))
            return unflatten(tree, whole, scalars)
        keys, rows = checked_keys(keys)
        arrays, values = select(tree, scalars, checked_names(keys))
        for name in rows:
            self.index_of(name)
        found, parts = self.decode_leaves({i for name, i in arrays.items() if name not in rows}, rows)
        decoded = {index: without_spare(a.array(dtype)) for index, a in found.items()}
        some = {name: without_spare(part.array(dtype)) for name, part in parts.items()}
        return {
            **{name: some[name] if name in rows else decoded[index] for name, index in arrays.items()},
            **values,
        }

    def restored(self, from_numpy: Callable[[Any, dict[str, str]], Any]) -> Any:
        """Return the state as an adapter makes it of NumPy arrays and the metadata."""
        return from_numpy(self.state(dtype="bits"), self.metadata())

    def verify(self) -> None:
        """Decode all arrays, keep none, and raise the error of the first that is damaged."""
        deque(self.decode_each(range(len(self._manifest.arrays))), maxlen=0)

    def decoded(self) -> list[DecodedArray]:
        """Return all arrays as decoded, by index. Arrays of a run share memory."""
        return list(self.decode_some(range(len(self._manifest.arrays))).values())

    def decode(self, index: int) -> DecodedArray:
        """Return the array of an index as decoded. It may be a view of the run it is stored in."""
        return self.decode_some([index])[index]

    def decode_some(self, indices: Iterable[int]) -> dict[int, DecodedArray]:
        """Return arrays as decoded, by index. Each frame that they need is decoded once."""
        return dict(self.decode_each(indices))

    def decode_leaves(
        self, indices: Iterable[int], rows: Mapping[str, slice]
    ) -> tuple[dict[int, DecodedArray], dict[str, DecodedArray]]:
        """Return arrays as decoded, by index, and some rows of others, by name."""
        return self.decode_some(indices), dict(self.decode_rows(rows))

    def decode_rows(self, rows: Mapping[str, slice]) -> Iterator[tuple[str, DecodedArray]]:
        """Yield some rows of arrays as decoded, by name; no more blocks than they need are.

        Raises ``ArgumentError`` for an unknown name, or an array without rows.
        """
        indices = {name: self.index_of(name) for name in rows}
        if self.links[-1].reader.source.far:  # or the file is closed: then this raises
            read_ahead(frames_ahead(self.links, indices.values(), HEADER_BYTES + MEMBER_BYTES))
        parts = (
            (name, replay_rows(self.links, index, rows[name], name, self.together))
            for name, index in indices.items()
        )
        return watched(parts, len(rows), self.progress) if self.progress else parts

    def decode_each(self, indices: Iterable[int]) -> Decoding:
        """Yield arrays as decoded, with their indices, in this order and each as soon as possible.

        Each array is yielded once, and each frame that they need is decoded once.
        """
        wanted, count = list(indices), len(self._manifest.arrays)
        for index in wanted:
            if type(index) is not int or not 0 <= index < count:
                raise ArgumentError(f"an index must be the index of an array, below {count}; got {index!r}")
        if self.links[-1].reader.source.far:  # or the file is closed: then this raises
            read_ahead(frames_ahead(self.links, wanted))
        if self._decode is not None:
            decoding = self._decode(self, wanted)
        else:
            decoding = replay(self.links, wanted, self.together)
        return watched(decoding, len(wanted), self.progress) if self.progress else decoding

    def decode_by(self, decode: Callable[[OpenCheckpoint, list[int]], Decoding]) -> None:
        """Let a function decode arrays, given this file and their indices, as `replay` does."""
        self._decode = decode

    @cached_property
    def together(self) -> list[list[int]]:
        """For each array, the indices of all that are decoded with it (see `decoded_together`)."""
        return decoded_together(self.links)

    def check_name(self) -> None:
        """Raise ``FormatError`` if the file is not named after its step (LCC-CHN-01)."""
        check_name(self.links[-1].place, self._manifest.step)

    def heads(self) -> dict[str, Head]:
        """Return what is known of each array before it is decoded, by name."""
        *parents, own = self.links  # its own file first: its name is told if it is closed
        read_ahead(span for link in (own, *parents) for span in headers_of(link.reader))
        return array_heads(self.links)

    def info(self) -> CheckpointInfo:
        """Return what is stored, without decoding it."""
        return checkpoint_info(self.links[-1], self.heads(), len(self.links) - 1)


def checked_names(keys: object) -> list[str]:
    """Return keys as a list of names. A string is one name."""
    if isinstance(keys, str):
        return [keys]
    try:
        names = list(iter(without_rows(keys)))
    except TypeError:
        raise ArgumentError(f"keys must be names of leaves or containers; got {keys!r}") from None
    _check_names(names)
    return names


def _check_names(names: Sequence[object]) -> None:
    for name in names:
        if not isinstance(name, str):
            raise ArgumentError(f"a name must be a string; got {name!r}")


def without_spare(array: Array) -> Array:
    """Return an array that keeps no more memory than its own values need.

    A small array is a view of the run it is stored in, and is copied.
    """
    owner = array.base
    if isinstance(owner, np.ndarray) and owner.nbytes > array.nbytes + _MAX_SPARE_BYTES:
        return array.copy()
    return array


def open_file(path: str | os.PathLike[str]) -> OpenCheckpoint:
    """Open a checkpoint file to read single arrays; its parents lie in the same directory.

    Raises ``ArgumentError`` if `path` cannot be a path; ``DataError``, ``ChainError`` or
    ``StorageError`` if the file or a parent cannot be read, is missing or breaks a rule.
    """
    checked = checked_path(path)
    return open_name(DirectoryStore(checked.parent), checked.name)


def open_name(store: Store, name: str) -> OpenCheckpoint:
    """Open a file of a store by its name. Errors are as for `open_file`."""
    store.ahead([name])
    return tried_again(lambda: OpenCheckpoint(store.open(name), store))


def tried_again(attempt: Callable[[], Found]) -> Found:
    """Return what is made of a checkpoint and its parents, while others may write them anew."""
    for _ in range(_MAX_ATTEMPTS - 1):
        # A prune may write a file anew, and remove its parent, before the parent is opened. Where a
        # group is settled, the parent is another one then, and interpolated.
        try:
            return attempt()
        except ChainError:
            pass
        except FormatError as error:
            if error.rule != "LCC-INT-02":
                raise
    return attempt()


def open_step(store: Store, step: int | None = None) -> OpenCheckpoint:
    """Open a step of a chain, the latest by default: its checkpoint, or else the exact file.

    Raises as `open_file`; ``ChainError`` also if there is no such step, and ``FormatError`` if the
    file holds another step than its name says (LCC-CHN-01).
    """
    wanted = None if step is None else step_index(step)
    for _ in range(_MAX_ATTEMPTS):
        listed = store.snapshot()
        steps = listed.steps()
        if wanted is None and not steps:
            raise ChainError(store.nothing())
        chosen = max(steps) if wanted is None else wanted
        if chosen not in steps:
            near = min(steps, key=lambda step: abs(step - chosen), default=None)
            why = (
                "it is empty"
                if near is None
                else f"the nearest is {near}; it was never saved, or it was pruned"
            )
            raise ChainError(f"{store.path} has no step {chosen}; {why}")
        try:
            file = open_name(listed, name := steps[chosen])
        except (ChainError, StorageError):
            if store.has(name) and (listed is store or listed.identity(name) == store.identity(name)):
                raise
            continue  # it was taken away after it was listed
        try:
            check_name(file.links[-1].place, file.links[-1].manifest.step)
        except BaseException:
            file.close()
            raise
        return file
    raise ChainError(f"{store.path}: a step was pruned each time before it could be opened")


def open_data(data: bytes, store: Store | None = None) -> OpenCheckpoint:
    """Open a checkpoint that is in memory. It must be a keyframe, or the store has its parents."""
    return OpenCheckpoint(open_bytes(data), store)


class Arrivals(Iterator[tuple[str, Any]]):
    """Leaves of an open checkpoint with their names, in the order of the state or of the keys.

    Each array is yielded as soon as it has gone through the whole chain. The file is closed after
    the last leaf, when decoding fails, and when this is closed or dropped.

    Parameters
    ----------
    file
        The checkpoint. It belongs to this from now on, also if the other arguments are refused.
    keys, dtype, adapter
        As for `Chain.restore`.

    Attributes
    ----------
    metadata
        The strings that were stored with the state.
    whole
        Whether these are all leaves of the state: no keys were given.
    arrays
        The leaves that are left, as they are without an adapter: arrays are NumPy's.

    Raises
    ------
    ArgumentError
        For unknown keys or `dtype`.
    """

    def __init__(
        self,
        file: OpenCheckpoint,
        keys: Keys | None = None,
        dtype: Literal["float32", "bits"] | None = None,
        adapter: Adapter | None = None,
    ) -> None:
        try:
            check_dtype(dtype)
            manifest = file.links[-1].manifest
            keys, self._rows = checked_keys(keys)
            names = None if keys is None else checked_names(keys)
            self._leaves = leaves_of(manifest.tree, manifest.scalars, names)
            for name in self._rows:
                file.index_of(name)
        except BaseException:
            file.close()
            raise
        self.adapter = adapter
        self.metadata = file.metadata()
        self.whole = names is None
        self._file, self._dtype = file, dtype
        # Nothing that it holds leads back to this object: then dropping it closes the file at once.
        self.arrays = _values(file, self._leaves, dtype, self._rows)

    def __next__(self) -> tuple[str, Any]:
        name, value = next(self.arrays)
        if self.adapter is not None:
            value = self.adapter.from_numpy(value, self.metadata, name)
        return name, value

    def __len__(self) -> int:
        """Return the number of all leaves: what ``tqdm`` asks for."""
        return len(self._leaves)

    def outline(self) -> Any:
        """Return what all leaves form, with arrays in the place of those that are not decoded.

        This is the state without an adapter, or with keys a dict of the leaves by name. The arrays
        have the right types and shapes, any values, and hardly any memory. An array in two places
        is one object.

        Raises
        ------
        DataError
            If the header of a frame breaks a rule.
        """
        manifest, heads = self._file.links[-1].manifest, self._file.heads()
        arrays = [
            _hollow(heads[name].header.kind, heads[name].shape, self._dtype)
            for name in self._file.links[-1].index_names
        ]
        if self.whole:
            return unflatten(manifest.tree, arrays, manifest.scalars)
        parts = {}
        for name, rows in self._rows.items():
            index = self._file.index_of(name)
            chosen = chosen_rows(self._file.links, index, rows, name)
            parts[name] = _hollow(chosen.kind, chosen.shape, self._dtype)
        return {
            name: scalar_value(entry) if index is None else parts.get(name, arrays[index])
            for name, index, entry in self._leaves
        }

    def close(self) -> None:
        """Close the file; no more leaves come. Closing again does nothing."""
        self.arrays.close()
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _values(
    file: OpenCheckpoint,
    leaves: Iterable[tuple[str, int | None, Json]],
    dtype: str | None,
    rows: Mapping[str, slice],
) -> Generator[tuple[str, Any], None, None]:
    """Yield leaves by name. Arrays are decoded when they are asked for, and not kept."""
    places = Counter(index for name, index, _ in leaves if index is not None and name not in rows)
    decoded = file.decode_each(places)
    several: dict[int, Array] = {}  # arrays that come again in another place
    with file, closing(decoded):
        for name, index, entry in leaves:
            if index is None:
                yield name, scalar_value(entry)
                continue
            if name in rows:
                ((_, part),) = file.decode_rows({name: rows[name]})
                yield name, without_spare(part.array(dtype))
                continue
            if index not in several:
                several[index] = without_spare(next(decoded)[1].array(dtype))
            places[index] -= 1
            yield name, several[index] if places[index] else several.pop(index)


def _hollow(kind: ElementType, shape: Shape, dtype: str | None) -> Array:
    """Return an array of a type and shape, all of whose rows are one."""
    size = kind.components * (shape[-1] if shape else 1)
    row = from_components(np.zeros(size, kind.bits), kind, shape[-1:], dtype)
    strides = (*(0 for _ in shape[:-1]), *row.strides)
    return np.lib.stride_tricks.as_strided(row, shape, strides)


class ExactFile(OpenCheckpoint):
    """An open exact file. Where its frames are damaged, the history's checkpoint takes its place.

    `spare` opens that, and warns of the error that made it necessary. It raises the error if there
    is no such checkpoint.
    """

    def __init__(self, reader: CheckpointReader, spare: Callable[[LccodecError], OpenCheckpoint]) -> None:
        super().__init__(reader, None)
        self._spare = spare

    def decode_some(self, indices: Iterable[int]) -> dict[int, DecodedArray]:
        """Return arrays as decoded, by index: all from this file, or all from the history."""
        return self.decode_leaves(indices, {})[0]

    def decode_leaves(
        self, indices: Iterable[int], rows: Mapping[str, slice]
    ) -> tuple[dict[int, DecodedArray], dict[str, DecodedArray]]:
        """Return arrays and rows of others as decoded: all from here, or all from the history."""
        wanted = list(indices)
        try:
            return dict(super().decode_each(wanted)), dict(super().decode_rows(rows))
        except (DataError, StorageError) as error:
            return dict(self._of_history(wanted, error)), dict(self._rows_of_history(rows, error))

    def decode_rows(self, rows: Mapping[str, slice]) -> Iterator[tuple[str, DecodedArray]]:
        """Yield some rows of arrays as decoded; from the first damaged one on, of the history."""
        left = dict(rows)
        try:
            for name, part in super().decode_rows(rows):
                del left[name]
                yield name, part
        except (DataError, StorageError) as error:
            failure = error
        else:
            return
        yield from self._rows_of_history(left, failure)

    def decode_each(self, indices: Iterable[int]) -> Decoding:
        """Yield arrays as decoded; from the first one on that is damaged, those of the history."""
        left = dict.fromkeys(indices)
        try:
            for index, array in super().decode_each(list(left)):
                del left[index]
                yield index, array
        except (DataError, StorageError) as error:
            failure = error
        else:
            return
        yield from self._of_history(list(left), failure)

    def heads(self) -> dict[str, Head]:
        """Return what is known of each array before it is decoded, by name."""
        try:
            return super().heads()
        except (DataError, StorageError) as error:
            with self._spare(error) as history:
                return history.heads()

    def _of_history(self, indices: list[int], error: LccodecError) -> Decoding:
        names = [self.links[-1].index_names[index] for index in indices]
        with self._spare(error) as history:
            places = history.links[-1].names
            if not places.keys() >= set(names):
                raise error
            known = {places[name]: index for name, index in zip(names, indices, strict=True)}
            for place, array in history.decode_each(known):
                yield known[place], array

    def _rows_of_history(
        self, rows: Mapping[str, slice], error: LccodecError
    ) -> Iterator[tuple[str, DecodedArray]]:
        if rows:
            with self._spare(error) as history:
                if not set(history.keys()) >= rows.keys():
                    raise error
                yield from history.decode_rows(rows)


def open_exact(store: Store, *, strict: bool = False) -> ExactFile:
    """Open the exact file of a store; with `strict`, the history does not take its place.

    Raises ``FormatError`` if a file of that name is not an exact file (LCC-EXA-01).
    """
    reader = store.open(EXACT_NAME)
    try:
        check_exact(reader)
    except BaseException:
        reader.close()
        raise

    def spare(error: LccodecError) -> OpenCheckpoint:
        name = checkpoint_name(reader.manifest.step or 0)
        if strict or not store.has(name):
            raise error
        warn(f"{store.path}: the exact file is damaged; returned the state of the history: {error}")
        return open_name(store, name)

    return ExactFile(reader, spare)


def check_state(exact: OpenCheckpoint, checkpoint: OpenCheckpoint) -> None:
    """Raise ``FormatError`` if the states of the two differ in more than values (LCC-EXA-03)."""
    for what in ("metadata", "scalars", "tree"):
        ours, theirs = (json.dumps(getattr(f.links[-1].manifest, what)) for f in (exact, checkpoint))
        if ours != theirs:
            raise FormatError("LCC-EXA-03", EXACT_NAME, f"the {what} are not those of the checkpoint")
    for mine, other in zip(exact.info().arrays, checkpoint.info().arrays, strict=True):
        if (mine.dtype, mine.shape) != (other.dtype, other.shape):
            message = "is not of the type and shape that it has in the checkpoint"
            raise FormatError("LCC-EXA-03", f"{EXACT_NAME}: array {mine.name!r}", message)


def with_exact(info: CheckpointInfo, store: Store) -> CheckpointInfo:
    """Return what is known of a checkpoint; `exact` also for the exact file beside it."""
    if info.exact_root is None:
        return info
    try:
        with store.open(EXACT_NAME) as reader:
            found = reader.manifest.is_exact and reader.root.hex() == info.exact_root
    except (DataError, StorageError):
        found = False
    return replace(info, exact=info.exact or found)


def may_be_replaced(store: Store, name: str, root: bytes) -> bool:
    """Return whether a file that was found damaged may be replaced by one of a root.

    Not if it is whole by now, or only cannot be read, now or by this version: it may be a newer
    one, and the only copy.
    """
    try:
        with store.open(name) as reader:
            if reader.root == root:
                return True
            reader.verify()
    except (UnsupportedError, LimitError):
        return not _is_other(store, name, root)
    except LccodecError as error:
        return is_loss(error)
    return False


def is_unknown(store: Store, name: str, root: bytes) -> bool:
    """Return whether a file is a sound one that this version cannot read, and not that of a root.

    A newer version may have written it anew. Its root tells whether it is damaged instead.
    """
    try:
        store.open(name).close()
    except (UnsupportedError, LimitError):
        return _is_other(store, name, root)
    except LccodecError:
        pass
    return False


def _is_other(store: Store, name: str, root: bytes) -> bool:
    """Return whether a file of any version is sound and not that of a root, or cannot be read."""
    try:
        with closing(store.source(name)) as source:
            return sound_root(source) not in (None, root)
    except LccodecError:
        return True


def is_newest_exact(reader: CheckpointReader, newest: int, named: bytes | None) -> bool:
    """Return whether a file is the exact file of the newest checkpoint, or of a newer step.

    `named` is the root that the checkpoint names.
    """
    step = reader.manifest.step or 0
    return reader.manifest.is_exact and (step > newest or (step == newest and reader.root == named))


def open_exact_of(checkpoint: Path, root: str) -> ExactFile | None:
    """Open the exact file of a checkpoint; ``None`` if it is missing, damaged or of another.

    `root` is that of the checkpoint or of the exact file itself, in hexadecimal.
    """
    try:
        store = DirectoryStore(checkpoint.parent)
        file = open_exact(store)
        try:
            own = file.links[-1].reader.root
            if root == own.hex():
                return file
            with store.open(checkpoint.name) as reader:
                if root in {each.hex() for each in reader.roots} and reader.manifest.exact == own:
                    return file
        except BaseException:
            file.close()
            raise
        file.close()
    except (DataError, StorageError):  # or it was replaced meanwhile
        pass
    return None


def open_newest(store: Store, step: int | None = None, *, strict: bool = False) -> OpenCheckpoint:
    """Open a step of a chain, the latest by default: the exact file if it is of that step.

    An `LccodecWarning` says why an exact file is not used, or what is wrong beside it. With
    `strict`, an exact file that is damaged or missing raises an error instead. Other errors are as
    `open_step`.
    """
    listed = store.snapshot()
    file, problem = find_exact(listed, step, strict=strict)
    if file is not None:
        if problem is not None:
            warn(f"{store.path}: {problem}")
        return file
    try:
        checkpoint = open_step(listed, step)
    except (ChainError, StorageError):
        if listed is store:
            raise
        checkpoint = open_step(store, step)  # it was pruned after it was listed
    if problem is not None:
        warn(f"{store.path}: {problem}; returned the newest state of the history")
    elif not listed.has(EXACT_NAME) and _is_missed(checkpoint, listed):
        if strict:
            checkpoint.close()
            raise ChainError(f"{store.path}: the exact file is missing")
        warn(
            f"{store.path}: the exact file is missing (a rollback sets it aside); returned the newest lossy"
            " state of the history"
        )
    return checkpoint


def _is_missed(file: OpenCheckpoint, store: Store) -> bool:
    """Return whether the newest checkpoint lost something, and its exact state was to be kept."""
    manifest = file.links[-1].manifest
    if manifest.policy == "lossless":  # as of most chains that have no exact file
        return False
    if manifest.step != max(store.checkpoints(), default=None):
        return False
    try:
        return read_record(manifest.policy).newest == "exact" and file.info().lossy
    except LccodecError:
        return False


def kept(file: OpenCheckpoint, bounds: Bounds) -> OpenCheckpoint:
    """Return a file that keeps bounds, by its manifests and headers; nothing is decoded.

    Raises ``LimitError``, whose rule is the name of the bound, after the file was closed.
    """
    try:
        where = file.links[-1].reader.name
        bounds.check_deltas(len(file.links) - 1, where)
        if bounds.max_bytes is not None:
            sizes = {name: head.nbytes for name, head in file.heads().items()}
            found = decoded_bytes(file.links, sizes)  # of runs, also what the state does not have
            for name, size in found.items():
                sizes[name] = max(sizes.get(name, 0), size)
            bounds.check_bytes(sum(sizes.values()), where)
    except BaseException:
        file.close()
        raise
    return file


def open_path(
    path: str | os.PathLike[str],
    *,
    step: int | None = None,
    exact: bool = True,
    bounds: Bounds = UNBOUNDED,
) -> OpenCheckpoint:
    """Open a step of a chain or a bundle, or a checkpoint file; see :func:`lccodec.open`."""
    checked = checked_place(path)
    if isinstance(checked, Path) and not is_folder(checked):
        if step is None:
            try:
                return kept(open_file(checked), bounds)
            except FormatError:
                if not is_bundle(checked):
                    raise
        elif not is_bundle(checked):
            raise ArgumentError(f"a step needs a chain or a bundle; {checked} is a file")
    store = open_store(checked)
    try:
        file = (open_newest if exact else open_step)(store, step)
    except BaseException:
        store.close()
        raise
    file.owns(store)
    return kept(file, bounds)


def find_exact(
    store: Store, step: int | None, *, strict: bool = False
) -> tuple[ExactFile | None, str | None]:
    """Return the exact file if it is to be used for a step, and what is to be warned of.

    The step is the latest by default. With `strict`, the error of a damaged file is raised.
    """
    wanted = None if step is None else step_index(step)
    # Listed first: a save that comes in between has replaced the exact file by a newer one.
    newest = max(store.checkpoints(), default=None)
    if not store.has(EXACT_NAME) or (wanted not in (None, newest) and store.exact_step() != wanted):
        return None, None
    try:
        file = open_exact(store, strict=strict)
    except (DataError, StorageError) as error:
        if wanted not in (None, newest):
            return None, None
        if strict:
            raise
        return None, f"the exact file cannot be used: {error}"
    found = file.links[-1].manifest.step or 0
    problem = None
    if newest is not None and found < newest and wanted in (None, newest):
        problem = older_problem(found, newest)
    elif wanted in (None, found):
        usable, problem = link_problem(file.links[-1].reader, store)
        if usable:
            return file, problem
    file.close()
    return None, problem
