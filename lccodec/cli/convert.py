"""The verb that converts a file, or a step of a chain, to another format or framework: convert."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

from ..adapters.files.formats import check_suffix, is_checkpoint
from ..adapters.files.states import Exchange, load_file
from ..adapters.files.states import convert as convert_state
from ..adapters.whole import open_whole
from ..chain.bounds import UNBOUNDED, Bounds
from ..container.bundle import is_bundle
from ..exchange import load_rules
from ..printable import printable
from . import render
from .foreign import save_output, shard_option
from .parameters import FILE, FILE_OR_FOLDER, NEW, STEP, bounds_options
from .program import say_result, tell, verb

_FRAMEWORK: Final = click.Choice(["torch", "flax"])


@verb
@click.argument("source", metavar="FILE|DIR", type=FILE_OR_FOLDER)
@click.argument("output", metavar="OUTPUT", type=NEW)
@click.option("--step", type=STEP, help="Of a chain or a bundle.  [default: the latest]")
@click.option("--from", "source_framework", type=_FRAMEWORK, help="The framework of the state in FILE ...")
@click.option("--to", "output_framework", type=_FRAMEWORK, help="... and the framework that OUTPUT is for.")
@click.option("--rules", type=FILE, help="Your rules for names and layouts, in TOML or JSON.")
@click.option(
    "--like",
    type=FILE,
    help="A state of the other framework: OUTPUT gets its structure and is checked against it.",
)
@click.option(
    "--model", metavar="NAME", help="The entry with the module's state.  [default: the whole state]"
)
@click.option(
    "--optimizer", metavar="NAME", help="The entry with the state of Adam; its moments are converted too."
)
@shard_option
@bounds_options
def convert(  # one parameter for each option: click passes them by name
    source: Path,
    output: Path,
    step: int | None,
    source_framework: str | None,
    output_framework: str | None,
    rules: Path | None,
    like: Path | None,
    model: str | None,
    optimizer: str | None,
    shard_bytes: int,
    bounds: Bounds,
    as_json: bool,
) -> None:
    """Convert a file or a step of a chain or a bundle to another format, with its metadata.

    The suffix gives the format: .npz, .safetensors, .lcc.h5, .h5 or .hdf5 (plain HDF5), .pt or .pth
    (torch.save), or .safetensors.index.json with its shards; .ckpt is only read. OUTPUT is replaced
    if it exists. With --from and --to the state is converted to the same module in the other
    framework, by rules for names and layouts.
    """
    check_suffix(output, write=True)
    exchange, left_out = None, list[str]()
    if source_framework and output_framework and source_framework != output_framework:
        own = () if rules is None else load_rules(rules)
        exchange = Exchange(source_framework, own, like, model, optimizer)
    elif any((source_framework, output_framework, rules, like, model, optimizer)):
        raise click.UsageError("conversion between frameworks needs --from and --to, and they must differ")
    state, metadata = _load(source, step, bounds)
    if exchange is not None:
        state, metadata, left_out = convert_state(state, metadata, exchange)
        if left_out:
            tell("note", f"only the model and its optimizer are converted; left out: {', '.join(left_out)}")
    written = save_output(state, output, metadata, shard_bytes)
    document = {"source": str(source), **written, "left_out": left_out}
    text = f"{printable(source)}: {written['bytes']:,} bytes  {printable(output)}"
    say_result(as_json, document, text)


def _load(source: Path, step: int | None, bounds: Bounds) -> tuple[Any, dict[str, str]]:
    """Return the state of a file or of a step, and its metadata; bfloat16 as bits."""
    with render.progress("reading") as update:
        if step is None and source.is_file() and not is_bundle(source) and not is_checkpoint(source):
            if bounds != UNBOUNDED:
                raise click.UsageError("--max-bytes and --max-deltas bound checkpoints, not other files")
            return load_file(source, update)
        with open_whole(source, step=step, bounds=bounds) as file:
            file.show(update)
            return file.state(dtype="bits"), file.metadata()
