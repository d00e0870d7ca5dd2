"""Checkpoint and parity files just within a limit, and faults that a weaker check would let pass.

Mutation testing (``fuzz/mutants.py``) has found that no other vector notices them.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np
from broken import Broken
from broken_checkpoints import COUNTS, SOUND, WEIGHT, base64_of, file_of, keyframe, raw_frame, text_of
from broken_interpolations import interpolated
from broken_manifests import named
from broken_parity import DESCRIPTION, name_of, parity_of
from copies import copying
from edges import field
from pieces import (
    CODEBOOK,
    KINDS,
    PLANES,
    RAW,
    SMOOTH,
    assembled,
    block,
    constant,
    huffman,
    little,
    raw,
    sparse,
)
from tables import cut, table_of

from lccodec.element_types import Array, from_components
from lccodec.parity import encode


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
    why = "two pieces, the second of one component"
    yield "one-component", why, _cut_file(values[:1025], [1, 1]), {"w": values[:1025]}
    yield "cut-field", "a field whose blocks are cut along its second axis", *_cut_field()
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
    for name, more, why in (("1024-bytes", 0, "no byte more"), ("1025-bytes", 1, "a byte more")):
        two = file_of(text_of(keyframe(metadata={"vector": " " * (filler + more)})), WEIGHT + COUNTS)
        yield name, f"a file of two blocks of parity, and {why}", two, state
    values = np.repeat(np.arange(3, dtype=np.uint8), 1024)[: 2048 + 979]
    last = bytes(2 * int(value) for value in values[2048:])
    body = block(constant(0)) + block(constant(2)) + block(raw(last))
    kilobyte = assembled("", "", (PLANES, "uint8", values.shape, 10), body, values).data
    why = "as many pieces as a frame of 1,024 bytes may have"
    yield "four-pieces", why, _with_table(kilobyte, [1, 1, 1]), {"w": values}
    yield from _named_nothing()
    yield from _nans()
    yield from _two_arrays()
    yield from _moved_blocks()
    yield from _unpadded()
    yield from _between()
    yield from _long()


def _named_nothing() -> Iterator[tuple[str, str, bytes, Any]]:
    """Yield two arrays with the empty name: the root, and its child under the key ""."""
    array = np.array([1, 2, 3], "<f4")
    own = {"scalars": ..., "arrays": [1], "metadata": ...}
    first = file_of(text_of(keyframe((WEIGHT,), step=237, tree=0, **own)), WEIGHT)
    yield "000000000237", "a state that is an array", first, array
    own |= {"parent": [237, base64_of(first[-32:])], "arrays": [0]}
    second = file_of(text_of(keyframe((), step=238, tree={"": 0}, **own)), b"")
    yield "000000000238", "the same array under the key of no characters", second, {"": array}


def _nans() -> Iterator[tuple[str, str, bytes, Any]]:
    """Yield roundings of NaNs with one bit of payload each."""
    bits = np.array([0x7F800000 | sign | 1 << bit for sign in (0, 1 << 31) for bit in range(23)], "<u4")
    frame = assembled("", "", (RAW, "float32", bits.shape, 0), little(bits), bits).data
    halves = {
        "float16": bits >> 16 & 0x8000 | 0x7E00 | bits >> 13 & 0x3FF,
        "bfloat16": bits >> 16 | 0x40,
    }
    state = {"first": from_components(bits, KINDS["float32"], bits.shape, "bits")}
    state["second"] = state["first"].copy()
    for name, patterns in halves.items():
        state[name] = from_components(patterns.astype("<u2"), KINDS[name], bits.shape, "bits")
    tree = {name: index for index, name in enumerate(state)}
    document = keyframe((frame, frame), tree=tree, scalars=..., arrays=[1, 2, None, None])
    frames = document.pop("frames")
    document |= {"copies": [[0, 9], [1, 10]], "frames": frames}
    why = "roundings of NaNs, each with another bit"
    yield "copies-nans", why, file_of(text_of(document), frame + frame), state


def _two_arrays() -> Iterator[tuple[str, str, bytes, Any]]:
    """Yield a delta with a run of two arrays against a keyframe."""
    first, second = np.array([1, 2, 3], "<i2"), np.array([[4, 5]], "<i2")
    frames = [raw_frame(first), raw_frame(second)]
    own = {"tree": {"a": 0, "b": 1}, "scalars": ..., "metadata": ...}
    parent = file_of(text_of(keyframe(frames, step=242, **own)), b"".join(frames))
    yield "000000000242", "two arrays", parent, {"a": first, "b": second}
    before = np.array([1, 2, 3, 4, 5], "<i2")
    codes = [2, 0, 2, 0, 4]  # of 1, 0, 1, 0 and 2
    run = (PLANES, "int16", [(3,), (1, 2)], 10)
    after = before + np.array([1, 0, 1, 0, 2], "<i2")
    frame = assembled("", "", run, block(raw(codes), constant(0)), after, before).data
    named = {"step": 243, "parent": [242, base64_of(parent[-32:])], "arrays": [1, 1]}
    delta = file_of(text_of(keyframe((frame,), **(own | {"tree": ...} | named))), frame)
    why = "a delta against step 242: both arrays in a run"
    yield "000000000243", why, delta, {"a": after[:3], "b": after[3:].reshape(1, 2)}


def _moved_blocks() -> Iterator[tuple[str, str, bytes, Any]]:
    """Yield ones, and a field of two blocks against them; both ends of the first are escapes."""
    ones = np.ones(70_000, "<f2")
    # The zigzag code of a positive number without a reference is its pattern, one bit to the left.
    planes = block(constant(0), constant(0x3C << 1))
    padding = bytes(-(-ones.nbytes // 1024) - (16 + len(planes) + 12))
    frame = assembled("", "", (PLANES, "float16", ones.shape, 22), planes + padding, ones).data
    own = {"tree": {"w": 0}, "scalars": ..., "arrays": [1]}
    parent = file_of(text_of(keyframe((frame,), step=244, **own)), frame)
    yield "000000000244", "70,000 ones", parent, {"w": ones}
    moved = ones + np.repeat(np.array([1, 2], "<f2"), 35_000)
    moved[[0, 34_999]] = np.inf
    levels = b"\xff" * 16 + b"\1" * 16 + b"\x10" + b"\x10" + constant(0)
    mask = sparse(8, 2, raw([0, 34_998 >> 8]), bytes([0, 34_998 & 255]), constant(1))
    first, second = (
        struct.pack("<Bdd", flags, 1.0, origin) + levels for flags, origin in ((1, 1.0), (0, 2.0))
    )
    blocks = block(first, mask, constant(0), constant(0x7C << 1)) + block(second)
    padding = bytes(-(-moved.size // 256) - (16 + len(blocks) + 12))
    field = assembled("", "", (SMOOTH, "float16", moved.shape, 16), blocks + padding, moved, ones).data
    own |= {"tree": ..., "parent": [244, base64_of(parent[-32:])]}
    delta = file_of(text_of(keyframe((field,), step=245, **own)), field)
    yield "000000000245", "a delta against step 244: a field of two blocks", delta, {"w": moved}


def _long() -> Iterator[tuple[str, str, bytes, Any]]:
    """Yield zeros, and a delta of few elements among many, whose symbols are a Huffman run."""
    zeros = np.zeros((1 << 15) + 13, "<f2")
    five = np.arange(5, dtype="<f8")
    frames = [_padded((PLANES, "float16", zeros.shape, 22), zeros), raw_frame(five)]
    document = keyframe(frames, step=195, tree={"w": 0, "five": 1}, scalars=..., arrays=[1, 2])
    file = file_of(text_of(document), b"".join(frames))
    yield "000000000195", "zeros, and five numbers", file, {"w": zeros, "five": five}
    moved = zeros.copy()
    moved[[0, 9, 10, 17, 8000, 8007, (1 << 15) + 9, (1 << 15) + 12]] = 1  # the last behind whole words
    symbols = (moved != 0).astype(np.uint8).tolist()
    body = struct.pack("<HH", 1, 0x3C00) + block(b"\0", huffman([1, 1], symbols, 17))
    frames = [
        assembled("", "", (CODEBOOK, "float16", zeros.shape, 22), body, moved, zeros).data,
        field("", "", b"\x10" + raw([4]), 2, five).data,
    ]
    parent = [195, base64_of(file[-32:])]
    document = keyframe(frames, step=196, parent=parent, tree=..., scalars=..., arrays=[1, 2])
    why = "a delta against step 195: 8 elements of 32,781, and a field"
    yield "000000000196", why, file_of(text_of(document), b"".join(frames)), {"w": moved, "five": five + 2}


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
    return _with_table(assembled("", "", (PLANES, "uint8", values.shape, 10), body, values).data, blocks)


def _with_table(frame: bytes, blocks: list[int]) -> bytes:
    """Return a file of one frame, with so many blocks in each piece behind the first."""
    table = table_of(cut(frame, blocks))
    digest = base64_of(hashlib.sha256(table).digest()[:16])
    frames = [[len(frame), digest, len(table)]]
    return file_of(text_of(keyframe(tree={"w": 0}, scalars=..., arrays=[1], frames=frames)), frame + table)


def _cut_field() -> tuple[bytes, Any]:
    """Return a file of a field of two blocks, a piece each, and its state."""
    # Nine levels: one pass of the longer axis, then two each.
    levels = b"\xff" * 9 + b"\1" * 17 + b"\x09" + b"\x10" + constant(0)
    blocks = b"".join(block(struct.pack("<Bdd", 0, 1.0, origin), levels) for origin in (1.0, 2.0))
    values = np.repeat(np.array([1, 2], "<f2"), 60_000).reshape(1, 400, 300)
    padding = bytes(-(-values.size // 256) - (8 + 24 + len(blocks) + 12))
    head = (SMOOTH, "float16", values.shape, 16)
    return _with_table(assembled("", "", head, blocks + padding, values).data, [1, 1]), {"w": values}


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
    filling = bytes(field.size // 256 - 16 - len(smooth) - 12)
    frames = [
        # The zigzag code of 1: a low byte of 2, and seven of 0.
        assembled("", "", head, block(constant(2), *[constant(0)] * 7), zeros + 1, zeros).data,
        assembled(
            "", "", (SMOOTH, "float16", shape, 16), smooth + filling, field + np.float16(2), field
        ).data,
    ]
    parent = [190, base64_of(file[-32:])]
    document = keyframe(frames, step=191, parent=parent, tree=..., scalars=..., arrays=[1, 2])
    why = "a delta against step 190: a short frame, which a reference allows, and a padded field"
    moved = {"zeros": zeros + 1, "field": field + np.float16(2)}
    yield "000000000191", why, file_of(text_of(document), b"".join(frames)), moved


def _padded(head: tuple[int, str, tuple[int, ...], int], zeros: Array) -> bytes:
    """Return the frame of zeros in one block, padded for LCC-LIM-03."""
    planes = block(*[constant(0)] * zeros.itemsize)
    size = len(assembled("", "", head, planes, zeros).data)
    return assembled("", "", head, planes + bytes(max(0, -(-zeros.nbytes // 1024) - size)), zeros).data


def edge_parity(files: list[bytes], members: list[str], column: int, **own: int) -> tuple[str, bytes]:
    """Return the name and bytes of a parity file of files with these names in their group.

    `own` are members of the description.
    """
    entries = [[name, len(file), base64_of(file[-32:])] for name, file in zip(members, files, strict=True)]
    rows = -(-max(map(len, files)) // 512)
    document = {**DESCRIPTION, "rows": rows, "files": entries} | own
    rows, joined = document["rows"], b"".join(files)
    if not document["aligned"]:
        files = [joined[start : start + rows * 512] for start in range(0, len(joined), rows * 512)]
    columns = [[file[at : at + 512].ljust(512, b"\0") for at in range(0, len(file), 512)] for file in files]
    parity = np.empty((document["parity"], rows, 512), np.uint8)
    for row in range(rows):
        there = {
            j: np.frombuffer(blocks[row], np.uint8) for j, blocks in enumerate(columns) if row < len(blocks)
        }
        encode(there, {i: each[row] for i, each in enumerate(parity)})
    blocks = [*chain.from_iterable(columns), *(each.tobytes() for each in parity.reshape(-1, 512))]
    hashes = [hashlib.sha256(each).digest()[:8] for each in blocks]
    stored = [each.tobytes() for each in parity[column]]
    return name_of(document, column), parity_of(document, stored, b"".join(hashes), column=column)


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
    yield case(rule, "major-true", "the major version is true", lccodec=[True, 0])
    yield case(rule, "minor-false", "the minor version is false", lccodec=[1, False])
    why = "the major version of the manifest is 2, the minor one that of the trailer"
    yield case(rule, "major-2-minor-0", why, "UnsupportedError", lccodec=[2, 0])
    cut = WEIGHT[:7]
    document = keyframe((cut, COUNTS))
    one = WEIGHT[:1]
    why = "a frame has one byte, and its digest is right"
    data = file_of(text_of(keyframe((one, COUNTS))), one + COUNTS)
    yield _case("LCC-FRM-02", "one-byte", why, data, "TruncatedError")
    why = "a frame ends in its header, and its digest is right"
    yield _case("LCC-FRM-02", "cut-frame", why, file_of(text_of(document), cut + COUNTS), "TruncatedError")
    document = keyframe((WEIGHT,), arrays=[1, 0])
    why = "the second array of a keyframe is unchanged from its parent"
    yield _case("LCC-MAN-10", "zero-second", why, file_of(text_of(document), WEIGHT))
    why = "the indices are 0, 1 and 2, of two arrays"
    yield case("LCC-STA-02", "beyond", why, tree=["l", 0, 1, 2, None, None])
    for name, copies, why in (
        ("copies-number", 1, "the copies are a number"),
        ("copies-text", "1", "the copies are a text, of as many characters as there are copies"),
        ("entry-text", ["01"], "a copy is a text of two characters"),
    ):
        yield _case("LCC-CPY-01", name, why, file_of(text_of(copying(copies)), payload))
    why = "the source of a copy is -3, of three arrays"
    yield _case("LCC-CPY-01", "from-the-end", why, file_of(text_of(copying([[-3, 10]])), payload))
