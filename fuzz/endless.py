"""Fuzz all targets in turn until it is stopped: ``python fuzz/endless.py LOG [--seconds N]``.

Each turn is a process of ``run.py`` with a seed of its own, which rises. LOG gets a line of each:
when, the target, the seed, its runs, all runs of the target so far, and all runs. A started LOG
goes on where it ended. What breaks an invariant is told there, too, and in ``fuzz/work/TARGET/``.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Final

from run import TARGETS

HERE: Final = Path(__file__).parent
_LINE: Final = re.compile(r"^\S+ \S+ (\w+) seed (\d+): ([\d,]+) runs", re.MULTILINE)
_RUNS: Final = re.compile(r"^(\d+) runs,", re.MULTILINE)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("log", type=Path, metavar="LOG")
    parser.add_argument("--seconds", type=float, default=300, help="of one target at a time")
    parser.add_argument("--only", nargs="*", choices=TARGETS, default=TARGETS)
    arguments = parser.parse_args()
    counts, seed = Counter[str](), 0
    if arguments.log.exists():
        for target, number, runs in _LINE.findall(arguments.log.read_text()):
            counts[target] += int(runs.replace(",", ""))
            seed = max(seed, int(number))
    while True:
        seed += 1
        for target in arguments.only:
            runs, told = _turn(target, seed, arguments.seconds)
            counts[target] += runs
            line = f"{time.strftime('%F %T')} {target} seed {seed}: {runs:,} runs, {counts[target]:,} of it, "
            line += f"{counts.total():,} of all"
            with arguments.log.open("a") as log:
                print(line, *told, sep="\n  ", file=log)


def _turn(target: str, seed: int, seconds: float) -> tuple[int, list[str]]:
    """Run a target; return how many inputs it ran, and what is wrong, in lines."""
    command = [sys.executable, HERE / "run.py", target, "--engine", "mutation"]
    command += ["--seconds", str(seconds), "--seed", str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    match = _RUNS.search(done.stdout)
    wrong = done.returncode != 0
    return int(match[1]) if match else 0, (done.stdout + done.stderr).splitlines() if wrong else []


if __name__ == "__main__":
    main()
