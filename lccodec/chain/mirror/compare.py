"""What a mirror lacks: two listings compared, file by file, by their roots.

Files of one name and of different roots are the same step, if one of them replaces the other
(LCC-CHN-10), or if both name the same exact file (LCC-EXA-06). Otherwise a mirror is that of
another chain, or of what was rolled back here.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from ...constants import EXACT_NAME
from ...errors import ChainError, DataError, StorageError
from ..store.names import checkpoint_name, checkpoints_among
from ..store.store import Store, WritableStore

#: Root and bytes of files, by name.
Roots: TypeAlias = dict[str, tuple[bytes, int]]


@dataclass(frozen=True)
class Files:
    """The checkpoints and the exact file of a store at one moment.

    Attributes
    ----------
    listed
        The store as it was listed.
    roots
        The files by name, with the roots that they declare. Nothing is verified.
    unreadable
        What is wrong with the others.
    """

    listed: Store
    roots: Roots
    unreadable: Mapping[str, str] = field(default_factory=dict)

    @property
    def checkpoints(self) -> dict[int, str]:
        """The names of the checkpoints that have a root, by rising step."""
        return checkpoints_among(self.roots)

    @property
    def newest(self) -> int:
        """The newest step, also of the exact file alone, or of a damaged file; -1 without any."""
        exact = self.listed.exact_step() if EXACT_NAME in self.roots else None
        steps = checkpoints_among([*self.roots, *self.unreadable])
        return max([*steps, -1 if exact is None else exact], default=-1)

    def later(self, step: int) -> frozenset[bytes]:
        """Return the roots of the files of later steps."""
        steps = {root: step_of(self.listed, name) for name, (root, _) in self.roots.items()}
        return frozenset(root for root, found in steps.items() if found is not None and found > step)


class Inventory:
    """The roots of the files of a store; each is read once, as long as its file is the same."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, tuple[tuple[int, ...], tuple[bytes, int]]] = {}

    def read(self, *, partly: bool = False) -> Files:
        """Return what there is now; raise ``StorageError`` if it cannot be listed or read.

        With `partly`, a file that cannot be read is one of the unreadable.
        """
        listed = self._store.afresh().snapshot()
        names = listed.names()
        known, unreadable = dict[str, tuple[tuple[int, ...], tuple[bytes, int]]](), dict[str, str]()
        for name in [*checkpoints_among(names).values(), *([EXACT_NAME] if EXACT_NAME in names else [])]:
            try:
                identity = listed.identity(name)
                found = self._known.get(name)
                same = found is not None and found[0] == identity
                known[name] = found if found is not None and same else (identity, listed.root(name))
            except DataError as error:
                unreadable[name] = str(error)
            except StorageError as error:
                if error.errno == errno.ENOENT:
                    continue  # it was removed after it was listed
                if not partly:
                    raise
                unreadable[name] = str(error)
        self._known = known
        return Files(listed, {name: found for name, (_, found) in known.items()}, unreadable)


@dataclass(frozen=True)
class Difference:
    """What a mirror lacks.

    Parameters
    ----------
    names
        The files to copy, each after all that it needs.
    set_aside
        The step that the mirror must be rolled back to before, as the chain was; or ``None``.
    """

    names: tuple[str, ...]
    set_aside: int | None = None


def compare(
    here: Files,
    there: Files,
    *,
    known: bool = False,
    rolled_back: Callable[[], Iterable[tuple[int, Collection[bytes]]]] = tuple,
    sparse: bool = False,
) -> Difference:
    """Return what a mirror lacks of a chain.

    Parameters
    ----------
    known
        Whether the mirror is known to be one of this chain, though they may share no file.
    rolled_back
        Returns what was rolled back here: steps that the chain went back to, each with the roots
        that were set aside.
    sparse
        Whether the mirror may have removed checkpoints, which then do not come back.

    Raises
    ------
    ChainError
        If the mirror has another chain, or a newer one.
    """
    replaced, kin, others = _related(here, there)
    newest, places = here.newest, (here.listed.path, there.listed.path)
    alone = [
        step for step in there.checkpoints if checkpoint_name(step) not in {*here.roots, *here.unreadable}
    ]
    newer = [step for step in alone if step > newest]
    exact = there.listed.exact_step() if EXACT_NAME in there.roots else None
    newer += [exact] if exact is not None and exact > newest else []
    if others or alone or newer:
        own = {root for name, (root, _) in there.roots.items() if here.roots.get(name, (b"",))[0] != root}
        steps = [step for step, roots in rolled_back() if not own.isdisjoint(roots)]
        if steps and (kin or known) and there.newest > min(steps):
            return Difference((), min(steps))
    if others:
        message = f"step {others[0]} is another one there"
        raise ChainError(
            f"{places[1]} is a mirror of another chain than {places[0]}: {message}; nothing was copied"
        )
    if here.roots and there.roots and not (kin or known):
        raise ChainError(
            f"{places[1]} is a mirror of another chain: it shares no file with {places[0]}; nothing was"
            " copied"
        )
    if newer:
        raise ChainError(
            f"{places[1]} is a mirror of {places[0]} and newer: it has step {max(newer)}, and the chain"
            f" {f'ends at {newest}' if newest >= 0 else 'is empty'}; nothing was copied. To bring its"
            " steps here, use lccodec repair --mirror; to go on without them, roll the mirror back"
        )
    lacking = {name for name in here.roots if name not in there.roots or name in replaced}
    if sparse:
        last = max(there.checkpoints, default=-1)
        gone = {name for step, name in here.checkpoints.items() if step <= last and name not in there.roots}
        lacking -= gone - set(there.unreadable)
    return Difference(tuple(_in_order(here, there, lacking)))


