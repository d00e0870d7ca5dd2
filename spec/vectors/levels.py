"""The level that a Reader needs for a vector (SPEC 4), by what the vector consists of."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from forms import stream_forms
from pieces import SMOOTH

FILE, CHAIN, FULL, MEND = 1, 2, 3, 4

#: Rules about what only Readers from a level on know. The others are about what all of them read.
_RULES = {
    "LCC-CHN": CHAIN,
    "LCC-EXA": CHAIN,
    "LCC-MAN-12": CHAIN,
    "LCC-STR-07": FULL,
    "LCC-STR-08": FULL,
    "LCC-STR-09": FULL,
    "LCC-LIM-10": FULL,
    "LCC-LIM-12": FULL,
    "LCC-SMO": FULL,
    "LCC-CPY": FULL,
    "LCC-INT": FULL,
    "LCC-BUN": FULL,
    "LCC-PAR": MEND,
}
_KINDS = {"bundle": FULL, "parity": MEND}
#: Members of a manifest.
_MEMBERS = {"replaces": CHAIN, "exact": CHAIN, "later": FULL, "copies": FULL}


def level_of(
    kind: str, data: bytes, sound: bytes | None = None, rule: str = "", beside: Path | None = None
) -> int:
    """Return the level of a vector of a kind; `sound` is an invalid one without its fault.

    The parents of a checkpoint lie in the directory `beside`.
    """
    levels = [FILE, _KINDS.get(kind, FILE)]
    levels += [level for start, level in _RULES.items() if rule.startswith(start)]
    whole = sound if rule else data
    if kind == "frame":
        levels += _of_head(data)
        levels += [] if whole is None else _of_frame(whole)
    if kind == "checkpoint":
        levels += _of_manifest(data, beside)
        levels += [] if whole is None else (*_of_manifest(whole, beside), *_of_payload(whole))
    return max(levels)


def _of_head(frame: bytes) -> Iterator[int]:
    """Yield the levels of a method and of a reference; a broken frame may have neither."""
    if len(frame) >= 8:
        yield FULL if frame[3] == SMOOTH else FILE
        yield CHAIN if frame[5] & 1 else FILE


def _of_frame(frame: bytes) -> Iterator[int]:
    """Yield the levels of a sound frame."""
    yield from _of_head(frame)
    yield FULL if {"classed", "split"} & set(stream_forms(frame)) else FILE


def _of_manifest(file: bytes, beside: Path | None) -> Iterator[int]:
    """Yield the levels of the members of a file and of its parents, if they can be read."""
    try:
        _, _, place, length = struct.unpack_from("<4Q", file, len(file) - 72)
        manifest: dict[str, Any] = json.loads(file[place : place + length])
        yield from (level for member, level in _MEMBERS.items() if member in manifest)
        yield FILE if manifest["parent"] is None else CHAIN
        parents = [manifest[member][0] for member in ("parent", "later") if manifest.get(member)]
    except (struct.error, ValueError, KeyError, TypeError):
        return
    for step in parents if beside is not None else ():
        parent = (beside / f"{step:012d}.lcc.h5").read_bytes()
        yield level_of("checkpoint", parent, beside=beside)


def _of_payload(file: bytes) -> Iterator[int]:
    """Yield the levels of the frames of a sound checkpoint file."""
    start, _, place, length = struct.unpack_from("<4Q", file, len(file) - 72)
    for size, _, *table in json.loads(file[place : place + length])["frames"]:
        yield from _of_frame(file[start : start + size])
        start += size + sum(table)
