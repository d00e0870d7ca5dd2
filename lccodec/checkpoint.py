"""An open checkpoint with the parents it needs: its state, one array at a time, and what is stored.

Source: SPEC 9.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Self

from .bits import Stored
from .chain import array_header, replay
from .constants import CHECKPOINT_SUFFIX
from .container import CheckpointReader, open_bytes, open_checkpoint
from .errors import ArgumentError, ChainError, FormatError, StorageError, TruncatedError
from .header import FrameHeader, parse_header
from .jobs import DecodedArray
from .manifest import Manifest, Parent
from .parallel import thread_count
from .state import array_names, select, unflatten

__all__ = [
    "ArrayInfo",
    "CheckpointFile",
    "CheckpointInfo",
    "checkpoint_path",
    "directory_steps",
    "in_chain",
    "open_data",
    "open_file",
]

_FILE_NAME: Final = re.compile(r"([0-9]{12}|[1-9][0-9]{12,15})" + re.escape(CHECKPOINT_SUFFIX))


@dataclass(frozen=True)
class ArrayInfo:
    """One array of a checkpoint.

    Parameters
    ----------
    name
        Its path in the state.
    dtype, shape
        Of the array.
    method
        ``"raw"``, ``"planes"``, ``"codebook"``, or ``"unchanged"`` from the parent.
    relative
        Whether its frame is a delta.
    stored_bytes
        Bytes of its frame in this checkpoint; of a frame that it shares with others, its share by size.
    nbytes
        Bytes of the array itself.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    method: str
    relative: bool
    stored_bytes: int
    nbytes: int


@dataclass(frozen=True)
class CheckpointInfo:
    """What is known of one checkpoint without decoding it.

    Parameters
    ----------
    step
        Its step, ``None`` for a single file.
    parent
        The parent's step, ``None`` for a keyframe.
    deltas
        Deltas that a restore replays.
    root
        SHA-256 that stands for all bytes of the file, hexadecimal.
    policy
        What the writer recorded of its policy.
    metadata
        The user's strings.
    file_bytes
        Size of the file.
    nbytes
        Bytes of all arrays, each counted once.
    arrays
        In the order of the state.
    """

    step: int | None
    parent: int | None
    deltas: int
    root: str
    policy: Any
    metadata: dict[str, str]
    file_bytes: int
    nbytes: int
    arrays: tuple[ArrayInfo, ...]


class _FileLink:
    """A checkpoint file in a chain, with the tree it has or inherits."""

    def __init__(self, reader: CheckpointReader, manifest: Manifest) -> None:
        self.reader = reader
        self.manifest = manifest
        self.place = Path(reader.name).name
        first: dict[int, str] = {}
        for name, index in array_names(manifest.tree).items():
            first.setdefault(index, name)
        self.index_names = [first[index] for index in range(len(manifest.arrays))]
        self.names = {name: index for index, name in first.items()}
        self._members = manifest.members
        self._headers: dict[int, FrameHeader] = {}

    def frame_of(self, index: int) -> int | None:
        return self.manifest.arrays[index] - 1 if self.manifest.arrays[index] else None

    def members(self, number: int) -> Sequence[int]:
        return self._members[number]

    def frame(self, number: int) -> Stored:
        return self.reader.frame(number)

    def header(self, number: int) -> FrameHeader:
        if number not in self._headers:
            self._headers[number] = self._read_header(number)
        return self._headers[number]

    def _read_header(self, number: int) -> FrameHeader:
        """Read as much of a frame as its header takes: 16 bytes an array is usual."""
        size, whole = 64 + 16 * len(self._members[number]), self.manifest.frames[number].length
        while True:
            try:
                return parse_header(self.reader.frame_head(number, size), f"{self.place}: frame {number}")
            except TruncatedError:
                if size >= whole:
                    raise
                size *= 4


