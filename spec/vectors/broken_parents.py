"""Deltas whose parents, in one folder with them, do not fit or cannot be read (SPEC 9)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from broken import Broken
from broken_checkpoints import (
    COUNTS,
    HEAD,
    PARENT,
    SOUND,
    WEIGHT,
    base64_of,
    delta,
    file_of,
    keyframe,
    raw_frame,
    text_of,
)
from pieces import PLANES, RAW, assembled, block, constant

#: Files that lie beside the broken ones, by their paths.
BESIDE: dict[str, bytes] = {}

_CHILD = "000000000002.lcc.h5"
_TREE = {"weight": 0, "list": ["l", 1, None], "pair": ["t", None, 0]}


def _case(
    rule: str,
    case: str,
    why: str,
    parent: bytes,
    frames: Sequence[bytes] = (),
    error: str = "FormatError",
    arrays: Sequence[int] = (0, 0),
) -> Broken:
    """Return the vector of a delta against a file; its sound form is a delta against `SOUND`."""
    folder, named = f"{rule}-{case}", [1, base64_of(parent[-32:])]
    data = file_of(text_of(delta(frames, parent=named, arrays=list(arrays))), b"".join(frames))
    BESIDE[f"{folder}/{PARENT}"] = parent
    sound = file_of(text_of(delta()), b"")
    file, own = f"{folder}/{_CHILD}", f"{folder}/{PARENT}"
    return Broken(rule, case, error, why, data, sound, file=file, of_the_chain=True, parent=own)


def _run(shapes: list[tuple[int, ...]]) -> bytes:
    """Return a run of float32 in which nothing changes from 1, 2, 3, ..."""
    before = np.arange(1, 1 + sum(int(np.prod(shape)) for shape in shapes), dtype="<f4")
    planes = block(*[constant(0)] * 4)
    return assembled("", "", (PLANES, "float32", shapes, 10), planes, before, before).data


def _planes(values: np.ndarray) -> bytes:
    """Return an array of float32 in which nothing changes."""
    planes = block(*[constant(0)] * 4)
    return assembled("", "", (PLANES, "float32", values.shape, 10), planes, values, values).data


def broken_parents() -> Iterator[Broken]:
    """Yield every file made here."""
    payload = WEIGHT + COUNTS
    place = HEAD + len(WEIGHT) - 13  # of the last byte of the values
    flipped = SOUND[:place] + bytes([SOUND[place] ^ 1]) + SOUND[place + 1 :]
    other = file_of(text_of(keyframe(step=0)), payload)
    why = "the file of the parent holds another step, under the root that the delta names"
    yield _case("LCC-CHN-02", "parent", why, other, error="ChainError")
    yield _case("LCC-H5-01", "parent", "the parent is cut off", SOUND[:300], error="TruncatedError")
    head = bytes([SOUND[0] ^ 1]) + SOUND[1:]
    yield _case(
        "LCC-TRL-05", "parent", "a byte of the head of the parent is changed", head, (), "ChecksumError"
    )
    why = "a frame of the parent, of an array that is unchanged, does not match its digest"
    yield _case("LCC-MAN-08", "parent", why, flipped, (), "ChecksumError")
    rule, floats = "LCC-CHN-03", np.array([1, 2, 3], "<f4")
    why = "the second array of a run has another type in the parent"
    yield _case(rule, "second-type", why, SOUND, [_run([(3,), (2,)])], arrays=[1, 1])
    second = raw_frame(np.array([4, 5, 6], "<f4"))
    two = file_of(text_of(keyframe((raw_frame(floats), second))), raw_frame(floats) + second)
    why = "the second array of a run has another shape in the parent"
    yield _case(rule, "second-shape", why, two, [_run([(3,), (3, 1)])], arrays=[1, 1])
    both = np.array([1, 2, 3, 4, 5, 6], "<f4")
    square = raw_frame(both.reshape(2, 3))
    why = "an array has its extents in another order in the parent"
    turned = _planes(both.reshape(3, 2))
    single = {"tree": {"weight": 0, "list": ["l", None], "pair": ["t", None, 0]}, "arrays": [1]}
    before = file_of(text_of(keyframe((square,), **single)), square)
    yield _case(rule, "turned", why, before, [turned], arrays=[1])
    wrong = np.array([1, 2, 3, 4, 5, 7], "<f4")
    run = assembled("", "", (RAW, "float32", [(3,), (3,)], 0), both.tobytes(), wrong).data
    summed = file_of(text_of(keyframe((run,), arrays=[1, 1])), run)
    why = "the array sum of a run of the parent is wrong, and one of its arrays is unchanged"
    same = _run([(3,)])
    yield _case("LCC-FRM-09", "run-of-parent", why, summed, [same], "ChecksumError", arrays=[1, 0])
