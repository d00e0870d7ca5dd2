"""Parity files, and files mended from them (9, "Parity")."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import struct
import tempfile
from dataclasses import dataclass
from pathlib import Path

from .files import Place, check_digests, load, open_regular, pread
from .manifests import MAX_STEP, is_integer, parse_json
from .streams import Refused

MAGIC = b"LCCPRTY\x1a"


@dataclass(frozen=True)
class Group:
    """The index of a parity file: the layout of a group, and the hashes of its blocks."""

    name: str
    block: int
    rows: int
    parity: int
    aligned: bool
    files: list[tuple[str, int, bytes]]
    hashes: list[bytes]

    def columns(self) -> list[int]:
        """The bytes that each data column has of files (LCC-PAR-03)."""
        lengths = [length for _, length, _ in self.files]
        if self.aligned:
            return lengths
        whole, size = sum(lengths), self.rows * self.block
        return [min(size, whole - start) for start in range(0, whole, size)]

    def hash_of(self, column: int, row: int) -> bytes | None:
        """The hash of a block, counted with the parity columns last; None if it has none."""
        counts = [-(-length // self.block) for length in self.columns()] + [self.rows] * self.parity
        return self.hashes[sum(counts[:column]) + row] if row < counts[column] else None


def hash_block(block: bytes | bytearray) -> bytes:
    """The hash of a block (LCC-PAR-04)."""
    return hashlib.sha256(block).digest()[:8]


def read_parity(path: str | os.PathLike[str], name: str | None = None) -> tuple[Group, list[bytes]]:
    """The group of a parity file that is sound, and the parity blocks of its column.

    `name` is the name that it has to have; by default the one that it has.
    """
    data = whole(Path(path))
    group, column, index = read_copy(data, 0)
    if (Path(path).name if name is None else name) != f"{group.name}-{column:02d}.lcc.par":
        raise Refused("LCC-PAR-01", "another name")
    start, size = 64 + len(index), group.rows * group.block
    if len(data) != 2 * start + size or data[start + size :] != index + data[:64]:
        raise Refused("LCC-PAR-02", "another size, or another copy of the index")
    blocks = [block for block in sound_blocks(group, column, data[start:]) if block is not None]
    if len(blocks) < group.rows:
        raise Refused("LCC-PAR-04", "a block does not match its hash")
    return group, blocks


def whole(path: Path) -> bytes:
    """The bytes of a regular file."""
    file = open_regular(path)
    try:
        return pread(file, os.fstat(file).st_size, 0)
    finally:
        os.close(file)


def read_copy(data: bytes, at: int) -> tuple[Group, int, bytes]:
    """The group, the number of the column and the index, of the head at a place (LCC-PAR-02)."""
    if len(data) < 128:
        raise Refused("LCC-PAR-02", "too short")
    head = data[at : at + 64]
    magic, major, minor, column, first, length = struct.unpack("<8sHHIQQ", head[:32])
    if magic != MAGIC or major != 1:
        raise Refused("LCC-PAR-02", f"no parity file, or of version {major}.{minor}")
    if length > 2**26:
        raise Refused("LCC-LIM-04", f"an index of {length} bytes")
    if first > length or len(data) < 128 + length:
        raise Refused("LCC-PAR-02", "an index that is too long")
    index = data[64 : 64 + length] if at == 0 else data[at - length : at]
    if hashlib.sha256(head[:32] + index).digest() != head[32:]:
        raise Refused("LCC-PAR-02", "the digest does not match")
    group = read_group(index, first)
    if column >= group.parity:
        raise Refused("LCC-PAR-02", "no such column")
    return group, column, index


def sound_blocks(group: Group, column: int, data: bytes) -> list[bytes | None]:
    """The parity blocks that bytes begin with; None for one that does not match its hash."""
    blocks = [data[row * group.block :][: group.block] for row in range(group.rows)]
    at = len(group.columns()) + column
    return [
        block if hash_block(block) == group.hash_of(at, row) else None for row, block in enumerate(blocks)
    ]


def read_group(index: bytes, first: int) -> Group:
    """The group of an index whose description has the first bytes (LCC-PAR-03, LCC-PAR-04)."""
    text = parse_json(index[:first])
    members = ["block", "rows", "parity", "redundancy", "aligned", "files"]
    if not isinstance(text, dict) or list(text) != members:
        raise Refused("LCC-PAR-03", "the members of the description")
    block, rows, parity, redundancy, aligned, files = text.values()
    if not all(is_integer(value, 1, MAX_STEP) for value in (block, rows, parity, redundancy)):
        raise Refused("LCC-PAR-03", "not a positive integer")
    if block & (block - 1) or block < 512 or type(aligned) is not bool:
        raise Refused("LCC-PAR-03", "a block, or `aligned`")
    if not isinstance(files, list) or not files:
        raise Refused("LCC-PAR-03", "no files")
    if len(files) > 64 or parity > 64 or block > 2**18:
        raise Refused("LCC-LIM-11", "too many files or columns, or too large blocks")
    found = [file_entry(entry) for entry in files]
    if len({name for name, _, _ in found}) < len(found):
        raise Refused("LCC-PAR-03", "a name twice")
    if len({"/" in name for name, _, _ in found}) > 1:
        raise Refused("LCC-PAR-03", "files of ranks, and others")
    lengths = [length for _, length, _ in found]
    columns = len(found) if aligned else -(-sum(lengths) // (rows * block))
    if columns > 128:
        raise Refused("LCC-LIM-11", f"{columns} data columns")
    blocks = [-(-length // block) for length in lengths] if aligned else [-(-sum(lengths) // block)]
    if (rows != max(blocks)) if aligned else rows > blocks[0]:
        raise Refused("LCC-PAR-03", "the rows do not fit the files")
    hashes = index[first:]
    if len(hashes) != 8 * (sum(blocks) + rows * parity):
        raise Refused("LCC-PAR-04", "not a hash for each block")
    name = hashlib.sha256(index[:first]).hexdigest()[:16]
    parts = [hashes[place : place + 8] for place in range(0, len(hashes), 8)]
    return Group(name, block, rows, parity, aligned, found, parts)


def file_entry(entry: object) -> tuple[str, int, bytes]:
    """The name, the length and the root of a file."""
    if not isinstance(entry, list) or len(entry) != 3 or not isinstance(entry[0], str):
        raise Refused("LCC-PAR-03", "not the entry of a file")
    name, length, root = entry
    rank = r"(rank-(0|[1-9][0-9]{0,8})/)?"
    of_file = re.fullmatch(rank + r"(exact|[0-9]{12}|[1-9][0-9]{12,15})\.lcc\.h5", name, re.ASCII)
    if of_file is None or (of_file[3] != "exact" and int(of_file[3]) > MAX_STEP):
        raise Refused("LCC-PAR-03", "not the name of a file of a chain")
    if not is_integer(length, 1, MAX_STEP):
        raise Refused("LCC-PAR-03", "not a length")
    if not isinstance(root, str) or not re.fullmatch("[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]", root):
        raise Refused("LCC-PAR-03", "a root is not 43 characters of base64url")
    return name, length, base64.urlsafe_b64decode(root + "=")


def times(a: int, b: int) -> int:
    """A product in GF(256) (LCC-PAR-05)."""
    product = 0
    while b:
        product ^= a * (b & 1)
        a, b = (a << 1) ^ (0x11D if a & 0x80 else 0), b >> 1
    return product


def inverse(a: int) -> int:
    """The number whose product with another is 1."""
    return next(b for b in range(1, 256) if times(a, b) == 1)


def coefficients(parity: int, data: int) -> list[list[int]]:
    """What each data column counts in each parity column (LCC-PAR-05)."""
    numbers = sorted(range(2, 256), key=lambda c: (bin(c).count("1"), c))
    points = [times(c, inverse(c ^ 1)) for c in numbers]
    ys, xs = points[:data], [0, 1, *points[128:]][:parity]
    return [[times(y, inverse(x ^ y)) for y in ys] for x in xs]


def usable(path: Path) -> tuple[Group, int, list[bytes | None]] | None:
    """What a parity file gives that may be damaged, by the first copy of its head or the second."""
    data = whole(path)
    for at in (0, len(data) - 64):
        try:
            group, column, index = read_copy(data, at)
        except Refused:
            continue
        if path.name == f"{group.name}-{column:02d}.lcc.par":
            return group, column, sound_blocks(group, column, data[64 + len(index) :])
    return None


def is_sound(data: bytes) -> bool:
    """Whether bytes are those of a checkpoint file whose digests match (LCC-PAR-07)."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        try:
            check_digests(load(Place(Path(file.name))))
        except Refused:
            return False
    return True


