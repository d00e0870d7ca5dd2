"""Chains with parity, damage to them, and what a repair must make of it.

What is lost is counted here from the original bytes, by the specification, and not by the code.
"""

import errno
import json
import os
import random
import shutil
from pathlib import Path

import pytest

from lccodec.chain.mend.parity_folder import ParityFolder
from lccodec.chain.mend.protect import Protection, parse_redundancy, protect
from lccodec.chain.mend.repair import repair
from lccodec.chain.store.directory import DirectoryStore
from lccodec.constants import PAYLOAD_OFFSET
from lccodec.container import source
from lccodec.container.source import Source
from lccodec.errors import LccodecError, StorageError

from .segments import run_of

Files = dict[str, bytes]


def protected_run(directory: Path, redundancy: object, steps: int = 6, **options: object) -> Protection:
    """A chain of some steps, and its parity."""
    run_of(directory, steps, **options).close()
    return protect(DirectoryStore(directory), parse_redundancy(redundancy))


def files_in(directory: Path) -> Files:
    """The bytes of all files below a directory."""
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def lasting(directory: Path) -> Files:
    """The bytes of all files below a directory, without those that are unfinished, or locks."""
    return {name: data for name, data in files_in(directory).items() if ".tmp" not in name}


def put(directory: Path, files: Files) -> None:
    """Make a directory that has these files and no others."""
    shutil.rmtree(directory, ignore_errors=True)
    for name, data in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def flip(path: Path, *places: int | float) -> None:
    """Flip a bit of a file at each place: by default of the first byte of its payload.

    A place is an index, or a share of the file's size.
    """
    data = bytearray(path.read_bytes())
    for place in places or (PAYLOAD_OFFSET,):
        data[int(place * len(data)) if isinstance(place, float) else place] ^= 1
    path.write_bytes(data)


def damaged(files: Files, generator: random.Random, places: int) -> Files:
    """Files after some damage: bytes, runs of bytes, truncation, extension, whole files."""
    found = dict(files)
    for _ in range(places):
        if not found:
            break
        name = generator.choice(sorted(found))
        data = bytearray(found[name])
        kind = generator.choice(["byte", "byte", "run", "cut", "longer", "gone", "empty"])
        start = generator.randrange(len(data) + 1) if data else 0
        if kind == "byte" and start < len(data):
            data[start] ^= 1 << generator.randrange(8)
        elif kind == "run":
            length = min(len(data) - start, generator.choice([16, 600, 3000]))
            data[start : start + length] = generator.randbytes(length)
        elif kind == "cut":
            del data[start:]
        elif kind == "longer":
            data += generator.randbytes(generator.choice([1, 700]))
        elif kind == "gone":
            del found[name]
            continue
        elif kind == "empty":
            data.clear()
        found[name] = bytes(data)
    return found


def refuse_to_read(monkeypatch: pytest.MonkeyPatch, path: Path, place: int) -> None:
    """Let the disk refuse every read of a file that has the byte at a place."""
    read, file = source.read_at, path.stat().st_ino

    def read_or_fail(fd: int, size: int, offset: int) -> bytes:
        if os.fstat(fd).st_ino == file and offset <= place < offset + size:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return read(fd, size, offset)

    monkeypatch.setattr(source, "read_at", read_or_fail)


def refuse_to_open(
    monkeypatch: pytest.MonkeyPatch,
    refused: str,
    error: LccodecError | None = None,
    place: Path | None = None,
    times: int = 99,
) -> None:
    """Let no file of a name be opened: so many times, in a directory or everywhere."""
    source, left = DirectoryStore.source, [None] * times

    def opened(store: DirectoryStore, name: str) -> Source:
        if name == refused and place in (None, store.path) and left:
            left.pop()
            raise error or StorageError(errno.EIO, "cannot open", name)
        return source(store, name)

    monkeypatch.setattr(DirectoryStore, "source", opened)


class Truth:
    """What can be mended of one group, counted block by block (SPEC 9, LCC-PAR)."""

    def __init__(self, files: Files, name: str) -> None:
        self.files = files
        data = files[name]
        description, self.index = (int.from_bytes(data[at : at + 8], "little") for at in (16, 24))
        document = json.loads(data[64 : 64 + description])
        self.block, self.rows, self.count = (document[key] for key in ("block", "rows", "parity"))
        self.aligned, self.names = document["aligned"], [entry[0] for entry in document["files"]]
        prefix = name.rsplit("-", 1)[0]
        self.parity = [f"{prefix}-{column:02d}.lcc.par" for column in range(self.count)]

    def columns(self, files: Files) -> list[bytes]:
        """The bytes of all data columns, with zeros where nothing is."""
        lengths = [len(self.files[name]) for name in self.names]
        parts = [
            files.get(name, b"")[:length].ljust(length, b"\0")
            for name, length in zip(self.names, lengths, strict=True)
        ]
        size = self.rows * self.block
        if self.aligned:
            return [part.ljust(size, b"\0") for part in parts]
        whole = b"".join(parts)
        return [whole[at : at + size].ljust(size, b"\0") for at in range(0, len(whole), size)]

    def is_mendable(self, files: Files) -> bool:
        """Whether no row has lost more blocks than it has parity, and an index is there."""
        ends = 64 + self.index
        whole_index = False
        gone = [0] * self.rows
        for name in self.parity:
            now, was = files.get(name, b""), self.files[name]
            whole_index |= now[:ends] == was[:ends] and len(now) >= 128 + self.index
            whole_index |= now[-ends:] == was[-ends:]
            for row in range(self.rows):
                part = slice(ends + row * self.block, ends + (row + 1) * self.block)
                gone[row] += now[part] != was[part]
        for now_column, column in zip(self.columns(files), self.columns(self.files), strict=True):
            for row in range(self.rows):
                part = slice(row * self.block, (row + 1) * self.block)
                gone[row] += now_column[part] != column[part]
        return whole_index and max(gone) <= self.count


def without_parity(directory: Path) -> dict[str, bytes]:
    return {name: data for name, data in files_in(directory).items() if not name.startswith(".")}


def protected_names(directory: Path) -> list[str]:
    """The files that are named by the groups whose parity is complete."""
    groups, _ = ParityFolder(DirectoryStore(directory)).groups()
    return sorted(m.name for group in groups if group.is_complete for m in group.index.layout.members)


def is_true(directory: Path) -> bool:
    """Whether every file is protected, and every group is of the files that are there."""
    found = repair(DirectoryStore(directory), dry_run=True)
    return not (found.stale or found.lost or found.mended or found.parity) and protected_names(
        directory
    ) == sorted(without_parity(directory))
