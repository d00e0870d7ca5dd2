"""Checkpoint files (8) and the chains that they are in (9)."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import stat
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from .frames import ELEMENTS, check_cuts, counts_of, decode_frame, frame_header, interpolate, round_to
from .manifests import check_manifest, check_tree, parse_json, scalar
from .streams import Refused

TRAILER_MAGIC = b"LCCODEC\x1a"
HDF5_START = b"\x89HDF\r\n\x1a\n\x02"
HEAD_SIZE = 445  # bytes before the payload


class Array(NamedTuple):
    """An array: its element type, its extents and its components as little-endian bytes."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes


class Place(NamedTuple):
    """Where a checkpoint file lies: a file, or a part of a bundle."""

    path: Path
    start: int = 0
    size: int | None = None  # to the end


class Checkpoint(NamedTuple):
    """A checkpoint file whose manifest was checked alone, without the chain it may belong to."""

    place: Place
    root: bytes
    step: int | None
    parents: list[tuple[int, bytes]]
    manifest: dict[str, Any]

    @property
    def span(self) -> tuple[int, int]:
        """The steps of both parents of an interpolated checkpoint (LCC-INT-02)."""
        (low, _), (high, _) = self.parents
        return low, high


class Link(NamedTuple):
    """What is kept of a checkpoint while others are looked for; a manifest may be large."""

    place: Place
    root: bytes
    parents: list[int]


# 8: checkpoint files


def pread(file: int, size: int, offset: int) -> bytes:
    """Bytes of a file."""
    parts = b""
    while len(parts) < size:
        if not (part := os.pread(file, size - len(parts), offset + len(parts))):
            raise Refused("LCC-H5-01", "the file has become shorter")
        parts = parts + part if parts else part
    return parts


