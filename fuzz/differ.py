"""Compare the package with ``spec/decoder`` on broken bytes: ``python fuzz/differ.py LOG``.

Frames are vectors after a few changes, with a right CRC-32. Files are checkpoints of the vectors
after changes of their manifest or their frames, with right digests and a right root. Both decoders
must make the same of each, or refuse it. LOG gets a line now and then: how many were compared, how
many both decoded, where one accepts what the other refuses, and how many both refuse by other
rules. Each difference in accepting is in LOG, with its bytes.
"""

from __future__ import annotations

import argparse
import base64
import json
import random
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import numpy as np
import target_checkpoint
import target_frame
import target_manifest
from mutation import mutate

import lccodec
from lccodec.constants import MAX_EXPANSION
from lccodec.element_types import components
from lccodec.frame.decode import decode_components
from lccodec.frame.encode import TAIL
from lccodec.frame.header import parse_header

ROOT: Final = Path(__file__).parents[1]
VECTORS: Final = ROOT / "spec" / "vectors"
_MAX_DECODED: Final = 1 << 14  # the second decoder takes its time
_MAX_PARENT: Final = 3000
_EVERY: Final = 10_000

sys.path.insert(0, str(ROOT / "spec"))
import decoder  # noqa: E402 - it lies beside the specification


def of_package(frame: bytes, reference: bytes | None) -> str:
    """Return what the package makes of a frame: a digest, or a rule."""
    try:
        header = parse_header(frame, behind=TAIL.size)
        base = None
        if header.relative:
            base = np.frombuffer(reference or b"", header.kind.bits.newbyteorder("<"))
            base = base.astype(header.kind.bits)
        bits = decode_components(frame, base)
    except lccodec.DataError as error:
        return error.rule
    stored = bits.astype(bits.dtype.newbyteorder("<")).tobytes()
    return f"{header.kind.name} {[*header.shapes]} {sha256(stored).hexdigest()}"


def of_decoder(frame: bytes, reference: bytes | None) -> str:
    """Return the same of the second decoder."""
    try:
        name, shapes, stored = decoder.decode_frame(frame, reference)
    except decoder.Refused as error:
        return str(error.rule)
    return f"{name} {[tuple(shape) for shape in shapes]} {sha256(stored).hexdigest()}"


