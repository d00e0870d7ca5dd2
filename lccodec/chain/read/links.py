"""Links of a chain: a checkpoint file as a link, the rules between links, and the heads of arrays.

A link names its parents by step and root (LCC-CHN-02): a delta one, an interpolated checkpoint two.
An array of a link lies in a frame of its own file, or is unchanged from the parent's array of the
same name (LCC-CHN-03), or from the interpolation of both parents' (LCC-INT-04).

The *head* of an array is the header of the newest frame that holds it, in this checkpoint or in one
of its parents. It has type, shape and method, so that only a few bytes of each frame are read. Type
and shape alone are the *form* of the array: what references must have, too.

Whatever is made of a chain link by link (heads, values, sums) is a `fold`.

Source: SPEC 9.
"""

from __future__ import annotations

import errno
import math
import os
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import repeat
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias, TypeVar

from ...constants import MAX_INTERPOLATED, ElementType
from ...container.checkpoint import CheckpointReader
from ...container.manifest import INHERITED, SOURCE_TYPE, Figures, Manifest, Parent, read_figures
from ...container.tree import array_names
from ...errors import (
    ArgumentError,
    ChainError,
    FormatError,
    LccodecError,
    LimitError,
    StorageError,
    TruncatedError,
    integer,
)
from ...frame.header import FrameHeader, Shape, parse_header
from ..store.store import Store, checkpoint_name

Found = TypeVar("Found")
Made = TypeVar("Made")

#: A header of a frame has about so many bytes, and so many more for each array of the frame.
HEADER_BYTES: Final = 64
MEMBER_BYTES: Final = 16


class Link:
    """A checkpoint file as a link, with the tree that it has or inherits.

    Frames are numbered from 0; they are read while the file is open. Several paths may lead to one
    array. Its name is the first of them. `later` is the later parent of an interpolated checkpoint.

    Raises ``FormatError`` if the parent's tree does not fit arrays and scalars here (LCC-MAN-07).
    """

    def __init__(
        self, reader: CheckpointReader, parent: Link | None = None, later: Link | None = None
    ) -> None:
        manifest: Manifest = reader.manifest
        self.manifest = manifest
        self.reader = reader
        self.parent, self.later = parent, later
        #: The parents, the earlier one first.
        self.parents: tuple[Link, ...] = ()
        if parent is not None:
            self.parents = (parent,) if later is None else (parent, later)
        self.place = os.path.basename(reader.name)  # noqa: PTH119 - as it is fast
        self.index_names: list[str]
        self.names: dict[str, int]
        self.paths: dict[str, int]
        if (
            parent is not None
            and manifest.tree is INHERITED
            and len(manifest.arrays) == len(parent.manifest.arrays)
            and len(manifest.scalars) == len(parent.manifest.scalars)
        ):
            # The parent's tree has been checked for these counts. Checking it again takes long.
            self.manifest = manifest.with_tree(parent.manifest.tree)
            self.names, self.index_names, self.paths = parent.names, parent.index_names, parent.paths
        else:
            if parent is not None:
                self.manifest = manifest.inherit(parent.manifest.tree, reader.name)
            first, self.names = dict[int, str](), {}
            self.paths = array_names(self.manifest.tree)
            for name, index in self.paths.items():
                if index not in first:
                    first[index], self.names[name] = name, index
            self.index_names = [first[index] for index in range(len(manifest.arrays))]
        #: The arrays that are copies, by name: of which array, and the type that it is rounded to.
        self.copies: dict[str, tuple[str, ElementType | None]] = {}
        if manifest.copies:
            numbers = zip(self.index_names, manifest.arrays, strict=True)
            nulls = (name for name, number in numbers if number is None)
            for name, copy in zip(nulls, manifest.copies, strict=True):
                self.copies[name] = self.index_names[copy.source], copy.kind
        #: The indices of the arrays of each frame, in its order.
        self.members: Sequence[Sequence[int]] = manifest.members
        #: Those of the frames that hold several.
        self.runs = [run for run in self.members if len(run) > 1]
        self._headers: dict[int, FrameHeader] = {}

    def release_parents(self) -> None:
        """Forget the parents, so that who keeps the link does not keep all that there were."""
        self.parent = self.later = None
        self.parents = ()

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

    def header(self, number: int) -> FrameHeader:
        """Return the header of a frame, with as many arrays as in the manifest. It is read once."""
        if number in self._headers:
            return self._headers[number]
        members, where = len(self.members[number]), f"{self.place}: frame {number}"

        def read() -> FrameHeader:
            """Read as much of the frame as its header needs."""
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

        header = self._headers[number] = self.reader.of_frame(number, read)
        return header


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


