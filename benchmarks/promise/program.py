"""What a lossy state costs, in intervals, on every kind of run.

Run ``python benchmarks/promise.py --data DIR``; ``benchmarks/README.md`` says how to read the
tables. Outcomes are kept in ``--cache``: remove it after a change of what is measured.
"""

from __future__ import annotations

import argparse
import json
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from lccodec import Balanced

from ..measure.results import add_results, tell
from ..networks.datasets import data_directory
from . import table
from .held_out import HELD_OUT
from .kinds import KINDS, QUICK, Data, Kind
from .later import LATER
from .latest import LATEST
from .restored import measure, outcomes
from .unseen import UNSEEN

POLICIES = ("balanced", "small", "lc-3")
RUNS = KINDS | HELD_OUT | UNSEEN | LATER | LATEST
BOUNDS = {"balanced": 0.25, "small": 0.5}  # intervals


def prepare() -> None:
    """Make a process deterministic: one thread sums in one order."""
    import torch

    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)


def measure_kind(kind: Kind, data: Path, cache: Path, policies: dict[str, Any], seeds: int) -> str:
    """Measure one kind; what a process of the pool does."""
    measure(kind, Data.load(data), cache, policies, seeds)
    return kind.name


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description="what a lossy state costs, in intervals, on many kinds of runs"
    )
    parser.add_argument("--data", metavar="DIR", help="folder of the data sets (default: $LCCODEC_DATA)")
    parser.add_argument(
        "--cache",
        type=Path,
        metavar="DIR",
        default=Path(__file__).parents[1] / "work",
        help="where outcomes are kept (default: benchmarks/work)",
    )
    parser.add_argument("--kinds", nargs="+", choices=RUNS, metavar="KIND", help=f"of {', '.join(RUNS)}")
    parser.add_argument(
        "--policies",
        nargs="+",
        metavar="POLICY",
        help="presets, NAME=JSON of a policy, or intervals=0.25: a promise that the test loss judges",
    )
    parser.add_argument(
        "--only", type=int, nargs=2, metavar=("EVERY", "AT"), help="of each kind: one interval, one iteration"
    )
    parser.add_argument("--seeds", type=int, default=6, metavar="N", help="of the batches (default: 6)")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes (default: 2)")
    parser.add_argument("--quick", action="store_true", help=f"only {', '.join(QUICK)}; three seeds")
    add_results(parser)
    parser.add_argument("--plot", type=Path, metavar="STEM", help="draw STEM.png and STEM.svg")
    return parser.parse_args()


def main() -> int:
    """Measure what is not measured yet, and show everything."""
    arguments = parse_arguments()
    data = data_directory(arguments.data)
    names = arguments.kinds or list(QUICK if arguments.quick else RUNS)
    seeds = min(arguments.seeds, 3) if arguments.quick else arguments.seeds
    kinds = [replace(RUNS[name], only=arguments.only and tuple(arguments.only)) for name in names]
    policies: dict[str, Any] = {}
    for text in arguments.policies or POLICIES:
        name, _, document = text.partition("=")
        value = json.loads(document) if document else name
        promised = isinstance(value, float)
        policies[text if promised else name] = Balanced(intervals=value).to_json() if promised else value
    with ProcessPoolExecutor(arguments.jobs, mp_context=get_context("spawn"), initializer=prepare) as pool:
        made = [pool.submit(measure_kind, kind, data, arguments.cache, policies, seeds) for kind in kinds]
        for future in as_completed(made):
            print(f"done: {future.result()}", file=sys.stderr)
    found = [o for kind in kinds for o in outcomes(arguments.cache, kind, policies, seeds)]
    rows = table.rows(found)
    text = "\n\n".join(
        [
            f"{datetime.now(UTC).date()}; seeds 1 to {seeds} of the batches, 0 of the parameters.",
            table.summary(rows, policies),
            table.markdown(rows, policies),
        ]
    )
    tell(text, "promise.py", arguments.results)
    if arguments.plot:
        table.draw(rows, BOUNDS, arguments.plot)
    return 0
