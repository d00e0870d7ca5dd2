"""Checkpoints whose frames have tables of pieces, made by hand, and broken ones (LCC-PCS)."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from assembly import blocks_of_frames
from broken import Broken
from broken_checkpoints import WEIGHT, base64_of, file_of, keyframe, text_of
from forms import frame_head
from pieces import CODEBOOK, PLANES, RAW, Frame, assembled, block, constant, little

from lccodec.constants import ELEMENT_TYPES

Cut = tuple[int, bytes]  # a number of blocks, and the bytes of the piece


def cut(frame: bytes, blocks: Sequence[int]) -> list[Cut]:
    """Return the pieces of a frame: its head, and then so many blocks in each."""
    method, code, _, shapes, start = frame_head(frame)
    size = ELEMENT_TYPES[code].size
    if method == CODEBOOK:
        counts = struct.unpack_from(f"<{len(shapes)}H", frame, start)
        start += 2 * len(shapes) + sum(counts) * size
    pieces, at = [(0, frame[:start])], start
    for number, count in enumerate(blocks):
        begin = at
        for _ in range(count):
            at += size << 16 if method == RAW else 4 + int.from_bytes(frame[at : at + 4], "little")
        at = len(frame) if number == len(blocks) - 1 else at
        pieces.append((count, frame[begin:at]))
    return pieces


def table_of(pieces: Sequence[Cut]) -> bytes:
    """Return the table of pieces (LCC-PCS-01)."""
    return b"".join(struct.pack("<IQ", count, len(data)) + _digest(data) for count, data in pieces)


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()[:16]


def _entry(frame: bytes, table: bytes) -> list[Any]:
    return [len(frame), base64_of(_digest(table)), len(table)]


def _frames() -> dict[str, Frame]:
    """Return frames of several blocks by name, and raw ones, of which one counts as two blocks."""
    many = np.arange((1 << 16) + 5, dtype="u4").astype(np.uint8)
    frames = {frame.name: frame for frame in blocks_of_frames()}
    before = frames["codebook-blocks"].reference or b""
    start = np.frombuffer(before, "<f4")
    return {
        **frames,
        "many": assembled("", "", (RAW, "uint8", many.shape, 0), little(many), many),
        "start": assembled("", "", (RAW, "float32", start.shape, 0), before, start),
    }


def cut_files() -> Iterator[tuple[str, str, bytes, dict[str, np.ndarray[Any, Any]]]]:
    """Yield a keyframe and a delta whose frames are cut: name, description, file and state."""
    frames = _frames()
    planes, many, start = (frames[name].data for name in ("planes-blocks", "many", "start"))
    cuts = [cut(planes, [1, 2]), cut(many, [1, 1]), cut(start, [1])]
    tables = [table_of(pieces) for pieces in cuts]
    payload = b"".join(a + b for a, b in zip((planes, many, start), tables, strict=True))
    document = {
        "lccodec": [1, 0],
        "step": 180,
        "parent": None,
        "policy": "by hand",
        "tree": {"planes": 0, "raw": 1, "single": 2},
        "arrays": [1, 2, 3],
        "frames": [_entry(a, b) for a, b in zip((planes, many, start), tables, strict=True)],
    }
    first = file_of(text_of(document), payload)
    state = {
        "planes": np.frombuffer(frames["planes-blocks"].expected, "<u2").reshape(4, 625),
        "raw": np.frombuffer(frames["many"].expected, np.uint8),
        "single": np.frombuffer(frames["start"].expected, "<f4"),
    }
    yield "000000000180", "a keyframe of frames with tables: planes and raw", first, state
    delta = frames["codebook-blocks"].data
    table = table_of(cut(delta, [1, 1, 1]))
    document = {
        "lccodec": [1, 0],
        "step": 181,
        "parent": [180, base64_of(first[-32:])],
        "policy": "by hand",
        "arrays": [0, 0, 1],
        "frames": [_entry(delta, table)],
    }
    moved = {**state, "single": np.frombuffer(frames["codebook-blocks"].expected, "<f4")}
    second = file_of(text_of(document), delta + table)
    yield "000000000181", "a delta against step 180, a codebook frame with a table", second, moved


def _file(table: bytes, frame: bytes, **members: Any) -> bytes:
    """Return a file of one frame with a table."""
    document = keyframe((), tree={"w": 0}, scalars=..., arrays=[1], frames=[_entry(frame, table)])
    return file_of(text_of({**document, **members}), frame + table)


def broken_tables() -> Iterator[Broken]:
    """Yield every invalid checkpoint whose fault is in a table of pieces."""
    constants = b"".join(block(constant(value)) for value in (0, 1, 2))
    values = np.repeat(np.array([0, 255, 1], np.uint8), 1024)[:2500]
    frame = assembled("", "", (PLANES, "uint8", values.shape, 10), constants, values).data
    sound = cut(frame, [1, 2])

    def file(table: bytes, data: bytes = frame, **members: Any) -> bytes:
        return _file(table, data, **members)

    whole = file(table_of(sound))

    def case(rule: str, name: str, why: str, data: bytes, error: str = "FormatError") -> Broken:
        return Broken(rule, name, error, why, data, whole)

    rule = "LCC-MAN-05"
    entry = _entry(frame, table_of(sound))
    for name, why, length in (
        ("table-nothing", "the length of a table is 0", 0),
        ("table-negative", "the length of a table is negative", -84),
        ("table-text", "the length of a table is a text", "84"),
        ("table-null", "the length of a table is null", None),
        ("table-shorter", "the lengths of frames and tables sum to less than the payload", 56),
    ):
        data = file(table_of(sound), frames=[[*entry[:2], length]])
        yield case(rule, name, why, data)
    data = file(table_of(sound), frames=[[*entry, 0]])
    yield case(rule, "table-four", "a frame entry has four items", data)
    flipped = table_of(sound)[:-1] + bytes([table_of(sound)[-1] ^ 1])
    data = file_of(
        text_of(keyframe((), tree={"w": 0}, scalars=..., arrays=[1], frames=[entry])), frame + flipped
    )
    yield case("LCC-MAN-08", "table", "a bit of a table is not that of its digest", data, "ChecksumError")

    rule = "LCC-PCS-01"
    (none, head), (one, first), (two, rest) = sound
    for name, why, pieces in (
        ("one-piece", "a table has one piece", [(3, frame)]),
        ("blocks-in-the-head", "the first piece has a block", [(1, head), (one, first), (two, rest)]),
        ("no-block", "a piece has no block", [(none, head), (0, first), (3, rest)]),
        ("short", "the pieces are shorter than the frame", [(none, head), (one, first), (two, rest[:-1])]),
        ("long", "the pieces are longer than the frame", [(none, head), (one, first), (two, rest + b"\0")]),
    ):
        yield case(rule, name, why, file(table_of(pieces)))
    yield case(rule, "half-an-entry", "a table ends within an entry", file(table_of(sound)[:70]))
    yield case(rule, "one-byte", "a table has one byte", file(b"\0"))
    two_pieces = table_of(cut(frame, [3]))
    yield case(rule, "byte-behind", "a byte follows two entries of a table", file(two_pieces + b"\0"))

    rule = "LCC-PCS-02"
    for number, what in enumerate(("head", "first block", "last blocks")):
        table = bytearray(table_of(sound))
        table[28 * number + 12] ^= 1
        why = f"the digest of the {what} is another"
        yield case(rule, what.replace(" ", "-"), why, file(bytes(table)), "ChecksumError")

    rule = "LCC-PCS-03"
    for name, why, pieces in (
        (
            "head-short",
            "the first piece ends within the header",
            [(0, head[:-1]), (1, head[-1:] + first), (2, rest)],
        ),
        (
            "head-long",
            "the first piece has a byte of a block",
            [(0, head + first[:1]), (1, first[1:]), (2, rest)],
        ),
        (
            "within-a-block",
            "a piece ends within a block",
            [(0, head), (1, first[:-1]), (2, first[-1:] + rest)],
        ),
        (
            "byte-behind",
            "a piece has a byte behind its block",
            [(0, head), (1, first + rest[:1]), (2, rest[1:])],
        ),
        ("few-blocks", "the numbers of blocks sum to too few", [(0, head), (1, first), (1, rest)]),
        ("many-blocks", "the numbers of blocks sum to too many", [(0, head), (2, first), (2, rest)]),
        ("other-blocks", "a block is counted to another piece", [(0, head), (2, first), (1, rest)]),
        # The four bytes 0 would be a block of no bytes.
        (
            "head-as-a-block",
            "the first piece ends within the header, four bytes 0 before its end",
            [(0, head[:-4]), (2, head[-4:] + first), (1, rest)],
        ),
    ):
        yield case(rule, name, why, file(table_of(pieces)))
    none = np.zeros(0, np.uint8)
    empty = assembled("", "", (PLANES, "uint8", none.shape, 10), b"", none).data
    why = "a frame without blocks has one piece, the first"
    data = file(table_of([(0, empty)]), empty)
    yield case("LCC-PCS-01", "head-alone", why, data)
    why = "a frame without blocks has a piece behind the first"
    data = file(table_of([(0, empty[:16]), (1, empty[16:])]), empty)
    yield case(rule, "no-blocks", why, data)
    long = table_of([(0, WEIGHT[:16]), *[(1, b"")] * 3, (1, WEIGHT[16:])])
    why = "a frame of less than 1,024 bytes has a table of five pieces"
    yield case("LCC-LIM-13", "long-table", why, file(long, WEIGHT), "LimitError")
    why = "a frame of less than 1,024 bytes has a table of 85 bytes"
    yield case("LCC-LIM-13", "85-bytes", why, file(table_of(sound) + b"\0"), "LimitError")
    yield from _two_blocks()


def _two_blocks() -> Iterator[Broken]:
    """Yield faults of a frame of two blocks, which a piece more would let a weaker check notice."""
    values = np.repeat(np.array([0, 255], np.uint8), 1024)[:2000]
    shape = (PLANES, "uint8", values.shape, 10)
    frame = assembled("", "", shape, block(constant(0)) + block(constant(1)), values).data
    (_, head), (_, first), (_, last) = sound = cut(frame, [1, 1])

    def case(rule: str, name: str, why: str, pieces: Sequence[Cut], error: str = "FormatError") -> Broken:
        data = b"".join(piece for _, piece in pieces)
        return Broken(rule, name, error, why, _file(table_of(pieces), data), _file(table_of(sound), frame))

    rule = "LCC-PCS-03"
    why = "the first of two pieces ends within the header"
    yield case(rule, "head-of-two", why, [(0, head[:-1]), (2, head[-1:] + first + last)])
    why = "a piece has a byte behind its block, which leaves a block of no bytes to the next"
    yield case(rule, "byte-behind-alone", why, [(0, head), (1, first + last[:1]), (1, last[1:])])
    long = block(constant(0)) + struct.pack("<I", 99) + constant(1)
    why = "the size of the last block leads beyond the frame"
    data = assembled("", "", shape, long, values).data
    yield case(rule, "last-beyond", why, [(0, head), (1, first), (1, data[len(head + first) :])])
    data = assembled("", "", shape, block(b"") + block(constant(1)), values).data
    why = "a block has no bytes, and is a piece of its own"
    yield case("LCC-FRM-02", "empty-piece", why, cut(data, [1, 1]), "TruncatedError")
    long = block(constant(0)) + struct.pack("<I", 14) + constant(1)
    why = "the size of the last block leads to the end of the frame, over its checksums"
    data = assembled("", "", shape, long, values).data
    pieces = [(0, head), (1, first), (1, data[len(head + first) :])]
    yield case("LCC-FRM-02", "over-checksums", why, pieces, "TruncatedError")
    many = np.arange((1 << 16) + 5, dtype="u4").astype(np.uint8)
    data = assembled("", "", (RAW, "uint8", many.shape, 0), little(many)[:-2], many).data
    why = "the last piece of a raw frame lacks two components"
    yield case("LCC-FRM-02", "raw-piece", why, cut(data, [1, 1]), "TruncatedError")
    yield from _no_codebook()


def _no_codebook() -> Iterator[Broken]:
    """Yield a run that ends in the numbers of representatives, and a frame that ends with them."""
    nine = ["l", *range(9)]

    def file(data: bytes, table: bytes) -> bytes:
        return _file(table, data, tree=nine, arrays=[1] * 9)

    head = (CODEBOOK, "float32", [(1,)] * 9, 10)
    zeros, book = np.zeros(9, "<f4"), struct.pack("<9H", *[0] * 9)
    whole = assembled("", "", head, book + block(b"\0", constant(0)), zeros).data
    short = assembled("", "", head, b"\0", zeros).data
    start = len(short) - 13
    table = table_of([(0, short[:start]), (1, short[start:])])
    why = "a frame ends in the numbers of representatives, in its checksums"
    sound = file(whole, table_of(cut(whole, [1])))
    yield Broken("LCC-PCS-03", "no-codebook", "FormatError", why, file(short, table), sound)
    head_of_one = (CODEBOOK, "float32", (1,), 10)
    one = assembled("", "", head_of_one, b"\0\0" + block(b"\0", constant(0)), zeros[:1]).data
    none = assembled("", "", head_of_one, b"\0\0", zeros[:1]).data
    why = "the second piece is the checksums, whose first four bytes are 0, the size of a block of nothing"
    table = table_of([(0, none[:18]), (1, none[18:])])
    sound = _file(table_of(cut(one, [1])), one)
    yield Broken("LCC-FRM-02", "checksums-alone", "TruncatedError", why, _file(table, none), sound)
