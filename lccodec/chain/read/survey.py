"""All checkpoints of a store, each read and decoded once, parents before their children.

A child continues from what its parent left. First the parent that each file names is read from the
start of its manifest, so that the order is known: depth first, the child with the most descendants
last. The last child overwrites what its parent left, and at most log2(n) parents of n files wait
for their other children. That first look is not trusted: a file that differs later is opened on its
own. By rising step, the last child overwrites too, but more parents may wait.

Source: SPEC 4 (Validator), 9.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Set
from dataclasses import dataclass
from pathlib import Path

from ...container.manifest import Parent
from ...container.reader import CheckpointReader
from ...errors import ChainError, LccodecError, StorageError
from ..store.names import check_name, checkpoint_name
from ..store.store import Store
from .checkpoint import OpenCheckpoint
from .info import CheckpointInfo, Head, checkpoint_info, next_heads
from .links import Link, check_parent, check_step, member_names, missing_parent, open_parent, value_or_raise
from .replay import Decoded, DecodedArray, next_decoded, without_traceback


@dataclass
class Visit:
    """A checkpoint as a survey meets it. Its methods work until the next checkpoint is visited."""

    step: int  # by its name; 0 for a file without a step
    path: Path
    reader: CheckpointReader | None  # the open file; None if the file itself cannot be opened
    error: LccodecError | None  # why it cannot be read as a checkpoint of its chain
    _left: _Left | None

    def check(self) -> None:
        """Raise `error`, or ``FormatError`` if the name is that of another step (LCC-CHN-01)."""
        link = self._whole().link
        check_name(link.place, link.manifest.step)

    def info(self) -> CheckpointInfo:
        """Return what is stored, or raise `error` or the first problem in a frame's header."""
        left = self._whole()
        heads = {name: value_or_raise(left.heads[name]) for name in left.link.index_names}
        return checkpoint_info(left.link, heads, left.deltas)

    def broken(self) -> list[LccodecError]:
        """Return the errors of arrays in their order; none if the survey does not decode."""
        left = self._whole()
        found = [] if left.decoded is None else [left.decoded.arrays[name] for name in left.link.index_names]
        return [error for error in found if isinstance(error, LccodecError)]

    def lacking(self, frames: Container[int], above: Set[str]) -> set[str]:
        """Return the arrays that need one of these frames, or one of these arrays of the parent."""
        link, found = self._whole().link, set[str]()
        for number in range(len(link.manifest.frames)):
            members = member_names(link, number)
            if number in frames or (not above.isdisjoint(members) and link.header(number).relative):
                found.update(members)  # a run is decoded whole
        found.update(name for name in above if name in link.names and link.frame_of(link.names[name]) is None)
        return found

    def arrays(self) -> Mapping[str, DecodedArray | LccodecError]:
        """Return the decoded arrays by name, those that cannot be decoded as errors.

        They are valid until the next checkpoint is visited. There are none if the survey does not
        decode.
        """
        left = self._whole()
        return {} if left.decoded is None else left.decoded.arrays

    def frame_bytes(self) -> dict[str, int]:
        """Return the bytes of the frames of each method, or raise as `info`."""
        link, found = self._whole().link, dict[str, int]()
        for number, entry in enumerate(link.manifest.frames):
            method = link.header(number).method_name
            found[method] = found.get(method, 0) + entry.length
        return found

    def _whole(self) -> _Left:
        if self._left is None:
            raise self.error or ChainError(f"{self.path} was not read")
        return self._left


@dataclass
class _Left:
    """What a checkpoint leaves for its children."""

    link: Link
    heads: dict[str, Head | LccodecError]
    decoded: Decoded | None
    deltas: int


@dataclass
class _Known:
    """What is kept of every checkpoint, to check whether it is the parent that another names."""

    roots: frozenset[bytes]
    step: int | None
    error: LccodecError | None  # the file's own, or of its chain


