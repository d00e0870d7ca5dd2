"""A frame of 68 MiB, for speed too: made from a seed, the same bytes on every machine.

``run.py --large`` asks about ``large.frame``, which has more than 2^24 components.
"""

from __future__ import annotations

import hashlib
import random
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

from corpus import Case, write_made

BLOCKS, LOG2 = 17, 20  # all blocks are alike
SEED = 2611
#: SHA-256 of the frame, and of its components.
FRAME = "283131daedda4942662692549cec341678ff47aa1359e9d6322a1e1551cd82ef"
COMPONENTS = "0d0c83a0affb3c85cb0c776e29916cf0627a2987556cb54cd11e9d377658d49c"


def large(scratch: Path) -> Iterator[Case]:
    """Yield the question; the frame is made in a directory.

    Raises
    ------
    ValueError
        If the frame is not the one that it was when its digest was written down.
    """
    frame, components = frame_of(SEED)
    path = scratch / "large.lcf"
    write_made(path, frame, FRAME)
    right = {"dtype": "float32", "shapes": [[BLOCKS << LOG2]], "sha256": components}
    if components != COMPONENTS:
        raise ValueError(f"the components of the frame are {components}")
    question = {"frame": str(path), "reference": None}
    yield Case("large.frame", 1, "6.2", "valid planes frames", question, None, right)


def frame_of(seed: int) -> tuple[bytes, str]:
    """Return a frame of planes, and the SHA-256 of its components.

    Its streams are raw, Huffman with 512 lanes, sparse and constant. The codes of lengths 1, 2, 3
    and 3 stand for the symbols 0 to 3.
    """
    numbers, count = random.Random(seed), 1 << LOG2
    low = numbers.randbytes(count)
    drawn = numbers.randbytes(count)
    second = bytes(_SYMBOLS[byte] for byte in drawn)
    places = range(200, count, 3000)
    third = bytearray(count)
    for place in places:
        third[place] = 1 + place % 3
    gaps = [after - before - 1 for before, after in zip([-1, *places], places, strict=False)]
    sparse = struct.pack("<BBI", 3, 8, len(gaps))
    sparse += bytes([1, *(gap >> 8 for gap in gaps)]) + bytes(gap & 255 for gap in gaps)
    sparse += bytes([1, *(third[place] for place in places)])
    content = b"\1" + low + _huffman(second, 512) + sparse + b"\0\0"
    body = (struct.pack("<I", len(content)) + content) * BLOCKS
    codes = bytearray(4 * count)
    codes[0::4], codes[1::4], codes[2::4] = low, second, third
    # Without a reference, the code is the component rotated left by one bit (LCC-PLN-03).
    words = [code >> 1 | (code & 1) << 31 for (code,) in struct.iter_unpack("<I", codes)]
    block = struct.pack(f"<{count}I", *words)
    digest = hashlib.sha256()
    for _ in range(BLOCKS):
        digest.update(block)
    pairs = [word for (word,) in struct.iter_unpack("<Q", block)]
    one, whole = sum((2 * i + 1) * word for i, word in enumerate(pairs)), sum(pairs)
    total = sum(one + 2 * number * len(pairs) * whole for number in range(BLOCKS))
    data = struct.pack("<2s6BQ", b"LC", 1, 1, 11, 0, 1, LOG2, BLOCKS << LOG2) + body
    data += struct.pack("<Q", total % 2**64)
    return data + struct.pack("<I", zlib.crc32(data)), digest.hexdigest()


_CODES = ("0", "10", "110", "111")
_SYMBOLS = [0] * 128 + [1] * 64 + [2] * 32 + [3] * 32


def _huffman(symbols: bytes, lanes: int) -> bytes:
    rows = ["".join(_CODES[symbol] for symbol in symbols[lane::lanes]) for lane in range(lanes)]
    data = [int(row[::-1], 2).to_bytes(-(-len(row) // 8), "little") for row in rows]
    least = min(map(len, data))
    head = bytes([2, 3, 0x21, 0x33]) + struct.pack("<HHB", lanes, least, 16)
    return head + struct.pack(f"<{lanes}H", *(len(row) - least for row in data)) + b"".join(data)
