"""What obstore's errors mean, from the answers of a real server."""

from __future__ import annotations

import pytest

import lccodec
from lccodec.chain.store.bucket.backend import ExistsError, MissingError, ObstoreBackend, UnreachableError
from lccodec.container.disk.address import Address
from lccodec.errors import StorageError

from ....support.buckets import BUCKET, environment
from ....support.web import web_server


def backend(run: str) -> ObstoreBackend:
    return ObstoreBackend(Address.of(run))


def test_objects_are_put_once_and_found(run: str) -> None:
    found = backend(run)
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
    found = backend(run)
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
        backend(run).objects()


@pytest.mark.parametrize("fault", ["long", "packed"])
def test_answers_are_cut_at_what_was_asked_for(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    with web_server() as site:
        for name, value in environment(site.address).items():
            monkeypatch.setenv(name, value)
        site.files[f"/{BUCKET}/run/a"] = b"some bytes"
        found = backend(f"s3://{BUCKET}/run")
        assert found.read("a", 2, 3) == b"me "
        site.rule = lambda *_: fault
        with pytest.raises(StorageError, match="sent more than"):
            found.read("a", 2, 3)


def test_a_listing_has_an_end(run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = backend(run)
    for number in range(3):
        found.put_if_absent(f"a/{number}", b"")
    assert len(found.objects()) == 3
    for name in ("MAX_OBJECTS", "MAX_LISTING_BYTES"):
        with monkeypatch.context() as patch:
            patch.setattr(f"lccodec.chain.store.bucket.backend.{name}", 2)
            with pytest.raises(StorageError, match="has no end"):
                found.objects()
