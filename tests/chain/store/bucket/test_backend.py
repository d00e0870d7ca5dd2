"""From an address to a store, and what is said where there is none.

Attempts against a real server behind a proxy that fails as it is told.

File systems of fsspec as stores: those that put only what is absent, and those that cannot.

What obstore's errors mean, from the answers of a real server.
"""

import importlib.util
import random
import secrets
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from fsspec.implementations.memory import MemoryFileSystem

import lccodec
from lccodec.chain.store.bucket import store as module
from lccodec.chain.store.bucket.backend import (
    ExistsError,
    FsspecBackend,
    MissingError,
    ObstoreBackend,
    Patience,
    PatientBackend,
    UnreachableError,
)
from lccodec.container.system import Address
from lccodec.errors import ArgumentError, DependencyError, StorageError

from ....support.buckets import BUCKET, Proxy, Request, environment
from ....support.tuning import tune
from ....support.web import web_server


@pytest.mark.parametrize(
    ("text", "package"), [("s3://bucket/run", "obstore"), ("memory://run", "fsspec"), ("hf://a/b", "fsspec")]
)
def test_a_missing_package_is_named_with_its_command(
    monkeypatch: pytest.MonkeyPatch, text: str, package: str
) -> None:
    monkeypatch.setattr(
        module, "find_spec", lambda name: None if name == package else importlib.util.find_spec(name)
    )
    with pytest.raises(DependencyError, match=r"pip install 'lccodec\[remote\]'") as caught:
        lccodec.Chain(text)
    assert text in str(caught.value)
    assert package in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("s3://bucket/run", ObstoreBackend),
        ("gs://bucket/run", ObstoreBackend),
        ("memory://run", FsspecBackend),
    ],
)
def test_the_scheme_chooses(monkeypatch: pytest.MonkeyPatch, text: str, expected: type) -> None:
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    assert isinstance(module.connect(Address.of(text))._backend._backend, expected)


@pytest.mark.parametrize("text", ["file:///tmp/run", "nowhere://run", "s3://"])
def test_an_address_without_a_store_is_refused(text: str) -> None:
    with pytest.raises(ArgumentError, match=r"file://|nowhere|must look like"):
        lccodec.Chain(text)


QUICK = Patience(reading=20.0, writing=20.0, first=0.01, longest=0.05)


def patient_backend(run: str, patience: Patience = QUICK) -> PatientBackend:
    return PatientBackend(ObstoreBackend(Address.of(run)), run, patience)


def first(count: int, fault: str, method: str) -> Callable[[Request], str | None]:
    """A rule: the first requests of a method fail."""
    left = [count]

    def rule(request: Request) -> str | None:
        if request.method != method or not left[0]:
            return None
        left[0] -= 1
        return fault

    return rule


@pytest.mark.parametrize("fault", ["error", "cut", "lost", "torn", "short", "slow"])
def test_reads_outlast_faults(run: str, proxy: Proxy, tmp_path: Path, fault: str) -> None:
    found, data = patient_backend(run), random.Random(0).randbytes(100_000)
    (tmp_path / "file").write_bytes(data)
    found.upload("a/b", tmp_path / "file")
    proxy.rule = first(6, fault, "GET")
    assert found.read_many([("a/b", 5, 90_000), ("a/b", 99_000, 1000)]) == [data[5:90_005], data[99_000:]]
    assert [each.key for each in found.objects("a")] == ["a/b"]
    assert proxy.done[fault] == (3 if fault == "slow" else 6)  # that one is waited for


@pytest.mark.parametrize("fault", ["error", "cut", "lost", "slow"])
def test_uploads_outlast_faults(run: str, proxy: Proxy, tmp_path: Path, fault: str) -> None:
    """In parts: a part that is put again takes the place of what arrived of it."""
    found, data = patient_backend(run), random.Random(0).randbytes(12 << 20)
    (tmp_path / "file").write_bytes(data)
    proxy.rule = first(3, fault, "PUT")
    found.upload("a/b", tmp_path / "file")
    assert found.read("a/b", 0, len(data)) == data


def test_a_put_that_was_answered_too_late_looks_like_another(run: str, proxy: Proxy) -> None:
    found = patient_backend(run)
    proxy.rule = first(1, "lost", "PUT")
    with pytest.raises(ExistsError):
        found.put_if_absent("a", b"mine")
    assert found.read_small(["a"], 10) == [b"mine"]


def test_a_server_that_lies_about_lengths_is_named(run: str, proxy: Proxy, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(1000))
    found = patient_backend(run, Patience(reading=0.2, first=0.01, longest=0.02))
    found.upload("a", tmp_path / "file")
    proxy.rule = lambda request: "short" if request.method == "GET" else None
    with pytest.raises(StorageError, match="the store sent 250 of 500 bytes from byte 0 on") as caught:
        found.read("a", 0, 500)
    assert caught.value.filename == f"{run}/a"


