"""Invariant: opening returns or raises a LccodecError, nothing else, in bounded time and memory.

`lccodec.validate` and `lccodec.unbundle` are held to the same. What is taken apart lies in the
directory that was given, under names of checkpoints.

The first byte of an input says what the rest is, modulo 3:

0. a bundle, as it is;
1. a bundle whose root is computed anew;
2. an index, its length (u32) before it, and then the files: put into a bundle, whose root is right,
   and whose entries have the lengths and roots of the files where there are that many.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import struct
import tempfile
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from outcomes import Outcomes, TooLargeError
from scratch import new_directory

import lccodec
from lccodec.constants import BUNDLE_MAGIC, BUNDLE_TRAILER_SIZE, ROOT_SIZE, TRAILER_MAGIC, TRAILER_SIZE
from lccodec.container.bundle import Bundle, BundleTrailer

outcomes = Outcomes()

#: Most decoded bytes of a step that is decoded.
MAX_DECODED = 1 << 22
_MAX_STEPS = 4  # of a bundle that are looked into
_NAME = re.compile(r"[0-9]{12,16}\.lcc\.h5|exact\.lcc\.h5")

#: Text worth writing over or between other text of an index.
TOKENS = tuple(
    token.encode()
    for token in (
        *("null", "true", "0", "-1", "1", "2", "9007199254740992", "1e400", "1.0", "NaN"),
        *("{}", "[]", '"checkpoints":', '"exact":', '"name":"../x"', "[" * 70, "9" * 4097, ",", " "),
        '[1,1,"' + "A" * 43 + '"]',
    )
)


def check(data: bytes) -> None:
    """Open, check and take apart an input; an exception from here breaks the invariant."""
    mode, rest = data[:1] or b"\0", data[1:]
    path = _directory() / "input.lcc"
    path.write_bytes((bytes, _with_root, _repaired)[mode[0] % 3](rest))
    with outcomes.counted(), warnings.catch_warnings(action="ignore", category=lccodec.LccodecWarning):
        lccodec.validate(path)
        with Bundle(path) as bundle:
            steps: list[int | None] = [None, *bundle.steps[:_MAX_STEPS]]
        for step in steps:
            _examine(path, step)
        lccodec.validate(path, deep=True)
        _take_apart(path)


def _examine(path: Path, step: int | None) -> None:
    """Decode a step; raise ``TooLargeError`` if it decodes to more than is decoded here."""
    with lccodec.open(path, step=step) as file:
        if sum(array.nbytes for array in file.info().arrays) > MAX_DECODED:
            raise TooLargeError
        file.state(dtype="bits")


def _take_apart(path: Path) -> None:
    target = path.parent / "inside" / "run"
    try:
        lccodec.unbundle(path, target)
    finally:
        found = {str(file.relative_to(path.parent)) for file in path.parent.rglob("*") if file.is_file()}
        shutil.rmtree(path.parent / "inside", ignore_errors=True)
    for name in found - {path.name}:
        place = Path(name)
        if place.parent != Path("inside", "run") or not _NAME.fullmatch(place.name):
            raise RuntimeError(f"a file was written to {name}")


def _with_root(bundle: bytes) -> bytes:
    """Return a bundle with the root that its trailer should have (LCC-BUN-04)."""
    if len(bundle) < len(BUNDLE_MAGIC) + BUNDLE_TRAILER_SIZE:
        return bundle
    files, length = struct.unpack_from("<2Q", bundle, len(bundle) - BUNDLE_TRAILER_SIZE + 16)
    start = min(len(BUNDLE_MAGIC) + files, len(bundle))
    covered = BUNDLE_MAGIC + bundle[start : start + length] + bundle[-BUNDLE_TRAILER_SIZE:-ROOT_SIZE]
    return bundle[:-ROOT_SIZE] + hashlib.sha256(covered).digest()


def _repaired(data: bytes) -> bytes:
    """Return a bundle of an index, its length before it, and files."""
    size = int.from_bytes(data[:4], "little")
    index, files = data[4 : 4 + size], data[4 + size :]
    try:
        document = json.loads(index)
        _fit(document, _split(files))
        index = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        pass
    trailer = BundleTrailer(len(files), len(index)).to_bytes()
    return _with_root(b"".join((BUNDLE_MAGIC, files, index, trailer)))


def _split(files: bytes) -> list[bytes]:
    """Return checkpoint files that lie end to end: each ends in a trailer."""
    found, start = [], 0
    while (place := files.find(TRAILER_MAGIC, start)) >= 0:
        found.append(files[start : place + TRAILER_SIZE])
        start = place + TRAILER_SIZE
    return found


def _fit(document: Any, files: list[bytes]) -> None:
    """Put lengths and roots of files into the entries of an index, where there are that many."""
    entries = [entry[-2:] for entry in document["checkpoints"]]
    entries += [document["exact"]] if "exact" in document else []
    if len(entries) != len(files):
        return
    for number, file in enumerate(files):
        root = base64.urlsafe_b64encode(file[-ROOT_SIZE:]).rstrip(b"=").decode()
        if number < len(document["checkpoints"]):
            document["checkpoints"][number][-2:] = [len(file), root]
        else:
            document["exact"][:] = [len(file), root]


_directory = cache(new_directory)


def seeds() -> Iterator[bytes]:
    """Yield inputs of every mode: bundles with and without an exact file."""
    for newest in ("history", "exact"):
        with tempfile.TemporaryDirectory() as name, lccodec.Chain(name, "lc-3", newest=newest) as chain:
            for step in range(3):
                chain.save(step, {"weight": np.full((4, 9), step, np.float32), "step": step})
            lccodec.bundle(name, Path(name) / "run.lcc")
            bundle = (Path(name) / "run.lcc").read_bytes()
        files, length = struct.unpack_from("<2Q", bundle, len(bundle) - BUNDLE_TRAILER_SIZE + 16)
        start = len(BUNDLE_MAGIC) + files
        index = bundle[start : start + length]
        yield b"\0" + bundle
        yield b"\1" + bundle
        yield b"\2" + length.to_bytes(4, "little") + index + bundle[len(BUNDLE_MAGIC) : start]
