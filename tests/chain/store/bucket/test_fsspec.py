"""File systems of fsspec as stores: those that put only what is absent, and those that cannot."""

from __future__ import annotations

import secrets
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

import lccodec
from lccodec.chain.store.bucket.backend import ExistsError, MissingError
from lccodec.chain.store.bucket.fsspec import FsspecBackend
from lccodec.container.disk.address import Address
from lccodec.errors import StorageError

from ....support.walks import assert_same, walk


class Simple(MemoryFileSystem):
    """As most file systems: it always replaces."""

    def pipe_file(self, path: str, value: bytes, **kwargs: Any) -> None:
        super().pipe_file(path, value, **kwargs)


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
    import aiohttp  # noqa: F401 - what fsspec needs for it

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


def test_it_is_seen_whether_a_file_system_can_create(backend: FsspecBackend) -> None:
    assert FsspecBackend(Address.of("memory://run"))._creates
    backend._files = Simple()
