"""Seals: hashes of files that are not lccodec's, in a text file that ``sha256sum -c`` reads.

- :func:`seal` writes them for a file or a directory: ``.safetensors``, ``.pt``, directories of
  torch DCP, any files.
- :func:`check` says which files have changed, are missing or are new, and names the damaged tensors
  of ``.safetensors`` files.

The adapters that read such files verify a seal that they find, and so do the verbs ``convert``,
``save`` and ``plan``. Needs no framework and no extra.

The text has a line for each file, as ``sha256sum`` writes it, and comments for tensors.

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
import stat
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO, Final, TypeVar

from ..chain.overview import Progress, check_progress, telling
from ..chain.read.validate import Problem
from ..chain.store.store import HASHES_FOLDER, checkpoints_among
from ..container.folder import is_temporary, read_bounded, regular_file, replacing
from ..container.system import WINDOWS, StrPath, checked_path, storage_errors
from ..errors import (
    ArgumentError,
    ChecksumError,
    DataError,
    FormatError,
    LccodecError,
    LimitError,
    StorageError,
    UnsupportedError,
)
from ..parallel import ordered, thread_count
from .files.header import LENGTH_BYTES, header_of, is_index

__all__ = ["Sealed", "check", "is_sealed", "seal"]

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

    Lines of tensors are left out if all lines do not fit. Too many files are an ``ArgumentError``.
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

    A ``FormatError`` names a line that is not one of a seal, or leads out of the directory; those
    of tensors are read when a file is asked for.
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
        if escaped:
            raw = raw.replace(_ESCAPED[b"\\"], b"\0")  # from the left; no name has a null character
            for plain in (b"\n", b"\r"):
                raw = raw.replace(_ESCAPED[plain], plain)
            if b"\\" in raw:
                raise self._error(number, "the name of a file is escaped wrongly")
            raw = raw.replace(b"\0", b"\\")
        name = os.fsdecode(raw.removeprefix(b"./"))
        if _LEADS_OUT.search(name) or (WINDOWS and not set(name).isdisjoint("\\:")):
            raise self._error(number, f"{name!r} is not the relative path of a file below")
        if name in self._files:
            raise self._error(number, f"{name!r} occurs twice")
        return name, digest

    def _error(self, number: int, message: str, kind: type[DataError] = FormatError) -> DataError:
        return kind(RULE, f"{self._where}: line {number}", message)


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
    """Return the SHA-256 of a file and of parts of it, which lie in order, in one pass."""
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

    If it, or the file at the path, changes until the end of the block, that is an error. A
    ``ChecksumError`` names the damaged tensors, a ``DataError`` a malformed seal.
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
    """Return the bytes of a regular file, verified; more than `most` are a ``LimitError``."""
    data = read_bounded(path, most, RULE)
    file_seal = find_seal(checked_path(path))
    if file_seal is not None and hashlib.sha256(data).hexdigest() != file_seal.entry.digest:
        raise _changed(path, file_seal, data)
    return data


def find_seal(path: Path) -> FileSeal | None:
    """Return what is sealed of a file, or None: beside it, or in the nearest directory with a seal.

    A seal that is malformed, or beside the file and does not name it, is a ``DataError``.
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


_WITH_TENSORS: Final = ".safetensors"
#: That are told one by one: a hostile seal can name half a million files.
_MAX_PROBLEMS: Final = 1000
_NEW: Final = "new: it was not there when the directory was sealed"
#: What the header of a file is called among its tensors: no tensor can have this name.
_HEADER_NAME: Final = "__metadata__"

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Sealed:
    """What `seal` has sealed.

    Attributes
    ----------
    path
        The seal.
    files, tensors
        How many files and tensors it names.
    nbytes
        The bytes of the files.
    """

    path: Path
    files: int
    tensors: int
    nbytes: int


