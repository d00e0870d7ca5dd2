"""The index of a bundle, and the trailer that says where it lies (SPEC 9, LCC-BUN).

A bundle holds whole checkpoint files::

    magic | the files, end to end | index | trailer

The index is canonical JSON as a manifest is (LCC-MAN-01). It names each file by its step, and never
by a path.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from ...constants import (
    BUNDLE_MAGIC,
    BUNDLE_TRAILER_SIZE,
    FORMAT_MAJOR,
    INDEX_MINOR,
    MAX_MANIFEST_BYTES,
    MAX_STEP,
    ROOT_SIZE,
)
from ...errors import FormatError, LimitError, TruncatedError, UnsupportedError
from ..canonical import dump_json, parse_base64, parse_json, write_base64
from ..scalars import Json

_MAX_LENGTH: Final = MAX_STEP  # bytes of a file: like a step, exact in every JSON reader


class BundledFile(NamedTuple):
    """A checkpoint file in a bundle: its length in bytes, and its root (LCC-TRL-05)."""

    length: int
    root: bytes


@dataclass(frozen=True)
class BundleIndex:
    """What a bundle holds (LCC-BUN-05).

    Attributes
    ----------
    checkpoints
        The checkpoints of a chain by rising step, in the order of the bundle.
    exact
        The exact file, behind them; None if there is none.
    """

    checkpoints: Mapping[int, BundledFile]
    exact: BundledFile | None = None

    @property
    def files_length(self) -> int:
        """Bytes of all files together."""
        return sum(file.length for file in self.files)

    @property
    def offsets(self) -> list[int]:
        """The first byte of each checkpoint in the bundle, in their order, and of what follows."""
        lengths = (file.length for file in self.checkpoints.values())
        return list(itertools.accumulate(lengths, initial=len(BUNDLE_MAGIC)))

    @property
    def files(self) -> list[BundledFile]:
        """All files in their order."""
        return [*self.checkpoints.values(), *([] if self.exact is None else [self.exact])]

    def to_bytes(self) -> bytes:
        """Return the index as stored."""
        entries = [[step, file.length, write_base64(file.root)] for step, file in self.checkpoints.items()]
        document: dict[str, Json] = {"checkpoints": entries}
        if self.exact is not None:
            document["exact"] = [self.exact.length, write_base64(self.exact.root)]
        return dump_json(document)


def parse_index(data: bytes, where: str) -> BundleIndex:
    """Read an index; errors begin with the place `where`.

    Raises
    ------
    FormatError
        If it is not canonical JSON (LCC-MAN-01), has other members (LCC-BUN-05), or an entry has
        another form (LCC-BUN-06).
    UnsupportedError
        If it has a member that this version does not know (LCC-BUN-05).
    LimitError
        If it is nested too deep (LCC-LIM-05), or has too long an integer (LCC-LIM-07).
    """
    document = parse_json(data, where)
    if type(document) is not dict:
        raise FormatError("LCC-BUN-05", where, "not a JSON object")
    if unknown := [key for key in document if key not in ("checkpoints", "exact")]:
        raise UnsupportedError("LCC-BUN-05", where, f"unknown key {unknown[0]!r}")
    if list(document) not in (["checkpoints"], ["checkpoints", "exact"]):
        raise FormatError("LCC-BUN-05", where, f"keys missing or out of order: {', '.join(document)}")
    entries = document["checkpoints"]
    if type(entries) is not list or not entries:
        raise FormatError("LCC-BUN-06", f"{where}: checkpoints", "not a list of checkpoints")
    checkpoints: dict[int, BundledFile] = {}
    before = -1
    for number, entry in enumerate(entries):
        place = f"{where}: checkpoints: {number}"
        if type(entry) is not list or len(entry) != 3 or type(entry[0]) is not int:
            raise FormatError("LCC-BUN-06", place, "not the step, length and root of a checkpoint")
        if not before < entry[0] <= MAX_STEP:
            raise FormatError("LCC-BUN-06", place, f"step {entry[0]} is not a step above the one before")
        before = entry[0]
        checkpoints[before] = _parse_file(entry[1:], place)
    exact = _parse_file(document["exact"], f"{where}: exact") if "exact" in document else None
    return BundleIndex(checkpoints, exact)


def _parse_file(entry: Json, where: str) -> BundledFile:
    if type(entry) is list and len(entry) == 2 and type(entry[0]) is int and 0 < entry[0] <= _MAX_LENGTH:
        root = parse_base64(entry[1], ROOT_SIZE)
        if root is not None:
            return BundledFile(entry[0], root)
    raise FormatError("LCC-BUN-06", where, "not the length and the root of a file")


@dataclass(frozen=True)
class BundleTrailer:
    """The last bytes of a bundle (LCC-BUN-02): the lengths of files and index, and the root."""

    files_length: int
    index_length: int
    root: bytes = bytes(ROOT_SIZE)
    minor: int = INDEX_MINOR

    @property
    def index_offset(self) -> int:
        """First byte of the index."""
        return len(BUNDLE_MAGIC) + self.files_length

    @property
    def bundle_length(self) -> int:
        """Bytes of the whole bundle."""
        return self.index_offset + self.index_length + BUNDLE_TRAILER_SIZE

    def to_bytes(self) -> bytes:
        """Return the trailer as stored."""
        lengths = (self.files_length, self.index_length)
        return _TRAILER.pack(BUNDLE_MAGIC, FORMAT_MAJOR, self.minor, 0, *lengths, self.root)


_TRAILER: Final = struct.Struct(f"<8sHHI2Q{ROOT_SIZE}s")  # LCC-BUN-02


def parse_bundle_trailer(data: bytes, size: int, where: str) -> BundleTrailer:
    """Read the trailer of a bundle of `size` bytes.

    Raises
    ------
    TruncatedError
        If it is not a trailer (LCC-BUN-01).
    UnsupportedError
        If it has a newer major version, or a reserved value (LCC-BUN-03).
    LimitError
        If the index is too long (LCC-LIM-04).
    FormatError
        If the lengths do not fit the size of the bundle (LCC-BUN-02).
    """
    if size < len(BUNDLE_MAGIC) + BUNDLE_TRAILER_SIZE or not data.startswith(BUNDLE_MAGIC):
        raise TruncatedError("LCC-BUN-01", where, "a bundle that is cut off: it does not end in a trailer")
    _, major, minor, reserved, files_length, index_length, root = _TRAILER.unpack(data)
    if major != FORMAT_MAJOR or reserved:
        raise UnsupportedError("LCC-BUN-03", where, f"format version {major}.{minor}, layout {reserved}")
    if index_length > MAX_MANIFEST_BYTES:
        raise LimitError("LCC-LIM-04", where, f"an index of {index_length} bytes is too long")
    trailer = BundleTrailer(files_length, index_length, root, minor)
    if trailer.bundle_length != size:
        message = f"says that the bundle has {trailer.bundle_length} bytes, but it has {size}"
        raise FormatError("LCC-BUN-02", where, message)
    return trailer
