"""The verbs that show what is stored, and check it: info, show, diff, check, report."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import click

import lccodec

from ..adapters import seals
from ..adapters.files.formats import recognize
from ..adapters.files.states import open_originals
from ..adapters.ranks import check_together, repairable
from ..chain.overview import figures_words, role_words
from ..chain.read.checkpoint import open_path, with_exact
from ..chain.read.links import Bounds
from ..chain.read.validate import Problem
from ..chain.store.directory import DirectoryStore, is_chain, open_store
from ..container.system import Address, Place
from ..errors import ArgumentError, DependencyError, FormatError
from ..inspect.difference import Leaves, compare_states, summarize
from ..inspect.examination import examine
from ..inspect.report import Report, Run, document
from ..inspect.trajectory import course
from ..table import printable, size_text
from . import render
from .convert import describe_foreign, foreign_text
from .program import (
    CHAIN_OR_FILE,
    NEW,
    STEP,
    bounds_options,
    history_option,
    place_argument,
    rows_option,
    say,
    step_option,
    threads_option,
    verb,
)
from .render import quality_document, sparkline


@verb
@click.argument("path", type=CHAIN_OR_FILE)
@step_option
def info(path: Place, step: int | None, as_json: bool) -> None:
    """Show what is known about a checkpoint and its arrays, without decoding them.

    Of a file of another kind, say what it is and how to convert or save it.
    """
    try:
        with open_path(path, step=step, exact=False) as file:
            checkpoint = file.info()
        if is_chain(path):
            with open_store(path) as store:
                checkpoint = with_exact(checkpoint, store)
    except FormatError:
        foreign = describe_foreign(path) if isinstance(path, Path) and path.is_file() else None
        if foreign is None:
            raise
        say(render.dump_json(foreign) if as_json else foreign_text(foreign))
        return
    about = {**render.checkpoint_document(checkpoint), **quality_document(checkpoint)}
    document = {"path": str(path), **about, "arrays": checkpoint.arrays}
    say(render.dump_json(document) if as_json else render.arrays_text(checkpoint))


@verb
@click.argument("path", type=CHAIN_OR_FILE)
@click.argument("name")
@step_option
@history_option
@click.option("--over-time", is_flag=True, help="Also what the array is at every step of the chain.")
@rows_option
@bounds_options
def show(  # one parameter for each option: click passes them by name
    path: Place,
    name: str,
    step: int | None,
    history: bool,
    over_time: bool,
    rows: slice | None,
    bounds: Bounds,
    as_json: bool,
) -> None:
    """Show one array: role, dtype, shape, range, and a histogram; or the value of a scalar."""
    if over_time and rows is not None:
        raise ArgumentError("--over-time is about whole arrays: leave --rows out")
    with open_path(path, step=step, exact=not history, bounds=bounds) as file:
        leaves, about = Leaves(file), file.info()
        whole = rows is None and name in leaves
        # the error of `get` suggests the nearest name
        leaf = leaves[name] if whole else file.get(name, "bits", rows)
        index = file.links[-1].paths.get(name)
    place = {"path": str(path), "step": about.step, "name": name, "exact": about.exact}
    if index is None:
        say(render.dump_json({**place, "value": leaf}) if as_json else printable(repr(leaf)))
        return
    figures, array = summarize(leaf), about.arrays[index]
    policy = {"role": array.role, "why": array.why, "quantizer": array.quantizer}
    document = {**place, **policy, **asdict(figures)}
    parts = [render.summary_text(replace(array, name=name), about.step, figures, about.exact)]
    if over_time:
        if not is_chain(path):
            raise ArgumentError(f"--over-time needs a chain; {path} is a file")
        with open_store(path) as store, render.progress("reading") as update:
            over_steps = course(store, array, update)
        series = {figure: values[0] for figure, values in over_steps.finish().items()}
        document["over_time"] = {"steps": over_steps.steps, **series}
        parts.append(render.course_text(over_steps.steps, series))
    say(render.dump_json(document) if as_json else "\n\n".join(parts))


@verb
@place_argument
@click.argument("old", metavar="STEP", type=STEP)
@click.argument("new", metavar="STEP", type=STEP)
@bounds_options
def diff(place: Place, old: int, new: int, bounds: Bounds, as_json: bool) -> None:
    """Show what changed between two steps of a chain or a bundle, and by how much."""
    with (
        open_path(place, step=old, exact=False, bounds=bounds) as before,
        open_path(place, step=new, exact=False, bounds=bounds) as after,
        render.progress("comparing") as update,
    ):
        difference = compare_states(Leaves(before), Leaves(after), update)
        arrays = after.info().arrays
        roles = {array.name: array.role for array in arrays}
        lossy = {array.name for array in (*before.info().arrays, *arrays) if array.lossy}
    document = {"directory": str(place), "old": old, "new": new, **asdict(difference)}
    document["changed"] = [
        {**row, "role": roles.get(row["name"]), "lossy": row["name"] in lossy} for row in document["changed"]
    ]
    say(render.dump_json(document) if as_json else render.difference_text(difference, roles, lossy))


@verb
@click.argument("paths", metavar="PATH...", type=CHAIN_OR_FILE, nargs=-1, required=True)
@click.option("--deep", is_flag=True, help="Also decode every array.")
@threads_option
@bounds_options
def check(paths: tuple[Place, ...], deep: bool, threads: int, bounds: Bounds, as_json: bool) -> int:
    """Check chains, bundles, checkpoint files, and what is sealed; print every problem.

    Of a sealed directory or file, say which files have changed, are missing or are new.
    """
    checked = []
    with render.progress("checking") as update:
        for done, path in enumerate(paths, 1):
            checked.append((path, _checked(path, deep, threads, bounds)))
            update(done, len(paths))
    count = sum(len(problems) for _, problems in checked)
    if as_json:
        results = [
            {
                "path": str(path),
                "problems": problems,
                "repairable": repairable(path, bounds) if problems else None,
            }
            for path, problems in checked
        ]
        say(render.dump_json({"sound": not count, "deep": deep, "paths": results}))
    else:
        for path, problems in checked:
            for p in problems:
                say(printable(f"{path}: {_below(path, p.where)}{p.message} [{p.rule}]"))
            if not problems:
                say(printable(f"{path}: sound"))
            elif (answer := repairable(path, bounds)) is not None:
                say(printable(f"{path}: repairable: {answer}"))
    return 1 if count else 0


def _below(path: Place, where: str) -> str:
    """Return the place of a problem below a path, as words before it; empty if it is the path."""
    rest = where.removeprefix(str(path))
    if len(rest) < len(where) and rest[:1] in ("", ":", "/", os.sep):
        where = rest.lstrip(f":/{os.sep} ")
    return f"{where}: " if where else ""


def _checked(path: Place, deep: bool, threads: int, bounds: Bounds) -> list[Problem]:
    """Return what is wrong with a path: by its seal, and as a chain or a file of lccodec."""
    if isinstance(path, Address) or not seals.is_sealed(path):
        return check_together(path, deep, bounds)
    problems = seals.check(path, threads=threads)
    if path.is_dir():
        is_own = bool(DirectoryStore(path).steps())
    else:
        kind = recognize(path)
        is_own = kind is not None and kind.name in ("checkpoint", "bundle")
    return [*problems, *check_together(path, deep, bounds)] if is_own else problems


_RANGE: Final = re.compile(r"([0-9]{0,16}):([0-9]{0,16})(?::([0-9]{1,16}))?|([0-9]{1,16})")
_LAST: Final = 1 << 62
_MAX_FLAGS: Final = 12  # that the shell shows of a run
_MAX_SCALARS: Final = 4


class _Steps:
    """Steps as in ``0,100:200,1000:2000:50``; a range has its ends."""

    def __init__(self, ranges: Sequence[range]) -> None:
        self._ranges = ranges

    def __contains__(self, step: object) -> bool:
        return any(step in steps for steps in self._ranges)


def _steps(context: click.Context, parameter: click.Parameter, text: str | None) -> _Steps | None:
    if text is None:
        return None
    ranges = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None or match[3] == "0":
            message = f"must be steps such as 100,200 or 0:1000 or 0:1000:50; got {text!r}"
            raise click.BadParameter(message, context, parameter)
        if match[4] is not None:
            ranges.append(range(int(match[4]), int(match[4]) + 1))
        else:
            ranges.append(range(int(match[1] or 0), int(match[2] or _LAST) + 1, int(match[3] or 1)))
    return _Steps(ranges)


@verb
@click.argument("path", type=CHAIN_OR_FILE)
@click.argument("other", type=CHAIN_OR_FILE, required=False)
@click.option(
    "--steps",
    callback=_steps,
    help="Steps to show: 100,200 or 0:1000 or 0:1000:50.  [default: all, or evenly spaced ones]",
)
@click.option(
    "--against",
    type=CHAIN_OR_FILE,
    help="Originals, to show what was lost: a chain, or a directory of files named by step.",
)
@click.option("-o", "--output", metavar="FILE", type=NEW, help="The page.  [default: report.html]")
@click.option("--tensorboard", "logdir", metavar="DIR", type=NEW, help="Write events for TensorBoard there.")
def report(
    path: Place,
    other: Place | None,
    steps: _Steps | None,
    against: Place | None,
    output: Path | None,
    logdir: Path | None,
    as_json: bool,
) -> None:
    """Write a page about a chain, a bundle or a file, or about two of them side by side.

    It shows which checkpoints are intact, where the bytes go, how every array moved, and, given
    originals or an exact file, what was lost. With only --json or --tensorboard, no page is
    written.
    """
    wants_page = output is not None or not (as_json or logdir)
    target = output or Path("report.html")
    if wants_page:
        _check_page(target)
    if logdir is not None and other is not None:
        raise click.UsageError("--tensorboard needs exactly one PATH")
    originals = None if against is None else open_originals(against)
    with render.progress("examining") as update:
        examined = examine(
            path, other, steps=steps, against=originals, version=lccodec.__version__, progress=update
        )
    made, written = document(examined), dict[str, str]()
    if wants_page:
        from ..report import write_page

        written["page"] = f"{target}, {write_page(made, target):,} bytes"
    if logdir is not None:
        from ..adapters.tensorboard import write_events

        written["events"] = f"{logdir}, {write_events(examined.runs[0], logdir):,} scalars and histograms"
    if as_json:  # one line: a line for each number would be five times as long
        say(json.dumps(made, allow_nan=False, separators=(",", ":")))
    else:
        say(report_text(examined, written))


def _check_page(target: Path) -> None:
    """Refuse a page that cannot be written before the work, which may take minutes."""
    if target.is_dir() or not target.parent.is_dir():
        why = "is a directory" if target.is_dir() else "its directory does not exist"
        raise ArgumentError(f"{target}: {why}; give a file with -o")
    if find_spec("vl_convert") is None:
        raise DependencyError("a page needs vl-convert: pip install 'lccodec[report]', or ask for --json")


def report_text(report: Report, written: Mapping[str, str]) -> str:
    """Return the main figures of a report; `written` says what was written, in words."""
    parts = [_run_text(run) for run in report.runs]
    if report.comparison is not None:
        comparison = report.comparison
        lines = [f"{comparison.left} beside {comparison.right}: {len(comparison.rows)} arrays differ"]
        for row in comparison.rows[:3]:
            relative = "-" if row.relative is None else f"{row.relative:.3g}"
            cosine = "-" if row.cosine is None else f"{row.cosine:.4f}"
            lines.append(f"  {row.name}: relative difference {relative}, cosine {cosine}")
        parts.append("\n".join(map(printable, lines)))
    lines = [*report.notes, *(f"{what}: {where}" for what, where in written.items())]
    return "\n\n".join([*parts, "\n".join(map(printable, lines))])


def _run_text(run: Run) -> str:
    stored = sum(checkpoint.bytes for checkpoint in run.checkpoints)
    nbytes = sum(checkpoint.nbytes for checkpoint in run.checkpoints)
    unsound = sum(not checkpoint.sound for checkpoint in run.checkpoints)
    keyframes = sum(checkpoint.kind == "keyframe" for checkpoint in run.checkpoints)
    sound = f"{unsound} of them damaged" if unsound else "all sound"
    lines = [
        f"{run.path}: {len(run.checkpoints)} checkpoints, {sound}, {keyframes} keyframes: "
        f"{size_text(nbytes, stored)}",
        *([run.verdict.sentence] if run.verdict.sentence else []),
        f"bytes     {sparkline([checkpoint.bytes for checkpoint in run.checkpoints], logarithmic=True)}",
    ]
    for name, series in list(run.scalars.items())[:_MAX_SCALARS]:
        known = [number for number in series if number is not None]
        lines.append(f"{name:8}  {sparkline(series)}  {known[0]:.4g} to {known[-1]:.4g}")
    if len(run.steps) > 1:
        lines.append(f"movement  {sparkline(_movement(run), logarithmic=True)}  weights, from step to step")
    measured = [checkpoint for checkpoint in run.checkpoints if checkpoint.figures][-1:]
    for role, figures in measured[0].figures.items() if measured else ():
        lines.append(f"measured  {role_words(role)}, step {measured[0].step}: {figures_words(figures)}")
    if run.loss is not None:
        for role, means in run.loss.roles.items():
            if means.error is not None:
                bias = "" if means.bias is None else f", bias {means.bias:+.3f}"
                error = f"error {means.error:.3g} of the movement{bias}"
                lines.append(f"lost      {role_words(role)}: {error}")
    for flag in run.flags[:_MAX_FLAGS]:
        lines.append(": ".join(filter(None, (flag.severity, flag.when, flag.sentence))))
    if len(run.flags) > _MAX_FLAGS:
        lines.append(f"and {len(run.flags) - _MAX_FLAGS} flags more")
    return "\n".join(map(printable, [*lines, *run.notes]))


def _movement(run: Run) -> list[float | None]:
    """Return the mean movement of the weights at each step; of all arrays if there are none."""
    weights = [i for i, row in enumerate(run.arrays) if row.role == "weight"] or range(len(run.arrays))
    rows = [run.figures["movement"][i] for i in weights]
    movements: list[float | None] = []
    for column in zip(*rows, strict=True):
        values = [value for value in column if value is not None]
        movements.append(sum(values) / len(values) if values else None)
    return movements
