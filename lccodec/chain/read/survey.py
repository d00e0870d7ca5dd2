"""A walk through a run: each checkpoint is read and decoded once, parents before their children.

A child continues from what its parents left, and the last child overwrites it. First the parents
that each file names are read from the start of its manifest, so that the order is known. That first
look is not trusted: a file that differs later is opened on its own.

Checkpoints that are not interpolated come depth first, the child with the most descendants last.
What is interpolated between two of them follows the second one. At most log2(n) parents of n files
wait for their other children. By rising step, more parents may wait.

Source: SPEC 4 (Validator), 9.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from ...constants import ElementType
from ...container.checkpoint import CheckpointReader
from ...container.manifest import Figures
from ...container.system import Place
from ...container.tree import leaves_of, scalar_value
from ...errors import ChainError, LccodecError, StorageError
from ...frame.header import Shape
from ..store.lineage import Lineage
from ..store.store import Store, check_name, checkpoint_name
from .info import CheckpointInfo, CheckpointSummary, checkpoint_info, checkpoint_summary
from .links import (
    Head,
    Heads,
    Link,
    check_depth,
    check_parent,
    check_span,
    check_step,
    fold_last,
    member_names,
    missing_parent,
    next_heads,
    open_parent,
    part_arrays,
    value_or_raise,
    without_traceback,
)

if TYPE_CHECKING:  # a look at a chain decodes nothing
    from .replay import Decode, Decoded, DecodedArray


@dataclass
class Visit:
    """A checkpoint as a survey meets it. Its methods work until the next checkpoint is visited."""

    step: int  # by its name; 0 for a file without a step
    store: Store
    name: str  # of the file
    reader: CheckpointReader | None  # the open file; None if the file itself cannot be opened
    error: LccodecError | None  # why it cannot be read as a checkpoint of its chain
    _left: _Left | None

    @property
    def path(self) -> Place:
        """Where the file is."""
        return self.store.path / self.name

    def check(self) -> None:
        """Raise `error`, or ``FormatError`` if the name is that of another step (LCC-CHN-01)."""
        link = self.left.link
        check_name(link.place, link.manifest.step)

    def info(self) -> CheckpointInfo:
        """Return what is stored, or raise `error` or the first problem in a frame's header."""
        return checkpoint_info(self.left.link, self._heads(), len(self.left.needs))

    def summary(self) -> CheckpointSummary:
        """Return what is stored as a whole; errors are those of `info`, which takes longer."""
        return checkpoint_summary(self.left.link, self._heads(), len(self.left.needs))

    def _heads(self) -> dict[str, Head]:
        heads = self.left.heads
        return {name: value_or_raise(heads[name]) for name in self.left.link.index_names}

    def broken(self) -> list[LccodecError]:
        """Return the errors of arrays in their order; none if the survey does not decode.

        An array that is not decoded has an error too if bytes that it needs are not those that
        were stored.
        """
        left = self.left
        arrays = {} if left.decoded is None else left.decoded.arrays
        found = [arrays.get(name) for name in left.link.index_names]
        return [error for error in found if isinstance(error, LccodecError)]

    def lacking(self, frames: Container[int], above: Set[str]) -> set[str]:
        """Return the arrays that need one of these frames, or one of these arrays of the parent."""
        link, found = self.left.link, set[str]()
        for number in range(len(link.manifest.frames)):
            members = member_names(link, number)
            needs = number in frames
            if not needs and not above.isdisjoint(members):
                with suppress(LccodecError):  # which is a problem of its own
                    needs = link.header(number).relative
            if needs:
                found.update(members)  # a run is decoded whole
        found.update(part_arrays(link, above & link.names.keys()).inherited)
        return found.union(name for name, (source, _) in link.copies.items() if source in found)

    def needed_of(self, step: int, names: Set[str]) -> set[str]:
        """Return which arrays of a parent may be needed: of the later one, those to interpolate."""
        link, heads = self.left.link, self.left.heads
        if link.later is None or step != link.later.manifest.step:
            return set(names)
        found = ((name, heads.get(name)) for name in names)
        return {name for name, head in found if isinstance(head, Head) and head.header.kind.is_float}

    def arrays(self) -> Mapping[str, DecodedArray | LccodecError]:
        """Return the decoded arrays by name, those that cannot be decoded as errors.

        They are valid until the next checkpoint is visited. There are none if the survey does not
        decode.
        """
        left = self.left
        return {} if left.decoded is None else left.decoded.arrays

    def verified(self) -> Mapping[str, tuple[ElementType, Shape]]:
        """Return type and shape of each array that was not decoded, and whose hashes are right."""
        left = self.left
        return {} if left.decoded is None else left.decoded.verified

    def figures(self) -> tuple[dict[str, Figures], int | None]:
        """Return what the save measured of each array, and since which step, or raise `error`."""
        return self.left.link.figures(), self.left.link.since

    def scalars(self) -> list[tuple[str, Any]]:
        """Return the scalars of the state by name, in its order, or raise `error`."""
        manifest = self.left.link.manifest
        if not manifest.scalars:
            return []
        leaves = leaves_of(manifest.tree, manifest.scalars)
        return [(name, scalar_value(entry)) for name, index, entry in leaves if index is None]

    def runs(self) -> list[list[str]]:
        """Return the names of arrays that share a frame or are copies, or raise `error`."""
        link = self.left.link
        runs = [[link.index_names[index] for index in run] for run in link.runs]
        return runs + [[name, source] for name, (source, _) in link.copies.items()]

    def frame_bytes(self) -> dict[str, int]:
        """Return the bytes of the frames of each method, or raise as `info`."""
        link, found = self.left.link, dict[str, int]()
        for number, entry in enumerate(link.manifest.frames):
            method = link.header(number).method_name
            found[method] = found.get(method, 0) + entry.length
        return found

    def end(self) -> None:
        """Close the file and release the state, so that a caller may keep the visit."""
        self._left = None
        if self.reader is not None:
            self.reader.close()

    @property
    def left(self) -> _Left:
        """What it leaves for its children; raises `error`."""
        if self._left is None:
            raise self.error or ChainError(f"{self.path} was not read")
        return self._left


