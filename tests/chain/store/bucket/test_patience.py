"""Attempts against a real server behind a proxy that fails as it is told."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import lccodec
from lccodec.chain.store.bucket.backend import (
    ExistsError,
    FsspecBackend,
    ObstoreBackend,
    Patience,
    PatientBackend,
)
from lccodec.container.disk.address import Address
from lccodec.errors import StorageError

from ....support.buckets import Proxy, Request
from ....support.tuning import tune

QUICK = Patience(reading=20.0, writing=20.0, first=0.01, longest=0.05)


def backend(run: str, patience: Patience = QUICK) -> PatientBackend:
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
    found, data = backend(run), random.Random(0).randbytes(100_000)
    (tmp_path / "file").write_bytes(data)
    found.upload("a/b", tmp_path / "file")
    proxy.rule = first(6, fault, "GET")
    assert found.read_many([("a/b", 5, 90_000), ("a/b", 99_000, 1000)]) == [data[5:90_005], data[99_000:]]
    assert [each.key for each in found.objects("a")] == ["a/b"]
    assert proxy.done[fault] == (3 if fault == "slow" else 6)  # that one is waited for


@pytest.mark.parametrize("fault", ["error", "cut", "lost", "slow"])
def test_uploads_outlast_faults(run: str, proxy: Proxy, tmp_path: Path, fault: str) -> None:
    """In parts: a part that is put again takes the place of what arrived of it."""
    found, data = backend(run), random.Random(0).randbytes(12 << 20)
    (tmp_path / "file").write_bytes(data)
    proxy.rule = first(3, fault, "PUT")
    found.upload("a/b", tmp_path / "file")
    assert found.read("a/b", 0, len(data)) == data


def test_a_put_that_was_answered_too_late_looks_like_another(run: str, proxy: Proxy) -> None:
    found = backend(run)
    proxy.rule = first(1, "lost", "PUT")
    with pytest.raises(ExistsError):
        found.put_if_absent("a", b"mine")
    assert found.read_small(["a"], 10) == [b"mine"]


def test_a_server_that_lies_about_lengths_is_named(run: str, proxy: Proxy, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(1000))
    found = backend(run, Patience(reading=0.2, first=0.01, longest=0.02))
    found.upload("a", tmp_path / "file")
    proxy.rule = lambda request: "short" if request.method == "GET" else None
    with pytest.raises(StorageError, match="the store sent 250 of 500 bytes from byte 0 on") as caught:
        found.read("a", 0, 500)
    assert caught.value.filename == f"{run}/a"


def test_requests_of_one_round_run_side_by_side(run: str, proxy: Proxy, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(1000))
    found = backend(run)
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

    found = backend(run)
    found.call_between(between)
    proxy.rule = lambda _: "cut"
    with pytest.raises(Ended):
        found.put_if_absent("a", b"")


def test_the_store_is_told_to_be_away(run: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    tune(monkeypatch, bucket_seconds_until_told=0.0)
    found = backend(run)
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
