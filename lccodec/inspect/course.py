"""One array over the steps of a chain: only its own frames are read and decoded, each once."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..chain.read.checkpoint import open_step
from ..chain.read.info import ArrayInfo
from ..chain.read.links import Link
from ..chain.read.replay import DecodedArray, replay_each
from ..chain.store.lineage import Lineage
from ..chain.store.store import Store
from ..errors import LccodecError
from .inventory import array_row
from .measures.trajectory import Told, Trajectory


def course(
    store: Store, about: ArrayInfo, progress: Callable[[int, int], object] | None = None
) -> Trajectory:
    """Return the figures of an array at every step that can be read and has it.

    `about` is what is known of the array at one step. `progress` is called as
    ``progress(done, total)`` with numbers of steps.
    """
    total, found, name = len(store.steps()), Trajectory([array_row(about)]), about.name
    for link, array in _arrays(store, name):
        step = link.manifest.step or 0
        if found.steps and step <= found.steps[-1]:
            continue  # a branch of the chain: the steps of the newest branch are shown
        told = Told.of(link.figures()[name], about.lossy)
        found.add(step, {name: array}, {name: told}, link.since)
        if progress is not None:
            progress(len(found.steps), total)
    return found


def _arrays(store: Store, name: str) -> Iterator[tuple[Link, DecodedArray]]:
    """Yield the array at every step. It is valid until the next one is asked for."""
    steps = store.steps()
    between = Lineage.named(store, steps).interpolated()
    waiting = iter(between)
    due = next(waiting, None)
    for link, array in _lines(store, name, set(steps).difference(between)):
        while due is not None and due < (link.manifest.step or 0):  # interpolated, with a walk of its own
            yield from _line(store, due, {due}, name)
            due = next(waiting, None)
        yield link, array


def _lines(store: Store, name: str, left: set[int]) -> Iterator[tuple[Link, DecodedArray]]:
    """Yield the array at the steps that are `left`, none of them interpolated."""
    lines: list[tuple[int, set[int]]] = []  # the newest step of a line, and its steps that no other has
    while left:
        newest = max(left)
        own = {newest}
        try:
            with open_step(store, newest) as file:
                own |= {link.manifest.step or 0 for link in file.links}
        except LccodecError:
            pass  # this step cannot be read, but its parents may be
        else:
            lines.append((newest, own & left))
        left -= own
    for newest, own in reversed(lines):
        yield from _line(store, newest, own, name)


def _line(store: Store, newest: int, steps: set[int], name: str) -> Iterator[tuple[Link, DecodedArray]]:
    """Yield the array at some of the steps that lead to one, until it cannot be decoded."""
    try:
        with open_step(store, newest) as file:
            wanted = {
                position: [name]
                for position, link in enumerate(file.links)
                if (link.manifest.step or 0) in steps and name in link.names
            }
            for position, arrays in replay_each(file.links, wanted):
                yield file.links[position], arrays[name]
    except LccodecError:
        return
