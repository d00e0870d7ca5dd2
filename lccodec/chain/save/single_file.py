"""One state in one file, with the verbs of safetensors: save, save_file, load, load_file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from ...container.disk.system import checked_path
from ...container.frame_entry import FrameEntry
from ...container.manifest import Manifest
from ...container.piece_table import hashed
from ...container.scalars import metadata_strings
from ...container.tree import flatten
from ...container.writer import CheckpointWriter, to_bytes
from ...errors import ArgumentError
from ...policy.copies import mark_copies
from ...policy.presets import POLICIES
from ..bounds import Bounds
from ..progress import Progress, check_progress, telling
from ..read.checkpoint import open_data, open_file
from ..read.newest import kept
from ..store.directory import in_chain
from .encode import encode_unchained, plan_manifest
from .plan import SavePlan, candidates, make_plan


def _planned(state: Any, metadata: Mapping[str, Any] | None) -> tuple[SavePlan, Manifest]:
    """Return the plan of a file, and its manifest without the frames."""
    flat = flatten(state)
    arrays = candidates(flat, {})
    mark_copies(arrays)
    plan = make_plan(arrays, POLICIES["lossless"], None)
    metadata = metadata_strings(metadata)
    return plan, plan_manifest(plan, flat, step=None, policy="lossless", metadata=metadata)


def save(state: Any, metadata: Mapping[str, Any] | None = None) -> bytes:
    """Return a state as the bytes of a checkpoint file, lossless.

    Parameters
    ----------
    state
        A nested dict, list or tuple of arrays and of int, float, bool, str, bytes and None.
    metadata
        Strings to store with the state. A number becomes its JSON text.

    Raises
    ------
    ArgumentError
        If the state holds something that cannot be stored. The message names it.
    """
    plan, manifest = _planned(state, metadata)
    frames = [b"".join(chunks) for chunks in encode_unchained(plan)]
    return to_bytes(frames, replace(manifest, frames=tuple(hashed(frame)[0] for frame in frames)))


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
    data: bytes, dtype: Literal["float32", "bits"] | None = None, *, max_bytes: int | None = None
) -> Any:
    """Return the state in the bytes of a checkpoint file without a parent.

    Parameters and errors are as in `load_file`.
    """
    with kept(open_data(data), Bounds(max_bytes)) as file:
        return file.state(dtype=dtype)


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
        For unknown `dtype` or `progress`, or a bound that is not an integer.
    DataError
        If the bytes break a rule of the format.
    ChainError
        If a parent is missing.
    StorageError
        If the operating system cannot read the file.
    """
    check_progress(progress)
    with kept(open_file(path), Bounds(max_bytes, max_deltas)) as file:
        file.show(progress)
        return file.state(dtype=dtype)
