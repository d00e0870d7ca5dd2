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

Every rank writes what the planner gives it into a chain of its own, ``CHAIN/rank-N``. When all have
finished, the coordinator writes the record, itself a checkpoint file: what DCP calls the metadata, and the
file of each rank with its root. There is a checkpoint once its record is there, and a file that is not the
one the record names is refused. So a save that is cut short leaves files that nothing refers to, and the
earlier checkpoints as they were.

No pickle is stored: a value that is no tensor (an epoch, ``betas``) becomes scalars of the record. Where a
planner hands over anything else, it takes ``allow_pickle=True`` on both sides. Needs the extra ``torch``.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from ...chain.chain import Chain
from ...chain.checkpoint import checkpoint_path, directory_steps, open_file
from ...chain.replay import KEYFRAME_EVERY
from ...container.reader import open_checkpoint
from ...container.system import StrPath, checked_path, storage_errors
from ...container.tree import leaf_name
from ...element_types import Array
from ...errors import (
    ArgumentError,
    ChainError,
    DependencyError,
    FormatError,
)
from ...policy.policy import Policy
from ...policy.roles import Assignment, assign_roles

try:
    import torch
    from torch.distributed.checkpoint.metadata import (
        Metadata,
        MetadataIndex,
        StorageMeta,
    )
    from torch.distributed.checkpoint.planner import (
        LoadItemType,
        LoadPlan,
        LoadPlanner,
        ReadItem,
        SavePlan,
        SavePlanner,
        WriteItemType,
    )
    from torch.distributed.checkpoint.staging import BlockingAsyncStager
    from torch.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
    from torch.futures import Future
except ImportError:
    raise DependencyError("needs PyTorch: pip install 'lccodec[torch]'") from None

from .. import torch as adapter
from ..link import open_named
from ..options import ChainOptions
from .record import KIND, RULE, Part, Value, from_record, is_plain, to_record

__all__ = ["LCStorageReader", "LCStorageWriter"]

_SHOWN: Final = 3  # names of files in an error