def test_requests_of_one_round_run_side_by_side(run: str, proxy: Proxy, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(1000))
    found = patient_backend(run)
    found.upload("a", tmp_path / "file")
    proxy.clear()
    all_there = threading.Barrier(8, timeout=60)  # it breaks if a request waits for the one before
    proxy.rule = lambda _: all_there.wait() and None
    found.read_many([("a", start, 5) for start in range(0, 80, 10)])
    assert len(proxy.reads) == 8
    assert not all_there.broken


def test_the_caller_is_asked_while_it_waits(run: str, proxy: Proxy) -> None:
    class Ended(Exception):  # noqa: N818 - as of a worker whose client is gone
        pass

    def between() -> None:
        raise Ended

    found = patient_backend(run)
    found.call_between(between)
    proxy.rule = lambda _: "cut"
    with pytest.raises(Ended):
        found.put_if_absent("a", b"")


def test_the_store_is_told_to_be_away(run: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    tune(monkeypatch, bucket_seconds_until_told=0.0)
    found = patient_backend(run)
    proxy.rule = first(20, "cut", "GET")
    with pytest.warns(lccodec.LccodecWarning, match=f"{run} cannot be reached, and is asked again"):
        assert found.objects() == []


def test_no_more_is_taken_than_was_asked_for() -> None:
    class Generous(FsspecBackend):
        def read(self, key: str, start: int, size: int) -> bytes:
            return super().read(key, start, size + 1)

    place = f"memory://{random.randbytes(6).hex()}/run"
    found = PatientBackend(Generous(Address.of(place)), place, QUICK)
    found.put_if_absent("a", bytes(10))
    assert found.read("a", 5, 5) == bytes(5)
    for call in (lambda: found.read("a", 0, 5), lambda: found.read_small(["a"], 5)):
        with pytest.raises(StorageError, match="sent more than the 5 bytes"):
            call()


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

    monkeypatch.setattr(MemoryFileSystem, "find", find)
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


def obstore_backend(run: str) -> ObstoreBackend:
    return ObstoreBackend(Address.of(run))


def test_objects_are_put_once_and_found(run: str) -> None:
    found = obstore_backend(run)
    found.put_if_absent("a/b", b"bytes")
    with pytest.raises(ExistsError):
        found.put_if_absent("a/b", b"other")
    assert found.read("a/b", 1, 3) == b"yte"
    assert found.read("a/b", 3, 99) == b"es"
    head = found.head("a/b")
    assert head is not None
    assert (head.key, head.size) == ("a/b", 5)
    assert found.objects() == [head]
    assert found.objects("a") == [head]
    assert found.objects("b") == []
    found.delete(["a/b", "never"])
    assert found.head("a/b") is None
    with pytest.raises(MissingError):
        found.read("a/b", 0, 1)


def test_more_than_a_page_is_listed(run: str) -> None:
    found = obstore_backend(run)
    for number in range(3):
        found.put_if_absent(f"a/{number}", b"")
    assert [each.key for each in found.objects()] == ["a/0", "a/1", "a/2"]


def test_a_missing_bucket_is_named(run: str) -> None:  # noqa: ARG001 - its environment
    with pytest.raises(StorageError, match="there is no such bucket") as caught:
        lccodec.Chain("s3://nobody-has-this/run").steps  # noqa: B018
    assert caught.value.filename == "s3://nobody-has-this/run"


@pytest.mark.parametrize(
    ("name", "value"), [("AWS_SECRET_ACCESS_KEY", "wrong"), ("AWS_ACCESS_KEY_ID", "nobody")]
)
def test_refused_credentials_are_told_at_once(
    run: str, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(StorageError, match="refuses access; check the credentials"):
        lccodec.Chain(run).save(0, {"epoch": 1})


def test_a_server_that_is_away_may_come_back(run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(UnreachableError, match="does not answer as it should"):
        obstore_backend(run).objects()


@pytest.mark.parametrize("fault", ["long", "packed"])
def test_answers_are_cut_at_what_was_asked_for(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    with web_server() as site:
        for name, value in environment(site.address).items():
            monkeypatch.setenv(name, value)
        site.files[f"/{BUCKET}/run/a"] = b"some bytes"
        found = obstore_backend(f"s3://{BUCKET}/run")
        assert found.read("a", 2, 3) == b"me "
        site.rule = lambda *_: fault
        with pytest.raises(StorageError, match="sent more than"):
            found.read("a", 2, 3)


def test_a_listing_of_obstore_has_an_end(run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = obstore_backend(run)
    for number in range(3):
        found.put_if_absent(f"a/{number}", b"")
    assert len(found.objects()) == 3
    for name in ("MAX_OBJECTS", "MAX_LISTING_BYTES"):
        with monkeypatch.context() as patch:
            patch.setattr(f"lccodec.chain.store.bucket.backend.{name}", 2)
            with pytest.raises(StorageError, match="has no end"):
                found.objects()
