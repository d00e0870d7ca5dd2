"""File systems of fsspec as stores: those that put only what is absent, and those that cannot."""

from __future__ import annotations

import secrets
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from fsspec.implementations.memory import MemoryFileSystem

import lccodec
from lccodec.chain.store.bucket.backend import ExistsError, MissingError, UnreachableError
from lccodec.chain.store.bucket.fsspec import FsspecBackend
from lccodec.container.disk.address import Address
from lccodec.errors import StorageError

from ....support.walks import assert_same, walk


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


def test_a_chain_is_read_from_the_web(run: str, endpoints: dict[str, str]) -> None:
    """From a server that lists folders and sends ranges; nothing is written there."""
    states = walk(4)
    with lccodec.Chain(run, "lc-3", keyframe_every=2) as chain:
        for step, state in enumerate(states):
            chain.save(step, state)
    address = run.replace("s3:/", endpoints["web"])
    web = lccodec.Chain(address)
    assert web.steps == [0, 1, 2, 3]
    assert_same(web.restore(), states[-1])
    assert lccodec.validate(address, deep=True) == []
    with pytest.raises(StorageError, match="can only be read"):
        web.save(4, states[0])


def test_a_server_of_the_web_that_is_away_is_no_empty_chain() -> None:
    with pytest.raises(UnreachableError, match="does not answer"):
        FsspecBackend(Address.of("http://127.0.0.1:1/run")).objects()


@pytest.mark.parametrize(
    ("error", "meaning"),
    [
        (aiohttp.ServerDisconnectedError(), UnreachableError),
        (aiohttp.ClientPayloadError(), UnreachableError),
        (response_error(503), UnreachableError),
        (response_error(429), UnreachableError),
        (response_error(403), StorageError),
        (response_error(410), StorageError),
        (FileNotFoundError(), MissingError),
    ],
)
def test_folders_of_the_web_that_cannot_be_listed(
    monkeypatch: pytest.MonkeyPatch, error: Exception, meaning: type[StorageError]
) -> None:
    """What cannot be listed is left out only if it is not there."""
    backend = FsspecBackend(Address.of("http://127.0.0.1:1/run"))
    files = [
        {"name": f"{backend._base}/file", "type": "file", "size": 5},
        {"name": f"{backend._base}/folder/", "type": "directory", "size": None},
    ]

    def ls(path: str, detail: bool) -> list[dict[str, Any]]:
        assert detail
        if path.endswith("folder"):
            raise error
        return files

    monkeypatch.setattr(backend._files, "ls", ls)
    if meaning is MissingError:
        assert [each.key for each in backend.objects()] == ["file"]
        assert backend.objects("folder") == []
    else:
        with pytest.raises(StorageError) as caught:
            backend.objects()
        assert type(caught.value) is meaning


def test_it_is_seen_whether_a_file_system_can_create(backend: FsspecBackend) -> None:
    assert FsspecBackend(Address.of("memory://run"))._creates
    backend._files = Simple()
