"""Invariant: parsing returns or raises a LccodecError, nothing else, in bounded time and memory.

A manifest that is accepted is written as the same bytes again.

The first byte of an input says what the rest is, modulo 3:

0. a manifest, as it is;
1. a manifest that is brought into canonical form where it is JSON;
2. the number of a manifest of the vectors, and edits of it, three bytes each: the place of a value
   in the document (u16), and what stands there instead.

An inherited tree is that of another manifest.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from outcomes import Outcomes
from target_checkpoint import TOKENS as _OF_FILES
from target_checkpoint import parts

from lccodec.constants import FORMAT_MINOR
from lccodec.container.manifest import INHERITED, parse_manifest, read_figures
from lccodec.container.tree import array_names, unflatten

outcomes = Outcomes()

_VECTORS = Path(__file__).parents[1] / "spec" / "vectors"
_TREE: Any = {"a": 0, "b": ["l", 1, None], "c": ["t", None, 0]}
_MAX_NODES = 1 << 12  # of a tree that is made into a state, and of values that edits may change
_MAX_EDITS = 8

#: What edits put in the place of values.
_VALUES = (
    *("null", "true", "false", "0", "1", "2", "3", "-1", "0.5", "9007199254740991", "9007199254740992"),
    *('""', '"a"', f'"{"A" * 22}"', f'"{"A" * 43}"', "[]", "{}", "[0]", "[1,0]", "[1,2]", "[null]", "[[]]"),
    *('{"f":"nan"}', '{"f":"1.5"}', '{"b":""}', '{"b":"AQ=="}', '["l"]', '["t",0]', '["l",0,1]'),
    *(f'[1,"{"A" * 43}"]', f'[3,"{"A" * 43}",128]', f'[9,"{"A" * 22}"]', f'[9,"{"A" * 22}",28]', "[[0,10]]"),
    *('{"a":0}', "65535", "65536", "255", "256", "16256", "32640"),
)

#: Text worth writing over or between other text.
TOKENS = (
    *_OF_FILES,
    *(
        token.encode()
        for token in (
            *('"figures":', '"replaces":[', '"exact":true,', '"step":0,', '"policy":null,'),
            *("[1,0]", "[1,1]", "[1,2]", "[0,0]", "9007199254740991", "4194304", "65535", "255", "256"),
            '"' + "A" * 22 + '"',
        )
    ),
)


def check(data: bytes) -> None:
    """Parse an input and write it again; an exception from here breaks the invariant."""
    mode, rest = data[:1] or b"\0", data[1:]
    text = (bytes, _canonical, _edited)[mode[0] % 3](rest)
    with outcomes.counted():
        manifest = parse_manifest(text, "manifest")
        read_figures(manifest.figures, len(manifest.arrays))
        if manifest.to_bytes() != text and manifest.minor <= FORMAT_MINOR:
            raise AssertionError("it is written as other bytes")
        if manifest.tree is INHERITED:
            manifest = manifest.inherit(_TREE, "manifest")
        names = array_names(manifest.tree)
        if len(names) + len(manifest.scalars) <= _MAX_NODES:
            unflatten(manifest.tree, list(range(len(manifest.arrays))), manifest.scalars)


def _canonical(text: bytes) -> bytes:
    try:
        return _text_of(json.loads(text))
    except (ValueError, RecursionError):
        return text


def _text_of(document: Any) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def _edited(data: bytes) -> bytes:
    """Return a manifest of the vectors after some edits."""
    return edited(_manifests()[(data[0] if data else 0) % len(_manifests())], data[1:])


def edited(manifest: bytes, data: bytes) -> bytes:
    """Return a manifest after some edits."""
    document = json.loads(manifest)
    for start in range(0, min(len(data), 3 * _MAX_EDITS) - 2, 3):
        places = list(_places(document))
        inside, key = places[int.from_bytes(data[start : start + 2], "little") % len(places)]
        edit = data[start + 2] % (len(_VALUES) + 3)
        if edit < len(_VALUES):
            inside[key] = json.loads(_VALUES[edit])
        elif edit == len(_VALUES):
            del inside[key]
        elif edit == len(_VALUES) + 1 and isinstance(inside, list):
            inside.insert(key, inside[key])
        else:
            other, name = places[data[start] % len(places)]
            inside[key] = other.get(name) if isinstance(other, dict) else other[name]
        if not document:
            break
    try:
        return _text_of(document)
    except (ValueError, RecursionError):  # a list in itself
        return b""


def _places(node: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the containers and keys of all values of a document, as a walk meets them."""
    stack = [node]
    for _ in range(_MAX_NODES):
        if not stack:
            return
        inside = stack.pop()
        keys = inside.keys() if isinstance(inside, dict) else range(len(inside))
        for key in list(keys):
            yield inside, key
            if isinstance(inside[key], dict | list):
                stack.append(inside[key])


@cache
def _manifests() -> list[bytes]:
    return [seed[1:] for seed in seeds() if seed[0] == 0]


def seeds() -> Iterator[bytes]:
    """Yield the manifests of keyframes among the valid vectors, in every mode."""
    number = 0
    for path in sorted((_VECTORS / "valid").glob("*.lcc.h5")):
        _, manifest = parts(path.read_bytes())
        if len(manifest) < 1 << 14 and b'"tree"' in manifest:
            yield b"\0" + manifest
            yield b"\1" + manifest
            yield b"\2" + bytes([number])
            number += 1


def vectors() -> Iterator[bytes]:
    """Yield the manifests of all other vectors that have one, valid or not."""
    for path in sorted(_VECTORS.rglob("*.lcc.h5")):
        with suppress(struct.error):
            manifest = parts(path.read_bytes())[1]
            if len(manifest) < 1 << 14:
                yield b"\0" + manifest
