"""The file that a verb writes: its option of shards, writing it, and what is said of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import click

from ...adapters.files.formats import save_file
from ...adapters.files.shards import SHARD_BYTES, is_index, read_index
from .. import render
from ..program import tell

_SIZE: Final = re.compile(r"([0-9]{1,18}) *([kKMGT]?)(i?)B?")
_POWERS: Final = {"": 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4}


class Size(click.ParamType):  # type: ignore[type-arg]
    """A number of bytes, such as 5GB or 512MiB."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number of bytes."""
        if isinstance(value, int):
            return value
        match = _SIZE.fullmatch(str(value))
        if match is None or not int(match[1]):
            self.fail(f"must be a size such as 5GB or 512MiB; got {value!r}", param, ctx)
        unit: int = (1024 if match[3] else 1000) ** _POWERS[match[2]]
        return int(match[1]) * unit


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