def mend(directory: str | os.PathLike[str]) -> dict[str, bytes]:
    """The files of a group after they were mended, by their names (LCC-PAR-07).

    The directory holds files of one group and its parity files. A file that cannot be mended is
    what it was, or it is not there.
    """
    place, parity = Path(directory), dict[int, list[bytes | None]]()
    group = None
    for path in sorted(place.glob("*.lcc.par")):
        if (found := usable(path)) is not None:
            group, column, blocks = found
            parity[column] = blocks
    if group is None:
        raise Refused("LCC-PAR-02", "no parity file that can be used")
    there = {name: whole(place / name) for name, _, _ in group.files if (place / name).exists()}
    sound = {name for name, data in there.items() if is_sound(data)}
    parts = [there.get(name, b"")[:length].ljust(length, b"\0") for name, length, _ in group.files]
    size, count = group.rows * group.block, len(group.columns())
    joined = b"".join(part.ljust(size, b"\0") if group.aligned else part for part in parts)
    columns = [bytearray(joined[i * size : (i + 1) * size].ljust(size, b"\0")) for i in range(count)]
    factors = coefficients(group.parity, count)
    for row in range(group.rows):
        span = slice(row * group.block, (row + 1) * group.block)
        hashes = [group.hash_of(j, row) for j in range(count)]
        lost = [j for j in range(count) if hashes[j] not in (None, hash_block(columns[j][span]))]
        left = {i: block for i, blocks in parity.items() if (block := blocks[row]) is not None}
        if len(lost) <= len(left):
            solve(span, lost, columns, factors, left)
            if any(hash_block(columns[j][span]) != hashes[j] for j in lost):
                raise Refused("LCC-PAR-04", "a block is computed that does not match its hash")
    # A sound file of another root: parity is older than the chain. What is missing may be removed.
    is_older = any(name in sound and there[name][-32:] != root for name, _, root in group.files)
    joined, mended = b"".join(columns), {}
    for number, (name, length, root) in enumerate(group.files):
        data = bytes(columns[number][:length]) if group.aligned else joined[:length]
        joined = joined if group.aligned else joined[length:]
        if name not in sound and (name in there or not is_older) and data[-32:] == root and is_sound(data):
            mended[name] = data
        elif name in there:
            mended[name] = there[name]
    return mended


