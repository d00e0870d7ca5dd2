"""torch.distributed.checkpoint: storage for `dcp.save`, `dcp.async_save` and `dcp.load`.

>>> import tempfile, torch
>>> import torch.distributed.checkpoint as dcp
>>> from lccodec.adapters.dcp import LCStorageReader, LCStorageWriter
>>> run, model = tempfile.mkdtemp(), torch.nn.Linear(3, 2)
>>> writer = LCStorageWriter(f"{run}/latest", chain=f"{run}/chain", policy="lossless")
>>> for step in range(2):
...     _ = dcp.save({"model": model.state_dict(), "step": step}, checkpoint_id=f"{run}/{step}",
...                  storage_writer=writer, no_dist=True)
>>> state = {"model": torch.nn.Linear(3, 2).state_dict(), "step": None}
>>> dcp.load(state, checkpoint_id=f"{run}/1", storage_reader=LCStorageReader(run), no_dist=True)
>>> torch.equal(state["model"]["weight"], model.weight), state["step"]
(True, 1)

`dcp.async_save` copies the state, and saves it in a thread or in a process. With `workers`, the
coding is done by worker processes, so that it does not hold up the training thread.

Every rank writes the items of its plan into its own chain, ``CHAIN/rank-N``. When all ranks have
finished, the coordinator writes the record, which is also a checkpoint file. It holds what DCP
calls the metadata, and the name and root hash of each rank's file. A checkpoint exists as soon as
its record exists; a file that does not match the record is refused. A save that is cut short leaves
files that nothing refers to, and earlier checkpoints stay as they were. With a lossy policy or
``chain=``, each rank's state also lies beside the record, whole and exact (a second name of the
exact file of its chain): the checkpoint loads bit for bit as long as its directory exists, also if
the ranks have gone on and the next record was never written. Those of older records of the same
directory go once the new record is there.

With ``parity=1``, ``lccodec repair`` and :func:`lccodec.adapters.ranks.repair_together` mend the
files of any rank that are lost.

No pickle is stored: a value that is not a tensor (an epoch, ``betas``, a random state of NumPy)
lies in the record, if a chain would store it. For anything else, both sides need
``allow_pickle=True``. `LCStorageReader.state` returns the whole state without a target.

The record is DCP's metadata as a state.
``{"kind", "version", "base", "parts", "entries", "planner_data"}``: `base` is the directory of the
ranks' chains, relative to the directory of the record. `parts` are the files there, each with its
root hash. The entry of a tensor has its dtype, size and chunks (offsets, sizes, number of the
part). Any other entry has its value, which is whatever a chain stores, or the number of the part
with its pickle. ``"whole"`` has for each part the file in the directory of the record that holds it
whole and exact, with its root hash.

Needs the extra ``torch``.
"""

from __future__ import annotations

from ..errors import DependencyError

try:
    import torch.distributed.checkpoint
except ImportError:
    raise DependencyError("needs PyTorch: pip install 'lccodec[torch]'") from None

import io
import os
import pickle
import re
import weakref
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import (
    LoadItemType,
    LoadPlan,
    LoadPlanner,
    ReadItem,
    SavePlan,
    SavePlanner,
    WriteItem,
    WriteItemType,
)
from torch.distributed.checkpoint.staging import BlockingAsyncStager
from torch.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
from torch.futures import Future

from ..chain.chain import Chain
from ..chain.life.prune import Keep, check_keep, name_exact
from ..chain.mend.protect import parse_redundancy
from ..chain.read.checkpoint import OpenCheckpoint, open_file, open_name
from ..chain.read.links import RECORD_KIND
from ..chain.save.plan import KEYFRAME_EVERY
from ..chain.store.directory import DirectoryStore
from ..chain.store.store import checkpoint_name
from ..container.checkpoint import open_checkpoint
from ..container.folder import make_directory
from ..container.system import StrPath, checked_path, storage_errors
from ..container.tree import flatten, leaf_name, unescaped
from ..element_types import Array, element_type
from ..errors import (
    ArgumentError,
    ChainError,
    DataError,
    FormatError,
    LccodecError,
    StorageError,
    UnsupportedError,
    warn,
)
from ..policy.policy import Policy
from ..policy.record import NewestMode
from ..policy.roles import Assignment, assign_roles
from . import torch as adapter
from .chains import ChainOptions, chain_step, open_named
from .rank_parity import ParityOfRanks, Save, checked_group, written_by
from .ranks import prune_together
from .torch.states import has_wrappers
from .torch.wrappers import Apart, copy_into, is_wrapper, put_together_like
from .tree import make_up, nested

