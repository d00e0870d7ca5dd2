"""Hashing of open files, whole and in parts; several files at a time.

Threads help: hashlib releases the interpreter's lock.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import BinaryIO, Final, TypeVar

from ...chain.progress import Progress, telling
from ...errors import ChecksumError
from ...parallel import ordered, thread_count
from .listing import RULE, Entry, Part

__all__ = ["check_unchanged", "damaged_parts", "digest_of", "entry_of", "in_threads"]

_PIECE_BYTES: Final = 1 << 20

Item = TypeVar("Item")
Result = TypeVar("Result")
#: Is called with each number of bytes that was read.
Count = Callable[[int], object]


def digest_of(file: BinaryIO, count: Count = int) -> str:
    """Return the SHA-256 of a file, in hexadecimal; it is read from its start."""
    return entry_of(file, (), count).digest


def entry_of(file: BinaryIO, parts: Iterable[Part], count: Count = int) -> Entry:
    """Return the SHA-256 of a file and of parts of it, in one pass.

    Parts lie in the order of their bytes. Those that end behind the file are left out.
    """
    whole, done, at = hashlib.sha256(), list[Part](), 0
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
            done.append(Part(part.name, part.start, part.end, of_part.hexdigest()))
            part, of_part = next(waiting, None), hashlib.sha256()
        at += size
        count(size)
    return Entry(whole.hexdigest(), tuple(done))


def check_unchanged(file: BinaryIO, before: os.stat_result) -> None:
    """Raise ChecksumError if an open file, or the file at its path, is not as it was before."""
    for now in (os.fstat(file.fileno()), Path(file.name).stat()):
        if not os.path.samestat(now, before) or _state(now) != _state(before):
            raise ChecksumError(RULE, str(file.name), "changed while it was read")


def _state(status: os.stat_result) -> tuple[int, int]:
    return status.st_size, status.st_mtime_ns


def damaged_parts(file: BinaryIO, parts: Sequence[Part]) -> list[str]:
    """Return the names of the parts whose bytes are not those that were hashed."""
    found = entry_of(file, parts).parts
    now = dict(zip((part.start for part in found), (part.digest for part in found), strict=True))
    return [part.name for part in parts if now.get(part.start) != part.digest]


def in_threads(
    call: Callable[[Item, Count], Result],
    items: Sequence[Item],
    total: int,
    threads: int,
    progress: Progress,
    doing: str,
) -> list[Result]:
    """Return the results of a call for each item, in their order.

    Parameters
    ----------
    call
        Is given an item, and what counts its bytes.
    total
        The bytes of all items, for the progress.
    threads
        How many calls run at the same time; 0 for one per core.
    """
    lock = threading.Lock()
    done = 0
    with telling(progress, doing, "bytes") as tell:

        def count(size: int) -> None:
            nonlocal done
            with lock:
                done += size
                tell(done, max(done, total))

        if (threads := thread_count(threads)) == 1:
            return [call(item, count) for item in items]
        return list(ordered(lambda item: call(item, count), items, threads))