def solve(
    span: slice,
    lost: list[int],
    columns: list[bytearray],
    factors: list[list[int]],
    parity: dict[int, bytes],
) -> None:
    """Put the lost blocks of a row into their columns, by elimination, from parity of the row."""
    equations = []
    for i in sorted(parity)[: len(lost)]:
        rest = bytearray(parity[i])
        for j, column in enumerate(columns):
            if j not in lost:
                table = bytes(times(factors[i][j], b) for b in range(256))
                rest = bytearray(a ^ b for a, b in zip(rest, column[span].translate(table), strict=True))
        equations.append(([factors[i][j] for j in lost], rest))
    for place in range(len(lost)):
        at = next(i for i in range(place, len(equations)) if equations[i][0][place])
        equations[place], equations[at] = equations[at], equations[place]
        row_factors, rest = equations[place]
        table = bytes(times(inverse(row_factors[place]), b) for b in range(256))
        equations[place] = ([table[c] for c in row_factors], rest.translate(table))
        for i, (others, values) in enumerate(equations):
            if i != place and others[place]:
                table = bytes(times(others[place], b) for b in range(256))
                pairs = zip(others, equations[place][0], strict=True)
                both = zip(values, equations[place][1].translate(table), strict=True)
                equations[i] = ([a ^ table[b] for a, b in pairs], bytearray(a ^ b for a, b in both))
    for place, j in enumerate(lost):
        columns[j][span] = equations[place][1]
