"""Files of other formats: what `info` says of one, and how a verb writes one."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click

from ..adapters.files.formats import Kind, recognize
from ..adapters.files.header import is_index
from ..adapters.files.shards import SHARD_BYTES, read_index
from ..adapters.files.states import save_file
from ..printable import printable
from . import render
from .parameters import Size
from .program import tell


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
