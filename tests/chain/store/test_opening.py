"""From a place to its store."""

from __future__ import annotations

from pathlib import Path

import pytest

import lccodec
from lccodec.chain.store.bucket.store import BucketStore
from lccodec.chain.store.directory import DirectoryStore
from lccodec.chain.store.opening import BundleStore, is_chain, is_folder, open_store, writable_store
from lccodec.container.disk.address import Address, Place

from ...support.walks import chain_of


@pytest.fixture
def places(tmp_path: Path) -> dict[str, Place]:
    chain_of(tmp_path / "run")[0].close()
    lccodec.bundle(tmp_path / "run", tmp_path / "run.lccb")
    file = tmp_path / "run" / "000000000000.lcc.h5"
    return {"directory": tmp_path / "run", "bundle": tmp_path / "run.lccb", "file": file}


def test_each_place_has_its_store(places: dict[str, Place]) -> None:
    for name, expected in {"directory": DirectoryStore, "bundle": BundleStore}.items():
        with open_store(places[name]) as store:
            assert type(store) is expected
            assert list(store.steps()) == [0, 1, 2, 3]
    assert type(writable_store(places["directory"])) is DirectoryStore


def test_an_address_has_a_bucket() -> None:
    import fsspec  # noqa: F401 - what it needs

    with open_store(Address.of("memory://nothing/run")) as store:
        assert type(store) is BucketStore
        assert store.steps() == {}
        assert store.nothing() == "memory://nothing/run holds no checkpoint"


def test_what_may_have_many_steps(places: dict[str, Place]) -> None:
    address = Address.of("memory://nothing/run")
    assert [is_folder(place) for place in (*places.values(), address)] == [True, False, False, True]
    assert [is_chain(place) for place in (*places.values(), address)] == [True, True, False, True]
