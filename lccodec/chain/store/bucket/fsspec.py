"""File systems of fsspec as object stores: ``memory://``, ``hf://``, and the web, only read.

Not every one of them can put a file only if there is none. Where it cannot, this looks first and
then puts, so that two writers who meet within that moment may both go on: such a store is for one
writer.

A server of the web (``http://``, ``https://``) may be simple, broken or hostile. So each answer is
counted while it arrives, and is cut: a range at what was asked for, a listing at a number of bytes.
An answer has a time for all of it besides the times between its bytes. A compressed answer is
refused, and none is unpacked.

Folders are listed by the links of their pages. Only links to what lies directly in a folder count,
and only folders that a chain has are entered. So there are no circles, and at most three levels.

The session, its options and the thread are those of fsspec.
"""

from __future__ import annotations

import errno
import inspect
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urljoin, urlsplit

from ....container.system import Address
from ....errors import ArgumentError, StorageError
from .backend import (
    MAX_LISTING_BYTES,
    MAX_OBJECTS,
    ExistsError,
    MissingError,
    UnreachableError,
    bounded,
    endless,
    refused,
    too_much,
)
from .keys import Object, is_folder_of_chain


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


#: Seconds for a connection, and without a byte of an answer.
_CONNECT_SECONDS: Final = 10
_READ_SECONDS: Final = 20
#: Seconds of one answer, and more for each byte of it: slower servers are given up.
_ANSWER_SECONDS: Final = 120
_MIN_BYTES_PER_SECOND: Final = 1 << 16
_LISTING_SECONDS: Final = 1800  # of all folders together
_MAX_REDIRECTS: Final = 5
_PIECE_BYTES: Final = 1 << 16
_MAX_PAGE_BYTES: Final = 1 << 25  # of a folder
#: Folders of one listing: each is a request.
_MAX_FOLDERS: Final = 1 << 17

# No repetition in it can begin at two places: a search takes time in proportion to the page.
_LINK: Final = re.compile(r"""\bhref\s?=\s?["']([^"'<>\s]{1,4096})["']""", re.IGNORECASE | re.ASCII)
_OTHER_FOLDERS: Final = frozenset(("", "/", ".", "./", "..", "../"))
_RANGE: Final = re.compile(r"bytes ([0-9]{1,18})-")

Result = TypeVar("Result")


