"""The command of the package lccodec for ``run.py``: one answer for each question, a line each."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import warnings
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

import lccodec
from lccodec.chain.mend.repair import repair
from lccodec.chain.store.directory import DirectoryStore
from lccodec.constants import ELEMENT_TYPES
from lccodec.container.bundle import Bundle
from lccodec.container.parity import check_file
from lccodec.container.source import FileSource
from lccodec.container.tree import flatten, unflatten
from lccodec.element_types import Array, components, from_components
from lccodec.frame.decode import decode_components
from lccodec.frame.encode import TAIL
from lccodec.frame.header import parse_header

_MAX_SHOWN = 1 << 16  # bytes of values
_KINDS = {kind.name: kind for kind in ELEMENT_TYPES}


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to a question."""
    try:
        return _written(question) if "write" in question else _read(question)
    except lccodec.ChainError:
        return {"rule": "LCC-CHN-02", "error": "ChainError"}  # a missing parent, or another one
    except lccodec.DataError as error:
        return {"rule": error.rule, "error": type(error).__name__}


def _read(question: dict[str, Any]) -> dict[str, Any]:
    if "frame" in question:
        return _frame(Path(question["frame"]).read_bytes(), question["reference"])
    if "file" in question:
        return described(lccodec.load_file(question["file"], dtype="bits"))
    if "chain" in question:
        with lccodec.open(question["chain"]) as file:
            return described(file.state(dtype="bits"))
    if "parity" in question:
        with closing(FileSource(Path(question["parity"]))) as source:
            index = check_file(source, question["parity"], question["named"])
        return {"files": [member.name for member in index.layout.members]}
    if "mend" in question:
        return _mended(Path(question["mend"]))
    if "step" in question:
        return _of_bundle(question["bundle"], question["step"])
    with Bundle(Path(question["bundle"])) as bundle:
        steps = bundle.steps
    for step in (None, *steps):
        _of_bundle(question["bundle"], step)
    return {}


def _frame(frame: bytes, reference: str | None) -> dict[str, Any]:
    header = parse_header(frame, behind=TAIL.size)
    base = None
    if header.relative:
        stored = b"" if reference is None else Path(reference).read_bytes()
        base = np.frombuffer(stored, header.kind.bits.newbyteorder("<")).astype(header.kind.bits)
    data = _little(decode_components(frame, base))
    values = {"values": data.hex()} if len(data) <= _MAX_SHOWN else {}
    digest = sha256(data).hexdigest()
    return {"dtype": header.kind.name, "shapes": header.shapes, "sha256": digest, **values}


def _of_bundle(path: str, step: int | None) -> dict[str, Any]:
    with lccodec.open(path, step=step, exact=step is None) as file:
        return described(file.state(dtype="bits"))


def _mended(directory: Path) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        place = Path(name, "chain")
        shutil.copytree(directory, place / ".parity", ignore=shutil.ignore_patterns("*.h5"))
        shutil.copytree(directory, place, ignore=shutil.ignore_patterns("*.par"), dirs_exist_ok=True)
        repair(DirectoryStore(place))
        return {
            "files": {
                path.relative_to(place).as_posix(): sha256(path.read_bytes()).hexdigest()
                for path in sorted(place.rglob("*.h5"))
            }
        }


def _written(question: dict[str, Any]) -> dict[str, Any]:
    """Write a state to a file."""
    arrays = []
    for array in question["arrays"]:
        kind, shape = _KINDS[array["dtype"]], tuple(array["shape"])
        bits = np.frombuffer(Path(array["values"]).read_bytes(), kind.bits.newbyteorder("<"))
        arrays.append(from_components(bits.astype(kind.bits), kind, shape, "bits"))
    lccodec.save_file(unflatten(question["tree"], arrays, question["scalars"]), question["write"])
    return {}


def described(state: Any) -> dict[str, Any]:
    """Return what a state holds: tree and scalars as SPEC.md 5.1 writes them, and its arrays."""
    flat = flatten(state)
    arrays = [
        {
            "name": name,
            "dtype": components(array)[0].name,
            "shape": list(array.shape),
            "sha256": sha256(_little(components(array)[1])).hexdigest(),
        }
        for name, array in zip(flat.names, flat.arrays, strict=True)
    ]
    return {"tree": flat.tree, "scalars": flat.scalars, "arrays": arrays}


def _little(bits: Array) -> bytes:
    return bits.astype(bits.dtype.newbyteorder("<")).tobytes()


if __name__ == "__main__":
    warnings.simplefilter("ignore", lccodec.LccodecWarning)
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps({"id": asked["id"], **answer(asked)}), flush=True)
