"""What saves cost a training loop, and what workers gain; tables, bounds, JSON, check.

Run ``python benchmarks/overlap.py --data DIR [--quick] [--only SECTION ...] [--json FILE] [--add
FILE ...] [--results FOLDER] [--check]``.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from ..measure.figures import COPY, Figure, better, dump, load, markdown
from ..measure.goals import Goal, missed, summary, table
from ..measure.results import add_results, machine, tell
from ..networks.datasets import data_directory
from . import calls, crews, first, loop, memory
from .bounds import bounds
from .plan import FULL, QUICK, Plan
from .states import Adam, train

__all__ = ["SECTIONS", "main", "measure"]

Section = Callable[[Plan, Adam], tuple[list[Figure], list[str]]]

SECTIONS: Mapping[str, Section] = {
    loop.SECTION: loop.loop,
    calls.SECTION: calls.calls,
    crews.SECTION: crews.crews,
    first.SECTION: first.first,
    crews.SMALL: crews.small,
    memory.SECTION: memory.memory,
}
SECOND_LOOKS = 2  # how often what seems missed is measured again


def measure(plan: Plan, adam: Adam, names: Iterable[str]) -> tuple[list[Figure], list[str]]:
    """Measure the sections of those names; return the figures, and what is not installed."""
    figures: list[Figure] = []
    missing: dict[str, None] = {}
    for name in names:
        start = time.perf_counter()
        found, absent = SECTIONS[name](plan, adam)
        figures += found
        missing |= dict.fromkeys(absent)
        print(f"{name}: {time.perf_counter() - start:.0f} s", file=sys.stderr)
    return figures, list(missing)


def report(figures: list[Figure], missing: list[str]) -> str:
    """Return the tables: bounds first."""
    found = goals(figures)
    noise = max((f.typical for f in figures if f.subject == COPY and f.typical is not None), default=1.0)
    words = [Path(word).name if "/" in word else word for word in sys.argv[1:]]  # the rest is private
    parts = [
        f"`{' '.join(['python', 'benchmarks/overlap.py', *words])}`; {machine()}. "
        f"Not installed or left out: {'; '.join(missing) or 'none'}. "
        f"Noise: np.copyto's median up to {noise:.2f} x its best.",
        f"### Bounds\n\n{summary(found)}\n\n{table(found)}",
        f"### Figures\n\n{markdown(figures)}",
    ]
    return "\n\n".join(parts)


def goals(figures: list[Figure]) -> list[Goal]:
    """Return all bounds."""
    return [goal for found in bounds(figures).values() for goal in found]


def parse_arguments(words: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="overlap.py", description=__doc__.splitlines()[0])
    parser.add_argument("--data", metavar="DIR", help="folder of the data sets (default: $LCCODEC_DATA)")
    parser.add_argument(
        "--only", nargs="*", choices=SECTIONS, metavar="SECTION", help=f"of {', '.join(SECTIONS)}; or none"
    )
    parser.add_argument("--quick", action="store_true", help="small states, few rounds: a minute or two")
    parser.add_argument("--values", type=float, metavar="N", help="of the state (100 million)")
    parser.add_argument("--large", type=float, metavar="N", help="of that of `first array` (250 million)")
    parser.add_argument("--rounds", type=int, metavar="N", help="of all but the loop")
    parser.add_argument("--loops", type=int, metavar="N", help="rounds of the loop")
    parser.add_argument("--directory", type=Path, metavar="DIR", help="where to write (default: temporary)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument(
        "--add", type=Path, nargs="+", default=[], metavar="FILE", help="report figures of --json as well"
    )
    add_results(parser)
    parser.add_argument("--check", action="store_true", help="exit 1 if a bound is missed")
    return parser.parse_args(words)


def plan_of(options: argparse.Namespace, directory: Path) -> Plan:
    """Return what the command line asks for."""
    plan = QUICK if options.quick else FULL
    return replace(
        plan,
        data=data_directory(options.data),
        directory=directory,
        values=int(options.values or plan.values),
        large=int(options.large or plan.large),
        rounds=options.rounds or plan.rounds,
        loops=options.loops or plan.loops,
    )


def main(words: list[str] | None = None) -> int:
    """Measure, print, store, check; return the exit status."""
    options = parse_arguments(words)
    names = list(SECTIONS) if options.only is None else options.only
    with TemporaryDirectory(prefix="lccodec-overlap-", dir=options.directory) as directory:
        figures: list[Figure] = []
        missing: list[str] = []
        plan = replace(QUICK, directory=Path(directory))
        adam: Adam | None = None
        if names:
            plan = plan_of(options, Path(directory))
            adam = Adam(list(train(plan.data, plan.depth + 1, quick=plan.small_network)), plan.values)
            for name in names:
                found, absent = measure(plan, adam, [name])
                figures, missing = [*figures, *found], [*missing, *absent]
                _store(options, figures, missing)  # a run that is cut short leaves what it has measured
            missing = list(dict.fromkeys(missing))
        known = {f.key for f in figures}
        figures += [f for path in options.add for f in load(path) if f.key not in known]
        text = report(figures, missing)
        tell(text, "overlap.py", options.results)
        _store(options, figures, missing)
        if not options.check:
            return 0
        return _check(figures, lambda again: measure(plan, adam, again)[0] if adam else [])


def _store(options: argparse.Namespace, figures: list[Figure], missing: list[str]) -> None:
    if options.json:
        dump(figures, {"quick": options.quick, "missing": missing}, options.json)


def _check(figures: list[Figure], again: Callable[[list[str]], list[Figure]]) -> int:
    """Measure again what seems missed; print what is missed, and return the exit status."""
    for _ in range(SECOND_LOOKS):
        over = [name for name, found in bounds(figures).items() if missed(found)]
        if not over:
            break
        figures = better(figures, again(over))
    found = goals(figures)
    if all(goal.measured is None for goal in found):
        print("\nno bound was measured")
        return 2
    lines = [f"{goal.what}: {goal.state}" for goal in missed(found)]
    print("\n".join(["\nMissed:", *lines] if lines else ["\nNothing missed."]))
    return 1 if lines else 0
