"""States for a Writer, and whether the file that it made of one holds it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corpus import SPEC, VECTORS, Answer
from with_decoder import described

sys.path.insert(0, str(SPEC))

import decoder

_HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"


@dataclass(frozen=True)
class State:
    """A state, read from a vector: its description, and the bytes of its arrays in order."""

    description: dict[str, Any]
    values: tuple[bytes, ...]

    def question(self, directory: Path) -> dict[str, Any]:
        """Return what a Writer is given; the bytes of arrays are in files of a directory."""
        arrays = []
        for place, (array, data) in enumerate(zip(self.description["arrays"], self.values, strict=True)):
            path = directory / f"{place}.bin"
            path.write_bytes(data)
            about = {key: value for key, value in array.items() if key != "sha256"}
            arrays.append({**about, "values": str(path)})
        return {**self.description, "arrays": arrays}


def states() -> Iterator[tuple[str, State]]:
    """Yield the states of all valid checkpoint vectors, by name."""
    for entry in json.loads((VECTORS / "manifest.json").read_bytes()):
        if entry["kind"] == "checkpoint" and "rule" not in entry:
            state = decoder.read_checkpoint(VECTORS / entry["file"])
            description = described(state)
            seen: dict[int, bytes] = {}
            for array in _arrays(state):
                seen.setdefault(id(array), array.data)
            yield entry["name"], State(description, tuple(seen.values()))


def _arrays(node: Any) -> Iterator[decoder.Array]:
    """Yield the arrays of a state in the order of their first places."""
    if isinstance(node, decoder.Array):
        yield node
    elif isinstance(node, dict | list | tuple):
        for child in node.values() if isinstance(node, dict) else node:
            yield from _arrays(child)


def written_problem(path: Path, state: State, answer: Answer) -> str | None:
    """Return what is wrong with the file that was written for a state; None if nothing is."""
    if "unsupported" in answer:
        return f"not written: {answer['unsupported']}"
    if not path.is_file():
        return "no file was written"
    if not path.read_bytes().startswith(_HDF5_SIGNATURE):
        return "the file does not begin as HDF5 does (LCC-H5-05)"
    try:
        found = described(decoder.read_checkpoint(path))
    except decoder.Refused as error:
        return f"the file breaks {error.rule}: {error}"
    for member, right in state.description.items():
        if json.dumps(found[member]) != json.dumps(right):
            return f"the file has another {member}"
    return None