class Frames:
    """Makes broken frames, and says what both make of one."""

    def __init__(self) -> None:
        entries = json.loads((VECTORS / "manifest.json").read_bytes())
        frames = [entry for entry in entries if entry["kind"] == "frame"]
        read = [(self._read(entry["file"]), self._read(entry["reference"])) for entry in frames]
        self._parents = [(data, base) for data, base in read if data and len(data) < _MAX_PARENT]
        self._others = [data or b"" for data, _ in self._parents]

    @staticmethod
    def _read(name: str | None) -> bytes | None:
        return (VECTORS / name).read_bytes() if name else None

    def next(self, rng: random.Random) -> tuple[bytes, Callable[[], tuple[str, str]]] | None:
        """Return a frame and what compares it; None for one that is too large here."""
        data, reference = rng.choice(self._parents)
        frame = target_frame.sealed(mutate(data or b"", self._others, target_frame.TOKENS, rng))
        base = None
        try:
            header = parse_header(frame, behind=TAIL.size)
        except lccodec.DataError:
            pass
        else:
            expands = not header.relative and header.nbytes > MAX_EXPANSION * len(frame)
            if header.nbytes > _MAX_DECODED and not expands:
                return None
            if header.relative:
                source = reference or bytes(range(251))
                base = (source * (header.nbytes // len(source) + 1))[: header.nbytes]
                base = bytes(value & 1 for value in base) if header.kind.kind == "b" else base
        return frame, lambda: (of_package(frame, base), of_decoder(frame, base))


class Files:
    """Makes broken files beside all checkpoints of the vectors, and says what both make of one."""

    def __init__(self) -> None:
        self._own = tempfile.TemporaryDirectory(prefix="lccodec-differ-")
        self._path = Path(self._own.name, "input.lcc.h5")
        self._parents = []
        for path in sorted((VECTORS / "valid").glob("*.lcc.h5")):
            data = path.read_bytes()
            (self._path.parent / path.name).write_bytes(data)
            if len(data) < 4 * _MAX_PARENT:
                self._parents.append(target_checkpoint.parts(data))
        self._small = [payload for payload, _ in self._parents]

    def next(self, rng: random.Random) -> tuple[bytes, Callable[[], tuple[str, str]]] | None:
        """Return a file and what compares it."""
        payload, manifest = rng.choice(self._parents)
        if rng.random() < 0.6 or not payload:
            manifest = target_manifest.edited(manifest, rng.randbytes(3 * rng.choice((1, 1, 2, 3))))
            file = target_checkpoint.assemble(manifest, payload)
        else:
            payload = mutate(payload, self._small, target_frame.TOKENS, rng)
            file = target_checkpoint.made(3, len(manifest).to_bytes(4, "little") + manifest + payload)
        self._path.write_bytes(file)
        return file, self._compared

    def _compared(self) -> tuple[str, str]:
        try:
            with lccodec.open(self._path, max_bytes=8 * _MAX_DECODED) as opened:
                found = _text(opened.state(dtype="bits"))
        except lccodec.ChainError:
            found = "LCC-CHN-02"
        except lccodec.DataError as error:
            if not error.rule.startswith("LCC-"):
                return "", ""  # too large here
            found = error.rule
        try:
            return found, _text(decoder.read_checkpoint(self._path))
        except decoder.Refused as error:
            return found, str(error.rule)


def _text(state: Any) -> str:
    """Return what a state of either decoder holds, as a digest."""
    seen = sha256()

    def walk(node: Any) -> None:
        if isinstance(node, np.ndarray):
            kind, bits = components(node)
            little = bits.astype(bits.dtype.newbyteorder("<")).tobytes()
            seen.update(f"{kind.name} {[*node.shape]} ".encode() + little)
        elif hasattr(node, "dtype"):
            dtype, shape, data = node
            seen.update(f"{dtype} {[*shape]} ".encode() + bytes(data))
        elif isinstance(node, dict):
            seen.update(json.dumps([*node]).encode())
            for child in node.values():
                walk(child)
        elif isinstance(node, list | tuple):
            seen.update(f"{type(node).__name__} {len(node)} ".encode())
            for child in node:
                walk(child)
        else:
            seen.update(f"{type(node).__name__} {node!r} ".encode())

    walk(state)
    return seen.hexdigest()


def compare(what: str, source: Frames | Files, count: int, rng: random.Random, log: Path) -> bool:
    """Compare so many inputs; return whether one decoder accepts nothing that the other refuses."""
    compared = decoded = accepting = 0
    rules = Counter[str]()
    while compared < count:
        made = source.next(rng)
        if made is None:
            continue
        data, outcome = made
        compared += 1
        found, other = outcome()
        refused = [answer.startswith("LCC-") for answer in (found, other)]
        decoded += not any(refused)
        if all(refused) and found != other:
            rules[f"{found} for {other}"] += 1
        if found != other and not all(refused):
            accepting += 1
            _tell(log, f"{what}: {found}, and {other}: {base64.b85encode(data).decode()}")
        if compared % _EVERY == 0 or compared == count:
            line = f"{compared:,} {what}: {decoded:,} decoded by both, {accepting} accepted by one, "
            _tell(log, line + f"{rules.total():,} refused by other rules")
    _tell(log, f"{what}, rules of the package for those of the decoder: {dict(rules.most_common())}")
    return not accepting


def _tell(log: Path, line: str) -> None:
    with log.open("a") as file:
        print(time.strftime("%F %T"), line, file=file)


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("log", type=Path, metavar="LOG")
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    rng = random.Random(arguments.seed)
    held = compare("files", Files(), arguments.files, rng, arguments.log)
    held &= compare("frames", Frames(), arguments.frames, rng, arguments.log)
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
