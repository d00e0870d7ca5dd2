"""One state in one file, with the verbs of safetensors: save, save_file, load, load_file."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal

from ...container.checkpoint import CheckpointWriter, open_bytes, to_bytes
from ...container.manifest import Manifest
from ...container.piece_table import FrameEntry, hashed
from ...container.source import BytesSource
from ...container.system import checked_path
from ...container.tree import Flat, flatten, metadata_strings
from ...entropy.stream_writer import Piece
from ...errors import ArgumentError, StorageError
from ...policy.policy import Policy
from ...policy.presets import POLICIES, resolve_policy
from ...policy.record import Record, needed_record, write_record
from ...policy.roles import Assignment, Role, check_roles
from ...policy.values import mark_copies
from ...quantizers.base import Lossless
from ...workers.crew import Threads
from ..overview import Progress, check_progress, telling
from ..read.checkpoint import OpenCheckpoint, kept, open_data, open_file
from ..read.links import Bounds, check_own
from ..read.replay import DecodedArray
from ..store.directory import in_chain
from ..store.store import Store, checkpoint_name
from .encode import encode_plan, encode_unchained, plan_manifest, raw_frames
from .plan import FramePlan, SavePlan, candidates, make_plan

#: The step of a reference in memory, in the file that stands for it; a delta to it is the next one.
_REFERENCE_STEP: Final = 0


def _planned(state: Any, metadata: Mapping[str, Any] | None) -> tuple[SavePlan, Manifest]:
    """Return the plan of a file, and its manifest without the frames."""
    flat = flatten(state)
    arrays = candidates(flat, {})
    mark_copies(arrays)
    plan = make_plan(arrays, POLICIES["lossless"], None)
    metadata = metadata_strings(metadata)
    return plan, plan_manifest(plan, flat, step=None, policy="lossless", metadata=metadata)


def save(
    state: Any,
    metadata: Mapping[str, Any] | None = None,
    *,
    policy: str | Policy = "lossless",
    roles: Mapping[str, Role] = MappingProxyType({}),
    reference: Any = None,
) -> bytes:
    """Return a state as the bytes of a checkpoint file, lossless by default.

    Parameters
    ----------
    state
        A nested dict, list or tuple of arrays and of int, float, bool, str, bytes and None.
    metadata
        Strings to store with the state. A number becomes its JSON text.
    policy, roles
        As for `Chain`. Without a reference, what the policy has for keyframes counts.
    reference
        A state that the reader has, bit for bit: the result is a delta to it. `load` needs it. A
        lossy state as decoded is a good one; its arrays are not changed.

    Raises
    ------
    ArgumentError
        If the state or the reference holds something that cannot be stored. The message names it.
        For an unknown policy or role.

    Examples
    --------
    >>> import numpy as np, lccodec
    >>> before = {"weight": np.linspace(-1, 1, 10_000, dtype=np.float32)}
    >>> state = {"weight": before["weight"] + np.float32(1e-3)}
    >>> update = lccodec.save(state, policy="balanced", reference=before)
    >>> len(update) < len(lccodec.save(state)) / 4
    True
    >>> error = lccodec.load(update, reference=before)["weight"] - state["weight"]
    >>> bool(abs(error).max() < 1e-3)
    True
    """
    return coded(state, metadata, policy, roles, reference)


def coded(
    state: Any,
    metadata: Mapping[str, Any] | None,
    policy: str | Policy,
    roles: Mapping[str, Role],
    reference: Any,
    known: Mapping[str, Assignment] = MappingProxyType({}),
) -> bytes:
    """Return a state as `save` does; `known` has the roles that a framework's structures say."""
    if policy == "lossless" and reference is None:
        plan, manifest = _planned(state, metadata)
        return _in_memory(manifest, encode_unchained(plan))
    flat, strings = flatten(state), metadata_strings(metadata)
    record = Record(resolve_policy(policy), check_roles(roles))
    parents: dict[str, DecodedArray] = {}
    parent = None
    if reference is not None:
        before = flatten(reference)
        with open_bytes(_reference_bytes(before)) as reader:
            parent = reader.root, before.tree
        # What is decoded takes the place of its reference.
        held = zip(before.names, candidates(before, {}), strict=True)
        parents = {name: DecodedArray(c.kind, c.shape, c.bits.copy()) for name, c in held}
    arrays = candidates(flat, parents, record.roles, known)
    mark_copies(arrays)
    plan = make_plan(arrays, record.policy, None if parent is None else _REFERENCE_STEP)
    manifest = plan_manifest(
        plan,
        flat,
        step=None if parent is None else _REFERENCE_STEP + 1,
        policy=write_record(needed_record(record, arrays, known)),
        metadata=strings,
        parent=parent,
    )
    coded = encode_plan(plan, parents, record.policy.effort, Threads())
    return _in_memory(manifest, (chunks for chunks, _ in coded))


def _in_memory(manifest: Manifest, frames: Iterable[Iterable[Piece]]) -> bytes:
    """Return the bytes of a checkpoint file, given its manifest without frames and its frames."""
    joined = [b"".join(chunks) for chunks in frames]
    return to_bytes(joined, replace(manifest, frames=tuple(hashed(frame)[0] for frame in joined)))