def seal(path: StrPath, *, replace: bool = False, threads: int = 1, progress: Progress = False) -> Sealed:
    """Write the hashes of a file, or of all files of a directory, into a seal.

    The seal of a directory is ``lccodec.sha256`` in it; that of a file is beside it, with its name
    and ``.sha256``. It is a text that ``sha256sum -c`` reads in that directory, written atomically.
    The same files give the same text.

    Parameters
    ----------
    path
        The file or the directory. The files below a directory count, with links to files in it;
        the seal itself does not.
    replace
        Replace a seal that says something else. A seal of damaged files would make them right.
    threads
        Files that are hashed at the same time; 0 for one per core.
    progress
        ``True`` for a bar, or a function that is told how many bytes are done, and of how many.

    Raises
    ------
    ArgumentError
        If nothing is there; if there is another seal and `replace` is not set; if a directory has
        no files, too many of them, a link that leads out of it, or a FIFO, socket or device.
    ChecksumError
        If a file changes while it is read.
    StorageError
        If the operating system refuses. An existing seal is unchanged.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> size = (folder / "weights.bin").write_bytes(b"abc")
    >>> seal(folder).path.name
    'lccodec.sha256'
    >>> check(folder)
    []
    """
    target, progress = checked_path(path), check_progress(progress)
    files = _files(target)
    if refused := [file for file in files if file.refusal]:
        raise ArgumentError(f"{target / refused[0].name}: {refused[0].refusal}, and cannot be sealed")
    if not files:
        raise ArgumentError(f"{target}: there is no file to seal")
    total = sum(file.size for file in files)
    entries = in_threads(_entry, files, total, threads, progress, "seal")
    text = format_listing({file.name: entry for file, entry in zip(files, entries, strict=True)})
    path = _seal_of(target)
    there = None
    with suppress(LccodecError):  # a seal that cannot be read is another one
        there = read_bounded(path, MAX_BYTES, RULE) if path.exists() else text
    if not replace and there != text:
        raise ArgumentError(
            f"{target} is sealed, and has changed since then: check says how; replace the seal"
            " if it was meant to"
        )
    with replacing(path) as temporary:
        temporary.write_bytes(text)
    tensors = sum(part.name != _HEADER_NAME for entry in entries for part in entry.parts)
    return Sealed(path, len(files), tensors, total)


def check(path: StrPath, *, threads: int = 1, progress: Progress = False) -> list[Problem]:
    """Return what has changed in a sealed file or directory since it was sealed.

    Parameters
    ----------
    path
        The file or the directory. A file may be sealed by itself, or with its directory.
    threads, progress
        As for `seal`.

    Returns
    -------
    list of Problem
        Empty if all is as it was sealed. The rule is ``"seal"``; the message says that a file is
        changed, and which of its tensors, that it is missing, or that it is new.

    Raises
    ------
    ArgumentError
        If there is no seal.
    StorageError
        If the operating system refuses access to a directory.
    """
    target, progress = checked_path(path), check_progress(progress)
    try:
        if target.is_dir():
            sealed: Mapping[str, Entry] | None = read_listing(_seal_of(target))
        else:
            file_seal = find_seal(target)
            sealed = None if file_seal is None else {target.name: file_seal.entry}
    except DataError as error:
        return [Problem(error.rule, error.where, error.message)]
    if sealed is None:
        raise ArgumentError(f"{target} is not sealed")
    present = {file.name: file for file in _files(target)}
    there = [present[name] for name in sealed if name in present]
    total = sum(file.size for file in there)
    hashed = in_threads(partial(_problem, sealed), there, total, threads, progress, "check")
    messages = {problem.where: problem for problem in hashed if problem is not None}
    differing = sorted({*messages, *sealed.keys() ^ present.keys()})
    problems = [
        messages.get(name) or Problem(RULE, name, _NEW if name in present else "missing")
        for name in differing[:_MAX_PROBLEMS]
    ]
    if more := len(differing) - len(problems):
        problems.append(Problem(RULE, target.name, f"{more:,} other files are changed, missing or new"))
    return problems


def is_sealed(path: StrPath) -> bool:
    """Return whether there is a seal for a file or a directory, sound or not."""
    target = checked_path(path)
    if target.is_dir():
        return os.path.lexists(_seal_of(target))
    try:
        return find_seal(target) is not None
    except LccodecError:
        return True


def _seal_of(target: Path) -> Path:
    return target / SEAL_NAME if target.is_dir() else target.with_name(target.name + FILE_SUFFIX)


@dataclass(frozen=True)
class ListedFile:
    """A file of a directory."""

    name: str  # its path in the directory, with /
    path: Path  # where its bytes lie: of a link, the file that it leads to
    size: int = 0
    refusal: str = ""  # why it cannot be sealed