def open_regular(path: Path) -> int:
    """A descriptor of a regular file, opened without waiting for any other kind (LCC-H5-01)."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise Refused("LCC-H5-01", "not a regular file")
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise Refused("LCC-H5-01", "not a regular file")
    return file


def load(place: Place) -> Checkpoint:
    """A checkpoint file, checked without its frames and an inherited tree (8, "Precedence")."""
    file, start = open_regular(place.path), place.start
    try:
        size = os.fstat(file).st_size if place.size is None else place.size
        trailer = pread(file, 88, start + size - 88) if size >= 88 else b""
        if trailer[:8] != TRAILER_MAGIC:
            head = pread(file, min(size, 101), start)
            # The superblock has the end of the HDF5 file at byte 28.
            whole = int.from_bytes(head[28:36], "little") + 88
            if head and HDF5_START.startswith(head[:9]) and b"payload".startswith(head[94:]) and size < whole:
                raise Refused("LCC-H5-01", "the file is truncated")
            raise Refused("LCC-TRL-01", "the file does not end in a trailer")
        major, minor, form, *layout = struct.unpack("<HHI5Q", trailer[8:56])
        if major != 1:
            raise Refused("LCC-TRL-03", f"version {major}.{minor}")
        if form != 1:
            raise Refused("LCC-TRL-04", f"layout {form}")
        payload, length = layout[1], layout[3]
        if length > 2**26:
            raise Refused("LCC-LIM-04", f"a manifest of {length} bytes")
        behind = HEAD_SIZE + payload
        if layout != [HEAD_SIZE, payload, behind, length, size] or size != behind + length + 88:
            raise Refused("LCC-TRL-06", "offsets and lengths do not fit the file")
        around = pread(file, HEAD_SIZE, start) + pread(file, length + 56, start + behind)
    finally:
        os.close(file)
    root = trailer[56:]
    if hashlib.sha256(around).digest() != root:
        raise Refused("LCC-TRL-05", "the root does not match")
    manifest = parse_json(around[HEAD_SIZE:][:length])
    step, parents = check_manifest(manifest)
    if "tree" in manifest:
        check_tree(manifest, manifest["tree"])
    if manifest["lccodec"] != [major, minor]:
        raise Refused("LCC-MAN-09", "the version is not that of the trailer")
    if sum(sum(entry[::2]) for entry in manifest["frames"]) != payload:
        raise Refused("LCC-MAN-05", "the lengths of the frames do not sum to the payload")
    return Checkpoint(place, root, step, parents, manifest)


# 9: chains


def decode_arrays(checkpoint: Checkpoint, names: list[str], parent: dict[str, Array]) -> dict[str, Array]:
    """The arrays of a checkpoint by their names (LCC-CHN-03)."""
    numbers, frames = checkpoint.manifest["arrays"], checkpoint.manifest["frames"]
    groups: list[list[str]] = [[] for _ in range(len(frames) + 1)]
    copies: list[str] = []
    for name, number in zip(names, numbers, strict=True):
        (copies if number is None else groups[number]).append(name)
    if any(name not in parent for name in groups[0]):
        raise Refused("LCC-CHN-03", "the parent has no array of that name")
    arrays = {name: parent[name] for name in groups[0]}
    offset = checkpoint.place.start + HEAD_SIZE
    file = open_regular(checkpoint.place.path)
    try:
        for (length, digest, *more), group in zip(frames, groups[1:], strict=True):
            data, table = pread(file, length, offset), pread(file, sum(more), offset + length)
            offset += length + len(table)
            check_digest(data, table, digest)
            pieces = pieces_of(table, data) if more else []
            header = frame_header(data)
            if more:
                check_cuts(data, header, [(blocks, size) for blocks, size, _ in pieces])
            if len(group) != len(header.shapes):
                raise Refused("LCC-CHN-03", "a frame has another number of arrays than the manifest gives it")
            reference = None
            if header.relative:
                for name, shape in zip(group, header.shapes, strict=True):
                    if name not in parent or parent[name][:2] != (header.element.name, shape):
                        raise Refused("LCC-CHN-03", f"no reference of that type and shape for {name!r}")
                reference = b"".join(parent[name].data for name in group)
            dtype, shapes, out = decode_frame(data, reference)
            at = 0
            for name, shape, count in zip(group, shapes, counts_of(header), strict=True):
                size = count * header.element.size
                arrays[name] = Array(dtype, shape, out[at : at + size])
                at += size
    finally:
        os.close(file)
    for name, (source, code) in zip(copies, checkpoint.manifest.get("copies", []), strict=True):
        arrays[name] = copy_of(arrays[names[source]], code)
    return arrays


def check_digests(checkpoint: Checkpoint) -> None:
    """Check the digests of all frames, tables and pieces (LCC-MAN-08, LCC-PCS-02)."""
    offset = checkpoint.place.start + HEAD_SIZE
    file = open_regular(checkpoint.place.path)
    try:
        for length, digest, *more in checkpoint.manifest["frames"]:
            data, table = pread(file, length, offset), pread(file, sum(more), offset + length)
            offset += length + len(table)
            check_digest(data, table, digest)
            if more:
                pieces_of(table, data)
    finally:
        os.close(file)


def check_digest(data: bytes, table: bytes, digest: str) -> None:
    """Check the digest of a frame, or of its table if it has one (LCC-MAN-08)."""
    if digest_of(table or data) != base64.urlsafe_b64decode(digest + "=="):
        raise Refused("LCC-MAN-08", "the digest of a frame or of its table does not match")


def digest_of(data: bytes) -> bytes:
    """The digest of a frame, a table or a piece."""
    return hashlib.sha256(data).digest()[:16]


def pieces_of(table: bytes, data: bytes) -> list[tuple[int, int, bytes]]:
    """The pieces of a frame, verified: their blocks, lengths and digests (LCC-PCS-01, -02)."""
    if len(table) % 28 or len(table) < 56:
        raise Refused("LCC-PCS-01", "not a table of two pieces or more")
    pieces = list(struct.iter_unpack("<IQ16s", table))
    if pieces[0][0] or not all(blocks for blocks, _, _ in pieces[1:]):
        raise Refused("LCC-PCS-01", "the first piece has blocks, or another has none")
    if sum(length for _, length, _ in pieces) != len(data):
        raise Refused("LCC-PCS-01", "the pieces are not the frame")
    start = 0
    for _, length, digest in pieces:
        if digest_of(data[start : start + length]) != digest:
            raise Refused("LCC-PCS-02", "the digest of a piece does not match")
        start += length
    return pieces


def copy_of(source: Array, code: int) -> Array:
    """An array as it is, or rounded to another type (LCC-CPY-02, LCC-CPY-03)."""
    if code == 255:
        return Array(*source)  # an object of its own
    if source.dtype != "float32":
        raise Refused("LCC-CPY-02", "the source of a rounding is not float32")
    element = ELEMENTS[code]
    patterns = [round_to(pattern, element) for (pattern,) in struct.iter_unpack("<I", source.data)]
    return Array(element.name, source.shape, struct.pack(f"<{len(patterns)}H", *patterns))


def build(node: Any, arrays: list[Array], scalars: Iterator[Any]) -> Any:
    """The state of a tree; an array in several places is one object (LCC-STA-02)."""
    if node is None:
        return scalar(next(scalars))
    if isinstance(node, int):
        return arrays[node]
    if isinstance(node, dict):
        return {key: build(child, arrays, scalars) for key, child in node.items()}
    items = [build(child, arrays, scalars) for child in node[1:]]
    return items if node[0] == "l" else tuple(items)


def read_checkpoint(path: str | os.PathLike[str]) -> Any:
    """The state in a checkpoint file; a delta is replayed from the chain beside it (section 9)."""
    checkpoint = load(Place(Path(path)))
    in_chain = re.fullmatch(r"([0-9]{12}|[1-9][0-9]{12,})\.lcc\.h5", Path(path).name)
    if in_chain and checkpoint.step != int(in_chain[1]):
        raise Refused("LCC-CHN-01", "the step is not that of the file's name")

    def beside(step: int) -> Checkpoint:
        try:
            found = load(Place(Path(path).parent / f"{step:012d}.lcc.h5"))
        except FileNotFoundError as error:
            raise Refused("LCC-CHN-02", f"the parent, step {step}, is missing") from error
        if found.step != step:
            raise Refused("LCC-CHN-02", "the parent is another checkpoint")
        return found

    return replay(checkpoint, beside)


def replay(checkpoint: Checkpoint, find: Callable[[int], Checkpoint]) -> Any:
    """The state in a checkpoint; `find` loads the checkpoint of a step."""
    links: dict[int | None, Link] = {}
    order: list[tuple[int, int, int | None]] = []  # LCC-INT-02
    left: list[Checkpoint] = [checkpoint]
    while left:
        child = left.pop()
        if child.step in links:
            continue
        parents = [step for step, _ in child.parents]
        links[child.step] = Link(child.place, child.root, parents)
        low, high = child.span if len(parents) == 2 else (child.step or 0, 0)
        order.append((len(parents) == 2, low - high, child.step))
        if sum(is_interpolated for is_interpolated, *_ in order) > 16:
            raise Refused("LCC-LIM-10", "more than 16 interpolated checkpoints are needed")
        if parents and (child.step is None or parents[0] >= child.step):
            raise Refused("LCC-CHN-02", "the parent's step is not below the delta's")
        for step, root in child.parents:
            try:
                parent = find(step)
            except FileNotFoundError as error:
                raise Refused("LCC-CHN-02", f"the parent of step {step} is missing") from error
            if root not in roots_of(parent):
                raise Refused("LCC-CHN-02", "the parent is another checkpoint")
            check_span(child, parent)
            left.append(parent)
    users = Counter(above for link in links.values() for above in link.parents)
    trees: dict[int | None, Any] = {}
    names: list[str] = []
    arrays: dict[int | None, dict[str, Array]] = {}
    for *_, at in sorted(order, key=lambda each: each[:2]):
        link = links[at]
        found = load(link.place)
        if found.root != link.root:
            raise Refused("LCC-CHN-02", "a checkpoint of the chain has changed")
        before = [arrays[above] for above in link.parents] or [{}]
        trees[at] = found.manifest.get("tree", trees[link.parents[0]] if link.parents else None)
        names = check_tree(found.manifest, trees[at])
        arrays[at] = decode_arrays(found, names, interpolated(found, *before) if before[1:] else before[0])
        for above in link.parents:
            users[above] -= 1
            if not users[above]:  # no other checkpoint needs it any more
                del arrays[above]
    last = arrays[checkpoint.step]
    scalars = iter(checkpoint.manifest["scalars"])
    return build(trees[checkpoint.step], [last[name] for name in names], scalars)


def check_span(child: Checkpoint, parent: Checkpoint) -> None:
    """Check that an interpolated parent may be one (LCC-INT-02)."""
    if len(parent.parents) < 2:
        return
    if len(child.parents) < 2:
        raise Refused("LCC-INT-02", "a delta has an interpolated parent")
    (low, high), (start, stop) = parent.span, child.span
    if not (low <= start and stop <= high):
        raise Refused("LCC-INT-02", "the span of an interpolated parent does not hold that of its child")


def interpolated(checkpoint: Checkpoint, low: dict[str, Array], high: dict[str, Array]) -> dict[str, Array]:
    """The references of an interpolated checkpoint by name (LCC-INT-04)."""
    weight = checkpoint.manifest["later"][2]
    found = dict(low)
    for name, (dtype, shape, data) in low.items():
        element = next(each for each in ELEMENTS if each.name == dtype)
        if name not in high or high[name][:2] != (dtype, shape) or not element.mantissa:
            continue
        out = bytearray()
        for at in range(0, len(data), element.size):
            parts = (each[at : at + element.size] for each in (data, high[name].data))
            before, after = (int.from_bytes(part, "little") for part in parts)
            out += interpolate(before, after, weight, element).to_bytes(element.size, "little")
        found[name] = Array(dtype, shape, bytes(out))
    return found


def roots_of(checkpoint: Checkpoint) -> list[bytes]:
    """The roots that a checkpoint is named by: its own, and those it replaces (LCC-CHN-10)."""
    replaced = checkpoint.manifest.get("replaces", [])
    return [checkpoint.root, *(base64.urlsafe_b64decode(root + "=") for root in replaced)]


def read_newest(directory: str | os.PathLike[str]) -> Any:
    """The newest state of a chain: that of the exact file, or of the history (LCC-EXA-04)."""
    names = [path.name for path in Path(directory).iterdir()]
    found = [re.fullmatch(r"([0-9]{12}|[1-9][0-9]{12,})\.lcc\.h5", name) for name in names]
    steps = {int(match[1]): Path(directory, match[0]) for match in found if match}
    newest = steps[max(steps)] if steps else None
    try:
        exact = load(Place(Path(directory, "exact.lcc.h5")))
        if exact.manifest.get("exact") is not True or exact.step is None:
            raise Refused("LCC-EXA-01", "not an exact file")
        if newest is None or exact.step > max(steps) or (exact.step == max(steps) and belongs(exact, newest)):
            return read_checkpoint(exact.place.path)
    except (FileNotFoundError, Refused):
        if newest is None:
            raise
    return read_checkpoint(newest)


def belongs(exact: Checkpoint, newest: Path) -> bool:
    """Whether a checkpoint names an exact file as its own, or is damaged."""
    try:
        return names(load(Place(newest)), exact)
    except Refused:
        return True


def names(checkpoint: Checkpoint, exact: Checkpoint) -> bool:
    """Whether a checkpoint has the root of an exact file in its manifest (LCC-EXA-02)."""
    root = checkpoint.manifest.get("exact")
    return isinstance(root, str) and base64.urlsafe_b64decode(root + "=") == exact.root
