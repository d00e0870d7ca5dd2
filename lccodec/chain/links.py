"""One checkpoint file as a link of a chain: its place, its parent, and what is known without decoding it.

Source: SPEC 9.
"""

from __future__ import annotations

import errno
import math
import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from ..constants import CHECKPOINT_SUFFIX, METHOD_CODEBOOK
from ..container.manifest import INHERITED, Manifest, Parent
from ..container.reader import CheckpointReader
from ..container.tree import array_names
from ..element_types import ELEMENT_TYPES
from ..entropy.bits import Stored
from ..errors import ArgumentError, ChainError, FormatError, LccodecError, StorageError, TruncatedError
from ..frame.header import FrameHeader, parse_header
from ..policy.choices import Choice, choose
from ..policy.presets import POLICIES
from ..policy.record import Record, read_record
from ..policy.roles import Role
from .replay import Head

__all__ = [
    "ArrayInfo",
    "CheckpointInfo",
    "FileLink",
    "check_name",
    "check_parent",
    "check_step",
    "checkpoint_info",
    "checkpoint_path",
    "directory_names",
    "directory_steps",
    "in_chain",
    "missing_parent",
    "step_index",
    "steps_of",
]

_FILE_NAME: Final = re.compile(r"([0-9]{12}|[1-9][0-9]{12,15})" + re.escape(CHECKPOINT_SUFFIX))


def checkpoint_path(directory: Path, step: int) -> Path:
    """Return the file of a step in a chain's directory (LCC-CHN-01)."""
    return directory / f"{step:012d}{CHECKPOINT_SUFFIX}"


def step_index(step: object) -> int:
    """Return a step as an int: anything that NumPy or a framework counts steps with is one.

    Raises
    ------
    ArgumentError
        For what is no integer.
    """
    if not isinstance(step, bool | np.bool_):
        try:
            return operator.index(step)  # type: ignore[arg-type]
        except TypeError:
            pass
    raise ArgumentError(f"a step is an integer, not {step!r}")


def directory_names(directory: Path) -> list[str]:
    """Return the names in a directory.

    Raises
    ------
    StorageError
        If the directory cannot be listed.
    """
    try:
        return [entry.name for entry in directory.iterdir()]
    except OSError as error:
        raise StorageError(error.errno, f"cannot list: {error.strerror}", str(directory)) from error


def steps_of(directory: Path, names: Sequence[str]) -> dict[int, Path]:
    """Return which of the names in a directory are checkpoint files, by step, rising (LCC-CHN-01)."""
    found = {int(match[1]): directory / name for name in names if (match := _FILE_NAME.fullmatch(name))}
    return {step: found[step] for step in sorted(found)}


def directory_steps(directory: Path) -> dict[int, Path]:
    """Return the checkpoint files of a directory by step, rising; other files are left alone (LCC-CHN-01).

    Raises
    ------
    StorageError
        If the directory cannot be listed.
    """
    return steps_of(directory, directory_names(directory))


def in_chain(path: Path) -> bool:
    """Whether a path is a checkpoint of a chain, or would be taken for one: named so, and not alone."""
    if not _FILE_NAME.fullmatch(path.name):
        return False
    try:
        return bool(directory_steps(path.parent))
    except StorageError:
        return False


@dataclass(frozen=True)
class ArrayInfo:
    """One array of a checkpoint.

    Parameters
    ----------
    name
        Its path in the state.
    dtype, shape
        Of the array, the shape in elements.
    method
        ``"raw"``, ``"planes"``, ``"codebook"``, or ``"unchanged"`` from the parent.
    relative
        Whether its frame in this checkpoint is decoded against the parent's array.
    stored_bytes
        Bytes of its frame in this checkpoint; of a frame that it shares with others, its share by size.
    nbytes
        Bytes of the array itself.
    lossy
        Whether its values are those of a quantizer: the newest frame that holds it, in this checkpoint or
        an earlier one, has the method ``"codebook"``.
    role, why
        Its role in the run, and in a few words why it has it.
    quantizer
        What the recorded policy codes it with in deltas, as text; ``"unknown"`` where this version does not
        know the policy.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    method: str
    relative: bool
    stored_bytes: int
    nbytes: int
    lossy: bool
    role: Role
    why: str
    quantizer: str


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
        Number of deltas that a restore replays.
    root
        SHA-256 that stands for all bytes of the file, hexadecimal.
    policy
        What the writer recorded of its policy.
    metadata
        The user's strings.
    file_bytes
        Size of the file in bytes.
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

    @property
    def lossy(self) -> bool:
        """Whether any of its arrays is lossy."""
        return any(array.lossy for array in self.arrays)


class FileLink:
    """A checkpoint file in a chain, with the tree it has or inherits.

    Parameters
    ----------
    reader
        The file. A link reads its frames as long as it is open.
    parent
        The link that it is a delta to; None for a keyframe.

    Raises
    ------
    FormatError
        If the parent's tree is not one for its arrays and scalars (LCC-MAN-07).
    """

    def __init__(self, reader: CheckpointReader, parent: FileLink | None) -> None:
        manifest: Manifest = reader.manifest
        self.manifest = manifest
        self.reader = reader
        self.place = Path(reader.name).name
        self.index_names: list[str]
        self.names: dict[str, int]
        self.paths: dict[str, int]  # of every place: one array may be in several
        inherits = manifest.tree is INHERITED
        if parent is not None and inherits and _counts(manifest) == _counts(parent.manifest):
            # The tree was checked for these counts. To do it again takes long in a chain of many arrays.
            self.manifest = replace(manifest, tree=parent.manifest.tree)
            self.names, self.index_names, self.paths = parent.names, parent.index_names, parent.paths
        else:
            tree = parent.manifest.tree if parent is not None else manifest.tree
            self.manifest = manifest.inherit(tree, reader.name)
            first: dict[int, str] = {}
            self.paths = array_names(self.manifest.tree)
            for name, index in self.paths.items():
                first.setdefault(index, name)
            self.index_names = [first[index] for index in range(len(manifest.arrays))]
            self.names = {name: index for index, name in first.items()}
        self._members = manifest.members
        self._headers: dict[int, FrameHeader] = {}

    def frame_of(self, index: int) -> int | None:
        """Return the number of an array's frame; None if it is unchanged from the parent's."""
        number = self.manifest.arrays[index]
        return number - 1 if number else None

    def members(self, number: int) -> Sequence[int]:
        """Return the indices of the arrays of a frame, in its order."""
        return self._members[number]

    def frame(self, number: int) -> Stored:
        """Return a frame, verified."""
        return self.reader.frame(number)

    def header(self, number: int) -> FrameHeader:
        """Return the header of a frame, which is read once."""
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


def _counts(manifest: Manifest) -> tuple[int, int]:
    return len(manifest.arrays), len(manifest.scalars)


def check_step(child: CheckpointReader, parent: Parent) -> None:
    """Raise ``FormatError`` if a checkpoint names a step that cannot be its parent's (LCC-CHN-02)."""
    step = child.manifest.step
    if step is None or parent.step >= step:
        message = f"step {step} cannot have step {parent.step} as its parent"
        raise FormatError("LCC-CHN-02", child.name, message)


