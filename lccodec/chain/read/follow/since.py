"""The links behind a state that is at hand: what must be read to go on from it."""

from __future__ import annotations

from contextlib import ExitStack

from ....container.reader import CheckpointReader
from ....errors import ArgumentError
from ....policy.record import read_record
from ...store.store import Store
from ..links import Link, check_step, open_parent


def open_since(reader: CheckpointReader, base: Link, store: Store, opened: ExitStack) -> list[Link] | None:
    """Return the links behind one whose state is at hand, up to a checkpoint, parents first.

    They are deltas, and their files are left to `opened`. ``None`` if the checkpoint does not go on
    from that state; then it is to be opened with all that it needs.

    A checkpoint that took the place of `base` has the same state (LCC-CHN-10). But a settled one
    may have other values (LCC-INT-06), and what takes its place has these. So after a policy that
    may lose something, only the root of `base` itself counts.
    """
    readers = [opened.enter_context(reader)]
    while (parent := readers[-1].manifest.parent) is not None:
        child = readers[-1]
        if child.manifest.later is not None or parent.step < (base.manifest.step or 0):
            return None
        check_step(child)
        found = None
        if parent.step != base.manifest.step or parent.root != base.reader.root:
            found = opened.enter_context(open_parent(child, parent, store))
            found.rest()
        if found is None or is_state_of(found, base.reader):
            links = [base]
            for each in reversed(readers):
                links.append(Link(each, links[-1]))
            return links[1:]
        if parent.step == base.manifest.step:
            return None
        readers.append(found)
    return None


def is_state_of(reader: CheckpointReader, known: CheckpointReader) -> bool:
    """Return whether a checkpoint surely has the state of another one: it is it, or replaces it."""
    if known.root not in reader.roots:
        return False
    try:
        return reader.root == known.root or not read_record(reader.manifest.policy).policy.lossy
    except ArgumentError:  # written by another version or program
        return False
