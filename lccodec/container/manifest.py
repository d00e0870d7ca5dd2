"""The manifest of a checkpoint file: what is in it, as canonical JSON (SPEC section 8, LCC-MAN).

There is one way to write each manifest (LCC-MAN-01): bytes that are parsed at all are written again
alike. Limits are checked before they could hurt: the depth of the nesting before the recursive
parser runs, the length of a number before it is converted.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from hashlib import sha256
from typing import Final, Self, TypeAlias

from ..constants import (
    DIGEST_SIZE,
    FORMAT_MAJOR,
    FORMAT_MINOR,
    MAX_ARRAYS,
    MAX_INTEGER_DIGITS,
    MAX_NESTING,
    MAX_STEP,
    ROOT_SIZE,
)
from ..errors import ArgumentError, DataError, FormatError, LimitError, UnsupportedError
from .scalars import Json, parse_scalars
from .tree import parse_tree

__all__ = [
    "INHERITED",
    "Bytes",
    "FrameEntry",
    "Manifest",
    "Parent",
    "first_difference",
    "parse_manifest",
    "pieces_of",
]

Bytes: TypeAlias = bytes | bytearray | memoryview


def pieces_of(frame: Bytes | Iterable[Bytes]) -> Iterable[Bytes]:
    """Return the pieces of a frame that is given whole or in pieces."""
    return (frame,) if isinstance(frame, bytes | bytearray | memoryview) else frame


@dataclass(frozen=True)
class FrameEntry:
    """What the manifest says of a frame: its length in bytes, and the start of its SHA-256 (LCC-MAN-08)."""

    length: int
    digest: bytes

    @classmethod
    def of(cls, frame: Bytes | Iterable[Bytes]) -> Self:
        """The entry of a frame, whole or in pieces."""
        length, digest = 0, sha256()
        for piece in pieces_of(frame):
            length += memoryview(piece).nbytes
            digest.update(piece)
        return cls(length, digest.digest()[:DIGEST_SIZE])


@dataclass(frozen=True)
class Parent:
    """The checkpoint that a delta is taken against, by its step and its root (LCC-MAN-04)."""

    step: int
    root: bytes


class Inherited(Enum):
    """The type of `INHERITED`; ``None`` is a tree already, that of a state that is one scalar."""

    TREE = "tree"


INHERITED: Final = Inherited.TREE  # LCC-MAN-07: the place of a tree that is equal to the parent's


@dataclass(frozen=True)
class Manifest:
    """What a checkpoint holds (LCC-MAN-03); the names of the fields are those in the file.

    Attributes
    ----------
    step
        The training step, or None.
    parent
        What a delta is taken against; None for a keyframe.
    policy
        A JSON value that tells how the frames were made; readers do not need it.
    metadata
        The user's own strings.
    tree
        As `state.flatten` makes it, or `INHERITED` where it is equal to the parent's.
    scalars
        As `state.flatten` makes them.
    arrays
        For each array the number of its frame, from 1 on; 0 where it is the parent's, unchanged.
        The arrays of one frame lie in it in the order of their indices.
    frames
        An entry for each frame, in the order of the payload.
    """

    step: int | None
    parent: Parent | None
    policy: Json
    metadata: dict[str, str]
    tree: Json
    scalars: list[Json]
    arrays: tuple[int, ...]
    frames: tuple[FrameEntry, ...]
    minor: int = FORMAT_MINOR

    @property
    def payload_length(self) -> int:
        """The lengths of all frames together, in bytes."""
        return sum(entry.length for entry in self.frames)

    @property
    def members(self) -> tuple[tuple[int, ...], ...]:
        """The indices of the arrays of each frame."""
        members: list[list[int]] = [[] for _ in self.frames]
        for index, number in enumerate(self.arrays):
            if number:
                members[number - 1].append(index)
        return tuple(map(tuple, members))

    def inherit(self, tree: Json, where: str) -> Manifest:
        """This manifest with its parent's `tree` in the place of `INHERITED`, which is checked as its own."""
        if self.tree is not INHERITED:
            return self
        return replace(self, tree=parse_tree(tree, len(self.arrays), len(self.scalars), f"{where}: tree"))

    def to_bytes(self) -> bytes:
        """The manifest as it stands in the file (LCC-MAN-01, LCC-MAN-03)."""
        parent = self.parent and {"step": self.parent.step, "root": self.parent.root.hex()}
        document = {
            "lccodec": [FORMAT_MAJOR, self.minor],
            "step": self.step,
            "parent": parent,
            "policy": self.policy,
            "metadata": self.metadata,
            "tree": self.tree,
            "scalars": self.scalars,
            "arrays": list(self.arrays),
            "frames": [[entry.length, _digest_text(entry.digest)] for entry in self.frames],
        }
        if not self.metadata:
            del document["metadata"]
        if self.tree is INHERITED:
            del document["tree"]
        try:
            return _dump(document)
        except (TypeError, ValueError, RecursionError) as error:
            raise ArgumentError(f"the manifest cannot be written as JSON: {error}") from error


