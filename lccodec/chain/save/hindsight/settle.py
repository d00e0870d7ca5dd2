"""Settling: what lies between two ends of a history is coded again, once the later one is known.

Until then each step of the group is a delta to the step before it. Settled, it is interpolated
between the ends, and what that misses is coded only where it has to be. The first steps of a group
stay as they were saved where that takes fewer bytes. The last step goes first:
nothing needs it, then nothing needs the one before it, and so on. Each is replaced by an atomic
commit. So at any moment each step can be restored, as it was saved or settled.

Source: SPEC 9 (LCC-INT-06).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from ....container.disk.system import storage_errors
from ....policy.record import EXACT_KEY, read_record
from ...read.checkpoint import open_name
from ...read.links import Link
from ...store.lineage import Lineage
from ...store.store import Store, WritableStore
from ..reference import Tail
from .group import Between, Group


def settle(store: WritableStore, low: int, high: int, ends: Sequence[Tail] | None = None) -> Iterator[None]:
    """Code again what lies between two ends, piece by piece. `ends` are both as decoded, if known.

    Nothing happens if the steps between are not a row of deltas that begins at the earlier end, or
    if their arrays are not those of the ends. Pinned steps stay as they are, with what they need.
    So do those that were asked for exactly; what was rewritten, as it may have been settled before
    and must not lose a second time; what is settled already; and all that is left while others
    remove checkpoints.

    Raises
    ------
    DataError, ChainError, StorageError
        If a checkpoint cannot be restored or written. Every step is as it was saved, or settled.
    """
    with storage_errors("cannot settle a group of", store.path), ExitStack() as files:
        group = _open(store, low, high, ends, files)
        if group is None:
            return
        for _ in group.place():
            yield
        for _ in group.compare():
            yield
        for _ in group.code():
            yield
        while group.write_last():
            yield


def unsettled(store: Store, among: int) -> list[tuple[int, int]]:
    """Return the ends of groups that are not settled, the oldest first.

    A delta shows that there is a group if it is not to the step before, or what is settled of the
    group. Nothing else does where the later end is a keyframe. `among` says how many of the newest
    steps are read.
    """
    found, row = set[tuple[int, int]](), list[int]()  # steps that are not interpolated, since an end
    lineage = Lineage.named(store)
    for step in lineage.steps[-among:]:
        parents = lineage.parents(step)
        if len(parents) == 2:
            if row and row[-1] > parents[0]:
                found.add((parents[0], parents[1]))
            continue
        if not parents or parents[0] not in row:
            row = []
        elif parents[0] != row[-1]:
            found.add((parents[0], step))
            row = []
        row.append(step)
    return sorted(found)


def _open(
    store: WritableStore, low: int, high: int, ends: Sequence[Tail] | None, files: ExitStack
) -> Group | None:
    """Open the checkpoints of a group; ``None`` if there is nothing to settle."""
    steps = store.checkpoints()
    if low not in steps or high not in steps:
        return None
    inside = [step for step in steps if low < step < high]
    spans = Lineage.named(store, inside).interpolated()
    left = [step for step in inside if step not in spans]
    if not left or any(span != (low, high) for span in spans.values()):
        return None
    line = files.enter_context(open_name(store, steps[left[-1]]))
    later = files.enter_context(open_name(store, steps[high])).links[-1]
    row = [link.manifest.step for link in line.links]
    if low not in row or row[row.index(low) + 1 :] != left:
        return None
    place = row.index(low)
    first = line.links[place]
    above = [parent.step for parent in later.manifest.parents]
    if above not in ([], [low]):
        return None
    end = Link(later.reader, first) if above else later
    between = line.links[place + 1 :]
    if any(link.index_names != first.index_names for link in (*between, end)):
        return None
    stay = [step for step in store.pins() if step in left]
    stay += [
        link.manifest.step or 0
        for link in between
        if link.manifest.replaces or EXACT_KEY in link.manifest.metadata
    ]
    settled = [Between(link) for link in between if (link.manifest.step or 0) > max(stay, default=low)]
    roots = [first.reader.root, end.reader.root]
    known = [tail.arrays for tail in ends or () if [t.links[-1].root for t in ends or ()] == roots]
    links = [*line.links[place if known else 0 : place + 1], end, *between]
    for link in links:
        link.reader.rest()
    told = {array.name: array for array in line.info().arrays}
    policy = read_record(line.links[-1].manifest.policy).policy
    if not settled or not policy.lossy:
        return None
    return Group(store, links, known, first, end, settled, told, policy)
