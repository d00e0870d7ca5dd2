"""The verbs that show and check what is stored: ls, info, show, diff, check."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import numpy as np

from ...chain.bundled import describe_exact_in, with_exact_in
from ...chain.info import CheckpointInfo
from ...chain.newest import describe_exact, with_exact
from ...chain.pins import pinned_steps
from ...chain.place import Place, place_steps
from ...chain.survey import survey
from ...chain.validate import validate
from ...container.bundle import Bundle, is_bundle
from ...errors import FormatError, LccodecError
from ...inspect.difference import Leaves, compare_states
from ...inspect.summary import summarize
from .. import render
from ..program import error_document, error_text, tell, verb
from ..table import printable
from .foreign import describe_foreign, foreign_text
from .parameters import (
    CHAIN_OR_FILE,
    STEP,
    history_option,
    open_checkpoint,
    open_state,
    place_argument,
    step_option,
)


@verb
@place_argument
def ls(place: Path, as_json: bool) -> int:
    """List the checkpoints of a chain or a bundle."""
    with nullcontext(place) if place.is_dir() else Bundle(place) as opened:
        exact = describe_exact_in(opened) if isinstance(opened, Bundle) else describe_exact(opened)
        return _list(place, opened, exact, as_json)


def _list(path: Path, place: Place, exact: dict[str, Any] | None, as_json: bool) -> int:
    steps = place_steps(place)
    pins = [] if isinstance(place, Bundle) else pinned_steps(place)
    found: dict[Path, CheckpointInfo | LccodecError] = {}
    with render.progress("reading") as update:
        for done, visit in enumerate(survey(place, steps), 1):
            try:
                visit.check()
                found[visit.path] = visit.info()
            except LccodecError as problem:  # the other checkpoints are still listed
                found[visit.path] = problem
            update(done, len(steps))
    listed = [(step, found[path]) for step, path in steps.items() if path in found]
    infos = [info for _, info in listed if isinstance(info, CheckpointInfo)]
    errors = [(step, error) for step, error in listed if isinstance(error, LccodecError)]
    document = {
        "directory": str(path),
        "checkpoints": [render.checkpoint_document(info) for info in infos],
        "totals": render.totals(infos),
        "exact": exact,
        "pins": pins,
        "errors": [{"step": step, **error_document(error, error_text(error))} for step, error in errors],
    }
    click.echo(render.dump_json(document) if as_json else render.checkpoints_text(infos))
    if exact is not None and not as_json:
        click.echo(render.exact_text(exact))
    if pins and not as_json:
        click.echo(f"pinned: {', '.join(map(str, pins))}")
    for _, error in errors:
        tell("error", error_text(error))
    return 1 if errors else 0


@verb
@click.argument("path", type=CHAIN_OR_FILE)
@step_option
def info(path: Path, step: int | None, as_json: bool) -> None:
    """Show what is known about a checkpoint and its arrays, without decoding them.

    Of a file of another kind, say what it is and how to convert or save it.
    """
    try:
        with open_checkpoint(path, step) as file:
            found = file.info()
        if path.is_dir():
            found = with_exact(found, path)
        elif is_bundle(path):
            found = with_exact_in(found, path)
    except FormatError:
        foreign = None if path.is_dir() else describe_foreign(path)
        if foreign is None:
            raise
        click.echo(render.dump_json(foreign) if as_json else foreign_text(foreign))
        return
    document = {"path": str(path), **render.checkpoint_document(found), "arrays": found.arrays}
    click.echo(render.dump_json(document) if as_json else render.arrays_text(found))


@verb
@click.argument("path", type=CHAIN_OR_FILE)
@click.argument("name")
@step_option
@history_option
def show(path: Path, name: str, step: int | None, history: bool, as_json: bool) -> None:
    """Show one array: dtype, shape, range, and a histogram; or the value of a scalar."""
    with open_state(path, step, history) as file:
        leaves, found, exact = Leaves(file), file.info().step, file.info().exact
        leaf = leaves[name] if name in leaves else file.get(name)  # its error suggests the nearest name
    place = {"path": str(path), "step": found, "name": name, "exact": exact}
    if not isinstance(leaf, np.ndarray):
        click.echo(render.dump_json({**place, "value": leaf}) if as_json else printable(repr(leaf)))
        return
    figures = summarize(leaf)
    document = {**place, **asdict(figures)}
    click.echo(render.dump_json(document) if as_json else render.summary_text(name, found, figures, exact))


@verb
@place_argument
@click.argument("old", metavar="STEP", type=STEP)
@click.argument("new", metavar="STEP", type=STEP)
def diff(place: Path, old: int, new: int, as_json: bool) -> None:
    """Show what changed between two steps of a chain or a bundle, and by how much."""
    with (
        open_checkpoint(place, old) as before,
        open_checkpoint(place, new) as after,
        render.progress("comparing") as update,
    ):
        difference = compare_states(Leaves(before), Leaves(after), update)
    document = {"directory": str(place), "old": old, "new": new, **asdict(difference)}
    click.echo(render.dump_json(document) if as_json else render.difference_text(difference))


@verb
@click.argument("paths", metavar="PATH...", type=CHAIN_OR_FILE, nargs=-1, required=True)
@click.option("--deep", is_flag=True, help="Also decode every array.")
def check(paths: tuple[Path, ...], deep: bool, as_json: bool) -> int:
    """Check chains, bundles or checkpoint files; print every problem, not only the first."""
    found = []
    with render.progress("checking") as update:
        for done, path in enumerate(paths, 1):
            found.append((path, validate(path, deep=deep)))
            update(done, len(paths))
    count = sum(len(problems) for _, problems in found)
    if as_json:
        results = [{"path": str(path), "problems": problems} for path, problems in found]
        click.echo(render.dump_json({"sound": not count, "deep": deep, "paths": results}))
    else:
        for path, problems in found:
            for p in problems:
                click.echo(printable(f"{path}: {p.where}: {p.message} [{p.rule}]"))
            if not problems:
                click.echo(printable(f"{path}: sound"))
    return 1 if count else 0