__all__ = ["LCStorageReader", "LCStorageWriter"]

RULE: Final = "dcp"
_VERSION: Final = 1


class Location:
    """The directory of a checkpoint. Every save and load can change it.

    It stands before DCP's own base classes, whose abstract methods it provides.
    """

    def __init__(self, path: StrPath) -> None:
        super().__init__()
        self._path = checked_path(path)

    @property
    def checkpoint_id(self) -> StrPath:
        """The path of the checkpoint."""
        return self._path

    def reset(self, checkpoint_id: StrPath | None = None) -> None:
        """Begin to save or load a checkpoint."""
        if checkpoint_id is not None:
            self._path = checked_path(checkpoint_id)

    def prepare_local_plan(self, plan: Any) -> Any:
        """Return the plan as it is."""
        return plan

    def prepare_global_plan(self, plans: list[Any]) -> list[Any]:
        """Return the plans as they are."""
        return plans

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: StrPath) -> bool:
        """Return whether a checkpoint can have this name: it must be a path, not an address."""
        try:
            checked_path(checkpoint_id)
        except ArgumentError:
            return False
        return True


@dataclass(frozen=True)
class RankFile:
    """The file of a rank, relative to the directory of the chains, and its root hash.

    `whole` has name and root of a second file, beside the record, with the same state bit for bit.
    """

    file: str
    root: str
    whole: tuple[str, str] | None = None


@dataclass(frozen=True)
class Value:
    """What is not a tensor, stored in the record itself; NumPy arrays in it are lossless."""

    value: Any


def item_name(index: MetadataIndex) -> str:
    """Return the key of an item in its rank's state: its name, and the offset of a shard."""
    offset = index.offset or ()
    return f"{index.fqn}/{','.join(map(str, offset))}" if any(offset) else index.fqn


def check_storable(value: Any) -> None:
    """Raise ``ArgumentError`` if a checkpoint does not restore a value as the same value."""
    for array in flatten(adapter.to_numpy(value)[0]).arrays:
        element_type(array.dtype)


def to_record(metadata: Metadata, base: str) -> dict[str, Any]:
    """Return DCP's metadata as a state of plain values."""
    parts: dict[RankFile, int] = {}
    entries: dict[str, Any] = {}
    for fqn, entry in metadata.state_dict_metadata.items():
        if isinstance(entry, BytesStorageMetadata):
            stored = metadata.storage_data[MetadataIndex(fqn)]
            if isinstance(stored, Value):
                entries[fqn] = {"value": stored.value}
            else:
                entries[fqn] = {"pickle": parts.setdefault(stored, len(parts))}
            continue
        chunks = []
        for chunk in entry.chunks:
            stored = metadata.storage_data[MetadataIndex(fqn, chunk.offsets)]
            chunks.append([list(chunk.offsets), list(chunk.sizes), parts.setdefault(stored, len(parts))])
        entries[fqn] = {
            "dtype": str(entry.properties.dtype).removeprefix("torch."),
            "requires_grad": entry.properties.requires_grad,
            "size": list(entry.size),
            "chunks": chunks,
        }
    try:
        check_storable(metadata.planner_data)
    except ArgumentError as error:
        raise ArgumentError(f"the planner's data cannot be stored: {error}") from error
    return {
        "kind": RECORD_KIND,
        "version": _VERSION,
        "base": base,
        "parts": [[part.file, part.root] for part in parts],
        **({"whole": wholes} if any(wholes := [part.whole for part in parts]) else {}),
        "entries": entries,
        "planner_data": metadata.planner_data,
    }


def _whole(name: Any, root: Any) -> tuple[str, str]:
    if Path(name).name != name:  # a record may be a stranger's
        raise ValueError(name)
    return name, str(root)