@dataclass
class _Left:
    """What a checkpoint leaves for its children."""

    link: Link
    heads: Heads
    decoded: Decoded | None
    needs: frozenset[int]  # the steps that a restore decodes before it
    interpolated: frozenset[int]  # those of them that are interpolated, with its own


@dataclass
class _Known:
    """What is kept of every checkpoint, to check whether it is the parent that another names."""

    roots: frozenset[bytes]
    step: int | None
    error: LccodecError | None  # the file's own, or of its chain


def survey(
    store: Store, steps: Mapping[int, str], *, decode: Decode = False, rising: bool = False
) -> Iterator[Visit]:
    """Yield the checkpoints of a store, parents before their children.

    `steps` has their names, by rising step. A file that is gone when it is opened is left out. With
    `rising`, checkpoints come by rising step: then every branch of the chain waits in memory while
    another one is visited, and so does what an interpolated checkpoint needs of later steps.
    """
    listed = store.snapshot()
    if store.far:
        from .replay import look_ahead

        look_ahead(listed, steps.values(), whole=decode is not False)
    lineage = Lineage.named(listed, steps).well_formed()
    found = _Survey(store, listed, steps, lineage, decode)
    ready: dict[int, Visit | None] = {}
    order = lineage.parents_first(lineage.steps) if rising else lineage.depth_first()
    due = iter(steps if rising else order)
    following = next(due, None)
    for step in order:
        ready[step] = found.visit(step)
        while following in ready:
            visit = ready.pop(following)
            if visit is not None:
                yield visit
                visit.end()
            following = next(due, None)


