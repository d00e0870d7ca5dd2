"""Links of a chain: a checkpoint file as a link, and the rules between links.

A link names its parents by step and root (LCC-CHN-02): a delta one, an interpolated checkpoint two.
An array of a link lies in a frame of its own file, or is unchanged from the parent's array of the
same name (LCC-CHN-03), or from the interpolation of both parents' (LCC-INT-04).

Source: SPEC 9.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Collection, Iterable, Sequence
from contextlib import ExitStack
from typing import Final, NamedTuple, TypeVar

from ...constants import MAX_INTERPOLATED
from ...container.figures import Figures, read_figures
from ...container.manifest import INHERITED, SOURCE_TYPE, Manifest, Parent
from ...container.piece_table import FramePart
from ...container.reader import CheckpointReader
from ...container.tree import array_names
from ...cursor import Stored
from ...element_table import ElementType
from ...errors import ChainError, FormatError, LccodecError, LimitError, StorageError, TruncatedError
from ...frame.header import FrameHeader, parse_header
from ..store.names import checkpoint_name
from ..store.store import Store

Found = TypeVar("Found")

#: A header of a frame has about so many bytes, and so many more for each array of the frame.
HEADER_BYTES: Final = 64
MEMBER_BYTES: Final = 16


class Link:
    """A checkpoint file as a link, with the tree that it has or inherits.

    Frames are numbered from 0; they are read while the file is open. Several paths may lead to one
    array. Its name is the first of them. `later` is the later parent of an interpolated checkpoint.

    Raises
    ------
    FormatError
        If the parent's tree does not fit the arrays and scalars of this file (LCC-MAN-07).
    """

    def __init__(
        self, reader: CheckpointReader, parent: Link | None = None, later: Link | None = None
    ) -> None:
        manifest: Manifest = reader.manifest
        self.manifest = manifest
        self.reader = reader
        self.parent, self.later = parent, later
        self.place = os.path.basename(reader.name)  # noqa: PTH119 - as it is fast
        self.index_names: list[str]
        self.names: dict[str, int]
        self.paths: dict[str, int]
        inherits = manifest.tree is INHERITED
        if parent is not None and inherits and _counts(manifest) == _counts(parent.manifest):
            # The parent's tree has been checked for these counts. Checking it again takes long.
            self.manifest = manifest.with_tree(parent.manifest.tree)
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
        numbers = zip(self.index_names, manifest.arrays, strict=True)
        nulls = (name for name, number in numbers if number is None)
        #: The arrays that are copies, by name: of which array, and the type that it is rounded to.
        self.copies: dict[str, tuple[str, ElementType | None]] = {
            name: (self.index_names[copy.source], copy.kind)
            for name, copy in zip(nulls, manifest.copies, strict=True)
        }
        self._members = manifest.members
        #: The indices of the arrays of each frame that holds several.
        self.runs: list[Sequence[int]] = [run for run in self._members if len(run) > 1]
        self._headers: dict[int, FrameHeader] = {}

    @property
    def parents(self) -> tuple[Link, ...]:
        """The parents, the earlier one first."""
        return tuple(link for link in (self.parent, self.later) if link is not None)

    @property
    def far(self) -> bool:
        """Whether each read of the file takes long."""
        return self.reader.source.far

    @property
    def weight(self) -> float:
        """How much the later parent of an interpolated checkpoint counts (LCC-INT-04)."""
        return self.manifest.weight / 256

    @property
    def since(self) -> int | None:
        """The step of the save that measured movements begin at; ``None`` if none is known."""
        figures = self.manifest.figures
        return None if figures is None else figures.since

    def figures(self) -> dict[str, Figures]:
        """Return what the save measured of each array."""
        found = read_figures(self.manifest.figures, len(self.index_names))
        return dict(zip(self.index_names, found, strict=True))

    def frame_of(self, index: int) -> int | None:
        """Return the number of an array's frame; None if it is unchanged, or a copy."""
        number = self.manifest.arrays[index]
        return number - 1 if number else None

    def members(self, number: int) -> Sequence[int]:
        """Return the indices of the arrays of a frame, in its order."""
        return self._members[number]

    def frame(self, number: int, *, verify: bool = True) -> Stored:
        """Return the bytes of a frame; somebody else must verify them if `verify` is false."""
        return self.reader.frame(number, verify=verify)

    def part(self, number: int, start: int, stop: int) -> FramePart | None:
        """Return the verified bytes of a frame for some components; see `CheckpointReader.part`."""
        return self.reader.part(number, self.header(number), start, stop)

    def header(self, number: int) -> FrameHeader:
        """Return the header of a frame, with as many arrays as in the manifest. It is read once."""
        if number not in self._headers:
            self._headers[number] = self.reader.of_frame(number, lambda: self._read_header(number))
        return self._headers[number]

    def _read_header(self, number: int) -> FrameHeader:
        """Read as much of a frame as its header needs."""
        members, where = len(self._members[number]), f"{self.place}: frame {number}"
        size, whole = HEADER_BYTES + MEMBER_BYTES * members, self.manifest.frames[number].length
        while True:
            try:
                header = parse_header(self.reader.frame_head(number, size), where)
                break
            except TruncatedError:
                if size >= whole:
                    raise
                size *= 4
        if len(header.shapes) != members:
            message = f"{len(header.shapes)} arrays in a frame of {members}"
            raise FormatError("LCC-CHN-03", where, message)
        return header


