"""A training loop that saves: each way at each interval, in turn, beside the loop without saving.

A segment is some steps of training with one way to save. All segments are of one run, which goes on
from one to the next. A step's time does not include the call that saves.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ..measure.figures import Figure
from .plan import INTERVALS, Plan
from .states import Adam, views
from .ways import OWN, PEERS, Nothing, Way, opened

__all__ = ["CALL", "SECTION", "WHILE", "Segment", "loop", "often", "run_segment"]

SECTION = "loop"
CALL, DURABLE = "the call", "until durable"
MEDIAN, MEAN, WHILE, ALL = "steps, median", "steps, mean", "steps while a save runs", "all, calls too"
SEED = 0

Missing = list[str]


@dataclass
class Segment:
    """Seconds of one segment.

    Parameters
    ----------
    steps
        Of each step of training.
    flying
        Whether a save ran from its beginning to its end.
    calls, durable
        Of each save.
    """

    steps: list[float] = field(default_factory=list)
    flying: list[bool] = field(default_factory=list)
    calls: list[float] = field(default_factory=list)
    durable: list[float] = field(default_factory=list)

    @property
    def slowed(self) -> list[float]:
        """The steps while a save ran."""
        return [seconds for seconds, flies in zip(self.steps, self.flying, strict=True) if flies]


def often(every: int) -> str:
    """Return an interval in words."""
    return f"every {every} steps" if every > 1 else "every step"


def run_segment(run: Any, way: Way, every: int, steps: int) -> Segment:
    """Train so many steps; save before the first one and after every so many."""
    found = Segment()
    way.forget()
    for number in range(steps):
        if number % every == 0:
            way.save(run.iteration, views(run))
        flies = way.busy
        start = time.perf_counter()
        run.advance(1, SEED)
        found.steps.append(time.perf_counter() - start)
        found.flying.append(flies and way.busy)
    way.settle()
    found.calls, found.durable = list(way.calls), list(way.durable)
    return found


def loop(plan: Plan, adam: Adam) -> tuple[list[Figure], Missing]:  # noqa: ARG001 - as all sections
    """Train with each way to save, at each interval."""
    import torch

    from ..networks.tasks import Run, task

    torch.set_num_threads(1)
    run = Run(task("gpt", plan.data, quick=plan.small_network))
    run.advance(1, SEED)
    with TemporaryDirectory(dir=plan.directory) as name:
        found, absent = opened([Nothing, *OWN, *PEERS], Path(name))
        segments = _segments(run, found, plan)
        for way in found:
            way.close()
    values = sum(array.size for array in views(run).values())
    figures = []
    for every in INTERVALS:
        case = f"a save of {4 * values / 1e6:,.0f} MB {often(every)}"
        bare = segments[Nothing.name, every]
        for way in found:
            rows = _rows(segments[way.name, every], bare)
            peer = not isinstance(way, OWN)
            figures += [
                Figure(SECTION, case, way.name, action, value, base=unit, peer=peer)
                for action, (value, unit) in rows.items()
            ]
    return figures, absent


def _segments(run: Any, found: Sequence[Way], plan: Plan) -> dict[tuple[str, int], list[Segment]]:
    """Return the segments of each way at each interval; a first one of each warms up."""
    segments: dict[tuple[str, int], list[Segment]] = {}
    for way in found:
        for _ in range(2):  # a keyframe, and a delta
            way.save(run.iteration, views(run))
            way.settle()
            run.advance(1, SEED)
    for number in range(plan.loops):
        for every, steps in zip(INTERVALS, plan.steps, strict=True):
            first = number % len(found)  # or what changes within a round would meet the same ways
            for way in (*found[first:], *found[:first]):
                segment = run_segment(run, way, every, steps)
                segments.setdefault((way.name, every), []).append(segment)
                gc.collect()
    return segments


def _rows(found: Sequence[Segment], bare: Sequence[Segment]) -> dict[str, tuple[float, str]]:
    """Return the figures of one way at one interval, each with its unit."""
    calls = [seconds for segment in found for seconds in segment.calls]
    durable = [seconds for segment in found for seconds in segment.durable]
    steps = [seconds for segment in found for seconds in segment.steps]
    if found is bare:
        return {"a step": (1e3 * statistics.median(steps), "ms")}
    rows = {
        "a step": (1e3 * statistics.median(steps), "ms"),
        CALL: (1e3 * statistics.median(calls), "ms"),
        DURABLE: (1e3 * statistics.median(durable), "ms"),
        MEDIAN: (_slowdown([(s.steps, b.steps) for s, b in _pairs(found, bare)], statistics.median), "%"),
        MEAN: (_slowdown([(s.steps, b.steps) for s, b in _pairs(found, bare)], statistics.fmean), "%"),
        ALL: (
            _slowdown([([sum(s.steps + s.calls)], [sum(b.steps)]) for s, b in _pairs(found, bare)], sum),
            "%",
        ),
    }
    slowed = [(s.slowed, b.steps) for s, b in _pairs(found, bare) if s.slowed]
    if slowed:
        rows[WHILE] = _slowdown(slowed, statistics.median), "%"
    return rows


def _pairs(found: Sequence[Segment], bare: Sequence[Segment]) -> list[tuple[Segment, Segment]]:
    return list(zip(found, bare, strict=True))


def _slowdown(pairs: Sequence[tuple[list[float], list[float]]], middle: Any) -> float:
    """Return by how much longer steps took than those of the same round, in percent."""
    return 100 * (statistics.median(middle(steps) / middle(bare) for steps, bare in pairs) - 1)
