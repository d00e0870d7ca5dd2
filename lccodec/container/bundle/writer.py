"""Writing a bundle: checkpoint files one behind the other, then the index (SPEC 9, LCC-BUN).

Files are copied as they are. Nothing is decoded.
"""

from __future__ import annotations

from typing import Final

from ...constants import BUNDLE_MAGIC, MAX_MANIFEST_BYTES, ROOT_SIZE
from ...errors import ArgumentError
from ..disk.source import Source
from ..disk.system import SYSTEM, StrPath, System
from ..disk.whole_file import WholeFile
from ..trailer import root_of
from .index import BundledFile, BundleIndex, BundleTrailer

#: Bytes of the longest entry: a step and a length of 16 digits, a root, and punctuation.
_MAX_ENTRY_BYTES: Final = len('[9007199254740991,9007199254740991,""],') + 43


class BundleWriter(WholeFile):
    """Writes a bundle, and replaces a file of that name.

    Each of its files is added in the order of the index: checkpoints by rising step, then the exact
    file. `commit_index` comes last.

    Examples
    --------
    >>> import tempfile, lccodec
    >>> from lccodec.container.bundle.bundle import Bundle
    >>> from lccodec.container.disk.source import FileSource
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
