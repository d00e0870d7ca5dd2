"""Fields of simulations and measurements: bytes beside SZ3 and others, restarts of the solvers."""

from __future__ import annotations

import argparse
import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from ..measure.goals import Goal, summary, table
from ..measure.results import add_results, tell
from .chemistry import Restart, chemistry, density
from .coders import CODERS
from .gray_scott import gray_scott
from .measured import MEASURED
from .restarts import Run, restart_chemistry, restart_simulation
from .sedov import sedov
from .simulation import Simulation
from .sizes import BOUNDS, Case, Sizes, mean, measure_alone, measure_deltas

__all__ = ["goals", "main", "restart_tables", "size_tables"]

SZ3_OVER_OURS = {1e-3: (0.9, 1.1), 1e-5: (1.0, 1.2), 1e-7: (1.2, 1.5)}  # must be, goal: more is better
STEPS_OVER_OURS = (1.5, 3.0)
SECONDS_OVER_SZ3 = (1.5, 0.7)
TIMED_VALUES = 100_000  # smaller fields are calls, not coding
PACKAGES = ("numpy", "h5py", "hdf5plugin", "pcodec", "blosc2", "zstandard", "pyscf", "iris-sample-data")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the tables, and return 1 if a bound is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small fields")
    add_results(parser)
    given = parser.parse_args(arguments)
    simulations = [sedov(48), gray_scott(24)] if given.quick else [sedov(192), gray_scott(96)]
    cases = [Case(each.name, each.checkpoints(4)) for each in simulations]
    absent = []
    restarts: list[Restart] = []
    try:
        restarts = chemistry(small=given.quick)
        kept = {
            f"{restart.name} {name}": [state[name] for state in restart.states]
            for restart in restarts
            for name in restart.states[0]
        }
        count = min(map(len, kept.values()))
        states = [{name: each[k - count] for name, each in kept.items()} for k in range(count)]
        cases += [Case("PySCF restart", states), Case("PySCF density", [density(small=given.quick)], False)]
    except ImportError:
        absent.append("pyscf")
    for field in MEASURED:
        values = field.read()
        if values is None:
            absent.append(field.package)
            continue
        counted = field.package == "iris_sample_data"
        months = [{field.variable: each} for each in values] if values.ndim == 3 else []
        cases.append(Case(field.name, [{field.variable: values}], counted))
        if months:
            cases.append(Case(f"{field.name}, by time", months, counted))
    alone = [
        measure_alone(case, bound) for case in cases if not case.name.endswith("time") for bound in BOUNDS
    ]
    deltas = [measure_deltas(case, bound) for case in cases if len(case.states) > 1 for bound in BOUNDS]
    found = goals(alone, deltas)
    text = "\n\n".join(
        [
            _about(absent),
            table(found),
            summary(found),
            size_tables(alone, "Alone", tuple(CODERS)),
            size_tables(deltas, "Deltas", ("Smooth", "UniformDeadzone", "SZ3")),
            time_table(alone),
            *restart_tables(simulations, restarts),
        ]
    )
    tell(text, "fields.py", given.results)
    return int(any(not goal.is_met for goal in found))


def goals(alone: Sequence[Sizes], deltas: Sequence[Sizes]) -> list[Goal]:
    """Return the numbers of the issue: bytes over SZ3's, so that less is better."""
    found = []
    for what, sizes in (("fields", alone), ("deltas", deltas)):
        for bound in BOUNDS:
            here = [each for each in sizes if each.bound == bound and each.case.counted]
            must, goal = SZ3_OVER_OURS[bound]
            over = mean([1 / each.gain("SZ3") for each in here])
            aim = 1 / goal if what == "fields" else None
            found.append(Goal(f"{what}, {bound:.0e} of the range: bytes over SZ3's", over, 1 / must, aim))
    for bound in BOUNDS:
        here = [each for each in alone if each.bound == bound and each.case.counted]
        over = mean([1 / each.gain("UniformDeadzone") for each in here])
        must, goal = STEPS_OVER_OURS
        found.append(Goal(f"fields, {bound:.0e}: bytes over UniformDeadzone's", over, 1 / must, 1 / goal))
    timed = [each for each in alone if _is_timed(each)]
    for place, action in enumerate(("encode", "decode")):
        if timed:
            ratios = [each.seconds("Smooth")[place] / each.seconds("SZ3")[place] for each in timed]
            found.append(Goal(f"{action}: seconds over SZ3's", mean(ratios), *SECONDS_OVER_SZ3))
    broken = sum(each.violations["Smooth"] for each in (*alone, *deltas))
    found.append(Goal("arrays whose bound is violated", float(broken), 0.0))
    return found


