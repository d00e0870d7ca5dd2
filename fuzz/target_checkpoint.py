"""Invariant: loading returns or raises a LccodecError, nothing else, in bounded time and memory.

Looking into one (`lccodec.open`) and `lccodec.validate` are held to the same.

The first byte of an input says what the rest is, modulo 4:

0. a file, as it is;
1. a file whose root is computed anew;
2. a manifest, its length (u32) before it, and then the payload: put into a file, whose root is
   right;
3. the same, and the manifest is brought into canonical form where it is JSON, its lengths and
   digests are those of the payload, the CRC-32 of every frame is right, and a parent that lies
   beside it is named by its root.

The file lies in memory or, where bit 7 of the first byte is set, in a directory beside the parent
of a delta.
"""

from __future__ import annotations

import base64
import hashlib
import json
import struct
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from outcomes import Outcomes, TooLargeError
from scratch import new_directory

import lccodec
from lccodec.chain.read.checkpoint import OpenCheckpoint, open_data
from lccodec.constants import FORMAT_MINOR, MAX_EXPANSION, PAYLOAD_OFFSET, ROOT_SIZE, TRAILER_SIZE
from lccodec.container.checkpoint import Trailer, skeleton
from lccodec.policy.roles import Assignment

#: Most decoded bytes of an input that is decoded. The format allows more; inputs beyond tell
#: nothing new.
MAX_DECODED = 1 << 22

outcomes = Outcomes()

_IN_DIRECTORY = 0x80
_STATE = {
    "layer/1": [np.arange(60, dtype=np.float32).reshape(6, 10), (np.ones(3, np.int16), None, b"\0\xff")],
    "~": {"": True, "π": "\n\u20ac", "lr": 1e-3, "nan": float("nan"), "big": -(10**30)},
    "empty": np.zeros((0, 4), np.float64),
}

_WEIGHT = {"layer~11/0": Assignment("weight", "")}

#: Text worth writing over or between other text of a manifest.
TOKENS = tuple(
    token.encode()
    for token in (
        *("null", "true", "0", "-1", "1", "2", "65536", "9007199254740992", "1e400", "-0.0", "NaN"),
        "Infinity",
        *('"l"', '"t"', '["l"]', '["t",0]', '["l",null]', "{}", "[]", '{"f":"nan"}', '{"f":"0.1"}'),
        '{"b":""}',
        *('"lccodec":[1,0]', '"lccodec":[1,1]', '"lccodec":[1,2]', '"tree":', '"metadata":{"a":"b"},'),
        *('"metadata":{},', '"a":0,', '\\"', "\\ud800", "\\u0000", "é"),
        *("[" * 70, "]" * 70, '{"a":' * 70, "}" * 70, "9" * 4097, ",", '"', "\ufeff", " "),
        *('"parent":null', '"parent":[1,"' + "A" * 43 + '"]', '"later":[3,"' + "A" * 43 + '",128],'),
        *('"copies":[[0,10]],', '"copies":[[0,255]],'),
    )
)


def check(data: bytes) -> None:
    """Open, look into and load an input; an exception from here breaks the invariant."""
    mode, rest = data[:1] or b"\0", data[1:]
    file = made(mode[0], rest)
    with outcomes.counted():
        if mode[0] & _IN_DIRECTORY:
            path = _directory() / "000000000002.lcc.h5"
            path.write_bytes(file)
            lccodec.validate(path)
            with lccodec.open(path) as opened:
                _examine(opened)
            lccodec.load_file(path)
            lccodec.validate(path, deep=True)
        else:
            with open_data(file) as opened:
                _examine(opened)
            lccodec.load(file, dtype="bits")


def _examine(file: OpenCheckpoint) -> None:
    """Look into an open checkpoint; raise ``TooLargeError`` for one that decodes to too much."""
    file.metadata()
    info = file.info()
    allowed = [a.nbytes for a in info.arrays if a.relative or a.nbytes <= MAX_EXPANSION * a.stored_bytes]
    if sum(allowed) > MAX_DECODED:
        raise TooLargeError
    for name in file.keys()[:3]:
        with suppress(lccodec.LccodecError):
            file.get(name, dtype="bits")
        try:
            file.get(name, rows=slice(-2, None), dtype="bits")
        except lccodec.ArgumentError as error:
            if "no rows" not in str(error):  # bytes are to blame, and not the caller
                raise AssertionError from error
        except lccodec.LccodecError:
            pass


def made(mode: int, rest: bytes) -> bytes:
    """Return the file of an input."""
    if mode % 4 == 3:
        return _repaired(rest, _roots() if mode & _IN_DIRECTORY else {})
    return (bytes, _with_root, _assembled)[mode % 4](rest)


def _with_root(file: bytes) -> bytes:
    """Return a file with the root that its trailer should have (LCC-TRL-05)."""
    if len(file) < PAYLOAD_OFFSET + TRAILER_SIZE:
        return file
    head, payload = struct.unpack_from("<2Q", file, len(file) - TRAILER_SIZE + 16)
    covered = file[:head] + file[head + payload : -ROOT_SIZE]
    return file[:-ROOT_SIZE] + hashlib.sha256(covered).digest()


