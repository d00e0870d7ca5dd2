"""A bundle: checkpoint files, verbatim, in one file (SPEC 9, LCC-BUN).

::

    magic | the files, end to end | index | trailer

The index is canonical JSON as a manifest is (LCC-MAN-01). It names each file by its step, and never
by a path. The trailer says where it lies.

Opening verifies the root of the bundle, which covers all but the files. Each file is verified as a
file of its own: by its root, which the index names, and by the digests of its frames. Files are
copied into a bundle as they are. Nothing is decoded.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

from ..constants import (
    BUNDLE_MAGIC,
    BUNDLE_TRAILER_SIZE,
    CHECKPOINT_SUFFIX,
    EXACT_NAME,
    FORMAT_MAJOR,
    INDEX_MINOR,
    MAX_MANIFEST_BYTES,
    MAX_STEP,
    ROOT_SIZE,
)
from ..errors import (
    ArgumentError,
    ChainError,
    ChecksumError,
    FormatError,
    LccodecError,
    LimitError,
    TruncatedError,
    UnsupportedError,
)
from .checkpoint import CheckpointReader, root_of
from .folder import WholeFile
from .source import FileSource, Section, Source
from .system import SYSTEM, StrPath, System, checked_path
from .tree import Json, dump_json, parse_base64, parse_json, write_base64

_MAX_LENGTH: Final = MAX_STEP  # bytes of a file: like a step, exact in every JSON reader


class BundledFile(NamedTuple):
    """A checkpoint file in a bundle: its length in bytes, and its root (LCC-TRL-05)."""

    length: int
    root: bytes


@dataclass(frozen=True)
class BundleIndex:
    """What a bundle holds (LCC-BUN-05)."""

    # The checkpoints of a chain by rising step, in the order of the bundle.
    checkpoints: Mapping[int, BundledFile]
    exact: BundledFile | None = None  # the exact file, behind them; None if there is none

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
    """Read an index (LCC-MAN-01, LCC-BUN-05, LCC-BUN-06); errors begin with the place `where`."""
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
    """Read the trailer of a bundle of `size` bytes (LCC-BUN-01 to LCC-BUN-03, LCC-LIM-04)."""
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


class Bundle:
    """A bundle that is open for reading. It keeps one file open, which all its checkpoints share.

    Errors call a file in it by the `path` of the bundle and the file's own name. The `root` stands
    for all bytes of the bundle. Raises ``StorageError`` if the operating system cannot open or read
    it, and the ``DataError`` of the first rule that it breaks.
    """

    def __init__(self, path: StrPath) -> None:
        self._source: FileSource | None = FileSource(path)
        self.path = checked_path(path)
        self.size = self._source.size
        try:
            self.index, self.root = self._read_index(self._source)
        except BaseException:
            self.close()
            raise
        files: list[int | None] = [*self.index.checkpoints, None]
        self._offsets = dict(zip(files, self.index.offsets, strict=False))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. Closing again does nothing."""
        source, self._source = self._source, None
        if source is not None:
            source.close()

    @property
    def steps(self) -> list[int]:
        """The steps that it holds, rising."""
        return list(self.index.checkpoints)

    def open(self, step: int | None) -> CheckpointReader:
        """Open the checkpoint of a step, or the exact file for None.

        Raises ``ChainError`` if there is no such file, ``FormatError`` if the file in its place is
        another one (LCC-BUN-07), and as for a file of its own.
        """
        name = EXACT_NAME if step is None else f"{step:012d}{CHECKPOINT_SUFFIX}"
        reader = CheckpointReader(self.file(step), str(self.path / name))
        try:
            if reader.root != self._entry(step).root:
                message = "not the file that the index names: another root"
                raise FormatError("LCC-BUN-07", reader.name, message)
            if step is not None and reader.manifest.step != step:
                raise FormatError("LCC-BUN-07", reader.name, f"holds step {reader.manifest.step}")
        except BaseException:
            reader.close()
            raise
        return reader

    def file(self, step: int | None) -> Section:
        """Return the bytes of a checkpoint file, or of the exact file for None, not verified."""
        entry = self._entry(step)
        if self._source is None:
            raise ArgumentError(f"{self.path}: closed")
        return Section(self._source, self._offsets[step], entry.length)

    def _entry(self, step: int | None) -> BundledFile:
        file = self.index.exact if step is None else self.index.checkpoints.get(step)
        if file is None:
            what = "exact file" if step is None else f"step {step}"
            raise ChainError(f"{self.path} has no {what}")
        return file

    def _read_index(self, source: FileSource) -> tuple[BundleIndex, bytes]:
        name = str(self.path)
        head = source.read(0, min(source.size, len(BUNDLE_MAGIC)))
        if head != BUNDLE_MAGIC:
            raise FormatError("LCC-BUN-01", name, "not a bundle")
        size = min(source.size, BUNDLE_TRAILER_SIZE)
        data = source.read(source.size - size, size)
        trailer = parse_bundle_trailer(data, source.size, f"{name}: trailer")
        text = source.read(trailer.index_offset, trailer.index_length)
        if root_of(head, text + data[:-ROOT_SIZE]) != trailer.root:
            raise ChecksumError("LCC-BUN-04", name, "the bytes around the files do not match the root")
        index = parse_index(text, f"{name}: index")
        if index.files_length != trailer.files_length:
            message = f"{index.files_length} bytes of files in {trailer.files_length} bytes"
            raise FormatError("LCC-BUN-06", f"{name}: index", message)
        return index, trailer.root