def listed_files(directory: Path) -> Iterator[ListedFile]:
    """Yield the files below a directory, but for its seal and what comes and goes with a chain.

    These are temporary files, and the folder of hashes. A link to a file in the directory is that
    file; one to a directory is left out, as its files are found anyway.
    """
    root = os.path.realpath(directory)
    folders = [""]
    with storage_errors("cannot list", directory):
        while folders:
            folder = folders.pop()
            with os.scandir(Path(directory, folder)) as listed:
                entries = list(listed)
            is_chain = bool(checkpoints_among(entry.name for entry in entries))
            for entry in entries:
                name = folder + entry.name
                if is_temporary(entry.name) or name == SEAL_NAME:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    if not (is_chain and entry.name == HASHES_FOLDER):
                        folders.append(f"{name}/")
                    continue
                file = _listed_file(name, Path(entry.path), root)
                if file is not None:
                    yield file


def _listed_file(name: str, path: Path, root: str) -> ListedFile | None:
    """Return a file, or None for a link to a directory."""
    link, real = path.is_symlink(), Path(os.path.realpath(path))
    if link and not real.is_relative_to(root):
        return ListedFile(name, path, refusal="is a link that leads out of the directory")
    try:
        status = real.stat(follow_symlinks=False)
    except OSError:
        if not link:
            raise
        status = path.lstat()
    if stat.S_ISLNK(status.st_mode):  # also of a circle
        return ListedFile(name, path, refusal="is a link that leads nowhere")
    if stat.S_ISDIR(status.st_mode):
        return None
    if not stat.S_ISREG(status.st_mode):
        return ListedFile(name, real, refusal="is not a regular file")
    return ListedFile(name, real, status.st_size)


def _files(target: Path) -> list[ListedFile]:
    """Return the files to seal, by name."""
    if target.is_dir():
        return sorted(listed_files(target), key=lambda file: os.fsencode(file.name))
    if not target.exists():
        raise ArgumentError(f"{target}: no such file or directory")
    if is_index(target):
        raise ArgumentError(f"{target}: an index is sealed with its shards: seal its directory")
    with regular_file(target) as file:
        return [ListedFile(target.name, target, os.fstat(file.fileno()).st_size)]


def _entry(target: ListedFile, count: Count) -> Entry:
    """Return the hashes of a file."""
    with regular_file(target.path) as file:
        before = os.fstat(file.fileno())
        entry = entry_of(file, _parts_of(file, target), count)
        check_unchanged(file, before)
        return entry


def _parts_of(file: BinaryIO, target: ListedFile) -> list[SealedPart]:
    """Return the header and the tensors of a file that has them."""
    if not target.name.endswith(_WITH_TENSORS):
        return []
    try:
        tensors, _ = header_of(file, target.path)
    except FormatError:  # it is sealed as it is
        return []
    file.seek(0)
    end = LENGTH_BYTES + int.from_bytes(file.read(LENGTH_BYTES), "little")
    parts = [SealedPart(_HEADER_NAME, 0, end)]
    for name, tensor in tensors.items():
        if tensor.nbytes and tensor.offset >= parts[-1].end:
            parts.append(SealedPart(name, tensor.offset, tensor.offset + tensor.nbytes))
    return parts


def _problem(sealed: Mapping[str, Entry], target: ListedFile, count: Count) -> Problem | None:
    """Return what is wrong with a file that is sealed."""
    if target.refusal:
        return Problem(RULE, target.name, f"changed: it {target.refusal}")
    entry = sealed[target.name]
    try:
        with regular_file(target.path) as file:
            if digest_of(file, count) == entry.digest:
                return None
            return Problem(RULE, target.name, change_text(file, entry))
    except LccodecError as error:
        return Problem("storage", target.name, str(error))


def in_threads(
    call: Callable[[Item, Count], Result],
    items: Sequence[Item],
    total: int,
    threads: int,
    progress: Progress,
    doing: str,
) -> list[Result]:
    """Return the results of a call for each item, in order; `threads` run at the same time.

    A call gets an item, and what counts its bytes, which are `total` of all items.
    """
    lock = threading.Lock()
    done = 0
    with telling(progress, doing, "bytes") as tell:

        def count(size: int) -> None:
            nonlocal done
            with lock:
                done += size
                tell(done, max(done, total))

        return list(ordered(lambda item: call(item, count), items, thread_count(threads)))