def from_record(record: Any, path: Path) -> tuple[Metadata, Path]:
    """Return DCP's metadata and the directory of the chains: the inverse of `to_record`."""
    if not isinstance(record, dict) or record.get("kind") != RECORD_KIND:
        raise FormatError(RULE, str(path), "not the record of a distributed checkpoint")
    if record.get("version") != _VERSION:
        raise UnsupportedError(RULE, str(path), f"a record of version {record.get('version')}")
    storage: dict[MetadataIndex, RankFile | Value] = {}
    entries: dict[str, Any] = {}
    try:
        wholes = [None if pair is None else _whole(*pair) for pair in record.get("whole", ())]
        wholes += [None] * (len(record["parts"]) - len(wholes))  # earlier versions have none
        parts = [RankFile(str(f), str(r), w) for (f, r), w in zip(record["parts"], wholes, strict=True)]
        for fqn, entry in record["entries"].items():
            if "chunks" not in entry:
                index = MetadataIndex(fqn)
                storage[index] = Value(entry["value"]) if "value" in entry else parts[entry["pickle"]]
                entries[fqn] = BytesStorageMetadata()
                continue
            dtype = getattr(torch, entry["dtype"], None)
            if not isinstance(dtype, torch.dtype):
                where = f"{path}: {fqn!r}"
                raise UnsupportedError(RULE, where, f"this PyTorch has no dtype {entry['dtype']}")
            chunks = []
            for offsets, sizes, part in entry["chunks"]:
                chunks.append(ChunkStorageMetadata(torch.Size(offsets), torch.Size(sizes)))
                storage[MetadataIndex(fqn, offsets)] = parts[part]
            properties = TensorProperties(dtype=dtype, requires_grad=entry["requires_grad"])
            entries[fqn] = TensorStorageMetadata(properties, torch.Size(entry["size"]), chunks)
        base = path.parent / record["base"]
        return Metadata(entries, record["planner_data"], storage), base
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, LccodecError):
            raise
        raise FormatError(RULE, str(path), f"an inconsistent record: {error!r}") from error


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
        sizes = next(part.sizes for part in entry.chunks if part.offsets == index.offset)
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
    """Return a value as the bytes that planners read.

    A class that was made at the load has no name for a pickle: then the bytes name a value of this
    process.
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


_WHOLE: Final = re.compile(r"rank-[0-9]+-[0-9]+\.exact")


# `dcp.async_save` copies the state with BlockingAsyncStager, which knows all kinds of sharded
# tensors.
class LCStorageWriter(Location, BlockingAsyncStager, StorageWriter):
    """Writes the checkpoints of `dcp.save` and `dcp.async_save`.

    Parameters
    ----------
    path
        The directory of the checkpoint in DCP's sense; ``checkpoint_id=`` of a save replaces it.
        Saves to the same path are numbered from 0, and the last one is loaded by default. With a
        lossy policy that is the exact one. Older ones of the same path are the history's.
    chain
        The directory of the ranks' chains; by default `path`. Checkpoints of several paths can
        share it: then each is a delta to the one before, and one path can be deleted without harm
        to the others. Each path has its state whole, too; with ``newest="history"`` only the
        record.
    policy, keyframe_every, workers, newest, keep, hindsight, only
        The options of every rank's chain: see `lccodec.adapters.chains.ChainOptions`, also
        for errors. `keep` is about the checkpoints of `path`, and is for chains that lie there;
        after each save, what the records that stay do not name goes, of all ranks.
    allow_pickle
        Store a value that a chain would refuse as the bytes that the planner makes. Tensors, NumPy
        arrays, and all values that :mod:`lccodec.adapters.tree` lists need no pickle.
    parity
        How many ranks may lose their files: those that the ranks of one save write form a group,
        from which `repair` mends any that are lost. The ranks compute the parity together behind
        the save. It lies in ``.parity`` beside their chains. What goes wrong with it is a warning.
    process_group
        The ranks that save, if those are not all, as a group of ``gloo`` that nobody else uses. By
        default one of all ranks is made, for parity alone.

    Raises
    ------
    ArgumentError
        When saving: for a value that only a pickle can hold, or without collectives.
    StorageError
        If the operating system refuses to write.
    """

    def __init__(  # one parameter for each option of its users
        self,
        path: StrPath,
        chain: StrPath | None = None,
        policy: str | Policy = "lossless",
        *,
        keyframe_every: int = KEYFRAME_EVERY,
        workers: int | None = None,
        newest: NewestMode | None = None,
        keep: Keep | None = None,
        hindsight: int = 0,
        only: Sequence[str] | None = None,
        allow_pickle: bool = False,
        parity: int | None = None,
        process_group: dist.ProcessGroup | None = None,
    ) -> None:
        super().__init__(path)
        self._chain_directory = None if chain is None else checked_path(chain)
        self._options = ChainOptions(
            path if chain is None else chain,
            policy,
            keyframe_every,
            workers,
            newest,
            hindsight=hindsight,
            only=only,
        )
        self._keep = check_keep(keep)
        if keep is not None and chain is not None:
            raise ArgumentError("keep is for one path; lccodec.adapters.ranks thins out a shared chain")
        self._allow_pickle = allow_pickle
        self._rank = 0
        self._is_coordinator = False
        self._chain: Chain | None = None  # of this rank; it keeps the last state for the next delta
        self._has_saved = False  # all arrays, to that chain
        group, redundancy = checked_group(process_group), None if parity is None else parse_redundancy(parity)
        if redundancy is not None and not redundancy.files:
            raise ArgumentError(f"parity is the number of ranks that may lose their files; got {parity!r}")
        self._parity = None if redundancy is None else ParityOfRanks(redundancy, group)

    def __getstate__(self) -> dict[str, Any]:
        # `dcp.async_save` sends the writer to a process, which reads the last state from the disk.
        return {**self.__dict__, "_chain": None}

    def set_up_storage_writer(self, is_coordinator: bool = True, *_: Any, **kwargs: Any) -> None:
        """Learn the rank. Without collectives nobody would know whether every rank has finished."""
        if not kwargs.get("use_collectives", True):
            raise ArgumentError(
                "a checkpoint is committed when every rank has finished: this needs collectives"
            )
        self._rank = kwargs.get("rank") or 0
        self._is_coordinator = is_coordinator

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Return the plans as they are; for parity, each says how many ranks there are."""
        return plans if self._parity is None else [replace(plan, storage_data=len(plans)) for plan in plans]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Append the rank's items to its chain, and begin with its parity."""
        if self._parity is None:
            return self._write(plan, planner)[0]
        base, written = self._chain_directory or self._path, None
        try:
            future, part = self._write(plan, planner)
            written = written_by(base, self._rank, None if part is None else part.file)
        finally:  # also if it has failed, because the other ranks begin
            records = self._path if self._is_coordinator else None
            self._parity.begin(Save(plan.storage_data, base, records, written))
        return future

    def wait(self) -> None:
        """Wait until the parity of all saves is written; what goes wrong is a warning.

        All ranks call it when their saves are done, before ``destroy_process_group``.
        """
        if self._parity is not None:
            self._parity.wait()

    def _write(
        self, plan: SavePlan, planner: SavePlanner
    ) -> tuple[Future[list[WriteResult]], RankFile | None]:
        """Append the rank's items to its chain; return also its file."""
        state: dict[str, torch.Tensor | Array] = {}
        values: dict[MetadataIndex, Value] = {}
        for item in plan.items:
            name = item_name(item.index)
            if name in state:
                raise ArgumentError(f"two items of the plan would both be named {name!r}")
            if item.type != WriteItemType.BYTE_IO:
                tensor: Any = planner.resolve_data(item)
                state[name] = tensor
                continue
            try:
                values[item.index] = stored_value(planner, item)
            except ArgumentError as error:
                if not self._allow_pickle:
                    raise ArgumentError(
                        f"{name!r} cannot be stored: {error}. LCStorageWriter(..., allow_pickle=True) "
                        "stores it as a pickle, which only loads with the same option"
                    ) from error
                data: Any = planner.resolve_data(item)
                state[name] = np.frombuffer(data.getvalue(), np.uint8)
        part, share = None, 0
        if state:
            part, size = self._append(state, item_roles({item.index for item in plan.items}, state))
            share = size // len(state)
        future: Future[list[WriteResult]] = Future()
        future.set_result(
            [
                WriteResult(item.index, 0 if item.index in values else share, values.get(item.index, part))
                for item in plan.items
            ]
        )
        return future, part

    def _append(
        self, state: dict[str, torch.Tensor | Array], roles: dict[str, Assignment]
    ) -> tuple[RankFile, int]:
        """Save to the rank's chain; return the file and its size."""
        base = self._chain_directory or self._path
        directory = base / f"rank-{self._rank}"
        if self._chain is None or self._chain.directory != directory:
            newest: NewestMode | None = None if self._chain_directory is None else "exact"
            self._chain, self._has_saved = self._options.open_in(directory, adapter, newest), False
        alone = not dist.is_initialized() or dist.get_world_size() == 1
        names = [leaf_name((name,)) for name in state]
        only = self._options.only_of(lambda: names, alone=alone, has_all=self._has_saved)
        # Every rank counts its own steps: after a save that was cut short, some chains are longer.
        step = chain_step(None, self._chain.latest)
        self._has_saved = False  # behind a save that fails, all arrays are saved
        size = self._chain.save(step, state, {"rank": str(self._rank)}, roles=roles, only=only)
        self._has_saved = True
        if self._chain.workers is None:
            self._chain.release_lock()  # `dcp.async_save` may save from another process in between
        store, path, whole = DirectoryStore(directory), directory / checkpoint_name(step), None
        if self._chain.newest == "exact":
            with storage_errors("cannot create", self._path):
                make_directory(self._path)
            name = f"rank-{self._rank}-{step}.exact"  # a chain has no other .lcc.h5 files
            if name_exact(store, step, self._path / name):
                with open_checkpoint(self._path / name) as file:
                    whole = name, file.root.hex()
        with store.open(store.name_of(step)) as file:  # only the exact file may have it yet
            return RankFile(path.relative_to(base).as_posix(), file.root.hex(), whole), size

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Commit the checkpoint; called when every rank has finished."""
        is_committed = False
        try:
            self._commit(metadata, results)
            is_committed = True
        finally:
            if self._parity is not None:
                self._parity.end(is_committed=is_committed)

    def _commit(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Write the record, and thin out what it makes needless."""
        metadata.storage_data = {result.index: result.storage_data for rank in results for result in rank}
        metadata.storage_meta = self.storage_meta()
        directory = self._chain_directory or self._path
        record = to_record(metadata, os.path.relpath(directory, self._path))
        with Chain(self._path, "lossless", keyframe_every=0) as records:
            records.save(chain_step(None, records.latest), *adapter.to_numpy(record, {"kind": RECORD_KIND}))
        named = {name for name, _ in filter(None, record.get("whole", ()))}
        for path in self._path.glob("rank-*-*.exact"):
            if _WHOLE.fullmatch(path.name) and path.name not in named:
                with suppress(OSError):  # the next save tries again
                    path.unlink()
        if self._keep is not None:
            try:
                prune_together(self._path, self._keep, renew=self._parity is None)
            except LccodecError as error:
                warn(f"{self._path}: the checkpoint is saved, but pruning failed: {error}")

    def storage_meta(self) -> StorageMeta | None:
        """Return what planners learn about the storage."""
        return StorageMeta(checkpoint_id=self._path)


