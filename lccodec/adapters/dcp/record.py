"""The record of a distributed checkpoint: DCP's metadata as a state.

``{"kind", "version", "base", "parts", "entries", "planner_data"}``: `base` is the directory of the
ranks' chains, relative to the directory of the record. `parts` are the files there, each with its
root hash. The entry of a tensor has its dtype, size and chunks (offsets, sizes, number of the
part). Any other entry has its value, which is whatever a chain stores, or the number of the part
with its pickle. ``"whole"`` has for each part the file in the directory of the record that holds it
whole and exact, with its root hash.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)

from ...chain.read.links import RECORD_KIND
from ...container.system import StrPath, checked_path
from ...container.tree import flatten
from ...element_types import element_type
from ...errors import ArgumentError, FormatError, LccodecError, UnsupportedError
from .. import torch as adapter

RULE: Final = "dcp"
_VERSION: Final = 1


class Location:
    """The directory of a checkpoint. Every save and load can change it.

    In the list of base classes it stands before DCP's own, whose abstract methods it provides.
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

    `whole` is the name and the root hash of a second file, beside the record, with the same state
    bit for bit. It needs no chain.
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
        wholes = [None if each is None else _whole(*each) for each in record.get("whole", ())]
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
