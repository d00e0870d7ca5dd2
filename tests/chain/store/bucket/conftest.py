"""Stores that the tests of this folder run against: real servers, and fsspec's file system."""

import secrets
from collections.abc import Iterator
from pathlib import Path

import obstore  # noqa: F401 - without it, this folder is left out
import pytest

from ....support.buckets import BUCKET, Proxy, environment, proxy_before, seaweed


@pytest.fixture(scope="session")
def endpoints(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Iterator[dict[str, str]]:
    """The endpoints of a server, one for all processes of pytest."""
    base = tmp_path_factory.getbasetemp()
    shared = (base if worker_id == "master" else base.parent) / "seaweed"
    with seaweed(shared) as found:
        yield found


@pytest.fixture(scope="session")
def server(endpoints: dict[str, str]) -> str:
    """The endpoint for ``s3://``."""
    return endpoints["endpoint"]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LCCODEC_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def run(server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a new chain on the server."""
    for name, value in environment(server).items():
        monkeypatch.setenv(name, value)
    return f"s3://{BUCKET}/{secrets.token_hex(6)}/run"


@pytest.fixture
def proxy(server: str, run: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:  # noqa: ARG001
    """A proxy before the server, which `run` is reached through."""
    with proxy_before(server) as found:
        monkeypatch.setenv("AWS_ENDPOINT_URL", found.endpoint)
        yield found


@pytest.fixture(params=["memory", "s3"])
def place(request: pytest.FixtureRequest) -> str:
    """The address of a new chain, in each kind of store."""
    if request.param == "s3":
        return str(request.getfixturevalue("run"))
    return f"memory://{secrets.token_hex(6)}/run"
