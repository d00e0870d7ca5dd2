"""Where rollbacks set steps aside: beside a chain, each time a chain of its own.

In a directory, each is a directory in ``.rolled-back``. Its files are second names of the chain's
(or copies, without hard links). It is whole before it has its name.

Source: SPEC 9 (LCC-CHN-08).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from ...constants import ROLLED_BACK_NAME
from ...container.folder import Folder, duplicate, is_temporary, temporary_name
from ...container.system import System, storage_errors
from ...errors import StorageError, warn
from .names import is_of_chain, pin_name
from .store import WritableStore

_NAME: Final = re.compile(r"([0-9]{4,})-to-([0-9]{1,16})")


def parse_name(name: str) -> tuple[int, int] | None:
    """Return the number of a rollback and the step that it went to; ``None`` for other names."""
    match = _NAME.fullmatch(name)
    return None if match is None else (int(match[1]), int(match[2]))


def next_name(names: Iterable[str], step: int) -> str:
    """Return the name of a further rollback to a step."""
    numbers = [parsed[0] for name in names if (parsed := parse_name(name)) is not None]
    return f"{max(numbers, default=0) + 1:04d}-to-{step}"


def in_order(names: Iterable[str]) -> list[tuple[str, int]]:
    """Return names of rollbacks with the steps that they went to, the oldest first."""
    found = [(parsed, name) for name in names if (parsed := parse_name(name)) is not None]
    return [(name, step) for (_, step), name in sorted(found)]


class DirectoryShelf:
    """What rollbacks have set aside of a directory.

    Parameters
    ----------
    path
        The directory.
    system
        The calls to the operating system.
    chain
        Returns the store of a directory.
    """

    def __init__(self, path: Path, system: System, chain: Callable[[Path], WritableStore]) -> None:
        self._path, self._system, self._chain = path, system, chain
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

    def chain(self, name: str) -> WritableStore:
        """Return the chain that was set aside under a name."""
        return self._chain(self._base / name)

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
        with self.chain(name).open(file) as left, self._chain(self._path).open(file) as right:
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
