"""Whether a report finds what was broken: runs that have a fault, and healthy ones.

Run ``python benchmarks/verdicts.py --data DIR [--quick] [--pages DIR] [--results FOLDER]``.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import torch

from lccodec.inspect.examination import examine
from lccodec.inspect.report import document
from lccodec.report import write_page

from ..measure.results import add_results, machine, tell
from ..networks.datasets import data_directory
from .broken import FAULTS, RUNS, save_run

__all__ = ["Case", "Found", "cases", "look_at", "main", "table"]

SEEDS = range(100, 103)  # no rule of the report was made with them
SAVES, EVERY = 28, 25
LATE = 3  # saves behind the fault, of which one has to be named


class Case(NamedTuple):
    """A run: its network, its fault (None: healthy), its seed, the save behind which it breaks."""

    network: str
    fault: str | None
    seed: int
    at: int


class Found(NamedTuple):
    """What a report says of a case: the state, the first step that is warned of, the sentence."""

    state: str
    step: int | None
    sentence: str


def cases(seeds: range = SEEDS, saves: int = SAVES) -> Iterator[Case]:
    """Yield what is trained: each network with each fault that it can have, and without any."""
    for seed in seeds:
        draw = np.random.default_rng(seed)
        for network in RUNS:
            yield Case(network, None, seed, 0)
            for fault, networks in FAULTS.items():
                if network in networks:
                    yield Case(network, fault, seed, int(draw.integers(saves // 2, saves - 2 * LATE)))


def look_at(case: Case, directory: Path, data: Path, *, saves: int, every: int, page: Path | None) -> Found:
    """Train a case and return what its report says; with `page` write it there, too."""
    save_run(directory, data, case.network, case.fault, seed=case.seed, at=case.at, saves=saves, every=every)
    report = examine(directory)
    if page is not None:
        write_page(document(report), page)
    run = report.runs[0]
    steps = [flag.step for flag in run.flags if flag.severity != "note" and flag.step is not None]
    return Found(run.verdict.state, min(steps, default=None), run.verdict.sentence)


def _right(case: Case, found: Found, every: int) -> bool:
    if case.fault is None:
        return found.state == "healthy"
    first = case.at * every
    return found.step is not None and first <= found.step <= first + LATE * every


def table(found: dict[Case, Found], every: int) -> str:
    """Return the runs of each network and fault, and of how many the report is right."""
    lines = ["| run | " + " | ".join([*FAULTS, "healthy"]) + " |", "|---" + "|---:" * (len(FAULTS) + 1) + "|"]
    for network, name in RUNS.items():
        cells = []
        for fault in [*FAULTS, None]:
            right = [
                _right(case, each, every)
                for case, each in found.items()
                if (case.network, case.fault) == (network, fault)
            ]
            cells.append(f"{sum(right)} of {len(right)}" if right else "-")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main(words: list[str] | None = None) -> int:
    """Train, look, print, store."""
    parser = argparse.ArgumentParser(prog="verdicts.py", description=__doc__.splitlines()[0])
    parser.add_argument("--data", metavar="DIR", help="folder of the data sets (default: $LCCODEC_DATA)")
    parser.add_argument("--quick", action="store_true", help="one seed, short runs")
    parser.add_argument(
        "--pages", type=Path, metavar="DIR", help="keep the pages, and in key.json what is wrong with each"
    )
    add_results(parser)
    options = parser.parse_args(words)
    torch.set_num_threads(1)
    data = data_directory(options.data)
    seeds, every = (SEEDS[:1], 5) if options.quick else (SEEDS, EVERY)
    every_case = list(cases(seeds))
    # Pages have numbers that tell nothing, for a reader who is to find out.
    numbers = np.random.default_rng().permutation(len(every_case)) + 1
    found = {}
    key = {}
    with TemporaryDirectory(prefix="lccodec-verdicts-") as name:
        for number, case in zip(numbers, every_case, strict=True):
            page = options.pages and options.pages / f"run-{number}.html"
            directory = Path(name) / f"run-{number}"
            found[case] = look_at(case, directory, data, saves=SAVES, every=every, page=page)
            key[f"run-{number}"] = case._asdict() | {"step": case.at * every}
            right = "right" if _right(case, found[case], every) else "WRONG"
            print(f"{right}: {case.network}, {case.fault}, {case.at * every}: {found[case].sentence}")
    if options.pages:
        (options.pages / "key.json").write_text(json.dumps(key, indent=1))
    text = (
        f"`python benchmarks/verdicts.py --data DIR{' --quick' * options.quick}`; {machine()}. "
        f"{SAVES} saves of each run, one every {every} iterations, "
        f"seeds {seeds[0]} to {seeds[-1]}, `balanced`.\n\n{table(found, every)}"
    )
    tell(text, "verdicts.py", options.results)
    return 0
