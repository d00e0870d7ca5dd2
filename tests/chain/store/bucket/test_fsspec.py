"""File systems of fsspec as stores: those that put only what is absent, and those that cannot."""

from __future__ import annotations

import secrets
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from lccodec.chain.store.bucket.backend import ExistsError, FsspecBackend, MissingError, UnreachableError
from lccodec.container.disk.address import Address
from lccodec.errors import StorageError


class Simple(MemoryFileSystem):
    """As most file systems: it always replaces."""

    def pipe_file(self, path: str, value: bytes, **kwargs: Any) -> None:
        super().pipe_file(path, value, **kwargs)


def response_error(status: int) -> aiohttp.ClientResponseError:
    request: Any = SimpleNamespace(real_url="http://127.0.0.1:1/run")
    return aiohttp.ClientResponseError(request, (), status=status)


@pytest.fixture(params=[MemoryFileSystem, Simple])
def backend(request: pytest.FixtureRequest) -> FsspecBackend:
    found = FsspecBackend(Address.of(f"memory://{secrets.token_hex(6)}/run"))
    found._files = request.param()
    found._creates = request.param is MemoryFileSystem
    return found


def test_files_are_put_once_and_found(backend: FsspecBackend) -> None:
    assert backend.objects() == []
    backend.put_if_absent("a/b", b"bytes")
    with pytest.raises(ExistsError):
        backend.put_if_absent("a/b", b"other")
    assert backend.read("a/b", 1, 3) == b"yte"
    assert backend.read("a/b", 3, 99) == b"es"
    assert [(each.key, each.size) for each in backend.objects()] == [("a/b", 5)]
    assert backend.objects("a") == backend.objects()
    assert backend.objects("b") == []
    head = backend.head("a/b")
    assert head is not None
    assert head.size == 5
    backend.delete(["a/b", "never"])
    assert backend.head("a/b") is None
    with pytest.raises(MissingError):
        backend.read("a/b", 0, 1)


def test_it_is_seen_whether_a_file_system_can_create(backend: FsspecBackend) -> None:
    assert FsspecBackend(Address.of("memory://run"))._creates
    backend._files = Simple()


@pytest.mark.parametrize(
    ("error", "meaning"),
    [
        (aiohttp.ServerDisconnectedError(), UnreachableError),
        (aiohttp.ClientPayloadError(), UnreachableError),
        (response_error(503), UnreachableError),
        (response_error(429), UnreachableError),
        (response_error(403), StorageError),
        (response_error(410), StorageError),
        (FileNotFoundError(), None),
    ],
)
def test_what_errors_of_other_file_systems_mean(
    monkeypatch: pytest.MonkeyPatch,
    backend: FsspecBackend,
    error: Exception,
    meaning: type[StorageError] | None,
) -> None:
    """What cannot be listed is empty only if it is not there."""

    def find(*_: object, **__: object) -> Any:
        raise error

    monkeypatch.setattr(backend._files, "find", find)
    if meaning is None:
        assert backend.objects() == []
    else:
        with pytest.raises(StorageError) as caught:
            backend.objects()
        assert type(caught.value) is meaning


def test_a_listing_has_an_end(monkeypatch: pytest.MonkeyPatch, backend: FsspecBackend) -> None:
    for number in range(9):
        backend.put_if_absent(str(number), b"")
    assert len(backend.objects()) == 9
    monkeypatch.setattr("lccodec.chain.store.bucket.backend.MAX_OBJECTS", 5)
    with pytest.raises(StorageError, match="has no end"):
        backend.objects()