class WebBackend:
    """The files below an address of the web.

    Parameters
    ----------
    address
        Of the chain.

    Raises
    ------
    ArgumentError
        If the package aiohttp is missing.
    """

    shared = True

    def __init__(self, address: Address) -> None:
        import fsspec

        self._place = str(address)
        self._is_secure = address.scheme == "https"
        configured = fsspec.config.conf.get(address.scheme, {}).get("client_kwargs", {})
        try:
            # Otherwise an answer is unpacked before it can be refused.
            options = {"client_kwargs": {**configured, "auto_decompress": False}}
            self._files, base = fsspec.core.url_to_fs(self._place, **options)
        except (ImportError, ValueError) as error:
            raise ArgumentError(f"{self._place} cannot be opened: {error}") from error
        self._base = base.rstrip("/")

    def objects(self, folder: str = "") -> list[Object]:
        """Return all files below the address, or below a folder of it."""
        end = time.monotonic() + _LISTING_SECONDS
        return bounded(self._walked(folder, end), self._place)

    def _walked(self, folder: str, end: float) -> Iterator[Object]:
        """Yield the files below a folder, those of its folders too."""
        left, entered, size = [folder], 0, 0
        while left:
            above = left.pop()
            try:
                page = self._page(above)
            except MissingError:  # it was removed meanwhile, or there is nothing yet
                continue
            entered, size = entered + 1, size + len(page)
            for name in self._names(above, page):
                key = f"{above}/{name}" if above else name
                if not key.endswith("/"):
                    found = self.head(key)
                    if found is not None:
                        yield found
                elif is_folder_of_chain(key.removesuffix("/")):
                    left.append(key.removesuffix("/"))
                if time.monotonic() > end:
                    raise endless(self._place)
            if entered + len(left) > _MAX_FOLDERS or size > MAX_LISTING_BYTES:
                raise endless(self._place)

    def _page(self, folder: str) -> str:
        """Return the page of a folder; raise ``MissingError`` if there is none."""

        async def read() -> bytes:
            async with self._answer("GET", folder, 0) as answer:
                kind = answer.headers.get("Content-Type", "text/html").partition(";")[0].strip().lower()
                if kind != "text/html":
                    return b""
                found = await _taken(answer, _MAX_PAGE_BYTES + 1)
                if len(found) > _MAX_PAGE_BYTES:
                    answer.close()
                    raise endless(self._url(folder))
                return found

        return self._done(read, folder).decode(errors="ignore")

    def _names(self, folder: str, page: str) -> list[str]:
        """Return the names that a page has links to, those of folders with a slash at the end."""
        base = urlsplit(f"{self._url(folder)}/")
        found, links = dict[str, None](), set[str]()
        for match in _LINK.finditer(page):
            links.add(match[1])
            if len(links) > MAX_OBJECTS:
                raise endless(self._url(folder))
        for each in sorted(links):
            with suppress(ValueError):  # it is not an address
                link = urlsplit(urljoin(base.geturl(), each))
                name = link.path.removeprefix(base.path)
                is_below = link.netloc == base.netloc and link.path.startswith(base.path)
                is_direct = "/" not in name.removesuffix("/") and name not in _OTHER_FOLDERS
                if is_below and is_direct and not link.query:
                    found[name] = None
        return list(found)

    def read(self, key: str, start: int, size: int) -> bytes:
        """Return bytes of a file."""

        async def read() -> bytes:
            async with self._answer("GET", key, size, start=start) as answer:
                if answer.status == 416:
                    return b""  # nothing is there from `start` on
                match = _RANGE.match(answer.headers.get("Content-Range", ""))
                is_whole = answer.status == 200
                if (is_whole and start) or (match and int(match[1]) != start):
                    what = "does not send ranges of files" if is_whole else "sent another range"
                    raise StorageError(errno.EPROTO, f"the server {what}, as a chain needs", self._url(key))
                found = await _taken(answer, size + 1)
                if len(found) > size:
                    answer.close()  # and leave the rest unread
                    if not is_whole:
                        raise too_much(self._url(key), size)
                return found[:size]

        return self._done(read, key)

    def head(self, key: str) -> Object | None:
        """Return what is known of a file; ``None`` if there is none."""

        async def ask(method: str) -> Object:
            async with self._answer(method, key, 0) as answer:
                length = answer.headers.get("Content-Length", "")
                if not re.fullmatch("[0-9]{1,18}", length):
                    message = "the server does not say how long a file is"
                    raise StorageError(errno.EPROTO, message, self._url(key))
                answer.close()  # of GET, the file itself is not read
                return Object(key, int(length), _last_modified(answer.headers.get("Last-Modified")))

        try:
            return self._done(lambda: ask("HEAD"), key)
        except MissingError:
            return None
        except UnreachableError:
            raise
        except StorageError:
            with suppress(MissingError):  # a server may know no HEAD
                return self._done(lambda: ask("GET"), key)
            return None

    def put_if_absent(self, key: str, data: bytes) -> None:  # noqa: ARG002 - nothing is put
        """Raise ``StorageError``."""
        raise self._reads_only()

    def upload(self, key: str, path: Path) -> None:  # noqa: ARG002 - nothing is put
        """Raise ``StorageError``."""
        raise self._reads_only()

    def delete(self, keys: Iterable[str]) -> None:  # noqa: ARG002 - nothing is removed
        """Raise ``StorageError``."""
        raise self._reads_only()

    def _reads_only(self) -> StorageError:
        return StorageError(errno.EROFS, "an address of the web can only be read", self._place)

    def _url(self, key: str) -> str:
        return f"{self._base}/{key}" if key else self._base

    def _done(self, call: Callable[[], Awaitable[Result]], key: str) -> Result:
        """Return what a coroutine returns, which runs in the thread of fsspec."""
        from fsspec.asyn import sync

        try:
            found: Result = sync(self._files.loop, call)
        except Exception as error:
            raise self._meaning(error, key) from error
        return found

    @asynccontextmanager
    async def _answer(
        self, method: str, key: str, size: int, *, start: int | None = None
    ) -> AsyncIterator[Any]:
        """Request a file, or a range of it, and check all but the body of the answer."""
        import aiohttp

        options = dict(self._files.kwargs)
        headers = {**options.pop("headers", {}), "Accept-Encoding": "identity"}
        if start is not None:
            headers["Range"] = f"bytes={start}-{start + size - 1}"
        options["timeout"] = aiohttp.ClientTimeout(
            total=_ANSWER_SECONDS + size / _MIN_BYTES_PER_SECOND,
            sock_connect=_CONNECT_SECONDS,
            sock_read=_READ_SECONDS,
        )
        options |= {"allow_redirects": True, "max_redirects": _MAX_REDIRECTS, "headers": headers}
        session = await self._files.set_session()
        async with session.request(method, self._files.encode_url(self._url(key)), **options) as answer:
            where, hops = self._url(key), [each.url.scheme for each in (*answer.history, answer)]
            if self._is_secure and any(scheme != "https" for scheme in hops):
                answer.close()
                raise StorageError(errno.EPROTO, "the server leads from https to a place without it", where)
            if answer.status == 404:
                raise MissingError(where)
            if answer.status != 416 or start is None:
                answer.raise_for_status()
            if answer.headers.get("Content-Encoding", "identity").strip().lower() not in ("", "identity"):
                answer.close()
                raise StorageError(errno.EPROTO, "the server packs what is to be sent as it is", where)
            yield answer

    def _meaning(self, error: Exception, key: str) -> StorageError:
        """Return the error of this package that an error of aiohttp is."""
        import aiohttp

        where = self._url(key)
        if isinstance(error, StorageError):
            return error
        status = getattr(error, "status", None)
        if status in (401, 403):
            return refused(where, str(error))
        passes = status in (408, 425, 429) or (isinstance(status, int) and status >= 500)
        lost = isinstance(error, aiohttp.ClientConnectionError | aiohttp.ClientPayloadError | OSError)
        if passes or (lost and status is None):
            detail = str(error) or type(error).__name__
            return UnreachableError(None, f"the store does not answer as it should: {detail}", where)
        return StorageError(None, f"the store refuses the request: {error!r}", where)


async def _taken(answer: Any, limit: int) -> bytes:
    """Return the bytes of an answer, or the first of them up to a limit."""
    found = bytearray()
    while len(found) < limit and (piece := await answer.content.read(min(_PIECE_BYTES, limit - len(found)))):
        found += piece
    return bytes(found)


def _last_modified(text: str | None) -> float:
    """Return when a file was written, as far as the server says so."""
    if text is not None:
        with suppress(ValueError, TypeError, OverflowError):
            return parsedate_to_datetime(text).timestamp()
    return time.time()
