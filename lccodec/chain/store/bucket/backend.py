"""What a chain needs of an object store: six calls, what their errors mean, and who makes them.

A backend does one request, or what belongs to it. It raises `UnreachableError` for what may go away
by itself, and `PatientBackend` tries again; `MissingError` and `ExistsError` for what the caller
asks about; and ``StorageError`` for all else.

A store that does not answer is asked again, later and later, until a time is over. The waits grow
twofold up to a limit, and each is drawn at random below that, so that many readers do not come back
at the same moment (full jitter). A warning says when an outage lasts.

Amazon S3, Google Cloud Storage and Azure (``s3://``, ``gs://``, ``az://``) go through obstore.
Credentials, regions and endpoints come from the environment, as the tools of each store have them:
``AWS_ACCESS_KEY_ID``, ``AWS_ENDPOINT_URL``, ``GOOGLE_APPLICATION_CREDENTIALS``,
``AZURE_STORAGE_ACCOUNT_NAME`` and others. obstore tries each request a few times; what lasts longer
is the matter of `PatientBackend`.

File systems of fsspec are object stores, too: ``memory://``, ``hf://``, and the web, only read. Not
every one of them can put a file only if there is none. Where it cannot, this looks first and then
puts, so that two writers who meet within that moment may both go on: such a store is for one
writer.

A server of the web (``http://``, ``https://``) may be simple, broken or hostile. So each answer is
counted while it arrives, and is cut: a range at what was asked for, a listing at a number of bytes.
An answer has a time for all of it besides the times between its bytes. A compressed answer is
refused, and none is unpacked. Folders are listed by the links of their pages. Only links to what
lies directly in a folder count, and only folders that a chain has are entered. So there are no
circles, and at most three levels. The session, its options and the thread are those of fsspec.
"""

from __future__ import annotations

import errno
import inspect
import itertools
import os
import random
import re
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from concurrent.futures import TimeoutError as StillRunning
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import urljoin, urlsplit

from ....container.system import Address
from ....errors import ArgumentError, StorageError, warn
from ....parallel import SideThread, ordered
from .keys import Object, is_folder_of_chain

#: Objects of one chain, and bytes of their names: a hostile listing must come to an end.
MAX_OBJECTS: Final = 1 << 21
MAX_LISTING_BYTES: Final = 1 << 28