_MAX_LENGTH: Final = MAX_STEP  # for the same reason: exact in every JSON reader
_KEYS: Final = (
    "lccodec",
    "step",
    "parent",
    "policy",
    "metadata",
    "tree",
    "scalars",
    "arrays",
    "frames",
)  # LCC-MAN-03
_OPTIONAL_KEYS: Final = ("metadata", "tree")
# A string that is not closed goes to the end: to look for others inside it would take quadratic
# time.
_JSON_STRING: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_SQUARE: Final = bytes.maketrans(b"{}", b"[]")
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))


def parse_manifest(data: bytes, where: str) -> Manifest:
    """Read a manifest.

    Parameters
    ----------
    data
        All bytes of the manifest.
    where
        What to call it in an error.

    Raises
    ------
    FormatError
        Not canonical JSON (LCC-MAN-01), or a field of another form (LCC-MAN-02 to LCC-MAN-08,
        LCC-STA-01 to LCC-STA-06).
    UnsupportedError
        A key that this version does not know (LCC-MAN-03), a newer major version (LCC-MAN-09).
    LimitError
        Nested too deep (LCC-LIM-05), too many arrays (LCC-LIM-06), too long an integer
        (LCC-LIM-07).
    """
    document = _parse_json(data, where)
    if type(document) is not dict:
        raise FormatError("LCC-MAN-03", where, "not a JSON object")
    if unknown := [key for key in document if key not in _KEYS]:
        raise UnsupportedError("LCC-MAN-03", where, f"unknown key {unknown[0]!r}")
    if list(document) != [key for key in _KEYS if key in document or key not in _OPTIONAL_KEYS]:
        raise FormatError("LCC-MAN-03", where, f"keys missing or out of order: {', '.join(document)}")

    version, step, parent = document["lccodec"], document["step"], document["parent"]
    if type(version) is not list or len(version) != 2 or not all(_is_integer(n, 0xFFFF) for n in version):
        raise FormatError("LCC-MAN-09", f"{where}: lccodec", "not a version")
    if version[0] != FORMAT_MAJOR:
        raise UnsupportedError("LCC-MAN-09", f"{where}: lccodec", f"format version {version[0]}.{version[1]}")
    if step is not None and not _is_integer(step, MAX_STEP):
        raise FormatError("LCC-MAN-02", f"{where}: step", "neither null nor a step")
    metadata = document.get("metadata", {})
    if type(metadata) is not dict or not all(type(value) is str for value in metadata.values()):
        raise FormatError("LCC-MAN-06", f"{where}: metadata", "not an object of strings")
    if not metadata and "metadata" in document:
        raise FormatError("LCC-MAN-06", f"{where}: metadata", "empty, and not left out")
    if "tree" not in document and parent is None:
        raise FormatError("LCC-MAN-07", f"{where}: tree", "left out where there is no parent")

    # The order of these is that of the specification's precedence.
    named = None if parent is None else _parse_parent(parent, f"{where}: parent")
    scalars = parse_scalars(document["scalars"], f"{where}: scalars")
    frames = _parse_frames(document["frames"], f"{where}: frames")
    manifest = Manifest(
        step=step,
        parent=named,
        policy=document["policy"],
        metadata=metadata,
        tree=INHERITED,
        scalars=scalars,
        arrays=_parse_arrays(document["arrays"], len(frames), parent is not None, f"{where}: arrays"),
        frames=frames,
        minor=version[1],
    )
    return manifest.inherit(document["tree"], where) if "tree" in document else manifest


