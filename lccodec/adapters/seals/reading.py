"""Files that are verified while they are read, if there is a seal for them; hashing of files."""

from __future__ import annotations

import errno
import hashlib
import io
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from ...container.disk.system import StrPath, checked_path
from ...errors import ChecksumError, FormatError, StorageError
from ..files.disk import read_bounded, regular_file
from .listing import FILE_SUFFIX, MAX_BYTES, RULE, SEAL_NAME, Entry, Listing, SealedPart

_PIECE_BYTES: Final = 1 << 20
_ABSENT: Final = frozenset((errno.ENOENT, errno.ENOTDIR))
_MAX_SHOWN: Final = 8  # names of tensors in a message
#: Is called with each number of bytes that was read.
Count = Callable[[int], object]


def digest_of(file: BinaryIO, count: Count = int) -> str:
    """Return the SHA-256 of a file, in hexadecimal; it is read from its start."""
    return entry_of(file, (), count).digest


def entry_of(file: BinaryIO, parts: Iterable[SealedPart], count: Count = int) -> Entry:
    """Return the SHA-256 of a file and of parts of it, in one pass.

    Parts lie in the order of their bytes. Those that end behind the file are left out.
    """
    whole, done, at = hashlib.sha256(), list[SealedPart](), 0
    waiting = iter(parts)
    part, of_part = next(waiting, None), hashlib.sha256()
    buffer = bytearray(_PIECE_BYTES)
    file.seek(0)
    while size := file.readinto(buffer):  # type: ignore[attr-defined]
        piece = memoryview(buffer)[:size]
        whole.update(piece)
        while part is not None and part.start < at + size:
            of_part.update(piece[max(part.start - at, 0) : part.end - at])
            if part.end > at + size:
                break
            done.append(SealedPart(part.name, part.start, part.end, of_part.hexdigest()))
            part, of_part = next(waiting, None), hashlib.sha256()
        at += size
        count(size)
    return Entry(whole.hexdigest(), tuple(done))


def check_unchanged(file: BinaryIO, before: os.stat_result) -> None:
    """Raise ChecksumError if an open file, or the file at its path, is not as it was before."""
    for now in (os.fstat(file.fileno()), Path(file.name).stat()):
        same = (now.st_size, now.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
        if not os.path.samestat(now, before) or not same:
            raise ChecksumError(RULE, str(file.name), "changed while it was read")


def damaged_parts(file: BinaryIO, parts: Sequence[SealedPart]) -> list[str]:
    """Return the names of the parts whose bytes are not those that were hashed."""
    current = entry_of(file, parts).parts
    now = {part.start: part.digest for part in current}
    return [part.name for part in parts if now.get(part.start) != part.digest]


@dataclass(frozen=True)
class FileSeal:
    """What a seal says of one file, and where it lies."""

    seal: Path
    entry: Entry


@contextmanager
def sealed_file(path: StrPath) -> Iterator[BinaryIO]:
    """Open a regular file for reading, and verify it first if there is a seal for it.

    What is yielded is the open file that was verified. If it, or the file at the path, changes
    until the end of the block, that is an error.

    Raises
    ------
    ChecksumError
        If it is not as it was sealed. The message names the damaged tensors.
    DataError
        If the seal is malformed.
    StorageError
        If it is not a regular file, or the operating system cannot read it.
    """
    with regular_file(path) as file:
        file_seal = find_seal(checked_path(path))
        if file_seal is None:
            yield file
            return
        before = os.fstat(file.fileno())
        if digest_of(file) != file_seal.entry.digest:
            raise _changed(path, file_seal, file)
        file.seek(0)
        yield file
        check_unchanged(file, before)


def read_sealed(path: StrPath, most: int | None = None) -> bytes:
    """Return the bytes of a regular file; those that are returned are verified. Errors as above.

    With `most`, a file of more bytes is a ``LimitError``.
    """
    data = read_bounded(path, most, RULE)
    file_seal = find_seal(checked_path(path))
    if file_seal is not None and hashlib.sha256(data).hexdigest() != file_seal.entry.digest:
        raise _changed(path, file_seal, data)
    return data


def find_seal(path: Path) -> FileSeal | None:
    """Return what is sealed of a file, or None.

    That is in the seal beside it, or in that of its directory, or of the nearest one above that has
    a seal. A file that a directory's seal does not name is not sealed. A seal that is malformed, or
    beside the file and does not name it, is a ``DataError``.
    """
    beside = path.with_name(path.name + FILE_SUFFIX)
    if (listing := read_listing(beside)) is not None:
        if path.name not in listing:
            raise FormatError(RULE, str(beside), f"does not name {path.name!r}")
        return FileSeal(beside, listing[path.name])
    for directory in path.parents:
        seal = directory / SEAL_NAME
        if (listing := read_listing(seal)) is not None:
            entry = listing.get(path.relative_to(directory).as_posix())
            return None if entry is None else FileSeal(seal, entry)
    return None


def read_listing(seal: Path) -> Listing | None:
    """Return the files of a seal; None if there is no such file."""
    try:
        with regular_file(seal) as file:
            data = file.read(MAX_BYTES + 1)
    except StorageError as error:
        if error.errno in _ABSENT:
            return None
        raise
    return Listing(data, str(seal))


def change_text(file: BinaryIO, entry: Entry) -> str:
    """Return what has changed in a file that does not match its seal, in words."""
    if not entry.parts:
        return "changed"
    names = damaged_parts(file, entry.parts)
    if not names:
        return "changed, but none of its tensors"
    shown = ", ".join(map(repr, names[:_MAX_SHOWN]))
    more = f" and {len(names) - _MAX_SHOWN:,} others" if len(names) > _MAX_SHOWN else ""
    return f"changed: tensor{'s' if len(names) > 1 else ''} {shown}{more}"


def _changed(path: StrPath, file_seal: FileSeal, content: BinaryIO | bytes) -> ChecksumError:
    file = io.BytesIO(content) if isinstance(content, bytes) else content
    message = (
        f"{change_text(file, file_seal.entry)} since it was sealed in {file_seal.seal.name};"
        " if it was meant to change, seal it again"
    )
    return ChecksumError(RULE, str(path), message)
