"""The verb that converts a file, or a step of a chain, to another format or framework: convert.

Also what `info` says of a file of another format, and how a verb writes one.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any, Final

import click

from ..adapters.files.formats import Kind, check_suffix, is_checkpoint, recognize
from ..adapters.files.header import is_index
from ..adapters.files.shards import SHARD_BYTES, read_index
from ..adapters.files.states import Exchange, load_file, open_whole, save_file
from ..adapters.files.states import convert as convert_state
from ..chain.read.links import UNBOUNDED, Bounds
from ..container.bundle import is_bundle
from ..exchange import load_rules
from ..table import printable
from . import render
from .program import FILE, FILE_OR_FOLDER, NEW, STEP, Size, bounds_options, say_result, tell, verb


def describe_foreign(path: Path) -> dict[str, Any] | None:
    """Return what is known of a file that is not a checkpoint; None if its kind is not known."""
    kind = recognize(path)
    if kind is None or kind.name in ("checkpoint", "bundle"):  # damaged: the reader's error says how
        return None
    commands, advice = _commands(path, kind), kind.advice
    if kind.suffixes and not commands:
        advice = f"give it the suffix {kind.suffixes[0]}: lccodec tells the kind of a file by its suffix"
    return {
        "path": str(path),
        "kind": kind.name,
        "title": kind.title,
        "bytes": path.stat().st_size,
        "commands": commands,
        "advice": advice,
    }


def _commands(path: Path, kind: Kind) -> list[str]:
    """Return the commands that read a file, if it has a suffix of its kind; HDF5 may have any."""
    suffixes = (path.suffix, *kind.suffixes) if kind.name == "hdf5" else kind.suffixes
    suffix = next((suffix for suffix in suffixes if path.name.endswith(suffix)), None)
    if suffix is None:
        return []
    name = shlex.quote(str(path))
    checkpoint = shlex.quote(str(path.with_name(path.name.removesuffix(suffix) + ".lcc.h5")))
    return [f"lccodec convert {name} {checkpoint}", f"lccodec save DIR {name}"]


def foreign_text(document: dict[str, Any]) -> str:
    """Return the description of a file as text."""
    lines = [f"{document['path']}: {document['title']}, {document['bytes']:,} bytes"]
    if document["commands"]:
        to_file, to_chain = document["commands"]
        lines += [f"  as a checkpoint   {to_file}", f"  into a chain      {to_chain}"]
    else:
        lines.append(f"  {document['advice']}")
    return "\n".join(printable(line) for line in lines)


shard_option = click.option(
    "--max-shard-size",
    "shard_bytes",
    type=Size(),
    default=SHARD_BYTES,
    metavar="SIZE",
    help="Maximum size of a shard of a .safetensors.index.json.  [default: 5GB]",
)


def save_output(
    state: Any, output: Path, metadata: dict[str, str], shard_bytes: int = SHARD_BYTES
) -> dict[str, Any]:
    """Write a file; return its name, size and metadata; print a note about metadata left out."""
    with render.progress("writing") as update:
        kept = save_file(state, output, metadata, shard_bytes, update)
    if left := [key for key in metadata if key not in kept]:
        tell("note", f"{output.suffix} files cannot hold metadata; left out: {', '.join(left)}")
    files = [output, *(read_index(output)[0] if is_index(output) else ())]
    return {"file": str(output), "bytes": sum(file.stat().st_size for file in files), "metadata": kept}


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
            file.progress = update
            return file.state(dtype="bits"), file.metadata()
