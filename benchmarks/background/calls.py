"""What a call costs, beside a copy of the state into warm memory; and when the state is durable."""

from __future__ import annotations

import gc
import statistics
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from ..measure.figures import COPY, Figure
from ..speed.chains import copier
from .loop import CALL
from .plan import Plan
from .states import Adam
from .ways import OWN, PEERS, TwoWorkers, opened

__all__ = ["SECTION", "calls"]

SECTION = "calls"
COPIES_A_ROUND = 5  # the copy is the shortest, and so the noisiest
WARM_UPS = 2  # a keyframe, and a delta

Missing = list[str]


def calls(plan: Plan, adam: Adam) -> tuple[list[Figure], Missing]:
    """Save two states in turn with every way; no save runs while another thing is timed."""
    states = [adam.state(0), adam.state(1)]
    copy = copier(states[0])
    copies: list[float] = []
    with TemporaryDirectory(dir=plan.directory) as name:
        found, absent = opened([*OWN, TwoWorkers, *PEERS], Path(name))
        for number in range(WARM_UPS + plan.rounds):
            if number == WARM_UPS:
                copies.clear()
                for way in found:
                    way.forget()
            copy()
            for _ in range(COPIES_A_ROUND):
                start = time.perf_counter()
                copy()
                copies.append(time.perf_counter() - start)
            for way in found:
                gc.collect()
                way.save(number, states[number % 2])
                way.settle()
        for way in found:
            way.close()
    best, middle = min(copies), statistics.median(copies)
    case = f"{4 * adam.values / 1e6:,.0f} MB in {len(states[0]):,} float32 arrays, Adam of the GPT"
    note = f"{1e3 * best:.1f} ms, median {middle / best:.2f} x best"
    figures = [Figure(SECTION, case, COPY, "copy", 1.0, typical=middle / best, peer=True, note=note)]
    for way in found:
        for action, seconds in ((CALL, way.calls), ("until durable", way.durable)):
            figures.append(
                Figure(
                    SECTION,
                    case,
                    way.name,
                    action,
                    min(seconds) / best,
                    typical=statistics.median(seconds) / middle,
                    seconds=min(seconds),
                    values=adam.values,
                    peer=isinstance(way, PEERS),
                )
            )
    return figures, absent
