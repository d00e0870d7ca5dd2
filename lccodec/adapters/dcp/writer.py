"""The writer: the items of every rank go into a chain of that rank; the record comes last.

Beside the record, each rank's state lies whole: a second name of the exact file of its chain. So a
record loads what was saved, bit for bit, also if the ranks have gone on and the next record was
never written. Those of older records of the same directory go once the new record is there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex, StorageMeta
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner, WriteItem, WriteItemType
from torch.distributed.checkpoint.staging import BlockingAsyncStager
from torch.distributed.checkpoint.storage import StorageWriter, WriteResult
from torch.futures import Future

from ...chain.chain import Chain
from ...chain.life.pins import name_exact
from ...chain.life.prune import Keep, check_keep
from ...chain.mend.protect import parse_redundancy
from ...chain.read.links import RECORD_KIND
from ...chain.save.settings import KEYFRAME_EVERY
from ...chain.store.directory import DirectoryStore
from ...chain.store.store import checkpoint_name
from ...container.checkpoint import open_checkpoint
from ...container.folder import make_directory
from ...container.system import StrPath, checked_path, storage_errors
from ...container.tree import leaf_name, unescaped
from ...element_types import Array
from ...errors import ArgumentError, LccodecError, warn
from ...policy.policy import Policy
from ...policy.record import NewestMode
from ...policy.roles import Assignment, assign_roles
from .. import torch as adapter
from ..chains import ChainOptions
from ..link import chain_step
from ..named import prune_together
from .behind import ParityOfRanks, Save, checked_group, written_by
from .record import Location, RankFile, Value, check_storable, item_name, to_record

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
        arrays, and all values that :mod:`lccodec.adapters.tree.values` lists need no pickle.
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
            raise ArgumentError("keep is for one path; lccodec.adapters.named thins out a shared chain")
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

    DCP's own planner has the object. What another one makes is read by torch's weights-only loader.
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
