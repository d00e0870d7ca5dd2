"""Reading a bundle: its index, and the files in it by positioned reads (SPEC 9, LCC-BUN).

Opening verifies the root of the bundle, which covers all but the files. Each file is verified as a
file of its own: by its root, which the index names, and by the digests of its frames.
"""

from __future__ import annotations

from contextlib import closing
from typing import Self

from ...constants import BUNDLE_MAGIC, BUNDLE_TRAILER_SIZE, CHECKPOINT_SUFFIX, EXACT_NAME, ROOT_SIZE
from ...errors import ArgumentError, ChainError, ChecksumError, FormatError, LccodecError
from ..disk.source import FileSource, Section
from ..disk.system import StrPath, checked_path
from ..reader import CheckpointReader
from ..trailer import root_of
from .index import BundledFile, BundleIndex, parse_bundle_trailer, parse_index


class Bundle:
    """A bundle that is open for reading. It keeps one file open, which all its checkpoints share.

    Attributes
    ----------
    path
        The path of the bundle. Errors call a file in it by this path and the file's own name.
    index
        What it holds.
    root
        The root, which stands for all bytes of the bundle.
    size
        Bytes of the bundle.

    Raises
    ------
    StorageError
        If the operating system cannot open or read it.
    DataError
        If it is not a bundle (FormatError), is cut off (TruncatedError), is damaged
        (ChecksumError), has a newer version (UnsupportedError) or is beyond a limit (LimitError).
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

        Raises
        ------
        ChainError
            If there is no such file.
        FormatError
            If the file in its place is another one (LCC-BUN-07).
        DataError, StorageError
            As for a file of its own.
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
        found = self.index.exact if step is None else self.index.checkpoints.get(step)
        if found is None:
            what = "exact file" if step is None else f"step {step}"
            raise ChainError(f"{self.path} has no {what}")
        return found

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