def _counts(manifest: Manifest) -> tuple[int, int]:
    return len(manifest.arrays), len(manifest.scalars)


def check_step(child: CheckpointReader) -> None:
    """Raise ``FormatError`` if the parent's step is not below that of its child (LCC-CHN-02)."""
    step, parent = child.manifest.step, child.manifest.parent
    if parent is not None and (step is None or parent.step >= step):
        message = f"step {step} cannot have step {parent.step} as its parent"
        raise FormatError("LCC-CHN-02", child.name, message)


def check_span(child: CheckpointReader, parent: CheckpointReader) -> None:
    """Raise ``FormatError`` if a parent is interpolated that may not be (LCC-INT-02)."""
    above = parent.manifest
    if above.later is None:
        return
    low, high = above.span
    if child.manifest.later is None:
        message = f"step {child.manifest.step} is a delta to step {above.step}, which is interpolated"
    elif low <= child.manifest.span[0] and child.manifest.span[1] <= high:
        return
    else:
        start, stop = child.manifest.span
        message = f"from step {start} to {stop}, but a parent is interpolated from step {low} to {high}"
    raise FormatError("LCC-INT-02", child.name, message)


def check_parent(
    child: CheckpointReader, parent: Parent, roots: Collection[bytes], step: int | None, name: str
) -> None:
    """Raise ``ChainError`` if a file's roots and step are not those of the parent (LCC-CHN-02)."""
    if parent.root not in roots or step != parent.step:
        raise ChainError(f"{child.name}: {name} is not the parent it was taken against")


def missing_parent(child: CheckpointReader, parent: Parent, name: str, error: LccodecError) -> LccodecError:
    """Return the error to raise if a parent's file cannot be opened: missing, or `error`."""
    if isinstance(error, StorageError) and error.errno in (errno.ENOENT, errno.ENOTDIR):
        return ChainError(f"{child.name}: its parent, step {parent.step}, is missing ({name})")
    return error


def check_depth(reader: CheckpointReader, interpolated: int) -> None:
    """Raise ``LimitError`` if a checkpoint and those it needs are too many interpolated ones."""
    if interpolated > MAX_INTERPOLATED:
        message = f"it needs more than {MAX_INTERPOLATED} interpolated checkpoints, itself included"
        raise LimitError("LCC-LIM-10", reader.name, message)


def decoding_order(manifest: Manifest) -> tuple[int, int]:
    """Return what to sort checkpoints by so that parents come first (LCC-INT-02)."""
    if manifest.later is None:
        return (0, manifest.step or 0)
    low, high = manifest.span
    return (1, low - high)


