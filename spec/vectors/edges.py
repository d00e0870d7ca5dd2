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
from broken_checkpoints import COUNTS, SOUND, WEIGHT, base64_of, file_of, keyframe, raw_frame, text_of
from broken_interpolations import interpolated
from broken_manifests import named
from broken_parity import DESCRIPTION, name_of, parity_of
from copies import copying
from pieces import (
    CODEBOOK,
    KINDS,
    PLANES,
    SMOOTH,
    Frame,
    assembled,
    block,
    classed,
    constant,
    huffman,
    packed,
    packed_symbols,
    raw,
    sparse,
    unzigzag,
)
from tables import cut, table_of

from lccodec.element_types import Array, from_components

# --- frames ---------------------------------------------------------------------------------------


def edge_frames() -> Iterator[Frame]:
    """Yield frames with the most of something, or that a decoder may read in a way of its own."""
    yield from _streams()
    yield from _numbers()
    yield from _limits()
    yield from _codebooks()
    yield _few()


def _streams() -> Iterator[Frame]:
    """Yield Huffman runs and classed streams."""
    symbols = [0, 1, 2, 1] * 512
    yield _plane("huffman-full-lane", "2,048 symbols in a lane", huffman([1, 2, 2], symbols, 1), symbols)
    rows = 65_535
    gaps, last = divmod(rows - 1, 255)
    stream = struct.pack("<BHBBI", 5, 1, 2, 1, rows) + constant(0) + constant(0)
    stream += sparse(0, gaps + 1, raw([254] * gaps + [last]), b"", raw([0] * gaps + [7])) + constant(0)
    symbols = [0] * (rows - 1) + [7]
    yield _plane("classed-65535-rows", "one column of as many rows as there may be", stream, symbols)
    symbols = [row * column % 7 for row in range(5) for column in range(6)]
    levels = ([0, 1, 2, 3, 3], [0, 2, 1, 0, 2, 15])
    stream = classed(6, range(1, 16), levels, symbols, raw)
    yield _plane("classed-16-classes", "as many classes as there may be", stream, symbols)
    zeros = classed(6, [2, 4], levels, [0] * 30, lambda _: constant(0))
    yield _plane("classed-zeros", "three classes of zeros", zeros, [0] * 30)
    gaps_of_levels = packed(4, raw([0x01, 0x00]))  # at the depths 3 and 4
    rows_of_levels = sparse(0, 4, gaps_of_levels, b"", raw([1, 2, 3, 3]))
    whole = classed(6, [4], levels, symbols, raw)
    deep = whole.replace(raw(levels[0]), rows_of_levels, 1)
    yield _plane("classed-deep-levels", "the levels of the rows are four deep", deep, symbols)


#: Five elements of which the first is 2 * step above the origin, and the others are predicted.
_LEVELS = b"\xff" * 3 + b"\1" * 3 + b"\0"
_STILL = (b"\x10" + constant(0)) * 3


def _field(name: str, description: str, first: bytes, number: int) -> Frame:
    """Return five equal elements; `first` is the stored number of the first."""
    values = np.full(5, number, "<f8")
    head = (SMOOTH, "float64", (5,), 16)
    body = block(struct.pack("<Bdd", 0, 1.0, 0.0), _LEVELS, first, _STILL)
    return assembled(f"smooth-{name}", description, head, body, values)


def _numbers() -> Iterator[Frame]:
    """Yield fields whose first number has the most low bits, or the most bytes."""
    low = b"\x17" + bytes([0b1010100]) + raw([3])  # 3 * 128 + 84 is the zigzag code of 234
    yield _field("7-low-bits", "a number of one byte and seven low bits", low, 234)
    most = b"\x70" + b"".join(raw([byte]) for byte in (2**53 - 1).to_bytes(7, "little"))
    yield _field("53-bits", "the largest number, of seven bytes", most, -(2**52))