def _related(here: Files, there: Files) -> tuple[set[str], bool, list[int]]:
    """Return which files take the place of those of a mirror, and how the two are related.

    That is whether they share a file, and the steps that are another one there.
    """
    replaced, others, kin = set[str](), list[int](), False
    for name, (root, _) in here.roots.items():
        other = there.roots.get(name)
        if other is None:
            continue
        if other[0] == root:
            kin = True
        elif name == EXACT_NAME:
            replaced.add(name)
        elif (relation := _relation(here, there, name)) is None:
            others += checkpoints_among([name])
        else:
            kin = kin or relation != "damaged"
            replaced |= {name} if relation in ("newer", "damaged") else set()
    return replaced, kin or _names_exact(here, there), others


def _names_exact(here: Files, there: Files) -> bool:
    """Return whether a checkpoint names the exact file of a mirror, which may come alone."""
    if EXACT_NAME not in there.roots or (step := there.listed.exact_step()) is None:
        return False
    name = checkpoint_name(step)
    try:
        with here.listed.open(name) as reader:
            return reader.manifest.exact == there.roots[EXACT_NAME][0]
    except (DataError, StorageError):
        return False


def _relation(here: Files, there: Files, name: str) -> str | None:
    """Return how a file is related to that of its name in a mirror.

    It is ``"newer"`` if it takes the place of that, ``"older"`` if that takes its place, or needs
    to stay; ``"damaged"`` if that is; and ``None`` if they are different steps.
    """
    theirs, ours = _roots_of(there, name), _roots_of(here, name)
    if ours is None:  # what is damaged here says nothing
        return "older"
    if theirs is None:
        return "damaged"
    replaces = there.roots[name][0] in ours.roots
    is_anew = not replaces and ours.exact is not None and ours.exact == theirs.exact
    if replaces or (is_anew and here.roots[name][0] not in theirs.roots):
        has_other_values = ours.is_interpolated or is_anew
        return "older" if has_other_values and _is_needed(here, there, name) else "newer"
    return "older" if here.roots[name][0] in theirs.roots else None


class _Identity(NamedTuple):
    """The roots that a file stands for, that of its exact file, and whether it is interpolated."""

    roots: frozenset[bytes]
    exact: bytes | None
    is_interpolated: bool


def _roots_of(files: Files, name: str) -> _Identity | None:
    """Return what a file is; ``None`` if it is damaged."""
    try:
        with files.listed.open(name) as reader:
            manifest = reader.manifest
            return _Identity(reader.roots, manifest.exact, manifest.later is not None)
    except DataError:
        return None


def _is_needed(here: Files, there: Files, name: str) -> bool:
    """Return whether a file of a mirror alone is a delta to a step: its values must stay.

    A checkpoint that was settled has other values (LCC-INT-06). Nothing here needs the old ones,
    but a mirror may have kept what was removed here.
    """
    [step] = checkpoints_among([name])
    alone = [other for other in there.checkpoints.values() if other not in here.roots]
    return any(step in there.listed.parents_of(other) for other in alone)


def _in_order(here: Files, there: Files, lacking: Collection[str]) -> list[str]:
    """Return files to copy: the exact file, as each save does, and then parents before children.

    Parents that the mirror lacks come too.
    """
    exact = [EXACT_NAME] if EXACT_NAME in lacking else []
    checkpoints = [name for name in here.checkpoints.values() if name in lacking]
    to_copy = {name for name in here.roots if name in lacking or name not in there.roots}
    return parents_first(here.listed, [*exact, *checkpoints], to_copy)


def parents_first(store: Store, names: Iterable[str], among: Container[str]) -> list[str]:
    """Return files of a store, each after its parents, and these too if they are `among` some."""
    found, seen = dict[str, None](), set[str]()
    for first in names:
        left = [first]
        while left:
            name = left[-1]
            seen.add(name)
            above = map(checkpoint_name, store.parents_of(name))
            todo = [each for each in above if each in among and each not in found and each not in seen]
            if todo:
                left += todo
            else:
                found[left.pop()] = None
    return list(found)


def step_of(store: Store, name: str) -> int | None:
    """Return the step of a checkpoint or the exact file; ``None`` if that cannot be read."""
    return store.exact_step() if name == EXACT_NAME else next(iter(checkpoints_among([name])), None)


def set_aside_of(store: WritableStore) -> list[tuple[int, frozenset[bytes]]]:
    """Return what was rolled back in a chain: steps, each with the roots that were set aside."""
    shelf, found = store.shelf(), []
    for name, step in shelf.names():
        aside = shelf.chain(name)
        files = Inventory(aside).read()
        found.append((step, files.later(step)))
    return found


def check_kin(here: Files, there: Files) -> None:
    """Raise ``ChainError`` if a mirror is one of another chain; newer steps do not matter."""
    _, kin, others = _related(here, there)
    if others or (here.roots and there.roots and not kin):
        raise ChainError(f"{there.listed.path} is a mirror of another chain than {here.listed.path}")