def check_parent(child: CheckpointReader, parent: Parent, root: bytes, step: int | None, path: Path) -> None:
    """Raise ``ChainError`` if a file, by its root and step, is not the parent that is named (LCC-CHN-02)."""
    if root != parent.root or step != parent.step:
        raise ChainError(f"{child.name}: {path.name} is not the parent it was taken against")


def missing_parent(child: CheckpointReader, parent: Parent, path: Path, error: LccodecError) -> LccodecError:
    """Return what to raise where a parent's file cannot be opened: what is not there is missing."""
    if isinstance(error, StorageError) and error.errno in (errno.ENOENT, errno.ENOTDIR):
        return ChainError(f"{child.name}: its parent, step {parent.step}, is missing ({path.name})")
    return error


def check_name(link: FileLink) -> None:
    """Raise ``FormatError`` if the name of a chain's file is not that of its step (LCC-CHN-01)."""
    step = link.manifest.step
    if (match := _FILE_NAME.fullmatch(link.place)) and int(match[1]) != step:
        raise FormatError("LCC-CHN-01", link.place, f"holds step {step}")


def _choices(link: FileLink, heads: Mapping[str, Head]) -> dict[str, Choice]:
    """Return what the policy that a checkpoint records chooses for its arrays."""
    types = {name: (heads[name].header.kind, math.prod(heads[name].shape)) for name in link.index_names}
    try:
        return choose(types, read_record(link.manifest.policy))
    except ArgumentError:  # of another version, or another program
        found = choose(types, Record(POLICIES["lossless"]))
        return {name: replace(choice, quantizer="unknown") for name, choice in found.items()}


def checkpoint_info(link: FileLink, heads: Mapping[str, Head], deltas: int) -> CheckpointInfo:
    """Return what is stored in a link, from the heads of its arrays and the number of deltas up to it."""
    manifest = link.manifest
    arrays = []
    choices = _choices(link, heads)
    sizes = {kind: kind.itemsize for kind in ELEMENT_TYPES}
    totals: dict[int, int] = {}  # bytes that a frame decodes to: those of a run are added up once
    for index, name in enumerate(link.index_names):
        header, shape, unchanged = heads[name]
        nbytes = math.prod(shape) * sizes[header.kind]
        stored = 0
        if not unchanged:
            length = manifest.frames[manifest.arrays[index] - 1].length
            if id(header) not in totals:
                totals[id(header)] = header.nbytes
            stored = round(length * nbytes / totals[id(header)]) if nbytes else length
        arrays.append(
            ArrayInfo(
                name=name,
                dtype=header.kind.name,
                shape=shape,
                method="unchanged" if unchanged else header.method_name,
                relative=not unchanged and header.relative,
                stored_bytes=stored,
                nbytes=nbytes,
                lossy=header.method == METHOD_CODEBOOK,
                role=choices[name].role,
                why=choices[name].why,
                quantizer=choices[name].quantizer,
            )
        )
    return CheckpointInfo(
        step=manifest.step,
        parent=manifest.parent.step if manifest.parent else None,
        deltas=deltas,
        root=link.reader.root.hex(),
        policy=manifest.policy,
        metadata=dict(manifest.metadata),
        file_bytes=link.reader.file_size,
        nbytes=sum(a.nbytes for a in arrays),
        arrays=tuple(arrays),
    )
