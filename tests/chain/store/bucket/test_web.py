"""Chains on a server of the web, which may be simple, broken or hostile."""

import secrets
from collections.abc import Iterator
from typing import Any

import pytest

import lccodec
from lccodec.chain.store.bucket import backend as limits
from lccodec.chain.store.bucket import backend as module
from lccodec.chain.store.bucket.backend import (
    MissingError,
    Patience,
    PatientBackend,
    UnreachableError,
    WebBackend,
)
from lccodec.chain.store.bucket.store import BucketStore
from lccodec.container.system import Address
from lccodec.errors import LccodecError, StorageError

from ....support.tuning import tune
from ....support.walks import assert_restores, assert_same, save_all, walk
from ....support.web import Site, web_server

#: Bytes that a server may have sent before a client that reads no more has closed the connection.
UNREAD = 8 << 20


@pytest.fixture
def site() -> Iterator[Site]:
    with web_server() as found:
        yield found


@pytest.fixture
def states(site: Site) -> list[dict[str, Any]]:
    """The states of a chain that the server has at ``/run``."""
    states, run = walk(4), f"memory://{secrets.token_hex(6)}/run"
    with lccodec.Chain(run, "lossless", keyframe_every=3) as chain:
        save_all(chain, states)
        chain.pin(1)
    site.copy(run, "/run")
    return states


def backend(site: Site) -> WebBackend:
    return WebBackend(Address.of(f"{site.address}/run"))


def of_data(fault: str) -> Any:
    """A rule for all ranges of files."""
    return lambda _, path, asked: fault if asked and path.endswith(".h5") else None


def test_a_chain_is_read(site: Site, states: list[dict[str, Any]]) -> None:
    run = f"{site.address}/run"
    chain = lccodec.Chain(run)
    assert chain.steps == [0, 1, 2, 3]
    assert chain.pins == [1]
    assert_restores(chain, states, range(len(states)))
    assert lccodec.validate(run, deep=True) == []
    with pytest.raises(StorageError, match="can only be read"):
        chain.save(4, states[0])


def test_a_chain_is_read_from_another_server(run: str, endpoints: dict[str, str]) -> None:
    """From a server that lists folders and sends ranges; nothing is written there."""
    states = walk(4)
    with lccodec.Chain(run, "lc-3", keyframe_every=2) as chain:
        save_all(chain, states)
    address = run.replace("s3:/", endpoints["web"])
    web = lccodec.Chain(address)
    assert web.steps == [0, 1, 2, 3]
    assert_same(web.restore(), states[-1])
    assert lccodec.validate(address, deep=True) == []
    with pytest.raises(StorageError, match="can only be read"):
        web.save(4, states[0])


def test_ranges_and_lengths(site: Site) -> None:
    site.files |= {"/run/a": b"some bytes", "/run/empty": b"", "/run/x.lcc.h5/0": b"1"}
    found = backend(site)
    assert found.read("a", 2, 3) == b"me "
    assert found.read("a", 5, 99) == b"bytes"
    assert found.read("a", 10, 1) == b""
    assert found.read("empty", 0, 10) == b""
    assert {(each.key, each.size) for each in found.objects()} == {("a", 10), ("empty", 0), ("x.lcc.h5/0", 1)}
    assert [each.key for each in found.objects("x.lcc.h5")] == ["x.lcc.h5/0"]
    assert found.objects("y.lcc.h5") == []
    assert found.head("b") is None
    with pytest.raises(MissingError):
        found.read("b", 0, 1)
    for call in (lambda: found.put_if_absent("c", b""), lambda: found.delete(["a"])):
        with pytest.raises(StorageError, match="can only be read"):
            call()


def test_a_server_that_is_away_is_no_empty_chain() -> None:
    found = WebBackend(Address.of("http://127.0.0.1:1/run"))
    for call in (found.objects, lambda: found.head("a"), lambda: found.read("a", 0, 1)):
        with pytest.raises(UnreachableError, match="does not answer"):
            call()


@pytest.mark.parametrize(
    ("status", "meaning"),
    [
        ("503", UnreachableError),
        ("429", UnreachableError),
        ("403", StorageError),
        ("410", StorageError),
        ("404", None),
    ],
)
def test_what_cannot_be_listed_is_left_out_only_if_it_is_not_there(
    site: Site, status: str, meaning: type[StorageError] | None
) -> None:
    site.files |= {"/run/file": b"12345", "/run/a.lcc.h5/0": b"1"}
    site.rule = lambda _, path, __: status if "a.lcc.h5" in path else None
    if meaning is None:
        assert [each.key for each in backend(site).objects()] == ["file"]
        assert backend(site).objects("a.lcc.h5") == []
    else:
        with pytest.raises(StorageError) as caught:
            backend(site).objects()
        assert type(caught.value) is meaning


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("flood", "sent more than"),
        ("long", "sent more than"),
        ("other", "sent another range"),
        ("packed", "packs what is to be sent"),
    ],
)
def test_answers_are_cut_at_what_was_asked_for(
    site: Site, states: list[dict[str, Any]], fault: str, message: str
) -> None:
    site.rule = of_data(fault)
    with pytest.raises(StorageError, match=message):
        lccodec.Chain(f"{site.address}/run").restore()
    assert site.sent < UNREAD
    site.rule = lambda *_: None
    assert_same(lccodec.Chain(f"{site.address}/run").restore(), states[-1])


