"""Checkpoints with copies: one rounded by hand, broken ones, and a chain (SPEC 8, LCC-CPY)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from broken import Broken
from broken_checkpoints import COUNTS, WEIGHT, Document, base64_of, delta, entry, file_of, keyframe, text_of
from pieces import KINDS, RAW, assembled, little

from lccodec.element_types import from_components

#: Patterns of float32 numbers, and what they are as bfloat16 and as float16 (LCC-CPY-03).
ROUNDED = (
    (0x00000000, 0x0000, 0x0000),  # 0
    (0x80000000, 0x8000, 0x8000),  # -0
    (0x3F800000, 0x3F80, 0x3C00),  # 1
    (0x3F808000, 0x3F80, 0x3C04),  # halfway between two bfloat16: the even one, below
    (0x3F818000, 0x3F82, 0x3C0C),  # the even one, above
    (0x3F808001, 0x3F81, 0x3C04),  # a little more than halfway
    (0x3F801000, 0x3F80, 0x3C00),  # halfway between two float16: the even one, below
    (0x3F803000, 0x3F80, 0x3C02),  # the even one, above
    (0x3F801001, 0x3F80, 0x3C01),
    (0xBF801001, 0xBF80, 0xBC01),
    (0x7F7F7FFF, 0x7F7F, 0x7C00),  # the largest that bfloat16 rounds to a number
    (0x7F7F8000, 0x7F80, 0x7C00),  # and the first that becomes an infinity
    (0xFF7FFFFF, 0xFF80, 0xFC00),
    (0x477FEFFF, 0x4780, 0x7BFF),  # the same of float16: below 65,520
    (0x477FF000, 0x4780, 0x7C00),
    (0xC77FF000, 0xC780, 0xFC00),
    (0x7F800000, 0x7F80, 0x7C00),  # infinities
    (0xFF800000, 0xFF80, 0xFC00),
    (0x00000001, 0x0000, 0x0000),  # subnormals of float32
    (0x00008000, 0x0000, 0x0000),
    (0x00008001, 0x0001, 0x0000),
    (0x80018000, 0x8002, 0x8000),
    (0x007FFFFF, 0x0080, 0x0000),
    (0x387FE000, 0x3880, 0x0400),  # subnormals of float16: halfway to the least normal number
    (0x387FDFFF, 0x3880, 0x03FF),
    (0x33800000, 0x3380, 0x0001),  # the least
    (0x33000000, 0x3300, 0x0000),  # half of it, which is 0
    (0xB3000001, 0xB300, 0x8001),
    (0x33C00000, 0x33C0, 0x0002),  # one and a half of it
    (0x7FC00000, 0x7FC0, 0x7E00),  # NaN
    (0xFFC00000, 0xFFC0, 0xFE00),
    (0x7F800001, 0x7FC0, 0x7E00),  # signaling, with a payload that is cut off
    (0xFFA04000, 0xFFE0, 0xFF02),
    (0x7FFFFFFF, 0x7FFF, 0x7FFF),
)


def _of(bits: np.ndarray[Any, Any], kind: str) -> np.ndarray[Any, Any]:
    """Return patterns as an array of a type."""
    found = KINDS[kind]
    return from_components(np.ascontiguousarray(bits, found.bits), found, bits.shape, "bits")


def _raw(bits: np.ndarray[Any, Any]) -> bytes:
    return assembled("", "", (RAW, "float32", bits.shape, 0), little(bits), bits).data


def rounded_file() -> tuple[bytes, dict[str, np.ndarray[Any, Any]]]:
    """Return a checkpoint with copies of both types, and its state."""
    single, brain, half = (np.array(column, "<u4") for column in zip(*ROUNDED, strict=True))
    state = {
        "bfloat16": _of(brain, "bfloat16"),
        "float16": _of(half, "float16").reshape(2, -1),
        "first": _of(single, "float32"),
        "second": _of(single, "float32").reshape(2, -1),
    }
    frames = [_raw(single), _raw(single.reshape(2, -1))]
    document = {
        "lccodec": [1, 0],
        "step": None,
        "parent": None,
        "policy": "by hand",
        "tree": {name: index for index, name in enumerate(state)},
        "arrays": [None, None, 1, 2],
        "copies": [[2, 10], [3, 9]],
        "frames": [entry(frame) for frame in frames],
    }
    return file_of(text_of(document), b"".join(frames)), state


def equal_files() -> Iterator[tuple[str, str, bytes, dict[str, np.ndarray[Any, Any]]]]:
    """Yield a keyframe and a delta with equal copies: name, description, file and state."""
    single, brain = (np.array(column, "<u4") for column in list(zip(*ROUNDED, strict=True))[:2])
    counts, pairs = np.arange(300, dtype="<i2"), np.arange(7, dtype="<c8") * (1 - 1j)
    weight, other = _of(single, "float32"), _of(np.roll(single, 2), "float32")
    state = {
        "first": weight.copy(),
        "second": other,
        "counts": counts.reshape(3, 100),
        "weight": weight,
        "rounded": _of(brain, "bfloat16"),
        "third": other.copy(),
        "again": counts.reshape(3, 100),
        "pairs": ("equal", [pairs, pairs.copy()]),
    }
    tree = {**{name: index for index, name in enumerate(state)}, "pairs": ["t", None, ["l", 7, 8]]}
    frames = [
        _raw(np.roll(single, 2)),
        assembled("", "", (RAW, "int16", (3, 100), 0), little(counts), counts).data,
        _raw(single),
        assembled("", "", (RAW, "complex64", (7,), 0), little(pairs), pairs).data,
    ]
    document = {
        "lccodec": [1, 1],
        "step": 185,
        "parent": None,
        "policy": "by hand",
        "tree": tree,
        "scalars": ["equal"],
        "arrays": [None, 1, 2, 3, None, None, None, 4, None],
        "copies": [[3, 255], [3, 10], [1, 255], [2, 255], [7, 255]],
        "frames": [entry(frame) for frame in frames],
    }
    first = file_of(text_of(document), b"".join(frames), minor=1)
    what = "a keyframe with equal copies: of an array that has a rounding, too, and of three others"
    yield "000000000185", what, first, state
    changed = np.roll(single, 1)
    frame = assembled("", "", (RAW, "float32", changed.shape, 0), little(changed), changed).data
    document = {
        "lccodec": [1, 1],
        "step": 186,
        "parent": [185, base64_of(first[-32:])],
        "policy": "by hand",
        "scalars": ["equal"],
        "arrays": [1, None, 0, 0, None, 0, 0, 0, 0],
        "copies": [[0, 255], [0, 10]],
        "frames": [entry(frame)],
    }
    second = file_of(text_of(document), frame, minor=1)
    moved = _of(changed, "float32")
    rounded = _of(np.roll(brain, 1), "bfloat16")
    what = "a delta against step 185: an array that was a copy is the source of another one now"
    yield "000000000186", what, second, {**state, "first": moved, "second": moved.copy(), "rounded": rounded}
    document["parent"] = [186, base64_of(second[-32:])]
    document |= {"step": 187, "arrays": [None, 0, 0, 0, 0, 0, 0, 0, 0], "copies": [[5, 255]], "frames": []}
    third = file_of(text_of(document), b"", minor=1)
    what = "a delta against step 186 without frames: a copy of an unchanged array"
    yield "000000000187", what, third, {**state, "first": other.copy(), "second": moved, "rounded": rounded}


def copying(copies: Any = ..., arrays: Any = (1, 2, None), **members: Any) -> Document:
    """Return the manifest of `SOUND` with a third array, a copy of the first."""
    tree = {"weight": 0, "list": ["l", 1, None], "pair": ["t", None, 0], "copy": 2}
    document = keyframe(**{"tree": tree, "arrays": list(arrays), **members})
    frames = document.pop("frames")
    return {**document, **({} if copies is ... else {"copies": copies}), "frames": frames}


def broken_copies() -> Iterator[Broken]:
    """Yield every invalid checkpoint whose fault is in its copies."""
    payload = WEIGHT + COUNTS
    sound = file_of(text_of(copying([[0, 10]])), payload)

    def case(rule: str, name: str, why: str, document: Document, error: str = "FormatError") -> Broken:
        return Broken(rule, name, error, why, file_of(text_of(document), payload), sound)

    rule = "LCC-CPY-01"
    for name, why, copies in (
        ("missing", "an array has no number, and there are no copies", ...),
        ("null", "the copies are null", None),
        ("object", "the copies are an object", {"2": [0, 10]}),
        ("nothing", "the list of copies is empty", []),
        ("two-for-one", "there are two copies, and one array without a number", [[0, 10], [1, 10]]),
        ("no-list", "a copy is not a list", [0]),
        ("no-type", "a copy has no element type", [[0]]),
        ("three", "a copy is a list of three", [[0, 10, 0]]),
        ("text", "the source of a copy is a name", [["weight", 10]]),
        ("fraction", "the source of a copy has a fraction", [[0.5, 10]]),
        ("boolean", "the source of a copy is false", [[False, 10]]),
        ("type-text", "the type of a copy is a text", [[0, "bfloat16"]]),
        ("beyond", "the source of a copy is not there", [[3, 10]]),
        ("negative", "the source of a copy is -1", [[-1, 10]]),
        ("itself", "an array is a copy of itself", [[2, 10]]),
    ):
        yield case(rule, name, why, copying(copies))
    four = {"weight": 0, "list": ["l", 1, None], "pair": ["t", None, 0], "copy": 2, "again": 3}
    for name, why, copies in (
        ("chain", "an array is a copy of a copy", [[0, 10], [2, 10]]),
        ("circle", "two arrays are copies of each other", [[3, 10], [2, 10]]),
        ("twice", "an array has two roundings", [[0, 10], [0, 9]]),
        ("equal-chain", "an array is an equal copy of an equal copy", [[0, 255], [2, 255]]),
        ("equal-rounding", "an array is an equal copy of a rounding", [[0, 10], [2, 255]]),
        ("equal-twice", "an array has two equal copies", [[0, 255], [0, 255]]),
    ):
        yield case(rule, name, why, copying(copies, [1, 2, None, None], tree=four))
    for name, why, source in (
        ("equal-beyond", "the source of an equal copy is not there", 3),
        ("equal-negative", "the source of an equal copy is -1", -1),
        ("equal-itself", "an array is an equal copy of itself", 2),
    ):
        yield case(rule, name, why, copying([[source, 255]]))
    for code in (-1, 11, 15, 254, 256):
        why = f"a copy has the code {code}"
        yield case(rule, f"type-{code}", why, copying([[0, code]]), "UnsupportedError")
    why = "no array is a copy, and the list of copies is there"
    nothing = {**keyframe(), "copies": []}
    frames = nothing.pop("frames")
    yield case(rule, "without-need", why, {**nothing, "frames": frames})
    document = copying([[0, 10]])
    copies = document.pop("copies")
    yield case("LCC-MAN-03", "copies-last", "copies come after frames", {**document, "copies": copies})
    yield case("LCC-CPY-02", "integers", "the source of a copy has integers", copying([[1, 10]]))
    # A delta: its source is unchanged, and of another type than float32 as the parent has it.
    tree = {"weight": 0, "list": ["l", 1, None], "pair": ["t", None, 0], "copy": 2}

    def of_delta(source: int) -> bytes:
        document = delta((), tree=tree, arrays=[0, 0, None])
        frames = document.pop("frames")
        return file_of(text_of({**document, "copies": [[source, 9]], "frames": frames}), b"")

    why = "the source of a copy has integers in the parent"
    data = of_delta(1)
    yield Broken("LCC-CPY-02", "inherited", "FormatError", why, data, of_delta(0), of_the_chain=True)


def copied_states() -> Iterator[dict[str, Any]]:
    """Yield the steps of a state in mixed precision; the last two are the same."""
    for step in range(4):
        single, brain, half = (
            np.roll(np.array(column, np.uint32), min(step, 2)) for column in zip(*ROUNDED, strict=True)
        )
        half[3] ^= step == 1  # not all of it is rounded to nearest
        yield {
            "model": {"w": _of(brain, "bfloat16"), "b": _of(half, "float16")},
            "master": {"w": _of(single, "float32"), "b": _of(single, "float32")},
        }
