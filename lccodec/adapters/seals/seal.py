"""Making and checking seals."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final, TypeVar

from ...chain.caller import Progress, check_progress, telling
from ...chain.read.validate import Problem
from ...chain.store.store import HASHES_FOLDER, checkpoints_among
from ...container.folder import is_temporary
from ...container.system import StrPath, checked_path, storage_errors
from ...errors import ArgumentError, DataError, FormatError, LccodecError
from ...parallel import ordered, thread_count
from ..files.disk import read_bounded, regular_file, replacing
from ..files.header import LENGTH_BYTES, header_of
from .reading import (
    FILE_SUFFIX,
    MAX_BYTES,
    RULE,
    SEAL_NAME,
    Count,
    Entry,
    SealedPart,
    change_text,
    check_unchanged,
    digest_of,
    entry_of,
    find_seal,
    format_listing,
    read_listing,
)

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
        sealed = _sealed(target)
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


def _sealed(target: Path) -> Mapping[str, Entry] | None:
    """Return what is sealed of a file or a directory."""
    if target.is_dir():
        return read_listing(_seal_of(target))
    file_seal = find_seal(target)
    return None if file_seal is None else {target.name: file_seal.entry}


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

    These are temporary files, and the folder of hashes and values beside checkpoints, which each
    save writes anew. A link in the directory to a file in it is that file. A link to a directory in
    it is left out: the files there are found anyway.
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
    from ..files.shards import is_index  # here, as it reads what is sealed

    if target.is_dir():
        return sorted(listed_files(target), key=lambda found: os.fsencode(found.name))
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
        entry = entry_of(file, _parts(file, target), count)
        check_unchanged(file, before)
        return entry


def _parts(file: BinaryIO, target: ListedFile) -> list[SealedPart]:
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
    """Return the results of a call for each item, in their order; `threads` run at the same time.

    A call is given an item, and what counts its bytes, which are `total` of all items. Threads
    help: hashlib releases the interpreter's lock.
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