def _reference_bytes(flat: Flat) -> bytes:
    """Return the checkpoint file that stands for a reference: its values as they are.

    Each array has a frame of its own, so that no choice of an encoder is in it: all versions make
    the same file of the same state.
    """
    arrays = candidates(flat, {})
    frames = [FramePlan([index], Lossless(), False, False, c.bits.size) for index, c in enumerate(arrays)]
    quantizers = [Lossless()] * len(arrays)
    plan = SavePlan(None, arrays, quantizers, frames, frozenset(), POLICIES["lossless"])
    manifest = plan_manifest(plan, flat, step=_REFERENCE_STEP, policy="lossless", metadata={})
    return _in_memory(manifest, (map(bytes, frame.chunks()) for frame in raw_frames(plan)))


class _ReferenceStore(Store):
    """The store of a delta in memory: its reference is the only file."""

    def __init__(self, reference: Any) -> None:
        super().__init__(Path("<reference>"))
        self._name, self._data = checkpoint_name(_REFERENCE_STEP), _reference_bytes(flatten(reference))

    def names(self) -> list[str]:
        """Return the name of the reference."""
        return [self._name]

    def has(self, name: str) -> bool:
        """Return whether a name is that of the reference."""
        return name == self._name

    def source(self, name: str) -> BytesSource:
        """Return the bytes of the reference."""
        if name != self._name:
            raise StorageError(errno.ENOENT, "it is not the reference", self.place(name))
        return BytesSource(self._data)

    def size(self, names: Iterable[str]) -> int:
        """Return the bytes that files take together."""
        return sum(self.source(name).size for name in names)

    def identity(self, name: str) -> tuple[int, ...]:
        """Return what is the same for all of its files: they never change."""
        return (self.source(name).size,)


def save_file(
    state: Any,
    path: str | os.PathLike[str],
    metadata: Mapping[str, Any] | None = None,
    *,
    progress: Progress = False,
) -> None:
    """Write a state to a checkpoint file, lossless and atomically.

    An existing file of that name is replaced. The new file has its permissions. `progress` is as
    for `Chain.save`.

    Raises
    ------
    ArgumentError
        If the state holds something that cannot be stored; the message names it. If the path is a
        checkpoint of a chain: only `Chain.save` writes these, and they are never replaced. For
        unknown `progress`.
    StorageError
        If the operating system refuses to write. An existing file is not changed.
    """
    target = checked_path(path)
    if in_chain(target):
        raise ArgumentError(f"{target} is a checkpoint of a chain: choose another name or directory")
    check_progress(progress)
    plan, manifest = _planned(state, metadata)
    entries, done, total = list[FrameEntry](), 0, len(plan.candidates)
    with CheckpointWriter(target, overwrite=True) as writer, telling(progress, "save") as tell:
        for frame, chunks in zip(plan.frames, encode_unchained(plan), strict=True):
            entries.append(writer.write_frame(chunks))
            done += len(frame.arrays)
            tell(done, total)
        writer.commit(replace(manifest, frames=tuple(entries)))


def load(
    data: bytes,
    dtype: Literal["float32", "bits"] | None = None,
    *,
    reference: Any = None,
    max_bytes: int | None = None,
) -> Any:
    """Return the state in the bytes of a checkpoint file.

    Parameters
    ----------
    data
        What `save` has returned, or the bytes of a file without a parent.
    reference
        The state that `save` was given as its reference, bit for bit; not needed for others.
    dtype, max_bytes
        As for `load_file`.

    Raises
    ------
    ChainError
        If the bytes are a delta to another reference, or to a checkpoint of a chain.
    ArgumentError, DataError, LimitError
        As `load_file`.
    """
    with kept(opened(data, reference), Bounds(max_bytes)) as file:
        return file.state(dtype=dtype)


def opened(data: bytes, reference: Any) -> OpenCheckpoint:
    """Return the open file of bytes, which may be a delta to a reference; None for no reference."""
    return open_data(data, None if reference is None else _ReferenceStore(reference))


def load_file(
    path: str | os.PathLike[str],
    dtype: Literal["float32", "bits"] | None = None,
    *,
    progress: Progress = False,
    max_bytes: int | None = None,
    max_deltas: int | None = None,
) -> Any:
    """Return the state in a checkpoint file; the parents of a delta are read from its directory.

    Parameters
    ----------
    path
        The file.
    dtype
        ``"float32"`` returns bfloat16 arrays as float32, ``"bits"`` as `BFLOAT16_BITS`.
    progress
        As for `Chain.restore`.
    max_bytes, max_deltas
        Of files of strangers: the most bytes that all arrays of the state may have, decoded, and
        the most other checkpoints that it may need. By default there is no bound.

    Raises
    ------
    LimitError
        If the state asks for more than `max_bytes` or `max_deltas`; `rule` says which.
    ArgumentError
        For unknown `dtype` or `progress`, or a bound that is not an integer. For a link to a chain,
        and the record of a distributed checkpoint, which only name the files that hold the state.
    DataError
        If the bytes break a rule of the format.
    ChainError
        If a parent is missing.
    StorageError
        If the operating system cannot read the file.
    """
    check_progress(progress)
    with kept(open_file(path), Bounds(max_bytes, max_deltas)) as file:
        check_own(file.links[-1].manifest.metadata, path)
        file.progress = progress
        return file.state(dtype=dtype)