def survey(
    store: Store, steps: Mapping[int, str], *, decode: bool = False, rising: bool = False
) -> Iterator[Visit]:
    """Yield the checkpoints of a store, parents before their children.

    `steps` has their names, by rising step. A file that is gone when it is opened is left out. With
    `rising`, checkpoints come by rising step: then every branch of the chain waits in memory while
    another one is visited.
    """
    known: dict[int, _Known | LccodecError] = {}  # an error if the file cannot be opened
    waiting: dict[int | None, _Left] = {}
    for step, before, last, awaited in _order(store, steps, rising):
        seen = waiting.pop(before, None) if last else waiting.get(before)
        try:
            reader = store.open(steps[step])
        except LccodecError as error:
            known[step] = without_traceback(error)
            if not isinstance(error, StorageError) or store.has(steps[step]):
                yield Visit(step, store.path / steps[step], None, error, None)
            continue
        with reader:
            parent = reader.manifest.parent
            left, problem = None, None
            try:
                if parent is None or parent.step != before:  # not what the first look found
                    seen = None
                if parent is not None:
                    seen = _read_parent(reader, parent, store, known.get(parent.step), seen, decode)
                left = _advance(Link(reader, seen.link if seen else None), seen, decode, overwrite=last)
            except LccodecError as error:
                problem = without_traceback(error)
            known[step] = _Known(reader.roots, reader.manifest.step, problem)
            if left is not None and awaited:
                waiting[step] = left
            visit = Visit(step, store.path / steps[step], reader, problem, left)
            del seen, left
            yield visit
            visit._left = None  # a caller that keeps the visit must not keep the state


def visit_file(store: Store, name: str, reader: CheckpointReader, decode: bool = False) -> Visit:
    """Return a file of a store, and its parents, as a survey meets it. This closes `reader`."""
    step, path = reader.manifest.step or 0, store.path / name
    try:
        with OpenCheckpoint(reader, store) as file:
            left = None
            for link in file.links:
                left = _advance(link, left, decode, overwrite=True)
            return Visit(step, path, reader, None, left)
    except LccodecError as error:
        return Visit(step, path, reader, error, None)


def _order(
    store: Store, steps: Mapping[int, str], rising: bool
) -> Iterator[tuple[int, int | None, bool, bool]]:
    """Yield the steps, parents before their children.

    With each step come its parent's step if that seems to be in the store, whether it is the
    last child of that parent, and whether it has children.
    """
    parents: dict[int, int] = {}
    sizes = dict.fromkeys(steps, 1)
    children: dict[int, list[int]] = {}
    for step in steps:  # rising
        parent = store.parent_of(steps[step])
        if parent is not None and parent < step and parent in steps:
            parents[step] = parent
            children.setdefault(parent, []).append(step)
    if rising:
        for step in steps:
            parent = parents.get(step)
            yield step, parent, parent is not None and children[parent][-1] == step, step in children
        return
    for step in reversed(list(steps)):  # parents have lower steps
        if step in parents:
            sizes[parents[step]] += sizes[step]
    stack: list[tuple[int, int | None, bool]]
    stack = [(step, None, False) for step in reversed(list(steps)) if step not in parents]
    while stack:
        step, parent, last = stack.pop()
        yield step, parent, last, step in children
        below = sorted(children.get(step, ()), key=lambda child: (sizes[child], child))
        stack += [(child, step, child == below[-1]) for child in reversed(below)]


def _read_parent(
    reader: CheckpointReader,
    parent: Parent,
    store: Store,
    known: _Known | LccodecError | None,
    left: _Left | None,
    decode: bool,
) -> _Left:
    """Return what the named parent left, or raise what a reader of the chain would raise."""
    check_step(reader, parent)
    name = checkpoint_name(parent.step)
    if isinstance(known, LccodecError):
        raise missing_parent(reader, parent, name, known)
    if known is not None:
        check_parent(reader, parent, known.roots, known.step, name)
        if known.error is not None:
            raise known.error
        if left is not None:
            return left
    # The order did not have this parent: files came or changed in the meantime.
    with open_parent(reader, parent, store) as opened:
        return visit_file(store, name, opened, decode)._whole()


def _advance(link: Link, before: _Left | None, decode: bool, overwrite: bool) -> _Left:
    parent = before.link if before else None
    heads = next_heads(link, parent, before.heads if before else {})
    decoded = None
    if decode:
        earlier = before.decoded if before and before.decoded else Decoded({}, set())
        decoded = next_decoded(link, parent, earlier, overwrite)
    return _Left(link, heads, decoded, before.deltas + 1 if before else 0)
