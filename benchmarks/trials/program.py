"""Real training, restored: lccodec beside the schemes of the literature on the same states.

Run ``python benchmarks/training.py --data DIR``; ``benchmarks/README.md`` says how to read the
tables. What was measured is kept in ``--cache``: a run that was cut short, or whose ``--minutes``
are over, goes on where it stopped when it is started again.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from pathlib import Path

import torch

from ..measure.results import add_results, put_into
from ..networks.datasets import data_directory
from ..schemes.catalogue import catalogue
from . import table
from .pieces import CASES, Piece, pieces

DRAWN = ("gpt every 20", "lenet every 20")
QUICK = ("lenet every 20", "batchnorm every 20", "gpt every 20")


def prepare() -> None:
    """Make a process deterministic: one thread sums in one order."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)


def run_piece(piece: Piece) -> None:
    """Run one piece; what a process of the pool does."""
    piece.run()


def run_all(todo: list[Piece], jobs: int, deadline: float) -> int:
    """Run pieces in order, `jobs` at a time, until the deadline; return how many are left."""
    left = list(todo)
    running: dict[Future[None], Piece] = {}
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=prepare) as pool:
        while running or (left and time.monotonic() < deadline):
            while left and len(running) < jobs and time.monotonic() < deadline:
                ready = next((p for p in left if _is_ready(p, [*running.values(), *left])), None)
                if ready is None:
                    break
                left.remove(ready)
                running[pool.submit(run_piece, ready)] = ready
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                piece = running.pop(future)
                future.result()
                print(f"{len(left)} left, done: {piece.kind} {piece.case}, {piece.scheme}", file=sys.stderr)
    return len(left)


def _is_ready(piece: Piece, others: list[Piece]) -> bool:
    """Whether what a piece needs is there: a run resumes from what a chain restored."""
    return piece.kind != "resume" or not any(
        (other.case, other.scheme, other.kind) == (piece.case, piece.scheme, "chain") for other in others
    )


def train(cases: list[str], data: Path, cache: Path, jobs: int, *, quick: bool) -> None:
    """Make the trajectories that are not there, `jobs` at a time."""
    tuned = [case for case in cases if CASES[case].task == "finetune"]
    # What is tuned starts from the last state of a run, so that comes before; the longest run
    # begins first.
    first = ["gpt every 20"] * bool(tuned) + [case for case in cases if case not in tuned]
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=prepare) as pool:
        for together in (sorted(first, key=lambda case: CASES[case].task != "gpt"), tuned):
            runs = {(CASES[c].task, CASES[c].checkpoints, CASES[c].every): c for c in together}
            made = [pool.submit(train_one, case, data, cache, quick) for case in runs.values()]
            for future in made:
                future.result()


def train_one(case: str, data: Path, cache: Path, quick: bool) -> None:
    """Make the trajectory of one case; what a process of the pool does."""
    CASES[case].trajectory(data, cache, quick=quick)


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="training resumed from restored states, all schemes")
    parser.add_argument("--data", metavar="DIR", help="folder of the data sets (default: $LCCODEC_DATA)")
    parser.add_argument(
        "--cache",
        type=Path,
        metavar="DIR",
        default=Path(__file__).parents[1] / "work",
        help="where trajectories and results are kept (default: benchmarks/work)",
    )
    parser.add_argument("--cases", nargs="+", choices=CASES, metavar="CASE", help=f"of {', '.join(CASES)}")
    parser.add_argument("--schemes", nargs="+", metavar="NAME", help="some of the schemes only")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes (default: 2)")
    parser.add_argument("--minutes", type=float, default=float("inf"), metavar="N", help="stop after so long")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures here")
    add_results(parser)
    parser.add_argument("--plot", type=Path, metavar="STEM", help="draw STEM.png and STEM.svg")
    parser.add_argument("--quick", action="store_true", help="small networks, fewer cases, for a look")
    return parser.parse_args()


def main() -> int:
    """Measure what is not measured yet, and show everything."""
    arguments = parse_arguments()
    data = data_directory(arguments.data)
    prepare()
    deadline = time.monotonic() + 60 * arguments.minutes
    schemes, absent = catalogue()
    if arguments.schemes:
        schemes = [scheme for scheme in schemes if scheme.name in arguments.schemes]
    cases = arguments.cases or list(QUICK if arguments.quick else CASES)
    train(cases, data, arguments.cache, arguments.jobs, quick=arguments.quick)
    asked = pieces(cases, [scheme.name for scheme in schemes], data, arguments.cache, quick=arguments.quick)
    left = run_all([piece for piece in asked if piece.result is None], arguments.jobs, deadline)

    own, lossless = ({s.name for s in schemes if getattr(s, what)} for what in ("own", "lossless"))
    rows = table.gather(asked, own, lossless)
    tables = [text for text in (table.markdown(rows, asked), table.restores(rows)) if text]
    if absent:
        tables.append(f"Not installed: {', '.join(absent)}.")
    if left:
        tables.append(f"{left} of {len(asked)} pieces are not measured yet: run the same command again.")
    print("\n\n".join(tables))
    if arguments.results:
        put_into(arguments.results, "training.py", "\n\n".join(tables))
    if arguments.json:
        report = {"quick": arguments.quick, "torch": torch.__version__, "absent": absent}
        report["rows"] = table.as_json(rows)
        arguments.json.write_text(json.dumps(report, indent=1) + "\n")
    if arguments.plot:
        try:
            table.draw(rows, [case for case in DRAWN if case in cases], arguments.plot)
        except ImportError:
            print("\nNo plot: matplotlib is not installed (extra `plot`).")
    return 1 if left else 0
