"""Vectors that are too large to store: made from a seed, the same bytes on every machine.

``run.py --large`` asks about them. ``large.frame`` has more than 2^24 components, of 68 MiB, for
speed too. ``large.arrays`` has an array too many (LCC-LIM-06), ``large.most-arrays`` as many as
there may be, of which its tree has two (LCC-STA-02).
"""

from __future__ import annotations

import hashlib
import json
import random
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

from corpus import VECTORS, Case

BLOCKS, LOG2 = 17, 20  # all blocks are alike
SEED = 2611
#: SHA-256 of the files, and of the components of the frame.
FRAME = "283131daedda4942662692549cec341678ff47aa1359e9d6322a1e1551cd82ef"
COMPONENTS = "0d0c83a0affb3c85cb0c776e29916cf0627a2987556cb54cd11e9d377658d49c"
FILE = "b5899354cd57aeed7b4858895386c20babb57712539c480a30d370c5f24608f4"
MOST = "fced1d131c4aa319348583d06c237e0f80b8acc06089547a0ec32f7b9c58c1ec"


def large(scratch: Path) -> Iterator[Case]:
    """Yield the questions; the files are made in a directory.

    Raises
    ------
    ValueError
        If a file is not the one that it was when its digest was written down.
    """
    frame, components = frame_of(SEED)
    path = scratch / "large.lcf"
    _write(path, frame, FRAME)
    right = {"dtype": "float32", "shapes": [[BLOCKS << LOG2]], "sha256": components}
    if components != COMPONENTS:
        raise ValueError(f"the components of the frame are {components}")
    question = {"frame": str(path), "reference": None}
    yield Case("large.frame", 1, "6.2", "valid planes frames", question, None, right)
    yield from many_arrays(scratch)


def many_arrays(scratch: Path) -> Iterator[Case]:
    """Yield the questions about files of 2 MiB, which are made in a directory; raise as `large`."""
    for name, section, rule, arrays, right in (
        ("arrays", "11", "LCC-LIM-06", (1 << 20) + 1, FILE),
        ("most-arrays", "5.1", "LCC-STA-02", 1 << 20, MOST),
    ):
        path = scratch / f"large.{name}.lcc.h5"
        _write(path, file_of(arrays), right)
        yield Case(f"large.{name}", 1, section, rule, {"file": str(path)}, rule)


def _write(path: Path, data: bytes, right: str) -> None:
    digest = hashlib.sha256(data).hexdigest()
    if digest != right:
        raise ValueError(f"{path.name} is made with the digest {digest}")
    path.write_bytes(data)


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


def file_of(arrays: int) -> bytes:
    """Return a sound checkpoint whose list of arrays was replaced by one of so many."""
    sound = (VECTORS / "invalid" / "000000000001.lcc.h5").read_bytes()
    start, payload, place, length, _ = struct.unpack_from("<5Q", sound, len(sound) - 72)
    manifest = json.loads(sound[place : place + length])
    manifest["arrays"] = [1, 2] + [2] * (arrays - 2)
    text = json.dumps(manifest, ensure_ascii=False, separators=(",", ":")).encode()
    trailer = sound[place + length :][:16] + struct.pack(
        "<5Q", start, payload, place, len(text), place + len(text) + 88
    )
    root = hashlib.sha256(sound[:start] + text + trailer).digest()
    return sound[:place] + text + trailer + root
