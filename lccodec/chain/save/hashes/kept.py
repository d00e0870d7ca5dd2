"""The files beside a chain from which another process goes on: hashes, and values of the state.

Both lie in the folder ``.hashes`` of a directory, and are not a part of the format: they are never
needed to read a chain, and a writer without them reads the newest step once. The file of hashes is
that of one checkpoint, by its root. It has a hash of itself, and is replaced whole after each save.
Who can write it can write the checkpoints too, and is trusted as they are.

The file of values is written in place (:mod:`lccodec.container.disk.scratch`): each segment that is
read of it is verified by its hash.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Collection, Mapping
from contextlib import closing, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import numpy as np

from ....byteorder import stored_bytes
from ....container.disk.folder import Folder
from ....container.disk.scratch import Scratch
from ....container.disk.source import FileSource
from ....container.disk.whole_file import WholeFile, remove_stale_temporaries
from ....element_table import ELEMENT_TYPES
from ....errors import LccodecError, warn
from ...read.links import Form
from ...store.directory import DirectoryStore
from ...store.names import HASHES_FOLDER
from .segments import HASH_BYTES, MAX_SEGMENT, MIN_SEGMENT, HashedArray

HASHES: Final = "hashes"
VALUES: Final = "values"

_HEAD: Final = struct.Struct("<8s32sQ")  # magic, SHA-256 of all that follows it, bytes of the JSON
_MAGIC: Final = b"LCCHASH\x01"
#: What bytes may raise that are not a file of hashes.
_NOT_HASHES: Final = (
    *(LccodecError, OSError, ValueError, LookupError, TypeError, OverflowError),
    *(struct.error, RecursionError),
)
_SUMMED_FROM: Final = 40  # the bytes behind the SHA-256
_TEXT_BYTES: Final = 1 << 10  # of what is said of an array but its name: five numbers and its shape
_ESCAPED_BYTES: Final = 12  # of a character of a name in JSON


class Kept:
    """The files beside the chain of a directory.

    Parameters
    ----------
    store
        The directory.
    """

    def __init__(self, store: DirectoryStore) -> None:
        self._store = store
        self._path: Path = store.path / HASHES_FOLDER
        self.values = Scratch(store.path, HASHES_FOLDER, VALUES, store.system)
        self._told = False  # whether a warning was given

    def remove(self) -> None:
        """Remove the hashes, which turned out to be wrong."""
        with (
            suppress(LccodecError, OSError),
            Folder(self._store.path, self._store.system) as above,
            above.inner(HASHES_FOLDER) as folder,
        ):
            folder.remove([HASHES])

    def read(
        self, roots: Collection[bytes], forms: Mapping[str, Form]
    ) -> tuple[int, dict[str, HashedArray]] | None:
        """Return the bytes of a segment and the hashes of a checkpoint's arrays.

        ``None`` if they are not there, are damaged, or are of another checkpoint: its root is among
        `roots`, and its arrays have the types and shapes of `forms`.
        """
        try:
            with closing(FileSource(self._path / HASHES)) as source:
                if source.size > _most_bytes(forms):
                    return None
                data = memoryview(source.read(0, source.size))
            return _parse(data, roots, forms)
        except _NOT_HASHES:
            return None

    def warn(self) -> None:
        """Warn if the file of values cannot be written: once."""
        if not self.values.works and not self._told:
            self._told = True
            warn(f"{self._path / VALUES} cannot be written: saves read what changed from the checkpoints")

    def write(self, root: bytes, segment: int, arrays: Mapping[str, HashedArray]) -> None:
        """Replace the hashes. What the system refuses is not done: the file is not needed."""
        told = [
            [name, a.kind.code, list(a.shape), a.offset, a.total, len(a.hashes)] for name, a in arrays.items()
        ]
        head = json.dumps({"root": root.hex(), "segment": segment, "arrays": told}).encode()
        body = [struct.pack("<Q", len(head)), head, *(stored_bytes(a.hashes) for a in arrays.values())]
        digest = sha256()
        for part in body:
            digest.update(part)
        self.values.cut(max((a.offset + len(a.hashes) * segment for a in arrays.values()), default=0))
        with suppress(LccodecError, OSError), Folder(self._store.path, self._store.system) as above:
            above.make(HASHES_FOLDER)
            with above.inner(HASHES_FOLDER) as folder:
                remove_stale_temporaries(folder)
                with WholeFile(HASHES, overwrite=True, folder=folder) as file:
                    file.write(_MAGIC + digest.digest())
                    for part in body:
                        file.write(part)
                    file.commit()


def _most_bytes(forms: Mapping[str, Form]) -> int:
    """Return how long a file of the hashes of such arrays is at most: no more is read."""
    names = sum(_ESCAPED_BYTES * len(name) for name in forms)
    segments = sum(_segments(form, MIN_SEGMENT) for form in forms.values())
    return _TEXT_BYTES * (1 + len(forms)) + names + HASH_BYTES * segments


def _segments(form: Form, segment: int) -> int:
    """Return how many segments an array has."""
    kind, shape = form
    return -(-math.prod(shape) * kind.components * kind.size // segment)


def _parse(
    data: memoryview, roots: Collection[bytes], forms: Mapping[str, Form]
) -> tuple[int, dict[str, HashedArray]] | None:
    """Return what a file of hashes has; raise ``ValueError`` or another error for other bytes."""
    magic, digest, length = _HEAD.unpack(data[: _HEAD.size])
    if magic != _MAGIC or sha256(data[_SUMMED_FROM:]).digest() != digest:
        return None
    head: Any = json.loads(bytes(data[_HEAD.size : _HEAD.size + length]))
    segment = head["segment"]
    if bytes.fromhex(head["root"]) not in roots or [each[0] for each in head["arrays"]] != list(forms):
        return None
    if segment not in [1 << log2 for log2 in range(MIN_SEGMENT.bit_length() - 1, MAX_SEGMENT.bit_length())]:
        return None
    start, found = _HEAD.size + length, {}
    for name, code, shape, offset, total, count in head["arrays"]:
        own = data[start : start + count * HASH_BYTES]
        hashes = np.frombuffer(own, np.uint8).reshape(count, HASH_BYTES)
        array = HashedArray(ELEMENT_TYPES[code], tuple(shape), offset, total, hashes)
        found[name] = _checked(array, forms[name], segment)
        start += count * HASH_BYTES
    return (segment, found) if start == len(data) else None


def _checked(array: HashedArray, form: Form, segment: int) -> HashedArray:
    """Return an array whose numbers fit its form; raise ``ValueError`` otherwise."""
    if (array.kind, array.shape) != form or len(array.hashes) != _segments(form, segment):
        raise ValueError("hashes that do not fit their array")
    if type(array.offset) is not int or type(array.total) is not int:
        raise ValueError("no integers")
    if not (0 <= array.offset < 1 << 62 and 0 <= array.total < 1 << 64):
        raise ValueError("numbers out of range")
    return array
