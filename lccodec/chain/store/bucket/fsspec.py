"""Any file system of fsspec as an object store: ``memory://``, ``hf://`` and others.

Not every one of them can put a file only if there is none. Where it cannot, this looks first and
then puts, so that two writers who meet within that moment may both go on: such a store is for one
writer.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from ....container.disk.address import Address
from ....errors import ArgumentError, StorageError
from .backend import ExistsError, MissingError, UnreachableError, bounded, refused
from .keys import Object


class FsspecBackend:
    """The files below a directory of a file system of fsspec.

    Raises
    ------
    ArgumentError
        If fsspec has no file system for the scheme, or that needs a package that is missing.
    """

    def __init__(self, address: Address) -> None:
        import fsspec

        self._place = str(address)
        try:
            self._files, self._base = fsspec.core.url_to_fs(self._place)
        except (ImportError, ValueError) as error:
            raise ArgumentError(f"{self._place} cannot be opened: {error}") from error
        self.shared = address.scheme != "memory"
        self._creates = "mode" in inspect.signature(self._files.pipe_file).parameters

    def objects(self, folder: str = "") -> list[Object]:
        """Return all files below the directory, or below a folder of it."""
        with suppress(AttributeError):
            self._files.invalidate_cache()
        try:
            path = self._path(folder) if folder else self._base
            found = self._files.find(path, detail=True)
        except FileNotFoundError:
            return []
        except Exception as error:
            raise self._meaning(error, "") from error
        start = len(self._base.strip("/")) + 1
        objects = (
            Object(path.strip("/")[start:], self._size(path, each), _modified(each))
            for path, each in found.items()
            if each.get("type", "file") == "file"
        )
        try:
            return bounded(objects, self._place)
        except Exception as error:
            raise self._meaning(error, "") from error

    def _size(self, path: str, found: dict[str, Any]) -> int:
        """Return the bytes of a file, which not all listings have."""
        size = found.get("size")
        return int(self._files.info(path)["size"] or 0 if size is None else size)

    def read(self, key: str, start: int, size: int) -> bytes:
        """Return bytes of a file."""
        try:
            return bytes(self._files.cat_file(self._path(key), start=start, end=start + size))
        except Exception as error:
            raise self._meaning(error, key) from error

    def put_if_absent(self, key: str, data: bytes) -> None:
        """Put a small file if there is none."""
        try:
            if self._creates:
                self._files.pipe_file(self._path(key), data, mode="create")
                return
            if self._files.exists(self._path(key)):
                raise FileExistsError(key)
            self._files.pipe_file(self._path(key), data)
        except Exception as error:
            raise self._meaning(error, key) from error

    def upload(self, key: str, path: Path) -> None:
        """Put a file."""
        try:
            self._files.put_file(str(path), self._path(key))
        except Exception as error:
            raise self._meaning(error, key) from error

    def delete(self, keys: Iterable[str]) -> None:
        """Remove files."""
        for key in keys:
            try:
                self._files.rm_file(self._path(key))
            except FileNotFoundError:
                pass
            except Exception as error:
                raise self._meaning(error, key) from error

    def head(self, key: str) -> Object | None:
        """Return what is known of a file."""
        try:
            found = self._files.info(self._path(key))
        except FileNotFoundError:
            return None
        except Exception as error:
            raise self._meaning(error, key) from error
        return Object(key, int(found["size"]), _modified(found))

    def _path(self, key: str) -> str:
        return f"{self._base}/{key}"

    def _meaning(self, error: Exception, key: str) -> StorageError:
        """Return the error of this package that an error of a file system is."""
        where = f"{self._place}/{key}" if key else self._place
        if isinstance(error, StorageError):
            return error
        if isinstance(error, FileExistsError):
            return ExistsError(where)
        if isinstance(error, FileNotFoundError):
            return MissingError(where)
        if isinstance(error, PermissionError) or getattr(error, "status", 0) in (401, 403):
            return refused(where, str(error))
        if isinstance(error, OSError) or _may_pass(error):  # of a network, as all others are known
            return UnreachableError(None, f"the store does not answer as it should: {error}", where)
        return StorageError(None, f"the store refuses the request: {error!r}", where)


def _may_pass(error: Exception) -> bool:
    """Return whether a server of the web that is busy or away has raised an error of aiohttp."""
    status, names = getattr(error, "status", None), {kind.__name__ for kind in type(error).__mro__}
    if isinstance(status, int):
        return status >= 500 or status == 429
    return not names.isdisjoint(("ClientConnectionError", "ClientPayloadError"))


def _modified(found: dict[str, Any]) -> float:
    """Return when a file was written, as far as its file system says so."""
    for name in ("mtime", "created", "LastModified", "last_modified", "last_commit"):
        value = found.get(name)
        if isinstance(value, datetime):
            return value.timestamp()
        if isinstance(value, int | float):
            return float(value)
    return time.time()
