"""The verbs that bring weights to inference engines: publish, pull."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import click

from ...adapters.weights.local import Pulled, Puller
from ...adapters.weights.publish import Published, Publisher
from ...adapters.weights.versions import CHECKSUMS, ENCODINGS, version_name
from ...chain.read.follow.follower import POLL_SECONDS
from ...container.disk.address import Place
from ...errors import ChainError
from ...printable import printable
from ..program import say_result, tell, verb
from .parameters import CHAIN_OR_FILE, NEW, PLACE, STEP, history_option

_MODEL: Final = click.option(
    "--model", "prefix", default="", metavar="NAME", help="The entry of the state that has the weights."
)
_FOLLOW: Final = click.option("--follow", is_flag=True, help="Go on with each new step, until interrupted.")


@verb
@click.argument("run", metavar="DIR", type=PLACE)
@click.argument("output", metavar="OUTPUT", type=NEW)
@click.option(
    "--as", "form", type=click.Choice(["weight-versions"]), required=True, help="The form that engines read."
)
@_MODEL
@click.option("--start", type=STEP, help="The step that engines have as their version 0.  [default: none]")
@click.option("--encoding", type=click.Choice(ENCODINGS), default="xor", show_default=True)
@click.option("--checksum", type=click.Choice(CHECKSUMS), default="adler32", show_default=True)
@click.option("--full", is_flag=True, help="Publish a full version, which needs no older one.")
@click.option("--like", type=CHAIN_OR_FILE, help="A model whose other files go into full versions.")
@history_option
@_FOLLOW
def publish(  # one parameter for each option: click passes them by name
    run: Place,
    output: Path,
    form: str,
    prefix: str,
    start: int | None,
    encoding: Any,
    checksum: Any,
    full: bool,
    like: Path | None,
    history: bool,
    follow: bool,
    as_json: bool,
) -> None:
    """Publish the newest step of a chain for inference engines.

    OUTPUT gets directories weight_v000001 and so on, in the layout of Hugging Face: what slime,
    miles and pull_weights of SGLang read. A version is a delta to the one before, or a full model.
    """
    options = {"prefix": prefix, "start": start, "encoding": encoding, "checksum": checksum, "like": like}
    publisher = Publisher(run, output, **options, exact=not history)

    def once(first: bool) -> Published | None:
        return publisher.publish(full=full and first)

    def told(found: Published) -> tuple[dict[str, Any], str]:
        kind = "full" if found.base is None else f"on version {found.base}"
        text = f"{printable(output / version_name(found.version))}: step {found.step}, {kind}"
        return {"form": form, **asdict(found)}, f"{text}, {found.nbytes:,} bytes"

    with publisher:
        _repeat(once, told, follow, as_json, "the newest step is published")


@verb
@click.argument("run", metavar="DIR|BUNDLE", type=PLACE)
@click.argument("model", metavar="MODEL", type=NEW)
@_MODEL
@click.option("--step", type=STEP, help="The step.  [default: the latest]")
@click.option("--start", type=STEP, help="The step that MODEL has: only deltas are read from there on.")
@history_option
@_FOLLOW
def pull(
    run: Place,
    model: Path,
    prefix: str,
    step: int | None,
    start: int | None,
    history: bool,
    follow: bool,
    as_json: bool,
) -> None:
    """Bring a local model to a step of a chain.

    MODEL is a directory of Hugging Face's layout. It is a valid model at every moment, and one
    process of a host at a time works on it.
    """

    puller = Puller(run, model, prefix=prefix, step=step, start=start, exact=not history)

    def once(_: bool) -> Pulled | None:
        found = puller.pull()
        return None if follow and not found.files and found.base == found.step else found

    def told(found: Pulled) -> tuple[dict[str, Any], str]:
        what = f"{len(found.names)} tensors in {len(found.files)} files" if found.files else "as it was"
        return asdict(found), f"{printable(model)}: step {found.step}, {what}"

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
            found = once(first)
        except ChainError:  # the chain may be about to begin
            if not follow or not first:
                raise
            found = None
        if found is not None:
            say_result(as_json, *told(found))
            first = False
        elif not follow:
            tell("note", nothing)
        if not follow:
            return
        time.sleep(POLL_SECONDS)
