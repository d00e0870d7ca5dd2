"""A single state in a single file, by safetensors' verbs: save, save_file, load, load_file."""

from __future__ import annotations

import os
from typing import Any, Literal

from .checkpoint import open_data, open_file
from .commit import CheckpointWriter
from .container import to_bytes
from .jobs import Job, plan
from .manifest import FrameEntry, Manifest
from .quantize import Lossless
from .state import Flat, flatten

__all__ = ["load", "load_file", "save", "save_file"]


def _jobs(flat: Flat) -> list[Job]:
    return plan(flat.arrays, flat.names, {}, lambda *_: Lossless(), keyframe=True)


def _manifest(
    flat: Flat, jobs: list[Job], entries: list[FrameEntry], metadata: dict[str, str] | None
) -> Manifest:
    numbers = {index: number for number, job in enumerate(jobs, start=1) for index in job.indices}
    return Manifest(
        step=None,
        parent=None,
        policy="lossless",
        metadata=dict(metadata or {}),
        tree=flat.tree,
        scalars=flat.scalars,
        arrays=tuple(numbers[index] for index in range(len(numbers))),
        frames=tuple(entries),
    )


def save(state: Any, metadata: dict[str, str] | None = None) -> bytes:
    """Return a state as the bytes of a checkpoint file, lossless.

    Parameters
    ----------
    state
        A nested dict, list or tuple of arrays and of int, float, bool, str, bytes and None.
    metadata
        Strings to keep with it.

    Raises
    ------
    ArgumentError
        If the state holds something that cannot be stored; names it.
    """
    flat = flatten(state)
    jobs = _jobs(flat)
    frames = [b"".join(job.encode_alone()) for job in jobs]
    return to_bytes(frames, _manifest(flat, jobs, [FrameEntry.of(frame) for frame in frames], metadata))


def save_file(state: Any, path: str | os.PathLike[str], metadata: dict[str, str] | None = None) -> None:
    """Write a state to a checkpoint file, lossless and atomically; a file of that name is replaced.

    Raises
    ------
    ArgumentError
        If the state holds something that cannot be stored; names it.
    StorageError
        If the operating system refuses; what was there stays.
    """
    flat = flatten(state)
    jobs = _jobs(flat)
    with CheckpointWriter(path, overwrite=True) as writer:
        entries = [writer.write_frame(job.encode_alone()) for job in jobs]
        writer.commit(_manifest(flat, jobs, entries, metadata))


def load(data: bytes, dtype: Literal["float32", "bits"] | None = None) -> Any:
    """Return the state in the bytes of a checkpoint file that needs no parent; errors as `load_file`."""
    with open_data(data) as file:
        return file.state(dtype=dtype)


def load_file(path: str | os.PathLike[str], dtype: Literal["float32", "bits"] | None = None) -> Any:
    """Return the state in a checkpoint file; a delta's parents are looked for beside it.

    Parameters
    ----------
    path
        The file.
    dtype
        ``"float32"`` returns bfloat16 arrays as float32, ``"bits"`` as `BFLOAT16_BITS`.

    Raises
    ------
    DataError
        If the bytes break a rule of the format.
    ChainError
        If a parent is missing.
    StorageError
        If the operating system cannot read the file.
    """
    with open_file(path) as file:
        return file.state(dtype=dtype)
