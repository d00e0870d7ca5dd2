"""Interpolated checkpoints with a fault, and the sound files beside them (SPEC 9, LCC-INT)."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from broken import Broken
from broken_checkpoints import (
    COUNTS,
    SOUND,
    WEIGHT,
    Document,
    base64_of,
    delta,
    file_of,
    keyframe,
    raw_frame,
    text_of,
)

#: The later end of all spans, a delta against `SOUND` in which nothing changes.
END = file_of(text_of(delta(step=131_073)), b"")


def interpolated(step: int | None, low: tuple[int, bytes], high: Any, **members: Any) -> Document:
    """Return the manifest of a checkpoint between two files, given by their steps."""
    document = delta(step=step, parent=[low[0], base64_of(low[1][-32:])], **members)
    head = {name: document.pop(name) for name in ("lccodec", "step", "parent")}
    later = [high[0], base64_of(high[1][-32:]), 128] if isinstance(high, tuple) else high
    return {**head, "later": later, **document}


def _halves() -> dict[int, bytes]:
    """Return the end, and 16 checkpoints of which each lies between step 1 and the one before."""
    found = {131_073: END}
    for exponent in range(16, 0, -1):
        high = (2 ** (exponent + 1) + 1, found[2 ** (exponent + 1) + 1])
        step = 2**exponent + 1
        found[step] = file_of(text_of(interpolated(step, (1, SOUND), high)), b"")
    return found


#: Files that lie beside the broken ones, by step.
HALVES = _halves()

#: More: a delta, a checkpoint interpolated from there to the end, a keyframe of another array.
LATE = {20: file_of(text_of(delta(step=20)), b"")}
_MORE = keyframe((WEIGHT, COUNTS), step=200_000, tree={"weight": 0, "more": 1}, scalars=...)
LATE[200_000] = file_of(text_of(_MORE), WEIGHT + COUNTS)
LATE[30] = file_of(text_of(interpolated(30, (20, LATE[20]), (131_073, END))), b"")


def _case(
    rule: str,
    case: str,
    why: str,
    document: Document,
    error: str = "FormatError",
    *beside: int,
    payload: bytes = b"",
) -> Broken:
    names = [f"{step:012d}.lcc.h5" for step in beside]
    data = file_of(text_of(document), payload)
    return Broken(rule, case, error, why, data, HALVES[3], of_the_chain=bool(beside), beside=names)


def broken_interpolations() -> Iterator[Broken]:
    """Yield every invalid interpolated checkpoint."""
    low, high, rule = (1, SOUND), (131_073, END), "LCC-INT-01"
    root = base64_of(END[-32:])
    for case, why, later in (
        ("null", "the later parent is null", None),
        ("step-and-root", "the later parent has no weight", [131_073, root]),
        ("four-items", "the later parent has four items", [131_073, root, 128, 0]),
        ("short", "the root of the later parent has 42 characters", [131_073, root[:-1], 128]),
        ("hexadecimal", "the root of the later parent is in hexadecimal", [131_073, END[-32:].hex(), 128]),
        ("text", "the step of the later parent is a text", ["131073", root, 128]),
        ("root-null", "the root of the later parent is null", [131_073, None, 128]),
        ("large", "the step of the later parent is 2^53", [2**53, root, 128]),
        ("own-step", "the later parent is of the checkpoint's own step", [2, root, 128]),
        ("earlier", "the later parent is of an earlier step", [1, root, 128]),
        ("whole", "the weight of the later parent is 256", [131_073, root, 256]),
        ("negative", "the weight of the later parent is negative", [131_073, root, -1]),
        ("fraction", "the weight of the later parent is not an integer", [131_073, root, {}]),
    ):
        yield _case(rule, case, why, interpolated(2, low, later))
    why = "an interpolated checkpoint has no step"
    yield _case(rule, "no-step", why, interpolated(None, low, high))
    why = "an interpolated checkpoint has the step of its earlier parent"
    yield _case(rule, "step-of-parent", why, interpolated(1, low, high))
    why = "there is a later parent and no earlier one"
    document = interpolated(2, low, high, tree={"weight": 0, "list": ["l", 1, None], "pair": ["t", None, 0]})
    yield _case(rule, "no-parent", why, {**document, "parent": None})
    yield _case(
        "LCC-MAN-03", "later-first", "later comes before parent", _swapped(interpolated(2, low, high))
    )

    rule = "LCC-INT-02"
    middle, quarter = ((step, HALVES[step]) for step in (65_537, 32_769))
    why = "the parent of a delta is interpolated"
    document = delta(step=70_000, parent=[middle[0], base64_of(middle[1][-32:])])
    yield _case(rule, "delta", why, document, "FormatError", 65_537)
    why = "an interpolated parent has a span that ends before that of its child"
    yield _case(rule, "span", why, interpolated(40_000, quarter, high), "FormatError", 32_769, 131_073)
    why = "an interpolated parent has a span that begins behind that of its child"
    document = interpolated(25, low, (30, LATE[30]))
    yield _case(rule, "span-before", why, document, "FormatError", 131_073, 20, 30)
    why = "a checkpoint and those that it needs are 17 interpolated ones"
    document = interpolated(2, low, (3, HALVES[3]))
    yield _case("LCC-LIM-10", "seventeen", why, document, "LimitError", *HALVES)
    why = "as many interpolated checkpoints as there may be, one with a frame of another sum"
    weight = raw_frame(np.array([1, 2, 4], "<f4"))
    weight = weight[:-12] + bytes([weight[-12] ^ 1]) + weight[-11:-4]
    weight += zlib.crc32(weight).to_bytes(4, "little")
    document = interpolated(3, low, (5, HALVES[5]), payload=(weight,), arrays=[1, 0])
    others = [step for step in HALVES if step != 3]
    yield _case("LCC-FRM-09", "sixteen", why, document, "ChecksumError", *others, payload=weight)
    why = "an array that only the later parent has is unchanged"
    document = interpolated(
        150_000, high, (200_000, LATE[200_000]), tree={"more": 0}, scalars=..., arrays=[0]
    )
    yield _case("LCC-CHN-03", "later-alone", why, document, "FormatError", 131_073, 200_000)
    why = "the later parent has another root"
    other = (131_073, END[:-1] + bytes([END[-1] ^ 1]))
    yield _case("LCC-CHN-02", "another-later", why, interpolated(2, low, other), "ChainError", 131_073)
    why = "the parent of a delta is of a later step"
    document = delta(step=10, parent=[20, base64_of(LATE[20][-32:])])
    yield _case("LCC-CHN-02", "parent-after", why, document, "FormatError", 20)
    why = "the later parent is not there"
    yield _case("LCC-CHN-02", "no-later", why, interpolated(2, low, (4, END)), "ChainError", 131_073)


def _swapped(document: Document) -> Document:
    """Return a manifest with `later` before `parent`."""
    step = {name: document[name] for name in ("lccodec", "step", "later", "parent")}
    return {**step, **document}
