"""The verb that shows the package in use: demo."""

from __future__ import annotations

import itertools
from pathlib import Path

import click

from ...chain.chain import Chain
from .. import render
from ..program import verb
from .parameters import NEW


@verb
@click.option(
    "--directory", type=NEW, help="Where to put the chain  [default: ./lccodec-demo, or -2, -3 ...]"
)
def demo(directory: Path | None, as_json: bool) -> None:
    """Train a small network, lose its state, restore it from a chain, and continue (under 30 s)."""
    from ..demo import run

    with render.progress("training") as update:
        report = run(directory or _unused("lccodec-demo"), progress=update)
    if as_json:
        click.echo(render.dump_json(report))
        return
    chain = Chain(report.directory)
    first, *_, before, last = chain.steps
    name = chain.info(last).arrays[0].name
    commands = [
        ("ls", report.directory),
        ("info", report.directory, "--step", last),
        ("show", report.directory, name),
        ("diff", report.directory, before, last),
        ("check", report.directory, "--deep"),
        ("restore", report.directory, "--step", first, "-o", "first.npz"),
    ]
    click.echo(render.demo_text(report, commands))


def _unused(name: str) -> Path:
    """Return a path that does not exist yet: the name, or the name with a number."""
    numbered = (Path(f"{name}-{number}") for number in itertools.count(2))
    return next(path for path in itertools.chain([Path(name)], numbered) if not path.exists())
