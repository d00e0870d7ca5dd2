"""The verb that shows a whole run: report."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import click

import lccodec

from ...adapters.files.originals import open_originals
from ...errors import ArgumentError, DependencyError
from ...inspect.examination import examine
from ...inspect.report import document
from .. import render
from ..program import say, verb
from ..reporting import report_text
from .parameters import CHAIN_OR_FILE, NEW

_RANGE: Final = re.compile(r"([0-9]{0,16}):([0-9]{0,16})(?::([0-9]{1,16}))?|([0-9]{1,16})")
_LAST: Final = 1 << 62


class _Steps:
    """Steps as in ``0,100:200,1000:2000:50``; a range has its ends."""

    def __init__(self, ranges: Sequence[range]) -> None:
        self._ranges = ranges

    def __contains__(self, step: object) -> bool:
        return any(step in each for each in self._ranges)


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
    path: Path,
    other: Path | None,
    steps: _Steps | None,
    against: Path | None,
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
        found = examine(
            path, other, steps=steps, against=originals, version=lccodec.__version__, progress=update
        )
    made, written = document(found), dict[str, str]()
    if wants_page:
        from ...report import write_page

        written["page"] = f"{target}, {write_page(made, target):,} bytes"
    if logdir is not None:
        from ...adapters.tensorboard import write_events

        written["events"] = f"{logdir}, {write_events(found.runs[0], logdir):,} scalars and histograms"
    if as_json:  # one line: a line for each number would be five times as long
        say(json.dumps(made, allow_nan=False, separators=(",", ":")))
    else:
        say(report_text(found, written))


def _check_page(target: Path) -> None:
    """Refuse a page that cannot be written before the work, which may take minutes."""
    if target.is_dir() or not target.parent.is_dir():
        why = "is a directory" if target.is_dir() else "its directory does not exist"
        raise ArgumentError(f"{target}: {why}; give a file with -o")
    if find_spec("vl_convert") is None:
        raise DependencyError("a page needs vl-convert: pip install 'lccodec[report]', or ask for --json")
