"""What a state costs that lies in a group of a history with hindsight, at its end and between.

Protocol
--------
As in `restored`. A chain in groups saves all states of three groups around a point, or of as many
as a run has had until then, and is closed: so all of it is settled. Then the point is restored, as
the history has it. At the middle one of a kind's intervals it lies at each of the eight places in a
group in turn, at the others once at each level. A chain without groups saves the states up to the
point.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean
from typing import Final

import lccodec

from ..measure.results import add_results, tell
from ..networks.datasets import data_directory
from . import table
from .history import history
from .kinds import KINDS, QUICK, Data, Kind
from .program import prepare
from .restored import EXACT, MARKS, PARAMETERS, STALE, Outcome, array_bytes, error_and_lag, gone_on, trained
from .table import Row
from .training import State, Training

SIZE: Final = 8
GROUPS: Final = 3
PLACES: Final = {f"in groups: {place} of {SIZE}": place for place in range(1, SIZE + 1)}
LEVELS: Final = {name: place for name, place in PLACES.items() if SIZE % place == 0}
PLAIN: Final = "balanced"


def saved_around(every: int, point: int, place: int) -> list[int]:
    """Return the iterations of a history of whole groups in which a point has a place.

    Examples
    --------
    >>> saved_around(20, 100, place=1)[:3], saved_around(20, 100, place=8)
    ([80, 100, 120], [])
    """
    before = [place + SIZE * group for group in range(GROUPS) if point > (place + SIZE * group) * every]
    if not before:
        return []
    start = point - before[-1] * every
    return list(range(start, start + (GROUPS * SIZE + 1) * every, every))


def places(kind: Kind, every: int) -> Iterable[str]:
    """Return at which places of a group the points of a kind are measured."""
    return PLACES if every == kind.every[1] else LEVELS


def measure(kind: Kind, every: int, data: Data, cache: Path, seeds: int) -> None:
    """Train a run of a kind, and measure at its points what is not measured yet."""
    missing = [
        (point, policy)
        for point in kind.points[1:]
        for policy in (EXACT, STALE, PLAIN, *places(kind, every))
        if not file_of(cache, kind.name, every, point, policy, seeds).exists()
    ]
    if not missing:
        return
    saved = {key: _saved(every, *key) for key in missing}
    run, other = kind.make(data, PARAMETERS), kind.make(data, PARAMETERS)
    last = max(max(kind.points) + max(MARKS), *(max(found, default=0) for found in saved.values()))
    wanted = {i for found in saved.values() for i in found}
    states, curve = trained(run, wanted, last)
    for (point, policy), iterations in saved.items():
        if not iterations:
            continue  # the run has not had a whole group before
        before, now = states[point - every], states[point]
        sizes, restored, figures = (1.0, 1.0), now, (0.0, 0.0)
        if policy == STALE:
            restored = before
        elif policy != EXACT:
            chosen = {i: states[i] for i in iterations}
            sizes, restored = _through_a_chain(run, chosen, point, 0 if policy == PLAIN else SIZE)
            figures = error_and_lag(run, restored, now, before)
        other.put_back(restored, point)
        untrained = other.loss()
        losses = gone_on(other, restored, point, seeds)
        shown = tuple(curve) if policy == EXACT else ()
        found = Outcome(kind.name, every, point, policy, losses, *sizes, *figures, shown, untrained)
        path = file_of(cache, kind.name, every, point, policy, seeds)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(found)) + "\n")


def _saved(every: int, point: int, policy: str) -> list[int]:
    if policy in PLACES:
        return saved_around(every, point, PLACES[policy])
    if policy == PLAIN:
        return [i for i in range(point - GROUPS * SIZE * every, point + 1, every) if i > 0]
    return [point - every, point]


def file_of(cache: Path, kind: str, every: int, point: int, policy: str, seeds: int) -> Path:
    """Return where an outcome is kept."""
    name = f"{kind}-{every}-{point}-{policy}-{seeds}.json".replace(" ", "_").translate({44: "", 58: ""})
    return cache / "hindsight" / name


def _through_a_chain(
    run: Training, states: Mapping[int, State], point: int, size: int
) -> tuple[tuple[float, float], State]:
    """Return the ratios of all but keyframes and of the whole history, and a step as restored."""
    with tempfile.TemporaryDirectory() as name:
        with lccodec.Chain(name, PLAIN, newest="exact", hindsight=size, adapter=run.adapter) as chain:
            for iteration, state in states.items():
                chain.save(iteration, state)
        with lccodec.Chain(name, adapter=run.adapter) as chain:  # opened anew: nothing from memory
            infos = [chain.info(step) for step in chain.steps]
            restored = chain.restore(point, exact=False)
    whole = float(array_bytes(run, restored))
    others = [info.file_bytes for info in infos if info.parent is not None]
    return (whole / fmean(others), whole / fmean(info.file_bytes for info in infos)), restored


def measure_kind(name: str, every: int, data: Path, cache: Path, seeds: int) -> str:
    """Measure one kind at one interval; what a process of the pool does."""
    measure(KINDS[name], every, Data.load(data), cache, seeds)
    return f"{name} every {every}"


def markdown(found: Sequence[Row], shown: Iterable[str]) -> str:
    """Return a table of costs: a line for each point of a run, a column for each place.

    The last column has the worst of all places where no training follows.
    """
    shown = [PLAIN, *shown]
    lines = [
        f"| run | every | at | {' | '.join(shown)} | untrained |".replace("in groups: ", ""),
        "|---|" + "---:|" * (3 + len(shown)),
    ]
    for kind, every, point in dict.fromkeys(
        (r.outcome.kind, r.outcome.every, r.outcome.point) for r in found
    ):
        there = {
            row.outcome.policy: row
            for row in found
            if (row.outcome.kind, row.outcome.every, row.outcome.point) == (kind, every, point)
        }
        cells = [_cost(there[name]) if name in there else "" for name in shown]
        rises = [row.untrained for name, row in there.items() if name != PLAIN and row.untrained > -math.inf]
        cells.append(f"{max(rises):.2f}" if rises else "-")
        lines.append(f"| {kind} | {every} | {point} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cost(row: Row) -> str:
    if math.isnan(row.middle):
        return "-"
    cost = f"{row.middle:.2f} ± {row.cost - row.middle:.2f}"
    return cost if row.is_told else f"({cost})"


def main() -> int:
    """Measure what is not measured yet, and show everything."""
    parser = argparse.ArgumentParser(description="what a state costs that lies in a group of a history")
    parser.add_argument("--data", metavar="DIR", help="folder of the data sets (default: $LCCODEC_DATA)")
    cache = Path(__file__).parents[1] / "work"
    parser.add_argument("--cache", type=Path, metavar="DIR", default=cache, help="where outcomes are kept")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, metavar="KIND", help=f"of {', '.join(KINDS)}")
    parser.add_argument("--seeds", type=int, default=6, metavar="N", help="of the batches (default: 6)")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes (default: 2)")
    parser.add_argument("--every", choices=("middle", "others"), default="middle", help="which intervals")
    parser.add_argument("--quick", action="store_true", help=f"only {', '.join(QUICK)}; three seeds")
    add_results(parser)
    parser.add_argument("--history", action="store_true", help="only a history of 50 of a GPT of 3.2 M")
    arguments = parser.parse_args()
    if arguments.history:
        prepare()
        text = history(data_directory(arguments.data), arguments.cache)
        tell(text, "hindsight.py --history", arguments.results)
        return 0
    data, names = data_directory(arguments.data), arguments.kinds or list(QUICK if arguments.quick else KINDS)
    seeds = min(arguments.seeds, 3) if arguments.quick else arguments.seeds
    chosen = [1] if arguments.every == "middle" else [0, 2]
    runs = [(name, KINDS[name].every[i]) for name in names for i in chosen]
    with ProcessPoolExecutor(arguments.jobs, mp_context=get_context("spawn"), initializer=prepare) as pool:
        made = [pool.submit(measure_kind, *run, data, arguments.cache, seeds) for run in runs]
        for future in as_completed(made):
            print(f"done: {future.result()}", file=sys.stderr)
    shown = (PLAIN, *places(KINDS[names[0]], runs[0][1]))
    found = [
        Outcome(**{**each, "curve": tuple(map(tuple, each["curve"]))})
        for name, every in runs
        for point in KINDS[name].points[1:]
        for policy in (EXACT, STALE, *shown)
        if (path := file_of(arguments.cache, name, every, point, policy, seeds)).exists()
        for each in [json.loads(path.read_text())]
    ]
    rows = table.rows(found)
    text = "\n\n".join(
        [
            f"{datetime.now(UTC).date()}; seeds 1 to {seeds} of the batches, 0 of the parameters.",
            table.summary(rows, shown),
            markdown(rows, shown[1:]),
        ]
    )
    tell(text, f"hindsight.py --every {arguments.every}", arguments.results)
    return 0
