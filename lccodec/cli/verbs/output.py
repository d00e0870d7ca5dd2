"""The file that a verb writes: its option of shards, writing it, and what is said of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ...adapters.files.formats import save_file
from ...adapters.files.shards import SHARD_BYTES, is_index, read_index
from .. import render
from ..bounding import Size
from ..program import tell

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
