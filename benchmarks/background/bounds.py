"""The bounds on saves and restores with workers, and what a run says of them."""

from __future__ import annotations

from collections.abc import Sequence

from ..measure.figures import Figure, find
from ..measure.goals import Goal
from . import calls, crews, first, loop, memory
from .plan import INTERVALS
from .ways import Async, TwoWorkers

__all__ = ["bounds"]

MIB = 1 << 20
ACTIONS = {crews.SAVE: "save", crews.KEYFRAME: "restore", crews.DEEPEST: "deepest restore"}


def bounds(figures: Sequence[Figure]) -> dict[str, list[Goal]]:
    """Return the bounds of each section, with what `figures` say of them."""
    return {
        calls.SECTION: _calls(figures),
        loop.SECTION: _loop(figures),
        crews.SECTION: _workers(figures),
        first.SECTION: _first(figures),
        memory.SECTION: _memory(figures),
        crews.SMALL: _small(figures),
    }


def _calls(figures: Sequence[Figure]) -> list[Goal]:
    call = find(figures, calls.SECTION, Async.name, loop.CALL)
    return [Goal("blocking time of save_async, over np.copyto into warm memory", _ratio(call), 1.5, 1.1)]


def _loop(figures: Sequence[Figure]) -> list[Goal]:
    found = []
    for every in INTERVALS:
        ending = loop.often(every)
        here = [f for f in figures if f.section == loop.SECTION and f.case.endswith(ending)]
        slowed = find(here, loop.SECTION, Async.name, loop.WHILE)
        what = f"slowdown of training steps while a save runs, one worker, {ending}"
        found.append(Goal(what, _ratio(slowed), 10, 3, "%"))
    return found


def _workers(figures: Sequence[Figure]) -> list[Goal]:
    found = []
    for policy in crews.POLICIES:
        for action, what in ACTIONS.items():
            two, one = (find(figures, crews.SECTION, crews.row(policy, n), action) for n in (2, 1))
            found.append(Goal(f"two workers over one: {what}, {policy}", _times(two, one), 0.65, 0.55))
    name = crews.row("balanced", 2)
    deep, keyframe = (find(figures, crews.SECTION, name, a) for a in (crews.DEEPEST, crews.KEYFRAME))
    what = "restore of the deepest delta over a keyframe's, balanced, two workers"
    return [*found, Goal(what, _times(deep, keyframe), 5, 3)]


def _first(figures: Sequence[Figure]) -> list[Goal]:
    name = crews.row(first.POLICY, 2)
    early, whole = (find(figures, first.SECTION, name, a) for a in (first.FIRST, first.WHOLE))
    share = _times(early, whole)
    what = "first array of restore_iter, of the whole, two workers"
    return [Goal(what, None if share is None else 100 * share, 5, 2, "%")]


def _memory(figures: Sequence[Figure]) -> list[Goal]:
    found = []
    for way in (Async, TwoWorkers):
        process, worker = (
            find(figures, memory.SECTION, way.name, a) for a in (memory.PROCESS, memory.WORKER)
        )
        extra = None
        if process is not None and process.values is not None:
            extra = process.ratio - 4 * process.values / MIB  # one state in shared memory
        what = f"training process beyond its state and one in shared memory, {crews.count(way.workers)}"
        found.append(Goal(what, extra, 64, unit="MiB"))
        what = f"a worker beyond reference and shared copy, {crews.count(way.workers)}"
        found.append(Goal(what, _ratio(worker), 128, unit="MiB"))
    return found


def _small(figures: Sequence[Figure]) -> list[Goal]:
    without, *others = (
        find(figures, crews.SMALL, crews.row("balanced", n), crews.SAVE) for n in (None, *crews.WORKERS)
    )
    return [
        Goal(f"save of small arrays with {crews.count(n)}, over without", _times(one, without), 1.1, 0.7)
        for n, one in zip(crews.WORKERS, others, strict=True)
    ]


def _ratio(figure: Figure | None) -> float | None:
    return None if figure is None else figure.ratio


def _times(first: Figure | None, second: Figure | None) -> float | None:
    """Return the seconds of the first as a multiple of those of the second."""
    if first is None or second is None or first.seconds is None or second.seconds is None:
        return None
    return first.seconds / second.seconds