class CheckpointFile:
    """A checkpoint that is open, with the parents it needs; decodes only what is asked for.

    A context manager; :func:`lccodec.open` returns it.
    """

    def __init__(self, reader: CheckpointReader, directory: Path | None, threads: int = 1) -> None:
        self._threads = threads
        self._stack = ExitStack()
        try:
            readers = [self._stack.enter_context(reader)]
            while (parent := readers[-1].manifest.parent) is not None:
                readers.append(self._stack.enter_context(_open_parent(readers[-1], parent, directory)))
            self._links: list[_FileLink] = []
            for opened in reversed(readers):
                manifest = opened.manifest
                if self._links:
                    manifest = manifest.inherit(self._links[-1].manifest.tree, opened.name)
                self._links.append(_FileLink(opened, manifest))
        except BaseException:
            self._stack.close()
            raise
        self._manifest = self._links[-1].manifest
        self._indices = array_names(self._manifest.tree)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the files; to close again does nothing."""
        self._stack.close()

    def keys(self) -> list[str]:
        """Return the names of the arrays, in the order of the state; an array in two places has two."""
        return list(self._indices)

    def metadata(self) -> dict[str, str]:
        """Return the strings that were stored with the state."""
        return dict(self._manifest.metadata)

    def get(self, name: str, dtype: Literal["float32", "bits"] | None = None) -> Any:
        """Return one array, reading no other.

        Raises
        ------
        ArgumentError
            If there is no array of that name.
        """
        index = self._indices.get(name)
        if index is None:
            select(self._manifest.tree, self._manifest.scalars, [name])  # suggests close names
            raise ArgumentError(f"{name!r} is not an array")
        return self.decode(index).array(dtype)

    def state(
        self, keys: Iterable[str] | None = None, dtype: Literal["float32", "bits"] | None = None
    ) -> Any:
        """Return the state; with `keys`, a dict of these leaves by name (see `Chain.restore`)."""
        tree, scalars = self._manifest.tree, self._manifest.scalars
        if keys is None:
            return unflatten(tree, [a.array(dtype) for a in self.decoded()], scalars)
        arrays, values = select(tree, scalars, keys)
        decoded = {
            index: a.array(dtype)
            for index, a in replay(self._links, set(arrays.values()), self._threads).items()
        }
        return {**{name: decoded[index] for name, index in arrays.items()}, **values}

    def decoded(self) -> list[DecodedArray]:
        """Return all arrays as decoded, by index."""
        arrays = replay(self._links, range(len(self._manifest.arrays)), self._threads)
        return [arrays[index] for index in range(len(arrays))]

    def decode(self, index: int) -> DecodedArray:
        """Return one array as decoded, by its index."""
        return replay(self._links, [index], self._threads)[index]

    def check_name(self) -> None:
        """Raise ``FormatError`` if the name of a chain's file is not that of its step (LCC-CHN-01)."""
        name, step = Path(self._links[-1].reader.name).name, self._manifest.step
        if (match := _FILE_NAME.fullmatch(name)) and int(match[1]) != step:
            raise FormatError("LCC-CHN-01", name, f"holds step {step}")

    def info(self) -> CheckpointInfo:
        """Return what is stored, without decoding it."""
        link, manifest = self._links[-1], self._manifest
        arrays = []
        for index, name in enumerate(link.index_names):
            header, shape = array_header(self._links, index)
            number = link.frame_of(index)
            nbytes = math.prod(shape) * header.kind.itemsize
            stored = 0
            if number is not None:
                stored = round(manifest.frames[number].length * nbytes / max(header.nbytes, 1))
            arrays.append(
                ArrayInfo(
                    name=name,
                    dtype=header.kind.name,
                    shape=shape,
                    method="unchanged" if number is None else header.method_name,
                    relative=number is not None and header.relative,
                    stored_bytes=stored if nbytes or number is None else manifest.frames[number].length,
                    nbytes=nbytes,
                )
            )
        return CheckpointInfo(
            step=manifest.step,
            parent=manifest.parent.step if manifest.parent else None,
            deltas=len(self._links) - 1,
            root=link.reader.root.hex(),
            policy=manifest.policy,
            metadata=dict(manifest.metadata),
            file_bytes=link.reader.file_size,
            nbytes=sum(a.nbytes for a in arrays),
            arrays=tuple(arrays),
        )

    @property
    def links(self) -> Sequence[_FileLink]:
        """The checkpoint and its parents, oldest first."""
        return self._links


def _open_parent(child: CheckpointReader, parent: Parent, directory: Path | None) -> CheckpointReader:
    """Open and check the parent that a checkpoint names (LCC-CHN-02)."""
    step = child.manifest.step
    if step is None or parent.step >= step:
        raise FormatError(
            "LCC-CHN-02", child.name, f"step {step} cannot have step {parent.step} as its parent"
        )
    if directory is None:
        raise ChainError(f"{child.name}: a delta; its parent, step {parent.step}, is not at hand")
    path = checkpoint_path(directory, parent.step)
    try:
        reader = open_checkpoint(path)
    except StorageError as error:
        if path.exists():
            raise
        raise ChainError(f"{child.name}: its parent, step {parent.step}, is missing ({path.name})") from error
    if reader.root != parent.root or reader.manifest.step != parent.step:
        reader.close()
        raise ChainError(f"{child.name}: {path.name} is not the parent it was taken against")
    return reader


def checkpoint_path(directory: Path, step: int) -> Path:
    """Return the file of a step in a chain's directory (LCC-CHN-01)."""
    return directory / f"{step:012d}{CHECKPOINT_SUFFIX}"


def directory_steps(directory: Path) -> dict[int, Path]:
    """Return the checkpoint files of a directory by step, rising; other files are left alone (LCC-CHN-01).

    Raises
    ------
    StorageError
        If the directory cannot be listed.
    """
    try:
        names = [entry.name for entry in directory.iterdir()]
    except OSError as error:
        raise StorageError(error.errno, f"cannot list: {error.strerror}", str(directory)) from error
    found = {int(match[1]): directory / name for name in names if (match := _FILE_NAME.fullmatch(name))}
    return {step: found[step] for step in sorted(found)}


def in_chain(path: Path) -> bool:
    """Whether a path is a checkpoint of a chain, or would be taken for one: named so, and not alone."""
    if not _FILE_NAME.fullmatch(path.name):
        return False
    try:
        return bool(directory_steps(path.parent))
    except StorageError:
        return False


def open_file(path: str | os.PathLike[str], *, threads: int = 1) -> CheckpointFile:
    """Open a checkpoint file to read single arrays.

    A delta's parents are looked for beside it.

    Parameters
    ----------
    path
        A checkpoint file.
    threads
        How many to decode with, 0 for one each core.

    Raises
    ------
    DataError
        If the file breaks a rule of the format.
    ChainError
        If a parent is missing.
    StorageError
        If the operating system cannot read it.
    """
    threads = thread_count(threads)
    return CheckpointFile(open_checkpoint(path), Path(path).parent, threads)


def open_data(data: bytes) -> CheckpointFile:
    """Open a checkpoint that is in memory; it must be a keyframe."""
    return CheckpointFile(open_bytes(data), None)