class LCStorageWriter(BlockingAsyncStager, StorageWriter):
    """Writes the checkpoints of `dcp.save` and `dcp.async_save`.

    Parameters
    ----------
    path
        Directory of the checkpoint, as DCP has it; ``checkpoint_id=`` of a save takes its place. Saves to
        one path are numbered from 0, and the last is what is loaded.
    chain
        Directory of the ranks' chains, which checkpoints of several paths can share, so that each is a
        delta of the one before, and to delete the path of one harms no other; by default in `path`.
    policy, keyframe_every, threads
        For the chain of every rank: see `lccodec.adapters.options.ChainOptions`, also for errors.
    allow_pickle
        Store what is neither a tensor nor a plain value as the bytes that the planner makes of it.

    Raises
    ------
    ArgumentError
        When saving, for a value that only a pickle could hold, or without collectives.
    StorageError
        If the operating system refuses to write.
    """

    def __init__(
        self,
        path: StrPath,
        chain: StrPath | None = None,
        policy: str | Policy = "lossless",
        *,
        keyframe_every: int = KEYFRAME_EVERY,
        threads: int = 1,
        allow_pickle: bool = False,
    ) -> None:
        super().__init__()  # `dcp.async_save` copies the state by it, sharded tensors of every kind included
        self._path = checked_path(path)
        self._chain_directory = None if chain is None else checked_path(chain)
        self._options = ChainOptions(path if chain is None else chain, policy, keyframe_every, threads)
        self._allow_pickle = allow_pickle
        self._rank = 0
        self._chain: Chain | None = None  # of this rank; keeps the last state, which the next delta refers to

    def __getstate__(self) -> dict[str, Any]:
        # `dcp.async_save` sends the writer to a process, which reads the chain's last state from the disk.
        return {**self.__dict__, "_chain": None}

    @property
    def checkpoint_id(self) -> StrPath:
        """The path of the checkpoint."""
        return self._path

    def reset(self, checkpoint_id: StrPath | None = None) -> None:
        """Begin a checkpoint."""
        if checkpoint_id is not None:
            self._path = checked_path(checkpoint_id)

    def set_up_storage_writer(self, *_: Any, **kwargs: Any) -> None:
        """Learn the rank.

        Raises
        ------
        ArgumentError
            Without collectives, as nobody would know whether every rank has finished.
        """
        if not kwargs.get("use_collectives", True):
            raise ArgumentError(
                "a checkpoint is committed when every rank has finished: it needs collectives"
            )
        self._rank = kwargs.get("rank") or 0

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """Return the plan as it is."""
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Return the plans as they are."""
        return plans

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Append the rank's items to its chain."""
        state: dict[str, torch.Tensor | Array] = {}
        values: dict[MetadataIndex, Value] = {}
        for item in plan.items:
            name = _item_name(item.index)
            if name in state:
                raise ArgumentError(f"two items of the plan would both be named {name!r}")
            data: Any = planner.resolve_data(item)
            if item.type != WriteItemType.BYTE_IO:
                state[name] = data
            elif (value := _plain_value(data)) is not None:
                values[item.index] = value
            elif self._allow_pickle:
                state[name] = np.frombuffer(data.getvalue(), np.uint8)
            else:
                raise ArgumentError(
                    f"{name!r} is neither a tensor nor made of int, float, bool, str, bytes, None, list, "
                    "tuple, dict and the like: a pickle could hold it, "
                    "with LCStorageWriter(..., allow_pickle=True)"
                )
        part, share = None, 0
        if state:
            part, size = self._append(state, _roles({item.index for item in plan.items}, state))
            share = size // len(state)
        future: Future[list[WriteResult]] = Future()
        future.set_result(
            [
                WriteResult(item.index, 0 if item.index in values else share, values.get(item.index, part))
                for item in plan.items
            ]
        )
        return future

    def _append(
        self, state: dict[str, torch.Tensor | Array], roles: dict[str, Assignment]
    ) -> tuple[Part, int]:
        """Save to the rank's chain; return the file and its size."""
        base = self._chain_directory or self._path
        directory = base / f"rank-{self._rank}"
        if self._chain is None or self._chain.directory != directory:
            self._chain = self._options.open_in(directory, adapter)
        # A number of the rank's own: after a save that was cut short some chains are longer than others.
        step = max(self._chain.steps, default=-1) + 1
        size = self._chain.save(step, state, {"rank": str(self._rank)}, known=roles)
        path = checkpoint_path(directory, step)
        with open_checkpoint(path) as file:
            return Part(path.relative_to(base).as_posix(), file.root.hex()), size

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Commit the checkpoint: every rank has finished."""
        metadata.storage_data = {result.index: result.storage_data for rank in results for result in rank}
        metadata.storage_meta = self.storage_meta()
        directory = self._chain_directory or self._path
        record = to_record(metadata, os.path.relpath(directory, self._path))
        with Chain(self._path, "lossless", keyframe_every=0) as records:
            records.save(max(records.steps, default=-1) + 1, *adapter.to_numpy(record, {"kind": KIND}))

    def storage_meta(self) -> StorageMeta | None:
        """Return what planners are told of the storage."""
        return StorageMeta(checkpoint_id=self._path)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: StrPath) -> bool:
        """Return whether there can be a checkpoint of that name: a path, not an address."""
        try:
            checked_path(checkpoint_id)
        except ArgumentError:
            return False
        return True


class LCStorageReader(StorageReader):
    """Reads the checkpoints of `LCStorageWriter` for `dcp.load`, on any number of ranks.

    A rank decodes what it needs before any of it goes into its tensors.

    Parameters
    ----------
    path
        Directory of the checkpoint; ``checkpoint_id=`` of a load takes its place.
    step
        Which of the saves to that path; the last by default.
    threads
        How many to decode with, 0 for one each core.
    allow_pickle
        Hand pickles that are stored to the planner, which runs whatever they say: only for files you trust.

    Raises
    ------
    ChainError
        When loading: no checkpoint there, or the file of a rank is missing or not the one that was committed.
    DataError
        If stored bytes break a rule.
    ArgumentError
        For a pickle without `allow_pickle`, a tensor of another size than the planner's.
    """

    def __init__(
        self, path: StrPath, *, step: int | None = None, threads: int = 1, allow_pickle: bool = False
    ) -> None:
        self._path = checked_path(path)
        self._step = step
        self._threads = threads
        self._allow_pickle = allow_pickle
        self._base = self._path
        self._metadata = Metadata({})

    @property
    def checkpoint_id(self) -> StrPath:
        """The path of the checkpoint."""
        return self._path

    def reset(self, checkpoint_id: StrPath | None = None) -> None:
        """Begin to load a checkpoint."""
        if checkpoint_id is not None:
            self._path = checked_path(checkpoint_id)

    def read_metadata(self) -> Metadata:
        """Return the metadata that the record holds."""
        steps = directory_steps(self._path) if self._path.is_dir() else {}
        step = max(steps, default=None) if self._step is None else self._step
        if step is None or step not in steps:
            named = "" if self._step is None else f" of step {self._step}"
            found = "" if steps else f": {_what_is(self._path)}"
            raise ChainError(f"{self._path} holds no checkpoint{named} that every rank has finished{found}")
        with open_file(steps[step]) as file:
            record = adapter.from_numpy(file.state(dtype="bits"), file.metadata())
        metadata, self._base = from_record(record, steps[step])
        metadata.storage_meta = StorageMeta(checkpoint_id=self._path)
        return metadata

    def set_up_storage_reader(self, metadata: Metadata, *_: Any, **__: Any) -> None:
        """Keep the metadata, which say where each item lies."""
        self._metadata = metadata

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """Return the plan as it is."""
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """Return the plans as they are."""
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Read what the plan asks for, then give it to the planner."""
        by_part: dict[Part, list[ReadItem]] = {}
        values: list[tuple[ReadItem, io.BytesIO]] = []
        for item in plan.items:
            stored = self._metadata.storage_data[item.storage_index]
            if isinstance(stored, Value):
                values.append((item, _torch_bytes(stored.value)))
            else:
                by_part.setdefault(stored, []).append(item)
        tensors: list[tuple[ReadItem, torch.Tensor, torch.Tensor]] = []
        for part, items in by_part.items():
            with open_named(self._base / part.file, part.root, self._path, self._threads) as file:
                names = [leaf_name((_item_name(item.storage_index),)) for item in items]
                try:
                    arrays, notes = file.state(set(names), "bits"), file.metadata()
                except ArgumentError as error:
                    where = str(self._base / part.file)
                    raise FormatError(RULE, where, f"not what the record says: {error}") from error
            for item, name in zip(items, names, strict=True):
                found = adapter.from_numpy(arrays[name], notes, name)
                if item.type == LoadItemType.BYTE_IO:
                    values.append((item, self._pickle(item, found)))
                else:
                    tensors.append((item, planner.resolve_tensor(item).detach(), self._source(item, found)))
        for item, target, source in tensors:
            if target.size() != source.size():
                name, sizes = item.dest_index.fqn, (list(target.size()), list(source.size()))
                raise ArgumentError(f"{name!r}: the part to load has size {sizes[1]}, its place {sizes[0]}")
        for item, target, source in tensors:
            target.copy_(source)
            planner.commit_tensor(item, target)
        for item, value in values:
            planner.load_bytes(item, value)
        future: Future[None] = Future()
        future.set_result(None)
        return future

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: StrPath) -> bool:
        """Return whether there can be a checkpoint of that name: a path, not an address."""
        return LCStorageWriter.validate_checkpoint_id(checkpoint_id)

    def _source(self, item: ReadItem, tensor: torch.Tensor) -> torch.Tensor:
        """Return the region of a stored chunk that an item asks for."""
        region = tensor[tuple(map(slice, item.storage_offsets, _sums(item.storage_offsets, item.lengths)))]
        if region.size() != item.lengths:
            message = f"{list(tensor.size())} is not the size that the record says"
            raise FormatError(RULE, f"{self._path}: {item.storage_index.fqn!r}", message)
        return region

    def _pickle(self, item: ReadItem, array: Array) -> io.BytesIO:
        if not self._allow_pickle:
            raise ArgumentError(
                f"{self._path}: {item.storage_index.fqn!r} is stored as a pickle, which can run any program; "
                "if you trust the file, load it with LCStorageReader(..., allow_pickle=True)"
            )
        return io.BytesIO(array.tobytes())


