"""What is just within a limit, and faults that a slightly weaker check would let pass.

Mutation testing (``fuzz/mutants.py``) has found that no other vector notices them.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from broken import Broken
from broken_bundles import FILES, INDEX, WHOLE, bundle_of
from broken_checkpoints import COUNTS, WEIGHT, base64_of, file_of, keyframe, text_of
from pieces import PLANES, SMOOTH, Frame, assembled, block, constant, huffman, raw, sparse, unzigzag
from tables import cut, table_of

from lccodec.element_types import Array

# --- frames ---------------------------------------------------------------------------------------


def edge_frames() -> Iterator[Frame]:
    """Yield frames with the most of something."""
    symbols = [0, 1, 2, 1] * 512
    yield _plane("huffman-full-lane", "2,048 symbols in a lane", huffman([1, 2, 2], symbols, 1), symbols)
    rows = 65_535
    gaps, last = divmod(rows - 1, 255)
    stream = struct.pack("<BHBBI", 5, 1, 2, 1, rows) + constant(0) + constant(0)
    stream += sparse(0, gaps + 1, raw([254] * gaps + [last]), b"", raw([0] * gaps + [7])) + constant(0)
    symbols = [0] * (rows - 1) + [7]
    yield _plane("classed-65535-rows", "one column of as many rows as there may be", stream, symbols)


def _plane(name: str, description: str, stream: bytes, symbols: list[int]) -> Frame:
    """Return the frame of a stream, as the only plane of a uint8 array."""
    head = (PLANES, "uint8", (len(symbols),), 17)
    frame = assembled(f"planes-{name}", description, head, block(stream), unzigzag(symbols))
    return replace(frame, stored=False)


# --- checkpoints ----------------------------------------------------------------------------------


def edge_files() -> Iterator[tuple[str, str, bytes, Any]]:
    """Yield valid checkpoint files: name, description, file and state."""
    state = {
        "weight": np.array([1, 2, 3], "<f4"),
        "list": [np.array([7, 8], "<i2"), 0.1],
    }
    state["pair"] = (-7, state["weight"])
    last = file_of(text_of(keyframe(step=2**53 - 1)), WEIGHT + COUNTS)
    yield "last-step", "the last step that there may be", last, state
    higher = file_of(text_of(keyframe(lccodec=[1, 65_535])), WEIGHT + COUNTS, minor=65_535)
    yield "higher-minor", "the highest minor version, and nothing that is not known", higher, state
    values = np.repeat(np.array([0, 255, 1], np.uint8), 1024)
    why = "as many pieces as a frame of less than 1,024 bytes may have"
    yield "three-pieces", why, _cut_file(values[:2048], [1, 1]), {"w": values[:2048]}
    yield from _unpadded()


def _cut_file(values: Array, blocks: list[int]) -> bytes:
    """Return a file of one frame, of blocks of 1,024 equal elements, so many in each piece."""
    body = b"".join(block(constant(int(code))) for code in _codes(values[::1024]))
    frame = assembled("", "", (PLANES, "uint8", values.shape, 10), body, values).data
    table = table_of(cut(frame, blocks))
    digest = base64_of(hashlib.sha256(table).digest()[:16])
    frames = [[len(frame), digest, len(table)]]
    return file_of(text_of(keyframe(tree={"w": 0}, scalars=..., arrays=[1], frames=frames)), frame + table)


def _codes(values: Array) -> Array:
    """Return the zigzag codes of uint8 (LCC-PLN-01)."""
    return (values << 1) ^ (0 - (values >> 7))


def _unpadded() -> Iterator[tuple[str, str, bytes, Any]]:
    """Yield zeros, and a delta of frames that are shorter than limits for keyframes allow."""
    zeros, field = np.zeros(394_000, "<u8"), np.zeros(1 << 16, "<f2")
    head, shape = (PLANES, "uint64", zeros.shape, 24), field.shape
    frames = [_padded(head, zeros), _padded((PLANES, "float16", shape, 16), field)]
    tree = {"zeros": 0, "field": 1}
    document = keyframe(frames, step=190, tree=tree, scalars=..., arrays=[1, 2])
    file = file_of(text_of(document), b"".join(frames))
    yield "000000000190", "zeros, padded for LCC-LIM-03", file, {"zeros": zeros, "field": field}
    levels = b"\xff" * 16 + b"\1" * 16 + b"\x10"
    smooth = block(struct.pack("<Bdd", 0, 1.0, 2.0), levels, b"\x10" + constant(0))
    frames = [
        # The zigzag code of 1: a low byte of 2, and seven of 0.
        assembled("", "", head, block(constant(2), *[constant(0)] * 7), zeros + 1, zeros).data,
        assembled("", "", (SMOOTH, "float16", shape, 16), smooth, field + np.float16(2), field).data,
    ]
    parent = [190, base64_of(file[-32:])]
    document = keyframe(frames, step=191, parent=parent, tree=..., scalars=..., arrays=[1, 2])
    why = "a delta against step 190: short frames, which references allow (LCC-LIM-03, LCC-LIM-12)"
    moved = {"zeros": zeros + 1, "field": field + np.float16(2)}
    yield "000000000191", why, file_of(text_of(document), b"".join(frames)), moved


def _padded(head: tuple[int, str, tuple[int, ...], int], zeros: Array) -> bytes:
    """Return the frame of zeros in one block, padded for LCC-LIM-03."""
    planes = block(*[constant(0)] * zeros.itemsize)
    size = len(assembled("", "", head, planes, zeros).data)
    return assembled("", "", head, planes + bytes(max(0, -(-zeros.nbytes // 65_536) - size)), zeros).data


# --- faults ---------------------------------------------------------------------------------------


def broken_edge_bundles() -> Iterator[Broken]:
    """Yield bundles with one fault that others hide behind a second one."""
    one, two = INDEX["checkpoints"]

    def case(rule: str, name: str, why: str, index: Any) -> Broken:
        data = bundle_of(FILES, index)
        return Broken(rule, f"bundle-{name}", "FormatError", why, data, WHOLE)

    yield case("LCC-BUN-05", "names", "the index is a list of the name of a member", ["checkpoints"])
    rule = "LCC-BUN-06"
    empty = [3, 0, two[2]]
    yield case(rule, "empty-file", "a third file has no bytes", {"checkpoints": [one, two, empty]})
    longer, negative = [2, two[1] + 5, two[2]], [3, -5, two[2]]
    why = "a third file has -5 bytes; the lengths sum to those of the files"
    yield case(rule, "negative-length", why, {"checkpoints": [one, longer, negative]})


def broken_edge_files() -> Iterator[Broken]:
    """Yield checkpoint files with one fault that others hide behind a second one."""
    values = np.repeat(np.array([0, 255, 1], np.uint8), 1024)
    four, three = _cut_file(values, [1, 1, 1]), _cut_file(values[:2048], [1, 1])
    why = "a frame of less than 1,024 bytes has a table of four pieces"
    yield Broken("LCC-LIM-13", "four-pieces", "LimitError", why, four, three)
