"""Throughput of lccodec beside np.copyto of the same bytes, other compressors and writers.

Every figure is a ratio measured in interleaved rounds of one run; the best round counts. Prints
markdown tables and the distance to each bound; ``benchmarks/README.md`` says how to read them.

Run ``python benchmarks/throughput.py [--data DIR] [--states FILE.npz] [--quick] [--only SECTION
...] [--elements N ...] [--json FILE] [--add FILE ...] [--results FOLDER] [--check [FILE]]``.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory

import lccodec

from ..measure.figures import COPY, Figure, better, dump, load, losses, markdown
from ..measure.goals import missed, summary, table
from ..measure.results import add_results, machine, put_into
from ..networks.datasets import data_directory
from . import arrays, bundles, chains, newest, stages, tensors
from .forms import SECTION as FORMS
from .forms import forms
from .goals import bounds, goals
from .inputs import Walk, load_walk, train_states
from .memory import memory
from .plan import FULL, QUICK, Plan
from .settled import SECTION, settled
from .updates import SECTION as UPDATES
from .updates import updates

Section = Callable[[Plan, Walk], tuple[list[Figure], list[str]]]

SECTIONS: Mapping[str, Section] = {
    "settled": settled,
    "real": arrays.real,
    "zeros": arrays.zeros,
    "dtypes": arrays.dtypes,
    "huffman": arrays.huffman,
    UPDATES: updates,
    FORMS: forms,
    "save": chains.save,
    "restore": chains.restore,
    "newest": newest.newest,
    "bundle": bundles.bundles,
    "tensor": tensors.one,
    "many": tensors.many,
    "memory": memory,
    "profile": stages.profile,
}
TOLD = "profile"  # the section that says where the time goes
WALKING = set(SECTIONS) - {SECTION, UPDATES, FORMS, "huffman"}  # sections on states of LeNet-5
NOTHING_STORED = Path()  # `--check` without a file
SECOND_LOOKS = 2  # how often what seems lost is measured again
PACKAGES = (
    "numpy", "h5py", "zstandard", "pcodec", "blosc2", "hdf5plugin", "zfpy", "zipnn", "openzl", "safetensors",
    "torch", "orbax-checkpoint", "numba",
)  # fmt: skip


def measure(plan: Plan, walk: Walk, names: Iterable[str]) -> tuple[list[Figure], list[str]]:
    """Measure the sections of those names; return the figures, and the peers not installed."""
    figures: list[Figure] = []
    missing: dict[str, None] = {}
    for name in names:
        found, absent = SECTIONS[name](plan, walk)
        figures += found
        missing |= dict.fromkeys(absent)
    return figures, list(missing)


def check(
    figures: list[Figure], stored: list[Figure], again: Callable[[set[str]], list[Figure]]
) -> list[str]:
    """Return a line for each bound that is missed, and for each loss against stored figures.

    What seems missed or lost is measured again first.
    """
    for _ in range(SECOND_LOOKS):
        sections = {figure.section for figure, _ in losses(figures, stored)}
        sections |= {name for name, found in bounds(figures).items() if missed(found)}
        if not sections:
            break
        figures = better(figures, again(sections))
    return [
        *(f"{goal.what}: {goal.state}" for goal in missed(goals(figures))),
        *(
            f"{' / '.join(f.key)}: {f.ratio:.3g} x {f.base}, {f.ratio / before - 1:+.0%}"
            for f, before in losses(figures, stored)
        ),
    ]


def noise(figures: Iterable[Figure]) -> float:
    """Return the worst median of np.copyto over its best: 1 on a quiet machine."""
    return max((f.typical for f in figures if f.subject == COPY and f.typical is not None), default=1.0)


def versions() -> dict[str, str]:
    """Return the versions of the packages that are measured, as far as they are installed."""
    found = {}
    for package in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


def report(figures: list[Figure], missing: list[str]) -> str:
    """Return the tables: distance to the bounds, ratios, a profile."""
    found = goals(figures)
    about = f"{machine()}, "
    about += ", ".join(f"{name} {version}" for name, version in versions().items())
    about += f"; loops: {lccodec.kernels()}"
    told = [f for f in figures if f.section == TOLD]
    parts = [
        f"`{' '.join(['python', 'benchmarks/throughput.py', *shown(sys.argv[1:])])}`; {about}. "
        f"Not installed or left out: {'; '.join(missing) or 'none'}. "
        f"Noise: np.copyto's median up to {noise(figures):.2f} x its best.",
        f"### Bounds\n\n{summary(found)}\n\n{table(found)}",
        f"### Ratios to np.copyto\n\n{markdown([f for f in figures if f not in told])}",
    ]
    if told:
        parts.append(f"### Where the time goes\n\n{markdown(told)}")
    return "\n\n".join(parts)


def shown(arguments: Iterable[str]) -> list[str]:
    """Return the command line with the last part of each path: the rest is private."""
    return [Path(argument).name if "/" in argument else argument for argument in arguments]


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--states", type=Path, metavar="FILE", help="states of lenet.py --states")
    parser.add_argument(
        "--data", metavar="DIR", help="folder of the data sets: trains the GPT, and LeNet-5 without --states"
    )
    parser.add_argument(
        "--elements", type=float, nargs="+", metavar="N", help="sizes of the arrays, 1e3 to 1e9"
    )
    parser.add_argument("--state", type=float, metavar="N", help="values of the state that is saved")
    parser.add_argument(
        "--only", nargs="*", choices=SECTIONS, metavar="SECTION", help=f"of {', '.join(SECTIONS)}; or none"
    )
    parser.add_argument("--quick", action="store_true", help="small arrays, few rounds: under a minute")
    parser.add_argument("--rounds", type=int, metavar="N")
    parser.add_argument(
        "--directory", type=Path, metavar="DIR", help="where to write (default: a temporary one)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument(
        "--add", type=Path, nargs="+", default=[], metavar="FILE", help="report figures of --json as well"
    )
    add_results(parser)
    parser.add_argument(
        "--check",
        type=Path,
        nargs="?",
        const=NOTHING_STORED,
        metavar="FILE",
        help="exit 1 if a bound is missed, or if something is slower than in a file of --json",
    )
    return parser.parse_args()


def plan_of(options: argparse.Namespace, directory: Path) -> Plan:
    """Return what the command line asks for."""
    changes: dict[str, object] = {"directory": directory, "states": options.states}
    if options.data:
        changes["data"] = data_directory(options.data)
    if options.elements:
        changes["sizes"] = tuple(int(size) for size in options.elements)
    if options.state:
        changes["state"] = int(options.state)
    if options.rounds:
        changes["rounds"] = options.rounds
    return replace(QUICK if options.quick else FULL, **changes)


def main() -> int:
    """Measure, print, store, compare; return the exit status."""
    options = parse_arguments()
    start = time.perf_counter()
    names = list(SECTIONS) if options.only is None else options.only
    compares = options.check not in (None, NOTHING_STORED)
    stored = load(options.check) if compares else []
    with TemporaryDirectory(prefix="lccodec-throughput-", dir=options.directory) as directory:
        if options.data and not options.states and WALKING.intersection(names):
            options.states = Path(directory) / "states.npz"
            train_states(options.data, options.states)
        plan = plan_of(options, Path(directory))
        walk = load_walk(options.states)
        figures, missing = measure(plan, walk, names)
        known = {f.key for f in figures}
        figures += [f for path in options.add for f in load(path) if f.key not in known]
        text = report(figures, missing)
        print(f"{text}\n\n{time.perf_counter() - start:.0f} s")
        if options.results:
            put_into(options.results, "throughput.py", text)
        if options.json:
            about = {"data": walk.source, "quick": options.quick, "versions": versions(), "missing": missing}
            dump(figures, about, options.json)
        if options.check is None:
            return 0

        def again(sections: set[str]) -> list[Figure]:
            return measure(plan, walk, [name for name in names if name in sections])[0]

        if compares and not {f.key for f in figures} & {f.key for f in stored}:
            print(f"{options.check.name}: none of its figures was measured")
            return 2
        if not compares and all(goal.measured is None for goal in goals(figures)):
            print("no bound was measured")
            return 2
        worse = check(figures, stored, again)
    print(
        "\n".join(["\nMissed, or lost more than 15 %:", *worse] if worse else ["\nNothing missed or lost."])
    )
    return 1 if worse else 0
