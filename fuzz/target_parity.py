"""Invariant: reading returns or raises a LccodecError, nothing else, in bounded time and memory.

The input is a parity file. Where it is sound, all readers of its index see the same in it, and its
layout puts each byte of the files into one block.

The first byte of an input says what the rest is, modulo 3:

0. a parity file, as it is;
1. a parity file whose digest is computed anew, and the copy at its end;
2. a description, its length (u32) before it, and then parity blocks: put into a parity file, whose
   hashes are right.
"""

from __future__ import annotations

import hashlib
import struct
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from outcomes import Outcomes

import lccodec
from lccodec.constants import BLOCK_HASH_SIZE, PARITY_HEAD_SIZE, ROOT_SIZE
from lccodec.container.parity import (
    Head,
    Layout,
    block_hash,
    check_file,
    damaged_rows,
    parse_layout,
    read_index,
    read_layout,
)
from lccodec.container.source import BytesSource

outcomes = Outcomes()

_VECTORS = Path(__file__).parents[1] / "spec" / "vectors"
_MAX_ROWS = 64  # of a group whose blocks are counted
_HEAD_BYTES = PARITY_HEAD_SIZE - ROOT_SIZE

#: Bytes worth writing over or between others.
TOKENS = (
    *(value.to_bytes(size, "little") for size in (4, 8) for value in (0, 1, 64, 1 << 26, (1 << 32) - 1)),
    *(
        token.encode()
        for token in (
            *("null", "true", "false", "0", "-1", "1", "64", "65", "128", "512", "513", "262144"),
            *("9007199254740991", "9007199254740992", "1.0", "1e3", "{}", "[]", "[" * 70, "9" * 4097),
            *('"exact.lcc.h5"', '"rank-0/000000000001.lcc.h5"', '"../x"', '"aligned":', '"rows":', ",", " "),
            '["000000000001.lcc.h5",512,"' + "A" * 43 + '"]',
        )
    ),
)


def check(data: bytes) -> None:
    """Read an input in every way; an exception from here breaks the invariant."""
    mode, rest = data[:1] or b"\0", data[1:]
    source = BytesSource(made(mode[0], rest))
    with outcomes.counted():
        index, column = read_index(source, "parity")
        damaged_rows(index, column, source)
        layout = index.layout
        if read_layout(source, "parity", layout.group) != layout:
            raise AssertionError("the description alone says something else")
        if layout.rows <= _MAX_ROWS:
            _count(layout)
        if check_file(source, "parity", layout.name(column)) != index:
            raise AssertionError("the copies of the index differ")


def _count(layout: Layout) -> None:
    """Raise if the parts of all blocks are not the files."""
    sizes = Counter[int]()
    for column in range(layout.columns):
        for row in range(layout.rows):
            for part in layout.parts(column, row, 1):
                sizes[part.member] += part.size
    if [sizes[number] for number in range(len(layout.members))] != [each.length for each in layout.members]:
        raise AssertionError("the blocks do not hold the files")


def made(mode: int, rest: bytes) -> bytes:
    """Return the parity file of an input."""
    return (bytes, _with_digest, _assembled)[mode % 3](rest)


def _with_digest(file: bytes) -> bytes:
    """Return a file with the digest that its index has, and the same at its end."""
    if len(file) < 2 * PARITY_HEAD_SIZE:
        return file
    (length,) = struct.unpack_from("<Q", file, _HEAD_BYTES - 8)
    stop = min(PARITY_HEAD_SIZE + length, len(file))
    index = file[PARITY_HEAD_SIZE:stop]
    head = file[:_HEAD_BYTES] + hashlib.sha256(file[:_HEAD_BYTES] + index).digest()
    blocks = file[stop : max(stop, len(file) - len(index) - len(head))]
    return head + index + blocks + index + head


def _assembled(data: bytes) -> bytes:
    """Return a parity file of a description, its length before it, and blocks."""
    size = int.from_bytes(data[:4], "little")
    text, blocks = data[4 : 4 + size], data[4 + size :]
    hashes = b""
    with suppress(lccodec.LccodecError):
        layout = parse_layout(text, "")
        if layout.blocks + layout.parity * layout.rows < 1 << 14:
            own = [
                block_hash(blocks[row * layout.block : (row + 1) * layout.block])
                for row in range(layout.rows)
            ]
            others = (layout.parity - 1) * layout.rows
            hashes = bytes(layout.blocks * BLOCK_HASH_SIZE) + b"".join(own) + bytes(others * BLOCK_HASH_SIZE)
    head = Head(0, len(text), len(text) + len(hashes)).to_bytes()
    return _with_digest(head + text + hashes + blocks + bytes(len(text) + len(hashes)) + head)


def seeds() -> Iterator[bytes]:
    """Yield the valid vectors, in every mode."""
    for path in sorted((_VECTORS / "valid").glob("*.par")):
        file = path.read_bytes()
        size, index = struct.unpack_from("<2Q", file, 16)
        blocks = file[PARITY_HEAD_SIZE + index : len(file) - index - PARITY_HEAD_SIZE]
        yield b"\0" + file
        yield b"\1" + file
        yield b"\2" + struct.pack("<I", size) + file[PARITY_HEAD_SIZE : PARITY_HEAD_SIZE + size] + blocks


def vectors() -> Iterator[bytes]:
    """Yield the invalid vectors."""
    for path in sorted((_VECTORS / "invalid").glob("*.par")):
        yield b"\0" + path.read_bytes()
