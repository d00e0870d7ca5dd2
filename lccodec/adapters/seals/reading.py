"""What a seal says, and files that are verified by it while they are read.

Its text has a line for each file, as ``sha256sum`` writes it, and comments for tensors.

::

    # lccodec seal 1
    <sha256>  model.safetensors
    # tensor <sha256> <start> <end> "layer.weight"
    # end <sha256 of all lines above>

Lines of tensors follow that of their file; start and end are places in it. ``sha256sum -c`` skips
comments. A text without the first line is one of ``sha256sum`` itself, and is read too. Names are
relative paths with ``/``. Whoever wrote the text may be hostile: nothing in it leads out of the
directory, and its size and its lines are bounded.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO, Final

from ...container.system import WINDOWS, StrPath, checked_path
from ...errors import (
    ArgumentError,
    ChecksumError,
    DataError,
    FormatError,
    LimitError,
    StorageError,
    UnsupportedError,
)
from ..files.disk import read_bounded, regular_file

#: The seal of a directory, in it.
SEAL_NAME: Final = "lccodec.sha256"
#: The seal of a file has its name and this suffix.
FILE_SUFFIX: Final = ".sha256"
#: What errors of seals call their rule.
RULE: Final = "seal"
#: Of one seal. More would take seconds to read.
MAX_BYTES: Final = 1 << 24
MAX_LINES: Final = 1 << 18
MAX_LINE_BYTES: Final = 1 << 14

_FIRST: Final = b"# lccodec seal "
_VERSION: Final = b"1"
_END: Final = b"# end "
_TENSOR_START: Final = b"# tensor "
_FILE: Final = re.compile(rb"(\\?)([0-9a-f]{64}) [ *]([^\0]+)")
_TENSOR: Final = re.compile(rb'# tensor ([0-9a-f]{64}) (\d{1,15}) (\d{1,15}) ("[ -~]*")')
_ESCAPED: Final = {b"\\": rb"\\", b"\n": rb"\n", b"\r": rb"\r"}
_SPECIAL: Final = re.compile(rb"[\\\n\r]")
#: A part of a path that is empty, ``.`` or ``..``; so also an absolute path.
_LEADS_OUT: Final = re.compile(r"(?:^|/)\.{0,2}(?:/|\Z)")


@dataclass(frozen=True)
class SealedPart:
    """A part of a file: a tensor, or the header."""

    name: str
    start: int  # of its bytes in the file
    end: int
    digest: str = ""  # their SHA-256, in hexadecimal


@dataclass(frozen=True)
class Entry:
    """What a seal says of a file: its SHA-256, in hexadecimal, and those of its parts in order."""

    digest: str
    parts: Sequence[SealedPart] = ()


def format_listing(entries: Mapping[str, Entry]) -> bytes:
    """Return the text for files, sorted by their names; the same files give the same text.

    If all lines do not fit into a seal, those of tensors are left out, as is one that is too long.

    Raises
    ------
    ArgumentError
        If there are too many files for one seal, or a name is too long.
    """
    for with_parts in (True, False):
        lines = [_FIRST + _VERSION]
        for raw, entry in sorted((os.fsencode(name), entry) for name, entry in entries.items()):
            escaped = _SPECIAL.sub(lambda match: _ESCAPED[match[0]], raw)
            mark = b"" if escaped == raw else b"\\"
            lines.append(mark + entry.digest.encode() + b"  " + escaped)
            if len(lines[-1]) > MAX_LINE_BYTES:
                raise ArgumentError(f"{os.fsdecode(raw)!r}: the name is too long for a seal")
            tensors = (
                f"# tensor {part.digest} {part.start} {part.end} {json.dumps(part.name)}".encode()
                for part in (entry.parts if with_parts else ())
            )
            lines += [line for line in tensors if len(line) <= MAX_LINE_BYTES]
        text = b"\n".join((*lines, b""))
        text += _END + hashlib.sha256(text).hexdigest().encode() + b"\n"
        if len(text) <= MAX_BYTES and len(lines) < MAX_LINES:
            return text
    raise ArgumentError(f"{len(entries):,} files are too many for one seal: seal the folders in it")


class Listing(Mapping[str, Entry]):
    """What a seal says of files, by name: that of the text `data`, which errors call `where`.

    Raises
    ------
    FormatError
        If a line is not one of a seal; if a name occurs twice, is absolute or leads out of the
        directory. When a file is asked for, if the lines of its tensors are malformed.
    ChecksumError
        If the seal itself is damaged.
    LimitError
        If it has more than `MAX_BYTES` bytes or `MAX_LINES` lines, or one is longer than
        `MAX_LINE_BYTES`.
    UnsupportedError
        If a newer version wrote it.
    """

    def __init__(self, data: bytes, where: str) -> None:
        if len(data) > MAX_BYTES or data.count(b"\n") > MAX_LINES:
            raise LimitError(RULE, where, f"more than {MAX_BYTES:,} bytes or {MAX_LINES:,} lines")
        if data.startswith(_FIRST):
            _check_whole(data, where)
        self._where = where
        self._lines = data.removesuffix(b"\n").split(b"\n")
        self._files: dict[str, tuple[bytes, int]] = {}  # the hash, and the number of the next line
        for number, line in enumerate(self._lines, 1):
            if len(line) > MAX_LINE_BYTES:
                raise self._error(number, f"more than {MAX_LINE_BYTES:,} bytes", LimitError)
            if not line.startswith(b"#"):
                name, digest = self._file(line, number)
                self._files[name] = digest, number

    def __len__(self) -> int:
        return len(self._files)

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __contains__(self, name: object) -> bool:
        return name in self._files

    def __getitem__(self, name: str) -> Entry:
        digest, number = self._files[name]
        end = number
        while end < len(self._lines) and self._lines[end].startswith(b"#"):
            end += 1
        tensors = (line for line in self._lines[number:end] if line.startswith(_TENSOR_START))
        return Entry(digest.decode(), tuple(_parts(tensors, f"{self._where}: {name!r}")))

    def _file(self, line: bytes, number: int) -> tuple[str, bytes]:
        """Return the name and the hash in a line of a file."""
        if (match := _FILE.fullmatch(line)) is None:
            raise self._error(number, "not the SHA-256 and the name of a file, as of sha256sum")
        escaped, digest, raw = match.groups()
        if escaped and (raw := _unescaped(raw)) is None:
            raise self._error(number, "the name of a file is escaped wrongly")
        name = os.fsdecode(raw.removeprefix(b"./"))
        if _LEADS_OUT.search(name) or (WINDOWS and not set(name).isdisjoint("\\:")):
            raise self._error(number, f"{name!r} is not the relative path of a file below")
        if name in self._files:
            raise self._error(number, f"{name!r} occurs twice")
        return name, digest

    def _error(self, number: int, message: str, kind: type[DataError] = FormatError) -> DataError:
        return kind(RULE, f"{self._where}: line {number}", message)


def _unescaped(name: bytes) -> bytes | None:
    """Return a name without its escapes; None if one is unknown."""
    name = name.replace(_ESCAPED[b"\\"], b"\0")  # from the left; no name has a null character
    for plain in (b"\n", b"\r"):
        name = name.replace(_ESCAPED[plain], plain)
    return None if b"\\" in name else name.replace(b"\0", b"\\")


def _check_whole(data: bytes, where: str) -> None:
    """Check the first line and the last one of a seal of lccodec's."""
    version = data[len(_FIRST) :].partition(b"\n")[0]
    if version != _VERSION and re.fullmatch(rb"\d{1,9}", version):
        raise UnsupportedError(RULE, where, f"version {version.decode()}; this program reads version 1")
    begin = data.rfind(b"\n" + _END) + 1
    end = _END + hashlib.sha256(data[:begin]).hexdigest().encode() + b"\n"
    if version != _VERSION or not begin or data[begin:] != end:
        message = "the seal itself is damaged or was edited: copy it again, or seal the files again"
        raise ChecksumError(RULE, where, message)


def _parts(lines: Iterable[bytes], where: str) -> list[SealedPart]:
    """Return the parts of a file; they follow each other."""
    parts = []
    for line in lines:
        try:
            if (match := _TENSOR.fullmatch(line)) is None:
                raise ValueError
            name = json.loads(match[4])
        except ValueError:
            raise FormatError(RULE, where, "a line of a tensor is malformed") from None
        parts.append(SealedPart(name, int(match[2]), int(match[3]), match[1].decode()))
    if any(part.start >= part.end for part in parts) or any(a.end > b.start for a, b in pairwise(parts)):
        raise FormatError(RULE, where, "its tensors are not in the order of their bytes")
    return parts


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