class _Survey:
    """The checkpoints that were visited so far, and what they left for those to come."""

    def __init__(
        self,
        store: Store,
        listed: Store,
        steps: Mapping[int, str],
        lineage: Lineage,
        decode: Decode,
    ) -> None:
        self._store, self._listed = store, listed
        self._steps, self._lineage, self._decode = steps, lineage, decode
        self._users = Counter(above for step in steps for above in lineage.parents(step))
        self._known: dict[int, _Known | LccodecError] = {}  # an error if the file cannot be opened
        self.waiting: dict[int, _Left] = {}

    def visit(self, step: int) -> Visit | None:
        """Read a checkpoint whose parents were visited; ``None`` if its file is gone."""
        above = self._lineage.parents(step)
        before = [self.waiting.get(each) for each in above]
        for each in above:
            self._users[each] -= 1
            if not self._users[each]:
                self.waiting.pop(each, None)
        name = self._steps[step]
        try:
            reader = self._listed.open(name)
        except LccodecError as error:
            self._known[step] = without_traceback(error)
            if isinstance(error, StorageError) and not self._store.has(name):
                return None
            return Visit(step, self._store, name, None, error, None)
        left, problem = None, None
        overwrite = self.waiting.keys().isdisjoint(above)
        try:
            named = [parent.step for parent in reader.manifest.parents]
            if named != list(above):  # not what the first look found
                before = [None for _ in named]
            parents = self._read_parents(reader, before)
            link = Link(reader, *[above.link for above in parents])
            left = _advance(self._decode, link, parents, overwrite)
        except LccodecError as error:
            problem = without_traceback(error)
        reader.rest()
        self._known[step] = _Known(reader.roots, reader.manifest.step, problem)
        if left is not None and self._users[step]:
            self.waiting[step] = left
        return Visit(step, self._store, name, reader, problem, left)

    def _read_parents(self, reader: CheckpointReader, before: Sequence[_Left | None]) -> list[_Left]:
        """Return what the named parents left, or raise what a reader of the chain would raise."""
        check_step(reader)
        found = []
        for parent, waiting in zip(reader.manifest.parents, before, strict=True):
            known, name = self._known.get(parent.step), checkpoint_name(parent.step)
            if isinstance(known, LccodecError):
                raise missing_parent(reader, parent, name, known)
            if known is not None:
                check_parent(reader, parent, known.roots, known.step, name)
                if known.error is not None:
                    raise known.error
            left = waiting if known is not None else None
            if left is None:
                # The order did not have this parent: files came or changed in the meantime.
                with open_parent(reader, parent, self._listed) as opened:
                    left = visit_file(self._listed, name, opened, self._decode).left
            check_span(reader, left.link.reader)
            found.append(left)
        return found


def visit_file(store: Store, name: str, reader: CheckpointReader, decode: Decode = False) -> Visit:
    """Return a file of a store, and its parents, as a survey meets it. This closes `reader`."""
    from .checkpoint import OpenCheckpoint

    step = reader.manifest.step or 0
    try:
        with OpenCheckpoint(reader, store) as file:
            left = fold_last(file.links, partial(_advance, decode))
            return Visit(step, store, name, reader, None, left)
    except LccodecError as error:
        return Visit(step, store, name, reader, error, None)


def _advance(decode: Decode, link: Link, before: Sequence[_Left], overwrite: bool) -> _Left:
    """Return what a checkpoint leaves, from what its parents have left."""
    steps = frozenset(left.link.manifest.step or 0 for left in before)
    needs = steps.union(*(left.needs for left in before))
    interpolated = frozenset[int]().union(*(left.interpolated for left in before))
    if link.later is not None:
        interpolated |= {link.manifest.step or 0}
        check_depth(link.reader, len(interpolated))
    heads = next_heads(link, [left.heads for left in before])
    decoded = None
    if decode is not False:
        from .replay import Decoded, next_decoded

        parents = [left.decoded or Decoded({}, set()) for left in before]
        decoded = next_decoded(link, parents, overwrite, decode)
    return _Left(link, heads, decoded, needs, interpolated)
