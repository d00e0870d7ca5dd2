"""The reader: finds the items of a rank's plan in the chains of the ranks that saved them."""

from __future__ import annotations

import io
import pickle
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Final

import torch
from torch.distributed.checkpoint.metadata import (
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner, ReadItem
from torch.distributed.checkpoint.storage import StorageReader
from torch.futures import Future

from ...chain.read.checkpoint import OpenCheckpoint, open_file, open_name
from ...chain.store.directory import DirectoryStore
from ...container.system import StrPath, storage_errors
from ...container.tree import leaf_name
from ...element_types import Array
from ...errors import ArgumentError, ChainError, DataError, FormatError, StorageError, warn
from .. import torch as adapter
from ..link import open_named
from ..torch.states import has_wrappers
from ..torch.wrappers import Apart, copy_into, is_wrapper, put_together_like
from ..tree.shards import make_up, nested
from .record import RULE, Location, RankFile, Value, from_record, item_name

_MAX_SHOWN_NAMES: Final = 3  # of files, in an error


class LCStorageReader(Location, StorageReader):
    """Reads the checkpoints of `LCStorageWriter` for `dcp.load`, on any number of ranks.

    A rank decodes everything it needs before it overwrites any tensor.

    Parameters
    ----------
    path
        The directory of the checkpoint; ``checkpoint_id=`` of a load replaces it.
    step
        The number of the save to that path; the last by default.
    allow_pickle
        Hand stored pickles to the planner. A pickle can run any program: use it only for files you
        trust.

    Raises
    ------
    ChainError
        When loading: if there is no checkpoint, or the file of a rank is missing or is not the
        committed one.
    DataError
        If stored bytes break a rule.
    ArgumentError
        For a pickle without `allow_pickle`, or a tensor of another size than the planner's.
    """

    def __init__(self, path: StrPath, *, step: int | None = None, allow_pickle: bool = False) -> None:
        super().__init__(path)
        self._step = step
        self._allow_pickle = allow_pickle
        self._base = self._path
        self._is_newest = True
        self._metadata = Metadata({})

    def read_metadata(self) -> Metadata:
        """Return the metadata that the record holds.

        What reading them raises is raised where they are used, in `set_up_storage_reader` at the
        latest: DCP catches every error of this method, and that of torch 2.11 forgets it.
        """
        try:
            return self._recorded()
        except Exception as error:
            return _Unread(error)

    def _recorded(self) -> Metadata:
        """Return the metadata that the record holds, or raise why there are none."""
        store = DirectoryStore(self._path)
        steps = store.checkpoints() if self._path.is_dir() else {}
        step = max(steps, default=None) if self._step is None else self._step
        if step is None or step not in steps:
            named = "" if self._step is None else f" of step {self._step}"
            hint = "" if steps else f": {_what_is(self._path)}"
            raise ChainError(f"{self._path} holds no checkpoint{named} that every rank has finished{hint}")
        self._is_newest = step == max(steps)
        with open_name(store, steps[step]) as file:
            record = file.restored(adapter.from_numpy)
        metadata, self._base = from_record(record, self._path / steps[step])
        metadata.storage_meta = StorageMeta(checkpoint_id=self._path)
        return metadata

    def set_up_storage_reader(self, metadata: Metadata, *_: Any, **__: Any) -> None:
        """Keep the metadata: they say where each item lies."""
        if isinstance(metadata, _Unread):
            raise metadata.error
        self._metadata = metadata

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Read all items of the plan, then give them to the planner."""
        by_part: dict[RankFile, list[ReadItem]] = {}
        values: list[tuple[ReadItem, io.BytesIO]] = []
        for item in plan.items:
            stored = self._metadata.storage_data[item.storage_index]
            if isinstance(stored, Value):
                values.append((item, torch_bytes(stored.value)))
            else:
                by_part.setdefault(stored, []).append(item)
        tensors: list[tuple[ReadItem, torch.Tensor, torch.Tensor]] = []
        for part, items in by_part.items():
            with self._open(part) as file:
                names = [leaf_name((item_name(item.storage_index),)) for item in items]
                notes, rows = file.metadata(), _rows(items, names, file.metadata())
                arrays = _arrays(file, rows, str(self._base / part.file))
            for item, name in zip(items, names, strict=True):
                decoded = adapter.from_numpy(arrays[name], notes, name)
                if item.type == LoadItemType.BYTE_IO:
                    values.append((item, self._pickle(item.storage_index.fqn, decoded)))
                else:
                    target = planner.resolve_tensor(item).detach()
                    if isinstance(decoded, Apart):  # the class of the target is one that may be made
                        decoded = put_together_like(target, decoded, name)
                    tensors.append((item, target, self._source(item, decoded, rows[name])))
        for item, target, source in tensors:
            if target.size() != source.size():
                name, sizes = item.dest_index.fqn, (list(target.size()), list(source.size()))
                raise ArgumentError(
                    f"{name!r}: the part to load has size {sizes[1]}, the target has {sizes[0]}"
                )
        for item, target, source in tensors:
            copy_into(target, source)
            planner.commit_tensor(item, target)
        for item, value in values:
            planner.load_bytes(item, value)
        future: Future[None] = Future()
        future.set_result(None)
        return future

    def _open(self, part: RankFile) -> OpenCheckpoint:
        """Open the file of a rank: the whole one beside the record, or that of the chain."""
        if part.whole is not None:
            name, root = part.whole
            with suppress(DataError, StorageError):
                file = open_file(self._path / name)
                if file.links[-1].reader.root.hex() == root:
                    return file
                file.close()
        file = open_named(self._base / part.file, part.root, self._path)
        if part.whole is not None and self._is_newest and any(array.lossy for array in file.info().arrays):
            warn(f"{self._path}: {part.whole[0]} is missing or damaged; returned the state of the history")
        return file

    def state(self) -> dict[str, Any]:
        """Return the whole state, without a target: each tensor put together from all ranks.

        Tensors are on the CPU. Nested names are nested again, as far as the planner has noted how;
        so a state of ``{"model": model.state_dict()}`` comes back as such. No process group is
        needed, and the memory of all tensors is.

        Raises
        ------
        ChainError, DataError, ArgumentError
            As for a load; an ``ArgumentError`` also for a wrapper in several chunks.
        """
        metadata = self._recorded()
        entries, by_name = metadata.state_dict_metadata, dict[str, Any]()
        for name, entry in entries.items():
            if not isinstance(entry, TensorStorageMetadata):
                continue
            if not make_up(entry.size, ((chunk.offsets, chunk.sizes) for chunk in entry.chunks)):
                raise FormatError(RULE, f"{self._path}: {name!r}", "the chunks do not make up the tensor")
        by_part: dict[RankFile, list[MetadataIndex]] = {}
        for index, stored in metadata.storage_data.items():
            if isinstance(stored, Value):
                by_name[index.fqn] = stored.value
            else:
                by_part.setdefault(stored, []).append(index)
        for part, indices in by_part.items():
            with self._open(part) as file:
                names = [leaf_name((item_name(index),)) for index in indices]
                arrays = _arrays(file, dict.fromkeys(names), str(self._base / part.file))
                notes = file.metadata()
            for index, name in zip(indices, names, strict=True):
                chunk = adapter.from_numpy(arrays.pop(name), notes, name)
                self._put(by_name, index, entries[index.fqn], chunk)
        self._check_stored(entries, by_name)
        paths = metadata.planner_data
        if not isinstance(paths, Mapping):
            return {name: by_name[name] for name in entries}
        leaves = [(paths.get(name, (name,)), by_name[name]) for name in entries]
        if not all(type(path) is tuple for path, _ in leaves):
            raise FormatError(RULE, str(self._path), "the planner's data are not paths")
        return nested(leaves, RULE, str(self._path))

    def _check_stored(self, entries: Mapping[str, Any], leaves: dict[str, Any]) -> None:
        """Add tensors that have no element and no chunk; raise ``FormatError`` for other gaps."""
        for name in entries.keys() - leaves.keys():
            entry = entries[name]
            if not isinstance(entry, TensorStorageMetadata) or entry.chunks:
                raise FormatError(RULE, f"{self._path}: {name!r}", "nothing is stored of it")
            leaves[name] = torch.empty(entry.size, dtype=entry.properties.dtype)

    def _put(self, leaves: dict[str, Any], index: MetadataIndex, entry: Any, chunk: Any) -> None:
        """Put a chunk into its tensor."""
        name = index.fqn
        if not isinstance(entry, TensorStorageMetadata):
            leaves[name] = torch.load(self._pickle(name, chunk), weights_only=False)
            return
        if len(entry.chunks) == 1:
            leaves[name] = chunk
            return
        if not isinstance(chunk, torch.Tensor) or is_wrapper(chunk):
            raise ArgumentError(
                f"{self._path}: {name!r} is in {len(entry.chunks)} chunks of a class that cannot be put"
                " together without a target: load it with dcp.load"
            )
        sizes = next(each.sizes for each in entry.chunks if each.offsets == index.offset)
        if (chunk.size(), chunk.dtype) != (sizes, entry.properties.dtype):
            where = f"{self._path}: {name!r}"
            raise FormatError(RULE, where, f"a chunk is {chunk.dtype} {list(chunk.size())}, not as noted")
        if name not in leaves:
            leaves[name] = torch.empty(entry.size, dtype=chunk.dtype)
        ends = _sums(index.offset or (), sizes)
        leaves[name][tuple(map(slice, index.offset or (), ends))] = chunk

    def _source(self, item: ReadItem, tensor: torch.Tensor, rows: slice | None) -> torch.Tensor:
        """Return the region of a stored chunk that an item asks for, of these rows or of all."""
        if tensor.size() == item.lengths:
            return tensor  # not every wrapper can be sliced
        offsets = list(item.storage_offsets)
        if rows is not None:
            offsets[0] -= rows.start
        region = tensor[tuple(map(slice, offsets, _sums(offsets, item.lengths)))]
        if region.size() != item.lengths:
            message = f"the size is {list(tensor.size())}, not as the record says"
            raise FormatError(RULE, f"{self._path}: {item.storage_index.fqn!r}", message)
        return region

    def _pickle(self, name: str, array: Array) -> io.BytesIO:
        if not self._allow_pickle:
            raise ArgumentError(
                f"{self._path}: {name!r} is stored as a pickle, which can run any program; "
                "if you trust the file, load it with LCStorageReader(..., allow_pickle=True)"
            )
        return io.BytesIO(array.tobytes())


class _Unread(Metadata):
    """Metadata that could not be read: whoever looks at a field gets the error of the read."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __getattribute__(self, name: str) -> Any:
        if name in Metadata.__dataclass_fields__:
            raise self.error
        return super().__getattribute__(name)


def _rows(
    items: Sequence[ReadItem], names: Sequence[str], notes: Mapping[str, str]
) -> dict[str, slice | None]:
    """Return by name which rows of stored chunks items need, from the first to the last of them."""
    rows: dict[str, slice | None] = {}
    if has_wrappers(notes, names):  # not every wrapper can be sliced
        return dict.fromkeys(names)
    for item, name in zip(items, names, strict=True):
        if item.type == LoadItemType.BYTE_IO or not item.lengths:
            rows[name] = None
            continue
        start, stop = item.storage_offsets[0], item.storage_offsets[0] + item.lengths[0]
        if (other := rows.get(name)) is not None:
            start, stop = min(start, other.start), max(stop, other.stop)
        rows[name] = slice(start, stop)
    return rows


def _arrays(file: OpenCheckpoint, rows: Mapping[str, slice | None], where: str) -> dict[str, Any]:
    """Return rows of arrays by name, and of a wrapper what it is made of."""
    try:
        if not has_wrappers(file.metadata(), rows.keys()):
            return dict(file.state(rows, "bits"))
        arrays = {leaf_name((key,)): value for key, value in file.state(dtype="bits").items()}
        return {name: arrays[name] for name in rows}
    except (ArgumentError, KeyError) as error:
        raise FormatError(RULE, where, f"not what the record says: {error}") from error


def _what_is(directory: Path) -> str:
    """Return what lies in the place of a checkpoint, in words."""
    with storage_errors("cannot read", directory):
        if not directory.exists():
            return "there is no such directory"
        if not directory.is_dir():
            return "it is not a directory"
        names = sorted(path.name for path in directory.iterdir())
    if ".metadata" in names:
        return (
            "this is a checkpoint of torch's own FileSystemWriter; load it with FileSystemReader "
            "(and save it again with LCStorageWriter)"
        )
    if not names:
        return "the directory is empty"
    more = f" and {len(names) - _MAX_SHOWN_NAMES} more" if len(names) > _MAX_SHOWN_NAMES else ""
    return f"there are other files: {', '.join(names[:_MAX_SHOWN_NAMES])}{more}"


def _sums(left: Sequence[int], right: Sequence[int]) -> list[int]:
    return [a + b for a, b in zip(left, right, strict=True)]


def torch_bytes(value: Any) -> io.BytesIO:
    """Return a value as the bytes that planners read. They are not stored anywhere.

    A class that was made when the value was loaded has no name to which a pickle could refer: then
    the bytes only name a value of this process.
    """
    data: io.BytesIO = io.BytesIO()
    try:
        torch.save(value, data)
    except (pickle.PicklingError, AttributeError, TypeError):
        data = _Handed(value)
    data.seek(0)
    return data


class _Handed(io.BytesIO):
    """A pickle that names a value of this process, as long as it is alive."""

    alive: ClassVar[weakref.WeakValueDictionary[int, _Handed]] = weakref.WeakValueDictionary()

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value
        self.alive[id(self)] = self
        torch.save(_Reference(id(self)), self)


class _Reference:
    def __init__(self, number: int) -> None:
        self._number = number

    def __reduce__(self) -> tuple[Any, ...]:
        return _named, (self._number,)


def _named(number: int) -> Any:
    return _Handed.alive[number].value
