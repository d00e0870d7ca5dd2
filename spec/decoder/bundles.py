"""Bundles: checkpoint files in one file (9, "Bundle")."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import struct
from pathlib import Path
from typing import Any

from .files import Checkpoint, Place, load, names, open_regular, pread, replay
from .manifests import MAX_STEP, is_integer, parse_json
from .streams import Refused

MAGIC = b"LCCBNDL\x1a"


def read_trailer(path: Path) -> tuple[int, bytes]:
    """The length of the files of a bundle, and its index, whose bytes are those of the root."""
    file = open_regular(path)
    try:
        size = os.fstat(file).st_size
        if size < 8 or pread(file, 8, 0) != MAGIC:
            raise Refused("LCC-BUN-01", "not a bundle")
        trailer = pread(file, 64, size - 64) if size >= 72 else b""
        if trailer[:8] != MAGIC:
            raise Refused("LCC-BUN-01", "the bundle is truncated")
        major, minor, reserved, files, length = struct.unpack("<HHI2Q", trailer[8:32])
        if major != 1 or reserved:
            raise Refused("LCC-BUN-03", f"version {major}.{minor}, reserved {reserved}")
        if length > 2**26:
            raise Refused("LCC-LIM-04", f"an index of {length} bytes")
        if size != 72 + files + length:
            raise Refused("LCC-BUN-02", "the lengths do not fit the bundle")
        text = pread(file, length, 8 + files)
    finally:
        os.close(file)
    if hashlib.sha256(MAGIC + text + trailer[:32]).digest() != trailer[32:]:
        raise Refused("LCC-BUN-04", "the root does not match")
    return files, text


def read_index(path: Path) -> tuple[dict[int, tuple[Place, bytes]], tuple[Place, bytes] | None]:
    """The places and roots of the checkpoints of a bundle by step, and those of the exact file."""
    files, text = read_trailer(path)
    index = parse_json(text)
    if not isinstance(index, dict) or list(index) not in (["checkpoints"], ["checkpoints", "exact"]):
        raise Refused("LCC-BUN-05", "the members of the index")
    if not isinstance(index["checkpoints"], list) or not index["checkpoints"]:
        raise Refused("LCC-BUN-06", "no list of checkpoints")
    checkpoints: dict[int, tuple[Place, bytes]] = {}
    start, before = 8, -1
    for entry in index["checkpoints"]:
        if not isinstance(entry, list) or len(entry) != 3 or not is_integer(entry[0], before + 1, MAX_STEP):
            raise Refused("LCC-BUN-06", "not an entry, or a step that does not rise")
        before = entry[0]
        checkpoints[before] = file_entry(path, start, entry[1:])
        start += entry[1]
    exact = None
    if "exact" in index:
        exact = file_entry(path, start, index["exact"])
        start += index["exact"][0]
    if start != 8 + files:
        raise Refused("LCC-BUN-06", "the lengths do not sum to those of the files")
    return checkpoints, exact


def file_entry(path: Path, start: int, entry: Any) -> tuple[Place, bytes]:
    """The place and the root of a file, from its length and root in the index (LCC-BUN-06)."""
    if not isinstance(entry, list) or len(entry) != 2 or not is_integer(entry[0], 1, MAX_STEP):
        raise Refused("LCC-BUN-06", "not the length and the root of a file")
    length, root = entry
    if not isinstance(root, str) or not re.fullmatch("[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]", root):
        raise Refused("LCC-BUN-06", "a root is not 43 characters of base64url")
    return Place(path, start, length), base64.urlsafe_b64decode(root + "=")


def read_bundle(path: str | os.PathLike[str], step: int | None = None) -> Any:
    """The state of a step of a bundle, or its newest state, that of the exact file if it fits."""
    checkpoints, exact = read_index(Path(path))

    def find(step: int) -> Checkpoint:
        if step not in checkpoints:
            raise Refused("LCC-CHN-02", f"the bundle has no step {step}")
        place, root = checkpoints[step]
        found = load(place)
        if found.root != root or found.step != step:
            raise Refused("LCC-BUN-07", "the file is not that of the index")
        return found

    if step is None:
        step = max(checkpoints)
        if exact is not None and (newest := load_or_none(exact[0])) is not None:
            try:
                named = names(find(step), newest)
            except Refused:  # a damaged checkpoint, whose exact file may be sound
                named = True
            found = -1 if newest.step is None else newest.step
            is_exact = newest.root == exact[1] and newest.manifest.get("exact") is True
            if is_exact and (found > step or (found == step and named)):
                try:
                    return replay(newest, find)
                except Refused:  # a frame is damaged
                    return replay(find(step), find)
    elif step not in checkpoints and exact is not None:  # its step is one of the chain, too (LCC-EXA-04)
        alone = load_or_none(exact[0])
        if alone is not None and alone.manifest.get("exact") is True and alone.step == step:
            if alone.root != exact[1]:
                raise Refused("LCC-BUN-07", "the file is not that of the index")
            return replay(alone, find)
    return replay(find(step), find)


def load_or_none(place: Place) -> Checkpoint | None:
    """The checkpoint at a place, if it can be read."""
    try:
        return load(place)
    except Refused:
        return None
