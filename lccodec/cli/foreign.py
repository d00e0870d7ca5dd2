"""What info says of a file of another kind: what it is, and how to bring it into a chain."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from ..adapters.files.formats import Kind, recognize
from ..printable import printable


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