def decoding_order(reader: CheckpointReader) -> tuple[int, int]:
    """Return what to sort checkpoints by so that parents come first (LCC-INT-02)."""
    manifest = reader.manifest
    if manifest.later is None:
        return (0, manifest.step or 0)
    low, high = manifest.span
    return (1, low - high)


def open_links(reader: CheckpointReader, store: Store | None, opened: ExitStack) -> list[Link]:
    """Return a checkpoint and all that it needs as links, parents before their children.

    The files are left to `opened`, to be closed together. Raises if a parent is missing, is another
    one or may not be one.
    """
    readers, left = {reader.manifest.step: opened.enter_context(reader)}, [reader]
    interpolated = 0
    while left:
        child = left.pop()
        if child.manifest.later is not None:
            interpolated += 1
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
    for each in sorted(readers.values(), key=decoding_order):
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


def origin_of(link: Link, name: str) -> tuple[int | None, str | None]:
    """Return where an array comes from, as `part_arrays` says of many; raise what is broken.

    That is the number of a frame of the link, or the array that it is a copy of, or else the
    parents' array of its name.
    """
    frames, _, broken, copies = part_arrays(link, (name,))
    if broken:
        raise broken[name]
    return frames[0] if frames else None, link.copies[name][0] if copies else None


def made_from(link: Link, name: str, frame: int | None) -> list[Link]:
    """Return the parents whose arrays an array is made from: the references of its frame, if any.

    Raises as `form_of`, and if the frame has another type or shape than they have (LCC-CHN-03).
    """
    if frame is not None:
        if not link.header(frame).relative:
            return []
        check_inherited(link, name)
    low, *later = link.parents
    if frame is None and not later:
        return [low]
    found = form_of(low, name)
    if frame is not None:
        check_references(link, frame, [found])
    return [low, *(high for high in later if name in high.names and interpolates(found, form_of(high, name)))]


def with_sources(link: Link, names: Iterable[str]) -> dict[str, None]:
    """Return names of arrays of a link, and then those of the arrays that they are copies of."""
    own = dict.fromkeys(names)
    if link.copies:
        own.update((link.copies[name][0], None) for name in list(own) if name in link.copies)
    return own


def member_names(link: Link, number: int) -> list[str]:
    """Return the names of the arrays of a frame, in its order."""
    return [link.index_names[index] for index in link.members[number]]


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


def fold(
    links: Sequence[Link],
    make: Callable[[Link, list[Made], bool], Made],
    known: Mapping[int, Made] = MappingProxyType({}),
) -> Iterator[tuple[Link, Made]]:
    """Yield links, each with what is made of it on top of what was made of its parents.

    Whoever decodes, describes or verifies links, parents before children, folds them with another
    `make`. That is given a link, what was made of its parents, and whether no other link needs that
    any more: then it may be used up. `known` has what is known of some links, by `id`; their
    parents need not be among `links`.
    """
    users = Counter[int]()
    for link in links:
        users.update(map(id, link.parents))
    made: dict[int, Made] = {}  # of links that others still need
    for link in links:
        if id(link) in known:
            value = known[id(link)]
        else:
            before, alone = list[Made](), True
            for above in link.parents:
                before.append(made[id(above)])
                users[id(above)] -= 1
                if users[id(above)]:
                    alone = False
                else:
                    del made[id(above)]
            value = make(link, before, alone)
        if users[id(link)]:
            made[id(link)] = value
        yield link, value


def fold_last(links: Sequence[Link], make: Callable[[Link, list[Made], bool], Made]) -> Made:
    """Return what `fold` makes of the last link; what was made of others is let go."""
    [(_, made)] = deque(fold(links, make), maxlen=1)
    return made


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


#: The type and the shape of an array.
Form: TypeAlias = tuple[ElementType, Shape]