def item_roles(
    indices: Iterable[MetadataIndex], state: Mapping[str, torch.Tensor | Array]
) -> dict[str, Assignment]:
    """Return the roles of a rank's items. A shard has the role of its tensor."""
    tensors = {index.fqn: state[item_name(index)] for index in indices if item_name(index) in state}
    structural = {unescaped(name): role for name, role in adapter.roles(tensors).items()}
    assignments = assign_roles({name: tensor.shape for name, tensor in tensors.items()}, None, structural)
    items = ((item_name(index), index.fqn) for index in indices if index.fqn in assignments)
    return {leaf_name((item,)): assignments[name] for item, name in items}


def stored_value(planner: SavePlanner, item: WriteItem) -> Value:
    """Return what a planner saves as an item that is not a tensor, to be stored in the record.

    DCP's own planner has the object; what another one makes is read by torch's weights-only loader.
    An ``ArgumentError`` says why only a pickle can express it.
    """
    own, methods = DefaultSavePlanner, ("resolve_data", "transform_object")
    if isinstance(planner, own) and all(getattr(type(planner), m) is getattr(own, m) for m in methods):
        value = planner.lookup_object(item.index)
    else:
        data: Any = planner.resolve_data(item)
        try:
            data.seek(0)
            value = torch.load(data, weights_only=True)
        except Exception as error:  # a class that is not plain, or bytes in a planner's own format
            raise ArgumentError("is bytes that a planner makes, with classes that are not loaded") from error
    check_storable(value)
    return Value(value)
