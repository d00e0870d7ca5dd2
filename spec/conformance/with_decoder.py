"""The command of spec/decoder for ``run.py``: one answer for each question, a line each."""

from __future__ import annotations

import base64
import json
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import decoder

_MAX_SHOWN = 1 << 16  # bytes of values


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to a question."""
    try:
        return _read(question)
    except decoder.Refused as error:
        return {"rule": error.rule}


def _read(question: dict[str, Any]) -> dict[str, Any]:
    if "frame" in question:
        reference = question["reference"]
        base = None if reference is None else Path(reference).read_bytes()
        dtype, shapes, data = decoder.decode_frame(Path(question["frame"]).read_bytes(), base)
        values = {"values": data.hex()} if len(data) <= _MAX_SHOWN else {}
        return {"dtype": dtype, "shapes": shapes, "sha256": sha256(data).hexdigest(), **values}
    if "file" in question:
        return described(decoder.read_checkpoint(question["file"]))
    if "chain" in question:
        return described(decoder.read_newest(question["chain"]))
    if "parity" in question:
        group, _ = decoder.read_parity(question["parity"], question["named"])
        return {"files": [name for name, *_ in group.files]}
    if "mend" in question:
        files = decoder.mend(question["mend"])
        return {"files": {name: sha256(data).hexdigest() for name, data in files.items()}}
    if "step" in question:
        return described(decoder.read_bundle(question["bundle"], question["step"]))
    for step in [None, *decoder.bundles.read_index(Path(question["bundle"]))[0]]:
        decoder.read_bundle(question["bundle"], step)
    return {}


def described(state: Any) -> dict[str, Any]:
    """Return what a state holds: tree and scalars as SPEC.md 5.1 writes them, and its arrays."""
    scalars: list[Any] = []
    arrays: list[dict[str, Any]] = []
    numbers: dict[int, int] = {}

    def walk(node: Any, path: tuple[str, ...]) -> Any:
        if isinstance(node, decoder.Array):
            if id(node) not in numbers:  # otherwise it is in another place, too
                numbers[id(node)] = len(numbers)
                name = "/".join(key.replace("~", "~0").replace("/", "~1") for key in path)
                digest = sha256(node.data).hexdigest()
                arrays.append({"name": name, "dtype": node.dtype, "shape": [*node.shape], "sha256": digest})
            return numbers[id(node)]
        if isinstance(node, dict):
            return {key: walk(child, (*path, key)) for key, child in node.items()}
        if isinstance(node, list | tuple):
            children = [walk(child, (*path, str(place))) for place, child in enumerate(node)]
            return ["l" if isinstance(node, list) else "t", *children]
        if isinstance(node, float):
            node = {"f": repr(node)}
        elif isinstance(node, bytes):
            node = {"b": base64.b64encode(node).decode()}
        scalars.append(node)
        return None

    tree = walk(state, ())
    return {"tree": tree, "scalars": scalars, "arrays": arrays}


if __name__ == "__main__":
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps({"id": asked["id"], **answer(asked)}), flush=True)