class Backend(Protocol):
    """The objects below one prefix of a store. Several threads may use it.

    Keys are relative to the prefix. Errors are those of the module.
    """

    #: Whether other processes see the same objects.
    shared: bool

    def objects(self, folder: str = "") -> list[Object]:
        """Return all objects, or those of a folder, in as many requests as that takes."""

    def read(self, key: str, start: int, size: int) -> bytes:
        """Return bytes of an object: fewer if it ends earlier.

        An answer with more is an error, and not read to its end where the store can be read in
        pieces.
        """

    def put_if_absent(self, key: str, data: bytes) -> None:
        """Put a small object in one request; raise `ExistsError` if there is one."""

    def upload(self, key: str, path: Path) -> None:
        """Put a file under a name of its own, in parts if it is large."""

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects. One may be gone already."""

    def head(self, key: str) -> Object | None:
        """Return what is known of an object; ``None`` if there is none."""


class UnreachableError(StorageError):
    """The store did not answer, or not as it should; another attempt may succeed."""


class MissingError(StorageError):
    """There is no such object."""

    def __init__(self, key: str) -> None:
        super().__init__(errno.ENOENT, "there is no such object", key)


class ExistsError(StorageError):
    """There is an object of that name already."""

    def __init__(self, key: str) -> None:
        super().__init__(errno.EEXIST, "there is an object of that name", key)


def refused(place: str, detail: str) -> StorageError:
    """Return the error for credentials that are missing, wrong, or not enough."""
    message = f"the store refuses access; check the credentials and their permissions ({detail})"
    return StorageError(errno.EACCES, message, place)


def too_much(place: str, size: int) -> StorageError:
    """Return the error for an answer that is longer than what was asked for."""
    return StorageError(errno.EPROTO, f"the store sent more than the {size} bytes that were asked for", place)


def bounded(objects: Iterable[Object], place: str) -> list[Object]:
    """Return the objects of a listing, which are read one by one.

    Raises ``StorageError`` if it has more of them, or longer names, than that of a chain may have.
    """
    found, size = list[Object](), 0
    for each in objects:
        found.append(each)
        size += len(each.key)
        if len(found) > MAX_OBJECTS or size > MAX_LISTING_BYTES:
            raise endless(place)
    return found


def endless(place: str) -> StorageError:
    """Return the error for a listing that is too long to be one of a chain."""
    return StorageError(errno.EFBIG, "the listing is too long, or has no end", place)


#: Requests of one round that run side by side.
_MAX_REQUESTS: Final = 16
#: An object is read in parts of as many bytes, side by side.
_PART_BYTES: Final = 8 << 20
_MAX_PARTS: Final = 1 << 12  # that are planned at once
_SECONDS_BETWEEN_LOOKS: Final = 0.2
_SECONDS_UNTIL_TOLD: Final = 30.0

Result = TypeVar("Result")
Item = TypeVar("Item")


@dataclass(frozen=True)
class Patience:
    """How many seconds an unreachable store is asked again, for a read and for a write.

    A save goes on in the background meanwhile. The waits between are at most `first` and `longest`.
    """

    reading: float = 60.0
    writing: float = 3600.0
    first: float = 0.1
    longest: float = 15.0


class PatientBackend:
    """A backend whose calls are tried again, and several at a time.

    What a function raises that is called between attempts (`call_between`) ends them.
    """

    def __init__(self, backend: Backend, place: str, patience: Patience) -> None:
        self._backend = backend
        self._place = place
        self._patience = patience
        self._owner: int | None = None
        self._between: Callable[[], object] = lambda: None
        self.shared = backend.shared

    def call_between(self, between: Callable[[], object]) -> None:
        """Let a function be called by this thread while something takes long.

        It is the thread of saves in the background: its reads are as patient as writes.
        """
        self._owner, self._between = threading.get_ident(), between

    @property
    def _reading(self) -> float:
        """The seconds for a read: of a save in the background as many as for its writes."""
        patience = self._patience
        return patience.writing if threading.get_ident() == self._owner else patience.reading

    def _look(self) -> None:
        if threading.get_ident() == self._owner:
            self._between()

    def objects(self, folder: str = "") -> list[Object]:
        """Return all objects of the chain, or of one of its folders."""
        return self._tried(lambda: self._backend.objects(folder), self._reading)

    def read(self, key: str, start: int, size: int) -> bytes:
        """Return as many bytes of an object as asked for."""
        (found,) = self.read_many([(key, start, size)])
        return found

    def read_many(self, wanted: Sequence[tuple[str, int, int]]) -> list[bytes]:
        """Return ranges, given by key, start and size, all in one round of requests.

        Raises ``MissingError`` if an object is gone, ``StorageError`` if it is shorter than was
        said.
        """
        parts = (
            (number, key, at, min(_PART_BYTES, start + size - at))
            for number, (key, start, size) in enumerate(wanted)
            for at in range(start, start + size, _PART_BYTES)
        )
        found: list[list[bytes]] = [[] for _ in wanted]
        # A listing may claim any size. So no more is planned than a store has shown it can send.
        while some := list(itertools.islice(parts, _MAX_PARTS)):
            for (number, *_), data in zip(some, self.each(self._read_part, some), strict=True):
                found[number].append(data)
        return [pieces[0] if len(pieces) == 1 else b"".join(pieces) for pieces in found]

    def _read_part(self, part: tuple[int, str, int, int]) -> bytes:
        _, key, start, size = part

        def attempt() -> bytes:
            data = self._read(key, start, size)
            if len(data) != size:
                message = f"the store sent {len(data)} of {size} bytes from byte {start} on"
                raise UnreachableError(None, message, f"{self._place}/{key}")
            return data

        return self._tried(attempt, self._reading)

    def _read(self, key: str, start: int, size: int) -> bytes:
        """Return bytes of an object in one attempt: no more than were asked for."""
        data = self._backend.read(key, start, size)
        if len(data) > size:
            raise too_much(f"{self._place}/{key}", size)
        return data

    def read_small(self, keys: Sequence[str], limit: int) -> list[bytes]:
        """Return small objects, or their first bytes, in one round."""

        def read(key: str) -> bytes:
            return self._tried(lambda: self._read(key, 0, limit), self._reading)

        return self.each(read, keys)

    def put_if_absent(self, key: str, data: bytes) -> None:
        """Put a small object; raise `ExistsError` if there is one, which may be this one."""
        self._tried(lambda: self._backend.put_if_absent(key, data), self._patience.writing)

    def upload(self, key: str, path: Path) -> None:
        """Put a file under a name of its own."""

        def attempt() -> None:
            running = SideThread().call(self._backend.upload, key, path)
            while True:
                try:
                    return running.result(_SECONDS_BETWEEN_LOOKS)
                except StillRunning:
                    self._look()

        self._tried(attempt, self._patience.writing)

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects."""
        gone = list(keys)
        if gone:
            self._tried(lambda: self._backend.delete(gone), self._reading)

    def head(self, key: str) -> Object | None:
        """Return what is known of an object; ``None`` if there is none."""
        return self._tried(lambda: self._backend.head(key), self._reading)

    def each(self, call: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """Return the results of calls that run side by side."""
        if len(items) < 2:
            return [call(item) for item in items]
        return list(ordered(call, items, min(_MAX_REQUESTS, len(items)), waits=False))

    def _tried(self, attempt: Callable[[], Result], seconds: float) -> Result:
        """Return what a call returns, tried again while the store cannot be reached."""
        start, wait, told = time.monotonic(), self._patience.first, False
        while True:
            try:
                return attempt()
            except UnreachableError as error:
                passed = time.monotonic() - start
                if passed >= seconds:
                    message = f"{error.strerror} (after {passed:.0f} s)"
                    raise StorageError(error.errno, message, error.filename) from error
                if passed > _SECONDS_UNTIL_TOLD and not told:
                    told = True
                    warn(f"{self._place} cannot be reached, and is asked again: {error.strerror}")
            self._sleep(random.uniform(wait / 2, wait))  # noqa: S311 - no secret
            wait = min(2 * wait, self._patience.longest)

    def _sleep(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self._look()
            time.sleep(min(left, _SECONDS_BETWEEN_LOOKS))


#: Seconds for a connection, and without a byte of an answer.
_CONNECT_SECONDS: Final = 10
_READ_SECONDS: Final = 20
_REQUEST_SECONDS: Final = 300
_MAX_RETRIES: Final = 3  # of one request
_MAX_RETRY_SECONDS: Final = 20
_STREAMED_BYTES: Final = 1 << 20  # of an answer, which are counted before more is taken

_STATUS: Final = re.compile(r"status code: ([0-9]{3})")
_CODE: Final = re.compile(r"<Code>(\w+)</Code>")
_NO_BUCKET: Final = frozenset(("NoSuchBucket", "ContainerNotFound"))
#: Of variables of the environment.
_PREFIXES: Final = ("AWS", "AZURE", "GOOGLE")
#: Answers that another attempt may change: asked too often, too slow, or out of order.
_PASSING: Final = frozenset((408, 409, 425, 429, 500, 502, 503, 504))


class ObstoreBackend:
    """The objects below a prefix, by obstore.

    Raises ``ArgumentError`` if the address or the environment is not what obstore takes.
    """

    shared = True

    def __init__(self, address: Address) -> None:
        import obstore
        from obstore.exceptions import BaseError
        from obstore.store import from_url

        self._calls = obstore
        self._errors = (BaseError, OSError, ValueError)
        self._place = str(address)
        try:
            self._store = from_url(
                self._place,
                client_options={
                    "allow_http": _asks_for_http(),
                    "connect_timeout": timedelta(seconds=_CONNECT_SECONDS),
                    "read_timeout": timedelta(seconds=_READ_SECONDS),
                    "timeout": timedelta(seconds=_REQUEST_SECONDS),
                },
                retry_config={
                    "max_retries": _MAX_RETRIES,
                    "retry_timeout": timedelta(seconds=_MAX_RETRY_SECONDS),
                    "backoff": {
                        "init_backoff": timedelta(milliseconds=50),
                        "max_backoff": timedelta(seconds=5),
                        "base": 2,
                    },
                },
            )
        except (*self._errors, TypeError) as error:
            raise ArgumentError(f"{self._place} cannot be opened: {_first_line(error)}") from error

    @contextmanager
    def _about(self, key: str = "") -> Iterator[None]:
        """Let errors of calls about a key be those of this package."""
        try:
            yield
        except StorageError:
            raise
        except self._errors as error:
            raise self._meaning(error, key) from error

    def objects(self, folder: str = "") -> list[Object]:
        """Return all objects, or those of a folder."""
        with self._about():
            pages = self._calls.list(self._store, folder or None, chunk_size=1000)
            found = (
                Object(each["path"], each["size"], each["last_modified"].timestamp())
                for page in pages
                for each in page
            )
            return bounded(found, self._place)

    def read(self, key: str, start: int, size: int) -> bytes:
        """Return bytes of an object."""
        found = bytearray()
        with self._about(key):
            try:
                answer = self._calls.get(self._store, key, options={"range": (start, start + size)})
                if answer.range[0] != start:
                    raise StorageError(errno.EPROTO, "the store sent another range", f"{self._place}/{key}")
                for piece in answer.stream(min_chunk_size=_STREAMED_BYTES):
                    found += piece
                    if len(found) > size:  # what comes is left unread
                        raise too_much(f"{self._place}/{key}", size)
            except self._errors as error:
                if (status := _STATUS.search(str(error))) is None or status[1] != "416":
                    raise
                return b""  # nothing is there from `start` on
        return bytes(found)

    def put_if_absent(self, key: str, data: bytes) -> None:
        """Put a small object if there is none."""
        with self._about(key):
            self._calls.put(self._store, key, data, mode="create", use_multipart=False)

    def upload(self, key: str, path: Path) -> None:
        """Put a file, in parts if it is large."""
        with self._about(key):
            self._calls.put(self._store, key, path)

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects."""
        gone = list(keys)
        with self._about():
            try:
                if gone:
                    self._calls.delete(self._store, gone)
            except FileNotFoundError:
                if len(gone) > 1:  # the call may have stopped there
                    for key in gone:
                        self.delete([key])

    def head(self, key: str) -> Object | None:
        """Return what is known of an object."""
        try:
            with self._about(key):
                found = self._calls.head(self._store, key)
        except MissingError:
            return None
        return Object(key, found["size"], found["last_modified"].timestamp())

    def _meaning(self, error: Exception, key: str) -> StorageError:
        """Return the error of this package that an error of obstore is."""
        from obstore.exceptions import (
            AlreadyExistsError,
            PermissionDeniedError,
            PreconditionError,
            UnauthenticatedError,
        )

        text = str(error)
        status, code = _STATUS.search(text), _CODE.search(text)
        number, named = int(status[1]) if status else None, code[1] if code else ""
        detail = f"{number} {named}".strip() if number else _first_line(error)
        where = f"{self._place}/{key}" if key else self._place
        if named in _NO_BUCKET:
            message = f"there is no such bucket; make it first, or check the address ({detail})"
            return StorageError(errno.ENXIO, message, self._place)
        if isinstance(error, AlreadyExistsError | PreconditionError):
            return ExistsError(where)
        if isinstance(error, FileNotFoundError):
            return MissingError(where)
        if isinstance(error, PermissionDeniedError | UnauthenticatedError) or number in (401, 403):
            return refused(where, detail)
        if "builder error" in text:
            return StorageError(None, f"the address cannot be requested: {detail}", where)
        if "redential" in text and number is None:
            return refused(where, detail)
        if number is None or number in _PASSING:
            return UnreachableError(None, f"the store does not answer as it should: {detail}", where)
        return StorageError(None, f"the store refuses the request: {detail}", where)


def _asks_for_http() -> bool:
    """Return whether the environment names a server that is reached without TLS.

    Options that are given here take the place of those of the environment.
    """
    names = [name.upper() for name, value in os.environ.items() if value.lower().startswith("http://")]
    named = any(name.startswith(_PREFIXES) and "ENDPOINT" in name for name in names)
    return named or any(os.environ.get(f"{prefix}_ALLOW_HTTP", "").lower() == "true" for prefix in _PREFIXES)


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


class FsspecBackend:
    """The files below a directory of a file system of fsspec.

    Raises ``ArgumentError`` if it has none for the scheme, or that needs a package that is missing.
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
        start = len(self._base.strip("/")) + 1
        with self._about():
            try:
                found = self._files.find(f"{self._base}/{folder}" if folder else self._base, detail=True)
            except FileNotFoundError:
                return []
            objects = (
                Object(path.strip("/")[start:], self._size(path, each), _modified(each))
                for path, each in found.items()
                if each.get("type", "file") == "file"
            )
            return bounded(objects, self._place)

    def _size(self, path: str, found: dict[str, Any]) -> int:
        """Return the bytes of a file, which not all listings have."""
        size = found.get("size")
        return int(self._files.info(path)["size"] or 0 if size is None else size)

    def read(self, key: str, start: int, size: int) -> bytes:
        """Return bytes of a file."""
        with self._about(key):
            return bytes(self._files.cat_file(f"{self._base}/{key}", start=start, end=start + size))

    def put_if_absent(self, key: str, data: bytes) -> None:
        """Put a small file if there is none."""
        path = f"{self._base}/{key}"
        with self._about(key):
            if self._creates:
                self._files.pipe_file(path, data, mode="create")
                return
            if self._files.exists(path):
                raise FileExistsError(key)
            self._files.pipe_file(path, data)

    def upload(self, key: str, path: Path) -> None:
        """Put a file."""
        with self._about(key):
            self._files.put_file(str(path), f"{self._base}/{key}")

    def delete(self, keys: Iterable[str]) -> None:
        """Remove files."""
        for key in keys:
            with self._about(key), suppress(FileNotFoundError):
                self._files.rm_file(f"{self._base}/{key}")

    def head(self, key: str) -> Object | None:
        """Return what is known of a file."""
        with self._about(key):
            try:
                found = self._files.info(f"{self._base}/{key}")
            except FileNotFoundError:
                return None
        return Object(key, int(found["size"]), _modified(found))

    @contextmanager
    def _about(self, key: str = "") -> Iterator[None]:
        """Let errors of calls about a key be those of this package."""
        where = f"{self._place}/{key}" if key else self._place
        try:
            yield
        except StorageError:
            raise
        except FileExistsError as error:
            raise ExistsError(where) from error
        except FileNotFoundError as error:
            raise MissingError(where) from error
        except Exception as error:
            raise _failure(error, where) from error


def _failure(error: Exception, where: str) -> StorageError:
    """Return the error of this package that one of fsspec or aiohttp is."""
    detail = str(error) or type(error).__name__
    if isinstance(error, PermissionError) or getattr(error, "status", 0) in (401, 403):
        return refused(where, detail)
    if isinstance(error, OSError) or _may_pass(error):  # of a network, as all others are known
        return UnreachableError(None, f"the store does not answer as it should: {detail}", where)
    return StorageError(None, f"the store refuses the request: {error!r}", where)


def _may_pass(error: Exception) -> bool:
    """Return whether a server of the web that is busy or away has raised an error of aiohttp."""
    status, names = getattr(error, "status", None), {kind.__name__ for kind in type(error).__mro__}
    if isinstance(status, int):
        return status >= 500 or status in (408, 425, 429)
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


class WebBackend:
    """The files below an address of the web. Without aiohttp this raises ``ArgumentError``."""

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
        except StorageError:
            raise
        except Exception as error:
            raise _failure(error, self._url(key)) from error
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
