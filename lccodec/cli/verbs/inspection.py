"""The verbs that show and check what is stored: info, show, diff, check."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import click

from ...adapters import seals
from ...adapters.files.formats import recognize
from ...adapters.ranks import check_together, repairable
from ...chain.caller import Bounds
from ...chain.read.checkpoint import open_path, with_exact
from ...chain.read.info import ArrayInfo
from ...chain.read.validate import Problem
from ...chain.store.directory import DirectoryStore
from ...chain.store.opening import is_chain, open_store
from ...container.system import Address, Place
from ...errors import ArgumentError, FormatError
from ...inspect.difference import Leaves, compare_states
from ...inspect.summary import summarize
from ...inspect.trajectory import Trajectory, course
from ...printable import printable
from .. import render
from ..foreign import describe_foreign, foreign_text
from ..program import say, verb
from ..render import quality_document
from .parameters import (
    CHAIN_OR_FILE,
    STEP,
    bounds_options,
    history_option,
    place_argument,
    rows_option,
    step_option,
    threads_option,
)


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
        course = _course(path, array)
        document["over_time"] = {"steps": course.steps, **(series := _series(course))}
        parts.append(render.course_text(course.steps, series))
    say(render.dump_json(document) if as_json else "\n\n".join(parts))


def _course(path: Place, array: ArrayInfo) -> Trajectory:
    if not is_chain(path):
        raise ArgumentError(f"--over-time needs a chain; {path} is a file")
    with open_store(path) as store, render.progress("reading") as update:
        return course(store, array, update)


def _series(course: Trajectory) -> dict[str, Sequence[float | None]]:
    return {name: series[0] for name, series in course.finish().items()}


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
    return [*problems, *check_together(path, deep, bounds)] if _is_own(path) else problems


def _is_own(path: Path) -> bool:
    """Return whether a path is that of a chain, a bundle or a checkpoint."""
    if path.is_dir():
        return bool(DirectoryStore(path).steps())
    kind = recognize(path)
    return kind is not None and kind.name in ("checkpoint", "bundle")