def is_bundle(path: StrPath) -> bool:
    """Return whether a file begins as a bundle; False if it cannot be read."""
    try:
        with closing(FileSource(path)) as source:
            return source.read(0, min(source.size, len(BUNDLE_MAGIC))) == BUNDLE_MAGIC
    except LccodecError:
        return False


#: Bytes of the longest entry: a step and a length of 16 digits, a root, and punctuation.
_MAX_ENTRY_BYTES: Final = len('[9007199254740991,9007199254740991,""],') + 43


class BundleWriter(WholeFile):
    """Writes a bundle, and replaces a file of that name.

    Each of its files is added in the order of the index: checkpoints by rising step, then the exact
    file. `commit_index` comes last.

    Examples
    --------
    >>> import tempfile, lccodec
    >>> from lccodec.container.bundle import Bundle
    >>> from lccodec.container.source import FileSource
    >>> chain = lccodec.Chain(tempfile.mkdtemp())
    >>> _ = chain.save(7, {"epoch": 1})
    >>> file = FileSource(chain.directory / "000000000007.lcc.h5")
    >>> with BundleWriter(chain.directory / "run.lcc") as writer:
    ...     entry = writer.add(file, file.read(file.size - 32, 32))
    ...     root = writer.commit_index(BundleIndex({7: entry}))
    >>> file.close()
    >>> with Bundle(chain.directory / "run.lcc") as bundle:
    ...     bundle.steps, bundle.root == root
    ([7], True)
    """

    def __init__(self, path: StrPath, *, system: System = SYSTEM) -> None:
        super().__init__(path, overwrite=True, system=system)
        self._added: list[BundledFile] = []

    def add(self, source: Source, root: bytes) -> BundledFile:
        """Append a file, whose root is known, and return its entry for the index."""
        if not self.size:
            self.write(BUNDLE_MAGIC)
        self.copy(source)
        self._added.append(BundledFile(source.size, root))
        return self._added[-1]

    def commit_index(self, index: BundleIndex) -> bytes:
        """Write the index and the trailer, give the file its name, and return its root.

        Errors are those of `commit`; an `ArgumentError` also for an index of other files.
        """
        if index.files != self._added or not self._added:
            raise ArgumentError("the index does not list the files that were added")
        text = index.to_bytes()
        trailer = BundleTrailer(index.files_length, len(text))
        tail = text + trailer.to_bytes()[:-ROOT_SIZE]
        root = root_of(BUNDLE_MAGIC, tail)
        self.write(tail + root)
        self.commit()
        return root


def check_index_size(files: int) -> None:
    """Raise ``ArgumentError`` if the index of so many files may be too long (LCC-LIM-04)."""
    if files * _MAX_ENTRY_BYTES > MAX_MANIFEST_BYTES:
        raise ArgumentError(
            f"an index of {files} files is longer than {MAX_MANIFEST_BYTES} bytes (LCC-LIM-04)"
        )
