"""The verb that shows the package in use: demo."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

import lccodec

from ...chain.chain import Chain
from ...inspect.examination import examine
from ...inspect.report import document
from ...printable import printable
from ...table import size_text
from .. import render
from ..program import say, verb
from ..table import Table
from .parameters import NEW

if TYPE_CHECKING:  # only the verb itself loads the demo, when it runs
    from ..demo import DemoResult


@verb
@click.option(
    "--directory", type=NEW, help="Directory of the chain.  [default: ./lccodec-demo, or -2, -3 ...]"
)
def demo(directory: Path | None, as_json: bool) -> None:
    """Train a small network, lose its state, restore it from a chain, and continue (under 30 s)."""
    from ..demo import run

    with render.progress("training") as update:
        result = run(directory or _unused("lccodec-demo"), progress=update)
    page = _write_page(Path(result.directory))
    if as_json:
        say(render.dump_json({**asdict(result), "page": None if page is None else str(page)}))
        return
    chain = Chain(result.directory)
    first, *_, before, last = chain.steps
    name = chain.info(last).arrays[0].name
    commands = [
        ("ls", result.directory),
        ("info", result.directory, "--step", last),
        ("show", result.directory, name),
        ("diff", result.directory, before, last),
        ("check", result.directory, "--deep"),
        ("restore", result.directory, "--step", first, "-o", "first.npz"),
    ]
    if page is None:
        commands.append(("report", result.directory))
        ending = "For a page with all of it: pip install 'lccodec[report]', then the last of these commands."
    else:
        ending = f"For all of it on one page, open this file in a browser: {printable(page)}"
    say(f"{demo_text(result, commands)}\n\n{ending}")


def demo_text(result: DemoResult, commands: Iterable[Sequence[object]]) -> str:
    """Return the figures of the demo, and which commands to try on the chain it left."""
    table = Table("checkpoints", "every", "bytes", "ratio", "lost", "loss", "accuracy", "rework")
    loss, accuracy = f"{result.loss_before:.4f}", f"{100 * result.accuracy_before:.2f} %"
    table.row("(at the failure)", "", "", "", "", loss, accuracy, "")
    for o in result.outcomes:
        rework = "-" if o.rework_iterations is None else o.rework_iterations
        loss, accuracy = f"{o.loss:.4f}", f"{100 * o.accuracy:.2f} %"
        numbers = (f"{o.interval:.3g}", f"{o.bytes_on_disk:,}", f"{o.ratio:.1f}x", o.lost_iterations)
        table.row(o.scheme, *numbers, loss, accuracy, rework)
    full = result.full_bytes * result.checkpoints
    return "\n\n".join(
        [
            f"A network of {result.parameters:,} parameters was trained for {result.iterations} iterations; "
            f"its state was lost after {result.failure_iteration},\nrestored from the last checkpoint, and "
            "trained further. Rework: iterations until the training loss was back.",
            table.text(),
            f"{result.checkpoints} checkpoints, policy {result.policy}, and the newest exact: "
            f"{size_text(full, result.chain_bytes)}\n"
            f"accuracy at the end: {100 * result.accuracy_resumed:.2f} %, "
            f"without the failure {100 * result.accuracy_uninterrupted:.2f} %",
            f"The chain is in {printable(result.directory)}. Try:",
            "\n".join("  lccodec " + shlex.join(map(str, command)) for command in commands),
        ]
    )


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