def _limits() -> Iterator[Frame]:
    """Yield fields with limits that are zeros, and one that is cut along its last axis."""
    limits, number = struct.pack("<dd", -np.inf, -0.0), lambda code: b"\x10" + raw([code])
    body = struct.pack("<Bdd", 2, 1.0, -1.0) + limits + b"\xff" * 3 + b"\1" * 3 + b"\0"
    body += number(4) + number(1) + number(0) + b"\x10" + raw([2, 1])
    values = np.array([-0.0, -0.0, -0.0, -0.75, 0.0])
    why = "an upper limit of -0.0, which leaves 0.0 as it is"
    yield assembled("smooth-upper-limit", why, (SMOOTH, "float64", (5,), 16), block(body), values)
    # The first number below 0, and 0.0. Between them half of their sum, -0.0, and -1 times no step.
    body = struct.pack("<Bdd", 2, 5e-324, 0.0) + struct.pack("<dd", 0.0, np.inf) + b"\xff\3" + b"\1" * 2
    body += b"\0" + number(1) + number(2) + number(1)
    values = np.array([0.0, -0.0, 0.0])
    why = "a lower limit of 0.0, which leaves -0.0 as it is"
    yield assembled("smooth-lower-limit", why, (SMOOTH, "float64", (3,), 16), block(body), values)
    levels = b"\xff" * 16 + b"\1" * 16 + b"\x10" + b"\x10" + constant(0)
    blocks = b"".join(block(struct.pack("<Bdd", 0, 1.0, origin), levels) for origin in (1.0, 2.0, 3.0, 4.0))
    values = np.repeat(np.arange(1, 5, dtype="<f2"), 35_000)
    padding = bytes(-(-values.size // 256) - (24 + len(blocks) + 12))
    head = (SMOOTH, "float16", (2, 70_000), 16)
    frame = assembled("smooth-long-rows", "two blocks in each of two rows", head, blocks + padding, values)
    yield replace(frame, stored=False)


def _codebooks() -> Iterator[Frame]:
    """Yield codebook frames of dense, packed and few symbols, and runs of two arrays."""
    steps = np.arange(1, 256, dtype="<f4") / 8
    book = struct.pack("<H", 255) + steps.tobytes()
    head = (CODEBOOK, "float32", (4,), 10)
    body = book + block(b"\0", raw([255, 0, 1, 254]))
    values = np.array([steps[254], 0, steps[0], steps[253]], "<f4")
    yield assembled("codebook-255", "the most representatives of symbols of one byte", head, body, values)
    few = np.zeros(40, "<f4")
    few[3] = few[30] = 0.5
    body = struct.pack("<Hf", 1, 0.5) + block(b"\0", raw((few * 2).astype(np.uint8)))
    head = (CODEBOOK, "float32", (40,), 10)
    yield assembled("codebook-few", "two symbols of 40 are not 0, in a raw stream", head, body, few)
    yield assembled("codebook-few-relative", "the same, added to 2", head, body, few + 2, few * 0 + 2)
    count = (1 << 17) + 1024
    body = struct.pack("<HH", 1, 0x3C00) + block(b"\0", packed(1, constant(0x55)))
    ones = np.tile(np.array([1, 0], "<f2"), count // 2)
    head = (CODEBOOK, "float16", (count,), 22)
    body += bytes(-(-ones.nbytes // 1024) - 16 - len(body) - 12)
    yield replace(
        assembled("codebook-packed-many", "132,096 symbols of one bit", head, body, ones), stored=False
    )
    shapes: list[tuple[int, ...]] = [(3,), (5,)]
    book = struct.pack("<2H3f", 1, 2, 0.5, 1.0, 2.0)
    symbols, made = [1, 0, 1, 2, 1, 0, 2, 1], np.array([0.5, 0, 0.5, 2, 1, 0, 2, 1], "<f4")
    head = (CODEBOOK, "float32", shapes, 10)
    for name, stream in (("two", raw(symbols)), ("packed", packed(2, raw(packed_symbols(symbols, 2))))):
        body = book + block(b"\0", stream)
        yield assembled(f"run-codebook-{name}", "two arrays, symbols as bytes or packed", head, body, made)


def _few() -> Frame:
    """Return a frame of sparse planes: no place of the second is one of the first."""
    places, codes = [10, 200], [2, 4]
    low = sparse(0, 2, raw([10, 189]), b"", raw(codes))
    high = sparse(0, 1, raw([50]), b"", raw([2]))
    before = np.arange(400, dtype="<u2")
    after = before.copy()
    after[places] += np.array(codes, "<u2") // 2
    after[50] += 256
    head = (PLANES, "uint16", (400,), 10)
    return assembled("planes-few", "a few changes, each in one plane", head, block(low, high), after, before)


def _plane(name: str, description: str, stream: bytes, symbols: list[int]) -> Frame:
    """Return the frame of a stream, as the only plane of a uint8 array."""
    head = (PLANES, "uint8", (len(symbols),), 17)
    padding = bytes(max(-(-len(symbols) // 1024) - 16 - len(block(stream)) - 12, 0))
    frame = assembled(f"planes-{name}", description, head, block(stream) + padding, unzigzag(symbols))
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
    yield f"{2**53 - 1}", "the last step that there may be", last, state
    higher = file_of(text_of(keyframe(lccodec=[1, 65_535])), WEIGHT + COUNTS, minor=65_535)
    yield "higher-minor", "the highest minor version, and nothing that is not known", higher, state
    values = np.repeat(np.array([0, 255, 1], np.uint8), 1024)
    why = "as many pieces as a frame of less than 1,024 bytes may have"
    yield "three-pieces", why, _cut_file(values[:2048], [1, 1]), {"w": values[:2048]}
    copied = file_of(text_of(copying([[0, 10]])), WEIGHT + COUNTS)
    brain = from_components(np.array([0x3F80, 0x4000, 0x4040], np.uint16), KINDS["bfloat16"], (3,), "bits")
    yield "first-copied", "a copy of the first array", copied, {**state, "copy": brain}
    floats = [-2.2250738585072014e-308, 5e-324, 1e16]
    texts = [{"f": repr(number)} for number in floats]
    tree = ["l", None, None, None]
    longest = file_of(text_of(keyframe((), tree=tree, scalars=texts, arrays=[])), b"")
    yield "floats", "floats, one of as long a text as there is", longest, floats
    tree = named(1 << 24)
    names = file_of(text_of(keyframe(tree=tree)), WEIGHT + COUNTS)
    first, second, *_ = tree
    places: dict[str, Any] = {first: state["weight"], second: [state["list"][0]] * (len(tree[second]) - 1)}
    yield (
        "names",
        "as many characters in the names of all nodes as there may be",
        names,
        {
            **places,
            "a": 0.1,
            "b": -7,
        },
    )
    filler = 1024 - len(file_of(text_of(keyframe(metadata={"vector": ""})), WEIGHT + COUNTS))
    two = file_of(text_of(keyframe(metadata={"vector": " " * filler})), WEIGHT + COUNTS)
    yield "1024-bytes", "a file of two blocks of parity, and no byte more", two, state
    yield from _unpadded()
    yield from _between()


def _between() -> Iterator[tuple[str, str, bytes, Any]]:
    """Yield two keyframes with an array of two types, and a checkpoint between them."""
    early, late = np.array([1, 2, 3], "<f4"), np.array([5, 6, 7], "<f8")
    steps, files = (192, 194), {}
    for step, weight in zip(steps, (early, late), strict=True):
        frame = raw_frame(weight)
        document = keyframe((frame,), step=step, tree={"weight": 0}, scalars=..., arrays=[1])
        files[step] = file_of(text_of(document), frame)
        yield f"{step:012d}", f"a keyframe of {weight.dtype.name}", files[step], {"weight": weight}
    low, high = ((step, files[step]) for step in steps)
    document = interpolated(193, low, high, tree=..., scalars=..., arrays=[0])
    why = "interpolated between the steps 192 and 194, whose array has another type"
    yield "000000000193", why, file_of(text_of(document), b""), {"weight": early}


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
    zeros, field = np.zeros(24_000, "<u8"), np.zeros(1 << 16, "<f2")
    head, shape = (PLANES, "uint64", zeros.shape, 22), field.shape
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
    return assembled("", "", head, planes + bytes(max(0, -(-zeros.nbytes // 1024) - size)), zeros).data


def edge_parity(file: bytes, member: str, redundancy: int) -> tuple[str, list[str], bytes]:
    """Return the name of the parity file of one file, its member, and its bytes."""
    blocks = [file[start : start + 512] for start in range(0, len(file), 512)]
    files = [[member, len(file), base64_of(file[-32:])]]
    document = {**DESCRIPTION, "rows": len(blocks), "redundancy": redundancy, "files": files}
    padded = [block + bytes(512 - len(block)) for block in blocks]
    hashes = b"".join(hashlib.sha256(block).digest()[:8] for block in padded) * 2
    return name_of(document), [member], parity_of(document, padded, hashes)


# --- faults ---------------------------------------------------------------------------------------


def broken_edge_files() -> Iterator[Broken]:
    """Yield checkpoint files with one fault that others hide behind a second one."""
    values = np.repeat(np.array([0, 255, 1], np.uint8), 1024)
    four, three = _cut_file(values, [1, 1, 1]), _cut_file(values[:2048], [1, 1])
    why = "a frame of less than 1,024 bytes has a table of four pieces"
    yield Broken("LCC-LIM-13", "four-pieces", "LimitError", why, four, three)
    yield from _starts()
    yield from _manifests()


def _case(rule: str, case: str, why: str, data: bytes, error: str = "FormatError") -> Broken:
    return Broken(rule, case, error, why, data, SOUND)


def _starts() -> Iterator[Broken]:
    """Yield starts of files that are not those of a checkpoint, so that nothing is cut off."""
    rule = "LCC-TRL-01"
    yield _case(rule, "another-signature", "60 bytes of another kind", bytes([SOUND[0] ^ 1]) + SOUND[1:60])
    old = SOUND[:8] + b"\0" + SOUND[9:60]
    yield _case(rule, "another-superblock", "60 bytes of HDF5 with a superblock of version 0", old)
    other = SOUND[:300].replace(b"payload", b"weights")
    yield _case(rule, "another-dataset", "300 bytes of HDF5 with another dataset", other)


def _manifests() -> Iterator[Broken]:
    """Yield manifests of which a part has a wrong type, or is of the wrong size."""
    payload = WEIGHT + COUNTS

    def case(rule: str, name: str, why: str, error: str = "FormatError", **members: Any) -> Broken:
        return _case(rule, name, why, file_of(text_of(keyframe(**members)), payload), error)

    yield _case("LCC-MAN-03", "number", "the manifest is a number", file_of(b"7", payload))
    rule = "LCC-MAN-09"
    yield case(rule, "major-true", "the major version is true", lccodec=[True, 1])
    yield case(rule, "minor-true", "the minor version is true", lccodec=[1, True])
    why = "the major version of the manifest is 2, the minor one that of the trailer"
    yield case(rule, "major-2-minor-1", why, "UnsupportedError", lccodec=[2, 1])
    document = keyframe((WEIGHT,), arrays=[1, 0])
    why = "the second array of a keyframe is unchanged from its parent"
    yield _case("LCC-MAN-10", "zero-second", why, file_of(text_of(document), WEIGHT))
    why = "the indices are 0, 1 and 2, of two arrays"
    yield case("LCC-STA-02", "beyond", why, tree=["l", 0, 1, 2, None, None])
    why = "the source of a copy is -3, of three arrays"
    yield _case("LCC-CPY-01", "from-the-end", why, file_of(text_of(copying([[-3, 10]])), payload))