def open_links(reader: CheckpointReader, store: Store | None, opened: ExitStack) -> list[Link]:
    """Return a checkpoint and all that it needs as links, parents before their children.

    The files are left to `opened`, to be closed together.

    Raises
    ------
    DataError, ChainError, StorageError
        If a parent is missing, is another one or may not be one, or a file cannot be read.
    """
    readers, left = {reader.manifest.step: opened.enter_context(reader)}, [reader]
    interpolated = 0
    while left:
        child = left.pop()
        interpolated += child.manifest.later is not None
        check_depth(reader, interpolated)
        check_step(child)
        for parent in child.manifest.parents:
            if store is None:
                message = f"not a keyframe, and its parent, step {parent.step}, is not at hand"
                raise ChainError(f"{child.name}: {message}")
            known = readers.get(parent.step)
            if known is None:
                known = readers[parent.step] = opened.enter_context(open_parent(child, parent, store))
                known.rest()
                left.append(known)
            else:
                check_parent(child, parent, known.roots, known.manifest.step, checkpoint_name(parent.step))
            check_span(child, known)
    links: dict[int | None, Link] = {}
    for each in sorted(readers.values(), key=lambda each: decoding_order(each.manifest)):
        links[each.manifest.step] = Link(each, *[links[parent.step] for parent in each.manifest.parents])
    return list(links.values())


def open_parent(child: CheckpointReader, parent: Parent, store: Store) -> CheckpointReader:
    """Open the file that is to be the parent of a checkpoint, and check that it is."""
    name = checkpoint_name(parent.step)
    try:
        reader = store.open(name)
    except StorageError as error:
        raise missing_parent(child, parent, name, error) from error
    try:
        check_parent(child, parent, reader.roots, reader.manifest.step, name)
    except ChainError:
        reader.close()
        raise
    return reader


class Parted(NamedTuple):
    """Arrays of a link, sorted by where they are stored.

    `frames` are the link's frames that hold some of them, each once, in their order. `inherited`
    are unchanged from the parent's. `broken` would be unchanged, but the parent does not have them.
    `copies` are made of other arrays of the link, which are not among these for that.
    """

    frames: list[int]
    inherited: list[str]
    broken: dict[str, LccodecError]
    copies: list[str]


def part_arrays(link: Link, names: Iterable[str]) -> Parted:
    """Sort arrays of a link by where they are stored."""
    frames: dict[int, None] = {}
    parted = Parted([], [], {}, [])
    for name in names:
        number = link.frame_of(link.names[name])
        if number is not None:
            frames[number] = None
            continue
        if name in link.copies:
            parted.copies.append(name)
            continue
        try:
            check_inherited(link, name)
            parted.inherited.append(name)
        except FormatError as error:
            parted.broken[name] = error
    parted.frames.extend(frames)
    return parted


def with_sources(link: Link, names: Iterable[str]) -> dict[str, None]:
    """Return names of arrays of a link, and then those of the arrays that they are copies of."""
    own = dict.fromkeys(names)
    if link.copies:
        own.update((link.copies[name][0], None) for name in list(own) if name in link.copies)
    return own


def member_names(link: Link, number: int) -> list[str]:
    """Return the names of the arrays of a frame, in its order."""
    return [link.index_names[index] for index in link.members(number)]


def check_inherited(link: Link, name: str) -> None:
    """Raise ``FormatError`` if the parent lacks an array that a link needs (LCC-CHN-03)."""
    parent = link.parent
    if parent is None:
        raise FormatError("LCC-CHN-03", array_place(link, name), "a keyframe's array needs a parent")
    if name not in parent.names:
        message = f"{parent.place}, its parent, has no such array"
        raise FormatError("LCC-CHN-03", array_place(link, name), message)


def copied_type(link: Link, name: str, kind: ElementType) -> ElementType:
    """Return the type of a copy of an array of type `kind`; only float32 may be rounded."""
    rounded = link.copies[name][1]
    if rounded is not None and kind != SOURCE_TYPE:
        raise FormatError("LCC-CPY-02", array_place(link, name), f"a rounding of an array of {kind.name}")
    return rounded or kind


def reference_names(link: Link, number: int) -> list[str]:
    """Return the names of the parent's arrays that a frame needs; refuse a parent without them."""
    names = member_names(link, number) if link.header(number).relative else []
    for name in names:
        check_inherited(link, name)
    return names


def array_place(link: Link, name: str) -> str:
    """Return what errors call an array of a link."""
    return f"{link.place}: array {name!r}"


def value_or_raise(found: Found | LccodecError) -> Found:
    """Return what was found, or raise it if it is an error."""
    if isinstance(found, LccodecError):
        raise found
    return found


def without_traceback(error: LccodecError) -> LccodecError:
    """Return an error without its traceback and cause, which would keep arrays in memory."""
    error.__context__ = error.__cause__ = None
    return error.with_traceback(None)