def _what_is(directory: Path) -> str:
    """Say what lies in the place of a checkpoint."""
    with storage_errors("cannot read", directory):
        if not directory.exists():
            return "there is no such directory"
        if not directory.is_dir():
            return "it is not a directory"
        names = sorted(path.name for path in directory.iterdir())
    if ".metadata" in names:
        return (
            "this is a checkpoint of torch's own FileSystemWriter; load it with FileSystemReader "
            "(and save it anew with LCStorageWriter)"
        )
    if not names:
        return "the directory is empty"
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"there are other files: {', '.join(names[:_SHOWN])}{more}"


def _item_name(index: MetadataIndex) -> str:
    """Return the key of an item in its rank's state: its name, and where a shard begins if not at 0."""
    offset = index.offset or ()
    return f"{index.fqn}/{','.join(map(str, offset))}" if any(offset) else index.fqn


def _roles(
    indices: Iterable[MetadataIndex], state: Mapping[str, torch.Tensor | Array]
) -> dict[str, Assignment]:
    """Return the roles of a rank's items: those of the tensors that they are shards of."""
    tensors = {index.fqn: state[_item_name(index)] for index in indices if _item_name(index) in state}
    told = {name.replace("~1", "/").replace("~0", "~"): a for name, a in adapter.roles(tensors).items()}
    found = assign_roles(tensors, None, told)
    items = ((_item_name(index), index.fqn) for index in indices if index.fqn in found)
    return {leaf_name((item,)): found[name] for item, name in items}


def _sums(left: Sequence[int], right: Sequence[int]) -> list[int]:
    return [a + b for a, b in zip(left, right, strict=True)]


def _plain_value(data: io.BytesIO) -> Value | None:
    """Return the value in a planner's bytes if it can be told without a pickle."""
    data.seek(0)
    try:
        value = torch.load(data, weights_only=True)
    except Exception:  # a class that is not plain, or bytes of a planner's own making
        return None
    return Value(value) if is_plain(value) else None


def _torch_bytes(value: Any) -> io.BytesIO:
    """Return a plain value in the form that planners read."""
    data = io.BytesIO()
    torch.save(value, data)
    data.seek(0)
    return data
