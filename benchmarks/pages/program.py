"""What a report takes: time, memory and size, and the time until a browser shows it.

Run ``python benchmarks/report.py --data DIR [--quick] [--results FOLDER]``.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import lccodec
from lccodec.report import write_page

from ..measure.goals import Goal, missed, summary, table
from ..measure.results import add_results, machine, tell
from ..networks.datasets import data_directory
from .large import large

__all__ = ["main", "measure_chain", "measure_opening"]

STEPS, QUICK_STEPS = 100, 4
OPENINGS = 5  # of which the median counts
MAX_SECONDS, MAX_STATES, MAX_MB, MAX_FIRST_SECONDS, MAX_OPENING_SECONDS = 60, 3, 6, 1, 2

#: Runs a command, and prints the most memory that it or one of its processes has had, in KiB.
WATCHED = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def make_chain(data: Path, directory: Path, steps: int, every: int, *, quick: bool) -> int:
    """Train the GPT and save it every so many iterations; return the bytes of a state."""
    import torch

    from ..networks.tasks import Run, nested, task

    torch.set_num_threads(1)
    run = Run(task("gpt", data, quick=quick))
    with lccodec.Chain(directory) as chain:
        for step in range(steps):
            run.advance(every, seed=0)
            chain.save(step, nested(run.state()))
        return chain.info(step).nbytes


def watched(*words: object) -> tuple[float, int]:
    """Run the command line; return its seconds, and the memory of its largest process in bytes."""
    start = time.perf_counter()
    command = [sys.executable, "-c", WATCHED, sys.executable, "-m", "lccodec", *map(str, words)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return time.perf_counter() - start, 1024 * int(done.stdout)


def measure_chain(chain: Path, file: Path, state_bytes: int) -> list[Goal]:
    """Make the report of a chain; memory is what goes beyond that of a program that lists it."""
    _, before = watched("ls", chain)
    seconds, most = watched("report", chain, "-o", file)
    states = (most - before) / state_bytes
    return [
        Goal("the GPT's chain: time", seconds, MAX_SECONDS, unit="s"),
        Goal("the GPT's chain: memory, over the state's", states, MAX_STATES, unit="states"),
        Goal("the GPT's chain: size of the page", file.stat().st_size / 1e6, MAX_MB, unit="MB"),
    ]


@contextmanager
def chromium() -> Iterator[Any]:
    """Start the system's Chromium without a window."""
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium")
    if program is None:
        raise SystemExit("no Chromium: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        )
        try:
            yield browser
        finally:
            browser.close()


def measure_opening(what: str, file: Path, openings: int) -> list[Goal]:
    """Return the seconds until a page's first and its last chart are on the screen, medians."""
    frames = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
    first, last = [], []
    with chromium() as browser:
        for _ in range(openings):
            page = browser.new_page(viewport={"width": 1280, "height": 800})
            start = time.perf_counter()
            page.goto(file.as_uri())
            page.wait_for_selector(".chart svg", state="attached")
            page.evaluate(frames)
            first.append(time.perf_counter() - start)
            page.wait_for_selector("html[data-state=ready]", state="attached")
            page.evaluate(frames)
            last.append(time.perf_counter() - start)
            page.close()
    return [
        Goal(f"{what}: until Chromium shows its first chart", median(first), MAX_FIRST_SECONDS, unit="s"),
        Goal(f"{what}: until Chromium has drawn it", median(last), MAX_OPENING_SECONDS, unit="s"),
    ]


def measure_large(file: Path, steps: int, arrays: int, openings: int = OPENINGS) -> list[Goal]:
    """Write and open a page as large as they get."""
    document = large(steps, arrays)
    start = time.perf_counter()
    size = write_page(document, file)
    seconds = time.perf_counter() - start
    what = f"{steps} steps x {arrays} arrays"
    return [
        Goal(f"{what}: writing the page", seconds, MAX_SECONDS, unit="s"),
        Goal(f"{what}: size of the page", size / 1e6, MAX_MB, unit="MB"),
        *measure_opening(what, file, openings),
    ]


def main(words: list[str] | None = None) -> int:
    """Measure, print, store; return 1 if a bound is missed."""
    parser = argparse.ArgumentParser(prog="report.py", description=__doc__.splitlines()[0])
    parser.add_argument("--data", metavar="DIR", help="folder of the data sets (default: $LCCODEC_DATA)")
    parser.add_argument("--quick", action="store_true", help="a small network, few steps: some seconds")
    parser.add_argument("--every", type=int, default=5, metavar="N", help="iterations between saves (5)")
    add_results(parser)
    options = parser.parse_args(words)
    steps = QUICK_STEPS if options.quick else STEPS
    with TemporaryDirectory(prefix="lccodec-report-") as name:
        directory = Path(name)
        data = data_directory(options.data)
        nbytes = make_chain(data, directory / "chain", steps, options.every, quick=options.quick)
        found = measure_chain(directory / "chain", directory / "chain.html", nbytes)
        found += measure_opening("the GPT's chain", directory / "chain.html", OPENINGS)
        found += measure_large(directory / "large.html", *((20, 30) if options.quick else (200, 300)))
    text = (
        f"`python benchmarks/report.py --data DIR{' --quick' * options.quick}`; {machine()}. "
        f"The chain has {steps} steps of {nbytes / 1e6:.1f} MB.\n\n{summary(found)}\n\n{table(found)}"
    )
    tell(text, "report.py", options.results)
    return 1 if missed(found) else 0
