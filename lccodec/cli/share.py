"""The verbs that hand a chain over: bundle, unbundle; to inference engines: publish, pull."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import click

from ..adapters.weights.local import Pulled, Puller
from ..adapters.weights.publish import Published, Publisher
from ..adapters.weights.versions import CHECKSUMS, ENCODINGS, FORMS
from ..chain.life.transfer import bundle as bundle_chain
from ..chain.life.transfer import unbundle as unbundle_chain
from ..chain.read.follower import POLL_SECONDS
from ..container.bundle import Bundle
from ..container.system import Place
from ..errors import ChainError
from ..table import printable
from . import render
from .program import (
    CHAIN_OR_FILE,
    FILE,
    NEW,
    PLACE,
    STEP,
    chain_argument,
    history_option,
    say_result,
    tell,
    verb,
)


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


_MODEL: Final = click.option(
    "--model", "prefix", default="", metavar="NAME", help="The entry of the state that has the weights."
)


def _renames(_: click.Context, __: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    """Return new names by pattern, from options such as ``backbone.*=*``."""
    for text in texts:
        if "=" not in text:
            raise click.BadParameter(f"must be PATTERN=NAME, such as 'backbone.*=*'; got {text!r}")
    return {pattern: name for pattern, _, name in (text.partition("=") for text in texts)}


_RENAME: Final = click.option(
    "--rename",
    metavar="PATTERN=NAME",
    multiple=True,
    callback=_renames,
    help="A new name for tensors of the state, as in 'backbone.*=*'; repeatable.",
)
_FOLLOW: Final = click.option("--follow", is_flag=True, help="Go on with each new step, until interrupted.")


@verb
@click.argument("run", metavar="DIR", type=PLACE)
@click.argument("output", metavar="OUTPUT", type=NEW)
@click.option(
    "--as", "form", type=click.Choice(list(FORMS)), required=True, help="The form that engines read."
)
@_MODEL
@_RENAME
@click.option("--start", type=STEP, help="The step that engines have as their version 0.  [default: none]")
@click.option("--encoding", type=click.Choice(ENCODINGS), default="xor", show_default=True)
@click.option("--checksum", type=click.Choice(CHECKSUMS), help="[default: adler32; of skyrl xxh3-128]")
@click.option("--full", is_flag=True, help="Publish a full version, which needs no older one.")
@click.option("--like", type=CHAIN_OR_FILE, help="The model of the engines: its names, and its other files.")
@history_option
@_FOLLOW
def publish(  # one parameter for each option: click passes them by name
    run: Place,
    output: Path,
    form: Any,
    full: bool,
    history: bool,
    follow: bool,
    as_json: bool,
    **options: Any,  # of `Publisher`
) -> None:
    """Publish the newest step of a chain for inference engines.

    OUTPUT gets directories. As weight-versions they are weight_v000001 and so on, in the layout of
    Hugging Face: what slime, miles and pull_weights of SGLang read. A version is a delta to the one
    before, or a full model. As skyrl they are delta-00000001 and so on, always deltas.
    """
    publisher = Publisher(run, output, form=form, exact=not history, **options)

    def once(first: bool) -> Published | None:
        return publisher.publish(full=full and first)

    def told(published: Published) -> tuple[dict[str, Any], str]:
        kind = "full" if published.base is None else f"on version {published.base}"
        path = output / FORMS[form].version_name(published.version)
        text = f"{printable(path)}: step {published.step}, {kind}"
        return {"form": form, **asdict(published)}, f"{text}, {published.nbytes:,} bytes"

    with publisher:
        _repeat(once, told, follow, as_json, "the newest step is published")


@verb
@click.argument("run", metavar="DIR|BUNDLE", type=PLACE)
@click.argument("model", metavar="MODEL", type=NEW)
@_MODEL
@_RENAME
@click.option("--cast", is_flag=True, help="Round to the types that MODEL has, as float32 to bfloat16.")
@click.option("--step", type=STEP, help="The step.  [default: the latest]")
@click.option("--start", type=STEP, help="The step that MODEL has: only deltas are read from there on.")
@history_option
@_FOLLOW
def pull(
    run: Place,
    model: Path,
    history: bool,
    follow: bool,
    as_json: bool,
    **options: Any,  # of `Puller`
) -> None:
    """Bring a local model to a step of a chain.

    MODEL is a directory of Hugging Face's layout. It is a valid model at every moment, and one
    process of a host at a time works on it.
    """
    puller = Puller(run, model, exact=not history, **options)

    def once(_: bool) -> Pulled | None:
        pulled = puller.pull()
        return None if follow and not pulled.files and pulled.base == pulled.step else pulled

    def told(pulled: Pulled) -> tuple[dict[str, Any], str]:
        what = f"{len(pulled.names)} tensors in {len(pulled.files)} files" if pulled.files else "as it was"
        return asdict(pulled), f"{printable(model)}: step {pulled.step}, {what}"

    with puller:
        _repeat(once, told, follow, as_json, "the model has the step")


def _repeat(
    once: Callable[[bool], Any],
    told: Callable[[Any], tuple[dict[str, Any], str]],
    follow: bool,
    as_json: bool,
    nothing: str,
) -> None:
    """Do something once; or until interrupted, each time that there is something new."""
    first = True
    while True:
        try:
            outcome = once(first)
        except ChainError:  # the chain may be about to begin
            if not follow or not first:
                raise
            outcome = None
        if outcome is not None:
            say_result(as_json, *told(outcome))
            first = False
        elif not follow:
            tell("note", nothing)
        if not follow:
            return
        time.sleep(POLL_SECONDS)