def _assembled(data: bytes) -> bytes:
    """Return a file of a manifest, its length before it, and a payload; the trailer is right."""
    size = int.from_bytes(data[:4], "little")
    return assemble(data[4 : 4 + size], data[4 + size :])


def _repaired(data: bytes, roots: Mapping[int, str]) -> bytes:
    """Return a file as `_assembled`, where all that can be computed from the payload has been.

    A parent whose root is known gets it.
    """
    size = int.from_bytes(data[:4], "little")
    manifest, payload = data[4 : 4 + size], data[4 + size :]
    try:
        document = json.loads(manifest)
        document["frames"], payload = _entries(document["frames"], payload)
        match document.get("parent"):
            case [int(step), str(), *rest] if step in roots:
                document["parent"] = [step, roots[step], *rest]
        manifest = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    return assemble(manifest, payload)


def _entries(frames: list[Any], payload: bytes) -> tuple[list[Any], bytes]:
    """Return frame entries with their digests, and the payload with the CRC-32 of each frame."""
    entries: list[Any] = []
    pieces, start = [], 0
    for index, entry in enumerate(frames):
        if not isinstance(entry, list) or not isinstance(entry[0], int):
            entries.append(entry)
            continue
        stop = len(payload) if index == len(frames) - 1 else start + max(entry[0], 0)
        body = payload[start:stop][:-4]
        frame = body + zlib.crc32(body).to_bytes(4, "little")
        digest = base64.urlsafe_b64encode(hashlib.sha256(frame).digest()[:16]).rstrip(b"=").decode()
        entries.append([len(frame), digest])
        pieces.append(frame)
        start = stop
    return entries, b"".join(pieces)


def assemble(manifest: bytes, payload: bytes) -> bytes:
    """Return a file of any manifest and payload, of version 1.0 if the manifest is."""
    minor = 0 if manifest.startswith(b'{"lccodec":[1,0]') else FORMAT_MINOR
    trailer = Trailer(len(payload), len(manifest), minor=minor)
    return _with_root(b"".join((skeleton(trailer), payload, manifest, trailer.to_bytes())))


@cache
def _roots() -> dict[int, str]:
    """Return the roots of the parents by their steps, as a manifest has them."""
    files = (_directory() / f"{step:012}.lcc.h5" for step in (1, 3))
    roots = [base64.urlsafe_b64encode(file.read_bytes()[-ROOT_SIZE:]).rstrip(b"=") for file in files]
    return dict(zip((1, 3), map(bytes.decode, roots), strict=True))


@cache
def _directory() -> Path:
    """Return a directory with the parents that checkpoints of the seeds name, made once."""
    directory = new_directory()
    _save_group(str(directory))
    return directory


def _moved(distance: float) -> dict[str, Any]:
    weight, *others = _STATE["layer/1"]
    return {**_STATE, "layer/1": [weight + np.float32(distance), *others]}


def _save_group(directory: str) -> None:
    """Save a keyframe, a delta to it, and a checkpoint that is interpolated between the two."""
    with lccodec.Chain(directory, "lc-3", hindsight=2) as chain:
        for step, state in enumerate((_STATE, _moved(0.25), _moved(0.5)), 1):
            chain.save(step, state, {"why": "a group"} if step == 2 else {}, roles=_WEIGHT)


def seeds() -> Iterator[bytes]:
    """Yield inputs of every mode: keyframes, and deltas where their parent is at hand."""
    for file in (lccodec.save(_STATE, {"made by": "a target"}), lccodec.save(np.ones(9)), lccodec.save(None)):
        yield from _inputs(file, 0)
        yield from _inputs(file, _IN_DIRECTORY)
    for state in (_moved(0.25), {"new": np.ones(4, np.uint8), **_moved(0.25)}):
        with tempfile.TemporaryDirectory() as name, lccodec.Chain(name, "lc-3") as chain:
            chain.save(1, _STATE, roles=_WEIGHT)
            chain.save(2, state, {"why": "a delta"}, roles=_WEIGHT)
            yield from _inputs(Path(name, "000000000002.lcc.h5").read_bytes(), _IN_DIRECTORY)
    with tempfile.TemporaryDirectory() as name:
        _save_group(name)
        yield from _inputs(Path(name, "000000000002.lcc.h5").read_bytes(), _IN_DIRECTORY)


def _inputs(file: bytes, flags: int) -> Iterator[bytes]:
    payload, manifest = parts(file)
    apart = len(manifest).to_bytes(4, "little") + manifest + payload
    for mode, rest in enumerate((file, file, apart, apart)):
        yield bytes([mode | flags]) + rest


def parts(file: bytes) -> tuple[bytes, bytes]:
    """Return the payload and the manifest of a checkpoint file."""
    head, payload, place, size, _ = struct.unpack_from("<5Q", file, len(file) - TRAILER_SIZE + 16)
    return file[head : head + payload], file[place : place + size]
