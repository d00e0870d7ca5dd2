"""Stores on a disk, a directory or a bundle; and from a place to the store there.

What a rollback sets aside of a directory is a chain of its own, each time a directory in
``.rolled-back``. Its files are second names of the chain's (or copies, without hard links). It is
whole before it has its name.

A bundle is one file with the files of a chain, and is only read.

Source: SPEC 9 (LCC-EXA, LCC-CHN-08, LCC-BUN).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ...constants import EXACT_NAME, ROLLED_BACK_NAME
from ...container.bundle import Bundle, is_bundle
from ...container.checkpoint import CheckpointReader, CheckpointWriter
from ...container.folder import (
    Folder,
    WholeFile,
    duplicate,
    is_temporary,
    make_directory,
    remove_stale_temporaries,
    revoke_unfinished,
    sync_directory,
    temporary_name,
)
from ...container.parity import rank_of
from ...container.source import FileSource, Section, Source
from ...container.system import SYSTEM, Address, Place, System, storage_errors
from ...errors import ArgumentError, DataError, FormatError, LccodecError, StorageError, warn
from .claim import DirectoryClaim
from .store import (
    Store,
    WritableStore,
    checkpoint_name,
    checkpoints_among,
    in_order,
    is_of_chain,
    next_name,
    pin_name,
)


class DirectoryShelf:
    """What rollbacks have set aside of a directory."""

    def __init__(self, path: Path, system: System) -> None:
        self._path, self._system = path, system
        self._base = path / ROLLED_BACK_NAME

    def _folder(self) -> Folder:
        return Folder(self._path, self._system)

    def names(self) -> list[tuple[str, int]]:
        """Return the names that there are, without links and files."""
        if not os.path.lexists(self._base):
            return []
        with (
            storage_errors("cannot list", self._base),
            Folder(self._path) as folder,
            folder.inner(ROLLED_BACK_NAME) as opened,
        ):
            return [each for each in in_order(opened.names()) if _is_folder(opened, each[0])]

    def chain(self, name: str) -> DirectoryStore:
        """Return the chain that was set aside under a name."""
        return DirectoryStore(self._base / name, self._system)

    def add(self, step: int, files: Sequence[str], pins: Iterable[int]) -> str:
        """Make a directory of files and pins of a chain; return its name when it is durable."""
        with storage_errors("cannot set aside in", self._base), self._folder() as folder:
            folder.make(ROLLED_BACK_NAME)
            folder.sync()
            with folder.inner(ROLLED_BACK_NAME) as base:
                _clear_temporaries(base)
                made = temporary_name()
                base.system.mkdir(base / made)
                try:
                    with base.inner(made) as inner:
                        for file in files:
                            duplicate(folder.path / file, inner, file)
                        for pin in pins:
                            inner.add(pin_name(pin))
                        inner.sync()
                    aside = next_name(base.names(), step)
                    base.rename(made, aside)
                except BaseException:
                    with suppress(OSError):  # otherwise the next rollback does it
                        _clear(base, made)
                        folder.remove_empty(ROLLED_BACK_NAME)
                    raise
                base.sync()
        return aside

    def pin(self, name: str, pins: Iterable[int]) -> None:
        """Pin steps that were set aside, and bring that to stable storage."""
        with (
            self._folder() as folder,
            folder.inner(ROLLED_BACK_NAME) as base,
            base.inner(name) as aside,
        ):
            for pin in pins:
                aside.add(pin_name(pin))
            aside.sync()

    def is_same(self, name: str, file: str) -> bool:
        """Return whether a file of the chain is the one that was set aside."""
        aside, here = self._base / name / file, self._path / file
        if not os.path.lexists(aside):
            return False
        if os.path.samestat(aside.lstat(), here.lstat()):  # two names of one file
            return True
        with self.chain(name).open(file) as left, DirectoryStore(self._path).open(file) as right:
            return bool(left.roots & right.roots)

    def put_back(self, name: str, file: str, *, overwrite: bool = False) -> None:
        """Give a file that was set aside its name in the chain again."""
        with self._folder() as folder:
            duplicate(self._base / name / file, folder, file, overwrite=overwrite)

    def remove(self, names: Iterable[str]) -> None:
        """Remove directories, each whole until it is renamed, and then no more."""
        if not os.path.lexists(self._base):
            return
        with self._folder() as folder:
            with folder.inner(ROLLED_BACK_NAME) as base:
                for aside in names:
                    gone = temporary_name()
                    base.rename(aside, gone)
                    base.sync()
                    _clear(base, gone)
                _clear_temporaries(base)
            folder.remove_empty(ROLLED_BACK_NAME)
            folder.sync()


def _is_folder(base: Folder, name: str) -> bool:
    """Return whether something is a directory and no link; warn if not. It stays in any case."""
    try:
        with base.inner(name):
            return True
    except StorageError as error:
        warn(f"{error.filename} is left alone: {error.strerror}")
        return False


def _clear_temporaries(base: Folder) -> None:
    """Remove what an earlier process left unfinished, or removed in part."""
    for name in filter(is_temporary, base.names()):
        if _is_folder(base, name):
            _clear(base, name)


def _clear(base: Folder, name: str) -> None:
    """Remove a directory with the files of a chain that are in it; warn of others, which stay."""
    with base.inner(name) as gone:
        gone.remove(filter(is_of_chain, gone.names()))
    if not base.remove_empty(name):
        warn(f"{base.path / name} stays: it has files that lccodec did not make")


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

    ``step`` and ``bytes`` are ``None`` if it cannot be opened. ``problem`` says why a restore of
    the newest state does not take it, or is ``None``.
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
    """The files of a chain in a directory, which the first save makes."""

    path: Path
    has_folders = True

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

    def has_folder(self, name: str) -> bool:
        """Return whether a directory of that name lies beside the files, or a link to one."""
        return (self.path / name).is_dir()

    def is_at(self, place: Place) -> bool:
        """Return whether a place is the directory, by whatever path."""
        return isinstance(place, Path) and self.path.exists() and self.path.samefile(place)

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

    def adopt(self, store: Store, names: Sequence[str]) -> Sequence[str]:
        """Give files of another directory second names, or copy them where there are no links."""
        if not store.has_folders:
            return names
        with Folder(self.path, self.system) as folder:
            for name in names:
                duplicate(as_directory(store, "a second name").path / name, folder, name)
                folder.sync()  # a child never comes without its parent
        return ()

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
        return DirectoryShelf(self.path, self.system)

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


def parity_places(store: Store) -> list[tuple[DirectoryStore, str]]:
    """Return where parity of a chain's files may lie, each with what is before their names there.

    That is the chain itself, and the directory of the ranks if it is the chain of one.
    """
    if not store.has_folders:
        return []
    own = as_directory(store, "parity")
    path = own.path.resolve()
    ranks = [] if rank_of(path.name) is None else [(DirectoryStore(path.parent, own.system), f"{path.name}/")]
    return [(own, ""), *ranks]


def inner_directories(directory: Path) -> list[Path]:
    """Return the subdirectories of a directory. Links are left out: they may lead to any chain."""
    with storage_errors("cannot list", directory):
        return sorted(path for path in directory.iterdir() if path.is_dir() and not path.is_symlink())


def chains_in(directory: Path) -> list[Path]:
    """Return the subdirectories of a directory that are chains, such as those of ranks."""
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
    """Return whether a path has the name of a file of a chain, and lies beside checkpoints."""
    if not checkpoints_among([path.name]) and path.name != EXACT_NAME:
        return False
    try:
        return bool(DirectoryStore(path.parent).checkpoints())
    except StorageError:
        return False


class BundleStore(Store):
    """The files of a chain in one file, which is open until the store is closed."""

    path: Path

    def __init__(self, path: Path) -> None:
        self.bundle = Bundle(path)
        super().__init__(self.bundle.path)
        self._files: dict[str, int | None] = {checkpoint_name(step): step for step in self.bundle.steps}
        if self.bundle.index.exact is not None:
            self._files[EXACT_NAME] = None

    def close(self) -> None:
        """Close the file. Closing again does nothing."""
        self.bundle.close()

    def names(self) -> list[str]:
        """Return the names of the files in the bundle."""
        return list(self._files)

    def has(self, name: str) -> bool:
        """Return whether the bundle has a file of that name."""
        return name in self._files

    def source(self, name: str) -> Section:
        """Open a file of the bundle for reads of ranges."""
        return self.bundle.file(self._file(name))

    def open(self, name: str) -> CheckpointReader:
        """Open a file of the bundle, and check that it is the one that the index names."""
        return self.bundle.open(self._file(name))

    def size(self, names: Iterable[str]) -> int:
        """Return the bytes that files take together."""
        return sum(self.source(name).size for name in names)

    def identity(self, name: str) -> tuple[int, ...]:
        """Return where a file is: a bundle does not change."""
        found = self.source(name)
        return found.offset, found.size

    def _file(self, name: str) -> int | None:
        if name not in self._files:
            raise StorageError(errno.ENOENT, "the bundle has no such file", str(self.path / name))
        return self._files[name]


def open_store(place: Place, *, awaited: bool = False) -> Store:
    """Return the store of a chain: a directory, a bundle, or a prefix of a bucket.

    If it is `awaited`, a place where nothing is yet will be a directory; otherwise it is an error.
    """
    if is_folder(place) or (awaited and not os.path.lexists(place)):
        return writable_store(place)
    return BundleStore(Path(place))


def writable_store(place: Place, seconds: float | None = None) -> WritableStore:
    """Return the store of a chain that can be saved to. It need not exist yet.

    A store that does not answer is asked again for some seconds; by default as long as a save
    waits.
    """
    if isinstance(place, Path):
        return DirectoryStore(place)
    from .bucket.backend import Patience
    from .bucket.store import connect

    return connect(place, None if seconds is None else Patience(reading=seconds, writing=seconds))


def is_folder(place: Place) -> bool:
    """Return whether a place is where a chain may be: a directory or an address, and no file."""
    # Path.is_dir raises for a name that is too long.
    return isinstance(place, Address) or os.path.isdir(place)  # noqa: PTH112


def is_chain(place: Place) -> bool:
    """Return whether a place may have many steps: a directory, an address or a bundle."""
    return is_folder(place) or is_bundle(place)