class Head(NamedTuple):
    """The header of the newest frame that holds an array, and the array's shape."""

    header: FrameHeader
    shape: Shape
    unchanged: bool = False  # whether the frame is in an older link
    interpolated: bool = False  # whether its values are those of two frames, interpolated
    copied: bool = False  # whether the frame is that of another array, which it is a copy of

    @property
    def form(self) -> Form:
        """The type and the shape of the array."""
        return self.header.kind, self.shape

    @property
    def nbytes(self) -> int:
        """The bytes of the array, decoded."""
        return self.header.kind.itemsize * math.prod(self.shape)


#: The heads of arrays by name; an error of an array whose head cannot be read.
Heads: TypeAlias = dict[str, Head | LccodecError]


def array_heads(links: Sequence[Link]) -> dict[str, Head]:
    """Return the heads of the last link's arrays by name, or raise the first of their problems."""
    wanted: dict[int, dict[str, None]] = {id(link): {} for link in links}
    wanted[id(links[-1])] = dict.fromkeys(links[-1].index_names)
    own: dict[int, tuple[Heads, list[str], list[str]]] = {}
    for link in reversed(links):
        _, inherited, _ = own[id(link)] = _own_heads(link, with_sources(link, wanted.pop(id(link))))
        for above in link.parents:
            wanted[id(above)].update((name, None) for name in inherited if name in above.names)
    heads = fold_last(links, lambda link, before, _: _all_heads(link, before, *own[id(link)]))
    return {name: value_or_raise(heads[name]) for name in links[-1].index_names}


def next_heads(link: Link, before: Sequence[Heads], _: bool = False) -> Heads:
    """Return the head of every array of a link, or its error; `before` has those of its parents."""
    return _all_heads(link, before, *_own_heads(link, link.index_names))


def form_of(link: Link, name: str) -> Form:
    """Return the type and the shape of an array of a link, or raise if a link lacks it."""
    kind: ElementType | None = None
    number, source = origin_of(link, name)
    while number is None:
        if source is not None:
            kind = kind or link.copies[name][1]
            name = source
        else:
            link = link.parents[0]
        number, source = origin_of(link, name)
    header = link.header(number)
    return kind or header.kind, header.shapes[link.members[number].index(link.names[name])]


def check_references(link: Link, number: int, found: Sequence[Form]) -> None:
    """Raise ``FormatError`` if references are not of the form of their frame (LCC-CHN-03)."""
    header = link.header(number)
    if list(found) != list(zip(repeat(header.kind), header.shapes)):
        place = array_place(link, member_names(link, number)[0])
        raise FormatError("LCC-CHN-03", place, "not of the type and shape of the parent's array")


def interpolates(low: Form, high: Form) -> bool:
    """Return whether the reference of an array is made from those of both parents (LCC-INT-04)."""
    return low[0].is_float and low == high


def _all_heads(
    link: Link, before: Sequence[Heads], heads: Heads, inherited: Iterable[str], copies: Iterable[str]
) -> Heads:
    """Return the heads of what has frames in a link, of what its parents have, and of copies."""
    for name in inherited:
        head = before[0][name]
        if isinstance(head, Head):
            head = head._replace(unchanged=True, copied=False)
            later = before[1].get(name) if len(before) == 2 else None
            if isinstance(later, Head) and not _is_same(head, later) and interpolates(head.form, later.form):
                head = head._replace(interpolated=True)
        heads[name] = head
    for name in copies:  # those of their sources, with the type of a rounding
        try:
            header, shape, _, interpolated, _ = value_or_raise(heads[link.copies[name][0]])
            kind = copied_type(link, name, header.kind)
            header = replace(header, kind=kind, shapes=(shape,), relative=False, run=False)
            heads[name] = Head(header, shape, interpolated=interpolated, copied=True)
        except LccodecError as error:
            heads[name] = error
    return heads


def _is_same(one: Head, other: Head) -> bool:
    """Return whether two links have an array from the same frame."""
    return one.header is other.header and not one.interpolated and not other.interpolated


