"""The verbs for handing a chain over as one file: bundle, unbundle."""

from __future__ import annotations

from pathlib import Path

import click

from ...chain.life.bundle import bundle as bundle_chain
from ...chain.life.bundle import unbundle as unbundle_chain
from ...container.bundle import Bundle
from ...container.disk.address import Place
from ...printable import printable
from .. import render
from ..program import say_result, verb
from .parameters import FILE, NEW, PLACE, STEP, chain_argument


@verb
@chain_argument
@click.option("-o", "--output", metavar="FILE", type=NEW, required=True, help="The bundle, such as run.lcc.")
@click.option(
    "--step",
    "steps",
    type=STEP,
    multiple=True,
    help="A step to take, with what it needs; repeatable.  [default: all]",
)
def bundle(directory: Place, output: Path, steps: tuple[int, ...], as_json: bool) -> None:
    """Copy the checkpoints of a chain into one file, which is replaced if it exists.

    The files are copied as they are, with the exact file of the newest step. ls, info, show, diff,
    check, restore and convert take a bundle as they take a chain.
    """
    with render.progress("bundling") as update:
        size = bundle_chain(directory, output, steps or None, progress=update)
    with Bundle(output) as written:
        steps_written, root, exact = written.steps, written.root.hex(), written.index.exact is not None
    document = {"directory": str(directory), "bundle": str(output), "bytes": size, "root": root}
    what = render.steps_text(steps_written) + (", the exact file" if exact else "")
    text = f"{printable(output)}: {what}, {size:,} bytes"
    say_result(as_json, {**document, "steps": steps_written, "exact": exact}, text)


@verb
@click.argument("path", metavar="BUNDLE", type=FILE)
@click.argument("directory", metavar="DIR", type=PLACE)
def unbundle(path: Path, directory: Place, as_json: bool) -> None:
    """Write the checkpoints of a bundle into a directory or a bucket, as they were.

    DIR is new, or has some of these checkpoints and no others: then the rest is added.
    """
    with render.progress("unbundling") as update:
        steps = unbundle_chain(path, directory, progress=update)
    document = {"bundle": str(path), "directory": str(directory), "steps": steps}
    say_result(as_json, document, f"{printable(directory)}: {render.steps_text(steps)}")