def test_a_server_without_ranges_is_named(site: Site) -> None:
    """From the start of a file, it will do: the rest is not read."""
    site.files["/run/a"] = bytes(64 << 20)
    site.rule = lambda *_: "whole"
    assert backend(site).read("a", 0, 1000) == bytes(1000)
    assert site.sent < UNREAD or site.sent == 64 << 20  # it counts what it was about to send
    with pytest.raises(StorageError, match="does not send ranges"):
        backend(site).read("a", 1, 1000)


def test_short_answers_are_asked_for_again(site: Site, states: list[dict[str, Any]]) -> None:  # noqa: ARG001
    site.rule = of_data("short")
    patient = PatientBackend(backend(site), site.address, Patience(reading=0.2, first=0.01, longest=0.02))
    key = next(key for key in site.files if key.endswith(".h5")).removeprefix("/run/")
    with pytest.raises(StorageError, match="the store sent 50 of 100 bytes"):
        patient.read(key, 0, 100)


@pytest.mark.parametrize("fault", ["drip", "stall"])
def test_slow_answers_come_to_an_end(site: Site, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    site.files["/run/a"] = bytes(1000)
    tune(monkeypatch, web_answer_seconds=0.3, web_read_seconds=0.2)
    site.rule = lambda *_: fault
    found = backend(site)
    for call in (lambda: found.read("a", 0, 1000), found.objects):
        with pytest.raises(UnreachableError, match="does not answer"):
            call()


@pytest.mark.parametrize("leads_to", ["/run/a", "/elsewhere"])
def test_redirects_are_followed_up_to_some(site: Site, leads_to: str) -> None:
    site.files |= {"/run/a": b"some bytes", "/elsewhere": b"other"}
    site.rule = lambda _, path, __: leads_to if path == "/run/a" else None
    if leads_to == "/elsewhere":
        assert backend(site).read("a", 0, 5) == b"other"
    else:
        with pytest.raises(StorageError, match="TooManyRedirects"):
            backend(site).read("a", 0, 5)
        assert len(site.requests) == module._MAX_REDIRECTS


def test_nothing_is_taken_from_a_place_without_tls(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The address of a chain is https, and what the server leads to is not."""
    site.files["/run/a"] = b"some bytes"
    found = backend(site)
    monkeypatch.setattr(found, "_is_secure", True)
    for call in (lambda: found.read("a", 0, 5), lambda: found.head("a"), found.objects):
        with pytest.raises(StorageError, match="leads from https"):
            call()


def test_folders_that_list_themselves(site: Site) -> None:
    """Also under names that a chain has."""
    page = b"".join(
        b'<a href="%b">x</a>' % name
        for name in (
            *(b"a/", b"b/", b".", b"..", b"../", b"/", b"", b"/run", b"a.lcc.h5/a.lcc.h5/0", b"a.lcc.h5/"),
            *(b".rolled-back/", b"0001-to-5/", b"http://127.0.0.1:1/run/c.lcc.h5/", b"http://["),
        )
    )
    site.page = lambda _: page
    assert backend(site).objects() == []
    folders = {request.split()[1] for request in site.requests}
    assert folders == {
        *("/run", "/run/a.lcc.h5", "/run/.rolled-back", "/run/.rolled-back/0001-to-5"),
        "/run/.rolled-back/0001-to-5/a.lcc.h5",
    }
    assert len(site.requests) == len(folders)


@pytest.mark.parametrize("limit", ["folders", "bytes", "page", "objects", "time"])
def test_listings_come_to_an_end(site: Site, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    site.files |= {f"/run/{number:012d}.lcc.h5/0": b"1" for number in range(9)}
    assert len(backend(site).objects()) == 9
    if limit == "folders":
        tune(monkeypatch, web_max_folders=5)
    elif limit == "bytes":
        monkeypatch.setattr(module, "MAX_LISTING_BYTES", 700)
    elif limit == "page":
        site.rule = lambda *_: "flood"
        tune(monkeypatch, web_max_page_bytes=1 << 20)
    elif limit == "objects":
        monkeypatch.setattr(limits, "MAX_OBJECTS", 5)
    else:
        tune(monkeypatch, web_listing_seconds=-1)
    with pytest.raises(StorageError, match="has no end"):
        backend(site).objects()
    assert site.sent < UNREAD


@pytest.mark.parametrize("text", ["x", '<a href="', "href=", "<a " + " " * 100, "href='a' "])
def test_pages_are_searched_in_proportion_to_their_length(site: Site, text: str) -> None:
    """No page makes the search try the same bytes over and over: 2 MB would take hours."""
    assert len(backend(site)._names("", text * (1 + (2 << 20) // len(text)))) <= 1


@pytest.mark.parametrize("size", [10**15, 10**18 - 1])
@pytest.mark.parametrize("tail", [500, 10**15, 10**16 - 1])
def test_sizes_that_are_claimed_take_no_memory(site: Site, size: int, tail: int) -> None:
    """The length of an object, and that of the end of a file in its name."""
    name = f"0.0.{'0' * 64}.none.{tail}.lcc.h5"
    site.files |= {"/run/000000000000.lcc.h5/0": b"1", f"/run/000000000000.lcc.h5/{name}": bytes(1000)}
    found = backend(site)
    head, key = found.head, f"000000000000.lcc.h5/{name}"
    found.head = lambda key: head(key) if len(key) < 99 else limits.Object(key, size, 0.0)
    patient = PatientBackend(found, site.address, Patience(reading=0.1, first=0.01, longest=0.02))
    store = BucketStore(Address.of(f"{site.address}/run"), patient)
    with pytest.raises(LccodecError):
        store.open("000000000000.lcc.h5")
    with pytest.raises(StorageError):
        patient.read(key, 0, size)