def _own_heads(link: Link, names: Iterable[str]) -> tuple[Heads, list[str], list[str]]:
    """Return the heads of arrays with frames, and the names of those inherited, and of copies."""
    frames, inherited, broken, copies = part_arrays(link, names)
    heads: Heads = {**broken}
    for number in frames:  # not array by array: a run has thousands
        members = member_names(link, number)
        try:
            header = link.header(number)
            heads.update(zip(members, (Head(header, shape) for shape in header.shapes), strict=True))
        except LccodecError as error:
            heads.update(dict.fromkeys(members, error))
    return heads, inherited, copies


# --- bounds of files of strangers ---------------------------------------------------------------

_BYTES_RULE: Final = "max_bytes"
_DELTAS_RULE: Final = "max_deltas"


@dataclass(frozen=True)
class Bounds:
    """The most that a checkpoint of strangers may ask for (SPEC 13); ``None`` for no bound.

    Raises ``ArgumentError`` if one is not an integer, or below 0.
    """

    # Bytes that all of its arrays have together, once they are decoded, and those of its parents
    # that share frames with them. An array of which a part is asked for counts whole.
    max_bytes: int | None = None
    max_deltas: int | None = None  # checkpoints that it needs beside itself

    def __post_init__(self) -> None:
        for name in (_BYTES_RULE, _DELTAS_RULE):
            if getattr(self, name) is not None:
                integer(name, getattr(self, name))

    def check_deltas(self, needed: int, where: str) -> None:
        """Raise ``LimitError`` if a checkpoint needs too many others."""
        if self.max_deltas is not None and needed > self.max_deltas:
            message = f"it needs {needed:,} other checkpoints, and max_deltas is {self.max_deltas:,}"
            raise LimitError(_DELTAS_RULE, where, message)

    def check_bytes(self, nbytes: int, where: str) -> None:
        """Raise ``LimitError`` if arrays decode to too many bytes."""
        if self.max_bytes is not None and nbytes > self.max_bytes:
            message = f"its arrays have {nbytes:,} bytes, and max_bytes is {self.max_bytes:,}"
            raise LimitError(_BYTES_RULE, where, message)


#: No bounds.
UNBOUNDED: Final = Bounds()


def is_bound(error: LimitError) -> bool:
    """Return whether an error is one of a caller's bounds, and not of a limit of the format."""
    return error.rule in (_BYTES_RULE, _DELTAS_RULE)


#: The key of a link in the metadata. Errors name it as their rule.
LINK_KEY: Final = "lccodec.link"

#: The kind of a record of `torch.distributed.checkpoint`, in its metadata and its state.
RECORD_KIND: Final = "torch.distributed.checkpoint"

#: The kind of the part of a process of Orbax, in its state.
PYTREE_KIND: Final = "jax.pytree"

#: The keys of such a part.
_PART: Final = {"kind", "version", "process", "processes", "table", "values", "arrays"}

_TEXTS: Final = {
    LINK_KEY: "a link: its state is a step of a chain",
    RECORD_KIND: "the record of a distributed checkpoint: its tensors lie in the chains of the ranks",
}

_ADVICE: Final = {
    LINK_KEY: "load it with the adapter that saved it",
    RECORD_KIND: "load it with LCStorageReader, into a state with dcp.load or whole with state()",
}


def kind_of(manifest: Manifest) -> str | None:
    """Return what a checkpoint is if it holds no whole state; ``None`` if it holds one."""
    if (kind := _kind(manifest.metadata)) is not None:
        return kind
    return PYTREE_KIND if isinstance(manifest.tree, dict) and manifest.tree.keys() == _PART else None


def pointer_text(metadata: Mapping[str, str]) -> str | None:
    """Return in words what a checkpoint is that holds no arrays of its own, by its metadata."""
    return None if (kind := _kind(metadata)) is None else _TEXTS[kind]


def check_own(metadata: Mapping[str, str], where: object) -> None:
    """Raise ``ArgumentError``, with the way out, if a checkpoint holds no arrays of its own."""
    if (kind := _kind(metadata)) is not None:
        raise ArgumentError(
            f"{where} is {_TEXTS[kind]}; {_ADVICE[kind]}, or write it to a file with `lccodec convert`"
        )


def _kind(metadata: Mapping[str, str]) -> str | None:
    if LINK_KEY in metadata:
        return LINK_KEY
    return RECORD_KIND if metadata.get("kind") == RECORD_KIND else None