def size_tables(sizes: Sequence[Sizes], title: str, coders: Sequence[str]) -> str:
    """Return how many times less than raw each coder takes, and the bytes of SZ3 over ours."""
    head = ["bound", *coders, "SZ3 / Smooth"]
    lines = [f"**{title}**: raw bytes over coded bytes, at the largest error that `Smooth` makes"]
    for case in dict.fromkeys(each.case.name for each in sizes):
        here = [each for each in sizes if each.case.name == case]
        note = "" if here[0].case.counted else ", not in the means"
        lines += ["", f"{case} ({here[0].raw / 1e6:.3g} MB{note})", "", *_header(head)]
        for each in here:
            cells = [_ratio(each, coder) for coder in coders]
            lines.append(_row([f"{each.bound:.0e}", *cells, f"{each.gain('SZ3'):.2f}"]))
    return "\n".join(lines)


def time_table(sizes: Sequence[Sizes]) -> str:
    """Return milliseconds of the larger fields, encoding and decoding."""
    coders = ("Smooth", "UniformDeadzone", "SZ3", "ZFP", "SPERR", "steps, pcodec")
    lines = ["**Time**: milliseconds to encode and to decode, one core", ""]
    lines += _header(["field", "bound", *coders])
    for each in filter(_is_timed, sizes):
        pairs = (each.seconds(coder) for coder in coders)
        cells = [f"{encode * 1e3:.1f}, {decode * 1e3:.1f}" for encode, decode in pairs]
        lines.append(_row([each.case.name, f"{each.bound:.0e}", *cells]))
    return "\n".join(lines)


def restart_tables(simulations: Sequence[Simulation], restarts: Sequence[Restart]) -> list[str]:
    """Restart each solver at each bound; return the tables."""
    found = []
    for simulation in simulations:
        own, runs = restart_simulation(simulation)
        about = f"its own error, what half the time step changes, is {own:.1e} of the range"
        found.append(_restart_table(simulation.name, about, runs))
    for restart in restarts:
        runs = restart_chemistry(restart)
        found.append(_restart_table(restart.name, "the first row is of the exact state", runs))
    return found


def _restart_table(name: str, about: str, runs: Sequence[Run]) -> str:
    good = [run for run in runs if run.is_as_exact and run.bound]
    best = max(good, key=lambda run: run.bound, default=None)
    last = "no bound goes on as the exact state does"
    if best is not None:
        last = f"it goes on as from the exact state up to {best.bound:.0e} of the range: {best.ratio:.1f}x"
    columns = list(runs[-1].cells)
    lines = [
        f"**Restart of {name}**: {about}; {last}",
        "",
        *_header(["bound", "ratio", *columns, "as exact"]),
    ]
    for run in runs:
        cells = [run.cells[column] for column in columns]
        as_exact = "yes" if run.is_as_exact else "no"
        lines.append(_row([f"{run.bound:.0e}" if run.bound else "0", f"{run.ratio:.1f}x", *cells, as_exact]))
    return "\n".join(lines)


def _is_timed(sizes: Sizes) -> bool:
    return min(each.size for each in sizes.case.states[-1].values()) >= TIMED_VALUES


def _ratio(sizes: Sizes, coder: str) -> str:
    shown = f"{sizes.raw / sizes.bytes(coder):.2f}"
    return f"{shown} (!)" if sizes.violations[coder] else shown


def _about(absent: Sequence[str]) -> str:
    versions = []
    for package in PACKAGES:
        try:
            versions.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    left_out = ", ".join(dict.fromkeys(absent)) or "none"
    return (
        f"`python benchmarks/fields.py`; {platform.machine()}, Python {platform.python_version()}, "
        f"{', '.join(versions)}. Not installed: {left_out}."
    )


def _header(columns: Sequence[str]) -> list[str]:
    return [_row(columns), "|---|" + "---:|" * (len(columns) - 1)]


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
