"""The verb that shows the package in use: demo."""

from __future__ import annotations

import itertools
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path

import click

import lccodec

from ...chain.chain import Chain
from ...inspect.examination import examine
from ...inspect.report import document
from ...printable import printable
from .. import render
from ..program import say, verb
from .parameters import NEW


@verb
@click.option(
    "--directory", type=NEW, help="Directory of the chain.  [default: ./lccodec-demo, or -2, -3 ...]"
)
def demo(directory: Path | None, as_json: bool) -> None:
    """Train a small network, lose its state, restore it from a chain, and continue (under 30 s)."""
    from ..demo import run

    with render.progress("training") as update:
        report = run(directory or _unused("lccodec-demo"), progress=update)
    page = _write_page(Path(report.directory))
    if as_json:
        say(render.dump_json({**asdict(report), "page": None if page is None else str(page)}))
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
    if page is None:
        commands.append(("report", report.directory))
        ending = "For a page with all of it: pip install 'lccodec[report]', then the last of these commands."
    else:
        ending = f"For all of it on one page, open this file in a browser: {printable(page)}"
    say(f"{render.demo_text(report, commands)}\n\n{ending}")


def _write_page(directory: Path) -> Path | None:
    """Write the report of the chain beside it; ``None`` without the extra ``report``."""
    if find_spec("vl_convert") is None:
        return None
    from ...report import write_page

    page = directory.with_name(f"{directory.name}-report.html")
    with render.progress("examining") as update:
        found = examine(directory, version=lccodec.__version__, progress=update)
    write_page(document(found), page)
    return page


def _unused(name: str) -> Path:
    """Return a path that does not exist yet: the name, or the name with a number."""
    numbered = (Path(f"{name}-{number}") for number in itertools.count(2))
    return next(path for path in itertools.chain([Path(name)], numbered) if not path.exists())
