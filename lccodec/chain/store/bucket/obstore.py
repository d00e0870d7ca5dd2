"""Amazon S3, Google Cloud Storage and Azure through obstore: ``s3://``, ``gs://``, ``az://``.

Credentials, regions and endpoints come from the environment, as the tools of each store have them:
``AWS_ACCESS_KEY_ID``, ``AWS_ENDPOINT_URL``, ``GOOGLE_APPLICATION_CREDENTIALS``,
``AZURE_STORAGE_ACCOUNT_NAME`` and others. obstore tries each request a few times; what lasts longer
is the matter of `PatientBackend`.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Final

from ....container.system import Address
from ....errors import ArgumentError, StorageError
from .backend import ExistsError, MissingError, UnreachableError, bounded, no_bucket, refused, too_much
from .keys import Object

#: Seconds for a connection, and without a byte of an answer.
_CONNECT_SECONDS: Final = 10
_READ_SECONDS: Final = 20
_MAX_REQUEST_SECONDS: Final = 300
_MAX_RETRIES: Final = 3  # of one request
_MAX_RETRY_SECONDS: Final = 20
_PIECE_BYTES: Final = 1 << 20  # of an answer, which are counted before more is taken

_STATUS: Final = re.compile(r"status code: ([0-9]{3})")
_CODE: Final = re.compile(r"<Code>(\w+)</Code>")
_NO_BUCKET: Final = frozenset(("NoSuchBucket", "ContainerNotFound"))
#: Of variables of the environment.
_PREFIXES: Final = ("AWS", "AZURE", "GOOGLE")
#: Answers that another attempt may change: asked too often, too slow, or out of order.
_PASSING: Final = frozenset((408, 409, 425, 429, 500, 502, 503, 504))


class ObstoreBackend:
    """The objects below a prefix, by obstore.

    Parameters
    ----------
    address
        Of the chain.

    Raises
    ------
    ArgumentError
        If the address or the environment is not what obstore takes.
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
                    "timeout": timedelta(seconds=_MAX_REQUEST_SECONDS),
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

    def objects(self, folder: str = "") -> list[Object]:
        """Return all objects, or those of a folder."""
        try:
            return bounded(
                (
                    Object(each["path"], each["size"], each["last_modified"].timestamp())
                    for page in self._calls.list(self._store, folder or None, chunk_size=1000)
                    for each in page
                ),
                self._place,
            )
        except StorageError:
            raise
        except self._errors as error:
            raise self._meaning(error, "") from error

    def read(self, key: str, start: int, size: int) -> bytes:
        """Return bytes of an object."""
        try:
            answer = self._calls.get(self._store, key, options={"range": (start, start + size)})
            if answer.range[0] != start:
                raise StorageError(errno.EPROTO, "the store sent another range", f"{self._place}/{key}")
            found = bytearray()
            for piece in answer.stream(min_chunk_size=_PIECE_BYTES):
                found += piece
                if len(found) > size:  # what comes is left unread
                    raise too_much(f"{self._place}/{key}", size)
            return bytes(found)
        except StorageError:
            raise
        except self._errors as error:
            if (status := _STATUS.search(str(error))) and status[1] == "416":
                return b""  # nothing is there from `start` on
            raise self._meaning(error, key) from error

    def put_if_absent(self, key: str, data: bytes) -> None:
        """Put a small object if there is none."""
        try:
            self._calls.put(self._store, key, data, mode="create", use_multipart=False)
        except self._errors as error:
            raise self._meaning(error, key) from error

    def upload(self, key: str, path: Path) -> None:
        """Put a file, in parts if it is large."""
        try:
            self._calls.put(self._store, key, path)
        except self._errors as error:
            raise self._meaning(error, key) from error

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects."""
        gone = list(keys)
        try:
            if gone:
                self._calls.delete(self._store, gone)
        except FileNotFoundError:
            if len(gone) > 1:  # the call may have stopped there
                for key in gone:
                    self.delete([key])
        except self._errors as error:
            raise self._meaning(error, "") from error

    def head(self, key: str) -> Object | None:
        """Return what is known of an object."""
        try:
            found = self._calls.head(self._store, key)
        except self._errors as error:
            if isinstance(meaning := self._meaning(error, key), MissingError):
                return None
            raise meaning from error
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
            return no_bucket(self._place, detail)
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
