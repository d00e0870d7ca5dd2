"""A directory as the store of a chain, the chains in its folders, and what its exact file says.

Source: SPEC 9 (LCC-EXA).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ...constants import EXACT_NAME
from ...container.checkpoint import CheckpointReader, CheckpointWriter
from ...container.folder import (
    Folder,
    WholeFile,
    make_directory,
    remove_stale_temporaries,
    revoke_unfinished,
    sync_directory,
)
from ...container.source import FileSource, Source
from ...container.system import SYSTEM, Place, System, storage_errors
from ...errors import ArgumentError, DataError, FormatError, LccodecError, StorageError
from .claim import DirectoryClaim
from .names import checkpoint_name, checkpoints_among
from .shelf import DirectoryShelf
from .store import Store, WritableStore


def check_exact(reader: CheckpointReader) -> None:
    """Raise ``FormatError`` if a file of that name is not an exact file (LCC-EXA-01)."""
    if not reader.manifest.is_exact:
        raise FormatError("LCC-EXA-01", reader.name, "has the name of an exact file, and is another file")


def link_problem(exact: CheckpointReader, store: Store) -> tuple[bool, str | None]:
    """Return whether an exact file holds the state of its step, and what is wrong (LCC-EXA-04).

    If the history has a checkpoint of the step, it must name the file.
    """
    step = exact.manifest.step or 0
    name = checkpoint_name(step)
    if not store.has(name):
        return True, None
    try:
        with store.open(name) as reader:
            named = reader.manifest.exact
    except LccodecError as error:
        return True, f"the checkpoint of step {step} is damaged, and its exact file is not: {error}"
    if named != exact.root:
        return False, f"the exact file belongs to another checkpoint of step {step}"
    return True, None


def older_problem(step: int, newest: int) -> str:
    """Return what is wrong with an exact file that a newer checkpoint has left behind."""
    return f"the exact file is of step {step}, and the newest checkpoint of step {newest}"


def describe_exact(store: Store) -> dict[str, Any] | None:
    """Return what is known of the exact file without decoding it; ``None`` without one.

    Returns
    -------
    dict or None
        ``step`` and ``bytes`` of the file, and ``problem``: why a restore of the newest state does
        not take it, or ``None``. Step and bytes are ``None`` if it cannot be opened.
    """
    if not store.has(EXACT_NAME):
        return None
    try:
        with store.open(EXACT_NAME) as reader:
            check_exact(reader)
            step, newest = reader.manifest.step or 0, max(store.checkpoints(), default=0)
            problem = older_problem(step, newest) if step < newest else link_problem(reader, store)[1]
            return {"step": step, "bytes": reader.file_size, "problem": problem}
    except (DataError, StorageError) as error:
        return {"step": None, "bytes": None, "problem": str(error)}


class DirectoryStore(WritableStore):
    """The files of a chain in a directory.

    Parameters
    ----------
    path
        The directory, which the first save makes.
    system
        The calls to the operating system.
    """

    path: Path

    def __init__(self, path: Path, system: System = SYSTEM) -> None:
        super().__init__(path)
        self.system = system
        self._is_made = False

    def names(self) -> list[str]:
        """Return the names in the directory; none if there is no such directory."""
        if not os.path.lexists(self.path):
            return []
        with storage_errors("cannot list", self.path):
            return os.listdir(self.path)  # noqa: PTH208 - ten thousand paths take long to make

    def has(self, name: str) -> bool:
        """Return whether there is a file of that name; it may be a link that leads nowhere."""
        return os.path.lexists(self.place(name))

    def source(self, name: str) -> FileSource:
        """Open a file for reads of ranges."""
        return FileSource(self.place(name))

    def size(self, names: Iterable[str]) -> int:
        """Return the bytes that files take together: of a link, those of the link."""
        with storage_errors("cannot look at", self.path):
            return sum((self.path / name).lstat().st_size for name in names)

    def identity(self, name: str) -> tuple[int, ...]:
        """Return what tells a file from another that takes its name."""
        with storage_errors("cannot look at", self.path / name):
            status = (self.path / name).stat()
        return status.st_ino, status.st_size, status.st_mtime_ns

    def chains(self) -> dict[Place, list[int]]:
        """Return the chains in the folders of the directory."""
        return {path: list(DirectoryStore(path).checkpoints()) for path in readable_chains_in(self.path)}

    def nothing(self) -> str:
        """Return that there is no checkpoint, and which chains are in its folders."""
        missing = "" if os.path.lexists(self.path) else ": there is no such directory"
        return super().nothing() + missing

    def make(self) -> None:
        """Make the directory and those above it, each durable."""
        if self._is_made and self.path.is_dir():
            return
        with storage_errors("cannot make the directory", self.path):
            make_directory(self.path, self.system)
        self._is_made = True

    def writer(self, name: str, *, overwrite: bool = False) -> CheckpointWriter:
        """Return the writer of a file that is there whole or not at all."""
        return CheckpointWriter(self.path / name, overwrite=overwrite, system=self.system)

    def receive(
        self, name: str, source: Source, check: Callable[[CheckpointReader], object], *, overwrite: bool
    ) -> None:
        """Copy a file to a temporary, and check that before it gets the name."""

        def checked(path: Path) -> None:
            with CheckpointReader(FileSource(path), self.place(name)) as reader:
                check(reader)

        with WholeFile(self.path / name, overwrite=overwrite, system=self.system) as file:
            file.copy(source)
            file.commit(checked)

    def written(self, name: str) -> float:
        """Return when a file was written, in seconds since 1970."""
        with storage_errors("cannot look at", self.path / name):
            return (self.path / name).stat().st_mtime

    def remove(self, names: Iterable[str]) -> None:
        """Remove files, and bring that to stable storage."""
        with storage_errors("cannot remove files of", self.path), Folder(self.path, self.system) as folder:
            folder.remove(names)

    @contextmanager
    def locked(self) -> Iterator[Folder]:
        """Open the directory and hold its lock, after waiting for it."""
        with Folder(self.path, self.system) as folder:
            folder.lock()
            yield folder

    @contextmanager
    def locked_if_free(self) -> Iterator[Folder | None]:
        """Open the directory and hold its lock; yield ``None`` if another process has it."""
        with Folder(self.path, self.system) as folder:
            yield folder if folder.lock(wait=False) else None

    def shelf(self) -> DirectoryShelf:
        """Return what rollbacks have set aside in the directory."""
        return DirectoryShelf(self.path, self.system, lambda path: DirectoryStore(path, self.system))

    def remove_stale(self) -> None:
        """Remove the temporaries of writers that are gone."""
        if os.path.lexists(self.path):
            remove_stale_temporaries(self.path, self.system)

    def revoke_unfinished(self) -> None:
        """Let no file get its name that this thread was writing when a signal interrupted it."""
        revoke_unfinished(self.path)

    def claim(self) -> DirectoryClaim:
        """Return a claim on the directory, not yet taken."""
        return DirectoryClaim(self.path, self.system)

    def sync(self) -> None:
        """Bring the names in the directory to stable storage."""
        with storage_errors("cannot sync", self.path):
            sync_directory(self.path, self.system)


def as_directory(store: Store, what: str) -> DirectoryStore:
    """Return a store that is a directory; raise ``ArgumentError`` if it is another one."""
    if not isinstance(store, DirectoryStore):
        raise ArgumentError(f"{store.path}: {what} needs a directory on a disk")
    return store


def inner_directories(directory: Path) -> list[Path]:
    """Return the subdirectories of a directory. Links are left out: they may lead to any chain."""
    with storage_errors("cannot list", directory):
        return sorted(path for path in directory.iterdir() if path.is_dir() and not path.is_symlink())


def chains_in(directory: Path) -> list[Path]:
    """Return the subdirectories of a directory that are chains, such as those of ranks.

    Raises
    ------
    StorageError
        If the directory or one of its subdirectories cannot be listed.
    """
    return [path for path in _visible(directory) if DirectoryStore(path).checkpoints()]


def readable_chains_in(directory: Path) -> list[Path]:
    """Return what `chains_in` does, as a hint: without what cannot be listed."""
    found = []
    with suppress(StorageError):
        for path in _visible(directory):
            with suppress(StorageError):
                found += [path] if DirectoryStore(path).checkpoints() else []
    return found


def _visible(directory: Path) -> list[Path]:
    return [path for path in inner_directories(directory) if path.name[0] != "."]


def in_chain(path: Path) -> bool:
    """Return whether a path is in a chain, or would be taken for a part of it.

    That is a path with the name of a checkpoint or of the exact file, in a directory that has
    checkpoints.
    """
    if not checkpoints_among([path.name]) and path.name != EXACT_NAME:
        return False
    try:
        return bool(DirectoryStore(path.parent).checkpoints())
    except StorageError:
        return False