def _parse_json(data: bytes, where: str) -> Json:
    """Parse JSON, and only the one way to write it that `_dump` has (LCC-MAN-01)."""
    # The standard library's parser is recursive: bound the depth first. A round takes the innermost
    # pairs.
    brackets = _JSON_STRING.sub(b"", data).translate(_SQUARE, delete=_NOT_BRACKETS)
    for _ in range(MAX_NESTING + 1):
        if b"[]" not in brackets:
            break
        brackets = brackets.replace(b"[]", b"")
    if b"[]" in brackets or len(brackets) > MAX_NESTING:
        raise LimitError("LCC-LIM-05", where, f"nested deeper than {MAX_NESTING + 1}")

    def integer(digits: str) -> int:
        if len(digits.lstrip("-")) > MAX_INTEGER_DIGITS:
            raise LimitError("LCC-LIM-07", where, f"an integer of {len(digits)} digits")
        return int(digits)

    try:
        document = json.loads(data.decode(), parse_int=integer)
        canonical = _dump(document)  # refuses NaN, infinities and lone surrogates, which `loads` lets pass
    except DataError:
        raise
    except ValueError as error:
        raise FormatError("LCC-MAN-01", where, f"not JSON: {error}") from error
    # Catches duplicate keys as well: the parser has kept one of them.
    if canonical != data:
        place = first_difference(canonical, data)
        raise FormatError("LCC-MAN-01", f"{where}: byte {place}", "not in canonical form")
    return document


def _parse_parent(parent: Json, where: str) -> Parent:
    if type(parent) is not dict or list(parent) != ["step", "root"]:
        raise FormatError("LCC-MAN-04", where, "not an object of step and root")
    step, root = parent["step"], parent["root"]
    if not _is_integer(step, MAX_STEP):
        raise FormatError("LCC-MAN-02", f"{where}: step", "not a step")
    if type(root) is not str or not re.fullmatch(f"[0-9a-f]{{{2 * ROOT_SIZE}}}", root):
        raise FormatError("LCC-MAN-04", f"{where}: root", f"not {2 * ROOT_SIZE} hexadecimal digits")
    return Parent(step, bytes.fromhex(root))


def _parse_arrays(arrays: Json, frames: int, is_delta: bool, where: str) -> tuple[int, ...]:
    if type(arrays) is not list:
        raise FormatError("LCC-MAN-10", where, "not a list")
    if len(arrays) > MAX_ARRAYS:
        raise LimitError("LCC-LIM-06", where, f"{len(arrays)} arrays")
    known = 0
    for index, number in enumerate(arrays):
        if not _is_integer(number, known + 1) or (number == 0 and not is_delta):
            raise FormatError(
                "LCC-MAN-10", f"{where}: {index}", "neither a frame, in turn, nor the parent's array"
            )
        known = max(known, number)
    if frames != known:
        raise FormatError("LCC-MAN-10", where, f"{known} frames named, {frames} listed")
    return tuple(arrays)


def _parse_frames(frames: Json, where: str) -> tuple[FrameEntry, ...]:
    if type(frames) is not list:
        raise FormatError("LCC-MAN-05", where, "not a list")
    entries = []
    for number, entry in enumerate(frames):
        place = f"{where}: {number}"
        if (
            type(entry) is not list
            or len(entry) != 2
            or not _is_integer(entry[0], _MAX_LENGTH)
            or not entry[0]
        ):
            raise FormatError("LCC-MAN-05", place, "not the length and the digest of a frame")
        entries.append(FrameEntry(entry[0], _parse_digest(entry[1], place)))
    return tuple(entries)


def _parse_digest(text: Json, where: str) -> bytes:
    if type(text) is str and len(text) == len(_digest_text(bytes(DIGEST_SIZE))):
        with suppress(ValueError):
            digest = base64.urlsafe_b64decode(f"{text}==")
            if _digest_text(digest) == text:
                return digest
    raise FormatError("LCC-MAN-08", where, "not a digest")


def _digest_text(digest: bytes) -> str:
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode("ascii")


def _is_integer(value: Json, maximum: int) -> bool:
    return type(value) is int and 0 <= value <= maximum


def _dump(document: Json) -> bytes:
    return json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def first_difference(left: bytes, right: bytes) -> int:
    """The position of the first byte in which two byte strings differ."""
    same, end = 0, min(len(left), len(right))
    while same < end:  # halving leaves the comparing to memcmp
        middle = (same + end + 1) // 2
        if left[same:middle] == right[same:middle]:
            same = middle
        else:
            end = middle - 1
    return same
