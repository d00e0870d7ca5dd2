"""Where the files of a group lie: in a chain, or in the chains of ranks, a folder each.

A folder is one of a rank, and never a link: whoever made that, it may lead to any chain.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager

from ...container.disk.folder import Folder
from ...container.disk.system import storage_errors
from ...container.parity import rank_of
from ...errors import StorageError
from ..store.directory import DirectoryStore


def home_of(store: DirectoryStore, name: str) -> tuple[DirectoryStore, str]:
    """Return the chain that a file of a group belongs to, and its name there."""
    folder, _, own = name.rpartition("/")
    return (DirectoryStore(store.path / folder, store.system), own) if folder else (store, own)


def above(store: DirectoryStore) -> DirectoryStore | None:
    """Return the directory of the chains of ranks that a chain is one of; ``None`` if of none."""
    path = store.path.resolve()
    return None if rank_of(path.name) is None else DirectoryStore(path.parent, store.system)


def homes_of(store: DirectoryStore, names: Iterable[str]) -> list[DirectoryStore]:
    """Return the chains that files of a group belong to, in one order, those that are there.

    Raises
    ------
    StorageError
        If the folder of a rank is a link.
    """
    homes = {str(home.path): home for home, _ in (home_of(store, name) for name in names)}
    for home in homes.values():
        if home is not store and home.path.is_symlink():
            message = "it is a link, and parity goes only into directories: remove or rename it"
            raise StorageError(errno.ENOTDIR, message, str(home.path))
    return [homes[path] for path in sorted(homes) if homes[path].path.is_dir()]


@contextmanager
def locked_homes(store: DirectoryStore, names: Iterable[str]) -> Iterator[None]:
    """Hold the locks of the chains that files of a group belong to."""
    with ExitStack() as stack:
        for home in homes_of(store, names):
            stack.enter_context(home.locked())
        yield


def make_home(store: DirectoryStore, name: str) -> None:
    """Make the folder that a file of a group belongs into, if it is not there."""
    folder, _, _ = name.rpartition("/")
    if folder and not store.has(folder):
        with storage_errors("cannot make", store.path / folder), Folder(store.path, store.system) as outer:
            outer.make(folder)
            outer.sync()
